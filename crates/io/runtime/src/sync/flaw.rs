//! Lines of this crate that a model can leave out. The code at each line asks for its variant.

braid_concurrency::flaws! { pub(crate) enum Flaw {
    /// The end of a write does not begin the writes that it admits.
    LeaveSilent,
    /// A write begins whether it is admitted or not.
    EnterAtOnce,
    /// A member's queue ends as soon as it is stopped, although operations are still in it.
    QueueEndsEarly,
    /// A thread that uses up a request's pieces does not note that none is left.
    CutTwice,
    /// A request whose payload was kept beyond its answer stays for ever.
    PayloadStays,
    /// A request's memory is kept for the next request while another thread still holds it.
    KeptInUse,
    /// Setting the alarm does not wake its thread.
    AlarmSilent,
    /// The alarm rings until it is set anew.
    AlarmRingsOn,
    /// A moment that has come at a worker still counts as armed.
    ArmedStays,
    /// A request is counted as in flight only after the check that the volume is not stopping.
    CheckBeforeCount,
    /// The last answer does not wake the stop that waits for it.
    LastAnswerSilent,
    /// The end of a request does not wake its caller.
    CallerSleepsOn,
    /// The end of the array wakes only one of the threads that wait for it.
    EndWakesOne,
    /// Notices are sent after ownership of the array was released.
    NoticesUnowned,
    /// Ending the watch does not end the watcher's channel.
    WatchNotEnded,
    /// Stopping does not end the members' threads.
    MembersNotStopped,
    /// A request that leaves a ring does not check the line of waiting requests.
    LineForgotten,
} }
