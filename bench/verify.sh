#!/usr/bin/env bash
# fverify on warm datasets, beside `cat FILES >/dev/null`, in turn; medians, by the clock and by processor time.
# usage: ./run bench verify WHAT [ROUNDS]; WHAT: bytes of a record (1000: 262,144 images of so many bytes each are made, no two
# alike, at most 800 MB; needs python3), class folders of photographs, linked 32 times over, or a dataset of shards, taken as
# it is. What is made lies in tmpfs, in shards of 128 MB.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "$0")")/.."
bin=${FSHARD_BENCH_BIN:-build/bin} rounds=${2:-5}
work=$(mktemp -d /dev/shm/fshard-bench-XXXXXX)
trap 'rm -rf "$work"' EXIT
make_images() { # BYTES FOLDER: PNGs of 16x16 pixels, filled up with a chunk of random bytes
    python3 - "$1" "$2" <<'PYTHON'
import os, struct, sys, zlib
size, folder = int(sys.argv[1]), sys.argv[2]
chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0))
tail = chunk(b"IDAT", zlib.compress((b"\0" + b"\x50\x60\x70" * 16) * 16)) + chunk(b"IEND", b"")
count = min(262144, 800000000 // size)
for i in range(count):
    name = f"{folder}/class{i * 64 // count:02d}"
    os.makedirs(name, exist_ok=True)
    with open(f"{name}/{i:06d}.png", "wb") as file:
        file.write(head + chunk(b"raNd", os.urandom(size - len(head) - len(tail) - 12)) + tail)
PYTHON
}
what=${1:-}
if [[ $what =~ ^[0-9]+$ ]] && [ "$what" -ge 300 ]; then
    make_images "$what" "$work/classes"
elif [ -d "$what" ] && [ ! -e "$what/dataset.json" ]; then
    mkdir "$work/classes"
    for copy in $(seq 32); do ln -s "$(readlink -f "$what")" "$work/classes/class$copy"; done
elif [ ! -d "$what" ]; then
    echo "usage: ./run bench verify BYTES|DIR [ROUNDS]" >&2
    exit 2
fi
dataset=$what
if [ -d "$work/classes" ]; then
    "$bin/fpack" -q --no-check --shard-size 128M "$work/classes" "$work/set"
    rm -rf "$work/classes"
    dataset=$work/set
fi
mapfile -t files < <(find "$dataset" -name '*.fshard' | sort)
[ "${#files[@]}" -gt 0 ] || { echo "bench: $dataset holds no shards" >&2; exit 1; }
bytes=$(cat "${files[@]}" | wc -c)
TIMEFORMAT='%R %U %S'
measure() { # NAME COMMAND…: its seconds to $work/NAME, by the clock and of the processor
    local name=$1 took
    shift
    took=$({ time "$@" >/dev/null 2>&1; } 2>&1) || { echo "bench: $* failed" >&2; exit 1; }
    awk '{ print $1, $2 + $3 }' <<<"$took" >>"$work/$name"
}
for ((round = 0; round < rounds; round++)); do
    measure cat cat "${files[@]}"
    measure quick1 "$bin/fverify" -q -j1 --quick "$dataset"
    measure quick2 "$bin/fverify" -q -j2 --quick "$dataset"
    measure records1 "$bin/fverify" -q -j1 "$dataset"
    measure records2 "$bin/fverify" -q -j2 "$dataset"
done
median() { # NAME COLUMN
    awk -v column="$2" '{ print $column }' "$work/$1" | sort -g | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}
printf '%s: %d bytes, warm; medians of %s rounds\n' "$what" "$bytes" "$rounds"
printf '%-34s %8s %9s %10s %12s\n' "seconds; cat's rate is 1" clock processor "by clock" "by processor"
row() {
    awk -v name="$1" -v t="$(median "$2" 1)" -v p="$(median "$2" 2)" -v cat_t="$(median cat 1)" -v cat_p="$(median cat 2)" \
        'BEGIN { printf "%-34s %8.3f %9.3f %10.2f %12.2f\n", name, t, p, cat_t / t, cat_p / p }'
}
row "cat FILES >/dev/null" cat
row "fverify --quick, one job" quick1
row "fverify --quick, two jobs" quick2
row "fverify (each record), one job" records1
row "fverify (each record), two jobs" records2
echo "asked: 0.70 of cat's rate or more"
