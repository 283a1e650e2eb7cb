//! Records in the state folder of the newest state in which each array was served.
//!
//! ```text
//!   <state folder>/arrays/<UUID>.json  the last update that all members had: events, time, members
//! ```
//!
//! If all superblocks are old, only this record can tell ([`braid_assembly::RecordedState`]). A
//! thread writes the record when an array is started, after updates of superblocks at most once a
//! second, and when the array has stopped. After a kill, the record may lag: it then detects less,
//! but is never wrong.
//!
//! The loss of a member is recorded at once. No write without the member is acknowledged before the
//! record is durable, so that the lost member is never served alone as if it were current. If the
//! write of the record fails or takes five seconds, the server reports that and no longer waits.
//! The file may be deleted at any time.
//!
//! `braid-assembly` compares the record with the superblocks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use braid_assembly::{AssembledArray, ProbedMember, RecordedState, StateMember};
use braid_ondisk::{Timestamp, format_uuid};
use braid_runtime::{OpenMember, RecordedUpdate, Volume};
use serde_json::{Value, json};

use braid_console::regular::read_text;
use braid_console::state::write_whole;

const FORMAT: u64 = 1;
/// Least time between two writes of the record, except before the last write.
const PAUSE: Duration = Duration::from_secs(1);
/// Deadline for a write of the record: after the loss of a member, clients wait for this write.
const PATIENCE: Duration = Duration::from_secs(5);
const FILE_BYTES_MAX: u64 = 1 << 20;

fn path_of(state_dir: &Path, uuid: &[u8; 16]) -> PathBuf {
    let digits = format_uuid(uuid).replace(':', "");
    state_dir.join("arrays").join(format!("{digits}.json"))
}

/// The saved records of these members' arrays. Ignores a file that is unreadable or invalid.
pub fn of(state_dir: &Path, members: &[ProbedMember]) -> Vec<RecordedState> {
    let sound = members.iter().flat_map(|member| &member.probe.superblocks);
    let mut uuids: Vec<[u8; 16]> =
        sound.filter_map(|found| found.as_ref().ok()).map(|one| one.array.uuid).collect();
    uuids.sort_unstable();
    uuids.dedup();
    uuids.iter().filter_map(|uuid| read(&path_of(state_dir, uuid))).collect()
}

fn read(path: &Path) -> Option<RecordedState> {
    parse(&serde_json::from_str(&read_text(path, FILE_BYTES_MAX).ok()?).ok()?)
}

fn parse(value: &Value) -> Option<RecordedState> {
    let member = |member: &Value| {
        Some(StateMember {
            slot: u16::try_from(member["slot"].as_u64()?).ok()?,
            number: u32::try_from(member["number"].as_u64()?).ok()?,
            uuid: uuid(&member["device"])?,
        })
    };
    (value["format"] == FORMAT).then_some(())?;
    Some(RecordedState {
        uuid: uuid(&value["array"])?,
        creation_time: time(&value["created"])?,
        events: value["events"].as_u64()?,
        update_time: time(&value["updated"])?,
        members: value["members"].as_array()?.iter().map(member).collect::<Option<_>>()?,
    })
}

fn uuid(value: &Value) -> Option<[u8; 16]> {
    let digits = value.as_str()?.replace(':', "");
    let is_whole = digits.len() == 32;
    u128::from_str_radix(&digits, 16).ok().filter(|_| is_whole).map(u128::to_be_bytes)
}

fn time(value: &Value) -> Option<Timestamp> {
    let microseconds = u32::try_from(value["microseconds"].as_u64()?).ok()?;
    Some(Timestamp { seconds: value["seconds"].as_u64()?, microseconds })
}

fn to_json(known: &RecordedState) -> Value {
    let time =
        |time: Timestamp| json!({ "seconds": time.seconds, "microseconds": time.microseconds });
    let member = |one: &StateMember| json!({ "slot": one.slot, "number": one.number, "device": format_uuid(&one.uuid) });
    json!({
        "format": FORMAT,
        "array": format_uuid(&known.uuid),
        "created": time(known.creation_time),
        "events": known.events,
        "updated": time(known.update_time),
        "members": known.members.iter().map(member).collect::<Vec<_>>(),
    })
}

/// Writes the record durably: a crash leaves the old or the new file.
fn write(state_dir: &Path, known: &RecordedState) -> io::Result<()> {
    write_whole(&path_of(state_dir, &known.uuid), &format!("{:#}\n", to_json(known)))
}

