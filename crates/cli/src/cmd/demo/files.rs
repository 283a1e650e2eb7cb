//! Copies of members: taken while they are served, put back later, compared at the end.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes read at a time.
const STEP_BYTES: usize = 256 * 1024;

/// Copies a file; what is zero stays a hole.
pub(super) fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let target = File::options().write(true).create_new(true).open(to)?;
    target.set_len(source.metadata()?.len())?;
    let mut buffer = vec![0; STEP_BYTES];
    let mut offset = 0;
    loop {
        let count = source.read(&mut buffer)?;
        let bytes = &buffer[..count];
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.iter().any(|byte| *byte != 0) {
            target.write_all_at(bytes, offset)?;
        }
        offset += count as u64;
    }
}

/// Whether two files hold the same bytes.
pub(super) fn is_same(a: &Path, b: &Path) -> io::Result<bool> {
    let (a, b) = (File::open(a)?, File::open(b)?);
    let size_bytes = a.metadata()?.len();
    if b.metadata()?.len() != size_bytes {
        return Ok(false);
    }
    let (mut of_a, mut of_b) = (vec![0; STEP_BYTES], vec![0; STEP_BYTES]);
    for offset in (0..size_bytes).step_by(STEP_BYTES) {
        let left = usize::try_from(size_bytes - offset).unwrap_or(usize::MAX);
        let count = left.min(STEP_BYTES);
        a.read_exact_at(&mut of_a[..count], offset)?;
        b.read_exact_at(&mut of_b[..count], offset)?;
        if of_a[..count] != of_b[..count] {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_the_same_until_a_byte_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let mut bytes = vec![0; 3 * STEP_BYTES + 5];
        bytes[STEP_BYTES + 1] = 9;
        std::fs::write(&from, &bytes).expect("written");
        copy_sparse(&from, &to).expect("copied");
        assert_eq!(std::fs::read(&to).expect("read"), bytes);
        assert!(is_same(&from, &to).expect("compared"));
        assert!(copy_sparse(&from, &to).is_err(), "nothing is overwritten");
        let last = bytes.len() as u64 - 1;
        let file = File::options().write(true).open(&to).expect("open");
        file.write_all_at(&[1], last).expect("written");
        assert!(!is_same(&from, &to).expect("compared"));
        file.set_len(last).expect("cut");
        assert!(!is_same(&from, &to).expect("compared"));
    }
}
