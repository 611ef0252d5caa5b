//! Error numbers that this project originates, with the SQLSTATE that goes with each.
//!
//! Source of the numbers below 9000: MySQL 9 "Server Error Message Reference"; of 9001 and up: ProxySQL (mysql-dataplane 9.7).

/// Number and SQLSTATE of an ERR packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorCode {
    /// The number.
    pub code: u16,
    /// Five characters.
    pub sqlstate: [u8; 5],
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal $state:literal;)*) => {
        $($(#[$doc])* pub const $name: ErrorCode = ErrorCode { code: $code, sqlstate: *$state };)*
    };
}

codes! {
    /// `ER_CON_COUNT_ERROR`: too many connections.
    CON_COUNT = 1040 b"08004";
    /// `ER_CON_COUNT_ERROR` as ProxySQL uses it for accounts that may only connect locally.
    LOCAL_ONLY = 1040 b"42000";
    /// `ER_HANDSHAKE_ERROR`: bad handshake.
    HANDSHAKE = 1043 b"08S01";
    /// `ER_DBACCESS_DENIED_ERROR`.
    DB_ACCESS_DENIED = 1044 b"42000";
    /// `ER_ACCESS_DENIED_ERROR`.
    ACCESS_DENIED = 1045 b"28000";
    /// `ER_NO_DB_ERROR`: no database selected.
    NO_DB = 1046 b"3D000";
    /// `ER_UNKNOWN_COM_ERROR`.
    UNKNOWN_COMMAND = 1047 b"08S01";
    /// `ER_UNKNOWN_COM_ERROR` as ProxySQL answers LOAD DATA LOCAL INFILE.
    UNSUPPORTED_LOCAL_INFILE = 1047 b"HY000";
    /// `ER_BAD_DB_ERROR`: unknown database.
    BAD_DB = 1049 b"42000";
    /// `ER_TABLE_EXISTS_ERROR`.
    TABLE_EXISTS = 1050 b"42S01";
    /// `ER_SERVER_SHUTDOWN`.
    SERVER_SHUTDOWN = 1053 b"08S01";
    /// `ER_BAD_FIELD_ERROR`: unknown column.
    BAD_FIELD = 1054 b"42S22";
    /// `ER_DUP_ENTRY`.
    DUPLICATE_ENTRY = 1062 b"23000";
    /// `ER_PARSE_ERROR`.
    PARSE = 1064 b"42000";
    /// `ER_EMPTY_QUERY`.
    EMPTY_QUERY = 1065 b"42000";
    /// `ER_NO_SUCH_THREAD`.
    NO_SUCH_THREAD = 1094 b"HY000";
    /// `ER_KILL_DENIED_ERROR`: another user's session.
    KILL_DENIED = 1095 b"HY000";
    /// `ER_UNKNOWN_ERROR`.
    UNKNOWN = 1105 b"HY000";
    /// `ER_UNKNOWN_CHARACTER_SET`.
    UNKNOWN_CHARSET = 1115 b"42000";
    /// `ER_NO_SUCH_TABLE`.
    NO_SUCH_TABLE = 1146 b"42S02";
    /// `ER_NOT_ALLOWED_COMMAND`: ProxySQL's number for a rule's `error_msg`.
    NOT_ALLOWED = 1148 b"42000";
    /// `ER_NET_PACKET_TOO_LARGE`.
    PACKET_TOO_LARGE = 1153 b"08S01";
    /// `ER_NET_PACKETS_OUT_OF_ORDER`.
    PACKETS_OUT_OF_ORDER = 1156 b"08S01";
    /// `ER_UNKNOWN_SYSTEM_VARIABLE`.
    UNKNOWN_VARIABLE = 1193 b"HY000";
    /// `ER_LOCK_WAIT_TIMEOUT`.
    LOCK_WAIT_TIMEOUT = 1205 b"HY000";
    /// `ER_WRONG_ARGUMENTS`.
    WRONG_ARGUMENTS = 1210 b"HY000";
    /// `ER_LOCK_DEADLOCK`; also the loser of a compare-and-set of the configuration.
    DEADLOCK = 1213 b"40001";
    /// `ER_USER_LIMIT_REACHED`.
    USER_LIMIT = 1226 b"42000";
    /// `ER_SPECIFIC_ACCESS_DENIED_ERROR`.
    SPECIFIC_ACCESS_DENIED = 1227 b"42000";
    /// `ER_WRONG_VALUE_FOR_VAR`.
    WRONG_VALUE_FOR_VARIABLE = 1231 b"42000";
    /// `ER_NOT_SUPPORTED_YET`.
    NOT_SUPPORTED = 1235 b"42000";
    /// `ER_UNKNOWN_STMT_HANDLER`.
    UNKNOWN_STATEMENT = 1243 b"HY000";
    /// `ER_OPTION_PREVENTS_STATEMENT`: the server is read-only.
    READ_ONLY = 1290 b"HY000";
    /// `ER_QUERY_INTERRUPTED`.
    INTERRUPTED = 1317 b"70100";
    /// `ER_MAX_PREPARED_STMT_COUNT_REACHED`.
    MAX_PREPARED = 1461 b"42000";
    /// `ER_MALFORMED_PACKET`.
    MALFORMED_PACKET = 1835 b"HY000";
    /// `ER_QUERY_TIMEOUT` as ProxySQL sends it.
    QUERY_TIMEOUT = 1907 b"70100";
    /// `CR_SERVER_LOST`, sent by a proxy when a server connection broke under a statement.
    SERVER_LOST = 2013 b"HY000";
    /// No server connection in time.
    CONNECT_TIMEOUT = 9001 b"HY000";
    /// All attempts to connect failed.
    CONNECT_FAILURE = 9002 b"HY000";
    /// COM_PROCESS_KILL.
    COMMAND_NOT_SUPPORTED = 9003 b"28000";
    /// A prepared statement for another hostgroup while locked.
    LOCKED_STATEMENT = 9005 b"HY000";
    /// A statement for another hostgroup while locked.
    LOCKED = 9006 b"Y0000";
}
