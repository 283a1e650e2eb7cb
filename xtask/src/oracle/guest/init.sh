#!/bin/sh
# The guest's first process: mount, load the modules, run every case of the job, switch off.
# Everything that the host parses goes through the virtio port (fd 3). The serial console has only
# the kernel's messages, so that the host sees a panic there.
export PATH=/bin:/sbin MDADM_NO_UDEV=1 LD_LIBRARY_PATH=/lib
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /tmp /run/mdadm
while read -r module; do
    insmod "/modules/$module.ko" || echo "@@INIT cannot insert $module" >/dev/console
done </modules/order
for port in /dev/vport*; do exec 3>"$port"; done
echo "@@BOOT $(cut -d' ' -f1 /proc/uptime) $(uname -r)" >&3
. /job/settings
for script in /job/cases/*.sh; do
    sh /run-case.sh "$script"
done
echo "@@DONE $(cut -d' ' -f1 /proc/uptime)" >&3
exec 3>&-
if [ "$ENDING" = killed ]; then
    while :; do sleep 1000; done
fi
if [ "$ENDING" = cut ]; then
    echo b >/proc/sysrq-trigger
fi
sync
poweroff -f
