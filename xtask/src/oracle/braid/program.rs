//! Braid as operators run it: its command line, and `nbdcopy` as its client.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::initramfs::output;
use super::super::spec::{ArraySpec, Level};
use crate::build;

pub(super) struct Program {
    path: PathBuf,
}

impl Program {
    /// Builds the program (quick if it is built already).
    pub(super) fn build() -> Result<Self> {
        Ok(Self { path: build::Program::Braid.dev()? })
    }

    /// Runs `braid create` for this spec. `create` makes members of equal size itself; members of
    /// other sizes are made here as sparse files.
    pub(super) fn create(&self, spec: &ArraySpec, images: &[PathBuf]) -> Result<()> {
        let mut create = Command::new(&self.path);
        create.arg("create").arg(&spec.name[..spec.name.len().min(24)]);
        create.args(["--level", &spec.level.to_string(), "--metadata", spec.metadata]);
        if let Some(layout) = spec.layout {
            create.args(["--layout", layout]);
        }
        if let Some(chunk) = spec.chunk_kib.filter(|_| spec.level != Level::Raid1) {
            create.arg("--chunk").arg(format!("{chunk}K"));
        }
        let size = spec.members[0];
        if spec.members.iter().all(|sectors| *sectors == size) {
            ensure!(size.is_multiple_of(2), "{size} sectors are no whole KiB");
            create.arg("--member-size").arg(format!("{}K", size / 2));
        } else {
            for (image, sectors) in images.iter().zip(&spec.members) {
                std::fs::File::create(image)?.set_len(sectors * 512)?;
            }
        }
        output(create.args(images)).context("braid create")?;
        Ok(())
    }

    /// Runs `braid create` with these options.
    pub(super) fn create_with(&self, words: &[&str], images: &[PathBuf]) -> Result<()> {
        let mut create = self.command(images);
        output(create.args(["create", "tank"]).args(words).args(images)).context("braid create")?;
        Ok(())
    }

    /// Serves the array with these options for one `nbdcopy` from it to a file.
    pub(super) fn copy_out(&self, words: &[&str], images: &[PathBuf], target: &Path) -> Result<()> {
        let command = format!("nbdcopy \"$uri\" '{}'", target.display());
        self.serve(&[&["--read-only"], words].concat(), images, &command)
    }

    /// Serves the array read-only while `qemu-img` copies it to a file, in which unreadable sectors
    /// are zeroes.
    pub(super) fn salvage(&self, images: &[PathBuf], target: &Path) -> Result<()> {
        let command =
            format!("qemu-img convert --salvage -q -f raw -O raw \"$uri\" '{}'", target.display());
        self.serve(&["--read-only"], images, &command)
    }

    /// Serves the array for one `nbdcopy` from a file into the array.
    pub(super) fn copy_in(&self, images: &[PathBuf], source: &Path) -> Result<()> {
        let command = format!("nbdcopy --flush '{}' \"$uri\"", source.display());
        self.serve(&[], images, &command)
    }

    /// The program with a state folder next to the images, made anew for each run.
    fn command(&self, images: &[PathBuf]) -> Command {
        let mut command = Command::new(&self.path);
        if let Some(folder) = images.first().and_then(|image| image.parent()) {
            command.arg("--state-dir").arg(folder.join("state"));
        }
        command
    }

    /// Runs `braid set` with `kernel-compat` on the array.
    pub(super) fn kernel_compat(&self, images: &[PathBuf]) -> Result<()> {
        let seen = self.examine(images)?;
        let uuid = seen["members"][0]["superblocks"][0]["array"]["uuid"].as_str();
        let uuid = uuid.context("no superblock")?;
        let mut set = self.command(images);
        set.args(["set", uuid, "kernel-compat"]).args(images);
        output(&mut set).map(drop).context("braid set")
    }

    /// Runs `braid undo` of the last command on arrays in the images' folder. A linear array cannot
    /// show whether clients wrote since, so an option asserts that no client did.
    pub(super) fn undo(&self, images: &[PathBuf]) -> Result<()> {
        let undo = output(self.command(images).args(["undo", "--nobody-wrote"]));
        undo.map(drop).context("braid undo")
    }

    /// Serves the array while `qemu-io` executes commands, and kills the server in the middle.
    pub(super) fn killed_under(
        &self,
        words: &[&str],
        images: &[PathBuf],
        commands: &Path,
    ) -> Result<()> {
        let load = format!(
            "qemu-io -t none -f raw \"$uri\" < '{}' > /dev/null 2>&1 & sleep 0.3; kill -9 $PPID",
            commands.display()
        );
        let mut serve = self.command(images);
        serve.arg("serve").args(words).args(["--run", &load]).args(images);
        let ended = serve.output().context("braid serve")?;
        let words = String::from_utf8_lossy(&ended.stderr).into_owned();
        ensure!(ended.status.signal() == Some(9), "it was to be killed: {words}");
        Ok(())
    }

    /// Serves the array while a device replaces a slot's member, and a file is copied into the
    /// array.
    pub(super) fn rebuild(
        &self,
        images: &[PathBuf],
        (slot, device): (usize, &Path),
        source: &Path,
    ) -> Result<()> {
        let load = format!(
            "set -e; \"$BRAID\" fail tank {slot}; \"$BRAID\" remove tank {slot}; \"$BRAID\" add tank '{}'; \
             nbdcopy --flush '{}' \"$uri\"; \"$BRAID\" wait tank --for rebuild",
            device.display(),
            source.display()
        );
        self.serve_with_tool(&[], images, &load).context("a rebuild")
    }

    /// Serves the array with these options for a shell script, where `$BRAID` is the program.
    pub(super) fn serve_with_tool(
        &self,
        words: &[&str],
        images: &[PathBuf],
        load: &str,
    ) -> Result<()> {
        let folder = images.first().and_then(|image| image.parent()).context("no image")?;
        let socket = format!("nbd+unix:///?socket={}", folder.join("nbd.sock").display());
        let mut serve = self.command(images);
        serve.env("BRAID_RUNTIME_DIR", folder.join("run")).env("BRAID", &self.path);
        serve.args(["serve", "--nbd", &socket]).args(words).args(["--run", load]).args(images);
        output(&mut serve).map(drop).context("braid serve")
    }

    pub(super) fn replay(&self, images: &[PathBuf]) -> Result<()> {
        output(self.command(images).arg("replay").args(images)).map(drop).context("braid replay")
    }

    /// Runs `braid replay` on the array; returns the JSON output.
    pub(super) fn replay_json(&self, images: &[PathBuf]) -> Result<Value> {
        let mut replay = self.command(images);
        let said =
            output(replay.args(["--json", "replay"]).args(images)).context("braid replay")?;
        serde_json::from_slice(said.as_ref()).context("braid replay says no object")
    }

    fn serve(&self, words: &[&str], images: &[PathBuf], command: &str) -> Result<()> {
        let mut serve = self.command(images);
        serve.arg("serve").args(words).args(["--run", command]).args(images);
        output(&mut serve).map(drop).context("braid serve")
    }

    /// The JSON of `braid examine`. An exit status for images that need attention is no error.
    pub(super) fn examine(&self, images: &[PathBuf]) -> Result<Value> {
        let said = self.command(images).args(["examine", "--json"]).args(images).output();
        let said = said.context("braid examine")?;
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        serde_json::from_slice(&said.stdout).with_context(|| format!("braid examine: {words}"))
    }
}
