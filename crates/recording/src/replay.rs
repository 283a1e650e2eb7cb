//! New machines are told what the recorded ones were told.
//!
//! The array goes first, since shards are told its views; then one shard after the other.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use braid_engine::array::{Array, ArrayEffect, ArrayView};
use braid_engine::effect::Attention;
use braid_engine::job::{Job, JobId};
use braid_engine::{Instant, Shard};

use crate::{Digest, Ending, Input, Machine, Problem, Recording, Turn};

/// What was replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Turns whose effects were the recorded ones.
    pub turns: usize,
    /// What machines were told in them.
    pub inputs: usize,
    /// What they asked for.
    pub effects: u64,
    /// Turns at the end of a cut recording that follow a view which is not in it any more.
    pub left: usize,
    /// How the recording ends.
    pub ending: Ending,
}

/// Why a recording does not replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A machine asked for something else.
    Diverged {
        /// Where.
        line: usize,
        /// The recorded turn.
        turn: Turn,
        /// Effects and digest of the replayed one.
        found: (u32, u64),
    },
    /// It cannot be a recording.
    Problem(Problem),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Diverged { line, turn, found: (effects, digest) } => write!(
                formatter,
                "line {line}: turn {} of {} gives {effects} effects {digest:x} instead: {turn}",
                turn.sequence, turn.machine
            ),
            Self::Problem(problem) => problem.fmt(formatter),
        }
    }
}

/// What the array gave to shards, by number.
#[derive(Default)]
struct Given {
    views: BTreeMap<u64, Arc<ArrayView>>,
    attentions: BTreeMap<u64, Arc<Attention>>,
}

/// Replays a recording. `line` always holds the line that is being replayed.
///
/// # Errors
/// The first line whose effects differ.
///
/// # Panics
/// A machine may panic when it is told what it cannot be told: who replays a file that came from
/// elsewhere catches that.
pub fn replay(recording: &Recording, line: &Cell<usize>) -> Result<Replayed, Trouble> {
    let header = &recording.header;
    let problem = |line, what: &str| Trouble::Problem(Problem { line, what: what.to_owned() });
    let setup = header.setup().map_err(|what| problem(1, &what))?;
    let config = header.shard(&setup.geometry);
    let shards = setup.shards;
    let mut array = Array::new(setup);
    let Some(ArrayEffect::Publish(first)) = array.poll_effect() else {
        unreachable!("an array's first effect is its first view");
    };
    let mut by_machine: BTreeMap<Machine, Vec<(usize, &Turn)>> = BTreeMap::new();
    for (line, turn) in &recording.turns {
        let known = match turn.machine {
            Machine::Array => true,
            Machine::Shard(index) => index.0 < shards,
        };
        let turns = by_machine.entry(turn.machine).or_default();
        if !known || turn.sequence != turns.len() as u64 {
            return Err(problem(*line, "this turn is not the machine's next"));
        }
        if turns.last().is_some_and(|(_, last)| last.now > turn.now) {
            return Err(problem(*line, "time goes back"));
        }
        turns.push((*line, turn));
    }
    let mut given = Given::default();
    let (turns, inputs, effects) = (0, 0, 0);
    let mut replayed = Replayed { turns, inputs, effects, left: 0, ending: recording.ending };
    for (machine, turns) in by_machine {
        let mut shard = match machine {
            Machine::Array => None,
            Machine::Shard(_) => Some(Told {
                shard: Shard::new(config.clone(), Arc::clone(&first)),
                jobs: BTreeMap::new(),
            }),
        };
        for (index, (at, turn)) in turns.iter().enumerate() {
            line.set(*at);
            let digest = match &mut shard {
                None => Some(turn_array(&mut array, turn, &mut given)),
                Some(told) => turn_shard(told, turn, &given),
            };
            let Some(digest) = digest else {
                if recording.ending == Ending::Ended {
                    return Err(problem(*at, "a view or an attention that the array never gave"));
                }
                replayed.left += turns.len() - index;
                break;
            };
            let found = digest.finish();
            if found != (turn.effects, turn.digest) {
                return Err(Trouble::Diverged { line: *at, turn: (*turn).clone(), found });
            }
            replayed.turns += 1;
            replayed.inputs += turn.inputs.len();
            replayed.effects += u64::from(turn.effects);
        }
    }
    Ok(replayed)
}

