"""The command-line clients mariadb, mysql and psql, fed through a pipe.

The first argument names the client, the second the directory of its root (`/`, or the chroot of MySQL 9).
"""
import os
import re
import subprocess
import sys

import corpus

MARK = "-- the step has ended --"

# What the clients print and must differ, each with its reason.
DIFFERS = [
    (r" \((format|type)=\w+\)$", "MariaDB's extended metadata are not offered to clients"),
    (r" with PID \d+\.$", "a notification names the server process, and each run has its own"),
    (r" at line \d+", "lines are counted over the whole session"),
]


def mariadb(host, port, user, password, database):
    return ["--no-defaults", "-h", host, "-P", str(port), f"-u{user}", f"-p{password}", "--force", "-vv", "-t", "-n", "--delimiter=~~", "--max-allowed-packet=64M",
            "--show-warnings", "--column-type-info", "--default-character-set=utf8mb4", database]


def mysql(host, port, user, password, database):
    # MariaDB does not know the collation that this client asks for at login, and would take another character set than the node.
    names = "--init-command=SET NAMES utf8mb4"
    return ["--no-defaults", names, "--commands", "--system-command=ON", *mariadb(host, port, user, password, database)[1:]]


def psql(host, port, user, password, database):
    return ["-X", "-h", host, "-p", str(port), "-U", user, "-d", database, "-v", "VERBOSITY=verbose", "-P", "null=NULL", "-P", "pager=off"]


CLIENTS = {
    "mariadb": (mariadb, "\n~~\n"),
    "mysql": (mysql, "\n~~\n"),
    "psql": (psql, "\n;\n"),
}


class Client:
    def __init__(self, host, port, user, password, database):
        arguments, self.end = CLIENTS[NAME]
        argv = ["chroot", ROOT, "stdbuf", "-oL", NAME, *arguments(host, port, user, password, database)]
        environment = {**os.environ, "PGPASSWORD": password}
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)

    def login(self):
        return {}

    def step(self, step):
        data = step["data"] + "\\.\n" if step["do"] == "copy_in" else ""
        self.process.stdin.write(f"{step['sql']}{self.end}{data}\\! echo '{MARK}'\n".encode())
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            text = line.decode("utf-8", "backslashreplace").rstrip("\n")
            ended = text.endswith(MARK)  # behind the bytes of a binary COPY there is no end of line
            text = text.removesuffix(MARK)
            for pattern, _ in DIFFERS:
                text = re.sub(pattern, "", text)
            lines.append(corpus.short(text))
            if ended:
                break
        else:
            sys.exit(f"{NAME} ended with {self.process.wait()} after {lines[-5:]}")
        failed = any(line.startswith(("'ERROR", '"ERROR')) for line in lines)
        return [{"error" if failed else "output": lines}]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


if __name__ == "__main__":
    NAME, ROOT = sys.argv.pop(1), sys.argv.pop(1)
    corpus.run(Client)
