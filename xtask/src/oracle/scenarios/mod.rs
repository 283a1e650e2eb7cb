//! `cargo xtask scenarios`: arrays of the kernel's md, broken by mishaps; braid and mdadm recover
//! their files.
//!
//! ```text
//! stories                arrays and their mishaps
//!    | words.sh          ... in shell, inside the guest
//! broken_arrays          boots: made and broken
//!    | fixtures          small ones of them, kept as text for the daily tests
//!    | rescue            braid's rescue of the images, on the host
//! mod                    one more boot: mdadm's tries, each on copies of its own
//!    | table             the results
//! ```
//!
//! Files and their sums are taken while md runs the array, before it breaks; later writes do not
//! count. Two conditions fail the run: braid writes to an image, or it calls a wrong file right.

mod broken_arrays;
mod fixtures;
mod rescue;
mod stories;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::drive::Member;
use super::guest::{Case, Ending, Guest};
use super::initramfs::GuestAdditions;
use super::report::CaseReport;
use super::suite::Bench;
use crate::build::Program;
use broken_arrays::{BrokenArray, FILES, boot, load, make, script};
use rescue::Braid;
use stories::{STORIES, Story};
use table::Row;

/// Additions to the guest: programs for volumes on arrays, and programs that damage disks.
const MORE: GuestAdditions = GuestAdditions {
    modules: &["dm-mod", "dm-bufio", "dm-bio-prison", "dm-persistent-data", "dm-thin-pool"],
    programs: &["/sbin/mke2fs", "/sbin/e2fsck", "/sbin/dmsetup", "/sbin/lvm", "/sbin/sfdisk"],
};
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only scenarios whose name contains this
    #[arg(long, value_name = "WORD", default_value = "", hide_default_value = true)]
    only: String,
    /// Boots at a time
    #[arg(long, value_name = "N", default_value_t = super::BOOTS_DEFAULT)]
    boots: usize,
    /// This program, not the development build
    #[arg(long, value_name = "PATH")]
    braid: Option<PathBuf>,
    /// Make only scenarios that no earlier run has made, and rescue all
    #[arg(long)]
    again: bool,
    /// List the scenarios
    #[arg(long)]
    list: bool,
    /// Make fixtures of the daily tests' scenarios instead: oracle/broken
    #[arg(long, conflicts_with_all = ["again", "list", "braid"])]
    make_fixtures: bool,
}

/// Makes, breaks and rescues the scenarios, and prints the table.
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
    let braid = Braid { path: braid, folder: bench.folder.join("rescued") };
    let answers = broken
        .iter()
        .map(|broken| braid.rescue(broken).with_context(|| broken.story.name.to_owned()));
    let answers = answers.collect::<Result<Vec<_>>>()?;
    told("rescued by braid");
    let judged = judge(&bench, &broken)?;
    told("tried by mdadm");
    let rows = broken.iter().zip(answers).map(|(broken, answer)| {
        let of = |how| judged.get(&case_name(&broken.story, how)).cloned();
        Row {
            about: broken.story.about,
            files: broken.files.lines().count(),
            answer,
            force: of("force"),
            wiki: of("wiki"),
            wiki_about: broken.story.wiki_about,
        }
    });
    let rows: Vec<Row> = rows.collect();
    println!("{}", table::text(&rows));
    for row in &rows {
        if let Some(right) = row.answer.right_after_reshape {
            println!("{}: braid serve ends its reshape, {right} of {} right", row.about, row.files);
        }
    }
    let wrong: Vec<&str> =
        rows.iter().filter(|row| row.is_wrongly_sure()).map(|row| row.about).collect();
    ensure!(wrong.is_empty(), "called right what is wrong: {}", wrong.join("; "));
    Ok(())
}

fn case_name(story: &Story, how: &str) -> String {
    format!("{}-{how}", story.name)
}

/// Lets mdadm try twice to recover each array, each time on new copies.
fn judge(bench: &Bench, broken: &[BrokenArray]) -> Result<BTreeMap<String, CaseReport>> {
    let mut cases = Vec::new();
    for broken in broken {
        let story = &broken.story;
        let disks = broken.images.iter().chain(&broken.file).map(|path| Member::image(path));
        let disks = disks.collect::<Result<Vec<_>>>()?;
        for (how, words) in [("force", story.force), ("wiki", story.wiki)] {
            let mut start = String::from("cat >/tmp/files-$D <<'END'\n");
            start += &broken.files;
            start += "END\n";
            for disk in story.given {
                let own = story.unreadable.iter().filter(|(number, ..)| number == disk);
                let own: String =
                    own.map(|(_, first, sectors)| format!(" {first} {sectors}")).collect();
                if !own.is_empty() {
                    start += &format!("unreadable {disk}{own}\n");
                }
            }
            cases.push(Case {
                name: case_name(story, how),
                members: disks.clone(),
                script: script(
                    disks.len(),
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
