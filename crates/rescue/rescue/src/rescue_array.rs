//! Looks at each array: which members to believe, and the array's content.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use braid_assembly::rescue::{MemberUse, Outcome, Plan, plan, without};
use braid_assembly::reshape::Reshaping;
use braid_assembly::{AssembledArray, Options, ProbedMember, assemble};
use braid_member::Member;
use braid_member::layer::{Patched, Sectors};
use braid_ondisk::Superblock;
use braid_ring::Payload;
use braid_runtime::{ClientRequest, Io, Volume};
use braid_signatures::{Contents, look as look_at};

use super::config::RescueConfig;
use super::disk::ContainerVolume;
use super::disks::{Disk, Disks, for_looking};
use super::group::{Group, Named, groups};
use super::overlay::{self, ArrayOverlay, MemberOverlay};
use super::plan_options::{wanted, withholding};
use super::reshape::{self, RiskPolicy, UnfinishedReshape};
use super::unreadable_ranges::lost;
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_discovery::newest_state;
use braid_discovery::probe::probe_beside;
use braid_discovery::raid0_layout::Raid0Layout;
use braid_discovery::ready::{Ready, decided};
use braid_discovery::replay::ReplayTarget;
use braid_discovery::window_copies;

/// The most members for which the result without each member is computed: a longer table is of no
/// use to a reader.
const VIEWS_MAX: usize = 32;

pub(super) struct RescueArray {
    pub(super) group: Group,
    pub(super) labels: Vec<String>,
    /// The group's members, seen through their overlays.
    pub(super) probed: Vec<ProbedMember>,
    pub(super) overlays: Vec<Option<MemberOverlay>>,
    pub(super) folder: PathBuf,
    pub(super) plan: Plan,
    /// The reshape, if one is unfinished. `probed` and `plan` are then those of the old or the new
    /// shape, and one overlay of the array replaces the members' overlays.
    pub(super) reshape: Option<UnfinishedReshape>,
    pub(super) array_overlay: Option<ArrayOverlay>,
    pub(super) options: Options,
    /// Members that the operator named.
    pub(super) asked: BTreeSet<usize>,
    /// For each used member, the result without that member.
    pub(super) views: Vec<Option<Outcome>>,
    pub(super) contents: Result<Contents, String>,
    /// For each of the group's members, the number of bytes of its disk that the copy lacks.
    pub(super) lacks: Vec<u64>,
    /// Bytes of the array lost to holes of copies.
    pub(super) lost: Vec<Range<u64>>,
    /// Whether the holes of copies are so large that only some of their bytes were tried.
    pub(super) lost_is_cut: bool,
    /// The array, open for reading until a server takes it; `None` if it cannot be read.
    pub(super) reader: Option<ArrayReader>,
    /// Lines of the report on the logs that were replayed in memory.
    pub(super) replayed: Vec<String>,
    /// The array's volume, if its metadata is not md's.
    pub(super) volume: Option<ContainerVolume>,
    /// Whether the disks have members of several arrays.
    pub(super) is_one_of_several: bool,
}

impl Named for RescueArray {
    fn name(&self) -> &str {
        &self.group.name
    }
}

pub(super) fn look(
    disks: &Disks,
    args: &RescueConfig,
    globals: &Globals,
) -> Result<Vec<RescueArray>, CliError> {
    let groups = groups(disks, args)?.into_iter();
    let mut found: Vec<RescueArray> =
        groups.map(|group| one(disks, group, args, globals)).collect::<Result<_, _>>()?;
    if let Some(path) = args.backup_file.as_ref()
        && !found.is_empty()
        && found.iter().all(|one| one.reshape.is_none())
    {
        let what = "nothing here is in the middle of a reshape, so no backup file is needed";
        let why = format!("{} was named", path.display());
        let look = args.without_backup();
        let error = CliError::new(Code::Usage, what).because(why);
        return Err(error.remedy(Risk::Look, "Look without the file", look));
    }
    let is_one_of_several = found.len() > 1;
    found.iter_mut().for_each(|one| one.is_one_of_several = is_one_of_several);
    Ok(found)
}

