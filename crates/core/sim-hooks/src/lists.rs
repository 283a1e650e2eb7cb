//! What can be planted, chosen and marked: names, each with one line of what it is.
//!
//! The lists are the simulator's tables, too: what is in a list and nowhere in the product is never
//! caught, never said yes to and never reached, and the simulator says so.

/// An enum whose variants have a name for people and, from their documentation, a line of text.
macro_rules! named {
    ($(#[doc = $about:literal])+ enum $list:ident {
        $($(#[doc = $text:literal])+ $variant:ident = $name:literal,)+
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $list {
            $($(#[doc = $text])+ $variant,)+
        }

        impl $list {
            /// All of them, in the order of the list.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// What it is.
            #[must_use]
            pub const fn text(self) -> &'static str {
                let text = match self {
                    $(Self::$variant => concat!($($text),+),)+
                };
                text.trim_ascii()
            }
        }
    };
}

named! {
    /// A mistake that can be planted, to see that the simulator notices it.
    enum Bug {
        /// Geometry: in left layouts P is one row late.
        LeftWalkLate = "left-walk-late",
        /// Geometry: raid10 far copies are moved on by one slot too many.
        FarShift = "far-shift",
        /// Parity: a column solved from Q is divided by the next power.
        QSolvedWrong = "q-solved-wrong",
        /// Stripe: P and Q change places when both are made anew.
        SwapPAndQ = "swap-p-and-q",
        /// Stripe: read-modify-write takes the old content for the difference.
        RmwNoDifference = "rmw-no-difference",
        /// Stripe: reconstruct-write does without what a column that is written in part keeps.
        MergeForgetsOld = "merge-forgets-old",
        /// Stripe: a batch goes on as planned although something it was to read could not be read.
        FailedReadFilled = "failed-read-filled",
        /// Stripe: a write is answered before its members are written.
        AnsweredUnwritten = "answered-unwritten",
        /// Stripe: durable writes are written as any other.
        StripeIgnoresFua = "stripe-ignores-fua",
        /// Stripe: a write that a member missed is answered before the loss is recorded (I4).
        RecordForgotten = "record-forgotten",
        /// Stripe: a failed write of a member counts as done.
        WriteErrorIgnored = "write-error-ignored",
        /// Stripe: parity of a band left half written is believed.
        InconsistencyForgotten = "inconsistency-forgotten",
        /// Stripe: parity of a dirty array is believed (the write hole).
        DirtyBelieved = "dirty-believed",
        /// Stripe: read repair writes the wrong block.
        RepairWritesWrong = "repair-writes-wrong",
        /// Stripe: a write while a member is missing leaves P as it was.
        DegradedWithoutP = "degraded-without-p",
        /// Stripe: one to which memory is handed does not hear of it.
        QueueLost = "queue-lost",
        /// Cache: writes are answered early though the level can lose no more members.
        EarlyWithoutSpare = "early-without-spare",
        /// Cache: a stripe's content is believed to be of the band that gets it next.
        OldBandBelieved = "old-band-believed",
        /// Cache: a write with FUA is answered early.
        FuaAnsweredEarly = "fua-answered-early",
        /// Cache file: a write that waits for the members and covers answered ones is not put there.
        CoverNotCached = "cover-not-cached",
        /// Cache file: one that another process left before others wrote is believed.
        StaleCacheFile = "stale-cache-file",
        /// Superblocks: a member that came is told first that it is in.
        NewcomerFirst = "newcomer-first",
        /// Jobs: what counts as done is what was asked for.
        OffsetAhead = "offset-ahead",
        /// Jobs: what a shard could not do counts as done.
        JobSkipsUndone = "job-skips-undone",
        /// Jobs: what is asked for is not taken off what is allowed.
        AllowanceUnspent = "allowance-unspent",
        /// Repair: where several columns are rotten, a sector is believed on little proof.
        WeakEvidenceBelieved = "weak-evidence-believed",
        /// Repair: of two copies that differ the first is believed.
        VoteOfTwo = "vote-of-two",
        /// Repair: parity is made to fit the data that is rotten.
        RepairWritesParity = "repair-writes-parity",
        /// Repair: a write of the band begins while it is repaired, and reads what is rotten.
        RepairLetsBatchBegin = "repair-lets-batch-begin",
        /// Repair: what was written counts as repaired without a look.
        RepairUnverified = "repair-unverified",
        /// Check: what is rotten is written again though nobody asked for it.
        CheckRepairs = "check-repairs",
        /// Background work: a band is compared while it is written.
        ComparesWhileWritten = "compares-while-written",
        /// Cache: reads do not look for what the members do not have yet.
        ReadsPastDirt = "reads-past-dirt",
        /// Cache: no notice says that an answered write was lost.
        LossUnreported = "loss-unreported",
        /// Cache: what was answered and lost reads as what the members hold.
        LostReadsOld = "lost-reads-old",
        /// Cache: a payload that is kept is given back with the answer.
        PayloadReleasedEarly = "payload-released-early",
        /// Cache: a payload that was kept is never given back.
        PayloadNeverReleased = "payload-never-released",
        /// Cache: the first member that was written is not told of before a flush.
        FlushSetForgets = "flush-set-forgets",
        /// Cache: a copy out of a payload is not waited for.
        CopyUnguarded = "copy-unguarded",
        /// Mirror: the last copy is not written.
        CopyMissed = "copy-missed",
        /// Mirror: a failed write of a copy counts as written.
        CopyErrorIgnored = "copy-error-ignored",
        /// Mirror: a write that a copy missed is answered before the loss is recorded (I4).
        MirrorAnswersEarly = "mirror-answers-early",
        /// Mirror: copies of a dirty array are all believed alike.
        CopiesBelieved = "copies-believed",
        /// Mirror: where copies may differ, a read that fails is all made, and written back, from the next copy.
        DoubtWhole = "doubt-whole",
        /// Mirror: the range lock lets overlapping writes in at once.
        LockNeverWaits = "lock-never-waits",
        /// Direct: a failed request of a member is answered as done.
        DirectErrorIgnored = "direct-error-ignored",
        /// Direct and mirror: durable writes are written as any other.
        FuaDropped = "fua-dropped",
        /// Shard: writes go through the closed gate (I3).
        GateIgnored = "gate-ignored",
        /// Shard: of the writes that waited for the gate the last is forgotten.
        GatedLost = "gated-lost",
        /// Shard: a closed gate is confirmed while writes are under way (I5).
        UndrainedConfirmed = "undrained-confirmed",
        /// Bad blocks: the log is not looked at.
        BadBlocksIgnored = "bad-blocks-ignored",
        /// Bad-block logs: what was written over a bad block is read before the log says that it is good.
        BadBlockClearedEarly = "bad-block-cleared-early",
        /// Bad-block logs: what cannot be made is not noted down, and counts as made.
        UnmadeForgotten = "unmade-forgotten",
        /// Bad-block logs: a job goes on before a log names what it could not make.
        LogsUnawaited = "logs-unawaited",
        /// Bad-block logs: a record that a sector has no room for is in its new one and out of the old by the same write.
        BadRecordsMovedAtOnce = "bad-records-moved-at-once",
        /// Array: what a client has read counts as recovered as soon as that is asked for.
        AheadBeforeMade = "ahead-before-made",
        /// Array: a shard that confirms an older view counts as having closed the gate (I5).
        EpochIgnored = "epoch-ignored",
        /// Array: a superblock that could not be written counts as written.
        SuperblockErrorIgnored = "superblock-error-ignored",
        /// Array: a flush that failed counts as done.
        FlushErrorIgnored = "flush-error-ignored",
        /// Array: the gate opens before the superblocks say so (I3).
        GateEarly = "gate-early",
        /// Array: a lost member is published without a superblock that says so (I4).
        LossUnrecorded = "loss-unrecorded",
        /// Shard: what is written to a member is not written to its replacement.
        ReplacementNotWritten = "replacement-not-written",
        /// Shard: a write is answered though the replacement has missed it, and superblocks still count it in (I4).
        ReplacementMisses = "replacement-misses",
        /// Array: a replacement takes its place before superblocks say that it holds all.
        ReplacesEarly = "replaces-early",
        /// Opening: after an interruption a replacement counts as holding what it held before.
        ReplacementTrusted = "replacement-trusted",
        /// Array: each failure is judged as if it were the only one.
        TooManyOut = "too-many-out",
        /// Array: a member that failed its flush need not be flushed again.
        FailedFlushForgotten = "failed-flush-forgotten",
        /// Array: it turns clean without a flush (I5).
        CleanUnflushed = "clean-unflushed",
        /// Array: a flush is answered and nothing is flushed.
        FlushDropped = "flush-dropped",
        /// Assembly: what is known of the array from elsewhere is not looked at.
        KnownIgnored = "known-ignored",
        /// Array: events step back also when a member was lost.
        LossCountsBack = "loss-counts-back",
        /// Array: a lost member keeps its role in the survivors' tables.
        LostStaysInTable = "lost-stays-in-table",
        /// Elevator: what is merged behind a request is forgotten.
        PartLost = "part-lost",
        /// Elevator: an entry that is held is never let go by it.
        HeldForEver = "held-for-ever",
        /// Multiplexer: a side that nothing was served of for long gets no turn of its own.
        OwedForgotten = "owed-forgotten",
        /// Multiplexer: that a client waits for the flusher counts for nothing.
        UrgentIgnored = "urgent-ignored",
        /// Requests: every piece takes its bytes from the start of the request.
        PieceFromStart = "piece-from-start",
        /// Requests: of two sectors that a write cuts only the first is read before.
        EdgeForgotten = "edge-forgotten",
        /// Requests: durable zeroes are answered without a flush.
        ZeroesUnflushed = "zeroes-unflushed",
        /// Requests: a write that is not aligned is admitted as a shared one.
        PatchesShared = "patches-shared",
        /// NBD: requests beyond the end of the export are admitted.
        EndUnchecked = "end-unchecked",
        /// NBD: a simple reply has the cookie of the request before.
        CookieOfBefore = "cookie-of-before",
        /// NBD: a simple reply of a failure says that it went well.
        ErrorUntold = "error-untold",
        /// On disk: the resync offset stays as it was.
        DirtyNotWritten = "dirty-not-written",
        /// On disk: the checksum is made before the roles are in.
        ChecksumEarly = "checksum-early",
        /// Assembly: a member may be any number of events behind, whatever the newest table says.
        StaleAccepted = "stale-accepted",
        /// Assembly: of equally new members the one that was put out counts as much as the others.
        SupersededCounts = "superseded-counts",
        /// Assembly: dirty and degraded is served.
        WriteHoleServed = "write-hole-served",
        /// Assembly: an array that was left dirty counts as clean.
        DirtyForgotten = "dirty-forgotten",
        /// Sitting out: more members sit out than the level can do without.
        SitOutUnbounded = "sit-out-unbounded",
        /// Array: a member goes away that cannot be done without, or of which no bitmap tells what it misses.
        GoesAwayAnyhow = "goes-away-anyhow",
        /// Stripe: the frame of a batch is used again while a member that left may still use it.
        LeftFrameReused = "left-frame-reused",
        /// A payload is given back while a member that left may still write it.
        LeftPayloadReturned = "left-payload-returned",
        /// Sitting out: what is made instead of an abandoned read goes where that still may write.
        AbandonedSameMemory = "abandoned-same-memory",
        /// Sitting out: reads wait behind a write that is stuck on the member.
        WaitsBehindStuck = "waits-behind-stuck",
        /// Bitmap: shards are told of a bit though the loss of a member that did not take it is not recorded.
        BitOpensUnrecorded = "bit-opens-unrecorded",
        /// Bitmap: bits are cleared while a member is missing.
        BitsClearedDegraded = "bits-cleared-degraded",
        /// Bitmap: superblocks count an event that bitmaps do not.
        BitmapBehind = "bitmap-behind",
        /// Bitmap: a shard writes without its bits.
        BitsIgnored = "bits-ignored",
        /// Bitmap: a member comes back though bits were cleared since it went.
        ClearedSinceIgnored = "cleared-since-ignored",
        /// Bitmap: bits are cleared without a flush.
        BitsClearedUnflushed = "bits-cleared-unflushed",
        /// Bitmap: a resync passes over what is in doubt.
        DoubtSkipped = "doubt-skipped",
        /// Bitmap: one that was not kept is believed at a start.
        StaleBitmapBelieved = "stale-bitmap-believed",
        /// Own log, assembly: it is believed though somebody else has written since.
        LogOutlivesOthers = "log-outlives-others",
        /// Own log, batch: the member with Q gets no entry.
        LogForgetsQ = "log-forgets-q",
        /// Logs: superblocks name those that are made before members have them.
        LogNamedUnmade = "log-named-unmade",
        /// Bitmap: one that was made says nothing of what is being written.
        MadeBitmapForgetsWrites = "made-bitmap-forgets-writes",
        /// Lockless bitmap: parity that was never made to fit is modified.
        UnsyncedModified = "unsynced-modified",
        /// Lockless bitmap: a recovery leaves out what was never synced, though clients have written there.
        UnsyncedNotRecovered = "unsynced-not-recovered",
        /// Lockless bitmap: what is written again after it was given up becomes unwritten.
        TrimOutlivesWrite = "trim-outlives-write",
        /// PPL, batch: members are written before the log says so.
        LogUnawaited = "log-unawaited",
        /// PPL, array: records are written over those whose bands are not flushed.
        LogReusedUnflushed = "log-reused-unflushed",
        /// PPL, array: a record counts as durable when the first member has its own.
        LogOnFirstMember = "log-on-first-member",
        /// Own log, array: records are written over those that count, when there is no room for both.
        LogLapOverwritten = "log-lap-overwritten",
        /// PPL: partial parity that was cut short is believed.
        PplChecksumIgnored = "ppl-checksum-ignored",
        /// Journal: a meta block counts whatever its sequence is.
        JournalSequenceIgnored = "journal-sequence-ignored",
        /// Journal: parity of pending stripes is not made part of the journal before they are written.
        JournalUnsealed = "journal-unsealed",
        /// Journal: the tail moves although a member that is missing may come back.
        JournalTailDegraded = "journal-tail-degraded",
        /// Bitmap file: superblocks go on to say that the log in it counts.
        LostFileCounts = "lost-file-counts",
        /// Bitmap file: the log of an older copy counts.
        OldFileBelieved = "old-file-believed",
        /// Journal, writing: members are written before the journal says so.
        JournalUnawaited = "journal-unawaited",
        /// Journal, writing: the tail passes what members have not flushed.
        JournalFreedUnflushed = "journal-freed-unflushed",
        /// Journal, writing: room counts as free before superblocks say that the tail is beyond it.
        JournalFreedUnsaid = "journal-freed-unsaid",
        /// Replay: with a member missing nothing is replayed.
        ReplaySkippedDegraded = "replay-skipped-degraded",
        /// Replay: partial parity is left out.
        ReplayForgetsPartial = "replay-forgets-partial",
        /// Replay: superblocks say clean although a member is missing.
        ReplaySettlesDegraded = "replay-settles-degraded",
    }
}

named! {
    /// A choice that is rare but legal; made more often, it meets what is rare.
    enum Point {
        /// A shard has one stripe, whatever it was made for.
        OneStripe = "one-stripe",
        /// Regions of one chunk row or eight sectors, so that requests have several shards.
        SmallRegions = "small-regions",
        /// A stripe takes one request at a time.
        OneRequestBatch = "one-request-batch",
        /// A batch works on the whole stripe unit, whatever it touches.
        WholeWindow = "whole-window",
        /// A batch takes read-modify-write wherever it can, whatever it costs.
        PreferRmw = "prefer-rmw",
        /// A batch takes reconstruct-write wherever it can, whatever it costs.
        PreferRcw = "prefer-rcw",
        /// A read goes through a stripe though its member could be asked directly.
        ThroughStripe = "through-stripe",
        /// A read of a mirror takes the copy that is the worst choice.
        OtherCopy = "other-copy",
        /// The gate is closed though writes are under way.
        EarlyClose = "early-close",
        /// The array waits ten times as long before it turns clean.
        LongerDelay = "longer-delay",
    }
}

named! {
    /// A path in the product that every longer run of the simulator takes.
    enum Mark {
        /// Bitmap: one is made while the array runs.
        BitmapMade = "bitmap-made",
        /// Lockless bitmap: clients gave up all of a mark, and it is unwritten.
        TrimmedIsUnwritten = "trimmed-is-unwritten",
        /// Bitmap: it was written over one that is not believed, and its superblock says stale still.
        StaleBitmapMade = "stale-bitmap-made",
        /// Bitmap: one is given up while the array runs.
        BitmapGivenUp = "bitmap-given-up",
        /// Bitmap: the file that it is in cannot be written.
        BitmapFileLost = "bitmap-file-lost",
        /// Logs: they are made while the array runs.
        LogsMade = "logs-made",
        /// Stripe: the gate is closed, and a write that does not wait for it waits for others that do.
        HeldUpByGate = "held-up-by-gate",
        /// Logs: they are given up while the array runs.
        LogsGivenUp = "logs-given-up",
        /// Bitmap: a write waits for bits.
        WriteWaitsForBits = "write-waits-for-bits",
        /// Bitmap: a bit is asked for that is not durable.
        BitIsWanted = "bit-is-wanted",
        /// Bitmap: a bit that was taken back is asked for while it is durable still.
        BitOpensAgain = "bit-opens-again",
        /// Bitmap: bits that nobody needed are taken back.
        BitsAreRevoked = "bits-are-revoked",
        /// Bitmap: a shard has writes under way that began before bits were taken back.
        BitsWaitForDrain = "bits-wait-for-drain",
        /// Bitmap: a member comes back, and keeps what no bit names.
        MemberReturns = "member-returns",
        /// Bitmap: bits are cleared.
        BitsAreCleared = "bits-are-cleared",
        /// Lockless bitmap: what no client had written is about to be.
        UnwrittenIsWritten = "unwritten-is-written",
        /// Lockless bitmap: what was written for the first time has been synced.
        UnsyncedIsSynced = "unsynced-is-synced",
        /// Lockless bitmap: a member comes, and what no client has written is not made for it.
        UnwrittenNotRecovered = "unwritten-not-recovered",
        /// Lockless bitmap: a resync leaves out what it cannot read.
        LazyLeavesOut = "lazy-leaves-out",
        /// PPL: one batch cannot write all that is queued, as no entries can say it.
        LogCutsBatch = "log-cuts-batch",
        /// PPL: what several batches want logged goes together.
        LogTakesSeveral = "log-takes-several",
        /// PPL: a record has no room for all that is wanted.
        LogIsFull = "log-is-full",
        /// Own log: a record counts beside those before it.
        LogCountsBeside = "log-counts-beside",
        /// Own log: a record begins at the start of the ring again, and older ones count beside it.
        LogGoesRound = "log-goes-round",
        /// Own log: rows are to be logged with other columns than what was written of them since the last flush.
        LogRowsMeet = "log-rows-meet",
        /// PPL: a member that comes gets an empty log.
        LogIsMade = "log-is-made",
        /// Stripe, compute: it is to be logged.
        StripeLogs = "stripe-logs",
        /// Stripe, compute: it waits for the log.
        StripeAwaitsLog = "stripe-awaits-log",
        /// Stripe, compute: it cannot be logged any more.
        StripeRefusesUnlogged = "stripe-refuses-unlogged",
        /// Job: what needs nothing is passed over.
        JobPassesOver = "job-passes-over",
        /// Stripe, any phase: something is outstanding.
        StripeWaits = "stripe-waits",
        /// Stripe, ready: no work.
        StripeIdle = "stripe-idle",
        /// Stripe, ready: work, but it is not its turn yet.
        StripePutOff = "stripe-put-off",
        /// Cache: a partial stripe is put aside to fill.
        StripeDelayed = "stripe-delayed",
        /// Cache: a partial stripe stands back behind full-width writes.
        StripeHeldBack = "stripe-held-back",
        /// Cache: a held stripe goes on.
        HeldGoesOn = "held-goes-on",
        /// Cache: a held stripe goes on because it is old.
        HeldIsOld = "held-is-old",
        /// Cache: a stripe that was put off has filled up.
        FilledGoesOn = "filled-goes-on",
        /// Cache: a delayed stripe goes on because much is dirty.
        UrgedByNeed = "urged-by-need",
        /// Cache: a delayed stripe goes on because it is old.
        UrgedByAge = "urged-by-age",
        /// Cache: a flush that found few writes has them written durably.
        WrittenDurably = "written-durably",
        /// Cache: a stripe begins since a flush is likely to come soon.
        FlushExpected = "flush-expected",
        /// Cache: a write is answered before the members have it.
        AnsweredEarly = "answered-early",
        /// Cache: a later write takes an answered one's place.
        Superseded = "superseded",
        /// Cache: a batch that lacks too much begins again with less.
        BatchNarrowed = "batch-narrowed",
        /// Cache: a read of what is dirty waits, because others are being served.
        DirtyReadWaits = "dirty-read-waits",
        /// Cache: an answered write could not be carried out.
        WriteLost = "write-lost",
        /// Cache: a read of what was answered and lost fails.
        LostIsNotRead = "lost-is-not-read",
        /// Cache: memory goes out of use.
        MemoryGivenUp = "memory-given-up",
        /// Cache: a stripe's batch gets the memory that another's left.
        MemoryTaken = "memory-taken",
        /// Cache: a stripe that waits loses what its blocks held.
        WaitingLosesMemory = "waiting-loses-memory",
        /// Cache: a read is served from what the members do not have yet.
        ReadsDirt = "reads-dirt",
        /// Stripe, ready: a batch begins.
        StripeBegins = "stripe-begins",
        /// Stripe, fill: columns are read.
        StripeReads = "stripe-reads",
        /// Stripe, fill: nothing is lacking.
        StripeComputes = "stripe-computes",
        /// Stripe, fill: more is lost than can be solved for.
        StripeRefusesUnread = "stripe-refuses-unread",
        /// Stripe, compute: members are written.
        StripeWrites = "stripe-writes",
        /// Stripe, write: every member has it.
        StripeFinishes = "stripe-finishes",
        /// Stripe, write: a member missed it and is still believed.
        StripeAwaitsRecord = "stripe-awaits-record",
        /// Stripe, await record: the loss is recorded.
        StripeFinishesHeld = "stripe-finishes-held",
        /// Stripe, await record: the loss is not recorded yet.
        StripeKeepsAwaiting = "stripe-keeps-awaiting",
        /// Stripe, await record: the array takes no more writes.
        StripeRefusesHeld = "stripe-refuses-held",
        /// Stripe: a direct read failed and goes through stripes.
        DirectReadFails = "direct-read-fails",
        /// Stripe: a column is solved from P.
        RecoversFromP = "recovers-from-p",
        /// Stripe: a column is solved from Q, P being lost too.
        RecoversFromQ = "recovers-from-q",
        /// Stripe: two columns are solved from P and Q.
        RecoversTwo = "recovers-two",
        /// Stripe: a write finds no parity column that takes writes.
        MakesNoParity = "makes-no-parity",
        /// Stripe: a batch touches sectors too far apart to take along what lies between.
        WindowHasGaps = "window-has-gaps",
        /// Stripe: a batch begins before what its blocks begin with, and they hold something.
        BlocksShiftedBack = "blocks-shifted-back",
        /// Stripe: small writes of a column are copied into its block.
        WritesGathered = "writes-gathered",
        /// Stripe: several writes of a column go side by side from their payloads.
        WritesSideBySide = "writes-side-by-side",
        /// Stripe: parity is made from all data.
        ReconstructsParity = "reconstructs-parity",
        /// Stripe: parity follows what changed.
        ModifiesParity = "modifies-parity",
        /// Stripe: a column that could not be read is written again.
        RepairsStripe = "repairs-stripe",
        /// Stripe: a band is left half written and its parity not believed again.
        ParityInconsistent = "parity-inconsistent",
        /// Stripe: a member missed a write.
        MissesWrite = "misses-write",
        /// Stripe: it may begin, and waits for memory.
        WaitsForMemory = "waits-for-memory",
        /// Stripe: memory goes from a batch that is over to a stripe that waits.
        HandsMemoryOver = "hands-memory-over",
        /// Stripe: it has memory, and may not begin any more.
        HandedOverInVain = "handed-over-in-vain",
        /// Mirror: a copy could not be read.
        CopyFails = "copy-fails",
        /// Mirror: where copies may differ, a read that failed is made again in halves.
        DoubtHalved = "doubt-halved",
        /// Mirror: no copy can be read.
        NoCopyLeft = "no-copy-left",
        /// Mirror: a copy that could not be read is written again.
        CopyRepaired = "copy-repaired",
        /// Mirror: a write that a copy missed waits for the record.
        MirrorAwaitsRecord = "mirror-awaits-record",
        /// Mirror: a write that a copy missed is answered after the record.
        MirrorFinishesHeld = "mirror-finishes-held",
        /// Mirror: a write fails, since no copy may miss it any more.
        MirrorRefuses = "mirror-refuses",
        /// Mirror: a range is taken, and a write or repair waits for it.
        WaitsForRange = "waits-for-range",
        /// Array: a shard confirms a view that is not the newest.
        OldEpochConfirmed = "old-epoch-confirmed",
        /// Array: a shard asks for the gate.
        GateAsked = "gate-asked",
        /// Array: superblocks say active, and the gate opens.
        TurnsActive = "turns-active",
        /// Array: superblocks are about to say clean.
        TurnsClean = "turns-clean",
        /// Array: a write comes while the gate is being closed, and opens it again.
        CloseCrossed = "close-crossed",
        /// Array: survivors say that a member is out; then it is published.
        LossRecorded = "loss-recorded",
        /// Array: another member fails while superblocks are written; they are written again.
        LossWhileRecording = "loss-while-recording",
        /// Array: a member failed a flush; its loss is recorded, then the flush is run again.
        FlushAgain = "flush-again",
        /// Array: one failure too many, and no writes any more.
        BreaksDown = "breaks-down",
        /// Array: told to stop while active, it closes the gate.
        StopsClosing = "stops-closing",
        /// Array: events step back with clean.
        EventsStepBack = "events-step-back",
        /// Shard: a write waits for the gate.
        GatedWrite = "gated-write",
        /// Shard: a write that waited for the gate is refused.
        GatedRefused = "gated-refused",
        /// Shard: its request for the gate crossed a closed view, and it asks again.
        AskedAgain = "asked-again",
        /// Shard: a closed gate is not confirmed, since writes are under way.
        CloseWaitsForDrain = "close-waits-for-drain",
        /// Multiplexer: reads wait while the flusher has its slice.
        ReadsHeld = "reads-held",
        /// Multiplexer: writes wait while the readers have their slice.
        WritesHeld = "writes-held",
        /// Multiplexer: a side goes in the other's slice, which that does not use.
        SliceGivenAway = "slice-given-away",
        /// Multiplexer: a side that nothing was served of for long goes alone.
        TurnOwed = "turn-owed",
        /// Multiplexer: a turn that was owed could not be used, and passes on.
        OwedTurnPassedOn = "owed-turn-passed-on",
        /// Array: a member begins to sit out.
        SitsOut = "sits-out",
        /// Array: a member that sat out is read again.
        ComesBack = "comes-back",
        /// Array: a member is slow, but cannot be done without.
        SlowButNeeded = "slow-but-needed",
        /// A read straight into a payload is under way on a member that begins to sit out, and abandoned.
        DirectReadAbandoned = "direct-read-abandoned",
        /// An abandoned read comes back.
        LateRead = "late-read",
        /// Stripe: a read begins to be made from the other members.
        ReadReconstructs = "read-reconstructs",
        /// Background work: a band is read whole.
        WorkBegins = "work-begins",
        /// Background work: parity is not what the data makes it.
        ParityDiffers = "parity-differs",
        /// Stripe, compute: background work gives the band up.
        WriteTakesBand = "write-takes-band",
        /// Background work: begun again after a write that waited for its band.
        WorkGivesWay = "work-gives-way",
        /// Background work: put off, since a member sits out.
        WorkSitsOut = "work-sits-out",
        /// Array: a resync begins.
        ResyncBegins = "resync-begins",
        /// Array: a recovery begins.
        RecoveryBegins = "recovery-begins",
        /// Array: a check begins.
        CheckBegins = "check-begins",
        /// Array: a job has done all, and that is saved.
        JobCompleted = "job-completed",
        /// A member comes that is to be filled as well: the job ends, and one of both begins.
        JobIsJoined = "job-is-joined",
        /// A recovery makes what a client has read before its turn.
        RecoversWhatIsRead = "recovers-what-is-read",
        /// A job asks by blocks for what could not be made as a whole.
        JobAsksByBlocks = "job-asks-by-blocks",
        /// A bad-block log is to name what nobody can make.
        BadBlockMarked = "bad-block-marked",
        /// A bad-block log is to name a range no more: it has been written.
        BadBlockCleared = "bad-block-cleared",
        /// A sector of a bad-block log has no room for what is left of its records: one is written into another first.
        BadBlockMoved = "bad-block-moved",
        /// Of a bad-block log only the sectors that change are written.
        BadBlockLogInPart = "bad-block-log-in-part",
        /// A member did not take again what it holds badly: its log is to name it.
        MendFails = "mend-fails",
        /// There is no room in a bad-block log, or no log.
        BadBlockLogFull = "bad-block-log-full",
        /// Array: a job could not be finished.
        JobRefused = "job-refused",
        /// Array: a job ends before it is over, to go on another time.
        JobInterrupted = "job-interrupted",
        /// Array: a device becomes a member while it runs.
        MemberAdded = "member-added",
        /// Array: a person says that a member fails.
        MemberFailedByPerson = "member-failed-by-person",
        /// Array: a spare takes the place of a member that is missing.
        SpareTaken = "spare-taken",
        /// Array: a person wants a member replaced.
        ReplacementWanted = "replacement-wanted",
        /// Array: a member begins to be copied to its replacement.
        ReplaceBegins = "replace-begins",
        /// Array: a replacement fails before it has the place.
        ReplacementLost = "replacement-lost",
        /// Array: a member fails, and its replacement steps in, to be recovered.
        ReplacementStepsIn = "replacement-steps-in",
        /// Array: a member has been replaced.
        Replaced = "replaced",
        /// Shard: a replacement has missed a write.
        ReplacementMissesWrite = "replacement-misses-write",
        /// Shard: a write has waited for a view that says which of a member and its replacement is in.
        PairSettledByView = "pair-settled-by-view",
        /// Background work: what cannot be copied is made of the others.
        CopyIsMade = "copy-is-made",
        /// Background work: a copy is not what the first one is.
        CopiesDiffer = "copies-differ",
        /// Background work: parity is made from the data.
        ParityRemade = "parity-remade",
        /// Background work: columns that are wrong, or could not be read, are made from the others.
        ColumnsMended = "columns-mended",
        /// Background work: what is wrong is known, and a write of its band goes first.
        MendGivesWay = "mend-gives-way",
        /// Background work: a column is named.
        RotLocated = "rot-located",
        /// Background work: columns disagree, and none is named.
        RotUnknown = "rot-unknown",
        /// Background work: what was written again is read again.
        MendReadAgain = "mend-read-again",
        /// Background work: what could not be read is made of the others, and compared.
        CheckSolves = "check-solves",
        /// Array: a repair begins.
        RepairBegins = "repair-begins",
        /// Background work leaves out what cannot be made and is noted as bad.
        WorkGivenUp = "work-given-up",
        /// Background work: a column cannot be read.
        WorkRefused = "work-refused",
        /// Stripe: the same while the stripe of its band is stuck in a write.
        ReadsWhileStuck = "reads-while-stuck",
        /// Stripe: a read waits to begin, since its band is being written.
        ReadWaitsForBand = "read-waits-for-band",
        /// Stripe: a write waits for reads of its band.
        WriteWaitsForReads = "write-waits-for-reads",
        /// Stripe: a batch is ready to be written, and waits for superblocks that say so.
        WriteWaitsForIntent = "write-waits-for-intent",
        /// Stripe: a batch does not begin until reads that wait for its band have.
        StripeLetsReadsIn = "stripe-lets-reads-in",
        /// Stripe: a read that lacks too much goes on with one block, and the rest by itself.
        ReadDivided = "read-divided",
        /// Stripe: more is lost than a read can solve for.
        ReadRefused = "read-refused",
        /// Stripe: a read cannot be made around the members that sit out or are being written, and insists.
        AroundFails = "around-fails",
        /// Stripe: a read that waits for a member that has begun to sit out is left to it, and begins anew.
        ReadAbandoned = "read-abandoned",
        /// Array: a member has not answered for too long, and goes away.
        GoesAway = "goes-away",
        /// Array: the same, but it cannot be done without.
        SilentButNeeded = "silent-but-needed",
        /// Array: a member that is away cannot come back, and has failed.
        StaysAway = "stays-away",
        /// Array: a member that was away has answered, and comes back.
        ReturnsFromAway = "returns-from-away",
        /// A request under way at a member that leaves the array ends for its owner.
        RequestLeft = "request-left",
        /// And ends at the member, later.
        LateAnswer = "late-answer",
        /// Stripe: a batch that was reading such a member begins again.
        StripeRestarts = "stripe-restarts",
        /// Stripe: the frame of a batch is kept from others, since such a member may still use it.
        FrameSetApart = "frame-set-apart",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_everything_is_explained() {
        let bugs = Bug::ALL.iter().map(|bug| (bug.name(), bug.text()));
        let points = Point::ALL.iter().map(|point| (point.name(), point.text()));
        let marks = Mark::ALL.iter().map(|mark| (mark.name(), mark.text()));
        let all: Vec<(&str, &str)> = bugs.chain(points).chain(marks).collect();
        let names: std::collections::BTreeSet<&str> = all.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|(name, text)| text.ends_with('.') && !name.contains(' ')));
    }
}
