//! `braid-sim planted`: hunts each planted bug until the simulator notices it.
//!
//! Needs a build with `--cfg braid_sim_hooks`. A hunt runs random worlds, seed after seed, and then
//! chapters: named groups of stories (scripted worlds), then the histories and the small worlds. If
//! `TOLD` names a chapter for a bug, the hunt begins with that chapter. The file in which the code
//! panics says which part noticed the bug: a checker, the model, or the product.

use std::cell::LazyCell;
use std::fmt::{Display, Formatter};
use std::panic::{PanicHookInfo, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use braid_sim::small::{self, Bounds};
use braid_sim::{Settings, histories, simulate, stories};
use braid_sim_hooks::Bug;

const HOW: &str = "this build has no hooks; with them:\n  \
    RUSTFLAGS=\"--cfg braid_sim_hooks\" cargo run --release -p braid-sim --target-dir target/hooks -- planted";
const CYCLES: u64 = 20;
/// How many seeds a hunt tries for each bug, unless `--seeds` says otherwise.
const SEEDS_DEFAULT: u64 = 8_000;
/// Histories that a hunt tries for each bug.
const HISTORIES: u64 = 500;
/// Bugs that random worlds hardly ever reach, and for each the chapter whose stories notice it.
const TOLD: &[(Bug, &str)] = &[
    (Bug::AheadBeforeMade, "ahead"),
    (Bug::BadBlockClearedEarly, "unmade"),
    (Bug::BadRecordsMovedAtOnce, "named"),
    (Bug::BitsClearedDegraded, "bitmaps"),
    (Bug::BorderAhead, "reshape-rare"),
    (Bug::BorderNotResumed, "reshape"),
    (Bug::BorderWrongSide, "reshape-lost"),
    (Bug::CheckRepairs, "repair"),
    (Bug::ClaimedJoins, "hosts"),
    (Bug::ClearedAtOldPlace, "reshape-lost"),
    (Bug::ClearedSinceIgnored, "bitmaps"),
    (Bug::CopyFailureIgnored, "reshape-rare"),
    (Bug::CopyForgotten, "reshape-rare"),
    (Bug::CoverNotCached, "answered"),
    (Bug::DoubtWhole, "losses"),
    (Bug::DrainForgotten, "hosts"),
    (Bug::EarlierUnawaited, "reshape-lost"),
    (Bug::EndForgetsMove, "reshape-lost"),
    (Bug::EpochOwnerIgnored, "hosts"),
    (Bug::FailedPieceMoved, "reshape-lost"),
    (Bug::FenceUndrained, "hosts"),
    (Bug::GivenUpUnswapped, "hosts"),
    (Bug::InPlaceBehindRisk, "reshape-rare"),
    (Bug::InPlaceUnseen, "reshape"),
    (Bug::InconsistencyForgotten, "losses"),
    (Bug::JournalFreedUnflushed, "parity-logs"),
    (Bug::JournalFreedUnsaid, "journals"),
    (Bug::JournalSequenceIgnored, "replays"),
    (Bug::JournalTailDegraded, "replays"),
    (Bug::JournalUnawaited, "journals"),
    (Bug::JournalUnsealed, "replays"),
    (Bug::KnownIgnored, "histories"),
    (Bug::LargerPartInSync, "reshape"),
    (Bug::LastRowUnzeroed, "reshape"),
    (Bug::LastWindowUnmoved, "reshape-lost"),
    (Bug::LeaseOfLast, "hosts"),
    (Bug::LeaseOff, "hosts"),
    (Bug::LeaseUnawaited, "hosts"),
    (Bug::LogNamedUnmade, "log-changes"),
    (Bug::LogsUnawaited, "unmade"),
    (Bug::LostFileCounts, "bitmap-files"),
    (Bug::LostInDoubt, "reshape-lost"),
    (Bug::LostMisplaced, "reshape-lost"),
    (Bug::LostParityUnnamed, "reshape-lost"),
    (Bug::LostReadsOld, "losses"),
    (Bug::LostSectorsUnsaid, "reshape-lost"),
    (Bug::LostSwapIgnored, "hosts"),
    (Bug::LostUnawaited, "reshape-torn"),
    (Bug::LostUntold, "reshape-lost"),
    (Bug::LowerClaimCounts, "hosts"),
    (Bug::MarkUnwritten, "hosts"),
    (Bug::NewPartUnwritten, "reshape-lost"),
    (Bug::NewcomerStaysPut, "reshape-lost"),
    (Bug::NonceIgnored, "hosts"),
    (Bug::OldEpochServed, "hosts"),
    (Bug::OldFileBelieved, "bitmap-files"),
    (Bug::OldReleaseBelieved, "hosts"),
    (Bug::OldShapeMends, "reshape-lost"),
    (Bug::OlderSessionServed, "hosts"),
    (Bug::PendingSwapIgnored, "hosts"),
    (Bug::PositionAhead, "reshape-lost"),
    (Bug::PositionUnflushed, "reshape-lost"),
    (Bug::PplChecksumIgnored, "replays"),
    (Bug::ReadsInPlaceUnheld, "reshape"),
    (Bug::RecordIgnored, "hosts"),
    (Bug::RefusalIgnored, "hosts"),
    (Bug::RepairLetsBatchBegin, "repair"),
    (Bug::RepairUnverified, "repair"),
    (Bug::RepairWritesParity, "repair"),
    (Bug::ReplacementMisses, "replacements"),
    (Bug::ReplacementNotWritten, "replacements"),
    (Bug::ReplacementTrusted, "replacements"),
    (Bug::ReplacesEarly, "replacements"),
    (Bug::ReplayForgetsPartial, "replays"),
    (Bug::ReplaySettlesDegraded, "replays"),
    (Bug::ReplaySkippedDegraded, "replays"),
    (Bug::SettledUnswapped, "hosts"),
    (Bug::ShapeReportedEarly, "reshape-lost"),
    (Bug::SlotsEndEarly, "reshape"),
    (Bug::SmallerThanUsed, "reshape"),
    (Bug::SpareKeepsShape, "reshape-rare"),
    (Bug::StaleCacheFile, "answered"),
    (Bug::StoreWentBackIgnored, "hosts"),
    (Bug::StuckWindowServed, "reshape-rare"),
    (Bug::SwapForced, "hosts"),
    (Bug::TakeOverKeepsLayout, "reshape"),
    (Bug::TooFewClaimed, "hosts"),
    (Bug::TornBeginKept, "reshape-rare"),
    (Bug::TornEndOldStart, "reshape"),
    (Bug::TornPositionKept, "reshape-torn"),
    (Bug::TurnBeyondSize, "reshape"),
    (Bug::TurnForgetsOffset, "reshape-torn"),
    (Bug::TurnForgetsPosition, "reshape-lost"),
    (Bug::TurnMidWindow, "reshape"),
    (Bug::UnclaimedKept, "hosts"),
    (Bug::TurnWithinRow, "reshape-rare"),
    (Bug::UnmadeForgotten, "parity-logs"),
    (Bug::UnsyncedNotRecovered, "lockless"),
    (Bug::VoteOfTwo, "repair"),
    (Bug::WeakEvidenceBelieved, "repair"),
    (Bug::WindowTooLong, "reshape-lost"),
    (Bug::WindowTooLow, "reshape"),
    (Bug::WindowUnheld, "reshape-lost"),
];

/// Bounds of the small worlds, the last chapter of a hunt.
const SMALL: Bounds =
    Bounds { tellings_max: 1, failures_max: 1, states_max: 1, part: (0, 12), ..Bounds::ALL };

/// The source file and the message of the last panic.
static NOTICED: Mutex<Option<(String, String)>> = Mutex::new(None);

/// The bugs to hunt, and the limits.
struct Hunt {
    seeds: u64,
    from: u64,
    /// Time limit for all bugs together.
    limit: Option<Duration>,
    /// `(first, n)`: takes every n-th bug or chapter from `first` on, so that several processes
    /// share the list.
    part: (u64, u64),
    /// Hunts only the bug with this name.
    name: Option<String>,
    /// Another process runs the control (the chapters without a planted bug).
    is_controlled: bool,
    /// Runs only the control: the part's chapters, without a planted bug.
    is_control: bool,
}

impl Hunt {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut hunt = Self {
            seeds: SEEDS_DEFAULT,
            from: 0,
            limit: None,
            part: (0, 1),
            name: None,
            is_controlled: false,
            is_control: false,
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--controlled" => {
                    hunt.is_controlled = true;
                    continue;
                }
                "--control" => {
                    hunt.is_control = true;
                    continue;
                }
                _ => {}
            }
            let next = words.next().unwrap_or_default();
            let number = || next.parse().map_err(|_| format!("{word} needs a number"));
            match word.as_str() {
                "--seeds" => hunt.seeds = number()?,
                "--from" => hunt.from = number()?,
                "--seconds" => hunt.limit = Some(Duration::from_secs(number()?)),
                "--bug" => hunt.name = Some(next),
                "--part" => {
                    let part = next.split_once('/');
                    let part = part.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
                    hunt.part = part.ok_or("--part needs two numbers, as in 0/2")?;
                }
                _ => return Err(format!("unknown word {word}")),
            }
        }
        Ok(hunt)
    }

    fn bugs(&self) -> Vec<Bug> {
        let (part, parts) = self.part;
        let ours = (0u64..).zip(Bug::ALL).filter(|(at, _)| at % parts == part);
        let named = |bug: &Bug| self.name.as_ref().is_none_or(|name| name == bug.name());
        ours.map(|(_, bug)| *bug).filter(named).collect()
    }
}

