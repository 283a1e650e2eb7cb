//! What keeps redundancy right over a crash: a bitmap, parity logs, a journal, or none of them; and the changes from one to another.
//!
//! A member's write is not atomic, and a stripe's or mirror's is several of them. So where members may differ is said durably before they
//! do: by bits ([`intent`]), by records of what is being written ([`parity_logs`], [`journal`]), or by superblocks alone, which say that
//! the array is active.
//!
//! It does not know superblocks' updates, members' caches or jobs.

mod bitmap_change;
mod intent;
mod journal;
mod log_change;
mod parity_logs;
mod returns;

pub use bitmap_change::NewBitmap;
pub(super) use bitmap_change::{BitmapChange, first_bits};
pub(super) use intent::{Intent, IntentAction, IntentGround, decide_intent};
pub use journal::JournalLook;
pub(super) use journal::{Journal, decide_journal};
pub(super) use log_change::{Changing, LogChange, LogWish};
pub(super) use parity_logs::{LogAction, News, ParityLogs, decide_log};
pub(super) use returns::held_of;
