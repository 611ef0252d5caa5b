//! Which server is in which hostgroup now: rows of intent moved by what this node has seen. Pure.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use quorumsql_dataplane::config::{HostgroupId, ServerStatus};

use super::rows::{Pair, ServerRow};

/// What this node knows of one server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// Neither an answer nor a time-out yet.
    Nothing,
    /// At least one probe has ended.
    Probed {
        /// The last answer to the role check; `None` = it has never been answered.
        read_only: Option<bool>,
        /// Whether pings are answered (fewer than `ping_max_failures` missed).
        reachable: bool,
        /// Last ping; 0 = unknown.
        latency_us: u64,
        /// Why it is not reachable.
        trouble: Option<Arc<str>>,
    },
}

/// Whether a writer stays in the reader hostgroup of its pair (`*-monitor_writer_is_also_reader`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriterReads {
    /// It does.
    Yes,
    /// Only while no reader is usable.
    WhenAlone,
}

/// A server in a hostgroup.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Placed {
    /// Index of the row whose weight, limits and comment count.
    pub(crate) row: usize,
    /// Where it is.
    pub(crate) hostgroup: HostgroupId,
    /// The row's status, or SHUNNED.
    pub(crate) status: ServerStatus,
    /// Last ping; 0 = unknown.
    pub(crate) latency_us: u64,
    /// Why it is unreachable.
    pub(crate) trouble: Option<Arc<str>>,
}

/// Places all servers, in the order (hostgroup, hostname, port).
///
/// Servers outside pairs stay where their rows put them. In a pair the server's own word counts: `read_only=0` is a
/// writer, `read_only=1` a reader, whatever the row says; a server that has been asked in vain stays where its row is;
/// one that has not been asked yet is nowhere, so that a stale writer is not used after a start. OFFLINE_SOFT and
/// OFFLINE_HARD rows are neither probed nor moved.
///
/// Where a pair has no usable reader, its writers read too (pgsql-dataplane.md 5.1, row 8; for MySQL the reference lets
/// the statements wait until they fail): a cluster of one server serves reads, and so does one whose readers are down.
pub(crate) fn place(rows: &[ServerRow], pairs: &[Pair], writer_reads: WriterReads, seen: &dyn Fn(&str, u16) -> Seen) -> Vec<Placed> {
    let mut placed = Placement { rows, seen, placed: BTreeMap::new() };
    let paired: HashSet<HostgroupId> = pairs.iter().flat_map(|pair| [pair.writer, pair.reader]).collect();
    for (index, row) in rows.iter().enumerate() {
        if !paired.contains(&row.hostgroup) || is_offline(row) {
            placed.put(index, row.hostgroup);
        }
    }
    for pair in pairs {
        placed.place_pair(pair, writer_reads);
    }
    placed.placed.into_values().collect()
}

/// Writers of a pair: more than one is as dangerous as in the reference, and said aloud.
pub(crate) fn writers<'a>(rows: &'a [ServerRow], placed: &'a [Placed], pair: &'a Pair) -> impl Iterator<Item = &'a ServerRow> {
    placed.iter().filter(|one| one.hostgroup == pair.writer && one.status == ServerStatus::Online).map(|one| &rows[one.row])
}

/// A server of a pair that nothing is known of yet.
pub(crate) fn unprobed<'a>(rows: &'a [ServerRow], pairs: &[Pair], seen: &dyn Fn(&str, u16) -> Seen) -> Option<&'a ServerRow> {
    let paired = |row: &&ServerRow| pairs.iter().any(|pair| row.hostgroup == pair.writer || row.hostgroup == pair.reader);
    rows.iter().filter(paired).find(|row| !is_offline(row) && seen(&row.host, row.port) == Seen::Nothing)
}

fn is_offline(row: &ServerRow) -> bool {
    matches!(row.status, ServerStatus::OfflineSoft | ServerStatus::OfflineHard)
}

struct Placement<'a> {
    rows: &'a [ServerRow],
    seen: &'a dyn Fn(&str, u16) -> Seen,
    placed: BTreeMap<(HostgroupId, String, u16), Placed>,
}

