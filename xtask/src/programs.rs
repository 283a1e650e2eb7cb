//! Runs other programs to their end; whether they can mount by FUSE.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Whether this process may open the device of FUSE.
pub(crate) fn opens_fuse() -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
}

/// Runs a program, which must succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    output(command).map(|_| ())
}

pub(crate) fn output(command: &mut Command) -> Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    let program = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!("no {program} here"),
        Err(error) => return Err(error).context(program),
    };
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(output.status.success(), "{program}: {}: {words}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
