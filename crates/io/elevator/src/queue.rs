//! The entries that wait in one class and direction: sorted by sector, listed by age, merged.
//!
//! The entries are sorted in a plain vector. A queue is as long as a member has clients, hundreds,
//! and moving a few KiB costs less than a tree's allocations. Both orders hold the same groups
//! [check: every_entry_goes_out_once_whatever_comes].

use crate::counters::Counters;
use crate::entry::Entry;
use crate::nodes::{Node, Nodes};
use crate::settings::Settings;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// First sector and node of each group, sorted by sector; groups with equal sectors in order of
    /// arrival.
    sorted: Vec<(u64, Node)>,
    oldest: Option<Node>,
    youngest: Option<Node>,
    /// The sector after the last one dispatched.
    position: u64,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub(crate) fn oldest(&self) -> Option<Node> {
        self.oldest
    }

    /// The next group at or after the sector where this direction's sweep stopped.
    pub(crate) fn next_up(&self) -> Option<Node> {
        self.next_from(self.position).map(|(_, node)| node)
    }

    /// The first group at or after a sector, and the sector where that group begins.
    pub(crate) fn next_from(&self, sector: u64) -> Option<(u64, Node)> {
        self.sorted.get(self.index_from(sector)).copied()
    }

    fn index_from(&self, sector: u64) -> usize {
        self.sorted.partition_point(|(start, _)| *start < sector)
    }

    /// The sector where this direction's sweep stopped.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Moves this direction's sweep to the sector that the arm reached for the other direction.
    pub(crate) fn go_on_from(&mut self, sector: u64) {
        self.position = sector;
    }

    pub(crate) fn lowest(&self) -> Option<Node> {
        self.sorted.first().map(|(_, node)| *node)
    }

    /// Queues an entry, or joins it to its neighbours.
    pub(crate) fn insert(
        &mut self,
        nodes: &mut Nodes,
        (entry, now_ns): (Entry, u64),
        settings: &Settings,
        counters: &mut Counters,
    ) {
        let index = self.sorted.partition_point(|(start, _)| *start <= entry.start);
        let before = index.checked_sub(1).map(|index| self.sorted[index].1);
        let behind = self.sorted.get(index).map(|(_, node)| *node);
        let node = nodes.add(entry, now_ns);
        let fits_before = before.filter(|before| fits(nodes, *before, node, settings));
        if let Some(before) = fits_before {
            nodes.chain(before, node);
            counters.merged_back += 1;
            if let Some(behind) = behind.filter(|behind| fits(nodes, before, *behind, settings)) {
                self.sorted.remove(index);
                self.take_place_by_age(nodes, before, behind);
                nodes.chain(before, behind);
                counters.joined += 1;
            }
        } else if let Some(behind) = behind.filter(|behind| fits(nodes, node, *behind, settings)) {
            // `node` starts at or before `behind`, and after every group that starts no later.
            self.sorted[index] = (entry.start, node);
            self.replace_by_age(nodes, behind, node);
            nodes.chain(node, behind);
            counters.merged_front += 1;
        } else {
            self.sorted.insert(index, (entry.start, node));
            self.push_youngest(nodes, node);
        }
    }

    pub(crate) fn remove(&mut self, nodes: &mut Nodes, node: Node) {
        self.remove_by_the_way(nodes, node);
        self.position = nodes.get(node).end();
    }

    /// As `remove`, without moving this direction's sweep.
    pub(crate) fn remove_by_the_way(&mut self, nodes: &mut Nodes, node: Node) {
        let start = nodes.get(node).entry.start;
        let from = self.index_from(start);
        let index = self.sorted[from..].iter().position(|(_, other)| *other == node);
        self.sorted.remove(from + index.expect("a queued group is where it is sorted"));
        self.unlink(nodes, node);
    }

    pub(crate) fn take_next_up(&mut self, nodes: &mut Nodes) -> Option<Node> {
        let index = self.index_from(self.position);
        if index == self.sorted.len() {
            return None;
        }
        let (_, node) = self.sorted.remove(index);
        self.unlink(nodes, node);
        self.position = nodes.get(node).end();
        Some(node)
    }

    fn push_youngest(&mut self, nodes: &mut Nodes, node: Node) {
        nodes.get_mut(node).older = self.youngest;
        nodes.get_mut(node).younger = None;
        match self.youngest {
            Some(youngest) => nodes.get_mut(youngest).younger = Some(node),
            None => self.oldest = Some(node),
        }
        self.youngest = Some(node);
    }

    fn unlink(&mut self, nodes: &mut Nodes, node: Node) {
        let (older, younger) = (nodes.get(node).older, nodes.get(node).younger);
        match older {
            Some(older) => nodes.get_mut(older).younger = younger,
            None => self.oldest = younger,
        }
        match younger {
            Some(younger) => nodes.get_mut(younger).older = older,
            None => self.youngest = older,
        }
    }

    /// Puts `new` in `old`'s position in the list by age.
    fn replace_by_age(&mut self, nodes: &mut Nodes, old: Node, new: Node) {
        let (older, younger) = (nodes.get(old).older, nodes.get(old).younger);
        nodes.get_mut(new).older = older;
        nodes.get_mut(new).younger = younger;
        match older {
            Some(older) => nodes.get_mut(older).younger = Some(new),
            None => self.oldest = Some(new),
        }
        match younger {
            Some(younger) => nodes.get_mut(younger).older = Some(new),
            None => self.youngest = Some(new),
        }
    }

    /// Joins two groups into one, `front`, in the older group's position in the list by age.
    fn take_place_by_age(&mut self, nodes: &mut Nodes, front: Node, back: Node) {
        if nodes.get(back).came_ns < nodes.get(front).came_ns {
            self.unlink(nodes, front);
            self.replace_by_age(nodes, back, front);
        } else {
            self.unlink(nodes, back);
        }
    }
}

/// Whether `back` continues `front` and both together stay within the limits.
fn fits(nodes: &Nodes, front: Node, back: Node, settings: &Settings) -> bool {
    let (front, back) = (nodes.get(front), nodes.get(back));
    let sectors = u64::from(front.sectors) + u64::from(back.sectors);
    front.end() == back.entry.start
        && front.entry.operation == back.entry.operation
        && front.entry.operation.merges()
        && sectors <= u64::from(settings.merge_sectors_max)
        && front.parts + back.parts <= settings.merge_parts_max
}
