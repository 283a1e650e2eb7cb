//! Tries the package in an empty root made by debootstrap: installs, uses and removes it.
//!
//! An empty root has no systemd. The test starts the unit's programs itself, as the unit's user and
//! with the unit's arguments.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::{copied, done, said};

/// The script in the root: creates an array, configures it by `braid scan`, serves it as the unit,
/// stops it.
const USE: &str = r#"
set -eu
rm -rf /srv/disks /var/lib/braid /etc/braid
dpkg --install /braid.deb
test "$(braid --version | cut -d' ' -f1)" = braid
id braid | grep -q disk
getent passwd braid > /dev/null
command="$(sed -n 's,^ExecStart=,,p' /usr/lib/systemd/system/braid@.service | sed 's,%i,tank,')"
install -d -o braid -g braid -m 0700 /run/braid /var/lib/braid /srv/disks
export BRAID_RUNTIME_DIR=/run/braid BRAID_STATE_DIR=/var/lib/braid
as() { setpriv --reuid braid --regid braid --init-groups --no-new-privs -- "$@"; }
cd /srv/disks
as braid create tank --level 6 --member-size 16M --chunk 64K m0 m1 m2 m3
braid scan --write '/srv/disks/m*'
cat /etc/braid/tank.toml
as $command & server=$!
n=0; until braid status tank > /dev/null 2>&1; do n=$((n+1)); test $n -lt 100; sleep 0.2; done
braid --json status tank | grep -q '"system-calls"'
braid check tank
braid stop tank
wait $server
braid examine m0 m1 m2 m3 > /dev/null
gzip -dc /usr/share/man/man1/braid-serve.1.gz | grep -q confine
dpkg --remove braid
test ! -e /usr/bin/braid && test ! -e /usr/lib/udev/rules.d/62-braid.rules
test -e /var/lib/braid
dpkg --purge braid
"#;

/// Makes the root with the package in it, and runs the script in the root.
pub(super) fn used(package: &Path, out: &Path) -> Result<()> {
    let root = out.join("root");
    if !root.join("bin/sh").exists() {
        // The smallest set with users, a shell, setpriv, and the tool that creates users.
        let include = "--include=systemd,libgcc-s1";
        done(
            Command::new("debootstrap").args(["--variant=minbase", include, "bookworm"]).arg(&root),
        )?;
    }
    copied(package, &root.join("braid.deb"), 0o644)?;
    fs::write(root.join("use.sh"), USE)?;
    // The script has namespaces of its own: their end removes all mounts and processes.
    let within = "mount -t proc proc \"$1/proc\" && mount -t sysfs sys \"$1/sys\" && mount --rbind /dev \"$1/dev\" && exec chroot \"$1\" sh /use.sh";
    let mut used = Command::new("unshare");
    used.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", within, "sh"]).arg(&root);
    let text = said(&mut used)?;
    ensure!(text.contains("array = "), "nothing was configured:\n{text}");
    println!("installed, used and removed in {}", root.display());
    Ok(())
}
