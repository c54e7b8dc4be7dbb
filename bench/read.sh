#!/usr/bin/env bash
# Reading records of one size, warm, one core: our shards and LMDBs, liblmdb by itself (keys as in BasicSR's files), and a file for
# each record, in turn, on the same records.
# usage: ./run bench read [COUNT] [BYTES] [ROUNDS]: a million records of 1,024 bytes, two rounds
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "$0")")/.."
bin=${FSHARD_BENCH_BIN:-build/bin} count=${1:-1000000} bytes=${2:-1024} rounds=${3:-2}
[[ $count =~ ^[1-9][0-9]*$ && $bytes =~ ^[1-9][0-9]*$ && $rounds =~ ^[1-9][0-9]*$ ]] || {
    echo "usage: ./run bench read [COUNT] [BYTES] [ROUNDS]" >&2
    exit 2
}
[ -n "${FSHARD_BENCH_BIN:-}" ] || cmake --build build --target read_bench >/dev/null
work=$(mktemp -d /dev/shm/fshard-bench-XXXXXX)
trap 'rm -rf "$work"' EXIT
# A file for each record would need a million inodes: a tenth of them tells the rate as well.
files=$((count / 10 > 0 ? count / 10 : 1))
for kind in shards lmdb mdb files; do
    n=$count
    [ "$kind" = files ] && n=$files
    "$bin/read_bench" make $kind "$work/$kind" "$n" "$bytes"
done
# shellcheck disable=SC2001 # a pattern with a group
field() { sed -e "s/.*\"$1\": \([0-9.]*\).*/\1/" <<<"$2"; }
declare -A best
for ((round = 0; round < rounds; round++)); do
    for kind in shards lmdb mdb files; do
        n=$count
        [ "$kind" = files ] && n=$files
        line=$(taskset -c 0 "$bin/read_bench" read "$work/$kind" "$n")
        for name in open_ms random_per_s sequential_per_s sequential_gb_per_s; do
            value=$(field $name "$line") old=${best[$kind.$name]:-}
            if [ -z "$old" ] || { [ $name = open_ms ] && awk "BEGIN { exit !($value < $old) }"; } ||
                { [ $name != open_ms ] && awk "BEGIN { exit !($value > $old) }"; }; then
                best[$kind.$name]=$value
            fi
        done
    done
done
echo "$count records of $bytes bytes ($files files), in tmpfs, warm, one core; the best of $rounds rounds of three"
printf '%-22s %10s %14s %14s %8s\n' "" "open, ms" "random, 1/s" "in order, 1/s" "GB/s"
declare -A names=([shards]="fshard shards" [lmdb]="fshard LMDB" [mdb]="liblmdb, mdb_get" [files]="a file each")
for kind in shards lmdb mdb files; do
    printf '%-22s %10.2f %14.0f %14.0f %8.2f\n' "${names[$kind]}" "${best[$kind.open_ms]}" "${best[$kind.random_per_s]}" \
        "${best[$kind.sequential_per_s]}" "${best[$kind.sequential_gb_per_s]}"
done
awk -v ours="${best[shards.random_per_s]}" -v mdb="${best[mdb.random_per_s]}" -v files="${best[files.random_per_s]}" \
    -v open_ms="${best[shards.open_ms]}" 'BEGIN {
    printf "random: shards are %.1f times liblmdb, %.1f times files; asked: 2,000,000 records/s: %s\n", ours / mdb, ours / files,
        (ours >= 2e6 ? "met" : "MISSED")
    printf "open: %.1f ms of CPU; asked: under 20 ms: %s\n", open_ms, (open_ms < 20 ? "met" : "MISSED") }'
