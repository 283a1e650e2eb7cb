//! A disk that boots: GRUB, one partition with ext4, this machine's newest kernel and busybox.
//!
//! ```text
//! sector 0       GRUB's boot.img, and the table of one partition
//! sector 1..     GRUB's core.img: reads by the firmware, knows ext4, obeys /boot/grub/grub.cfg
//! 1 MiB..        the partition: /boot, /bin, /first (the first process)
//! ```
//!
//! By default boot.img loads core.img from sector 1, and grub-mkimage writes the core's length into
//! core.img. So no GRUB installer has to run, which would look for devices.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::oracle::{Archive, add_modules, add_programs, find_kernel};
use crate::programs::{output, run};

const SECTOR_BYTES: u64 = 512;
pub(super) const PARTITION_BYTES: u64 = 1 << 20;
/// Size of the root file system; the array has room for it.
const ROOT_BYTES: u64 = 128 << 20;
/// Length of boot.img's code; the partition table follows it.
const BOOT_CODE_BYTES: usize = 440;
/// Offset of the partition table's first entry.
const ENTRY_OFFSET: u64 = 446;
/// Offset and bytes of the signature at the end of the boot sector.
const SIGNATURE: (u64, [u8; 2]) = (510, [0x55, 0xaa]);
/// Partition type of Linux.
const KIND_LINUX: u8 = 0x83;
/// Mark of a bootable partition.
const ACTIVE: u8 = 0x80;
/// Cylinder, head and sector of a partition's place that these numbers cannot express.
const BEYOND: [u8; 3] = [0xfe, 0xff, 0xff];

const GRUB: &str = "/usr/lib/grub/i386-pc";
/// GRUB modules inside core.img, which could load further modules from the disk, but needs none.
const GRUB_PARTS: [&str; 5] = ["biosdisk", "part_msdos", "ext2", "linux", "normal"];
const GRUB_ORDERS: &str = "linux /boot/vmlinuz console=ttyS0 quiet loglevel=3 panic=-1 oops=panic
initrd /boot/initrd
boot
";

/// The kernel's modules in order of insertion: each module after its dependencies.
const MODULES: [&str; 11] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "virtio_blk",
    "crc32c_generic",
    "crc16",
    "mbcache",
    "jbd2",
    "ext4",
];
const BUSYBOX: &str = "/usr/bin/busybox";
const INIT: &str = include_str!("guest/init.sh");
const ROUNDS: &str = include_str!("guest/rounds.sh");

/// Makes `disk.img` in a folder; the script `first` is its first process.
pub(super) fn make(folder: &Path, first: &str) -> Result<PathBuf> {
    let root = folder.join("root");
    for name in ["bin", "boot/grub", "dev", "proc", "tmp", "work"] {
        fs::create_dir_all(root.join(name))?;
    }
    let (kernel, modules) = find_kernel()?;
    fs::copy(&kernel, root.join("boot/vmlinuz")).with_context(|| kernel.display().to_string())?;
    fs::write(root.join("boot/initrd"), initramfs(&modules)?)?;
    fs::write(root.join("boot/grub/grub.cfg"), GRUB_ORDERS)?;
    fs::copy(BUSYBOX, root.join("bin/busybox")).context(BUSYBOX)?;
    for applet in output(Command::new(BUSYBOX).arg("--list"))?.lines() {
        if applet != "busybox" {
            symlink("busybox", root.join("bin").join(applet))?;
        }
    }
    fs::write(root.join("rounds.sh"), ROUNDS)?;
    let script = root.join("first");
    fs::write(&script, first)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;

    let partition = folder.join("partition.img");
    File::create(&partition)?.set_len(ROOT_BYTES)?;
    let mut format = Command::new("mke2fs");
    run(format.args(["-q", "-F", "-t", "ext4", "-d"]).arg(&root).arg(&partition))?;
    let disk = folder.join("disk.img");
    write_disk(&disk, &core(folder)?, &partition)?;
    fs::remove_file(&partition)?;
    fs::remove_dir_all(&root)?;
    Ok(disk)
}

fn initramfs(modules: &Path) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    for name in ["bin", "dev", "proc", "root", "modules"] {
        archive.directory(name);
    }
    add_modules(&mut archive, modules, &MODULES)?;
    add_programs(&mut archive, &[BUSYBOX])?;
    archive.file("init", INIT.as_bytes());
    Ok(archive.finish())
}

/// Builds core.img, GRUB's second part.
fn core(folder: &Path) -> Result<Vec<u8>> {
    let path = folder.join("core.img");
    let mut make = Command::new("grub-mkimage");
    make.args(["-O", "i386-pc", "-p", "(hd0,msdos1)/boot/grub", "-o"]).arg(&path).args(GRUB_PARTS);
    run(&mut make).context("(Debian: grub-common, grub-pc-bin)")?;
    let core = fs::read(&path)?;
    let room = PARTITION_BYTES - SECTOR_BYTES;
    ensure!(core.len() as u64 <= room, "GRUB does not fit before the partition");
    fs::remove_file(&path)?;
    Ok(core)
}

fn write_disk(path: &Path, core: &[u8], partition: &Path) -> Result<()> {
    let boot = format!("{GRUB}/boot.img");
    let boot = fs::read(&boot).with_context(|| format!("{boot} (Debian: grub-pc-bin)"))?;
    let content = fs::read(partition)?;
    let disk = File::create(path)?;
    disk.set_len(PARTITION_BYTES + ROOT_BYTES)?;
    disk.write_all_at(boot.get(..BOOT_CODE_BYTES).context("GRUB's boot.img is short")?, 0)?;
    disk.write_all_at(&entry(PARTITION_BYTES, ROOT_BYTES)?, ENTRY_OFFSET)?;
    disk.write_all_at(&SIGNATURE.1, SIGNATURE.0)?;
    disk.write_all_at(core, SECTOR_BYTES)?;
    disk.write_all_at(&content, PARTITION_BYTES)?;
    Ok(())
}

/// A table entry of a bootable partition.
fn entry(start_bytes: u64, length_bytes: u64) -> Result<[u8; 16]> {
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR_BYTES).map(u32::to_le_bytes);
    let mut entry = [0; 16];
    entry[0] = ACTIVE;
    entry[1..4].copy_from_slice(&BEYOND);
    entry[4] = KIND_LINUX;
    entry[5..8].copy_from_slice(&BEYOND);
    entry[8..12].copy_from_slice(&sectors(start_bytes)?);
    entry[12..].copy_from_slice(&sectors(length_bytes)?);
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::entry;

    #[test]
    fn an_entry_says_where_in_sectors() {
        let entry = entry(1 << 20, 128 << 20).expect("it fits");
        assert_eq!(entry[8..12], 2048_u32.to_le_bytes());
        assert_eq!(entry[12..], 262_144_u32.to_le_bytes());
        assert_eq!((entry[0], entry[4]), (0x80, 0x83));
    }
}
