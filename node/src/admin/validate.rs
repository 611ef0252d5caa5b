//! What a LOAD of variables must hold beyond type and range, which the state machine checks itself. Rows of servers, users
//! and rules are checked by `runtime`, which must be able to use them.

use quorumsql_raft::command::{TableRows, Value};
use quorumsql_raft::tables;
use quorumsql_wire::mysql::charset;

use super::variables::credentials;

/// Checks the rows of `global_variables` of one module.
///
/// # Errors
/// The first value that cannot be published, with row and column.
pub(crate) fn global_variables(table: &TableRows) -> Result<(), String> {
    let value = |wanted: &str| {
        table.rows.iter().find_map(|row| match row.as_slice() {
            [Value::Text(name), Value::Text(value), ..] if name == wanted => Some(value.as_str()),
            _ => None,
        })
    };
    if let Some(name) = value("mysql-default_charset").filter(|name| !charset::is_charset(&name.to_ascii_lowercase())) {
        return Err(refusal("mysql-default_charset", &format!("'{name}' is no known character set")));
    }
    if let Some(name) = value("mysql-default_collation_connection").filter(|name| !is_collation(name)) {
        return Err(refusal("mysql-default_collation_connection", &format!("'{name}' is no known collation")));
    }
    let admin = value("admin-admin_credentials");
    for (name, list) in [("admin-admin_credentials", admin), ("admin-stats_credentials", value("admin-stats_credentials"))] {
        let Some(list) = list else { continue };
        let pairs = list.split(';').filter(|pair| !pair.trim().is_empty()).count();
        let well_formed = credentials(list).filter(|(user, _)| !user.is_empty()).count();
        if pairs != well_formed {
            return Err(refusal(name, "must be user:password pairs separated by ;"));
        }
    }
    let Some(admin) = admin else { return Ok(()) };
    if credentials(admin).next().is_none() {
        return Err(refusal("admin-admin_credentials", "must name an account: nobody could log in to change it again"));
    }
    let stats = value("admin-stats_credentials").unwrap_or_default();
    let shared = credentials(stats).find(|(user, _)| credentials(admin).any(|(other, _)| other == *user));
    shared.map_or(Ok(()), |(user, _)| {
        Err(refusal("admin-stats_credentials", &format!("must not share the user '{user}' with admin-admin_credentials")))
    })
}

/// What is stored and changes nothing: values that rustls cannot honour, and variables of parts that are not built.
pub(crate) fn without_effect(table: &TableRows) -> Vec<String> {
    let changed = table.rows.iter().filter_map(|row| match row.as_slice() {
        [Value::Text(name), Value::Text(value), ..] => {
            tables::variable(name).filter(|variable| !variable.effective && variable.default != value)
        }
        _ => None,
    });
    let (ciphers, others): (Vec<_>, Vec<_>) = changed.map(|variable| variable.name).partition(|name| name.ends_with("-ssl_p2s_cipher"));
    let ciphers = ciphers.into_iter().map(|name| {
        format!("{name} is not used: its OpenSSL names mean nothing to rustls, which offers the strong suites of TLS 1.2 and 1.3 only")
    });
    let others = (!others.is_empty()).then(|| format!("stored, and without effect in this version: {}", others.join(", ")));
    ciphers.chain(others).collect()
}

/// Servers know `utf8mb3_…` as `utf8_…` too.
fn is_collation(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let full = name.strip_prefix("utf8_").map(|rest| format!("utf8mb3_{rest}"));
    charset::collation_id(full.as_deref().unwrap_or(&name)).is_some()
}

fn refusal(name: &str, why: &str) -> String {
    format!("global_variables ('{name}'), column variable_value: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_sets_and_collations_must_be_known() {
        for (name, text, valid) in [
            ("mysql-default_charset", "utf8", true),
            ("mysql-default_charset", "UTF8MB4", true),
            ("mysql-default_charset", "nope", false),
            ("mysql-default_collation_connection", "utf8_general_ci", true),
            ("mysql-default_collation_connection", "utf8mb4_0900_ai_ci", true),
            ("mysql-default_collation_connection", "", false),
        ] {
            let table = TableRows {
                table: "global_variables".into(),
                columns: vec!["variable_name".into(), "variable_value".into()],
                rows: vec![vec![Value::Text(name.into()), Value::Text(text.into())]],
            };
            let found = global_variables(&table);
            assert_eq!(found.as_ref().err().map(|error| error.contains(name)), (!valid).then_some(true), "{name} = {text}: {found:?}");
        }
    }

    #[test]
    fn lists_of_accounts_are_checked() {
        for (admin, stats, refused) in [
            ("admin:admin", "stats:stats", None),
            ("admin:admin;second:*ABC:D;", "", None),
            ("", "stats:stats", Some("nobody could log in")),
            ("admin", "stats:stats", Some("user:password pairs")),
            ("admin:a", "stats:s;admin:b", Some("share the user 'admin'")),
        ] {
            let row = |name: &str, value: &str| vec![Value::Text(name.into()), Value::Text(value.into())];
            let table = TableRows {
                table: "global_variables".into(),
                columns: vec!["variable_name".into(), "variable_value".into()],
                rows: vec![row("admin-admin_credentials", admin), row("admin-stats_credentials", stats)],
            };
            let found = global_variables(&table);
            assert_eq!(
                found.as_ref().err().map(|text| refused.is_some_and(|part| text.contains(part))),
                refused.map(|_| true),
                "{admin} {found:?}"
            );
        }
    }
}
