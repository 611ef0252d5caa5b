//! What can be asked of consensus, and the three ways in which it answers.

use std::time::Duration;

/// 16 random bytes that name a writer (an admin connection, a token, a `ctl` run).
pub type ClientId = [u8; 16];

/// Makes a forwarded write exactly-once: a writer never gives a `seq` to two requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId {
    /// The writer.
    pub client: ClientId,
    /// Counts the writer's requests from 1.
    pub seq: u64,
}

/// The three layers of a module (design.md section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Layer {
    /// `main.t`: the cluster's staging area.
    Memory,
    /// Runtime intent, stored as `base_runtime_t`.
    Runtime,
    /// `disk.t`, stored as `disk_t`.
    Disk,
}

/// Through which door a request came, for audit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Channel {
    /// Admin port, MySQL protocol.
    Mysql,
    /// Admin port, PostgreSQL protocol.
    Pgsql,
    /// Admin gRPC.
    Grpc,
    /// This process itself (bootstrap, demo, promotion).
    Internal,
}

/// Who asks, for history and conflict texts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Admin user.
    pub actor: String,
    /// Door.
    pub channel: Channel,
    /// Node id at which the request arrived.
    pub node: u64,
    /// Client address, empty for `Internal`.
    pub client_addr: String,
}

/// An SQL value as SQLite stores it.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// NULL.
    Null,
    /// INTEGER.
    Integer(i64),
    /// REAL.
    Real(f64),
    /// TEXT.
    Text(String),
    /// BLOB.
    Blob(Vec<u8>),
}

impl Value {
    /// Bytes that it occupies, roughly.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Blob(bytes) => bytes.len(),
            Self::Null | Self::Integer(_) | Self::Real(_) => 8,
        }
    }
}

/// One write.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// For retries.
    pub id: RequestId,
    /// For audit.
    pub origin: Origin,
    /// What to do.
    pub op: Op,
    /// How long the caller waits; the answer after it is `Unknown` or `Rejected`, never silence.
    pub timeout: Duration,
}

/// What a write does.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// One INSERT, UPDATE, DELETE or REPLACE on MEMORY or `disk.` tables, executed on the leader.
    Sql {
        /// The statement in SQLite's dialect; qualified names (`main.t`, `disk.t`) as the user wrote them.
        text: String,
        /// Bound parameters, for prepared statements.
        params: Vec<Value>,
        /// The text for history, secrets masked.
        masked: String,
    },
    /// `LOAD` and `SAVE`: one entry for all named modules.
    LayerCopy(LayerCopy),
    /// `SET NODE id name=value`, or per-node variables: a row of `node_overrides`; `None` removes it.
    NodeOverride {
        /// Whose override.
        node_id: u64,
        /// Variable.
        name: String,
        /// New value.
        value: Option<String>,
    },
    /// Stores the hash of a join token.
    JoinToken {
        /// SHA-256 of the 32 secret bytes.
        sha256: [u8; 32],
        /// `true` = the joiner may be promoted to voter.
        voter: bool,
        /// Wall clock of expiry, milliseconds since 1970.
        expires_ms: u64,
    },
    /// Takes a member, dead or alive, out of the cluster for ever.
    RemoveNode {
        /// Its id, which is never given again.
        node_id: u64,
        /// Also when a quorum of the remaining voters does not answer.
        force: bool,
    },
}

/// A copy of whole modules from one layer to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayerCopy {
    /// Names as in `tables::MODULES`, e.g. `MYSQL SERVERS`.
    pub modules: Vec<String>,
    /// Source.
    pub from: Layer,
    /// Target.
    pub to: Layer,
    /// `IF REVISION n`: refused unless this is the module's runtime revision.
    pub if_revision: Option<u64>,
    /// Validate and report, propose nothing.
    pub dry_run: bool,
    /// Allows a non-empty runtime table to become empty.
    pub force: bool,
    /// `COMMENT '…'`, for history.
    pub comment: String,
    /// For each module: the `memory_index` that this connection has seen; `None` = as of now (never conflicts).
    pub seen: Vec<Option<u64>>,
    /// What to do when MEMORY was changed by another connection since `seen` (`admin-edit_conflicts`).
    pub conflicts: EditConflicts,
}

/// `admin-edit_conflicts`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EditConflicts {
    /// Executed with a warning.
    Warn,
    /// Refused, 1213 / 40001.
    Error,
    /// As the reference.
    Off,
}

/// How a write ended. Nothing turns `Unknown` into either of the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A quorum has it, and this node has applied it (unless `live` is false).
    Committed(Committed),
    /// It has no effect and never will.
    Rejected(Rejection),
    /// No answer in time; it may still be applied. The text is for the client.
    Unknown(Rejection),
}

/// Leadership that was handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transferred {
    /// Who leads now.
    pub new_leader: u64,
    /// From the request at the old leader until another node led.
    pub took: Duration,
}

/// A committed write.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Committed {
    /// Log index; for a statement that changed nothing the applied index at which it was executed.
    pub index: u64,
    /// Revision of RUNTIME after it, where it changed RUNTIME.
    pub revision: Option<u64>,
    /// True affected rows; 0 for LOAD and SAVE.
    pub affected: u64,
    /// rowid of the last INSERT; 0 = none.
    pub last_insert_id: i64,
    /// e.g. `revision 1842, 3 rows changed in mysql_servers`.
    pub info: String,
    /// Warnings for SHOW WARNINGS / NOTICE.
    pub warnings: Vec<String>,
    /// Whether this node's RUNTIME objects already follow it.
    pub live: bool,
    /// `(module, memory_index)` of each module of whose MEMORY this write changed rows: the connection's new `seen`.
    pub memory: Vec<(String, u64)>,
}

/// A refusal in both dialects (raft-and-storage.md 4.7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// MySQL error number.
    pub mysql_code: u16,
    /// MySQL SQLSTATE.
    pub mysql_state: String,
    /// PostgreSQL SQLSTATE.
    pub pgsql_state: String,
    /// What, why, and what to do.
    pub message: String,
}

/// How fresh a read of configuration must be (raft-and-storage.md 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadLevel {
    /// Linearizable while a leader confirms, else local with a warning.
    Auto,
    /// This node's applied state.
    Local,
    /// Linearizable or an error.
    Linearizable,
}

/// What a read may say about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadMark {
    /// This node's applied index, at or after the confirmed one.
    pub applied_index: u64,
    /// Set when the read is local because no leader confirmed.
    pub warning: Option<String>,
}

/// Published after each applied batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// Applied index.
    pub index: u64,
    /// Revision of RUNTIME (any module).
    pub revision: u64,
    /// Index of the last entry that changed RUNTIME rows or node overrides: rebuild when it moves.
    pub runtime_index: u64,
}

/// What the proposer asks before it publishes MEMORY rows to RUNTIME: implemented by `node`, pure, fast.
pub trait Validator: Send + Sync + 'static {
    /// Checks all rows of `module` (tables and rows in key order). Warnings are shown to the client; an error refuses the LOAD.
    ///
    /// # Errors
    /// The first invalid row, naming row and column.
    fn validate(&self, module: &str, tables: &[TableRows]) -> Result<Vec<String>, String>;
}

/// All rows of one table in one layer, in primary key order.
#[derive(Clone, PartialEq, Debug)]
pub struct TableRows {
    /// Visible name, e.g. `mysql_servers`.
    pub table: String,
    /// Column names in table order.
    pub columns: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<Value>>,
}
