# Shell functions for scenarios, in addition to those of every case (library.sh). Disk N of a case is
# /dev/mapper/$D-N, so that it can vanish or have unreadable sectors. Writes to disks are counted
# below the mapper, at the drive. busybox's shell has its own mke2fs, so e2fsprogs' mke2fs is called
# by its path.

disk() { # disk NUMBER: prints the device of this disk; prints any other word as it is
    case "$1" in
    [0-9]*) echo "/dev/mapper/$D-$1" ;;
    *) echo "$1" ;;
    esac
}

disks() { # disks NUMBER...: prints the devices of these disks
    for each in "$@"; do disk "$each"; done
}

connect() { # connect COUNT: makes the disks 1 to COUNT
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
    # Reverse order: a device that lies on another one is removed first.
    for each in $(ls -r /dev/mapper | grep "^$D-"); do
        dmsetup --noudevsync --noudevrules remove --retry "$each" || true
    done
}

vanish() { # vanish NUMBER...: these disks fail at the same moment
    for each in "$@"; do
        eval "member=\$M$each"
        read -r sectors <"/sys/class/block/${member##*/}/size"
        dmsetup load "$D-$each" --table "0 $sectors error"
    done
    for each in "$@"; do dmsetup --noudevsync --noudevrules suspend --noflush --nolockfs "$D-$each"; done
    for each in "$@"; do dmsetup --noudevsync --noudevrules resume "$D-$each"; done
}

