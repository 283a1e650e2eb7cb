//! An array in memory: computes the content of its members by the definition of the level at each
//! read.

use braid_geometry::{Geometry, MemberSector, Role, Shape, Slot};
use braid_parity::{definition, kernel};
use braid_solver::{Guess, Platter, Solution, VolumeKind, VolumeStart};

use crate::volumes::Content;

const SECTOR: usize = 512;

/// An array of which any member can be read.
pub(crate) struct MemoryArray<'a> {
    pub(crate) shape: Shape,
    pub(crate) geometry: Geometry,
    /// The data offset of the member in each slot.
    pub(crate) offsets: Vec<u64>,
    pub(crate) content: &'a Content,
}

/// The member in one slot of an array.
pub(crate) struct Member<'a> {
    pub(crate) array: &'a MemoryArray<'a>,
    pub(crate) slot: u16,
}

impl MemoryArray<'_> {
    /// Reads the data of a slot from this sector on, within one chunk.
    pub(crate) fn data(&self, slot: Slot, sector: u64, bytes: &mut [u8]) {
        match &self.geometry {
            Geometry::Direct(direct) => match direct.logical(slot, MemberSector(sector)) {
                Some(logical) => self.content.read(logical.0, bytes),
                None => bytes.fill(0),
            },
            Geometry::Mirror(mirror) => match mirror.logical(slot, MemberSector(sector)) {
                Some((logical, _)) => self.content.read(logical.0, bytes),
                None => bytes.fill(0),
            },
            Geometry::Stripe(stripe) => {
                let row = stripe.row_of(MemberSector(sector));
                if row.0 >= stripe.rows() {
                    return bytes.fill(0);
                }
                let map = stripe.row_map(row);
                let offset = (sector - stripe.row_start(row).0) as u32;
                let column = |index: u16| {
                    let mut column = vec![0; bytes.len()];
                    self.content.read(stripe.logical(row, index, offset).0, &mut column);
                    column
                };
                match map.role(slot) {
                    Role::Data(index) => {
                        self.content.read(stripe.logical(row, index, offset).0, bytes);
                    }
                    role => {
                        let data: Vec<_> = (0..map.data_slots()).map(column).collect();
                        let mut columns = vec![None; usize::from(map.exponents_count())];
                        for (index, data) in (0..).zip(&data) {
                            columns[usize::from(map.exponent(index))] = Some(data.as_slice());
                        }
                        let (mut p, mut q) = (vec![0; bytes.len()], vec![0; bytes.len()]);
                        kernel().pq(&columns, &mut p, &mut q);
                        bytes.copy_from_slice(if role == Role::P { &p } else { &q });
                    }
                }
            }
        }
    }

    /// All places of an array sector that a guess may name: slot, and sector of the slot's data.
    pub(crate) fn places(&self, sector: u64) -> Vec<(u16, u64)> {
        let logical = braid_geometry::LogicalSector(sector);
        match &self.geometry {
            Geometry::Direct(direct) => {
                let extent = direct.locate(logical);
                vec![(extent.slot.0, extent.sector.0)]
            }
            Geometry::Mirror(mirror) => (0..mirror.copies())
                .map(|copy| mirror.copy(logical, copy))
                .map(|(slot, sector)| (slot.0, sector.0))
                .collect(),
            Geometry::Stripe(stripe) => {
                let at = stripe.locate(logical);
                let slot = stripe.row_map(at.row).data_slot(at.data_index);
                vec![(slot.0, stripe.row_start(at.row).0 + u64::from(at.offset_sectors))]
            }
        }
    }
}

impl Platter for Member<'_> {
    fn sectors(&self) -> u64 {
        let slot = usize::from(self.slot);
        self.array.offsets[slot] + self.array.shape.member_sectors[slot]
    }

    fn read(&self, sector: u64, bytes: &mut [u8]) -> bool {
        let offset = self.array.offsets[usize::from(self.slot)];
        let chunk = match self.array.shape.chunk_sectors {
            0 => 1 << 20,
            chunk => u64::from(chunk),
        };
        let (mut at, mut rest) = (sector, bytes);
        while !rest.is_empty() {
            // The sectors before the data hold older content without signs.
            let room = if at < offset { offset - at } else { chunk - (at - offset) % chunk };
            let length = rest.len().min(usize::try_from(room).expect("small") * SECTOR);
            let (piece, after) = rest.split_at_mut(length);
            match at.checked_sub(offset) {
                None => piece
                    .iter_mut()
                    .enumerate()
                    .for_each(|(index, byte)| *byte = (index * 7 % 251) as u8),
                Some(sector) => self.array.data(Slot(self.slot), sector, piece),
            }
            at += (length / SECTOR) as u64;
            rest = after;
        }
        true
    }
}

