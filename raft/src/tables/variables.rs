//! All global variables with type, range, default and meaning, parsed once from `variables.tsv`.

use std::sync::LazyLock;

/// Type of a variable's value; all values are stored as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VariableKind {
    /// `true` or `false` (`1` and `0` are accepted).
    Bool,
    /// A decimal integer.
    Int,
    /// Any text, or one of a list.
    String,
}

impl VariableKind {
    /// The word in `variables.tsv`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::String => "string",
        }
    }
}

/// One variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VariableDescription {
    /// Full name, e.g. `mysql-threads`.
    pub name: &'static str,
    /// Type.
    pub kind: VariableKind,
    /// Value of a new cluster.
    pub default: &'static str,
    /// Smallest integer.
    pub min: Option<i64>,
    /// Largest integer, list of allowed texts separated by `|`, or a hint.
    pub max_or_allowed: &'static str,
    /// Whether a change needs a restart.
    pub restart: bool,
    /// One sentence for people.
    pub meaning: &'static str,
    /// Whether it has an effect in this build.
    pub effective: bool,
}

static VARIABLES: LazyLock<Vec<VariableDescription>> =
    LazyLock::new(|| include_str!("variables.tsv").lines().skip(1).filter_map(parse).collect());

fn parse(line: &'static str) -> Option<VariableDescription> {
    let mut fields = line.split('\t');
    let mut next = || fields.next();
    let (name, kind, default, min, max_or_allowed, restart, meaning, effective) =
        (next()?, next()?, next()?, next()?, next()?, next()?, next()?, next()?);
    let kind = match kind {
        "bool" => VariableKind::Bool,
        "int" => VariableKind::Int,
        _ => VariableKind::String,
    };
    let default = if name == "admin-version" { env!("CARGO_PKG_VERSION") } else { default };
    Some(VariableDescription {
        name,
        kind,
        default,
        min: min.parse().ok(),
        max_or_allowed,
        restart: restart == "yes",
        meaning,
        effective: effective == "yes",
    })
}

/// All variables, in the order of the file.
#[must_use]
pub fn variables() -> &'static [VariableDescription] {
    &VARIABLES
}

/// The variable with exactly this name.
#[must_use]
pub fn variable(name: &str) -> Option<&'static VariableDescription> {
    VARIABLES.iter().find(|variable| variable.name == name)
}

/// Whether history, logs and errors must not show the value.
#[must_use]
pub fn is_secret_variable(name: &str) -> bool {
    name.ends_with("_credentials") || name.ends_with("_password")
}

/// Checks a value for RUNTIME.
///
/// # Errors
/// Unknown name, or a value outside type and range; the text names the variable (and not a secret's value).
pub fn check_variable(name: &str, value: &str) -> Result<(), String> {
    let Some(variable) = variable(name) else {
        return Err(format!("unknown variable {name}"));
    };
    variable.check(value).map_err(|wanted| {
        if is_secret_variable(name) {
            format!("invalid value for {name}: {wanted}")
        } else {
            format!("invalid value '{value}' for {name}: {wanted}")
        }
    })
}

/// One place to listen at; an empty one between two signs is passed over.
fn is_listener(place: &str) -> bool {
    let place = place.trim();
    let host_and_port = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    place.is_empty() || place.starts_with('/') || place.rsplit_once(':').is_some_and(host_and_port)
}

impl VariableDescription {
    /// The list of allowed texts, where there is one.
    fn allowed(&self) -> Option<Vec<&'static str>> {
        let listed = self.kind == VariableKind::String && self.max_or_allowed.contains('|') && !self.max_or_allowed.contains([' ', '*']);
        listed.then(|| self.max_or_allowed.split('|').map(|word| if word == "''" { "" } else { word }).collect())
    }

    fn check(&self, value: &str) -> Result<(), String> {
        match self.kind {
            VariableKind::Bool if matches!(value.to_ascii_lowercase().as_str(), "true" | "false" | "1" | "0") => Ok(()),
            VariableKind::Bool => Err("expected true or false".into()),
            VariableKind::Int => self.check_integer(value),
            VariableKind::String => self.check_text(value),
        }
    }

    fn check_integer(&self, value: &str) -> Result<(), String> {
        let number: i64 = value.trim().parse().map_err(|_| String::from("expected an integer"))?;
        let max = self.max_or_allowed.parse().ok();
        if self.min.is_none_or(|min| number >= min) && max.is_none_or(|max| number <= max) {
            return Ok(());
        }
        match (self.min, max) {
            (Some(min), Some(max)) => Err(format!("expected {min} to {max}")),
            (Some(min), None) => Err(format!("expected at least {min}")),
            (None, max) => Err(format!("expected at most {}", max.unwrap_or(i64::MAX))),
        }
    }

    fn check_text(&self, value: &str) -> Result<(), String> {
        if self.max_or_allowed == "non-empty" && value.is_empty() {
            return Err("must not be empty".into());
        }
        if self.max_or_allowed == "address list" && !value.split(';').all(is_listener) {
            return Err("expected HOST:PORT or /path/to/socket, several separated by `;`".into());
        }
        match self.allowed() {
            Some(words) if !words.contains(&value) => Err(format!("expected one of {}", self.max_or_allowed)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_whole_and_every_default_is_a_valid_value() {
        assert_eq!(variables().len(), include_str!("variables.tsv").lines().count() - 1);
        for variable in variables() {
            assert_eq!(check_variable(variable.name, variable.default), Ok(()), "{}", variable.name);
        }
    }

    #[test]
    fn defaults_of_postgresql_parameters_are_those_of_the_server() {
        for (name, default) in [
            ("pgsql-default_datestyle", "ISO, MDY"),
            ("pgsql-default_intervalstyle", "postgres"),
            ("pgsql-default_standard_conforming_strings", "on"),
            ("pgsql-default_timezone", "GMT"),
        ] {
            assert_eq!(variable(name).map(|variable| variable.default), Some(default), "{name}");
        }
    }

    #[test]
    fn values_are_checked_by_type_and_range() {
        let cases = [
            ("mysql-threads", "4", true),
            ("mysql-threads", "0", false),
            ("mysql-threads", "four", false),
            ("mysql-multiplexing", "TRUE", true),
            ("mysql-multiplexing", "yes", false),
            ("mysql-routing_guard", "reject", true),
            ("mysql-routing_guard", "maybe", false),
            ("mysql-ssl_p2s_mode", "", true),
            ("mysql-default_schema", "", false),
            ("mysql-proxy_protocol_networks", "10.0.0.0/8", true),
            ("mysql-interfaces", "0.0.0.0:6033;[::1]:6033; /tmp/mysql.sock", true),
            ("pgsql-interfaces", "", true),
            ("pgsql-interfaces", "127.0.0.1:6133;localhost", false),
            ("pgsql-interfaces", "localhost:6133", true),
            ("mysql-no_such", "1", false),
        ];
        for (name, value, valid) in cases {
            assert_eq!(check_variable(name, value).is_ok(), valid, "{name} = {value}");
        }
        assert_eq!(
            check_variable("admin-edit_conflicts", "x"),
            Err("invalid value 'x' for admin-edit_conflicts: expected one of off|warn|error".into())
        );
    }

    #[test]
    fn variables_of_the_data_plane_are_marked_effective() {
        for (name, effective) in [("mysql-routing_guard", true), ("pgsql-wait_timeout", true), ("mysql-ffto_enabled", false)] {
            assert_eq!(variable(name).map(|variable| variable.effective), Some(effective), "{name}");
        }
    }
}
