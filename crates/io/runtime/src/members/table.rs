//! All members of an array, by their names; read without a lock.

use arc_swap::{ArcSwap, Guard};
use braid_engine::array::MemberId;

use super::handle::MemberHandle;
use crate::sync::{Arc, Mutex, thread};

#[derive(Clone)]
struct Entry {
    member: Arc<MemberHandle>,
    /// Whether the member is being taken out, and gets no new operation.
    is_leaving: bool,
}

/// All members, by their names.
#[derive(Clone, Default)]
pub(crate) struct Table(Vec<Option<Entry>>);

impl Table {
    fn entry(&self, id: MemberId) -> Option<&Entry> {
        self.0.get(usize::from(id.0))?.as_ref()
    }

    pub(crate) fn get(&self, id: MemberId) -> Option<&Arc<MemberHandle>> {
        self.entry(id).map(|entry| &entry.member)
    }

    /// A member for a new operation; `None` if the member does not exist or is being removed.
    pub(crate) fn open_to_new(&self, id: MemberId) -> Option<&Arc<MemberHandle>> {
        self.entry(id).filter(|entry| !entry.is_leaving).map(|entry| &entry.member)
    }

    /// A name that no member has had yet.
    pub(crate) fn next_id(&self) -> MemberId {
        MemberId(u16::try_from(self.0.len()).expect("a few members"))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<MemberHandle>> {
        self.0.iter().flatten().map(|entry| &entry.member)
    }
}

/// The members of one array.
pub(crate) struct Members {
    table: ArcSwap<Table>,
    /// Held while the table is changed, so that changes happen one at a time.
    changing: Mutex<()>,
    /// Maximum threads of each member if rings do not do its work.
    pub(crate) threads_max: usize,
}

impl Members {
    pub(crate) fn new(threads_max: usize) -> Self {
        Self { table: ArcSwap::default(), changing: Mutex::default(), threads_max }
    }

    /// The current members. Hold the guard only for a short while: a thread that removes a member
    /// waits until the guard is dropped.
    pub(crate) fn load(&self) -> Guard<Arc<Table>> {
        self.table.load()
    }

    /// Changes the table, and waits until no thread holds the old table.
    fn change(&self, change: impl FnOnce(&mut Vec<Option<Entry>>)) {
        let _one = self.changing.lock().expect("changing does not panic");
        let mut table = Table::clone(&self.load());
        change(&mut table.0);
        let mut old = self.table.swap(Arc::new(table));
        while Arc::get_mut(&mut old).is_none() {
            thread::yield_now();
        }
    }

    /// Adds a member under its name. Panics if another member has this name.
    pub(crate) fn add(&self, member: Arc<MemberHandle>) {
        self.change(|table| {
            let index = usize::from(member.id().0);
            if table.len() <= index {
                table.resize(index + 1, None);
            }
            let is_free = table[index].is_none();
            assert!(is_free, "a name is used once at a time");
            table[index] = Some(Entry { member, is_leaving: false });
        });
    }

    /// Closes the member of this name, if any, to new operations.
    pub(crate) fn close_to_new(&self, id: MemberId) {
        self.change(|table| {
            if let Some(Some(entry)) = table.get_mut(usize::from(id.0)) {
                entry.is_leaving = true;
            }
        });
    }

    pub(crate) fn remove(&self, id: MemberId) {
        self.change(|table| table[usize::from(id.0)] = None);
    }

    /// Ends all members' threads once they have emptied their queues.
    pub(crate) fn stop(&self) {
        self.load().iter().for_each(|member| member.threads.stop());
    }

    /// Joins the members' threads, except those of a member that has left and may never answer.
    pub(crate) fn join(&self) {
        let is_awaited = |member: &&Arc<MemberHandle>| {
            !member.array_operations.has_left() || !member.is_unanswered()
        };
        self.load().iter().filter(is_awaited).for_each(|member| member.threads.join());
    }
}
