//! One big drive with every member of a boot, each in a region of its own.
//!
//! A PC has slots for about 28 virtio drives, and a boot has hundreds of members. So members are
//! regions of one sparse file; the guest makes a block device of each region (`addpart`). This
//! module knows offsets and lengths, and no arrays. Copies keep holes.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

const SECTOR: u64 = 512;
/// Regions start at multiples of this many sectors.
const ALIGN: u64 = 2048;
/// Largest member that is extracted from the drive: 1 GiB.
const EXTRACT_SECTORS_MAX: u64 = 1 << 21;
/// A copy checks stretches of this size for zeroes, which become holes.
const GRAIN: usize = 16 << 10;
const BUFFER: usize = 1 << 20;

/// A member of a case, in its state at the beginning.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The member's size.
    pub(crate) sectors: u64,
    /// Initial content of the member; zeros if `None`.
    pub(crate) image: Option<PathBuf>,
}

impl Member {
    /// A member that reads as zeros.
    pub(crate) fn zeros(sectors: u64) -> Self {
        Self { sectors, image: None }
    }

    /// A member as large as its image.
    pub(crate) fn image(path: &Path) -> Result<Self> {
        let bytes = std::fs::metadata(path).with_context(|| path.display().to_string())?.len();
        ensure!(bytes % 512 == 0, "{} has no whole number of sectors", path.display());
        Ok(Self { sectors: bytes / 512, image: Some(path.to_owned()) })
    }
}

/// A member's place on the big drive, in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// Assigns each member a region; returns the regions and the sectors of the whole drive.
pub(crate) fn plan(cases: &[Vec<Member>]) -> (Vec<Vec<Region>>, u64) {
    let mut next = ALIGN;
    let mut regions = Vec::new();
    for members in cases {
        let mut row = Vec::new();
        for member in members {
            row.push(Region { start: next, length: member.sectors });
            next += member.sectors.next_multiple_of(ALIGN);
        }
        regions.push(row);
    }
    (regions, next + ALIGN)
}

/// Makes the drive, with the given images in place.
pub(crate) fn fill(path: &Path, cases: &[Vec<Member>]) -> Result<Vec<Vec<Region>>> {
    let (regions, sectors) = plan(cases);
    let drive = OpenOptions::new().create(true).truncate(true).write(true).open(path);
    let drive = drive.with_context(|| format!("making {}", path.display()))?;
    drive.set_len(sectors * SECTOR)?;
    for (members, row) in cases.iter().zip(&regions) {
        for (member, region) in members.iter().zip(row) {
            let Some(image) = &member.image else { continue };
            let source =
                File::open(image).with_context(|| format!("opening {}", image.display()))?;
            let bytes = source.metadata()?.len();
            ensure!(
                bytes == region.length * SECTOR,
                "{} has {bytes} bytes, its region has {} sectors",
                image.display(),
                region.length
            );
            copy(&source, 0, &drive, region.start * SECTOR, bytes)?;
        }
    }
    Ok(regions)
}

/// Copies each region of a case to `folder/0.img`, `folder/1.img`, ... It leaves out regions larger
/// than `EXTRACT_SECTORS_MAX`, since reading their holes would take hours.
pub(crate) fn extract(drive: &File, regions: &[Region], folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    for (index, region) in regions.iter().enumerate() {
        if region.length > EXTRACT_SECTORS_MAX {
            continue;
        }
        let path = folder.join(format!("{index}.img"));
        let image = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        let bytes = region.length * SECTOR;
        image.set_len(bytes)?;
        copy(drive, region.start * SECTOR, &image, 0, bytes)?;
    }
    Ok(())
}

/// Copies bytes into `target`, which has a hole in the written range.
fn copy(source: &File, from: u64, target: &File, to: u64, bytes: u64) -> Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut done = 0;
    while done < bytes {
        let length = usize::try_from(bytes - done).unwrap_or(BUFFER).min(BUFFER);
        source.read_exact_at(&mut buffer[..length], from + done)?;
        for (piece, at) in buffer[..length].chunks(GRAIN).zip((done..).step_by(GRAIN)) {
            if piece.iter().any(|byte| *byte != 0) {
                target.write_all_at(piece, to + at)?;
            }
        }
        done += length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Member, extract, fill};
    use std::fs::File;

    #[test]
    fn what_goes_in_comes_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("source");
        let mut bytes = vec![0u8; 3000 * 512];
        bytes[700_000] = 7;
        *bytes.last_mut().expect("bytes") = 9;
        std::fs::write(&image, &bytes).expect("written");
        let cases = [
            vec![Member { sectors: 100, image: None }],
            vec![Member { sectors: 3000, image: Some(image) }, Member { sectors: 8, image: None }],
        ];
        let path = folder.path().join("drive");
        let regions = fill(&path, &cases).expect("filled");
        let drive = File::open(&path).expect("opened");
        extract(&drive, &regions[1], &folder.path().join("out")).expect("extracted");
        assert_eq!(std::fs::read(folder.path().join("out/0.img")).expect("read"), bytes);
        assert_eq!(std::fs::read(folder.path().join("out/1.img")).expect("read"), [0; 8 * 512]);
        let ends = regions.iter().flatten().map(|region| region.start + region.length);
        let starts = regions.iter().flatten().skip(1).map(|region| region.start);
        assert!(ends.zip(starts).all(|(end, start)| end <= start), "regions do not overlap");
    }
}
