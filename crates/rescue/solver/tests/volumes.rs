//! The content of the drills' arrays: file systems that hold this repository's files, bare or in a
//! partition.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

const SECTOR: u64 = 512;
/// The array sector at which partitions start.
pub(crate) const PARTITION: u64 = 2048;

/// Bytes of a block of an image.
const PIECE: usize = 64 << 10;

/// An image in memory, without its zero blocks.
struct Image(Vec<Option<Box<[u8]>>>);

impl Image {
    fn of(path: &Path) -> Self {
        let file = File::open(path).expect("it opens");
        let length = file.metadata().expect("a file").len();
        let pieces = (0..length).step_by(PIECE).map(|at| {
            let mut piece = vec![0; PIECE.min((length - at) as usize)].into_boxed_slice();
            file.read_exact_at(&mut piece, at).expect("an image");
            piece.iter().any(|byte| *byte != 0).then_some(piece)
        });
        Self(pieces.collect())
    }

    /// Reads from `byte` on, into a zeroed buffer.
    fn read(&self, byte: u64, bytes: &mut [u8]) {
        let (mut at, mut rest) = (byte as usize, bytes);
        while !rest.is_empty() {
            let within = at % PIECE;
            let (piece, after) = rest.split_at_mut(rest.len().min(PIECE - within));
            if let Some(known) = &self.0[at / PIECE] {
                piece.copy_from_slice(&known[within..within + piece.len()]);
            }
            at += piece.len();
            rest = after;
        }
    }
}

/// The content of an array.
pub(crate) struct Content {
    pub(crate) name: String,
    image: Arc<Image>,
    /// The sectors before the file system on the array: a partition table, or nothing.
    front: Vec<u8>,
    /// The first sector and the bytes of the partition table's backup.
    back: (u64, Vec<u8>),
    pub(crate) start: u64,
    pub(crate) sectors: u64,
}

impl Content {
    /// Reads whole sectors of the array; sectors beyond the content are zeroes.
    pub(crate) fn read(&self, sector: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        for (at, piece) in (sector..).zip(bytes.chunks_mut(SECTOR as usize)) {
            for (start, table) in [(0, &self.front), (self.back.0, &self.back.1)] {
                let from = at.checked_sub(start).map(|at| (at * SECTOR) as usize);
                if let Some(sector) = from.and_then(|from| table.get(from..from + 512)) {
                    piece.copy_from_slice(sector);
                }
            }
        }
        let first = sector.max(self.start);
        let skipped = (first - sector) * SECTOR;
        if let Some(rest) = bytes.get_mut(skipped as usize..)
            && first - self.start < self.sectors
        {
            let length = rest.len().min(((self.sectors - (first - self.start)) * SECTOR) as usize);
            self.image.read((first - self.start) * SECTOR, &mut rest[..length]);
        }
    }
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
}

fn image(folder: &Path, name: &str, mebibytes: u64) -> PathBuf {
    let path = folder.join(name);
    File::create(&path).expect("a file").set_len(mebibytes << 20).expect("room");
    path
}

/// The folder with the sources of this repository's crates.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder with several copies of the sources, to fill more of an array.
fn copies(folder: &Path) -> PathBuf {
    let all = folder.join("copies");
    fs::create_dir(&all).expect("a folder");
    for copy in 0..4 {
        run(Command::new("cp").arg("-a").arg(sources()).arg(all.join(format!("copy-{copy}"))));
    }
    all
}

/// The prototype from which mkfs.xfs fills a file system with a folder's files.
fn prototype(folder: &Path, indent: usize, text: &mut String) {
    let mut entries: Vec<_> = fs::read_dir(folder).expect("a folder").flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let pad = " ".repeat(indent);
        if path.is_dir() {
            text.push_str(&format!("{pad}{name} d--755 0 0\n"));
            prototype(&path, indent + 1, text);
            text.push_str(&format!("{pad}$\n"));
        } else {
            text.push_str(&format!("{pad}{name} ---644 0 0 {}\n", path.display()));
        }
    }
}

/// Every content, bare and in a partition, made once for all tests of this process.
pub(crate) fn all() -> &'static [Content] {
    static ALL: OnceLock<Vec<Content>> = OnceLock::new();
    ALL.get_or_init(|| make(tempfile::tempdir().expect("a folder").path()))
}

