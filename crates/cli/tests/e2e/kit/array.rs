//! An array of files in a folder of its own.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::Shape;
use super::process::{Background, Ran};
use super::server_process::ServerProcess;

/// The chunk size of all arrays: small, so that longer requests touch several members and stripes.
pub(crate) const CHUNK_BYTES: u64 = 64 * 1024;
/// The offset of a superblock 1.2.
pub(crate) const SUPERBLOCK_BYTES: u64 = 4096;
/// Offset of the checksum in a superblock 1.x.
const CHECKSUM_AT: usize = 216;
/// Offset of the number of roles in a superblock 1.x.
const ROLES_AT: usize = 220;

/// Members, and the folder of members, sockets and copies.
pub(crate) struct Array {
    folder: TempDir,
    runtime: PathBuf,
    pub(crate) members: Vec<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) exit: i32,
    pub(crate) code: String,
    pub(crate) json: Value,
}

impl Array {
    /// Makes the array `tank` of files of 16 MiB.
    pub(crate) fn create(shape: Shape) -> Self {
        Self::create_sized(shape, "16M")
    }

    /// Makes `tank` with a bitmap and without a log: after a crash parity is in doubt at set bits.
    pub(crate) fn with_bitmap(shape: Shape) -> Self {
        Self::create_with("tank", shape, "16M", &["--consistency", "bitmap"])
    }

    pub(crate) fn create_sized(shape: Shape, member_size: &str) -> Self {
        Self::create_named("tank", shape, member_size)
    }

    pub(crate) fn create_named(name: &str, shape: Shape, member_size: &str) -> Self {
        Self::create_with(name, shape, member_size, &[])
    }

    /// Makes an array with more options on the command line. With `--spare 1` the last member is a
    /// spare.
    pub(crate) fn create_with(name: &str, shape: Shape, member_size: &str, more: &[&str]) -> Self {
        Self::create_in(Self::folder(), name, shape, member_size, more)
    }

    /// Makes the array `tank` with a write journal; also returns the journal's device.
    pub(crate) fn create_journaled(shape: Shape, member_size: &str) -> (Self, PathBuf) {
        let folder = Self::folder();
        let journal = folder.path().join("journal.img");
        let word = journal.display().to_string();
        let more = ["--write-journal", word.as_str()];
        (Self::create_in(folder, "tank", shape, member_size, &more), journal)
    }

    /// Makes the array `tank` with a bitmap file outside of members; also returns the file.
    pub(crate) fn create_with_file(shape: Shape, more: &[&str]) -> (Self, PathBuf) {
        let folder = Self::folder();
        let file = folder.path().join("tank.bitmap");
        let word = file.display().to_string();
        let more = [&["--bitmap-file", word.as_str()], more].concat();
        (Self::create_in(folder, "tank", shape, "16M", &more), file)
    }

    /// An array from images of its members, made by another program.
    pub(crate) fn of_images(images: &[Vec<u8>]) -> Self {
        let folder = Self::folder();
        let runtime = folder.path().join("run");
        let numbered = |slot| folder.path().join(format!("m{slot}"));
        let members: Vec<PathBuf> = (0..images.len()).map(numbered).collect();
        for (path, image) in members.iter().zip(images) {
            std::fs::write(path, image).expect("a member");
        }
        Self { folder, runtime, members }
    }

    fn folder() -> TempDir {
        tempfile::Builder::new().prefix("braid-e2e-").tempdir().expect("a folder")
    }

    fn create_in(
        folder: TempDir,
        name: &str,
        shape: Shape,
        member_size: &str,
        more: &[&str],
    ) -> Self {
        let runtime = folder.path().join("run");
        let numbered = |slot| folder.path().join(format!("m{slot}"));
        let members: Vec<PathBuf> = (0..shape.members).map(numbered).collect();
        let mut words = vec!["create", name, "--level", shape.level, "--member-size", member_size];
        if shape.level != "1" && !more.contains(&"--chunk") {
            words.extend(["--chunk", "64K"]);
        }
        words.extend(more);
        let array = Self { folder, runtime, members };
        let ran = array.braid(&words, &array.members);
        assert!(ran.status.success(), "create: {ran:?}");
        array
    }