fn turn_array(array: &mut Array, turn: &Turn, given: &mut Given) -> Digest {
    for input in &turn.inputs {
        tell_array(array, turn.now, *input);
    }
    let mut digest = Digest::default();
    while let Some(effect) = array.poll_effect() {
        digest.add(&effect);
        match effect {
            ArrayEffect::Publish(view) => drop(given.views.insert(view.epoch, view)),
            ArrayEffect::Attend(attention) => {
                given.attentions.insert(attention.number, attention);
            }
            _ => {}
        }
    }
    digest.add(&array.poll_timeout());
    digest
}

fn tell_array(array: &mut Array, now: Instant, input: Input) {
    match input {
        Input::Report(shard, report) => array.handle_report(now, shard, report),
        Input::SuperblockWritten(member, done) => {
            array.handle_superblock_written(now, member, done)
        }
        Input::Flushed(member, done) => array.handle_flushed(now, member, done),
        Input::FlushRequest(request) => array.handle_flush_request(now, request),
        Input::MemberLost(member) => array.handle_member_gone(now, member),
        Input::Timeout => array.handle_timeout(now),
        Input::Stop => array.handle_stop(now),
        Input::SitOut(settings) => array.handle_sit_out(now, settings),
        Input::Piece(_)
        | Input::MemberIo(_)
        | Input::JobDone(_)
        | Input::View(_)
        | Input::ActivityQuery
        | Input::WriteBack(_)
        | Input::Attention(_)
        | Input::Tuning(_) => unreachable!("the parser gives these to shards only"),
    }
}

/// A shard, and its jobs that are out.
struct Told {
    shard: Shard,
    jobs: BTreeMap<JobId, Job>,
}

/// None if the turn is told of a view or an attention that is not there.
fn turn_shard(told: &mut Told, turn: &Turn, given: &Given) -> Option<Digest> {
    let now = turn.now;
    let Told { shard, jobs } = told;
    for input in &turn.inputs {
        match input {
            Input::Piece(piece) => shard.handle_piece(now, *piece),
            Input::MemberIo(done) => shard.handle_member_io(now, *done),
            Input::JobDone(job) => {
                let job = jobs.remove(job).expect("only a job that is out can be done");
                shard.handle_job_done(now, job);
            }
            Input::View(epoch) => shard.handle_view(now, Arc::clone(given.views.get(epoch)?)),
            Input::ActivityQuery => shard.handle_activity_query(now),
            Input::WriteBack(round) => shard.handle_write_back(now, *round),
            Input::Tuning(tuning) => shard.handle_tuning(now, *tuning),
            Input::Attention(number) => {
                shard.handle_attention(now, Arc::clone(given.attentions.get(number)?));
            }
            Input::Timeout => shard.handle_timeout(now),
            _ => unreachable!("the parser gives the others to the array only"),
        }
    }
    let mut digest = Digest::default();
    while let Some(job) = shard.poll_job() {
        digest.add(&job);
        jobs.insert(job.id, job);
    }
    std::iter::from_fn(|| shard.poll_member_io()).for_each(|io| digest.add(&io));
    std::iter::from_fn(|| shard.poll_reply()).for_each(|reply| digest.add(&reply));
    std::iter::from_fn(|| shard.poll_release()).for_each(|request| digest.add(&request));
    std::iter::from_fn(|| shard.poll_report()).for_each(|report| digest.add(&report));
    digest.add(&shard.poll_timeout());
    Some(digest)
}
