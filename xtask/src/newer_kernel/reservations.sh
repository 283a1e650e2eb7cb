# Checks of owners over disks that two hosts share, one after the other. The first that fails ends
# the script. The console shows `@@OK WHAT` for each check, and `@@DONE` at the end.
#
# The kernel's NVMe target has three disks. Two controllers attach each of them, as two hosts would:
# each has the identity of a host of its own. Multipath is off, so that they stay apart.
while read -r module; do
    insmod "/modules/$module.ko" || exit 1
done </modules/order
export STORE=etcd://127.0.0.1:2379/tank

ok() {
    echo "@@OK $*"
}

failed() {
    echo "@@FAILED $*"
    tail -n 20 /tmp/log* 2>/dev/null
    dmesg | tail -n 20
    exit 1
}

soon() { # soon COMMAND...: the command succeeds within two minutes
    turns=0
    until "$@"; do
        sleep 0.2
        turns=$((turns + 1))
        [ $turns -lt 600 ] || failed "never: $*"
    done
}

on() { # on HOST WORD...: braid on that host
    host=$1
    shift
    BRAID_STATE_DIR=/tmp/$host/state BRAID_RUNTIME_DIR=/tmp/$host/run braid "$@"
}

owner() { # owner HOST OPTIONS...: starts a server of that host in the background ($SERVER)
    host=$1
    shift
    eval "disks=\$disks_$host"
    BRAID_STATE_DIR=/tmp/$host/state BRAID_RUNTIME_DIR=/tmp/$host/run \
        braid serve --store $STORE "$@" $disks >"/tmp/log.$host" 2>&1 &
    SERVER=$!
}

serves() { # serves HOST
    grep -q '^serving' "/tmp/log.$1"
}

copied() { # copied HOST FILE: the array, as that host serves it, begins with the content of FILE
    rm -f /tmp/copy
    nbdcopy "nbd+unix:///tank?socket=/tmp/$1/run/tank.sock" /tmp/copy || failed "no read from $1"
    cmp -n "$(stat -c %s "$2")" /tmp/copy "$2" || failed "$1 has other content"
}

written() { # written HOST FILE
    nbdcopy --flush --destination-is-zero "$2" "nbd+unix:///tank?socket=/tmp/$1/run/tank.sock" ||
        failed "no write to $1"
}

ip link set lo up
mount -t configfs config /sys/kernel/config
target=/sys/kernel/config/nvmet
subsystem=$target/subsystems/disks
mkdir $subsystem $target/ports/1
echo 1 >$subsystem/attr_allow_any_host
for i in 1 2 3 4; do
    truncate -s 48M /tmp/disk$i
    disk=$subsystem/namespaces/$i
    mkdir $disk
    echo -n /tmp/disk$i >$disk/device_path
    echo 1 >$disk/buffered_io
    echo 1 >$disk/resv_enable || failed "no reservations"
    echo 1 >$disk/enable || failed "disk $i"
done
echo loop >$target/ports/1/addr_trtype
ln -s $subsystem $target/ports/1/subsystems/disks
for host in a b; do
    id=00000000-0000-4000-8000-00000000000$host
    echo "transport=loop,nqn=disks,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id,hostid=$id" \
        >/dev/nvme-fabrics || failed "host $host has no disks"
done
disks_a="/dev/nvme0n1 /dev/nvme0n2 /dev/nvme0n3"
disks_b="/dev/nvme1n1 /dev/nvme1n2 /dev/nvme1n3"
for disk in $disks_a $disks_b /dev/nvme0n4 /dev/nvme1n4; do
    soon test -b $disk
done

etcd --data-dir /tmp/etcd --listen-client-urls http://127.0.0.1:2379 \
    --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 \
    >/tmp/etcd.words 2>&1 &
dd if=/dev/urandom of=/tmp/first bs=1M count=20 2>/dev/null
dd if=/dev/urandom of=/tmp/second bs=1M count=20 2>/dev/null
on a create tank --level 5 --chunk 64K $disks_a >/tmp/log.create 2>&1 || failed create
soon grep -q 'ready to serve client requests' /tmp/etcd.words

