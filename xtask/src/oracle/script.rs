//! Parts of scripts for cases: shell for the guest, with the functions of `guest/library.sh`.
//!
//! The scripts use mdadm's command line, but contain no host path and no region.

use super::spec::{ArraySpec, Making};

/// Number of scattered writes after the first filling.
pub(crate) const SCRIBBLES: u64 = 12;

/// The words `$M1 $M2 ...`, except for the slots in `without`.
pub(crate) fn members(count: usize, without: &[usize]) -> String {
    let kept = (0..count).filter(|slot| !without.contains(slot));
    kept.map(|slot| format!("$M{}", slot + 1)).collect::<Vec<_>>().join(" ")
}

/// Shell lines that create the array on zeroed members.
pub(crate) fn create(spec: &ArraySpec) -> String {
    let count = spec.members.len();
    let present = members(count, &[]);
    let words = spec.create_words();
    let mut script = default_layout(spec);
    script += &match spec.making {
        Making::Mdadm => format!("mdadm --create $A {words} {present}\n"),
        Making::Takeover => {
            let words = words.replace("--level=0", "--level=4 --assume-clean").replace(
                &format!("--raid-devices={count}"),
                &format!("--raid-devices={}", count + 1),
            );
            format!(
                "mdadm --create $A {words} {present} missing\necho raid0 >/sys/block/$D/md/level\n"
            )
        }
        Making::PatchedLinear => {
            let words = words.replace("--level=0", "--level=linear").replace("chunk", "rounding");
            // In a superblock, the word at byte 28 is the level, the word at 256 the layout.
            let patches = (1..).zip(&spec.members).map(|(number, sectors)| {
                let place = (sectors & !127) * 512 - 65536;
                format!("agent patch $M{number} {place} 28 0\n")
            });
            let patches: String = patches.collect();
            format!(
                "mdadm --create $A {words} {present}\nmdadm --stop $A\n{patches}\
                 mdadm --assemble $A {present}\n"
            )
        }
        Making::PatchedFarSets(form) => {
            let copies = spec.layout.and_then(|word| word[1..].parse::<u32>().ok()).unwrap_or(2);
            let layout = form << 17 | copies << 8 | 1;
            let patches: String = (1..=count)
                .map(|number| format!("agent patch $M{number} 4096 76 {layout}\n"))
                .collect();
            format!(
                "mdadm --create $A {words} {present}\nmdadm --stop $A\n{patches}\
                 mdadm --assemble $A {present}\n"
            )
        }
    };
    script
}

fn default_layout(spec: &ArraySpec) -> String {
    let number = spec.raid0_default.unwrap_or(0);
    format!("echo {number} >/sys/module/raid0/parameters/default_layout\n")
}

/// Shell lines that fill the array with stream `seed`, then some places with stream `seed + 1`.
pub(crate) fn write(seed: u64) -> String {
    format!("agent fill $A {seed}\n{}", rewrite(seed + 1))
}

/// Shell lines that write some scattered places with stream `seed`.
pub(crate) fn rewrite(seed: u64) -> String {
    format!("agent scribble $A {seed} {SCRIBBLES}\n")
}

/// A case of the suite `forward`: md makes and writes the array. The script reports `sha256`,
/// `mdstat` and the facts.
pub(crate) fn forward(spec: &ArraySpec, seed: u64) -> String {
    let mut script = create(spec);
    script += &write(seed);
    script += "content sha256\nstate\n";
    script += &format!("facts {}\n", members(spec.members.len(), &[]));
    script += "mdadm --stop $A\n";
    script
}

/// A case of the suite `reverse`: md reads an array that braid wrote, first read-only
/// (`sha256.readonly`). Then md runs its own check (`mismatch_cnt`, if the level has redundancy).
pub(crate) fn reverse(spec: &ArraySpec, without: &[usize]) -> String {
    let present = members(spec.members.len(), without);
    let run = if without.is_empty() { "" } else { " --run" };
    let mut script = default_layout(spec);
    script += &format!("mdadm --assemble --readonly{run} $A {present}\n");
    script += "content sha256.readonly\nstate\n";
    if without.is_empty() && spec.is_redundant() {
        script += "mdadm --readwrite $A\nscrub mismatch_cnt\n";
    }
    script
}

