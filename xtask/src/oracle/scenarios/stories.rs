//! The scenarios: md's array, a mishap, and a request to braid and mdadm for its files.
//!
//! Each scenario is a short story in shell, with the functions of `words.sh`. braid gets the
//! arguments that docs/rescue.md gives for the case, and no other knowledge. mdadm gets the advice
//! of its manual and the usual web pages: first to assemble by force. Second to create the array
//! again with the defaults, in the order of disks that proves right.

use super::super::guest::Ending;

/// Sectors of a disk: 64 MiB.
const DISK: u64 = 131_072;
/// Sectors of a container's disk: 96 MiB, since DDF reserves 32 MiB.
const OF_CONTAINER: u64 = 196_608;
/// Sectors of a disk with a data offset of 129 MiB, as mdadm uses on large disks: 224 MiB.
const DEEP: u64 = 458_752;

/// The request to braid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RescueRequest {
    /// Arguments of `braid rescue`. `{N}` stands for disk N's image, `{file}` for the image of the
    /// disk with a file.
    pub(crate) words: &'static [&'static str],
    /// The export with the files; `None` if the array itself has them.
    pub(crate) export: Option<&'static str>,
}

/// One array and its mishap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Story {
    /// The scenario's name, for `--only` and in failures.
    pub(crate) name: &'static str,
    /// The table's first column.
    pub(crate) about: &'static str,
    /// Number of disks, and their sectors.
    pub(crate) disks: (usize, u64),
    pub(crate) ending: Ending,
    /// Shell commands that lead from empty disks to the mishap.
    pub(crate) made: &'static str,
    /// Numbers of the disks that are present after the mishap, in the order of the command line.
    pub(crate) given: &'static [usize],
    /// The disk that is no member and begins with a file. mdadm gets it last.
    pub(crate) file: Option<usize>,
    /// Unreadable stretches of disks, in order: disk, first sector, sectors.
    pub(crate) unreadable: &'static [(usize, u64, u64)],
    pub(crate) request: RescueRequest,
    /// Shell commands of mdadm's first try: `mdadm --assemble --force`, and others that it needs.
    pub(crate) force: &'static str,
    /// Shell commands of mdadm's second try: the next advice of the usual pages.
    pub(crate) wiki: &'static str,
    /// The second try's advice, as the table shows it.
    pub(crate) wiki_about: &'static str,
    /// Whether the scenario is small and kept as a text fixture, for the daily tests.
    pub(crate) is_fixture: bool,
}

const PLAIN: RescueRequest = RescueRequest { words: &[], export: None };
const SOLVE: RescueRequest = RescueRequest { words: &["--solve"], export: None };

const REVERTED: &str =
    "try mdadm --assemble --force --run --update=revert-reshape --invalid-backup --backup-file=/tmp/new-$D $A $ALL
rest
count $A";

/// The common parts of most scenarios: a RAID-5 of four that stops in order; all disks are present.
const USUAL: Story = Story {
    name: "",
    about: "",
    disks: (4, DISK),
    ending: Ending::PowerOff,
    made: "",
    given: &[1, 2, 3, 4],
    file: None,
    unreadable: &[],
    request: PLAIN,
    force: "force 1 2 3 4",
    wiki: "again 1234 5",
    wiki_about: "created again",
    is_fixture: false,
};

/// A RAID-5 of four disks that grows to five; a power cut interrupts the growth.
const GROWING: Story = Story {
    disks: (5, DISK),
    ending: Ending::Cut,
    given: &[1, 2, 3, 4, 5],
    force: "force 1 2 3 4 5",
    wiki: REVERTED,
    wiki_about: "`--update=revert-reshape`",
    ..USUAL
};

