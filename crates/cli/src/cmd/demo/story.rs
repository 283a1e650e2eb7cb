//! The eight steps, in order; each ends in checks, and the first that fails ends the demo.
//!
//! ```text
//!   create -> serve -> copy in -> load -> lose two -> read back -> swap back -> serve again
//!                                  |         |                        |
//!              copies of two members      they are deleted       the copies return
//!              are taken, under load      under load             under the old names
//! ```
//!
//! Everything outside this process is `braid` itself, and everything about the array is learned
//! from its JSON or read through NBD: nothing here looks inside a member.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use braid_nbd_client::{Client, plan_for};

use super::files::{copy_sparse, is_same};
use super::image;
use super::load::{CLIENTS, Load, Region, SILENCE_MAX, Tally, client_error, compare};
use super::process::{Interrupt, Serve, failed, member_error, passed_on, run_to_end};
use super::tell::{Row, Teller};
use braid_console::error::{CliError, Exit};
use braid_console::output::size::{format_size, format_size_exact};

/// Members of the array; two of them may be lost.
const MEMBERS: usize = 6;
/// The members that are lost: their slots.
const LOST: [usize; 2] = [1, 4];
/// Longest region of one client, in bytes: it is kept in memory.
const REGION_BYTES_MAX: u64 = 16 << 20;
/// Time under load before the first member is lost.
const LOAD_BEFORE: Duration = Duration::from_millis(1200);
/// Time under load between the two losses.
const LOAD_BETWEEN: Duration = Duration::from_millis(300);
/// Time under load with two members lost.
const LOAD_AFTER: Duration = Duration::from_millis(1200);
/// Fills the place of the image before it comes, so that WRITE_ZEROES has something to do.
const FILLING: u8 = 0xa5;

/// Where everything is, and what must be in the array.
pub(super) struct Story<'a> {
    folder: &'a Path,
    members: Vec<PathBuf>,
    interrupt: &'a Interrupt,
    teller: &'a mut Teller,
    image: Vec<u8>,
    regions: Vec<Region>,
    rows: Vec<Row>,
    /// What `braid serve` counted, in words.
    counted: String,
}

