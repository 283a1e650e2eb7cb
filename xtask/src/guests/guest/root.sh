#!/bin/sh
# The first process on the array. It writes and reads until the host sends `end`. Then it compares
# every file with the data that it meant to write.
# Prints `@@ROOT` with the mount of its root, and `@@SAME N` (number of files).
export PATH=/bin
exec >/dev/console 2>&1
mount -t proc proc /proc
mount -t tmpfs tmp /tmp
. /rounds.sh
begin
cd /work || failed "no folder"
echo "@@ROOT $(grep ' / ' /proc/mounts)"
rounds_until end
verify
cp /tmp/all /sums
grep -q ' / ext4 rw' /proc/mounts || failed "the root is not writable any more"
echo "@@SAME $(wc -l </sums)"
sync
mount -o remount,ro / || failed "remount"
poweroff -f
