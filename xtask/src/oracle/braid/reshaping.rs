//! Reshapes that change hands: md begins and braid ends, braid begins and md ends, each at three
//! positions.
//!
//! Neither side gets a backup file: data moves towards free space, or the position is beyond the
//! part that overwrites itself. Only braid begins reshapes to fewer members. At the end md checks
//! the whole array, and the content must be the stream that was written last, in the middle of the
//! reshape.
//!
//! A RAID-0 grows as a RAID-4 without parity. braid makes it a RAID-0 again at the end; the kernel
//! leaves the RAID-4, since this last step is mdadm's. Neither array has anything to check.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::super::content;
use super::super::drive::Member;
use super::super::guest::{Case, Ending};
use super::super::host;
use super::super::suite::Bench;
use super::names;
use super::program::Program;
use super::tally::Tally;
use crate::each::each;

pub(super) const COUNTS: [&str; 2] =
    ["reshapes from md ended here", "reshapes from here ended by md"];

/// Sectors of a member: 16 MiB.
const SECTORS: u64 = 32_768;
/// The seed of the stream that is written in the middle of md's reshapes, and before braid's.
const SEED: u64 = 4242;

/// A change of shape that both sides know.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    level: u8,
    /// Slots before the reshape, and spares that join.
    slots: (usize, usize),
    /// md's attributes that set the new shape; empty if only braid begins the reshape.
    attributes: &'static str,
    /// The words of `braid grow` for the reshape.
    words: &'static str,
    /// Slots that the array loses.
    fewer: usize,
}

const KINDS: [Kind; 18] = [
    Kind {
        name: "0-by-one",
        level: 0,
        slots: (3, 1),
        attributes: "set_md raid_disks 5",
        words: "--members 4",
        fewer: 0,
    },
    Kind {
        name: "0-by-two",
        level: 0,
        slots: (2, 2),
        attributes: "set_md raid_disks 5",
        words: "--members 4",
        fewer: 0,
    },
    Kind {
        name: "5-by-one",
        level: 5,
        slots: (4, 1),
        attributes: "set_md raid_disks 5",
        words: "--members 5",
        fewer: 0,
    },
    Kind {
        name: "5-by-two",
        level: 5,
        slots: (3, 2),
        attributes: "set_md raid_disks 5",
        words: "--members 5",
        fewer: 0,
    },
    Kind {
        name: "6-by-one",
        level: 6,
        slots: (4, 1),
        attributes: "set_md raid_disks 5",
        words: "--members 5",
        fewer: 0,
    },
    Kind {
        name: "4-by-one",
        level: 4,
        slots: (3, 1),
        attributes: "set_md raid_disks 4",
        words: "--members 4",
        fewer: 0,
    },
    Kind {
        name: "5-chunk",
        level: 5,
        slots: (4, 0),
        attributes: "set_md chunk_size 131072",
        words: "--chunk 128K",
        fewer: 0,
    },
    Kind {
        name: "5-layout",
        level: 5,
        slots: (4, 0),
        attributes: "set_md layout 1",
        words: "--layout right-asymmetric",
        fewer: 0,
    },
    Kind {
        name: "6-chunk",
        level: 6,
        slots: (5, 0),
        attributes: "set_md chunk_size 16384",
        words: "--chunk 16K",
        fewer: 0,
    },
    Kind {
        name: "5-less-one",
        level: 5,
        slots: (4, 0),
        attributes: "",
        words: "--members 3",
        fewer: 1,
    },
    Kind {
        name: "6-less-two",
        level: 6,
        slots: (6, 0),
        attributes: "",
        words: "--members 4",
        fewer: 2,
    },
    Kind {
        name: "10-by-one",
        level: 10,
        slots: (4, 1),
        attributes: "set_md raid_disks 5",
        words: "--members 5",
        fewer: 0,
    },
    Kind {
        name: "10-by-two",
        level: 10,
        slots: (4, 2),
        attributes: "set_md raid_disks 6",
        words: "--members 6",
        fewer: 0,
    },
    Kind {
        name: "10-chunk",
        level: 10,
        slots: (4, 0),
        attributes: "set_md chunk_size 65536",
        words: "--chunk 64K",
        fewer: 0,
    },
    Kind {
        name: "10-offset",
        level: 10,
        slots: (4, 0),
        attributes: "",
        words: "--layout o2",
        fewer: 0,
    },
    Kind {
        name: "5-chunk-behind",
        level: 5,
        slots: (4, 0),
        attributes: "",
        words: "--chunk 128K",
        fewer: 0,
    },
    Kind {
        name: "10-chunk-behind",
        level: 10,
        slots: (4, 0),
        attributes: "",
        words: "--chunk 64K",
        fewer: 0,
    },
    Kind {
        name: "10-less-one",
        level: 10,
        slots: (6, 0),
        attributes: "",
        words: "--members 5",
        fewer: 1,
    },
];

