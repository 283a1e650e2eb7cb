//! Reads that need the other members: of missing members, of unreadable sectors, around members
//! that sit out, and for background work.
//!
//! # Theory
//!
//! A read that its own member cannot serve is solved for from the other members. The read has a
//! block for each slot, and loads the other columns into these blocks. It solves straight into the
//! client's payload if possible, answers, and is free again. It belongs to no stripe: stripes only
//! write.
//!
//! The other columns must agree while they are read. They agree before a batch writes, and again
//! when only its writes to members that sit out remain: solving for these members' columns gives
//! the columns' *future* content. So a read of a band depends on the state of the band's stripe:
//!
//! ```text
//!   the band's stripe            a read may begin        columns it leaves out
//!   none, idle, writes queued    yes
//!   Fill, held up by a member    yes: no writes
//!     that sits out
//!   Compute, kept from writing   yes: no writes
//!     by a repair that a member
//!     that sits out holds up
//!   Fill, Compute otherwise      not now: about to write
//!   Write, only members that     yes: the rest agrees    those being written, those that missed it
//!     sit out remain
//!   Write otherwise              not now
//!   AwaitRecord                  yes                     those that missed it
//! ```
//!
//! A stripe that is about to write waits until its band is not being read
//! ([`Reconstruct::is_reading`]). "Not now" lasts for one batch: the next batch begins when the
//! waiting reads have begun ([`Reconstruct::has_waiting`]). So reads and batches do not starve each
//! other.
//!
//! *Around members that sit out.* The columns of such members are left out. If a member begins to
//! sit out, reads that wait for it are *abandoned*. The client's part begins anew, and the
//! abandoned read keeps its blocks until the late answer comes. A read *insists* if it cannot be
//! served around members that sit out or are being written. An insisting read waits for its own
//! member, however long that takes. If the member fails the read, the read uses every column once
//! the batch of its band is over.
//!
//! *Background work* reads every column of a band while the band is not written, as an insisting
//! read does. It ends with a result instead of an answer. A comparison adds every data column to P,
//! and its multiple to Q: sectors that are not zero then differ. Background work begins when no
//! client's read waits for a place, and uses a part of the places only. While a member sits out,
//! background work gives its band up, since clients that wait for the band would wait for the
//! member.
//!
//! *Finding and mending.* A comparison names the wrong column as far as it can be known
//! (`comparison`). Repairs are computed from the blocks: a wrong data column from P's difference,
//! parity anew from the data. Then the whole band is read and compared a second time. Meanwhile no
//! batch of the band begins ([`Reconstruct::keeps_batches_out`]): it would read wrong sectors, and
//! compute parity from them after their repair. A batch that has begun goes first, and the
//! comparison begins anew after it. The blocks of the band's stripe are forgotten. A client's write
//! is thus before the first read, or after the last.
//!
//! *Repair of reads.* Unreadable sectors that were solved for are rewritten while the band's stripe
//! still waits, so that the device remaps them. The rewrite changes no content, and a client's
//! answer does not wait for it.
//!
//! *Kinds.* Each kind of read has a file, and one interface ([`kind::Kind`]). The shared machine
//! does not know the kinds: a new one is a file, and a line of `by_kind` below.
//!
//! ```text
//!   kind        reads                 computes              writes                 ends with
//!   client      the cheapest way      the columns it lacks  its payload            piece's answer
//!   comparison  every column it can   where parity differs  wrong sectors          findings
//!   resync      data, parity it can   where parity differs  parity                 sectors written
//!   fill        cheapest way, a copy  columns it lacks      members, replacements  sectors written
//! ```
//!
//! # Invariants
//! - A stripe does not write a band that a read is using
//!   [check: a_write_waits_for_reads_beside_it].
//! - A band under constant writes admits reads
//!   [check: a_read_is_let_in_between_two_writes_of_its_band].
//! - A read does not wait for a write that is stuck [check: reads_pass_a_stuck_write].
//! - The late answer of an abandoned read changes nothing [check: a_late_read_changes_no_answer].
//! - A repair undoes no write, and no write relies on sectors from before a repair
//!   [check: repairs_and_writes_leave_what_both_want].
//! - A comparison of a band that is being written sees the old state or the new one, never a
//!   mixture [check: a_band_is_compared_between_two_writes].

/// Calls a method of a read's kind. Outside its own file, a kind is named only in this macro.
macro_rules! by_kind {
    ($origin:expr, $kind:ident => $call:expr) => {{
        use crate::stripe::reconstruct::{comparison::Comparison, fill::Fill, resync::Resync};
        use crate::work::Task::{Compare, Recover, Repair, Replace, Resync as Level, Retry};
        match &$origin {
            Origin::Client($kind) => $call,
            Origin::Background(work) => match work.task {
                Compare | Repair | Retry => by_kind!(Comparison(*work), $kind => $call, of),
                Level => by_kind!(Resync(*work), $kind => $call, of),
                Recover | Replace => by_kind!(Fill(*work), $kind => $call, of),
            },
        }
    }};
    ($value:expr, $kind:ident => $call:expr, of) => {{
        let $kind = &$value;
        $call
    }};
}

mod act;
mod check;
mod client;
mod comparison;
mod decide;
mod facts;
mod fill;
mod kind;
mod machine;
mod read;
mod resync;

pub(super) use machine::{Outcome, PLACES, Reconstruct, ReconstructContext};
pub(super) use read::ClientRead;
