//! Tests with histories that are cut, filled up, locked and deleted.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::event::Change;
use crate::kind::Kind;
use crate::samples::{self, identity};

fn event(id: u64) -> Event {
    let some = usize::try_from(id % 7 * 30).expect("small");
    let message = format!("number {id} {}", "x".repeat(some));
    Event::new(id, &identity(), Change::now(Kind::Fail, message).of("/dev/sdc", Some(1)))
}

fn ids(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.id).collect()
}

fn fill(folder: &Path, count: u64) {
    let mut history = History::open(folder, BYTES_MAX).expect("a history");
    for _ in 0..count {
        let next = event(history.next_id);
        history.append(&next).expect("room");
        history.next_id += 1;
    }
}

#[test]
fn what_is_written_is_read_again_and_numbers_go_on() {
    let state = tempfile::tempdir().expect("a folder");
    let folder = state.path().join("u.events");
    assert_eq!(read(&folder).expect("nothing is no error"), []);
    let mut history = History::open(&folder, BYTES_MAX).expect("a history");
    let events = samples::events();
    for event in &events {
        history.append(event).expect("room");
    }
    assert_eq!(read(&folder).expect("a history"), events);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join(CURRENT))), (0o700, 0o600));
    let second = History::open(&folder, BYTES_MAX);
    assert!(matches!(second, Err(HistoryError::Locked(_))), "{second:?}");
    drop(history);
    let history = History::open(&folder, BYTES_MAX).expect("it is free again");
    assert_eq!(history.next_id(), events.len() as u64 + 1);
    assert_eq!(history.last(), events.last());
}

#[test]
fn a_tail_torn_at_any_byte_is_dropped() {
    // Uses a file system in memory, where syncs cost nothing.
    let state = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let state = state.expect("a folder");
    let folder = state.path().join("u.events");
    fill(&folder, 4);
    let file = folder.join(CURRENT);
    let bytes = fs::read(&file).expect("a history");
    for cut in 0..=bytes.len() {
        // After a torn line a power cut may leave nothing, zeroes, or earlier content.
        for tail in [&b""[..], &[0; 100], b"\0\0\n", b"{\"schema\":1\n{\n"] {
            fs::write(&file, [&bytes[..cut], tail].concat()).expect("a file");
            let whole = bytes[..cut].iter().filter(|byte| **byte == b'\n').count() as u64;
            let expected: Vec<u64> = (1..=whole).collect();
            assert_eq!(ids(&read(&folder).expect("no error")), expected, "cut at {cut}");
            let mut history = History::open(&folder, BYTES_MAX).expect("no error");
            assert_eq!(history.next_id(), whole + 1, "cut at {cut}");
            history.append(&event(whole + 1)).expect("room");
            drop(history);
            let expected: Vec<u64> = (1..=whole + 1).collect();
            assert_eq!(ids(&read(&folder).expect("no error")), expected, "cut at {cut}");
        }
    }
}

#[test]
fn it_never_outgrows_its_bound() {
    let state = tempfile::tempdir().expect("a folder");
    let folder = state.path().join("u.events");
    let size = || {
        let entries = fs::read_dir(&folder).expect("a folder");
        entries.map(|entry| entry.expect("a file").metadata().expect("a file").len()).sum::<u64>()
    };
    let mut history = History::open(&folder, BYTES_MAX_MIN).expect("a history");
    let mut largest = 0;
    for id in 1..=2000 {
        history.append(&event(id)).expect("room");
        largest = largest.max(size());
        if id % 500 == 0 {
            drop(history);
            history = History::open(&folder, BYTES_MAX_MIN).expect("a history");
            assert_eq!(history.next_id(), id + 1);
        }
    }
    assert!(largest <= BYTES_MAX_MIN && size() >= BYTES_MAX_MIN / 2 - 1000, "{largest}");
    let kept = ids(&read(&folder).expect("a history"));
    assert_eq!(kept, (kept[0]..=2000).collect::<Vec<_>>(), "no gaps");
    assert!(kept.len() > 200);
}

/// A store on a disk that has `left` bytes of free space.
#[derive(Default)]
struct Small {
    current: Vec<u8>,
    previous: Vec<u8>,
    left: usize,
    may_cut: bool,
    may_turn: bool,
}

impl Store for Small {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let fits = bytes.len().min(self.left);
        self.current.extend(&bytes[..fits]);
        self.left -= fits;
        if fits == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn cut(&mut self, length_bytes: u64) -> io::Result<()> {
        if !self.may_cut {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let length = usize::try_from(length_bytes).expect("small");
        assert!(length <= self.current.len(), "a cut makes nothing longer");
        self.left += self.current.len() - length;
        self.current.truncate(length);
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
        if !self.may_turn {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.left += self.previous.len();
        self.previous = std::mem::take(&mut self.current);
        Ok(())
    }
}

/// All lines of both files, torn ones included.
fn lines(store: &Small) -> Vec<u64> {
    let both = [&store.previous[..], &store.current].concat();
    assert!(both.is_empty() || both.ends_with(b"\n"), "a torn line");
    let text = String::from_utf8(both).expect("text");
    let id = |line: &str| serde_json::from_str::<Event>(line).expect("an event").id;
    text.lines().map(id).collect()
}

#[test]
fn a_disk_full_at_any_byte_loses_nothing() {
    let whole: usize = (1..=5).map(|id| line_of(&event(id)).len()).sum();
    for left in 0..=whole {
        for file_bytes_max in [600, 100_000] {
            let store =
                Small { left, may_cut: left % 3 > 0, may_turn: left % 2 > 0, ..Small::default() };
            let mut log = Log::new(store, 0, file_bytes_max);
            for id in 1..=5 {
                log.unwritten.push_back(line_of(&event(id)));
                // If the disk is full, the write fails and loses no event.
                let result = log.write();
                assert_eq!(result.is_ok(), log.unwritten.is_empty());
                if log.store.may_cut && log.is_torn {
                    log.store.cut(log.length_bytes).expect("it may");
                    lines(&log.store);
                }
            }
            log.store.left = 1 << 20;
            (log.store.may_cut, log.store.may_turn) = (true, true);
            log.unwritten.push_back(line_of(&event(6)));
            log.write().expect("there is room again");
            let found = lines(&log.store);
            // The oldest events may be gone since the current file replaced the previous one.
            let first = found[0];
            assert_eq!(found, (first..=6).collect::<Vec<_>>(), "{left} {file_bytes_max}");
            assert!(first == 1 || file_bytes_max == 600);
            assert_eq!((log.lost, log.unwritten.len()), (0, 0));
        }
    }
}

#[test]
fn what_waits_for_room_is_bounded_and_counted() {
    let mut log = Log::new(Small::default(), 0, 100_000);
    let count = UNWRITTEN_MAX as u64 + 10;
    for id in 1..=count {
        log.unwritten.push_back(line_of(&event(id)));
        log.write().expect_err("no room");
    }
    assert_eq!((log.unwritten.len(), log.lost), (UNWRITTEN_MAX, 10));
    log.unwritten.push_back(vec![b'x'; 200_000]);
    (log.store.left, log.store.may_cut) = (1 << 20, true);
    log.write().expect("room, and a line too long for any file is none to wait for");
    assert_eq!((log.lost, log.unwritten.len()), (11, 0));
}
