#!/bin/sh
# Makes demo-ext4.sparse, the file-system image of `braid demo`: 16 MiB of ext4 with a few files,
# of which only the 1 KiB blocks that are not zero are kept. Needs mke2fs 1.43 or newer, e2fsck and
# python3. Runs differ in time stamps and their checksums only (the one here: mke2fs 1.47.0).
#
#   demo-ext4.sparse = "BRAIDIMG", blocks u32, then (block number u32, 1024 bytes) in rising order
#
# All numbers are little endian.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$work"
mkdir -p root/notes
cat > root/README <<'TEXT'
This file system was copied into a RAID-6 through NBD, survived the loss of two
members, and was read back from the other four.
TEXT
seq -f 'line %05.0f of a file whose chunks lie on every member' 1 600 > root/notes/lines.txt
printf 'P = D0 + D1 + D2 + D3\nQ = D0 + g D1 + g^2 D2 + g^3 D3\n' > root/notes/parity.txt
ln -s notes/parity.txt root/parity
find root -exec touch -h -d 2026-01-01T00:00:00Z {} +
SOURCE_DATE_EPOCH=1767225600 mke2fs -q -t ext4 -b 1024 -N 64 -L braid-demo \
    -U 62726169-6400-4000-8000-64656d6f0001 \
    -E hash_seed=62726169-6400-4000-8000-64656d6f0002,root_owner=0:0,lazy_itable_init=1 \
    -O ^resize_inode -d root ext4.img 16M
e2fsck -fn ext4.img
python3 - ext4.img "$here/demo-ext4.sparse" <<'PYTHON'
import struct, sys
data, block = open(sys.argv[1], "rb").read(), 1024
count = len(data) // block
out = b"BRAIDIMG" + struct.pack("<I", count)
for number in range(count):
    content = data[number * block:(number + 1) * block]
    if any(content):
        out += struct.pack("<I", number) + content
open(sys.argv[2], "wb").write(out)
PYTHON
