//! The seven steps of the demo, in order. Each step ends in checks, and the first check that fails
//! ends the demo.
//!
//! ```text
//!   create -> serve -> copy in -> load -> lose two -> read back -> swap back
//!                                  |         |                        |
//!              copies of two members      they are deleted       the copies return
//!              are taken, under load      under load             under the old names
//! ```
//!
//! The demo knows the array only from the JSON of `braid` and from reads over NBD: it parses no
//! member.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Value, json};

use super::load::{CLIENTS, Count, Load, Region, compare, connect, in_client};
use super::process::{Interrupt, Serve, failed, member_error, passed_on, run_to_end};
use super::report::Report;
use braid_console::error::CliError;
use braid_console::output::size::{format_size, format_size_exact};

/// The number of members of the demo's array.
const MEMBERS: usize = 6;
/// Slots of the members that the demo loses.
const LOST: [usize; 2] = [1, 4];
/// The size of the image that is copied in, in bytes.
const IMAGE_BYTES: usize = 16 << 20;
/// Longest run of data or of zeroes in the image, in bytes: several chunks.
const RUN_BYTES_MAX: usize = 1 << 20;
/// The byte that fills the image's range first, so that the WRITE_ZEROES of the image have
/// something to clear.
const FILLING: u8 = 0xa5;
/// Longest region of a client, in bytes; its content is kept in memory.
const REGION_BYTES_MAX: u64 = 16 << 20;
/// Time under load before the first member is lost, and again after the second member is lost.
const LOAD_TIME: Duration = Duration::from_millis(1200);
/// Time under load between the two losses.
const LOAD_BETWEEN: Duration = Duration::from_millis(300);
/// Bytes of a member that are read at a time.
const STEP_BYTES: usize = 256 * 1024;

/// The running demo: its folder, its members, and the expected content of the array.
pub(super) struct Story<'a> {
    folder: &'a Path,
    members: Vec<PathBuf>,
    interrupt: &'a Interrupt,
    report: &'a mut Report,
    image: Vec<u8>,
    regions: Vec<Region>,
}

impl<'a> Story<'a> {
    pub(super) fn new(folder: &'a Path, interrupt: &'a Interrupt, report: &'a mut Report) -> Self {
        let members = (0..MEMBERS).map(|slot| folder.join(format!("disk{slot}"))).collect();
        let image = vec![0; IMAGE_BYTES];
        Self { folder, members, interrupt, report, image, regions: Vec::new() }
    }

    pub(super) fn play(mut self, member_bytes: u64) -> Result<(), CliError> {
        let capacity_bytes = self.create(member_bytes)?;
        let mut serve = self.serve(capacity_bytes)?;
        self.copy_in()?;
        self.regions = regions(capacity_bytes);
        let mut load = self.load()?;
        self.lose_two(&mut serve, &mut load)?;
        self.read_back(serve)?;
        self.swap_back()
    }

    fn create(&mut self, member_bytes: u64) -> Result<u64, CliError> {
        self.report.begin("create");
        let size = format_size_exact(member_bytes);
        let words = ["create", "demo", "--level", "6", "--chunk", "64K", "--member-size", &size];
        let words = self.words(&words);
        let (status, values) = run_to_end(&words)?;
        let capacity = values.last().and_then(|made| made.pointer("/array/capacity_bytes"));
        let (Some(0), Some(capacity_bytes)) = (status, capacity.and_then(Value::as_u64)) else {
            return Err(passed_on("braid create", &values));
        };
        let (size, usable) = (format_size(member_bytes), format_size(capacity_bytes));
        let shown = format!("{MEMBERS} files of {size}, {usable} usable, any 2 may be lost");
        let facts = json!({ "arguments": words, "capacity_bytes": capacity_bytes });
        self.report.end("braid create demo --level 6 ...", &shown, facts);
        Ok(capacity_bytes)
    }

    fn serve(&mut self, capacity_bytes: u64) -> Result<Serve, CliError> {
        self.report.begin("serve");
        let words = self.serve_words();
        let mut serve = Serve::start(&words, self.interrupt)?;
        let assembled = serve.wait_for("assembled")?;
        let serving = serve.wait_for("serving")?;
        expect("the array is healthy", &assembled["degraded_slots"], &json!(0))?;
        expect("its size is what create said", &serving["size_bytes"], &json!(capacity_bytes))?;
        let shown = format!("healthy, {} over NBD", format_size(capacity_bytes));
        let facts = json!({ "arguments": words, "uris": serving["uris"] });
        self.report.end("braid serve --nbd ... disk*", &shown, facts);
        Ok(serve)
    }

