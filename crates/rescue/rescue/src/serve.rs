//! `braid rescue --serve`: serves the array over its overlay.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use braid_assembly::Options;
use braid_assembly::rescue::MemberUse;
use braid_geometry::SECTOR_BYTES;
use braid_member::Member;
use braid_ondisk::BadBlockLog;

use super::config::RescueConfig;
use super::content_words::content_words;
use super::damaged_superblocks::believing;
use super::disks::{Disk, Disks};
use super::group::one_of;
use super::overlay::{self, MemberOverlay, OverlayRequest};
use super::part_export::PartExport;
use super::report;
use super::rescue_array::{ArrayReader, RescueArray};
use super::reshape::{self, RiskPolicy, UnfinishedReshape};
use super::volumes::Volumes;
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::size::format_size;
use braid_discovery::probe::io_error;
use braid_discovery::ready::{Ready, decided};
use braid_discovery::refusal;
use braid_discovery::replay::ReplayTarget;
use braid_server::{
    Address, ArrayOrDevice, Device, Part as _, RescuedArrays, ServerConfig, serve_rescued,
};

pub(super) fn serve(
    args: &RescueConfig,
    disks: Disks,
    (mut found, volumes): (Vec<RescueArray>, Volumes),
    globals: &Globals,
) -> Result<Exit, CliError> {
    let config = config(args)?;
    let order = order((&found, &disks), args).map_err(|error| match disks.remnants.as_slice() {
        [] => error,
        remnants => error.remedy(
            Risk::Look,
            "Believe the superblocks that nearly stand, in memory",
            believing(args, remnants),
        ),
    })?;
    refuse_several_at_risk(args, &found)?;
    // LVM's metadata is read under the served array's rules: sectors at risk are errors.
    for one in
        found.iter_mut().filter(|one| args.read_only && one.reshape.is_none() && one.is_readable())
    {
        let ready =
            one.withholding(one.ready(&disks, globals, None)?).settled(ReplayTarget::Memory)?;
        one.reader = ArrayReader::open(ready).ok().map(|(volume, _)| ArrayReader::Array(volume));
    }
    let volumes = volumes.served(&found, &order);
    let mut all: Vec<Option<RescueArray>> = found.into_iter().map(Some).collect();
    let mut found: Vec<RescueArray> = order.iter().filter_map(|index| all[*index].take()).collect();
    let parts = parts(&found, &volumes);
    let is_moving: Vec<bool> = found.iter().map(|one| one.reshape.is_some()).collect();
    // From this line on only the servers read the arrays.
    found.iter_mut().for_each(|one| one.reader = None);
    let folder = found[0].folder.clone();
    let folders: Vec<PathBuf> = found.iter().map(|one| one.folder.clone()).collect();
    // Refuse before any overlay is made, so that a refusal leaves no overlays behind.
    if !args.read_only {
        found.iter().try_for_each(|one| can_be_written(args, one))?;
    }
    let mut all = Vec::new();
    for one in &mut found {
        let array = |ready| ArrayOrDevice::Array(Box::new(ready));
        let opened = match (args.read_only, one.reshape.take()) {
            (_, Some(reshape)) => {
                ArrayOrDevice::Device(moved(args, (&disks, &reshape), one, globals)?)
            }
            (true, None) => array(
                one.withholding(one.ready(&disks, globals, None)?).settled(ReplayTarget::Memory)?,
            ),
            (false, None) => array(over_overlay(args, &disks, one, globals)?),
        };
        all.push((one.group.name.clone(), opened));
    }
    let mut all = all.into_iter();
    let (_, first) = all.next().expect("one is served at least");
    let parts = parts.into_iter().map(|part| Box::new(part) as _).collect();
    let rescued = RescuedArrays { first, others: all.collect(), parts };
    // The state of a rescue must not replace the recorded state of the real array.
    let aside = Globals { state_dir: folder.join("state"), ..globals.clone() };
    let aside = if args.read_only { globals } else { &aside };
    let exit = serve_rescued(&config, rescued, aside)?;
    if !args.read_only && !globals.json {
        let place = |folder: &PathBuf| {
            let size = format_size(overlay::taken_bytes(folder));
            format!("{} ({size})", printable(&folder.display().to_string()))
        };
        let places: Vec<String> = folders.iter().map(place).collect();
        errln!("the members are unchanged; the writes are in {}", places.join(" and in "));
        let shown = |array, more| printable(&args.command_for(array, more)).into_owned();
        errln!("  go on:              {}", shown(None, "--serve"));
        // The report shows separate commands for each array, as a commit handles one array.
        for (one, is_moving) in found.iter().zip(is_moving) {
            let array = (found.len() > 1).then_some(one.group.uuid.as_str());
            if !is_moving && one.volume.is_none() {
                errln!("  see the changes:    {}", shown(array, "--commit -n"));
            }
            errln!("  throw it away:      {}", shown(array, "--discard"));
        }
    }
    Ok(exit)
}

