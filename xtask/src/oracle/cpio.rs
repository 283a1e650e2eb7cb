//! Writes a `newc` cpio archive, the form of a kernel's initramfs.
//!
//! This file stands below `initramfs`; it knows no kernel and no RAID. It reads no archives and
//! keeps no owners or times: every file is root's and of the year 1970, so equal input makes equal
//! bytes. Archives can be joined end to end, since the kernel unpacks each in turn. So a job's
//! archive follows a cached base archive.

pub(crate) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

impl Archive {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), inode: 0 }
    }

    /// Adds a folder to the archive; the caller has added its parents before.
    pub(crate) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    pub(crate) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, content);
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK, target.as_bytes());
    }

    /// Ends the archive and returns its bytes, a multiple of 512.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.inode += 1;
        let inode = self.inode;
        let links = 1 + u32::from(mode == DIRECTORY);
        let (size, name_size) = (content.len(), path.len() + 1);
        // The fields are magic, inode, mode, uid, gid, links, mtime, size, dev, rdev (major,
        // minor), name, check.
        let header = format!(
            "070701{inode:08x}{mode:08x}{:08x}{:08x}{links:08x}{:08x}{size:08x}\
             {:08x}{:08x}{:08x}{:08x}{name_size:08x}{:08x}",
            0, 0, 0, 0, 0, 0, 0, 0
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn header_is_110_bytes_and_content_is_aligned() {
        let mut archive = Archive::new();
        archive.directory("bin");
        archive.file("bin/x", b"hello");
        archive.link("bin/y", "x");
        let bytes = archive.finish();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[110..114], b"bin\0");
        // "bin" ends at 114 and is padded to 116; the second header is 110 bytes, its name 6 bytes.
        assert_eq!(&bytes[116..122], b"070701");
        assert_eq!(&bytes[116 + 54..116 + 62], b"00000005", "size of the content");
        assert_eq!(&bytes[116 + 116..116 + 121], b"hello");
        assert_eq!(bytes.len() % 512, 0);
    }
}
