//! Bitmap files beside arrays: opened, read and made.
//!
//! What is in one is `braid_ondisk::bitmap_file`'s to say, and whether it is this array's `braid-assembly`'s.

use std::fs::OpenOptions;
use std::io::Read;
use std::path::Path;

use braid_assembly::GivenBitmapFile;
use braid_member::{Access, Member, create_file};
use braid_ondisk::{BITMAP_FILE_BYTES_MIN, BitmapFile, BitmapSuperblock, UnvalidatedBitmap};

use crate::probe::{io_error, open_error, open_member};
use braid_console::error::CliError;
use braid_console::regular::open_with;
use braid_console::state::remove_files;

/// Opens one and reads what is in it.
///
/// # Errors
/// It cannot be opened, locked or read.
pub fn open(path: &Path, access: Access) -> Result<(Box<dyn Member>, GivenBitmapFile), CliError> {
    lengthen(path, access);
    let device = open_member(path, access)?;
    let given = look(&*device, &path.display().to_string())?;
    Ok((device, given))
}

/// Reads what is in one.
///
/// # Errors
/// A read that failed.
pub fn look(device: &dyn Member, label: &str) -> Result<GivenBitmapFile, CliError> {
    let read = |start: u64, length: u64| {
        let mut bytes = vec![0; usize::try_from(length).expect("a bitmap is small")];
        device.read_at(&mut bytes, start).map_err(|error| io_error(label, "reading", &error))?;
        Ok(bytes)
    };
    let file = BitmapFile::read(device.size_bytes(), read)?;
    Ok(GivenBitmapFile { label: label.to_owned(), file })
}

/// mdadm makes files no longer than their bits. Blocks are written here, and there may be a log behind them; md reads no further than the
/// bits. What cannot be lengthened says so when it is opened, or written.
fn lengthen(path: &Path, access: Access) {
    if access != Access::ReadWrite {
        return;
    }
    let Ok(mut file) = open_with(path, OpenOptions::new().read(true).write(true)) else { return };
    let is_short = file.metadata().is_ok_and(|found| found.len() < BITMAP_FILE_BYTES_MIN);
    let mut head = [0; 256];
    if is_short && file.read_exact(&mut head).is_ok() {
        let is_bitmap = UnvalidatedBitmap::recognise(&head).is_some();
        // Nothing is lost if it stays as it is.
        let _longer = is_bitmap.then(|| file.set_len(BITMAP_FILE_BYTES_MIN));
    }
}

/// Makes an empty one for this bitmap. All of it is written: md asks the file system where its blocks are, writes them itself, and takes no
/// file with holes; and a file system that is full later costs the array no bitmap.
///
/// # Errors
/// There is a file of this name, or none can be made.
pub fn create(path: &Path, bitmap: &BitmapSuperblock) -> Result<Box<dyn Member>, CliError> {
    let size_bytes = BitmapFile::bytes_for(bitmap);
    let device = create_file(path, size_bytes).map_err(|error| open_error(&error))?;
    let zeroes = vec![0; usize::try_from(size_bytes).expect("a bitmap is small")];
    let written = device.write_at(&zeroes, 0, false).and_then(|()| device.flush());
    written.map(|()| device).map_err(|error| {
        remove_files(&[path.to_path_buf()]);
        io_error(&path.display().to_string(), "writing", &error)
    })
}
