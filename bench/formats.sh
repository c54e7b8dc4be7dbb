#!/usr/bin/env bash
# fresize and Pillow on PNG and WebP files, in turn, on the same core; input in page cache, output to memory. Both write what they read
# (--keep) or JPEG of quality 90; short edge at most SIZE. The files are made of a folder of photographs by Pillow: PNG as it writes them,
# WebP of quality 80, without profiles; a folder that holds PNG or WebP files is taken as it is.
# usage: ./run bench formats DIR [SIZE] [ROUNDS]
#   FSHARD_BENCH_BIN    where fresize lies (build/bin)
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "$0")")/.."
if [ $# -lt 1 ] || [ $# -gt 3 ] || [ ! -d "$1" ]; then
    echo "usage: ./run bench formats DIR [SIZE] [ROUNDS]" >&2
    exit 2
fi
bin=${FSHARD_BENCH_BIN:-build/bin}
source=$(readlink -f "$1") size=${2:-160} rounds=${3:-3}
python=/usr/bin/python3 # Debian's: Pillow lies there
"$python" -c 'import PIL' 2>/dev/null || { echo "bench: Pillow is the peer: apt-get install python3-pil" >&2; exit 1; }
work=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$work"' EXIT
core=$("$python" -c 'import os; print(min(os.sched_getaffinity(0)))')

sets=()
for format in png webp; do
    if find "$source" -name "*.$format" -print -quit | grep -q .; then
        ln -s "$source" "$work/$format"
        sets+=("$format")
    fi
done
if [ ${#sets[@]} -eq 0 ]; then
    "$python" - "$source" "$work" <<'PYTHON'
import os, sys
from PIL import Image
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        path = os.path.join(folder, name)
        image = Image.open(path).convert("RGB")
        image.info = {}
        for kind in ("png", "webp"):
            target = os.path.join(sys.argv[2], kind, os.path.splitext(os.path.relpath(path, sys.argv[1]))[0] + "." + kind)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            image.save(target)
PYTHON
    sets=(png webp)
fi

run_fresize() { taskset -c "$core" "$bin/fresize" -q -j1 --format "$3" --max-size "$size" "$1/" "$2"; }
run_pillow() { taskset -c "$core" "$python" bench/pillow_resize.py "$1/" "$2" "$size" 1 "$3"; }

printf '%s; %s; Pillow %s; short edge at most %s; best processor time of %s rounds\n' "$(date -u +%F)" \
    "$("$bin/fresize" --version | head -n 1)" "$("$python" -c 'import PIL; print(PIL.__version__)')" "$size" "$rounds"
TIMEFORMAT='%U %S'
for format in "${sets[@]}"; do
    for target in "$format" jpeg; do
        rm -f "$work"/times.*
        for _ in $(seq "$rounds"); do
            for name in fresize pillow; do
                rm -rf "$work/out"
                times=$({ time "run_$name" "$work/$format" "$work/out" "$target" >/dev/null 2>"$work/log"; } 2>&1) ||
                    { echo "bench: $name failed: $(tail -n 1 "$work/log")" >&2; exit 1; }
                awk '{ print $1 + $2 }' <<<"$times" >>"$work/times.$name"
                find "$work/out" -type f -not -path '*/.fresize/*' -printf '%s\n' |
                    awk '{ sum += $1 } END { print NR, sum / NR }' >"$work/sizes.$name"
            done
        done
        for name in fresize pillow; do
            echo "$(sort -n "$work/times.$name" | head -n 1) $(cat "$work/sizes.$name")"
        done | awk -v format="$format" -v target="$target" '
            { rate[NR] = $2 / $1; bytes[NR] = $3; count[NR] = $2 }
            END { printf "%-4s to %-4s  fresize %6.1f images/s, %6.0f B each; Pillow %6.1f, %6.0f B; %.2f times, %+.2f %% bytes; %d and %d files\n",
                  format, target, rate[1], bytes[1], rate[2], bytes[2], rate[1] / rate[2], 100 * (bytes[1] / bytes[2] - 1), count[1], count[2] }'
    done
done
