//! Rescue: reads an array that does not start, or that its operator does not dare to start, without
//! writing to it.
//!
//! ```text
//!   open (read-only, locked) ─▶ partitions of disks, volumes of containers ─┐
//!   ┌───────────────────────────────────────────────────────────────────────┘
//!   └▶ (--solve: superblocks in memory) ─▶ arrays ─▶ plan (assembly::rescue) ─▶ content ─▶ report
//!   ▲
//!   │ overlay: all writes since
//!   │ --serve: NBD, writes go there · --commit: from there to the members
//! ```
//!
//! Only `--commit` writes to members (besides `--fill`, into the holes of a copy). `--commit` shows
//! every sector first and saves the bytes that it overwrites (`braid undo`). Members are opened
//! read-only, so that the kernel guarantees that no other command writes to them.
//!
//! Invariants:
//! - no member is opened for writing, or written, except by a commit
//!   `[check: no_write_reaches_a_member]`;
//! - a commit writes the content that the overlay showed, and can be undone
//!   `[check: members_that_dropped_together_are_read_back_written_over_and_committed]`.

#![forbid(unsafe_code)]

#[macro_use]
extern crate braid_console;

mod commit;
mod config;
mod containers;
mod content_words;
mod copy_map;
mod damaged_superblocks;
mod disk;
mod disks;
mod fill;
mod group;
mod lost_files;
mod memory_superblock;
mod nas;
mod overlay;
mod overlay_list;
mod part_export;
mod plan_options;
mod report;
mod rescue_array;
mod reshape;
mod serve;
mod solve;
mod superblock_guesses;
mod unreadable_ranges;
mod volume_export;
mod volumes;
mod vote;

use braid_assembly::reshape::Reshaping;

use braid_console::Globals;
use braid_console::error::{CliError, Exit};
use braid_discovery::refusal;
use braid_discovery::undo::unfinished::{refuse_unfinished, unfinished};
pub use config::{NamedMap, NamedSerial, RescueConfig};
use disks::Disks;
use group::{Group, groups, one_of};
use rescue_array::RescueArray;
pub use reshape::window::{WindowConfig, keep_window};
use volumes::Volumes;

/// Looks at the members, reports the readable and the lost parts of their array, and does the
/// actions of the options: serves the array, writes an overlay to the members, and so on.
///
/// # Errors
/// The array cannot be read as asked; a member, the overlay or the state folder cannot be read or
/// written.
pub fn run(args: &RescueConfig, globals: &Globals) -> Result<Exit, CliError> {
    if let Some(stopped) = unfinished(&globals.state_dir, &args.members) {
        return match args.commit
            && stopped.overlay.is_some()
            && stopped.is_meant_by(args.array.as_deref())
        {
            true => commit::go_on(args, &stopped, globals),
            false => Err(stopped.refused(&globals.state_dir)),
        };
    }
    let mut disks = Disks::open(args)?;
    // A second check for an unfinished commit: no other program can write to the members now.
    refuse_unfinished(&globals.state_dir, &args.members)?;
    let mut solved = None;
    if args.solve {
        let found = solve::look(args, &disks)?;
        if !globals.json {
            out!("{}\n", found.to_text(args));
        }
        let Some(guess) = found.chosen() else {
            if args.serve || args.commit || args.discard {
                return Err(found.refused(args));
            }
            if globals.json {
                outjson!(&serde_json::json!({ "arrays": [], "solved": found.to_json() }));
            }
            return Ok(Exit::Attention);
        };
        disks = solve::with_superblocks(guess, disks)?;
        solved = Some(found);
    }
    if args.commit || args.discard {
        let group = one_of(groups(&disks, args)?, args, &disks)?;
        let members = group.members.iter().map(|index| disks.all[*index].probed.clone());
        let members: Vec<_> = members.collect();
        if args.commit && Reshaping::of(&members).is_some() {
            return Err(reshape::not_committed(args));
        }
        if let Some(volume) = foreign_volume(&disks, &group).filter(|_| args.commit) {
            return Err(containers::not_written(args, volume));
        }
        return match args.commit {
            true => commit::commit(args, disks, &group, globals),
            false => overlay::discard(args, &group, globals),
        };
    }
    let mut found = rescue_array::look(&disks, args, globals)?;
    let is_moving = found.iter().any(|one| one.reshape.is_some());
    if is_moving && (args.fill.is_some() || args.check || args.lost) {
        return Err(reshape::not_one_shape(args));
    }
    if args.fill.is_some() || args.check || args.lost {
        // The commands below open the array themselves, so the arrays' readers are closed.
        found.iter_mut().for_each(|one| one.reader = None);
    }
    if let Some(image) = &args.fill {
        let one = one_of(found, args, &disks)?;
        if let Some(volume) = foreign_volume(&disks, &one.group) {
            return Err(containers::not_written(args, volume));
        }
        return fill::fill(args, image, (disks, one), globals);
    }
    if args.check {
        return vote::check(args, (&disks, one_of(found, args, &disks)?), globals);
    }
    if args.lost {
        return lost_files::lost(args, &one_of(found, args, &disks)?, globals);
    }
    let volumes = Volumes::look(&found);
    let report = report::Report { args, disks: &disks, found: &found, volumes: &volumes, globals };
    if globals.json {
        let mut said = report.to_json();
        if let Some(solved) = &solved {
            said["solved"] = solved.to_json();
        }
        outjson!(&said);
    } else {
        out!("{}", report.to_text());
    }
    if !args.serve {
        return Ok(match exit(&found) {
            Exit::NoSuchArray if !disks.remnants.is_empty() => Exit::Attention,
            exit => exit,
        });
    }
    serve::serve(args, disks, (found, volumes), globals)
}

fn foreign_volume<'a>(disks: &'a Disks, group: &Group) -> Option<&'a disk::ContainerVolume> {
    group.members.iter().find_map(|index| disks.all[*index].volume.as_ref())
}

/// The exit code: 0 if all arrays are readable without any fault, 3 if all are readable with a
/// fault, else the code of the refusal.
fn exit(found: &[RescueArray]) -> Exit {
    let of_one = |one: &RescueArray| match &one.plan.array {
        _ if one.reshape.is_some() && one.is_readable() => Exit::Attention,
        Ok(array) if array.degraded == 0 && !array.dirty && one.plan.refusal.is_none() => {
            Exit::Done
        }
        Ok(_) => Exit::Attention,
        Err(refused) => refusal::cli_error(refused, &one.plan.verdicts, &one.labels).exit(),
    };
    let exits = || found.iter().map(of_one);
    match exits().find(|exit| !matches!(exit, Exit::Done | Exit::Attention)) {
        _ if found.is_empty() => Exit::NoSuchArray,
        Some(exit) => exit,
        None if exits().any(|exit| exit == Exit::Attention) => Exit::Attention,
        None => Exit::Done,
    }
}
