//! Rules about crates: permitted dependencies.
//!
//! The rules read `cargo metadata`, so they see dependencies of features, and renamed ones. The
//! table below is the drawing in ARCHITECTURE.md, one row for each crate.
//!
//! Normal and build dependencies follow the table. Dev-dependencies may also name pure crates, but
//! no others: a pure crate's tests stay pure.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Finding, Rule};

/// Permitted dependencies of a workspace crate.
struct Row {
    name: &'static str,
    /// Workspace crates that the crate may depend on; `ANY` for all.
    workspace: &'static [&'static str],
    /// Crates from crates.io that the crate may depend on; `ANY` for all.
    registry: &'static [&'static str],
}

const ANY: &[&str] = &["*"];
/// Crates from crates.io for pure crates: no crate of this list reaches the outside world.
const PURE_REGISTRY: &[&str] =
    &["thiserror", "zerocopy", "crc32c", "crc32fast", "rangemap", "slotmap", "smallvec"];
/// Crates that any dev-dependency may name: the pure ones, and `test-needs`.
const FOR_TESTS: [&str; 14] = [
    "braid-sim-hooks",
    "braid-geometry",
    "braid-parity",
    "braid-nbd-proto",
    "braid-fuse-proto",
    "braid-ublk-proto",
    "braid-virtio-proto",
    "braid-ondisk",
    "braid-assembly",
    "braid-elevator",
    "braid-ownership",
    "braid-pace",
    "braid-engine",
    "braid-test-needs",
];

/// Crates from crates.io that bring an asynchronous runtime.
const RUNTIMES: [&str; 4] = ["tokio", "axum", "hyper", "hyper-util"];
/// Workspace crates that may depend on the crates in `RUNTIMES`.
const ASYNCHRONOUS: [&str; 2] = ["braid-control", "braid-events"];

