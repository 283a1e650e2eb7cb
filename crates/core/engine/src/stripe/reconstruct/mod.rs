//! Reads that need the other members: of what is missing, of what could not be read, around members
//! that sit out; and what background work reads.
//!
//! # Theory
//!
//! A read that its own member cannot serve is solved for from the others. It has a block for each
//! slot, reads the other columns into them, solves straight into the client's payload where it can,
//! answers, and is free again. It belongs to no stripe: stripes only write.
//!
//! What the others hold must agree while it is read. It does before a batch writes, and it does
//! again when all that is left of the batch's writes are those to members that sit out: solving for
//! these gives what they *will* hold. So a read of a band depends on what the band's stripe is
//! doing:
//!
//! ```text
//!   the band's stripe              a read may begin         columns it leaves out
//!   none, idle, writes queued      yes
//!   Fill, held up by a member      yes: nothing is written
//!     that sits out
//!   Compute, kept from writing     yes: nothing is written
//!     by a repair that a member
//!     that sits out holds up
//!   Fill, Compute otherwise        not now: it is about to write
//!   Write, all that is left is     yes: the rest agrees     those being written, those that missed it
//!     with members that sit out
//!   Write otherwise                not now
//!   AwaitRecord                    yes                      those that missed it
//! ```
//!
//! and a stripe that is about to write waits until its band is not being read
//! ([`Reconstruct::is_reading`]). "Not now" lasts for one batch: the next one begins when the reads
//! that waited have begun ([`Reconstruct::has_waiting`]). So neither reads nor writes keep the
//! other waiting by coming again and again.
//!
//! *Around members that sit out.* Their columns are left out. A read that is under way when a
//! member begins to sit out, and that waits for it, is *abandoned*: its client's part begins anew,
//! and its blocks are its own until the late answer comes. What cannot be made around members that
//! sit out, or that are being written, *insists*: it is asked of its own member whatever that
//! takes, and if that fails it is made, when its band's batch is over, from every column there is.
//!
//! *Background work* reads every column of a band while the band is not written, as one that
//! insists, and has a result in place of an answer: for a comparison every data column is added to
//! P, and its multiple to Q, and what is not zero then differs. It begins when no client's read
//! waits for a place, and takes a part of the places only. While a member sits out it gives its
//! band up: what waits for that band would wait for the member.
//!
//! *Finding and mending.* A comparison says which column is wrong as far as that can be known
//! (`comparison`). What is to be written again is made from the blocks: a data column that is wrong
//! by what P differs by, parity anew from the data. Then all of it is read and compared a second
//! time. While that lasts no batch of the band even begins ([`Reconstruct::keeps_batches_out`]): it
//! would read what is wrong, and make parity of it after it was repaired. One that has begun by
//! then goes first, and the comparison begins anew when it is over. The blocks of the band's stripe
//! are forgotten. A client's write is thus before the first read, or after the last.
//!
//! *Repair of reads.* What could not be read and has been solved for is written again, so that a
//! bad sector gets a new place, while the band's stripe still waits. It changes no content. A
//! client's answer does not wait for it.
//!
//! *Kinds.* Each kind of read has a file, and one face ([`kind::Kind`]). The shared machine does
//! not ask which kind it has: one more is a file, and a line of `by_kind` below.
//!
//! ```text
//!   kind         reads                       computes                   writes                  ends with
//!   client       the cheapest way            the columns it lacks       its payload             the piece's answer
//!   comparison   every column it can         where parity differs       sectors that are wrong  findings
//!   resync       data, and parity it can     where parity differs       parity                  sectors written
//!   fill         the cheapest way, a copy    columns that it lacks      members, replacements   sectors written
//! ```
//!
//! # Invariants
//! - Nothing of a band is written by its stripe while it is read here
//!   [check: a_write_waits_for_reads_beside_it].
//! - A band that is always written lets reads in
//!   [check: a_read_is_let_in_between_two_writes_of_its_band].
//! - A read does not wait for a write that is stuck [check: reads_pass_a_stuck_write].
//! - What was abandoned changes nothing when it comes [check: a_late_read_changes_no_answer].
//! - A repair undoes no write, and no write takes over what was repaired
//!   [check: repairs_and_writes_leave_what_both_want].
//! - Work that is compared while its band is written gets the old state or the new one, and none
//!   between [check: a_band_is_compared_between_two_writes].

/// Calls a read's kind by its face. A kind's line here is all that the other files say of it.
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

pub(super) use machine::{Around, Outcome, PLACES, Reconstruct};
pub(super) use read::Want;
