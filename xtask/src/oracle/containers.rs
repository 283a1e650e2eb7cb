//! Containers with foreign metadata, made by the real mdadm: Intel's (IMSM) and DDF. Their volumes
//! have every level that braid reads in containers, healthy and in states for rescue to judge.
//!
//! This file stands next to `states`; fixtures go to `oracle/containers`. Containers differ from
//! md's own arrays in two ways. mdadm wants whole disks, so each member is a loop device over its
//! region. And one disk is in several volumes, so a member's data area begins at its first sector
//! and holds all volumes. Volume N is stamped with generation N, so that a sector's stamp
//! identifies its volume.

use super::drive::Member;
use super::golden::Golden;
use super::guest::{Case, Ending};

/// Sectors of a disk with Intel's metadata: room for the volumes' data and the reserved area.
const IMSM_SECTORS: u64 = 49_152;
/// Sectors of a disk with DDF, which reserves 32 MiB at the end of each disk.
const DDF_SECTORS: u64 = 81_920;
/// Size of the data area, which begins at the first sector; both formats keep metadata after it.
const DATA_KIB: u64 = 7168;

/// A story: name, metadata, members, shell, and its purpose.
struct Story(&'static str, &'static str, usize, &'static str, &'static str);

const STORIES: &[Story] = &[
    Story(
        "imsm-raid1-raid0",
        "imsm",
        2,
        "volume 1 1 2 2048; volume 2 0 2 2048",
        "Two volumes on two disks, as a PC has them: a mirror for the system, and RAID-0.",
    ),
    Story("imsm-raid0-3", "imsm", 3, "volume 1 0 3 2048", "RAID-0 of three."),
    Story("imsm-raid5-3", "imsm", 3, "volume 1 5 3 2048", "RAID-5 of three."),
    Story(
        "imsm-raid10-raid5",
        "imsm",
        4,
        "volume 1 10 4 2048; volume 2 5 4 2048",
        "Two volumes on four disks.",
    ),
    Story(
        "imsm-spare",
        "imsm",
        3,
        "volume 1 1 2 2048",
        "A mirror of two; the third disk is a spare.",
    ),
    Story(
        "imsm-raid5-stale",
        "imsm",
        4,
        "volume 1 5 4 2048; out 2; agent stamp /dev/md1 2 0 512; again 1",
        "Disk 1 was taken out, then the volume was written: it is older.",
    ),
    Story(
        "imsm-raid5-rebuilding",
        "imsm",
        4,
        "volume 1 5 3 2048; halt 1 0; fault 2; sleep 2; again 1",
        "Disk 1 failed, and the spare is being rebuilt in its place.",
    ),
    Story(
        "imsm-raid5-initialising",
        "imsm",
        3,
        "initialised 1 5 3 2048",
        "Parity is only being made.",
    ),
    Story("ddf-raid0-2", "ddf", 2, "volume 1 0 2 2048", "RAID-0 of two."),
    Story("ddf-raid1-2", "ddf", 2, "volume 1 1 2 2048", "A mirror of two."),
    Story(
        "ddf-raid5-raid1",
        "ddf",
        3,
        "volume 1 5 3 2048; volume 2 1 2 2048",
        "RAID-5 of three, and a mirror on two of them.",
    ),
    Story("ddf-raid5-la", "ddf", 4, "volume 1 5 4 2048 --layout=la", "RAID-5, left-asymmetric."),
    Story("ddf-raid5-ra", "ddf", 4, "volume 1 5 4 2048 --layout=ra", "RAID-5, right-asymmetric."),
    Story("ddf-raid6-5", "ddf", 5, "volume 1 6 5 2048", "RAID-6 of five, as mdadm has it."),
    Story(
        "ddf-raid6-zero",
        "ddf",
        5,
        "volume 1 6 5 2048 --layout=ddf-zero-restart",
        "RAID-6, parity 0 rotating.",
    ),
    Story(
        "ddf-raid10-4",
        "ddf",
        4,
        "volume 1 10 4 2048",
        "Mirrors of two, striped: a secondary level.",
    ),
    Story("ddf-raid10-6", "ddf", 6, "volume 1 10 6 2048", "Three mirrors of two, striped."),
    Story(
        "ddf-raid5-stale",
        "ddf",
        4,
        "volume 1 5 4 2048; out 2; agent stamp /dev/md1 2 0 512; again 1",
        "Disk 1 was taken out, then the volume was written: it is older.",
    ),
];

/// Stories that end with a reset of the machine.
const CUTS: &[Story] = &[
    Story(
        "imsm-raid5-dirty",
        "imsm",
        3,
        "volume 1 5 3 2048; dirty 1",
        "The machine was reset while the volume was being written.",
    ),
    Story(
        "ddf-raid5-dirty",
        "ddf",
        3,
        "volume 1 5 3 2048; dirty 1",
        "The machine was reset while the volume was being written.",
    ),
];