/// The second half of a round trip: md reads (`sha256.readonly`), checks, writes some places with
/// stream `seed`, and reports the new content (`sha256`).
pub(crate) fn reverse_and_write(spec: &ArraySpec, seed: u64) -> String {
    let mut script = reverse(spec, &[]);
    if !spec.is_redundant() {
        script += "mdadm --readwrite $A\n";
    }
    script += &rewrite(seed);
    script += "content sha256\n";
    if spec.is_redundant() {
        script += "scrub mismatch_cnt\n";
    }
    script += "mdadm --stop $A\n";
    script
}

/// A case for an array that was not stopped. md reads the array (`sha256.readonly`) and resyncs it
/// once md may write. After the resync md must find no mismatch (`mismatch_cnt`).
pub(crate) fn crashed(spec: &ArraySpec) -> String {
    let present = members(spec.members.len(), &[]);
    let mut script = format!("mdadm --assemble --readonly $A {present}\n");
    script += "content sha256.readonly\nstate\nmdadm --readwrite $A\n";
    script += "sleep 0.2\nidle\nscrub mismatch_cnt\ncontent sha256.resynced\n";
    script
}

/// A case in which some members are stale. md must start without them (`degraded`), read
/// (`sha256.readonly`), rebuild them (`degraded.rebuilt`, `sha256.rebuilt`) and find no mismatch
/// (`mismatch_cnt`).
pub(crate) fn rejoin(spec: &ArraySpec, stale: &[usize]) -> String {
    let present = members(spec.members.len(), &[]);
    let mut script = default_layout(spec);
    script += &format!("mdadm --assemble --readonly $A {present}\n");
    script += "content sha256.readonly\nstate\nmdadm --readwrite $A\n";
    for slot in stale {
        script += &format!("mdadm $A --add $M{}\n", slot + 1);
    }
    script += "rebuilt\nvalue degraded.rebuilt $(cat /sys/block/$D/md/degraded)\n";
    script += "scrub mismatch_cnt\n";
    // `content` drops cached pages first, so that reads reach the members, each in turn.
    script += "content sha256.rebuilt\n";
    script
}

/// md begins to recover the last slot onto an additional device, stops at sector `half`, and stops
/// the array. Before the recovery, md writes some places with stream `seed` while the slot is
/// empty.
pub(crate) fn begin_recovery(spec: &ArraySpec, seed: u64, half: u64) -> String {
    let count = spec.members.len();
    let present = members(count, &[]);
    let mut script = format!("mdadm --assemble $A {present}\nfail {count}\n");
    script += &rewrite(seed);
    script += &format!("halt_at {half}\nmdadm $A --add $M{}\npart_way {half}\n", count + 1);
    script + "mdadm --stop $A\n"
}

/// md begins to replace the last member by an additional device, stops at sector `half`, and stops
/// the array. Then md writes some places with stream `seed`.
pub(crate) fn begin_replace(spec: &ArraySpec, seed: u64, half: u64) -> String {
    let count = spec.members.len();
    let (present, new) = (members(count, &[]), count + 1);
    let mut script = format!("mdadm --assemble $A {present}\nmdadm $A --add $M{new}\n");
    script += &format!("halt_at {half}\nmdadm $A --replace $M{count} --with $M{new}\n");
    script += &format!("part_way {half}\n{}", rewrite(seed));
    script + "mdadm --stop $A\n"
}

/// md begins a resync, stops at sector `half`, and leaves the array. Meanwhile md writes some
/// places with stream `seed`.
pub(crate) fn begin_resync(spec: &ArraySpec, seed: u64, half: u64) -> String {
    let present = members(spec.members.len(), &[]);
    format!("resync_to {half} {present}\n{}mdadm --stop $A\n", rewrite(seed))
}

/// A case for a job that braid has left half done, on this many devices. md reads the content
/// (`sha256.readonly`) and reports where the job goes on (`resumed`, from `file` in the array's
/// folder). md finishes the job by itself (`degraded.ended`, `sha256.ended`) and checks
/// (`mismatch_cnt`).
pub(crate) fn end_job(devices: usize, file: &str) -> String {
    let present = members(devices, &[]);
    let mut script = format!("mdadm --assemble --readonly --run $A {present}\n");
    script += "content sha256.readonly\nstate\n";
    script += &format!("value resumed $(cat /sys/block/$D/md/{file})\n");
    script += "mdadm --readwrite $A\nsleep 0.2\nrebuilt\n";
    script += "value degraded.ended $(cat /sys/block/$D/md/degraded)\n";
    script + "scrub mismatch_cnt\ncontent sha256.ended\n"
}