/// Sectors of each member that an array uses before it loses members: 12 MiB, so that its data has
/// room to move to.
const SMALL_SECTORS: u64 = 24_576;

/// How far the program that begins the reshape goes, in percent.
const POSITIONS: [u64; 3] = [3, 45, 75];

/// Shell functions, in addition to those of every case.
const WORDS: &str = r#"
set_md() { echo "$2" >"/sys/block/$D/md/$1"; } # set_md ATTRIBUTE VALUE
move_data() { # move_data SECTORS MEMBER...: data begins that much earlier
    by=$1
    shift
    for member in "$@"; do
        read -r old <"/sys/block/$D/md/dev-${member##*/}/offset"
        echo "$((old - by))" >"/sys/block/$D/md/dev-${member##*/}/new_offset"
    done
}
position() { head -n 1 "/sys/block/$D/md/reshape_position"; }
reshape_to() { # reshape_to SECTOR: of each member
    set_md sync_force_parallel 1
    set_md sync_max "$1"
    set_md sync_action reshape
    begun=$(position)
    for turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        sleep 0.5
        [ "$(position)" = "$begun" ] || break
    done
    before=none
    while [ "$(position)" != "$before" ]; do
        before=$(position)
        sleep 1
    done
    sync
    value position "$(position)"
}
part_content() { # part_content BYTES: reports the hash of the array's first bytes
    blockdev --flushbufs "$A"
    value part "$(head -c "$1" "$A" | sha256sum | cut -d' ' -f1)"
}
"#;

impl Kind {
    fn members(&self) -> usize {
        self.slots.0 + self.slots.1
    }

    /// Sectors of an array with this many slots, in halves of a member's sectors.
    fn half_members(&self, slots: usize) -> u64 {
        let halves = match self.level {
            0 => 2 * slots,
            10 => slots,
            6 => 2 * (slots - 2),
            _ => 2 * (slots - 1),
        };
        halves as u64
    }

    /// Sectors of the array in its old shape, if each member has `sectors`.
    fn sectors(&self, sectors: u64) -> u64 {
        self.half_members(self.slots.0) * sectors / 2
    }

    /// Sectors of the array after the loss of members, if each remaining member has `sectors`.
    fn fewer_sectors(&self, sectors: u64) -> u64 {
        self.half_members(self.slots.0 - self.fewer) * sectors / 2
    }

    /// md's position for a sector of a member: on RAID-10 md counts sectors of the array.
    fn sync_sectors(&self, sectors: u64) -> u64 {
        if self.level == 10 { self.sectors(sectors) } else { sectors }
    }

    fn is_striped(&self) -> bool {
        self.level == 0
    }

    /// Slots after md has ended the reshape, including the slot of the missing parity.
    fn slots_after(&self) -> usize {
        self.members() - self.fewer + usize::from(self.is_striped())
    }

