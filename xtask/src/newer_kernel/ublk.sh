# Checks of the ublk door in the guest, one after the other. The first that fails ends the script.
# The console shows `@@OK WHAT` for each check, and `@@DONE` at the end.
export BRAID_STATE_DIR=/tmp/state BRAID_RUNTIME_DIR=/tmp/run
MEMBERS="m/0 m/1 m/2 m/3"

ok() {
    echo "@@OK $*"
}

failed() {
    echo "@@FAILED $*"
    tail -n 30 /tmp/log* /tmp/fio* 2>/dev/null
    dmesg | tail -n 20
    exit 1
}

serve() { # serve LOG OPTIONS...: starts a server in the background ($SERVER), and waits until it serves
    log=$1
    shift
    braid serve "$@" $MEMBERS 2>"$log" &
    SERVER=$!
    turns=0
    until grep -q 'is the block device' "$log"; do
        sleep 0.2
        turns=$((turns + 1))
        [ $turns -lt 150 ] || failed "braid serve $*"
    done
}

stop() {
    kill "$SERVER"
    wait "$SERVER"
    status=$?
    [ $status = "$1" ] || failed "the server ended with $status, not $1"
}

refused() { # refused CODE LABEL OPTIONS...: braid must refuse with this code, and offer this label
    code=$1 label=$2
    shift 2
    if braid serve "$@" $MEMBERS 2>/tmp/log.refused; then failed "not refused: $*"; fi
    grep -q "$code" /tmp/log.refused || failed "refused with another code: $*"
    grep -q "$label" /tmp/log.refused || failed "'$label' is not offered: $*"
}

same() { # same FILE: the device must begin with the content of FILE
    size=$(stat -c %s "$1")
    dd if=/dev/ublkb0 bs=1M count=$((size >> 20)) iflag=direct 2>/dev/null | cmp - "$1" || failed "not what was written: $1"
}

cd /tmp
mkdir m
for member in $MEMBERS; do truncate -s 48M $member; done
braid create tank --level 5 --chunk 64K --assume-clean $MEMBERS >/tmp/log.create 2>&1 || failed create

refused B100 "Load its module" --ublk=0
ok "without a driver it is refused"
insmod /modules/ublk_drv.ko

serve /tmp/log.1 --ublk=0
[ "$(cat /sys/block/ublkb0/queue/optimal_io_size)" = 65536 ] || failed "the best size"
[ "$(cat /sys/block/ublkb0/queue/write_cache)" = "write back" ] || failed "the cache"
[ "$(cat /sys/block/ublkb0/queue/fua)" = 1 ] || failed "FUA"
[ "$(cat /sys/block/ublkb0/queue/discard_granularity)" = 65536 ] || failed "the granularity"
ok "the kernel knows the array's shape"

braid status tank >/tmp/log.status || failed status
grep -q ' /dev/ublkb0' /tmp/log.status || failed "status does not say it"
braid --json status tank | tr -d ' \n' | grep -q '"device":"/dev/ublkb0"' || failed "the API does not say it"
ok "status and the API say where it is"

dd if=/dev/urandom of=/tmp/random bs=1M count=24 2>/dev/null
dd if=/tmp/random of=/dev/ublkb0 bs=1M oflag=direct conv=fsync 2>/dev/null || failed write
same /tmp/random
dd if=/tmp/random of=/dev/ublkb0 bs=100K conv=fsync 2>/dev/null || failed "write through the cache"
same /tmp/random
/bin/blkdiscard -o 0 -l 4194304 /dev/ublkb0 || failed discard
/bin/blkdiscard -z -o 4194304 -l 1048576 /dev/ublkb0 || failed zeroes
dd if=/dev/ublkb0 bs=1M skip=4 count=1 iflag=direct 2>/dev/null | cmp -n 1048576 - /dev/zero || failed "not zeroes"
fio --eta=never --name=durable --filename=/dev/ublkb0 --rw=randwrite --bs=4k --size=16M --io_size=1M --direct=1 --sync=dsync \
    --ioengine=libaio --iodepth=4 --verify=crc32c --verify_fatal=1 --do_verify=1 --output=/tmp/fio.0 || failed "durable writes"
ok "writes, flushes, FUA, discards and zeroes"

fio --eta=never --name=verify --filename=/dev/ublkb0 --rw=randwrite --bsrange=512-128k --ba=512 --size=64M --io_size=32M --direct=1 \
    --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --do_verify=1 --output=/tmp/fio.1 &
FIO=$!
sleep 2
braid fail tank 2 >/tmp/log.fail 2>&1 || failed "braid fail"
wait $FIO || failed "fio over a lost member"
ok "fio verifies what it wrote while a member is lost"