const ROWS: [Row; 48] = [
    // The crate has no content without the simulator's cfg, so the lowest crates may use it.
    Row { name: "braid-sim-hooks", workspace: &[], registry: &[] },
    // The crate is one instruction without effects.
    Row { name: "braid-prefetch", workspace: &[], registry: &[] },
    Row { name: "braid-geometry", workspace: &["braid-sim-hooks"], registry: PURE_REGISTRY },
    Row { name: "braid-parity", workspace: &["braid-sim-hooks"], registry: PURE_REGISTRY },
    Row { name: "braid-byte-reader", workspace: &[], registry: PURE_REGISTRY },
    Row {
        name: "braid-solver",
        workspace: &["braid-byte-reader", "braid-geometry", "braid-parity"],
        registry: PURE_REGISTRY,
    },
    Row {
        name: "braid-external-metadata",
        workspace: &["braid-byte-reader", "braid-geometry"],
        registry: PURE_REGISTRY,
    },
    Row { name: "braid-nbd-proto", workspace: &["braid-sim-hooks"], registry: PURE_REGISTRY },
    Row { name: "braid-fuse-proto", workspace: &[], registry: PURE_REGISTRY },
    Row { name: "braid-ublk-proto", workspace: &[], registry: PURE_REGISTRY },
    Row { name: "braid-virtio-proto", workspace: &[], registry: PURE_REGISTRY },
    Row { name: "braid-elevator", workspace: &["braid-sim-hooks"], registry: PURE_REGISTRY },
    Row { name: "braid-ownership", workspace: &["braid-sim-hooks"], registry: PURE_REGISTRY },
    Row { name: "braid-pace", workspace: &["braid-sim-hooks"], registry: PURE_REGISTRY },
    Row {
        name: "braid-ondisk",
        workspace: &["braid-sim-hooks", "braid-geometry"],
        registry: PURE_REGISTRY,
    },
    Row {
        name: "braid-assembly",
        workspace: &["braid-sim-hooks", "braid-geometry", "braid-ondisk"],
        registry: PURE_REGISTRY,
    },
    Row {
        name: "braid-engine",
        workspace: &[
            "braid-prefetch",
            "braid-sim-hooks",
            "braid-geometry",
            "braid-parity",
            "braid-ondisk",
            "braid-assembly",
        ],
        registry: PURE_REGISTRY,
    },
    Row {
        name: "braid-signatures",
        workspace: &["braid-byte-reader", "braid-ondisk"],
        registry: PURE_REGISTRY,
    },
    Row { name: "braid-imaging", workspace: &[], registry: PURE_REGISTRY },
    Row { name: "braid-lvm", workspace: &["braid-byte-reader"], registry: PURE_REGISTRY },
    // The crate says which test needs what of the machine; it is not part of any product.
    Row { name: "braid-test-needs", workspace: &[], registry: &["rustix"] },
    // The crate simulates braid: it replaces all crates that reach the outside world.
    Row {
        name: "braid-sim",
        workspace: &[
            "braid-sim-hooks",
            "braid-elevator",
            "braid-engine",
            "braid-geometry",
            "braid-pace",
            "braid-parity",
            "braid-ondisk",
            "braid-assembly",
            "braid-nbd-proto",
            "braid-ownership",
        ],
        registry: &[],
    },
    // The crate is one unsafe call, kept out of the crate that opens members.
    Row { name: "braid-block-ioctl", workspace: &[], registry: &["rustix"] },
    // The crate drops a process's privileges; it talks only to the kernel.
    Row {
        name: "braid-confine",
        workspace: &[],
        registry: &["landlock", "libc", "rustix", "seccompiler", "thiserror"],
    },
    Row {
        name: "braid-member",
        workspace: &["braid-block-ioctl", "braid-nbd-client", "braid-ownership"],
        registry: ANY,
    },
    // The crate has names for the shared state of threads, backed by the model checkers.
    Row { name: "braid-concurrency", workspace: &[], registry: &["loom", "shuttle"] },
    Row { name: "braid-ring", workspace: &["braid-concurrency"], registry: ANY },
    // Threads around a state machine, without RAID, so that the lab measures it alone.
    Row {
        name: "braid-dispatch",
        workspace: &["braid-elevator", "braid-concurrency"],
        registry: ANY,
    },
    // Parts of the lab: a modelled machine, and the dispatcher's files built for it; not shipped.
    Row { name: "braid-many-cores", workspace: &["braid-concurrency"], registry: &["generator"] },
    Row {
        name: "braid-many-cores-elevator",
        workspace: &["braid-many-cores", "braid-elevator"],
        registry: &[],
    },
    Row {
        name: "braid-many-cores-dispatch",
        workspace: &["braid-many-cores", "braid-many-cores-elevator"],
        registry: &[],
    },
    Row {
        name: "braid-runtime",
        workspace: &[
            "braid-dispatch",
            "braid-elevator",
            "braid-engine",
            "braid-geometry",
            "braid-pace",
            "braid-parity",
            "braid-ondisk",
            "braid-assembly",
            "braid-member",
            "braid-ring",
            "braid-concurrency",
        ],
        registry: ANY,
    },
    // The crate reads PEM files, for the NBD server's TLS and the client's.
    Row { name: "braid-certificates", workspace: &[], registry: &["rustls", "thiserror"] },
    // The crate stores the record of an owner in etcd or S3, with blocking calls.
    Row {
        name: "braid-store",
        workspace: &["braid-certificates", "braid-ownership"],
        registry: ANY,
    },
    // The crate is an NBD client with blocking calls.
    Row {
        name: "braid-nbd-client",
        workspace: &["braid-certificates", "braid-nbd-proto"],
        registry: &["thiserror", "rustix", "rustls"],
    },
    Row {
        name: "braid-frontend-nbd",
        workspace: &["braid-certificates", "braid-nbd-proto", "braid-ring", "braid-concurrency"],
        registry: ANY,
    },
    // The crate serves arrays, of which it knows only the interface.
    Row {
        name: "braid-frontend-fuse",
        workspace: &["braid-fuse-proto", "braid-ring", "braid-runtime"],
        registry: ANY,
    },
    Row {
        name: "braid-frontend-ublk",
        workspace: &["braid-ublk-proto", "braid-ring", "braid-runtime"],
        registry: ANY,
    },
    Row {
        name: "braid-frontend-vhost-user",
        workspace: &["braid-virtio-proto", "braid-ring", "braid-runtime"],
        registry: ANY,
    },
    // The crate knows values and HTTP; its caller provides the content.
    Row { name: "braid-control", workspace: &[], registry: ANY },
    // The crate runs next to the server, outside the data path: it has notices, and the places that
    // they are sent to.
    Row {
        name: "braid-events",
        workspace: &["braid-console", "braid-control", "braid-geometry", "braid-runtime"],
        registry: ANY,
    },
    // The crate is braid's dialogue with an operator; it knows no array.
    Row { name: "braid-console", workspace: &["braid-control", "braid-member"], registry: ANY },
    // The crate finds the content of devices, and the served arrays; it serves none.
    Row {
        name: "braid-discovery",
        workspace: &[
            "braid-assembly",
            "braid-console",
            "braid-signatures",
            "braid-control",
            "braid-engine",
            "braid-geometry",
            "braid-imaging",
            "braid-member",
            "braid-ondisk",
            "braid-pace",
            "braid-runtime",
        ],
        registry: ANY,
    },
    // The crate is the service. It reads no command line and no formats that only a rescue needs.
    Row {
        name: "braid-server",
        workspace: &[
            "braid-assembly",
            "braid-confine",
            "braid-console",
            "braid-signatures",
            "braid-store",
            "braid-control",
            "braid-discovery",
            "braid-engine",
            "braid-frontend-fuse",
            "braid-frontend-nbd",
            "braid-frontend-ublk",
            "braid-frontend-vhost-user",
            "braid-geometry",
            "braid-member",
            "braid-nbd-proto",
            "braid-ondisk",
            "braid-ownership",
            "braid-pace",
            "braid-ring",
            "braid-runtime",
            "braid-events",
        ],
        registry: ANY,
    },
    // The crate opens arrays that do not start. The server serves the opened result.
    Row {
        name: "braid-rescue",
        workspace: &[
            "braid-assembly",
            "braid-console",
            "braid-external-metadata",
            "braid-signatures",
            "braid-control",
            "braid-discovery",
            "braid-engine",
            "braid-frontend-nbd",
            "braid-geometry",
            "braid-imaging",
            "braid-lvm",
            "braid-member",
            "braid-nbd-proto",
            "braid-ondisk",
            "braid-ring",
            "braid-runtime",
            "braid-server",
            "braid-solver",
        ],
        registry: ANY,
    },
    Row { name: "braid", workspace: ANY, registry: ANY },
    // The crate measures all crates. No crate depends on it; it does not use the simulator.
    Row {
        name: "braid-lab",
        workspace: &[
            "braid-many-cores",
            "braid-many-cores-dispatch",
            "braid-many-cores-elevator",
            "braid-dispatch",
            "braid-elevator",
            "braid-engine",
            "braid-geometry",
            "braid-pace",
            "braid-parity",
            "braid-ondisk",
            "braid-assembly",
            "braid-member",
            "braid-nbd-client",
            "braid-runtime",
        ],
        registry: ANY,
    },
    Row {
        name: "xtask",
        workspace: &[
            "braid-geometry",
            "braid-parity",
            "braid-nbd-client",
            "braid-test-needs",
            "braid-nbd-proto",
            "braid-ondisk",
            "braid-assembly",
            "braid-member",
            "braid-ring",
            "braid-runtime",
            "braid-frontend-nbd",
            "braid",
        ],
        registry: ANY,
    },
];

