//! Turns an unordered list of members into one verdict for each member, and an array or a refusal.
//!
//! Its place: a pure crate above `braid-ondisk` and `braid-geometry`. The caller has opened and
//! read the members; this crate decides which of them are the array; the engine runs the array.
//!
//! The crate does not read or write anything, wait for members that may still appear, or repair. It
//! never guesses: it refuses two equally good answers, and names both.
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
//! md adds one to `events` in every member's superblock whenever it writes them, before the writes
//! that the change allows. The array becomes active before the first data write; a member is marked
//! faulty before a write that it missed is acknowledged. So among the members whose own role is a
//! slot, those with most events count, and:
//!
//! - **A member one event behind is still up to date, a member two behind is stale.** Superblocks
//!   are written one after the other. If power fails in between, some members have the new count
//!   and some the old one. No data write that the change allows has happened yet, so no member
//!   missed anything. The next change starts only when this one is on every member that still
//!   belongs to the array. So an honest difference is never more than one. The kernel and mdadm
//!   draw the same line.
//! - **The newest superblock's role table decides, not the count alone.** A member that failed in
//!   the very last change is also one behind; but the newest table calls it faulty, and it is not
//!   used.
//! - **Active before clean.** If any member in use says that the array was being written, the array
//!   counts as written. md goes by the newest superblock only. braid is stricter: a power failure
//!   during the update to clean can leave unflushed data on a member that the update did not reach.
//! - **A damaged superblock that claims more events** is never believed, but can cause a refusal. A
//!   power cut may have torn an update on all members that recorded the loss of a member. The only
//!   sound superblock is then that of the lost member, which missed all writes since (`damaged`).
//! - **Spares need no count**: md skips them in some updates. Nothing is read from them.
//! - **A member together with its clone** (a snapshot, a `dd`): braid cannot tell which of the two
//!   is right, whatever the counts say. The count steps back when the array turns clean, so a clone
//!   taken before that has one event more and older data. If either was started without the other,
//!   each may hold writes that the other lacks. The array is refused, with the names of both,
//!   unless neither is in the array any more. A clone that is presented *instead* of its member is
//!   an old copy, see below.
//! - **A member that calls the newest out, and that the newest counts in**, ran apart: updates only
//!   put members out, so a clone stood for one of the two members meanwhile. The member is not
//!   used; mdadm does not use it either.
//! - **Two halves that ran apart** each call the other faulty. If one has more events, it is the
//!   array, and the other is refused with that reason. If their counts are equal, braid cannot tell
//!   which half is right, and the array is refused.
//! - **Equally new members with different tables**: if one table counts in a proper subset of the
//!   other's members, it is the later one. Counts step back when the array turns clean, and an
//!   interrupted update reaches some members; members only leave between two updates of one count.
//!   A member that is in both tables is used.
//!
//! # Old copies
//!
//! A member that was restored from a backup, or comes from another machine, is sound but old.
//!
//! - *Fewer events, by two or more*: the member is stale, as above. braid writes every change in
//!   two updates with an event each. So a member that missed writes is two events behind, except
//!   for a few milliseconds between the two updates. A member that is one behind missed an update
//!   because of a power cut ([`Reason::OneBehind`]).
//! - *As many events and the same table, but an earlier update time*: the member is stale
//!   ([`Reason::OlderUpdate`]). md takes an event back when the array turns clean, so a run that
//!   was stopped ends with the count that it began with. All members of one update have one time.
//! - *Older than a record from elsewhere* ([`RecordedState`]): the member is stale
//!   ([`Reason::OlderThanKnown`]). If all members are older, the array is refused
//!   ([`Refusal::OlderThanKnown`]). An array whose members were all restored looks like one whose
//!   newer members are missing, and only the operator can tell ([`Options::accept_older`]).
//!
//! docs/on-disk.md has a table of the old copies that braid can detect and cannot detect, with a
//! test for each row.
//!
//! # Bitmaps
//!
//! Every member has a bitmap, and all are equal unless an update was interrupted. A bit counts if
//! any believed bitmap has it ([`AssembledBitmap::bits`]). A bitmap is believed if it has as many
//! events as the newest superblock, or one more: md and braid write it before the superblocks. With
//! fewer events, the array was written without the bitmap; then every bit counts as set, as in md.
//!
//! If no member has a sound bitmap superblock, braid makes a new bitmap with every bit set. A
//! bitmap of version 3 or of an unknown version is not kept: the array is read-only.
//!
//! # Bitmap file
//!
//! A file that the caller passes ([`Options::bitmap_file`]) holds the bitmap, and braid's own log
//! if the file has a log head. braid then looks for neither on members. A file of another array is
//! refused, and so is a file for an array with an internal bitmap: the operator must have meant
//! another file. An array whose superblocks say that the log is in a file has no readable log
//! without that file.
//!
//! # PPL
//!
//! A partial parity log names the stripes in flight and holds the partial parity that makes their
//! parity right again. So the logs of an array that was not stopped cleanly are replayed
//! ([`AssembledArray::replay`]). Even with a member missing, nothing is at risk afterwards. If a
//! log cannot be read, or a resync was not finished, the array is refused as any other that is
//! dirty and degraded.
//!
//! A log without any record is not believed: the array is resynced as if it had no log. braid
//! leaves logs empty as long as parity may be wrong anywhere; md's own recovery would trust such an
//! empty log.
//!
//! md replays logs into any array that was not stopped cleanly. Records of an earlier run would be
//! applied to stripes that were written since, and leave wrong parity behind. So the array is
//! read-only if its logs cannot be written (a member without space for a log, a level other than
//! RAID-5).
//!
//! # Journal
//!
//! The journal device is found like a member, and counts while its events are at most one behind
//! ([`AssembledArray::journal`]). Its content is replayed before anything is read. If the ring has
//! no room for a few batches at once, neither the ring nor the array is written
//! ([`journal_sectors_min`]). Without the journal the stripes in flight are unknown
//! ([`JournalFault`]): the array can be read, computed sectors are withheld, and any sector may
//! lack acknowledged writes.
//!
//! # By force
//!
//! If too few members are sound, [`rescue`] says which others to believe and what they lack. It
//! changes superblocks in memory and lets [`assemble`] judge them, so there is one set of rules.
//!
//! # Reshape
//!
//! [`reshape`] turns the superblocks of an array in the middle of a reshape into those of two
//! arrays without a reshape, and says which array has which sectors. If none of its sectors is at
//! risk, the array can run ([`AssembledReshape`]); otherwise it is refused.
//!
//! # Invariants
//! - The order of the members changes nothing but indices: `tests/properties.rs`.
//! - A stale member is never in a slot: `tests/properties.rs`, `tests/members.rs`.
//! - Every member has exactly one verdict, in the order of the input: `tests/properties.rs`.
//! - Every refusal has a scenario: `tests/refusals.rs`.
#![forbid(unsafe_code)]

