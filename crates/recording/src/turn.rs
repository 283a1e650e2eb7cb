//! Turns and their lines; a whole recording.

use std::fmt;

use braid_engine::array::MemberId;
use braid_engine::effect::{IoId, MemberFault, MemberIoDone, Pace, Report};
use braid_engine::job::JobId;
use braid_engine::request::{Operation, Piece, RequestId, ShardIndex};
use braid_engine::{CacheMode, Instant, SitOut, Tuning};
use braid_geometry::LogicalSector;

use crate::{Header, Problem};

/// Whose turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Machine {
    /// The control side.
    Array,
    /// A shard.
    Shard(ShardIndex),
}

/// What a machine was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A piece of a client's request.
    Piece(Piece),
    /// A member request is done.
    MemberIo(MemberIoDone),
    /// A job is done.
    JobDone(JobId),
    /// The array's view with this epoch.
    View(u64),
    /// The array asks for recent activity.
    ActivityQuery,
    /// The array asks that what was answered be on the members, for the so-manieth time.
    WriteBack(u64),
    /// The stripe cache is to work in another way.
    Tuning(Tuning),
    /// The array's attention with this number.
    Attention(u64),
    /// Members are to sit out in another way.
    SitOut(SitOut),
    /// A shard reports.
    Report(ShardIndex, Report),
    /// A superblock was written, or not.
    SuperblockWritten(MemberId, bool),
    /// A member was flushed, or not.
    Flushed(MemberId, bool),
    /// A client wants a flush.
    FlushRequest(RequestId),
    /// A member is gone for good.
    MemberLost(MemberId),
    /// The time that it asked for has come; any machine may ask.
    Timeout,
    /// Stop.
    Stop,
}

/// One turn of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whose.
    pub machine: Machine,
    /// Its how-manieth, from 0.
    pub sequence: u64,
    /// The time that it was told.
    pub now: Instant,
    /// What it was told, in this order.
    pub inputs: Vec<Input>,
    /// How many effects came of it.
    pub effects: u32,
    /// The number over them.
    pub digest: u64,
}

/// How a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The array was stopped.
    Ended,
    /// The recorder could not keep up, and stopped recording.
    Lost,
    /// The process ended before.
    CutOff,
}

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The array.
    pub header: Header,
    /// The turns with their lines.
    pub turns: Vec<(usize, Turn)>,
    /// How it ends.
    pub ending: Ending,
}

impl Recording {
    /// Reads a recording. A last line without its end is left out.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let mut lines = (1..).zip(whole.lines());
        let header = Header::parse(&mut lines)?;
        let mut recording = Self { header, turns: Vec::new(), ending: Ending::CutOff };
        for (line, text) in lines {
            if recording.ending != Ending::CutOff {
                return Err(Problem { line, what: "something comes after the end".to_owned() });
            }
            match text {
                "end" => recording.ending = Ending::Ended,
                "lost" => recording.ending = Ending::Lost,
                _ => {
                    let turn = parse_turn(text).ok_or_else(|| Problem {
                        line,
                        what: "not a turn of a machine".to_owned(),
                    })?;
                    recording.turns.push((line, turn));
                }
            }
        }
        Ok(recording)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array => formatter.write_str("a"),
            Self::Shard(index) => write!(formatter, "s{}", index.0),
        }
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} {}", self.machine, self.sequence, self.now.0)?;
        for input in &self.inputs {
            write!(formatter, " {input}")?;
        }
        write!(formatter, " = {} {:x}", self.effects, self.digest)
    }
}

fn operation_word(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "r",
        Operation::Write { durable: false } => "w",
        Operation::Write { durable: true } => "f",
        Operation::WriteZeroes { may_punch: false, durable: false } => "z",
        Operation::WriteZeroes { may_punch: false, durable: true } => "zf",
        Operation::WriteZeroes { may_punch: true, durable: false } => "zp",
        Operation::WriteZeroes { may_punch: true, durable: true } => "zpf",
        Operation::Trim => "t",
    }
}

fn result_word(result: Result<(), MemberFault>) -> &'static str {
    match result {
        Ok(()) => "ok",
        Err(MemberFault::Media) => "media",
        Err(MemberFault::Gone) => "gone",
        Err(MemberFault::NoSpace) => "full",
    }
}

