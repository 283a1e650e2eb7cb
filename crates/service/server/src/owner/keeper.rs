//! The keeper of a tenure: renews the record in the store, removes members from the record before
//! superblocks do, and extends the lease.
//!
//! ```text
//!   an update is planned ─▶ agree: allowed by the record ─▶ consent
//!                              └─ not yet ─▶ run: swap at the store ─▶ consent
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use braid_assembly::Occupant;
use braid_control::model::LeftOut;
use braid_discovery::ready::Ready;
use braid_geometry::Slot;
use braid_member::{Access, OpenError};
use braid_ownership::{
    MemberKey, ReadLease, Record, RecordedMember, SwapResult, Tenure, TenureEnd,
};
use braid_runtime::{Consenter, PlannedUpdate, Volume};
use braid_store::StoreError;

use super::ending::{BEAT, LEASE, end_at_once, end_without_store};
use super::lease_gate::LeaseGate;
use super::swap::{PAUSE, Seen};
use super::take_over::{AskedMembers, Owned};

/// Interval at which the lease is computed anew. Members' links send a request at least this often.
const LEASE_STEP: Duration = Duration::from_millis(100);

/// The pause before a member that was left out of the take-over is tried again.
const ADD_PAUSE: Duration = Duration::from_secs(2);

/// An owned array that is about to be opened.
pub(crate) struct OwnedArray {
    seen: Seen,
    tenure: Tenure,
    patience: Option<Duration>,
    left_out: Vec<PathBuf>,
    members_asked: AskedMembers,
    slots: BTreeMap<MemberKey, u16>,
    gate: Arc<LeaseGate>,
    planned: (Sender<PlannedUpdate>, Receiver<PlannedUpdate>),
}

impl OwnedArray {
    /// Takes over an owned array. From now on, a refusal by a member's server ends the process.
    pub(crate) fn new(
        owned: Owned,
        ready: &Ready,
        patience: Option<Duration>,
        (name, json): (&str, bool),
    ) -> Self {
        let Owned { seen, tenure, refusals, left_out, asked: members_asked, .. } = owned;
        refusals.end_process(name, json);
        let slots = (0..).zip(&ready.array.slots);
        let slot_of = |(slot, occupant): (u16, &Option<Occupant>)| {
            let open = ready.members.get(occupant.as_ref()?.member)?.as_ref()?;
            Some((MemberKey(open.superblock.device.uuid), slot))
        };
        let slots = slots.filter_map(slot_of).collect();
        // The gate stays closed until members have answered requests of this array.
        let gate = Arc::new(LeaseGate::new(0));
        Self { seen, tenure, patience, left_out, members_asked, slots, gate, planned: channel() }
    }

    /// A handle by which the array announces each update of superblocks before the update begins.
    pub(crate) fn consenter(&self) -> Consenter {
        let sender = self.planned.0.clone();
        Consenter::new(move |planned| {
            // The send fails only after the release, when the array plans no more updates.
            let _ = sender.send(planned);
        })
    }

    pub(crate) fn gate(&self) -> Arc<LeaseGate> {
        Arc::clone(&self.gate)
    }

    /// Starts the keeper's threads.
    pub(crate) fn start(
        self,
        volume: &Arc<Volume>,
        name: &str,
        json: bool,
    ) -> std::io::Result<Keeper> {
        let Self { seen, tenure, patience, left_out, members_asked, slots, gate, planned } = self;
        let (sender, receiver) = planned;
        let state = State { tenure, slots, seen: BTreeSet::new(), last: None, asked: None };
        let state = Arc::new(Mutex::new(state));
        let weak = Arc::downgrade(volume);
        let lease = LeaseKeeper {
            volume: Weak::clone(&weak),
            gate,
            state: Arc::clone(&state),
            lease: ReadLease::new(u64::try_from(LEASE.as_nanos()).expect("seconds")),
        };
        thread::Builder::new().name("braid-lease".into()).spawn(move || lease.run())?;
        let (wakes, woken) = channel();
        let agreed = (Arc::clone(&state), Weak::clone(&weak), wakes.clone());
        let agree = move || agree(&receiver, &agreed);
        thread::Builder::new().name("braid-consent".into()).spawn(agree)?;
        let mut keeper = TenureKeeper {
            volume: weak,
            seen,
            state: Arc::clone(&state),
            patience,
            name: name.to_owned(),
            json,
            is_away_told: false,
        };
        let run = move || keeper.run(&woken);
        let thread = thread::Builder::new().name("braid-owner".into()).spawn(run)?;
        drop(sender);
        Ok(Keeper { state, wakes, thread: Some(thread), left_out, members_asked })
    }
}

/// A running keeper.
pub(crate) struct Keeper {
    state: Arc<Mutex<State>>,
    wakes: Sender<()>,
    thread: Option<JoinHandle<()>>,
    /// Members that were left out of the take-over.
    left_out: Vec<PathBuf>,
    members_asked: AskedMembers,
}

