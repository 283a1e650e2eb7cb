//! The array's content after the oracle's writes, computed on the host.
//!
//! The guest's agent writes streams of `oracle/pattern.rs`. The host computes the same streams, to
//! compare them with the bytes that md and braid read, and to write them through braid.

use std::path::Path;

use anyhow::{Context, Result};

use super::host;
use super::pattern;
use super::script::SCRIBBLES;

/// The scattered places, in an array of `bytes`, to which a stream is written: offset and length.
pub(crate) fn scribbles(seed: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    pattern::scribbles(seed, bytes, SCRIBBLES)
}

/// `length` bytes of a stream from an offset on.
pub(crate) fn stream(seed: u64, offset: u64, length: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length)?];
    pattern::stream(seed, offset, &mut bytes);
    Ok(bytes)
}

/// The array's content after the whole array got the first stream, and scattered places got each
/// further stream.
pub(crate) fn bytes(streams: &[u64], sectors: u64) -> Result<Vec<u8>> {
    let (first, rest) = streams.split_first().context("no stream was written")?;
    let mut content = stream(*first, 0, sectors * 512)?;
    for seed in rest {
        scribble(&mut content, *seed)?;
    }
    Ok(content)
}

/// Writes a stream into `content` at the stream's scattered places.
pub(crate) fn scribble(content: &mut [u8], seed: u64) -> Result<()> {
    for (place, length) in scribbles(seed, content.len() as u64) {
        let start = usize::try_from(place)?;
        pattern::stream(seed, place, &mut content[start..start + usize::try_from(length)?]);
    }
    Ok(())
}

/// SHA-256 of an array's content; `folder` is for a temporary file.
pub(crate) fn sha256(folder: &Path, content: &[u8]) -> Result<String> {
    let path = tempfile::NamedTempFile::new_in(folder)?;
    std::fs::write(&path, content)?;
    host::sha256(path.path())
}
