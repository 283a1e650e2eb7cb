//! How much memory this process may still take, and which limit bounds it.
//!
//! Place in the flow: read once at the start, and when the operator sets the memory to use. Three
//! limits bound a process. The first is the machine's available memory. The second is the rest of
//! its control group (v2 and v1, up to the root). The third is the process's limits on addresses
//! (`RLIMIT_AS`) and data (`RLIMIT_DATA`). These count addresses, used or not, so they are a
//! separate number. A limit that cannot be read bounds nothing.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// A limit on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The machine's available memory.
    Machine,
    /// The process's control group, or one above it.
    ControlGroup,
    /// `RLIMIT_AS` (`ulimit -v`).
    Addresses,
    /// `RLIMIT_DATA` (`ulimit -d`).
    Data,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Machine => "available memory",
            Self::ControlGroup => "the control group's limit",
            Self::Addresses => "the limit on addresses (ulimit -v)",
            Self::Data => "the limit on data (ulimit -d)",
        })
    }
}

/// The memory and the addresses that this process may still take, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Memory left, and the limit that bounds it.
    pub memory: (u64, Limit),
    /// Addresses left, and the limit that bounds them, if one does.
    pub addresses: Option<(u64, Limit)>,
}

impl Room {
    /// The room left at the moment.
    #[must_use]
    pub fn now() -> Self {
        let machine = text("/proc/meminfo").and_then(|text| field_kib(&text, "MemAvailable:"));
        // In a root folder without `/proc`: free memory, not counting memory that the page cache
        // would give back.
        let machine = machine.or_else(|| {
            let said = rustix::system::sysinfo();
            Some(said.freeram.saturating_mul(u64::from(said.mem_unit)))
        });
        let group = text("/proc/self/cgroup")
            .and_then(|groups| group_left(&groups, Path::new("/sys/fs/cgroup")));
        let memory = [(machine, Limit::Machine), (group, Limit::ControlGroup)];
        let status = text("/proc/self/status").unwrap_or_default();
        let left = |resource, used: &str| {
            let used = field_kib(&status, used).unwrap_or(0);
            getrlimit(resource).current.map(|limit| limit.saturating_sub(used))
        };
        let addresses = [
            (left(Resource::As, "VmSize:"), Limit::Addresses),
            (left(Resource::Data, "VmData:"), Limit::Data),
        ];
        Self {
            memory: least(memory).unwrap_or((u64::MAX, Limit::Machine)),
            addresses: least(addresses),
        }
    }

    /// The smaller of memory and addresses, with its limit.
    #[must_use]
    pub fn least(&self) -> (u64, Limit) {
        self.addresses
            .into_iter()
            .chain([self.memory])
            .min_by_key(|(bytes, _)| *bytes)
            .expect("memory is one")
    }
}

fn least<const N: usize>(bounds: [(Option<u64>, Limit); N]) -> Option<(u64, Limit)> {
    let known = bounds.into_iter().filter_map(|(bytes, limit)| Some((bytes?, limit)));
    known.min_by_key(|(bytes, _)| *bytes)
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    read_to_string(path).ok()
}

/// The number of bytes that a line `NAME 123 kB` states.
fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The room left in the control groups of `/proc/self/cgroup`, mounted at `mount`.
fn group_left(groups: &str, mount: &Path) -> Option<u64> {
    let left = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        match controllers {
            "" => ["", "unified"]
                .into_iter()
                .filter_map(|root| left_up_to(&mount.join(root), path, V2))
                .min(),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                left_up_to(&mount.join("memory"), path, V1)
            }
            _ => None,
        }
    });
    left.min()
}

/// Files of a control group: the limit, the memory in use, and the field in `memory.stat` for
/// memory that the kernel reclaims by itself.
const V2: [&str; 3] = ["memory.max", "memory.current", "inactive_file "];
const V1: [&str; 3] = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "];

/// The least room in the control group at `path` and the groups above it. In a container the path
/// may be the host's and the mount the group itself: then only the mount's root exists.
fn left_up_to(root: &Path, path: &str, files: [&str; 3]) -> Option<u64> {
    let inside = root.join(path.trim_start_matches('/'));
    let mut folders: Vec<PathBuf> =
        inside.ancestors().take_while(|one| one.starts_with(root)).map(Path::to_path_buf).collect();
    folders.push(root.to_path_buf());
    folders.iter().filter_map(|folder| left_in(folder, files)).min()
}

fn left_in(folder: &Path, [limit, used, reclaimable]: [&str; 3]) -> Option<u64> {
    let number = |name: &str| text(folder.join(name))?.trim().parse::<u64>().ok();
    // "max" is no number; v1 reports "no limit" as a number larger than any memory.
    let limit = number(limit)?;
    let stat = text(folder.join("memory.stat")).unwrap_or_default();
    let reclaimable =
        stat.lines().find_map(|line| line.strip_prefix(reclaimable)?.trim().parse::<u64>().ok());
    let used = number(used).unwrap_or(0).saturating_sub(reclaimable.unwrap_or(0));
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn something_is_left_here() {
        let room = Room::now();
        assert!(room.memory.0 > 1 << 20, "{room:?}");
        assert!(room.least().0 <= room.memory.0);
    }

    #[test]
    fn numbers_are_read_as_the_kernel_writes_them() {
        let text = "MemTotal:  24 kB\nMemAvailable:   16384 kB\n";
        assert_eq!(field_kib(text, "MemAvailable:"), Some(16 << 20));
        assert_eq!(field_kib(text, "Nothing:"), None);
        assert_eq!(field_kib("A: x kB", "A:"), None);
    }

    fn group(root: &Path, path: &str, files: &[(&str, &str)]) {
        let folder = root.join(path);
        std::fs::create_dir_all(&folder).expect("a folder");
        for (name, text) in files {
            std::fs::write(folder.join(name), text).expect("a file");
        }
    }

    #[test]
    fn the_narrowest_group_up_to_the_root_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let v2 = |max, current| [("memory.max", max), ("memory.current", current)];
        group(root, "a/b", &v2("max\n", "5\n"));
        group(root, "a", &v2("1000\n", "400\n"));
        assert_eq!(group_left("0::/a/b\n", root), Some(600));
        group(root, "a/b", &v2("500\n", "100\n"));
        group(root, "a/b", &[("memory.stat", "anon 3\ninactive_file 40\n")]);
        assert_eq!(group_left("0::/a/b\n", root), Some(440), "caches of files are given back");
        let v1 = [("memory.limit_in_bytes", "300"), ("memory.usage_in_bytes", "10")];
        group(root, "memory/x", &v1);
        assert_eq!(group_left("4:cpu,memory:/x\n0::/a/b\n", root), Some(290));
        assert_eq!(group_left("4:cpu:/x\n", root), None);
        // This path is the host's, as seen in a container.
        group(root, "memory", &[("memory.limit_in_bytes", "70"), ("memory.usage_in_bytes", "0")]);
        assert_eq!(group_left("4:memory:/of/the/host\n", root), Some(70));
    }
}
