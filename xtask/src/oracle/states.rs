//! Arrays in the states that assembly must judge, each made by a short story with the real md.
//!
//! This file stands next to `golden`, which holds healthy arrays. Writes after an event are stamps
//! of generation 2 and later, so that a stale member is visible by its content.

use super::drive::Member;
use super::golden::Golden;
use super::guest::{Case, Ending};

/// Device sectors of every member in these stories.
const SECTORS: u64 = 4240;

/// A story: name, level, number of members, shell, and its purpose.
struct Story(&'static str, &'static str, usize, &'static str, &'static str);

/// Stories with a clean stop. Each step is a line of shell.
const STORIES: &[Story] = &[
    Story(
        "raid5-stale",
        "raid5",
        4,
        "make 5 4 1.2; stamp; fail 4; agent stamp $A 2 0 512; stop",
        "Member 3 failed and was removed, then the array was written: its events are behind.",
    ),
    Story(
        "raid5-stale-m0.90",
        "raid5",
        4,
        "make 5 4 0.90; stamp; fail 4; agent stamp $A 2 0 512; stop",
        "As raid5-stale, with a 0.90 superblock.",
    ),
    Story(
        "raid1-stale",
        "raid1",
        2,
        "make 1 2 1.2; stamp; fail 1; agent stamp $A 2 0 512; stop",
        "Member 0 of a mirror failed, then the array was written.",
    ),
    Story(
        "raid6-stale-twice",
        "raid6",
        5,
        "make 6 5 1.2; stamp; fail 2; agent stamp $A 2 0 512; fail 4; agent stamp $A 3 256 512; stop",
        "Members 1 and 3 failed one after the other, with writes after each.",
    ),
    Story(
        "raid10-stale",
        "raid10",
        4,
        "make 10 4 1.2; stamp; fail 2; agent stamp $A 2 0 512; stop",
        "Member 1 of near-2 pairs failed, then the array was written.",
    ),
    Story(
        "raid5-failed-not-removed",
        "raid5",
        4,
        "make 5 4 1.2; stamp; mdadm $A --fail $M4; agent stamp $A 2 0 512; stop",
        "Member 3 failed and stayed in the array as faulty.",
    ),
    Story(
        "raid5-created-missing",
        "raid5",
        3,
        "create 5 4 1.2 $M1 missing $M2 $M3; stamp; stop",
        "Created with slot 1 missing: members 0, 1, 2 are in slots 0, 2, 3.",
    ),
    Story(
        "raid6-created-two-missing",
        "raid6",
        3,
        "create 6 5 1.2 missing $M1 $M2 missing $M3; stamp; stop",
        "Created with slots 0 and 3 missing: members 0, 1, 2 are in slots 1, 2, 4.",
    ),
    Story(
        "raid5-spare",
        "raid5",
        4,
        "create 5 3 1.2 --spare-devices=1 $M1 $M2 $M3 $M4; stamp; stop",
        "Member 3 is a spare.",
    ),
    Story(
        "raid1-spare-m0.90",
        "raid1",
        3,
        "create 1 2 0.90 --spare-devices=1 $M1 $M2 $M3; stamp; stop",
        "Member 2 is a spare, with a 0.90 superblock.",
    ),
    Story(
        "raid5-recovered-onto-spare",
        "raid5",
        4,
        "create 5 3 1.2 --spare-devices=1 $M1 $M2 $M3 $M4; stamp; mdadm $A --fail $M1; idle; \
         mdadm $A --remove $M1; agent stamp $A 2 0 256; stop",
        "Slot 0 was recovered onto member 3; member 0 is what was there before.",
    ),
    Story(
        "raid5-recovering",
        "raid5",
        5,
        "make 5 4 1.2; stamp; fail 2; halt_at 1024; mdadm $A --add $M5; part_way 1024; \
         agent stamp $A 2 0 64; stop",
        "Slot 1 is being recovered onto member 4, its first 1024 sectors are done; member 1 is \
         what was there before.",
    ),
    Story(
        "raid1-recovering",
        "raid1",
        3,
        "make 1 2 1.2; stamp; fail 2; halt_at 1024; mdadm $A --add $M3; part_way 1024; stop",
        "Slot 1 is being recovered onto member 2, its first 1024 sectors are done.",
    ),
    Story(
        "raid6-recovering",
        "raid6",
        6,
        "make 6 5 1.2; stamp; fail 2; halt_at 1024; mdadm $A --add $M6; part_way 1024; stop",
        "Slot 1 is being recovered onto member 5, its first 1024 sectors are done.",
    ),
    Story(
        "raid10-recovering",
        "raid10",
        5,
        "make 10 4 1.2; stamp; fail 2; halt_at 1024; mdadm $A --add $M5; part_way 1024; stop",
        "Slot 1 is being recovered onto member 4, its first 1024 sectors are done.",
    ),
    Story(
        "raid5-resyncing",
        "raid5",
        4,
        "make 5 4 1.2; stamp; mdadm --stop $A; resync_to 1024 $ALL; stop",
        "A resync of the whole array was stopped after 1024 sectors.",
    ),
    Story(
        "raid1-resyncing-m0.90",
        "raid1",
        2,
        "make 1 2 0.90; stamp; mdadm --stop $A; resync_to 1024 $ALL; stop",
        "A resync of the whole array was stopped after 1024 sectors, with a 0.90 superblock.",
    ),
    Story(
        "raid1-bitmap",
        "raid1",
        2,
        "create 1 2 1.2 --bitmap=internal --bitmap-chunk=64K $M1 $M2; stamp; stop",
        "An internal bitmap, clean.",
    ),
    Story(
        "raid5-bitmap-stale",
        "raid5",
        4,
        "create 5 4 1.2 --bitmap=internal --bitmap-chunk=64K $M1 $M2 $M3 $M4; stamp; fail 3; \
         agent stamp $A 2 0 512; stop",
        "An internal bitmap, with bits set for what member 2 missed.",
    ),
    Story(
        "raid5-bitmap-readded",
        "raid5",
        4,
        "create 5 4 1.2 --bitmap=internal --bitmap-chunk=64K $M1 $M2 $M3 $M4; stamp; fail 3; \
         agent stamp $A 2 0 512; mdadm $A --re-add $M3; sleep 0.2; idle; stop",
        "As raid5-bitmap-stale; then member 2 was added again and caught up from the bitmap.",
    ),
    Story(
        "raid1-bad-blocks",
        "raid1",
        2,
        "make 1 2 1.2; stamp; bad_blocks 2 '2148 8' '2348 16'; agent stamp $A 2 0 64; stop",
        "Member 1 has bad blocks at device sectors 2148+8 and 2348+16.",
    ),
    Story(
        "raid5-bad-blocks",
        "raid5",
        4,
        // If raid5 reads a bad block, it rewrites the block and clears the block's record. So
        // nothing is read after the bad blocks are recorded. The last write makes md write
        // superblocks.
        "make 5 4 1.2; stamp; agent stamp $A 2 0 64; report; bad_blocks 2 '2112 8'; \
         bad_blocks 3 '3072 8'; agent stamp $A 2 0 64; mdadm --stop $A",
        "Member 1 has bad blocks at device sectors 2112+8, member 2 at 3072+8.",
    ),
    Story(
        "raid5-ppl",
        "raid5",
        4,
        "create 5 4 1.2 --consistency-policy=ppl $M1 $M2 $M3 $M4; stamp; agent stamp $A 2 0 64; stop",
        "A partial parity log, clean.",
    ),
    Story(
        "raid5-journal",
        "raid5",
        5,
        "create_journal; stamp; stop",
        "Member 4 is a write journal.",
    ),
    Story(
        "raid5-replacing",
        "raid5",
        5,
        "make 5 4 1.2; stamp; halt_at 1024; mdadm $A --add-spare $M5; \
         mdadm $A --replace $M2 --with $M5; part_way 1024; stop",
        "Member 4 is on its way to replace member 1, which is well; 1024 sectors are done.",
    ),
    Story(
        "raid1-write-mostly",
        "raid1",
        2,
        "create 1 2 1.2 $M1 --write-mostly $M2; stamp; stop",
        "Member 1 is write-mostly.",
    ),
    Story(
        "raid1-failfast",
        "raid1",
        2,
        "create 1 2 1.2 --failfast $M1 $M2; stamp; stop",
        "Both members are failfast.",
    ),
    Story(
        "raid5-reassembled-degraded",
        "raid5",
        4,
        "make 5 4 1.2; stamp; stop; mdadm --assemble --run $A $M1 $M2 $M3; agent stamp $A 2 0 512; \
         stop",
        "Member 3 was absent at a later assembly, then the array was written.",
    ),
    Story(
        "raid1-split",
        "raid1",
        2,
        "make 1 2 1.2; stamp; stop; mdadm --assemble --run $A $M1; agent stamp $A 2 0 512; stop; \
         mdadm --assemble --run $A $M2; agent stamp $A 3 0 512; agent stamp $A 4 0 512; stop",
        "Each member ran and was written without the other: two histories.",
    ),
];

