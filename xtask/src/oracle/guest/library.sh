# Shell functions for case scripts.  $A is the array's device, $D its name under /sys/block,
# $M1, $M2, ... its members.  Files of one line are read by the shell itself: a process costs the emulated machine 30 ms.

value() { # value KEY WORDS...: prints one line of the report
    echo "@@VALUE $*" >&3
}

text() { # text KEY COMMAND...: reports the command's whole output; if the command fails, the case fails
    key=$1
    shift
    "$@" >/tmp/text
    echo "@@TEXT $key" >&3
    cat /tmp/text >&3
    echo "@@END" >&3
}

carve() { # carve NUMBER START LENGTH: makes a region of the big drive (in sectors) /dev/vdaNUMBER
    addpart /dev/vda "$1" "$2" "$3"
}

content() { # content KEY: reports SHA-256 and size of the array as md reads it from its members
    blockdev --flushbufs "$A"
    set -- "$1" $(sha256sum "$A")
    value "$1" "$2"
    read -r sectors <"/sys/block/$D/size"
    value sectors "$sectors"
}

idle() { # waits until md's sync thread is idle
    until read -r action <"/sys/block/$D/md/sync_action" && [ "$action" = idle ]; do
        sleep 0.1
    done
}

rebuilt() { # waits until no member is missing; the case's deadline ends an endless wait
    until read -r missing <"/sys/block/$D/md/degraded" && [ "$missing" = 0 ]; do
        sleep 0.1
    done
    idle
}

scrub() { # scrub KEY: runs md's own check, and reports mismatch_cnt under KEY
    echo check >"/sys/block/$D/md/sync_action"
    idle
    read -r mismatches <"/sys/block/$D/md/mismatch_cnt"
    value "$1" "$mismatches"
}

state() { # reports the state that md shows of the running array
    text mdstat grep -A3 "^$D " /proc/mdstat
    read -r array_state <"/sys/block/$D/md/array_state"
    value array_state "$array_state"
    missing=none
    if [ -e "/sys/block/$D/md/degraded" ]; then read -r missing <"/sys/block/$D/md/degraded"; fi
    value degraded "$missing"
}

facts() { # facts DEVICE...: reports the kernel's own numbers of the array and of each member
    for key in layout chunk_size component_size raid_disks metadata_version; do
        read -r fact <"/sys/block/$D/md/$key"
        value "$key" "$fact"
    done
    number=0
    for member in "$@"; do
        folder=/sys/block/$D/md/dev-${member##*/}
        if [ -e "$folder" ]; then
            read -r slot <"$folder/slot"
            read -r offset <"$folder/offset"
            read -r size <"$folder/size"
            value "member.$number" "$slot $offset $size "
        fi
        number=$((number + 1))
    done
}

part_way() { # part_way SECTORS: waits until a sync that shall stop at this sector has reached it
    while [ "$(cut -d' ' -f1 "/sys/block/$D/md/sync_completed")" != "$1" ]; do
        sleep 0.05
    done
}

halt_at() { # halt_at SECTORS: makes a sync stop at this sector
    echo "$1" >"/sys/block/$D/md/sync_max"
}

fail() { # fail NUMBER: fails this member and removes it
    eval "member=\$M$1"
    mdadm "$A" --fail "$member"
    until mdadm "$A" --remove "$member"; do sleep 0.1; done
}

resync_to() { # resync_to SECTORS DEVICE...: resyncs a stopped array from its start to this sector
    sectors=$1
    shift
    mdadm --assemble --readonly --update=resync "$A" "$@"
    halt_at "$sectors"
    mdadm --readwrite "$A"
    part_way "$sectors"
}
