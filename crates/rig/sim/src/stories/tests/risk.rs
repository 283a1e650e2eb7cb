//! Arrays that an operator starts although some sectors of a lacking member may read wrong. Rows
//! with writes in flight are resynced, so that a later loss of a member costs nothing more.

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

/// The part of a member's content that is missing when the run ends.
#[derive(Clone, Copy, Debug)]
enum MissingPart {
    /// Everything beyond the member's recovery offset.
    Rest,
    /// Everything: the member is missing.
    All,
}

/// A power cut or kill ends a run during writes, while a member lacks some of its content. The
/// array starts with the risk accepted. Returns whether the start was refused before the risk was
/// accepted.
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
    // This start finds the array clean, so it compares the disks with each other.
    let rest: Vec<usize> = there.into_iter().filter(|disk| *disk != lost).collect();
    let opened = story.world.open(&rest, true);
    opened.expect("a clean array bears the loss");
    assert!(story.world.read_all().is_some(), "all of it can be read");
    true
}

/// Regression: a RAID-5 was killed during writes below a recovery offset, and started with the risk
/// accepted. Rows below the offset were not resynced, and the next loss gave wrong bytes.
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

/// The array starts with the risk accepted, without one member. The array is cut off before
/// superblocks record that, and starts without another member. Both starts are refused without the
/// risk, and both read all promised sectors.
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

/// Regression: the first start with an accepted risk lacked one member, the second start another.
/// At the second start, the simulator had forgotten which writes were in flight at the first crash.
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
