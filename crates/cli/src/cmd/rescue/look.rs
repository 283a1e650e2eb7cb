//! Looking: what is to be believed of each array, and what stands on it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use braid_assembly::rescue::{Missed, Outcome, Plan, Stand, plan, without};
use braid_assembly::{AssembledArray, Options, ProbedMember, Refusal};
use braid_contents::{Contents, look as look_at};
use braid_member::Member;
use braid_member::layer::{Patched, Sectors};
use braid_ondisk::Superblock;
use braid_ring::Payload;
use braid_runtime::{Io, Volume, VolumeOperation};

use super::args::Args;
use super::disks::{Disk, Disks, for_looking};
use super::group::{Group, Named, groups};
use super::lost::lost;
use super::overlay::{self, OfMember};
use crate::cmd::Globals;
use crate::cmd::serve::assemble::{Ready, decided};
use crate::error::CliError;
use crate::known;
use crate::probe::probe_beside;
use crate::replay::Place;

/// Members that are looked at one by one, with and without each: more make no table that anybody reads.
const VIEWS_MAX: usize = 32;

/// One array, as it was found.
pub(super) struct Found {
    pub(super) group: Group,
    /// Of the group's members.
    pub(super) labels: Vec<String>,
    /// Of the group's members, seen through their overlays.
    pub(super) probed: Vec<ProbedMember>,
    pub(super) overlays: Vec<Option<OfMember>>,
    pub(super) folder: PathBuf,
    pub(super) plan: Plan,
    pub(super) options: Options,
    /// Who was asked for by name.
    pub(super) asked: BTreeSet<usize>,
    /// What would come of the others, for each member that is used.
    pub(super) views: Vec<Option<Outcome>>,
    /// What stands on it; none if it cannot be read, and why.
    pub(super) contents: Result<Contents, String>,
    /// Of the group's members: bytes of the disk that the copy lacks.
    pub(super) lacks: Vec<u64>,
    /// Bytes of the array that cannot be had, behind what copies of disks lack.
    pub(super) lost: Vec<Range<u64>>,
    /// The array, open for reading until somebody else is to have it; none if it cannot be read.
    pub(super) reader: Option<Reader>,
    /// What logs had to say, in memory.
    pub(super) replayed: Vec<String>,
    /// The members are of other arrays as well.
    pub(super) is_one_of_several: bool,
}

impl Named for Found {
    fn name(&self) -> &str {
        &self.group.name
    }
}

/// Looks at each array.
pub(super) fn look(disks: &Disks, args: &Args, globals: &Globals) -> Result<Vec<Found>, CliError> {
    let groups = groups(disks, args)?.into_iter();
    let mut found: Vec<Found> =
        groups.map(|group| one(disks, group, args, globals)).collect::<Result<_, _>>()?;
    let is_one_of_several = found.len() > 1;
    found.iter_mut().for_each(|one| one.is_one_of_several = is_one_of_several);
    Ok(found)
}

fn one(disks: &Disks, group: Group, args: &Args, globals: &Globals) -> Result<Found, CliError> {
    let overlays = overlay::open(args, (disks, &group), globals)?;
    let folder = overlay::folder(args, &group.uuid, globals);
    let members = || group.members.iter().map(|index| &disks.all[*index]);
    let mut probed = Vec::new();
    for (disk, overlay) in members().zip(&overlays) {
        probed.push(match overlay {
            None => disk.probed.clone(),
            Some(overlay) => {
                let identity = disk.probed.identity.clone();
                let device = Arc::clone(overlay) as Arc<dyn Member>;
                let seen = for_looking(&device, &disk.holes);
                ProbedMember { identity, ..probe_beside(&device, &seen, &disk.label)? }
            }
        });
    }
    let lacks = |disk: &Disk| disk.holes.iter().map(|hole| hole.end - hole.start).sum();
    let lacks = members().map(lacks).collect();
    let labels: Vec<String> = members().map(|disk| disk.label.clone()).collect();
    let known = known::of(&globals.state_dir, &probed);
    let options = Options { choice: group.choice.clone(), known, ..Options::default() };
    let named: Vec<usize> = args.with.iter().flat_map(|name| disks.called(name)).collect();
    let here = group.members.iter().enumerate();
    let asked: BTreeSet<usize> =
        here.filter(|(_, member)| named.contains(member)).map(|(index, _)| index).collect();
    let plan = plan(&probed, &options, &asked);
    let view = |index: usize| {
        let is_in = matches!(plan.stands[index], Stand::Used | Stand::Believed { .. });
        (is_in && probed.len() <= VIEWS_MAX).then(|| without(&probed, &options, &asked, index))
    };
    let views = (0..probed.len()).map(view).collect();
    let mut found = Found {
        group,
        labels,
        probed,
        overlays,
        folder,
        plan,
        options,
        asked,
        views,
        contents: Err("it cannot be read".to_owned()),
        lacks,
        lost: Vec::new(),
        reader: None,
        replayed: Vec::new(),
        is_one_of_several: false,
    };
    if found.plan.array.is_ok() {
        // To tell what stands there: what may be wrong is read as well, and that is said.
        let ready = found.ready(disks, globals, Some(u64::MAX));
        let ready = ready.and_then(|ready| ready.settled(Place::Memory));
        match ready {
            Ok(ready) => {
                found.replayed = ready.replayed.iter().flat_map(|it| it.lines()).collect();
                match Reader::open(ready) {
                    Ok((reader, array)) => {
                        let holes = |index| found.holes_of(disks, index);
                        let lost = lost(&reader.0, &array, &holes);
                        found.lost = lost;
                        found.contents = Ok(reader.contents());
                        found.reader = Some(reader);
                    }
                    Err(why) => found.contents = Err(why),
                }
            }
            Err(error) => found.contents = Err(error.to_string()),
        }
    }
    Ok(found)
}

