//! The file-system image that the demo copies in: 16 MiB of ext4, kept as its blocks that are not
//! zero.
//!
//! Where it stands: [`expand`] makes the image once, in memory; [`runs`] says how to send it.
//! `assets/make-demo-ext4.sh` made it and describes the format. It knows no ext4 beyond the magic.
//!
//! Invariants:
//! - what is expanded is a file system that e2fsck accepts `[check: e2fsck_finds_nothing]`;
//! - the runs are the image, in order and without gaps `[check: runs_are_the_image]`.

/// The blocks, as `make-demo-ext4.sh` packs them.
const PACKED: &[u8] = include_bytes!("../../../assets/demo-ext4.sparse");
/// Begins the packed form.
const PACKED_MAGIC: &[u8] = b"BRAIDIMG";
/// Bytes in a block of the image.
const BLOCK_BYTES: usize = 1024;
/// Longest run, in bytes: a few chunks of the demo's array, so that runs split over members.
const RUN_BYTES_MAX: usize = 1 << 20;
/// Where ext2, ext3 and ext4 keep their magic number, in bytes from the start.
const EXT4_MAGIC_AT: usize = 1024 + 56;
/// The magic number, little endian.
const EXT4_MAGIC: [u8; 2] = [0x53, 0xef];

/// A part of the image that is all zero, or has no block that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// First byte.
    pub(super) offset: usize,
    /// Bytes.
    pub(super) length: usize,
    /// Whether it is all zero.
    pub(super) is_zero: bool,
}

/// The whole image.
///
/// # Panics
/// If what was compiled in is not such a file: our own mistake.
pub(super) fn expand() -> Vec<u8> {
    unpack(PACKED).expect("the image that was compiled in is whole")
}

/// `None` if it is not in the packed form.
fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let (count, mut rest) = number(packed.strip_prefix(PACKED_MAGIC)?)?;
    let mut image = vec![0; count.checked_mul(BLOCK_BYTES)?];
    while !rest.is_empty() {
        let (block, behind) = number(rest)?;
        let (bytes, behind) = behind.split_at_checked(BLOCK_BYTES)?;
        let start = block.checked_mul(BLOCK_BYTES)?;
        image.get_mut(start..start.checked_add(BLOCK_BYTES)?)?.copy_from_slice(bytes);
        rest = behind;
    }
    Some(image)
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((usize::try_from(u32::from_le_bytes(*number)).ok()?, rest))
}

/// The image as WRITEs and WRITE_ZEROESs.
pub(super) fn runs(image: &[u8]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (index, block) in image.chunks(BLOCK_BYTES).enumerate() {
        let is_zero = block.iter().all(|byte| *byte == 0);
        match runs.last_mut() {
            Some(run) if run.is_zero == is_zero && run.length < RUN_BYTES_MAX => {
                run.length += block.len();
            }
            _ => runs.push(Run { offset: index * BLOCK_BYTES, length: block.len(), is_zero }),
        }
    }
    runs
}

/// Whether it begins as an ext4 file system does.
pub(super) fn has_ext4_magic(image: &[u8]) -> bool {
    image.get(EXT4_MAGIC_AT..EXT4_MAGIC_AT + EXT4_MAGIC.len()) == Some(EXT4_MAGIC.as_slice())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn e2fsck_finds_nothing() {
        let image = expand();
        assert_eq!(image.len(), 16 << 20);
        assert!(has_ext4_magic(&image) && !has_ext4_magic(&image[..1024]));
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &image).expect("room for 16 MiB");
        let path = "/usr/sbin:/sbin:/usr/bin:/bin";
        match Command::new("e2fsck").env("PATH", path).arg("-fn").arg(file.path()).output() {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            Err(error) => eprintln!("e2fsck cannot be run here, magic checked only: {error}"),
        }
    }

    #[test]
    fn runs_are_the_image() {
        let image = expand();
        let mut end = 0;
        for run in runs(&image) {
            assert_eq!(run.offset, end, "no gap");
            end += run.length;
            assert!(run.length <= RUN_BYTES_MAX);
            for block in image[run.offset..end].chunks(BLOCK_BYTES) {
                assert_eq!(block.iter().all(|byte| *byte == 0), run.is_zero, "{run:?}");
            }
        }
        assert_eq!(end, image.len());
    }

    #[test]
    fn what_is_not_packed_is_not_unpacked() {
        let broken: [&[u8]; 5] = [
            b"",
            b"BRAIDIMG\x01\0\0",
            b"BRAIDIMH\x01\0\0\0",
            b"BRAIDIMG\x01\0\0\0\0\0\0\0 too short",
            &[b"BRAIDIMG\x01\0\0\0\x01\0\0\0".as_slice(), &[1; BLOCK_BYTES]].concat(),
        ];
        for packed in broken {
            assert_eq!(unpack(packed), None);
        }
        let packed = [b"BRAIDIMG\x02\0\0\0\x01\0\0\0".as_slice(), &[7; BLOCK_BYTES]].concat();
        let image = unpack(&packed).expect("whole");
        assert_eq!(image, [[0; BLOCK_BYTES], [7; BLOCK_BYTES]].concat());
    }
}
