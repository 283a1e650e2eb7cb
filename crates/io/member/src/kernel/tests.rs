//! A small kernel in a folder: one disk `sdx` (8:200) with a partition `sdx1` (8:201), and a second
//! disk `sdy` (8:210) that is not in use.

use super::*;
use crate::Access;
use std::os::unix::fs::symlink;

const DISK: IdentityKey =
    IdentityKey::BlockDevice { device: DeviceNumber { major: 8, minor: 200 } };
const PARTITION: IdentityKey =
    IdentityKey::BlockDevice { device: DeviceNumber { major: 8, minor: 201 } };
const FREE: IdentityKey =
    IdentityKey::BlockDevice { device: DeviceNumber { major: 8, minor: 210 } };

struct World {
    folder: tempfile::TempDir,
    kernel: Kernel,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("tempdir");
        let [sys, proc, dev] = ["sys", "proc", "dev"].map(|root| folder.path().join(root));
        let kernel = Kernel { sys, proc, dev };
        let world = Self { folder, kernel };
        world.device("devices/sdx", "8:200");
        world.device("devices/sdx/sdx1", "8:201");
        world.write("sys/devices/sdx/sdx1/partition", "1\n");
        world.device("devices/sdy", "8:210");
        world.write("sys/devices/sdx/queue/rotational", "1\n");
        world.write("sys/devices/sdx/queue/write_zeroes_max_bytes", "4096\n");
        world.write("sys/devices/sdx/queue/nr_requests", "64\n");
        world
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("create_dir_all");
        fs::write(path, text).expect("write");
    }

    fn device(&self, folder: &str, number: &str) {
        self.write(&format!("sys/{folder}/dev"), &format!("{number}\n"));
        let links = self.folder.path().join("sys/dev/block");
        fs::create_dir_all(&links).expect("create_dir_all");
        let target = self.folder.path().join("sys").join(folder);
        fs::create_dir_all(target.join("holders")).expect("create_dir_all");
        symlink(target, links.join(number)).expect("symlink");
    }

    fn holders(&self) -> [Option<Holder>; 3] {
        [DISK, PARTITION, FREE].map(|key| self.kernel.holder_of(key))
    }
}

#[test]
fn nobody_holds_an_unused_device() {
    assert_eq!(World::new().holders(), [None, None, None]);
}

#[test]
fn a_holder_of_a_partition_holds_the_disk_too() {
    let world = World::new();
    world.write("sys/devices/sdx/sdx1/holders/md127", "");
    let holder = Some(Holder::Device { held: "sdx1".into(), holder: "md127".into() });
    assert_eq!(world.holders(), [holder.clone(), holder, None]);
}

#[test]
fn a_holder_of_the_disk_holds_its_partitions_too() {
    let world = World::new();
    world.write("sys/devices/sdx/holders/dm-3", "");
    let holder = Some(Holder::Device { held: "sdx".into(), holder: "dm-3".into() });
    assert_eq!(world.holders(), [holder.clone(), holder, None]);
}

#[test]
fn a_member_listed_in_mdstat_is_held() {
    let world = World::new();
    let mdstat = "Personalities : [raid6]\n\
                  md127 : inactive sdq1[2] sdx1[0](S)\n      42 blocks super 1.2\n\n\
                  unused devices: <none>\n";
    world.write("proc/mdstat", mdstat);
    let holder = Some(Holder::KernelArray { held: "sdx1".into(), array: "md127".into() });
    assert_eq!(world.holders(), [holder.clone(), holder, None]);
}

#[test]
fn a_mount_is_found_by_device_number_and_its_path_unescaped() {
    let world = World::new();
    let mountinfo = "22 1 0:5 / /proc rw shared:1 - proc proc rw\n\
                     30 1 8:201 / /mnt/my\\040disk rw,relatime shared:2 - ext4 /dev/nowhere rw\n";
    world.write("proc/self/mountinfo", mountinfo);
    let holder =
        Some(Holder::Mount { held: "sdx1".into(), mounted_at: PathBuf::from("/mnt/my disk") });
    assert_eq!(world.holders(), [holder.clone(), holder, None]);
}

