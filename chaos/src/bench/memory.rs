//! What idle clients cost in memory and beside active ones, what big results cost, and what rules that do not match cost.

use std::time::{Duration, Instant};

use super::clients::{Client, admin, execute, idle};
use super::compare::{Cell, PASSES, pass};
use super::load::Load;
use super::report::{Table, figure, fine, median};
use super::rig::{HAPROXY, NODE, Protocol, Rig, Way};
use super::usage::{Cpu, settled_rss};

/// Idle connections through each proxy.
const IDLE: usize = 1_000;
/// Idle connections through the node beside active ones.
const CROWD: usize = 8_000;
/// Clients that work beside the idle ones.
const ACTIVE: usize = 16;
/// Rules that match nothing.
const RULES: usize = 1_000;

/// Everything of this kind for one protocol.
pub(crate) async fn run(rig: &Rig, seconds: u64) -> anyhow::Result<()> {
    idle_memory(rig).await?;
    big_results(rig, seconds).await?;
    if rig.protocol == Protocol::Mysql {
        rules(rig, seconds).await?;
        crowd(rig, seconds).await?;
    }
    Ok(())
}

/// Resident memory of each proxy with and without idle connections.
async fn idle_memory(rig: &Rig) -> anyhow::Result<()> {
    let name = rig.protocol.name();
    let columns = ["way", "KiB a client", "MiB for 1000", "MiB before"];
    let mut table = Table::new(format!("### Memory of {IDLE} idle {name} clients that have run one query"), &columns);
    for (way, pid) in rig.proxies() {
        eprintln!("{name}, {IDLE} idle clients through {}", way.name);
        drop(idle(rig.protocol, way, 1).await?);
        let before = settled_rss(pid).await?;
        let clients = idle(rig.protocol, way, IDLE).await?;
        let grown = settled_rss(pid).await? - before;
        drop(clients);
        table.row(vec![way.name.into(), fine(grown / IDLE as f64), figure(grown / IDLE as f64 * 1000.0 / 1024.0), figure(before / 1024.0)]);
    }
    println!("{table}");
    Ok(())
}

/// A result of 10 MB, again and again, by one client.
async fn big_results(rig: &Rig, seconds: u64) -> anyhow::Result<()> {
    let name = rig.protocol.name();
    let sql = match rig.protocol {
        // seq_… is MariaDB's sequence engine.
        Protocol::Mysql => "SELECT REPEAT('x', 1000) FROM seq_1_to_10000",
        Protocol::Pgsql => "SELECT repeat('x', 1000) FROM generate_series(1, 10000)",
    };
    let mut measured: Vec<Vec<(f64, f64)>> = vec![Vec::new(); rig.proxies().count()];
    for turn in 0..PASSES {
        eprintln!("{name}, results of 10 MB, pass {}", turn + 1);
        for ((way, pid), of_way) in rig.proxies().zip(&mut measured) {
            of_way.push(stream(rig.protocol, way, pid, sql, seconds).await?);
        }
    }
    let columns = ["way", "to HAProxy", "MB a CPU second", "MB a second"];
    let mut table = Table::new(format!("### {name} results of 10 MB, one client (above 1 is better)"), &columns);
    let medians = |of_way: &[(f64, f64)]| (median(of_way.iter().map(|m| m.0)), median(of_way.iter().map(|m| m.1)));
    let peer = rig.proxies().zip(&measured).find(|((way, _), _)| way.name == HAPROXY).map_or(f64::NAN, |(_, of_way)| medians(of_way).0);
    for ((way, _), of_way) in rig.proxies().zip(&measured) {
        let (per_cpu, per_second) = medians(of_way);
        table.row(vec![way.name.into(), fine(per_cpu / peer), format!("{per_cpu:.0}"), format!("{per_second:.0}")]);
    }
    println!("{table}");
    Ok(())
}

/// MB a second of the process's time, and of the clock.
async fn stream(protocol: Protocol, way: &Way, pid: u32, sql: &str, seconds: u64) -> anyhow::Result<(f64, f64)> {
    let mut client = Client::connect(protocol, way).await?;
    client.read(sql).await?;
    let (before, begin, mut bytes) = (Cpu::of(pid)?, Instant::now(), 0);
    while begin.elapsed() < Duration::from_secs(seconds) {
        bytes += client.read(sql).await?;
    }
    let megabytes = bytes as f64 / 1e6;
    Ok((megabytes / Cpu::of(pid)?.since(before).total(), megabytes / begin.elapsed().as_secs_f64()))
}

