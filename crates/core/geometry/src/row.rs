//! The roles of slots in a chunk row: the rotation of P, Q and data in md's raid4/5/6 layouts.
//!
//! [`Placement`] is a layout number taken apart, once; [`RowMap`] is one row of the layout, a few
//! bytes to copy. This file uses no sectors and no chunk size, and computes no parity: it only
//! gives the power of the generator that a data chunk has in Q.
//!
//! A layout is four choices:
//!
//! ```text
//!   ring    the slots over which P moves: all, or all but the last ("-6", Q stays on the last)
//!   walk    P's slot in row r:  left  ring-1 - r mod ring      right  r mod ring
//!                               first 0                        last   after all data
//!   Q       none, on the slot after P (round the end), before P, or on the last slot
//!   order   ascending ("asymmetric"): data on the remaining slots from slot 0 up
//!           following ("symmetric"):  data from the slot after the parities, round the ring's end
//!
//!                  walk     order      Q              5 slots, rows 0 and 1
//!    0 LA          left     ascending  after P        Q 0 1 2 P    0 1 2 P Q
//!    1 RA          right    ascending  after P        P Q 0 1 2    0 P Q 1 2
//!    2 LS          left     following  after P        Q 0 1 2 P    0 1 2 P Q
//!    3 RS          right    following  after P        P Q 0 1 2    2 P Q 0 1
//!    4 first       first    ascending  after P        P Q 0 1 2    P Q 0 1 2
//!    5 last        last     ascending  after P        0 1 2 P Q    0 1 2 P Q
//!    8 ddf zero    right    ascending  after P        P Q 0 1 2    0 P Q 1 2
//!    9 ddf N rest. left     ascending  after P        0 1 2 P Q    0 1 P Q 2  LA a row on
//!   10 ddf N cont. left     following  before P       0 1 2 Q P    1 2 Q P 0
//!   16..20         as 0..4             last slot      as raid5 on four slots, then Q
//! ```
//!
//! Q is the sum of data chunks times powers of 2 in GF(2^8). md counts the exponents from the slot
//! after Q upwards, round the end, passing over P; in the ddf layouts the exponent is the slot
//! number itself, as if P and Q were data of zeros.
//!
//! Invariants: a row's slots are exactly its data, P and Q, and `role` is the inverse of the rest;
//! exponents of a row are distinct and below `exponents_count` (`tests/stripe.rs`); the drawings
//! are md's (`tests/stripe_tables.rs`).

use crate::units::narrow;
use crate::words::{
    DDF_N_CONTINUE, DDF_N_RESTART, DDF_ZERO_RESTART, LEFT_ASYMMETRIC, LEFT_ASYMMETRIC_6,
    LEFT_SYMMETRIC, LEFT_SYMMETRIC_6, PARITY_FIRST, PARITY_FIRST_6, PARITY_LAST, RIGHT_ASYMMETRIC,
    RIGHT_ASYMMETRIC_6, RIGHT_SYMMETRIC, RIGHT_SYMMETRIC_6,
};
use crate::{ChunkRow, Level, Slot};
use braid_sim_hooks::{Bug, planted};

/// The role of a slot in a chunk row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The data chunk with this index.
    Data(u16),
    /// The exclusive-or of the data.
    P,
    /// The Reed-Solomon syndrome of the data; raid6 only.
    Q,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    Left,
    /// As `Left`, but one row ahead.
    LeftAhead,
    Right,
    First,
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Ascending,
    Following,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QPlace {
    None,
    AfterP,
    BeforeP,
    LastSlot,
}

/// How the exponents of the data chunks in Q are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Exponents {
    /// From the slot after Q upwards, over data chunks only.
    AfterQ,
    SlotNumber,
}

/// A layout number as its four choices, for a number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    slots: u16,
    walk: Walk,
    order: Order,
    q_place: QPlace,
    exponents: Exponents,
}