impl fmt::Display for Input {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Piece(piece) => {
                let Piece { request, operation, start, sectors, payload_offset_sectors } = piece;
                let word = operation_word(*operation);
                let (request, start) = (request.0, start.0);
                write!(
                    formatter,
                    "piece:{request}:{word}:{start}:{sectors}:{payload_offset_sectors}"
                )
            }
            Self::MemberIo(done) => {
                write!(formatter, "io:{}:{}", done.id.0, result_word(done.result))
            }
            Self::JobDone(job) => write!(formatter, "job:{}", job.0),
            Self::View(epoch) => write!(formatter, "view:{epoch}"),
            Self::ActivityQuery => formatter.write_str("query"),
            Self::WriteBack(round) => write!(formatter, "writeback:{round}"),
            Self::Tuning(tuning) => write!(formatter, "tune:{}", tuning_words(tuning)),
            Self::Attention(number) => write!(formatter, "attend:{number}"),
            Self::SitOut(SitOut { is_on, factor, min_ms, write_slack_ms }) => {
                let is_on = u8::from(*is_on);
                write!(formatter, "sitout:{is_on}:{factor}:{min_ms}:{write_slack_ms}")
            }
            Self::Report(ShardIndex(shard), report) => match report {
                Report::WantWrite => write!(formatter, "wants:{shard}"),
                Report::MemberFailed { member } => write!(formatter, "failed:{shard}:{}", member.0),
                Report::OutOfSpace { member } => write!(formatter, "full:{shard}:{}", member.0),
                Report::MemberWritten { member } => {
                    write!(formatter, "wrote:{shard}:{}", member.0)
                }
                Report::WrittenBack { round } => write!(formatter, "back:{shard}:{round}"),
                Report::WriteLost { start, sectors } => {
                    write!(formatter, "missed:{shard}:{}:{sectors}", start.0)
                }
                Report::ViewInForce { epoch } => write!(formatter, "rules:{shard}:{epoch}"),
                Report::Pace { member, pace: Pace { completed, mean_ns, oldest_ns } } => {
                    let member = member.0;
                    write!(formatter, "pace:{shard}:{member}:{completed}:{mean_ns}:{oldest_ns}")
                }
                Report::Activity { last_write, writing } => {
                    write!(formatter, "active:{shard}:{}:{}", last_write.0, u8::from(*writing))
                }
            },
            Self::SuperblockWritten(member, written) => {
                write!(formatter, "super:{}:{}", member.0, u8::from(*written))
            }
            Self::Flushed(member, flushed) => {
                write!(formatter, "flushed:{}:{}", member.0, u8::from(*flushed))
            }
            Self::FlushRequest(request) => write!(formatter, "flush:{}", request.0),
            Self::MemberLost(member) => write!(formatter, "gone:{}", member.0),
            Self::Timeout => formatter.write_str("timeout"),
            Self::Stop => formatter.write_str("stop"),
        }
    }
}

fn parse_turn(text: &str) -> Option<Turn> {
    let (head, tail) = text.split_once(" = ")?;
    let (effects, digest) = tail.split_once(' ')?;
    let mut words = head.split(' ');
    let machine = match words.next()? {
        "a" => Machine::Array,
        shard => Machine::Shard(ShardIndex(shard.strip_prefix('s')?.parse().ok()?)),
    };
    let sequence = words.next()?.parse().ok()?;
    let now = Instant(words.next()?.parse().ok()?);
    let inputs: Vec<Input> = words.map(parse_input).collect::<Option<_>>()?;
    let is_array = machine == Machine::Array;
    let fits = inputs.iter().all(|input| match input {
        Input::Timeout => true,
        Input::Piece(_)
        | Input::MemberIo(_)
        | Input::JobDone(_)
        | Input::View(_)
        | Input::ActivityQuery
        | Input::WriteBack(_)
        | Input::Attention(_)
        | Input::Tuning(_) => !is_array,
        _ => is_array,
    });
    let (effects, digest) = (effects.parse().ok()?, u64::from_str_radix(digest, 16).ok()?);
    fits.then_some(Turn { machine, sequence, now, inputs, effects, digest })
}

