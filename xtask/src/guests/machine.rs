//! A virtual machine and a dialogue over its console: lines, both ways.
//!
//! Software emulation and one processor, as in the oracle's guests and for the same reasons
//! (`oracle/guest.rs`). The guest's messages begin with `@@`; its other output is kept for error
//! messages.
//!
//! Invariants: the QEMU process has ended when the value is dropped. A guest that is silent, panics
//! or ends early is an error, with the end of its console.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};

use crate::server::send;

/// Prefix of the guest's messages.
const MARK: &str = "@@";
/// Lines from the end of the console that a failure's message shows.
const TAIL_LINES: usize = 30;

/// Time limit of a round of the guest's script, and of the script's end. Either takes seconds on
/// two idle cores.
pub(crate) const ROUND_LIMIT: Duration = Duration::from_secs(90);
/// Rounds of the guest's script between two events.
const ROUNDS: usize = 3;

pub(crate) struct Machine {
    child: Child,
    console: Receiver<String>,
    input: ChildStdin,
    said: Vec<String>,
}

impl Machine {
    /// Starts a machine with this much memory (shared, for vhost-user) and these devices.
    pub(crate) fn start(memory_mib: u32, devices: &[String]) -> Result<Self> {
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1"]);
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        qemu.args(["-machine", "pc,memory-backend=memory", "-m", &memory_mib.to_string()])
            .arg("-object");
        qemu.arg(format!("memory-backend-memfd,id=memory,size={memory_mib}M,share=on"));
        qemu.args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
        qemu.args(devices);
        qemu.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = qemu.spawn().context("qemu-system-x86_64")?;
        let output = child.stdout.take().context("its console")?;
        let input = child.stdin.take().context("its console")?;
        let (sender, console) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).trim().to_owned()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, console, input, said: Vec::new() })
    }

    /// Waits for a message of the guest that begins with this word; returns the rest of the line.
    pub(crate) fn hear(&mut self, word: &str, limit: Duration) -> Result<String> {
        let begun = Instant::now();
        loop {
            match self.console.recv_timeout(limit.saturating_sub(begun.elapsed())) {
                Ok(line) => {
                    self.said.push(line.clone());
                    // The firmware may have left bytes before the mark on the line.
                    let Some((_, words)) = line.split_once(MARK) else { continue };
                    if let Some(rest) = words.strip_prefix(word) {
                        return Ok(rest.trim().to_owned());
                    }
                    ensure!(!words.starts_with("FAILED"), "the guest: {}", self.tail());
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("no {word} after {} s; the console: {}", limit.as_secs(), self.tail())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("it ended without {word}; the console: {}", self.tail())
                }
            }
        }
    }

    /// Waits for [`ROUNDS`] rounds that begin after this call.
    pub(crate) fn hear_rounds(&mut self) -> Result<()> {
        // The first report may be of a round that began before the call.
        for _ in 0..=ROUNDS {
            self.hear("ROUND", ROUND_LIMIT)?;
        }
        Ok(())
    }

    /// Sends a line to the guest's console.
    pub(crate) fn say(&mut self, word: &str) -> Result<()> {
        writeln!(self.input, "{word}").context("the guest's console")?;
        self.input.flush().context("the guest's console")
    }

    /// Sends a signal to QEMU.
    pub(crate) fn send(&self, signal: Signal) -> Result<()> {
        let process = Pid::from_raw(i32::try_from(self.child.id())?).context("a process")?;
        send(process, signal)
    }

    /// Waits until the guest has switched off.
    pub(crate) fn ended(mut self, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.said.extend(self.console.iter());
                ensure!(status.success(), "QEMU ended with {status}: {}", self.tail());
                return Ok(());
            }
            ensure!(begun.elapsed() < limit, "it does not switch off: {}", self.tail());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn tail(&self) -> String {
        self.said[self.said.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Kill and wait fail only if the process has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
