//! What an array holds after the oracle's writes, computed on the host.
//!
//! The guest's agent wrote streams of `oracle/pattern.rs`; the same streams are laid down here in
//! a plain file, to be compared with what md and braid read.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::host;
use super::pattern;
use super::script::SCRIBBLES;

/// Writes the content to `path`: the whole array gets the first stream, then each further stream
/// its scribbles.
pub(crate) fn write(path: &Path, streams: &[u64], sectors: u64) -> Result<()> {
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path);
    let file = file.with_context(|| format!("making {}", path.display()))?;
    let bytes = sectors * 512;
    let mut buffer = Vec::new();
    let (first, rest) = streams.split_first().context("no stream was written")?;
    let whole = std::iter::once((*first, 0, bytes));
    let places = rest.iter().flat_map(|seed| {
        pattern::scribbles(*seed, bytes, SCRIBBLES).map(|(place, length)| (*seed, place, length))
    });
    for (seed, place, length) in whole.chain(places) {
        buffer.resize(usize::try_from(length)?, 0);
        pattern::stream(seed, place, &mut buffer);
        file.write_all_at(&buffer, place)?;
    }
    Ok(())
}

/// SHA-256 of that content; `folder` is for a passing file.
pub(crate) fn sha256(folder: &Path, streams: &[u64], sectors: u64) -> Result<String> {
    let path = folder.join("expected.raw");
    write(&path, streams, sectors)?;
    let hash = host::sha256(&path)?;
    std::fs::remove_file(&path)?;
    Ok(hash)
}
