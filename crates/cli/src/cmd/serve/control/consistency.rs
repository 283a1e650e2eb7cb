//! What keeps redundancy right over a crash, of a running array: shown, judged, changed.
//!
//! ```text
//!   consistency=WORD, bitmap-chunk=SIZE ─▶ read (words) ─▶ judge: room, and what the array says ─▶ apply: returns when superblocks say it
//! ```
//!
//! Unlike other settings it stands on members, and is there after a restart. So it is set by itself: others go back by what is set to
//! before, and are refused with nothing changed. What it overwrites is md's own space for a bitmap, and what takes it back is the other
//! word.
//!
//! Invariants
//! - refused, or with a dry run, nothing is changed [check: a_bitmap_is_refused_with_what_to_do_and_nothing_is_changed].

use braid_control::model::Settings;
use braid_geometry::{Family, Slot};
use braid_ondisk::BitmapSuperblock;
use braid_runtime::{BitmapError, BitmapRefusal, MemberRefusal, Volume};

use crate::error::code::Code;
use crate::error::{CliError, Risk};
use crate::output::printable::printable;
use crate::output::size::{format_size_exact, parse_size};
use crate::policy::{BITMAP_CHUNK_WORDS, Policy, bitmap_chunk};

/// The words of its settings.
const POLICY: &str = "consistency";
pub(super) const CHUNK: &str = "bitmap-chunk";
pub(super) const KEYS: [&str; 2] = [POLICY, CHUNK];

/// What an array has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// It keeps nothing twice.
    NoRedundancy,
    Resync,
    /// Bytes that a bit stands for.
    Bitmap(u64),
    ParityLogs,
    /// Of our own, perhaps with a bitmap beside them; bytes that a bit of that stands for.
    OwnLogs(Option<u64>),
}

/// What is to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// A bitmap is made, in the place of what there is.
    Make(BitmapSuperblock),
    GiveUp,
}

/// What an array is called.
pub(super) struct Named<'a> {
    pub(super) name: &'a str,
    /// By a command.
    pub(super) word: String,
}

/// What an array has, what was asked for, and what comes of it.
pub(super) struct Consistency {
    kept: Kept,
    policy: Option<Policy>,
    chunk_bytes: Option<u32>,
    change: Change,
}

impl Consistency {
    pub(super) fn now(volume: &Volume) -> Self {
        let is_direct = volume.geometry().level().family() == Family::Direct;
        let bit_bytes = volume.bitmap().map(|look| look.bit_bytes);
        let kept = match bit_bytes {
            _ if is_direct => Kept::NoRedundancy,
            bit_bytes if volume.has_own_parity_logs() => Kept::OwnLogs(bit_bytes),
            Some(bit_bytes) => Kept::Bitmap(bit_bytes),
            None if volume.parity_logs().is_some() => Kept::ParityLogs,
            None => Kept::Resync,
        };
        Self { kept, policy: None, chunk_bytes: None, change: Change::None }
    }

