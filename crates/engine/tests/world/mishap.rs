//! What goes wrong in a story.

use braid_engine::array::MemberId;

use crate::world::World;

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
        let (Mishap::Dies(member)
        | Mishap::WritesFail(member)
        | Mishap::FlushesFail(member)
        | Mishap::SuperblocksFail(member)
        | Mishap::BadSector(member, _)) = mishap;
        let device = &mut self.devices[usize::from(member.0)];
        match mishap {
            Mishap::Dies(_) => device.wrong.dead = true,
            Mishap::WritesFail(_) => device.wrong.writes_fail = true,
            Mishap::FlushesFail(_) => device.wrong.flushes_fail = true,
            Mishap::SuperblocksFail(_) => device.wrong.superblocks_fail = true,
            Mishap::BadSector(_, sector) => {
                device.bad.insert(sector);
            }
        }
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
