//! `cargo xtask bench`: compares fixed cells of the lab between this tree and another revision.
//!
//! ```text
//!   a round of a cell:    reference ─▶ this tree ─▶ reference again
//!                              └── ratio: this tree over the mean of both ──┘
//!                              └── noise: the second over the first ────────┘
//! ```
//!
//! A machine that slows down during a round slows the reference runs before and after, so this tree
//! is compared with their mean. The two reference runs are one program, so the difference between
//! them is the machine's noise. A cell has *moved* if every round differs in the same direction,
//! and by more than the median noise. By chance alone every round agrees once in 2^(rounds - 1)
//! cells.
//!
//! The reference is a revision of git, built and kept in a folder of its own (`target/bench`).
//!
//! - Noise is not reported as a move, and a factor of two is
//!   [check: what_moved_is_told_from_noise].

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::build::{Program, command};
use crate::tidy::repository_root;

const ROUNDS_DEFAULT: usize = 5;

/// Which of two figures of a cell is the better one: the higher or the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preference {
    More,
    Less,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    suite: &'static str,
    case: &'static str,
    metric: &'static str,
    better: Preference,
    /// `cargo xtask test` tries this cell with little work, so that a broken cell is noticed.
    is_tried: bool,
    /// The cell's figure counts instructions: one round suffices, and any difference is a move.
    is_counted: bool,
}

const fn cell(suite: &'static str, case: &'static str, metric: &'static str) -> Cell {
    Cell { suite, case, metric, better: Preference::More, is_tried: false, is_counted: false }
}

const fn counted(case: &'static str) -> Cell {
    Cell { better: Preference::Less, is_counted: true, ..cell("ledger", case, "instructions") }
}

const CELLS: [Cell; 20] = [
    counted("4 KiB read"),
    counted("degraded 4 KiB read"),
    counted("4 KiB write, rcw"),
    counted("4 KiB write, rmw"),
    counted("4 KiB write, write-back"),
    counted("192 KiB full-stripe write"),
    cell("read", "4 KiB random read, memory members", "requests"),
    cell("read", "degraded 4 KiB random read, memory members", "requests"),
    cell("read", "192 KiB sequential read, memory members", "payload"),
    cell("read", "4 KiB random read, null members", "requests"),
    cell("read", "degraded 4 KiB random read, null members", "requests"),
    cell("write", "192 KiB full-stripe write, memory members", "payload"),
    cell("write", "4 KiB random write, memory members", "requests"),
    cell("write", "192 KiB full-stripe write, null members", "payload"),
    Cell { is_tried: true, ..cell("write", "4 KiB random write, null members", "requests") },
    cell("wait", "1 writer", "files"),
    cell("wait", "8 writers", "files"),
    Cell {
        better: Preference::Less,
        is_tried: true,
        ..cell("lookup", "16 K stripes", "hit, in turns")
    },
    cell("elevator", "null member, 1 threads", "requests"),
    Cell { is_tried: true, ..cell("elevator", "null member, 4 threads", "requests") },
];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The revision that this tree is held against
    #[arg(long, value_name = "REVISION", default_value = "HEAD")]
    against: String,
    /// Rounds of each cell
    #[arg(long, value_name = "N", default_value_t = ROUNDS_DEFAULT, value_parser = rounds)]
    rounds: usize,
    /// Only cells whose name, "SUITE: CASE", has this in it
    #[arg(long, value_name = "WORD", default_value = "", hide_default_value = true)]
    only: String,
    /// A file for what was measured
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rounds @ 1..=1000) => Ok(rounds),
        _ => Err("a number from 1 to 1000".to_owned()),
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let wanted = |cell: &&Cell| format!("{}: {}", cell.suite, cell.case).contains(&options.only);
    let cells: Vec<&Cell> = CELLS.iter().filter(wanted).collect();
    ensure!(!cells.is_empty(), "no cell has {:?} in its name", options.only);
    let hash = revision(&options.against)?;
    println!("building this tree, and {} ({})", options.against, &hash[..12]);
    let here = Program::Lab.release()?;
    let there = reference(&hash)?;
    let mut rows = Vec::new();
    for cell in cells {
        let rounds = if cell.is_counted { 1 } else { options.rounds };
        let compared = compare(cell, (&there, &here), rounds, &[])?;
        match &compared {
            None => println!("  {}: {}: the reference has no such cell", cell.suite, cell.case),
            Some(compared) => println!("{}", compared.line(cell)),
        }
        rows.extend(compared.map(|compared| compared.row(cell, &hash)));
    }
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&rows).context("rows are JSON")?;
        std::fs::write(file, text + "\n").with_context(|| file.display().to_string())?;
    }
    let moved = rows.iter().filter(|row| row["verdict"] != "same").count();
    println!("{moved} of {} cells moved beyond the noise", rows.len());
    Ok(())
}