impl Placement<'_> {
    fn put(&mut self, index: usize, hostgroup: HostgroupId) {
        let row = &self.rows[index];
        let (reachable, latency_us, trouble) = match (self.seen)(&row.host, row.port) {
            Seen::Nothing => (true, 0, None),
            Seen::Probed { reachable, latency_us, trouble, .. } => (reachable, latency_us, trouble),
        };
        let too_slow = row.max_latency_ms > 0 && latency_us > row.max_latency_ms.saturating_mul(1000);
        let status = match row.status {
            ServerStatus::Online if !reachable => ServerStatus::Unreachable,
            ServerStatus::Online if too_slow => ServerStatus::Shunned,
            status => status,
        };
        let placed = Placed { row: index, hostgroup, status, latency_us, trouble };
        self.placed.entry((hostgroup, row.host.clone(), row.port)).or_insert(placed);
    }

    fn place_pair(&mut self, pair: &Pair, writer_reads: WriterReads) {
        let rows = self.rows;
        let members = || {
            rows.iter().enumerate().filter(|(_, row)| (row.hostgroup == pair.writer || row.hostgroup == pair.reader) && !is_offline(row))
        };
        // The row of the hostgroup in which a server is placed describes it; where it has none, the other one does.
        let describing = |host: &str, port: u16, hostgroup: HostgroupId| {
            let mut own = members().filter(|(_, row)| row.host == host && row.port == port);
            own.clone().find(|(_, row)| row.hostgroup == hostgroup).or_else(|| own.next()).map(|(index, _)| index)
        };
        for (index, row) in members() {
            let role = match (self.seen)(&row.host, row.port) {
                Seen::Nothing => continue,
                Seen::Probed { read_only, .. } => read_only,
            };
            let hostgroups: &[HostgroupId] = match (role, writer_reads) {
                (Some(true), _) => &[pair.reader],
                (Some(false), WriterReads::Yes) => &[pair.writer, pair.reader],
                (Some(false), WriterReads::WhenAlone) => &[pair.writer],
                (None, _) => {
                    self.put(index, row.hostgroup);
                    continue;
                }
            };
            for hostgroup in hostgroups {
                if let Some(index) = describing(&row.host, row.port, *hostgroup) {
                    self.put(index, *hostgroup);
                }
            }
        }
        let usable = |one: &&Placed| one.status == ServerStatus::Online && rows[one.row].weight > 0;
        if !self.placed.values().filter(usable).any(|one| one.hostgroup == pair.reader) {
            let writers: Vec<Placed> = self.placed.values().filter(usable).filter(|one| one.hostgroup == pair.writer).cloned().collect();
            for writer in writers {
                self.put(writer.row, pair.reader);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::{server, table};
    use super::super::rows::{CheckType, servers};
    use super::*;

    const PAIR: Pair = Pair { writer: HostgroupId(10), reader: HostgroupId(20), check: CheckType::ReadOnly };

    /// `hostgroup:host[:status]` … → `hostgroup:host:status` …; seen: host → `w`riter, `r`eader, `t`imed out, `d`own reader, `D`own writer.
    fn placed(rows: &[(u32, &str, &str)], seen: &str, writer_reads: WriterReads) -> String {
        let rows: Vec<String> = rows.iter().map(|(hostgroup, host, status)| server(*hostgroup, host, status)).collect();
        let rows = servers(&table("mysql_servers", &rows.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
        let look = |host: &str, _: u16| {
            let kind = seen.split(' ').find_map(|pair| pair.strip_prefix(host)).and_then(|kind| kind.chars().last());
            let probed = |read_only, reachable| Seen::Probed { read_only, reachable, latency_us: 300, trouble: None };
            match kind {
                Some('w') => probed(Some(false), true),
                Some('r') => probed(Some(true), true),
                Some('t') => probed(None, false),
                Some('d') => probed(Some(true), false),
                Some('D') => probed(Some(false), false),
                _ => Seen::Nothing,
            }
        };
        let placed = place(&rows, &[PAIR], writer_reads, &look);
        placed
            .iter()
            .map(|one| format!("{}{}{}", one.hostgroup.0, rows[one.row].host, if one.status == ServerStatus::Online { "" } else { "!" }))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn servers_are_where_they_say() {
        let on = "ONLINE";
        let two = [(10, "a", on), (20, "b", on)];
        for (rows, seen, writer_reads, expected) in [
            (&two[..], "", WriterReads::WhenAlone, ""),
            (&two, "a=w b=r", WriterReads::WhenAlone, "10a 20b"),
            (&two, "a=w b=r", WriterReads::Yes, "10a 20a 20b"),
            // roles changed sides
            (&two, "a=r b=w", WriterReads::WhenAlone, "10b 20a"),
            // both writable, as in the reference: nobody is left to read but they
            (&two, "a=w b=w", WriterReads::WhenAlone, "10a 10b 20a 20b"),
            // no reader is usable: the writer reads
            (&two, "a=w b=d", WriterReads::WhenAlone, "10a 20a 20b!"),
            (&two, "a=w", WriterReads::WhenAlone, "10a 20a"),
            (&[(10, "a", on)], "a=w", WriterReads::WhenAlone, "10a 20a"),
            // asked in vain: where the rows are, shunned
            (&two, "a=t b=t", WriterReads::WhenAlone, "10a! 20b!"),
            // a writer that went away stays the writer
            (&two, "a=D b=r", WriterReads::WhenAlone, "10a! 20b"),
            // no writer at all
            (&two, "a=r b=r", WriterReads::WhenAlone, "20a 20b"),
            // offline rows are not moved, servers outside the pair are not touched
            (&[(10, "a", "OFFLINE_SOFT"), (20, "b", on), (7, "c", on)], "a=r b=w", WriterReads::WhenAlone, "7c 10a! 10b 20b"),
            (&[(7, "c", on)], "", WriterReads::WhenAlone, "7c"),
        ] {
            assert_eq!(placed(rows, seen, writer_reads), expected, "{rows:?} {seen}");
        }
    }
}
