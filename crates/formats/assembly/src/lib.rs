//! From an unordered list of members to one verdict each and an array, or a refusal.
//!
//! Where it stands: a pure crate above `braid-ondisk` and `braid-geometry`. The caller has opened and read the
//! members; this crate decides which of them are the array; the engine runs what was decided.
//!
//! What it does not do: read or write anything, wait for members that may still appear, or repair. It never
//! guesses: two answers that are equally good are a refusal that names both.
//!
//! ```text
//!  members --candidates--> one superblock each, or a verdict at once
//!          --choose------> one array UUID; all others are foreign
//!          --judge-------> the newest superblock; against it one verdict and one reason each
//!          --array-------> geometry, slots, dirty, degraded: an array, or what is missing
//! ```
//!
//! # Which superblock counts
//!
//! md adds one to `events` in every member's superblock whenever it writes them, before the writes that the change
//! allows: the array becomes active before the first data write, a member is marked faulty before a write that it
//! missed is acknowledged. So of the members whose own role is a slot, those with most events know best, and:
//!
//! - **A member one event behind is still up to date, a member two behind is stale.** Superblocks are written one
//!   after the other. If power fails in between, some members have the new count and some the old one, and no data
//!   write that the change was to allow has happened: no member has missed anything. The next change starts only when
//!   this one is on every member that still belongs to the array, so an honest difference is never more than one.
//!   The kernel and mdadm draw the same line.
//! - **The newest superblock's role table decides, not the count alone.** A member that failed in the very last
//!   change is also one behind; but the newest table calls it faulty, and it is not used.
//! - **Active before clean.** If any member in use says that the array was being written, it was. md goes by the
//!   newest superblock only; a power failure in the middle of marking the array clean can leave the member that was
//!   not yet told with unflushed data, so we are stricter.
//! - **A damaged superblock that claims more events** is never believed, and can be reason enough to refuse: all who were
//!   told of a loss may have been cut in the middle of the next update, and who missed everything since is the only
//!   sound one (`damaged`).
//! - **Spares need no count**: md skips them in some updates. Nothing is read from them.
//! - **A clone of a member beside the member** (a snapshot, a `dd`): nothing tells which of the two is right, whatever
//!   the counts say. The count steps back when the array turns clean, so a clone taken before has one event more and
//!   older data; and if either was started without the other, each may hold writes that the other lacks. Refused, by
//!   name, unless neither is in the array any more. A clone that is presented
//!   *instead* of its member is an old copy, see below.
//! - **A member that calls the newest out, and that the newest counts in**, is of another line: updates only put members out,
//!   so a clone stood for one of the two meanwhile. Not used; mdadm draws the same line.
//! - **Two halves that ran apart** each call the other faulty. If one has more events, it is the array, and the other
//!   is refused with that reason. If their counts are equal nothing tells which is right, and the array is refused.
//! - **Equally new members, one of which puts out a member that the other counts in**, and counts in no other: the
//!   shorter table is the later word. Counts step back when the array turns clean, and an update that a power failure
//!   cuts short reaches some; members only leave between two updates of one count. A member that is in both tables is used.
//!
//! # Old copies
//!
//! A member that was put back from a backup, or that comes from another machine, is as sound as any other; it is only old.
//!
//! - *Fewer events, by two or more*: stale, as above. braid says every change twice, with an event each, so a member that
//!   was away while anything was written is two behind, but for a few milliseconds ([`Reason::OneBehind`] is then an update that
//!   a power cut kept from it).
//! - *As many events and the same table, but an earlier update time*: stale ([`Reason::OlderUpdate`]). md takes an event
//!   back when the array turns clean, so a run that was stopped ends with the count that it began with. All members of
//!   one update have one time.
//! - *Less than what is known from elsewhere* ([`Known`]): stale ([`Reason::OlderThanKnown`]), and refused if there is
//!   no other ([`Refusal::OlderThanKnown`]): an array all of which was put back looks like one whose newer members are
//!   not there, and only a person can tell ([`Options::accept_older`]).
//!
//! docs/on-disk.md has the table of what can be told and what cannot, with a test for each row.
//!
//! # Bitmaps
//!
//! Every member has one, and all say the same unless an update was cut short. A bit that any of them has, of those that are
//! believed, counts ([`AssembledBitmap::bits`]). A bitmap is believed if it counts as many events as the newest superblock, or
//! one more: md and braid write it before the superblocks. With fewer, somebody has written without keeping it; then every bit
//! counts as set, as md does it.
//!
//! One that no member has a sound superblock of is made anew: every bit counts as set. A bitmap of version 3, a lockless one,
//! or one of an unknown version is not kept: read-only.
//!
//! # Bitmap file
//!
//! Where a file is given ([`Options::bitmap_file`]) the bitmap is there, and our own log if it has the head of one, and neither is looked for on
//! members. A file of another array, or beside an internal bitmap, is refused: whoever gave it meant something else. Without it an array
//! that says that its log is in a file has no log that can be read.
//!
//! # PPL
//!
//! Such a log names what was being written, and has what it takes to make parity fit again. So an array that was not stopped cleanly
//! is to be replayed ([`AssembledArray::replay`]), and with a member missing it is then as good as one that was: nothing is at risk.
//! A log that cannot be read, or a resync that was not finished, leaves the array refused as any other that is dirty and degraded.
//!
//! A log that holds no record at all is not believed: the array is brought in sync as if it had none. braid leaves logs so for as long as
//! parity need not fit everywhere; md's own recovery then believes a log that says nothing of it.
//!
//! md replays logs into any array that was not stopped cleanly. Records of an earlier run would be applied to stripes that were
//! written since, and leave wrong parity behind. So where logs cannot be written (a member without room of its own for
//! one, another level than RAID-5) the array is read-only.
//!
//! # Journal
//!
//! Of an array with a write journal the journal's device is found like a member, and counts while its events are at most one behind
//! ([`AssembledArray::journal`]). What it says is to be replayed before anything is read. A ring that has no room for a few batches at once is
//! not written ([`journal_sectors_min`]), and then neither is the array. Without its journal nothing is known of what was being written ([`JournalFault`]): it can be read, what
//! would be computed is withheld, and all of it may lack writes that were acknowledged.
//!
//! # By force
//!
//! Where the sound ones are too few, [`rescue`] says which of the others to believe, and what they lack. It writes superblocks in memory
//! and lets [`assemble`] judge them, so there is one set of rules.
//!
//! # Reshape
//!
//! An array in the middle of one is refused; [`reshape`] makes of its superblocks those of two arrays that are in none, and says which
//! sectors are in which.
//!
//! # Invariants
//! - The order of the members changes nothing but indices: `tests/properties.rs`.
//! - A stale member is never in a slot: `tests/properties.rs`, `tests/members.rs`.
//! - Every member has exactly one verdict, in the order of the input: `tests/properties.rs`.
//! - Every refusal has a scenario: `tests/refusals.rs`.
#![forbid(unsafe_code)]