impl Keeper {
    /// The members that were left out of the take-over.
    pub(crate) fn left_out(&self) -> Vec<LeftOut> {
        let unasked = |path: &PathBuf| LeftOut {
            member: path.to_string_lossy().into_owned(),
            answers: false,
            cause: None,
        };
        self.left_out.iter().map(unasked).collect()
    }

    /// Adds the members that were left out of the take-over, each when it answers. After each
    /// attempt, `note` gets the members that are still left out.
    pub(crate) fn add_later(
        &self,
        volume: &Arc<Volume>,
        add: impl Fn(&Path) -> Result<(), String> + Send + 'static,
        note: impl Fn(&[LeftOut]) + Send + 'static,
    ) -> std::io::Result<()> {
        let mut left = self.left_out();
        let (asked, volume) = (self.members_asked.clone(), Arc::downgrade(volume));
        let run = move || {
            while !left.is_empty() && volume.strong_count() > 0 {
                let mut at = 0;
                while let Some(one) = left.get_mut(at) {
                    match try_to_add(Path::new(&one.member), &asked, &add) {
                        Ok(()) => drop(left.remove(at)),
                        Err((answers, why)) => {
                            if answers && one.cause.as_ref() != Some(&why) {
                                errln!("{} is not taken in: {why}; trying again", one.member);
                            }
                            (one.answers, one.cause) = (answers, Some(why));
                            at += 1;
                        }
                    }
                    note(&left);
                }
                thread::sleep(ADD_PAUSE);
            }
        };
        thread::Builder::new().name("braid-returning".into()).spawn(run).map(drop)
    }

