//! One boot of a real kernel with md: cases in, report and member images out.
//!
//! This file stands above `initramfs` (the booted system), `drive` (places of members) and `report`
//! (the guest's output). It knows QEMU, processes and deadlines, and no RAID: a case is members and
//! a script. KVM is never used: software emulation is the same on every host, and fast enough for
//! arrays of a few MiB. A guest has one processor. With more, QEMU must execute every locked
//! operation and barrier of the kernel as a real one, which costs a quarter of the time. Several
//! guests at a time use the cores.
//!
//! Invariants: the QEMU process has ended when `run` returns, even after an error (`Boot::drop`). A
//! kernel panic, an early end and a passed deadline are errors, with the end of the console.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::cpio::Archive;
use super::drive::{self, Member, Region};
use super::initramfs::{GuestAdditions, Initramfs};
use super::report::Report;

/// Regions that one drive can have at a time (the kernel's limit is 255 partitions).
const REGIONS_MAX: usize = 250;

/// Some members, and the guest's script for them.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The case's name, unique within a job; letters, digits, `-`, `_` and `.`.
    pub(crate) name: String,
    /// The members, which the script calls `$M1`, `$M2`, ...
    pub(crate) members: Vec<Member>,
    /// The script: shell, run with `sh -e` after `guest/library.sh`.
    pub(crate) script: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Each case stops its arrays; at the end the guest switches off.
    PowerOff,
    /// Power is cut without a sync: arrays still run, and drives complete requests in flight.
    Cut,
    /// Arrays keep running under writes, and QEMU is killed: drives lose requests in flight.
    Killed,
}

/// The work of one boot.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) cases: Vec<Case>,
    pub(crate) ending: Ending,
    /// Time limit of each case's script, in seconds.
    pub(crate) case_seconds: u32,
    /// Time limit of the boot, in seconds.
    pub(crate) boot_seconds: u64,
}

impl Job {
    /// A job that runs these cases with the usual limits.
    pub(crate) fn new(cases: Vec<Case>, ending: Ending) -> Self {
        let boot_seconds = 120 + 10 * cases.len() as u64;
        Self { cases, ending, case_seconds: 90, boot_seconds }
    }
}

/// A machine for repeated boots.
pub(crate) struct Guest {
    initramfs: Initramfs,
}

impl Guest {
    /// A guest that boots this host's newest kernel with md.
    pub(crate) fn new(cache: &Path) -> Result<Self> {
        Self::with(cache, &GuestAdditions::default())
    }

    /// A guest that boots this host's newest kernel with md, with more modules and programs.
    pub(crate) fn with(cache: &Path, more: &GuestAdditions) -> Result<Self> {
        Ok(Self { initramfs: Initramfs::build(cache, more)? })
    }

    /// Boots, runs every case, and extracts the members of case `c` to `folder/c/0.img`, ...
    ///
    /// A case whose script failed is no error of this call: the case's report shows the failure.
    pub(crate) fn run(&self, job: &Job, folder: &Path) -> Result<Report> {
        // An earlier boot's output must not count as output of this boot.
        std::fs::remove_dir_all(folder).ok();
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let members: Vec<_> = job.cases.iter().map(|case| case.members.clone()).collect();
        let drive = folder.join("drive.raw");
        let regions = drive::fill(&drive, &members)?;
        let mut start = self.initramfs.base.clone();
        start.extend(job_archive(job, &regions)?);
        std::fs::write(folder.join("initrd"), &start)?;
        let outcome = Boot::start(&self.initramfs.kernel, folder, &[Drive::unlimited(&drive)])
            .and_then(|mut boot| boot.wait(Duration::from_secs(job.boot_seconds)));
        std::fs::remove_file(folder.join("initrd"))?;
        let report = read_text(&folder.join("report")).and_then(|text| Report::parse(&text));
        if let Err(failure) = outcome {
            // The report may be cut off anywhere and not parse; the boot's failure is the error
            // that counts.
            return Err(failure.context(where_it_was(&report.unwrap_or_default())));
        }
        let report = report?;
        ensure!(report.done, "the guest ended early, {}", where_it_was(&report));
        let image = File::open(&drive)?;
        for (case, regions) in job.cases.iter().zip(&regions) {
            drive::extract(&image, regions, &folder.join(&case.name))?;
        }
        std::fs::remove_file(&drive)?;
        Ok(report)
    }
}

/// One case that kills QEMU while its array is written.
pub(crate) struct Storm<'a> {
    /// The images of the members `$M1`, `$M2`, ... of the script. Each is a drive of its own, and
    /// is written in place.
    pub(crate) images: &'a [PathBuf],
    /// Limit of each drive's writes per second, so that writes queue in the drive.
    pub(crate) writes_per_second: u32,
    /// The case's shell script; when it ends, its writer still runs in the background.
    pub(crate) script: &'a str,
    /// Time from the end of the script to the kill.
    pub(crate) lasting: Duration,
}

