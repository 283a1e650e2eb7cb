//! The rules of an array with one owner. Another host may take over the array at any moment, so
//! nothing that the array needs is on this host alone.
//!
//! | This host alone would have | Rule |
//! |---|---|
//! | writes that were acknowledged early | writes are acknowledged once members have them |
//! | a member | each member has a server, or is a shared disk that can be reserved |
//! | a journal, a bitmap file | no journal, and the bitmap is on members |
//! | the copy of a window of a reshape | no change of shape; the record lacks new members, too |

use std::path::Path;

use braid_assembly::AssembledArray;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_member::keeps_owners_out;

/// Refuses an array that another host could not take over.
pub(super) fn check_array(array: &AssembledArray) -> Result<(), CliError> {
    if array.bitmap.is_none() && array.geometry.lost_max() > 0 {
        return Err(no_bitmap());
    }
    if array.reshape.is_some() {
        let what = "an array whose shape changes has no owner by a store";
        return Err(needs(error(what).because(HALF_CHANGED)));
    }
    Ok(())
}

const HALF_CHANGED: &str = "the record does not name the members that only the new shape has";

pub(crate) fn no_bitmap() -> CliError {
    let why = "the bits that an owner had set say which writes it may have left half done";
    needs(error("an array with an owner by a store needs a bitmap on its members").because(why))
}

pub(crate) fn no_write_back() -> CliError {
    let why = "writes that it acknowledges early would be lost with this host";
    needs(error("write-back needs an array that no other host takes over").because(why))
}

pub(crate) fn no_change_of_shape(name: &str) -> CliError {
    let what = format!("the shape of {name} stays as it is while a store names its owner");
    needs(error(&what).about(name).because(HALF_CHANGED).because("nothing was changed"))
}

/// Refuses to release an array to the host `heir`, if no other host can take it over, or if `heir`
/// is no host's name.
pub(crate) fn check_heir(is_owned: bool, name: &str, heir: &str) -> Result<(), CliError> {
    if !is_owned {
        let what = format!("no host can take {name} over");
        let why = "it was served without --store, so no other host waits for it";
        return Err(needs(error(&what).about(name).because(why)));
    }
    if heir.len() > HOST_BYTES_MAX || !has_host_letters(heir) {
        let what = format!("'{heir}' is not the name of a host");
        return Err(needs(error(&what).about(name).because("see `uname -n` on that host")));
    }
    Ok(())
}

/// Whether the text has only characters that host names may have, which need no encoding in a URL.
#[must_use]
pub fn has_host_letters(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

/// The longest name of a host in bytes (POSIX).
const HOST_BYTES_MAX: usize = 255;

/// Refuses a member whose device cannot keep an older owner out. A member on this host is refused,
/// unless it is a disk that several hosts share and that can be reserved.
pub(crate) fn check_member(path: &Path) -> Result<(), CliError> {
    keeps_owners_out(path).map_err(|why| {
        let what = format!("{} cannot keep an older owner out", path.display());
        let server = "put a server in front of it, which refuses an older owner: braid member";
        needs(error(&what).because(why).because(server))
    })
}

/// Refuses a device that another array's owner may be using.
pub(crate) fn other_arrays_member(word: &str) -> CliError {
    let error = error(&format!("{word} is a member of another array")).about(word);
    let why = "taking it would end that array's owner: clear its superblock on its own host first";
    needs(error.because(why))
}

fn error(what: &str) -> CliError {
    CliError::new(Code::StoreUnusable, what)
}

/// Adds the remedy that all errors about the conditions of `--store` have.
pub(super) fn needs(error: CliError) -> CliError {
    error.remedy(Risk::Look, "See what --store needs", "braid help B126")
}