mod array;
mod bad_records;
mod bitmap_file;
mod candidates;
mod choose;
mod damaged;
mod journal;
mod judge;
mod levelled_shapes;
mod parity_log;
mod recorded_state;
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
pub use levelled_shapes::ShapeToWrite;
pub use parity_log::AssembledParityLog;
pub use recorded_state::{RecordedState, StateMember};
pub use refusal::{
    ArrayName, AtRisk, BitmapFileFault, JournalFault, RangeAtRisk, ReadOnlyReason, Refusal,
    ReshapeFault,
};
pub use replay::AssembledReplay;
pub use reshape::{AssembledReshape, MemberMove};
pub use verdict::{Reason, Verdict};

use braid_ondisk::{
    BadBlockLogError, BadRecord, Bitmap, BitmapError, JournalLog, JournalLogError, OwnLog, PplLog,
    PplLogError, Probe,
};

/// A device that may belong to the array, and the metadata read from it.
#[derive(Debug, Clone)]
pub struct ProbedMember {
    /// The operator's name for the device, usually its path.
    pub label: String,
    /// Size of the device in bytes.
    pub size_bytes: u64,
    /// A string that identifies the device, whatever its label: two entries with the same string
    /// are one device.
    pub identity: String,
    /// The superblocks and signatures on the device.
    pub probe: Probe,
    /// The device's bad-block log; empty if it has none.
    pub bad_blocks: Result<Vec<BadRecord>, BadBlockLogError>,
    /// The device's bitmap; `None` if it has none, or if the magic is absent.
    pub bitmap: Option<Result<Bitmap, BitmapError>>,
    /// The device's partial parity log; `None` if it has none.
    pub ppl: Option<Result<PplLog, PplLogError>>,
    /// braid's own parity log; `None` if no log head is before the data.
    pub own_log: Option<OwnLog>,
    /// The journal's content; `None` if the superblock is not that of a journal device.
    pub journal: Option<Result<JournalLog, JournalLogError>>,
}