impl Guest {
    /// Boots the guest, runs the script, and kills QEMU while the writer runs.
    pub(crate) fn storm(&self, storm: &Storm<'_>, folder: &Path) -> Result<()> {
        std::fs::remove_dir_all(folder).ok();
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let mut script = String::from("A=/dev/md0\nD=md0\n");
        for (number, letter) in (1..=storm.images.len()).zip('a'..) {
            script += &format!("M{number}=/dev/vd{letter}\n");
        }
        script += storm.script;
        let mut archive = Archive::new();
        archive.directory("job");
        archive.directory("job/cases");
        settings(&mut archive, Ending::Killed, 90);
        archive.file("job/cases/0000-storm.sh", script.as_bytes());
        let mut start = self.initramfs.base.clone();
        start.extend(archive.finish());
        std::fs::write(folder.join("initrd"), &start)?;
        let limited = |image: &PathBuf| Drive {
            image: image.clone(),
            writes_per_second: storm.writes_per_second,
        };
        let drives: Vec<Drive> = storm.images.iter().map(limited).collect();
        let boot = Boot::start(&self.initramfs.kernel, folder, &drives)?;
        boot.wait_for_word("@@DONE", Duration::from_secs(150))?;
        std::thread::sleep(storm.lasting);
        drop(boot);
        let report = read_text(&folder.join("report")).and_then(|text| Report::parse(&text))?;
        report.cases.get("storm").context("the script was not run")?.succeeded()
    }
}

fn settings(archive: &mut Archive, ending: Ending, case_seconds: u32) {
    let ending = match ending {
        Ending::PowerOff => "poweroff",
        Ending::Cut => "cut",
        Ending::Killed => "killed",
    };
    let settings = format!("ENDING={ending}\nCASE_SECONDS={case_seconds}\n");
    archive.file("job/settings", settings.as_bytes());
}

fn where_it_was(report: &Report) -> String {
    let open = report.cases.iter().find(|(_, case)| case.status.is_none());
    match open {
        Some((name, _)) => format!("in case {name}"),
        None => format!("after {} cases", report.cases.len()),
    }
}

/// The second archive of the initramfs: settings and one script for each case.
fn job_archive(job: &Job, regions: &[Vec<Region>]) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    archive.directory("job");
    archive.directory("job/cases");
    settings(&mut archive, job.ending, job.case_seconds);
    let mut taken = 0;
    for (index, (case, regions)) in job.cases.iter().zip(regions).enumerate() {
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        ensure!(case.name.chars().all(allowed), "{} is no name for a case", case.name);
        // Partition numbers are used in turn, so that a hanging case does not block a later one.
        if job.ending == Ending::PowerOff && taken + regions.len() > REGIONS_MAX {
            taken = 0;
        }
        let array = index % 250;
        let mut script = format!("A=/dev/md{array}\nD=md{array}\n");
        for (number, region) in (1..).zip(regions) {
            taken += 1;
            script += &format!("M{number}=/dev/vda{taken}\n");
            script += &format!("carve {taken} {} {}\n", region.start, region.length);
        }
        ensure!(taken <= REGIONS_MAX, "{} members are too many at a time", taken);
        script += &case.script;
        archive.file(&format!("job/cases/{index:04}-{}.sh", case.name), script.as_bytes());
    }
    Ok(archive.finish())
}

/// A file that the guest gets as a drive.
struct Drive {
    image: PathBuf,
    /// Limit of the drive's writes per second; 0 for none.
    writes_per_second: u32,
}

impl Drive {
    fn unlimited(image: &Path) -> Self {
        Self { image: image.to_owned(), writes_per_second: 0 }
    }

    /// QEMU's options for the drive.
    fn words(&self, id: usize) -> String {
        let limit = match self.writes_per_second {
            0 => String::new(),
            count => format!("throttling.iops-write={count},"),
        };
        let image = self.image.display();
        format!("if=none,id=members{id},format=raw,cache=unsafe,discard=unmap,{limit}file={image}")
    }
}

/// A QEMU process; dropping the value ends the process.
struct Boot {
    child: Child,
    folder: PathBuf,
}

impl Boot {
    fn start(kernel: &Path, folder: &Path, drives: &[Drive]) -> Result<Self> {
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1", "-m", "768"]);
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        // A fixed clock: the times in superblocks do not depend on the day.
        qemu.args(["-rtc", "base=2026-01-01T00:00:00,clock=vm"]);
        qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(folder.join("initrd"));
        qemu.args(["-append", "console=ttyS0 quiet loglevel=3 panic=-1 oops=panic"]);
        qemu.arg("-serial").arg(format!("file:{}", folder.join("console").display()));
        qemu.arg("-chardev");
        qemu.arg(format!("file,id=report,path={}", folder.join("report").display()));
        qemu.args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=report"]);
        for (id, drive) in drives.iter().enumerate() {
            qemu.arg("-drive").arg(drive.words(id)).arg("-device");
            qemu.arg(format!("virtio-blk-pci,drive=members{id},num-queues=1"));
        }
        let errors = File::create(folder.join("errors"))?;
        qemu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let child = qemu.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow::anyhow!(
                "qemu-system-x86_64 is not installed (Debian: apt-get install qemu-system-x86)"
            ),
            _ => anyhow::Error::new(error).context("starting qemu-system-x86_64"),
        })?;
        Ok(Self { child, folder: folder.to_owned() })
    }

    /// Waits until the guest has printed a word.
    fn wait_for_word(&self, word: &str, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        while !read_text(&self.folder.join("report")).is_ok_and(|said| said.contains(word)) {
            ensure!(begun.elapsed() < limit, "no {word} after {} s", limit.as_secs());
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn wait(&mut self, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                let console = read_text(&self.folder.join("console"))?;
                if let Some(panic) = console.find("Kernel panic") {
                    bail!("the guest's kernel panicked: {}", tail(&console[panic..]));
                }
                let errors = read_text(&self.folder.join("errors"))?;
                ensure!(status.success(), "QEMU ended with {status}: {}", tail(&errors));
                return Ok(());
            }
            if begun.elapsed() > limit {
                let console = read_text(&self.folder.join("console"))?;
                bail!("no end after {} s; the console: {}", limit.as_secs(), tail(&console));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Boot {
    fn drop(&mut self) {
        // Kill and wait fail only if the process has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn read_text(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines of a text.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
