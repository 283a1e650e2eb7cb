//! The simulator's planted bugs, rare choices and marks: a name and one line of text for each.
//!
//! The simulator prints these lists as tables. The tables show an entry that the product does not
//! use: its bug is never caught, its choice never made, its mark never reached.

/// Declares an enum. Each variant has a name, and its documentation is its line of text.
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
            /// All entries, in the order of the list.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name for commands and tables.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// The line of text that describes the entry.
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
    /// A mistake in the product that the simulator plants and must notice.
    enum Bug {
        /// Geometry: a left layout puts P in the slot of the next row.
        LeftWalkLate = "left-walk-late",
        /// Geometry: RAID-10 shifts each far copy by one slot too many.
        FarShift = "far-shift",
        /// Parity: the kernel divides a column solved from Q by the next column's power.
        QSolvedWrong = "q-solved-wrong",
        /// Stripe: a batch that computes both parities swaps P and Q.
        SwapPAndQ = "swap-p-and-q",
        /// Stripe: read-modify-write adds the old data to parity instead of the difference.
        RmwNoDifference = "rmw-no-difference",
        /// Stripe: reconstruct-write does not read the kept part of a partly written column.
        MergeForgetsOld = "merge-forgets-old",
        /// Stripe: a batch continues as planned although one of its reads failed.
        FailedReadFilled = "failed-read-filled",
        /// Stripe: a batch acknowledges its writes before the members have them.
        AnsweredUnwritten = "answered-unwritten",
        /// Stripe: a batch writes its FUA writes without FUA.
        StripeIgnoresFua = "stripe-ignores-fua",
        /// Stripe: a write that a member missed is acknowledged before the loss is recorded (I4).
        RecordForgotten = "record-forgotten",
        /// Stripe: a batch counts a member's failed write as done.
        WriteErrorIgnored = "write-error-ignored",
        /// Stripe: a batch that stops half written leaves its band's parity trusted.
        InconsistencyForgotten = "inconsistency-forgotten",
        /// Stripe: a solve trusts the parity of a dirty array (the write hole).
        DirtyBelieved = "dirty-believed",
        /// Stripe: read repair writes the next slot's block to the member.
        RepairWritesWrong = "repair-writes-wrong",
        /// Stripe: a write to a degraded array leaves the old P.
        DegradedWithoutP = "degraded-without-p",
        /// Stripe: the scheduler does not wake the stripe to which it hands memory.
        QueueLost = "queue-lost",
        /// Cache: a write is acknowledged early although the level can lose no more members.
        EarlyWithoutSpare = "early-without-spare",
        /// Cache: a stripe takes the old band's content for that of its new band.
        OldBandBelieved = "old-band-believed",
        /// Cache: the stripe acknowledges a FUA write early.
        FuaAnsweredEarly = "fua-answered-early",
        /// Cache file: the file lacks an unacknowledged write that covers acknowledged ones.
        CoverNotCached = "cover-not-cached",
        /// Cache file: the start trusts an old file although another server wrote to the array
        /// since.
        StaleCacheFile = "stale-cache-file",
        /// Superblocks: a new member's superblock is written before the others name the member.
        NewcomerFirst = "newcomer-first",
        /// Jobs: the saved offset covers ranges that are requested but not done.
        OffsetAhead = "offset-ahead",
        /// Jobs: a job counts a range as done although the shard did not do it.
        JobSkipsUndone = "job-skips-undone",
        /// Jobs: a job does not take its requests off its allowance.
        AllowanceUnspent = "allowance-unspent",
        /// Repair: weak evidence names a sector's wrong column although several columns are rotten.
        WeakEvidenceBelieved = "weak-evidence-believed",
        /// Repair: the vote believes the first of two copies that differ.
        VoteOfTwo = "vote-of-two",
        /// Repair: the job rewrites parity so that it fits rotten data.
        RepairWritesParity = "repair-writes-parity",
        /// Repair: a batch begins in a band under repair, and reads its rotten columns.
        RepairLetsBatchBegin = "repair-lets-batch-begin",
        /// Repair: the job reports a sector as repaired without reading it again.
        RepairUnverified = "repair-unverified",
        /// Check: a check rewrites rotten sectors, which only a repair may do.
        CheckRepairs = "check-repairs",
        /// Background work: a job compares a band while a batch writes it.
        ComparesWhileWritten = "compares-while-written",
        /// Cache: a read ignores cached data that the members lack.
        ReadsPastDirt = "reads-past-dirt",
        /// Cache: the stripe does not report that an acknowledged write was lost.
        LossUnreported = "loss-unreported",
        /// Cache: a read of lost acknowledged data returns the members' old data.
        LostReadsOld = "lost-reads-old",
        /// Cache: the shard releases a kept payload with the answer.
        PayloadReleasedEarly = "payload-released-early",
        /// Cache: the shard never releases a kept payload.
        PayloadNeverReleased = "payload-never-released",
        /// Cache: the shard does not report slot 0's member as written before a flush.
        FlushSetForgets = "flush-set-forgets",
        /// Cache: the stripe does not wait for a copy out of a payload.
        CopyUnguarded = "copy-unguarded",
        /// Mirror: a write leaves out the last copy.
        CopyMissed = "copy-missed",
        /// Mirror: a write counts a copy that failed as written.
        CopyErrorIgnored = "copy-error-ignored",
        /// Mirror: a write that a copy missed is acknowledged before the loss is recorded (I4).
        MirrorAnswersEarly = "mirror-answers-early",
        /// Mirror: a read of a dirty array trusts any copy.
        CopiesBelieved = "copies-believed",
        /// Mirror: where copies may differ, a failed read reads and repairs all from the next copy.
        DoubtWhole = "doubt-whole",
        /// Mirror: the range lock admits overlapping writes at once.
        LockNeverWaits = "lock-never-waits",
        /// Direct: the shard answers a member's failed request as done.
        DirectErrorIgnored = "direct-error-ignored",
        /// Direct and mirror: the shard writes FUA writes without FUA.
        FuaDropped = "fua-dropped",
        /// Shard: writes pass the closed gate (I3).
        GateIgnored = "gate-ignored",
        /// Shard: the shard forgets the writes that waited for the gate.
        GatedLost = "gated-lost",
        /// Shard: the shard confirms a closed gate while writes are in flight (I5).
        UndrainedConfirmed = "undrained-confirmed",
        /// Bad blocks: shards ignore the bad-block logs.
        BadBlocksIgnored = "bad-blocks-ignored",
        /// Bad-block logs: a rewritten bad block is readable before the log on disk drops it.
        BadBlockClearedEarly = "bad-block-cleared-early",
        /// Bad-block logs: a job counts sectors that it cannot make as made, and logs none.
        UnmadeForgotten = "unmade-forgotten",
        /// Bad-block logs: a job continues before a log names the sectors that it cannot make.
        LogsUnawaited = "logs-unawaited",
        /// Bad-block logs: one write moves a record from its old sector into its new sector.
        BadRecordsMovedAtOnce = "bad-records-moved-at-once",
        /// Array: a range that a client read counts as recovered as soon as it is requested.
        AheadBeforeMade = "ahead-before-made",
        /// Array: a shard that confirms an older view counts as having closed the gate (I5).
        EpochIgnored = "epoch-ignored",
        /// Array: the array counts a failed superblock write as written.
        SuperblockErrorIgnored = "superblock-error-ignored",
        /// Array: the array counts a failed flush as done.
        FlushErrorIgnored = "flush-error-ignored",
        /// Array: the gate opens before superblocks say active (I3).
        GateEarly = "gate-early",
        /// Array: the array publishes a member's loss before superblocks record it (I4).
        LossUnrecorded = "loss-unrecorded",
        /// Shard: the shard writes to a member, but not to its replacement.
        ReplacementNotWritten = "replacement-not-written",
        /// Shard: a write is acknowledged although a replacement that counts missed it (I4).
        ReplacementMisses = "replacement-misses",
        /// Array: a replacement takes its slot before superblocks say that it holds all.
        ReplacesEarly = "replaces-early",
        /// Opening: a replacement keeps its recovery offset after an unclean stop.
        ReplacementTrusted = "replacement-trusted",
        /// Array: the array judges each failure as if no other member were lost.
        TooManyOut = "too-many-out",
        /// Array: the array does not flush a member again after its failed flush.
        FailedFlushForgotten = "failed-flush-forgotten",
        /// Array: the array turns clean without a flush (I5).
        CleanUnflushed = "clean-unflushed",
        /// Array: the array acknowledges a flush and flushes no member.
        FlushDropped = "flush-dropped",
        /// Assembly: assembly ignores the recorded last state of the array.
        KnownIgnored = "known-ignored",
        /// Array: events step back although a member was lost.
        LossCountsBack = "loss-counts-back",
        /// Array: the survivors' role tables keep a lost member's role.
        LostStaysInTable = "lost-stays-in-table",
        /// Elevator: a merge forgets the request that it appends.
        PartLost = "part-lost",
        /// Elevator: the elevator holds entries beyond their time limit.
        HeldForEver = "held-for-ever",
        /// Multiplexer: starved reads or starved writes get no turn of their own.
        OwedForgotten = "owed-forgotten",
        /// Multiplexer: the slices ignore a client that waits for the flusher.
        UrgentIgnored = "urgent-ignored",
        /// Requests: every piece takes its bytes from the start of the payload.
        PieceFromStart = "piece-from-start",
        /// Requests: a write that cuts two sectors reads only the first of them.
        EdgeForgotten = "edge-forgotten",
        /// Requests: durable zeroes are acknowledged without a flush.
        ZeroesUnflushed = "zeroes-unflushed",
        /// Requests: admission lets an unaligned write run beside others.
        PatchesShared = "patches-shared",
        /// NBD: the server admits requests beyond the end of the export.
        EndUnchecked = "end-unchecked",
        /// NBD: a reply carries a cookie that is one too low.
        CookieOfBefore = "cookie-of-before",
        /// NBD: a simple reply reports a failure as success.
        ErrorUntold = "error-untold",
        /// On disk: a superblock keeps its old resync offset.
        DirtyNotWritten = "dirty-not-written",
        /// On disk: a superblock's checksum is computed before its roles are written.
        ChecksumEarly = "checksum-early",
        /// Assembly: assembly accepts a member however many events it is behind.
        StaleAccepted = "stale-accepted",
        /// Assembly: a member that an equally new member put out counts as much as that member.
        SupersededCounts = "superseded-counts",
        /// Assembly: assembly serves a dirty and degraded array.
        WriteHoleServed = "write-hole-served",
        /// Assembly: an array that stopped dirty counts as clean.
        DirtyForgotten = "dirty-forgotten",
        /// Sitting out: more members sit out than the level tolerates.
        SitOutUnbounded = "sit-out-unbounded",
        /// Array: a member goes away although it is needed, or no bitmap tracks its misses.
        GoesAwayAnyhow = "goes-away-anyhow",
        /// Stripe: a batch reuses a frame that a member that left may still access.
        LeftFrameReused = "left-frame-reused",
        /// Shard: the shard returns a payload that a member that left may still write.
        LeftPayloadReturned = "left-payload-returned",
        /// Sitting out: computed data goes to memory that an abandoned read may still write.
        AbandonedSameMemory = "abandoned-same-memory",
        /// Sitting out: reads wait behind a write that is stuck on the member.
        WaitsBehindStuck = "waits-behind-stuck",
        /// Bitmap: shards get a bit before the loss of a member that lacks it is recorded.
        BitOpensUnrecorded = "bit-opens-unrecorded",
        /// Bitmap: the array clears bits while a member is missing.
        BitsClearedDegraded = "bits-cleared-degraded",
        /// Bitmap: superblocks count an event that the bitmaps lack.
        BitmapBehind = "bitmap-behind",
        /// Bitmap: a shard writes without its bits.
        BitsIgnored = "bits-ignored",
        /// Bitmap: a member returns although bits were cleared since it left.
        ClearedSinceIgnored = "cleared-since-ignored",
        /// Bitmap: the array clears bits without a flush.
        BitsClearedUnflushed = "bits-cleared-unflushed",
        /// Bitmap: a resync leaves out a region in doubt.
        DoubtSkipped = "doubt-skipped",
        /// Bitmap: the start trusts a bitmap that was not kept up to date.
        StaleBitmapBelieved = "stale-bitmap-believed",
        /// Own log, assembly: the log is trusted although other servers wrote to the array since.
        LogOutlivesOthers = "log-outlives-others",
        /// Own log, batch: a batch logs no entry for the member with Q.
        LogForgetsQ = "log-forgets-q",
        /// Logs: superblocks name new logs before members have them.
        LogNamedUnmade = "log-named-unmade",
        /// Bitmap: a bitmap that is made on an active array lacks the writes in flight.
        MadeBitmapForgetsWrites = "made-bitmap-forgets-writes",
        /// Lockless bitmap: a batch modifies parity that was never synced.
        UnsyncedModified = "unsynced-modified",
        /// Lockless bitmap: a recovery leaves out unsynced regions that clients have written.
        UnsyncedNotRecovered = "unsynced-not-recovered",
        /// Lockless bitmap: a region that is written again after a trim becomes unwritten.
        TrimOutlivesWrite = "trim-outlives-write",
        /// PPL, batch: a batch writes members before the log is durable.
        LogUnawaited = "log-unawaited",
        /// PPL, array: records overwrite records whose bands are not flushed.
        LogReusedUnflushed = "log-reused-unflushed",
        /// PPL, array: a record counts as durable when the first member has its own.
        LogOnFirstMember = "log-on-first-member",
        /// Own log, array: records overwrite valid records if the ring lacks room for both.
        LogLapOverwritten = "log-lap-overwritten",
        /// PPL: the reader accepts torn partial parity.
        PplChecksumIgnored = "ppl-checksum-ignored",
        /// Journal: the reader accepts a meta block with any sequence number.
        JournalSequenceIgnored = "journal-sequence-ignored",
        /// Journal: the replay writes pending stripes before the journal has their parity.
        JournalUnsealed = "journal-unsealed",
        /// Journal: the replay moves the tail although a missing member may return.
        JournalTailDegraded = "journal-tail-degraded",
        /// Bitmap file: superblocks still say that the log in a lost file counts.
        LostFileCounts = "lost-file-counts",
        /// Bitmap file: assembly trusts the log of an older copy.
        OldFileBelieved = "old-file-believed",
        /// Journal, writing: a batch writes members before the journal is durable.
        JournalUnawaited = "journal-unawaited",
        /// Journal, writing: the tail passes writes that members have not flushed.
        JournalFreedUnflushed = "journal-freed-unflushed",
        /// Journal, writing: room counts as free before superblocks name the new tail.
        JournalFreedUnsaid = "journal-freed-unsaid",
        /// Replay: the replay writes nothing if a member is missing.
        ReplaySkippedDegraded = "replay-skipped-degraded",
        /// Replay: the replay leaves out partial parity.
        ReplayForgetsPartial = "replay-forgets-partial",
        /// Replay: superblocks say clean although a member is missing.
        ReplaySettlesDegraded = "replay-settles-degraded",
        /// Ownership: a server accepts a claim of the same epoch by another owner.
        EpochOwnerIgnored = "epoch-owner-ignored",
        /// Ownership: a server serves a higher epoch before the mark of that epoch is durable.
        MarkUnwritten = "mark-unwritten",
        /// Ownership: a claim is answered before the device has ended older requests.
        FenceUndrained = "fence-undrained",
        /// Ownership: a server still serves requests of an older claim.
        OldEpochServed = "old-epoch-served",
        /// Ownership: a server still serves requests of the holder's earlier sessions.
        OlderSessionServed = "older-session-served",
        /// Ownership: a further claim forgets the requests that the claim before it waited for.
        DrainForgotten = "drain-forgotten",
        /// Ownership: an owner whose members are all silent answers reads for ever.
        LeaseOff = "lease-off",
        /// Ownership: an owner answers reads until the last member falls silent.
        LeaseOfLast = "lease-of-last",
        /// Ownership: a swap that lost its answer counts as done if the record's epoch fits.
        NonceIgnored = "nonce-ignored",
        /// Ownership: members that the record has given up count as claimed.
        RecordIgnored = "record-ignored",
        /// Ownership: a store that lost epochs is believed about members in sync.
        StoreWentBackIgnored = "store-went-back-ignored",
        /// Ownership: an heir serves with fewer members than could run the array.
        TooFewClaimed = "too-few-claimed",
        /// Ownership: an heir takes every member that it has claimed as in sync, without recovery.
        ClaimedJoins = "claimed-joins",
        /// Ownership: a slower heir replaces the record of a faster heir in the store.
        SwapForced = "swap-forced",
        /// Ownership: an heir serves without checking that the store still has its record.
        SettledUnswapped = "settled-unswapped",
        /// Ownership: a member claimed for a lower epoch counts as claimed for a higher epoch.
        LowerClaimCounts = "lower-claim-counts",
        /// Ownership: an heir believes an old record that says that the owner has ended.
        OldReleaseBelieved = "old-release-believed",
        /// Ownership: members that an heir has not claimed stay in sync in the record.
        UnclaimedKept = "unclaimed-kept",
        /// Ownership: an heir does not wait for the old owner's lease of reads.
        LeaseUnawaited = "lease-unawaited",
        /// Ownership: superblocks leave a member out before a swap has given it up.
        GivenUpUnswapped = "given-up-unswapped",
        /// Ownership: superblocks leave out a member that a swap without a result lets in.
        PendingSwapIgnored = "pending-swap-ignored",
        /// Ownership: an owner continues after another owner has swapped the record.
        LostSwapIgnored = "lost-swap-ignored",
        /// Ownership: an owner continues after a member's server has refused the owner.
        RefusalIgnored = "refusal-ignored",
        /// Reshape: the position is recorded before the moved sectors are flushed.
        PositionUnflushed = "position-unflushed",
        /// Reshape: the border moves before superblocks have the new position.
        BorderAhead = "border-ahead",
        /// Reshape: clients' writes to the moving window are not held.
        WindowUnheld = "window-unheld",
        /// Reshape: a window does not wait for requests that began before it.
        EarlierUnawaited = "earlier-unawaited",
        /// Reshape: sectors right behind the border are served by the wrong shape.
        BorderWrongSide = "border-wrong-side",
        /// Reshape: a window is one step longer than the gap has room for.
        WindowTooLong = "window-too-long",
        /// Reshape: backwards, a window is one step longer than the gap has room for.
        WindowTooLow = "window-too-low",
        /// Reshape: members beyond the new slots become spares before their data has moved.
        SlotsEndEarly = "slots-end-early",
        /// Reshape: an array loses sectors that clients still use.
        SmallerThanUsed = "smaller-than-used",
        /// Reshape: the new part of a larger array is not written with zeroes.
        NewPartUnwritten = "new-part-unwritten",
        /// Reshape: the recorded position is one step ahead of the moved sectors.
        PositionAhead = "position-ahead",
        /// Reshape: a window counts as moved although one of its pieces failed.
        FailedPieceMoved = "failed-piece-moved",
        /// Reshape: a reshape that turns round forgets its position.
        TurnForgetsPosition = "turn-forgets-position",
        /// Reshape: the change of shape is reported before all superblocks have it.
        ShapeReportedEarly = "shape-reported-early",
        /// Reshape: reads of the old shape rewrite unreadable sectors.
        OldShapeMends = "old-shape-mends",
        /// Reshape: a piece does not report its sectors that no member gives.
        LostSectorsUnsaid = "lost-sectors-unsaid",
        /// Reshape: bad-block logs name a lost sector, but not the parity of its row.
        LostParityUnnamed = "lost-parity-unnamed",
        /// Reshape: bad-block logs name a lost sector at its position in the old shape.
        LostMisplaced = "lost-misplaced",
        /// Reshape: the position is recorded before bad-block logs name the lost sectors behind it.
        LostUnawaited = "lost-unawaited",
        /// Reshape: the border passes lost sectors before shards know that logs name them.
        LostUntold = "lost-untold",
        /// Reshape: sectors whose parity is in doubt count as lost.
        LostInDoubt = "lost-in-doubt",
        /// Reshape: a healed sector of the new shape leaves the log at its position in the old.
        ClearedAtOldPlace = "cleared-at-old-place",
        /// Reshape: a window in place counts as a window with room in the gap.
        InPlaceUnseen = "in-place-unseen",
        /// Reshape: windows in place continue behind the part that assembly calls at risk.
        InPlaceBehindRisk = "in-place-behind-risk",
        /// Reshape: reads of a window in place continue while the window is overwritten.
        ReadsInPlaceUnheld = "reads-in-place-unheld",
        /// Reshape: a window in place is overwritten although its copy failed.
        CopyFailureIgnored = "copy-failure-ignored",
        /// Reshape: after a restart the copied window is read from members instead of its copy.
        CopyForgotten = "copy-forgotten",
        /// Reshape: a window in place that failed midway is served from the old shape.
        StuckWindowServed = "stuck-window-served",
        /// Reshape: the reshape turns round while a window moves.
        TurnMidWindow = "turn-mid-window",
        /// Reshape: a turn behind the sectors of both shapes keeps its position.
        TurnBeyondSize = "turn-beyond-size",
        /// Reshape: the last window is never moved.
        LastWindowUnmoved = "last-window-unmoved",
        /// Reshape: the sectors behind the last moved sectors are not zeroed.
        LastRowUnzeroed = "last-row-unzeroed",
        /// Reshape: the reshape turns round within a row of the old shape.
        TurnWithinRow = "turn-within-row",
        /// Reshape: at the end superblocks keep the old start of the data.
        EndForgetsMove = "end-forgets-move",
        /// Reshape: the new part of larger members counts as in sync.
        LargerPartInSync = "larger-part-in-sync",
        /// Reshape: a RAID-5 that becomes a RAID-6 keeps its layout number.
        TakeOverKeepsLayout = "take-over-keeps-layout",
        /// Reshape: the data of new members does not move.
        NewcomerStaysPut = "newcomer-stays-put",
        /// Opening: the border between the shapes stands as if no window had moved.
        BorderNotResumed = "border-not-resumed",
        /// Opening: a spare that missed the end of a reshape keeps its old shape.
        SpareKeepsShape = "spare-keeps-shape",
        /// Assembly: a reshape whose beginning was cut short is not levelled.
        TornBeginKept = "torn-begin-kept",
        /// Assembly: a member that missed the end of a reshape keeps the old start of its data.
        TornEndOldStart = "torn-end-old-start",
        /// Assembly: a member that missed a turn forgets where its data moves to.
        TurnForgetsOffset = "turn-forgets-offset",
        /// Assembly: a member that missed a position keeps its own position.
        TornPositionKept = "torn-position-kept",
    }
}

