//! All members of an array, by their names; read without a lock.

use arc_swap::{ArcSwap, Guard};
use braid_engine::array::MemberId;

use super::handle::MemberHandle;
use crate::sync::{Arc, Mutex, thread};

/// One member in the table.
#[derive(Clone)]
struct Entry {
    member: Arc<MemberHandle>,
    /// It is being taken out: nothing new for it.
    is_leaving: bool,
}

/// All members there are, by their names.
#[derive(Clone, Default)]
pub(crate) struct Table(Vec<Option<Entry>>);

impl Table {
    fn entry(&self, id: MemberId) -> Option<&Entry> {
        self.0.get(usize::from(id.0))?.as_ref()
    }

    /// A member, unless there is none of this name.
    pub(crate) fn get(&self, id: MemberId) -> Option<&Arc<MemberHandle>> {
        self.entry(id).map(|entry| &entry.member)
    }

    /// The same for something new: none if it is being taken out.
    pub(crate) fn open_to_new(&self, id: MemberId) -> Option<&Arc<MemberHandle>> {
        self.entry(id).filter(|entry| !entry.is_leaving).map(|entry| &entry.member)
    }

    /// A name that no member has had.
    pub(crate) fn next_id(&self) -> MemberId {
        MemberId(u16::try_from(self.0.len()).expect("a few members"))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<MemberHandle>> {
        self.0.iter().flatten().map(|entry| &entry.member)
    }
}

/// The members of one array.
pub(crate) struct Members {
    table: ArcSwap<Table>,
    /// One change at a time.
    changing: Mutex<()>,
    /// Threads of each where rings do not do it.
    pub(crate) threads_max: usize,
}

impl Members {
    pub(crate) fn new(threads_max: usize) -> Self {
        Self { table: ArcSwap::default(), changing: Mutex::default(), threads_max }
    }

    /// The members as they are now, for a short while: a thread that takes one out waits until this is let go.
    pub(crate) fn load(&self) -> Guard<Arc<Table>> {
        self.table.load()
    }

    /// Changes the table, and waits until no thread has the old one any more.
    fn change(&self, change: impl FnOnce(&mut Vec<Option<Entry>>)) {
        let _one = self.changing.lock().expect("changing does not panic");
        let mut table = Table::clone(&self.load());
        change(&mut table.0);
        let mut old = self.table.swap(Arc::new(table));
        while Arc::get_mut(&mut old).is_none() {
            thread::yield_now();
        }
    }

    /// Takes a member in, under its name.
    ///
    /// # Panics
    /// When there is one of this name.
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

    /// Nothing new is for this member any more, if there is one of this name.
    pub(crate) fn close_to_new(&self, id: MemberId) {
        self.change(|table| {
            if let Some(Some(entry)) = table.get_mut(usize::from(id.0)) {
                entry.is_leaving = true;
            }
        });
    }

    /// Takes a member out.
    pub(crate) fn remove(&self, id: MemberId) {
        self.change(|table| table[usize::from(id.0)] = None);
    }

    /// Ends all members' threads once they have done what is queued.
    pub(crate) fn stop(&self) {
        self.load().iter().for_each(|member| member.crew.stop());
    }

    /// Waits for them to end, but for those of a member that has left and may never answer.
    pub(crate) fn join(&self) {
        let is_awaited =
            |member: &&Arc<MemberHandle>| !member.for_array.has_left() || !member.is_unanswered();
        self.load().iter().filter(is_awaited).for_each(|member| member.crew.join());
    }
}
