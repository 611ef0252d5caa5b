//! The command line: what can be typed, and which function answers.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::Span;

/// Proxy for MySQL and PostgreSQL whose nodes agree on their configuration.
#[derive(Parser, Debug)]
#[command(name = "quorumsql", version, about, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One verb each.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Runs a node that was made by `init` or `join`.
    Run(RunArgs),
    /// Starts a whole cluster on this machine, in front of an embedded or real database.
    Demo(DemoArgs),
    /// Makes a new cluster of which this node is the first member; prints a join token.
    Init(ConfigArgs),
    /// Join tokens.
    Token(TokenArgs),
    /// Makes this node a member of an existing cluster.
    Join(JoinArgs),
    /// Gives the only voter of a cluster a new log when its own is damaged; the node must not run.
    RaftRebuild(ConfigArgs),
    /// Asks a running node through gRPC.
    Ctl(CtlArgs),
    /// Reads the bootstrap file and the environment and prints what a node would use.
    CheckConfig(ConfigArgs),
    /// Prints the version.
    Version,
}

/// Where the bootstrap file is.
#[derive(Args, Debug, Clone)]
pub(crate) struct ConfigArgs {
    /// Bootstrap file [default: /etc/quorumsql/quorumsql.toml].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `run`
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// File that holds the process id while the node runs.
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// Stops when the process that started it ends.
    #[arg(long, hide = true)]
    pub(crate) stop_with_parent: bool,
}

/// `demo`
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Number of nodes: 1, 3 or 5.
    #[arg(long, default_value_t = 3, value_parser = parse_node_count)]
    pub(crate) nodes: u8,
    /// Directory for configuration, data and logs; kept at the end [default: a temporary one, removed at the end].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// First three numbers of the nodes' addresses.
    #[arg(long, default_value = "127.0.0", value_name = "127.A.B", value_parser = parse_net)]
    pub(crate) net: [u8; 3],
    /// Real MySQL or MariaDB servers, the first one is the writer at the start.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', value_parser = parse_backend)]
    pub(crate) mysql: Vec<(String, u16)>,
    /// Real PostgreSQL servers, the first one is the writer at the start.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', value_parser = parse_backend)]
    pub(crate) pgsql: Vec<(String, u16)>,
    /// User that clients and nodes log in with; must exist on real servers.
    #[arg(long, value_name = "NAME:PASSWORD", default_value = "demo:demo", value_parser = parse_user)]
    pub(crate) user: (String, String),
}

/// `token …`
#[derive(Args, Debug)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) verb: TokenVerb,
}

/// What to do with tokens.
#[derive(Subcommand, Debug)]
pub(crate) enum TokenVerb {
    /// Prints a new single-use token for `join`.
    Create(TokenCreateArgs),
}

/// `token create`
#[derive(Args, Debug)]
pub(crate) struct TokenCreateArgs {
    #[command(flatten)]
    pub(crate) connection: GrpcArgs,
    /// What the joiner may become.
    #[arg(long, value_enum, default_value_t = Role::Voter)]
    pub(crate) role: Role,
    /// How long the token can be used.
    #[arg(long, default_value = "1h")]
    pub(crate) ttl: Span,
}

/// What a token's bearer may become.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Role {
    /// Member with a vote, after it has caught up.
    Voter,
    /// Member without a vote.
    Learner,
}

/// `join`
#[derive(Args, Debug)]
pub(crate) struct JoinArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Token printed by `init` or `token create`.
    // One cluster in 64 has tokens that begin with a hyphen.
    #[arg(long, env = "QUORUMSQL_JOIN_TOKEN", hide_env_values = true, allow_hyphen_values = true)]
    pub(crate) token: String,
    /// Peer listener of any member.
    #[arg(long, value_name = "HOST:6035")]
    pub(crate) peer: String,
    /// Member whose place this node takes once it has caught up; it may have its name and address.
    #[arg(long, value_name = "NODE_ID")]
    pub(crate) replace: Option<u64>,
}

/// `ctl …`
#[derive(Args, Debug)]
pub(crate) struct CtlArgs {
    #[command(flatten)]
    pub(crate) connection: GrpcArgs,
    #[command(subcommand)]
    pub(crate) verb: CtlVerb,
}

/// What `ctl` can ask.
#[derive(Subcommand, Debug)]
pub(crate) enum CtlVerb {
    /// The cluster as the asked node sees it.
    Status,
    /// Takes a member, dead or alive, out of the cluster for ever.
    Remove(RemoveArgs),
    /// Makes another voter the leader.
    TransferLeadership(TransferArgs),
}

