//! Recordings of served arrays. Input: the text, without its first line.
//!
//! The first line is put before it: it names the version, which the fuzzer need not guess.
#![no_main]

use braid_recording::Recording;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let text = format!("braid-recording 2 0.1.0\n{text}");
    let Ok(recording) = Recording::parse(&text) else { return };
    assert!(recording.header.setup().is_ok(), "what is read can be made");
    let mut again = recording.header.to_string();
    for (_, turn) in &recording.turns {
        again.push_str(&format!("{turn}\n"));
    }
    let again = Recording::parse(&again).expect("what is printed is read");
    assert_eq!(again.header, recording.header);
    assert!(again.turns.iter().map(|(_, turn)| turn).eq(recording.turns.iter().map(|(_, turn)| turn)));
});
