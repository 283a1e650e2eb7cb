//! Suite `peers`: other software on the same files and devices, in the same rounds.
//!
//! ```text
//!   fio ─NBD─▶ braid serve │ nbdkit file │ qemu-nbd ─▶ files               (`super::nbd`)
//!   fs_mark, fio ─▶ btrfs ─▶ loop devices                                  btrfs raid1, 5, 6
//!                   btrfs │ ext4 ─▶ loop ─▶ FUSE ─▶ braid ─▶ loop devices  braid below them
//! ```
//!
//! The report says which programs or rights are missing. md and dm-raid need a guest, whose figures
//! would say nothing without KVM.

pub(super) mod mounted;
mod work;

use super::nbd::fio::Job;
use super::nbd::{self, NbdCase};
use crate::frame::{Case, Contender, Failed, Report, Settings, Suite, race};
use mounted::{Mounted, Raid, Stack};
use work::Work;

pub(super) const SUITE: Suite = Suite {
    name: "peers",
    about: "nbdkit and qemu-nbd through NBD; btrfs raid1, raid5 and raid6 beside file systems on braid",
    run,
};

const fn through(name: &'static str, job: Job, raw_share: f64) -> NbdCase {
    NbdCase { name, job, raw_share, has_peers: true, targets: &[] }
}

/// NBD cases in addition to those of the suites `read` and `write`.
const NBD: &[NbdCase] = &[
    through("NBD: 4 KiB random read, depth 1", Job::full("randread", 4, 1), 1.0),
    through("NBD: 4 KiB random write, depth 1", Job::full("randwrite", 4, 1), 1.0),
    through("NBD: 128 KiB sequential read, depth 8", Job::full("read", 128, 8), 1.0),
    through("NBD: 128 KiB sequential write, depth 8", Job::full("write", 128, 8), 0.75),
];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    nbd::run(settings, &mut report, if settings.small { &NBD[..1] } else { NBD });
    // A small run needs only one level to show that the suite works.
    let raids: &[Raid] =
        if settings.small { &[Raid::Five] } else { &[Raid::One, Raid::Five, Raid::Six] };
    for raid in raids.iter().copied() {
        let wanted = work::ALL.iter().any(|work| settings.wants(&name(raid, work)));
        if !wanted {
            continue;
        }
        if let Err(why) = file_systems(settings, &mut report, raid) {
            report.note(format!("file systems on {}: skipped, {why}", raid.word()));
        }
    }
    report.note(
        "at depth 1 each of the four raw members has one request in flight, four in all; file \
         systems: btrfs with its own RAID (metadata of RAID-5 is raid1, of RAID-6 raid1c3); btrfs \
         and ext4 on braid (chunk 64 KiB, log or bitmap as `create` chooses) through FUSE and a \
         loop device; all members are loop devices on files in memory",
    );
    report.note(
        "no sync: fs_mark leaves its files in the page cache, not on a device, when the clock \
         stops, so this compares the memory of file systems",
    );
    report.note(
        "rebuild: until `btrfs replace` ends, or `braid wait --for rebuild`; btrfs copies only \
         the data of files, braid the whole member",
    );
    report.note(
        "md and dm-raid: left out. They need a guest, and without KVM the guest is \
                 emulated: its figures would mean nothing",
    );
    report
}

fn name(raid: Raid, work: &Work) -> String {
    format!("{}: {}", raid.word(), work.name)
}

fn file_systems(settings: &Settings, report: &mut Report, raid: Raid) -> Result<(), String> {
    may_mount(&["losetup", "mkfs.btrfs", "mkfs.ext4", "fs_mark", "fio"])?;
    let mut all = Vec::new();
    for stack in [Stack::Btrfs, Stack::BtrfsOnBraid, Stack::Ext4OnBraid] {
        all.push((stack.word(), Mounted::new(raid, stack, settings.small)?));
    }
    for work in &work::ALL {
        let name = name(raid, work);
        if !settings.wants(&name) {
            continue;
        }
        all.iter_mut().try_for_each(|(_, mounted)| work.prepare(mounted))?;
        match case(settings, &name, work, &mut all) {
            Ok(case) => report.add(case),
            Err(why) => report.note(format!("{name}: {why}")),
        }
    }
    Ok(())
}

fn case(
    settings: &Settings,
    name: &str,
    work: &Work,
    all: &mut [(&'static str, Mounted)],
) -> Result<Option<Case>, String> {
    let failed = Failed::default();
    let turn = |mounted: &mut Mounted| {
        failed.or_zeroes(work.run(mounted, settings.small).map(|value| vec![value]), 1)
    };
    let contenders = all
        .iter_mut()
        .map(|(variant, mounted)| Contender::new(variant, || turn(mounted)))
        .collect();
    let case = race(settings, name, &[work.metric], contenders);
    failed.or_case(case)
}

/// Checks for root and these programs, which mounting needs.
pub(super) fn may_mount(programs: &[&str]) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root may mount".to_owned());
    }
    match programs.iter().find(|name| !is_installed(name)) {
        Some(lacking) => Err(format!("{lacking} is not installed")),
        None => Ok(()),
    }
}

/// Whether a program of this name is in the usual folders, root's included.
pub(super) fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&paths).chain(more).any(|folder| folder.join(program).is_file())
}
