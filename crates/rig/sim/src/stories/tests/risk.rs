//! Arrays that an operator starts although some sectors of a lacking member may read wrong. Other
//! writes in flight are resynced, and a later loss costs nothing more.

use braid_assembly::Refusal;
use braid_engine::array::JobRequest;
use braid_geometry::Level;

use super::for_seeds;
use super::parity_log::WRITES;
use super::scene::{Scene, design};
use super::script::Mix;
use crate::create::Design;
use crate::disk::DiskFaults;
use crate::random::Random;

/// The part that a member lacks at the end.
#[derive(Clone, Copy, Debug)]
enum MissingPart {
    /// Everything beyond its recovery offset.
    Rest,
    /// Everything: it is missing.
    All,
}

/// Power or process ends during writes while a member lacks something. The array starts with the
/// risk accepted. Returns whether it was refused at first.
fn lives_on(design: Design, lacks: MissingPart, seed: u64) -> bool {
    let mut random = Random::new(seed ^ 0x715c);
    let slots = usize::from(design.slots);
    let (lacking, lost) = (seed as usize % slots, (seed as usize + 1) % slots);
    let mut scene = Scene::new(design, seed);
    match lacks {
        MissingPart::Rest => {
            let sectors = design.rows * u64::from(design.chunk_sectors);
            scene.recovering = Some((lacking, sectors / 2 + random.below(sectors / 2)));
        }
        MissingPart::All => scene.missing = vec![lacking],
    }
    let mut story = scene.open();
    let mix = Mix { in_flight_max: *random.pick(&[2, 8]), ..WRITES };
    story.begin_mix(&mix, 20 + random.below(400));
    story.begins_anew();
    story.world.crash(random.chance(60));
    let world = &mut story.world;
    world.disks.iter_mut().for_each(|disk| disk.ills = DiskFaults::default());
    let all = 0..world.disks.len();
    let there = |disk: &usize| matches!(lacks, MissingPart::Rest) || *disk != lacking;
    let there: Vec<usize> = all.filter(there).collect();
    let Err(Refusal::DirtyAndDegraded(risk)) = world.open(&there, false) else { return false };
    let opened = world.open_accepting(&there, false, Some(risk.stripes));
    assert!(opened.is_ok_and(|array| array.accepted_risk.is_some()), "what was named is accepted");
    world.read_all();
    story.begins_anew();
    story.request(JobRequest::Resume);
    story.run(&Mix::ALL);
    story.rest();
    let is_whole = story.world.standing().occupants.iter().all(Option::is_some);
    assert!(is_whole || matches!(lacks, MissingPart::All), "the recovery goes on after the resync");
    assert!(story.stop(), "no region is in doubt");
    // A clean start compares the disks.
    let rest: Vec<usize> = there.into_iter().filter(|disk| *disk != lost).collect();
    let opened = story.world.open(&rest, true);
    opened.expect("a clean array bears the loss");
    assert!(story.world.read_all().is_some(), "all of it can be read");
    true
}

/// Regression: a RAID-5 was killed during writes below a recovery offset, and started with the risk
/// accepted. Nothing below the offset was resynced, and the next loss gave wrong bytes.
#[test]
fn what_was_being_written_is_resynced_after_its_risk_was_accepted() {
    let mut accepted = 0;
    for_seeds(12, |seed| {
        for (level, slots, lacks) in [
            (Level::Raid4, 4, MissingPart::Rest),
            (Level::Raid5, 4, MissingPart::Rest),
            (Level::Raid6, 5, MissingPart::Rest),
            (Level::Raid6, 5, MissingPart::All),
        ] {
            let design = design(level, 2, 8, slots, 9);
            for bit_sectors in [0, 8] {
                accepted += u32::from(lives_on(Design { bit_sectors, ..design }, lacks, seed));
            }
        }
    });
    assert!(accepted > 30, "{accepted} starts were refused at first");
}

/// Starts without one member, is cut off before superblocks say so, then starts without another.
/// Both starts are refused at first, and both read what is promised.
fn lives_on_without_another(design: Design, seed: u64) -> bool {
    let slots = usize::from(design.slots);
    let (first, second) = (seed as usize % slots, (seed as usize + 1) % slots);
    let mut story = Scene::new(design, seed).open();
    story.begin_mix(&WRITES, 20 + Random::new(seed).below(400));
    story.begins_anew();
    story.world.crash(true);
    let world = &mut story.world;
    world.disks.iter_mut().for_each(|disk| disk.ills = DiskFaults::default());
    for lost in [first, second] {
        let there: Vec<usize> = (0..slots).filter(|disk| *disk != lost).collect();
        let Err(Refusal::DirtyAndDegraded(risk)) = world.open(&there, false) else { return false };
        let opened = world.open_accepting(&there, false, Some(risk.stripes));
        assert!(
            opened.is_ok_and(|array| array.accepted_risk.is_some()),
            "what was named is accepted"
        );
        world.read_all();
        world.crash(true);
    }
    true
}

/// Regression: the member missing at the risky start was back, and another was missing. The
/// simulator had forgotten the writes in flight of the first crash.
#[test]
fn a_risk_is_accepted_again_without_another_member() {
    let mut accepted = 0;
    for_seeds(12, |seed| {
        for (level, slots) in [(Level::Raid4, 4), (Level::Raid5, 4)] {
            accepted += u32::from(lives_on_without_another(design(level, 2, 8, slots, 9), seed));
        }
    });
    assert!(accepted > 10, "{accepted} starts were refused");
}
