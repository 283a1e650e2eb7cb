//! The file with a window's copy, on a simulated disk: the runtime's steps with the shipped format.
//!
//! ```text
//!   Begin ─▶ prepare or remove      open ─▶ remove, or prepare_for, then at
//!   Keep ─▶ read, search ─▶ three writes, each durable ─▶ kept
//! ```

use std::collections::VecDeque;
use std::ops::Range;

use braid_engine::array::{MovedPiece, ShapeChange};
use braid_engine::request::{Fault, Operation, Request};
use braid_engine::reshape::UnreadableSearch;
use braid_ondisk::{CopiedWindow, ReshapePoint, Superblock, WindowHeader};

use super::copy_file::padded;
use super::kinds::UUID;
use super::requests::Purpose;
use super::world::{Event, Running, World};
use crate::content::{SECTOR, bytes};

impl World {
    /// Sectors of the file: header, window, and a few lost ranges.
    fn copy_sectors(&self) -> u64 {
        8 + self.change.largest_shape() + 64
    }

    /// Makes or removes the file, before superblocks record an operator's change of shape.
    pub(super) fn prepare_copy(&mut self, change: &ShapeChange, is_in_place: bool) {
        let ShapeChange::Begin { .. } = change else { return };
        if is_in_place {
            self.tally.count("begun-in-place");
            let sectors = self.copy_sectors();
            self.copy.prepare(sectors);
        } else {
            self.copy.disk = None;
        }
    }

    /// Makes, keeps or removes the file at an opening. Returns the window that moves first, for a
    /// reshape whose window at the recorded position is in place.
    pub(super) fn open_copy(
        &mut self,
        newest: &Superblock,
        is_in_place: bool,
    ) -> Option<Range<u64>> {
        self.copy.window = None;
        self.copy_point = ReshapePoint::of(newest);
        let Some(point) = self.copy_point else {
            self.copy.disk = None;
            return None;
        };
        if !self.copy.header().is_some_and(|header| header.is_of(point)) {
            let sectors = self.copy_sectors();
            self.copy.prepare(sectors);
        }
        self.copy.window = self.copy.at(point).filter(|_| is_in_place);
        self.tally.count_many("moved-from-copy", u64::from(self.copy.window.is_some()));
        self.copy.window.as_ref().map(|window| window.sectors.clone())
    }

    /// Begins to read a window that is to be copied.
    pub(super) fn copy_window(&mut self, run: &mut Running, (start, sectors): (u64, u64)) {
        let payload = vec![0x44; sectors as usize * SECTOR];
        let purpose = Purpose::WindowRead(start);
        self.move_on(run, (false, Operation::Read), (start, sectors), Some(payload), purpose);
    }

    /// A read of a whole window has ended.
    pub(super) fn window_was_read(
        &mut self,
        run: &mut Running,
        start: u64,
        (result, data): (Result<(), Fault>, Vec<u8>),
    ) {
        match result {
            Ok(()) => self.keep_window(run, (start, data), Vec::new()),
            Err(Fault::Unreadable) => {
                let end = start + (data.len() / SECTOR) as u64;
                self.read_window_part(run, start, UnreadableSearch::of(start..end), data);
            }
            Err(fault) => run.push(Event::Kept { result: Err(fault) }),
        }
    }

    pub(super) fn window_part_was_read(
        &mut self,
        run: &mut Running,
        (request, whole): (Request, (u64, UnreadableSearch, Vec<u8>)),
        (result, data): (Result<(), Fault>, Vec<u8>),
    ) {
        let (start, mut search, mut bytes_so_far) = whole;
        let part = request.start.0..request.start.0 + request.sectors;
        if result.is_ok() {
            bytes_so_far[bytes(part.start - start, request.sectors)].copy_from_slice(&data);
        }
        search.ended(part, result.is_ok());
        self.read_window_part(run, start, search, bytes_so_far);
    }

    fn read_window_part(
        &mut self,
        run: &mut Running,
        start: u64,
        mut search: UnreadableSearch,
        whole: Vec<u8>,
    ) {
        let Some(part) = search.next_part() else {
            let lost = search.lost().expect("arrays are small");
            return self.keep_window(run, (start, whole), lost);
        };
        let range = (part.start, part.end - part.start);
        let payload = vec![0x55; range.1 as usize * SECTOR];
        let purpose = Purpose::WindowPartRead(start, search, whole);
        self.move_on(run, (false, Operation::Read), range, Some(payload), purpose);
    }

    fn keep_window(
        &mut self,
        run: &mut Running,
        (start, data): (u64, Vec<u8>),
        lost: Vec<Range<u64>>,
    ) {
        let sectors = start..start + (data.len() / SECTOR) as u64;
        if !lost.is_empty() && !run.machines.array.may_lose(&lost) {
            return run.push(Event::Kept { result: Err(Fault::Unreadable) });
        }
        let window = CopiedWindow { sectors, bytes: data, lost };
        let position = run.gate.regions.border().expect("a reshape has a border");
        let point = self.copy_point.expect("a window has a reshape").moved_to(position);
        let writes: VecDeque<_> = window.writes(&UUID, point).into_iter().collect();
        self.copy.window = Some(window);
        if self.plan.copies_fail > 0 && self.random.chance(40) {
            // The state folder is full: the file has no window.
            self.plan.copies_fail -= 1;
            self.tally.count("copy-failed");
            let none = WindowHeader::default().to_bytes(&UUID);
            self.copy.disk().put(0, &none, true);
            return run.push(Event::Kept { result: Err(Fault::NoSpace) });
        }
        run.push(Event::CopyWrite { writes });
    }

    /// One write of the copy is durable; the next write follows.
    pub(super) fn copy_write(&mut self, run: &mut Running, mut writes: VecDeque<(u64, Vec<u8>)>) {
        let (offset, data) = writes.pop_front().expect("a write is due");
        self.copy.disk().put(offset / SECTOR as u64, &padded(data), true);
        if writes.is_empty() {
            self.tally.count("window-copied");
            return run.push(Event::Kept { result: Ok(()) });
        }
        run.push(Event::CopyWrite { writes });
    }

    /// Moves a piece whose content is in the copy.
    pub(super) fn move_copied(&mut self, run: &mut Running, piece: MovedPiece) {
        let MovedPiece { start, moved_sectors, .. } = piece;
        let copied = self.copy.window.as_ref().and_then(|window| {
            let offset = start.checked_sub(window.sectors.start)?;
            let data = window.bytes.get(bytes(offset, moved_sectors))?;
            Some((data.to_vec(), window.lost.clone()))
        });
        let Some((data, lost)) = copied else {
            return run.push(Event::Moved { start, result: Err(Fault::NoSpace) });
        };
        self.write_piece(run, piece, data, &lost);
    }
}
