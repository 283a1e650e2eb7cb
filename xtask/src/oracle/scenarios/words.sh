# The shell has its own mke2fs, so that the real one is called by its path.
# Words that scenarios are written in, beside those of every case. Disk N of a case is /dev/mapper/$D-N, so that it can vanish or
# have sectors that cannot be read. What is written to disks is counted below that, at the drive.

disk() { # disk NUMBER: its device; any other word stays
    case "$1" in
    [0-9]*) echo "/dev/mapper/$D-$1" ;;
    *) echo "$1" ;;
    esac
}

disks() { # disks NUMBER...: their devices
    for each in "$@"; do disk "$each"; done
}

connect() { # connect COUNT: the disks are there
    COUNT=$1
    for each in $(seq 1 "$COUNT"); do
        eval "member=\$M$each"
        read -r sectors <"/sys/class/block/${member##*/}/size"
        dmsetup --noudevsync --noudevrules create "$D-$each" --table "0 $sectors linear $member 0"
    done
    dmsetup --noudevsync --noudevrules mknodes
    ALL=$(disks $(seq 1 "$COUNT"))
    WRITTEN=$(written_sectors)
}

disconnect() {
    for each in $(losetup -a | cut -d: -f1); do losetup -d "$each"; done
    # What stands on another is first.
    for each in $(ls -r /dev/mapper | grep "^$D-"); do
        dmsetup --noudevsync --noudevrules remove --retry "$each" || true
    done
}

vanish() { # vanish NUMBER...: at the same moment
    for each in "$@"; do
        eval "member=\$M$each"
        read -r sectors <"/sys/class/block/${member##*/}/size"
        dmsetup load "$D-$each" --table "0 $sectors error"
    done
    for each in "$@"; do dmsetup --noudevsync --noudevrules suspend --noflush --nolockfs "$D-$each"; done
    for each in "$@"; do dmsetup --noudevsync --noudevrules resume "$D-$each"; done
}