    /// Reads one setting; says why if it makes no sense.
    pub(super) fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            POLICY => {
                let policy = Policy::parse(text).filter(|one| *one != Policy::Lockless);
                let policy = policy.ok_or("it is 'bitmap' or 'resync'")?;
                self.policy = Some(policy);
            }
            CHUNK => {
                let bytes = parse_size(text).map_err(|error| error.to_string())?;
                let chunk = bitmap_chunk(bytes).ok_or(BITMAP_CHUNK_WORDS)?;
                self.chunk_bytes = Some(chunk);
            }
            _ => return Err(format!("there is no such setting; there are {}", KEYS.join(", "))),
        }
        Ok(())
    }

    /// Whether it can be had, and what that comes to.
    pub(super) fn judge(&mut self, volume: &Volume, named: &Named<'_>) -> Result<(), CliError> {
        let (kept, asked) = (self.kept, self.chunk_bytes);
        let is_asked = |bytes: u64| asked.is_none_or(|asked| u64::from(asked) == bytes);
        let had = match kept {
            Kept::Bitmap(_) => Policy::Bitmap,
            Kept::ParityLogs => Policy::Ppl,
            Kept::OwnLogs(_) => Policy::Log,
            Kept::Resync | Kept::NoRedundancy => Policy::Resync,
        };
        let refused = Refused { volume, named, asked };
        let is_to_be_there = match (self.policy.unwrap_or(had), kept) {
            (Policy::Bitmap, Kept::Bitmap(bytes)) if is_asked(bytes) => return Ok(()),
            (policy, _) if policy == had && asked.is_none() => return Ok(()),
            (Policy::Resync, _) if asked.is_some() => return Err(refused.no_bitmap()),
            // A lockless one is made with its array: its word is not taken here.
            (Policy::Ppl | Policy::Log | Policy::Lockless, _) => {
                let has_logs = matches!(kept, Kept::ParityLogs | Kept::OwnLogs(_));
                return Err(refused.parity_logs(has_logs));
            }
            (Policy::Bitmap, _) => true,
            (Policy::Resync, _) => false,
        };
        let may = volume.may_change_bitmap(is_to_be_there);
        may.map_err(|error| refused.by(&error))?;
        (self.kept, self.change) = match is_to_be_there {
            false => (Kept::Resync, Change::GiveUp),
            true => {
                let planned = volume.plan_bitmap(asked).map_err(|error| refused.by(&error))?;
                (Kept::Bitmap(planned.chunk_bytes.into()), Change::Make(planned))
            }
        };
        Ok(())
    }

    /// Whether anything is to be written to members.
    pub(super) fn changes(&self) -> bool {
        self.change != Change::None
    }

    /// Makes it so. Returns when superblocks say it.
    pub(super) fn apply(self, volume: &Volume, named: &Named<'_>) -> Result<(), CliError> {
        let wanted = match self.change {
            Change::None => return Ok(()),
            Change::Make(bitmap) => Some(bitmap),
            Change::GiveUp => None,
        };
        let refused = Refused { volume, named, asked: self.chunk_bytes };
        volume.change_bitmap(wanted).map_err(|error| refused.by(&error))
    }

    /// By its words.
    pub(super) fn to_settings(&self) -> Settings {
        let (policy, chunk_bytes) = match self.kept {
            Kept::NoRedundancy => ("none", None),
            Kept::Resync => ("resync", None),
            Kept::Bitmap(bytes) => ("bitmap", Some(bytes)),
            Kept::ParityLogs => ("ppl", None),
            Kept::OwnLogs(bytes) => ("log", bytes),
        };
        let mut settings = Settings::from([(POLICY.to_owned(), policy.into())]);
        settings.extend(chunk_bytes.map(|bytes| (CHUNK.to_owned(), bytes.into())));
        settings
    }
}

/// How it is refused: code, cause, and what to type instead.
struct Refused<'a> {
    volume: &'a Volume,
    named: &'a Named<'a>,
    asked: Option<u32>,
}

