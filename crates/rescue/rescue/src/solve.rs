//! `braid rescue --solve`: finds out how members with lost superblocks were put together, from
//! their content.
//!
//! The guesses are shown with their evidence. If one guess is certain, or the operator has chosen
//! one, members get superblocks in memory that describe this guess; the members themselves are not
//! written. After that the array is handled as one with superblocks.
//!
//! ```text
//!   members ─▶ braid_solver ─▶ guesses, ranked
//!     ├─▶ one is certain, or chosen ─▶ superblocks in memory ─▶ look, serve, commit
//!     └─▶ else they are shown, and the next command
//! ```
//!
//! Invariants:
//! - without a choice by the operator, only a certain guess is used
//!   `[check: what_is_not_certain_is_shown_and_not_gone_on_with]`;
//! - the same members give the same array, with the same UUID, every time: so its overlay is found
//!   again `[check: lost_superblocks_are_solved_and_the_array_is_read]`;
//! - a commit also writes the superblocks, and `braid undo` removes them
//!   `[check: what_was_solved_is_committed_and_taken_back]`.

use crc32c::crc32c_append;
use serde_json::{Value, json};

use super::config::RescueConfig;
use super::disks::{Disk, Disks};
use super::memory_superblock::{MemorySuperblock, in_front, roles};
use super::superblock_guesses::{guesses, platters};
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::printable::printable;
use braid_console::output::size::format_size;
use braid_console::output::table::{Align, Table};
use braid_discovery::status::words::level_word;
use braid_geometry::{Family, Level, SECTOR_BYTES, layout_name};
use braid_solver::{Belief, Effort, Guess, Platter, Solution, solve, with_superblock_guesses};

/// The number of pages per member that identify the array: this many near the start of the data,
/// and as many spread all over the data.
const SAMPLES: u64 = 64;
const PAGE_BYTES: usize = 4096;
/// The name given to an array whose own name is lost.
const NAME: &str = "rescued";

pub(super) struct SolveResult {
    solution: Solution,
    labels: Vec<String>,
    chosen: Option<usize>,
    /// Guesses from superblocks, if some superblocks still exist.
    superblock_guesses: Vec<Guess>,
}

pub(super) fn look(args: &RescueConfig, disks: &Disks) -> Result<SolveResult, CliError> {
    let members = platters(&disks.all);
    let members: Vec<&dyn Platter> = members.iter().map(|it| it as &dyn Platter).collect();
    let solution = solve(&members, &Effort::default());
    let superblock_guesses = guesses(&disks.all, &disks.remnants);
    let solution = match superblock_guesses.is_empty() {
        true => solution,
        false => with_superblock_guesses(
            solution,
            &members,
            &Effort::default(),
            superblock_guesses.clone(),
        ),
    };
    let labels = disks.all.iter().map(|disk| disk.label.clone()).collect();
    let chosen = match args.guess {
        None => (solution.belief == Belief::Certain).then_some(0),
        Some(number) => {
            let count = solution.guesses.len();
            let index = number.checked_sub(1).filter(|index| *index < count);
            Some(index.ok_or_else(|| {
                CliError::new(Code::Usage, format!("there is no guess {number}"))
                    .because(format!("{count} were made"))
                    .remedy(Risk::Look, "See what was found", args.command("--solve"))
            })?)
        }
    };
    Ok(SolveResult { solution, labels, chosen, superblock_guesses })
}

impl SolveResult {
    pub(super) fn chosen(&self) -> Option<&Guess> {
        self.chosen.map(|index| &self.solution.guesses[index])
    }

    pub(super) fn refused(&self, args: &RescueConfig) -> CliError {
        let look = args.command_for(None, "--solve");
        let error = match self.solution.guesses.is_empty() {
            true => CliError::new(
                Code::NotSolved,
                "the layout of these members could not be found",
            )
            .because(
                "no file system, table or volume was found on them whose parts have addresses",
            ),
            false => CliError::new(Code::NotSolved, "the layout of these members is not certain")
                .because("choose one of the guesses with --guess"),
        };
        error.remedy(Risk::Look, "See what was found", look)
    }

    fn next(&self, args: &RescueConfig) -> String {
        match self.solution.guesses.is_empty() {
            true => "  Nothing on them has an address. Name all members; encrypted data tells \
                     nothing.\n"
                .to_owned(),
            false => format!(
                "\nNext\n  Look at what the first would give; nothing is written:\n    {}\n",
                printable(&args.command("--solve --guess 1"))
            ),
        }
    }

