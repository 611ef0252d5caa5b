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

/// What is done to the stored entry 1, 2 or 3 of the entries 0..=3.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Remove,
    Tear,
}

/// Reaches around the store and harms one entry, which has one row in both.
fn harm(directory: &Path, kind: LogStoreKind, index: u32, harm: Harm) {
    let torn = |old: &[u8]| old[..old.len() - 1].to_vec();
    match kind {
        LogStoreKind::Sled => {
            let db = until_unlocked(|| ::sled::Config::new().path(directory.join("log")).open());
            let rows = db.open_tree("log").unwrap();
            let key = [&u64::to_be_bytes(index.into())[..], &[0, 0]].concat();
            let old = rows.remove(&key).unwrap().unwrap();
            if let Harm::Tear = harm {
                rows.insert(key, torn(&old)).unwrap();
            }
            db.flush().unwrap();
        }
        LogStoreKind::Sqlite => {
            let file = rusqlite::Connection::open(directory.join("log.sqlite")).unwrap();
            let old: Vec<u8> = file.query_row("SELECT d FROM log WHERE idx = ?1", [index], |row| row.get(0)).unwrap();
            match harm {
                Harm::Remove => file.execute("DELETE FROM log WHERE idx = ?1", [index]).unwrap(),
                Harm::Tear => file.execute("UPDATE log SET d = ?2 WHERE idx = ?1", (index, torn(&old))).unwrap(),
            };
        }
    }
}

#[tokio::test]
async fn a_torn_end_is_removed_and_a_damaged_middle_refused() {
    for kind in KINDS {
        for (index, how, expected) in [
            (3, Harm::Tear, Ok(vec![0, 1, 2])),
            (3, Harm::Remove, Ok(vec![0, 1, 2])),
            (2, Harm::Tear, Err((2, ""))),
            (1, Harm::Remove, Err((1, "missing"))),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let mut log = open(directory.path(), kind).unwrap();
            append(&mut log, (0..=3).map(|index| entry(1, index)).collect()).await;
            log.close().await.unwrap();
            drop(log);
            harm(directory.path(), kind, index, how);

            match (open(directory.path(), kind), expected) {
                (Ok(mut log), Ok(left)) => {
                    assert_eq!(indexes(&mut log).await, left, "{kind:?}");
                    // What was removed does not come back behind the next entry.
                    append(&mut log, vec![entry(2, 3)]).await;
                    drop(log);
                    let mut log = until_unlocked(|| open(directory.path(), kind));
                    assert_eq!(log.get_log_reader().await.try_get_log_entries(3..4).await.unwrap(), vec![entry(2, 3)], "{kind:?}");
                }
                (Err(refused), Err((index, what))) => {
                    let text = refused.to_string();
                    assert!(text.starts_with(&format!("raft log damaged at index {index}: {what}")), "{kind:?}: {text}");
                    assert!(text.ends_with("; remove this member and join it again, or run raft-rebuild on a single node"), "{text}");
                    assert_eq!(refused.exit_code(), 74);
                }
                (found, expected) => panic!("{kind:?}: {:?} instead of {expected:?}", found.err()),
            }
        }
    }
}

#[tokio::test]
async fn a_damaged_mark_is_refused() {
    for kind in KINDS {
        let directory = tempfile::tempdir().unwrap();
        let mut log = open(directory.path(), kind).unwrap();
        log.save_vote(&Vote::new_committed(2, 7)).await.unwrap();
        log.close().await.unwrap();
        drop(log);
        match kind {
            LogStoreKind::Sled => {
                let db = until_unlocked(|| ::sled::Config::new().path(directory.path().join("log")).open());
                db.open_tree("meta").unwrap().insert("vote", b"12345").unwrap();
                db.flush().unwrap();
            }
            LogStoreKind::Sqlite => {
                let file = rusqlite::Connection::open(directory.path().join("log.sqlite")).unwrap();
                file.execute("UPDATE meta SET v = x'3132333435' WHERE k = 'vote'", []).unwrap();
            }
        }
        let refused = until_unlocked(|| match open(directory.path(), kind) {
            Err(StartError::Storage(text)) if text.contains("lock") => Err(text),
            other => Ok(other),
        });
        let refused = refused.err().unwrap();
        let (text, place) = (refused.to_string(), directory.path().join("log").display().to_string());
        assert_eq!(refused.exit_code(), 74, "{kind:?}");
        for told in [&*place, "raft log: vote fails its checksum", "quorumsql ctl remove ID", "join it again"] {
            assert!(text.contains(told), "{kind:?}: {text}");
        }
    }
}