unreadable() { # unreadable NUMBER START SECTORS...: what the disk no longer gives, in order
    number=$1
    eval "member=\$M$1"
    shift
    read -r sectors <"/sys/class/block/${member##*/}/size"
    at=0
    : >/tmp/table
    while [ $# -gt 0 ]; do
        printf '%s\n' "$at $(($1 - at)) linear $member $at" "$1 $2 error" >>/tmp/table
        at=$(($1 + $2))
        shift 2
    done
    echo "$at $((sectors - at)) linear $member $at" >>/tmp/table
    dmsetup load "$D-$number" </tmp/table
    dmsetup --noudevsync --noudevrules suspend --noflush --nolockfs "$D-$number"
    dmsetup --noudevsync --noudevrules resume "$D-$number"
}

written_sectors() { # to all disks since the machine started
    total=0
    for each in $(seq 1 "$COUNT"); do
        eval "member=\$M$each"
        set -- $(cat "/sys/class/block/${member##*/}/stat")
        total=$((total + $7))
    done
    echo "$total"
}

create() { # create LEVEL SLOTS WORDS... DEVICE...: with its redundancy made
    level=$1 slots=$2
    shift 2
    mdadm --create "$A" --run --level="$level" --raid-devices="$slots" --homehost=any "$@" || return
    mdadm --wait "$A" || true
}

fault() { mdadm "$A" --fail "$(disk "$1")"; }

mounted() { # mounted DEVICE: a new file system
    /bin/mke2fs -q -t ext4 -L photos "$1"
    mkdir -p "/mnt/$D"
    mount -t ext4 "$1" "/mnt/$D"
}

told() { # which files there are; nothing that is written later counts
    sync
    echo 3 >/proc/sys/vm/drop_caches
    (cd "/mnt/$D" && find . -type f | sort | xargs sha256sum) >"/tmp/files-$D"
    text files cat "/tmp/files-$D"
}

fill() { # fill SEED: files that FILES speaks of; of another seed than 1 a sixth as many
    set -- "$1" $FILES
    count=$3
    [ "$1" = 1 ] || count=$((count / 6))
    agent "$2" "/mnt/$D" "$1" "$count" "$4"
}

filled() { # filled DEVICE: a file system with files, in use
    mounted "$1"
    fill 1
    told
}

stop() { # in good order
    umount "/mnt/$D"
    mdadm --stop "$A"
}

stay_dirty() { echo 1000 >"/sys/block/$D/md/safe_mode_delay"; }

recreated() { # recreated LEVEL SLOTS WORDS... DEVICE...: what one should not do; nothing asks
    create "$@"
    mdadm --stop "$A"
}

crawl() { # crawl KIB: so much of a reshape a second, and no more
    echo 1 >"/sys/block/$D/md/sync_speed_min"
    echo "$1" >"/sys/block/$D/md/sync_speed_max"
}

grow() { # grow PERCENT WORDS...: mdadm reshapes it, and is so far when it hardly goes on
    percent=$1
    shift
    crawl 4000
    [ "$percent" != 0 ] || crawl 1
    mdadm --grow "$A" "$@"
    read -r whole <"/sys/block/$D/size"
    position=0
    while [ "$((position * 100))" -lt "$((whole * percent))" ]; do
        sleep 0.2
        read -r position <"/sys/block/$D/md/reshape_position"
        # Of one that goes backwards, or has ended, there is no number to wait for.
        [ "$position" != none ] || return 1
    done
    crawl 1
    sleep 2
    sync
    read -r position <"/sys/block/$D/md/reshape_position"
    value reshape_position "$position of $whole"
}

growing() { # growing PERCENT: one of four disks becomes one of five, and is so far
    create 5 4 --chunk=64 $(disks 1 2 3 4)
    filled "$A"
    mdadm "$A" --add "$(disk 5)"
    grow "$1" --raid-devices=5 --backup-file="/tmp/backup-$D"
}

grow_until_killed() { # grow_until_killed SECONDS WORDS...: mdadm, which keeps copies of what is next, ends after so long
    seconds=$1
    shift
    mdadm --grow "$A" "$@"
    sleep "$seconds"
    # What it has suspended stays so: a sync would not end.
    killall -STOP mdadm
    read -r position <"/sys/block/$D/md/reshape_position"
    value reshape_position "$position"
    [ "$position" != none ]
}

parts() { # parts NUMBER...: the partitions of disks of a NAS
    for each in "$@"; do
        eval "member=\$M$each"
        read -r sectors <"/sys/class/block/${member##*/}/size"
        for part in "1 2048 16384" "2 20480 8192" "3 32768 $((sectors - 32768 - 2048))"; do
            set -- $part
            dmsetup --noudevsync --noudevrules create "$D-${each}p$1" --table "0 $3 linear $(disk "$each") $2"
        done
    done
    dmsetup --noudevsync --noudevrules mknodes
}

partition() { # partition LABEL: a system, swap, and data on each disk, as a NAS has them
    for each in $ALL; do
        printf '%s\n' "label: $1" "start=2048, size=16384" "start=20480, size=8192" \
            "start=32768, size=$(($(blockdev --getsz "$each") - 32768 - 2048))" |
            sfdisk --quiet --no-reread --no-tell-kernel "$each"
    done
    parts $(seq 1 "$COUNT")
}

S=/dev/md1${D#md}0 # the array of a NAS's system, or a container

system() { # system METADATA: a mirror of the first partitions
    mdadm --create "$S" --run --level=1 --raid-devices="$COUNT" --metadata="$1" --homehost=any --assume-clean \
        $(disks $(seq 1 "$COUNT" | sed 's/$/p1/'))
    mdadm --stop "$S"
}

data() { # data NUMBER...: their third partitions
    disks $(echo "$@" | sed 's/[0-9]*/&p3/g')
}

no_udev() { # LVM is not to wait for it
    mkdir -p /etc/lvm
    printf '%s\n' 'devices { use_devicesfile = 0 }' 'global { thin_check_executable = "" }' \
        'activation { udev_sync = 0 udev_rules = 0 monitoring = 0 }' >/etc/lvm/lvm.conf
}

volumes() { # volumes GROUP: LVM on the array
    no_udev
    lvm pvcreate -ff -y "$A"
    lvm vgcreate "$1" "$A"
}

volumes_off() { lvm vgchange -an "$1"; }

container() { # container METADATA: of all disks, which have to be whole
    firmware
    for each in $(seq 1 "$COUNT"); do losetup "/dev/loop$((each - 1))" "$(disk "$each")"; done
    mdadm --create "$S" --run --metadata="$1" --raid-devices="$COUNT" $(ls -d /dev/loop? | head -n "$COUNT")
}

firmware() { export IMSM_NO_PLATFORM=1 IMSM_DEVNAME_AS_SERIAL=1 MDADM_NO_SYSTEMCTL=1; }

volume() { # volume LEVEL: over the whole container
    mdadm --create "$A" --run --level="$1" --raid-devices="$COUNT" --chunk=64 --name=volume1 --assume-clean "$S"
    until read -r state <"/sys/block/$D/md/array_state" && [ "$state" != readonly ]; do sleep 0.1; done
}

stop_container() {
    umount "/mnt/$D"
    mdadm --wait-clean "$A" || true
    mdadm --stop "$A"
    until mdadm --stop "$S"; do sleep 0.1; done
    sync
}

force_container() { # force_container LOOP...: of the disks that are there, by what they were called
    firmware
    number=0 loops=
    for each in "$@"; do
        number=$((number + 1))
        losetup "/dev/loop$each" "$(disk "$number")"
        loops="$loops /dev/loop$each"
    done
    try mdadm --assemble --force "$S" $loops
    mdadm --incremental --run "$S" || true
    D2=$(grep -E '^md[0-9]+ : active.* raid[0-9]' /proc/mdstat | head -n 1 | cut -d' ' -f1)
    count "/dev/$D2"
    [ -z "$D2" ] || mdadm --stop "/dev/$D2" || true
    mdadm --stop "$S" || true
}

force_nas() { # force_nas GROUP VOLUME NUMBER...: the data, and the volume on them if there is one
    group=$1 name=$2
    shift 2
    parts $(seq 1 "$COUNT")
    try mdadm --assemble --force --run "$A" $(data "$@")
    rest
    count_volume "$group" "$name" "$A"
}

scan() { # scan GROUP VOLUME: whatever mdadm finds
    parts $(seq 1 "$COUNT")
    try mdadm --assemble --scan --force
    text mdstat cat /proc/mdstat
    found=$(grep '^md.* raid5' /proc/mdstat | cut -d' ' -f1)
    count_volume "$1" "$2" "/dev/$found"
    for each in $(grep -o '^md[0-9]*' /proc/mdstat); do mdadm --stop "/dev/$each"; done
}

count_volume() { # count_volume GROUP VOLUME DEVICE
    if [ "$1" = none ]; then
        count "$3"
        return
    fi
    no_udev
    lvm vgchange -ay "$1" || true
    lvm vgmknodes || true
    count "/dev/$1/$2"
    volumes_off "$1" || true
}

# What mdadm makes of it.

rest() { # until what mdadm started on its own has ended, or does not move
    for turn in $(seq 1 40); do
        action=idle
        [ -e "/sys/block/$D/md/sync_action" ] && read -r action <"/sys/block/$D/md/sync_action"
        case "$action" in idle | frozen) return 0 ;; esac
        sleep 0.5
    done
}

count() { # count DEVICE: how many files are right, and what all this wrote
    mkdir -p "/mnt/$D"
    right=0
    if timeout 30 mount -t ext4 -o ro "$1" "/mnt/$D" || timeout 30 mount -t ext4 -o ro,noload "$1" "/mnt/$D"; then
        right=$(cd "/mnt/$D" && sha256sum -c "/tmp/files-$D" 2>/dev/null | grep -c ': OK$') || true
        value mounted yes
    fi
    value right "$right"
    value written "$((512 * ($(written_sectors) - WRITTEN)))"
    umount "/mnt/$D" 2>/dev/null || true
}

try() { # try COMMAND...: what it says, and how it ends
    status=0
    timeout 60 "$@" >/tmp/said 2>&1 </dev/null || status=$?
    value status "$status"
    text said cat /tmp/said
    state=none
    [ -e "/sys/block/$D/md/array_state" ] && read -r state <"/sys/block/$D/md/array_state"
    value state "$state"
}

force() { # force NUMBER...: --assemble --force of these
    try mdadm --assemble --force --run "$A" $(disks "$@")
    rest
    count "$A"
}

orders() { # orders LETTERS: every order of them, a word each
    awk -v left="$1" 'function go(line, left, i) {
        if (left == "") print line
        for (i = 1; i <= length(left); i++)
            go(line substr(left, i, 1), substr(left, 1, i - 1) substr(left, i + 1))
    } BEGIN { go("", left) }'
}

