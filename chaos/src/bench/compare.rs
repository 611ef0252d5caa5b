//! The same load over several ways, interleaved, as medians over the passes.

use super::load::{Done, Load};
use super::report::{Table, figure, fine, median};
use super::rig::{DIRECT, NODE, Rig, Way};
use super::usage::Cpu;

/// How often each way has its turn; the order is reversed every other time.
pub(crate) const PASSES: usize = 3;

/// What one way did with one load in one pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    done: Done,
    /// Of the process in between, microseconds a query; NaN without one.
    user: f64,
    system: f64,
}

/// Medians over the passes of one way.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) way: &'static str,
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Processor time of the process in between: microseconds a query, which is seconds a million queries.
    pub(crate) user: f64,
    pub(crate) system: f64,
    pub(crate) cpu: f64,
}

impl Cell {
    pub(crate) fn new(way: &'static str, passes: &[Pass]) -> Self {
        let of = |field: fn(&Pass) -> f64| median(passes.iter().map(field));
        Self {
            way,
            per_second: of(|pass| pass.done.per_second),
            p50_ms: of(|pass| pass.done.p50_ms),
            p99_ms: of(|pass| pass.done.p99_ms),
            user: of(|pass| pass.user),
            system: of(|pass| pass.system),
            cpu: of(|pass| pass.user + pass.system),
        }
    }
}

/// One run over one way.
pub(crate) fn pass(load: &Load, way: &Way) -> anyhow::Result<Pass> {
    let before = way.pid.map(Cpu::of).transpose()?;
    let done = load.run(way)?;
    let used = match (way.pid, before) {
        (Some(pid), Some(before)) => Cpu::of(pid)?.since(before),
        _ => Cpu { user: f64::NAN, system: f64::NAN },
    };
    let micros = |seconds: f64| seconds / done.queries * 1e6;
    Ok(Pass { done, user: micros(used.user), system: micros(used.system) })
}

/// Runs `load` over `ways` in turns.
pub(crate) fn interleaved(load: &Load, ways: &[&Way]) -> anyhow::Result<Vec<Cell>> {
    let mut passes: Vec<Vec<Pass>> = vec![Vec::new(); ways.len()];
    let warm_up = Load { seconds: 1, ..*load };
    for way in ways {
        warm_up.run(way)?;
    }
    for turn in 0..PASSES {
        let forwards = 0..ways.len();
        let order: Vec<usize> = if turn % 2 == 0 { forwards.collect() } else { forwards.rev().collect() };
        for position in order {
            passes[position].push(pass(load, ways[position])?);
        }
    }
    Ok(ways.iter().zip(&passes).map(|(way, passes)| Cell::new(way.name, passes)).collect())
}

/// Point selects at each number of clients, text and prepared: the ratios of the node to the others, then the figures.
pub(crate) fn point_selects(rig: &Rig, clients: &[usize], seconds: u64) -> anyhow::Result<()> {
    let name = rig.protocol.name();
    let mut ratios = Table::new(
        format!("### {name} point selects: the node in relation to the others (CPU a query and p99: below 1 is better; q/s: above 1)"),
        &["statements", "clients", "to", "CPU", "q/s", "p50", "p99"],
    );
    let mut figures = Table::new(
        format!("### {name} point selects: figures (CPU: seconds of the process in between for a million queries)"),
        &["statements", "clients", "way", "q/s", "p50 ms", "p99 ms", "CPU", "user", "system"],
    );
    let outcome = measure(rig, clients, seconds, &mut ratios, &mut figures);
    println!("{ratios}{figures}");
    outcome
}

fn measure(rig: &Rig, clients: &[usize], seconds: u64, ratios: &mut Table, figures: &mut Table) -> anyhow::Result<()> {
    for prepared in [false, true] {
        let ways: Vec<&Way> = rig.ways.iter().filter(|way| way.prepared || !prepared).collect();
        for &clients in clients {
            let load = Load { protocol: rig.protocol, prepared, clients, seconds };
            eprintln!("{}, {}, {clients} clients", rig.protocol.name(), load.kind());
            let cells = interleaved(&load, &ways)?;
            let about = || vec![load.kind().to_owned(), clients.to_string()];
            for row in compared(&cells) {
                ratios.row([about(), row].concat());
            }
            for cell in &cells {
                figures.row([about(), row(cell)].concat());
            }
        }
    }
    Ok(())
}

/// The node's cell divided by each other one.
fn compared(cells: &[Cell]) -> Vec<Vec<String>> {
    let Some(node) = cells.iter().find(|cell| cell.way == NODE) else { return Vec::new() };
    let others = cells.iter().filter(|cell| cell.way != NODE);
    let ratios = others.map(|other| {
        let cpu = if other.way == DIRECT { f64::NAN } else { node.cpu / other.cpu };
        let of = [cpu, node.per_second / other.per_second, node.p50_ms / other.p50_ms, node.p99_ms / other.p99_ms];
        [vec![other.way.to_owned()], of.map(fine).to_vec()].concat()
    });
    ratios.collect()
}

fn row(cell: &Cell) -> Vec<String> {
    let Cell { way, per_second, p50_ms, p99_ms, user, system, cpu } = *cell;
    vec![way.into(), format!("{per_second:.0}"), fine(p50_ms), fine(p99_ms), figure(cpu), figure(user), figure(system)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass_of(per_second: f64, user: f64) -> Pass {
        Pass { done: Done { queries: 10.0, per_second, p50_ms: 1.0, p99_ms: 4.0 }, user, system: 2.0 * user }
    }

    #[test]
    fn cells_are_medians_and_ratios_are_the_node_to_the_others() {
        let node = Cell::new(NODE, &[pass_of(50.0, 9.0), pass_of(100.0, 10.0), pass_of(400.0, 99.0)]);
        assert_eq!((node.per_second, node.user, node.cpu), (100.0, 10.0, 30.0));
        let peer = Cell::new("HAProxy", &[pass_of(200.0, 20.0)]);
        let direct = Cell::new(DIRECT, &[Pass { user: f64::NAN, system: f64::NAN, ..pass_of(400.0, 0.0) }]);
        let rows = compared(&[direct, peer, node]);
        assert_eq!(rows, [vec!["direct", "", "0.25", "1.00", "1.00"], vec!["HAProxy", "0.50", "0.50", "1.00", "1.00"]]);
        assert!(compared(&[]).is_empty());
    }
}
