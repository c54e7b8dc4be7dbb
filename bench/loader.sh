#!/usr/bin/env bash
# The loader, by itself and in PyTorch (fshard.torch.Loader), against PyTorch's DataLoader with torchvision and, where they are there, FFCV and
# DALI: the same images, random resized crop and flip, in turn, in one run; and against libjpeg-turbo and memcpy alone. Where others work on the machine, look at images for each second of
# CPU.
# usage: ./run bench loader [SECONDS] [ROUNDS]: two seconds for each, two rounds
# FSHARD_DATA: a folder with imagenet-sample (made 160 pixels high, ten times over, for it has 300 images) and tiny-imagenet-20.
# FSHARD_BENCH_PYTHON: a Python with torch and torchvision [/usr/bin/python3]; FSHARD_BENCH_FFCV, FSHARD_BENCH_DALI: one with ffcv, with
# nvidia.dali [the same].
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "$0")")/.."
bin=${FSHARD_BENCH_BIN:-build/bin} seconds=${1:-2} rounds=${2:-2} data=${FSHARD_DATA:-}
python=${FSHARD_BENCH_PYTHON:-/usr/bin/python3} ffcv=${FSHARD_BENCH_FFCV:-${FSHARD_BENCH_PYTHON:-/usr/bin/python3}}
dali=${FSHARD_BENCH_DALI:-${FSHARD_BENCH_PYTHON:-/usr/bin/python3}} batch=64 workers=$(nproc)
if ! [[ $seconds =~ ^[1-9][0-9]*$ && $rounds =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: ./run bench loader [SECONDS] [ROUNDS]" >&2
    exit 2
fi
if ! [ -d "$data/imagenet-sample/train" ] || ! [ -d "$data/tiny-imagenet-20/train" ]; then
    echo "bench: FSHARD_DATA should name a folder with imagenet-sample and tiny-imagenet-20" >&2
    exit 1
fi
"$python" -c 'import torch, torchvision' 2>/dev/null || {
    echo "bench: $python has no torch and torchvision: apt-get install python3-torch python3-torchvision, or set FSHARD_BENCH_PYTHON" >&2
    exit 1
}
has_ffcv=1
"$ffcv" -c 'import ffcv, torchvision' >/dev/null 2>&1 || {
    has_ffcv=
    echo "bench: $ffcv has no ffcv (pip install ffcv needs OpenCV's headers): left out" >&2
}
has_dali=1
"$dali" -c 'import nvidia.dali' >/dev/null 2>&1 || {
    has_dali=
    echo "bench: $dali has no nvidia.dali (pip install nvidia-dali-cuda120): left out" >&2
}
[ -n "${FSHARD_BENCH_BIN:-}" ] || cmake --build build --target loader_speed fshard_loader >/dev/null
work=$(mktemp -d /dev/shm/fshard-bench-XXXXXX)
trap 'rm -rf "$work"' EXIT

"$bin/fresize" -q --max-size 160 "$data/imagenet-sample/train" "$work/once"
for ((copy = 0; copy < 10; copy++)); do
    for class in "$work"/once/*/; do
        mkdir -p "$work/imagenet/train/$(basename "$class")"
        for file in "$class"*; do
            [ -f "$file" ] && ln "$file" "$work/imagenet/train/$(basename "$class")/$copy-$(basename "$file")"
        done
    done
done
ln -s "$data/tiny-imagenet-20" "$work/tiny"
for set in imagenet tiny; do
    "$bin/fpack" -q "$work/$set/" "$work/$set-jpeg"
    "$bin/fpack" -q --store raw "$work/$set/" "$work/$set-raw"
done

# shellcheck disable=SC2001 # a pattern with a group
field() { sed -n -e "s/.*\"$1\": \([0-9.]*\).*/\1/p" <<<"$2"; }
declare -A best
# keep NAME LINE FIELD…: the best of each field so far.
keep() {
    local name=$1 line=$2 key value old
    shift 2
    for key in "$@"; do
        value=$(field "$key" "$line") old=${best[$name.$key]:-0}
        best[$name.$key]=$(awk "BEGIN { print ($value > $old) ? $value : $old }")
    done
}
ours() { "$bin/loader_speed" "$work/$1" "$2" "$3" "$workers" $batch "$seconds" 2>/dev/null; }
rates=(images_per_s images_per_cpu_s)
whole=(process_images_per_cpu_s) # with the thread that takes the batches, as Python's has it
floors=(libjpeg_whole_per_cpu_s libjpeg_scaled_per_cpu_s pixels_mb_per_cpu_s memcpy_mb_per_cpu_s libjpeg_whole_per_s memcpy_mb_per_s pixels_mb_per_s)
for ((round = 0; round < rounds; round++)); do
    for set in imagenet tiny; do
        size=64
        [ $set = imagenet ] && size=160
        keep $set.jpeg "$(ours $set-jpeg $size rrc)" "${rates[@]}" "${whole[@]}" "${floors[@]}"
        keep $set.torch "$("$python" bench/loader_torch.py "$work/$set/train" $size "$workers" $batch "$seconds")" "${rates[@]}"
        keep $set.raw "$(ours $set-raw $size rrc)" "${rates[@]}" "${whole[@]}"
        for store in jpeg raw; do
            keep "$set.tensors-$store" "$("$python" bench/loader_fshard_torch.py "$work/$set-$store" $size "$workers" $batch "$seconds")" \
                "${rates[@]}"
        done
        keep $set.floats "$("$python" bench/loader_fshard_torch.py "$work/$set-jpeg" $size "$workers" $batch "$seconds" float32 normalize)" \
            "${rates[@]}"
        [ -z "$has_dali" ] || keep $set.dali "$("$dali" bench/loader_dali.py "$work/$set/train" $size "$workers" $batch "$seconds" 2>/dev/null)" \
            "${rates[@]}"
        keep $set.copy "$(ours $set-raw $size center)" "${floors[@]}"
        for mode in ${has_ffcv:+jpg raw}; do
            keep "$set.ffcv-$mode" "$("$ffcv" bench/loader_ffcv.py "$work/$set/train" $size "$workers" $batch "$seconds" "$mode" \
                "$work/$set-$mode.beton" 2>/dev/null | tail -n 1)" "${rates[@]}"
        done
    done
done

# row NAME KEY BASE: rates, and how many times BASE that is.
row() {
    [ -n "${best[$2.images_per_s]:-}" ] || return 0
    awk -v name="$1" -v wall="${best[$2.images_per_s]}" -v cpu="${best[$2.images_per_cpu_s]}" -v base="${best[$3.images_per_cpu_s]}" \
        -v base_wall="${best[$3.images_per_s]}" 'BEGIN { printf "%-34s %10.0f %14.0f %9.1f %9.1f\n", name, wall, cpu, wall / base_wall, cpu / base }'
}
# share TEXT VALUE FLOOR ASKED
share() {
    awk -v text="$1" -v value="$2" -v floor="$3" -v asked="$4" 'BEGIN { printf "  %-66s %4.0f %%  asked %.0f %%: %s\n", text, 100 * value / floor, asked, (100 * value / floor >= asked ? "met" : "MISSED") }'
}
for set in imagenet tiny; do
    size=64
    [ $set = imagenet ] && size=160
    echo "$set, $size pixels, $workers workers, batch $batch; the best of $rounds rounds of $seconds s"
    printf '%-34s %10s %14s %9s %9s\n' "" "images/s" "per CPU second" "x torch" "x (CPU)"
    row "DataLoader, torchvision" $set.torch $set.torch
    row "DALI on the CPU, JPEG files" $set.dali $set.torch
    row "FFCV, jpg" $set.ffcv-jpg $set.torch
    row "fshard, JPEG shards" $set.jpeg $set.torch
    row "fshard.torch.Loader, JPEG shards" $set.tensors-jpeg $set.torch
    row "the same, float32, normalized" $set.floats $set.torch
    row "FFCV, raw" $set.ffcv-raw $set.torch
    row "fshard, raw shards" $set.raw $set.torch
    row "fshard.torch.Loader, raw shards" $set.tensors-raw $set.torch
    for store in jpeg raw; do
        share "fshard.torch.Loader, $store shards, of the loader by itself" "${best[$set.tensors-$store.images_per_cpu_s]}" \
            "${best[$set.$store.process_images_per_cpu_s]}" 90
    done
    share "JPEG, of libjpeg-turbo decoding whole images (by CPU second)" "${best[$set.jpeg.images_per_cpu_s]}" \
        "${best[$set.jpeg.libjpeg_whole_per_cpu_s]}" 85
    share "JPEG, of libjpeg-turbo at the scale that the crops allow" "${best[$set.jpeg.images_per_cpu_s]}" \
        "${best[$set.jpeg.libjpeg_scaled_per_cpu_s]}" 85
    share "raw, centre crop and flip, of memcpy in blocks of 64 MiB" "${best[$set.copy.pixels_mb_per_cpu_s]}" \
        "${best[$set.copy.memcpy_mb_per_cpu_s]}" 70
done
