//! `braid grow` and `braid revert`: change a running array's shape, and return to the old shape.
//!
//! The server judges the request and makes the change. Both commands return at once; `braid wait
//! NAME --for idle` waits for the end.

use std::path::PathBuf;

use braid_control::model::{
    MemberRequest, Shape, ShapeAnswer, ShapeChangeKind, ShapeRequest, ShapeWanted,
};

use super::{Globals, members};
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::size::{format_size, parse_size};
use braid_discovery::running::{self, RunningArray, unanswered};

#[derive(Debug, clap::Args)]
pub(crate) struct GrowArgs {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// Files or block devices that become members; the array gets a slot for each.
    #[arg(value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// The level: 5 becomes 6 and back, 4 becomes 5, a mirror of two becomes 5, 0 becomes 4, 5 or
    /// 10 and back.
    #[arg(long, value_name = "LEVEL")]
    level: Option<String>,
    /// The layout of chunks, by mdadm's name for it.
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<String>,
    /// The size of a chunk.
    #[arg(long, value_name = "SIZE")]
    chunk: Option<String>,
    /// The number of slots; spares of the array fill new ones, and members of lost ones become
    /// spares.
    #[arg(long, value_name = "N")]
    members: Option<u16>,
    /// The size to use of each member, or max, after members became larger.
    #[arg(long, value_name = "SIZE|max")]
    size: Option<String>,
    /// Where the array ends for clients, before it gets smaller; max takes it back.
    #[arg(long, value_name = "SIZE|max")]
    array_size: Option<String>,
    /// Name of content on the array that may be cut off behind its new end; once for each.
    #[arg(long, value_name = "NAME")]
    cut: Vec<String>,
    /// Name of a thing on the devices that may be destroyed; once for each.
    #[arg(long, value_name = "NAME")]
    destroy: Vec<String>,
    /// Say what the command would do, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RevertArgs {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// Say what the command would do, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub(crate) fn grow(args: &GrowArgs, globals: &Globals) -> Result<Exit, CliError> {
    let running = running::find(&args.array)?;
    let GrowArgs { level, layout, chunk, members: slots, size, array_size, devices, .. } = args;
    let is_nothing = level.is_none() && layout.is_none() && chunk.is_none() && size.is_none();
    if is_nothing && slots.is_none() && array_size.is_none() && devices.is_empty() {
        let error = CliError::new(Code::Usage, "nothing to grow was named").about(&args.array);
        let error = error.because(
            "name devices, or one of --level, --layout, --chunk, --members, --size, --array-size",
        );
        return Err(error.remedy(Risk::Look, "See the words", "braid grow --help"));
    }
    let chunk_bytes = chunk.as_ref().map(|word| {
        parse_size(word).map_err(|error| {
            let error = CliError::new(Code::SizeInvalid, error.to_string()).about(word);
            error.remedy(Risk::Look, "See the words", "braid grow --help")
        })
    });
    let join = match devices.is_empty() {
        true => None,
        false => Some(members::wanted(MemberRequest::Spare, devices, &args.destroy)?),
    };
    let wanted = ShapeWanted {
        request: ShapeRequest::Grow,
        level: level.clone(),
        layout: layout.clone(),
        chunk_bytes: chunk_bytes.transpose()?,
        members: *slots,
        size: size.clone(),
        array_size: array_size.clone(),
        cut: args.cut.clone(),
        join,
    };
    let answer = ask(&running, &wanted, args.dry_run)?;
    tell(&answer, globals, &running.word(&[]));
    Ok(Exit::Done)
}

pub(crate) fn revert(args: &RevertArgs, globals: &Globals) -> Result<Exit, CliError> {
    let running = running::find(&args.array)?;
    let wanted = ShapeWanted {
        request: ShapeRequest::Revert,
        level: None,
        layout: None,
        chunk_bytes: None,
        members: None,
        size: None,
        array_size: None,
        cut: Vec::new(),
        join: None,
    };
    let answer = ask(&running, &wanted, args.dry_run)?;
    tell(&answer, globals, &running.word(&[]));
    Ok(Exit::Done)
}

fn ask(
    running: &RunningArray,
    wanted: &ShapeWanted,
    dry_run: bool,
) -> Result<ShapeAnswer, CliError> {
    let target = if dry_run { "/v1/shape?dry_run=true" } else { "/v1/shape" };
    let answer = running.client().post_with::<ShapeAnswer>(target, wanted);
    answer.map_err(|error| unanswered(&running.control, &error))
}

fn tell(answer: &ShapeAnswer, globals: &Globals, word: &str) {
    if globals.json {
        outjson!(&serde_json::to_value(answer).expect("it is made of text and numbers"));
    } else {
        lines(answer, word).iter().for_each(|line| outln!("{}", printable(line)));
    }
}

/// A shape in a few words, such as `raid5 of 4, left-symmetric, chunk 64K, 1.5 GiB`.
pub(crate) fn shape_words(shape: &Shape) -> String {
    let mut words = format!("{} of {}", shape.level, shape.members);
    if let Some(layout) = &shape.layout {
        words.push_str(&format!(", {layout}"));
    }
    if let Some(chunk) = shape.chunk_bytes {
        words.push_str(&format!(", chunk {}", format_size(chunk)));
    }
    format!("{words}, {}", format_size(shape.size_bytes))
}

fn lines(answer: &ShapeAnswer, word: &str) -> Vec<String> {
    let verb = match (answer.kind, answer.dry_run) {
        (ShapeChangeKind::Revert, true) => "would go back",
        (ShapeChangeKind::Revert, false) => "goes back",
        (_, true) => "would become",
        (_, false) => "becomes",
    };
    let mut lines = vec![
        format!("{} {verb}: {}", answer.name, shape_words(&answer.after)),
        format!("  now: {}", shape_words(&answer.before)),
    ];
    if let Some(joined) = &answer.joined {
        let devices: Vec<&str> = joined.members.iter().map(|one| one.member.as_str()).collect();
        lines.push(format!("  new members: {}", devices.join(", ")));
        let gone = if answer.dry_run { "would be destroyed" } else { "was destroyed" };
        lines.extend(joined.destroyed.iter().map(|thing| format!("  {thing}  {gone}")));
    }
    if answer.bytes_each > 0 {
        let each = format_size(answer.bytes_each);
        let time = answer.seconds.map_or_else(String::new, |seconds| {
            format!(
                ", about {} at the speed of the slowest now, longer beside clients",
                time(seconds)
            )
        });
        lines.push(format!("  each member reads and writes {each}{time}"));
    }
    lines.extend(answer.notes.iter().map(|note| format!("  {note}")));
    if answer.kind == ShapeChangeKind::ArraySize {
        if answer.after.size_bytes < answer.before.size_bytes {
            lines.push(format!("  take it back:  braid grow {word} --array-size max"));
        }
    } else if !answer.dry_run {
        lines.push(format!("  see its progress:  braid status {word}"));
        lines.push(format!("  wait for the end:  braid wait {word} --for idle"));
        if answer.kind == ShapeChangeKind::Reshape {
            lines.push(format!("  go back:  braid revert {word}"));
        }
    }
    lines
}

fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{} s", seconds.max(1)),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3600)),
    }
}