/// The record at the start of an array: the newest superblock's state, and each slot's member.
fn at_start(array: &AssembledArray, open: &[Option<OpenMember>]) -> RecordedState {
    let newest = &array.newest;
    // Uses the superblocks of the open members, since the start has updated a member that was one
    // event behind.
    let device = |index: usize| Some(&open.get(index)?.as_ref()?.superblock.device);
    let members = (0..).zip(&array.slots).filter_map(|(slot, occupant)| {
        let device = device(occupant.as_ref()?.member)?;
        Some(StateMember { slot, number: device.number, uuid: device.uuid })
    });
    RecordedState {
        uuid: newest.array.uuid,
        creation_time: newest.array.creation_time,
        events: newest.state.events,
        update_time: newest.state.update_time,
        members: members.collect(),
    }
}

/// Messages to the thread that writes the record.
enum Word {
    /// Superblocks were updated.
    Recorded,
    /// Superblocks were updated to this event count. The update records the loss of a member, and
    /// clients wait for the record.
    Lost(u64),
    /// The array has stopped.
    Ended,
}

/// Reports updates of superblocks to the thread that writes the record.
#[derive(Clone)]
pub struct Notifier(Sender<Word>);

impl Notifier {
    /// Reports that superblocks were updated.
    pub fn notify(&self) {
        // If the thread did not start, no record is kept, and the start has reported that.
        let _ = self.0.send(Word::Recorded);
    }
}

/// Keeps the record of an array while it is served.
pub struct Keeper {
    state_dir: PathBuf,
    known: RecordedState,
    words: (Sender<Word>, Option<Receiver<Word>>),
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Makes the keeper of an array that is about to start with these members open.
    pub fn new(state_dir: &Path, array: &AssembledArray, open: &[Option<OpenMember>]) -> Self {
        let (sender, receiver) = channel();
        let (state_dir, known) = (state_dir.to_path_buf(), at_start(array, open));
        Self { state_dir, known, words: (sender, Some(receiver)), thread: None }
    }

    /// The notifier that the array's watcher calls after updates of superblocks.
    pub fn notifier(&self) -> Notifier {
        Notifier(self.words.0.clone())
    }

    /// Writes the present record, then each new one. Calls `fails` for the first failed write in a
    /// row.
    ///
    /// # Errors
    /// The write failed, or no thread started; then no record is kept.
    pub fn start(
        &mut self,
        volume: &Arc<Volume>,
        fails: impl Fn(&Path, &io::Error) + Send + 'static,
    ) -> Result<(), (PathBuf, io::Error)> {
        let Some(words) = self.words.1.take() else { return Ok(()) };
        let path = path_of(&self.state_dir, &self.known.uuid);
        write(&self.state_dir, &self.known).map_err(|error| (path.clone(), error))?;
        let failed = |error| (self.state_dir.clone(), error);
        let writer = Writer::start(&self.state_dir).map_err(failed)?;
        let mut record = Record {
            known: self.known.clone(),
            volume: Arc::downgrade(volume),
            writer,
            is_told: false,
        };
        let keep = move || keep(&mut record, &words, &|error| fails(&path, error));
        let lost = self.words.0.clone();
        volume.keep_record(Some(Box::new(move |events| _ = lost.send(Word::Lost(events)))));
        let thread = std::thread::Builder::new().name("braid-state".into()).spawn(keep);
        let thread = thread.inspect_err(|_| volume.keep_record(None));
        self.thread = Some(thread.map_err(failed)?);
        Ok(())
    }

    /// Writes the last state of the stopped array.
    pub fn end(self) {
        let _ = self.words.0.send(Word::Ended);
        if let Some(thread) = self.thread {
            // The thread has reported its failures.
            let _ = thread.join();
        }
    }
}

struct Record {
    known: RecordedState,
    volume: Weak<Volume>,
    writer: Writer,
    /// Whether the current failure has been reported.
    is_told: bool,
}

impl Record {
    /// Writes the record if it has changed. After a failure, the next message causes another try.
    fn write_new(&mut self, fails: &dyn Fn(&io::Error)) {
        let recorded = self.volume.upgrade().and_then(|volume| volume.recorded());
        let next = recorded.map(|recorded| after(&self.known, recorded));
        let Some(next) = next.filter(|next| *next != self.known) else { return };
        match self.writer.write(&next) {
            Ok(()) => {
                self.known = next;
                self.is_told = false;
            }
            Err(error) if !self.is_told => {
                fails(&error);
                self.is_told = true;
            }
            Err(_) => {}
        }
    }
}

/// A thread that writes the record, and may hang: the folder may be on the failing disk or the
/// array.
struct Writer {
    orders: Sender<RecordedState>,
    results: Receiver<io::Result<()>>,
    /// Whether the last write is still running.
    is_out: bool,
    patience: Duration,
}