    /// Shares the runtime folder of `other`.
    pub(crate) fn found_with(self, other: &Self) -> Self {
        Self { runtime: other.runtime.clone(), ..self }
    }

    /// The default of `--cache`: write-back if the runtime folder is in memory, as `/tmp` may be.
    pub(crate) fn default_cache(&self) -> &'static str {
        const TMPFS: rustix::fs::FsWord = 0x0102_1994;
        let place = self.runtime.ancestors().find(|path| path.is_dir()).expect("a folder");
        let is_in_memory = rustix::fs::statfs(place).expect("a file system").f_type == TMPFS;
        let host = std::fs::read_link("/proc/self/ns/pid").expect("a namespace");
        let is_of_host = host.as_os_str() == "pid:[4026531836]";
        if is_in_memory && is_of_host { "writeback" } else { "writethrough" }
    }

    pub(crate) fn found_in(self, runtime: &Path) -> Self {
        Self { runtime: runtime.to_path_buf(), ..self }
    }

    pub(crate) fn runtime(&self) -> &Path {
        &self.runtime
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn braid(&self, words: &[&str], members: &[PathBuf]) -> Ran {
        self.run_braid(self.command_line(words, members))
    }

    /// Runs braid with exactly these words, in this array's runtime folder.
    pub(crate) fn run_braid(&self, line: Vec<String>) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.args(line).env("BRAID_RUNTIME_DIR", &self.runtime).env("LC_ALL", "C");
        Background::spawn_command(command, "").wait()
    }

    pub(crate) fn command_line(&self, words: &[&str], members: &[PathBuf]) -> Vec<String> {
        let state = self.path("state").display().to_string();
        let mut line = vec!["--json".to_string(), "--state-dir".to_string(), state];
        line.extend(words.iter().map(ToString::to_string));
        line.extend(members.iter().map(|member| member.display().to_string()));
        line
    }

    /// Serves the array with all members that exist.
    pub(crate) fn serve(&self) -> ServerProcess {
        self.serve_with(&[], &self.present())
    }

    pub(crate) fn serve_with(&self, options: &[&str], members: &[PathBuf]) -> ServerProcess {
        ServerProcess::start(self, options, members)
    }

    /// Serves all members with a control socket, and also returns the socket's path.
    pub(crate) fn serve_controlled(&self, options: &[&str]) -> (ServerProcess, String) {
        let control = self.path("control.sock").to_str().expect("a plain path").to_owned();
        let options = [&["--control", &control], options].concat();
        (self.serve_with(&options, &self.members), control)
    }

    pub(crate) fn present(&self) -> Vec<PathBuf> {
        self.members.iter().filter(|path| path.exists()).cloned().collect()
    }

    /// All members except those in `slots`.
    pub(crate) fn without(&self, slots: &[usize]) -> Vec<PathBuf> {
        let kept = self.members.iter().enumerate().filter(|(slot, _)| !slots.contains(slot));
        kept.map(|(_, path)| path.clone()).collect()
    }

    /// Checks that `serve` refuses these members with code and remedy, and changes none of them.
    pub(crate) fn serve_refused(&self, options: &[&str], members: &[PathBuf]) -> Refusal {
        let socket = self.path("refused.sock");
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let mut words = vec!["serve", "--nbd", &uri];
        words.extend(options);
        let refusal = self.refused(&words, members);
        assert!(!socket.exists(), "a socket is left behind");
        refusal
    }

    /// Checks that braid refuses with a code, a cause and a remedy, and changes no member.
    pub(crate) fn refused(&self, words: &[&str], members: &[PathBuf]) -> Refusal {
        let before = contents(members);
        let refusal = Refusal::of(&self.braid(words, members));
        assert!(before == contents(members), "a refusal changed a member");
        // Runs the command again for a person: the code, the cause and a remedy are on standard
        // error.
        let mut line = self.command_line(words, members);
        line.remove(0);
        let text = self.run_braid(line);
        assert_eq!(text.status.code(), Some(refusal.exit), "{text:?}");
        let first = format!("error[{}]:", refusal.code);
        assert!(text.stderr.contains(&first), "{text:?}");
        assert!(text.stderr.lines().count() >= 2, "{text:?}");
        assert!(before == contents(members), "a refusal changed a member");
        refusal
    }

    /// Puts `bytes` into a member's superblock at `at`; with `checksum`, corrects its checksum.
    pub(crate) fn patch_superblock(&self, slot: usize, at: usize, bytes: &[u8], checksum: bool) {
        let file = open(&self.members[slot]);
        let mut superblock = vec![0; 4096];
        file.read_exact_at(&mut superblock, SUPERBLOCK_BYTES).expect("reading a superblock");
        superblock[at..at + bytes.len()].copy_from_slice(bytes);
        if checksum {
            let sum = checksum_of(&superblock);
            superblock[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        }
        file.write_all_at(&superblock, SUPERBLOCK_BYTES).expect("writing a superblock");
    }

    /// Whether the superblock in a slot's file passes md's checksum, without braid's code.
    pub(crate) fn checksum_is_right(&self, slot: usize) -> bool {
        let mut superblock = vec![0; 4096];
        let file = open(&self.members[slot]);
        file.read_exact_at(&mut superblock, SUPERBLOCK_BYTES).expect("reading a superblock");
        superblock[CHECKSUM_AT..CHECKSUM_AT + 4] == checksum_of(&superblock).to_le_bytes()
    }
}

