//! A duration as people write it: `100ms`, `5s`, `10m`, `1h`, `7d`.

use std::fmt;
use std::ops::{Deref, Mul};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A [`Duration`] that is written with its unit in the bootstrap file, the environment and on the command line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Span(Duration);

impl Span {
    pub(crate) const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

impl Deref for Span {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl Mul<u32> for Span {
    type Output = Self;

    fn mul(self, factor: u32) -> Self {
        Self(self.0 * factor)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no duration: a number and one of ms, s, m, h, d");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        number.checked_mul(millis).map(Self::from_millis).ok_or_else(wrong)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis.is_multiple_of(1000) { write!(f, "{}s", millis / 1000) } else { write!(f, "{millis}ms") }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip_and_nonsense_is_refused() {
        for (text, millis) in [("0s", 0), ("100ms", 100), ("5s", 5_000), ("10m", 600_000), ("1h", 3_600_000), ("7d", 604_800_000)] {
            let span: Span = text.parse().unwrap();
            assert_eq!(*span, Duration::from_millis(millis), "{text}");
            assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
        }
        for text in ["", "5", "s", "-1s", "1.5s", "5 s", "99999999999999999999s", "18446744073709551615d"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
