//! The container image (OCI): the static program and its folders, made by umoci without privileges.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::target::Processor;
use super::{done, said};

/// A container's folders for sockets and for state. Both can be volumes.
const FOLDERS: [&str; 2] = ["run/braid", "var/lib/braid"];

/// Makes the archive of a container image, for `skopeo copy oci-archive:PATH …` and `podman load`.
pub(super) fn archive(
    stage: &Path,
    (out, version): (&Path, &str),
    processor: Processor,
) -> Result<PathBuf> {
    let name = format!("braid-{}-{}", version, processor.of_debian());
    let layout = out.join(format!("{name}.oci"));
    if layout.exists() {
        fs::remove_dir_all(&layout)?;
    }
    let image = format!("{}:{}", layout.display(), version);
    let folders = out.join("image-folders");
    for folder in FOLDERS {
        fs::create_dir_all(folders.join(folder)).with_context(|| folder.to_owned())?;
    }
    done(Command::new("umoci").args(["init", "--layout"]).arg(&layout))?;
    done(Command::new("umoci").args(["new", "--image", &image]))?;
    let insert = |from: PathBuf, to: &str| {
        let mut command = Command::new("umoci");
        command.args(["insert", "--rootless", "--image", &image]).arg(from).arg(to);
        done(&mut command)
    };
    insert(stage.join("usr/bin/braid"), "/usr/bin/braid")?;
    insert(stage.join("usr/share/doc/braid"), "/usr/share/doc/braid")?;
    insert(folders.join("run"), "/run")?;
    insert(folders.join("var"), "/var")?;
    let version = format!("org.opencontainers.image.version={}", version);
    let labels = [
        "org.opencontainers.image.title=braid",
        "org.opencontainers.image.licenses=MIT OR Apache-2.0",
        &version,
    ];
    let mut config = Command::new("umoci");
    config.args(["config", "--image", &image, "--os", "linux"]);
    config.args(["--architecture", processor.of_debian()]);
    config.args(["--config.entrypoint", "/usr/bin/braid", "--config.cmd", "--help"]);
    config.args(["--config.env", "BRAID_RUNTIME_DIR=/run/braid"]);
    config.args(["--config.env", "BRAID_STATE_DIR=/var/lib/braid"]);
    config.args(["--config.volume", "/run/braid", "--config.volume", "/var/lib/braid"]);
    config.args(labels.iter().flat_map(|label| ["--config.label", label]));
    done(&mut config)?;
    done(Command::new("umoci").args(["gc", "--layout"]).arg(&layout))?;
    let archive = out.join(format!("{name}.oci.tar"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--mtime=@0", "-cf"]).arg(&archive);
    done(tar.arg("-C").arg(&layout).arg("."))?;
    fs::remove_dir_all(&layout)?;
    fs::remove_dir_all(&folders)?;
    Ok(archive)
}

/// Unpacks the archive as a container would; the program in it creates and examines an array.
pub(super) fn used(
    archive: &Path,
    (out, version): (&Path, &str),
    processor: Processor,
) -> Result<()> {
    let (layout, bundle) = (out.join("image"), out.join("bundle"));
    for folder in [&layout, &bundle] {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
    }
    fs::create_dir_all(&layout)?;
    done(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&layout))?;
    let image = format!("{}:{}", layout.display(), version);
    done(Command::new("umoci").args(["unpack", "--rootless", "--image", &image]).arg(&bundle))?;
    let root = bundle.join("rootfs");
    for folder in FOLDERS {
        ensure!(root.join(folder).is_dir(), "the image has no {folder}");
    }
    let program = root.join("usr/bin/braid");
    let members = ["m0", "m1", "m2"].map(|name| root.join(name));
    let state = root.join("var/lib/braid");
    let running = |words: &[&str]| -> Result<String> {
        let mut command = processor.running(&program)?;
        said(command.arg("--state-dir").arg(&state).args(words).args(&members))
    };
    running(&["create", "tank", "--level", "5", "--member-size", "16M"])?;
    let said = running(&["examine"])?;
    ensure!(said.contains("tank"), "{said}");
    fs::remove_dir_all(&layout)?;
    fs::remove_dir_all(&bundle)?;
    println!("unpacked and run: {}", archive.display());
    Ok(())
}
