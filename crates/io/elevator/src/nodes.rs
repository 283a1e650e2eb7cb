//! Entries in memory: places that are reused and never move, linked by number.
//!
//! A node is an entry. The first node of a group (by sector) represents the group: it holds the
//! group's size and age, and stands in the list by age. Memory grows to the most entries that were
//! ever queued at once and is then only reused.

use braid_sim_hooks::{Bug, planted};

use crate::entry::Entry;

pub(crate) type Node = u32;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkedEntry {
    pub(crate) entry: Entry,
    /// The next part of the group, by sector.
    pub(crate) next_part: Option<Node>,
    /// If this node is the first of a group: the group's last part.
    pub(crate) last_part: Node,
    /// If this node is the first of a group: the sectors of the whole group.
    pub(crate) sectors: u32,
    /// If this node is the first of a group: the number of its entries.
    pub(crate) parts: u32,
    /// If this node is the first of a group: when the group's oldest part arrived.
    pub(crate) came_ns: u64,
    pub(crate) older: Option<Node>,
    pub(crate) younger: Option<Node>,
}

impl LinkedEntry {
    pub(crate) const fn end(&self) -> u64 {
        self.entry.start + self.sectors as u64
    }
}

#[derive(Debug, Default)]
pub(crate) struct Nodes {
    all: Vec<LinkedEntry>,
    free: Vec<Node>,
}

impl Nodes {
    /// Adds a group with a single entry.
    pub(crate) fn add(&mut self, entry: Entry, came_ns: u64) -> Node {
        let place = self.free.pop();
        let node =
            place.unwrap_or_else(|| Node::try_from(self.all.len()).expect("memory ends before"));
        let linked = LinkedEntry {
            entry,
            next_part: None,
            last_part: node,
            sectors: entry.sectors,
            parts: 1,
            came_ns,
            older: None,
            younger: None,
        };
        match self.all.get_mut(node as usize) {
            Some(place) => *place = linked,
            None => self.all.push(linked),
        }
        node
    }

    pub(crate) fn get(&self, node: Node) -> &LinkedEntry {
        &self.all[node as usize]
    }

    pub(crate) fn get_mut(&mut self, node: Node) -> &mut LinkedEntry {
        &mut self.all[node as usize]
    }

    /// Appends the group `back` to the group `front`, which ends where `back` starts.
    pub(crate) fn chain(&mut self, front: Node, back: Node) {
        let LinkedEntry { last_part, sectors, parts, came_ns, .. } = *self.get(back);
        let joint = self.get(front).last_part;
        debug_assert_eq!(self.get(front).end(), self.get(back).entry.start);
        self.get_mut(joint).next_part = Some(back);
        if planted(Bug::PartLost) {
            self.get_mut(joint).next_part = None;
        }
        let head = self.get_mut(front);
        head.last_part = last_part;
        head.sectors += sectors;
        head.parts += parts;
        head.came_ns = head.came_ns.min(came_ns);
    }

    /// The entries of a group, by sector.
    pub(crate) fn parts(&self, first: Node) -> Parts<'_> {
        Parts { nodes: self, next: Some(first) }
    }

    pub(crate) fn free(&mut self, first: Node) {
        let mut next = Some(first);
        while let Some(node) = next {
            next = self.get(node).next_part;
            self.free.push(node);
        }
    }

    /// Entries queued or in flight.
    pub(crate) fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }
}

/// The entries of a dispatch, in the order of sectors.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    nodes: &'a Nodes,
    next: Option<Node>,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a Entry;

    #[inline]
    fn next(&mut self) -> Option<&'a Entry> {
        let part = self.nodes.get(self.next?);
        self.next = part.next_part;
        Some(&part.entry)
    }
}
