# One case: its own shell, its own deadline, its own report; arrays it leaves behind are stopped
# and its regions removed, unless the job ends with a power cut.
. /job/settings
name=${1##*/}
name=${name%.sh}
name=${name#*-}
read -r now rest </proc/uptime
echo "@@CASE $name $now" >&3
timeout -s KILL "$CASE_SECONDS" sh -e -c '. /library.sh; . "$1"' case "$1" >/tmp/log 2>&1
status=$?
if [ $status -ne 0 ]; then
    echo "@@TEXT log" >&3
    tail -n 60 /tmp/log >&3
    dmesg | tail -n 25 >&3
    echo "@@END" >&3
fi
if [ "$ENDING" = poweroff ]; then
    for array in /sys/block/md*; do
        [ -e "$array" ] || continue
        mdadm --stop "/dev/${array##*/}" >/dev/null 2>&1 || true
    done
    for region in /sys/block/vda/vda*; do
        [ -e "$region" ] || continue
        delpart /dev/vda "${region##*vda}" || true
    done
fi
read -r now rest </proc/uptime
echo "@@STATUS $status $now" >&3