    pub(super) fn to_text(&self, args: &RescueConfig) -> String {
        let solution = &self.solution;
        let mut text = String::from("How these members were put together, from their contents\n");
        let volumes = solution.volumes.iter().map(|volume| {
            format!("{} of {}", volume.kind.name(), format_size(volume.size_sectors * SECTOR_BYTES))
        });
        let volumes: Vec<String> = volumes.collect();
        if !volumes.is_empty() {
            let (signs, volumes) = (solution.signs, volumes.join(", "));
            text += &format!("  {signs} places tell their own address: {volumes}\n");
        }
        if solution.unreadable_sectors > 0 {
            text += &format!("  {} sectors could not be read\n", solution.unreadable_sectors);
        }
        if solution.guesses.is_empty() {
            return text + &self.next(args);
        }
        let mut table = Table::new(&[
            ("", Align::Right),
            ("array", Align::Left),
            ("members, by slot", Align::Left),
            ("data from", Align::Right),
            ("addresses", Align::Right),
            ("found there", Align::Right),
            ("agree", Align::Right),
        ]);
        for (number, guess) in (1..).zip(&solution.guesses) {
            table.row(
                [
                    number.to_string(),
                    shape_words(guess),
                    self.slots_words(guess),
                    from_words(guess),
                ]
                .into_iter()
                .chain(evidence_words(guess)),
            );
        }
        text += &table.render("  ");
        let told =
            solution.guesses.iter().zip(1..).filter(|(guess, _)| self.is_from_superblocks(guess));
        let told: Vec<String> = told.map(|(_, number)| number.to_string()).collect();
        if !told.is_empty() {
            text += &format!("  remains of superblocks confirm it: {}\n", told.join(", "));
        }
        text += match (self.chosen, solution.belief) {
            (Some(0), Belief::Certain) => {
                "  the first is certain: nothing else explains nearly as much\n"
            }
            (Some(_), _) => "  continuing with the chosen one\n",
            (None, _) => "  none of them is certain\n",
        };
        if self.chosen.is_none() {
            text += &self.next(args);
        }
        text
    }

    /// Whether the superblocks give the same guess as the content.
    fn is_from_superblocks(&self, guess: &Guess) -> bool {
        let shape = |guess: &Guess| {
            let shape = (guess.level, guess.layout, guess.chunk_sectors);
            (shape, guess.slots.clone(), guess.offsets.clone())
        };
        self.superblock_guesses.iter().any(|one| shape(one) == shape(guess))
    }

    fn slots_words(&self, guess: &Guess) -> String {
        let slots = guess.slots.iter().map(|slot| match slot {
            Some(member) => printable(&self.labels[*member]).into_owned(),
            None => "missing".to_owned(),
        });
        slots.collect::<Vec<_>>().join(" ")
    }

    pub(super) fn to_json(&self) -> Value {
        let guesses = self.solution.guesses.iter().map(|guess| {
            let evidence = guess.evidence;
            json!({
                "level": guess.level.name(),
                "layout": guess.layout,
                "chunk_sectors": guess.chunk_sectors,
                "slots": guess.slots.iter().map(|it| it.map(|it| &self.labels[it])).collect::<Vec<_>>(),
                "data_offset_sectors": guess.offsets,
                "addresses_explained": evidence.explained,
                "addresses": evidence.addresses,
                "predictions_found": evidence.confirmed,
                "predictions_missed": evidence.refuted,
                "places_agreeing": evidence.agreeing,
                "places_compared": evidence.compared,
                "superblocks_say_so": self.is_from_superblocks(guess),
            })
        });
        json!({
            "is_certain": self.solution.belief == Belief::Certain,
            "signs": self.solution.signs,
            "unreadable_sectors": self.solution.unreadable_sectors,
            "guesses": guesses.collect::<Vec<_>>(),
            "chosen": self.chosen.map(|index| index + 1),
        })
    }
}