impl Refused<'_> {
    fn stays(&self, code: Code) -> CliError {
        let name = self.named.name;
        let what = format!("what {name} keeps for a crash cannot be changed now");
        CliError::new(code, what).about(name)
    }

    fn look(&self, error: CliError) -> CliError {
        let command = format!("braid status {}", self.named.word);
        error.remedy(Risk::Look, "See how it is", command)
    }

    /// A size of what is not there.
    fn no_bitmap(&self) -> CliError {
        let name = self.named.name;
        let what = format!("{name} has no bitmap whose size could be set");
        let error = CliError::new(Code::ConsistencyStays, what).about(name);
        let size = self.asked.map_or("64M".to_owned(), |bytes| format_size_exact(bytes.into()));
        let command =
            format!("braid set {} consistency=bitmap bitmap-chunk={size}", self.named.word);
        error.because("nothing was changed").remedy(Risk::Change, "Have one made", command)
    }

    /// Partial parity logs are chosen when an array is made.
    fn parity_logs(&self, has_them: bool) -> CliError {
        let error = self.stays(Code::ConsistencyStays);
        let why = match has_them {
            true => "it keeps parity logs, which close the write hole, and these are not given up",
            false => {
                "parity logs are made with the array; braid does not make them on one that there is"
            }
        };
        self.look(error.because(why).because("nothing was changed"))
    }

    fn by(&self, error: &BitmapError) -> CliError {
        match error {
            BitmapError::Refused(refusal) => self.by_array(*refusal),
            BitmapError::NoRoom { member, fitting_bytes } => {
                let member = member.to_string_lossy();
                self.no_room(&printable(&member), *fitting_bytes)
            }
        }
    }

    fn no_room(&self, member: &str, fitting_bytes: Option<u32>) -> CliError {
        let name = self.named.name;
        let what = format!("{member} has no room for this bitmap of {name}");
        let error = CliError::new(Code::SizeInvalid, what).about(name);
        let why = "a bitmap lies between superblock and data, the same on every member; nothing was changed";
        let error = error.because(why);
        let Some(bytes) = fitting_bytes else {
            return self.look(error.because("not even one of the largest size would fit"));
        };
        let size = format_size_exact(bytes.into());
        let command =
            format!("braid set {} consistency=bitmap bitmap-chunk={size}", self.named.word);
        error.remedy(Risk::Change, "With fewer bits, it fits", command)
    }

    fn by_array(&self, refusal: BitmapRefusal) -> CliError {
        let word = &self.named.word;
        match refusal {
            BitmapRefusal::Array(refusal) => self.by_members(refusal),
            BitmapRefusal::ParityLogs => self.parity_logs(true),
            BitmapRefusal::HasNone => {
                self.look(self.stays(Code::BitmapBusy).because("it was given up meanwhile"))
            }
            BitmapRefusal::InDoubt => {
                let why = "it was interrupted while writing, and only its bitmap tells what is to be resynced";
                let error = self.stays(Code::ConsistencyStays).because(why);
                let wait = format!("braid wait {word}");
                error.because("nothing was changed").remedy(
                    Risk::Look,
                    "Wait until it is resynced",
                    wait,
                )
            }
            BitmapRefusal::Degraded => {
                let why = "a member is missing or being rebuilt, and only its bitmap tells what one lacks that comes back";
                let error = self.stays(Code::ConsistencyStays).because(why);
                let error = error.because("nothing was changed");
                let (view, slots) = (self.volume.view(), self.volume.geometry().slots());
                if (0..slots).all(|slot| view.member(Slot(slot)).is_some()) {
                    let wait = format!("braid wait {word} --for rebuild");
                    return error.remedy(Risk::Look, "Wait until it is rebuilt", wait);
                }
                let add = format!("braid add {word} DEVICE");
                error.remedy(Risk::Change, "Put a device in its place", add)
            }
            BitmapRefusal::Busy => {
                let what = format!("the bitmap of {} is being changed", self.named.name);
                let error = CliError::new(Code::BitmapBusy, what).about(self.named.name);
                let why = "it was asked for before, and not every member has answered yet; clients go on meanwhile";
                let command = format!("braid get {word} {POLICY}");
                error.because(why).remedy(Risk::Look, "See what it is by now", command)
            }
        }
    }

    fn by_members(&self, refusal: MemberRefusal) -> CliError {
        let stop = format!("braid stop {}", self.named.word);
        match refusal {
            MemberRefusal::NoRedundancy => {
                let why =
                    "its level keeps neither copies nor parity that a crash could leave wrong";
                self.look(self.stays(Code::NoRedundancy).because(why))
            }
            _ if self.volume.is_read_only() => {
                let why = "it is served read-only, and members would be written";
                let error = self.stays(Code::ServedReadOnly).because(why);
                error.remedy(Risk::Change, "Stop it, and serve it without --read-only", stop)
            }
            _ => {
                let why = "it takes no writes any more: more is lost than its level can make up for, or it is being stopped";
                self.look(self.stays(Code::ArrayFailed).because(why))
            }
        }
    }
}
