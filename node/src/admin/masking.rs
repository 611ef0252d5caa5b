//! Secrets do not enter history or logs.

use crate::sql_server::lexer::{Kind, tokens};

/// Names that say that a literal beside them may be a secret.
const SUSPECT: [&str; 4] = ["password", "credentials", "_users", "secret"];

/// The statement for history: if it names anything secret, all its literals are masked, because any may be one.
pub(crate) fn masked(sql: &str) -> String {
    let lower = sql.to_ascii_lowercase();
    if !SUSPECT.iter().any(|word| lower.contains(word)) {
        return sql.to_owned();
    }
    let mut out = String::with_capacity(sql.len());
    let mut copied = 0;
    for token in tokens(sql).iter().filter(|token| matches!(token.kind, Kind::String | Kind::DoubleQuoted)) {
        out.push_str(&sql[copied..token.start]);
        out.push_str("'***'");
        copied = token.end();
    }
    out.push_str(&sql[copied..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_suspect_statements_are_masked() {
        for (sql, expected) in [
            (
                "INSERT INTO mysql_users (username, password) VALUES ('bob', \"pa'ss\")",
                "INSERT INTO mysql_users (username, password) VALUES ('***', '***')",
            ),
            (
                "UPDATE global_variables SET variable_value='x' WHERE variable_name='mysql-monitor_password'",
                "UPDATE global_variables SET variable_value='***' WHERE variable_name='***'",
            ),
            ("DELETE FROM mysql_servers WHERE hostname='db1'", "DELETE FROM mysql_servers WHERE hostname='db1'"),
        ] {
            assert_eq!(masked(sql), expected);
        }
    }
}