#[tokio::test]
async fn a_log_larger_than_memory_may_hold_is_read_from_disk() {
    let large = |index| Entry { log_id: log_id(1, index), payload: EntryPayload::Normal(Payload(vec![index as u8; 1 << 20].into())) };
    for kind in KINDS {
        let directory = tempfile::tempdir().unwrap();
        let mut log = open(directory.path(), kind).unwrap();
        append(&mut log, (0..40).map(large).collect()).await;
        append(&mut log, vec![large(40)]).await;
        let before = log.status();
        assert_eq!((before.unflushed_entries, before.strays), (0, 0));
        drop(log);
        let mut log = until_unlocked(|| open(directory.path(), kind));
        assert_eq!(log.bytes(), before.bytes);
        assert_eq!(log.surplus(30), None, "fewer than 256 entries stay, whatever their size");
        let mut reader = log.get_log_reader().await;
        assert_eq!(reader.try_get_log_entries(0..41).await.unwrap(), (0..41).map(large).collect::<Vec<_>>(), "{kind:?}");
        assert_eq!(reader.limited_get_log_entries(3, 41).await.unwrap(), vec![large(3)]);
    }
}

#[tokio::test]
async fn an_error_of_the_disk_is_final_and_nothing_acknowledged_is_lost() {
    for kind in KINDS {
        for code in [5, 28] {
            let directory = tempfile::tempdir().unwrap();
            let mut log = open(directory.path(), kind).unwrap();
            append(&mut log, vec![entry(1, 0), entry(1, 1)]).await;
            fs::write(directory.path().join("fault"), format!("errno {code}")).unwrap();
            let (done, answer) = <TypeConfig as TypeConfigExt>::oneshot();
            log.append(vec![entry(1, 2)], IOFlushed::signal(done)).await.unwrap();
            assert!(answer.await.unwrap().is_err());
            fs::remove_file(directory.path().join("fault")).unwrap();
            assert!(log.save_vote(&Vote::new_committed(2, 7)).await.is_err(), "{kind:?}: a later success proves nothing");
            assert!(log.progress().borrow().failed.as_ref().unwrap().contains(&format!("os error {code}")));
            drop(log);
            let mut log = until_unlocked(|| open(directory.path(), kind));
            assert_eq!(indexes(&mut log).await[..2], [0, 1], "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_disk_that_hangs_is_seen_while_it_does() {
    for kind in KINDS {
        let directory = tempfile::tempdir().unwrap();
        let mut log = open(directory.path(), kind).unwrap();
        let fault = directory.path().join("fault");
        fs::write(&fault, "delay 60000").unwrap();
        let (done, answer) = <TypeConfig as TypeConfigExt>::oneshot();
        log.append(vec![entry(1, 0)], IOFlushed::signal(done)).await.unwrap();
        while log.busy_for() < Duration::from_millis(50) {
            tokio::task::yield_now().await;
        }
        assert_eq!(log.status().unflushed_entries, 1);
        fs::remove_file(&fault).unwrap();
        answer.await.unwrap().unwrap();
        assert_eq!((log.busy_for(), log.status().unflushed_entries), (Duration::ZERO, 0), "{kind:?}");
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
