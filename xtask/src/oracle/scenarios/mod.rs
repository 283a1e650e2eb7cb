//! `cargo xtask scenarios`: arrays of the kernel's md, broken as mishaps do; braid and mdadm are asked for their files.
//!
//! ```text
//! stories                what happens to which array
//!    | words.sh          ... in shell, inside the guest
//!    | fixtures          small ones of them, kept as text for the daily tests
//! mod                    boots: made and broken · then mdadm's tries, each on copies of its own
//!    | rescued           what braid makes of the same images, on the host
//!    | table             what is said of it
//! ```
//!
//! Files and their sums are taken while md runs the array, before it breaks; nothing that is written later counts. What holds here, and
//! fails the run: braid writes to no image, and it does not call right what is wrong.

mod fixtures;
mod rescued;
mod stories;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::drive::Member;
use super::guest::{Case, Ending, Guest, Job};
use super::initramfs::More;
use super::report::{CaseReport, Report};
use super::suite::Bench;
use crate::build::Program;
use rescued::Braid;
use stories::{STORIES, Story};
use table::Row;

const WORDS: &str = include_str!("words.sh");
/// What the guest has beyond what md needs: what stands on arrays, and what happens to disks.
const MORE: More = More {
    modules: &["dm-mod", "dm-bufio", "dm-bio-prison", "dm-persistent-data", "dm-thin-pool"],
    programs: &["/sbin/mke2fs", "/sbin/e2fsck", "/sbin/dmsetup", "/sbin/lvm", "/sbin/sfdisk"],
};
/// Word of the agent, how many files, and bytes of the largest.
const FILES: &str = "files 400 1500000";
/// The same for fixtures, whose text is small because they are stamps.
const STAMPED_FILES: &str = "stamped 48 2000000";
/// Sectors of a disk of a fixture: 20 MiB.
const FIXTURE_DISK: u64 = 40_960;
/// Everything is slower without KVM.
const CASE_SECONDS: u32 = 400;

/// What the command line asks for.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only scenarios whose name has this in it
    #[arg(long, value_name = "WORD", default_value = "", hide_default_value = true)]
    only: String,
    /// Boots at a time
    #[arg(long, value_name = "N", default_value_t = super::BOOTS_DEFAULT)]
    boots: usize,
    /// This program, not the one that the tests have built
    #[arg(long, value_name = "PATH")]
    braid: Option<PathBuf>,
    /// Make only what no run before has made, and rescue those
    #[arg(long)]
    again: bool,
    /// Say which scenarios there are
    #[arg(long)]
    list: bool,
    /// Make fixtures of those that the daily tests rescue instead: oracle/broken
    #[arg(long, conflicts_with_all = ["again", "list", "braid"])]
    make_fixtures: bool,
}

/// An array that md made and a mishap broke.
struct Broken {
    story: Story,
    /// Those that are there, in the order in which they are named.
    images: Vec<PathBuf>,
    /// As `sha256sum` writes it.
    files: String,
    /// That broke it.
    kernel: String,
}

/// Makes, breaks and rescues them, and prints the table.
pub(crate) fn run(options: &Options) -> Result<()> {
    let chosen = STORIES.iter().filter(|story| story.name.contains(&options.only));
    let stories: Vec<Story> = chosen.copied().collect();
    ensure!(!stories.is_empty(), "no scenario has {} in its name", options.only);
    if options.list {
        stories.iter().for_each(|story| println!("{:20} {}", story.name, story.about));
        return Ok(());
    }
    let folder = crate::build::folder()?.join(match options.make_fixtures {
        true => "scenarios-fixtures",
        false => "scenarios",
    });
    let guest = Arc::new(Guest::with(&folder.join("cache"), &MORE)?);
    let bench = Bench { folder, guest, boots: options.boots };
    if options.make_fixtures {
        return fixtures::make(&bench, &stories);
    }
    let braid = match &options.braid {
        Some(path) => path.clone(),
        None => Program::Braid.dev()?,
    };
    let begun = Instant::now();
    let told = |what: &str| println!("{:6.1} s  {what}", begun.elapsed().as_secs_f64());
    let is_there = |story: &&Story| {
        bench.folder.join("broken").join(story.name).join("files").is_file() && options.again
    };
    let wanted: Vec<Story> = stories.iter().filter(|story| !is_there(story)).copied().collect();
    make(&bench, &wanted, FILES)?;
    told("made and broken");
    let broken = stories.iter().map(|story| load(&bench.folder, story));
    let broken = broken.collect::<Result<Vec<_>>>()?;
    let judged = judge(&bench, &broken)?;
    told("tried by mdadm");
    let braid = Braid { path: braid, folder: bench.folder.join("rescued") };
    let mut rows = Vec::new();
    for broken in &broken {
        let answer = braid.rescue(broken).with_context(|| broken.story.name.to_owned())?;
        let of = |how| judged.get(&case_name(&broken.story, how)).cloned();
        rows.push(Row {
            about: broken.story.about,
            files: broken.files.lines().count(),
            answer,
            force: of("force"),
            wiki: of("wiki"),
            wiki_about: broken.story.wiki_about,
        });
    }
    told("rescued by braid");
    println!("{}", table::text(&rows));
    let wrong: Vec<&str> =
        rows.iter().filter(|row| row.is_wrongly_sure()).map(|row| row.about).collect();
    ensure!(wrong.is_empty(), "called right what is wrong: {}", wrong.join("; "));
    Ok(())
}