/// One workspace crate.
pub(super) struct Package {
    pub(super) name: String,
    /// The package's folder, from the repository root.
    pub(super) folder: String,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    /// Whether the dependency is named by path; all other dependencies are from crates.io.
    is_ours: bool,
    is_dev: bool,
}

/// Output of `cargo metadata` about the workspace and its dependencies.
pub(super) fn metadata(root: &Path) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The packages of the workspace itself.
pub(super) fn packages(metadata: &Value, root: &Path) -> Result<Vec<Package>> {
    let list = metadata["packages"].as_array().context("metadata lists packages")?;
    let mut packages = Vec::new();
    for package in list.iter().filter(|package| package["source"].is_null()) {
        let name = package["name"].as_str().context("a package has a name")?.to_string();
        let manifest = package["manifest_path"].as_str().context("a package has a manifest")?;
        let folder = Path::new(manifest).parent().context("a manifest stands in a folder")?;
        let folder = folder.strip_prefix(root).unwrap_or(folder).to_string_lossy().into_owned();
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let dependencies = dependencies
            .map(|dependency| Dependency {
                name: dependency["name"].as_str().unwrap_or_default().to_string(),
                is_ours: dependency["source"].is_null(),
                is_dev: dependency["kind"] == "dev",
            })
            .collect();
        packages.push(Package { name, folder, dependencies });
    }
    Ok(packages)
}

