//! Parameters of an application's own (`app.user`): those with a dot in their names (PostgreSQL 17 manual, "Customized Options").
//!
//! A server that is told one remembers the name to its end. RESET, DISCARD ALL or a rollback lead back to an empty value, where a connection on
//! which nobody has named it has none: NULL of `current_setting(name, true)`, and an error of SHOW. So a connection serves a session only if it
//! knows no other names than those that the session has named itself; those that it does not know yet are made known to it.

/// Names that are followed, of one connection or session.
pub(crate) const LIMIT: usize = 256;
/// Longest name that is followed; in longer ones PostgreSQL cuts off what is too long of a part.
const LONGEST: usize = 63;

/// Whether a parameter, if it exists, is an application's own or a loaded module's.
pub(crate) fn is_custom(name: &str) -> bool {
    name.contains('.')
}

/// Whether the server surely knows a parameter by this name, as it is.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    (1..=LONGEST).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Names in lower case, sorted, each once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CustomNames(Vec<Box<str>>);

/// There are more than are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooMany;

impl CustomNames {
    /// The custom ones among `names`.
    pub(crate) fn among<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let mut custom = Self::default();
        // Those of a start-up packet are within the limit.
        for name in names.filter(|name| is_custom(name)) {
            let _ = custom.add(name);
        }
        custom
    }

    /// These and the `coming` ones; `None` = there are no more.
    pub(crate) fn with<'n>(&self, coming: impl Iterator<Item = &'n str>) -> Option<Self> {
        let mut all = None;
        for name in coming {
            all.get_or_insert_with(|| self.clone()).add(name).ok()?;
        }
        all
    }

    /// Adds one, which may be known.
    ///
    /// # Errors
    /// It is not, and there is no room.
    pub(crate) fn add(&mut self, name: &str) -> Result<(), TooMany> {
        let Err(index) = self.0.binary_search_by(|known| (**known).cmp(name)) else { return Ok(()) };
        if self.0.len() >= LIMIT {
            return Err(TooMany);
        }
        self.0.insert(index, name.into());
        Ok(())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether `others` has all of them.
    pub(crate) fn is_within(&self, others: &Self) -> bool {
        self.0.len() <= others.0.len() && self.missing_in(others).next().is_none()
    }

    /// Those that are not among `others`.
    pub(crate) fn missing_in<'n>(&'n self, others: &Self) -> impl Iterator<Item = &'n str> {
        let mut others = others.0.iter().peekable();
        self.0.iter().map(|name| &**name).filter(move |name| {
            while others.next_if(|other| ***other < **name).is_some() {}
            others.peek().is_none_or(|other| ***other != **name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &str) -> CustomNames {
        CustomNames::among(of.split(' '))
    }

    #[test]
    fn sets_are_compared() {
        for (some, others, missing) in [
            ("", "", ""),
            ("", "a.b", ""),
            ("a.b", "", "a.b"),
            ("c.d a.b c.d plain", "a.b x.y c.d", ""),
            ("a.b c.d e.f", "c.d", "a.b e.f"),
            ("c.d", "a.b e.f", "c.d"),
        ] {
            let seen: Vec<_> = names(some).missing_in(&names(others)).map(str::to_owned).collect();
            assert_eq!(seen.join(" "), missing, "{some} in {others}");
            assert_eq!(names(some).is_within(&names(others)), missing.is_empty(), "{some} in {others}");
        }
    }

    #[test]
    fn coming_ones_are_added_to_a_copy() {
        assert_eq!(names("a.b").with("".split_terminator(' ')), None);
        assert_eq!(names("a.b").with("x.y a.b".split(' ')), Some(names("a.b x.y")));
    }

    #[test]
    fn they_are_bounded() {
        let mut all = CustomNames::default();
        let first = (0..).find(|number| all.add(&format!("a.x{number}")) == Err(TooMany));
        assert_eq!(first, Some(LIMIT));
        assert_eq!(all.add("a.x0"), Ok(()));
        assert!(!is_plain("a.\u{fc}") && !is_plain(&"a".repeat(64)) && is_plain("a.b_1"));
    }
}
