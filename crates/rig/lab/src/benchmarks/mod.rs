//! `braid-lab report`: one page of the results that lab runs wrote, and the same as Markdown.
//!
//! ```text
//!   --json files ─▶ run_record ─▶ page (HTML, nothing from elsewhere)
//!                            └──▶ markdown, and an SVG for each suite of each run
//! ```
//!
//! Page and Markdown name the machine, the versions and the command, and every median with its
//! smallest and largest value. Both mark every figure in which braid is behind another variant.

mod gap_to_best;
mod markdown;
mod page;
mod run_record;

use std::path::{Path, PathBuf};

use run_record::RunRecord;

/// Words of `braid-lab report`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Results that runs wrote with --json
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the page there.
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
    /// Write the same as Markdown there, and plots into a folder of the same name next to it.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Conclusions that the figures do not support.
const NOT_TO_CONCLUDE: [&str; 6] = [
    "Nothing about the speed of another machine. An absolute figure holds only for this machine \
     and its load at that time. Only ratios within one run mean something, and only if they \
     exceed the spread.",
    "No difference from figures within the spread. If the ranges of two variants overlap, more \
     rounds may reverse their order.",
    "Nothing about disks from members in memory. In memory, the door, copies and wake-ups take \
     most of the time; on a disk they take almost none.",
    "Nothing about scaling with cores. On few cores client, server and kernel take turns, so \
     gains from parallel work do not show.",
    "No general verdict on a peer. Each runs with its defaults, or as its notes say; some do less \
     (no redundancy), some more (checksums).",
    "Nothing about omitted cases: the notes list them, with the reason.",
];

/// Reads the files and writes the page, and the Markdown if requested.
///
/// # Errors
/// A file cannot be read, is not the lab's, or cannot be written.
pub fn run(args: &Args) -> Result<(), String> {
    let mut runs = Vec::new();
    for file in &args.files {
        let told = |error: String| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| told(error.to_string()))?;
        runs.push(RunRecord::read(&text).map_err(told)?);
    }
    write(&args.html, &page::html(&runs))?;
    if let Some(file) = &args.markdown {
        let page = markdown::text(&runs, &folder_of(file));
        write(file, &page.text)?;
        for (name, svg) in page.plots {
            write(&file.with_extension("").join(name), &svg)?;
        }
    }
    Ok(())
}

/// The name of the folder with the plots, as the Markdown refers to it.
fn folder_of(file: &Path) -> String {
    file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let made = parent.map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| std::fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}