/// Shell functions of the stories of containers.
const WORDS: &str = r#"
export IMSM_NO_PLATFORM=1 IMSM_DEVNAME_AS_SERIAL=1 MDADM_NO_SYSTEMCTL=1
C=/dev/md100
VOLUMES=
disk() { # disk NUMBER: the loop device of a member
    echo "/dev/loop$(($1 - 1))"
}
volume() { # volume NUMBER LEVEL SLOTS KIB WORDS...: made clean, and stamped
    initialised "$@" --assume-clean
}
initialised() { # the same, with its redundancy only being made
    number=$1 level=$2 slots=$3 kib=$4
    shift 4
    [ "$level" = 1 ] || set -- --chunk=64 "$@"
    echo 10 >/proc/sys/dev/raid/speed_limit_min
    echo 10 >/proc/sys/dev/raid/speed_limit_max
    disks=
    # Where nobody is left over the container chooses, else those that come first.
    for each in $(seq 1 "$slots"); do disks="$disks $(disk "$each")"; done
    [ "$slots" = "$COUNT" ] && disks=$C
    mdadm --create "/dev/md$number" --run --level="$level" --raid-devices="$slots" --size="$kib" \
        --name="volume$number" "$@" $disks
    writable "$number"
    agent stamp "/dev/md$number" "$number"
    again "$number" "$level"
}
writable() { # until mdmon lets it be written
    until read -r state <"/sys/block/md$1/md/array_state" && [ "$state" != readonly ]; do
        sleep 0.1
    done
}
again() { # again NUMBER LEVEL: what it holds now
    [ -z "$2" ] || eval "level$1=$2"
    eval "level=\$level$1"
    blockdev --flushbufs "/dev/md$1"
    set -- "$1" "$level" $(sha256sum "/dev/md$1")
    read -r sectors <"/sys/block/md$1/size"
    read -r layout <"/sys/block/md$1/md/layout"
    value "volume.$1" "volume$1 $level $layout $sectors $3"
}
fault() { mdadm /dev/md1 --fail "$(disk "$1")"; }
out() { # out NUMBER: that disk is gone from the machine
    fault "$1"
    sleep 2
    until mdadm "$C" --remove "$(disk "$1")"; do sleep 0.1; done
}
halt() { echo "$2" >"/sys/block/md$1/md/sync_max"; }
dirty() {
    echo 1000 >"/sys/block/md$1/md/safe_mode_delay"
    agent stamp "/dev/md$1" 1 0 64
    again "$1"
    sync
    sleep 1
    sync
}
"#;

/// The shell that begins each story.
fn start(metadata: &str, members: usize) -> String {
    // The first lines remove leftovers of the previous case.
    let mut script = format!(
        "for old in $(seq 0 7); do losetup -d /dev/loop$old 2>/dev/null || true; done\nCOUNT={members}\nALL=\n"
    );
    for number in 1..=members {
        script += &format!(
            "losetup /dev/loop{} $M{number}\nALL=\"$ALL $(disk {number})\"\nvalue member.{} \"- 0 {DATA_KIB}\"\n",
            number - 1,
            number - 1
        );
    }
    script
        + &format!("mdadm --create $C --run --metadata={metadata} --raid-devices={members} $ALL\n")
}

/// The shell that ends a story with a clean stop.
const STOP: &str = r"
for number in 2 1; do
    [ -e /sys/block/md$number ] && mdadm --wait-clean /dev/md$number && mdadm --stop /dev/md$number
done
until mdadm --stop $C; do sleep 0.1; done
sync
for loop in $ALL; do losetup -d $loop; done
";

/// Every story as a fixture.
pub(crate) fn containers() -> Vec<Golden> {
    let stopped = STORIES.iter().map(|story| golden(story, Ending::PowerOff));
    stopped.chain(CUTS.iter().map(|story| golden(story, Ending::Cut))).collect()
}

fn golden(Story(name, metadata, members, words, about): &Story, ending: Ending) -> Golden {
    let sectors = if *metadata == "imsm" { IMSM_SECTORS } else { DDF_SECTORS };
    let end = if ending == Ending::Cut { "" } else { STOP };
    let (start, words) = (start(metadata, *members), words.replace("; ", "\n"));
    let script = format!("{WORDS}\n{start}\n{words}\n{end}\n");
    Golden {
        case: Case {
            name: format!("container-{name}"),
            members: vec![Member::zeros(sectors); *members],
            script,
        },
        about: about.to_string(),
        ending,
        level: metadata,
    }
}