#[test]
fn a_swap_file_and_the_file_behind_a_loop_device_are_held() {
    let world = World::new();
    world.write("swap file", "pages");
    world.write("image", "bytes");
    let path = |name: &str| world.folder.path().join(name);
    let escaped = path("swap file").to_string_lossy().replace(' ', "\\040");
    world
        .write("proc/swaps", &format!("Filename Type Size Used Priority\n{escaped} file 1 0 -2\n"));
    let backing = format!("{}\n", path("image").display());
    world.write("sys/block/loop7/loop/backing_file", &backing);
    world.write("sys/block/loop8/size", "0\n");
    let holder = |name: &str| {
        world.kernel.holder_of(key_of_path(&path(name)).expect("a regular file has a key"))
    };
    let held = path("swap file").to_string_lossy().into_owned();
    assert_eq!(holder("swap file"), Some(Holder::Swap { held }));
    assert_eq!(holder("image"), Some(Holder::LoopDevice { name: "loop7".into(), user: None }));
    assert_eq!(holder("sys/block/loop8/size"), None);
}

#[test]
fn the_owner_of_each_lock_is_found_and_a_waiter_is_not_one() {
    let world = World::new();
    let own = std::process::id();
    let locks = format!(
        "1: FLOCK  ADVISORY  WRITE {own} fd:01:77 0 EOF\n\
         2: OFDLCK ADVISORY  READ  -1 fd:01:88 100 101\n\
         3: POSIX  ADVISORY  WRITE 4242 fd:01:99 0 EOF\n\
         3: -> POSIX  ADVISORY  WRITE 4243 fd:01:66 0 EOF\n"
    );
    world.write("proc/locks", &locks);
    let device = DeviceNumber { major: 0xfd, minor: 1 };
    let found = [66, 77, 88, 99, 100].map(|inode| world.kernel.locks_on(device, inode));
    let other = |process_id| vec![LockOwner::Other { process_id }];
    let expected = [vec![], vec![LockOwner::ThisProcess], other(None), other(Some(4242)), vec![]];
    assert_eq!(found, expected);
}

#[test]
fn a_partition_has_the_queue_of_its_disk() {
    let world = World::new();
    let queue = |minor| world.kernel.queue_of(DeviceNumber { major: 8, minor });
    let disk = Queue { rotational: Some(true), zeroes_fast: true, requests: Some(64) };
    assert_eq!([queue(200), queue(201), queue(210)], [disk, disk, Queue::default()]);
}

#[test]
fn a_virtual_disk_that_calls_itself_rotational_is_not_believed() {
    let world = World::new();
    let turns = |number: (u32, u32)| {
        let (major, minor) = number;
        world.kernel.queue_of(DeviceNumber { major, minor }).rotational
    };
    for (disk, number) in
        [("vdb", "254:16"), ("vdc", "254:32"), ("sdz", "8:220"), ("dm-9", "253:9")]
    {
        world.device(&format!("devices/{disk}"), number);
        let value = if disk == "vdc" { "0\n" } else { "1\n" };
        world.write(&format!("sys/devices/{disk}/queue/rotational"), value);
    }
    let sys = world.folder.path().join("sys");
    for disk in ["vdb", "vdc"] {
        fs::create_dir_all(sys.join(format!("devices/{disk}/device"))).expect("create_dir_all");
        let driver = sys.join(format!("devices/{disk}/device/driver"));
        symlink("../../bus/virtio/drivers/virtio_blk", driver).expect("symlink");
    }
    world.write("sys/devices/sdz/device/vendor", "ATA     \n");
    world.write("sys/devices/sdz/device/model", "QEMU HARDDISK   \n");
    world.write("sys/devices/sdx/device/vendor", "SEAGATE \n");
    assert_eq!([turns((254, 16)), turns((8, 220))], [None; 2], "Linux says so of every such disk");
    assert_eq!([turns((254, 32)), turns((8, 200))], [Some(false), Some(true)]);
    let slaves = sys.join("devices/dm-9/slaves");
    fs::create_dir_all(&slaves).expect("create_dir_all");
    symlink(sys.join("devices/vdb"), slaves.join("vdb")).expect("symlink");
    assert_eq!(turns((253, 9)), None, "it lies on a virtual disk alone");
    symlink(sys.join("devices/sdx/sdx1"), slaves.join("sdx1")).expect("symlink");
    assert_eq!(turns((253, 9)), Some(true), "it lies on a real disk, too");
}

