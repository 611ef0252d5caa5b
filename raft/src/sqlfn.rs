//! SQL functions that the admin surface adds to SQLite's (admin-commands.md section 14).

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Result};
use sha1::Sha1;
use sha2::Digest;

use crate::sha256_crypt;

/// Length of a salt in `caching_sha2_password`.
const SALT_BYTES: usize = 20;
const WRONG_NUMBER: &str = "Invalid number of arguments";
const WRONG_TYPE: &str = "Invalid argument type";

/// Adds `from_unixtime`, `mysql_native_password` and `caching_sha2_password` to a connection.
///
/// # Errors
/// Of SQLite.
pub fn register(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
    connection.create_scalar_function("from_unixtime", -1, flags, |context| Ok(from_unixtime(context)))?;
    connection.create_scalar_function("mysql_native_password", -1, flags, |context| Ok(native_password(context)))?;
    connection.create_scalar_function("caching_sha2_password", -1, flags, |context| Ok(caching_sha2_password(context)))?;
    Ok(())
}

/// Seconds since 1970 as `YYYY-MM-DD HH:MM:SS` in UTC. Wrong use gives a text, not an error, as in the reference.
fn from_unixtime(context: &Context<'_>) -> String {
    if context.len() != 1 {
        return WRONG_NUMBER.into();
    }
    let seconds: Option<i64> = match context.get_raw(0) {
        ValueRef::Integer(value) => Some(value),
        ValueRef::Text(text) => std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()),
        _ => None,
    };
    seconds.and_then(utc_text).unwrap_or_else(|| WRONG_TYPE.into())
}

/// Seconds since 1970 as `YYYY-MM-DD HH:MM:SS` in UTC; `None` = no such date.
#[must_use]
pub fn utc_text(seconds: i64) -> Option<String> {
    let (year, month, day) = civil(seconds.div_euclid(86_400))?;
    let second = seconds.rem_euclid(86_400);
    Some(format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60))
}

/// Date of a day number since 1970-01-01 in the proleptic Gregorian calendar: eras of 400 years, years from 1 March.
fn civil(days: i64) -> Option<(i64, i64, i64)> {
    let days = days.checked_add(719_468)?;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    Some((year_of_era + era * 400 + i64::from(month <= 2), month, day_of_year - (153 * shifted_month + 2) / 5 + 1))
}

/// A text or blob argument.
fn text<'a>(context: &'a Context<'_>, position: usize) -> Option<&'a [u8]> {
    match context.get_raw(position) {
        ValueRef::Text(text) | ValueRef::Blob(text) => Some(text),
        _ => None,
    }
}

/// `*` and the double SHA-1 in upper-case hexadecimal.
fn native_password(context: &Context<'_>) -> String {
    if context.len() != 1 {
        return WRONG_NUMBER.into();
    }
    let Some(password) = text(context, 0) else {
        return WRONG_TYPE.into();
    };
    let hash: String = Sha1::digest(Sha1::digest(password)).iter().map(|byte| format!("{byte:02X}")).collect();
    format!("*{hash}")
}

/// `$A$005$`, 20 bytes of salt, and the SHA-256 crypt hash of 5000 rounds: text where it is UTF-8. NULL = no randomness.
fn caching_sha2_password(context: &Context<'_>) -> Value {
    let wrong = |text: &str| Value::Text(text.into());
    if !matches!(context.len(), 1 | 2) {
        return wrong(WRONG_NUMBER);
    }
    let Some(password) = text(context, 0) else {
        return wrong(WRONG_TYPE);
    };
    // A shorter salt is filled up with zero bytes, as in the reference.
    let mut salt = [0; SALT_BYTES];
    if context.len() == 2 {
        let Some(given) = text(context, 1) else {
            return wrong(WRONG_TYPE);
        };
        if given.len() > SALT_BYTES {
            return wrong("Invalid argument size");
        }
        salt[..given.len()].copy_from_slice(given);
    } else if !draw(&mut salt) {
        return Value::Null;
    }
    let stored = [b"$A$005$", &salt[..], sha256_crypt::hash(password, &salt, 5000).as_bytes()].concat();
    String::from_utf8(stored).map_or_else(|error| Value::Blob(error.into_bytes()), Value::Text)
}

/// Printable characters; `$` would end the salt in the stored form. `false` = the system gives no randomness.
fn draw(salt: &mut [u8; SALT_BYTES]) -> bool {
    const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let drawn = getrandom::fill(salt).is_ok();
    salt.iter_mut().for_each(|byte| *byte = ALPHABET[usize::from(*byte & 63)]);
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_answer_as_the_reference() {
        let connection = Connection::open_in_memory().expect("opens");
        register(&connection).expect("registers");
        let cases = [
            ("from_unixtime(0)", "1970-01-01 00:00:00"),
            ("from_unixtime(951782400)", "2000-02-29 00:00:00"),
            ("from_unixtime(-1)", "1969-12-31 23:59:59"),
            ("from_unixtime('1764528000')", "2025-11-30 18:40:00"),
            ("mysql_native_password('password')", "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19"),
            ("MYSQL_NATIVE_PASSWORD(1)", "Invalid argument type"),
            ("mysql_native_password()", "Invalid number of arguments"),
            ("caching_sha2_password('x', 'aaaaaaaaaaaaaaaaaaaaa')", "Invalid argument size"),
            ("substr(caching_sha2_password('x', 'aaaaaaaaaaaaaaaaaaaa'), 1, 27)", "$A$005$aaaaaaaaaaaaaaaaaaaa"),
            ("instr(hex(CAST(caching_sha2_password('x', 'b') AS BLOB)), '24412430303524620000')", "1"),
            ("from_unixtime('x')", "Invalid argument type"),
            ("from_unixtime(9223372036854775807) > ''", "1"),
        ];
        for (call, expected) in cases {
            let found: String = connection.query_row(&format!("SELECT CAST({call} AS TEXT)"), [], |row| row.get(0)).expect(call);
            assert_eq!(found, expected, "{call}");
        }
        let made: String = connection.query_row("SELECT caching_sha2_password('secret')", [], |row| row.get(0)).expect("runs");
        assert_eq!((made.len(), &made[..7]), (70, "$A$005$"));
    }
}