/// The readable arrays, which are served, the largest first. The other arrays are reported.
fn order(
    (found, disks): (&[RescueArray], &Disks),
    args: &RescueConfig,
) -> Result<Vec<usize>, CliError> {
    let refused = |one: &RescueArray| {
        let refused = one.plan.array.as_ref().err()?;
        Some(refusal::cli_error(refused, &one.plan.verdicts, &one.labels))
    };
    let names: BTreeSet<&str> = found.iter().map(|one| one.group.name.as_str()).collect();
    let is_any_readable = found.iter().any(RescueArray::is_readable);
    if names.len() < found.len() || !is_any_readable {
        let one = one_of(found.iter().collect(), args, disks)?;
        return Err(refused(one).expect("one that can be read has its own name"));
    }
    for one in found.iter().filter(|one| !one.is_readable()) {
        errln!("warning: {} cannot be read, and is not served", printable(&one.group.name));
    }
    let size = |one: &RescueArray| one.size_bytes().unwrap_or(0);
    let mut order: Vec<usize> =
        (0..found.len()).filter(|index| found[*index].is_readable()).collect();
    order.sort_by_key(|index| (std::cmp::Reverse(size(&found[*index])), *index));
    Ok(order)
}

/// Refuses several arrays at risk, since the number of `--accept-risk` is for one array.
fn refuse_several_at_risk(args: &RescueConfig, found: &[RescueArray]) -> Result<(), CliError> {
    let risk = |one: &RescueArray| match &one.reshape {
        Some(reshape) => reshape.stripes_at_risk(),
        None => one.plan.stripes_at_risk(),
    };
    let at_risk: Vec<&RescueArray> =
        found.iter().filter(|one| one.is_readable() && risk(one) > 0).collect();
    if args.read_only || at_risk.len() < 2 {
        return Ok(());
    }
    let names: Vec<&str> = at_risk.iter().map(|one| one.group.name.as_str()).collect();
    let mut error = CliError::new(
        Code::SeveralArrays,
        "several arrays may be wrong in part: name each by itself",
    )
    .because(names.join(", "))
    .remedy(
        Risk::Look,
        "Read it; doubtful data is an I/O error",
        args.command("--serve --read-only"),
    );
    for one in at_risk {
        let more = format!("--serve --accept-risk {}", risk(one));
        let command = args.command_for(Some(&one.group.uuid), &more);
        error = error.remedy(
            Risk::Change,
            "Serve it over the overlay; members stay unchanged",
            command,
        );
    }
    Err(error)
}

fn can_be_written(args: &RescueConfig, found: &RescueArray) -> Result<(), CliError> {
    if let Some(reshape) = &found.reshape {
        let risk = reshape.stripes_at_risk();
        let is_accepted = risk == 0 || args.accept_risk.is_some_and(|accepted| risk <= accepted);
        let refused = || report::risk_not_accepted(args, Code::DirtyDegraded, risk);
        return if is_accepted { Ok(()) } else { Err(refused()) };
    }
    let probed = found.plan.members(&found.probed);
    let options = found.wanted(false, args.accept_risk);
    let assembled = braid_assembly::assemble(&probed, &options).array;
    assembled.map(|_| ()).map_err(|refused| report::not_served(args, found, &refused))
}

/// Serves an array in the middle of a reshape: read-only, or over an overlay of the array.
fn moved(
    args: &RescueConfig,
    (disks, reshape): (&Disks, &UnfinishedReshape),
    found: &mut RescueArray,
    globals: &Globals,
) -> Result<Device, CliError> {
    // Closes the overlay, since it is opened again below.
    found.array_overlay = None;
    let risk_policy = if args.read_only { RiskPolicy::Withhold } else { RiskPolicy::Read };
    let joined = reshape.joined((disks, &found.group.members), risk_policy, globals)?;
    let device: Arc<dyn Member> = if args.read_only {
        joined
    } else {
        let members = found.group.members.iter();
        let members: Vec<&Disk> = members.map(|index| &disks.all[*index]).collect();
        let name = reshape::overlay_name(reshape, &members);
        overlay::make_array(args, &found.folder, (&joined, &name))?
    };
    let (uuid, logical_block_bytes) = reshape.identity();
    Ok(Device {
        name: found.group.name.clone(),
        uuid,
        kind: reshape::level(reshape),
        device: reshape::within_margins(device),
        read_only: args.read_only,
        logical_block_bytes,
    })
}