impl Found {
    /// The array for reading, with its members open as the plan has it: over the overlay where there is one, and with what would be
    /// written in memory.
    pub(super) fn ready(
        &self,
        disks: &Disks,
        globals: &Globals,
        accept_risk: Option<u64>,
    ) -> Result<Ready, CliError> {
        let devices = (0..self.probed.len()).map(|index| self.device(disks, index)).collect();
        let probed = self.plan.members(&self.probed);
        decided((devices, &probed), None, &self.wanted(true, accept_risk), &globals.state_dir)
    }

    /// With what believed members may lack taken for unreadable: it is made of the others, or an I/O error.
    pub(super) fn withholding(&self, mut ready: Ready) -> Ready {
        for occupant in ready.array.slots.iter_mut().flatten() {
            let stand = &self.plan.stands[occupant.member];
            if let Stand::Believed { missed: Missed::Within(ranges), .. } = stand {
                occupant.bad_records.extend(ranges.iter().map(|range| (0, range.clone())));
            }
        }
        ready
    }

    /// What assembly is asked for.
    pub(super) fn wanted(&self, read_only: bool, accept_risk: Option<u64>) -> Options {
        // Who is believed by force is older than what is known, and that was said.
        let is_told = self.plan.believed().next().is_some()
            || matches!(self.plan.refusal, Some(Refusal::OlderThanKnown { .. }));
        let known = if is_told { Vec::new() } else { self.options.known.clone() };
        let choice = self.options.choice.clone();
        let without_journal = !read_only;
        Options { choice, read_only, accept_risk, without_journal, known, ..Options::default() }
    }

    /// What a member lacks of the array's data, if it is a copy: in sectors of its data area.
    pub(super) fn holes_of(&self, disks: &Disks, index: usize) -> Vec<Range<u64>> {
        let disk = &disks.all[self.group.members[index]];
        let Some(superblock) = self.probed[index].probe.newest() else { return Vec::new() };
        let data_start = superblock.device.data_offset_sectors;
        let sectors = |hole: &Range<u64>| {
            (hole.start / 512).saturating_sub(data_start)
                ..hole.end.div_ceil(512).saturating_sub(data_start)
        };
        disk.holes.iter().map(sectors).filter(|hole| !hole.is_empty()).collect()
    }

    fn device(&self, disks: &Disks, index: usize) -> Box<dyn Member> {
        let disk = &disks.all[self.group.members[index]];
        let device: Arc<dyn Member> = match &self.overlays[index] {
            Some(overlay) => Arc::clone(overlay) as Arc<dyn Member>,
            None => Arc::clone(&disk.device),
        };
        let written = self.plan.superblocks.iter().find(|(of, _)| *of == index);
        match written {
            None => Box::new(device),
            Some((_, superblock)) => Box::new(Patched::new(device, sectors(superblock))),
        }
    }
}

/// A superblock, as sectors of its device.
fn sectors(superblock: &Superblock) -> Sectors {
    let mut bytes = superblock.to_bytes();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    let (sectors, _) = bytes.as_chunks::<512>();
    (superblock.device.super_offset_sectors..).zip(sectors.iter().copied()).collect()
}

/// An array that is open for reading.
pub(super) struct Reader(Volume);

impl Reader {
    fn open(ready: Ready) -> Result<(Self, AssembledArray), String> {
        let options = braid_runtime::Options {
            read_only: true,
            io: Io::Threads,
            ..braid_runtime::Options::default()
        };
        let volume = Volume::open(&ready.array, ready.members, &options, |_| {});
        Ok((Self(volume.map_err(|error| error.to_string())?), ready.array))
    }

    /// Bytes of it; none if they cannot be read, or are not its own.
    pub(super) fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        let end = offset.checked_add(length as u64)?;
        if end > self.0.size_bytes() {
            return None;
        }
        let payload = Payload::zeroed(length);
        let outcome = self.0.call(VolumeOperation::Read { offset, payload });
        outcome.result.ok()?;
        Some(outcome.payload?.to_vec())
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    /// What stands on it.
    fn contents(&self) -> Contents {
        look_at(self.size_bytes(), &mut |offset, length| self.read(offset, length))
    }
}
