#!/usr/bin/env bash
# fpack beside `tar cf`, Python's webdataset.ShardWriter and an LMDB in BasicSR's manner, in turn, on the same images; input in page
# cache, output to memory. And fpack --store raw beside libjpeg alone, and beside libjpeg and the writing of its pixels.
# fpack runs with its default number of jobs, and copy with one too, since tar has one.
# usage: ./run bench pack DIR [ROUNDS]; DIR: class folders of JPEGs, DIR/CLASS/x.jpg
#   FSHARD_BENCH_BIN       where fpack and pack_floor lie (build/bin)
#   FSHARD_BENCH_PYTHON    a Python with webdataset (else one is made, with venv and pip, in build/bench-python)
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "$0")")/.."
. bench/folder.bash
check_folder 2 "$@"
bin=${FSHARD_BENCH_BIN:-build/bin} images=$(readlink -f "$1") rounds=${2:-5}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || die "ROUNDS is a whole number from 1"
[ -n "${FSHARD_BENCH_BIN:-}" ] || cmake --build build --target fpack pack_floor >/dev/null
jobs=$(nproc)

if command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then
    for package in python3-lmdb python3-pil python3-venv; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
            { apt-get install -y --no-install-recommends "$package" >/dev/null 2>&1 || echo "bench: $package cannot be installed" >&2; }
    done
fi
python=/usr/bin/python3 # Debian's: lmdb lies there
webdataset_python=${FSHARD_BENCH_PYTHON:-build/bench-python/bin/python}
if [ ! -x "$webdataset_python" ]; then
    { "$python" -m venv build/bench-python && build/bench-python/bin/pip install -q webdataset; } >/dev/null 2>&1 ||
        echo "bench: webdataset cannot be installed (python3 -m venv, pip install webdataset)" >&2
fi

work=$(mktemp -d /dev/shm/fshard-bench-XXXXXX)
trap 'rm -rf "$work"' EXIT

run_copy() { "$bin/fpack" -q --no-check "$images" "$1"; }
run_copy1() { "$bin/fpack" -q -j1 --no-check "$images" "$1"; }
run_checked() { "$bin/fpack" -q "$images" "$1"; }
run_raw() { "$bin/fpack" -q --store raw "$images" "$1"; }
run_tar() { tar cf "$1" -C "$images" .; }
run_webdataset() { "$webdataset_python" bench/pack_peers.py webdataset "$images" "$1"; }
run_lmdb() { "$python" bench/pack_peers.py lmdb "$images" "$1"; }

declare -A names=([copy]="fpack --no-check" [copy1]="fpack --no-check -j1" [checked]="fpack (decodes all)" [raw]="fpack --store raw" [tar]="tar cf"
    [webdataset]="webdataset.ShardWriter" [lmdb]="LMDB as BasicSR's, Python" [floor]="libjpeg alone, to pixels"
    [written]="libjpeg, pixels written")
contenders=(tar copy copy1 checked raw)
absent=()
if "$webdataset_python" -c 'import webdataset' 2>/dev/null; then contenders+=(webdataset); else absent+=(webdataset); fi
if "$python" -c 'import lmdb, PIL' 2>/dev/null; then contenders+=(lmdb); else absent+=(lmdb); fi

# measure NAME: by the clock, and in CPU time of all threads, into $clock and $cpu. 1 (images left out) is no failure.
TIMEFORMAT='%R %U %S'
measure() {
    local times status=0
    rm -rf "$work/out"
    times=$({ time "run_$1" "$work/out" >/dev/null 2>"$work/log" || echo "$?" >"$work/status"; } 2>&1)
    [ ! -f "$work/status" ] || status=$(cat "$work/status")
    rm -f "$work/status"
    if [ "$status" -gt 1 ] || { [ "$status" -eq 1 ] && [[ $1 != copy && $1 != copy1 && $1 != checked && $1 != raw ]]; } || [ ! -e "$work/out" ]; then
        die "$1 failed: $(tail -n 1 "$work/log")"
    fi
    read -r clock cpu < <(awk '{ print $1, $2 + $3 }' <<<"$times")
    bytes=$(du -sb "$work/out" | cut -f1)
}