struct Catch {
    by: String,
    words: String,
    source: CatchSource,
    cycles: u64,
}

#[derive(Clone, Copy)]
enum CatchSource {
    /// Random worlds noticed the bug; the failing one has this seed.
    Seed(u64),
    Chapter(&'static str),
}

impl Display for CatchSource {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Seed(seed) => formatter.pad(&seed.to_string()),
            Self::Chapter(name) => formatter.pad(name),
        }
    }
}

/// Hunts the planted bugs and prints a table that says what caught each.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<(), String> {
    let hunt = Hunt::parse(words)?;
    if !braid_sim_hooks::ARE_HERE {
        return Err(HOW.to_owned());
    }
    std::panic::set_hook(Box::new(note));
    // The first world makes the process choose its parity kernel, by a self-test. The self-test
    // must run before a bug is planted, because a planted bug would make it fail.
    assert!((0..10).all(holds_without), "worlds hold without a planted bug");
    if hunt.is_control {
        let holds = holds_without(1) && catch_unwind(|| told(hunt.part)).is_ok();
        let failed = || {
            let noticed = NOTICED.lock().expect("no thread panics while holding it").take();
            let (file, words) = noticed.unwrap_or_default();
            Err(format!("the stories fail without a planted bug: {file}: {words}"))
        };
        return if holds { Ok(()) } else { failed() };
    }
    let began = Instant::now();
    let is_late = || hunt.limit.is_some_and(|limit| began.elapsed() >= limit);
    let bugs = hunt.bugs();
    let mut free = Vec::new();
    // One control serves all bugs that a chapter caught. World 1 runs first, because it switches on
    // rare choices, as the worlds of a hunt do.
    let control =
        || hunt.is_controlled || holds_without(1) && catch_unwind(|| told((0, 1))).is_ok();
    let told_holds = LazyCell::new(control);
    println!(
        "{:<24} {:<12} {:>12} {:>8} {:>7}  it said",
        "planted bug", "caught by", "seed", "cycles", "seconds"
    );
    for bug in &bugs {
        let planted = Instant::now();
        braid_sim_hooks::plant(Some(*bug));
        let catch = hunt_one(*bug, &hunt, &is_late);
        let harm = braid_sim_hooks::visits().planted;
        braid_sim_hooks::plant(None);
        match catch {
            Some(Catch { source: CatchSource::Seed(seed), .. })
                if harm == 0 || !holds_without(seed) =>
            {
                println!("{:<24} seed {seed} fails without it, too (met {harm} times)", bug.name());
                free.push(bug.name());
            }
            Some(Catch { source: CatchSource::Chapter(_), .. }) if harm == 0 || !*told_holds => {
                println!("{:<24} the stories fail without it, too (met {harm} times)", bug.name());
                free.push(bug.name());
            }
            Some(Catch { by, words, source, cycles }) => {
                let seconds = planted.elapsed().as_secs_f64();
                let bug = bug.name();
                println!("{bug:<24} {by:<12} {source:>12} {cycles:>8} {seconds:>7.1}  {words}");
            }
            None => {
                println!("{:<24} NOT CAUGHT (met {harm} times): {}", bug.name(), bug.text());
                free.push(bug.name());
            }
        }
    }
    let _ = std::panic::take_hook();
    println!("{:>12} planted bugs caught of {}", bugs.len() - free.len(), bugs.len());
    println!("{:>12.1} seconds", began.elapsed().as_secs_f64());
    if free.is_empty() { Ok(()) } else { Err(format!("not caught: {}", free.join(", "))) }
}

