//! One run of a history's array: writes, rests, losses, and an end at any moment.

use std::sync::Arc;

use braid_assembly::{AssembledArray, RecordedState, StateMember};
use braid_engine::array::{
    Array, ArrayEffect, ArrayView, DeviceRole, Gate, MemberId, MetadataArea, MetadataRecord,
    Notice, SuperblockState, UpdateTimes, update_for,
};
use braid_engine::cause::{Answer, Cause, RequestKind};
use braid_engine::effect::Report;
use braid_engine::open::{OpeningSettings, levelling, opening};
use braid_engine::request::ShardIndex;
use braid_engine::{CacheConfig, Instant, Tuning};
use braid_geometry::Geometry;
use braid_ondisk::{Role, Superblock, Timestamp};

use super::{History, Write, survives};

const SHARD: ShardIndex = ShardIndex(0);

struct Cut;

struct Run {
    array: Array,
    geometry: Geometry,
    view: Arc<ArrayView>,
    /// The disk and the superblock of each member, by [`MemberId`].
    members: Vec<(usize, Superblock)>,
    spares: Vec<usize>,
    is_broken: bool,
    now: Instant,
    times: UpdateTimes,
    /// The superblock state last written to all members.
    state: Option<Arc<SuperblockState>>,
}

impl History {
    /// Runs an assembled array for a while. `disk_of` maps assembly's member indices to disks.
    pub(super) fn run(&mut self, assembled: &AssembledArray, disk_of: &[usize]) {
        self.sound.clear();
        let Ok(mut run) = self.open(assembled, disk_of) else { return };
        for _ in 0..self.random.below(5) {
            let done = match self.random.below(10) {
                0..6 => self.write(&mut run),
                6 | 7 => self.rest(&mut run),
                _ => self.lose_one(&mut run),
            };
            if done.is_err() || run.is_broken {
                return;
            }
        }
        let members = run.view.slots.iter().flatten();
        let disks: Vec<usize> =
            members.map(|member| run.members[usize::from(member.id.0)].0).collect();
        let numbers = disks.iter().map(|disk| self.devices[*disk].number).collect();
        let is_whole = disks.len() == usize::from(self.kind.slots);
        let no_clones = disks.iter().all(|disk| !self.devices[*disk].is_clone);
        if !self.stop(&mut run) || !no_clones || !is_whole {
            return;
        }
        self.sound = numbers;
    }

    fn open(&mut self, assembled: &AssembledArray, disk_of: &[usize]) -> Result<Run, Cut> {
        let mut superblocks: Vec<Option<Superblock>> =
            disk_of.iter().map(|disk| self.devices[*disk].superblock()).collect();
        let held: Vec<bool> = assembled.slots.iter().map(Option::is_some).collect();
        let waves = levelling(assembled, |index| superblocks[index].as_ref());
        if !waves.is_empty() {
            self.tally.count("levelled");
            self.disturbances += 1;
        }
        for wave in waves {
            let mut batch = Vec::new();
            for (index, superblock) in wave {
                batch.push((disk_of[index], superblock.clone()));
                superblocks[index] = Some(superblock);
            }
            self.store(&batch, (&assembled.geometry, &held))?;
        }
        let manner = OpeningSettings {
            read_only: false,
            shards: 1,
            cache: CacheConfig {
                unit_sectors_max: 8,
                stripes_max: 1,
                cached_blocks_max: None,
                tuning: Tuning::default(),
            },
            jobs_paused: true,
            zero_is_fast: false,
            clean_delay_ms: 200,
        };
        let opening = opening(assembled, |index| superblocks[index].as_ref(), &manner);
        let opening = opening.expect("assembly chooses members that are there, once each");
        let members = opening.members.iter().map(|joined| {
            let superblock = superblocks[joined.index].clone().expect("it was chosen");
            (disk_of[joined.index], superblock)
        });
        let members = members.collect();
        let spares = assembled.spares.iter().map(|index| disk_of[*index]).collect();
        let mut array = Array::new(opening.setup);
        let Some(ArrayEffect::Publish(view)) = array.poll_effect() else {
            unreachable!("an array's first effect is its first view")
        };
        let geometry = assembled.geometry.clone();
        Ok(Run {
            array,
            geometry,
            view,
            members,
            spares,
            is_broken: false,
            now: Instant(1),
            times: UpdateTimes::after(&assembled.newest),
            state: None,
        })
    }

