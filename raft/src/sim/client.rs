//! Clients: each writes through any node, asks again with the same request id, and remembers what it was told.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    checker::NO_ROW,
    cluster::{Cluster, NODES, ms},
    dice::Dice,
    node::{ATTEMPT, unknown},
};
use crate::command::{Channel, Committed, EditConflicts, Layer, LayerCopy, Op, Origin, Outcome, Request, RequestId};
use crate::core::submit::Known;

/// How a client names its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ids {
    /// One id a request, the same for all attempts.
    Right,
    /// The mutant: a new id for each attempt.
    EachAttempt,
    /// The mutant: one id for all requests.
    Reused,
}

pub(crate) struct Client {
    number: u64,
    written: u64,
    seq: u64,
    dice: Dice,
    pub(crate) ids: Ids,
    /// The mutant: believes every refusal, whatever an earlier attempt may have done.
    pub(crate) forgetful: bool,
    /// Who is asked after the first attempt; `None` = as for the first.
    pub(crate) then: Option<u64>,
}

impl Client {
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        Self { number, written: 0, seq: 0, dice: Dice::of(seed, &[CLIENT, number]), ids: Ids::Right, forgetful: false, then: None }
    }

    /// Puts one row in, through the node at `door` or through any; tells the journal how it ended.
    pub(crate) async fn insert(&mut self, cluster: &Cluster, door: Option<u64>, patience: Duration) -> Outcome {
        self.written += 1;
        let name = format!("c{}-{}", self.number, self.written);
        let text = format!("INSERT INTO mysql_query_rules (active, comment) VALUES (1, '{name}')");
        let op = Op::Sql { masked: text.clone(), text, params: Vec::new() };
        self.write(cluster, &name, op, door, patience).await
    }

    /// Publishes the rules.
    pub(crate) async fn load(&mut self, cluster: &Cluster, patience: Duration) -> Outcome {
        self.written += 1;
        let name = format!("{NO_ROW} c{}-{}", self.number, self.written);
        let copy = LayerCopy {
            modules: vec!["MYSQL QUERY RULES".into()],
            from: Layer::Memory,
            to: Layer::Runtime,
            if_revision: None,
            dry_run: false,
            force: true,
            comment: name.clone(),
            seen: vec![None],
            conflicts: EditConflicts::Off,
        };
        self.write(cluster, &name, Op::LayerCopy(copy), None, patience).await
    }

    /// Random writes until `end`.
    pub(crate) async fn run(mut self, cluster: &Cluster, end: Instant) {
        while Instant::now() < end {
            if self.dice.percent(5) {
                self.load(cluster, ms(4000)).await;
            } else {
                self.insert(cluster, None, ms(4000)).await;
            }
            tokio::time::sleep(ms(20 + self.dice.below(200))).await;
        }
    }

    async fn write(&mut self, cluster: &Cluster, name: &str, op: Op, door: Option<u64>, patience: Duration) -> Outcome {
        self.seq += 1;
        let outcome = self.until_decided(cluster, op, door, patience).await;
        match &outcome {
            Outcome::Committed(Committed { index, .. }) => cluster.journal.acknowledged(name, *index),
            Outcome::Rejected(rejection) => cluster.journal.refused(name, &rejection.message),
            Outcome::Unknown(_) => cluster.journal.unknown(name),
        }
        outcome
    }

    async fn until_decided(&mut self, cluster: &Cluster, op: Op, door: Option<u64>, patience: Duration) -> Outcome {
        let deadline = Instant::now() + patience;
        let (mut back_off, mut known, mut attempts) = (ms(5), Known::default(), 0);
        loop {
            attempts += 1;
            let door = self.then.filter(|_| attempts > 1).or(door);
            let node = door.unwrap_or_else(|| NODES.start + self.dice.below(NODES.count() as u64));
            let seq = match self.ids {
                Ids::Right => self.seq,
                Ids::EachAttempt => self.seq * 1000 + attempts,
                Ids::Reused => 1,
            };
            let mut client = [0; 16];
            client[..8].copy_from_slice(&self.number.to_be_bytes());
            let origin = Origin { actor: format!("client{}", self.number), channel: Channel::Mysql, node, client_addr: String::new() };
            let request = Request { id: RequestId { client, seq }, origin, op: op.clone(), timeout: ATTEMPT };
            if self.forgetful {
                known = Known::default();
            }
            if let Some(answer) = ask(cluster, node, request).await
                && let Some(decided) = known.decide(answer)
            {
                return decided;
            }
            if Instant::now() + back_off >= deadline {
                let refused = crate::command::Rejection::read_only("configuration is read-only: no leader");
                return if known.maybe_done { unknown() } else { Outcome::Rejected(refused) };
            }
            tokio::time::sleep(back_off).await;
            back_off = (back_off * 2).min(ms(100));
        }
    }
}

/// One attempt at one node; its death leaves the outcome open.
async fn ask(cluster: &Cluster, id: u64, request: Request) -> Option<Outcome> {
    let node = cluster.network.node(id)?;
    let serving = node.clone();
    node.host.spawn(async move { serving.execute(request).await }).await.unwrap_or_else(|_| Some(unknown()))
}

const CLIENT: u64 = 3;