/// One chunk row: the role of each slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowMap {
    slots: u16,
    p: Slot,
    q: Option<Slot>,
    data: DataOrder,
    exponents: Exponents,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum DataOrder {
    /// Data is on the slots from slot 0 up, passing over P and Q.
    Ascending,
    /// Data is on the slots from `start` up, round the end of the first `ring` slots.
    Following { start: u16, ring: u16 },
}

impl Placement {
    /// The placement of a level's layout; `None` if the level has no such layout. The caller checks
    /// the number of slots.
    pub(crate) fn new(level: Level, layout: u32, slots: u16) -> Option<Placement> {
        let (walk, order, q_place) = match level {
            // md ignores raid4's layout number, and md's level changes leave numbers other than 0
            // in it.
            Level::Raid4 => (Walk::Last, Order::Ascending, QPlace::None),
            Level::Raid5 => {
                let (walk, order) = read_parity(layout)?;
                (walk, order, QPlace::None)
            }
            Level::Raid6 => read_raid6(layout)?,
            Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid10 => return None,
        };
        let is_ddf = level == Level::Raid6
            && matches!(layout, DDF_ZERO_RESTART | DDF_N_RESTART | DDF_N_CONTINUE);
        let exponents = if is_ddf { Exponents::SlotNumber } else { Exponents::AfterQ };
        Some(Placement { slots, walk, order, q_place, exponents })
    }

    pub(crate) fn slots(&self) -> u16 {
        self.slots
    }

    pub(crate) fn parity_slots(&self) -> u16 {
        if self.q_place == QPlace::None { 1 } else { 2 }
    }

    pub(crate) fn data_slots(&self) -> u16 {
        self.slots - self.parity_slots()
    }

    pub(crate) fn row_map(&self, row: ChunkRow) -> RowMap {
        let ring = if self.q_place == QPlace::LastSlot { self.slots - 1 } else { self.slots };
        let turn = |row: u64| narrow(row % u64::from(ring));
        let mut p = match self.walk {
            Walk::Left => ring - 1 - turn(row.0),
            Walk::LeftAhead => ring - 1 - turn(row.0 + 1),
            Walk::Right => turn(row.0),
            Walk::First => 0,
            Walk::Last => self.data_slots(),
        };
        if planted(Bug::LeftWalkLate) && self.walk == Walk::Left {
            p = ring - 1 - turn(row.0 + 1);
        }
        let q = match self.q_place {
            QPlace::None => None,
            QPlace::AfterP => Some(Slot(next(p, ring))),
            QPlace::BeforeP => Some(Slot(previous(p, ring))),
            QPlace::LastSlot => Some(Slot(self.slots - 1)),
        };
        let last_parity = match (self.q_place, q) {
            (QPlace::AfterP, Some(q)) => q.0,
            _ => p,
        };
        let data = match self.order {
            Order::Ascending => DataOrder::Ascending,
            Order::Following => DataOrder::Following { start: next(last_parity, ring), ring },
        };
        RowMap { slots: self.slots, p: Slot(p), q, data, exponents: self.exponents }
    }
}

impl RowMap {
    /// The slot of P.
    #[must_use]
    #[inline]
    pub fn p_slot(&self) -> Slot {
        self.p
    }

    /// The slot of Q; `None` if the level is not raid6.
    #[must_use]
    #[inline]
    pub fn q_slot(&self) -> Option<Slot> {
        self.q
    }

    /// Data chunks in the row.
    #[must_use]
    #[inline]
    pub fn data_slots(&self) -> u16 {
        self.slots - 1 - u16::from(self.q.is_some())
    }

    /// The slot of a data chunk. Panics if there is no such chunk.
    #[must_use]
    #[inline]
    pub fn data_slot(&self, data_index: u16) -> Slot {
        assert!(data_index < self.data_slots(), "a row has no such data chunk");
        match self.data {
            DataOrder::Following { start, ring } => {
                let slot = start + data_index;
                // The slot wraps at most once. A division would dominate many loops over columns.
                Slot(if slot < ring { slot } else { slot - ring })
            }
            DataOrder::Ascending => {
                let (low, high) = self.parities_ascending();
                let above_low = data_index + u16::from(data_index >= low);
                Slot(above_low + u16::from(above_low >= high))
            }
        }
    }

