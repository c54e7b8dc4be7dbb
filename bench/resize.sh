#!/usr/bin/env bash
# fresize and Pillow on the same photographs, in turn, one core each, input in page cache, output to memory.
# usage: ./run bench resize DIR [SIZE] [ROUNDS]; DIR: class folders of photographs, for example ImageNet's
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
[ $# -ge 1 ] && [ -d "$1" ] || {
    echo "usage: ./run bench resize DIR [SIZE] [ROUNDS]" >&2
    exit 2
}
source_folder=$(readlink -f "$1") size=${2:-160} rounds=${3:-3}
/usr/bin/python3 -c 'import PIL' 2>/dev/null || {
    echo "bench: Pillow is not installed: apt-get install python3-pil" >&2
    exit 1
}
work=$(mktemp -d -p /dev/shm)
trap 'rm -rf "$work"' EXIT
count=$(find -L "$source_folder" -type f ! -name '.*' | wc -l)
find -L "$source_folder" -type f -exec cat {} + >/dev/null

# cpu NAME COMMAND…: runs it pinned to one core; leaves user plus system seconds in $spent.
TIMEFORMAT='%U %S'
cpu() {
    rm -rf "$work/out"
    local times
    times=$({ time taskset -c 0 "$@" >/dev/null 2>"$work/log"; } 2>&1) || {
        cat "$work/log" >&2
        exit 1
    }
    spent=$(awk '{ print $1 + $2 }' <<<"$times")
}
printf '%s photographs, short edge %s, quality 90; images for each second of CPU time\n' "$count" "$size"
printf '%-6s %10s %10s %8s\n' round fresize Pillow ratio
for round in $(seq "$rounds"); do
    cpu build/bin/fresize -q -j1 --max-size "$size" "$source_folder" "$work/out"
    ours=$spent
    cpu /usr/bin/python3 bench/pillow_resize.py "$source_folder" "$work/out" "$size" 1
    awk -v r="$round" -v n="$count" -v a="$ours" -v b="$spent" \
        'BEGIN { printf "%-6s %10.0f %10.0f %8.2f\n", r, n / a, n / b, b / a }'
done