dd if=/tmp/random of=/dev/ublkb0 bs=64K oflag=direct conv=fsync 2>/tmp/log.dd &
WRITER=$!
sleep 0.5
kill -9 "$SERVER"
wait "$SERVER"
kill -0 $WRITER || failed "the writer was done before the kill"
refused B099 "See what it is" --ublk=0 --read-only
serve /tmp/log.2 --ublk=0
wait $WRITER || failed "the writer got an error"
grep -q 'a killed server left' /tmp/log.2 || failed "not taken over"
same /tmp/random
ok "after kill -9 the next server goes on, and the writer sees no error"

TANK=$MEMBERS
MEMBERS="m/4 m/5"
for member in $MEMBERS; do truncate -s 16M $member; done
braid create pool --level 1 --assume-clean $MEMBERS >/tmp/log.create 2>&1 || failed "create another"
refused B099 "See which server has it" --ublk=0
kill -9 "$SERVER"
wait "$SERVER"
refused B099 "See what it is" --ublk=0
ok "another array does not get the device, served or left"
MEMBERS=$TANK
serve /tmp/log.3 --ublk
same /tmp/random
ok "without a number the device is found"

stop 0
[ ! -e /dev/ublkb0 ] || failed "a clean stop leaves the device"
[ ! -e /dev/ublkc0 ] || failed "a clean stop leaves the device's file"
ok "a clean stop deletes it"

serve /tmp/log.4 --ublk --read-only
if dd if=/tmp/random of=/dev/ublkb0 bs=4K count=1 oflag=direct 2>/dev/null; then failed "an array that is only read is written"; fi
same /tmp/random
sleep 600 </dev/ublkb0 &
HOLDER=$!
stop 0
grep -q 'was in use' /tmp/log.4 || failed "nothing is said of who has it open"
kill $HOLDER
turns=0
while [ -e /dev/ublkc0 ]; do
    sleep 0.2
    turns=$((turns + 1))
    [ $turns -lt 50 ] || failed "a device that was open stays for ever"
done
ok "an array that is only read; a stop while somebody has the device open"

MEMBERS="m/6 m/7 m/8"
for member in $MEMBERS m/9; do truncate -s 64M $member; done
braid create tall --level 5 --chunk 64K --assume-clean $MEMBERS >/tmp/log.create 2>&1 || failed "create a third"
serve /tmp/log.7 --ublk=0
/bin/mke2fs -q -t ext4 /dev/ublkb0 || failed mke2fs
mkdir /tmp/mounted
mount -t ext4 /dev/ublkb0 /tmp/mounted || failed "mount ext4"
cp /tmp/random /tmp/mounted/random
before=$(cat /sys/block/ublkb0/size)
blocks=$(stat -f -c %b /tmp/mounted)
braid grow tall m/9 >/tmp/log.grow 2>&1 || failed grow
cp /tmp/random /tmp/mounted/second || failed "a write while the array grows"
braid wait tall --for idle >>/tmp/log.grow 2>&1 || failed "the end of the growth"
turns=0
while [ "$(cat /sys/block/ublkb0/size)" = "$before" ]; do
    sleep 0.2
    turns=$((turns + 1))
    [ $turns -lt 50 ] || failed "the device keeps its size"
done
/bin/resize2fs /dev/ublkb0 >/tmp/log.resize 2>&1 || failed "resize2fs: $(cat /tmp/log.resize)"
[ "$(stat -f -c %b /tmp/mounted)" -gt "$blocks" ] || failed "the file system keeps its size"
ok "a mounted file system grows with the array"
MEMBERS="$MEMBERS m/9"
kill -9 "$SERVER"
wait "$SERVER"
serve /tmp/log.8 --ublk=0
grep -q 'a killed server left' /tmp/log.8 || failed "a larger device is not taken over"
echo 3 >/proc/sys/vm/drop_caches
cmp /tmp/mounted/random /tmp/random || failed "a file of before"
cmp /tmp/mounted/second /tmp/random || failed "a file of the growth"
umount /tmp/mounted || failed umount
stop 0
ok "after kill -9 the next server goes on with the larger device"

mkdir /tmp/etc
printf 'members = ["/tmp/m/0", "/tmp/m/1", "/tmp/m/2", "/tmp/m/3"]\n[doors]\nublk = 5\n' >/tmp/etc/tank.toml
MEMBERS=
serve /tmp/log.5 --name tank --config-dir /tmp/etc --confine auto
grep -q 'the block device /dev/ublkb5' /tmp/log.5 || failed "not the number of the file"
braid --json status tank | tr -d ' \n' | grep -q '"confined":\[\]' || failed "it is said to be confined"
stop 0
braid serve --name tank --config-dir /tmp/etc --ublk=6 --run 'echo "$device" >/tmp/ran; cmp -n 1048576 "$device" /tmp/random' \
    >/tmp/log.6 2>&1 || failed "a command was not served"
[ "$(cat /tmp/ran)" = /dev/ublkb6 ] || failed "a command is told another device"
[ ! -e /dev/ublkc6 ] || failed "the end of a command leaves the device"
ok "by a file of the array, and for a command"
