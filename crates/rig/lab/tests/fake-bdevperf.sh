#!/bin/sh
# Answers as SPDK's bdevperf does, in the format that its source prints. What it does is the name by which it is called.
config= kind= size= depth= core= array=
while [ $# -gt 0 ]; do
	case $1 in
	--json) config=$2 ;; -w) kind=$2 ;; -o) size=$2 ;; -q) depth=$2 ;; -m) core=$2 ;; -T) array=$2 ;;
	-t) [ "$2" -gt 0 ] || exit 64 ;; -s) [ "$2" -gt 0 ] || exit 64 ;;
	--no-pci) shift; continue ;;
	*) echo "bdevperf: unrecognized option '$1'" >&2; exit 1 ;;
	esac
	shift 2
done
grep -q raid5f "$config" && [ "$array" = Array ] && [ -n "$depth" ] && [ -n "$core" ] || exit 64

total() { # requests a second, MiB/s, failed a second
	printf '\n%107s\n' 'Latency(us)'
	printf '\r %-28s: %10s %10s %10s %10s %8s %10s %10s %10s\n' 'Device Information' 'runtime(s)' IOPS MiB/s Fail/s TO/s Average min max
	printf 'Job: %s (Core Mask 0x1, workload: %s, depth: %s, IO size: %s)\n' "$array" "$kind" "$depth" "$size"
	printf '\t %-20s: %10.2f %10.2f %10.2f %10.2f %8.2f %10.2f %10.2f %10.2f\n' "$array" 1 "$1" "$2" "$3" 0 131.7 70.2 901.1
	[ "$(basename "$0")" = is-cut ] && exit 0
	printf '\r ===================================================================================================================\n'
	printf '\r %-28s: %10s %10.2f %10.2f %10.2f %8.2f %10.2f %10.2f %10.2f\n' Total '' "$1" "$2" "$3" 0 131.7 70.2 901.1
}

echo '[2026-01-01 00:00:00.000000] Starting SPDK v26.05 / DPDK 26.03.0 initialization...' >&2
case $(basename "$0") in
fails)
	echo '[2026-01-01 00:00:00.000000] init.c: 728:spdk_env_init: *ERROR*: Cannot init EAL: permission denied' >&2
	echo 'Unable to initialize SPDK env' >&2
	exit 1 ;;
is-killed) kill -KILL $$ ;;
says-nothing) exit 0 ;;
talks) echo 'Total of nothing: 12 13 14'; exit 0 ;;
adds-up-wrong) total 970123.50 42.00 0; exit 0 ;;
loses-requests) total 970123.50 3789.54 12; exit 0 ;;
esac
echo 'Running I/O for 1 seconds...'
case $kind:$size in
randread:4096)
	if grep -q '"rw_ios_per_sec":10000' "$config"; then total 10000.00 39.06 0
	elif grep -q bdev_raid_remove_base_bdev "$config"; then total 610000.00 2382.81 0; else total 970123.50 3789.54 0; fi ;;
write:196608)
	grep -q bdev_null_create "$config" || exit 64
	total 92000.25 17250.05 0 ;;
randwrite:4096)
	echo '[2026-01-01 00:00:00.000000] bdev.c:2871:bdev_io_do_submit: *ERROR*: IO num_blocks 8 does not match the write_unit_size 384' >&2
	echo "task offset: 0 on job bdev=$array fails"
	total 0 0 1280
	exit 255 ;;
*) exit 64 ;;
esac