/// Runs some cells of this tree against itself with meaninglessly little work. Returns how many.
pub(crate) fn try_out() -> Result<usize> {
    let lab = Program::Lab.dev()?;
    let tried: Vec<&Cell> = CELLS.iter().filter(|cell| cell.is_tried).collect();
    for cell in &tried {
        let compared = compare(cell, (&lab, &lab), 1, &["--small"])?;
        let compared = compared.with_context(|| format!("the lab has no {}", cell.case))?;
        println!("{}", compared.line(cell));
    }
    Ok(tried.len())
}

fn revision(words: &str) -> Result<String> {
    let root = repository_root()?;
    let mut git = Command::new("git");
    git.args(["rev-parse", "--verify", "--quiet"]).arg(format!("{words}^{{commit}}"));
    let said = git.current_dir(root).output().context("git")?;
    let hash = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    ensure!(said.status.success() && hash.len() >= 40, "git knows no revision {words:?}");
    Ok(hash)
}

/// The lab program of a revision; built unless an earlier run has built it.
fn reference(hash: &str) -> Result<PathBuf> {
    let root = repository_root()?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let folder: PathBuf = target.join("bench");
    let program = folder.join(format!("braid-lab-{}", &hash[..12]));
    if program.exists() {
        return Ok(program);
    }
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let (tree, build) = (folder.join("tree"), folder.join("build"));
    let git = |words: &[&str], tree: &Path| {
        let mut git = Command::new("git");
        git.arg("worktree").args(words).arg(tree).current_dir(&root);
        git
    };
    // An aborted run leaves the revision's worktree behind.
    let _ = git(&["remove", "--force"], &tree).output();
    succeed(git(&["add", "--quiet", "--detach"], &tree).arg(hash))?;
    let mut cargo = command(&["build", "--release", "--quiet", "--package", "braid-lab"]);
    cargo.current_dir(&tree).env("CARGO_TARGET_DIR", &build);
    let built = succeed(&mut cargo);
    succeed(&mut git(&["remove", "--force"], &tree))?;
    built.with_context(|| format!("building {hash}"))?;
    std::fs::copy(build.join("release/braid-lab"), &program).context("the lab of the reference")?;
    Ok(program)
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// The measurements of one cell, round by round.
#[derive(Debug)]
struct CellRounds {
    unit: String,
    /// Figures of each round: the reference, this tree, the reference again.
    rounds: Vec<[f64; 3]>,
    better: Preference,
}

/// Measures a cell in both programs; `None` if the reference lacks the cell.
fn compare(
    cell: &Cell,
    (there, here): (&Path, &Path),
    rounds: usize,
    words: &[&str],
) -> Result<Option<CellRounds>> {
    let (mut figures, mut unit) = (Vec::new(), String::new());
    for _ in 0..rounds {
        let mut round = [0.0; 3];
        for (figure, lab) in round.iter_mut().zip([there, here, there]) {
            match measure(cell, lab, words)? {
                Some((value, its_unit)) => (*figure, unit) = (value, its_unit),
                None if lab == there => return Ok(None),
                None => bail!("{}: {}: this tree's lab has no such cell", cell.suite, cell.case),
            }
        }
        figures.push(round);
    }
    Ok(Some(CellRounds { unit, rounds: figures, better: cell.better }))
}

fn measure(cell: &Cell, lab: &Path, words: &[&str]) -> Result<Option<(f64, String)>> {
    let folder = tempfile::tempdir().context("a folder for the rows")?;
    let file = folder.path().join("lab.json");
    let mut command = Command::new(lab);
    command.args([cell.suite, "--runs", "1", "--case", cell.case, "--json"]).arg(&file).args(words);
    let output = command.output().with_context(|| format!("{command:?}"))?;
    // The lab reports an unknown suite as an error, and leaves out an unknown case.
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("no suite is called") {
        return Ok(None);
    }
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, said.trim_end());
    let text = std::fs::read_to_string(&file).context("the lab's rows")?;
    let rows = crate::lab::rows_of(&text)?;
    // A case name such as "4 KiB read" occurs twice in the rows, once for the degraded array.
    let is_it = |row: &&Value| {
        let names = ["suite", "case", "metric", "variant"].map(|key| row[key].as_str());
        names == [Some(cell.suite), Some(cell.case), Some(cell.metric), Some("braid")]
    };
    let Some(row) = rows.iter().find(is_it) else { return Ok(None) };
    let value = row["median"].as_f64().filter(|value| *value > 0.0);
    let value = value.with_context(|| format!("a figure: {row}"))?;
    Ok(Some((value, row["unit"].as_str().unwrap_or_default().to_owned())))
}

