//! The machine that ran the suites.

use std::fmt;
use std::process::Command;

/// Processor, cores, kernel, and load.
#[derive(Clone, Debug)]
pub struct Machine {
    processor: String,
    cores: usize,
    kernel: String,
    load: String,
}

impl Machine {
    /// Reads the properties of this machine.
    #[must_use]
    pub fn look() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let field = |name: &str| {
            info.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            })
        };
        let or_unknown = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
        let processor = format!(
            "{}, family {} model {}",
            or_unknown(field("model name")),
            or_unknown(field("cpu family")),
            or_unknown(field("model"))
        );
        let load = read("/proc/loadavg");
        Self {
            processor,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: load.split(' ').take(3).collect::<Vec<_>>().join(" "),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor, cores, kernel, load } = self;
        write!(formatter, "machine: {processor}; {cores} cores; Linux {kernel}; load {load}")
    }
}

/// Programs that suites use, each with its option that prints the version.
const PROGRAMS: [(&str, &str); 5] = [
    ("fio", "--version"),
    ("nbdkit", "--version"),
    ("qemu-nbd", "--version"),
    ("mkfs.btrfs", "--version"),
    ("mkfs.ext4", "-V"),
];

pub(super) fn versions() -> Vec<String> {
    let said = |(program, word): (&str, &str)| {
        let output = Command::new(program).arg(word).output().ok()?;
        // mkfs.ext4 prints its version to stderr.
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().next()?.trim().to_owned();
        (!line.is_empty()).then_some(line)
    };
    let braid = format!("braid {}", env!("CARGO_PKG_VERSION"));
    [braid].into_iter().chain(PROGRAMS.into_iter().filter_map(said)).collect()
}