unreadable() { # unreadable NUMBER START SECTORS...: makes these ranges of a disk, in order, unreadable
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

written_sectors() { # prints the sectors written to all disks since the machine started
    total=0
    for each in $(seq 1 "$COUNT"); do
        eval "member=\$M$each"
        set -- $(cat "/sys/class/block/${member##*/}/stat")
        total=$((total + $7))
    done
    echo "$total"
}

create() { # create LEVEL SLOTS WORDS... DEVICE...: creates an array, and waits for its redundancy
    level=$1 slots=$2
    shift 2
    mdadm --create "$A" --run --level="$level" --raid-devices="$slots" --homehost=any "$@" || return
    mdadm --wait "$A" || true
}

fault() { mdadm "$A" --fail "$(disk "$1")"; }

mounted() { # mounted DEVICE: makes a file system and mounts it
    /bin/mke2fs -q -t ext4 -L photos "$1"
    mkdir -p "/mnt/$D"
    mount -t ext4 "$1" "/mnt/$D"
}

told() { # reports the sums of all files; files written later do not count
    sync
    echo 3 >/proc/sys/vm/drop_caches
    (cd "/mnt/$D" && find . -type f | sort | xargs sha256sum) >"/tmp/files-$D"
    text files cat "/tmp/files-$D"
}

fill() { # fill SEED: writes the files that $FILES describes; for another seed than 1 a sixth as many
    set -- "$1" $FILES
    count=$3
    [ "$1" = 1 ] || count=$((count / 6))
    agent "$2" "/mnt/$D" "$1" "$count" "$4"
}

filled() { # filled DEVICE: makes a file system, mounts it, and fills it with files
    mounted "$1"
    fill 1
    told
}

stop() { # unmounts the file system and stops the array
    umount "/mnt/$D"
    mdadm --stop "$A"
}

stay_dirty() { echo 1000 >"/sys/block/$D/md/safe_mode_delay"; }

recreated() { # recreated LEVEL SLOTS WORDS... DEVICE...: an operator's mistake; mdadm asks no question
    create "$@"
    mdadm --stop "$A"
}

crawl() { # crawl KIB: limits a reshape to this speed, per second
    echo 1 >"/sys/block/$D/md/sync_speed_min"
    echo "$1" >"/sys/block/$D/md/sync_speed_max"
}

grow() { # grow PERCENT WORDS...: mdadm reshapes the array, and nearly stops at this percentage
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
        # A reshape that goes backwards, or has ended, has no position to wait for.
        [ "$position" != none ] || return 1
    done
    crawl 1
    sleep 2
    sync
    read -r position <"/sys/block/$D/md/reshape_position"
    value reshape_position "$position of $whole"
}

growing() { # growing PERCENT: a RAID-5 of four disks grows to five, until this percentage is done
    create 5 4 --chunk=64 $(disks 1 2 3 4)
    filled "$A"
    mdadm "$A" --add "$(disk 5)"
    grow "$1" --raid-devices=5 --backup-file="/tmp/backup-$D"
}

grow_until_killed() { # grow_until_killed SECONDS WORDS...: mdadm, which backs up the next rows, is stopped after SECONDS
    seconds=$1
    shift
    mdadm --grow "$A" "$@"
    sleep "$seconds"
    # The range that mdadm has suspended stays suspended, so a sync would not end.
    killall -STOP mdadm
    read -r position <"/sys/block/$D/md/reshape_position"
    value reshape_position "$position"
    [ "$position" != none ]
}

parts() { # parts NUMBER...: makes devices of the partitions of a NAS's disks
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

partition() { # partition LABEL: makes partitions for system, swap and data on each disk, as on a NAS
    for each in $ALL; do
        printf '%s\n' "label: $1" "start=2048, size=16384" "start=20480, size=8192" \
            "start=32768, size=$(($(blockdev --getsz "$each") - 32768 - 2048))" |
            sfdisk --quiet --no-reread --no-tell-kernel "$each"
    done
    parts $(seq 1 "$COUNT")
}

S=/dev/md1${D#md}0 # the array of a NAS's system, or a container

system() { # system METADATA: makes a mirror of the first partitions
    mdadm --create "$S" --run --level=1 --raid-devices="$COUNT" --metadata="$1" --homehost=any --assume-clean \
        $(disks $(seq 1 "$COUNT" | sed 's/$/p1/'))
    mdadm --stop "$S"
}

data() { # data NUMBER...: prints the third partitions of these disks
    disks $(echo "$@" | sed 's/[0-9]*/&p3/g')
}

no_udev() { # makes LVM not wait for udev
    mkdir -p /etc/lvm
    printf '%s\n' 'devices { use_devicesfile = 0 }' 'global { thin_check_executable = "" }' \
        'activation { udev_sync = 0 udev_rules = 0 monitoring = 0 }' >/etc/lvm/lvm.conf
}

volumes() { # volumes GROUP: makes a volume group of LVM on the array
    no_udev
    lvm pvcreate -ff -y "$A"
    lvm vgcreate "$1" "$A"
}

volumes_off() { lvm vgchange -an "$1"; }

container() { # container METADATA: makes a container of all disks; mdadm wants whole disks
    firmware
    for each in $(seq 1 "$COUNT"); do losetup "/dev/loop$((each - 1))" "$(disk "$each")"; done
    mdadm --create "$S" --run --metadata="$1" --raid-devices="$COUNT" $(ls -d /dev/loop? | head -n "$COUNT")
}

firmware() { export IMSM_NO_PLATFORM=1 IMSM_DEVNAME_AS_SERIAL=1 MDADM_NO_SYSTEMCTL=1; }

volume() { # volume LEVEL: makes a volume over the whole container
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

force_container() { # force_container LOOP...: assembles the present disks, under their old names, by force
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

force_nas() { # force_nas GROUP VOLUME NUMBER...: assembles a NAS's data by force, and counts the files
    group=$1 name=$2
    shift 2
    parts $(seq 1 "$COUNT")
    try mdadm --assemble --force --run "$A" $(data "$@")
    rest
    count_volume "$group" "$name" "$A"
}

scan() { # scan GROUP VOLUME: assembles all that mdadm finds, and counts the files
    parts $(seq 1 "$COUNT")
    try mdadm --assemble --scan --force
    text mdstat cat /proc/mdstat
    found=$(grep '^md.* raid5' /proc/mdstat | cut -d' ' -f1)
    count_volume "$1" "$2" "/dev/$found"
    for each in $(grep -o '^md[0-9]*' /proc/mdstat); do mdadm --stop "/dev/$each"; done
}

count_volume() { # count_volume GROUP VOLUME DEVICE: counts the files of a volume, or of the device
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

# mdadm's tries to recover the arrays.

rest() { # waits until the job that mdadm started on its own has ended, or does not advance
    for turn in $(seq 1 40); do
        action=idle
        [ -e "/sys/block/$D/md/sync_action" ] && read -r action <"/sys/block/$D/md/sync_action"
        case "$action" in idle | frozen) return 0 ;; esac
        sleep 0.5
    done
}

count() { # count DEVICE: reports the number of right files, and the bytes written since `connect`
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

try() { # try COMMAND...: reports the output and the exit status of a command
    status=0
    timeout 60 "$@" >/tmp/said 2>&1 </dev/null || status=$?
    value status "$status"
    text said cat /tmp/said
    state=none
    [ -e "/sys/block/$D/md/array_state" ] && read -r state <"/sys/block/$D/md/array_state"
    value state "$state"
}

force() { # force NUMBER...: assembles these disks by force, and counts the files
    try mdadm --assemble --force --run "$A" $(disks "$@")
    rest
    count "$A"
}

orders() { # orders LETTERS: prints every order of the letters, as a word each
    awk -v left="$1" 'function go(line, left, i) {
        if (left == "") print line
        for (i = 1; i <= length(left); i++)
            go(line substr(left, i, 1), substr(left, 1, i - 1) substr(left, i + 1))
    } BEGIN { go("", left) }'
}

in_order() { # in_order LETTERS: prints the devices of the letters; m stands for a missing one
    for each in $(echo "$1" | sed 's/./& /g'); do
        case "$each" in m) echo missing ;; *) disk "$each" ;; esac
    done
}

again() { # again LETTERS LEVEL WORDS...: creates the array in every order until e2fsck or mount accepts it
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

copied() { # copied NUMBER...: replaces the disks by copies, with zeroes for unreadable sectors
    for each in "$@"; do
        eval "member=\$M$each"
        # The drive still has the sectors that the disk cannot read: zero them, as no copy has them.
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