fn case_name(story: &Story, how: &str) -> String {
    format!("{}-{how}", story.name)
}

/// A case's script: the words, how many disks there are, and the story.
fn script(disks: usize, files: &str, story: &str, end: &str) -> String {
    format!("{WORDS}\nFILES=\"{files}\"\nmkdir -p /mnt/$D\nconnect {disks}\n{story}\n{end}\n")
}

/// md makes them, and they break.
fn make(bench: &Bench, stories: &[Story], files: &str) -> Result<()> {
    let mut failures = Vec::new();
    for ending in [Ending::PowerOff, Ending::Cut] {
        let chosen = stories.iter().filter(|story| story.ending == ending);
        let cases = chosen.map(|story| Case {
            name: story.name.to_owned(),
            members: vec![Member::zeros(story.disks.1); story.disks.0],
            script: script(
                story.disks.0,
                files,
                story.made,
                if ending == Ending::PowerOff { "disconnect" } else { "" },
            ),
        });
        let cases: Vec<Case> = cases.collect();
        let place = bench.folder.join(format!("made-{ending:?}"));
        let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
        let report = boot(bench, cases, ending, &place)?;
        for name in names {
            let case = report.cases.get(&name).context("the guest does not speak of it")?;
            if let Err(error) = case.succeeded() {
                failures.push(format!("{name}: {error:#}"));
                continue;
            }
            let kept = bench.folder.join("broken").join(&name);
            std::fs::remove_dir_all(&kept).ok();
            std::fs::create_dir_all(kept.parent().context("a folder")?)?;
            std::fs::rename(place.join(&name), &kept)?;
            std::fs::write(kept.join("files"), case.text("files")?)?;
            std::fs::write(kept.join("kernel"), &report.kernel)?;
        }
    }
    ensure!(failures.is_empty(), "{} were not made:\n{}", failures.len(), failures.join("\n"));
    Ok(())
}

fn boot(bench: &Bench, cases: Vec<Case>, ending: Ending, place: &Path) -> Result<Report> {
    bench.run_jobs(cases, place, |pile| {
        let boot_seconds = 120 + u64::from(CASE_SECONDS) * pile.len() as u64;
        Job { cases: pile, ending, case_seconds: CASE_SECONDS, boot_seconds }
    })
}

/// What lies there of one.
fn load(folder: &Path, story: &Story) -> Result<Broken> {
    let folder = folder.join("broken").join(story.name);
    let image = |number: &usize| folder.join(format!("{}.img", number - 1));
    let read = |name| std::fs::read_to_string(folder.join(name)).context("make it first");
    Ok(Broken {
        story: *story,
        images: story.given.iter().map(image).collect(),
        files: read("files")?,
        kernel: read("kernel")?,
    })
}

/// mdadm's two tries at each, on copies.
fn judge(bench: &Bench, broken: &[Broken]) -> Result<BTreeMap<String, CaseReport>> {
    let mut cases = Vec::new();
    for broken in broken {
        let story = &broken.story;
        for (how, words) in [("force", story.force), ("wiki", story.wiki)] {
            let mut start = String::from("cat >/tmp/files-$D <<'END'\n");
            start += &broken.files;
            start += "END\n";
            for (disk, first, sectors) in story.unreadable {
                start += &format!("unreadable {disk} {first} {sectors}\n");
            }
            cases.push(Case {
                name: case_name(story, how),
                members: broken
                    .images
                    .iter()
                    .map(|path| Member::image(path))
                    .collect::<Result<_>>()?,
                script: script(
                    broken.images.len(),
                    FILES,
                    &format!("{start}{words}"),
                    "mdadm --stop $A >/dev/null 2>&1 || true\ndisconnect",
                ),
            });
        }
    }
    let report = boot(bench, cases, Ending::PowerOff, &bench.folder.join("judged"))?;
    Ok(report.cases)
}