/// Compares every dependency with the table; missing and superfluous entries are findings.
pub(super) fn directions(packages: &[Package], findings: &mut Vec<Finding>) {
    for package in packages {
        let place = format!("{}/Cargo.toml", package.folder);
        let Some(row) = ROWS.iter().find(|row| row.name == package.name) else {
            let text = format!("{} has no row in xtask/src/tidy/crates.rs", package.name);
            findings.push(Finding::new(Rule::Dependencies, &place, 1, text));
            continue;
        };
        for dependency in &package.dependencies {
            if let Some(text) = complaint(row, dependency) {
                findings.push(Finding::new(Rule::Dependencies, &place, 1, text));
            }
        }
    }
    for row in &ROWS {
        if !packages.iter().any(|package| package.name == row.name) {
            let text = format!("the table has a row for {}, which is not here", row.name);
            findings.push(Finding::new(Rule::Dependencies, "xtask/src/tidy/crates.rs", 1, text));
        }
    }
}

fn complaint(row: &Row, dependency: &Dependency) -> Option<String> {
    let name = dependency.name.as_str();
    let allowed = if dependency.is_ours { row.workspace } else { row.registry };
    // Untyped errors are for development tools, not for shipped crates.
    let is_typeless = name == "anyhow" && row.name != "xtask";
    // Futures are for code outside the data path.
    let is_elsewhere = RUNTIMES.contains(&name) && !ASYNCHRONOUS.contains(&row.name);
    let by_table = (allowed == ANY && !is_typeless && !is_elsewhere) || allowed.contains(&name);
    let by_test = dependency.is_dev && (!dependency.is_ours || FOR_TESTS.contains(&name));
    if by_table || by_test {
        return None;
    }
    let kind = if dependency.is_dev { "dev-depend" } else { "depend" };
    Some(format!("{} must not {kind} on {name}", row.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(name: &str, dependency: &str, is_ours: bool, is_dev: bool) -> usize {
        let dependency = Dependency { name: dependency.to_string(), is_ours, is_dev };
        let row = ROWS.iter().find(|row| row.name == name).expect("a row");
        usize::from(complaint(row, &dependency).is_some())
    }

    #[test]
    fn an_arrow_against_the_flow_is_found() {
        assert_eq!(complaints("braid-geometry", "braid-ondisk", true, false), 1);
        assert_eq!(complaints("braid-engine", "braid-member", true, false), 1);
        assert_eq!(complaints("braid-engine", "braid-member", true, true), 1);
        assert_eq!(complaints("braid-frontend-nbd", "braid-runtime", true, false), 1);
        assert_eq!(complaints("xtask", "braid-engine", true, false), 1);
        assert_eq!(complaints("braid-engine", "braid-ondisk", true, false), 0);
        assert_eq!(complaints("braid", "braid-runtime", true, false), 0);
    }

    #[test]
    fn chance_and_system_calls_stay_out_of_pure_crates() {
        assert_eq!(complaints("braid-engine", "rand", false, false), 1);
        assert_eq!(complaints("braid-ondisk", "libc", false, false), 1);
        assert_eq!(complaints("braid-engine", "proptest", false, true), 0);
        assert_eq!(complaints("braid-member", "rustix", false, false), 0);
        assert_eq!(complaints("braid", "anyhow", false, false), 1);
        assert_eq!(complaints("xtask", "anyhow", false, false), 0);
    }

    #[test]
    fn an_asynchronous_runtime_beside_the_data_is_found() {
        assert_eq!(complaints("braid-runtime", "tokio", false, false), 1);
        assert_eq!(complaints("braid-frontend-nbd", "tokio", false, false), 1);
        assert_eq!(complaints("braid", "axum", false, false), 1);
        assert_eq!(complaints("braid-control", "tokio", false, false), 0);
    }

    #[test]
    fn a_crate_without_row_and_a_row_without_crate_are_found() {
        let name = "braid-drawer".to_string();
        let folder = "crates/drawer".to_string();
        let mut findings = Vec::new();
        directions(&[Package { name, folder, dependencies: Vec::new() }], &mut findings);
        assert!(findings[0].text.contains("braid-drawer has no row"));
        assert_eq!(findings.len(), 1 + ROWS.len());
    }
}