truncate -s 48M /tmp/file
BRAID_STATE_DIR=/tmp/c braid serve --store $STORE /tmp/file >/tmp/log.file 2>&1 && failed "a file is no disk"
grep -q B126 /tmp/log.file && grep -q 'a file of this host' /tmp/log.file || failed "a file is refused otherwise"
ok "a file of one host is refused under a store"

owner a
OWNER=$SERVER
soon serves a
written a /tmp/first
ok "host a owns the disks, and serves"

on a add --dry-run tank /dev/nvme0n4 >/tmp/log.dry 2>&1 || failed "no dry run"
dd if=/dev/urandom of=/dev/nvme1n4 bs=4096 count=4 oflag=direct 2>/dev/null || failed "a dry run reserves"
mke2fs -q -F /dev/nvme1n4 || failed mke2fs
on a add tank /dev/nvme0n4 >/tmp/log.add 2>&1 && failed "another host's file system is taken"
dd if=/dev/nvme1n4 of=/dev/nvme1n4 bs=4096 count=4 oflag=direct 2>/dev/null || failed "a refusal reserves"
ok "a dry run and a refusal reserve nothing"

set -- $disks_a
on a serve "$@" >/tmp/log.plain 2>&1 && failed "a second server of host a"
set -- $disks_b
on b serve "$@" >/tmp/log.plain 2>&1 && failed "host b serves without the store"
grep -q B127 /tmp/log.plain || failed "reserved disks are refused otherwise"
ok "host b may not serve them without the store"
dd if=/dev/zero of="$1" bs=4096 count=1 seek=4000 oflag=direct 2>/dev/null && failed "host b writes"
dd if="$1" of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null || failed "host b cannot read"
ok "the disk refuses other hosts' writes, and lets them read"

owner b --standby
HEIR=$SERVER
soon grep -q '^standby' /tmp/log.b
kill -9 $OWNER
soon serves b
copied b /tmp/first
ok "host a is killed: host b takes the disks over, and nothing is lost"

# Host a comes back, and takes over from a host that sleeps.
owner a --standby
OWNER=$SERVER
soon grep -q '^standby' /tmp/log.a
nbdcopy --flush /tmp/second "nbd+unix:///tank?socket=/tmp/b/run/tank.sock" &
CLIENT=$!
sleep 0.3
kill -STOP $HEIR
soon serves a
written a /tmp/first
kill -CONT $HEIR
wait $HEIR
status=$?
[ $status = 12 ] || failed "the woken owner ended with $status"
wait $CLIENT && echo "the client of the woken owner had all its answers"
copied a /tmp/first
ok "host b sleeps through a take-over: it ends when it wakes, and wrote nothing more"

owner b --standby
HEIR=$SERVER
soon grep -q '^standby' /tmp/log.b
on a hand-over tank >/tmp/log.over 2>&1 || failed "no hand-over"
soon serves b
written b /tmp/second
copied b /tmp/second
on b wait tank --for idle || failed "not idle"
on b check tank >/tmp/log.check 2>&1 || failed check
grep -q 'all of it agrees' /tmp/log.check || failed "parity differs"
ok "it is handed over, and its parity agrees"

set -- $disks_b
on b fail tank "$1" >/tmp/log.fail 2>&1 || failed fail
on b remove tank "$1" >>/tmp/log.fail 2>&1 || failed remove
on b add tank "$1" >>/tmp/log.fail 2>&1 || failed add
on b wait tank --for idle || failed "not rebuilt"
on b status tank | grep -q 'can lose 1 more' || failed "not whole"
on b stop tank >/tmp/log.stop 2>&1 || failed stop
wait $HEIR
ok "a member leaves, comes back, and is rebuilt"

set -- $disks_a
disks_a="$1 $2 /dev/nvme9n9"
owner a
soon serves a
copied a /tmp/second
kill $SERVER
wait $SERVER
ok "after a stop another host serves it, also without a disk that is gone"
exit 0
