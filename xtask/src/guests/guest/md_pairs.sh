#!/bin/sh
# The first process of one of two hosts, in memory. Its md has a RAID-1 of two NBD servers, which the
# other host has too. /settings says which host it is, and the servers' ports.
# Writes are direct, and each is flushed before it counts as acknowledged.
export PATH=/bin LD_LIBRARY_PATH=/lib MDADM_NO_UDEV=1
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mkdir -p /run/mdadm
exec >/dev/console 2>&1
. /rounds.sh
. /settings
while read -r module; do
    insmod "/modules/$module.ko" || failed "insmod $module"
done </modules/order
begin
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0

connect() { # connect NUMBER PORT
    nbd-client "$SERVERS" "$2" "/dev/nbd$1" -name m || failed "nbd-client $1"
    until [ "$(cat "/sys/block/nbd$1/size")" != 0 ]; do sleep 0.1; done
}

put() { # put LETTER BLOCK COUNT: writes blocks that begin with a letter
    dd if="/tmp/$1" of=/dev/md0 bs=4k skip="$2" seek="$2" count="$3" oflag=direct \
        conv=notrunc,fsync 2>/dev/null || failed "write $1 $2"
}

others() { # others LETTER: prints how many blocks begin with another letter
    dd if=/dev/md0 of=/tmp/found bs=4k count="$BLOCKS" iflag=direct 2>/dev/null || failed read
    cmp -l "/tmp/$1" /tmp/found | wc -l
}

idle() {
    until [ "$(cat /sys/block/md0/md/sync_action)" = idle ]; do sleep 0.1; done
}

create() {
    mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --metadata=1.2 --bitmap=internal \
        --assume-clean /dev/nbd0 /dev/nbd1 || failed create
    put A 0 "$BLOCKS"
}

for letter in A B C; do
    block=0
    while [ $block -lt "$BLOCKS" ]; do
        printf '%-4096s' "$letter $block"
        block=$((block + 1))
    done >/tmp/$letter
done
connect 0 "$PORT0"
connect 1 "$PORT1"

if [ "$NAME" = A ]; then
    create
    echo "@@SERVING $(uname -r)"
    block=0
    late=0
    until [ $late = "$LATE" ]; do
        put A $((block % BLOCKS)) 1
        block=$((block + 1))
        if [ -e /tmp/said-woken ]; then late=$((late + 1)); fi
    done
    echo "@@LATE $late"
    hear anew
    mdadm --stop /dev/md0 || failed stop
    create
    echo "@@WHOLE"
    hear alone
    put C 0 "$BLOCKS"
    [ "$(cat /sys/block/md0/md/degraded)" = 1 ] || failed "no member is missing"
    echo "@@WRITTEN"
    sleep 1000
fi

echo "@@READY"
hear take
mdadm --assemble --run /dev/md0 /dev/nbd0 /dev/nbd1 || failed assemble
put B 0 "$BLOCKS"
[ "$(others B)" = 0 ] || failed "not what was written"
echo "@@SERVING"
hear look
idle
echo check >/sys/block/md0/md/sync_action
idle
echo "@@FOUND $(others B) $(cat /sys/block/md0/md/mismatch_cnt)"
mdadm --stop /dev/md0 || failed stop
nbd-client -d /dev/nbd0
nbd-client -d /dev/nbd1
echo "@@STOPPED"
hear take
connect 1 "$PORT1"
mdadm --assemble --run /dev/md0 /dev/nbd1 || failed assemble
echo "@@FOUND $(others C) $(cat /sys/block/md0/md/array_state)"
poweroff -f