mod array;
mod bitmap_file;
mod candidates;
mod choose;
mod damaged;
mod journal;
mod judge;
mod known;
mod parity_log;
mod refusal;
mod replay;
pub mod rescue;
pub mod reshape;
mod risk;
mod verdict;

pub use array::{AssembledArray, AssembledBitmap, Occupant, Tolerance, resync_sectors};
pub use bitmap_file::{AssembledBitmapFile, GivenBitmapFile};
pub use choose::{Choice, bare_name};
pub use journal::{AssembledJournal, journal_sectors_min};
pub use known::{Known, KnownMember};
pub use parity_log::AssembledParityLog;
pub use refusal::{
    ArrayName, AtRisk, BitmapFileFault, JournalFault, RangeAtRisk, ReadOnlyReason, Refusal,
};
pub use replay::AssembledReplay;
pub use verdict::{Reason, Verdict};

use braid_ondisk::{
    BadBlockLogError, BadRecord, Bitmap, BitmapError, JournalLog, JournalLogError, OwnLog, PplLog,
    PplLogError, Probe,
};

/// One device that may belong to the array, and what was read from it.
#[derive(Debug, Clone)]
pub struct ProbedMember {
    /// What the person calls it, usually its path.
    pub label: String,
    /// Size of the device in bytes.
    pub size_bytes: u64,
    /// Equal exactly when two of these are one device, whatever their labels.
    pub identity: String,
    /// The superblocks and signatures on it.
    pub probe: Probe,
    /// Its bad-block log; empty where the superblock has none.
    pub bad_blocks: Result<Vec<BadRecord>, BadBlockLogError>,
    /// Its bitmap; `None` where there is no bitmap or its magic is not there.
    pub bitmap: Option<Result<Bitmap, BitmapError>>,
    /// Its partial parity log; `None` where the superblock has none.
    pub ppl: Option<Result<PplLog, PplLogError>>,
    /// Our own parity log; `None` where no head of one is before its data.
    pub own_log: Option<OwnLog>,
    /// What the journal on it says; `None` where the superblock is not of a journal's device.
    pub journal: Option<Result<JournalLog, JournalLogError>>,
}

/// What the person asked for.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Which array, if the members are of several.
    pub choice: Choice,
    /// Nothing will be written.
    pub read_only: bool,
    /// Start a dirty and degraded array all the same, if no more stripes than so many are at risk; they are then in
    /// [`AssembledArray::accepted_risk`].
    pub accept_risk: Option<u64>,
    /// Believe members that are older than the array was when it was last seen, or than members with the same count.
    pub accept_older: bool,
    /// Go on without a write journal that is not here, or cannot be followed: it is given up, and all of the array is resynced.
    pub without_journal: bool,
    /// md's number of the layout of a RAID-0 whose superblocks do not say it: it matters where members are of unequal size.
    pub raid0_layout: Option<u32>,
    /// The bitmap file that the array has beside its members, as superblocks do not name it.
    pub bitmap_file: Option<GivenBitmapFile>,
    /// What is known of arrays from elsewhere; those that the members are not of do no harm.
    pub known: Vec<Known>,
}

/// What one member is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberVerdict {
    /// As given.
    pub label: String,
    /// What it is.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembly {
    /// One per member, in the order of the input.
    pub verdicts: Vec<MemberVerdict>,
    /// The array, or why there is none.
    pub array: Result<AssembledArray, Refusal>,
}

/// Decides. Nothing in the result depends on the order of `members`, except indices into it.
#[must_use]
pub fn assemble(members: &[ProbedMember], options: &Options) -> Assembly {
    let mut verdicts = candidates::Verdicts::new(members);
    let candidates = candidates::candidates(members, &mut verdicts);
    let array = choose::choose(&options.choice, candidates, &mut verdicts)
        .and_then(|group| judge::judge(&group, options, &mut verdicts))
        .and_then(|roster| array::build(&roster, members, options));
    Assembly { verdicts: verdicts.finish(), array }
}
