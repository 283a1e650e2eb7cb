//! One read: its origin and its state.
//!
//! [`super::machine`] owns the reads; each kind's part of the work is in the file of that kind.

use braid_geometry::{RowMap, Slot};
use smallvec::SmallVec;

use super::super::band::{Band, Run};
use super::super::plan::FilledPlan;
use super::check::Check;
use super::decide::Phase;
use crate::array::MemberView;
use crate::context::PieceKey;
use crate::ids::RequestId;
use crate::sectors::SectorSet;
use crate::work::{Class, Difference, Work};

/// A part of a client's read, in one band.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct ClientRead {
    pub(in super::super) piece: PieceKey,
    pub(in super::super) request: RequestId,
    pub(in super::super) run: Run,
    /// The read waits for its own members, however long that takes.
    pub(in super::super) insists: bool,
}

#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Origin {
    Client(ClientRead),
    /// A job submitted the read, and gets a result.
    Background(Work),
}

impl Origin {
    /// Whether the read waits for its own members, however long: it is not served around a slow
    /// member.
    pub(super) fn insists(&self) -> bool {
        match self {
            Self::Client(want) => want.insists,
            Self::Background(_) => true,
        }
    }

    /// Whether the read is idle work: clients' requests go first, and take its band.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self, Self::Background(Work { class: Class::Idle, .. }))
    }

    /// Whether the read is work that goes in its turn, and keeps its band.
    pub(super) fn is_in_its_turn(&self) -> bool {
        matches!(self, Self::Background(Work { class: Class::BestEffort, .. }))
    }

    pub(super) fn client(&self) -> Option<ClientRead> {
        match self {
            Self::Client(want) => Some(*want),
            Self::Background(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Column {
    pub(super) out: u32,
    pub(super) touched: SectorSet,
    /// Sectors of the block whose content equals that of the member, or would if the member could
    /// be read.
    pub(super) valid: SectorSet,
    /// Sectors that could not be read. A rewrite may mend them.
    pub(super) unreadable: SectorSet,
}

/// One read, or a free place for a read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) band: Option<Band>,
    pub(super) map: RowMap,
    /// The client or job that waits for the read; `None` once the read is answered or abandoned.
    pub(super) origin: Option<Origin>,
    /// No batch may write the read's band.
    pub(super) owns_band: bool,
    /// The read rewrites unreadable sectors.
    pub(super) repairs: bool,
    pub(super) phase: Phase,
    pub(super) columns: Box<[Column]>,
    /// Sectors of the stripe unit that the read covers.
    pub(super) window: SectorSet,
    /// The sector of the stripe unit at which the read's blocks begin.
    pub(super) shift_sectors: u32,
    pub(super) outstanding: u32,
    /// Number of requests in flight at members that have left. These may still access the read's
    /// blocks.
    pub(super) orphans: u32,
    /// The plan with which the read continues once its columns are in memory; `None` if the read
    /// must be planned again.
    pub(super) filled: Option<FilledPlan>,
    pub(super) work: WorkState,
}

/// The progress of background work.
#[derive(Debug, Default)]
pub(super) struct WorkState {
    pub(super) found: Difference,
    /// Sectors to write, by slot.
    pub(super) targets: SmallVec<[(Slot, SectorSet); 2]>,
    /// Wrong columns were computed again.
    pub(super) is_remade: bool,
    pub(super) written: u32,
    /// A member did not take a write.
    pub(super) is_missed: bool,
    /// Some of the work's sectors cannot be computed, and were reported.
    pub(super) is_unmade: bool,
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

    /// Sets the read up for this origin.
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

    /// Sets the work up to fill members: the columns of `slots` are written to the members, as read
    /// or as computed from the other columns.
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

    /// Whether the whole window of a column is in its block.
    pub(super) fn is_read(&self, slot: Slot) -> bool {
        self.column(slot).valid.contains(self.window)
    }

    pub(super) fn target_slots(&self) -> impl Iterator<Item = Slot> {
        self.work.targets.iter().map(|(slot, _)| *slot)
    }
}

/// Whether a member should hold all of the band.
pub(super) fn holds(member: &MemberView, band: &Band) -> bool {
    member.holds(band.start, band.end().0 - band.start.0)
}
