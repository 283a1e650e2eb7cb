# Rounds of writes to files on an array, and the guest's side of the dialogue. Prints `@@ROUND N` once
# all data of a round is on the disk, and `@@FAILED WHY`. Reads one word a line from the host.
FILES=24
ROUND=0

failed() {
    echo "@@FAILED $*"
    dmesg | tail -n 20
    sync
    poweroff -f
    sleep 1000
}

begin() { # stops the console's echo, and reads the host's words from now on
    stty -echo </dev/console
    mkdir -p /tmp/sums
    (
        while read -r word; do
            : >"/tmp/said-$word"
        done </dev/console
    ) &
}

hear() { # hear WORD: waits until the host has sent the word
    until [ -e "/tmp/said-$1" ]; do sleep 0.1; done
    rm "/tmp/said-$1"
}

verify() { # reads every file in the current folder from the disk, and compares its checksum
    sync
    echo 3 >/proc/sys/vm/drop_caches
    cat /tmp/sums/* >/tmp/all
    sha256sum -c -s /tmp/all || failed "not what was written: $(sha256sum -c /tmp/all 2>&1 | grep -v OK)"
}

rounds_until() { # rounds_until WORD: writes files in the current folder, in turn, until the word comes
    until [ -e "/tmp/said-$1" ]; do
        name=$((ROUND % FILES))
        # The checksum is taken from the data in memory, before the disk gets the data.
        dd if=/dev/urandom of=/tmp/data bs=64k count=$((4 + ROUND % 13)) 2>/dev/null
        (cd /tmp && sha256sum data) | sed "s/data/$name/" >"/tmp/sums/$name"
        cp /tmp/data "$name" || failed "write $ROUND"
        sync
        echo 3 >/proc/sys/vm/drop_caches
        sha256sum -c -s "/tmp/sums/$name" || failed "round $ROUND is not what was written"
        echo "@@ROUND $ROUND"
        ROUND=$((ROUND + 1))
    done
    rm "/tmp/said-$1"
}
