//! Choosing a server of a hostgroup: a pure function from candidates and a random number to one of them.

use crate::config::{Server, ServerStatus};

/// Monitored latency above which a server is not chosen (`default_max_latency_ms`).
const MAX_LATENCY_US: u64 = 1_000_000;

/// Whether the configuration lets new work go to `server`. Weight 0 = never.
#[must_use]
pub fn is_candidate(server: &Server) -> bool {
    server.status == ServerStatus::Online && server.weight > 0 && server.latency_us <= MAX_LATENCY_US
}

/// Chooses among the indexes for which `weight` is not 0, each with the probability weight / sum of weights.
/// `random` should be evenly distributed over all 64-bit numbers.
#[must_use]
pub fn pick(count: usize, weight: impl Fn(usize) -> u32, random: u64) -> Option<usize> {
    let sum: u64 = (0..count).map(|index| u64::from(weight(index))).sum();
    if sum == 0 {
        return None;
    }
    let mut point = random % sum;
    (0..count).find(|&index| {
        let share = u64::from(weight(index));
        let here = point < share;
        point = point.saturating_sub(share);
        here
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HostgroupId, ServerAddress};
    use crate::tls::ServerTls;

    fn server(status: ServerStatus, weight: u32, latency_us: u64) -> Server {
        Server {
            hostgroup: HostgroupId(1),
            address: ServerAddress { host: "db".into(), port: 3306 },
            status,
            weight,
            max_connections: 10,
            tls: ServerTls::Disable,
            latency_us,
            trouble: None,
        }
    }

    #[test]
    fn only_online_servers_with_weight_and_low_latency_are_candidates() {
        for (status, weight, latency, expected) in [
            (ServerStatus::Online, 1, 0, true),
            (ServerStatus::Online, 10_000_000, 999_999, true),
            (ServerStatus::Online, 0, 0, false),
            (ServerStatus::Online, 1, 1_000_001, false),
            (ServerStatus::Shunned, 1, 0, false),
            (ServerStatus::Unreachable, 1, 0, false),
            (ServerStatus::OfflineSoft, 1, 0, false),
            (ServerStatus::OfflineHard, 1, 0, false),
        ] {
            assert_eq!(is_candidate(&server(status, weight, latency)), expected, "{status:?} {weight} {latency}");
        }
    }

    #[test]
    fn each_gets_its_share_and_weight_zero_nothing() {
        let weights = [3, 0, 1, 6];
        let mut counts = [0; 4];
        for random in 0..1000 {
            counts[pick(4, |index| weights[index], random).unwrap()] += 1;
        }
        assert_eq!(counts, [300, 0, 100, 600]);
        assert_eq!(pick(2, |_| 0, 7), None);
        assert_eq!(pick(0, |_| 1, 7), None);
        assert_eq!(pick(3, |_| u32::MAX, u64::MAX), Some(2), "no overflow");
    }
}