/// Hunts with random worlds, then with the chapters. If `TOLD` names a chapter for the bug, that
/// chapter comes first, then the other chapters, then random worlds. The order only saves time.
fn hunt_one(bug: Bug, hunt: &Hunt, is_late: &dyn Fn() -> bool) -> Option<Catch> {
    let mut cycles = 0;
    let told = TOLD.iter().find(|(told, _)| *told == bug).map(|(_, chapter)| *chapter);
    let mut drawn = || hunt_seeds(hunt.from..hunt.from + hunt.seeds, is_late, &mut cycles);
    let Some(its_own) = told else {
        return drawn().or_else(|| chapters().find_map(hunt_chapter));
    };
    let (own, others): (Vec<_>, Vec<_>) = chapters().partition(|(name, _)| *name == its_own);
    own.into_iter().chain(others).find_map(hunt_chapter).or_else(drawn)
}

fn chapters() -> impl Iterator<Item = (&'static str, fn())> {
    let others: [(&str, fn()); 2] = [
        ("histories", || (0..HISTORIES).for_each(|seed| _ = histories::explore(seed))),
        ("small", || _ = small::explore(&SMALL)),
    ];
    stories::CHAPTERS.iter().copied().chain(others)
}

fn hunt_chapter((name, tell): (&'static str, fn())) -> Option<Catch> {
    // A random world may have left rare choices of the engine switched on, which would change the
    // steps of a story.
    braid_sim_hooks::steady();
    catch_unwind(tell).err().map(|_| caught(CatchSource::Chapter(name), 0))
}

/// The control for chapters: runs every `parts`-th chapter. The caller has planted no bug.
fn told((part, parts): (u64, u64)) {
    braid_sim_hooks::steady();
    for (name, tell) in (0..).zip(chapters()).filter(|(at, _)| at % parts == part).map(|it| it.1) {
        let began = Instant::now();
        tell();
        println!("{name:<24} {:>8.1} seconds", began.elapsed().as_secs_f64());
    }
}

fn hunt_seeds(
    seeds: std::ops::Range<u64>,
    is_late: &dyn Fn() -> bool,
    cycles: &mut u64,
) -> Option<Catch> {
    for seed in seeds.take_while(|_| !is_late()) {
        match catch_unwind(|| simulate(&settings(seed))) {
            Ok(report) => *cycles += report.tally.cycles,
            Err(_) => return Some(caught(CatchSource::Seed(seed), *cycles)),
        }
    }
    None
}

fn settings(seed: u64) -> Settings {
    Settings { seed, cycles: CYCLES, is_shaken: seed % 2 == 1, ..Settings::default() }
}

/// The control for a seed: whether its world passes. The caller has planted no bug.
fn holds_without(seed: u64) -> bool {
    catch_unwind(|| simulate(&settings(seed))).is_ok()
}

/// Describes a catch, and names the checker by the file of the panic in `NOTICED`.
fn caught(source: CatchSource, cycles: u64) -> Catch {
    let noticed = NOTICED.lock().expect("no thread panics while holding it").take();
    let (file, words) = noticed.unwrap_or_default();
    // The path is `crates/GROUP/CRATE/src/...`.
    let path: Vec<&str> = file.split(['/', '.']).skip(2).collect();
    let by = match path[..] {
        ["sim", "src", "checker", checker, ..] => checker,
        ["sim", "src", "world", ..] => "liveness",
        ["sim", "src", room, ..] => room,
        [product, ..] => product,
        [] => "",
    };
    let words = words.lines().next().unwrap_or_default().chars().take(70).collect();
    Catch { by: by.to_owned(), words, source, cycles }
}

fn note(panic: &PanicHookInfo<'_>) {
    let file = panic.location().map_or("", |location| location.file());
    let payload = panic.payload();
    let words = payload.downcast_ref::<String>().map(String::as_str);
    let words = words.or(payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    let mut noticed = NOTICED.lock().expect("no thread panics while holding it");
    *noticed = Some((file.to_owned(), words.to_owned()));
}