fn shape_words(guess: &Guess) -> String {
    let says_layout = guess.level != Level::Raid0 || guess.is_zoned();
    let layout = layout_name(guess.level, guess.layout).filter(|_| says_layout);
    let chunk = (guess.chunk_sectors > 0)
        .then(|| format!("chunk {}", format_size(u64::from(guess.chunk_sectors) * SECTOR_BYTES)));
    let words = [Some(level_word(guess.level.name()).to_owned()), layout, chunk];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn from_words(guess: &Guess) -> String {
    let mut offsets = guess.offsets.clone();
    offsets.sort_unstable();
    offsets.dedup();
    match offsets.as_slice() {
        [] => String::new(),
        [one] => format!("sector {one}"),
        [first, .., last] => format!("sectors {first} to {last}"),
    }
}

fn evidence_words(guess: &Guess) -> [String; 3] {
    let it = guess.evidence;
    let of = |part: usize, all: usize| match all {
        0 => "-".to_owned(),
        all => format!("{part} of {all}"),
    };
    [
        of(it.explained, it.addresses),
        of(it.confirmed, it.confirmed + it.refuted),
        of(it.agreeing, it.compared),
    ]
}

/// The disks, with superblocks in memory that describe this guess.
pub(super) fn with_superblocks(guess: &Guess, disks: Disks) -> Result<Disks, CliError> {
    let uuid = uuid(guess, &disks);
    let all = disks.all.into_iter().enumerate().map(|(member, mut disk)| {
        match guess.slots.iter().position(|slot| *slot == Some(member)) {
            Some(slot) => as_member(guess, slot, uuid, disk),
            None => {
                disk.probed.probe.superblocks.clear();
                Ok(disk)
            }
        }
    });
    Ok(Disks { all: all.collect::<Result<_, _>>()?, ..disks })
}

/// A UUID that depends only on the disks' content, not on their names or order.
fn uuid(guess: &Guess, disks: &Disks) -> [u8; 16] {
    let shape = [guess.layout, guess.chunk_sectors, guess.level.md_number().unsigned_abs()];
    let shape: Vec<u8> = shape.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut sums = [0x6272_6169, 0x6420_7265, 0x7363_7565, 0x2121_2121];
    for sum in &mut sums {
        *sum = crc32c_append(*sum, &shape);
    }
    for (slot, member) in guess.slots.iter().enumerate() {
        let Some(member) = member else { continue };
        let device = disks.all[*member].device.as_ref();
        let start = guess.offsets[slot] * SECTOR_BYTES;
        let rest = device.size_bytes().saturating_sub(start);
        let mut page = vec![0; PAGE_BYTES];
        // The checksum covers pages at the start of the data and all over the data: the ends alone
        // may be blank on all members.
        let near = (0..SAMPLES).map(|at| at * PAGE_BYTES as u64);
        let far = (0..SAMPLES).map(|at| rest / SAMPLES * at / SECTOR_BYTES * SECTOR_BYTES);
        for at in near.chain(far) {
            // An unreadable page is skipped. If the page can be read another time, the array gets
            // another UUID.
            if device.read_at(&mut page, start + at).is_ok() {
                for sum in &mut sums {
                    *sum = crc32c_append(*sum, &page);
                }
            }
        }
    }
    let mut uuid = [0; 16];
    for (bytes, sum) in uuid.chunks_exact_mut(4).zip(sums) {
        bytes.copy_from_slice(&sum.to_be_bytes());
    }
    uuid
}

fn as_member(guess: &Guess, slot: usize, uuid: [u8; 16], disk: Disk) -> Result<Disk, CliError> {
    let is_direct = guess.level.family() == Family::Direct;
    let least = guess.data_sectors.iter().copied().min().unwrap_or(0);
    let own = guess.data_sectors[slot];
    let few = |count: usize| u16::try_from(count).expect("the solver tries few");
    let held = guess.slots.iter().map(Option::is_some).collect::<Vec<_>>();
    let facts = MemorySuperblock {
        uuid,
        name: NAME.to_owned(),
        shape: (guess.level, guess.layout, guess.chunk_sectors),
        slot: few(slot),
        number: few(slot),
        slots: few(guess.slots.len()),
        roles: roles(&held),
        data_offset_sectors: guess.offsets[slot],
        // At levels with redundancy the data area extends to the device's end.
        data_sectors: is_direct.then_some(own),
        member_sectors: least,
        events: 1,
        resync_offset: u64::MAX,
        recovery_offset: None,
    };
    let data = guess.offsets[slot]..guess.offsets[slot] + own;
    in_front(&facts.superblock(&disk)?, &data, disk)
}