/// Whether a guess gives every byte of the content. Each sector is at its true place, or at a place
/// with the same bytes, or computed from the other members.
pub(crate) fn reads_right(
    guess: &Guess,
    solution: &Solution,
    array: &MemoryArray<'_>,
    members: &[Member<'_>],
) -> bool {
    let Some(geometry) = guess.geometry() else { return false };
    let is_content =
        |start: &&VolumeStart| solution.volumes[start.volume].kind != VolumeKind::Table;
    let Some(start) = guess.starts.iter().find(is_content) else { return false };
    let content = array.content;
    let step = (content.sectors / 4096).max(1) | 1;
    let sampled = (0..4096).map(|at| at * 8).chain((0..content.sectors).step_by(step as usize));
    sampled.filter(|at| *at < content.sectors).all(|at| {
        let truth = array.places(content.start + at);
        let here: Vec<_> = truth
            .iter()
            .filter_map(|(slot, sector)| {
                let member = members.iter().position(|member| member.slot == *slot)?;
                Some((member, array.offsets[usize::from(*slot)] + sector))
            })
            .collect();
        let said = guess.places(&geometry, start.sector + at);
        let is_right = |place: &(usize, u64)| {
            let mut bytes = [[0; SECTOR]; 2];
            let [wanted, found] = &mut bytes;
            content.read(content.start + at, wanted);
            let member = &members[place.0];
            place.1 < member.sectors() && member.read(place.1, found) && wanted == found
        };
        match (here.is_empty(), said.is_empty()) {
            (true, true) => {
                let mut wanted = [0; SECTOR];
                content.read(content.start + at, &mut wanted);
                made_of_others(guess, &geometry, start.sector + at, members)
                    .is_some_and(|made| made == wanted)
            }
            // The true place is on a missing member, so the bytes must be equal by chance.
            (true, false) => said.iter().all(is_right),
            (false, _) => {
                !said.is_empty() && said.iter().all(|it| here.contains(it) || is_right(it))
            }
        }
    })
}

/// A sector computed from the other members, by the definition of P and Q; `None` if impossible.
fn made_of_others(
    guess: &Guess,
    geometry: &Geometry,
    sector: u64,
    members: &[Member<'_>],
) -> Option<Vec<u8>> {
    let Geometry::Stripe(stripe) = geometry else { return None };
    if sector >= stripe.capacity_sectors() {
        return None;
    }
    let address = stripe.locate(braid_geometry::LogicalSector(sector));
    let map = stripe.row_map(address.row);
    let place = stripe.row_start(address.row).0 + u64::from(address.offset_sectors);
    let read = |slot: Slot| {
        let (member, at) =
            (&members[guess.slots[slot.index()]?], guess.offsets[slot.index()] + place);
        let mut bytes = vec![0; SECTOR];
        (at < member.sectors() && member.read(at, &mut bytes)).then_some(bytes)
    };
    let data: Vec<_> = (0..map.data_slots()).map(|index| read(map.data_slot(index))).collect();
    let (p, q) = (read(map.p_slot()), map.q_slot().and_then(read));
    let mut columns: Vec<Option<&[u8]>> = vec![None; usize::from(map.exponents_count())];
    for (index, bytes) in (0..).zip(&data) {
        columns[usize::from(map.exponent(index))] = bytes.as_deref();
    }
    let lost: Vec<u16> =
        (0..).zip(&data).filter(|(_, bytes)| bytes.is_none()).map(|(index, _)| index).collect();
    let own = map.exponent(address.data_index);
    let (mut made, mut beside) = (vec![0; SECTOR], vec![0; SECTOR]);
    match (lost.as_slice(), p, q) {
        ([_], Some(p), _) => {
            let sources: Vec<&[u8]> =
                data.iter().flatten().chain([&p]).map(Vec::as_slice).collect();
            definition::xor(&mut made, &sources);
        }
        ([_], None, Some(q)) => definition::recover_data_from_q(&columns, &q, own, &mut made),
        ([one, two], Some(p), Some(q)) => {
            let other = map.exponent(if *one == address.data_index { *two } else { *one });
            let out = (made.as_mut_slice(), beside.as_mut_slice());
            definition::recover_two_data(&columns, &p, &q, (own, other), out);
        }
        _ => return None,
    }
    Some(made)
}
