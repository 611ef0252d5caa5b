# Sourced by deploy/demo and deploy/test: installs what is missing on Debian 12 or Ubuntu. Each function says what it
# does before it does it, and does nothing when the thing is there.

say() { printf '\033[1m== %s\033[0m\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || die "run as root: packages are installed and databases are started under their own accounts"

# Packages of the distribution. A policy-rc.d keeps their services from being started: tests start their own.
packages() {
    local missing=() package
    for package in "$@"; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
    [ ${#missing[@]} -eq 0 ] && return
    say "installing ${missing[*]}"
    local ours=
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
        chmod 755 /usr/sbin/policy-rc.d
        ours=yes
    fi
    apt-get update -qq || die "apt-get update failed"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/tmp/quorumsql-apt.log 2>&1
    local installed=$?
    [ -z "$ours" ] || rm -f /usr/sbin/policy-rc.d
    [ "$installed" = 0 ] || die "apt-get install failed: $(tail -3 /tmp/quorumsql-apt.log)"
}

# rustc and cargo >= 1.90 with clippy and rustfmt; Debian's own are too old.
rust() {
    export PATH="$HOME/.cargo/bin:$PATH"
    local minor
    minor=$(cargo --version 2>/dev/null | sed -n 's/^cargo 1\.\([0-9]*\).*/\1/p')
    if [ "${minor:-0}" -lt 90 ]; then
        packages curl ca-certificates
        say "installing Rust: curl https://sh.rustup.rs | sh -s -- -y --profile default"
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile default || die "rustup failed"
    fi
    packages build-essential
}

# MySQL 9 exists in Debian sid only: a chroot keeps it away from the host. `testing` on a day when sid cannot be installed.
mysql9() {
    export QUORUMSQL_SID="${QUORUMSQL_SID:-${TMPDIR:-/tmp}/sid}"
    [ -x "$QUORUMSQL_SID/usr/sbin/mysqld" ] && return
    packages debootstrap
    local suite
    for suite in sid testing; do
        say "installing MySQL 9 from $suite into $QUORUMSQL_SID"
        rm -rf "$QUORUMSQL_SID"
        debootstrap --variant=minbase --include=mysql-server-core,mysql-client-core "$suite" "$QUORUMSQL_SID" >/tmp/quorumsql-sid.log 2>&1 && return
        say "$suite cannot be installed today: $(tail -1 /tmp/quorumsql-sid.log)"
    done
    die "neither sid nor testing has an installable MySQL 9 today (log: /tmp/quorumsql-sid.log)"
}

# Python client libraries, in a virtual environment under target/.
python_clients() {
    export QUORUMSQL_PYTHON="$PWD/target/deploy/venv/bin/python"
    "$QUORUMSQL_PYTHON" -c 'import pymysql, psycopg, cryptography, mysql.connector, asyncpg' 2>/dev/null && return
    packages python3 python3-venv
    say "installing PyMySQL, mysql-connector-python, psycopg 3 and asyncpg"
    python3 -m venv target/deploy/venv &&
        target/deploy/venv/bin/pip -q install pymysql==1.2.4 mysql-connector-python==26.10.0 'psycopg[binary]==3.3.9' asyncpg==0.32.0 cryptography==50.0.2 ||
        die "pip failed"
}

# Go >= 1.23; Debian's own is too old.
golang() {
    command -v go >/dev/null && return
    grep -rqs bookworm-backports /etc/apt/sources.list /etc/apt/sources.list.d ||
        echo 'deb http://deb.debian.org/debian bookworm-backports main' >/etc/apt/sources.list.d/backports.list
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -t bookworm-backports golang-go >/tmp/quorumsql-apt.log 2>&1 ||
        die "apt-get install golang-go failed: $(tail -3 /tmp/quorumsql-apt.log)"
}

# grpcurl, built by Go.
grpcurl() {
    export QUORUMSQL_GRPCURL="$PWD/target/deploy/bin/grpcurl"
    [ -x "$QUORUMSQL_GRPCURL" ] && return
    golang
    say "building grpcurl 1.9.4"
    GOBIN="$PWD/target/deploy/bin" go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4 || die "go install grpcurl failed"
}

# Go drivers of the corpus; Go itself sees what has changed.
go_clients() {
    export QUORUMSQL_CORPUS_GO="$PWD/target/deploy/bin/corpus"
    golang
    go build -C node/tests/corpus/drivers/go -o "$QUORUMSQL_CORPUS_GO" . || die "go build of the corpus drivers failed"
}

# Node.js drivers of the corpus, in the versions of their lock file.
node_clients() {
    local lock=node/tests/corpus/drivers/node/package-lock.json own=target/deploy/node
    export QUORUMSQL_NODE_MODULES="$PWD/$own/node_modules"
    [ -d "$QUORUMSQL_NODE_MODULES" ] && cmp -s "$lock" "$own/package-lock.json" && return
    command -v npm >/dev/null || packages nodejs npm
    say "installing mysql2 and node-postgres"
    mkdir -p "$own" && cp "${lock%/*}/package.json" "$own/" && cp "$lock" "$own/" || die "cannot write to $own"
    (cd "$own" && npm ci --silent --no-audit --no-fund) || die "npm failed"
}

# JDBC drivers of the corpus and its program.
java_clients() {
    local source=node/tests/corpus/drivers/java own=target/deploy/java
    export QUORUMSQL_CORPUS_JAVA="$PWD/$own:$PWD/$own/*"
    cmp -s "$source/pom.xml" "$own/pom.xml" && cmp -s "$source/Corpus.java" "$own/Corpus.java" && return
    command -v javac >/dev/null || packages default-jdk-headless
    command -v mvn >/dev/null || packages maven
    say "installing pgjdbc"
    rm -rf "$own" && mkdir -p "$own" &&
        mvn -q -B -f "$source/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$PWD/$own" &&
        javac -cp "$own/*" -d "$own" "$source/Corpus.java" && cp "$source/pom.xml" "$source/Corpus.java" "$own/" || die "mvn or javac failed"
}

# cargo-deny checks licences, sources and banned crates (deny.toml).
cargo_deny() {
    command -v cargo-deny >/dev/null && return
    say "building cargo-deny (licence check)"
    CARGO_TARGET_DIR=target/deploy/cargo-deny cargo install --quiet --locked cargo-deny --version 0.18.5 || die "cargo install cargo-deny failed"
    rm -rf target/deploy/cargo-deny
}
