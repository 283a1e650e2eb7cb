//! The array under a guest: created, served, deprived of a member, and killed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::programs::output;
use crate::server::{Server, StartResult, control_of};

/// The number of members of the served array.
const MEMBERS: usize = 4;
const MEMBER_SIZE: &str = "48M";

/// A RAID-5 of four files.
pub(super) struct Array {
    braid: PathBuf,
    folder: PathBuf,
    members: Vec<PathBuf>,
    /// Options for the doors, in addition to the socket.
    doors: Vec<String>,
    server: Option<Server>,
}

impl Array {
    /// Creates the array in a folder, and serves it with these options.
    pub(super) fn create(braid: &Path, folder: &Path, doors: &[&str]) -> Result<Self> {
        let members: Vec<PathBuf> =
            (0..MEMBERS).map(|slot| folder.join(format!("m{slot}"))).collect();
        let mut create = Command::new(braid);
        create.arg("--state-dir").arg(folder.join("state"));
        create.args(["create", "tank", "--level", "5", "--member-size", MEMBER_SIZE]);
        output(create.args(&members))?;
        let (braid, folder) = (braid.to_owned(), folder.to_owned());
        let doors = doors.iter().map(|word| (*word).to_owned()).collect();
        let mut array = Self { braid, folder, members, doors, server: None };
        array.serve()?;
        Ok(array)
    }

    /// Serves the array with its present members.
    fn serve(&mut self) -> Result<()> {
        let options: Vec<&str> = self.doors.iter().map(String::as_str).collect();
        self.server = match Server::start(&self.braid, &self.folder, &self.members, &options)? {
            StartResult::Serving(server) => Some(server),
            StartResult::Refused(code) => bail!("refused with {code}"),
        };
        Ok(())
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("nbd.sock")
    }

    pub(super) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    /// The array's size, from `braid status`.
    pub(super) fn size_bytes(&self) -> Result<u64> {
        let status = self.ask("status", &[])?;
        status["arrays"][0]["size_bytes"].as_u64().with_context(|| status.to_string())
    }

    /// Bytes that the members occupy in their file system.
    pub(super) fn taken_bytes(&self) -> Result<u64> {
        let sizes = self.members.iter().map(|member| Ok(member.metadata()?.blocks() * 512));
        sizes.sum()
    }

    /// Fails the last member by `braid fail`; later servers get the array without it.
    pub(super) fn lose_a_member(&mut self) -> Result<()> {
        let lost = self.members.pop().context("a member")?;
        self.ask("fail", &[lost.to_str().context("a path of text")?])?;
        self.expect_state("degraded")
    }

    /// Fails unless `braid status` reports this state of the array.
    pub(super) fn expect_state(&self, state: &str) -> Result<()> {
        let status = self.ask("status", &[])?;
        ensure!(status["arrays"][0]["state"] == state, "not {state}: {status}");
        Ok(())
    }

    /// Kills the server, and starts a new server of the same members at the same place.
    pub(super) fn kill_and_serve(&mut self) -> Result<()> {
        self.server.take().context("it serves")?.kill()?;
        self.serve()
    }

    /// Stops the server in order.
    pub(super) fn stop(mut self) -> Result<()> {
        self.server.take().context("it serves")?.stop()
    }

    /// The JSON answer of `braid VERB` about this array.
    pub(super) fn ask(&self, verb: &str, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.braid);
        command.args(["--json", verb]).arg(control_of(&self.folder)).args(arguments);
        let text = output(&mut command).with_context(|| format!("braid {verb}"))?;
        serde_json::from_str(text.lines().last().unwrap_or_default())
            .with_context(|| format!("braid {verb} says {text}"))
    }
}
