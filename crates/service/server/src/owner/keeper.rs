//! The keeper of a tenure: a thread that beats, gives members up before superblocks do, and keeps
//! the lease of reads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use braid_assembly::Occupant;
use braid_discovery::ready::Ready;
use braid_geometry::Slot;
use braid_member::boot_ns;
use braid_ownership::{MemberKey, ReadLease, Record, RecordedMember, Tenure, TenureEnd};
use braid_runtime::{Consenter, PlannedUpdate, Volume};
use braid_store::StoreError;

use super::ending::{BEAT, LEASE, end_at_once};
use super::read_gate::ReadGate;
use super::swap::Seen;
use super::take_over::Owned;

/// How often the lease is computed anew: members' links send a request at least this often.
const LEASE_STEP: Duration = Duration::from_millis(100);

/// The pause before a member that was left out is looked for again.
const ADD_PAUSE: Duration = Duration::from_secs(2);

enum Word {
    Planned(PlannedUpdate),
    /// The array has ended in order.
    Release,
}

/// An owned array that is about to be opened.
pub(crate) struct OwnedArray {
    seen: Seen,
    tenure: Tenure,
    left_out: Vec<PathBuf>,
    slots: BTreeMap<MemberKey, u16>,
    gate: Arc<ReadGate>,
    words: (Sender<Word>, Receiver<Word>),
}

impl OwnedArray {
    /// From now on a refusal of a member's server ends the process.
    pub(crate) fn new(owned: Owned, ready: &Ready, (name, json): (&str, bool)) -> Self {
        let Owned { seen, tenure, refusals, left_out, .. } = owned;
        refusals.end_process(name, json);
        let slots = (0..).zip(&ready.array.slots);
        let slot_of = |(slot, occupant): (u16, &Option<Occupant>)| {
            let open = ready.members.get(occupant.as_ref()?.member)?.as_ref()?;
            Some((MemberKey(open.superblock.device.uuid), slot))
        };
        let slots = slots.filter_map(slot_of).collect();
        // The members were claimed a moment ago.
        let first = boot_ns() + u64::try_from(LEASE.as_nanos()).expect("seconds");
        let gate = Arc::new(ReadGate::new(first));
        Self { seen, tenure, left_out, slots, gate, words: channel() }
    }

    /// Hears of each update of superblocks before it begins.
    pub(crate) fn consenter(&self) -> Consenter {
        let sender = self.words.0.clone();
        Consenter::new(move |planned| {
            // After the release no update is planned any more.
            let _ = sender.send(Word::Planned(planned));
        })
    }

    pub(crate) fn gate(&self) -> Arc<ReadGate> {
        Arc::clone(&self.gate)
    }

    /// Starts the keeper's threads.
    pub(crate) fn start(
        self,
        volume: &Arc<Volume>,
        name: &str,
        json: bool,
    ) -> std::io::Result<Keeper> {
        let Self { seen, tenure, left_out, slots, gate, words: (sender, receiver) } = self;
        let in_sync = tenure.record().in_sync();
        let shared = Arc::new(std::sync::Mutex::new((in_sync, slots)));
        let lease = LeaseKeeper {
            volume: Arc::downgrade(volume),
            gate,
            shared: Arc::clone(&shared),
            lease: ReadLease::new(u64::try_from(LEASE.as_nanos()).expect("seconds")),
        };
        thread::Builder::new().name("braid-lease".into()).spawn(move || lease.run())?;
        let mut state = TenureKeeper {
            volume: Arc::downgrade(volume),
            seen,
            tenure,
            shared,
            last: None,
            asked: None,
            name: name.to_owned(),
            json,
            is_away_told: false,
        };
        let thread = thread::Builder::new()
            .name("braid-owner".into())
            .spawn(move || state.run(&receiver))?;
        Ok(Keeper { words: sender, thread: Some(thread), left_out })
    }
}

/// A running keeper.
pub(crate) struct Keeper {
    words: Sender<Word>,
    thread: Option<JoinHandle<()>>,
    /// Members that were left out of the take-over.
    left_out: Vec<PathBuf>,
}

impl Keeper {
    /// Adds the members that were left out of the take-over, each when it answers.
    pub(crate) fn add_later(
        &self,
        volume: &Arc<Volume>,
        add: impl Fn(&Path) -> bool + Send + 'static,
    ) -> std::io::Result<()> {
        let (mut left, volume) = (self.left_out.clone(), Arc::downgrade(volume));
        let run = move || {
            while !left.is_empty() && volume.strong_count() > 0 {
                left.retain(|path| !add(path));
                thread::sleep(ADD_PAUSE);
            }
        };
        thread::Builder::new().name("braid-returning".into()).spawn(run).map(drop)
    }