named! {
    /// A rare but legal choice; the simulator makes it more often, to reach rare states.
    enum Point {
        /// A shard has memory for one stripe, whatever its settings.
        OneStripe = "one-stripe",
        /// Regions have one chunk row or eight sectors, so that requests span several shards.
        SmallRegions = "small-regions",
        /// A batch takes one request at a time.
        OneRequestBatch = "one-request-batch",
        /// A batch or read works on the whole stripe unit, whatever it touches.
        WholeWindow = "whole-window",
        /// A batch takes read-modify-write where possible, at any cost.
        PreferRmw = "prefer-rmw",
        /// A batch takes reconstruct-write where possible, at any cost.
        PreferRcw = "prefer-rcw",
        /// A read goes through a stripe although its member is readable.
        ThroughStripe = "through-stripe",
        /// A mirror's read takes the last readable copy.
        OtherCopy = "other-copy",
        /// The array closes the gate while writes are in flight.
        EarlyClose = "early-close",
        /// The array waits ten times as long before it turns clean.
        LongerDelay = "longer-delay",
    }
}

named! {
    /// A path in the product that every longer run of the simulator takes.
    enum Mark {
        /// Bitmap: the array makes a bitmap while it runs.
        BitmapMade = "bitmap-made",
        /// Lockless bitmap: a region that clients trimmed as a whole becomes unwritten.
        TrimmedIsUnwritten = "trimmed-is-unwritten",
        /// Bitmap: a new bitmap replaces an untrusted one, and its superblock still says stale.
        StaleBitmapMade = "stale-bitmap-made",
        /// Bitmap: the array drops its bitmap while it runs.
        BitmapGivenUp = "bitmap-given-up",
        /// Bitmap: the bitmap's file is not writable.
        BitmapFileLost = "bitmap-file-lost",
        /// Logs: the array makes logs while it runs.
        LogsMade = "logs-made",
        /// Stripe: the gate is closed, and all stripes in use hold writes that wait for the gate.
        HeldUpByGate = "held-up-by-gate",
        /// Logs: the array drops its logs while it runs.
        LogsGivenUp = "logs-given-up",
        /// Bitmap: a write waits for its bits.
        WriteWaitsForBits = "write-waits-for-bits",
        /// Bitmap: a shard requests a bit that is not durable.
        BitIsWanted = "bit-is-wanted",
        /// Bitmap: a shard requests a revoked bit that is still durable.
        BitOpensAgain = "bit-opens-again",
        /// Bitmap: the array revokes idle bits.
        BitsAreRevoked = "bits-are-revoked",
        /// Bitmap: a shard has writes in flight from before a revocation.
        BitsWaitForDrain = "bits-wait-for-drain",
        /// Bitmap: a member returns and keeps all data that no bit names.
        MemberReturns = "member-returns",
        /// Bitmap: the array clears bits.
        BitsAreCleared = "bits-are-cleared",
        /// Lockless bitmap: a client is about to write an unwritten region.
        UnwrittenIsWritten = "unwritten-is-written",
        /// Lockless bitmap: a job synced a region after its first write.
        UnsyncedIsSynced = "unsynced-is-synced",
        /// Lockless bitmap: the recovery of a new member leaves out unwritten regions.
        UnwrittenNotRecovered = "unwritten-not-recovered",
        /// Lockless bitmap: a lazy resync leaves out sectors that it cannot read.
        LazyLeavesOut = "lazy-leaves-out",
        /// PPL: log entries cannot describe all queued writes, so a batch takes fewer.
        LogCutsBatch = "log-cuts-batch",
        /// PPL: one record takes the entries of several batches.
        LogTakesSeveral = "log-takes-several",
        /// PPL: a record has no room for all requested entries.
        LogIsFull = "log-is-full",
        /// Own log: a new record is valid beside earlier records.
        LogCountsBeside = "log-counts-beside",
        /// Own log: a record wraps to the start of the ring while earlier records still count.
        LogGoesRound = "log-goes-round",
        /// Own log: a batch writes rows that were logged with other columns since the last flush.
        LogRowsMeet = "log-rows-meet",
        /// PPL: a new member gets an empty log.
        LogIsMade = "log-is-made",
        /// Stripe, compute: the batch goes to the log.
        StripeLogs = "stripe-logs",
        /// Stripe, compute: the batch waits for the log.
        StripeAwaitsLog = "stripe-awaits-log",
        /// Stripe, compute: the batch fails because it can no longer be logged.
        StripeRefusesUnlogged = "stripe-refuses-unlogged",
        /// Jobs: a job skips a range that needs no work.
        JobPassesOver = "job-passes-over",
        /// Stripe, any phase: a request is outstanding.
        StripeWaits = "stripe-waits",
        /// Stripe, ready: the stripe has no work.
        StripeIdle = "stripe-idle",
        /// Stripe, ready: the stripe has work, but waits for its turn.
        StripePutOff = "stripe-put-off",
        /// Cache: a partial stripe joins the delayed list to fill up.
        StripeDelayed = "stripe-delayed",
        /// Cache: a partial stripe joins the hold list behind full-width writes.
        StripeHeldBack = "stripe-held-back",
        /// Cache: a held stripe may begin.
        HeldGoesOn = "held-goes-on",
        /// Cache: a held stripe may begin because it is old.
        HeldIsOld = "held-is-old",
        /// Cache: a stripe that was put off has filled up, and begins.
        FilledGoesOn = "filled-goes-on",
        /// Cache: a delayed stripe is sent off because many sectors are dirty.
        UrgedByNeed = "urged-by-need",
        /// Cache: a delayed stripe is sent off because it is old.
        UrgedByAge = "urged-by-age",
        /// Cache: a flush finds few writes, which go to the members with FUA.
        WrittenDurably = "written-durably",
        /// Cache: a stripe begins because a flush is likely soon.
        FlushExpected = "flush-expected",
        /// Cache: a write is acknowledged before the members have it.
        AnsweredEarly = "answered-early",
        /// Cache: a later write replaces an acknowledged one.
        Superseded = "superseded",
        /// Cache: a batch that lacks too much begins again with less work.
        BatchNarrowed = "batch-narrowed",
        /// Cache: a read of dirty data waits for the batch, since the stripe serves other reads.
        DirtyReadWaits = "dirty-read-waits",
        /// Cache: an acknowledged write fails.
        WriteLost = "write-lost",
        /// Cache: a read of lost acknowledged data fails.
        LostIsNotRead = "lost-is-not-read",
        /// Cache: the pool frees a surplus frame.
        MemoryGivenUp = "memory-given-up",
        /// Cache: a stripe's batch takes the frame of a resting stripe.
        MemoryTaken = "memory-taken",
        /// Cache: a stripe that waits loses its frame and content.
        WaitingLosesMemory = "waiting-loses-memory",
        /// Cache: a read is served with cached data that the members lack.
        ReadsDirt = "reads-dirt",
        /// Stripe, ready: a batch begins.
        StripeBegins = "stripe-begins",
        /// Stripe, fill: the batch reads columns.
        StripeReads = "stripe-reads",
        /// Stripe, fill: the batch has all data that it needs.
        StripeComputes = "stripe-computes",
        /// Stripe, fill: the batch fails because parity cannot solve so many lost columns.
        StripeRefusesUnread = "stripe-refuses-unread",
        /// Stripe, compute phase: the shard submits the batch's writes to the members.
        StripeWrites = "stripe-writes",
        /// Stripe, write: every member has the write.
        StripeFinishes = "stripe-finishes",
        /// Stripe, write: a member missed the write, and superblocks still count the member in.
        StripeAwaitsRecord = "stripe-awaits-record",
        /// Stripe, await record: superblocks have recorded the loss.
        StripeFinishesHeld = "stripe-finishes-held",
        /// Stripe, await record: superblocks have not recorded the loss yet.
        StripeKeepsAwaiting = "stripe-keeps-awaiting",
        /// Stripe, await record: the array takes no more writes.
        StripeRefusesHeld = "stripe-refuses-held",
        /// Stripe: a failed direct read goes through stripes.
        DirectReadFails = "direct-read-fails",
        /// Stripe: the shard solves a column from P.
        RecoversFromP = "recovers-from-p",
        /// Stripe: the shard solves a column from Q because P is lost too.
        RecoversFromQ = "recovers-from-q",
        /// Stripe: the shard solves two columns from P and Q.
        RecoversTwo = "recovers-two",
        /// Stripe: a write finds no parity column that takes writes.
        MakesNoParity = "makes-no-parity",
        /// Stripe: a batch's sectors lie too far apart to include the gaps.
        WindowHasGaps = "window-has-gaps",
        /// Stripe: a batch starts before its blocks' first sector, and drops their content.
        BlocksShiftedBack = "blocks-shifted-back",
        /// Stripe: a batch copies small writes of a column into its block.
        WritesGathered = "writes-gathered",
        /// Stripe: a batch writes several parts of a column from their payloads.
        WritesSideBySide = "writes-side-by-side",
        /// Stripe: a batch computes parity from all data.
        ReconstructsParity = "reconstructs-parity",
        /// Stripe: a batch adds the changes to old parity.
        ModifiesParity = "modifies-parity",
        /// Stripe: read repair rewrites an unreadable column.
        RepairsStripe = "repairs-stripe",
        /// Stripe: a band is left half written, and its parity is not trusted again.
        ParityInconsistent = "parity-inconsistent",
        /// Stripe: a member missed a write.
        MissesWrite = "misses-write",
        /// Stripe: a stripe may begin, but waits for memory.
        WaitsForMemory = "waits-for-memory",
        /// Stripe: a batch that is over hands its memory to a stripe that waits.
        HandsMemoryOver = "hands-memory-over",
        /// Stripe: a stripe gets memory, but may no longer begin.
        HandedOverInVain = "handed-over-in-vain",
        /// Mirror: a read of a copy fails.
        CopyFails = "copy-fails",
        /// Mirror: where copies may differ, a failed read is repeated in halves.
        DoubtHalved = "doubt-halved",
        /// Mirror: no copy is readable.
        NoCopyLeft = "no-copy-left",
        /// Mirror: read repair rewrites an unreadable copy.
        CopyRepaired = "copy-repaired",
        /// Mirror: a write that a copy missed waits for the record of the loss.
        MirrorAwaitsRecord = "mirror-awaits-record",
        /// Mirror: a write that a copy missed is acknowledged after the loss is recorded.
        MirrorFinishesHeld = "mirror-finishes-held",
        /// Mirror: a write fails because no copy has it, or no loss can be recorded.
        MirrorRefuses = "mirror-refuses",
        /// Mirror: a write or repair waits for a locked range.
        WaitsForRange = "waits-for-range",
        /// Array: a shard confirms a view that is not the newest.
        OldEpochConfirmed = "old-epoch-confirmed",
        /// Array: a shard requests an open gate.
        GateAsked = "gate-asked",
        /// Array: superblocks say active, and the gate opens.
        TurnsActive = "turns-active",
        /// Array: superblocks are about to say clean.
        TurnsClean = "turns-clean",
        /// Array: a write arrives while the gate closes, and opens the gate again.
        CloseCrossed = "close-crossed",
        /// Array: the survivors record a member's loss, then the array publishes the loss.
        LossRecorded = "loss-recorded",
        /// Array: another member fails during a superblock update, which is then repeated.
        LossWhileRecording = "loss-while-recording",
        /// Array: a member's flush fails, so the array records the loss and flushes again.
        FlushAgain = "flush-again",
        /// Array: one failure too many ends all writes.
        BreaksDown = "breaks-down",
        /// Array: an active array closes the gate in order to stop.
        StopsClosing = "stops-closing",
        /// Array: events step back when the array turns clean.
        EventsStepBack = "events-step-back",
        /// Shard: a write waits for the gate.
        GatedWrite = "gated-write",
        /// Shard: the shard refuses a write that waited for the gate.
        GatedRefused = "gated-refused",
        /// Shard: a gate request crossed a closed view, so the shard repeats it.
        AskedAgain = "asked-again",
        /// Shard: the shard confirms no closed gate while writes are in flight.
        CloseWaitsForDrain = "close-waits-for-drain",
        /// Multiplexer: reads wait during the flusher's slice.
        ReadsHeld = "reads-held",
        /// Multiplexer: writes wait during the readers' slice.
        WritesHeld = "writes-held",
        /// Multiplexer: reads or writes use the slice that the other side leaves idle.
        SliceGivenAway = "slice-given-away",
        /// Multiplexer: starved reads or starved writes go alone.
        TurnOwed = "turn-owed",
        /// Multiplexer: an owed turn expires unused, and the other side goes first.
        OwedTurnPassedOn = "owed-turn-passed-on",
        /// Array: a member begins to sit out.
        SitsOut = "sits-out",
        /// Array: a member that sat out is read again.
        ComesBack = "comes-back",
        /// Array: a slow member does not sit out because the level needs it.
        SlowButNeeded = "slow-but-needed",
        /// Sitting out: a direct read into a payload is abandoned when its member sits out.
        DirectReadAbandoned = "direct-read-abandoned",
        /// Sitting out: an abandoned read ends.
        LateRead = "late-read",
        /// Stripe: a client's read begins to use the other members.
        ReadReconstructs = "read-reconstructs",
        /// Background work: a job begins to read a band.
        WorkBegins = "work-begins",
        /// Background work: parity disagrees with the data.
        ParityDiffers = "parity-differs",
        /// Stripe, compute: the batch takes its band from background work.
        WriteTakesBand = "write-takes-band",
        /// Background work: a write of the band goes first, and the work begins again.
        WorkGivesWay = "work-gives-way",
        /// Background work: the work is put off because a member sits out.
        WorkSitsOut = "work-sits-out",
        /// Array: a resync begins.
        ResyncBegins = "resync-begins",
        /// Array: a recovery begins.
        RecoveryBegins = "recovery-begins",
        /// Array: a check begins.
        CheckBegins = "check-begins",
        /// Array: a job is complete, and the array has saved its completion.
        JobCompleted = "job-completed",
        /// Array: another member needs recovery, so one job for both replaces the current one.
        JobIsJoined = "job-is-joined",
        /// Jobs: a recovery computes a range early because a client reads the range.
        RecoversWhatIsRead = "recovers-what-is-read",
        /// Jobs: a job requests in blocks a range that cannot be made as a whole.
        JobAsksByBlocks = "job-asks-by-blocks",
        /// Bad-block logs: a log shall name sectors that no job can make.
        BadBlockMarked = "bad-block-marked",
        /// Bad-block logs: a log shall drop a range that was written.
        BadBlockCleared = "bad-block-cleared",
        /// Bad-block logs: a full sector's record is first written into another sector.
        BadBlockMoved = "bad-block-moved",
        /// Bad-block logs: an update writes only the sectors that change.
        BadBlockLogInPart = "bad-block-log-in-part",
        /// Bad-block logs: a member fails a repair write, so its log shall name the sectors.
        MendFails = "mend-fails",
        /// Bad-block logs: the log is full, or the member has none.
        BadBlockLogFull = "bad-block-log-full",
        /// Array: a job cannot finish.
        JobRefused = "job-refused",
        /// Array: a job stops early, to continue later.
        JobInterrupted = "job-interrupted",
        /// Array: a device becomes a member of the running array.
        MemberAdded = "member-added",
        /// Array: an operator fails a member.
        MemberFailedByPerson = "member-failed-by-person",
        /// Array: a spare takes the place of a missing member.
        SpareTaken = "spare-taken",
        /// Array: an operator requests a replacement for a member.
        ReplacementWanted = "replacement-wanted",
        /// Array: a job begins to copy a member to its replacement.
        ReplaceBegins = "replace-begins",
        /// Array: a replacement fails before it takes its slot.
        ReplacementLost = "replacement-lost",
        /// Array: a member fails, and its replacement takes the slot and needs recovery.
        ReplacementStepsIn = "replacement-steps-in",
        /// Array: a replacement has taken its member's slot.
        Replaced = "replaced",
        /// Shard: a replacement missed a write.
        ReplacementMissesWrite = "replacement-misses-write",
        /// Shard: a write waited for the view that decides between member and replacement.
        PairSettledByView = "pair-settled-by-view",
        /// Background work: a job computes from the other columns the sectors that it cannot copy.
        CopyIsMade = "copy-is-made",
        /// Background work: a copy differs from the first copy.
        CopiesDiffer = "copies-differ",
        /// Background work: a job computes parity from the data.
        ParityRemade = "parity-remade",
        /// Background work: a job computes wrong or unreadable columns from the other columns.
        ColumnsMended = "columns-mended",
        /// Background work: a write of the band goes before a repair that knows the errors.
        MendGivesWay = "mend-gives-way",
        /// Background work: a job names a rotten column or copy.
        RotLocated = "rot-located",
        /// Background work: columns disagree, and the job names none as rotten.
        RotUnknown = "rot-unknown",
        /// Background work: a job reads its repairs again.
        MendReadAgain = "mend-read-again",
        /// Background work: a job computes unreadable columns from other columns, and compares.
        CheckSolves = "check-solves",
        /// Array: a repair begins.
        RepairBegins = "repair-begins",
        /// Background work: a job leaves out sectors that it cannot make and logs as bad.
        WorkGivenUp = "work-given-up",
        /// Background work: a column is not readable.
        WorkRefused = "work-refused",
        /// Stripe: a read begins while a batch of its band waits or is stuck.
        ReadsWhileStuck = "reads-while-stuck",
        /// Stripe: a read waits to begin while a batch writes its band.
        ReadWaitsForBand = "read-waits-for-band",
        /// Stripe: a batch waits for reads of its band.
        WriteWaitsForReads = "write-waits-for-reads",
        /// Stripe: queued writes wait until superblocks allow them.
        WriteWaitsForIntent = "write-waits-for-intent",
        /// Stripe: a batch lets reads that wait for its band begin first.
        StripeLetsReadsIn = "stripe-lets-reads-in",
        /// Stripe: a read that lacks too much is divided into one block and a read of the rest.
        ReadDivided = "read-divided",
        /// Stripe: a read fails because parity cannot solve so many lost columns.
        ReadRefused = "read-refused",
        /// Stripe: a read cannot avoid members that sit out or are being written, and insists.
        AroundFails = "around-fails",
        /// Stripe: a read abandons a member that begins to sit out, and begins again.
        ReadAbandoned = "read-abandoned",
        /// Array: a member does not answer for too long, and goes away.
        GoesAway = "goes-away",
        /// Array: a silent member stays because the array needs it.
        SilentButNeeded = "silent-but-needed",
        /// Array: a member that is away cannot return, and counts as failed.
        StaysAway = "stays-away",
        /// Array: a member that was away answers, and returns.
        ReturnsFromAway = "returns-from-away",
        /// Array: a member leaves, and its request in flight ends for the request's owner.
        RequestLeft = "request-left",
        /// Array: a member that left ends a request late.
        LateAnswer = "late-answer",
        /// Stripe: a batch that was reading a member that left begins again.
        StripeRestarts = "stripe-restarts",
        /// Stripe: the pool sets a frame apart because a member that left may access it.
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