impl<'a> Story<'a> {
    pub(super) fn new(
        folder: &'a Path,
        interrupt: &'a Interrupt,
        teller: &'a mut Teller,
    ) -> Story<'a> {
        let members = (0..MEMBERS).map(|slot| folder.join(format!("disk{slot}"))).collect();
        let (image, regions, rows) = (image::expand(), Vec::new(), Vec::new());
        Self { folder, members, interrupt, teller, image, regions, rows, counted: String::new() }
    }

    /// All of it; what was measured, and what `braid serve` counted.
    pub(super) fn play(mut self, member_bytes: u64) -> Result<(Vec<Row>, String), CliError> {
        let capacity_bytes = self.create(member_bytes)?;
        let mut serve = self.serve(capacity_bytes)?;
        self.copy_in()?;
        self.regions = regions(self.image.len() as u64, capacity_bytes);
        let mut load = self.load()?;
        self.lose_two(&mut serve, &mut load)?;
        self.read_back(serve)?;
        self.swap_back()?;
        self.serve_again()?;
        Ok((self.rows, self.counted))
    }

    fn create(&mut self, member_bytes: u64) -> Result<u64, CliError> {
        let size = format_size_exact(member_bytes);
        let options =
            ["create", "demo", "--level", "6", "--chunk", "64K", "--member-size", size.as_str()];
        let words = self.words(&[&["--json"], &options[..]].concat());
        self.teller.begin("create");
        let (status, values) = run_to_end(&words)?;
        let capacity = values.last().and_then(|made| made.pointer("/array/capacity_bytes"));
        let (Some(0), Some(capacity_bytes)) = (status, capacity.and_then(Value::as_u64)) else {
            return Err(passed_on("braid create", &values));
        };
        let usable = format_size(capacity_bytes);
        let size = format_size(member_bytes);
        let shown = format!("{MEMBERS} files of {size}, {usable} usable, any 2 may be lost");
        let facts = json!({ "arguments": words, "capacity_bytes": capacity_bytes });
        self.teller.end("braid create demo --level 6 ...", &shown, &facts);
        Ok(capacity_bytes)
    }

    fn serve(&mut self, capacity_bytes: u64) -> Result<Serve, CliError> {
        self.teller.begin("serve");
        let words = self.serve_words();
        let mut serve = Serve::start(&words, self.interrupt)?;
        let assembled = serve.wait_for("assembled")?;
        let serving = serve.wait_for("serving")?;
        expect("the array is healthy", &assembled["degraded_slots"], &json!(0))?;
        expect("its size is what create said", &serving["size_bytes"], &json!(capacity_bytes))?;
        let shown = format!("healthy, {} over NBD", format_size(capacity_bytes));
        let facts = json!({ "arguments": words, "uris": serving["uris"] });
        self.teller.end("braid serve --nbd ... disk*", &shown, &facts);
        Ok(serve)
    }

    fn copy_in(&mut self) -> Result<(), CliError> {
        self.teller.begin("copy in");
        let began = Instant::now();
        let mut client = self.connect()?;
        let length = self.image.len();
        let in_client = |error| client_error("copying in", &error);
        client.write(0, &vec![FILLING; length], false).map_err(in_client)?;
        let (mut writes, mut zeroes) = (0_u32, 0_u32);
        for run in image::runs(&self.image) {
            let offset = run.offset as u64;
            if run.is_zero {
                client.write_zeroes(offset, run.length).map_err(in_client)?;
                zeroes += 1;
            } else {
                let bytes = &self.image[run.offset..run.offset + run.length];
                client.write(offset, bytes, false).map_err(in_client)?;
                writes += 1;
            }
        }
        client.flush().map_err(in_client)?;
        let requests = client.requests();
        client.disconnect().map_err(in_client)?;
        let bytes_written = 2 * length as u64;
        let time = began.elapsed();
        self.rows.push(Row { what: "copy in", requests, bytes_written, bytes_read: 0, time });
        let bytes_read = self.check_all("copy in, read back")?;
        let shown = format!(
            "{} of ext4 over NBD, {writes} WRITE, {zeroes} WRITE_ZEROES, read back equal",
            format_size(bytes_read)
        );
        self.teller.end("", &shown, &json!({ "image_bytes": bytes_read }));
        Ok(())
    }

    /// Starts the clients, and copies two members while they work.
    fn load(&mut self) -> Result<Load, CliError> {
        self.teller.begin("load");
        let began = Instant::now();
        let load = Load::start(&self.socket(), std::mem::take(&mut self.regions))?;
        self.interrupt.sleep(LOAD_BEFORE / 2)?;
        let kept = self.folder.join("kept");
        std::fs::create_dir(&kept).map_err(|error| member_error("no folder for copies", &error))?;
        for slot in LOST {
            copy_sparse(&self.members[slot], &self.kept(slot))
                .map_err(|error| member_error(format!("disk{slot} cannot be copied"), &error))?;
        }
        self.interrupt.sleep(LOAD_BEFORE.saturating_sub(began.elapsed()))?;
        load.next_part();
        let row = row("load, healthy", &load.tallies()[0], began.elapsed());
        let shown = format!(
            "{CLIENTS} clients at random places: {} requests, every read compared",
            row.requests
        );
        self.teller.end("", &shown, &json!({ "requests": row.requests }));
        self.rows.push(row);
        Ok(load)
    }

    fn lose_two(&mut self, serve: &mut Serve, load: &mut Load) -> Result<(), CliError> {
        self.teller.begin("lose two");
        let began = Instant::now();
        let mut noticed = Vec::new();
        for slot in LOST {
            let member = &self.members[slot];
            let deleted = Instant::now();
            std::fs::remove_file(member)
                .map_err(|error| member_error(format!("disk{slot} cannot be deleted"), &error))?;
            let out = serve.wait_for("Fail")?;
            expect(
                "the deleted member is out",
                &out["subject"]["member"],
                &json!(member.to_string_lossy()),
            )?;
            noticed.push(deleted.elapsed().as_secs_f64());
            self.interrupt.sleep(LOAD_BETWEEN)?;
        }
        self.interrupt.sleep(LOAD_AFTER)?;
        self.regions = load.finish()?;
        let row = row("load, losing two", &load.tallies()[1], began.elapsed());
        let shown = format!(
            "noticed in {:.1} and {:.1} s; {} requests meanwhile, no client error",
            noticed[0], noticed[1], row.requests
        );
        self.teller.end("rm disk1 disk4", &shown, &json!({ "noticed_seconds": noticed }));
        self.rows.push(row);
        Ok(())
    }

    fn read_back(&mut self, serve: Serve) -> Result<(), CliError> {
        self.teller.begin("read back");
        let bytes = self.check_all("read back, two lost")?;
        let stopped = serve.stop()?;
        let count = |key: &str| stopped[key].as_u64().unwrap_or(0);
        self.counted = format!(
            "{} stripes with columns computed from the others; {} full-stripe, {} rcw and {} rmw \
             writes",
            count("reconstructions"),
            count("full_stripe_writes"),
            count("rcw_writes"),
            count("rmw_writes")
        );
        if count("reconstructions") == 0 {
            return Err(failed("nothing was computed from the other members")
                .because("two members were gone, so reading without them cannot be true"));
        }
        let shown = format!("all {} equal, from the 4 members left", format_size(bytes));
        let shown = format!("{shown}; braid serve stopped cleanly");
        self.teller.end("", &shown, &json!({ "bytes": bytes, "counters": stopped }));
        Ok(())
    }

    fn swap_back(&mut self) -> Result<(), CliError> {
        let words = self.words(&["--json", "examine"]);
        self.teller.begin("swap back");
        for slot in LOST {
            copy_sparse(&self.kept(slot), &self.members[slot])
                .map_err(|error| member_error(format!("disk{slot} cannot be put back"), &error))?;
        }
        let (status, values) = run_to_end(&words)?;
        let known = [Exit::Done, Exit::Attention].map(|exit| Some(i32::from(exit.number())));
        let Some(found) = values.last().filter(|_| known.contains(&status)) else {
            return Err(passed_on("braid examine", &values));
        };
        let mut reasons = Vec::new();
        for (slot, member) in self.members.iter().enumerate() {
            let path = json!(member.to_string_lossy());
            let seen = &found["members"][slot];
            expect("members come in the order they were named", &seen["path"], &path)?;
            let wanted = if LOST.contains(&slot) { "stale" } else { "fresh" };
            expect(format!("disk{slot} is {wanted}"), &seen["verdict"]["code"], &json!(wanted))?;
            if wanted == "stale" {
                reasons.push(seen["verdict"]["reason"].as_str().unwrap_or_default().to_string());
            }
        }
        // What is said of both is the same, since both copies are from before the first loss.
        let facts = json!({ "arguments": words, "stale_slots": LOST, "reasons": reasons });
        reasons.dedup();
        let shown = format!("the old disk1 and disk4 are stale: {}", reasons.join("; "));
        self.teller.end("braid examine disk*", &shown, &facts);
        Ok(())
    }

    fn serve_again(&mut self) -> Result<(), CliError> {
        self.teller.begin("serve again");
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
        let bytes = self.check_all("read back, swapped back")?;
        serve.stop()?;
        for slot in LOST {
            let same = is_same(&self.kept(slot), &self.members[slot]);
            if !same.map_err(|error| member_error(format!("disk{slot} cannot be read"), &error))? {
                return Err(failed(format!("disk{slot} was written, though it is stale")));
            }
        }
        let shown = format!(
            "both stale members left out and not written; all {} equal",
            format_size(bytes)
        );
        let facts = json!({ "arguments": words, "bytes": bytes });
        self.teller.end("braid serve --nbd ... disk*", &shown, &facts);
        let kept = self.folder.join("kept");
        std::fs::remove_dir_all(kept)
            .map_err(|error| member_error("copies cannot be removed", &error))
    }

    /// Reads the image and all regions through a connection of its own, and compares.
    fn check_all(&mut self, what: &'static str) -> Result<u64, CliError> {
        let began = Instant::now();
        let mut client = self.connect()?;
        let parts = self.regions.iter().map(|region| (region.offset, &region.content));
        let mut bytes_read = 0;
        let mut buffer = Vec::new();
        for (offset, expected) in std::iter::once((0, &self.image)).chain(parts) {
            self.interrupt.check()?;
            buffer.resize(expected.len(), 0);
            let read = client.read(offset, &mut buffer);
            read.map_err(|error| client_error("reading back", &error))?;
            compare(offset, expected, &buffer)?;
            if offset == 0 && !image::has_ext4_magic(&buffer) {
                return Err(failed("the file-system image does not begin as ext4 does"));
            }
            bytes_read += buffer.len() as u64;
        }
        let requests = client.requests();
        client.disconnect().map_err(|error| client_error("saying goodbye", &error))?;
        let time = began.elapsed();
        self.rows.push(Row { what, requests, bytes_written: 0, bytes_read, time });
        Ok(bytes_read)
    }

    fn connect(&self) -> Result<Client, CliError> {
        Client::connect(&self.socket(), plan_for(""), SILENCE_MAX)
            .map_err(|error| client_error("connecting", &error))
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("nbd.sock")
    }

    fn kept(&self, slot: usize) -> PathBuf {
        self.folder.join("kept").join(format!("disk{slot}"))
    }

    /// These words, then the members.
    fn words(&self, first: &[&str]) -> Vec<String> {
        // What is written down of the array goes with its files.
        let state = self.socket().with_file_name("state").to_string_lossy().into_owned();
        let state = ["--state-dir".to_string(), state].into_iter();
        let first = state.chain(first.iter().map(ToString::to_string));
        first.chain(self.members.iter().map(|path| path.to_string_lossy().into_owned())).collect()
    }

    fn serve_words(&self) -> Vec<String> {
        use std::os::unix::ffi::OsStrExt;
        let socket = self.socket().as_os_str().as_bytes().to_vec();
        let transport = braid_nbd_proto::Transport::Unix { socket };
        let uri = braid_nbd_proto::NbdUri { transport, tls: false, export: String::new() };
        self.words(&["--json", "serve", "--nbd", &uri.to_string()])
    }
}

