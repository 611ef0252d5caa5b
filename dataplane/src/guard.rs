//! The routing guard: no statement that is more than a plain read reaches the reader side of a domain
//! (design.md sections 6 and 12 "Data plane").

use std::sync::atomic::{AtomicU64, Ordering};

use quorumsql_wire::sql::{Class, Effects};

use crate::config::{Domain, GuardMode, HostgroupId};

/// What the guard must know of the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Hostgroup on which a transaction of this session is open.
    pub transaction_on: Option<HostgroupId>,
    /// Hostgroup to whose connection the session is pinned for another reason.
    pub pinned_on: Option<HostgroupId>,
    /// The statement is a SET that the session tracks (and, in PostgreSQL, forwards): it creates no pin.
    pub set_is_tracked: bool,
    /// `autocommit=0` (MySQL): a read opens a transaction, in which writes may follow.
    pub read_opens_transaction: bool,
}

/// What becomes of the statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes where the rules say.
    Keep,
    /// It goes to the domain's writer, and is counted.
    Redirect(HostgroupId),
    /// It is refused with this text.
    Reject(String),
}

/// The digests whose first statement that the guard moved or refused has been logged, so that each is told once. Bounded: when it
/// is full, further ones are only counted.
pub(crate) struct Told(Box<[AtomicU64]>);