    /// A slot's role. Panics if there is no such slot.
    #[must_use]
    pub fn role(&self, slot: Slot) -> Role {
        assert!(slot.0 < self.slots, "there are {} slots, not {slot} and more", self.slots);
        if slot == self.p {
            return Role::P;
        }
        if Some(slot) == self.q {
            return Role::Q;
        }
        match self.data {
            DataOrder::Following { start, ring } => Role::Data((slot.0 + ring - start) % ring),
            DataOrder::Ascending => {
                let (low, high) = self.parities_ascending();
                Role::Data(slot.0 - u16::from(slot.0 > low) - u16::from(slot.0 > high))
            }
        }
    }

    /// The exponent of a data chunk: Q adds the chunk times 2 to this power. If the level has no Q,
    /// the data index. Panics if there is no such chunk.
    #[must_use]
    pub fn exponent(&self, data_index: u16) -> u16 {
        let slot = self.data_slot(data_index).0;
        let Some(q) = self.q else { return data_index };
        match self.exponents {
            Exponents::SlotNumber => slot,
            Exponents::AfterQ => {
                let start = next(q.0, self.slots);
                let distance = |slot: u16| (slot + self.slots - start) % self.slots;
                distance(slot) - u16::from(distance(self.p.0) < distance(slot))
            }
        }
    }

    /// One more than the greatest possible exponent: the number of data chunks, or in ddf layouts
    /// the number of slots.
    #[must_use]
    pub fn exponents_count(&self) -> u16 {
        match self.exponents {
            Exponents::AfterQ => self.data_slots(),
            Exponents::SlotNumber => self.slots,
        }
    }

    /// The slots of P and Q in ascending order. Without Q, the second number is beyond every slot.
    fn parities_ascending(&self) -> (u16, u16) {
        let q = self.q.map_or(u16::MAX, |q| q.0);
        (self.p.0.min(q), self.p.0.max(q))
    }
}

/// Reads the layouts of raid5, which are also those of raid6 with Q after P or on the last slot.
fn read_parity(layout: u32) -> Option<(Walk, Order)> {
    Some(match layout {
        LEFT_ASYMMETRIC => (Walk::Left, Order::Ascending),
        RIGHT_ASYMMETRIC => (Walk::Right, Order::Ascending),
        LEFT_SYMMETRIC => (Walk::Left, Order::Following),
        RIGHT_SYMMETRIC => (Walk::Right, Order::Following),
        PARITY_FIRST => (Walk::First, Order::Ascending),
        PARITY_LAST => (Walk::Last, Order::Ascending),
        _ => return None,
    })
}

fn read_raid6(layout: u32) -> Option<(Walk, Order, QPlace)> {
    Some(match layout {
        DDF_ZERO_RESTART => (Walk::Right, Order::Ascending, QPlace::AfterP),
        DDF_N_RESTART => (Walk::LeftAhead, Order::Ascending, QPlace::AfterP),
        DDF_N_CONTINUE => (Walk::Left, Order::Following, QPlace::BeforeP),
        LEFT_ASYMMETRIC_6 => (Walk::Left, Order::Ascending, QPlace::LastSlot),
        RIGHT_ASYMMETRIC_6 => (Walk::Right, Order::Ascending, QPlace::LastSlot),
        LEFT_SYMMETRIC_6 => (Walk::Left, Order::Following, QPlace::LastSlot),
        RIGHT_SYMMETRIC_6 => (Walk::Right, Order::Following, QPlace::LastSlot),
        PARITY_FIRST_6 => (Walk::First, Order::Ascending, QPlace::LastSlot),
        _ => {
            let (walk, order) = read_parity(layout)?;
            (walk, order, QPlace::AfterP)
        }
    })
}

fn next(slot: u16, ring: u16) -> u16 {
    (slot + 1) % ring
}

fn previous(slot: u16, ring: u16) -> u16 {
    (slot + ring - 1) % ring
}