/// Stories that end with a power cut during writes.
const CUTS: &[Story] = &[
    Story(
        "raid1-dirty",
        "raid1",
        2,
        "make 1 2 1.2; stay_dirty; stamp; agent stamp $A 2 0 64; report",
        "Dirty.",
    ),
    Story(
        "raid4-dirty",
        "raid4",
        4,
        "make 4 4 1.2; stay_dirty; stamp; agent stamp $A 2 0 64; report",
        "Dirty.",
    ),
    Story(
        "raid5-dirty",
        "raid5",
        4,
        "make 5 4 1.2; stay_dirty; stamp; agent stamp $A 2 0 64; report",
        "Dirty.",
    ),
    Story(
        "raid6-dirty",
        "raid6",
        5,
        "make 6 5 1.2; stay_dirty; stamp; agent stamp $A 2 0 64; report",
        "Dirty.",
    ),
    Story(
        "raid10-dirty",
        "raid10",
        4,
        "make 10 4 1.2; stay_dirty; stamp; agent stamp $A 2 0 64; report",
        "Dirty.",
    ),
    Story(
        "raid5-dirty-m0.90",
        "raid5",
        4,
        "make 5 4 0.90; stay_dirty; stamp; agent stamp $A 2 0 64; report",
        "Dirty, with a 0.90 superblock.",
    ),
    Story(
        "raid5-dirty-m1.0",
        "raid5",
        4,
        "make 5 4 1.0; stay_dirty; stamp; agent stamp $A 2 0 64; report",
        "Dirty, with a 1.0 superblock.",
    ),
    Story(
        "raid0-cut",
        "raid0",
        3,
        "create_raid0; stamp; agent stamp $A 2 0 64; report",
        "RAID-0 has no dirty state.",
    ),
    Story(
        "raid5-dirty-degraded",
        "raid5",
        4,
        "make 5 4 1.2; stay_dirty; stamp; fail 2; agent stamp $A 2 0 64; report",
        "Dirty, and member 1 is stale.",
    ),
    Story(
        "raid6-dirty-degraded",
        "raid6",
        5,
        "make 6 5 1.2; stay_dirty; stamp; fail 2; agent stamp $A 2 0 64; report",
        "Dirty, and member 1 is stale.",
    ),
    Story(
        "raid1-bitmap-dirty",
        "raid1",
        2,
        "create 1 2 1.2 --bitmap=internal --bitmap-chunk=64K $M1 $M2; stamp; sleep 1; \
         stay_dirty; agent stamp $A 2 512 64; report",
        "Dirty, with bits set in the bitmap.",
    ),
    Story(
        "raid5-ppl-dirty",
        "raid5",
        4,
        "create 5 4 1.2 --consistency-policy=ppl $M1 $M2 $M3 $M4; stay_dirty; stamp; \
         agent stamp $A 2 0 64; report",
        "Dirty, with a partial parity log.",
    ),
    Story(
        "raid5-reshaping",
        "raid5",
        5,
        "make 5 4 1.2; stamp; grow_part_way 5",
        "In the middle of a reshape from 4 to 5 members; member 4 is the new one.",
    ),
    Story(
        "raid5-reshaping-stuck",
        "raid5",
        5,
        "make 5 4 1.2; stamp; frozen; mdadm $A --add $M5; set_md raid_disks 5; reshape_to 0",
        "A reshape from 4 to 5 members that has not moved anything; member 4 is the new one.",
    ),
    Story(
        "raid5-reshaping-end",
        "raid5",
        5,
        "make 5 4 1.2; stamp; frozen; mdadm $A --add $M5; set_md raid_disks 5; reshape_to 2112",
        "A reshape from 4 to 5 members that is beyond the end of what the array has had; member 4 is the new one.",
    ),
    Story(
        "raid5-reshaping-degraded",
        "raid5",
        5,
        "make 5 4 1.2; stamp; frozen; mdadm $A --add $M5; set_md raid_disks 5; reshape_to 512; \
         mdadm $A --fail $M2; sleep 1; at_position",
        "A reshape from 4 to 5 members, in the middle of which member 1 failed; member 4 is the new one.",
    ),
    Story(
        "raid5-reshaping-chunk-m0.90",
        "raid5",
        4,
        "make 5 4 0.90; stamp; frozen; set_md chunk_size 65536; reshape_to 2048",
        "A chunk that becomes 64 KiB in place.",
    ),
    Story(
        "raid5-reshaping-moved",
        "raid5",
        4,
        "make 5 4 1.2; stamp; frozen; set_md chunk_size 65536; move_data 1920 $ALL; reshape_to 1024",
        "A chunk that becomes 64 KiB while data move by 128 sectors.",
    ),
    Story(
        "raid6-reshaping-from-raid5",
        "raid6",
        5,
        "make 5 4 1.2; stamp; frozen; set_md level raid6; mdadm $A --add $M5; set_md layout 2; \
         move_data 1920 $ALL; reshape_to 1024",
        "A RAID-5 of 4 that becomes a RAID-6 of 5; member 4 is being filled.",
    ),
    Story(
        "raid10-reshaping",
        "raid10",
        5,
        "make 10 4 1.2; stamp; frozen; mdadm $A --add $M5; set_md raid_disks 5; \
         move_data 1920 $ALL; reshape_to 1024",
        "A RAID-10 that grows from 4 to 5 members; member 4 is the new one.",
    ),
    Story(
        "raid5-reshaping-shrunk",
        "raid5",
        5,
        "make 5 5 1.2; stamp; set_md array_size 3264; frozen; set_md raid_disks 4; reshape_to 1024",
        "A reshape from 5 to 4 members, from the end on; member 4 is the one that is given up.",
    ),
    Story(
        "raid0-reshaping",
        "raid0",
        4,
        "create_raid0_of_3; stamp; set_md level raid4; frozen; mdadm $A --add $M4; \
         set_md raid_disks 5; reshape_to 1024",
        "A RAID-0 of 3 that grows to 4 as a RAID-4 without its parity; member 3 is the new one.",
    ),
];

