//! The golden fixtures: small arrays that md makes for the daily tests, and their states.
//!
//! `layouts` has one array for each layout of bytes on members. `states` has cases for assembly:
//! members failed, stale, spare or half recovered, with bad-block logs and bitmaps, and arrays
//! after a power cut. Content is stamps, so that the text of a fixture holds everything.

use super::drive::Member;
use super::guest::{Case, Ending};
use super::matrix::{RAID5_LAYOUTS, RAID6_LAYOUTS, RAID10_LAYOUTS};
use super::script;
use super::spec::{ArraySpec, Level, Making};

#[derive(Clone, Debug)]
pub(crate) struct Golden {
    /// Members and script; the case's name is the fixture's name.
    pub(crate) case: Case,
    /// The fixture's purpose, as one sentence.
    pub(crate) about: String,
    pub(crate) ending: Ending,
    /// mdadm's words for level and layout.
    pub(crate) level: &'static str,
}

/// Device sectors if the superblock is at the start.
const AT_START: u64 = 4240;
/// Device sectors if the superblock is at the end.
const AT_END: u64 = 2320;
const CHUNK_KIB: u32 = 32;

fn sectors(metadata: &str) -> u64 {
    if matches!(metadata, "1.1" | "1.2") { AT_START } else { AT_END }
}

/// One array of md for each layout, metadata version and oddity of size.
pub(crate) fn layouts() -> Vec<Golden> {
    let mut all = Vec::new();
    let mut add = |level, layout, metadata: &'static str, members: usize, making| {
        all.push(layout_case(level, layout, metadata, vec![sectors(metadata); members], making));
    };
    for layout in RAID5_LAYOUTS {
        add(Level::Raid5, Some(layout), "1.2", 4, Making::Mdadm);
    }
    add(Level::Raid5, Some("left-symmetric"), "1.2", 3, Making::Mdadm);
    for layout in RAID6_LAYOUTS {
        add(Level::Raid6, Some(layout), "1.2", 5, Making::Mdadm);
    }
    for layout in ["left-symmetric", "ddf-N-continue", "left-symmetric-6"] {
        add(Level::Raid6, Some(layout), "1.2", 4, Making::Mdadm);
    }
    for layout in RAID10_LAYOUTS {
        for members in [3, 4, 5] {
            add(Level::Raid10, Some(layout), "1.2", members, Making::Mdadm);
        }
    }
    for (form, layout, members) in [(2, "f2", 4), (2, "f2", 5), (1, "f2", 6), (2, "f3", 6)] {
        add(Level::Raid10, Some(layout), "1.2", members, Making::PatchedFarSets(form));
    }
    for metadata in ["0.90", "1.0", "1.1", "1.2"] {
        add(Level::Raid1, None, metadata, 2, Making::Mdadm);
        add(Level::Raid4, None, metadata, 4, Making::Mdadm);
        if metadata != "1.2" {
            add(Level::Raid5, Some("left-symmetric"), metadata, 4, Making::Mdadm);
            add(Level::Raid6, Some("left-symmetric"), metadata, 5, Making::Mdadm);
            add(Level::Raid10, Some("n2"), metadata, 4, Making::Mdadm);
        }
        let making = if metadata == "0.90" { Making::Takeover } else { Making::Mdadm };
        add(Level::Raid0, None, metadata, 3, making);
        add(Level::Linear, None, metadata, 3, Making::Mdadm);
    }
    unequal(&mut all);
    all
}

/// Members of unequal size: linear, and raid0 with several zones in both md layouts.
fn unequal(all: &mut Vec<Golden>) {
    for metadata in ["0.90", "1.2"] {
        let base = sectors(metadata);
        let sizes = vec![base + 900, base, base + 1900, base + 900];
        all.push(layout_case(Level::Linear, None, metadata, sizes, Making::Mdadm));
    }
    for sizes in [[900, 0, 1900, 900], [0, 900, 900, 2100]] {
        for layout in ["original", "alternate"] {
            let sizes = sizes.map(|more| AT_START + more).to_vec();
            all.push(layout_case(Level::Raid0, Some(layout), "1.2", sizes, Making::Mdadm));
        }
    }
    for default in [1, 2] {
        let sizes = [900, 0, 1900].map(|more| AT_END + more).to_vec();
        let mut golden = layout_case(Level::Raid0, None, "0.90", sizes, Making::PatchedLinear);
        golden.case.script = golden.case.script.replace("echo 0 >", &format!("echo {default} >"));
        golden.case.name += &format!("-default{default}");
        golden.about += &format!(
            " The superblock has no word for the layout; raid0.default_layout was {default} when \
             md wrote it."
        );
        all.push(golden);
    }
    // Arrays that differ only in their members' sizes get different names.
    for index in 1..all.len() {
        let name = all[index].case.name.clone();
        if all[..index].iter().any(|other| other.case.name == name) {
            all[index].case.name += "-b";
        }
    }
}

fn layout_case(
    level: Level,
    layout: Option<&'static str>,
    metadata: &'static str,
    members: Vec<u64>,
    making: Making,
) -> Golden {
    let level_word = match level {
        Level::Linear => "linear",
        Level::Raid0 => "raid0",
        Level::Raid1 => "raid1",
        Level::Raid4 => "raid4",
        Level::Raid5 => "raid5",
        Level::Raid6 => "raid6",
        Level::Raid10 => "raid10",
    };
    let mut name = layout.map_or(level_word.to_owned(), |layout| format!("{level_word}-{layout}"));
    name += &format!("-{}-m{metadata}", members.len());
    if members.iter().any(|size| *size != members[0]) {
        name += "-unequal";
    }
    if let Making::PatchedFarSets(form) = making {
        name += &format!("-sets{form}");
    }
    let chunk_kib = (level != Level::Raid1).then_some(CHUNK_KIB);
    let spec = ArraySpec {
        name: name.clone(),
        level,
        layout,
        metadata,
        chunk_kib,
        members,
        making,
        raid0_default: None,
    };
    let present = script::members(spec.members.len(), &[]);
    let script = format!(
        "{}facts {present}\nagent stamp $A 1\ncontent sha256\nstate\nmdadm --stop $A\n",
        script::create(&spec)
    );
    let members = spec.members.iter().map(|size| Member::zeros(*size)).collect();
    Golden {
        case: Case { name, members, script },
        about: format!("Healthy and clean: {}.", spec.create_words()),
        ending: Ending::PowerOff,
        level: level_word,
    }
}
