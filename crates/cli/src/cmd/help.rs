//! `braid help`: explains an error code, exit statuses, and braid's words for mdadm's verbs.

use clap::CommandFactory;
use serde_json::json;

use super::{Cli, Globals};
use braid_console::error::code::Code;
use braid_console::error::render::explain;
use braid_console::error::{CliError, Exit, Risk};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An error code such as B031, `exit`, `mdadm`, or a verb.
    topic: Option<String>,
}

/// mdadm's commands, and braid's command for each.
const MDADM: [(&str, &str); 25] = [
    ("mdadm --create /dev/md/NAME -l5 -n3 A B C", "braid create NAME --level 5 A B C"),
    ("... --chunk=512 --layout=ls missing", "... --chunk 512K --layout left-symmetric missing"),
    ("... --assume-clean", "... --assume-clean"),
    ("... --run, over old data", "... --destroy NAME, the data to destroy"),
    ("mdadm --assemble /dev/md/NAME A B C", "braid serve A B C"),
    ("mdadm --assemble --readonly ...", "braid serve --read-only A B C"),
    (
        "mdadm --assemble --force ...",
        "connect the missing members; or braid rescue A B C, which writes nothing to them",
    ),
    ("mdadm --examine A", "braid examine A"),
    ("mdadm --examine --scan", "braid scan; then braid serve --name NAME"),
    ("mdadm --stop /dev/md/NAME", "braid stop NAME"),
    ("mdadm --detail /dev/md/NAME, /proc/mdstat", "braid status NAME, braid status"),
    ("mdadm --detail --test /dev/md/NAME", "braid status NAME --exit-code"),
    ("mdadm --wait /dev/md/NAME", "braid wait NAME --for idle"),
    ("echo check > /sys/block/MD/md/sync_action", "braid check NAME"),
    ("mdadm --monitor --program=CMD --mail=ADDRESS", "braid serve --on-event CMD --mail ADDRESS"),
    ("mdadm /dev/md/NAME --add A", "braid add NAME A"),
    (
        "... --re-add A",
        "braid add NAME A: the bitmap limits the rebuild to the writes that A missed",
    ),
    ("mdadm /dev/md/NAME --fail A", "braid fail NAME A"),
    ("mdadm /dev/md/NAME --remove A, failed, detached", "braid remove NAME A, failed, detached"),
    ("... --replace A --with B", "braid replace NAME A --with B"),
    ("mdadm --grow --bitmap=internal /dev/md/NAME", "braid set NAME consistency=bitmap"),
    ("... --bitmap-chunk=16M", "braid set NAME bitmap-chunk=16M"),
    ("... --raid-devices=6 --add E F", "braid grow NAME E F"),
    (
        "... --level=6, --chunk=128, --size=max",
        "braid grow NAME --level 6, --chunk 128K, --size max",
    ),
    ("mdadm --assemble --update=revert-reshape ...", "braid revert NAME"),
];

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let Some(topic) = args.topic.as_deref() else {
        out!("{}", Cli::command().render_long_help());
        return Ok(Exit::Done);
    };
    if globals.json {
        return json(topic);
    }
    if let Ok(code) = topic.parse::<Code>() {
        out!("{}", explain(code, globals.paint_out));
    } else if topic == "exit" {
        for (exit, meaning) in Exit::TABLE {
            outln!("{:>4}  {meaning}", exit.number());
        }
    } else if topic == "mdadm" {
        for (theirs, ours) in MDADM {
            outln!("{theirs:<44} {ours}");
        }
    } else if let Some(help) = help_on(topic) {
        out!("{help}");
    } else {
        return Err(unknown(topic));
    }
    Ok(Exit::Done)
}

fn help_on(verb: &str) -> Option<String> {
    let mut command = Cli::command();
    // Fills in the whole command line for the usage text of each verb.
    command.build();
    command.find_subcommand_mut(verb).map(|verb| verb.render_long_help().to_string())
}

fn unknown(topic: &str) -> CliError {
    let error = CliError::new(Code::Usage, format!("there is no help on '{topic}'"));
    let no_verb = error.clone().because(format!("braid has no verb '{topic}'"));
    super::habits::meant(no_verb, topic, &[]).unwrap_or_else(|| {
        error.because("Topics: a verb, an error code such as B031, exit, mdadm").remedy(
            Risk::Look,
            "See the verbs",
            "braid --help",
        )
    })
}

/// The help on a topic as one JSON object.
fn json(topic: &str) -> Result<Exit, CliError> {
    let object = if let Ok(code) = topic.parse::<Code>() {
        let entry = code.entry();
        json!({
            "code": code.to_string(),
            "title": entry.title,
            "exit": entry.exit.number(),
            "explanation": entry.explanation,
        })
    } else if topic == "exit" {
        let row =
            |(exit, meaning): (Exit, &str)| json!({ "exit": exit.number(), "meaning": meaning });
        json!({ "exits": Exit::TABLE.map(row) })
    } else if topic == "mdadm" {
        let row = |(theirs, ours): (&str, &str)| json!({ "mdadm": theirs, "braid": ours });
        json!({ "verbs": MDADM.map(row) })
    } else if let Some(help) = help_on(topic) {
        json!({ "verb": topic, "help": help })
    } else {
        return Err(unknown(topic));
    };
    outjson!(&object);
    Ok(Exit::Done)
}