/// Shell functions of the stories.
const WORDS: &str = r#"
create() { # create LEVEL SLOTS METADATA WORDS...
    level=$1 slots=$2 metadata=$3
    shift 3
    [ "$level" = 1 ] || set -- --chunk=32 "$@"
    mdadm --create "$A" --run --metadata="$metadata" --level="$level" --raid-devices="$slots" \
        --homehost=oracle --assume-clean "$@"
    facts $ALL
}
make() { # make LEVEL SLOTS METADATA: of the first members
    create "$1" "$2" "$3" $(echo $ALL | cut -d' ' -f1-"$2")
}
create_raid0() {
    mdadm --create "$A" --run --level=0 --raid-devices=3 --chunk=32 --homehost=oracle $ALL
    facts $ALL
}
create_raid0_of_3() {
    mdadm --create "$A" --run --level=0 --raid-devices=3 --chunk=32 --homehost=oracle $M1 $M2 $M3
    facts $ALL
}
create_journal() {
    mdadm --create "$A" --run --level=5 --raid-devices=4 --chunk=32 --homehost=oracle \
        --write-journal="$M5" $M1 $M2 $M3 $M4
    idle
    facts $ALL
}
stamp() { agent stamp "$A" 1; }
bad_blocks() { # bad_blocks MEMBER 'SECTOR LENGTH'...
    eval "member=\$M$1"
    shift
    for range in "$@"; do
        echo "$range" >"/sys/block/$D/md/dev-${member##*/}/bad_blocks"
    done
}
set_md() { echo "$2" >"/sys/block/$D/md/$1"; } # set_md ATTRIBUTE VALUE
alone() { set_md sync_force_parallel 1; } # other arrays have the same disk
frozen() { set_md sync_action frozen; }
slowly() {
    set_md sync_speed_min 10
    set_md sync_speed_max 100
}
move_data() { # move_data SECTOR MEMBER...: their data are to begin there
    first=$1
    shift
    for member in "$@"; do
        echo "$first" >"/sys/block/$D/md/dev-${member##*/}/new_offset"
    done
    value data_lowest "$first"
}
position() { head -n 1 "/sys/block/$D/md/reshape_position"; }
at_position() {
    sync
    value reshape_position "$(head -n 1 "/sys/block/$D/md/reshape_position")"
    value array_state "$(head -n 1 "/sys/block/$D/md/array_state")"
    value sectors "$(cat "/sys/block/$D/size")"
}
reshape_to() { # reshape_to SECTOR: of each member
    alone
    set_md sync_max "$1"
    set_md sync_action reshape
    begun=$(position)
    for turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        sleep 0.5
        [ "$(position)" = "$begun" ] || break
    done
    before=none
    while [ "$(position)" != "$before" ]; do
        before=$(position)
        sleep 1
    done
    value sync_completed "$(head -n 1 "/sys/block/$D/md/sync_completed")"
    value sync_action "$(head -n 1 "/sys/block/$D/md/sync_action")"
    at_position
}
grow_part_way() {
    slowly
    mdadm "$A" --add "$M5"
    mdadm --grow "$A" --raid-devices="$1" --backup-file="/tmp/backup-$D"
    sleep 2
    sync
    value reshape_position "$(head -n 1 "/sys/block/$D/md/reshape_position")"
    value array_state "$(head -n 1 "/sys/block/$D/md/array_state")"
}
stay_dirty() { echo 1000 >"/sys/block/$D/md/safe_mode_delay"; }
report() {
    value content_sha256 "$(sha256sum "$A" | cut -d' ' -f1)"
    value sectors "$(cat "/sys/block/$D/size")"
    state
}
stop() {
    report
    mdadm --stop "$A"
}
"#;

/// All stories as fixtures.
pub(crate) fn states() -> Vec<Golden> {
    let stopped = STORIES.iter().map(|story| golden(story, Ending::PowerOff));
    stopped.chain(CUTS.iter().map(|story| golden(story, Ending::Cut))).collect()
}

fn golden(Story(name, level, members, words, about): &Story, ending: Ending) -> Golden {
    let all: Vec<String> = (1..=*members).map(|number| format!("$M{number}")).collect();
    let script = format!("{WORDS}\nALL=\"{}\"\n{}\n", all.join(" "), words.replace("; ", "\n"));
    Golden {
        case: Case {
            name: format!("state-{name}"),
            members: vec![Member::zeros(SECTORS); *members],
            script,
        },
        about: about.to_string(),
        ending,
        level,
    }
}
