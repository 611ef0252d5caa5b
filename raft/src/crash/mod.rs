//! Crashes that no process sees coming: kill -9 and loss of power, over both log stores and a whole node (raft-and-storage.md 10.2,
//! 10.3).
//!
//! A child process (this test binary again) works on a directory and writes to the file `acks` in it how many of its operations
//! have been acknowledged. What it does follows from a seed, so that the parent knows what must be found afterwards.
//!
//! kill -9 shows that nothing depends on buffers of the process. For loss of power, `chaos/power/recorder.c` records every call
//! on the directory; [`disk`] makes the directory as a disk could look at some point of the recording.

mod disk;
mod kill;
mod log;
mod node;
mod power;

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Child, Command, Stdio},
};

/// Environment of a child: directory, log store, seed, number of operations.
const CHILD: [&str; 4] = ["CRASH_DIRECTORY", "CRASH_STORE", "CRASH_SEED", "CRASH_OPERATIONS"];

/// Numbers that follow from a seed (SplitMix64).
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

/// What a child is told to do.
struct Orders {
    directory: std::path::PathBuf,
    store: crate::LogStoreKind,
    seed: u64,
    operations: u64,
}

impl Orders {
    /// `None` when this process is no child.
    fn read() -> Option<Self> {
        let [directory, store, seed, operations] = CHILD.map(|name| std::env::var(name).ok());
        Some(Self {
            directory: directory?.into(),
            store: if store? == "Sled" { crate::LogStoreKind::Sled } else { crate::LogStoreKind::Sqlite },
            seed: seed?.parse().ok()?,
            operations: operations?.parse().ok()?,
        })
    }

    /// Starts this test binary again to run one test of it, which is a child's work.
    fn start(&self, test: &str, environment: &[(&str, &str)]) -> Child {
        let values =
            [self.directory.display().to_string(), format!("{:?}", self.store), self.seed.to_string(), self.operations.to_string()];
        let log = File::create(self.directory.with_extension("output")).unwrap();
        Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .envs(CHILD.iter().zip(values))
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    fn output(&self) -> String {
        fs::read_to_string(self.directory.with_extension("output")).unwrap_or_default()
    }
}

/// The file in which a child says how far it is.
struct Acks(File);

impl Acks {
    fn create(directory: &Path) -> Self {
        Self(File::create(directory.join("acks")).unwrap())
    }

    /// All operations up to this one are acknowledged.
    fn say(&mut self, operations: u64) {
        self.0.write_all(format!("{operations}\n").as_bytes()).unwrap();
    }

    fn read(directory: &Path) -> Option<u64> {
        fs::read_to_string(directory.join("acks")).ok()?.lines().last()?.parse().ok()
    }
}
