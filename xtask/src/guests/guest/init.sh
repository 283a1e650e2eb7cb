#!/bin/sh
# The first process, in memory: inserts the modules that read the disk, and switches root to the disk.
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
while read -r module; do
    insmod "/modules/$module.ko" || echo "@@FAILED insmod $module" >/dev/console
done </modules/order
mount -t ext4 /dev/vda1 /root || echo "@@FAILED mount" >/dev/console
mount --move /dev /root/dev
umount /proc
exec switch_root /root /first
