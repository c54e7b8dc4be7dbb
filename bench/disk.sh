#!/usr/bin/env bash
# fresize and fpack on photographs that lie on a disk: from it, none of their pages in memory, and from memory, in turn; output to
# memory. `cat` tells what the disk gives to one reader. Names and inodes stay known to the system.
# usage: ./run bench disk DIR [ROUNDS]; DIR: class folders of photographs on a disk, not in tmpfs: some thousands for a run of seconds
#   FSHARD_BENCH_BIN       where fresize and fpack lie (build/bin)
#   FSHARD_BENCH_BEFORE    programs of another build, which run in turn with them
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "$0")")/.."
. bench/folder.bash
check_folder 2 "$@"
bin=${FSHARD_BENCH_BIN:-build/bin} before=${FSHARD_BENCH_BEFORE:-} photographs=$(readlink -f "$1") rounds=${2:-3}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || die "ROUNDS is a whole number from 1"
[ -n "${FSHARD_BENCH_BIN:-}" ] || cmake --build build --target fresize fpack >/dev/null
command -v fincore >/dev/null || die "fincore tells what lies in memory: apt-get install util-linux"
work=$(mktemp -d /dev/shm/fshard-bench-XXXXXX)
trap 'rm -rf "$work"' EXIT
find "$photographs" -type f -print0 >"$work/files"
read -r count bytes < <(find "$photographs" -type f -printf '%s\n' | awk '{ n++; s += $1 } END { printf "%d %.0f\n", n, s }')
# Pages that are not yet on the disk cannot be dropped.
sync -f "$photographs"

# In memory of the files, in percent.
resident() {
    xargs -0 -a "$work/files" fincore --bytes --raw --noheadings --output RES |
        awk -v bytes="$bytes" '{ s += $1 } END { printf "%.0f\n", 100 * s / bytes }'
}

make_cold() {
    python3 - "$work/files" <<'PYTHON'
import os, sys
for path in open(sys.argv[1], 'rb').read().split(b'\0')[:-1]:
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
PYTHON
    [ "$(resident)" -eq 0 ] || die "$photographs: $(resident) % of it stays in memory: does it lie on a disk?"
}

make_warm() {
    xargs -0 -a "$work/files" cat >/dev/null
    [ "$(resident)" -ge 99 ] || die "$photographs: only $(resident) % of it stays in memory, which is too small for it"
}

run_fresize() { "$1/fresize" -q --max-size 160 "$photographs" "$work/out"; }
run_fpack() { "$1/fpack" -q "$photographs" "$work/out"; }
run_copy() { "$1/fpack" -q --no-check "$photographs" "$work/out"; }
run_cat() { xargs -0 -a "$work/files" cat >/dev/null; }
declare -A names=([fresize]="fresize --max-size 160" [fpack]="fpack" [copy]="fpack --no-check" [cat]="cat FILES >/dev/null")

# measure JOB COLD|WARM AGE BIN: a line in measures: job, cold or warm, age, seconds by the clock, of the processor.
TIMEFORMAT='%R %U %S'
measure() {
    local times
    rm -rf "$work/out"
    "make_$2"
    times=$({ time "run_$1" "$4" >/dev/null 2>"$work/log"; } 2>&1) || die "$1 failed: $(tail -n 1 "$work/log")"
    awk -v what="$1 $2 $3" '{ print what, $1, $2 + $3 }' <<<"$times" >>"$work/measures"
}

ages=(now)
[ -z "$before" ] || ages=(before now)
: >"$work/measures"
for ((round = 0; round < rounds; round++)); do
    for state in cold warm; do
        measure cat $state - -
        for job in fresize fpack copy; do
            for age in "${ages[@]}"; do
                programs=$bin
                [ "$age" = now ] || programs=$before
                measure $job $state "$age" "$programs"
            done
        done
    done
done

printf '%s photographs, %s MB, of %s; to tmpfs; %s cores; medians of %s rounds in turn\n' \
    "$count" "$((bytes / 1000000))" "$photographs" "$(nproc)" "$rounds"
printf '%s; %s\n' "$(date -u +%F)" "$("$bin/fresize" --version | head -n 1)"
printf '%-24s %-7s %9s %9s %9s %9s %9s %9s\n' "" "" "cold s" "CPU s" "MB/s" "warm s" "CPU s" "cold/warm"
# median JOB STATE AGE COLUMN
median() {
    awk -v what="$1 $2 $3 " -v column="$4" 'index($0, what) == 1 { print $column }' "$work/measures" | sort -n |
        awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
row() {
    awk -v name="${names[$1]}" -v age="$2" -v bytes="$bytes" -v cold="$(median "$1" cold "$2" 4)" -v cold_cpu="$(median "$1" cold "$2" 5)" \
        -v warm="$(median "$1" warm "$2" 4)" -v warm_cpu="$(median "$1" warm "$2" 5)" 'BEGIN {
        printf "%-24s %-7s %9.2f %9.2f %9.0f %9.2f %9.2f %9.2f\n", name, age, cold, cold_cpu, bytes / 1e6 / cold, warm, warm_cpu, cold / warm }'
}
row cat -
for job in fresize fpack copy; do
    for age in "${ages[@]}"; do row $job "$age"; done
done