/// The operator's choices.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The wanted array, if the members are of several arrays.
    pub choice: Choice,
    /// Whether the array is only read, not written.
    pub read_only: bool,
    /// Start a dirty and degraded array if at most this many stripes are at risk
    /// ([`AssembledArray::accepted_risk`]).
    pub accept_risk: Option<u64>,
    /// Believe members that are older than the known state, or than members with the same count.
    pub accept_older: bool,
    /// Drop a write journal that is missing or cannot be replayed, and resync the whole array.
    pub without_journal: bool,
    /// md's layout number for a RAID-0 of unequal members whose superblocks name none.
    pub raid0_layout: Option<u32>,
    /// The array's bitmap file, which superblocks do not name.
    pub bitmap_file: Option<GivenBitmapFile>,
    /// UUIDs of arrays whose reshape in place can continue: the caller has a copy of the window
    /// that was moving.
    pub window_copies: Vec<[u8; 16]>,
    /// Known states of arrays, recorded elsewhere. Records of other arrays are ignored.
    pub known: Vec<RecordedState>,
}

/// The verdict on one member, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberVerdict {
    /// The member's label, as given.
    pub label: String,
    /// The member's part in the array.
    pub verdict: Verdict,
    /// The reason for the verdict.
    pub reason: Reason,
}

/// The decision on all members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembly {
    /// One verdict per member, in the order of the input.
    pub verdicts: Vec<MemberVerdict>,
    /// The array, or the refusal.
    pub array: Result<AssembledArray, Refusal>,
}

/// Judges all members. Nothing in the result depends on the order of `members`, except indices.
#[must_use]
pub fn assemble(members: &[ProbedMember], options: &Options) -> Assembly {
    let levelled = levelled_shapes::level_shapes(members);
    let probed = levelled.as_ref().map_or(members, |levelled| &levelled.members);
    let mut assembly = match reshape::assemble(probed, options) {
        None => assemble_shape(probed, options),
        Some(assembly) => assembly,
    };
    if let (Ok(array), Some(levelled)) = (&mut assembly.array, levelled) {
        array.shapes_to_write = levelled.shapes;
    }
    assembly
}

/// Judges members of arrays that are in no reshape.
fn assemble_shape(members: &[ProbedMember], options: &Options) -> Assembly {
    let mut verdicts = candidates::Verdicts::new(members);
    let candidates = candidates::candidates(members, &mut verdicts);
    let array = choose::choose(&options.choice, candidates, &mut verdicts)
        .and_then(|group| judge::judge(&group, options, &mut verdicts))
        .and_then(|roster| array::build(&roster, members, options));
    Assembly { verdicts: verdicts.finish(), array }
}
