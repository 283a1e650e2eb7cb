#!/bin/sh
# The machine's systemd runs this script at each start. Its messages begin with @@, on the console.
say() { echo "@@$*"; }
fail() {
    say "FAILED $*"
    systemctl status 'braid@*' --no-pager --full
    journalctl --no-pager --boot --lines 40
    systemctl poweroff --force --force
}
wait_for() {
    what="$1"; shift
    n=0
    until "$@" > /dev/null 2>&1; do
        n=$((n + 1))
        [ "$n" -lt 600 ] || fail "$what"
        sleep 0.2
    done
}
same() {
    nbdcopy "$uri" - | head -c "$bytes" | sha256sum > /drill/now
    cmp -s /drill/sum /drill/now || fail "other bytes: $1"
    say "SAME $1"
}
served() { systemctl is-active --quiet braid@tank && braid status tank; }

uri='nbd+unix:///tank?socket=/run/braid/tank.sock'
bytes=20000000
mkdir -p /drill
if [ ! -e /drill/sum ]; then
    dpkg --install /braid.deb > /dev/null || fail "the package is not installed"
    # Only these two commands: the rule and the unit serve the array as the file from scan says.
    braid create tank --level 6 /dev/vdb /dev/vdc /dev/vdd /dev/vde || fail "create"
    braid scan --write || fail "scan"
    systemctl start braid@tank.service || fail "the unit does not start"
    wait_for "it is not served" served
    head -c "$bytes" /dev/urandom > /drill/image
    sha256sum < /drill/image > /drill/sum
    nbdcopy --flush /drill/image "$uri" || fail "nbdcopy"
    rm /drill/image
    same "as it was written"
    sync
    say RESTART
    systemctl reboot
    exit
fi
# Only the udev rule, which saw the members appear, has started the server.
wait_for "it did not come back" served
same "after a restart of the machine"
braid --json status tank | grep -q '"system-calls"' || fail "it is not confined"
braid fail tank 1 || fail "fail"
same "with a member failed"
before=$(systemctl show --property MainPID --value braid@tank)
kill -KILL "$before"
other() { served && [ "$(systemctl show --property MainPID --value braid@tank)" != "$before" ]; }
wait_for "it was not started again" other
same "after kill -9"
braid add tank /dev/vdc || fail "the member does not come back"
braid wait tank --for rebuild || fail "it is not rebuilt"
same "rebuilt"
say "EXPOSURE $(systemd-analyze security braid@tank.service --no-pager | grep -o 'Overall exposure.*')"
systemctl stop braid@tank || fail "stop"
dpkg --remove braid > /dev/null || fail "remove"
[ ! -e /usr/bin/braid ] || fail "it is left behind"
say DONE
systemctl poweroff
