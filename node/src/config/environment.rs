//! `QUORUMSQL_SECTION__KEY` over the bootstrap file.

use toml::{Table, Value};

use super::{ConfigError, NodeConfig};

const PREFIX: &str = "QUORUMSQL_";

/// Puts each variable of the form `QUORUMSQL_SECTION__KEY` into `table`. Variables without `__` belong to other tools
/// (`QUORUMSQL_BIN`, `QUORUMSQL_ENDPOINT`) and are left alone.
pub(super) fn overlay(table: &mut Table, environment: impl Iterator<Item = (String, String)>) -> Result<(), ConfigError> {
    let defaults = Table::try_from(NodeConfig::default()).expect("the default configuration is a table");
    for (name, text) in environment {
        let Some((section, key)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once("__")) else { continue };
        let (section, key) = (section.to_ascii_lowercase(), key.to_ascii_lowercase());
        let error = |message: &str| ConfigError::Environment { name: name.clone(), message: message.into() };
        // The default's type is the key's type: every key has a default.
        let default = defaults.get(&section).and_then(|section| section.get(&key)).ok_or_else(|| error("no such key"))?;
        let value = match default {
            Value::Integer(_) => Value::Integer(text.parse().map_err(|_| error("not a number"))?),
            Value::Boolean(_) => Value::Boolean(parse_bool(&text).ok_or_else(|| error("must be true or false"))?),
            _ => Value::String(text),
        };
        let entry = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        entry.as_table_mut().ok_or_else(|| error("its section is not a table in the file"))?.insert(key, value);
    }
    Ok(())
}

fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "on" => Some(true),
        "false" | "0" | "off" => Some(false),
        _ => None,
    }
}