impl Writer {
    fn start(state_dir: &Path) -> io::Result<Self> {
        let (orders, ordered) = channel::<RecordedState>();
        let (answers, results) = channel();
        let state_dir = state_dir.to_path_buf();
        let run = move || {
            for known in ordered {
                if answers.send(write(&state_dir, &known)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("braid-record".into()).spawn(run)?;
        Ok(Self { orders, results, is_out: false, patience: PATIENCE })
    }

    fn write(&mut self, known: &RecordedState) -> io::Result<()> {
        let is_late = || io::Error::new(io::ErrorKind::TimedOut, "writing it takes too long");
        if self.is_out {
            // Drops the result of a late write, which belongs to an older record.
            self.is_out = self.results.try_recv().is_err();
        }
        if self.is_out || self.orders.send(known.clone()).is_err() {
            return Err(is_late());
        }
        self.is_out = true;
        let written = self.results.recv_timeout(self.patience).map_err(|_| is_late())?;
        self.is_out = false;
        written
    }
}

fn keep(record: &mut Record, words: &Receiver<Word>, fails: &dyn Fn(&io::Error)) {
    // The time of the next write; `None` if the record has no change.
    let mut due: Option<Instant> = None;
    let mut rests_until = Instant::now();
    loop {
        let pause = due.map(|due| due.saturating_duration_since(Instant::now()));
        let word = match pause {
            None => words.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(pause) => words.recv_timeout(pause),
        };
        match word {
            // One write covers all updates until it is due.
            Ok(Word::Recorded) => due = due.or(Some(rests_until)),
            Ok(Word::Lost(_)) | Err(RecvTimeoutError::Timeout) => {
                record.write_new(fails);
                (due, rests_until) = (None, Instant::now() + PAUSE);
                // Frees waiting clients also after a failed write, since they do not wait for
                // another try.
                if let (Ok(Word::Lost(events)), Some(volume)) = (word, record.volume.upgrade()) {
                    volume.record_kept(events);
                }
            }
            Ok(Word::Ended) | Err(RecvTimeoutError::Disconnected) => {
                return record.write_new(fails);
            }
        }
    }
}

fn after(known: &RecordedState, recorded: RecordedUpdate) -> RecordedState {
    let members = recorded.members.into_iter();
    let members =
        members.map(|one| StateMember { slot: one.slot, number: one.number, uuid: one.uuid });
    RecordedState {
        events: recorded.events,
        update_time: recorded.update_time,
        members: members.collect(),
        ..known.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_nonsense_says_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |seconds| Timestamp { seconds, microseconds: 7 };
        let known = RecordedState {
            uuid: [0xA1; 16],
            creation_time: at(1),
            events: u64::MAX - 1,
            update_time: at(2),
            members: vec![StateMember { slot: 3, number: 4, uuid: [5; 16] }],
        };
        let path = path_of(folder.path(), &known.uuid);
        assert_eq!(read(&path), None, "nothing is known yet");
        write(folder.path(), &known).expect("it can be written");
        write(folder.path(), &known).expect("and again");
        assert_eq!(read(&path), Some(known.clone()));
        let text = fs::read_to_string(&path).expect("a file");
        for (from, to) in
            [("\"format\": 1", "\"format\": 2"), ("\"events\"", "\"event\""), ("}", "")]
        {
            fs::write(&path, text.replace(from, to)).expect("a file");
            assert_eq!(read(&path), None, "{from}");
        }
    }

    /// Regression: while the state folder was on a hanging disk, all writes of the array waited for
    /// the record.
    #[test]
    fn a_record_that_hangs_is_not_waited_for_and_is_written_later() {
        let at = Timestamp { seconds: 1, microseconds: 0 };
        let known = RecordedState {
            uuid: [1; 16],
            creation_time: at,
            events: 1,
            update_time: at,
            members: vec![],
        };
        let (orders, ordered) = channel();
        let (answers, results) = channel();
        let patience = Duration::from_millis(20);
        let mut writer = Writer { orders, results, is_out: false, patience };
        for _ in 0..2 {
            let late = writer.write(&known).map_err(|error| error.kind());
            assert_eq!(late, Err(io::ErrorKind::TimedOut));
        }
        assert_eq!(ordered.try_iter().count(), 1, "one is out, and no other is ordered meanwhile");
        answers.send(Ok(())).expect("it listens");
        writer.patience = PATIENCE;
        let answer = std::thread::spawn(move || {
            let again = ordered.recv();
            answers.send(Ok(())).map(|()| again.is_ok())
        });
        assert!(writer.write(&RecordedState { events: 2, ..known }).is_ok());
        assert!(answer.join().expect("no panic").expect("it listens"));
    }
}