/// `ctl remove`
#[derive(Args, Debug)]
pub(crate) struct RemoveArgs {
    /// Its id, as `ctl status` shows it.
    pub(crate) node_id: u64,
    /// Also when a quorum of the remaining voters does not answer: configuration stays read-only until they do.
    #[arg(long)]
    pub(crate) force: bool,
}

/// `ctl transfer-leadership`
#[derive(Args, Debug)]
pub(crate) struct TransferArgs {
    /// Voter that is to lead [default: the one that is furthest].
    #[arg(long, value_name = "NODE_ID")]
    pub(crate) to: Option<u64>,
}

/// How to reach a node's admin gRPC.
#[derive(Args, Debug, Clone)]
pub(crate) struct GrpcArgs {
    /// Bootstrap file of the node to ask, instead of --endpoint.
    #[arg(long, value_name = "FILE", conflicts_with = "endpoint")]
    pub(crate) config: Option<PathBuf>,
    /// Admin gRPC of a node [default: 127.0.0.1:6034].
    #[arg(long, env = "QUORUMSQL_ENDPOINT", value_name = "HOST:PORT")]
    pub(crate) endpoint: Option<String>,
    /// Certificate authority of the cluster, for TLS; plain text without it.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Admin account.
    #[arg(long, env = "QUORUMSQL_ADMIN_USER", default_value = "admin")]
    pub(crate) user: String,
    /// File with its password; else QUORUMSQL_ADMIN_PASSWORD, else `admin`.
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

fn parse_node_count(text: &str) -> Result<u8, String> {
    match text {
        "1" | "3" | "5" => Ok(text.as_bytes()[0] - b'0'),
        _ => Err("1, 3 or 5".into()),
    }
}

fn parse_net(text: &str) -> Result<[u8; 3], String> {
    let parts: Vec<u8> = text.split('.').map(str::parse).collect::<Result<_, _>>().map_err(|_| "three numbers, 127.A.B")?;
    match parts[..] {
        [127, a, b] => Ok([127, a, b]),
        _ => Err("three numbers, 127.A.B".into()),
    }
}

fn parse_backend(text: &str) -> Result<(String, u16), String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok((address.ip().to_string(), address.port()));
    }
    let (host, port) = text.rsplit_once(':').ok_or("HOST:PORT")?;
    if host.is_empty() {
        return Err("HOST:PORT".into());
    }
    Ok((host.to_owned(), port.parse().map_err(|_| "HOST:PORT")?))
}

fn parse_user(text: &str) -> Result<(String, String), String> {
    let (name, password) = text.split_once(':').ok_or("NAME:PASSWORD")?;
    if name.is_empty() { Err("NAME:PASSWORD".into()) } else { Ok((name.to_owned(), password.to_owned())) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_token_may_begin_with_a_hyphen() {
        let parsed = Cli::try_parse_from(["quorumsql", "join", "--token", "-Ab_c", "--peer", "127.0.0.1:6035"]).unwrap();
        assert!(matches!(parsed.command, Command::Join(join) if join.token == "-Ab_c" && join.peer == "127.0.0.1:6035"));
    }

    #[test]
    fn demo_arguments_are_parsed_and_nonsense_is_refused() {
        let demo = |arguments: &[&str]| match Cli::try_parse_from(["quorumsql", "demo"].iter().chain(arguments)).map(|cli| cli.command) {
            Ok(Command::Demo(demo)) => Ok(demo),
            Ok(_) => unreachable!(),
            Err(error) => Err(error.to_string()),
        };
        let given = demo(&["--nodes", "5", "--mysql", "127.0.0.1:3306,db:3307", "--pgsql", "[::1]:5432", "--net", "127.3.4"]).unwrap();
        assert_eq!((given.nodes, given.net), (5, [127, 3, 4]));
        assert_eq!(given.mysql, [("127.0.0.1".to_owned(), 3306), ("db".to_owned(), 3307)]);
        assert_eq!(given.pgsql, [("::1".to_owned(), 5432)]);
        assert_eq!(given.user, ("demo".to_owned(), "demo".to_owned()));
        for wrong in [["--nodes", "2"], ["--net", "10.0.0"], ["--mysql", "host"], ["--user", "demo"], ["--mysql", ":1"]] {
            assert!(demo(&wrong).is_err(), "{wrong:?}");
        }
    }
}
