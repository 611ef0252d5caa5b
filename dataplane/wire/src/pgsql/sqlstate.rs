//! SQLSTATE codes that this program itself sends or acts on (PostgreSQL manual, appendix "PostgreSQL Error Codes", version 15).

/// `successful_completion`.
pub const SUCCESSFUL_COMPLETION: &str = "00000";
/// `warning`.
pub const WARNING: &str = "01000";
/// `sqlclient_unable_to_establish_sqlconnection`.
pub const UNABLE_TO_CONNECT: &str = "08001";
/// `sqlserver_rejected_establishment_of_sqlconnection`.
pub const CONNECTION_REJECTED: &str = "08004";
/// `connection_failure`.
pub const CONNECTION_FAILURE: &str = "08006";
/// `transaction_resolution_unknown`.
pub const TRANSACTION_RESOLUTION_UNKNOWN: &str = "08007";
/// `protocol_violation`.
pub const PROTOCOL_VIOLATION: &str = "08P01";
/// `feature_not_supported`.
pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
/// `invalid_parameter_value`.
pub const INVALID_PARAMETER_VALUE: &str = "22023";
/// `invalid_transaction_state`.
pub const INVALID_TRANSACTION_STATE: &str = "25000";
/// `active_sql_transaction`.
pub const ACTIVE_SQL_TRANSACTION: &str = "25001";
/// `read_only_sql_transaction`.
pub const READ_ONLY_SQL_TRANSACTION: &str = "25006";
/// `no_active_sql_transaction`.
pub const NO_ACTIVE_SQL_TRANSACTION: &str = "25P01";
/// `in_failed_sql_transaction`.
pub const IN_FAILED_SQL_TRANSACTION: &str = "25P02";
/// `idle_in_transaction_session_timeout`.
pub const IDLE_IN_TRANSACTION_SESSION_TIMEOUT: &str = "25P03";
/// `invalid_sql_statement_name`.
pub const INVALID_SQL_STATEMENT_NAME: &str = "26000";
/// `invalid_authorization_specification`.
pub const INVALID_AUTHORIZATION_SPECIFICATION: &str = "28000";
/// `invalid_password`.
pub const INVALID_PASSWORD: &str = "28P01";
/// `invalid_cursor_name`.
pub const INVALID_CURSOR_NAME: &str = "34000";
/// `invalid_catalog_name`: no such database.
pub const INVALID_CATALOG_NAME: &str = "3D000";
/// `serialization_failure`.
pub const SERIALIZATION_FAILURE: &str = "40001";
/// `insufficient_privilege`.
pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// `syntax_error`.
pub const SYNTAX_ERROR: &str = "42601";
/// `undefined_object`.
pub const UNDEFINED_OBJECT: &str = "42704";
/// `undefined_table`.
pub const UNDEFINED_TABLE: &str = "42P01";
/// `duplicate_prepared_statement`.
pub const DUPLICATE_PREPARED_STATEMENT: &str = "42P05";
/// `too_many_connections`.
pub const TOO_MANY_CONNECTIONS: &str = "53300";
/// `program_limit_exceeded`.
pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
/// `query_canceled`.
pub const QUERY_CANCELED: &str = "57014";
/// `admin_shutdown`.
pub const ADMIN_SHUTDOWN: &str = "57P01";
/// `cannot_connect_now`.
pub const CANNOT_CONNECT_NOW: &str = "57P03";
/// `idle_session_timeout`.
pub const IDLE_SESSION_TIMEOUT: &str = "57P05";
/// `raise_exception`; the reference's code for a session locked to a hostgroup.
pub const RAISE_EXCEPTION: &str = "P0001";
/// `internal_error`.
pub const INTERNAL_ERROR: &str = "XX000";