    /// Releases the array, which has stopped in order, to the host `heir`, or to any host if `heir`
    /// is empty. Waits for the store at most for `patience`.
    pub(crate) fn release(mut self, heir: &str, patience: Duration) {
        self.state.lock().expect(UNBROKEN).tenure.want_release(heir);
        // The send fails if the keeper's thread has ended because the tenure is over.
        let _ = self.wakes.send(());
        let until = Instant::now() + patience;
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Adds a member that was left out of the take-over. The error says whether the member's server
/// answers, and why the array does not have the member.
fn try_to_add(
    path: &Path,
    asked: &AskedMembers,
    add: impl Fn(&Path) -> Result<(), String>,
) -> Result<(), (bool, String)> {
    if asked.has(path) {
        return Err((false, "no answer".to_owned()));
    }
    // Opens the member first, to make sure that its host answers: `add` blocks other requests, and
    // must not wait for a host that is gone.
    match braid_member::open(path, Access::Examine) {
        Err(OpenError::Unreachable { reason, .. }) => Err((false, reason)),
        Err(error) => Err((true, error.to_string())),
        Ok(_) => add(path).map_err(|why| (true, why)),
    }
}

/// State of the tenure. No thread holds its lock while it waits for the store.
struct State {
    tenure: Tenure,
    /// The slots of the members in sync.
    slots: BTreeMap<MemberKey, u16>,
    /// The members that the array has had under this owner.
    seen: BTreeSet<MemberKey>,
    /// The last update of superblocks to which the keeper agreed.
    last: Option<PlannedUpdate>,
    /// An update of superblocks that waits for a swap at the store, and since when it waits.
    asked: Option<(PlannedUpdate, Instant)>,
}

impl State {
    fn ask(&mut self, planned: PlannedUpdate) {
        // A member that the update leaves out is no longer added to the record's members in sync,
        // even if that was wanted before.
        let in_sync = self.tenure.record().in_sync();
        let kept = in_sync.intersection(&keys(&planned)).copied().collect();
        self.tenure.want_in_sync(kept, "a member was given up");
        // An earlier update of superblocks is no longer a reason to name a member as in sync.
        self.last = None;
        let since = self.asked.take().map_or_else(Instant::now, |(_, since)| since);
        self.asked = Some((planned, since));
    }

    /// Agrees to the waiting update of superblocks, if the record allows it.
    fn consent(&mut self, volume: &Weak<Volume>) {
        let allowed = self.asked.take_if(|(one, _)| self.tenure.allows(&keys(one)));
        let Some((planned, _)) = allowed else { return };
        if let Some(volume) = volume.upgrade() {
            volume.consent(planned.events);
        }
        self.slots = planned.in_sync.iter().map(|one| (MemberKey(one.uuid), one.slot)).collect();
        self.last = Some(planned);
    }

    /// Drops from the record the members that have failed or were removed under this owner.
    fn forget(&mut self, volume: &Volume) {
        let away = volume.away();
        let looks = volume.look_at_members().into_iter();
        let there = looks.filter(|look| look.is_in || away.contains(&look.id));
        let there: BTreeSet<MemberKey> =
            there.map(|look| MemberKey(look.superblock.device.uuid)).collect();
        let gone = self.seen.difference(&there).copied().collect();
        self.tenure.forget(gone);
        self.seen.extend(there);
    }

    /// Adds to the record the members that superblocks durably name as in sync.
    fn take_in(&mut self, volume: &Volume) {
        let Some(last) = &self.last else { return };
        if volume.recorded().is_none_or(|recorded| recorded.events < last.events) {
            return;
        }
        let keys = keys(last);
        if keys == self.tenure.record().in_sync() {
            return;
        }
        for look in volume.look_at_members() {
            self.tenure.know(RecordedMember {
                key: MemberKey(look.superblock.device.uuid),
                address: look.path.to_string_lossy().into_owned(),
                is_in_sync: false,
            });
        }
        self.tenure.want_in_sync(keys, "a member is in sync again");
    }
}

const UNBROKEN: &str = "no panic under this lock";

/// Agrees to updates of superblocks that need no swap, even while the store does not answer. Wakes
/// the keeper to swap the record for the other updates.
fn agree(
    planned: &Receiver<PlannedUpdate>,
    (state, volume, wakes): &(Arc<Mutex<State>>, Weak<Volume>, Sender<()>),
) {
    for planned in planned {
        let mut state = state.lock().expect(UNBROKEN);
        state.ask(planned);
        state.consent(volume);
        if wakes.send(()).is_err() {
            return;
        }
    }
}

/// The thread that swaps the record at the store.
struct TenureKeeper {
    volume: Weak<Volume>,
    seen: Seen,
    state: Arc<Mutex<State>>,
    /// How long an update of superblocks may wait for the store; `None` without a limit.
    patience: Option<Duration>,
    name: String,
    json: bool,
    is_away_told: bool,
}

impl TenureKeeper {
    fn run(&mut self, woken: &Receiver<()>) {
        let mut beat_at = Instant::now() + BEAT;
        // A swap has succeeded, and another is wanted already.
        let mut is_eager = false;
        loop {
            let until_beat = beat_at.saturating_duration_since(Instant::now());
            let wait = if is_eager { Duration::ZERO } else { until_beat };
            if woken.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            let is_due = Instant::now() >= beat_at;
            let next = {
                let mut state = self.state.lock().expect(UNBROKEN);
                if let Some(volume) = self.volume.upgrade() {
                    state.take_in(&volume);
                    state.forget(&volume);
                }
                let is_wanted = is_due || state.tenure.is_behind();
                if is_wanted { state.tenure.begin_swap() } else { None }
            };
            is_eager = false;
            if let Some(to) = next {
                beat_at = Instant::now() + BEAT;
                let result = self.swap(&to);
                let mut state = self.state.lock().expect(UNBROKEN);
                let is_done = result == SwapResult::Done;
                state.tenure.swapped(result);
                state.consent(&self.volume);
                is_eager = is_done && state.tenure.is_behind();
            }
            match self.state.lock().expect(UNBROKEN).tenure.end() {
                Some(TenureEnd::Released) => return,
                Some(end) => end_at_once(&self.name, end, self.json),
                None => {}
            }
        }
    }

    fn swap(&mut self, to: &Record) -> SwapResult {
        let Self { seen, state, patience, name, json, is_away_told: is_told, .. } = self;
        let mut tell = |error: &StoreError| {
            if !std::mem::replace(is_told, true) {
                errln!("{error}; the array goes on, and no member can be given up meanwhile");
            }
            let asked = state.lock().expect(UNBROKEN).asked.as_ref().map(|(_, since)| *since);
            let waited = asked.map(|since| since.elapsed());
            if let Some(waited) =
                waited.filter(|waited| patience.is_some_and(|most| *waited >= most))
            {
                end_without_store(name, waited, *json);
            }
        };
        let swapped = seen.swap(to, &mut |error| {
            tell(error);
            thread::sleep(PAUSE);
            true
        });
        // If the store refused the swap, perhaps for wrong credentials, the next beat tries again.
        let result = swapped.inspect_err(tell).ok();
        if result == Some(SwapResult::Done) {
            self.is_away_told = false;
        }
        result.unwrap_or_else(|| SwapResult::Record(self.seen.record().cloned()))
    }
}

fn keys(planned: &PlannedUpdate) -> BTreeSet<MemberKey> {
    planned.in_sync.iter().map(|one| MemberKey(one.uuid)).collect()
}

struct LeaseKeeper {
    volume: Weak<Volume>,
    gate: Arc<LeaseGate>,
    state: Arc<Mutex<State>>,
    lease: ReadLease,
}

impl LeaseKeeper {
    fn run(mut self) {
        while let Some(volume) = self.volume.upgrade() {
            for look in volume.look_at_members() {
                if let Some(seen_ns) = look.claim_seen_ns {
                    self.lease.note(MemberKey(look.superblock.device.uuid), seen_ns);
                }
            }
            let geometry = volume.geometry();
            drop(volume);
            let (in_sync, slots) = {
                let state = self.state.lock().expect(UNBROKEN);
                (state.tenure.in_sync_at_most(), state.slots.clone())
            };
            let can_run = |set: &BTreeSet<MemberKey>| {
                let held: BTreeSet<u16> =
                    set.iter().filter_map(|key| slots.get(key)).copied().collect();
                geometry.survives(&|slot: Slot| !held.contains(&slot.0))
            };
            self.gate.set_until(self.lease.until_ns(&in_sync, can_run));
            thread::sleep(LEASE_STEP);
        }
        // The array has stopped, so the gate opens for its last answers.
        self.gate.set_until(u64::MAX);
    }
}