    /// Writes all superblocks at once; power can be cut meanwhile. `held`: the slots that have a
    /// member.
    fn store(
        &mut self,
        batch: &[(usize, Superblock)],
        (geometry, held): (&Geometry, &[bool]),
    ) -> Result<(), Cut> {
        if !self.random.chance(12) {
            batch.iter().for_each(|(disk, superblock)| self.devices[*disk].store(superblock));
            return Ok(());
        }
        self.tally.count("power-cut");
        self.disturbances += 1;
        for (disk, superblock) in batch {
            match self.random.below(3) {
                0 => {}
                1 => self.devices[*disk].store(superblock),
                _ => self.devices[*disk].tear(superblock, &mut self.random),
            }
        }
        self.check_torn(batch, (geometry, held));
        Err(Cut)
    }

    /// Checks that superblocks torn by a power cut cost at most the members that the level
    /// tolerates, or a single member.
    fn check_torn(
        &mut self,
        batch: &[(usize, Superblock)],
        (geometry, held): (&Geometry, &[bool]),
    ) {
        let mut left = held.to_vec();
        let mut torn = 0;
        for (disk, superblock) in batch {
            if let Role::Active(slot) = superblock.state.role
                && self.devices[*disk].superblock().is_none()
            {
                left[usize::from(slot)] = false;
                torn += 1;
            }
        }
        if torn > 0 {
            self.tally.count("superblock-torn");
            let is_borne = survives(geometry, &left);
            assert!(is_borne || torn == 1, "{torn} superblocks tore together: {held:?}");
        }
    }

    /// Executes the array's effects until it has none.
    fn drain(&mut self, run: &mut Run) -> Result<(), Cut> {
        loop {
            let mut batch: Vec<(MemberId, Arc<SuperblockState>)> = Vec::new();
            let (mut reports, mut flushes) = (Vec::new(), Vec::new());
            let mut is_quiet = true;
            while let Some(effect) = run.array.poll_effect() {
                is_quiet = false;
                match effect {
                    ArrayEffect::Publish(view) => {
                        reports.push(Report::ViewInForce { epoch: view.epoch });
                        run.view = view;
                    }
                    ArrayEffect::WriteMetadata { member, record } => match record {
                        MetadataRecord::Superblock(state) => batch.push((member, state)),
                        MetadataRecord::BadBlocks(says) => {
                            unreachable!("jobs are paused: {says:?}")
                        }
                        MetadataRecord::Bitmap(record) => {
                            unreachable!("there is no bitmap: {record:?}")
                        }
                        MetadataRecord::ParityLog(record) => {
                            unreachable!("there is no log: {record:?}")
                        }
                        MetadataRecord::Journal(record, _) => {
                            unreachable!("there is no journal: {record:?}")
                        }
                    },
                    ArrayEffect::Flush { member } => flushes.push(member),
                    ArrayEffect::QueryActivity => {
                        reports.push(Report::Activity { last_write: Instant(0), writing: false });
                    }
                    ArrayEffect::WriteBack { round } => reports.push(Report::WrittenBack { round }),
                    ArrayEffect::Notice(Notice::Broken { .. }) => run.is_broken = true,
                    ArrayEffect::Notice(Notice::Recorded { .. }) => self.told(run),
                    // Nothing to wait for: requests to a member end before the array's next effect.
                    ArrayEffect::Leave { .. }
                    | ArrayEffect::Notice(_)
                    | ArrayEffect::Answer { .. }
                    | ArrayEffect::QueryTouched
                    | ArrayEffect::SlowMembers(_) => {}
                    ArrayEffect::Border(_) | ArrayEffect::Keep { .. } | ArrayEffect::Move(_) => {
                        unreachable!("no reshape is under way")
                    }
                    ArrayEffect::AskConsent { state } => {
                        unreachable!("no consent is given: {}", state.events)
                    }
                    ArrayEffect::KeepRecord { events } => {
                        unreachable!("no record is kept: {events}")
                    }
                    ArrayEffect::Logged { ticket, .. } => {
                        unreachable!("there is no log: {ticket:?}")
                    }
                    ArrayEffect::Work { work, .. } => {
                        unreachable!("jobs are paused: {work:?}")
                    }
                }
            }
            if is_quiet {
                return Ok(());
            }
            self.carry_out(run, batch)?;
            flushes
                .into_iter()
                .for_each(|member| run.array.handle_flushed(run.now, member, Ok(())));
            for report in reports {
                run.array.handle_report(run.now, SHARD, report);
            }
        }
    }

