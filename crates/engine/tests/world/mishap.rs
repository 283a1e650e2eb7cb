//! What goes wrong in a story.

use braid_engine::Tuning;
use braid_engine::array::MemberId;

use crate::device::Device;
use crate::world::{Message, World};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Mishap {
    /// The member answers nothing any more.
    Dies(MemberId),
    /// Writes fail from now on, reads do not.
    WritesFail(MemberId),
    FlushesFail(MemberId),
    SuperblocksFail(MemberId),
    /// One sector cannot be read until it is written.
    BadSector(MemberId, u64),
    /// The stripe caches are to work in another way.
    Tuned(Tuning),
}

impl World {
    pub(crate) fn let_mishaps_happen(&mut self) {
        let step = self.clock.step;
        let (due, later) = std::mem::take(&mut self.mishaps).into_iter().partition(|m| m.0 <= step);
        self.mishaps = later;
        let due: Vec<(u64, Mishap)> = due;
        due.into_iter().for_each(|(_, mishap)| self.happen(mishap));
    }

    pub(crate) fn happen(&mut self, mishap: Mishap) {
        match mishap {
            Mishap::Dies(member) => self.device(member).wrong.dead = true,
            Mishap::WritesFail(member) => self.device(member).wrong.writes_fail = true,
            Mishap::FlushesFail(member) => self.device(member).wrong.flushes_fail = true,
            Mishap::SuperblocksFail(member) => self.device(member).wrong.superblocks_fail = true,
            Mishap::BadSector(member, sector) => {
                self.device(member).bad.insert(sector);
            }
            Mishap::Tuned(tuning) => {
                for side in &mut self.shards {
                    side.inbox.push_back(Message::Tuning(tuning));
                }
            }
        }
    }

    fn device(&mut self, member: MemberId) -> &mut Device {
        &mut self.devices[usize::from(member.0)]
    }

    /// Plans `count` mishaps of the first `steps` steps, all of them on `members`.
    pub(crate) fn plan_mishaps(&mut self, members: &[MemberId], count: u64, steps: u64) {
        for _ in 0..count {
            let member = *self.random.pick(members);
            let sectors = self.scene.shape.member_sectors[usize::from(member.0)];
            let mishap = match self.random.below(8) {
                0 => Mishap::Dies(member),
                1 => Mishap::WritesFail(member),
                2 => Mishap::FlushesFail(member),
                3 => Mishap::SuperblocksFail(member),
                _ => Mishap::BadSector(member, self.random.below(sectors)),
            };
            let step = self.random.below(steps);
            self.mishaps.push((step, mishap));
        }
    }
}
