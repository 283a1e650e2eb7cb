//! qemu-io at odd offsets and lengths, against a model of bytes.
//!
//! QEMU applies each operation to the array, and the test applies it to a vector. qemu-io's
//! patterns verify reads in between; at the end all content is compared. A trim leaves the old
//! content or zeroes.

use std::process::Command;

use fastrand::Rng;

use crate::kit::{
    Array, Background, CHUNK_BYTES, RAID_1, RAID_5, RAID_6, RAID_10, ServerProcess, Shape,
    assert_same, needs, random_bytes,
};

/// Commands for qemu-io, and the array's expected content after them.
struct Script {
    commands: Vec<String>,
    model: Vec<u8>,
    random: Rng,
}

impl Script {
    fn new(model: Vec<u8>, seed: u64) -> Self {
        Self { commands: Vec::new(), model, random: Rng::with_seed(seed) }
    }

    fn range(&mut self, at: usize, length: usize) -> &mut [u8] {
        &mut self.model[at..at + length]
    }

    fn write(&mut self, flags: &str, at: usize, length: usize) {
        let pattern = self.random.u8(1..);
        self.commands.push(format!("write {flags} -P {pattern} {at} {length}"));
        self.range(at, length).fill(pattern);
        // Reads the range back; neighbouring bytes are compared at the end.
        self.commands.push(format!("read -P {pattern} {at} {length}"));
    }

    fn write_several(&mut self, at: usize, lengths: &[usize]) {
        let words: Vec<String> = lengths.iter().map(ToString::to_string).collect();
        self.commands.push(format!("writev -P 77 {at} {}", words.join(" ")));
        self.range(at, lengths.iter().sum()).fill(77);
    }

    fn zero(&mut self, flags: &str, at: usize, length: usize) {
        self.commands.push(format!("write -z {flags} {at} {length}"));
        self.range(at, length).fill(0);
        self.commands.push(format!("read -P 0 {at} {length}"));
    }

    /// Trims a range, and then rewrites it, because its content is undefined.
    fn trim(&mut self, at: usize, length: usize) {
        self.commands.push(format!("discard {at} {length}"));
        self.write("", at, length);
    }

    /// Runs the script in one qemu-io.
    fn run(self, served: &ServerProcess) -> Vec<u8> {
        let mut input = self.commands.join("\n");
        input.push_str("\nflush\nquit\n");
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw", &served.uri]);
        let ran = Background::spawn_command(command, &input).wait();
        let all = format!("{}{}", ran.stdout, ran.stderr);
        // qemu-io in this mode continues after an error; only its output shows the error.
        let bad = |line: &&str| {
            let line = line.to_lowercase();
            ["fail", "error", "mismatch", "invalid"].iter().any(|word| line.contains(word))
        };
        let bad: Vec<&str> = all.lines().filter(bad).collect();
        assert!(bad.is_empty() && ran.status.success(), "{}: {bad:#?}", ran.status);
        let done = all.matches(" ops").count();
        let wanted = self.commands.iter().filter(|line| !line.starts_with("read")).count();
        assert!(done >= wanted, "{done} of {wanted} operations were reported");
        self.model
    }
}

/// Offsets of boundaries: sectors, chunks, rows, and the end.
fn landmarks(size: usize, data_members: usize) -> Vec<usize> {
    let chunk = usize::try_from(CHUNK_BYTES).expect("small");
    let row = chunk * data_members;
    vec![0, 512, 4096, chunk, 2 * chunk, row, 3 * row, size / 2, size - row, size - chunk, size]
}

/// A script with fixed odd places first, then a few hundred random places near landmarks.
fn script(model: Vec<u8>, data_members: usize, seed: u64) -> Script {
    let size = model.len();
    let landmarks = landmarks(size, data_members);
    let mut script = Script::new(model, seed);
    for (at, length) in [
        (511, 1),
        (511, 2),
        (513, 511),
        (65_535, 2),
        (65_535, 65_537),
        (1, 131_071),
        (size - 1, 1),
        (size - 513, 513),
        (size - 65_537, 65_537),
        (0, 1),
        (4095, 4098),
    ] {
        script.write("", at, length);
    }
    script.write_several(65_000, &[100, 513, 1024, 7]);
    script.write("-f", 700_001, 99_999);
    script.zero("", 65_535, 3);
    script.zero("-u", 100_001, 300_003);
    script.zero("-f", size - 777, 777);
    script.trim(200_001, 262_145);
    for _ in 0..120 {
        let landmark = landmarks[script.random.usize(..landmarks.len())];
        let at = (landmark + script.random.usize(..2048)).saturating_sub(1024).min(size - 1);
        let longest = if script.random.u64(..4) == 0 { 400_000 } else { 5_000 };
        let length = (1 + script.random.usize(..longest)).min(size - at);
        match script.random.u64(..8) {
            0 => script.zero("", at, length),
            1 => script.zero("-u", at, length),
            2 => script.trim(at, length),
            3 => script.write("-f", at, length),
            _ => script.write("", at, length),
        }
    }
    script
}

fn odd_places(shape: Shape, data_members: usize) {
    let array = Array::create(shape);
    let mut served = array.serve();
    let size = usize::try_from(served.size_bytes).expect("small");
    let bytes = random_bytes(5, size);
    served.write_all(&array, &bytes);
    let mut model = script(bytes, data_members, 6).run(&served);
    assert_same(&served.read_all(&array), &model, "healthy");
    for slot in 0..shape.lost_max {
        served.lose(&array, shape.members - 1 - slot);
        assert_same(&served.read_all(&array), &model, "after a loss");
        model = script(model, data_members, 7 + slot as u64).run(&served);
        assert_same(&served.read_all(&array), &model, "written after a loss");
    }
    served.stop();
    let served = array.serve();
    assert_same(&served.read_all(&array), &model, "after a restart");
    served.stop();
}

#[test]
fn odd_places_raid_1() {
    needs!("qemu-io", "nbdcopy");
    odd_places(RAID_1, 1);
}

#[test]
fn odd_places_raid_5() {
    needs!("qemu-io", "nbdcopy");
    odd_places(RAID_5, 3);
}

#[test]
fn odd_places_raid_6() {
    needs!("qemu-io", "nbdcopy");
    odd_places(RAID_6, 3);
}

#[test]
fn odd_places_raid_10() {
    needs!("qemu-io", "nbdcopy");
    odd_places(RAID_10, 2);
}

/// The script only trims: a trimmed range has zeroes or its old content, and nothing changes beyond
/// it.
#[test]
fn a_trim_leaves_zeroes_or_what_was_there() {
    needs!("qemu-io", "nbdcopy");
    let array = Array::create(RAID_5);
    let mut served = array.serve();
    let size = usize::try_from(served.size_bytes).expect("small");
    let bytes = random_bytes(8, size);
    served.write_all(&array, &bytes);
    let mut script = Script::new(bytes.clone(), 9);
    let ranges = [(1_000_001, 600_003), (3 << 20, 3 << 20), (size - 65_537, 65_537)];
    script.commands.extend(ranges.map(|(at, length)| format!("discard {at} {length}")));
    script.run(&served);
    let healthy = served.read_all(&array);
    for (at, (found, before)) in healthy.iter().zip(&bytes).enumerate() {
        let trimmed = ranges.iter().any(|(start, length)| (*start..start + length).contains(&at));
        assert!(found == before || (trimmed && *found == 0), "byte {at}");
    }
    // Parity agrees with the members on the trimmed ranges.
    served.lose(&array, 1);
    assert_same(&served.read_all(&array), &healthy, "after a loss");
    served.stop();
}