    /// Writes the image: runs of random data and of zeroes in turn.
    fn copy_in(&mut self) -> Result<(), CliError> {
        self.report.begin("copy in");
        let mut client = connect(&self.socket())?;
        self.image.fill(FILLING);
        client.write(0, &self.image, false).map_err(in_client("write"))?;
        let mut random = Rng::with_seed(0);
        let (mut start, mut writes, mut zeroes) = (0, 0, 0);
        while start < IMAGE_BYTES {
            let length = random.usize(1..=RUN_BYTES_MAX).min(IMAGE_BYTES - start);
            let content = &mut self.image[start..start + length];
            if zeroes < writes {
                content.fill(0);
                let done = client.write_zeroes(start as u64, length);
                done.map_err(in_client("write zeroes"))?;
                zeroes += 1;
            } else {
                random.fill(content);
                client.write(start as u64, content, false).map_err(in_client("write"))?;
                writes += 1;
            }
            start += length;
        }
        client.flush().map_err(in_client("flush"))?;
        client.disconnect().map_err(in_client("disconnect"))?;
        let bytes_read = self.check_all()?;
        let size = format_size(bytes_read);
        let shown = format!("{size}, {writes} WRITE, {zeroes} WRITE_ZEROES, read back equal");
        self.report.end("", &shown, json!({ "image_bytes": bytes_read }));
        Ok(())
    }

    /// Starts the clients, and copies two members while they work.
    fn load(&mut self) -> Result<Load, CliError> {
        self.report.begin("load");
        let began = Instant::now();
        let load = Load::start(&self.socket(), std::mem::take(&mut self.regions))?;
        self.interrupt.sleep(LOAD_TIME / 2)?;
        std::fs::create_dir(self.folder.join("kept"))
            .map_err(|error| member_error("no folder for copies", &error))?;
        for slot in LOST {
            copy_sparse(&self.members[slot], &self.kept(slot))
                .map_err(|error| member_error(format!("disk{slot} cannot be copied"), &error))?;
        }
        self.interrupt.sleep(LOAD_TIME.saturating_sub(began.elapsed()))?;
        load.next_part();
        let Count { requests, bytes } = load.count(0);
        let (clients, size) = (CLIENTS, format_size(bytes));
        let shown = format!("{requests} requests of {clients} clients, {size}, reads compared");
        self.report.end("", &shown, json!({ "requests": requests, "bytes": bytes }));
        Ok(load)
    }

    fn lose_two(&mut self, serve: &mut Serve, load: &mut Load) -> Result<(), CliError> {
        self.report.begin("lose two");
        let mut noticed = Vec::new();
        for slot in LOST {
            let member = &self.members[slot];
            let deleted = Instant::now();
            std::fs::remove_file(member)
                .map_err(|error| member_error(format!("disk{slot} cannot be deleted"), &error))?;
            let out = serve.wait_for("Fail")?;
            let path = json!(member.to_string_lossy());
            expect("the deleted member is out", &out["subject"]["member"], &path)?;
            noticed.push(deleted.elapsed().as_secs_f64());
            self.interrupt.sleep(LOAD_BETWEEN)?;
        }
        self.interrupt.sleep(LOAD_TIME)?;
        self.regions = load.finish()?;
        let Count { requests, bytes } = load.count(1);
        let shown = format!(
            "noticed in {:.1} and {:.1} s; {requests} requests meanwhile, no client error",
            noticed[0], noticed[1]
        );
        let facts = json!({ "noticed_seconds": noticed, "requests": requests, "bytes": bytes });
        self.report.end("rm disk1 disk4", &shown, facts);
        Ok(())
    }

    fn read_back(&mut self, serve: Serve) -> Result<(), CliError> {
        self.report.begin("read back");
        let bytes = self.check_all()?;
        let stopped = serve.stop()?;
        let count = |key: &str| stopped[key].as_u64().unwrap_or(0);
        let rebuilt = count("reconstructions");
        if rebuilt == 0 {
            return Err(failed("nothing was computed from the other members")
                .because("two members were gone, so reading without them cannot be true"));
        }
        self.report.counted = format!(
            "{rebuilt} stripes with columns computed from the others; {} full-stripe, {} rcw and \
             {} rmw writes",
            count("full_stripe_writes"),
            count("rcw_writes"),
            count("rmw_writes")
        );
        let shown = format!("all {} equal, from the 4 members left", format_size(bytes));
        let shown = format!("{shown}; braid serve stopped cleanly");
        self.report.end("", &shown, json!({ "bytes": bytes, "counters": stopped }));
        Ok(())
    }