/// Point selects with and without [`RULES`] rules before the one that matches.
async fn rules(rig: &Rig, seconds: u64) -> anyhow::Result<()> {
    let mut conn = admin(&rig.node_host()).await?;
    let rule = |id: usize, pattern: &str, hostgroup: usize| {
        format!(
            "INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) VALUES ({id}, 1, '{pattern}', {hostgroup}, 1)"
        )
    };
    let mut setup = vec!["DELETE FROM mysql_query_rules".to_owned()];
    setup.extend((1..=RULES).map(|id| rule(id, &format!("^SELECT nothing_{id} FROM table_{id}"), 10)));
    setup.extend([rule(RULES + 1, "^SELECT.*FOR UPDATE", 10), rule(RULES + 2, "^SELECT", 20)]);
    execute(&mut conn, &setup).await?;

    let load = Load { protocol: Protocol::Mysql, prepared: false, clients: ACTIVE, seconds };
    let mut passes = [Vec::new(), Vec::new()];
    for turn in 0..PASSES {
        eprintln!("MySQL, {RULES} rules that do not match, pass {}", turn + 1);
        // Each has the first turn as often as the other, but for one.
        let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        for active in order {
            let update = format!("UPDATE mysql_query_rules SET active = {active} WHERE rule_id <= {RULES}");
            execute(&mut conn, &[update, "LOAD MYSQL QUERY RULES TO RUNTIME".into()]).await?;
            Load { seconds: 1, ..load }.run(rig.node())?;
            passes[active].push(pass(&load, rig.node())?);
        }
    }
    let off = [format!("UPDATE mysql_query_rules SET active = 0 WHERE rule_id <= {RULES}"), "LOAD MYSQL QUERY RULES TO RUNTIME".into()];
    execute(&mut conn, &off[..]).await?;
    let [without, with] = passes.map(|of_kind| Cell::new(NODE, &of_kind));
    let columns = ["rules", "CPU more %", "CPU s/million", "q/s"];
    let mut table = Table::new(format!("### {RULES} MySQL rules that do not match, {ACTIVE} clients"), &columns);
    for (count, cell) in [(0, &without), (RULES, &with)] {
        let more = (cell.cpu / without.cpu - 1.0) * 100.0;
        table.row(vec![count.to_string(), figure(more), figure(cell.cpu), format!("{:.0}", cell.per_second)]);
    }
    println!("{table}");
    Ok(())
}

/// Point selects beside a growing number of idle clients; HAProxy without any in the same passes shows the noise.
async fn crowd(rig: &Rig, seconds: u64) -> anyhow::Result<()> {
    let load = Load { protocol: rig.protocol, prepared: false, clients: ACTIVE, seconds };
    let haproxy = rig.ways.iter().find(|way| way.name == HAPROXY);
    let columns = ["idle", "CPU to none idle", "CPU to HAProxy", "CPU s/million", "q/s", "p99 ms"];
    let mut table = Table::new(format!("### {ACTIVE} MySQL clients beside idle ones"), &columns);
    let (mut clients, mut alone) = (Vec::new(), f64::NAN);
    for count in [0, IDLE, CROWD] {
        eprintln!("MySQL, {ACTIVE} clients beside {count} idle ones");
        clients.extend(idle(rig.protocol, rig.node(), count - clients.len()).await?);
        let (mut own, mut peer) = (Vec::new(), Vec::new());
        for _ in 0..PASSES {
            own.push(pass(&load, rig.node())?);
            peer.extend(haproxy.map(|way| pass(&load, way)).transpose()?);
        }
        let (own, peer) = (Cell::new(NODE, &own), Cell::new(HAPROXY, &peer));
        if count == 0 {
            alone = own.cpu;
        }
        let ratios = [fine(own.cpu / alone), fine(own.cpu / peer.cpu), figure(own.cpu), format!("{:.0}", own.per_second), fine(own.p99_ms)];
        table.row([vec![count.to_string()], ratios.to_vec()].concat());
    }
    println!("{table}");
    Ok(())
}