    /// The change of level that md makes before the reshape.
    fn taken_over(&self) -> &'static str {
        if self.is_striped() { "set_md level raid4\n" } else { "" }
    }

    /// md's check of the array, or a report of no mismatch for an array without redundancy.
    fn scrub(&self) -> &'static str {
        if self.is_striped() { "value mismatches 0" } else { "scrub mismatches" }
    }

    /// Whether members have free space only after their data.
    fn is_behind(&self) -> bool {
        self.name.ends_with("-behind")
    }

    /// Whether the array first uses less of its members, so that their data has room to move to.
    fn is_small(&self) -> bool {
        self.fewer > 0 || self.is_behind()
    }

    /// Bytes that are written before braid begins the reshape, and that the new shape has.
    fn bytes(&self) -> u64 {
        match self.is_small() {
            false => self.sectors(SECTORS - 8192) * 512,
            true => self.fewer_sectors(SMALL_SECTORS) * 512,
        }
    }

    /// The words of `braid grow` before those of the reshape, one command each: members get
    /// smaller, and the array ends earlier for clients.
    fn words_before(&self) -> Vec<String> {
        if !self.is_small() {
            return Vec::new();
        }
        let end = |sectors: u64| format!("--array-size {}K", sectors / 2);
        let small = format!("--size {}K", SMALL_SECTORS / 2);
        let first = vec![end(self.sectors(SMALL_SECTORS)), small];
        let fewer = (self.fewer > 0).then(|| end(self.fewer_sectors(SMALL_SECTORS)));
        first.into_iter().chain(fewer).collect()
    }

    fn first(&self) -> String {
        (1..=self.slots.0).map(|number| format!("$M{number}")).collect::<Vec<_>>().join(" ")
    }

    fn spares(&self) -> String {
        let spares = self.slots.0 + 1..=self.members();
        spares.map(|number| format!("$M{number}")).collect::<Vec<_>>().join(" ")
    }

    fn name_at(&self, percent: u64) -> String {
        format!("{}-{percent}", self.name)
    }
}

/// Runs one kind of reshape from its middle; all kinds take a quarter of an hour.
pub(super) fn run_some(bench: &Bench, program: &Program, tally: &Tally) -> Result<()> {
    let is_one = |kind: &&Kind| kind.name == "5-by-one";
    let cases: Vec<_> = KINDS.iter().filter(is_one).map(|kind| (*kind, POSITIONS[1])).collect();
    from_md(bench, program, &begun_by_md(&cases), tally)?;
    to_md(bench, program, &cases, tally)
}

fn begun_by_md(cases: &[(Kind, u64)]) -> Vec<(Kind, u64)> {
    cases.iter().filter(|(kind, _)| !kind.attributes.is_empty()).copied().collect()
}

/// Runs the kinds of reshapes whose name contains `only`, from all positions.
pub(super) fn run(bench: &Bench, program: &Program, (only, tally): (&str, &Tally)) -> Result<()> {
    let of_kind = |kind: &Kind| POSITIONS.map(|percent| (*kind, percent));
    let kinds = KINDS.iter().filter(|kind| kind.name.contains(only));
    let cases: Vec<_> = kinds.flat_map(of_kind).collect();
    from_md(bench, program, &begun_by_md(&cases), tally)?;
    to_md(bench, program, &cases, tally)
}