    fn swap_back(&mut self) -> Result<(), CliError> {
        self.report.begin("swap back");
        for slot in LOST {
            std::fs::rename(self.kept(slot), &self.members[slot])
                .map_err(|error| member_error(format!("disk{slot} cannot be put back"), &error))?;
        }
        let before = self.digests()?;
        let words = self.serve_words();
        let mut serve = Serve::start(&words, self.interrupt)?;
        let assembled = serve.wait_for("assembled")?;
        serve.wait_for("serving")?;
        expect("two slots are empty", &assembled["degraded_slots"], &json!(LOST.len()))?;
        expect("the array was stopped cleanly", &assembled["dirty"], &json!(false))?;
        for slot in LOST {
            let verdict = &assembled["members"][slot]["verdict"];
            expect(format!("disk{slot} is rejected"), verdict, &json!("stale"))?;
        }
        let bytes = self.check_all()?;
        serve.stop()?;
        if self.digests()? != before {
            return Err(failed("disk1 or disk4 was written, though both are stale"));
        }
        let size = format_size(bytes);
        let shown = format!("the old disk1, disk4 are stale: left out, not written; {size} equal");
        let facts = json!({ "arguments": words, "bytes": bytes, "stale_slots": LOST });
        self.report.end("braid serve --nbd ... disk*", &shown, facts);
        Ok(())
    }

    /// Reads the image and all regions over a new connection, and compares their content.
    fn check_all(&self) -> Result<u64, CliError> {
        let mut client = connect(&self.socket())?;
        let regions = self.regions.iter().map(|region| (region.offset, &region.content));
        let mut bytes_read = 0;
        for (offset, expected) in std::iter::once((0, &self.image)).chain(regions) {
            self.interrupt.check()?;
            let mut buffer = vec![0; expected.len()];
            client.read(offset, &mut buffer).map_err(in_client("read"))?;
            compare(offset, expected, &buffer)?;
            bytes_read += buffer.len() as u64;
        }
        client.disconnect().map_err(in_client("disconnect"))?;
        Ok(bytes_read)
    }

    /// A digest of each stale member.
    fn digests(&self) -> Result<[u64; 2], CliError> {
        let mut digests = [0; LOST.len()];
        for (slot, to) in LOST.into_iter().zip(&mut digests) {
            let mut hasher = DefaultHasher::new();
            for_each_step(&self.members[slot], |bytes| {
                hasher.write(bytes);
                Ok(())
            })
            .map_err(|error| member_error(format!("disk{slot} cannot be read"), &error))?;
            *to = hasher.finish();
        }
        Ok(digests)
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("nbd.sock")
    }

    fn kept(&self, slot: usize) -> PathBuf {
        self.folder.join("kept").join(format!("disk{slot}"))
    }

    /// A command line of `braid`: the demo's state folder, then `words`, then the members.
    fn words(&self, words: &[&str]) -> Vec<String> {
        let state = self.folder.join("state").to_string_lossy().into_owned();
        let words = ["--state-dir", &state, "--json"].into_iter().chain(words.iter().copied());
        let members = self.members.iter().map(|path| path.to_string_lossy().into_owned());
        words.map(str::to_string).chain(members).collect()
    }

    fn serve_words(&self) -> Vec<String> {
        use std::os::unix::ffi::OsStrExt;
        let socket = self.socket().as_os_str().as_bytes().to_vec();
        let transport = braid_nbd_proto::Transport::Unix { socket };
        let uri = braid_nbd_proto::NbdUri {
            transport,
            tls: false,
            export: String::new(),
            certificates: None,
        };
        self.words(&["serve", "--nbd", &uri.to_string()])
    }
}

/// A region for each client, evenly spread after the image.
fn regions(capacity_bytes: u64) -> Vec<Region> {
    let image_bytes = IMAGE_BYTES as u64;
    let distance = capacity_bytes.saturating_sub(image_bytes) / CLIENTS as u64;
    let length = usize::try_from(distance.min(REGION_BYTES_MAX)).expect("at most 16 MiB");
    let offsets = (0..CLIENTS as u64).map(|client| image_bytes + client * distance);
    offsets.map(|offset| Region { offset, content: vec![0; length] }).collect()
}

/// Checks a value that a command printed.
fn expect(what: impl Into<String>, got: &Value, wanted: &Value) -> Result<(), CliError> {
    if got == wanted {
        return Ok(());
    }
    let what = format!("this does not hold: {}", what.into());
    Err(failed(what).because(format!("expected {wanted}, got {got}")))
}

/// Copies a file; zeroes stay holes.
fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let mut target = File::options().write(true).create_new(true).open(to)?;
    target.set_len(from.metadata()?.len())?;
    for_each_step(from, |bytes| {
        if bytes.iter().all(|byte| *byte == 0) {
            target.seek(SeekFrom::Current(bytes.len() as i64)).map(drop)
        } else {
            target.write_all(bytes)
        }
    })
}

/// Reads a file from its start to its end.
fn for_each_step(path: &Path, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; STEP_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            count => take(&buffer[..count])?,
        }
    }
}
