//! The stable error codes, as a type.
//!
//! A code is `B` and three digits. It is never given a second meaning and never reused; a code that
//! is no longer needed leaves a gap. Titles, exit statuses and explanations are in `catalogue`.

use std::fmt;

/// Kinds of errors, for scripts and for `braid help CODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Code {
    /// The command line was not understood.
    Usage = 1,
    /// Unknown RAID level.
    UnknownLevel = 2,
    /// Unknown layout for this level.
    UnknownLayout = 3,
    /// A size needs a unit.
    SizeNeedsUnit = 4,
    /// A text is not a usable size.
    SizeInvalid = 5,
    /// A text is not a usable array name.
    ArrayNameInvalid = 6,
    /// Unknown metadata version.
    UnknownMetadata = 7,
    /// The number of members does not fit the level.
    MemberCount = 8,
    /// A text is no NBD URI that can be served.
    UriInvalid = 9,
    /// A member was named twice.
    SameMemberTwice = 11,
    /// The members already hold data.
    HoldsData = 12,
    /// The name given for destruction matches nothing.
    DestroyNameMismatch = 13,
    /// No command to undo.
    NothingToUndo = 14,
    /// The record of overwritten bytes is damaged.
    UndoDamaged = 15,
    /// The overwritten bytes cannot be put back safely.
    UndoUnsafe = 16,
    /// The array's logical block is larger than a sector.
    LogicalBlockLarge = 17,
    /// The bitmap or the parity logs cannot change before the array's redundancy agrees.
    ConsistencyStays = 18,
    /// The bitmap is being changed.
    BitmapBusy = 19,
    /// No md superblock.
    NoSuperblock = 20,
    /// The superblock is damaged: its checksum does not match.
    SuperblockChecksum = 21,
    /// The superblock holds impossible values.
    SuperblockImpossible = 22,
    /// The array uses a feature that is not supported yet.
    UnsupportedFeature = 23,
    /// The array is in the middle of a reshape.
    Reshaping = 24,
    /// The array has a write journal.
    JournalNeeded = 25,
    /// The array has a partial parity log to replay.
    PplNeeded = 26,
    /// The array can only be read.
    ReadOnlyOnly = 27,
    /// The file is not this array's bitmap file.
    BitmapFileUnfit = 28,
    /// The array has too few members to run.
    TooFewMembers = 30,
    /// The array was interrupted while writing, and a member is missing.
    DirtyDegraded = 31,
    /// A member belongs to another array.
    ForeignMember = 32,
    /// The members belong to several arrays.
    SeveralArrays = 33,
    /// Two members claim the same slot.
    SlotClaimedTwice = 34,
    /// Two halves of the array have run apart.
    RanApart = 35,
    /// Members of one array disagree about the array.
    MembersDisagree = 36,
    /// Damaged superblocks may be newer than the sound ones.
    NewestDamaged = 37,
    /// The array is known to have been newer.
    OlderThanKnown = 38,
    /// The member is in use.
    MemberInUse = 40,
    /// The array cannot do without the member.
    MemberNeeded = 41,
    /// The level has no redundancy.
    NoRedundancy = 42,
    /// A degraded array cannot be checked.
    CheckDegraded = 43,
    /// Jobs are paused.
    JobsPaused = 44,
    /// A job could not be finished.
    JobRefused = 45,
    /// Recovery or a replacement has no target.
    NoSpare = 46,
    /// The job ended before it was complete.
    JobEnded = 47,
    /// The array is served read-only.
    ServedReadOnly = 48,
    /// The array has no such member.
    NoSuchMember = 49,
    /// The member does not exist.
    MemberMissing = 50,
    /// A member is neither a file nor a block device.
    MemberKind = 51,
    /// The member is too small.
    MemberTooSmall = 52,
    /// The member is shorter than its superblock says.
    MemberTruncated = 53,
    /// Permission to open a member is denied.
    MemberPermission = 54,
    /// A member returned an I/O error.
    MemberIo = 55,
    /// A member does not answer.
    MemberSilent = 56,
    /// The device is a member already.
    AlreadyMember = 57,
    /// The kernel holds the member.
    MemberBusy = 60,
    /// Another process has locked the member.
    MemberLocked = 61,
    /// The member cannot be locked.
    MemberUnlockable = 62,
    /// The address is already in use.
    SocketBusy = 70,
    /// The folder of the socket cannot be written.
    SocketFolder = 71,
    /// Refusing to listen on a network address.
    ListenNotLoopback = 72,
    /// The command given with --run failed.
    CommandFailed = 73,
    /// The operating system refused a thread, a process, a folder or a signal.
    System = 74,
    /// No array answers there.
    NotServed = 75,
    /// The system is short of memory, descriptors or threads.
    Shortage = 76,
    /// The server of the array is gone.
    ServerGone = 77,
    /// The server of the array does not answer.
    ServerSilent = 78,
    /// The control socket is another user's.
    ControlDenied = 79,
    /// The state folder cannot be written.
    StateFolder = 80,
    /// The array has lost more members than it tolerates.
    ArrayFailed = 81,
    /// Data read back differ from the data written.
    VerifyFailed = 82,
    /// Several arrays that are served have this name.
    SeveralServed = 83,
    /// There is no history of such an array.
    NoHistory = 84,
    /// Events cannot be sent to this address, which breaks a rule for hooks.
    HookInvalid = 85,
    /// The awaited state did not come in time.
    WaitedInVain = 86,
    /// The command needs a terminal.
    NoTerminal = 87,
    /// The running check does less than requested: it repairs nothing, or tries no bad blocks.
    CheckRuns = 88,
    /// The member cannot be replaced now.
    NotReplaced = 89,
    /// The command was interrupted.
    Interrupted = 90,
    /// The array cannot appear at this file.
    FileUnfit = 91,
    /// Something is mounted on the file.
    FileTaken = 92,
    /// This user has no access to FUSE.
    NoFuse = 93,
    /// There are no certificates for TLS, or they cannot be used.
    Certificates = 94,
    /// No configuration says how to serve the array.
    ConfigMissing = 95,
    /// The configuration of the array cannot be used.
    ConfigUnfit = 96,
    /// The server cannot be confined.
    NotConfined = 97,
    /// The confined server cannot open files by itself.
    FilesClosed = 98,
    /// The block device exists already.
    DeviceTaken = 99,
    /// This user has no access to ublk.
    NoUblk = 100,
    /// The overlay does not fit these members.
    OverlayUnfit = 101,
    /// The overlay is in use.
    OverlayBusy = 102,
    /// There is no overlay.
    OverlayMissing = 103,
    /// The overlay's changes are too large for an undo record.
    CommitTooLarge = 104,
    /// The original order of the members could not be found.
    NotSolved = 105,
    /// The map of a copy cannot be used.
    MapUnfit = 106,
    /// A disk cannot be copied to this image.
    ImageUnfit = 107,
    /// The backup file belongs to another reshape.
    BackupUnfit = 108,
    /// The array's metadata is not md's.
    MetadataForeign = 109,
    /// A web page of another site sent the request.
    AskedFromElsewhere = 118,
    /// Other users may write the configuration of the array.
    ConfigOfOthers = 119,
    /// A command stopped in the middle of writing these members.
    Unfinished = 120,
    /// The overlay is damaged.
    OverlayDamaged = 121,
    /// Acknowledged writes of the previous server cannot be read or written.
    AnsweredWritesKept = 122,
    /// The array's shape cannot be changed in this way, or not now.
    ShapeStays = 123,
    /// The server of a member on another host does not answer.
    MemberUnreachable = 124,
    /// The epoch of a member cannot be read.
    EpochUnreadable = 125,
    /// The store of the owner's record cannot be used.
    StoreUnusable = 126,
    /// Another host owns the array.
    OwnedElsewhere = 127,
}

impl fmt::Display for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "B{:03}", *self as u16)
    }
}