in_order() { # in_order LETTERS: devices; m is a missing one
    for each in $(echo "$1" | sed 's/./& /g'); do
        case "$each" in m) echo missing ;; *) disk "$each" ;; esac
    done
}

again() { # again LETTERS LEVEL WORDS...: created again with these, in every order until e2fsck has nothing to say, or else it mounts
    letters=$1 level=$2
    shift 2
    tries=0 chosen=
    for order in $(orders "$letters") last; do
        mdadm --stop "$A" >/dev/null 2>&1 || true
        if [ "$order" = last ]; then
            order=$chosen
            [ -n "$order" ] || break
        else
            tries=$((tries + 1))
        fi
        create "$level" "${#letters}" --assume-clean "$@" $(in_order "$order") >/tmp/said 2>&1 || continue
        verdict=0
        /bin/e2fsck -fn "$A" >/tmp/fsck 2>&1 || verdict=$?
        if [ "$verdict" = 0 ]; then
            chosen=$order
            break
        fi
        if [ -z "$chosen" ] && mount -t ext4 -o ro,noload "$A" "/mnt/$D"; then
            chosen=$order
            umount "/mnt/$D"
        fi
    done
    value tries "$tries"
    value order "${chosen:-none}"
    count "$A"
}

copied() { # copied NUMBER...: in their place copies, with zeroes where the disk gave nothing
    for each in "$@"; do
        eval "member=\$M$each"
        # The drive has what the disk lost: take it away, as it is in no copy.
        dmsetup table "$D-$each" | while read -r start length kind rest; do
            [ "$kind" = error ] || continue
            dd if=/dev/zero of="$member" bs=512 seek="$start" count="$length" conv=notrunc
        done
        read -r sectors <"/sys/class/block/${member##*/}/size"
        dmsetup load "$D-$each" --table "0 $sectors linear $member 0"
        dmsetup --noudevsync --noudevrules suspend --noflush --nolockfs "$D-$each"
        dmsetup --noudevsync --noudevrules resume "$D-$each"
    done
    sync
    WRITTEN=$(written_sectors)
}
