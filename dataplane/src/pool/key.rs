//! What makes two server connections interchangeable for a client.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::intern::Interner;

/// Everything but the server itself that connections of one list have in common. Schema and variables are aligned before a
/// statement and are no part of it (design.md section 5).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct KeyParts {
    /// User.
    pub user: String,
    /// Database (PostgreSQL; a MySQL connection changes it with one command).
    pub database: String,
    /// Immutable start-up parameters in the order of their names (PostgreSQL).
    pub startup: Vec<(String, String)>,
    /// Capability bits that change results (MySQL).
    pub capabilities: u64,
}

/// Shared [`KeyParts`] with their hash. Take one per session from its pool, clone it freely. Two that share are equal at a glance.
#[derive(Clone, PartialEq, Eq)]
pub struct PoolKey(Arc<Hashed>);

#[derive(PartialEq, Eq, Hash, Debug)]
struct Hashed {
    hash: u64,
    parts: KeyParts,
}

/// The keys of one worker's sessions.
#[derive(Debug, Default)]
pub(super) struct Keys(Interner<Hashed>);

impl Keys {
    pub(super) fn intern(&mut self, parts: KeyParts) -> PoolKey {
        PoolKey(self.0.intern(Hashed::new(parts)))
    }
}

impl Hashed {
    fn new(parts: KeyParts) -> Self {
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        Self { hash: hasher.finish(), parts }
    }
}

impl PoolKey {
    /// Computes the hash once.
    #[must_use]
    pub fn new(parts: KeyParts) -> Self {
        Self(Arc::new(Hashed::new(parts)))
    }

    /// The values.
    #[must_use]
    pub fn parts(&self) -> &KeyParts {
        &self.0.parts
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.hash
    }
}

impl fmt::Debug for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.parts.fmt(f)
    }
}