    /// The last update reached all members. In half of the histories the state folder records that
    /// update.
    fn told(&mut self, run: &mut Run) {
        let state = run.state.clone().expect("what is told was written");
        for role in state.roles.iter().filter(|role| role.slot.is_some()) {
            let device = &mut self.devices[run.members[usize::from(role.member.0)].0];
            (device.updates, device.is_ahead) = (device.updates + 1, false);
        }
        let superblock = &run.members[0].1;
        let member = |role: &DeviceRole| {
            let device = &run.members[usize::from(role.member.0)].1.device;
            let (number, uuid) = (device.number, device.uuid);
            Some(StateMember { slot: role.slot?.0, number, uuid })
        };
        self.known = self.keeps_record.then(|| RecordedState {
            uuid: superblock.array.uuid,
            creation_time: superblock.array.creation_time,
            events: state.events,
            update_time: run.times.of(state.events, Timestamp::default()),
            members: state.roles.iter().filter_map(member).collect(),
        });
    }

    fn carry_out(
        &mut self,
        run: &mut Run,
        batch: Vec<(MemberId, Arc<SuperblockState>)>,
    ) -> Result<(), Cut> {
        let mut stored = Vec::new();
        let now = Timestamp { seconds: self.seconds, microseconds: 0 };
        for (id, state) in &batch {
            run.state = Some(Arc::clone(state));
            let time = run.times.of(state.events, now);
            let (disk, superblock) = &mut run.members[usize::from(id.0)];
            let update = update_for(superblock, *id, state, time);
            superblock.apply(&update);
            stored.push((*disk, superblock.clone()));
            if run.spares.contains(disk) {
                self.tally.count("spare-told");
            }
        }
        let Some((_, state)) = batch.first() else { return Ok(()) };
        let mut held = vec![false; usize::from(self.kind.slots)];
        for slot in state.roles.iter().filter_map(|role| role.slot) {
            held[slot.index()] = true;
        }
        self.store(&stored, (&run.geometry, &held))?;
        for (member, _) in batch {
            let area = MetadataArea::Superblock;
            run.array.handle_metadata_written(run.now, (member, area), Ok(()));
        }
        Ok(())
    }

    /// A client writes to all members in the view. Sometimes a member fails the write.
    fn write(&mut self, run: &mut Run) -> Result<(), Cut> {
        while run.view.gate != Gate::Open {
            let epoch = run.view.epoch;
            run.array.handle_report(run.now, SHARD, Report::WantWrite);
            self.drain(run)?;
            if run.is_broken || run.view.epoch == epoch {
                return Ok(());
            }
        }
        let mut members: Vec<MemberId> =
            run.view.slots.iter().flatten().map(|member| member.id).collect();
        self.random.shuffle(&mut members);
        let disk = |id: MemberId| usize::from(id.0);
        let first = run.members[disk(members[0])].0;
        let write = self.writes.len();
        let after = self.answered(self.devices[first].write);
        self.writes.push(Write { after, answered: false });
        let failing = self.random.chance(10).then(|| members[0]);
        for id in &members {
            if self.random.chance(2) {
                self.tally.count("power-cut");
                return Err(Cut);
            }
            if Some(*id) != failing {
                self.devices[run.members[disk(*id)].0].write = write;
            }
        }
        if let Some(member) = failing {
            self.fail(run, member)?;
        }
        if !run.is_broken {
            self.writes[write].answered = true;
            self.tally.requests += 1;
        }
        Ok(())
    }

    fn fail(&mut self, run: &mut Run, member: MemberId) -> Result<(), Cut> {
        self.tally.count("member-fails");
        self.disturbances += 1;
        let slots = run.view.slots.iter();
        let left: Vec<bool> =
            slots.map(|slot| slot.as_ref().is_some_and(|one| one.id != member)).collect();
        let must_survive = survives(&run.geometry, &left);
        let (asked, answer) = (RequestKind::Write, Answer::Injected);
        let cause = Cause { member, asked, sector: 0, sectors: 1, answer };
        run.array.handle_report(run.now, SHARD, Report::MemberFailed { cause });
        self.drain(run)?;
        assert_eq!(run.is_broken, !must_survive, "the level says whether it survives a loss");
        Ok(())
    }

    fn lose_one(&mut self, run: &mut Run) -> Result<(), Cut> {
        let members: Vec<MemberId> =
            run.view.slots.iter().flatten().map(|member| member.id).collect();
        let member = *self.random.pick(&members);
        self.fail(run, member)
    }

    /// No client writes for a while, so that the array can turn clean.
    fn rest(&mut self, run: &mut Run) -> Result<(), Cut> {
        let Some(due) = run.array.poll_timeout() else { return Ok(()) };
        run.now = due;
        run.array.handle_timeout(due);
        self.drain(run)
    }

    /// Ends the run with an orderly stop, or with a power cut at rest. True if nothing was in
    /// flight.
    fn stop(&mut self, run: &mut Run) -> bool {
        if self.random.chance(50) {
            self.tally.count("power-cut");
            return true;
        }
        self.tally.count("orderly-stop");
        run.array.handle_stop(run.now);
        self.drain(run).is_ok()
    }
}
