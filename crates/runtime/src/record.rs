//! Recording: what every machine was told goes to a file, by a thread of its own.
//!
//! A turn is sent while its machine is owned, so that one machine's turns keep their order. Sending
//! never waits: when the file cannot keep up with [`TURNS_MAX`] turns on their way, the recording
//! ends there, with a mark, and the array goes on. No payload is ever looked at.
//!
//! Off is nothing: the core holds none of this, and asks once per turn.

use std::io::{BufWriter, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_engine::Instant;
use braid_recording::{Digest, Header, Input, Machine, Turn};

use crate::core::{ArrayEvent, ShardEvent};

/// Turns on their way to the file.
const TURNS_MAX: usize = 1 << 16;

/// How often, and how many times, the end of the writer is looked for: five seconds in all.
const FINISH_LOOK: Duration = Duration::from_millis(2);
const FINISH_LOOKS_MAX: u32 = 2500;

/// Where recordings go.
pub type Sink = Box<dyn Write + Send>;

enum Line {
    Turn(Turn),
    /// True if a turn was lost.
    End(bool),
}

/// The recorder of one array.
pub(crate) struct Recorder {
    lines: SyncSender<Line>,
    /// Turns of the array, then of each shard.
    sequences: Vec<AtomicU64>,
    has_lost: AtomicBool,
    writer: Mutex<Option<JoinHandle<bool>>>,
}

impl Recorder {
    /// Begins a recording.
    pub(crate) fn start(header: &Header, shards: u16, sink: Sink) -> std::io::Result<Self> {
        let (lines, receiver) = sync_channel(TURNS_MAX);
        let head = header.to_string();
        let write = move || write(&head, &receiver, sink).is_ok();
        let writer = std::thread::Builder::new().name("braid-record".into()).spawn(write)?;
        Ok(Self {
            lines,
            sequences: (0..=shards).map(|_| AtomicU64::new(0)).collect(),
            has_lost: AtomicBool::new(false),
            writer: Mutex::new(Some(writer)),
        })
    }

    /// Records a turn. Called by the owner of the machine.
    pub(crate) fn turn(&self, machine: Machine, now: Instant, told: Vec<Input>, gave: Digest) {
        let index = match machine {
            Machine::Array => 0,
            Machine::Shard(index) => usize::from(index.0) + 1,
        };
        // Only the owner counts.
        let sequence = self.sequences[index].fetch_add(1, Ordering::Relaxed);
        if self.has_lost.load(Ordering::Relaxed) {
            return;
        }
        let (effects, digest) = gave.finish();
        let turn = Turn { machine, sequence, now, inputs: told, effects, digest };
        if self.lines.try_send(Line::Turn(turn)).is_err() {
            // Another thread may still send: the writer sees the gap.
            self.has_lost.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the recording; whether all of it is in the file. A writer whose file does not take anything
    /// is not waited for: an array does not hang on its recording.
    pub(crate) fn finish(&self) -> bool {
        let writer = self.writer.lock().expect("ending does not panic").take();
        let Some(writer) = writer else { return true };
        let mut is_heard = false;
        for _ in 0..FINISH_LOOKS_MAX {
            if !is_heard {
                let lost = self.has_lost.load(Ordering::SeqCst);
                is_heard = self.lines.try_send(Line::End(lost)).is_ok();
            }
            if writer.is_finished() {
                return writer.join().is_ok_and(|written| written) && is_heard;
            }
            std::thread::sleep(FINISH_LOOK);
        }
        false
    }
}

/// The writer's body: until the end, or the first turn that is not its machine's next.
fn write(head: &str, lines: &Receiver<Line>, sink: Sink) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, sink);
    out.write_all(head.as_bytes())?;
    let mut next = std::collections::BTreeMap::new();
    let mut has_lost = false;
    loop {
        let line = match lines.try_recv() {
            Ok(line) => line,
            Err(_) => {
                // Nothing waits: what is there should survive a crash of this process.
                out.flush()?;
                let Ok(line) = lines.recv() else { return out.flush() };
                line
            }
        };
        let turn = match line {
            Line::Turn(turn) => turn,
            Line::End(lost) => {
                has_lost |= lost;
                break;
            }
        };
        let expected: &mut u64 = next.entry(turn.machine).or_default();
        has_lost |= *expected != turn.sequence;
        *expected += 1;
        if !has_lost {
            writeln!(out, "{turn}")?;
        }
    }
    writeln!(out, "{}", if has_lost { "lost" } else { "end" })?;
    out.flush()?;
    if has_lost { Err(std::io::ErrorKind::WriteZero.into()) } else { Ok(()) }
}

/// What a shard is about to be told.
pub(crate) fn told_shard(events: &[ShardEvent]) -> Vec<Input> {
    let input = |event: &ShardEvent| match event {
        ShardEvent::Piece(piece) => Input::Piece(*piece),
        ShardEvent::MemberIo(done) => Input::MemberIo(*done),
        ShardEvent::JobDone(job) => Input::JobDone(job.id),
        ShardEvent::View(view) => Input::View(view.epoch),
        ShardEvent::ActivityQuery => Input::ActivityQuery,
        ShardEvent::WriteBack(round) => Input::WriteBack(*round),
        ShardEvent::Tuning(tuning) => Input::Tuning(*tuning),
        ShardEvent::Attention(attention) => Input::Attention(attention.number),
        ShardEvent::Timeout => Input::Timeout,
    };
    events.iter().map(input).collect()
}

/// What the array is about to be told.
pub(crate) fn told_array(events: &[ArrayEvent]) -> Vec<Input> {
    let input = |event: &ArrayEvent| match event {
        ArrayEvent::Report(shard, report) => Input::Report(*shard, *report),
        ArrayEvent::SuperblockWritten(member, done) => Input::SuperblockWritten(*member, *done),
        ArrayEvent::Flushed(member, done) => Input::Flushed(*member, *done),
        ArrayEvent::FlushRequest(request) => Input::FlushRequest(*request),
        ArrayEvent::MemberLost(member) => Input::MemberLost(*member),
        ArrayEvent::SitOut(settings) => Input::SitOut(*settings),
        ArrayEvent::Timeout => Input::Timeout,
        ArrayEvent::Stop => Input::Stop,
    };
    events.iter().map(input).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Condvar};

    /// A file that takes nothing until it is let.
    #[derive(Clone, Default)]
    struct Slow(Arc<(Mutex<Taken>, Condvar)>);

    /// Whether it is let, and what it has taken.
    type Taken = (bool, Vec<u8>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let state = self.0.0.lock().expect("nobody panics");
            let mut state = self.0.1.wait_while(state, |state| !state.0).expect("nobody panics");
            state.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_that_cannot_keep_up_ends_the_recording_and_holds_up_nobody() {
        let setup = braid_engine::array::ArraySetup {
            geometry: braid_geometry::Geometry::new(&braid_geometry::Shape {
                level: braid_geometry::Level::Linear,
                layout: 0,
                chunk_sectors: 0,
                slots: 1,
                member_sectors: vec![64],
            })
            .unwrap(),
            slots: vec![Some(braid_engine::array::MemberSetup {
                id: braid_engine::array::MemberId(0),
                device_number: 0,
                recovered_sectors: u64::MAX,
                bad_blocks: braid_engine::BadBlocks::default(),
            })],
            spares: Vec::new(),
            events: 1,
            resync_offset: u64::MAX,
            read_only: false,
            shards: 1,
            zero_is_fast: false,
            clean_delay_ms: 1,
            superblocks_tear: false,
        };
        let config = braid_engine::ShardConfig {
            geometry: setup.geometry.clone(),
            cache: braid_engine::CacheConfig {
                unit_sectors_max: 128,
                stripes_max: 4,
                tuning: braid_engine::Tuning::default(),
            },
        };
        let header = Header::new(&setup, &config).unwrap();
        let slow = Slow::default();
        let recorder = Recorder::start(&header, 1, Box::new(slow.clone())).unwrap();
        for _ in 0..2 * TURNS_MAX {
            recorder.turn(Machine::Array, Instant(1), vec![Input::Timeout], Digest::default());
        }
        slow.0.0.lock().unwrap().0 = true;
        slow.0.1.notify_all();
        assert!(!recorder.finish(), "it is not whole, and says so");
        let text = String::from_utf8(slow.0.0.lock().unwrap().1.clone()).unwrap();
        let recording = braid_recording::Recording::parse(&text).unwrap();
        assert_eq!(recording.ending, braid_recording::Ending::Lost);
        assert!(recording.turns.len() >= TURNS_MAX / 2, "what fitted is there");
    }
}