/// All scenarios, in the table's order.
pub(crate) const STORIES: &[Story] = &[
    Story {
        name: "dropped",
        is_fixture: true,
        about: "Two members of a RAID-5 of four drop at once while it is written, all are (S)",
        made: "create 5 4 $ALL
filled $A
fill 2 & sleep 0.3
vanish 2 3
wait || true
umount /mnt/$D || umount -l /mnt/$D
mdadm --stop $A",
        ..USUAL
    },
    Story {
        name: "dropped-order",
        is_fixture: true,
        about: "The same one after the other, files are written between, and a third is lost: RAID-6 of five",
        disks: (5, DISK),
        made: "create 6 5 --chunk=64 $ALL
filled $A
fault 5
fill 2
told
umount /mnt/$D
fault 4
mdadm --stop $A",
        given: &[2, 3, 4, 5],
        force: "force 1 2 3 4",
        wiki: "again m1234 6 --chunk=64",
        ..USUAL
    },
    Story {
        name: "faulty",
        is_fixture: true,
        about: "A faulty member of a RAID-5 is a few events behind, files were written since",
        ending: Ending::Cut,
        made: "create 5 4 --chunk=64 $ALL
stay_dirty
filled $A
fault 4
fill 2
told",
        wiki: "again 1234 5 --chunk=64",
        ..USUAL
    },
    Story {
        name: "dirty",
        is_fixture: true,
        about: "Power cut while a RAID-5 without one of its members is written",
        ending: Ending::Cut,
        made: "create 5 4 --chunk=64 $ALL
filled $A
fault 2
mdadm $A --remove $(disk 2)
stay_dirty
(fill 2; sync) & sleep 2",
        given: &[1, 3, 4],
        force: "force 1 2 3",
        wiki: "again 1m23 5 --chunk=64",
        ..USUAL
    },
    Story {
        name: "zeroed",
        is_fixture: true,
        about: "Firmware zeroes 0x1000 to 0x4000 of each member; they are in order, chunk and offset are mdadm's own",
        made: "create 5 4 $ALL
filled $A
stop
for each in $ALL; do dd if=/dev/zero of=$each bs=4096 seek=1 count=3 conv=notrunc; done",
        request: SOLVE,
        ..USUAL
    },
    Story {
        name: "zeroed-lost",
        about: "The same, chunk 64 KiB, and one disk is lost",
        made: "create 5 4 --chunk=64 $ALL
filled $A
stop
for each in $ALL; do dd if=/dev/zero of=$each bs=4096 seek=1 count=3 conv=notrunc; done",
        given: &[4, 1, 3],
        request: SOLVE,
        force: "force 1 2 3",
        wiki: "again m123 5",
        ..USUAL
    },
    Story {
        name: "gpt",
        is_fixture: true,
        about: "A GPT is written over members that are whole disks",
        made: "create 5 4 --chunk=128 $(disks 3 1 4 2)
filled $A
stop
for each in $ALL; do echo 'label: gpt
start=2048' | sfdisk --force --wipe never --no-reread --no-tell-kernel $each; done",
        request: SOLVE,
        ..USUAL
    },
    Story {
        name: "wrong-order",
        about: "`mdadm --create --assume-clean` in the wrong order",
        made: "create 5 4 $(disks 3 1 4 2)
filled $A
stop
recreated 5 4 --assume-clean $ALL",
        request: SOLVE,
        ..USUAL
    },
    Story {
        name: "wrong-chunk",
        about: "... with the wrong chunk (512 KiB for 64)",
        made: "create 5 4 --chunk=64 $ALL
filled $A
stop
recreated 5 4 --assume-clean $ALL",
        request: SOLVE,
        ..USUAL
    },
    Story {
        name: "wrong-offset-2048",
        about: "... with data from sector 264192, it was from 2048",
        disks: (4, DEEP),
        made: "create 5 4 --data-offset=1M $ALL
filled $A
stop
recreated 5 4 --assume-clean --data-offset=129M $ALL",
        request: SOLVE,
        wiki: "again 1234 5 --data-offset=129M",
        ..USUAL
    },
    Story {
        name: "wrong-offset-262144",
        about: "... with mdadm's own offset, it was 262144",
        disks: (4, DEEP),
        made: "create 5 4 --data-offset=128M $ALL
filled $A
stop
recreated 5 4 --assume-clean $ALL",
        request: SOLVE,
        ..USUAL
    },
    Story {
        name: "wrong-offset-264192",
        about: "... with mdadm's own offset and chunk and the wrong order; it was 264192 and 128 KiB",
        disks: (4, DEEP),
        made: "create 5 4 --data-offset=129M --chunk=128 $(disks 2 4 1 3)
filled $A
stop
recreated 5 4 --assume-clean $ALL",
        request: SOLVE,
        ..USUAL
    },
    Story {
        name: "resynced",
        is_fixture: true,
        about: "`mdadm --create` of a RAID-5 in the wrong order with another chunk, and resynced",
        made: "create 5 4 --chunk=64 $(disks 3 1 4 2)
filled $A
stop
recreated 5 4 $ALL",
        request: SOLVE,
        ..USUAL
    },
    Story {
        name: "resynced-6",
        about: "The same of a RAID-6, whose resync writes over two chunks of each row",
        made: "create 6 4 --chunk=64 $(disks 3 1 4 2)
filled $A
stop
recreated 6 4 --chunk=64 $ALL",
        request: SOLVE,
        wiki: "again 1234 6 --chunk=64",
        ..USUAL
    },
    Story {
        name: "unreadable",
        about: "Two disks of a RAID-5 have sectors that cannot be read, each in other places (ddrescue's maps)",
        made: "create 5 4 --chunk=64 $ALL
filled $A
stop",
        unreadable: &[
            (2, 24_000, 6000),
            (2, 90_000, 8),
            (2, 120_000, 2000),
            (3, 10_000, 6000),
            (3, 36_000, 4000),
            (3, 60_000, 4096),
            (3, 110_000, 300),
        ],
        wiki: "for each in $ALL; do blockdev --flushbufs $each; done
copied 2 3
force 1 2 3 4",
        wiki_about: "copies of both, then force",
        ..USUAL
    },
    Story {
        name: "journal",
        is_fixture: true,
        about: "The device of the write journal of a RAID-5 is gone",
        disks: (5, DISK),
        made: "create 5 4 --chunk=64 --write-journal=$(disk 5) $(disks 1 2 3 4)
sleep 1; idle
filled $A
stop",
        wiki: "again 1234 5 --chunk=64",
        ..USUAL
    },
    Story {
        name: "lying",
        about: "A member of a RAID-6 has other bytes than it was given, in a third of it",
        disks: (5, DISK),
        made: "create 6 5 --chunk=64 $ALL
filled $A
stop
agent fill-part $(disk 3) 99 8192 $(($(blockdev --getsz $(disk 3)) / 3))",
        given: &[1, 2, 3, 4, 5],
        request: RescueRequest { words: &["--without", "{3}"], export: None },
        force: "force 1 2 3 4 5",
        wiki: "try mdadm --assemble $A $(disks 1 2 3 4 5)
echo repair >/sys/block/$D/md/sync_action
rest
count $A",
        wiki_about: "`repair`",
        ..USUAL
    },
    Story {
        name: "grow-start",
        about: "A RAID-5 that grows from four to five hangs at 0 %",
        made: "growing 0",
        ..GROWING
    },
    Story {
        name: "grow-middle",
        about: "... stopped in the middle",
        made: "growing 40",
        ..GROWING
    },
    Story { name: "grow-end", about: "... stopped near the end", made: "growing 97", ..GROWING },
    Story {
        name: "grow-lost",
        about: "... in the middle of which a disk fails, and is lost",
        made: "growing 40
fault 2
sleep 1; sync",
        given: &[1, 3, 4, 5],
        force: "force 1 2 3 4",
        wiki: "try mdadm --assemble --force --run --update=revert-reshape $A $ALL
rest
count $A",
        ..GROWING
    },
    Story {
        name: "backup-lost",
        about: "Another chunk in place (metadata 0.90), stopped in the middle, and the backup file is lost",
        ending: Ending::Cut,
        made: "create 5 4 --metadata=0.90 --chunk=64 --size=64512 $ALL
filled $A
grow_until_killed 1 --chunk=128 --backup-file=/tmp/backup-$D",
        wiki:
            "try mdadm --assemble --force --run --invalid-backup --backup-file=/tmp/new-$D $A $ALL
rest
count $A",
        wiki_about: "`--invalid-backup`",
        ..USUAL
    },
    Story {
        name: "backup-kept",
        about: "... and the backup file is there, as mdadm left it",
        disks: (5, DISK),
        ending: Ending::Cut,
        made: "create 5 4 --metadata=0.90 --chunk=64 --size=64512 $(disks 1 2 3 4)
filled $A
grow_until_killed 1 --chunk=128 --backup-file=/tmp/backup-$D
dd if=/tmp/backup-$D of=$(disk 5) bs=64k conv=fsync",
        file: Some(5),
        request: RescueRequest { words: &["--backup-file", "{file}"], export: None },
        wiki: "dd if=$(disk 5) of=/tmp/kept-$D bs=64k
try mdadm --assemble --force --run --backup-file=/tmp/kept-$D $A $(disks 1 2 3 4)
rest
count $A",
        wiki_about: "`--backup-file`",
        ..USUAL
    },
    Story {
        name: "imsm",
        about: "Firmware RAID of Intel (IMSM): RAID-5 of three, a disk is lost",
        disks: (3, OF_CONTAINER),
        made: "container imsm
volume 5
filled $A
stop_container",
        given: &[1, 3],
        request: RescueRequest {
            words: &["--serial", "{1}=/dev/loop0", "--serial", "{3}=/dev/loop2"],
            export: None,
        },
        force: "force_container 0 2",
        wiki: "again 1m2 5 --chunk=64",
        ..USUAL
    },
    Story {
        name: "ddf",
        about: "DDF: RAID-5 of three, a disk is lost",
        disks: (3, OF_CONTAINER),
        made: "container ddf
volume 5
filled $A
stop_container",
        given: &[1, 3],
        force: "force_container 0 2",
        wiki: "again 1m2 5 --chunk=64",
        ..USUAL
    },
    Story {
        name: "synology",
        about: "Disks of a NAS as Synology has them (0.90 system, RAID-5 with LVM), one is lost",
        made: "partition dos
system 0.90
create 5 4 --chunk=64 $(data 1 2 3 4)
volumes vg1000
lvm lvcreate -y -Wn -Zn -n lv -l 100%FREE vg1000
filled /dev/vg1000/lv
umount /mnt/$D
volumes_off vg1000
mdadm --stop $A",
        given: &[4, 1, 3],
        request: RescueRequest { words: &[], export: Some("vg1000-lv") },
        force: "force_nas vg1000 lv 1 2 3",
        wiki: "scan vg1000 lv",
        wiki_about: "`mdadm -Asf && vgchange -ay`",
        ..USUAL
    },
    Story {
        name: "qnap",
        about: "... as QNAP has them (metadata 1.0, a thin volume in a pool), one is lost",
        made: "partition gpt
system 1.0
create 5 4 --metadata=1.0 --chunk=64 $(data 1 2 3 4)
volumes vg1
lvm lvcreate -y --type thin-pool -L 110M -n tp1 vg1
lvm lvcreate -y -V 150M -n lv1 --thinpool tp1 vg1
filled /dev/vg1/lv1
umount /mnt/$D
volumes_off vg1
mdadm --stop $A",
        given: &[4, 1, 3],
        request: RescueRequest { words: &[], export: Some("vg1-lv1") },
        force: "force_nas vg1 lv1 1 2 3",
        wiki: "scan vg1 lv1",
        wiki_about: "`mdadm -Asf && vgchange -ay`",
        ..USUAL
    },
    Story {
        name: "readynas",
        about: "... as ReadyNAS has them (a file system on the RAID-5 itself), one is lost",
        made: "partition gpt
system 1.2
create 5 4 --chunk=64 $(data 1 2 3 4)
filled $A
stop",
        given: &[4, 1, 3],
        request: PLAIN,
        force: "force_nas none none 1 2 3",
        wiki: "scan none none",
        wiki_about: "`mdadm -Asf`",
        ..USUAL
    },
];
