//! Who may log in on the admin ports (admin-commands.md 1), and with which session.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::context::Context;
use super::error::handler_error;
use super::read::Audience;
use super::session::AdminSession;
use super::variables::{credentials, value_or_default};
use crate::sql_server::{Account, Database, Face, Login, Parameters, SqlError};

/// The admin interface as a database of the SQL server.
pub(crate) struct AdminDatabase {
    context: Arc<Context>,
}

impl AdminDatabase {
    /// Over the handles of this node.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }
}

impl Database for AdminDatabase {
    type Session = AdminSession;

    async fn parameters(&self, face: Face) -> Parameters {
        let values = self.context.variables().await.unwrap_or_default();
        let value = |name: &str| value_or_default(&values, name).to_owned();
        let off = |name: &str| matches!(value_or_default(&values, name), "false" | "0");
        match face {
            Face::Mysql => Parameters {
                server_version: value("mysql-server_version"),
                default_plugin: value("mysql-default_authentication_plugin"),
                plain: off("mysql-have_ssl"),
                access_denied_prefix: "ProxySQL Error: ",
                ..Parameters::default()
            },
            Face::Pgsql => Parameters {
                server_version: value("pgsql-server_version"),
                pgsql: vec![("is_superuser".into(), "on".into())],
                plain: off("pgsql-have_ssl"),
                ..Parameters::default()
            },
        }
    }

    async fn account(&self, login: &Login) -> Result<Option<Account>, SqlError> {
        let values = self.context.variables().await?;
        let Some((_, secret)) = find(&values, &login.user) else { return Ok(None) };
        let only_local =
            matches!(login.user.as_str(), "admin" | "stats") || login.user == value_or_default(&values, "mysql-monitor_username");
        if only_local && !login.peer.is_loopback() {
            return Err(SqlError::new(1040, "42000", "08004", format!("User '{}' can only connect locally", login.user)));
        }
        Ok(Some(Account { secret }))
    }

    fn cancel(&self, connection_id: u32) {
        self.context.running.interrupt((Face::Pgsql, connection_id));
    }

    async fn open(&self, login: Login) -> Result<AdminSession, SqlError> {
        let values = self.context.variables().await?;
        let audience = find(&values, &login.user).map_or(Audience::Stats, |(audience, _)| audience);
        let mut client = [0; 16];
        getrandom::fill(&mut client).map_err(|error| handler_error(format!("no random bytes: {error}")))?;
        Ok(AdminSession::new(Arc::clone(&self.context), login, audience, client))
    }
}

/// The lists in force, admin first; the monitor's user may read statistics.
fn find(values: &BTreeMap<String, String>, user: &str) -> Option<(Audience, String)> {
    let listed =
        |name: &str| credentials(value_or_default(values, name)).find(|(known, _)| *known == user).map(|(_, secret)| secret.to_owned());
    let monitor = || {
        (value_or_default(values, "mysql-monitor_username") == user).then(|| value_or_default(values, "mysql-monitor_password").to_owned())
    };
    listed("admin-admin_credentials")
        .map(|secret| (Audience::Admin, secret))
        .or_else(|| listed("admin-stats_credentials").or_else(monitor).map(|secret| (Audience::Stats, secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_come_from_the_lists_in_force() {
        let values = BTreeMap::from([("admin-admin_credentials".to_owned(), "admin:admin; root:*14E6:5567".to_owned())]);
        for (user, expected) in [
            ("admin", Some((Audience::Admin, "admin".to_owned()))),
            ("root", Some((Audience::Admin, "*14E6:5567".to_owned()))),
            ("stats", Some((Audience::Stats, "stats".to_owned()))),
            ("monitor", Some((Audience::Stats, "monitor".to_owned()))),
            ("nobody", None),
        ] {
            assert_eq!(find(&values, user), expected, "{user}");
        }
    }
}
