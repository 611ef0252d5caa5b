//! Both backends under the same tests: what was acknowledged is there after reopening, and damage is told apart from a torn end.

use std::{fs, path::Path};

use openraft::{EntryPayload, RaftLogReader, storage::RaftLogStorage, type_config::TypeConfigExt};

use super::*;
use crate::type_config::{Payload, log_id};

const OWNER: &str = "cluster c node 1 incarnation i";
const KINDS: [LogStoreKind; 2] = [LogStoreKind::Sled, LogStoreKind::Sqlite];

fn open(directory: &Path, kind: LogStoreKind) -> Result<LogStore, StartError> {
    LogStore::open(directory, kind, OWNER)
}

fn entry(term: u64, index: u64) -> Entry {
    Entry { log_id: log_id(term, index), payload: EntryPayload::Normal(Payload(vec![index as u8; 100 * index as usize].into())) }
}

async fn append(log: &mut LogStore, entries: Vec<Entry>) {
    let (done, answer) = <TypeConfig as TypeConfigExt>::oneshot();
    log.append(entries, IOFlushed::signal(done)).await.unwrap();
    answer.await.unwrap().unwrap();
}

async fn indexes(log: &mut LogStore) -> Vec<u64> {
    let entries = log.get_log_reader().await.try_get_log_entries(0..).await.unwrap();
    entries.iter().map(|entry| entry.log_id.index).collect()
}

/// What a power cut leaves: the files as they are while the store is still open.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_dir() {
            copy(&file.path(), &to.join(file.file_name()));
        } else {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_an_unclean_end() {
    for kind in KINDS {
        let (live, cut) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut log = open(live.path(), kind).unwrap();
        append(&mut log, (0..=90).map(|index| entry(1, index)).collect()).await;
        log.save_vote(&Vote::new_committed(2, 7)).await.unwrap();
        log.truncate_after(Some(log_id(1, 80))).await.unwrap();
        append(&mut log, vec![entry(2, 81)]).await;
        log.purge(log_id(1, 10)).await.unwrap();
        copy(live.path(), cut.path());

        let mut log = open(cut.path(), kind).unwrap();
        assert_eq!(indexes(&mut log).await, (11..=81).collect::<Vec<_>>(), "{kind:?}");
        let state = log.get_log_state().await.unwrap();
        assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(log_id(1, 10)), Some(log_id(2, 81))));
        assert_eq!(log.get_log_reader().await.read_vote().await.unwrap(), Some(Vote::new_committed(2, 7)));
        assert_eq!(log.get_log_reader().await.try_get_log_entries(40..41).await.unwrap(), vec![entry(1, 40)]);
    }
}

#[tokio::test]
async fn a_commit_mark_never_exceeds_the_log() {
    for kind in KINDS {
        let directory = tempfile::tempdir().unwrap();
        let mut log = open(directory.path(), kind).unwrap();
        append(&mut log, vec![entry(1, 0), entry(1, 1)]).await;
        log.save_committed(Some(log_id(1, 9))).await.unwrap();
        log.close().await.unwrap();
        drop(log);
        let mut log = open(directory.path(), kind).unwrap();
        assert_eq!(log.read_committed().await.unwrap(), Some(log_id(1, 1)), "{kind:?}");
    }
}

#[tokio::test]
async fn a_torn_end_is_removed_and_a_damaged_middle_refused() {
    for (removed, expected) in [(3, Ok(vec![0, 1, 2])), (2, Err(2))] {
        let directory = tempfile::tempdir().unwrap();
        let mut log = open(directory.path(), LogStoreKind::Sled).unwrap();
        append(&mut log, (0..=3).map(|index| entry(1, index)).collect()).await;
        log.close().await.unwrap();
        drop(log);
        // The entry's only part stays, without its last byte.
        let db = until_unlocked(|| ::sled::Config::new().path(directory.path().join("log")).open());
        let key = [&u64::to_be_bytes(removed)[..], &[0, 0]].concat();
        let rows = db.open_tree("log").unwrap();
        rows.update_and_fetch(key, |old| old.map(|old| old[..old.len() - 1].to_vec())).unwrap();
        db.flush().unwrap();
        drop((rows, db));

        match (open(directory.path(), LogStoreKind::Sled), expected) {
            (Ok(mut log), Ok(left)) => assert_eq!(indexes(&mut log).await, left),
            (Err(StartError::LogDamaged { index, .. }), Err(expected)) => assert_eq!(index, expected),
            (Ok(_), Err(_)) => panic!("a damaged middle was accepted"),
            (Err(e), _) => panic!("{e}"),
        }
    }
}

/// sled releases its lock when its last thread lets go, a little after the drop.
fn until_unlocked<T, E: Debug>(mut open: impl FnMut() -> Result<T, E>) -> T {
    let begin = std::time::Instant::now();
    loop {
        match open() {
            Ok(opened) => return opened,
            Err(e) => assert!(begin.elapsed() < Duration::from_secs(10), "{e:?}"),
        }
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_log_belongs_to_one_node() {
    for kind in KINDS {
        let (live, cut) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let log = open(live.path(), kind).unwrap();
        copy(live.path(), cut.path());
        assert!(matches!(LogStore::open(cut.path(), kind, "cluster c node 2 incarnation i"), Err(StartError::Identity(_))), "{kind:?}");
        drop(log);
    }
}

#[tokio::test]
async fn a_node_does_not_begin_a_second_log_in_the_other_store() {
    for (kind, other) in [(KINDS[0], KINDS[1]), (KINDS[1], KINDS[0])] {
        let directory = tempfile::tempdir().unwrap();
        let log = open(directory.path(), kind).unwrap();
        assert!(matches!(open(directory.path(), other), Err(StartError::Options(_))));
        drop(log);
    }
}

#[tokio::test]
async fn limited_reads_give_whole_entries_and_at_least_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path(), LogStoreKind::Sled).unwrap();
    let large = |index| Entry { log_id: log_id(1, index), payload: EntryPayload::Normal(Payload(vec![1; READ_BYTES].into())) };
    append(&mut log, (0..4).map(large).collect()).await;
    let read = log.get_log_reader().await.limited_get_log_entries(1, 4).await.unwrap();
    assert_eq!(read, vec![large(1)]);
}