fn one(
    disks: &Disks,
    group: Group,
    args: &RescueConfig,
    globals: &Globals,
) -> Result<RescueArray, CliError> {
    let mut on_disks: Vec<ProbedMember> =
        group.members.iter().map(|index| disks.all[*index].probed.clone()).collect();
    if args.ignore_bad_blocks {
        on_disks.iter_mut().for_each(|one| one.bad_blocks = Ok(Vec::new()));
    }
    if Reshaping::of(&on_disks).is_some_and(|found| found.is_ok()) {
        return one_that_moves(disks, (group, on_disks), args, globals);
    }
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
    if args.ignore_bad_blocks {
        probed.iter_mut().for_each(|one| one.bad_blocks = Ok(Vec::new()));
    }
    let lacks = |disk: &Disk| disk.holes.iter().map(|hole| hole.end - hole.start).sum();
    let lacks = members().map(lacks).collect();
    let labels: Vec<String> = members().map(|disk| disk.label.clone()).collect();
    let known = newest_state::of(&globals.state_dir, &probed);
    let raid0_layout = args.layout.map(Raid0Layout::number);
    let choice = group.choice.clone();
    let options = Options { choice, known, raid0_layout, ..Options::default() };
    let asked = asked_for(disks, &group, args);
    let plan = plan(&probed, &options, &asked);
    let view = |index: usize| {
        let is_in = matches!(plan.member_uses[index], MemberUse::Used | MemberUse::Believed { .. });
        (is_in && probed.len() <= VIEWS_MAX).then(|| without(&probed, &options, &asked, index))
    };
    let views = (0..probed.len()).map(view).collect();
    let volume = members().find_map(|disk| disk.volume.clone());
    let mut found = RescueArray {
        group,
        volume,
        labels,
        probed,
        overlays,
        folder,
        plan,
        reshape: None,
        array_overlay: None,
        options,
        asked,
        views,
        contents: Err("it cannot be read".to_owned()),
        lacks,
        lost: Vec::new(),
        lost_is_cut: false,
        reader: None,
        replayed: Vec::new(),
        is_one_of_several: false,
    };
    if found.plan.array.is_ok() {
        // Sectors at risk are read too, to recognise the content; the report says so.
        let ready = found.ready(disks, globals, Some(u64::MAX));
        let ready = ready.and_then(|ready| ready.settled(ReplayTarget::Memory));
        match ready {
            Ok(ready) => {
                found.replayed = ready.replayed.iter().flat_map(|it| it.lines()).collect();
                match ArrayReader::open(ready) {
                    Ok((volume, array)) => {
                        let holes = |index| found.holes_of(disks, index);
                        (found.lost, found.lost_is_cut) = lost(&volume, &array, &holes);
                        let reader = ArrayReader::Array(volume);
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

fn asked_for(disks: &Disks, group: &Group, args: &RescueConfig) -> BTreeSet<usize> {
    let named: Vec<usize> = args.with.iter().flat_map(|name| disks.called(name)).collect();
    let here = group.members.iter().enumerate();
    here.filter(|(_, member)| named.contains(member)).map(|(index, _)| index).collect()
}

/// Looks at an array as `one` does, for an array in the middle of a reshape.
fn one_that_moves(
    disks: &Disks,
    (group, on_disks): (Group, Vec<ProbedMember>),
    args: &RescueConfig,
    globals: &Globals,
) -> Result<RescueArray, CliError> {
    let members: Vec<&Disk> = group.members.iter().map(|index| &disks.all[*index]).collect();
    let labels: Vec<String> = members.iter().map(|disk| disk.label.clone()).collect();
    let known = newest_state::of(&globals.state_dir, &on_disks);
    let options = Options { choice: group.choice.clone(), known, ..Options::default() };
    let asked = asked_for(disks, &group, args);
    let mut reshape = UnfinishedReshape::of(&on_disks, (&options, &asked))
        .expect("it was just found to be in one");
    reshape.take_backups(args, &members)?;
    if !args.as_recorded {
        reshape.find_out((disks, &group.members), globals);
    }
    let (probed, plan) = reshape.told_by();
    let (probed, mut plan) = (probed.to_vec(), plan.clone());
    // A plan by force has its own result for each shape of the reshape. Whether `serve` starts the
    // array is shown only by an assembly of the members as they are.
    let window_copies = window_copies::of(&globals.state_dir, &on_disks);
    match assemble(&on_disks, &Options { window_copies, ..options.clone() }).array {
        Ok(_) => plan.refusal = None,
        Err(refusal) => plan.refusal = Some(refusal),
    }
    let view = |index: usize| {
        let is_in = matches!(plan.member_uses[index], MemberUse::Used | MemberUse::Believed { .. });
        (is_in && probed.len() <= VIEWS_MAX).then(|| reshape.without((&options, &asked), index))
    };
    let views = (0..probed.len()).map(view).collect();
    let folder = overlay::folder(args, &group.uuid, globals);
    let lacks = |disk: &&Disk| disk.holes.iter().map(|hole| hole.end - hole.start).sum();
    let lacks = members.iter().map(lacks).collect();
    let mut found = RescueArray {
        volume: None,
        lacks,
        lost: Vec::new(),
        lost_is_cut: false,
        reader: None,
        overlays: vec![None; probed.len()],
        group,
        labels,
        probed,
        folder,
        plan,
        reshape: None,
        array_overlay: None,
        options,
        asked,
        views,
        contents: Err("it cannot be read".to_owned()),
        replayed: Vec::new(),
        is_one_of_several: false,
    };
    if reshape.is_readable() {
        // Sectors at risk are read too, to recognise the content; the report says so.
        let joined = reshape.joined((disks, &found.group.members), RiskPolicy::Read, globals);
        match joined {
            Ok(device) => {
                let name = reshape::overlay_name(&reshape, &members);
                found.array_overlay = overlay::open_array(args, &found.folder, (&device, &name))?;
                let shown: Arc<dyn Member> = match &found.array_overlay {
                    Some(overlay) => Arc::clone(overlay) as Arc<dyn Member>,
                    None => device,
                };
                let reader = ArrayReader::Reshape(shown);
                found.contents = Ok(reader.contents());
                found.reader = Some(reader);
            }
            Err(error) => found.contents = Err(error.to_string()),
        }
    }
    found.reshape = Some(reshape);
    Ok(found)
}

impl RescueArray {
    /// Opens the array read-only, over an overlay if one exists, with the plan's superblocks in
    /// memory.
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

    /// Makes the sectors that believed members may lack unreadable. Their content is computed from
    /// other members, or is an I/O error.
    pub(super) fn withholding(&self, ready: Ready) -> Ready {
        withholding(&self.plan, ready)
    }

    pub(super) fn stripes_at_risk(&self) -> u64 {
        match &self.reshape {
            Some(reshape) => reshape.stripes_at_risk(),
            None => self.plan.stripes_at_risk(),
        }
    }

    pub(super) fn is_readable(&self) -> bool {
        self.reshape.as_ref().map_or(self.plan.array.is_ok(), UnfinishedReshape::is_readable)
    }

    pub(super) fn size_bytes(&self) -> Option<u64> {
        let sectors = match (&self.reshape, &self.plan.array) {
            (Some(reshape), _) => Some(reshape.reshaping.size_sectors),
            (None, array) => array.as_ref().ok().map(|array| array.geometry.capacity_sectors()),
        };
        sectors.map(|sectors| sectors.saturating_mul(512))
    }

    pub(super) fn wanted(&self, read_only: bool, accept_risk: Option<u64>) -> Options {
        wanted(&self.plan, &self.options, (read_only, accept_risk))
    }

    /// If a member is a copy, the sectors of its data area that the copy lacks.
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

fn sectors(superblock: &Superblock) -> Sectors {
    let mut bytes = superblock.to_bytes();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    let (sectors, _) = bytes.as_chunks::<512>();
    (superblock.device.super_offset_sectors..).zip(sectors.iter().copied()).collect()
}

pub(super) enum ArrayReader {
    Array(Volume),
    /// An array in the middle of a reshape, as one device.
    Reshape(Arc<dyn Member>),
}

impl ArrayReader {
    pub(super) fn open(ready: Ready) -> Result<(Volume, AssembledArray), String> {
        let options = braid_runtime::Options {
            read_only: true,
            io: Io::Threads,
            ..braid_runtime::Options::default()
        };
        let volume = Volume::open(&ready.array, ready.members, &options, |_| {});
        Ok((volume.map_err(|error| error.to_string())?, ready.array))
    }

    /// Reads bytes of the array; `None` if they cannot be read, or are beyond the end.
    pub(super) fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        let end = offset.checked_add(length as u64)?;
        if end > self.size_bytes() {
            return None;
        }
        match self {
            Self::Reshape(device) => reshape::read(device.as_ref(), offset, length),
            Self::Array(volume) => {
                let payload = Payload::zeroed(length);
                let outcome = volume.call(ClientRequest::Read { offset, payload });
                outcome.result.ok()?;
                Some(outcome.payload?.to_vec())
            }
        }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        match self {
            Self::Reshape(device) => reshape::array_bytes(device.as_ref()),
            Self::Array(volume) => volume.size_bytes(),
        }
    }

    fn contents(&self) -> Contents {
        look_at(self.size_bytes(), &mut |offset, length| self.read(offset, length))
    }
}
