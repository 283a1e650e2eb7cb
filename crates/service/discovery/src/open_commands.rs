//! Commands that open or convert images and encrypted devices in which a member is hidden.
//!
//! Braid reads raw bytes only. For a qcow2 image, a compressed copy or a LUKS header, this module
//! gives the command of the right program, and the resulting path.

use std::path::Path;

use braid_ondisk::ForeignKind;

use braid_console::output::shell::shell_word;

/// A command that makes a file's or device's raw bytes readable.
#[derive(Debug, PartialEq, Eq)]
pub struct OpenCommand {
    /// A description of the command for the operator.
    pub label: String,
    /// The command.
    pub command: String,
    /// The path at which the command makes the raw bytes readable.
    pub path: String,
}

/// The intended use of the array's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Reading only.
    Reading,
    /// Writing as well.
    Writing,
}

/// The command that unwraps a file's or device's raw bytes; `None` if it holds raw bytes.
pub fn open_command(kind: ForeignKind, path: &str, wanted: Use) -> Option<OpenCommand> {
    use ForeignKind as K;
    let word = shell_word(path).into_owned();
    let mapped = || format!("{}-open", name_of(path));
    let raw = format!("{}.raw", path_without_ending(path));
    let into = shell_word(&raw).into_owned();
    let (what, command, path) = match kind {
        K::Qcow2 | K::Vmdk | K::Vdi | K::Vhdx | K::Vhd => {
            ("make it raw", format!("qemu-img convert -O raw {word} {into}"), raw)
        }
        K::Gzip | K::Xz | K::Zstd | K::Bzip2 | K::Lz4 | K::Zip | K::SevenZip => {
            let unpack = match kind {
                K::Gzip => "gzip -dc",
                K::Xz => "xz -dc",
                K::Zstd => "zstd -dc",
                K::Bzip2 => "bzip2 -dc",
                K::Lz4 => "lz4 -dc",
                K::Zip => "unzip -p",
                _ => "7z e -so",
            };
            ("unpack it", format!("{unpack} {word} | cp --sparse=always /dev/stdin {into}"), raw)
        }
        K::Ewf => ("make it raw", format!("ewfexport -f raw -t {into} {word}"), raw),
        K::Luks | K::Bitlocker => {
            let kind = if kind == K::Luks { "" } else { " --type bitlk" };
            let read = if wanted == Use::Reading { " --readonly" } else { "" };
            let name = mapped();
            let open = format!("cryptsetup open{kind}{read} {word} {name}");
            ("open it", open, format!("/dev/mapper/{name}"))
        }
        K::Integrity => {
            let name = mapped();
            ("open it", format!("integritysetup open {word} {name}"), format!("/dev/mapper/{name}"))
        }
        _ => return None,
    };
    Some(OpenCommand { label: format!("{word} is {kind}: {what}"), command, path })
}

/// Whether this kind may also be at the start of an array itself, rather than below it on members.
pub fn may_be_on_top(kind: ForeignKind) -> bool {
    matches!(kind, ForeignKind::Luks | ForeignKind::Bitlocker)
}

/// Commands for the paths in `holds`, each with its recognised kind. If some members show no kind,
/// a kind that `may_be_on_top` gets no command: it is probably on the array, not below it.
pub fn open_commands<'a>(
    holds: impl Iterator<Item = (&'a str, Option<ForeignKind>)>,
    wanted: Use,
) -> Vec<(&'a str, OpenCommand)> {
    let holds: Vec<_> = holds.collect();
    let is_each_known = holds.iter().all(|(_, kind)| kind.is_some());
    let is_below = |kind: ForeignKind| is_each_known || !may_be_on_top(kind);
    let command = |(path, kind): &(&'a str, Option<ForeignKind>)| {
        let kind = kind.filter(|kind| is_below(*kind))?;
        Some((*path, open_command(kind, path, wanted)?))
    };
    holds.iter().filter_map(command).collect()
}

fn name_of(path: &str) -> String {
    let name = Path::new(path).file_name().map_or_else(|| path.into(), |it| it.to_string_lossy());
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "._-".contains(one);
    name.chars().map(|one| if is_plain(one) { one } else { '_' }).collect()
}

/// The path without its file name extension, so that `a.qcow2` is unpacked to `a.raw`.
fn path_without_ending(path: &str) -> &str {
    let name = path.rfind('/').map_or(0, |at| at + 1);
    match path[name..].rfind('.') {
        Some(at) if at > 0 => &path[..name + at],
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_made_raw_by_the_program_that_knows_it() {
        let command = |kind, path| open_command(kind, path, Use::Reading).expect("a way");
        let qcow2 = command(ForeignKind::Qcow2, "/a b/disk.qcow2");
        assert_eq!(qcow2.command, "qemu-img convert -O raw '/a b/disk.qcow2' '/a b/disk.raw'");
        assert_eq!(qcow2.path, "/a b/disk.raw");
        let zstd = command(ForeignKind::Zstd, "sda.img.zst");
        assert_eq!(
            zstd.command,
            "zstd -dc sda.img.zst | cp --sparse=always /dev/stdin sda.img.raw"
        );
        let luks = command(ForeignKind::Luks, "/dev/sda 1");
        assert_eq!(luks.command, "cryptsetup open --readonly '/dev/sda 1' sda_1-open");
        assert_eq!(luks.path, "/dev/mapper/sda_1-open");
        assert_eq!(open_command(ForeignKind::Ext, "a", Use::Reading), None);
        let luks = open_command(ForeignKind::Luks, "a", Use::Writing).expect("a way");
        assert_eq!(luks.command, "cryptsetup open a a-open");
    }

    #[test]
    fn encryption_on_top_of_an_array_is_not_taken_for_encryption_below_it() {
        let (luks, gzip) = (Some(ForeignKind::Luks), Some(ForeignKind::Gzip));
        let count = |holds: &[(&'static str, Option<ForeignKind>)]| {
            open_commands(holds.iter().copied(), Use::Reading).len()
        };
        assert_eq!(count(&[("a", luks), ("b", luks)]), 2);
        assert_eq!(count(&[("a", luks), ("b", None), ("c", None)]), 0);
        assert_eq!(count(&[("a", gzip), ("b", None)]), 1);
    }
}
