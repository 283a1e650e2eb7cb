//! `braid rescue --serve`: the array over its overlay.

use std::sync::Arc;

use braid_assembly::rescue::Stand;
use braid_member::Member;
use clap::{Args as _, Command, FromArgMatches};

use super::args::Args;
use super::disks::Disks;
use super::look::Found;
use super::overlay::{self, OfMember, open_one};
use super::words;
use crate::cmd::Globals;
use crate::cmd::serve;
use crate::cmd::serve::assemble::{Ready, decided};
use crate::cmd::serve::parts::{Part, Rescued};
use crate::error::{CliError, Exit};
use crate::output::printable::printable;
use crate::output::size::format_size;
use crate::probe::io_error;
use crate::refusal;
use crate::replay::Place;

pub(super) fn serve(
    args: &Args,
    disks: Disks,
    mut found: Found,
    globals: &Globals,
) -> Result<Exit, CliError> {
    if let Err(refused) = &found.plan.array {
        return Err(refusal::cli_error(refused, &found.plan.verdicts, &found.labels));
    }
    let parts = parts(&found);
    let ready = match args.read_only {
        true => found.withholding(found.ready(&disks, globals, None)?).settled(Place::Memory)?,
        false => over_overlay(args, &disks, &mut found, globals)?,
    };
    // What is kept of the array while it is rescued is no news of the array.
    let folder = found.folder.join("state");
    let aside = Globals { state_dir: folder, ..globals.clone() };
    let aside = if args.read_only { globals } else { &aside };
    let exit = serve::rescued::serve(&serve_args(args), Rescued { ready, parts }, aside)?;
    if !args.read_only && !globals.json {
        let size = format_size(overlay::taken_bytes(&found.folder));
        let place = printable(&found.folder.display().to_string()).into_owned();
        errln!("the members are as they were; what was written is in {place} ({size})");
        errln!("  go on:              {}", args.command("--serve"));
        errln!("  what would change:  {}", args.command("--commit -n"));
        errln!("  throw it away:      {}", args.command("--discard"));
    }
    Ok(exit)
}

/// Puts superblocks into the overlay as the plan has them, and assembles what stands there then.
pub(super) fn over_overlay(
    args: &Args,
    disks: &Disks,
    found: &mut Found,
    globals: &Globals,
) -> Result<Ready, CliError> {
    let probed = found.plan.members(&found.probed);
    let options = found.wanted(false, args.accept_risk);
    // Before anything is made: what is refused leaves nothing behind.
    if let Err(refused) = braid_assembly::assemble(&probed, &options).array {
        return Err(words::not_served(args, found, &refused));
    }
    for (index, stand) in found.plan.stands.iter().enumerate() {
        let is_in = matches!(stand, Stand::Used | Stand::Believed { .. });
        if is_in && found.overlays[index].is_none() {
            let disk = &disks.all[found.group.members[index]];
            found.overlays[index] = Some(open_one(args, disk, &found.folder)?);
        }
    }
    for (index, superblock) in &found.plan.superblocks {
        let overlay = found.overlays[*index].as_ref().expect("who is written is in the array");
        let written = overlay.write_at(&superblock.to_bytes(), superblock.offset_bytes(), true);
        written
            .map_err(|error| io_error(&found.labels[*index], "writing the overlay of", &error))?;
    }
    let device = |(index, overlay): (usize, &Option<OfMember>)| -> Box<dyn Member> {
        match overlay {
            Some(overlay) => Box::new(Arc::clone(overlay) as Arc<dyn Member>),
            None => Box::new(Arc::clone(&disks.all[found.group.members[index]].device)),
        }
    };
    let devices = found.overlays.iter().enumerate().map(device).collect();
    decided((devices, &probed), None, &options, &globals.state_dir)?.settled(Place::Members)
}

/// What `serve` is asked for.
fn serve_args(args: &Args) -> serve::Args {
    let mut words: Vec<std::ffi::OsString> = ["serve", "--jobs", "paused"].map(Into::into).into();
    let mut option = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
        words.extend([name.into(), value.as_ref().to_owned()]);
    };
    args.uris.iter().for_each(|uri| option("--nbd", uri));
    args.run.iter().for_each(|command| option("--run", command));
    args.fuse.iter().for_each(|path| option("--fuse", path));
    args.accept_risk.iter().for_each(|count| option("--accept-risk", &count.to_string()));
    if args.read_only {
        words.push("--read-only".into());
    }
    words.push("--".into());
    words.extend(args.members.iter().map(|path| path.clone().into_os_string()));
    let command = serve::Args::augment_args(Command::new("serve"));
    let matches = command.try_get_matches_from(words).expect("words that serve has");
    serve::Args::from_arg_matches(&matches).expect("words that serve has")
}

/// Each partition that is on the array, as an export.
fn parts(found: &Found) -> Vec<Part> {
    let Ok(contents) = &found.contents else { return Vec::new() };
    let of = |volume: &braid_contents::Volume| {
        let number = volume.partition.as_ref()?.number;
        let name = format!("{}-p{number}", found.group.name);
        Some(Part::new(name, volume.bytes.clone(), words::holds(volume)))
    };
    contents.volumes.iter().filter_map(of).collect()
}
