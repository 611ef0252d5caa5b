//! What a process has used: processor time and resident memory, from /proc (proc(5)).

use std::fs;
use std::time::Duration;

use anyhow::Context as _;

/// Ticks a second in /proc: `USER_HZ`, the same on all architectures that we build for (time(7)).
const TICKS: f64 = 100.0;

/// Processor time of a process with all its threads, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Cpu {
    pub(crate) user: f64,
    pub(crate) system: f64,
}

impl Cpu {
    /// What the process has used since it was started.
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid} has ended"))?;
        parse_stat(&stat).with_context(|| format!("/proc/{pid}/stat is not understood: {stat}"))
    }

    /// What it has used since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { user: self.user - before.user, system: self.system - before.system }
    }

    /// Both kinds together.
    pub(crate) fn total(self) -> f64 {
        self.user + self.system
    }
}

/// Fields 14 and 15, counted behind the name, which may itself hold blanks and brackets.
fn parse_stat(stat: &str) -> Option<Cpu> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11).map(|field| field.parse::<f64>().ok());
    Some(Cpu { user: fields.next()?? / TICKS, system: fields.next()?? / TICKS })
}

/// Resident memory in KiB.
pub(crate) fn rss(pid: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid} has ended"))?;
    parse_rss(&status).with_context(|| format!("/proc/{pid}/status has no VmRSS"))
}

fn parse_rss(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Resident memory once it has moved by less than 128 KiB within a second: what was freed has then gone back to the kernel.
/// After 15 seconds, what it is then.
pub(crate) async fn settled_rss(pid: u32) -> anyhow::Result<f64> {
    let mut before = rss(pid)?;
    for _ in 0..15 {
        tokio::time::sleep(Duration::from_secs(1)).await; // the interval over which it is to be steady
        let now = rss(pid)?;
        if (now - before).abs() < 128.0 {
            return Ok(now);
        }
        before = now;
    }
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 250 75 0 0 20 0 5 0 100";
        for name in ["haproxy", "a b", "odd) (name"] {
            let expected = Cpu { user: 2.5, system: 0.75 };
            assert_eq!(parse_stat(&format!("42 ({name}) {rest}")), Some(expected), "{name}");
        }
        for broken in ["", "42 (x", "42 (x) S 1 2", "42 (x) S 1 2 3 4 5 6 7 8 9 10 many 75"] {
            assert_eq!(parse_stat(broken), None, "{broken}");
        }
        let (before, after) = (Cpu { user: 1.0, system: 2.0 }, Cpu { user: 1.5, system: 4.0 });
        assert_eq!(after.since(before).total(), 2.5);
    }

    #[test]
    fn resident_memory_is_the_line_of_that_name() {
        assert_eq!(parse_rss("VmHWM:\t   99 kB\nVmRSS:\t  2048 kB\nRssAnon:\t 1 kB\n"), Some(2048.0));
        assert_eq!(parse_rss("VmHWM:\t   99 kB\n"), None);
    }

    #[test]
    fn this_process_has_both() {
        let own = std::process::id();
        assert!(Cpu::of(own).unwrap().total() >= 0.0 && rss(own).unwrap() > 100.0);
        assert!(Cpu::of(u32::MAX).is_err());
    }
}
