#!/usr/bin/env bash
# ftrain --auto-augment against timm's and torchvision's transforms: the same images, crop, flip and operations, one worker each, in turn.
# usage: ./run bench augment [ROUNDS]: two rounds, the best of each
# FSHARD_DATA: a folder with tiny-imagenet-20. FSHARD_BENCH_PYTHON: a Python with torch, torchvision and timm [/usr/bin/python3].
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "$0")")/.."
bin=${FSHARD_BENCH_BIN:-build/bin} rounds=${1:-2} data=${FSHARD_DATA:-} python=${FSHARD_BENCH_PYTHON:-/usr/bin/python3} size=64
if ! [ -d "$data/tiny-imagenet-20/train" ]; then
    echo "bench: FSHARD_DATA should name a folder with tiny-imagenet-20" >&2
    exit 1
fi
"$python" -c 'import torch, torchvision, timm' 2>/dev/null || {
    echo "bench: $python has no torch, torchvision and timm: set FSHARD_BENCH_PYTHON" >&2
    exit 1
}
work=$(mktemp -d /dev/shm/fshard-bench-XXXXXX)
trap 'rm -rf "$work"' EXIT
"$bin/fpack" -q "$data/tiny-imagenet-20" "$work/set"
ours() {
    "$bin/ftrain" --bench-loader --json --device cpu --workers 1 --train-crop-mode rrc --train-crop-size $size ${1:+--auto-augment "$1"} \
        "$work/set" 2>/dev/null | sed -n 's/.*"samples_per_second": \([0-9]*\).*/\1/p'
}
most() { if (($1 > $2)); then echo "$1"; else echo "$2"; fi; }
printf '%-24s %12s %12s %8s\n' "tiny-imagenet-20, $size px" "timm, tv /s" "ftrain /s" "times"
for name in "" rand-m9-mstd0.5-inc1 original 3a ra ta_wide imagenet; do
    theirs=0 mine=0
    for ((round = 0; round < rounds; round++)); do
        theirs=$(most "$theirs" "$("$python" bench/augment_timm.py "$data/tiny-imagenet-20/train" $size 5 $name)")
        mine=$(most "$mine" "$(ours "$name")")
    done
    printf '%-24s %12d %12d %8.1f\n' "${name:-none}" "$theirs" "$mine" "$(awk "BEGIN { print $mine / $theirs }")"
done
