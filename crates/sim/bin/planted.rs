//! `braid-sim planted`: every planted bug in turn, until the simulator notices it.
//!
//! Only in a build with `--cfg braid_hooks`. Random worlds first, seed after seed; then the stories, histories and the small
//! worlds; then more random ones. Who noticed is known by the file that panicked: a checker, the model, or an assertion of the
//! product itself.

use std::cell::LazyCell;
use std::panic::{PanicHookInfo, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use braid_hooks::Bug;
use braid_sim::small::{self, Bounds};
use braid_sim::{Settings, histories, simulate, stories};

/// How to build what can plant.
const HOW: &str = "this build has no hooks; with them:\n  \
    RUSTFLAGS=\"--cfg braid_hooks\" cargo run --release -p braid-sim --target-dir target/hooks -- planted";
/// Cycles of one world.
const CYCLES: u64 = 20;
/// Seeds until a bug counts as not caught, unless `--seeds` says otherwise.
const SEEDS_DEFAULT: u64 = 8_000;
/// Seeds before the small worlds.
const SEEDS_FIRST: u64 = 1000;
/// Histories of who is believed, after them.
const HISTORIES: u64 = 500;
/// Bugs that random worlds do not meet, or hardly ever.
const TOLD: &[Bug] = &[
    Bug::AheadBeforeMade,
    Bug::AheadTooLong,
    Bug::BadBlockClearedEarly,
    Bug::BadBlockStays,
    Bug::BadBlocksUntold,
    Bug::BadRecordsMovedAtOnce,
    Bug::BadRecordsRepacked,
    Bug::BitsClearedDegraded,
    Bug::CheckRepairs,
    Bug::ClearedSinceIgnored,
    Bug::CopyOfAnother,
    Bug::DirtyReferenceForgotten,
    Bug::DoubtUncut,
    Bug::DoubtWhole,
    Bug::FailedBatchBelieved,
    Bug::FileWrittenOn,
    Bug::GuessesAmongTwo,
    Bug::HeldIsGivenUp,
    Bug::InconsistencyForgotten,
    Bug::JobFlushesOwnOnly,
    Bug::JournalBaseForgotten,
    Bug::JournalChecksumIgnored,
    Bug::JournalEndLeft,
    Bug::JournalFailureIgnored,
    Bug::JournalFlushBelieved,
    Bug::JournalFreedAfterClosing,
    Bug::JournalFreedUnflushed,
    Bug::JournalFreedUnsaid,
    Bug::JournalKeyForgotten,
    Bug::JournalMissingIsZero,
    Bug::JournalNamedUnmade,
    Bug::JournalOldestCounts,
    Bug::JournalOverrun,
    Bug::JournalParityForgotten,
    Bug::JournalParityLeftOut,
    Bug::JournalSealedFirst,
    Bug::JournalSequenceIgnored,
    Bug::JournalSequenceStays,
    Bug::JournalTailDegraded,
    Bug::JournalTailUnflushed,
    Bug::JournalToldFirst,
    Bug::JournalUnawaited,
    Bug::JournalUnsealed,
    Bug::KnownIgnored,
    Bug::LogHeadForgotten,
    Bug::LogHeadLeft,
    Bug::LogNamedUnmade,
    Bug::LogsUnawaited,
    Bug::LossReportedOnce,
    Bug::LossesOneByOne,
    Bug::LostFileCounts,
    Bug::LostForGood,
    Bug::LostLogWaits,
    Bug::LostReadsOld,
    Bug::MadeBitmapForgetsDoubt,
    Bug::MadeBitmapReachesBack,
    Bug::NamedIsLeft,
    Bug::OldFileBelieved,
    Bug::OldParityBelieved,
    Bug::OneExtentRead,
    Bug::OthersStayNamed,
    Bug::PartLossUnreported,
    Bug::PplChecksumIgnored,
    Bug::PplEndMissed,
    Bug::PplOldestBelieved,
    Bug::RepairIgnoresBatch,
    Bug::RepairKeepsBlocks,
    Bug::RepairLetsBatchBegin,
    Bug::RepairUnverified,
    Bug::RepairWritesParity,
    Bug::ReplacementIsWhole,
    Bug::ReplacementMisses,
    Bug::ReplacementNotWritten,
    Bug::ReplacementStays,
    Bug::ReplacementTrusted,
    Bug::ReplacementUnflushed,
    Bug::ReplacesEarly,
    Bug::ReplayCountsTwice,
    Bug::ReplayForgetsPartial,
    Bug::ReplayMissingIsZero,
    Bug::ReplayParitySlot,
    Bug::ReplayPartStartsOver,
    Bug::ReplayPastRange,
    Bug::ReplayReadErrorIgnored,
    Bug::ReplaySettlesDegraded,
    Bug::ReplaySkippedDegraded,
    Bug::ReplayUnflushed,
    Bug::ReplayVoidsEarly,
    Bug::SaidOnce,
    Bug::SolvedUnchecked,
    Bug::StaleBitmapMadeAtOnce,
    Bug::StaleMarksSynced,
    Bug::UnmadeForgotten,
    Bug::UnmendedForgotten,
    Bug::UnmendedIsLost,
    Bug::UnsyncedCompared,
    Bug::UnsyncedNotRecovered,
    Bug::UnwrittenNotSkipped,
    Bug::UpdateTimeIgnored,
    Bug::VoteOfTwo,
    Bug::WeakEvidenceBelieved,
];

/// What of the small worlds is tried after the random ones found nothing.
const SMALL: Bounds =
    Bounds { tellings_max: 1, failures_max: 1, states_max: 1, part: (0, 12), ..Bounds::ALL };

/// The last panic: file and words.
static NOTICED: Mutex<Option<(String, String)>> = Mutex::new(None);

/// Which bugs, and how long each is looked for.
struct Hunt {
    /// Seeds for each bug.
    seeds: u64,
    from: u64,
    /// For all of them together.
    limit: Option<Duration>,
    /// Only every so manieth bug, from which on: several processes share the list.
    part: (u64, u64),
    /// Only this one.
    name: Option<String>,
    /// Another process has told the stories with nothing planted.
    is_controlled: bool,
    /// Nothing is hunted: the stories are told with nothing planted.
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

/// A bug that was noticed.
struct Catch {
    by: String,
    words: String,
    /// The seed, or none for the small worlds.
    seed: Option<u64>,
    cycles: u64,
}

/// Hunts the bugs and prints the table.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Result<(), String> {
    let hunt = Hunt::parse(words)?;
    if !braid_hooks::ARE_HERE {
        return Err(HOW.to_owned());
    }
    std::panic::set_hook(Box::new(note));
    // A process chooses its parity kernel once, by a test of itself, which a bug planted there fails for all that follow.
    assert!((0..10).all(holds_without), "nothing is planted yet");
    if hunt.is_control {
        let holds = holds_without(1) && catch_unwind(told).is_ok();
        let failed = || Err("the stories fail with nothing planted".to_owned());
        return if holds { Ok(()) } else { failed() };
    }
    let began = Instant::now();
    let is_late = || hunt.limit.is_some_and(|limit| began.elapsed() >= limit);
    let bugs = hunt.bugs();
    let mut free = Vec::new();
    // The control of what is caught without a seed, made once, after worlds with rare choices as all hunts are.
    let control = || hunt.is_controlled || holds_without(1) && catch_unwind(told).is_ok();
    let told_holds = LazyCell::new(control);
    println!("{:<24} {:<12} {:>8} {:>8}  it said", "planted bug", "caught by", "seed", "cycles");
    for bug in &bugs {
        braid_hooks::plant(Some(*bug));
        let catch = hunt_one(*bug, &hunt, &is_late);
        let harm = braid_hooks::visits().planted;
        braid_hooks::plant(None);
        match catch {
            Some(Catch { seed: Some(seed), .. }) if harm == 0 || !holds_without(seed) => {
                println!("{:<24} seed {seed} fails without it (met {harm} times)", bug.name());
                free.push(bug.name());
            }
            Some(Catch { seed: None, .. }) if harm == 0 || !*told_holds => {
                println!("{:<24} the stories fail without it (met {harm} times)", bug.name());
                free.push(bug.name());
            }
            Some(Catch { by, words, seed, cycles }) => {
                let seed = seed.map_or("small".to_owned(), |seed| seed.to_string());
                println!("{:<24} {by:<12} {seed:>8} {cycles:>8}  {words}", bug.name());
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

/// Random worlds, then the stories and small worlds, then more random worlds. What is known to be met in stories only is looked for
/// there first: that is a matter of time, and changes nothing of who is noticed.
fn hunt_one(bug: Bug, hunt: &Hunt, is_late: &dyn Fn() -> bool) -> Option<Catch> {
    let mut cycles = 0;
    let first = if TOLD.contains(&bug) { 0 } else { hunt.seeds.min(SEEDS_FIRST) };
    hunt_seeds(hunt.from..hunt.from + first, is_late, &mut cycles).or_else(|| {
        match catch_unwind(told) {
            Ok(()) => hunt_seeds(hunt.from + first..hunt.from + hunt.seeds, is_late, &mut cycles),
            Err(_) => Some(caught(None, cycles)),
        }
    })
}

/// The stories, histories and small worlds.
fn told() {
    stories::tell();
    (0..HISTORIES).for_each(|seed| _ = histories::explore(seed));
    _ = small::explore(&SMALL);
}

fn hunt_seeds(
    seeds: std::ops::Range<u64>,
    is_late: &dyn Fn() -> bool,
    cycles: &mut u64,
) -> Option<Catch> {
    for seed in seeds.take_while(|_| !is_late()) {
        match catch_unwind(|| simulate(&settings(seed))) {
            Ok(report) => *cycles += report.tally.cycles,
            Err(_) => return Some(caught(Some(seed), *cycles)),
        }
    }
    None
}

fn settings(seed: u64) -> Settings {
    Settings { seed, cycles: CYCLES, is_shaken: seed % 2 == 1, ..Settings::default() }
}

/// The control: the seed that caught a bug holds when nothing is planted.
fn holds_without(seed: u64) -> bool {
    catch_unwind(|| simulate(&settings(seed))).is_ok()
}

/// Who noticed, from the panic that was noted.
fn caught(seed: Option<u64>, cycles: u64) -> Catch {
    let noticed = NOTICED.lock().expect("no thread panics while holding it").take();
    let (file, words) = noticed.unwrap_or_default();
    let place: Vec<&str> = file.trim_start_matches("crates/").split(['/', '.']).collect();
    let by = match place[..] {
        ["sim", "src", "checker", checker, ..] => checker,
        ["sim", "src", "world", ..] => "liveness",
        ["sim", "src", room, ..] => room,
        [product, ..] => product,
        [] => "",
    };
    let words = words.lines().next().unwrap_or_default().chars().take(70).collect();
    Catch { by: by.to_owned(), words, seed, cycles }
}

fn note(panic: &PanicHookInfo<'_>) {
    let file = panic.location().map_or("", |location| location.file());
    let payload = panic.payload();
    let words = payload.downcast_ref::<String>().map(String::as_str);
    let words = words.or(payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    let mut noticed = NOTICED.lock().expect("no thread panics while holding it");
    *noticed = Some((file.to_owned(), words.to_owned()));
}