/// md begins each reshape, and stops at a position; braid writes and ends it, and md checks.
fn from_md(bench: &Bench, program: &Program, all: &[(Kind, u64)], tally: &Tally) -> Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    let folder = bench.folder.join("reshape-begun");
    let cases = all.iter().map(|(kind, percent)| {
        let add = match kind.slots.1 {
            0 => String::new(),
            _ => format!("mdadm \"$A\" --add {}\n", kind.spares()),
        };
        let script = format!(
            "{WORDS}
mdadm --create \"$A\" --run --metadata=1.2 --level={} --raid-devices={} --chunk=32 --homehost=any \
             --data-offset=2048 {}
mdadm --wait \"$A\" || true
agent stamp \"$A\" 1
content sha256
{}set_md sync_action frozen
{add}{}
move_data 1024 {}
reshape_to {}
mdadm --stop \"$A\"
",
            kind.level,
            kind.slots.0,
            kind.first(),
            kind.taken_over(),
            kind.attributes,
            names(kind.members()),
            kind.sync_sectors(SECTORS - 4096) * percent / 100 / 512 * 512,
        );
        Case {
            name: kind.name_at(*percent),
            members: vec![Member::zeros(SECTORS); kind.members()],
            script,
        }
    });
    let report = bench.run(cases.collect(), Ending::PowerOff, &folder)?;
    let ended = each(bench.boots, all, |_, (kind, percent)| {
        let name = kind.name_at(*percent);
        let end = || {
            let case = &report.cases[&name];
            case.succeeded()?;
            ensure!(case.value("position")? != "none", "md's reshape is over");
            let images = images(&folder.join(&name), kind.members());
            let sectors: u64 = case.value("sectors")?.parse()?;
            let content = (sectors, case.value("sha256")?);
            let sha256 = end_here(program, &images, (kind, content))?;
            Ok::<_, anyhow::Error>((*kind, *percent, images, sectors, sha256))
        };
        tally.take(&name, end().context("md begins, braid ends"))
    });
    let ended: Vec<_> = ended.into_iter().flatten().collect();
    let cases = ended.iter().map(|(kind, percent, images, sectors, _)| {
        let script = format!(
            "{WORDS}\nmdadm --assemble \"$A\" {}\n{}part_content {}\n{}\nvalue disks \"$(cat \
             /sys/block/$D/md/raid_disks)\"\nmdadm --stop \"$A\"\n",
            names(kind.members()),
            if kind.is_striped() { "" } else { "idle\n" },
            sectors * 512,
            kind.scrub(),
        );
        let members = images.iter().map(|image| Member::image(image)).collect::<Result<_>>()?;
        Ok(Case { name: kind.name_at(*percent), members, script })
    });
    let cases = cases.collect::<Result<Vec<_>>>()?;
    let report = bench.run(cases, Ending::PowerOff, &bench.folder.join("reshape-judged"))?;
    for (kind, percent, _, _, sha256) in &ended {
        let name = kind.name_at(*percent);
        let judged = || {
            let case = &report.cases[&name];
            case.succeeded()?;
            ensure!(case.value("part")? == sha256, "md reads something else than was written");
            ensure!(case.value("mismatches")? == "0", "md's check finds mismatches");
            let is_right = case.value("disks")? == kind.members().to_string();
            ensure!(is_right, "md has {} disks", case.value("disks")?);
            Ok(())
        };
        let judged = judged().context("md begins, braid ends, md checks");
        tally.count(COUNTS[0], usize::from(tally.take(&name, judged).is_some()));
    }
    Ok(())
}

/// braid serves the array in the middle of its reshape, reads it, writes all of it anew, and ends
/// the reshape. Returns the content's hash.
fn end_here(
    program: &Program,
    images: &[PathBuf],
    (kind, (sectors, sha256)): (&Kind, (u64, &str)),
) -> Result<String> {
    let folder = images[0].parent().context("an image has a folder")?;
    let [before, after, out] = ["before", "after", "out"].map(|name| folder.join(name));
    let bytes = content::bytes(&[SEED], sectors)?;
    fs::write(&after, &bytes)?;
    let control = folder.join("control");
    let load = format!(
        "set -e
nbdcopy \"$uri\" - | head -c {} > '{}'
nbdcopy --flush '{after}' \"$uri\"
\"$BRAID\" wait '{control}' --for idle --timeout 120
nbdcopy \"$uri\" '{}'
{check}",
        sectors * 512,
        before.display(),
        out.display(),
        after = after.display(),
        control = control.display(),
        check = match kind.is_striped() {
            true => "true".to_owned(),
            false => format!("\"$BRAID\" check '{}'", control.display()),
        },
    );
    let named = control.display().to_string();
    program.serve_with_tool(&["--control", &named, "--job-ceiling", "40M"], images, &load)?;
    ensure!(host::sha256(&before)? == sha256, "in the middle braid reads something else");
    let found = fs::read(&out)?;
    ensure!(found.len() >= bytes.len(), "the array is smaller than before");
    ensure!(found[..bytes.len()] == bytes, "braid reads something else than was written");
    host::sha256(&after)
}

