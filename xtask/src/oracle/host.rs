//! Output of the host's own programs about images: mdadm's `--examine` and coreutils' `sha256sum`.
//!
//! mdadm reads superblocks of plain files as those of devices, so the comparison of fields needs no
//! boot.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::initramfs::output;

/// `mdadm --examine` of one image, without its first line (the image's path).
pub(crate) fn examine(image: &Path) -> Result<String> {
    let text = output(Command::new("/sbin/mdadm").env("TZ", "UTC").arg("--examine").arg(image))?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.split_once('\n').map_or("", |(_, rest)| rest).to_owned())
}

/// SHA-256 of a file, in hex.
pub(crate) fn sha256(path: &Path) -> Result<String> {
    let text = output(Command::new("sha256sum").arg("-b").arg(path))?;
    let text = String::from_utf8_lossy(&text);
    text.split(' ').next().map(str::to_owned).context("sha256sum said nothing")
}
