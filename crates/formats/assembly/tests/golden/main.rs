//! Golden: member images that the real md wrote, read again without md.
//!
//! The fixtures in `oracle/fixtures` give every member image of 121 arrays byte for byte, with the
//! state that the kernel reported for each. ondisk must read the superblocks as the kernel wrote
//! them. Geometry must say where every sector is, and assembly must judge every state.
//!
//! No array runs here; that is the golden test of `braid-runtime`.

#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../../../oracle/fixture.rs"]
mod fixture;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../../../oracle/look.rs"]
mod look;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../../../oracle/pattern.rs"]
mod pattern;
mod sector_content;
mod states;
mod superblocks;

use std::path::Path;

use braid_assembly::{Assembly, Options, ProbedMember, assemble};
use fixture::Fixture;

fn fixtures() -> Vec<(String, Fixture)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../oracle/fixtures");
    let all = Fixture::all(&folder).expect("the fixtures are committed");
    assert!(all.len() >= 121, "only {} fixtures", all.len());
    all
}

/// The members of a fixture as input of assembly, labelled `m0`, `m1`, ...
fn probed(fixture: &Fixture) -> Vec<ProbedMember> {
    let look = |index| look::look_at_image(&format!("m{index}"), &fixture.image(index));
    (0..fixture.members.len()).map(look).collect()
}

fn assembled(fixture: &Fixture, read_only: bool) -> Assembly {
    assemble(&probed(fixture), &Options { read_only, ..Options::default() })
}