impl Default for Told {
    fn default() -> Self {
        Self((0..Self::SIZE).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Told {
    const SIZE: usize = 4096;
    /// A digest is in one of so many places in a row.
    const NEAR: usize = 8;

    /// Logs what becomes of a statement for `hostgroup`, if it is the first of its digest. No lock.
    pub(crate) fn tell(&self, digest: u64, digest_text: &[u8], hostgroup: HostgroupId, verdict: &Verdict) {
        const SHOWN: usize = 200;
        if *verdict == Verdict::Keep || !self.is_news(digest) {
            return;
        }
        let text = String::from_utf8_lossy(&digest_text[..digest_text.len().min(SHOWN)]);
        match verdict {
            Verdict::Redirect(writer) => tracing::warn!(
                "routing guard: a statement that is no plain read is sent to reader hostgroup {} by the rules and goes to writer hostgroup \
                 {}: digest 0x{digest:016X} {text}",
                hostgroup.0,
                writer.0
            ),
            Verdict::Reject(why) => tracing::warn!("{why}: digest 0x{digest:016X} {text}"),
            Verdict::Keep => {}
        }
    }

    /// Remembers a digest; `true` = it was not known before.
    fn is_news(&self, digest: u64) -> bool {
        // 0 is a place that is free.
        let digest = digest.max(1);
        let start = usize::try_from(digest % Self::SIZE as u64).unwrap_or(0);
        for near in 0..Self::NEAR {
            let place = &self.0[(start + near) % Self::SIZE];
            match place.compare_exchange(0, digest, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(known) if known == digest => return false,
                Err(_) => {}
            }
        }
        false
    }
}

/// Judges a statement that the rules have sent to `hostgroup`. Pure; allocates only to reject.
#[must_use]
pub fn guard(domains: &[Domain], hostgroup: HostgroupId, class: Class, effects: Effects, facts: &Facts, mode: GuardMode) -> Verdict {
    if mode == GuardMode::Off {
        return Verdict::Keep;
    }
    let Some(domain) = reader_of(domains, hostgroup) else { return Verdict::Keep };
    let Some(reason) = reason(domain, class, effects, facts) else { return Verdict::Keep };
    match mode {
        GuardMode::Reject => Verdict::Reject(format!(
            "routing guard: {reason} cannot go to reader hostgroup {}; a rule must send it to writer hostgroup {}",
            domain.reader.0, domain.writer.0
        )),
        GuardMode::Redirect | GuardMode::Off => Verdict::Redirect(domain.writer),
    }
}

/// Why the statement must not run on `hostgroup`, whatever the guard's mode; `None` = it may.
pub(crate) fn why(domains: &[Domain], hostgroup: HostgroupId, class: Class, effects: Effects, facts: &Facts) -> Option<&'static str> {
    reason(reader_of(domains, hostgroup)?, class, effects, facts)
}

/// The pair of which `hostgroup` is the reader side.
fn reader_of(domains: &[Domain], hostgroup: HostgroupId) -> Option<&Domain> {
    domains.iter().find(|domain| domain.reader == hostgroup && domain.writer != hostgroup)
}

/// Why the statement must not go to a reader; `None` = it may.
fn reason(domain: &Domain, class: Class, effects: Effects, facts: &Facts) -> Option<&'static str> {
    if facts.transaction_on == Some(domain.writer) && !class.is_neutral() {
        return Some("a statement in a transaction that is open on the writer");
    }
    if facts.pinned_on == Some(domain.writer) && effects.intersects(Effects::PINS) {
        return Some("a statement that needs session state of the writer");
    }
    if class == Class::Set && facts.set_is_tracked {
        return None;
    }
    if effects.intersects(Effects::PINS) {
        return Some("a statement that creates or reads session state");
    }
    if class.is_neutral() {
        return None;
    }
    if class.is_plain_read() {
        return (facts.read_opens_transaction && class == Class::Read).then_some("a read that opens a transaction (autocommit=0)");
    }
    Some(match class {
        Class::LockingRead => "a locking read",
        Class::Write | Class::Ddl => "a write",
        Class::Call => "CALL",
        Class::Transaction(_) => "a transaction that may write",
        Class::Set => "a SET that is not tracked",
        _ => "a statement that is not known to be a plain read",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorumsql_wire::sql::Transaction;

    const WRITER: HostgroupId = HostgroupId(10);
    const READER: HostgroupId = HostgroupId(20);
    const DOMAINS: [Domain; 1] = [Domain { writer: WRITER, reader: READER }];

    #[test]
    fn each_digest_is_told_once() {
        let told = Told::default();
        let size = Told::SIZE as u64;
        for digest in [7, 7 + size, 0, u64::MAX] {
            assert!(told.is_news(digest) && !told.is_news(digest), "{digest}");
        }
        let news = (0..20).filter(|number| told.is_news(100 + number * size)).count();
        assert_eq!(news, Told::NEAR, "what finds no place is not told at all");
    }

    fn judge(hostgroup: HostgroupId, class: Class, effects: Effects, facts: Facts) -> Verdict {
        guard(&DOMAINS, hostgroup, class, effects, &facts, GuardMode::Redirect)
    }

    #[test]
    fn only_plain_reads_and_neutral_statements_stay_on_a_reader() {
        let begin = |read_only| Class::Transaction(Transaction::Begin { read_only });
        let table = [
            (Class::Read, Effects::NONE, Verdict::Keep),
            (begin(true), Effects::NONE, Verdict::Keep),
            (Class::Neutral, Effects::SHOW_WARNINGS, Verdict::Keep),
            (Class::Transaction(Transaction::Commit), Effects::NONE, Verdict::Keep),
            (Class::Use, Effects::NONE, Verdict::Keep),
            (Class::Read, Effects::MULTI, Verdict::Keep),
            (begin(false), Effects::NONE, Verdict::Redirect(WRITER)),
            (Class::LockingRead, Effects::NONE, Verdict::Redirect(WRITER)),
            (Class::Write, Effects::NONE, Verdict::Redirect(WRITER)),
            (Class::Ddl, Effects::NONE, Verdict::Redirect(WRITER)),
            (Class::Call, Effects::NONE, Verdict::Redirect(WRITER)),
            (Class::Other, Effects::NONE, Verdict::Redirect(WRITER)),
            (Class::Set, Effects::NONE, Verdict::Redirect(WRITER)),
            (Class::Transaction(Transaction::TwoPhase), Effects::NONE, Verdict::Redirect(WRITER)),
            (Class::Read, Effects::USER_VARIABLE, Verdict::Redirect(WRITER)),
            (Class::Read, Effects::LAST_INSERT_ID, Verdict::Redirect(WRITER)),
            (Class::Read, Effects::LOCK, Verdict::Redirect(WRITER)),
            (Class::Neutral, Effects::PREPARE_TEXT, Verdict::Redirect(WRITER)),
        ];
        for (class, effects, want) in table {
            assert_eq!(judge(READER, class, effects, Facts::default()), want, "{class:?} {effects:?}");
            assert_eq!(judge(WRITER, class, effects, Facts::default()), Verdict::Keep);
            assert_eq!(judge(HostgroupId(30), class, effects, Facts::default()), Verdict::Keep);
            assert_eq!(guard(&DOMAINS, READER, class, effects, &Facts::default(), GuardMode::Off), Verdict::Keep);
        }
    }

    #[test]
    fn the_state_of_the_session_counts() {
        let in_transaction = Facts { transaction_on: Some(WRITER), ..Facts::default() };
        assert_eq!(judge(READER, Class::Read, Effects::NONE, in_transaction), Verdict::Redirect(WRITER));
        assert_eq!(judge(READER, Class::Neutral, Effects::NONE, in_transaction), Verdict::Keep);
        let on_reader = Facts { transaction_on: Some(READER), ..Facts::default() };
        assert_eq!(judge(READER, Class::Read, Effects::NONE, on_reader), Verdict::Keep);
        let tracked = Facts { set_is_tracked: true, ..Facts::default() };
        assert_eq!(judge(READER, Class::Set, Effects::NONE, tracked), Verdict::Keep);
        let opens = Facts { read_opens_transaction: true, ..Facts::default() };
        assert_eq!(judge(READER, Class::Read, Effects::NONE, opens), Verdict::Redirect(WRITER));
    }

    #[test]
    fn reject_says_what_and_where() {
        let verdict = guard(&DOMAINS, READER, Class::LockingRead, Effects::NONE, &Facts::default(), GuardMode::Reject);
        let want = "routing guard: a locking read cannot go to reader hostgroup 20; a rule must send it to writer hostgroup 10";
        assert_eq!(verdict, Verdict::Reject(want.to_owned()));
    }
}
