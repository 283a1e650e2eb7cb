//! The meaning of each code: title, exit status, and the text of `braid help CODE`.
//!
//! An explanation gives the array's state, braid's reaction (mostly: it wrote nothing) and a
//! remedy. The explanation is about the kind of error; the error itself has the names.

use std::str::FromStr;

use super::code::Code;
use super::exit::Exit;

/// The text for one error code.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The error code.
    pub code: Code,
    /// The error's title: a few words, in lower case, without a full stop.
    pub title: &'static str,
    /// The status with which a command exits after this error.
    pub exit: Exit,
    /// The text of `braid help CODE`: one paragraph.
    pub explanation: &'static str,
}

impl Code {
    /// The error code's entry in the catalogue.
    pub const fn entry(self) -> &'static Entry {
        let mut at = 0;
        while at < CATALOGUE.len() {
            if CATALOGUE[at].code as u16 == self as u16 {
                return &CATALOGUE[at];
            }
            at += 1;
        }
        panic!("a code without an entry in the catalogue")
    }

    /// The status with which a command exits after an error of this code.
    pub const fn exit(self) -> Exit {
        self.entry().exit
    }
}

/// Error for a text that is no error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such code; codes look like B031")]
pub struct UnknownCode;

impl FromStr for Code {
    type Err = UnknownCode;

    /// Parses a code such as `B031`; case does not matter.
    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        let text = text.to_ascii_uppercase();
        let found = CATALOGUE.iter().map(|entry| entry.code).find(|code| code.to_string() == text);
        found.ok_or(UnknownCode)
    }
}