    /// Gives the array back: it has ended in order. Waits for the store at most this long.
    pub(crate) fn release(mut self, patience: Duration) {
        let _ = self.words.send(Word::Release);
        let until = Instant::now() + patience;
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

type Shared = Arc<std::sync::Mutex<(BTreeSet<MemberKey>, BTreeMap<MemberKey, u16>)>>;

struct TenureKeeper {
    volume: Weak<Volume>,
    seen: Seen,
    tenure: Tenure,
    shared: Shared,
    /// The last update that the keeper agreed to.
    last: Option<PlannedUpdate>,
    /// An update that waits for a swap.
    asked: Option<PlannedUpdate>,
    name: String,
    json: bool,
    is_away_told: bool,
}

impl TenureKeeper {
    fn run(&mut self, words: &Receiver<Word>) {
        let mut beat_at = Instant::now() + BEAT;
        loop {
            let wait = beat_at.saturating_duration_since(Instant::now());
            match words.recv_timeout(wait) {
                Ok(Word::Planned(planned)) => self.ask(planned),
                Ok(Word::Release) => self.tenure.want_release(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.take_in();
            if self.tenure.is_behind() || Instant::now() >= beat_at {
                beat_at = Instant::now() + BEAT;
                self.swap();
            }
            self.consent();
            match self.tenure.end() {
                Some(TenureEnd::Released) => return,
                Some(end) => end_at_once(&self.name, end, self.json),
                None => {}
            }
        }
    }

    fn ask(&mut self, planned: PlannedUpdate) {
        // A member that the update leaves out is not taken in any more, whatever was wanted before.
        let in_sync = self.tenure.record().in_sync();
        let kept = in_sync.intersection(&keys(&planned)).copied().collect();
        self.tenure.want_in_sync(kept, "a member was given up");
        // An older update that members have is no reason any more to take a member in.
        self.last = None;
        self.asked = Some(planned);
    }

    /// Agrees to the update that waits, if the record allows it.
    fn consent(&mut self) {
        let Some(planned) = self.asked.take_if(|one| self.tenure.allows(&keys(one))) else {
            return;
        };
        if let Some(volume) = self.volume.upgrade() {
            volume.consent(planned.events);
        }
        let mut shared = self.shared.lock().expect("noting does not panic");
        shared.0 = self.tenure.record().in_sync();
        shared.1 = planned.in_sync.iter().map(|one| (MemberKey(one.uuid), one.slot)).collect();
        self.last = Some(planned);
    }

    /// Takes members into the record that superblocks name as in sync, durably.
    fn take_in(&mut self) {
        let Some(volume) = self.volume.upgrade() else { return };
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

    fn swap(&mut self) {
        let Some(to) = self.tenure.begin_swap() else { return };
        let is_told = self.is_away_told;
        let away = |error: &StoreError| {
            if !is_told {
                errln!("{error}; the array goes on, and no member can be given up meanwhile");
            }
        };
        match self.seen.swap(&to, &away) {
            Ok(result) => {
                self.is_away_told = result != braid_ownership::SwapResult::Done;
                self.tenure.swapped(result);
            }
            Err(error) => {
                errln!("{}: {error}", self.name);
                let now: Option<Record> = self.seen.record().cloned();
                self.tenure.swapped(braid_ownership::SwapResult::Record(now));
            }
        }
        let mut shared = self.shared.lock().expect("noting does not panic");
        shared.0 = self.tenure.record().in_sync();
    }
}

fn keys(planned: &PlannedUpdate) -> BTreeSet<MemberKey> {
    planned.in_sync.iter().map(|one| MemberKey(one.uuid)).collect()
}

struct LeaseKeeper {
    volume: Weak<Volume>,
    gate: Arc<ReadGate>,
    shared: Shared,
    lease: ReadLease,
}

impl LeaseKeeper {
    fn run(mut self) {
        while let Some(volume) = self.volume.upgrade() {
            for look in volume.look_at_members() {
                if let Some(answered_ns) = look.link.and_then(|link| link.answered_ns) {
                    self.lease.note(MemberKey(look.superblock.device.uuid), answered_ns);
                }
            }
            let geometry = volume.geometry();
            drop(volume);
            let (in_sync, slots) = self.shared.lock().expect("noting does not panic").clone();
            let can_run = |set: &BTreeSet<MemberKey>| {
                let held: BTreeSet<u16> =
                    set.iter().filter_map(|key| slots.get(key)).copied().collect();
                geometry.survives(&|slot: Slot| !held.contains(&slot.0))
            };
            self.gate.set_until(self.lease.until_ns(&in_sync, can_run));
            thread::sleep(LEASE_STEP);
        }
        // The array has stopped, and its last answers are out.
        self.gate.set_until(u64::MAX);
    }
}
