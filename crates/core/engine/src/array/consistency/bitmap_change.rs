//! Makes, drops, or replaces the write-intent bitmap while the array runs.
//!
//! ```text
//!            operator asks          no update under way
//!   settled ──────────────▶ wanted ─┬──────────────────▶ made, to be said ───────────▶ settled
//!      ▲                       ▲    │                                 superblocks say so
//!      │                       │    └─ there is one ───▶ to be left ─────────────────▶ left
//!      │                       │                             ▲                          │
//!      │                       │                its file cannot be written,             │ (1)
//!      │                       │                whatever the stage                      │
//!      │                       └──────── another is to follow ◀─────────────────────────┤
//!      └──────────────────────────────── none follows ◀─────────────────────────────────┘
//! ```
//!
//! (1): no request of the old bitmap is in flight.
//!
//! The states are those of `Stage`; *to be said* means that superblocks must record the change.
//! Clients write meanwhile. A new bitmap sets every bit that may be in use at its creation: all
//! bits, if superblocks say active. The new bitmap is durable on every member before a superblock
//! names it, as for any update ([`super::intent`]); sweeps clear its bits later. A dropped bitmap
//! is kept up to date until no superblock names it. So at any power cut superblocks name a bitmap
//! that can be believed, or none. Between the old and the new bitmap superblocks name none.
//! [check: a_bitmap_comes_and_goes_while_clients_write]
//!
//! # In a file
//! No superblock names a bitmap in a file. Such a bitmap is believed if its event count equals the
//! superblocks' count, or exceeds that by one. So a file that is dropped, or fails, is never
//! written again. Superblocks then count one event more than the file ever did, and only after that
//! does any write begin without the file. [check: a_bitmap_file_that_fails_is_left_behind]
//!
//! Each bitmap has a name ([`BitmapId`]), and shards' reports about bits name their bitmap: a shard
//! may learn late that the bitmap has changed.
//! [check: what_is_said_of_an_old_bitmap_is_not_meant_for_the_new_one]

use braid_ondisk::{BitmapSuperblock, Bits};
use braid_sim_hooks::{Bug, spoiled};

use crate::array::order::Activity;
use crate::ids::{BitmapId, MemberId};

/// `None` drops the bitmap, `Some` replaces it.
type Wish = Option<NewBitmap>;

/// A bitmap that the array shall create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBitmap {
    /// The bitmap's superblock.
    pub head: BitmapSuperblock,
    /// The bitmap file, by its name as a member; `None` puts the bitmap on members.
    pub file: Option<MemberId>,
}

#[derive(Clone, Debug)]
enum Stage {
    Settled,
    Wanted(Wish),
    /// Superblocks must name the new bitmap.
    MadeToBeSaid,
    /// Superblocks must name no bitmap, or, for a bitmap file, count more events than the file.
    /// Then the array makes the new bitmap, if the wish asks for one.
    ToBeLeft(Wish),
    /// Superblocks name no bitmap. Next the array makes the new bitmap, if the wish asks for one.
    Left(Wish),
}

/// The bitmap change in progress, and whether superblocks shall name a bitmap.
#[derive(Clone, Debug)]
pub(super) struct BitmapChange {
    stage: Stage,
    names: Option<bool>,
    newest: BitmapId,
}

impl BitmapChange {
    /// `names`: whether updates name a bitmap; `None` keeps each superblock's statement.
    pub(super) fn new(names: Option<bool>) -> Self {
        Self { stage: Stage::Settled, names, newest: BitmapId::default() }
    }

    /// Whether superblocks shall name a bitmap; `None` keeps each superblock's statement.
    pub(super) fn names(&self) -> Option<bool> {
        self.names
    }

    /// Whether superblocks do not name the dropped bitmap any more.
    pub(super) fn is_left(&self) -> bool {
        matches!(self.stage, Stage::Left(_))
    }

    pub(super) fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Settled)
    }

    /// Whether a dropped bitmap is no longer written, and superblocks do not record the drop yet.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.stage, Stage::ToBeLeft(_))
    }

    pub(super) fn is_wanted(&self) -> bool {
        matches!(self.stage, Stage::Wanted(_))
    }

    pub(super) fn want(&mut self, wish: Wish) {
        assert!(self.is_settled(), "one change at a time");
        self.stage = Stage::Wanted(wish);
    }

    /// Begins the wanted change. If a bitmap exists, superblocks first drop the old bitmap.
    /// Otherwise returns the bitmap to create, which superblocks name next.
    pub(super) fn begin(&mut self, is_there: bool) -> Option<(BitmapId, NewBitmap)> {
        let stage = std::mem::replace(&mut self.stage, Stage::Settled);
        let Stage::Wanted(wish) = stage else { panic!("only what was asked for is done") };
        let (made, follows) = if is_there { (None, wish) } else { (wish, None) };
        // Superblocks name no bitmap in a file.
        self.names = Some(made.is_some_and(|made| made.file.is_none()));
        self.stage = if made.is_some() { Stage::MadeToBeSaid } else { Stage::ToBeLeft(follows) };
        made.map(|made| {
            self.newest.0 += 1;
            (self.newest, made)
        })
    }

    /// Drops the bitmap, whatever the operator wanted, because its file failed a write.
    pub(super) fn is_lost(&mut self) {
        self.stage = Stage::ToBeLeft(None);
    }

    /// Notes that superblocks record the bitmap change.
    pub(super) fn is_said(&mut self) {
        match self.stage {
            Stage::MadeToBeSaid => self.stage = Stage::Settled,
            Stage::ToBeLeft(follows) => self.stage = Stage::Left(follows),
            Stage::Settled | Stage::Wanted(_) | Stage::Left(_) => {}
        }
    }

    /// Notes that no request of the dropped bitmap is in flight.
    pub(super) fn is_dropped(&mut self) {
        let Stage::Left(follows) = self.stage else {
            panic!("no superblock names what is dropped")
        };
        self.stage = if follows.is_some() { Stage::Wanted(follows) } else { Stage::Settled };
    }
}

/// The bits set in a new bitmap: sectors where writes may be in flight, or redundancy does not
/// agree yet.
pub(super) fn first_bits(head: &BitmapSuperblock, on_disk: Activity, resync_offset: u64) -> Bits {
    let sectors = head.sync_size_sectors;
    let agrees = resync_offset == u64::MAX;
    let is_still = on_disk == Activity::Clean;
    let is_still = spoiled(Bug::MadeBitmapForgetsWrites, is_still, true);
    match agrees && is_still {
        true => Bits::none(sectors, head.sectors_each()),
        false => Bits::all(sectors, head.sectors_each()),
    }
}