impl CellRounds {
    /// For each round, the ratio of the trees' figures; above 1 if this tree is better.
    fn ratios(&self) -> Vec<f64> {
        let ratio = |[before, here, after]: &[f64; 3]| {
            let there = f64::midpoint(*before, *after);
            if self.better == Preference::More { here / there } else { there / here }
        };
        self.rounds.iter().map(ratio).collect()
    }

    /// The median difference between the two runs of the reference in a round.
    fn noise(&self) -> f64 {
        median(self.rounds.iter().map(|[before, _, after]| (after / before - 1.0).abs()))
    }

    fn verdict(&self) -> &'static str {
        let (ratios, noise) = (self.ratios(), self.noise());
        let by = median(ratios.iter().copied()) - 1.0;
        match () {
            () if by.abs() <= noise => "same",
            () if ratios.iter().all(|ratio| *ratio > 1.0) => "faster",
            () if ratios.iter().all(|ratio| *ratio < 1.0) => "slower",
            () => "same",
        }
    }

    fn line(&self, cell: &Cell) -> String {
        let ratios = self.ratios();
        let middle = median(ratios.iter().copied());
        let (least, most) = bounds(&ratios);
        let figure = |index: usize| median(self.rounds.iter().map(|round| round[index]));
        format!(
            "  {:<6} {middle:.3}x ({least:.3} to {most:.3}, noise {:.1} %)  {}: {}, {}: {:.4e} {unit}, was {:.4e} {unit}",
            self.verdict(),
            self.noise() * 100.0,
            cell.suite,
            cell.case,
            cell.metric,
            figure(1),
            f64::midpoint(figure(0), figure(2)),
            unit = self.unit,
        )
    }

    fn row(&self, cell: &Cell, hash: &str) -> Value {
        let ratios = self.ratios();
        let (least, most) = bounds(&ratios);
        json!({
            "suite": cell.suite, "case": cell.case, "metric": cell.metric, "unit": self.unit,
            "reference": hash, "verdict": self.verdict(), "noise": self.noise(),
            "ratio": { "median": median(ratios.iter().copied()), "min": least, "max": most },
            "rounds": self.rounds,
        })
    }
}

fn bounds(figures: &[f64]) -> (f64, f64) {
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    (least, figures.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() % 2 {
        0 => f64::midpoint(figures[middle - 1], figures[middle]),
        _ => figures[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(better: Preference, rounds: &[[f64; 3]]) -> &'static str {
        CellRounds { unit: String::new(), rounds: rounds.to_vec(), better }.verdict()
    }

    #[test]
    fn what_moved_is_told_from_noise() {
        let twice = [[100.0, 210.0, 104.0], [90.0, 185.0, 95.0], [120.0, 230.0, 110.0]];
        assert_eq!(verdict(Preference::More, &twice), "faster");
        assert_eq!(verdict(Preference::Less, &twice), "slower");
        let noise = [[100.0, 104.0, 110.0], [90.0, 85.0, 99.0], [120.0, 130.0, 110.0]];
        assert_eq!(verdict(Preference::More, &noise), "same", "rounds do not agree");
        let small = [[100.0, 107.0, 110.0], [100.0, 107.0, 112.0], [100.0, 108.0, 110.0]];
        assert_eq!(
            verdict(Preference::More, &small),
            "same",
            "the reference moves as much by itself"
        );
        // The machine slows down steadily: this tree equals the mean of the reference runs before
        // and after it.
        let drift = [[120.0, 100.0, 80.0], [120.0, 101.0, 80.0], [120.0, 99.0, 80.0]];
        assert_eq!(verdict(Preference::More, &drift), "same");
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }

    #[test]
    fn a_revision_that_is_not_there_is_refused() {
        let refused = revision("no-such-revision").expect_err("there is none");
        assert_eq!(refused.to_string(), "git knows no revision \"no-such-revision\"");
        let refused = revision("--help").expect_err("it is no revision");
        assert_eq!(refused.to_string(), "git knows no revision \"--help\"");
    }
}
