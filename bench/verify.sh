#!/usr/bin/env bash
# fverify on a warm dataset, beside `cat FILES >/dev/null`, in turn.
# usage: ./run bench verify DIR [ROUNDS]; DIR: class folders of photographs, linked 32 times over and packed into shards of 128 MB
# in tmpfs (300 photographs make a gigabyte), or a dataset of shards, taken as it is
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "$0")")/.."
bin=${FSHARD_BENCH_BIN:-build/bin} rounds=${2:-5}
work=$(mktemp -d /dev/shm/fshard-bench-XXXXXX)
trap 'rm -rf "$work"' EXIT
if [ $# -lt 1 ] || [ ! -d "$1" ]; then
    echo "usage: ./run bench verify DIR [ROUNDS]" >&2
    exit 2
fi
dataset=$(readlink -f "$1")
if [ ! -e "$dataset/dataset.json" ]; then
    mkdir "$work/classes"
    for copy in $(seq 32); do ln -s "$dataset" "$work/classes/class$copy"; done
    "$bin/fpack" -q --no-check --shard-size 128M "$work/classes" "$work/set"
    dataset=$work/set
fi
bytes=$(find "$dataset" -name '*.fshard' -printf '%s\n' | awk '{ s += $1 } END { print s + 0 }')
[ "$bytes" -gt 0 ] || { echo "bench: $dataset holds no shards" >&2; exit 1; }
# seconds COMMAND…: by the clock, into $took
TIMEFORMAT=%R
seconds() { took=$({ time "$@" >/dev/null 2>&1; } 2>&1) || { echo "bench: $* failed" >&2; exit 1; }; }
declare -A best
note() { if [ -z "${best[$1]:-}" ] || awk "BEGIN { exit !($took < ${best[$1]}) }"; then best[$1]=$took; fi; }
find "$dataset" -name '*.fshard' -exec cat {} + >/dev/null
for ((round = 0; round < rounds; round++)); do
    seconds find "$dataset" -name '*.fshard' -exec cat {} +
    note cat
    seconds taskset -c 0 "$bin/fverify" -q -j1 --quick "$dataset"
    note quick1
    seconds "$bin/fverify" -q -j2 --quick "$dataset"
    note quick2
    seconds taskset -c 0 "$bin/fverify" -q -j1 "$dataset"
    note records1
    seconds "$bin/fverify" -q -j2 "$dataset"
    note records2
done
printf '%s: %.2f GB, warm; the best of %s rounds, by the clock\n' "$dataset" "$(awk "BEGIN { print $bytes / 1e9 }")" "$rounds"
printf '%-34s %8s %8s %12s\n' "" seconds GB/s "of cat"
row() {
    awk -v name="$1" -v t="${best[$2]}" -v cat="${best[cat]}" -v bytes="$bytes" \
        'BEGIN { printf "%-34s %8.3f %8.2f %11.0f%%\n", name, t, bytes / t / 1e9, 100 * cat / t }'
}
row "cat FILES >/dev/null" cat
row "fverify --quick, one job" quick1
row "fverify --quick, two jobs" quick2
row "fverify (each record), one job" records1
row "fverify (each record), two jobs" records2
echo "asked: --quick at least 70% of cat; each record the same with two jobs"
