//! What this node knows besides the replicated tables: given by `node::runtime`, the monitor and the process.

use crate::sql_server::Value;

/// Facts of this node for the admin interface. Methods are called on blocking threads and must not wait.
pub(crate) trait LocalTables: Send + Sync + 'static {
    /// Rows, in column order, of a `runtime_*` table as they are in force on this node (roles and observations
    /// applied); `None` = the committed base rows are in force as they are.
    fn effective(&self, table: &str) -> Option<Vec<Vec<Value>>> {
        let _ = table;
        None
    }

    /// Variables whose value is decided by this node and not by rows (`mysql-threads`, `mysql-interfaces` …).
    fn variables(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Rows, in column order, of a `monitor.*_log` table.
    fn monitor_log(&self, table: &str) -> Vec<Vec<Value>> {
        let _ = table;
        Vec::new()
    }

    /// Reads the files of certificates and keys again.
    ///
    /// # Errors
    /// Why they cannot be used; the former ones stay in use.
    fn reload_tls(&self) -> Result<(), String>;

    /// Opens the files of logs anew.
    fn reopen_logs(&self);

    /// Ends this process in order (`PROXYSQL SHUTDOWN`).
    fn shut_down(&self);
}
