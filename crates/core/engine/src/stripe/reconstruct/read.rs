//! One read, whom it is for, and how far it is.
//!
//! Where it stands: [`super::machine`] owns the reads; what a read does by its kind stands in the
//! file of that kind.

use braid_geometry::{RowMap, Slot};
use smallvec::SmallVec;

use super::super::band::{Band, Run};
use super::super::plan::Filled;
use super::check::Check;
use super::decide::Phase;
use crate::array::MemberView;
use crate::context::PieceKey;
use crate::ids::RequestId;
use crate::sectors::SectorSet;
use crate::work::{Class, Difference, Work};

/// A part of a client's read, in one band.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Want {
    pub(in super::super) piece: PieceKey,
    pub(in super::super) request: RequestId,
    pub(in super::super) run: Run,
    /// It waits for whatever member it takes.
    pub(in super::super) insists: bool,
}

/// Whom a read is for.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Origin {
    /// A client waits for it.
    Client(Want),
    /// It was asked for by a job, and gets a result.
    Background(Work),
}

impl Origin {
    /// It waits for whatever member it takes: nothing is made around one that is slow.
    pub(super) fn insists(&self) -> bool {
        match self {
            Self::Client(want) => want.insists,
            Self::Background(_) => true,
        }
    }

    /// Clients go before it, and take its band.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self, Self::Background(Work { class: Class::Idle, .. }))
    }

    /// It goes in its turn, and keeps its band.
    pub(super) fn is_in_its_turn(&self) -> bool {
        matches!(self, Self::Background(Work { class: Class::BestEffort, .. }))
    }

    /// The client's part.
    pub(super) fn client(&self) -> Option<Want> {
        match self {
            Self::Client(want) => Some(*want),
            Self::Background(_) => None,
        }
    }
}

/// One slot's part of a read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Column {
    /// Requests that are under way with its member.
    pub(super) out: u32,
    /// Sectors that the client wants.
    pub(super) touched: SectorSet,
    /// Sectors of the block that hold what the member holds, or would hold if it could be read.
    pub(super) valid: SectorSet,
    /// Sectors that could not be read; writing them again may help.
    pub(super) unreadable: SectorSet,
}

/// One read, or the place for one.
#[derive(Debug)]
pub(super) struct Read {
    /// None while the place is free.
    pub(super) band: Option<Band>,
    pub(super) map: RowMap,
    /// Whom it is for; none once it is answered or abandoned.
    pub(super) origin: Option<Origin>,
    /// Its band may not be written.
    pub(super) owns_band: bool,
    /// It writes again what could not be read.
    pub(super) repairs: bool,
    pub(super) phase: Phase,
    pub(super) columns: Box<[Column]>,
    /// Sectors of the stripe unit that it is about.
    pub(super) window: SectorSet,
    /// The sector of the stripe unit that its blocks begin with.
    pub(super) shift_sectors: u32,
    /// Member requests and computations that are out.
    pub(super) outstanding: u32,
    /// Requests at members that have left, which may still use its blocks.
    pub(super) left: u32,
    /// How it goes on when what it reads is there; none if it is to be planned anew.
    pub(super) filled: Option<Filled>,
    pub(super) work: WorkState,
}

/// How far background work is.
#[derive(Debug, Default)]
pub(super) struct WorkState {
    /// What was found to differ.
    pub(super) found: Difference,
    /// What is to be written, by slot.
    pub(super) targets: SmallVec<[(Slot, SectorSet); 2]>,
    /// Columns that were wrong have been made anew.
    pub(super) is_remade: bool,
    /// Sectors that members have taken.
    pub(super) written: u32,
    /// A member has not taken what it was to be written.
    pub(super) is_missed: bool,
    /// Some of it cannot be made, as was reported.
    pub(super) is_unmade: bool,
    /// Of a comparison.
    pub(super) check: Check,
}

impl Read {
    pub(super) fn band(&self) -> &Band {
        self.band.as_ref().expect("a read has a band")
    }

    pub(super) fn column(&self, slot: Slot) -> &Column {
        &self.columns[usize::from(slot.0)]
    }

    pub(super) fn column_mut(&mut self, slot: Slot) -> &mut Column {
        &mut self.columns[usize::from(slot.0)]
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..u16::try_from(self.columns.len()).expect("slots are numbered by u16")).map(Slot)
    }

    /// The read is about this from now on.
    pub(super) fn aim(&mut self, origin: Origin, unit_sectors: u32) {
        let whole = SectorSet::run(0, unit_sectors);
        match origin {
            Origin::Client(want) => self.aim_at(&want, whole),
            Origin::Background(work) => {
                let offset = u32::try_from(work.start - self.band().start.0).expect("in its band");
                self.window = SectorSet::run(offset, work.sectors).common(whole);
            }
        }
        (self.filled, self.work) = (None, WorkState::default());
        self.origin = Some(origin);
        self.phase = Phase::Fill;
    }

    /// Work that fills members: these columns are to be written to them, as they are or as the
    /// others make them.
    pub(super) fn aim_at_columns(&mut self, slots: impl Iterator<Item = Slot>) {
        let (map, window) = (self.map, self.window);
        self.work.targets = slots.map(|slot| (slot, window)).collect();
        let targets = self.work.targets.clone();
        let is_target = |slot: Slot| targets.iter().any(|(target, _)| *target == slot);
        let makes_parity = is_target(map.p_slot()) || map.q_slot().is_some_and(is_target);
        for index in 0..map.data_slots() {
            let slot = map.data_slot(index);
            let is_wanted = makes_parity || is_target(slot);
            self.column_mut(slot).touched = if is_wanted { window } else { SectorSet::EMPTY };
        }
    }

    pub(super) fn is_target(&self, slot: Slot) -> bool {
        self.work.targets.iter().any(|(target, _)| *target == slot)
    }

    /// Whether all of a column that it is about is in its block.
    pub(super) fn is_read(&self, slot: Slot) -> bool {
        self.column(slot).valid.contains(self.window)
    }

    /// The slots that are to be written.
    pub(super) fn target_slots(&self) -> impl Iterator<Item = Slot> {
        self.work.targets.iter().map(|(slot, _)| *slot)
    }
}

/// Whether a member holds all of the band, as far as it can be read.
pub(super) fn holds(member: &MemberView, band: &Band) -> bool {
    member.holds(band.start, band.end().0 - band.start.0)
}
