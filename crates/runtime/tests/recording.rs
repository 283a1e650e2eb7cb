//! Recordings of arrays in use: they replay, and show when something is not as it was.

mod kit;

use std::cell::Cell;
use std::io::Write;
use std::sync::{Arc, Mutex};

use braid_geometry::Level;
use braid_recording::{Ending, Recording, Replayed, Trouble, replay};
use braid_runtime::{Payload, Volume, VolumeOperation};
use kit::Array;

#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Vec<u8>>>);

impl Tape {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("nobody panics").clone()).expect("it is text")
    }
}

impl Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn again(text: &str) -> Result<Replayed, Trouble> {
    let recording = Recording::parse(text).map_err(Trouble::Problem)?;
    replay(&recording, &Cell::new(0))
}

fn ask(volume: &Volume, number: u64, thread: u64) {
    let area = volume.size_bytes() / 4;
    let offset = thread * area + number * 7919 % (area - 65536);
    let length = 1 + (number * 4093) % 40_000;
    let bytes = usize::try_from(length).expect("short");
    let operation = match number % 7 {
        0 => VolumeOperation::Flush,
        1 => VolumeOperation::Read { offset, payload: Payload::from(vec![0; bytes]) },
        2 => VolumeOperation::WriteZeroes {
            offset,
            length,
            may_punch: true,
            fast: false,
            durable: false,
        },
        3 => VolumeOperation::Trim { offset, length, durable: true },
        _ => VolumeOperation::Write {
            offset,
            payload: Payload::from(vec![0x5a; bytes]),
            durable: number.is_multiple_of(2),
        },
    };
    volume.call(operation).result.expect("within what the level survives");
}

/// Four clients; a member dies halfway.
fn recorded(level: Level, slots: u16, chunk_sectors: u32) -> String {
    let array = Array::new(level, slots, chunk_sectors);
    let tape = Tape::default();
    let volume = array.open_recorded(|_| {}, Some(Box::new(tape.clone())));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (volume, array) = (&volume, &array);
            scope.spawn(move || {
                for number in 0..60 {
                    if thread == 0 && number == 30 {
                        array.faults[1].kill();
                    }
                    ask(volume, number, thread);
                }
            });
        }
    });
    assert!(volume.stop().recorded);
    array.faults[1].revive();
    assert!(array.open(|_| {}).stop().recorded, "there is nothing to record");
    tape.text()
}

#[test]
fn a_recorded_array_replays_and_a_changed_recording_does_not() {
    for (level, slots, chunk_sectors) in [
        (Level::Raid1, 3, 0),
        (Level::Raid10, 4, 128),
        (Level::Raid5, 4, 128),
        (Level::Raid6, 5, 64),
    ] {
        let text = recorded(level, slots, chunk_sectors);
        let replayed = again(&text).unwrap_or_else(|trouble| panic!("{level}: {trouble}"));
        assert!(replayed.turns > 100 && replayed.left == 0, "{replayed:?}");
        assert_eq!(replayed.ending, Ending::Ended);
        // What a machine was told, or gave, is not what was recorded.
        // (A timeout that came too early to matter would not be missed.)
        for (from, to) in [(" super:0:1", " super:0:0"), (":r:", ":t:")] {
            let Some(at) = text.find(from) else { continue };
            let changed = format!("{}{to}{}", &text[..at], &text[at + from.len()..]);
            // It may also ask for what cannot be.
            let found = std::panic::catch_unwind(|| again(&changed));
            assert!(!matches!(found, Ok(Ok(_))), "{level}: {from} became {to}");
        }
        let half = &text[..text.len() / 2];
        let replayed = again(half).unwrap_or_else(|trouble| panic!("{level}, half: {trouble}"));
        assert_eq!(replayed.ending, Ending::CutOff);
    }
}

#[test]
fn no_byte_of_a_payload_is_in_a_recording() {
    let text = recorded(Level::Raid5, 3, 128);
    // Payloads are all 0x5a, which is Z.
    assert!(!text.contains("ZZ") && !text.contains("5a5a5a"), "bytes are in it");
}