/// A small kernel with dm-3 over the partition and over a loop device, whose backing is the file
/// `image`.
fn stacked() -> World {
    let world = World::new();
    world.device("devices/dm-3", "253:3");
    world.device("block/loop7", "7:7");
    world.write("image", "bytes");
    let image = world.folder.path().join("image");
    world.write("sys/block/loop7/loop/backing_file", &format!("{}\n", image.display()));
    world.write("sys/block/loop7/loop/offset", "512\n");
    world.write("sys/devices/sdx/sdx1/start", "64\n");
    world.write("sys/devices/sdx/sdx1/size", "1024\n");
    let slaves = world.folder.path().join("sys/devices/dm-3/slaves");
    fs::create_dir_all(&slaves).expect("create_dir_all");
    for (name, target) in [("sdx1", "devices/sdx/sdx1"), ("loop7", "block/loop7")] {
        symlink(world.folder.path().join("sys").join(target), slaves.join(name)).expect("symlink");
    }
    world
}

#[test]
fn a_mapped_device_is_followed_to_the_disk_and_the_file_below_it() {
    let world = stacked();
    let device = |minor| DeviceNumber { major: 253, minor };
    let image = key_of_path(&world.folder.path().join("image")).expect("a key");
    let block = |major, minor| IdentityKey::BlockDevice { device: DeviceNumber { major, minor } };
    let layers = crate::lower_layers::layers(device(3), &world.kernel);
    let mut keys: Vec<IdentityKey> = layers.iter().map(|layer| layer.key).collect();
    keys.sort();
    let mut expected = vec![block(7, 7), PARTITION, DISK, image];
    expected.sort();
    assert_eq!(keys, expected);
    assert_eq!(
        crate::lower_layers::layers(device(4), &world.kernel),
        [],
        "there is no such device"
    );
}

#[test]
fn a_writer_below_a_mapped_device_keeps_it_from_being_opened() {
    let world = stacked();
    let device = DeviceNumber { major: 253, minor: 3 };
    let hold = |access| {
        crate::lower_layers::hold(Path::new("/dev/mapper/tank"), device, access, &world.kernel)
    };
    let image = world.folder.path().join("image");
    let locked = fs::File::open(&image).expect("open");
    assert_eq!(
        hold(Access::ReadWrite).expect("free").len(),
        1,
        "the file is all that can be opened"
    );
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).expect("flock");
    for access in [Access::ReadWrite, Access::ReadOnly] {
        let refused = hold(access).expect_err("another has it open for writing").to_string();
        let step = format!("loop7 is a loop device over {}: ", image.display());
        assert!(refused.contains(&step), "{refused}");
    }
}

#[test]
fn two_loop_devices_where_one_is_used_are_told_with_the_user() {
    let world = stacked();
    world.write("proc/swaps", "Filename Type Size Used Priority\n");
    world.device("block/loop8", "7:8");
    let image = world.folder.path().join("image");
    world.write("sys/block/loop8/loop/backing_file", &format!("{}\n", image.display()));
    let hold = |access| {
        let device = DeviceNumber { major: 7, minor: 7 };
        crate::lower_layers::hold(Path::new("/dev/loop7"), device, access, &world.kernel)
            .map(|_| ())
    };
    let refused = hold(Access::ReadWrite).expect_err("the same bytes").to_string();
    assert!(refused.ends_with("it is the contents of loop8"), "{refused}");
    // A loop device that cannot write does no harm to a reader.
    world.write("sys/block/loop8/ro", "1\n");
    hold(Access::ReadOnly).expect("two readers");
    hold(Access::ReadWrite).expect_err("a reader beside a writer");
    // A loop device over other bytes of the file does no harm either.
    world.write("sys/block/loop8/loop/sizelimit", "512\n");
    hold(Access::ReadWrite).expect("another part of the file");
}
