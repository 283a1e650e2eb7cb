//! The mounts that this process sees, as the kernel lists them in /proc/self/mountinfo.
//!
//! stat(2) on a mount would wait for a server that hangs; reading the list does not wait.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

pub(crate) const KIND: &str = "fuse.braid";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    pub(crate) place: PathBuf,
    /// The kind of the mounted file system, such as `ext4` or `fuse.braid`.
    pub(crate) kind: OsString,
}

/// The uppermost mount at `place`, an absolute path without links.
pub(crate) fn at(place: &Path) -> std::io::Result<Option<MountEntry>> {
    let list = std::fs::read("/proc/self/mountinfo").map_err(|error| {
        // Adds these words, without which the error would seem to be about `place`.
        let why = format!("the mounts cannot be read from /proc/self/mountinfo: {error}");
        std::io::Error::new(error.kind(), why)
    })?;
    Ok(list.split(|byte| *byte == b'\n').filter_map(line).rfind(|mounted| mounted.place == place))
}

/// Parses one line of proc_pid_mountinfo(5): word five is the mount point; the kind of file system
/// follows a lone dash.
fn line(line: &[u8]) -> Option<MountEntry> {
    let mut words = line.split(|byte| *byte == b' ');
    let place = words.by_ref().nth(4)?;
    let kind = words.skip_while(|word| *word != b"-").nth(1)?;
    let place = PathBuf::from(OsString::from_vec(plain(place)));
    Some(MountEntry { place, kind: OsStr::from_bytes(kind).to_owned() })
}

/// Decodes a word of the list of mounts, in which blanks and the like are a backslash and three
/// octal digits.
fn plain(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let escaped = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_place_and_kind() {
        let text = b"36 35 98:0 /mnt1 /mnt2/a\\040b\\134 rw,noatime master:1 - fuse.braid braid rw";
        let mounted = line(text).expect("a mount");
        assert_eq!(mounted.place, Path::new("/mnt2/a b\\"));
        assert_eq!(mounted.kind, "fuse.braid");
        assert_eq!(line(b""), None);
        assert_eq!(line(b"36 35 98:0 /mnt1 /mnt2 rw"), None);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(at(Path::new("/")).expect("a list").is_some());
        assert_eq!(at(Path::new("/nothing here")).expect("a list"), None);
    }
}
