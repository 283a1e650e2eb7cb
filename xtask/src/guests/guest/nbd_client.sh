#!/bin/sh
# The first process, in memory: nbd-client sets up the kernel's nbd driver, which gets a file system.
# Programs called by their path are not those of busybox.
# Prints `@@SHAPE`, `@@FULL`, `@@TRIMMED`, `@@PAUSED`, `@@BACK` and `@@SAME N` (number of files).
# Waits for the words `trim`, `pause`, `back` and `end`.
export PATH=/bin LD_LIBRARY_PATH=/lib
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
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

connect() {
    nbd-client "$HOST" "$PORT" /dev/nbd0 -name tank -connections 4 || failed nbd-client
    # nbd-client returns before the driver knows the size.
    turns=0
    until [ "$(cat /sys/block/nbd0/size)" != 0 ]; do
        sleep 0.1
        turns=$((turns + 1))
        [ $turns -lt 300 ] || failed "no disk"
    done
}

connect
shape() { cat "/sys/block/nbd0/queue/$1"; }
echo "@@SHAPE $(blockdev --getsize64 /dev/nbd0) $(shape logical_block_size) $(shape fua) $(shape discard_max_bytes) $(shape write_cache)"
/bin/mke2fs -q -F -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 /dev/nbd0 || failed mke2fs
mkdir /disk
mount -t ext4 /dev/nbd0 /disk || failed mount
mkdir /disk/work

dd if=/dev/urandom of=/disk/full bs=1M count=24 2>/dev/null
sync
echo "@@FULL"
hear trim
rm /disk/full
sync
fstrim /disk || failed fstrim
sync
echo "@@TRIMMED"

cd /disk/work || failed "no folder"
rounds_until pause
verify
cd /
umount /disk || failed umount
echo "@@PAUSED"
hear back
nbd-client -d /dev/nbd0
connect
mount -t ext4 /dev/nbd0 /disk || failed "mount again"
cd /disk/work || failed "no folder"
verify
echo "@@BACK"
rounds_until end
verify
cp /tmp/all /disk/sums
cd /
umount /disk || failed umount
nbd-client -d /dev/nbd0 || failed "nbd-client -d"
echo "@@SAME $(wc -l </tmp/all)"
poweroff -f