fn parse_input(text: &str) -> Option<Input> {
    let mut fields = text.split(':');
    let word = fields.next()?;
    let rest: Vec<&str> = fields.collect();
    let member = |text: &str| text.parse().ok().map(MemberId);
    let flag = |text: &str| match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    };
    let shard = |text: &str| text.parse().ok().map(ShardIndex);
    let report = |index: &str, report| Some(Input::Report(shard(index)?, report));
    match (word, rest.as_slice()) {
        ("piece", [request, operation, start, sectors, offset]) => Some(Input::Piece(Piece {
            request: RequestId(request.parse().ok()?),
            operation: parse_operation(operation)?,
            start: LogicalSector(start.parse().ok()?),
            sectors: sectors.parse().ok()?,
            payload_offset_sectors: offset.parse().ok()?,
        })),
        ("io", [id, result]) => {
            let result = match *result {
                "ok" => Ok(()),
                "media" => Err(MemberFault::Media),
                "gone" => Err(MemberFault::Gone),
                "full" => Err(MemberFault::NoSpace),
                _ => return None,
            };
            Some(Input::MemberIo(MemberIoDone { id: IoId(id.parse().ok()?), result }))
        }
        ("job", [job]) => Some(Input::JobDone(JobId(job.parse().ok()?))),
        ("view", [epoch]) => Some(Input::View(epoch.parse().ok()?)),
        ("query", []) => Some(Input::ActivityQuery),
        ("writeback", [round]) => Some(Input::WriteBack(round.parse().ok()?)),
        ("attend", [number]) => Some(Input::Attention(number.parse().ok()?)),
        ("sitout", [is_on, factor, min_ms, slack_ms]) => Some(Input::SitOut(SitOut {
            is_on: flag(is_on)?,
            factor: factor.parse().ok()?,
            min_ms: min_ms.parse().ok()?,
            write_slack_ms: slack_ms.parse().ok()?,
        })),
        ("pace", [index, id, pace @ ..]) => {
            report(index, Report::Pace { member: member(id)?, pace: parse_pace(pace)? })
        }
        ("tune", fields) => parse_tuning(fields).map(Input::Tuning),
        ("wants", [index]) => report(index, Report::WantWrite),
        ("failed", [index, id]) => report(index, Report::MemberFailed { member: member(id)? }),
        ("full", [index, id]) => report(index, Report::OutOfSpace { member: member(id)? }),
        ("wrote", [index, id]) => report(index, Report::MemberWritten { member: member(id)? }),
        ("back", [index, round]) => {
            report(index, Report::WrittenBack { round: round.parse().ok()? })
        }
        ("missed", [index, start, sectors]) => {
            let start = LogicalSector(start.parse().ok()?);
            report(index, Report::WriteLost { start, sectors: sectors.parse().ok()? })
        }
        ("rules", [index, epoch]) => {
            report(index, Report::ViewInForce { epoch: epoch.parse().ok()? })
        }
        ("active", [index, last, writing]) => {
            let last_write = Instant(last.parse().ok()?);
            report(index, Report::Activity { last_write, writing: flag(writing)? })
        }
        ("super", [id, written]) => Some(Input::SuperblockWritten(member(id)?, flag(written)?)),
        ("flushed", [id, flushed]) => Some(Input::Flushed(member(id)?, flag(flushed)?)),
        ("flush", [request]) => Some(Input::FlushRequest(RequestId(request.parse().ok()?))),
        ("gone", [id]) => Some(Input::MemberLost(member(id)?)),
        ("timeout", []) => Some(Input::Timeout),
        ("stop", []) => Some(Input::Stop),
        _ => None,
    }
}

fn parse_pace(fields: &[&str]) -> Option<Pace> {
    let [completed, mean_ns, oldest_ns] = fields else { return None };
    Some(Pace {
        completed: completed.parse().ok()?,
        mean_ns: mean_ns.parse().ok()?,
        oldest_ns: oldest_ns.parse().ok()?,
    })
}

/// Stripes, mode, bypass threshold, dirty sectors, age.
pub(crate) fn tuning_words(tuning: &Tuning) -> String {
    let Tuning { stripes, mode, bypass_threshold, dirty_sectors_max, age_max_ms } = tuning;
    let mode = match mode {
        CacheMode::WriteThrough => "through",
        CacheMode::WriteBack => "back",
    };
    format!("{stripes}:{mode}:{bypass_threshold}:{dirty_sectors_max}:{age_max_ms}")
}

pub(crate) fn parse_tuning(fields: &[&str]) -> Option<Tuning> {
    let [stripes, mode, bypass, dirty, age] = fields else { return None };
    Some(Tuning {
        stripes: stripes.parse().ok()?,
        mode: match *mode {
            "through" => CacheMode::WriteThrough,
            "back" => CacheMode::WriteBack,
            _ => return None,
        },
        bypass_threshold: bypass.parse().ok()?,
        dirty_sectors_max: dirty.parse().ok()?,
        age_max_ms: age.parse().ok()?,
    })
}

fn parse_operation(word: &str) -> Option<Operation> {
    Some(match word {
        "r" => Operation::Read,
        "w" => Operation::Write { durable: false },
        "f" => Operation::Write { durable: true },
        "z" => Operation::WriteZeroes { may_punch: false, durable: false },
        "zf" => Operation::WriteZeroes { may_punch: false, durable: true },
        "zp" => Operation::WriteZeroes { may_punch: true, durable: false },
        "zpf" => Operation::WriteZeroes { may_punch: true, durable: true },
        "t" => Operation::Trim,
        _ => return None,
    })
}