/// Writes the plan's superblocks to the overlay, and assembles the array over the overlay.
pub(super) fn over_overlay(
    args: &RescueConfig,
    disks: &Disks,
    found: &mut RescueArray,
    globals: &Globals,
) -> Result<Ready, CliError> {
    let probed = found.plan.members(&found.probed);
    let options = found.wanted(false, args.accept_risk);
    let is_in = |index: &usize| {
        let is_used =
            matches!(found.plan.member_uses[*index], MemberUse::Used | MemberUse::Believed { .. });
        is_used || found.overlays[*index].is_some()
    };
    let written: Vec<usize> = (0..found.overlays.len()).filter(is_in).collect();
    let wanted = written.iter().map(|index| {
        OverlayRequest::of(&disks.all[found.group.members[*index]], found.overlays[*index].clone())
    });
    let overlays = overlay::make(args, &found.folder, wanted.collect())?;
    for (index, overlay) in written.into_iter().zip(overlays) {
        found.overlays[index] = Some(overlay);
    }
    for (index, superblock) in &found.plan.superblocks {
        let overlay = found.overlays[*index].as_ref().expect("who is written is in the array");
        let written = overlay.write_at(&superblock.to_bytes(), superblock.offset_bytes(), true);
        written
            .map_err(|error| io_error(&found.labels[*index], "writing the overlay of", &error))?;
    }
    if args.ignore_bad_blocks {
        empty_logs(found)?;
    }
    let device = |(index, overlay): (usize, &Option<MemberOverlay>)| -> Box<dyn Member> {
        match overlay {
            Some(overlay) => Box::new(Arc::clone(overlay) as Arc<dyn Member>),
            None => Box::new(Arc::clone(&disks.all[found.group.members[index]].device)),
        }
    };
    let devices = found.overlays.iter().enumerate().map(device).collect();
    decided((devices, &probed), None, &options, &globals.state_dir)?.settled(ReplayTarget::Members)
}

/// Empties bad-block logs, and updates superblocks accordingly. The writes go to the overlay, so
/// that a commit can make them on the members and an undo can revert them.
fn empty_logs(found: &RescueArray) -> Result<(), CliError> {
    for (index, overlay) in found.overlays.iter().enumerate() {
        let Some(overlay) = overlay else { continue };
        let written = found.plan.superblocks.iter().find(|(of, _)| *of == index);
        let superblock = written.map(|(_, it)| it).or(found.probed[index].probe.newest());
        let Some(mut superblock) = superblock.cloned() else { continue };
        let place = superblock.device.bad_block_log.zip(superblock.bad_block_log_offset_bytes());
        let Some((place, offset)) = place else { continue };
        superblock.set_bad_blocks(false);
        let empty = BadBlockLog::to_bytes(&[], place).expect("nothing fits");
        let written = overlay.write_at(&empty, offset, false).and_then(|()| {
            overlay.write_at(&superblock.to_bytes(), superblock.offset_bytes(), true)
        });
        written
            .map_err(|error| io_error(&found.labels[index], "writing the overlay of", &error))?;
    }
    Ok(())
}

fn config(args: &RescueConfig) -> Result<ServerConfig, CliError> {
    let nbd = args.uris.iter().map(|uri| Address::parse(uri)).collect::<Result<Vec<_>, _>>()?;
    let (read_only, accept_risk) = (args.read_only, args.accept_risk);
    Ok(ServerConfig {
        members: args.members.clone(),
        assembly: Options { read_only, accept_risk, ..Options::default() },
        nbd,
        file: args.fuse.clone(),
        run: args.run.clone(),
        jobs_paused: true,
        ..ServerConfig::default()
    })
}

/// The other arrays, and all partitions and volumes, each as an export.
fn parts(found: &[RescueArray], volumes: &[PartExport]) -> Vec<PartExport> {
    let mut parts = Vec::new();
    for (index, one) in found.iter().enumerate() {
        let sectors = one.plan.array.as_ref().map_or(0, |array| array.geometry.capacity_sectors());
        if index > 0 {
            let bytes = 0..sectors * SECTOR_BYTES;
            parts.push(PartExport::new(one.group.name.clone(), (index, bytes), report::short(one)));
        }
        let Ok(contents) = &one.contents else { continue };
        parts.extend(contents.volumes.iter().filter_map(|volume| {
            let number = volume.partition.as_ref()?.number;
            let name = format!("{}-p{number}", one.group.name);
            Some(PartExport::new(name, (index, volume.bytes.clone()), content_words(volume)))
        }));
    }
    // A volume whose name is already the name of another export is not served.
    for volume in volumes {
        let is_taken = found.iter().any(|one| one.group.name == volume.name())
            || parts.iter().any(|part| part.name() == volume.name());
        match is_taken {
            false => parts.push(volume.clone()),
            true => errln!(
                "warning: {} is the name of another export, too, and is not served",
                printable(volume.name())
            ),
        }
    }
    parts
}
