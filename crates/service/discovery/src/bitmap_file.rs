//! Bitmap files outside of members: opened, read and created.
//!
//! `braid_ondisk::bitmap_file` parses them; `braid-assembly` checks that they belong to the array.

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

/// Opens and reads a bitmap file.
///
/// # Errors
/// The file cannot be opened, locked or read.
pub fn open(path: &Path, access: Access) -> Result<(Box<dyn Member>, GivenBitmapFile), CliError> {
    lengthen(path, access);
    let device = open_member(path, access)?;
    let given = look(&*device, &path.display().to_string())?;
    Ok((device, given))
}

/// Reads an open bitmap file.
///
/// # Errors
/// A read failed.
pub fn look(device: &dyn Member, label: &str) -> Result<GivenBitmapFile, CliError> {
    let read = |start: u64, length: u64| {
        let mut bytes = vec![0; usize::try_from(length).expect("a bitmap is small")];
        device.read_at(&mut bytes, start).map_err(|error| io_error(label, "reading", &error))?;
        Ok(bytes)
    };
    let file = BitmapFile::read(device.size_bytes(), read)?;
    Ok(GivenBitmapFile { label: label.to_owned(), file })
}

/// Lengthens a bitmap file to whole blocks, with room for a log. mdadm's files end with the
/// bitmap's bits, and md reads no further than the bits. If lengthening fails, a later open or
/// write of the file reports the error.
fn lengthen(path: &Path, access: Access) {
    if access != Access::ReadWrite {
        return;
    }
    let Ok(mut file) = open_with(path, OpenOptions::new().read(true).write(true)) else { return };
    let is_short = file.metadata().is_ok_and(|found| found.len() < BITMAP_FILE_BYTES_MIN);
    let mut head = [0; 256];
    if is_short && file.read_exact(&mut head).is_ok() {
        let is_bitmap = UnvalidatedBitmap::recognise(&head).is_some();
        // If lengthening fails, the file is still intact.
        let _longer = is_bitmap.then(|| file.set_len(BITMAP_FILE_BYTES_MIN));
    }
}

/// Creates an empty file for this bitmap, without holes. md asks the file system for the file's
/// blocks, writes the blocks itself, and refuses a file with holes. Without holes, a file system
/// that fills up later does not cost the array its bitmap.
///
/// # Errors
/// The file exists already, or cannot be created.
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