impl Refusal {
    fn of(ran: &Ran) -> Self {
        let last = ran.stdout.lines().last().unwrap_or_default();
        let json: Value =
            serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_string();
        let code = text("code");
        assert!(code.len() == 4 && code.starts_with('B'), "{ran:?}");
        assert!(!text("title").is_empty(), "{json}");
        let remedies = json["remedies"].as_array().cloned().unwrap_or_default();
        assert!(!remedies.is_empty(), "no way out: {json}");
        assert!(remedies[0]["risk"] != "destroy", "the dangerous way first: {json}");
        Self { exit: ran.status.code().unwrap_or(-1), code, json }
    }

    #[track_caller]
    pub(crate) fn is(&self, code: &str, exit: i32) {
        assert_eq!((self.code.as_str(), self.exit), (code, exit), "{}", self.json);
        let cause = self.json["cause"].as_str().unwrap_or_default();
        assert!(!cause.is_empty(), "no cause: {}", self.json);
    }
}

fn open(path: &Path) -> std::fs::File {
    std::fs::OpenOptions::new().read(true).write(true).open(path).expect("a member")
}

/// Contents of these files; a missing one is empty.
fn contents(members: &[PathBuf]) -> Vec<Vec<u8>> {
    members.iter().map(|path| std::fs::read(path).unwrap_or_default()).collect()
}

/// md's checksum of a superblock 1.x: 32-bit little-endian words, carries added back in once.
fn checksum_of(superblock: &[u8]) -> u32 {
    let four = |at: usize| <[u8; 4]>::try_from(&superblock[at..at + 4]).expect("four bytes");
    let roles = u32::from_le_bytes(four(ROLES_AT)) as usize;
    let length = 256 + 2 * roles;
    let words = (0..length / 4 * 4).step_by(4).filter(|at| *at != CHECKSUM_AT);
    let mut sum: u64 = words.map(|at| u64::from(u32::from_le_bytes(four(at)))).sum();
    if !length.is_multiple_of(4) {
        sum += u64::from(u16::from_le_bytes([superblock[length - 2], superblock[length - 1]]));
    }
    let low = sum & 0xffff_ffff;
    u32::try_from((low + (sum >> 32)) & 0xffff_ffff).expect("32 bits")
}
