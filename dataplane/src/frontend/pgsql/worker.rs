//! What the PostgreSQL sessions of one worker share.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use quorumsql_wire::pgsql::auth::Secrets;

use super::exchange::Sent;
use crate::config::{HostgroupId, Protocol, User};
use crate::session::pgsql::prepared::Registry;
use crate::session::pgsql::responses::Expected;
use crate::session::pgsql::settings::Settings;
use crate::worker::WorkerContext;
use crate::worker::session::Signal;

/// Users whose prepared secrets are kept.
const SECRETS_LIMIT: usize = 10_000;
/// Welcomes that are kept.
const WELCOME_LIMIT: usize = 1_000;
/// Pairs of queues that are kept for reuse.
const QUEUES_LIMIT: usize = 64;
/// Places of a queue that is kept.
const QUEUE_ROOM: usize = 64;

/// Caches and scratch space of one worker.
pub(super) struct PgWorker {
    /// Makes salts that cannot be foreseen.
    seed: [u8; 32],
    secrets: RefCell<HashMap<String, Prepared>>,
    welcomes: RefCell<Welcomes>,
    keys: RefCell<HashMap<u32, [u8; 4]>>,
    /// Counts changes of tables that passed through: who prepares a statement does not get one from before.
    pub(super) schema: Cell<u64>,
    /// Statements that clients of this worker share.
    pub(super) registry: RefCell<Registry>,
    /// Empty queues for sessions that get a connection.
    queues: RefCell<Vec<Queues>>,
}

/// What a session with a connection queues: responses that are due, and statements that are counted.
pub(super) type Queues = (VecDeque<Expected>, VecDeque<Sent>);

struct Prepared {
    password: String,
    additional: Option<String>,
    secrets: Arc<Secrets>,
}

/// ParameterStatus messages by what they depend on, of one configuration.
#[derive(Default)]
struct Welcomes {
    index: u64,
    known: HashMap<WelcomeKey, Rc<[u8]>>,
}

/// What a welcome depends on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct WelcomeKey {
    pub(super) hostgroup: HostgroupId,
    pub(super) user: String,
    pub(super) database: String,
    pub(super) settings: Settings,
    pub(super) fixed: Settings,
}

impl PgWorker {
    /// This worker's.
    pub(super) fn of(ctx: &Rc<WorkerContext>) -> Rc<Self> {
        ctx.extension(|_| {
            let mut seed = [0; 32];
            if let Err(error) = getrandom::fill(&mut seed) {
                // Salts become foreseeable, which weakens no stored password; logins that need fresh randomness fail by themselves.
                tracing::error!(%error, "the operating system gives no randomness");
            }
            Self {
                seed,
                secrets: RefCell::default(),
                welcomes: RefCell::default(),
                keys: RefCell::default(),
                schema: Cell::new(0),
                registry: RefCell::default(),
                queues: RefCell::default(),
            }
        })
    }

    /// Empty queues, most often with room.
    pub(super) fn take_queues(&self) -> Queues {
        self.queues.borrow_mut().pop().unwrap_or_default()
    }

    /// Gives queues back.
    pub(super) fn put_queues(&self, mut queues: Queues) {
        let mut kept = self.queues.borrow_mut();
        if kept.len() < QUEUES_LIMIT && queues.0.capacity().max(queues.1.capacity()) <= QUEUE_ROOM {
            queues.0.clear();
            queues.1.clear();
            kept.push(queues);
        }
    }

    /// The secrets of `user`, derived once per stored password; of a user that does not exist, secrets that nothing fits.
    pub(super) fn secrets(&self, name: &str, user: Option<&User>) -> Arc<Secrets> {
        let Some(user) = user else { return Arc::new(Secrets::unknown(name, &self.seed)) };
        let mut all = self.secrets.borrow_mut();
        if let Some(known) = all.get(name)
            && known.password == user.password
            && known.additional == user.additional_password
        {
            return Arc::clone(&known.secrets);
        }
        if all.len() >= SECRETS_LIMIT {
            all.clear();
        }
        let salt = &quorumsql_wire::pgsql::scram::Verifier::salt_for(&self.seed, name);
        let secrets = Arc::new(Secrets::prepare(name, &user.password, user.additional_password.as_deref(), salt));
        let (password, additional) = (user.password.clone(), user.additional_password.clone());
        all.insert(name.to_owned(), Prepared { password, additional, secrets: Arc::clone(&secrets) });
        secrets
    }

    /// A welcome that a server has given under the configuration of `index`.
    pub(super) fn welcome(&self, index: u64, key: &WelcomeKey) -> Option<Rc<[u8]>> {
        let welcomes = self.welcomes.borrow();
        if welcomes.index == index { welcomes.known.get(key).cloned() } else { None }
    }

    /// Keeps a welcome.
    pub(super) fn keep_welcome(&self, index: u64, key: WelcomeKey, messages: &[u8]) {
        let mut welcomes = self.welcomes.borrow_mut();
        if welcomes.index != index || welcomes.known.len() >= WELCOME_LIMIT {
            *welcomes = Welcomes { index, known: HashMap::new() };
        }
        welcomes.known.insert(key, messages.into());
    }

    /// Notes the cancel key of a session.
    pub(super) fn note_key(&self, id: u32, key: [u8; 4]) {
        self.keys.borrow_mut().insert(id, key);
    }

    /// Forgets the cancel key of a session.
    pub(super) fn forget_key(&self, id: u32) {
        self.keys.borrow_mut().remove(&id);
    }

    fn has_key(&self, id: u32, key: &[u8]) -> bool {
        self.keys.borrow().get(&id).is_some_and(|known| quorumsql_wire::pgsql::password::equal(known, key))
    }
}

/// Cancels the running statement of the session with this id and key, on whichever worker it is.
pub(super) fn cancel(ctx: &Rc<WorkerContext>, id: u32, key: &[u8]) {
    if id >> 24 != u32::from(ctx.slot()) {
        tracing::info!(session.id = id, "cancel request for a session of another node is not forwarded");
        return;
    }
    for worker in 0..ctx.shared().seats.len() {
        let key = key.to_vec();
        ctx.shared().run_on(worker, move |ctx| {
            if PgWorker::of(ctx).has_key(id, &key) {
                ctx.sessions().signal(id, Signal::KillQuery);
            }
        });
    }
}

/// The variables of PostgreSQL under the present configuration.
pub(super) fn variables(ctx: &WorkerContext) -> Arc<crate::config::Variables> {
    Arc::clone(&ctx.config().side(Protocol::Pgsql).variables)
}