/// ext2 as on an old NAS: a few large files with block lists, and hardly any other files.
pub(crate) fn few_large_files(block_bytes: u32) -> Content {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let files = folder.join("files");
    fs::create_dir(&files).expect("a folder");
    let mut rng = fastrand::Rng::with_seed(35);
    for number in 0..8 {
        let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(1_982_256).collect();
        fs::write(files.join(format!("f{number}")), bytes).expect("a file");
    }
    let path = image(folder, "ext2", 68);
    let features = "^ext_attr,^resize_inode,^large_file";
    let block = block_bytes.to_string();
    let words = ["-q", "-t", "ext2", "-b", block.as_str(), "-O", features, "-d"];
    run(Command::new("mke2fs").args(words).arg(&files).arg(&path));
    let sectors = fs::metadata(&path).expect("it is there").len() / SECTOR;
    let (image, back) = (Arc::new(Image::of(&path)), (sectors, Vec::new()));
    Content {
        name: "few large files".to_owned(),
        image,
        front: Vec::new(),
        back,
        start: 0,
        sectors,
    }
}

fn make(folder: &Path) -> Vec<Content> {
    let sources = copies(folder);
    let ext4 = image(folder, "ext4", 160);
    run(Command::new("mkfs.ext4").args(["-q", "-d"]).arg(&sources).arg(&ext4));
    let ext2 = image(folder, "ext2", 160);
    run(Command::new("mke2fs")
        .args(["-q", "-t", "ext2", "-b", "1024", "-d"])
        .arg(&sources)
        .arg(&ext2));
    let ext3 = image(folder, "ext3", 160);
    run(Command::new("mke2fs")
        .args(["-q", "-t", "ext3", "-b", "4096", "-d"])
        .arg(&sources)
        .arg(&ext3));
    let old = image(folder, "old", 160);
    run(Command::new("mkfs.ext4")
        .args(["-q", "-O", "^metadata_csum,^64bit", "-g", "8192", "-d"])
        .arg(&sources)
        .arg(&old));
    let btrfs = image(folder, "btrfs", 160);
    run(Command::new("mkfs.btrfs").args(["-q", "-r"]).arg(&sources).arg(&btrfs));
    let xfs = image(folder, "xfs", 320);
    let mut text = "/none\n0 0\nd--755 0 0\n".to_owned();
    prototype(&sources, 0, &mut text);
    text.push_str("$\n$\n");
    let proto = folder.join("xfs.proto");
    fs::write(&proto, text).expect("a file");
    run(Command::new("mkfs.xfs").arg("-q").arg("-p").arg(&proto).arg(&xfs));
    let made = [
        ("ext4", ext4),
        ("ext4 without checksums", old),
        ("btrfs", btrfs),
        ("xfs", xfs),
        ("ext2", ext2),
        ("ext3", ext3),
    ];
    let both = made.iter().flat_map(|(name, path)| {
        let sectors = fs::metadata(path).expect("it is there").len() / SECTOR;
        let image = Arc::new(Image::of(path));
        let content = |start: u64, front: Vec<u8>| Content {
            name: if start == 0 { (*name).to_owned() } else { format!("{name} in a partition") },
            image: Arc::clone(&image),
            back: (start + sectors, back_of(&front, start + sectors)),
            front,
            start,
            sectors,
        };
        [content(0, Vec::new()), content(PARTITION, partition_table(sectors))]
    });
    both.collect()
}

/// A GPT with one partition, by UEFI's specification; the solver checks no GPT's checksums.
fn partition_table(sectors: u64) -> Vec<u8> {
    let mut front = vec![0; (PARTITION * SECTOR) as usize];
    front[446 + 4] = 0xee;
    front[446 + 8] = 1;
    front[446 + 12..446 + 16].fill(0xff);
    front[510..512].copy_from_slice(&[0x55, 0xaa]);
    let header = &mut front[512..1024];
    header[..8].copy_from_slice(b"EFI PART");
    header[10] = 1;
    header[12] = 92;
    let last = PARTITION + sectors;
    for (at, value) in [(24, 1), (32, last), (40, 34), (48, last - 1), (72, 2)] {
        header[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
    }
    header[56..72].copy_from_slice(b"a disk of drills");
    let entry = &mut front[1024..1152];
    entry[..32].copy_from_slice(b"a kind of files.one partition of");
    entry[32..40].copy_from_slice(&PARTITION.to_le_bytes());
    entry[40..48].copy_from_slice(&(PARTITION + sectors - 1).to_le_bytes());
    front
}

/// The backup of a GPT header, for the sector where the backup is.
fn back_of(front: &[u8], place: u64) -> Vec<u8> {
    let mut back = front.get(512..1024).unwrap_or_default().to_vec();
    if !back.is_empty() {
        back[24..32].copy_from_slice(&place.to_le_bytes());
        back[32..40].copy_from_slice(&1_u64.to_le_bytes());
    }
    back
}