find "$images" -type f -exec cat {} + >/dev/null # into the page cache
read -r count input < <(find "$images" -type f -printf '%s\n' | awk '{ n++; s += $1 } END { print n, s }')
: >"$work/measures"
for ((round = 0; round < rounds; round++)); do
    for name in "${contenders[@]}"; do
        measure "$name"
        echo "$name $clock $cpu $bytes" >>"$work/measures"
    done
    if [ -x "$bin/pack_floor" ]; then
        read -r _ clock cpu bytes < <("$bin/pack_floor" "$images" "$jobs")
        echo "floor $clock $cpu $bytes" >>"$work/measures"
        rm -rf "$work/out"
        read -r _ clock cpu bytes < <("$bin/pack_floor" "$images" "$jobs" "$work/out")
        echo "written $clock $cpu $bytes" >>"$work/measures"
    fi
done
rm -rf "$work/out"

printf '%s files, %s MB, of %s; in page cache, to tmpfs; %s threads; %s rounds in turn\n' \
    "$count" "$(awk "BEGIN { printf \"%.0f\", $input / 1e6 }")" "$images" "$jobs" "$rounds"
printf '%s; %s; %s\n' "$(date -u +%F)" "$("$bin/fpack" --version | head -n 1)" "$(tar --version | head -n 1)"
printf '%-28s %9s %9s %9s %10s %8s %12s\n' "" "median s" "best s" "CPU s" "images/s" "MB out" "tar's time"
# Ratios are of medians: what else the machine does meets all contenders alike.
for name in "${contenders[@]}" floor written; do
    grep -q "^$name " "$work/measures" || continue
    tar_median=$(awk '$1 == "tar" { print $2 }' "$work/measures" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')
    awk -v name="$name" '$1 == name' "$work/measures" | sort -n -k2 | awk -v label="${names[$name]}" -v count="$count" -v tar="$tar_median" '
        { clock[NR] = $2; if (cpu == "" || $3 < cpu) cpu = $3; bytes = $4 }
        END { m = clock[int((NR + 1) / 2)]
              printf "%-28s %9.3f %9.3f %9.3f %10.0f %8.0f %11.2fx\n", label, m, clock[1], cpu, count / m, bytes / 1e6, tar / m }'
done
[ ${#absent[@]} -eq 0 ] || echo "not installed: ${absent[*]}"
least_cpu() { awk -v name="$1" '$1 == name { print $3 }' "$work/measures" | sort -n | head -n 1; }
median() { awk -v name="$1" '$1 == name { print $2 }' "$work/measures" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
# by_clock_and_cpu NAME OF LABEL ASKED: the speed of NAME as a part of OF's. Where other work takes the machine, CPU time still tells
# what each takes for itself.
by_clock_and_cpu() {
    awk -v a="$(median "$1")" -v b="$(median "$2")" -v c="$(least_cpu "$1")" -v d="$(least_cpu "$2")" -v label="$3" -v asked="$4" 'BEGIN {
        printf "%-46s %3.0f%% by the clock, %3.0f%% in CPU time", label, 100 * b / a, 100 * d / c
        if (asked != "") printf "; asked: %s%%: %s", asked, (b / a >= asked / 100 ? "met" : "MISSED")
        printf "\n" }'
}
by_clock_and_cpu copy tar "copy, checksums included, of tar's speed" 100
by_clock_and_cpu copy1 tar "the same with one job" ""
by_clock_and_cpu checked tar "copy that decodes every image (the default)" ""
if [ -x "$bin/pack_floor" ]; then
    by_clock_and_cpu raw floor "raw, of libjpeg alone" 80
    by_clock_and_cpu raw written "raw, of libjpeg and the writing" ""
fi