/// One region for each client, evenly spread behind the image.
fn regions(image_bytes: u64, capacity_bytes: u64) -> Vec<Region> {
    let clients = CLIENTS as u64;
    let distance = capacity_bytes.saturating_sub(image_bytes) / clients;
    let length = usize::try_from(distance.min(REGION_BYTES_MAX)).expect("at most 16 MiB");
    let offset = |client| image_bytes + client * distance;
    (0..clients).map(|client| Region { offset: offset(client), content: vec![0; length] }).collect()
}

fn row(what: &'static str, tally: &Tally, time: Duration) -> Row {
    let (bytes_written, bytes_read) = (tally.bytes_written(), tally.bytes_read());
    Row { what, requests: tally.requests(), bytes_written, bytes_read, time }
}

/// A fact that a command told, held against what it must be.
fn expect(what: impl Into<String>, got: &Value, wanted: &Value) -> Result<(), CliError> {
    if got == wanted {
        return Ok(());
    }
    let what = format!("this does not hold: {}", what.into());
    Err(failed(what).because(format!("expected {wanted}, got {got}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_lie_apart_and_within_the_array() {
        for capacity in [20 << 20, (252 << 20) + 7, 1 << 40] {
            let image = 16 << 20;
            let mut end = image;
            for region in regions(image, capacity) {
                assert!(region.offset >= end, "no overlap");
                end = region.offset + region.content.len() as u64;
                assert!(end <= capacity && !region.content.is_empty());
            }
        }
    }

    #[test]
    fn a_fact_that_is_not_so_ends_the_demo() {
        expect("equal", &json!(2), &json!(2)).expect("equal");
        let error = expect("two slots are empty", &json!(1), &json!(2)).expect_err("not so");
        assert_eq!(error.exit(), Exit::Failed);
        assert!(error.to_string().contains("two slots are empty"));
    }
}
