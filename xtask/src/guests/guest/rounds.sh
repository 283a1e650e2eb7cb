# What guests do with files on an array, and how they are talked to. Says `@@ROUND N` after each round, of which all is on the disk
# by then, and `@@FAILED WHY`; hears one word a line.
FILES=24
ROUND=0

failed() {
    echo "@@FAILED $*"
    dmesg | tail -n 20
    sync
    poweroff -f
    sleep 1000
}

begin() { # the console is silent, and heard from now on
    stty -echo </dev/console
    mkdir -p /tmp/sums
    (
        while read -r word; do
            : >"/tmp/said-$word"
        done </dev/console
    ) &
}

hear() { # hear WORD: waits for it
    until [ -e "/tmp/said-$1" ]; do sleep 0.1; done
    rm "/tmp/said-$1"
}

verify() { # every file in the current folder, from the disk
    sync
    echo 3 >/proc/sys/vm/drop_caches
    cat /tmp/sums/* >/tmp/all
    sha256sum -c -s /tmp/all || failed "not what was written: $(sha256sum -c /tmp/all 2>&1 | grep -v OK)"
}

rounds_until() { # rounds_until WORD: files into the current folder, one after the other, until it is said
    until [ -e "/tmp/said-$1" ]; do
        name=$((ROUND % FILES))
        # The checksum is of what was to be written, taken before the disk has seen it.
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