/// braid begins each reshape, and stops in the middle; md ends the reshape, and checks.
fn to_md(bench: &Bench, program: &Program, all: &[(Kind, u64)], tally: &Tally) -> Result<()> {
    let begun = each(bench.boots, all, |_, (kind, percent)| {
        let name = kind.name_at(*percent);
        let begin = || begin_here(bench, program, (kind, *percent));
        tally.take(&name, begin().context("braid begins"))
    });
    let begun: Vec<BegunHere> = begun.into_iter().flatten().collect();
    let cases = begun.iter().map(|one| {
        let script = format!(
            "{WORDS}\nmdadm --assemble \"$A\" {}\nvalue position \"$(position)\"\nidle\npart_content \
             {}\n{}\nvalue disks \"$(cat /sys/block/$D/md/raid_disks)\"\nmdadm --stop \"$A\"\n",
            names(one.kind.members()),
            one.bytes,
            one.kind.scrub(),
        );
        let members = one.images.iter().map(|image| Member::image(image)).collect::<Result<_>>()?;
        Ok(Case { name: one.kind.name_at(one.percent), members, script })
    });
    let cases = cases.collect::<Result<Vec<_>>>()?;
    let report = bench.run(cases, Ending::PowerOff, &bench.folder.join("reshape-ended"))?;
    for one in &begun {
        let name = one.kind.name_at(one.percent);
        let judged = || {
            let case = &report.cases[&name];
            case.succeeded()?;
            ensure!(case.value("position")? != "none", "braid's reshape was over");
            ensure!(case.value("part")? == one.sha256, "md reads something else than was written");
            ensure!(case.value("mismatches")? == "0", "md's check finds mismatches");
            let is_right = case.value("disks")? == one.kind.slots_after().to_string();
            ensure!(is_right, "md has {} disks", case.value("disks")?);
            Ok(())
        };
        let judged = judged().context("braid begins, md ends and checks");
        tally.count(COUNTS[1], usize::from(tally.take(&name, judged).is_some()));
    }
    Ok(())
}

/// An array that braid left in the middle of a reshape.
struct BegunHere {
    kind: Kind,
    percent: u64,
    images: Vec<PathBuf>,
    bytes: u64,
    sha256: String,
}

fn begin_here(
    bench: &Bench,
    program: &Program,
    (kind, percent): (&Kind, u64),
) -> Result<BegunHere> {
    let folder = bench.folder.join("reshape-here").join(kind.name_at(percent));
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder)?;
    let images = images(&folder, kind.members());
    for image in &images {
        fs::File::create(image)?.set_len(SECTORS * 512)?;
    }
    let (members, spares) = images.split_at(kind.slots.0);
    let level = kind.level.to_string();
    let words = ["--level", &level, "--chunk", "32K", "--assume-clean", "--consistency", "bitmap"];
    let mut words = if kind.is_striped() { words[..4].to_vec() } else { words.to_vec() };
    if kind.is_behind() {
        words.extend(["--metadata", "1.0"]);
    }
    program.create_with(&words, members)?;
    let bytes = kind.bytes();
    let content = content::bytes(&[SEED], bytes / 512)?;
    let file = folder.join("content");
    fs::write(&file, content)?;
    let spares: Vec<String> = spares.iter().map(|spare| spare.display().to_string()).collect();
    let control = folder.join("control");
    let before = kind.words_before().into_iter().map(|words| {
        format!(
            "\"$BRAID\" grow '{control}' {words} > /dev/null\n\"$BRAID\" wait '{control}' --for idle \
             --timeout 60 > /dev/null\n",
            control = control.display()
        )
    });
    let before: String = before.collect();
    let load = format!(
        "set -e
nbdcopy --flush '{}' \"$uri\"
{before}\"$BRAID\" set '{control}' job-ceiling=4M > /dev/null
\"$BRAID\" grow '{control}' {} {} > /dev/null
done=0
while [ $done -lt {percent} ]; do
    sleep 0.05
    moved=$(\"$BRAID\" status '{control}' --json | tr ',{{}}' '\\n\\n\\n' \
        | sed -n 's/^\"moved_bytes\"://p' | head -n 1)
    done=$((moved * 100 / {bytes}))
done",
        file.display(),
        if kind.slots.1 > 0 { "" } else { kind.words },
        spares.join(" "),
        control = control.display(),
    );
    let named = control.display().to_string();
    program.serve_with_tool(&["--control", &named], members, &load)?;
    Ok(BegunHere { kind: *kind, percent, images, bytes, sha256: host::sha256(&file)? })
}

fn images(folder: &std::path::Path, count: usize) -> Vec<PathBuf> {
    (0..count).map(|number| folder.join(format!("{number}.img"))).collect()
}
