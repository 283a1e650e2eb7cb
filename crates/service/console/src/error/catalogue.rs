//! The meaning of each code: title, exit status, and the text behind `braid help CODE`.
//!
//! An explanation says what the state is, what braid did about it (mostly: it wrote nothing) and
//! where the way out lies. It is about the kind of error; the error itself carries the names.

use std::str::FromStr;

use super::code::Code;
use super::exit::Exit;

/// One code's text.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// A few words, lower case, no full stop.
    pub title: &'static str,
    /// The status to exit with.
    pub exit: Exit,
    /// A paragraph.
    pub explanation: &'static str,
}

impl Code {
    /// Its entry in the catalogue.
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

    /// The status to exit with.
    pub const fn exit(self) -> Exit {
        self.entry().exit
    }
}

/// The text is no code that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such code; codes look like B031")]
pub struct UnknownCode;

impl FromStr for Code {
    type Err = UnknownCode;

    /// Reads `B031`; case does not matter.
    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        let text = text.to_ascii_uppercase();
        let found = CATALOGUE.iter().map(|entry| entry.code).find(|code| code.to_string() == text);
        found.ok_or(UnknownCode)
    }
}

/// All codes by number.
pub const CATALOGUE: [Entry; 102] = [
    // The command line.
    Entry {
        code: Code::Usage,
        title: "the command line was not understood",
        exit: Exit::Usage,
        explanation: "A flag, an argument or a combination of them is unknown to this command. Nothing was \
                      read or written. `braid COMMAND --help` lists what there is.",
    },
    Entry {
        code: Code::UnknownLevel,
        title: "unknown RAID level",
        exit: Exit::Usage,
        explanation: "The levels are linear, 0, 1, 4, 5, 6 and 10. A level with three parities does not \
                      exist in md, so braid does not have one either.",
    },
    Entry {
        code: Code::UnknownLayout,
        title: "unknown layout for this level",
        exit: Exit::Usage,
        explanation: "A layout says how data and parity rotate over the members, and each level has its \
                      own. RAID-5 and RAID-6 default to left-symmetric, RAID-10 to n2; use another one \
                      only to match an array that has it already.",
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
        explanation: "The text is no size, or no size that this option can take. A chunk is a multiple of \
                      4 KiB, and a power of two for most levels; a member must hold at least its \
                      superblock and one chunk.",
    },
    Entry {
        code: Code::ArrayNameInvalid,
        title: "not a usable array name",
        exit: Exit::Usage,
        explanation: "md keeps 32 bytes for `host:name`. A name is made of letters, digits, `-`, `_` and \
                      `.`, does not begin with `-` or `.`, and fits together with its host.",
    },
    Entry {
        code: Code::UnknownMetadata,
        title: "unknown metadata version",
        exit: Exit::Usage,
        explanation: "braid creates metadata 1.0, 1.1 and 1.2, and also reads 0.90. 1.2 is the default and \
                      the right choice unless something else must find the superblock at the end of the \
                      member (1.0) or at its very beginning (1.1).",
    },
    Entry {
        code: Code::MemberCount,
        title: "the number of members does not fit the level",
        exit: Exit::Usage,
        explanation: "RAID-0, 1 and linear need one member or more, RAID-4 and 5 two, RAID-6 four, RAID-10 \
                      as many as it keeps copies. `missing` counts as a member; spares do not.",
    },
    Entry {
        code: Code::UriInvalid,
        title: "not an NBD URI that can be served",
        exit: Exit::Usage,
        explanation: "Listening addresses are written as NBD URIs: `nbd+unix:///?socket=/run/x.sock` or \
                      `nbd://127.0.0.1:10809/`; with TLS `nbds+unix` and `nbds`.",
    },
    // Creating, and obstacles to it.
    Entry {
        code: Code::SameMemberTwice,
        title: "the same member was named twice",
        exit: Exit::Refused,
        explanation: "Two of the names lead to the same file or device, perhaps through a link. An array \
                      with one member in two places would lose two members when that one fails.",
    },
    Entry {
        code: Code::HoldsData,
        title: "the members already hold data",
        exit: Exit::Refused,
        explanation: "At least one member carries an md superblock, a file system, a partition table, LVM or \
                      LUKS, or bytes at its ends that are not recognised (`data`). braid never writes over it \
                      unless each such thing is named with `--destroy NAME`. Before it does, it saves the \
                      members' first and last bytes, and `braid undo` puts back what was overwritten.",
    },
    Entry {
        code: Code::DestroyNameMismatch,
        title: "what was named to be destroyed is not there",
        exit: Exit::Refused,
        explanation: "`--destroy NAME` must name exactly what is on the members: no more and no less, \
                      and one thing by each name. The names differ, so one of the members may not be the \
                      one you think of. Nothing was written.",
    },
    // Undoing.
    Entry {
        code: Code::NothingToUndo,
        title: "there is nothing to be undone",
        exit: Exit::NoSuchArray,
        explanation: "Before a command overwrites metadata it saves what is there, in the state folder. There is no such \
                      record, or none of this number: the command was run by another user, with another `--state-dir`, \
                      or overwrote nothing. The last 256 are kept; `braid history --saved` lists them.",
    },
    Entry {
        code: Code::UndoDamaged,
        title: "the record of what was overwritten is damaged",
        exit: Exit::Failed,
        explanation: "The file does not pass its checksum, or is of a newer format: it was cut off, edited, or its disk is \
                      failing. What it says may not be what was on the devices, so none of it is written. \
                      Records of earlier commands may be sound.",
    },
    Entry {
        code: Code::UndoUnsafe,
        title: "what was overwritten cannot be put back safely",
        exit: Exit::Refused,
        explanation: "Old superblocks describe data areas as they were. braid puts them back only while every byte of the \
                      metadata is as the command left it: then no array has been started for writing on these devices \
                      since. Which device has changed, and how, is said in the cause. Nothing was \
                      written.",
    },
    Entry {
        code: Code::LogicalBlockLarge,
        title: "the array's logical block is larger than a sector",
        exit: Exit::Refused,
        explanation: "Linux has written the logical block size of an array into its superblocks since 6.19, and kernels \
                      before that refuse such an array. Of 512 bytes it can be cleared, for that is what every kernel goes \
                      by. A larger one was what users of the array had to go by, and file systems on it may be made for it. \
                      Let a kernel of 6.19 or later, or braid, run it. Nothing was written.",
    },
    Entry {
        code: Code::ConsistencyStays,
        title: "what the array keeps for a crash stays as it is",
        exit: Exit::Refused,
        explanation: "A write-intent bitmap names what may not agree after a crash, and what a member that is away has missed. \
                      As long as it is needed for that it is not given up, nor made anew with another size: the array is to \
                      be resynced, or rebuilt, first. The same holds of parity logs, braid's own or md's, which are neither made nor given \
                      up before; md's are for RAID-5, and braid's own for levels 4, 5 and 6. Nothing was changed.",
    },
    Entry {
        code: Code::BitmapBusy,
        title: "what the array keeps for a crash is being changed",
        exit: Exit::Busy,
        explanation: "A bitmap is made, or given up, when every member has said so durably, and clients go on meanwhile; parity logs \
                      in the same way, while clients' writes wait. One change is made at a time, and the last one is under way: a \
                      member takes long to answer. It goes on by itself; `braid get` says how it is. No member comes before it is over.",
    },
    // Superblocks.
    Entry {
        code: Code::NoSuperblock,
        title: "no md superblock",
        exit: Exit::NoSuchArray,
        explanation: "None of the four places where md keeps a superblock holds one. The member may be \
                      whole and belong to something else, or be blank, or its superblock may have been \
                      overwritten.",
    },
    Entry {
        code: Code::SuperblockChecksum,
        title: "the superblock is damaged: its checksum does not match",
        exit: Exit::Failed,
        explanation: "The magic number is there, but the checksum over the superblock says that at least \
                      one bit is not what md wrote. braid does not guess which: the member is left out and \
                      never written. With enough other members the array runs without it.",
    },
    Entry {
        code: Code::SuperblockImpossible,
        title: "the superblock holds impossible values",
        exit: Exit::Failed,
        explanation: "The checksum matches, yet the values cannot be true: more sectors than the member \
                      has, a chunk of zero, a slot beyond the array. Such a superblock is broken or made \
                      to harm; it is refused as a whole.",
    },
    Entry {
        code: Code::UnsupportedFeature,
        title: "the array uses a feature that is not supported yet",
        exit: Exit::Refused,
        explanation: "The superblock names a feature that changes where data is or who may write it, and \
                      that this version of braid does not know. Reading on would be guessing. The kernel's \
                      md can run the array. A RAID-0 of unequal members that an old kernel made does not say in which \
                      of two ways it goes on where its smallest member ends: `braid rescue --solve` finds out, and --layout says it.",
    },
    Entry {
        code: Code::Reshaping,
        title: "the array is in the middle of a reshape",
        exit: Exit::Refused,
        explanation: "Part of the array is in its old shape and part in its new one. braid reads both \
                      (`braid rescue`), and does not go on with a reshape. Let the kernel's md finish it, then serve the array with \
                      braid.",
    },
    Entry {
        code: Code::JournalNeeded,
        title: "the array's write journal is needed",
        exit: Exit::Refused,
        explanation: "Writes may exist only in the journal, and its superblocks say \"clean\" while it is written. The \
                      journal's device was not named, is too old, or cannot be followed; so any part of the array may \
                      lack what was last written, and what would be computed from parity may be wrong. Or what the journal \
                      says cannot be replayed. Nothing was written, or what was written can be replayed again. Name the \
                      journal's device among the members.",
    },
    Entry {
        code: Code::PplNeeded,
        title: "the array has a partial parity log that cannot be replayed",
        exit: Exit::Refused,
        explanation: "The array was not shut down cleanly, and its partial parity log should say which parity is \
                      unfinished. It says something that this array cannot have written; or a member is missing, and \
                      a log cannot be read or knows nothing of a resync that was not finished. Nothing was written. With \
                      every member there, data is read and not computed, so the best way out is the missing one.",
    },
    Entry {
        code: Code::ReadOnlyOnly,
        title: "the array can be read but not written",
        exit: Exit::Refused,
        explanation: "The array keeps a record of its writes (a bitmap or a partial parity log) that this \
                      version does not keep, and md would trust that record after we had written. Nothing \
                      stands in the way of reading: `--read-only` serves it.",
    },
    // Assembling.
    Entry {
        code: Code::BitmapFileUnfit,
        title: "the file is not this array's bitmap file",
        exit: Exit::Refused,
        explanation: "`--bitmap-file` names the file that has the array's write-intent bitmap beside its members. This one is no \
                      bitmap, or of another array, or the array keeps its bitmap, a PPL or a journal on its devices. Nothing was \
                      written. `braid examine FILE` says what the file is. An array that was stopped cleanly can be served without \
                      its file, and then keeps no bitmap.",
    },
    Entry {
        code: Code::TooFewMembers,
        title: "too few members to run",
        exit: Exit::BeyondTolerance,
        explanation: "More members are missing than the level tolerates, so part of the data is not on the \
                      members at hand. Nothing was written. Members that were left out are listed with the \
                      reason; one of them may only need its cable.",
    },
    Entry {
        code: Code::DirtyDegraded,
        title: "interrupted while writing, and a member is missing",
        exit: Exit::Refused,
        explanation: "A write was under way when the array stopped, and the missing member holds what \
                      could tell old data from new. In the stripes that were being written, what is \
                      computed for the missing member may be wrong, silently. Connect the missing member \
                      and nothing is at risk. `--read-only` serves what is not, and the rest as I/O errors; `--accept-risk \
                      COUNT` serves the array as it is.",
    },
    Entry {
        code: Code::ForeignMember,
        title: "a member belongs to another array",
        exit: Exit::Refused,
        explanation: "The UUID in this member's superblock is not the one of the array the others belong \
                      to. It was not opened for writing. Name only the members of one array.",
    },
    Entry {
        code: Code::SeveralArrays,
        title: "the members belong to several arrays",
        exit: Exit::Refused,
        explanation: "The members named fall into more than one array, and none was chosen. Several are served \
                      by one server where each has all its members; where one lacks some it may be a slip, \
                      and `serve --all` says that it is meant. What is for one array cannot be said of several.",
    },
    Entry {
        code: Code::SlotClaimedTwice,
        title: "two members claim the same slot",
        exit: Exit::Refused,
        explanation: "Two members say that they are the same part of the array, with equal right: perhaps \
                      a copy of a member was made and both were named. Which one is true cannot be decided \
                      from here.",
    },
    Entry {
        code: Code::RanApart,
        title: "two halves of the array have run apart",
        exit: Exit::Refused,
        explanation: "Members that are equally new disagree about who belongs to the array: each side has \
                      run without the other and may hold writes that the other has not. Only a person can \
                      say which side counts. Name the members of that side alone.",
    },
    Entry {
        code: Code::MembersDisagree,
        title: "members of one array disagree about it",
        exit: Exit::Refused,
        explanation: "Two superblocks carry the same array UUID and describe different arrays: another \
                      level, chunk, size or layout. One of them was changed by something other than md, or \
                      the array was created again under the same UUID. Nothing was written.",
    },
    Entry {
        code: Code::NewestDamaged,
        title: "damaged superblocks may be newer than the sound ones",
        exit: Exit::Refused,
        explanation: "Some of these members have superblocks that pass no checksum, and what can be read \
                      of them counts more events than any sound one. If they are right, the sound members \
                      were put out before and miss everything that was written since. braid believes \
                      neither. Members that are not connected may settle it; else leave the damaged \
                      ones out to go on with what the sound ones hold. Nothing was written.",
    },
    Entry {
        code: Code::OlderThanKnown,
        title: "the array is known to have been newer",
        exit: Exit::Refused,
        explanation: "braid writes down how new an array was when it last served it (`arrays/UUID.json` in \
                      the state folder), and every member here is older. Either the members that know \
                      more are not connected: without them, what was written since would be lost. Or all \
                      of them were put back from a backup, or a copy of the whole array was served on \
                      this machine: then `--accept-older` goes on from here and forgets what was written \
                      down. Nothing was written.",
    },
    // Adding and removing members.
    Entry {
        code: Code::MemberInUse,
        title: "the member is in use",
        exit: Exit::Refused,
        explanation: "A member that has a slot holds its share of the data, and is not taken away. It has to fail first, by \
                      `braid fail`, which leaves the array without its protection until another device has been rebuilt. \
                      Nothing was changed.",
    },
    Entry {
        code: Code::MemberNeeded,
        title: "the array cannot do without the member",
        exit: Exit::BeyondTolerance,
        explanation: "Without this member data would be lost: others are missing or not rebuilt yet, or parity may not fit \
                      since the array was interrupted. Add a device for what is missing (`braid add`), wait until it is \
                      rebuilt (`braid wait NAME --for rebuild`), and have this one fail then. Nothing was changed.",
    },
    // Jobs.
    Entry {
        code: Code::NoRedundancy,
        title: "the level has no redundancy",
        exit: Exit::Refused,
        explanation: "RAID-0 and linear keep each byte once. There is nothing that could be compared by a check, and \
                      nothing to rebuild a member from: one that is lost takes its part of the data with it.",
    },
    Entry {
        code: Code::CheckDegraded,
        title: "a degraded array cannot be checked",
        exit: Exit::Refused,
        explanation: "A check compares what members hold with what the others say it should be. Where a member is \
                      missing the others are needed to stand in for it, and nothing is left to compare. Once the array \
                      is rebuilt it can be checked.",
    },
    Entry {
        code: Code::JobsPaused,
        title: "jobs are paused",
        exit: Exit::Refused,
        explanation: "Resyncs, recoveries and checks of the array were paused, by `braid pause`, `braid set jobs=paused` \
                      or `braid serve --jobs paused`, and none begins or goes on before `braid resume`. Clients are \
                      served meanwhile; an array that is degraded or dirty stays so.",
    },
    Entry {
        code: Code::JobRefused,
        title: "a job could not be finished",
        exit: Exit::Refused,
        explanation: "A resync met a place where more is unreadable than the level can make up for; so did a recovery or a \
                      replacement, onto a member without room in its bad-block log (metadata 0.90 has none); or there is no \
                      space below a member. What it had done stays done. It is tried again when a member \
                      comes or goes, when the array is served again, and by `braid rebuild`.",
    },
    Entry {
        code: Code::NoSpare,
        title: "there is nothing to rebuild onto",
        exit: Exit::Refused,
        explanation: "No spare waits to take the place of what is missing, or is to be replaced. `braid add NAME DEVICE` brings \
                      one where a slot is empty, and the rebuild begins by itself; `braid replace NAME MEMBER --with DEVICE` \
                      where the member is still there.",
    },
    Entry {
        code: Code::JobEnded,
        title: "the job ended before it was over",
        exit: Exit::Failed,
        explanation: "A check that was waited for was ended by another command, another job came first (a member was \
                      lost), or the array was stopped. What it had not come to was not looked at. Nothing was changed.",
    },
    Entry {
        code: Code::ServedReadOnly,
        title: "the array is served read-only",
        exit: Exit::Refused,
        explanation: "`serve --read-only` writes neither data nor superblocks, and jobs write both: a check, too, has \
                      sectors that it could not read rewritten. Stop the array and serve it without `--read-only`.",
    },
    // Members.
    Entry {
        code: Code::NoSuchMember,
        title: "the array has no such member",
        exit: Exit::Failed,
        explanation: "A member of a running array is named by its path or by the number of its slot; a word of digits is a \
                      number, and a file of such a name is `./3`. The members that there are are listed with the error. \
                      Nothing was changed.",
    },
    Entry {
        code: Code::MemberMissing,
        title: "no such member",
        exit: Exit::Failed,
        explanation: "The path leads to no file and no device. A device may have another name since the \
                      last boot; names below `/dev/disk/by-id` do not change.",
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
        explanation: "Every member must hold at least as much as the array uses of each. Nothing was \
                      written.",
    },
    Entry {
        code: Code::MemberTruncated,
        title: "the member is shorter than its superblock says",
        exit: Exit::Failed,
        explanation: "The superblock speaks of sectors behind the end of the file or device: it was cut \
                      off, or copied in part. What is missing cannot be read, so the member is left out \
                      and never written.",
    },
    Entry {
        code: Code::MemberPermission,
        title: "permission denied",
        exit: Exit::Failed,
        explanation: "The operating system does not let this user open the member for reading and writing, or the \
                      device may not be written at all: a card's switch, a write blocker, a file system that is \
                      mounted read-only. braid needs no root as such: the right to open the member is enough. \
                      `braid serve --read-only` needs less.",
    },
    Entry {
        code: Code::MemberIo,
        title: "a member returned an I/O error",
        exit: Exit::Failed,
        explanation: "Reading or writing a member failed, and not in a way that the array can heal by \
                      itself. The kernel log has more about devices; `smartctl -a` about their health.",
    },
    // Held by another process.
    Entry {
        code: Code::MemberSilent,
        title: "a member does not answer",
        exit: Exit::Failed,
        explanation: "Stopping waits for what members were asked for, and one has answered nothing for as \
                      long as `--stop-patience` says. The array was left as after a crash: what was flushed is \
                      on the members, and its superblocks say that it was in use. A process that has asked a \
                      disk, a network or a FUSE that hangs cannot be ended, not even by SIGKILL, before the \
                      kernel has given up waiting. See to the member, or serve the array without it. \
                      `braid remove` waits for a member that failed in the same way, and can be tried again.",
    },
    Entry {
        code: Code::AlreadyMember,
        title: "the device is a member already",
        exit: Exit::Refused,
        explanation: "The array uses this device, perhaps under another name, or through a loop device or a partition of it. \
                      A member in two places would be two losses when it fails. Nothing was changed.",
    },
    Entry {
        code: Code::MemberBusy,
        title: "the kernel holds the member",
        exit: Exit::Busy,
        explanation: "The device is part of a running kernel array, mounted, or in use by another kernel \
                      driver. Two writers would destroy the array, so braid does not open it.",
    },
    Entry {
        code: Code::MemberLocked,
        title: "another process has locked the member",
        exit: Exit::Busy,
        explanation: "Another braid, or a program that locks files in the same way, has the member open. \
                      Two writers would destroy the array. Stop the other one first.",
    },
    Entry {
        code: Code::MemberUnlockable,
        title: "the member cannot be locked",
        exit: Exit::Failed,
        explanation: "braid locks each member (flock), so that no second server writes it. The file system below \
                      gave no lock, and no other process has one: network file systems without a lock daemon, some \
                      FUSE file systems and some security modules do that. Nothing was written. A copy on a file \
                      system with locks, or a loop device over the file, can be served.",
    },
    // Serving.
    Entry {
        code: Code::SocketBusy,
        title: "the address is already in use",
        exit: Exit::Busy,
        explanation: "Something listens on this socket or port already, or a file of another kind stands \
                      where the socket should be. braid removes no file that it did not make.",
    },
    Entry {
        code: Code::SocketFolder,
        title: "the folder of the socket cannot be written",
        exit: Exit::Failed,
        explanation: "The socket's folder does not exist, or does not let this user make a file in it. For \
                      an ordinary user `$XDG_RUNTIME_DIR` is the right place.",
    },
    Entry {
        code: Code::ListenNotLoopback,
        title: "refusing to listen on a network address",
        exit: Exit::Refused,
        explanation: "Plain NBD has no password and no encryption: every client that reaches the port can read and \
                      write the array. So it is on Unix sockets and on loopback addresses only. Other addresses are \
                      for TLS (`nbds://`) where clients show certificates.",
    },
    Entry {
        code: Code::CommandFailed,
        title: "the command given with --run failed",
        exit: Exit::Failed,
        explanation: "The command that `--run` started ended with an error of its own. The array was \
                      stopped cleanly all the same: flushed, and its superblocks marked clean.",
    },
    Entry {
        code: Code::System,
        title: "the operating system refused something",
        exit: Exit::Failed,
        explanation: "A thread, a process, a temporary folder or a signal handler could not be had. \
                      The cause is the system's own. Limits of the user (`ulimit -a`) and a full or absent \
                      `$TMPDIR` are the usual reasons. Nothing was written to any member.",
    },
    Entry {
        code: Code::NotServed,
        title: "no such array is being served",
        exit: Exit::NoSuchArray,
        explanation: "Verbs such as `status`, `set` and `stop` talk to the process that serves the array, through \
                      its control socket. An array is found by its name or its UUID among the sockets in the \
                      runtime folder (`/run/braid` for root, `$XDG_RUNTIME_DIR/braid` for others, or \
                      `$BRAID_RUNTIME_DIR`), or by the path given to `serve --control`. None of them is this one. \
                      `braid list` shows those that there are.",
    },
    Entry {
        code: Code::Shortage,
        title: "the system is short of memory, descriptors or threads",
        exit: Exit::Failed,
        explanation: "This process, or the whole system, had no more of something that is needed to go on. It says \
                      nothing about the members: none of them is judged by it, and none was written. Limits of the \
                      user (`ulimit -a`) and of the control group are the usual reasons; once there is room, the \
                      same command can be given again.",
    },
    Entry {
        code: Code::ServerGone,
        title: "the server of the array is gone",
        exit: Exit::NoSuchArray,
        explanation: "There is a control socket of this name, and no process listens at it: the server that made it \
                      was killed, or the machine went down. An array in order takes its socket away when it \
                      stops. Serve its members again, which replaces the socket; `braid examine` says what state \
                      they are in.",
    },
    Entry {
        code: Code::ServerSilent,
        title: "the server of the array does not answer",
        exit: Exit::Failed,
        explanation: "A process listens at the control socket, and gave no answer in time, or none that a server \
                      of braid gives. It may be stopped (SIGSTOP), short of time or memory, or be another program, \
                      such as the array's own NBD server at its socket. Clients may well be served meanwhile.",
    },
    Entry {
        code: Code::ControlDenied,
        title: "the control socket is another user's",
        exit: Exit::Failed,
        explanation: "An array is looked at, set and stopped by the user who serves it, and by root. The socket has \
                      mode 0600, and the server asks the system who is at the other end.",
    },
    // Running.
    Entry {
        code: Code::StateFolder,
        title: "the state folder cannot be written",
        exit: Exit::Failed,
        explanation: "Before braid changes metadata it saves what was there, so that it can be put back. \
                      The folder for that cannot be written, so nothing was changed. It is \
                      `$XDG_STATE_HOME/braid`, or `/var/lib/braid` for root.",
    },
    Entry {
        code: Code::ArrayFailed,
        title: "the array has lost more members than it tolerates",
        exit: Exit::BeyondTolerance,
        explanation: "While the array ran, members failed until data was gone. Requests that need it get \
                      I/O errors; what was flushed before is on the members that are left. Nothing further \
                      is written.",
    },
    Entry {
        code: Code::VerifyFailed,
        title: "what was read back differs from what was written",
        exit: Exit::Failed,
        explanation: "A comparison that must succeed did not. This is a mistake in braid or in the \
                      hardware below it; keep the members as they are and report it.",
    },
    Entry {
        code: Code::SeveralServed,
        title: "several arrays that are being served have this name",
        exit: Exit::Refused,
        explanation: "Names are not unique; UUIDs are, unless copies of one array are served. Nothing was changed. \
                      Name the array by its UUID, or by the path of its control socket: `braid list` has both.",
    },
    Entry {
        code: Code::NoHistory,
        title: "nothing is kept of such an array",
        exit: Exit::NoSuchArray,
        explanation: "`braid serve` keeps what happens to an array in the state folder, `$XDG_STATE_HOME/braid` or \
                      `/var/lib/braid` for root, and this is read from there. The array was not served here, by \
                      another user, with another `--state-dir`, or its history was deleted.",
    },
    Entry {
        code: Code::HookInvalid,
        title: "events cannot be told there",
        exit: Exit::Usage,
        explanation: "A webhook is an `http://` or `https://` address without a user or password in it; mail goes to one \
                      address, `user@host` or a user of this machine, without a name beside it. Nothing was started. \
                      What is wrong with this one is said in the cause.",
    },
    Entry {
        code: Code::WaitedInVain,
        title: "what was waited for did not come in time",
        exit: Exit::Failed,
        explanation: "`braid wait` was given a limit, and the array was not as it was to be by then. Jobs go on as they \
                      were; nothing was changed.",
    },
    Entry {
        code: Code::NoTerminal,
        title: "there is no terminal",
        exit: Exit::Usage,
        explanation: "`braid top` writes over what it has written, which a file, a pipe or another program cannot show. \
                      `braid top --once` looks twice, prints that as text, or as JSON with `--json`, and ends; \
                      `braid status --watch` prints the state again and again.",
    },
    Entry {
        code: Code::CheckRuns,
        title: "a check runs that does not do this",
        exit: Exit::Refused,
        explanation: "A repair, or a check that tries bad blocks, was asked for while another check runs or waits, and there is one of \
                      them at a time. Wait until it is over (`braid wait NAME --for check`) or end it (`braid check NAME --end`), \
                      and ask again.",
    },
    Entry {
        code: Code::NotReplaced,
        title: "the member cannot be replaced now",
        exit: Exit::Refused,
        explanation: "A member is replaced while it serves, by one other at a time, and is copied from: it has to hold all that \
                      it should itself. Wait until the replacement or the rebuild that is under way is over (`braid wait NAME \
                      --for rebuild`), or end a replacement by having the new member fail (`braid fail NAME DEVICE`).",
    },
    Entry {
        code: Code::Interrupted,
        title: "interrupted",
        exit: Exit::Interrupted,
        explanation: "A signal ended the command. An array that was being served was flushed and its \
                      superblocks were marked clean first; an array that was being made is not made, and \
                      its new files are removed. What `--zero` had begun to write over is gone.",
    },
    // A file.
    Entry {
        code: Code::FileUnfit,
        title: "the array cannot be this file",
        exit: Exit::Refused,
        explanation: "With --fuse the array is mounted over an empty file, or one that is made for it. What the path has \
                      now is a folder, a device, or a file that holds something, which would be hidden as long as the \
                      array is served. Nothing was changed.",
    },
    Entry {
        code: Code::FileTaken,
        title: "something is mounted on the file",
        exit: Exit::Busy,
        explanation: "A file system is mounted there: another braid's, which serves, or another program's. What a braid \
                      that was killed has left is unmounted by the next one that is given the path; nothing else is.",
    },
    Entry {
        code: Code::NoFuse,
        title: "there is no FUSE for this user",
        exit: Exit::Failed,
        explanation: "A file needs /dev/fuse, and somebody who may mount: root, or fusermount3 (Debian's fuse3) for \
                      everybody else. Containers have neither unless they are given. NBD needs none of it.",
    },
    // TLS.
    Entry {
        code: Code::Certificates,
        title: "there are no certificates for TLS, or they cannot be used",
        exit: Exit::Refused,
        explanation: "`--tls FOLDER` has files named as QEMU, libvirt and nbdkit name them: server-cert.pem (the \
                      server's certificate, and those between it and the authority), server-key.pem (its key, which \
                      not everybody may read), ca-cert.pem (who signs clients' certificates), and ca-crl.pem (what was \
                      called back) if there is one. docs/clients.md has the openssl commands that make them.",
    },
    // Files that say how arrays are served.
    Entry {
        code: Code::ConfigMissing,
        title: "nothing says how the array is served",
        exit: Exit::NoSuchArray,
        explanation: "`braid serve --name NAME`, and so the unit braid@NAME.service, goes by the file NAME.toml in /etc/braid \
                      (or the folder of --config-dir or $BRAID_CONFIG_DIR). It is not there, or cannot be read. `braid scan` \
                      prints a file for each array that it finds, and `braid scan --write` writes those that are missing.",
    },
    Entry {
        code: Code::ConfigUnfit,
        title: "the file that says how the array is served cannot be used",
        exit: Exit::Usage,
        explanation: "The file is TOML. At its top stand `array`, `members`, `devices` and `wait-seconds`; below [doors] and \
                      [policy] each key is a long option of `braid serve`, with the value that it takes there. What is not \
                      known is refused rather than left out, because a word with a slip in it would be missed. Nothing was \
                      started.",
    },
    // Servers that are confined.
    Entry {
        code: Code::NotConfined,
        title: "the server cannot be confined",
        exit: Exit::Refused,
        explanation: "With --confine the server gives up files other than the members (landlock), system calls that serving does \
                      not make (seccomp), and capabilities. `full` asks for all of it, which some options (--run, --fuse, --ublk, \
                      --spare-group), members of other users and kernels without landlock do not allow; `auto` takes what there \
                      is and tells what that is. Nothing was started.",
    },
    Entry {
        code: Code::FilesClosed,
        title: "the server opens no files by itself",
        exit: Exit::Refused,
        explanation: "It was started with --confine, and can open nothing but the members that it began with. Devices that are \
                      added are opened by `braid add`, `spare` and `replace`, and handed over. What was asked for names a file that \
                      the server would have to open: start it with that file, or with --confine off. Nothing was changed.",
    },
    // A block device.
    Entry {
        code: Code::DeviceTaken,
        title: "the block device is there already",
        exit: Exit::Busy,
        explanation: "With --ublk=ID the array becomes /dev/ublkbID. A server has that device, or it is another array's or another \
                      program's, or it was made when this array had another size or other access. What a server of the same \
                      array has left when it was killed is taken over; nothing else is. Without ID a free number is taken.",
    },
    Entry {
        code: Code::NoUblk,
        title: "there is no ublk for this user",
        exit: Exit::Failed,
        explanation: "A block device needs the kernel's ublk_drv (Linux 6.6, as a module in many distributions), io_uring, and \
                      root. Containers have none of them unless they are given. NBD and a file (--fuse) need none of it.",
    },
    // An array that is rescued.
    Entry {
        code: Code::OverlayUnfit,
        title: "the overlay does not fit these members",
        exit: Exit::Refused,
        explanation: "What `braid rescue --serve` writes goes into an overlay: files beside the members, which say what of them is \
                      different. They were made over what the members held then. Somebody has written to a member since, or not all \
                      of those that have an overlay are named, and what the files say would make no sense. Nothing was changed.",
    },
    Entry {
        code: Code::OverlayBusy,
        title: "the overlay is in use",
        exit: Exit::Busy,
        explanation: "Another braid serves the array over this overlay (`braid rescue --serve`). Stop that one first, by Ctrl-C or \
                      SIGTERM, or name another folder with --overlay, which begins with the members as they are.",
    },
    Entry {
        code: Code::OverlayMissing,
        title: "there is no overlay",
        exit: Exit::Refused,
        explanation: "`braid rescue --commit` and `--discard` are about what was written while the array was served with `braid rescue \
                      --serve`. Nothing was, or it was written over another folder (--overlay, --state-dir), or thrown away already. \
                      Members are as they were.",
    },
    Entry {
        code: Code::CommitTooLarge,
        title: "the overlay changes too much to be taken back",
        exit: Exit::Refused,
        explanation: "Before `braid rescue --commit` writes to members it saves what it overwrites, so that `braid undo` can put it \
                      back: 256 MiB at most. What is needed to start an array again and to replay a file system's journal is far less. \
                      Where more was written, copy the files to another place instead; nothing was written to the members.",
    },
    Entry {
        code: Code::NotSolved,
        title: "how the members were put together is not known",
        exit: Exit::Failed,
        explanation: "`braid rescue --solve` looks on members for what says where it belongs: superblocks of file systems and their \
                      backups, blocks with their own address, partition tables, inodes. It goes on by itself only if one way to put \
                      the members together explains nearly all of it and no other comes near. Otherwise it shows what it has, and \
                      `--guess N` looks at one of them; nothing is written either way. It knows more if all members are named, and \
                      nothing of data that are encrypted, or in which nothing has an address.",
    },
    Entry {
        code: Code::MapUnfit,
        title: "the map of the copy cannot be used",
        exit: Exit::Refused,
        explanation: "Beside the copy of a disk that fails lies a map: a text that says which bytes of the disk the copy has, as GNU \
                      ddrescue and `braid image` write it (IMAGE.map, or --map). This one is no such text, or of a disk of another size. \
                      Without it braid would take what was never read for what the disk held. Name the right one with --map; if there \
                      is none, move this one away, and the copy counts as whole.",
    },
    Entry {
        code: Code::ImageUnfit,
        title: "the copy of a disk cannot be this file",
        exit: Exit::Refused,
        explanation: "`braid image` copies into a file that is not there yet, or goes on with one that it or ddrescue has begun, by its \
                      map. It overwrites nothing else: no file without a map, no copy of a disk of another size, no block device. `braid \
                      rescue --fill` writes into such a copy what it lacks, if the array's parity can be relied on. Nothing was changed.",
    },
    Entry {
        code: Code::BackupUnfit,
        title: "the backup file is not of this reshape",
        exit: Exit::Refused,
        explanation: "Before `mdadm --grow` has the kernel write over what is still needed, it copies that into a file (`--backup-file`), \
                      and `braid rescue --backup-file` reads it from there. The file names its array and has a time. This one is no such \
                      file, is of another array, was cut short, or was written at another time than the superblocks, so that what it has \
                      may be old. Nothing was changed.",
    },
    Entry {
        code: Code::MetadataForeign,
        title: "the array's metadata is not md's, and is not written",
        exit: Exit::Refused,
        explanation: "`braid rescue` reads volumes of Intel's firmware RAID (IMSM) and of DDF as if md's superblocks stood on them. These \
                      are made up in memory. Such an array is served for reading, or for writing over an overlay, and nothing of \
                      that goes back to its disks: no `--commit`, and no `--fill`. Copy what is needed to another place; the disks \
                      stay as they are, and whatever wrote their metadata can go on with them.",
    },
    Entry {
        code: Code::AskedFromElsewhere,
        title: "a web page of another site asked",
        exit: Exit::Failed,
        explanation: "A control socket may be led to a port, and every page that is open in a browser beside that port can send \
                      requests there. So the server answers by the names localhost, 127.0.0.1 and [::1] only (and braid, at the \
                      socket). A request that may change something has to come from no other origin (Origin, Sec-Fetch-Site), and \
                      as Content-Type: application/json. The way to the page is `ssh -L 8080:/run/braid/NAME.control HOST` and \
                      http://localhost:8080/. Nothing was changed.",
    },
    Entry {
        code: Code::ConfigOfOthers,
        title: "others may write the file that says how the array is served",
        exit: Exit::Refused,
        explanation: "The file says which commands are run for events, and they are run as the user who serves the array, mostly \
                      root. So it has to belong to that user or to root, and its folder too, and neither group nor others may write \
                      them. Nothing was started.",
    },
    Entry {
        code: Code::Unfinished,
        title: "a command stopped in the middle of writing these members",
        exit: Exit::Refused,
        explanation: "A command that writes to members saves first what it overwrites. This one was then killed, or the power failed, or a \
                      member could not be written, for instance because the file system below it was full. Some sectors are as they \
                      were before, others as the command leaves them, so the members do not fit each other and are not served. The \
                      record knows both: `braid undo` puts every sector back, and `braid rescue --commit` finishes what it began. Both \
                      may stop and be run again.",
    },
    Entry {
        code: Code::OverlayDamaged,
        title: "the overlay is damaged",
        exit: Exit::Refused,
        explanation: "What `braid rescue --serve` writes goes into an overlay: files beside the members, and a list of those that belong \
                      together. One of them is gone, was cut or changed, is of another time than the others, or is a link to another \
                      file. With it the array would be a mixture that no client ever wrote. The members are as they were. Without the \
                      member whose overlay is damaged the array can often still be read, with what was written over the others.",
    },
    Entry {
        code: Code::AnsweredWritesKept,
        title: "answered writes of the server before are not on the members",
        exit: Exit::Refused,
        explanation: "A server that answers writes before the members have them (`--cache writeback`) keeps a copy of each in the runtime \
                      folder, so that they outlive it. It was killed, and this one is to write them to the array before it lets clients \
                      in. That failed: the file cannot be read, or the array does not take the writes, for instance since too many members \
                      are missing. Nothing is lost: the file stays, and the next start tries again. Who removes it gives up what clients \
                      were told is written.",
    },
];