/// All error codes in the order of their numbers.
pub const CATALOGUE: [Entry; 107] = [
    // The command line.
    Entry {
        code: Code::Usage,
        title: "the command line was not understood",
        exit: Exit::Usage,
        explanation: "This command does not know a flag, an argument or a combination of them. \
                      braid read and wrote nothing. `braid COMMAND --help` lists the options and \
                      arguments of a command.",
    },
    Entry {
        code: Code::UnknownLevel,
        title: "unknown RAID level",
        exit: Exit::Usage,
        explanation: "The levels are linear, 0, 1, 4, 5, 6 and 10. md has no level with three \
                      parities, so braid has none either.",
    },
    Entry {
        code: Code::UnknownLayout,
        title: "unknown layout for this level",
        exit: Exit::Usage,
        explanation: "A layout says how data and parity rotate over the members, and each level \
                      has its own. RAID-5 and RAID-6 default to left-symmetric, RAID-10 to n2. \
                      Use another layout only to match an existing array.",
    },
    Entry {
        code: Code::SizeNeedsUnit,
        title: "a size needs a unit",
        exit: Exit::Usage,
        explanation: "A bare number means sectors to one tool, kibibytes to another and bytes to a third. \
                      Write the unit: 64K, 1.5GiB, 4096B. Units are powers of 1024.",
    },
    Entry {
        code: Code::SizeInvalid,
        title: "not a usable size",
        exit: Exit::Usage,
        explanation: "The text is not a size, or this option does not allow the size. A chunk is \
                      a multiple of 4 KiB, and a power of two for most levels. A member must hold \
                      at least its superblock and one chunk.",
    },
    Entry {
        code: Code::ArrayNameInvalid,
        title: "not a usable array name",
        exit: Exit::Usage,
        explanation: "md stores `host:name` in 32 bytes. A name consists of letters, digits, `-`, \
                      `_` and `.`, does not begin with `-` or `.`, and must fit into the 32 bytes \
                      together with its host.",
    },
    Entry {
        code: Code::UnknownMetadata,
        title: "unknown metadata version",
        exit: Exit::Usage,
        explanation: "braid creates metadata 1.0, 1.1 and 1.2, and also reads 0.90. Use the \
                      default 1.2, unless another program must find the superblock at the end of \
                      the member (1.0) or at its very beginning (1.1).",
    },
    Entry {
        code: Code::MemberCount,
        title: "the number of members does not fit the level",
        exit: Exit::Usage,
        explanation: "RAID-0, 1 and linear need at least one member, RAID-4 and 5 two, RAID-6 \
                      four, RAID-10 as many as it has copies. `missing` counts as a member; \
                      spares do not.",
    },
    Entry {
        code: Code::UriInvalid,
        title: "not an NBD URI that can be served",
        exit: Exit::Usage,
        explanation: "Listening addresses are NBD URIs: `nbd+unix:///?socket=/run/x.sock` or \
                      `nbd://127.0.0.1:10809/`; with TLS `nbds+unix` and `nbds`.",
    },
    // Creating, and obstacles to it.
    Entry {
        code: Code::SameMemberTwice,
        title: "the same member was named twice",
        exit: Exit::Refused,
        explanation: "Two of the names lead to the same file or device, perhaps through a link. \
                      If one device held two slots of an array, its failure would lose two \
                      members. Name each device once.",
    },
    Entry {
        code: Code::HoldsData,
        title: "the members already hold data",
        exit: Exit::Refused,
        explanation: "At least one member has an md superblock, a file system, a partition table, \
                      LVM, LUKS, or unrecognised bytes at its ends (`data`). braid overwrites \
                      none of them unless you name each with `--destroy NAME`. Before it \
                      overwrites them, braid saves the first and last bytes of each member, and \
                      `braid undo` puts these bytes back.",
    },
    Entry {
        code: Code::DestroyNameMismatch,
        title: "the names given to --destroy do not match the members' contents",
        exit: Exit::Refused,
        explanation: "`--destroy NAME` must name exactly the contents of the members: all of \
                      them, nothing else, and one item by each name. The names differ, so one of \
                      the members may be the wrong device. braid wrote nothing. `braid examine` \
                      shows the contents of each member.",
    },
    // Undoing.
    Entry {
        code: Code::NothingToUndo,
        title: "there is no command to undo",
        exit: Exit::NoSuchArray,
        explanation: "Before a command overwrites metadata, it saves the old bytes as a record in \
                      the state folder. The state folder has no record, or none with this number. \
                      Perhaps another user ran the command, or it ran with another `--state-dir`, \
                      or it overwrote nothing. braid keeps the last 256 records; `braid history \
                      --saved` lists them.",
    },
    Entry {
        code: Code::UndoDamaged,
        title: "the undo record is damaged",
        exit: Exit::Failed,
        explanation: "The record fails its checksum, or has a newer format: the file was cut off \
                      or edited, or its disk is failing. Its bytes may differ from the bytes that \
                      the devices had, so braid writes none of them. Records of earlier commands \
                      may be intact.",
    },
    Entry {
        code: Code::UndoUnsafe,
        title: "the overwritten bytes cannot be put back safely",
        exit: Exit::Refused,
        explanation: "Old superblocks describe the data areas of an earlier time. braid puts them \
                      back only if every byte of the metadata is still as the command left it; \
                      then no array on these devices was started for writing since. The cause \
                      names the device that changed, and its change. braid wrote nothing.",
    },
    Entry {
        code: Code::LogicalBlockLarge,
        title: "the array's logical block is larger than a sector",
        exit: Exit::Refused,
        explanation: "Since Linux 6.19, md stores the logical block size of an array in its \
                      superblocks, and older kernels refuse such an array. braid can clear a size \
                      of 512 bytes, because every kernel assumes that size. It does not clear a \
                      larger size, because file systems on the array may depend on it. Use a \
                      kernel from 6.19 on, or braid, for this array. braid wrote nothing.",
    },
    Entry {
        code: Code::ConsistencyStays,
        title: "the array's bitmap or log cannot be changed now",
        exit: Exit::Refused,
        explanation: "A write-intent bitmap marks the stripes that may differ after a crash, and \
                      the writes that an absent member missed. While the array needs these marks, \
                      braid does not drop the bitmap and does not change its size. The same holds \
                      for parity logs, braid's own and md's: braid neither makes nor drops them \
                      in that time. md's logs are for RAID-5, braid's own for levels 4, 5 and 6. \
                      Nothing was changed. Resync or rebuild the array first, then repeat the \
                      command.",
    },
    Entry {
        code: Code::BitmapBusy,
        title: "the array's bitmap or log is being changed",
        exit: Exit::Busy,
        explanation: "A change of the bitmap completes when every member has stored it durably; \
                      clients go on meanwhile. A change of parity logs works alike, but writes of \
                      clients wait. Only one change runs at a time. The previous one is still \
                      running, because a member is slow to answer. It completes by itself, and no \
                      member can join before that. `braid get` shows its state.",
    },
    // Superblocks.
    Entry {
        code: Code::NoSuperblock,
        title: "no md superblock",
        exit: Exit::NoSuchArray,
        explanation: "md stores a superblock in one of four places, and none of them holds one. \
                      Perhaps the member belongs to something else, or is blank, or its \
                      superblock was overwritten. `braid examine` shows its contents.",
    },
    Entry {
        code: Code::SuperblockChecksum,
        title: "the superblock is damaged: its checksum does not match",
        exit: Exit::Failed,
        explanation: "The superblock has its magic number but fails its checksum, so at least one \
                      bit differs from the bits that md wrote. braid does not guess which bit: it \
                      leaves the member out and never writes to it. With enough other members the \
                      array runs without it.",
    },
    Entry {
        code: Code::SuperblockImpossible,
        title: "the superblock holds impossible values",
        exit: Exit::Failed,
        explanation: "The checksum matches, but the values cannot be true: more sectors than the \
                      member has, a chunk of zero, a slot beyond the array. The superblock is \
                      broken or forged. braid ignores all of it.",
    },
    Entry {
        code: Code::UnsupportedFeature,
        title: "the array uses a feature that is not supported yet",
        exit: Exit::Refused,
        explanation: "The superblock names a feature that this version of braid does not know, \
                      and that changes the place of data or the right to write. braid would have \
                      to guess, so it does not read on. The kernel's md can run the array. For a \
                      RAID-0 of unequal members from an old kernel, the superblock does not say \
                      which of two layouts continues behind the end of the smallest member: \
                      `braid rescue --solve` finds the layout, and `--layout` names it.",
    },
    Entry {
        code: Code::Reshaping,
        title: "the array is in the middle of a reshape",
        exit: Exit::Refused,
        explanation: "Part of the array has its old shape and part its new one. `braid serve` goes \
                      on with reshapes of levels 4, 5 and 6, but not from a place where the \
                      reshape overwrites what it reads: only a copy of that part is then whole. \
                      braid's copy is in the state folder (`--state-dir`) of the server that made \
                      it. mdadm's is in its backup file: `braid serve --backup-file` goes on from \
                      there. `braid rescue` reads both shapes, with that file or without. The \
                      kernel's md can finish the reshape, too.",
    },
    Entry {
        code: Code::JournalNeeded,
        title: "the array's write journal is needed",
        exit: Exit::Refused,
        explanation: "Some writes may exist only in the journal, because md marks the superblocks \
                      \"clean\" while it writes to the journal. The journal's device was not \
                      named, is too old, or its entries are broken or cannot be replayed. Without \
                      the journal, any part of the array may lack its latest writes, and data \
                      computed from parity may be wrong. braid wrote nothing, or wrote only data \
                      that a later replay can repeat. Name the journal's device among the \
                      members.",
    },
    Entry {
        code: Code::PplNeeded,
        title: "the array has a partial parity log that cannot be replayed",
        exit: Exit::Refused,
        explanation: "The array was not shut down cleanly, and its partial parity log should tell \
                      which parity is unfinished. Either the log has an entry that this array \
                      cannot have written; or a member is missing, and a log is unreadable or \
                      does not cover an unfinished resync. braid wrote nothing. Connect the \
                      missing member: with every member present, braid reads all data and \
                      computes none.",
    },
    Entry {
        code: Code::ReadOnlyOnly,
        title: "the array can be read but not written",
        exit: Exit::Refused,
        explanation: "The array has a record of its writes (a bitmap or a partial parity log) \
                      that this version of braid cannot update. md would trust the outdated \
                      record after braid wrote to the array. Reading is safe: `--read-only` \
                      serves the array.",
    },
    // Assembling.
    Entry {
        code: Code::BitmapFileUnfit,
        title: "the file is not this array's bitmap file",
        exit: Exit::Refused,
        explanation: "`--bitmap-file` names the file with the array's write-intent bitmap. This \
                      file holds no bitmap or the bitmap of another array, or the array has its \
                      bitmap, a PPL or a journal on its devices. braid wrote nothing. `braid \
                      examine FILE` shows the contents of the file. If the array was stopped \
                      cleanly, braid can serve it without its file, and then keeps no bitmap.",
    },
    Entry {
        code: Code::TooFewMembers,
        title: "too few members to run",
        exit: Exit::BeyondTolerance,
        explanation: "More members are missing than the level tolerates, so the members at hand \
                      lack part of the data. braid wrote nothing. The error lists each member \
                      that was left out, with the reason; perhaps only a cable is loose.",
    },
    Entry {
        code: Code::DirtyDegraded,
        title: "interrupted while writing, and a member is missing",
        exit: Exit::Refused,
        explanation: "The array stopped during a write, and the data on the missing member is \
                      needed to tell old data from new. In the stripes of that write, data \
                      computed for the missing member may be silently wrong. Connect the missing \
                      member: then no data is at risk. `--read-only` serves all other data, and \
                      returns I/O errors for the data at risk; `--accept-risk COUNT` serves the \
                      array as it is.",
    },
    Entry {
        code: Code::ForeignMember,
        title: "a member belongs to another array",
        exit: Exit::Refused,
        explanation: "The UUID in this member's superblock differs from the UUID of the array \
                      that the other members belong to. braid did not open the member for \
                      writing. Name only the members of one array.",
    },
    Entry {
        code: Code::SeveralArrays,
        title: "the members belong to several arrays",
        exit: Exit::Refused,
        explanation: "The members belong to more than one array, and the command chose none. One \
                      server serves several arrays if each has all its members. If an array lacks \
                      members, that may be a slip; `serve --all` confirms the intent. Options for \
                      one array cannot apply to several.",
    },
    Entry {
        code: Code::SlotClaimedTwice,
        title: "two members claim the same slot",
        exit: Exit::Refused,
        explanation: "Two members claim the same slot: perhaps one is a copy of the other, and \
                      both were named. braid cannot tell which one is right. Compare them, and \
                      name only one.",
    },
    Entry {
        code: Code::RanApart,
        title: "two halves of the array have run apart",
        exit: Exit::Refused,
        explanation: "Equally new members disagree about the membership of the array. Each side \
                      has run without the other, and may hold writes that the other lacks. braid \
                      cannot choose a side. Name the members of the right side alone.",
    },
    Entry {
        code: Code::MembersDisagree,
        title: "members of one array disagree about it",
        exit: Exit::Refused,
        explanation: "Two superblocks have the same array UUID but describe different arrays: \
                      another level, chunk, size or layout. A program other than md changed one \
                      of them, or the array was created again under the same UUID. braid wrote \
                      nothing.",
    },
    Entry {
        code: Code::NewestDamaged,
        title: "damaged superblocks may be newer than the sound ones",
        exit: Exit::Refused,
        explanation: "Some superblocks fail their checksum, yet their readable parts count more \
                      events than any intact one. If these counts are right, the intact members \
                      left the array earlier and lack every later write. braid trusts neither \
                      side. Connect the missing members, which may settle it; else leave out the \
                      damaged members to continue with the data of the intact ones. braid wrote \
                      nothing.",
    },
    Entry {
        code: Code::OlderThanKnown,
        title: "the array is known to have been newer",
        exit: Exit::Refused,
        explanation: "When braid serves an array, it records the array's event count \
                      (`arrays/UUID.json` in the state folder), and every member here has a lower \
                      count. Perhaps the members with the newer data are not connected: without \
                      them the later writes are lost. Or all members were restored from a backup, \
                      or a copy of the whole array was served on this machine: then \
                      `--accept-older` continues from these members and drops the record. braid \
                      wrote nothing.",
    },
    // Adding and removing members.
    Entry {
        code: Code::MemberInUse,
        title: "the member is in use",
        exit: Exit::Refused,
        explanation: "A member with a slot holds part of the data, so braid does not remove it. \
                      Let it fail first (`braid fail`); the array is then unprotected until \
                      another device is rebuilt. Nothing was changed.",
    },
    Entry {
        code: Code::MemberNeeded,
        title: "the array cannot do without the member",
        exit: Exit::BeyondTolerance,
        explanation: "Without this member data would be lost: other members are missing or not \
                      rebuilt yet, or parity may be wrong since the array was interrupted. Add a \
                      device for the missing member (`braid add`), wait for the rebuild (`braid \
                      wait NAME --for rebuild`), then let this member fail. Nothing was changed.",
    },
    // Jobs.
    Entry {
        code: Code::NoRedundancy,
        title: "the level has no redundancy",
        exit: Exit::Refused,
        explanation: "RAID-0 and linear store each byte once. A check has nothing to compare, and \
                      a rebuild has no source: a lost member takes its part of the data with it.",
    },
    Entry {
        code: Code::CheckDegraded,
        title: "a degraded array cannot be checked",
        exit: Exit::Refused,
        explanation: "A check compares the data of each member with the data of the others. While \
                      a member is missing, the others replace it, and no copy is left to compare \
                      with. Rebuild the array, then check it.",
    },
    Entry {
        code: Code::JobsPaused,
        title: "jobs are paused",
        exit: Exit::Refused,
        explanation: "`braid pause`, `braid set jobs=paused` or `braid serve --jobs paused` has \
                      paused resync, recovery and check of this array. None of them starts or \
                      continues before `braid resume`. Clients are served meanwhile; a degraded \
                      or dirty array stays so.",
    },
    Entry {
        code: Code::JobRefused,
        title: "a job could not be finished",
        exit: Exit::Refused,
        explanation: "A resync met more unreadable sectors than the level tolerates. Or a \
                      recovery or replacement met them, and the new member has no room in its \
                      bad-block log (metadata 0.90 has none). Or the file system below a member \
                      is full. Finished work remains. braid tries the job again when a member \
                      joins or leaves, when the array is served again, and on `braid rebuild`.",
    },
    Entry {
        code: Code::NoSpare,
        title: "there is nothing to rebuild onto",
        exit: Exit::Refused,
        explanation: "No spare is available to rebuild onto or to replace a member with. If a \
                      slot is empty, `braid add NAME DEVICE` adds a device and the rebuild starts \
                      by itself. If the member is still present, use `braid replace NAME MEMBER \
                      --with DEVICE`.",
    },
    Entry {
        code: Code::JobEnded,
        title: "the job ended before it was over",
        exit: Exit::Failed,
        explanation: "Another command ended the check, or a job with priority started (a member \
                      was lost), or the array was stopped. The check did not compare the rest of \
                      the array. Nothing was changed. Start the check again.",
    },
    Entry {
        code: Code::ServedReadOnly,
        title: "the array is served read-only",
        exit: Exit::Refused,
        explanation: "`serve --read-only` writes neither data nor superblocks, but jobs write \
                      both; even a check rewrites unreadable sectors. Stop the array and serve it \
                      without `--read-only`.",
    },
    // Members.
    Entry {
        code: Code::NoSuchMember,
        title: "the array has no such member",
        exit: Exit::Failed,
        explanation: "Name a member of a running array by its path or by the number of its slot. \
                      A word of digits is a number; write `./3` for a file of that name. The \
                      error lists the members of the array. Nothing was changed.",
    },
    Entry {
        code: Code::MemberMissing,
        title: "no such member",
        exit: Exit::Failed,
        explanation: "The path names neither a file nor a device. A device may have another name \
                      since the last boot; names below `/dev/disk/by-id` do not change.",
    },
    Entry {
        code: Code::MemberKind,
        title: "not a file and not a block device",
        exit: Exit::Failed,
        explanation: "Members are regular files or block devices. Folders, sockets, pipes and character \
                      devices cannot hold an array.",
    },
    Entry {
        code: Code::MemberTooSmall,
        title: "the member is too small",
        exit: Exit::Refused,
        explanation: "Every member must be at least as large as the space that the array uses on \
                      each member. braid wrote nothing. Use a larger device.",
    },
    Entry {
        code: Code::MemberTruncated,
        title: "the member is shorter than its superblock says",
        exit: Exit::Failed,
        explanation: "The superblock describes sectors beyond the end of the file or device, \
                      which was cut off or copied in part. braid cannot read the missing sectors, \
                      so it leaves the member out and never writes to it.",
    },
    Entry {
        code: Code::MemberPermission,
        title: "permission denied",
        exit: Exit::Failed,
        explanation: "This user may not open the member for reading and writing, or the device \
                      itself is read-only: a card's switch, a write blocker, a file system that \
                      is mounted read-only. braid needs no root, only the right to open the \
                      member. `braid serve --read-only` needs only the right to read.",
    },
    Entry {
        code: Code::MemberIo,
        title: "a member returned an I/O error",
        exit: Exit::Failed,
        explanation: "Reading or writing a member failed, and the array cannot repair it by \
                      itself. The kernel log tells more about devices; `smartctl -a` shows their \
                      health.",
    },
    // Held by another process.
    Entry {
        code: Code::MemberSilent,
        title: "a member does not answer",
        exit: Exit::Failed,
        explanation: "A stop waits for all requests to members, and one member has answered none \
                      for the time that `--stop-patience` allows. braid left the array as after a \
                      crash: flushed data is on the members, and the superblocks are marked \
                      dirty. If a disk, a network or a FUSE file system hangs, not even SIGKILL \
                      ends the process that waits for it, until the kernel gives up. Repair the \
                      member, or serve the array without it. `braid remove` waits for a failed \
                      member in the same way, and can be repeated.",
    },
    Entry {
        code: Code::AlreadyMember,
        title: "the device is a member already",
        exit: Exit::Refused,
        explanation: "The array already uses this device, perhaps under another name, or through \
                      a loop device or a partition. If one device held two slots, its failure \
                      would lose two members. Nothing was changed.",
    },
    Entry {
        code: Code::MemberBusy,
        title: "the kernel holds the member",
        exit: Exit::Busy,
        explanation: "The device belongs to a running kernel array, is mounted, or is in use by \
                      another kernel driver. Two writers would destroy the array, so braid does \
                      not open it. The error names the holder where the kernel tells it, and the \
                      command that releases or shows it.",
    },
    Entry {
        code: Code::MemberLocked,
        title: "another process has locked the member",
        exit: Exit::Busy,
        explanation: "Another braid, or another program that locks files with flock, has the \
                      member open. Two writers would destroy the array. Stop the other program \
                      first.",
    },
    Entry {
        code: Code::MemberUnlockable,
        title: "the member cannot be locked",
        exit: Exit::Failed,
        explanation: "braid locks each member (flock), so that no second server writes to it. The \
                      file system refused the lock, although no other process holds one. Network \
                      file systems without a lock daemon, some FUSE file systems and some \
                      security modules do so. braid wrote nothing. Serve a copy on a file system \
                      with locks, or a loop device over the file.",
    },
    // Serving.
    Entry {
        code: Code::SocketBusy,
        title: "the address is already in use",
        exit: Exit::Busy,
        explanation: "Another process already listens on this socket or port, or a file of \
                      another kind has the path of the socket. braid removes no file that it did \
                      not make. Choose another address.",
    },
    Entry {
        code: Code::SocketFolder,
        title: "the folder of the socket cannot be written",
        exit: Exit::Failed,
        explanation: "The socket's folder does not exist, or this user may not create files in \
                      it. An ordinary user can use `$XDG_RUNTIME_DIR`.",
    },
    Entry {
        code: Code::ListenNotLoopback,
        title: "refusing to listen on a network address",
        exit: Exit::Refused,
        explanation: "Plain NBD has no password and no encryption: every client that reaches the \
                      port can read and write the array. So braid serves plain NBD only on Unix \
                      sockets and loopback addresses. For other addresses use TLS (`nbds://`) \
                      with client certificates.",
    },
    Entry {
        code: Code::CommandFailed,
        title: "the command given with --run failed",
        exit: Exit::Failed,
        explanation: "The command that `--run` started exited with an error. braid still stopped \
                      the array cleanly: all data is flushed, and the superblocks are marked \
                      clean.",
    },
    Entry {
        code: Code::System,
        title: "the operating system refused something",
        exit: Exit::Failed,
        explanation: "The operating system gave braid no thread, process, temporary folder or \
                      signal handler; the cause shows its error. Usual reasons are limits of the \
                      user (`ulimit -a`) and a full or absent `$TMPDIR`. braid wrote nothing to \
                      any member.",
    },
    Entry {
        code: Code::NotServed,
        title: "no such array is being served",
        exit: Exit::NoSuchArray,
        explanation: "Verbs such as `status`, `set` and `stop` talk to the server of an array \
                      through its control socket. braid looks for the array's name or UUID among \
                      the sockets in the runtime folder (`/run/braid` for root, \
                      `$XDG_RUNTIME_DIR/braid` for others, or `$BRAID_RUNTIME_DIR`), or uses the \
                      path given to `serve --control`. No socket matches. `braid list` shows the \
                      arrays that are served.",
    },
    Entry {
        code: Code::Shortage,
        title: "the system is short of memory, descriptors or threads",
        exit: Exit::Failed,
        explanation: "This process, or the whole system, ran out of memory, descriptors or \
                      threads. The shortage says nothing about the members: braid judged none and \
                      wrote to none. Usual reasons are limits of the user (`ulimit -a`) and of \
                      the control group. Free resources, then repeat the command.",
    },
    Entry {
        code: Code::ServerGone,
        title: "the server of the array is gone",
        exit: Exit::NoSuchArray,
        explanation: "The control socket exists, but no process listens on it: the server was \
                      killed, or the machine went down. A server that stops in order removes its \
                      socket. Serve the members again, which replaces the socket; `braid examine` \
                      shows their state.",
    },
    Entry {
        code: Code::ServerSilent,
        title: "the server of the array does not answer",
        exit: Exit::Failed,
        explanation: "A process listens on the control socket, but did not answer in time, or its \
                      answer is not that of a braid server. It may be stopped (SIGSTOP), short of \
                      time or memory, or another program, such as the array's own NBD server at \
                      its socket. It may still serve its clients.",
    },
    Entry {
        code: Code::ControlDenied,
        title: "the control socket is another user's",
        exit: Exit::Failed,
        explanation: "Only root and the user who serves an array may query, set or stop it. The \
                      socket has mode 0600, and the server asks the kernel for the user at the \
                      other end.",
    },
    // Running.
    Entry {
        code: Code::StateFolder,
        title: "the state folder cannot be written",
        exit: Exit::Failed,
        explanation: "Before braid changes metadata, it saves the old bytes in the state folder, \
                      so that `braid undo` can put them back. The folder is not writable, so \
                      braid changed nothing. It is `$XDG_STATE_HOME/braid`, or `/var/lib/braid` \
                      for root; `--state-dir` names another one.",
    },
    Entry {
        code: Code::ArrayFailed,
        title: "the array has lost more members than it tolerates",
        exit: Exit::BeyondTolerance,
        explanation: "While the array ran, more members failed than the level tolerates. Requests \
                      for the lost data return I/O errors; data flushed before is on the \
                      remaining members. braid writes nothing further.",
    },
    Entry {
        code: Code::VerifyFailed,
        title: "the data read back differs from the data written",
        exit: Exit::Failed,
        explanation: "A comparison that must succeed failed. The cause is a bug in braid or an \
                      error of the hardware. Leave the members unchanged and report it.",
    },
    Entry {
        code: Code::SeveralServed,
        title: "several arrays that are being served have this name",
        exit: Exit::Refused,
        explanation: "Names are not unique; UUIDs are, unless copies of one array are served. \
                      Nothing was changed. Name the array by its UUID, or by the path of its \
                      control socket: `braid list` shows both.",
    },
    Entry {
        code: Code::NoHistory,
        title: "there is no history of such an array",
        exit: Exit::NoSuchArray,
        explanation: "`braid serve` records the events of an array in the state folder, \
                      `$XDG_STATE_HOME/braid` or `/var/lib/braid` for root, and this command \
                      reads them there. It found none: the array was not served on this machine, \
                      or by another user, or with another `--state-dir`, or its history was \
                      deleted.",
    },
    Entry {
        code: Code::HookInvalid,
        title: "events cannot be sent to this address",
        exit: Exit::Usage,
        explanation: "A webhook is an `http://` or `https://` address without a user or password \
                      in it. Mail goes to one address without a display name: `user@host`, or a \
                      user of this machine. The cause says which rule this address breaks. braid \
                      started nothing.",
    },
    Entry {
        code: Code::WaitedInVain,
        title: "the awaited state did not come in time",
        exit: Exit::Failed,
        explanation: "`braid wait` reached its time limit before the array reached the state. \
                      Jobs continue; nothing was changed. Wait again, or look with `braid \
                      status`.",
    },
    Entry {
        code: Code::NoTerminal,
        title: "there is no terminal",
        exit: Exit::Usage,
        explanation: "`braid top` overwrites its own output, which a file, a pipe or another \
                      program cannot display. `braid top --once` samples twice, prints text, or \
                      JSON with `--json`, and exits. `braid status --watch` prints the state \
                      repeatedly.",
    },
    Entry {
        code: Code::CheckRuns,
        title: "another check is running",
        exit: Exit::Refused,
        explanation: "You asked for a repair, or for a check that tries bad blocks, while another \
                      check runs or waits. Only one check runs at a time. Wait until it ends \
                      (`braid wait NAME --for check`) or end it (`braid check NAME --end`), then \
                      repeat the command.",
    },
    Entry {
        code: Code::NotReplaced,
        title: "the member cannot be replaced now",
        exit: Exit::Refused,
        explanation: "braid replaces a member while it serves, by one device at a time, and \
                      copies from it; so the member must be fully rebuilt itself. Wait for the \
                      running replacement or rebuild (`braid wait NAME --for rebuild`), or end \
                      the replacement by letting the new member fail (`braid fail NAME DEVICE`).",
    },
    Entry {
        code: Code::Interrupted,
        title: "interrupted",
        exit: Exit::Interrupted,
        explanation: "A signal ended the command. braid first flushed an array that it served and \
                      marked its superblocks clean. An array that was being created is not \
                      created, and its new files are removed. Data that `--zero` has already \
                      overwritten is lost.",
    },
    // Serving the array as a file.
    Entry {
        code: Code::FileUnfit,
        title: "the array cannot be mounted at this file",
        exit: Exit::Refused,
        explanation: "`--fuse` mounts the array over an empty file, which braid creates if it \
                      does not exist. This path is a folder, a device, or a file with content, \
                      which the mount would hide. Nothing was changed. Name another path.",
    },
    Entry {
        code: Code::FileTaken,
        title: "something is mounted on the file",
        exit: Exit::Busy,
        explanation: "A file system is mounted on this file: by another running braid, or by \
                      another program. If a killed braid left the mount, the next braid for this \
                      path unmounts it; braid unmounts nothing else.",
    },
    Entry {
        code: Code::NoFuse,
        title: "this user has no access to FUSE",
        exit: Exit::Failed,
        explanation: "`--fuse` needs /dev/fuse and the right to mount: root, or fusermount3 \
                      (Debian's fuse3) for other users. Containers have neither by default. NBD \
                      needs neither.",
    },
    // TLS.
    Entry {
        code: Code::Certificates,
        title: "the TLS certificates are missing or unusable",
        exit: Exit::Refused,
        explanation: "`--tls FOLDER` names a folder with files as QEMU, libvirt and nbdkit name \
                      them: server-cert.pem (the server's certificate and its intermediates), \
                      server-key.pem (its key, which other users must not be able to read), \
                      ca-cert.pem (the authority that signs clients' certificates), and \
                      optionally ca-crl.pem (revoked certificates). docs/clients.md has the \
                      openssl commands that make them.",
    },
    // Files that say how arrays are served.
    Entry {
        code: Code::ConfigMissing,
        title: "the array has no configuration",
        exit: Exit::NoSuchArray,
        explanation: "`braid serve --name NAME`, and so the unit braid@NAME.service, reads the \
                      file NAME.toml in /etc/braid (or in the folder of --config-dir or \
                      $BRAID_CONFIG_DIR). The file does not exist, or is not readable. `braid \
                      scan` prints a configuration for each array that it finds, and `braid scan \
                      --write` writes the missing ones.",
    },
    Entry {
        code: Code::ConfigUnfit,
        title: "the configuration of the array cannot be used",
        exit: Exit::Usage,
        explanation: "The configuration is a TOML file. At its top stand `array`, `members`, \
                      `devices` and `wait-seconds`; below [doors] and [policy] each key is a long \
                      option of `braid serve`, with its value. braid refuses unknown keys, \
                      because ignoring them would hide typing errors. braid started nothing.",
    },
    // Servers that are confined.
    Entry {
        code: Code::NotConfined,
        title: "the server cannot be confined",
        exit: Exit::Refused,
        explanation: "With --confine the server gives up files other than the members (landlock), \
                      system calls that serving does not need (seccomp), and capabilities. `full` \
                      requires all of these; some options (--run, --fuse, --ublk, --spare-group), \
                      members of other users and kernels without landlock rule it out. `auto` \
                      gives up as much as possible and reports it. braid started nothing.",
    },
    Entry {
        code: Code::FilesClosed,
        title: "the server opens no files by itself",
        exit: Exit::Refused,
        explanation: "The server runs with --confine, and can open only the members that it \
                      started with. For new devices, `braid add`, `spare` and `replace` open the \
                      device and pass it to the server. This request names a file that the server \
                      itself would have to open. Start the server with that file, or with \
                      --confine off. Nothing was changed.",
    },
    // Serving the array as a block device.
    Entry {
        code: Code::DeviceTaken,
        title: "the block device exists already",
        exit: Exit::Busy,
        explanation: "With --ublk=ID the array becomes /dev/ublkbID. A running server has that \
                      device, or it belongs to another array or program, or it was made when this \
                      array had another size or other access. braid takes over only a device that \
                      a killed server of the same array left. Without ID braid takes a free \
                      number.",
    },
    Entry {
        code: Code::NoUblk,
        title: "this user has no access to ublk",
        exit: Exit::Failed,
        explanation: "A block device needs the kernel's ublk_drv (Linux 6.6, a module in many \
                      distributions), io_uring, and root. Containers have none of them by \
                      default. NBD and a file (--fuse) need none of them.",
    },
    // Rescuing an array.
    Entry {
        code: Code::OverlayUnfit,
        title: "the overlay does not fit these members",
        exit: Exit::Refused,
        explanation: "`braid rescue --serve` writes into an overlay: files beside the members \
                      with the changed blocks. The overlay fits only the members as they were \
                      when it was made. Since then another program has written to a member, or \
                      not all members with an overlay were named. braid cannot combine them. \
                      Nothing was changed.",
    },
    Entry {
        code: Code::OverlayBusy,
        title: "the overlay is in use",
        exit: Exit::Busy,
        explanation: "Another braid serves the array over this overlay (`braid rescue --serve`). \
                      Stop that one first, by Ctrl-C or SIGTERM, or name another folder with \
                      --overlay, which starts from the unchanged members.",
    },
    Entry {
        code: Code::OverlayMissing,
        title: "there is no overlay",
        exit: Exit::Refused,
        explanation: "`braid rescue --commit` and `--discard` apply to the writes of `braid \
                      rescue --serve`. Nothing was written, or it is in another folder \
                      (--overlay, --state-dir), or it was discarded already. The members are \
                      unchanged.",
    },
    Entry {
        code: Code::CommitTooLarge,
        title: "the overlay changes too much to be taken back",
        exit: Exit::Refused,
        explanation: "Before `braid rescue --commit` writes to members, it saves the old bytes \
                      for `braid undo`: 256 MiB at most. Starting an array again and replaying a \
                      file system's journal needs far less. If more was written, copy the files \
                      to another place instead. braid wrote nothing to the members.",
    },
    Entry {
        code: Code::NotSolved,
        title: "the layout of the members could not be found",
        exit: Exit::Failed,
        explanation: "`braid rescue --solve` searches the members for structures that tell their \
                      own place: superblocks of file systems and their backups, blocks with their \
                      own address, partition tables, inodes. It continues by itself only if one \
                      layout explains nearly all of them and no other comes close. Otherwise it \
                      lists the candidates, and `--guess N` shows one of them; neither writes \
                      anything. Name all members for a better result. It finds nothing in \
                      encrypted data, or in data without addresses.",
    },
    Entry {
        code: Code::MapUnfit,
        title: "the map of the copy cannot be used",
        exit: Exit::Refused,
        explanation: "A copy of a failing disk has a map beside it: a text that lists which bytes \
                      of the disk were copied, as GNU ddrescue and `braid image` write it \
                      (IMAGE.map, or --map). This file is not such a map, or is for a disk of \
                      another size. Without the map braid would take unread areas for data of the \
                      disk. Name the right one with --map; if none exists, move this one away, \
                      and braid treats the copy as complete.",
    },
    Entry {
        code: Code::ImageUnfit,
        title: "the disk cannot be copied into this file",
        exit: Exit::Refused,
        explanation: "`braid image` copies into a new file, or continues a copy that it or \
                      ddrescue began, if its map exists. It overwrites nothing else: no file \
                      without a map, no copy of a disk of another size, no block device. `braid \
                      rescue --fill` computes the missing parts of such a copy, if the array's \
                      parity is reliable. Nothing was changed.",
    },
    Entry {
        code: Code::BackupUnfit,
        title: "the backup file does not belong to this reshape",
        exit: Exit::Refused,
        explanation: "During `mdadm --grow`, mdadm copies data that the kernel is about to \
                      overwrite into a file (`--backup-file`). `braid rescue --backup-file` reads \
                      it from there, and `braid serve --backup-file` goes on from there. The file \
                      names its array and a time. This file is not a backup, belongs to another \
                      array, was cut short, has another time than the superblocks, so that its \
                      data may be old, or lacks a part that md may have moved. Nothing was changed.",
    },
    Entry {
        code: Code::MetadataForeign,
        title: "the array's metadata is not md's, and braid does not write it",
        exit: Exit::Refused,
        explanation: "`braid rescue` reads volumes of Intel's firmware RAID (IMSM) and of DDF; it \
                      translates their metadata to md superblocks in memory. It serves such an \
                      array for reading, or for writing over an overlay, but writes nothing back \
                      to its disks: `--commit` and `--fill` do not work. Copy the data to another \
                      place. The disks stay unchanged, and the program that wrote their metadata \
                      can continue with them.",
    },
    Entry {
        code: Code::AskedFromElsewhere,
        title: "a web page of another site sent the request",
        exit: Exit::Failed,
        explanation: "A control socket may be forwarded to a port, and every page in a browser \
                      that reaches this port can send requests to it. So the server answers only \
                      to the names localhost, 127.0.0.1 and [::1] (and braid, at the socket). A \
                      request that can change something must come from the same origin (Origin, \
                      Sec-Fetch-Site), with Content-Type: application/json. To open the page, run \
                      `ssh -L 8080:/run/braid/NAME.control HOST` and go to \
                      http://localhost:8080/. Nothing was changed.",
    },
    Entry {
        code: Code::ConfigOfOthers,
        title: "other users can write the configuration of the array",
        exit: Exit::Refused,
        explanation: "The configuration names the commands that braid runs for events, as the \
                      user who serves the array, mostly root. So the file and its folder must \
                      belong to that user or to root, and group and others must not be able to \
                      write to them. braid started nothing.",
    },
    Entry {
        code: Code::Unfinished,
        title: "a command stopped in the middle of writing these members",
        exit: Exit::Refused,
        explanation: "A command that writes to members first saves the bytes that it overwrites. \
                      This command was then killed, or the power failed, or a write to a member \
                      failed, for example because the file system below it was full. Some sectors \
                      are old and others new, so the members contradict each other, and braid \
                      does not serve them. The record holds both versions: `braid undo` restores \
                      every old sector, and `braid rescue --commit` finishes the write. If one of \
                      them is interrupted, run it again.",
    },
    Entry {
        code: Code::OverlayDamaged,
        title: "the overlay is damaged",
        exit: Exit::Refused,
        explanation: "`braid rescue --serve` writes into an overlay: files beside the members, \
                      and a list of the files that belong together. One of these files is gone, \
                      was cut or changed, has another age than the others, or is a link to \
                      another file. With it the array would be a mixture that no client ever \
                      wrote. The members are unchanged. Leave out the member with the damaged \
                      overlay: the array can often still be read, with the changes in the other \
                      overlays.",
    },
    Entry {
        code: Code::AnsweredWritesKept,
        title: "acknowledged writes of the previous server are not on the members",
        exit: Exit::Refused,
        explanation: "With `--cache writeback` a server acknowledges writes before the members \
                      have them, and keeps a copy of each in the runtime folder. The previous \
                      server was killed, and this one must write these copies to the array before \
                      it admits clients. That failed: the file is unreadable, or the array \
                      rejects the writes, for example because too many members are missing. No \
                      data is lost: the file remains, and the next start tries again. Deleting \
                      the file discards writes that clients know as acknowledged.",
    },
    Entry {
        code: Code::ShapeStays,
        title: "the array's shape cannot be changed so, or not now",
        exit: Exit::Refused,
        explanation: "A change of shape (level, layout, chunk, members, size) begins when the \
                      array is whole: a resync, a rebuild or another change ends first. braid \
                      moves data of levels 4, 5 and 6, to more members or fewer. A shape that \
                      holds less is taken in two steps: `braid grow NAME --array-size SIZE` lets \
                      the array end there for clients, which `--array-size max` takes back; then \
                      the array gets smaller. Neither cuts a file system or other content that \
                      ends later, unless `--cut NAME` names it. Data also moves a little on each \
                      member, so that nothing is overwritten before it is moved, if there is room \
                      before the data, or behind it. Other changes keep every byte in its place: \
                      5 to 6 and back, 4 to 5, a mirror of two to 5. Nothing was changed.",
    },
    Entry {
        code: Code::MemberUnreachable,
        title: "the server of a member on another host does not answer",
        exit: Exit::Failed,
        explanation: "The member is an NBD export (nbd://, nbds://, nbd+unix://), and its server \
                      takes no connection, refuses the export, or fails the TLS handshake; the \
                      error has its words. Start the server, or name the other members only: an \
                      array with enough members is served without it, and recovers it later.",
    },
    Entry {
        code: Code::EpochUnreadable,
        title: "the epoch of a member cannot be read",
        exit: Exit::Failed,
        explanation: "A member server keeps the highest epoch of each member in its state folder, \
                      so that an older owner of the array never writes the member again. The file \
                      is damaged or unreadable, so the server does not know which owners are old. \
                      If the owner of the array is known to be the only one alive, remove the \
                      file: the owner's next claim writes it anew, and it recovers the member.",
    },
    Entry {
        code: Code::StoreUnusable,
        title: "the store of the owner's record cannot be used",
        exit: Exit::Failed,
        explanation: "With --store one owner of the array is agreed on by a record in etcd \
                      (etcd://HOST:PORT,HOST:PORT/KEY?tls-certificates=FOLDER; plain on loopback) \
                      or in an S3 bucket (s3://BUCKET/KEY?endpoint=URL, with AWS_ACCESS_KEY_ID \
                      and AWS_SECRET_ACCESS_KEY in the environment). FOLDER has ca-cert.pem and \
                      perhaps client-cert.pem, client-key.pem and credentials (user:password). \
                      The store must compare and swap. Every member has a `braid member` server, \
                      or is a whole disk that the hosts share and that has persistent \
                      reservations (SCSI, NVMe; Linux 7.0). Superblocks are of version 1, and the \
                      array has a bitmap on its members. It acknowledges no write early, and keeps its shape. docs/hosts.md has all \
                      of it.",
    },
    Entry {
        code: Code::OwnedElsewhere,
        title: "another host owns the array",
        exit: Exit::Refused,
        explanation: "The record in the store names an owner, and keeps changing: that owner \
                      lives. Stop it (`braid stop NAME` on its host), or wait with --standby: \
                      this server then takes over when the owner ends or is gone. Nothing was \
                      changed. A disk that an owner has reserved is written under --store only, \
                      since an older owner may still wake up. If the array is served without a \
                      store for good, end all owners, and clear the reservation: `blkpr -c \
                      register -k 1 -f ignore-key DISK` (if that is refused, with `-K 1`), `blkpr -c \
                      clear -k 1 DISK`.",
    },
];
