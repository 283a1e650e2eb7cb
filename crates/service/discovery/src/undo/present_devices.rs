//! The devices of a record in their present state: each is opened by a name whose content matches
//! the record, and read where the command wrote.

use std::path::{Path, PathBuf};

use braid_member::{Access, Member, MemberError};
use braid_ondisk::Snippet;

use super::judge::{Content, content};
use super::record::{Device, Record};
use crate::probe::{io_error, open_member};
use braid_console::error::CliError;

/// A device of the record in its present state.
pub struct PresentDevice<'a> {
    /// The device's entry in the record.
    pub device: &'a Device,
    /// The device's present name.
    pub label: String,
    /// The device, open.
    pub open: Box<dyn Member>,
    /// The present bytes where the command wrote.
    pub now: Vec<Snippet>,
    /// The state of the command's writes, according to the present bytes.
    pub content: Content,
}

/// Opens every device of a record except devices that are left out, and created files that are
/// gone.
///
/// # Errors
/// A device cannot be opened or read.
pub fn all<'a>(
    record: &'a Record,
    without: &[PathBuf],
    access: Access,
) -> Result<Vec<PresentDevice<'a>>, CliError> {
    let is_gone = |device: &Device| device.is_made && !device.path.exists();
    let is_wanted =
        |device: &&Device| !is_gone(device) && !without.iter().any(|path| device.is_called(path));
    record.devices.iter().filter(is_wanted).map(|device| find(device, access)).collect()
}

/// Opens a device by the name whose content matches the record, and reads it.
///
/// # Errors
/// The device cannot be opened or read by any name.
pub fn find(device: &Device, access: Access) -> Result<PresentDevice<'_>, CliError> {
    let mut first = None;
    for path in std::iter::once(&device.path).chain(&device.names) {
        let found = look(device, path, access);
        let is_it = found.as_ref().is_ok_and(|found| found.content != Content::Changed);
        if is_it {
            return found;
        }
        first = first.or(Some(found));
    }
    let found = first.expect("a device has a path");
    found.map_err(|error| error.because("nothing was changed"))
}

fn look<'a>(
    device: &'a Device,
    path: &Path,
    access: Access,
) -> Result<PresentDevice<'a>, CliError> {
    let label = path.display().to_string();
    let open = open_member(path, access)?;
    let (now, content) =
        read(device, open.as_ref()).map_err(|error| io_error(&label, "reading", &error))?;
    Ok(PresentDevice { device, label, open, now, content })
}

/// Reads the present bytes where the command wrote, and judges them.
///
/// # Errors
/// The device cannot be read.
pub fn read(device: &Device, open: &dyn Member) -> Result<(Vec<Snippet>, Content), MemberError> {
    let mut now = Vec::new();
    for range in &device.before {
        let mut bytes = vec![0; range.bytes.len()];
        let end = range.offset + bytes.len() as u64;
        if end <= open.size_bytes() {
            open.read_at(&mut bytes, range.offset)?;
        }
        now.push(Snippet { offset: range.offset, bytes });
    }
    let is_as_large = open.size_bytes() == device.size_bytes;
    let content = if is_as_large { content(device, &now) } else { Content::Changed };
    Ok((now, content))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use braid_console::error::code::Code;

    fn device(path: PathBuf, names: Vec<PathBuf>) -> Device {
        Device {
            path,
            names,
            is_made: false,
            number: None,
            inode: None,
            size_bytes: 1 << 20,
            before: vec![Snippet { offset: 0, bytes: vec![5; 4096] }],
            writes: vec![Snippet { offset: 512, bytes: vec![6; 512] }],
            last_writes: 0,
        }
    }

    /// After a restart, a device's path may lead to another disk, or to none.
    #[test]
    fn a_device_is_found_by_the_name_that_leads_to_it() {
        let place = tempfile::tempdir().expect("a folder");
        let file = |name: &str, first: &[u8]| {
            let path = place.path().join(name);
            let mut bytes = first.to_vec();
            bytes.resize(1 << 20, 0);
            fs::write(&path, bytes).expect("a file");
            path
        };
        let written = device(PathBuf::new(), Vec::new()).after()[0].bytes.clone();
        let (sda, sdb) = (file("sda", &[5; 4096]), file("sdb", &written));
        let (other, gone) = (file("sdc", &[1; 4096]), place.path().join("gone"));
        for (path, names, label, content) in [
            (&sdb, vec![], &sdb, Content::Written),
            (&sda, vec![], &sda, Content::Before),
            (&other, vec![], &other, Content::Changed),
            (&other, vec![&gone, &sdb], &sdb, Content::Written),
            (&gone, vec![&sda], &sda, Content::Before),
            (&other, vec![&gone], &other, Content::Changed),
        ] {
            let one = device(path.clone(), names.into_iter().cloned().collect());
            let found = find(&one, Access::ReadWrite).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((found.label, found.content), (label.display().to_string(), content));
        }
        let missing = device(gone, vec![place.path().join("nor this")]);
        let missing = find(&missing, Access::ReadWrite).err();
        assert_eq!(missing.map(|error| error.code()), Some(Code::MemberMissing));
    }
}
