#!/usr/bin/env bash
# Training fed from packed files beside the same step on a batch that lies in the device's memory: images/s in the steady part of the
# epochs, and its percentage of synthetic (asked: at least 95), on at most 16 cores for each GPU.
# usage: ./run bench train_fed SETS [JOB…]     JOB: MODEL:PIXELS:BATCH of the table below; default: all whose set is there
# SETS: a folder with sets, packed or folders of classes: in160 (photographs, short edge about 160 pixels), cifar10, mnist. Small ones are
# taken many times over: files of their own in the packed sets, which lie in memory (/dev/shm where it has room).
# Ways to feed: jpeg and raw shards, mapped; :ram with --cache ram, :pixels with --cache pixels, :gpu with --cache gpu,
# :nvjpeg with --decode gpu, :auto as the run chooses, threads too.
# FSHARD_BENCH_WAYS: other ways than the table's. FSHARD_BENCH_SECONDS [3]: of each run, about. FSHARD_BENCH_DEVICE [cuda].
# FSHARD_BENCH_GPUS [1]: as many train together, on the batch each; images/s are of all.
# FSHARD_BENCH_WORKERS: the loader's threads, of each GPU [its share of the cores]. FSHARD_BENCH_COPIES: instead of the table's.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "$0")")/.."
bin=$(readlink -m "${FSHARD_BENCH_BIN:-build/bin}") device=${FSHARD_BENCH_DEVICE:-cuda} gpus=${FSHARD_BENCH_GPUS:-1} seconds=${FSHARD_BENCH_SECONDS:-3}
if ! [ -d "${1:-}" ]; then
    sed -n 's/^# usage/usage/p' "$0" >&2
    exit 2
fi
sets=$(readlink -f "$1")
shift
# model:pixels:batch  set  times over  ways
jobs=(
    "resnet50:160:512 in160 64 jpeg:ram raw:ram jpeg:nvjpeg"
    "resnet18:160:1024 in160 64 jpeg:ram raw:ram jpeg:nvjpeg jpeg:gpu"
    "resnet50:160:64 in160 64 jpeg:ram raw:ram"
    "resnet9:32:512 cifar10 1 jpeg:ram jpeg:pixels raw:ram jpeg:gpu jpeg:nvjpeg"
    "toynet:28:1024 mnist 20 jpeg:ram jpeg:pixels raw:ram jpeg:gpu"
    "conv8:28:2048 mnist 20 jpeg:ram jpeg:pixels raw:ram jpeg:gpu"
)
. bench/jobs.bash
check_jobs "${jobs[*]%% *}" "$@"
[ -n "${FSHARD_BENCH_BIN:-}" ] || cmake --build build --target ftrain fpack train_step fshard-cuda >/dev/null
# Without a GPU: what is missing, before anything is packed.
"$bin/train_step" time conv8 "$([ "$device" = cpu ] && echo f32 || echo f16)" 28 2048 1 "$device" >/dev/null || exit 1
cores=$(nproc) pinned=()
if [ "$cores" -gt $((16 * gpus)) ]; then
    pinned=(taskset -c "$(taskset -cp $$ | sed 's/.*: //' | awk -F, -v most=$((16 * gpus)) '{ # the first of what this process may use
        for (i = 1; i <= NF; i++) { split($i, ends, "-"); last = ends[2] == "" ? ends[1] : ends[2]
            for (c = ends[1]; c <= last && n < most; c++) { printf "%s%d", n++ ? "," : "", c } } }')")
    cores=$((16 * gpus))
fi
workers=${FSHARD_BENCH_WORKERS:-$((cores / gpus))} several=()
if [ "$gpus" -gt 1 ]; then several=(--gpus "$gpus"); fi
type=f16 amp=fp16
if [ "$device" = cpu ]; then type=f32 amp=off; fi
room=$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)
work=$(mktemp -d "$([ "${room:-0}" -gt 12000000 ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")/fshard-fed-XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=${FSHARD_BENCH_CACHE:-$work/cache}
export FSHARD_BENCH_PLANS=$XDG_CACHE_HOME/fshard
mkdir -p "$FSHARD_BENCH_PLANS"

# unpack SET: the files of its training split into $work/SET/one/CLASS/NAME.jpg; pixels become JPEGs.
unpack() {
    local form=(copy)
    if ! [ -f "$sets/$1/dataset.json" ]; then
        ln -s "$sets/$1$([ -d "$sets/$1/train" ] && echo /train)" "$work/$1/one"
        return
    fi
    if grep -q '"store": "\(raw\|zstd\)"' "$sets/$1/dataset.json"; then form=(jpeg --quality 95); fi
    "$bin/fpack" -q --format tar --store "${form[@]}" "$sets/$1" "$work/$1/tar"
    mkdir "$work/$1/one"
    for tar in "$work/$1"/tar/train-*.tar; do tar xf "$tar" -C "$work/$1/one" --wildcards '*.jpg'; done
}

# pack SET TIMES: $work/SET/jpeg and $work/SET/raw
pack() {
    [ -d "$work/$1/raw" ] && return
    mkdir "$work/$1"
    if [ "$2" = 1 ] && [ -f "$sets/$1/dataset.json" ]; then
        "$bin/fpack" -q --store copy "$sets/$1" "$work/$1/jpeg"
    else
        unpack "$1"
        mkdir "$work/$1/many"
        (cd "$work/$1/one/" && find . -name '*.*' -type f -printf '%P\t%h\n') | sed 's|\t\./|\t|' | LC_ALL=C sort >"$work/$1/list"
        for ((copy = 0; copy < $2; copy++)); do
            ln -s ../one "$work/$1/many/$copy" # one file each, by as many paths
            sed "s|^|$copy/|" "$work/$1/list"
        done >"$work/$1/lists"
        "$bin/fpack" -q --files-from "$work/$1/lists" "$work/$1/many" "$work/$1/jpeg"
    fi
    "$bin/fpack" -q --store raw "$work/$1/jpeg" "$work/$1/raw"
}

# fed SET STORE OPTION…: prints "images/s in the steady part, of all steps, percent waited for data"
fed() {
    local set=$1 store=$2 status=0
    shift 2
    "${pinned[@]}" "$bin/ftrain" -f --json --device "$device" "${several[@]}" --amp $amp --lr 0.01 --no-verdict --no-html --no-tensorboard \
        "$@" "$work/$set/$store" "$work/out" >"$work/out.json" 2>"$work/out.err" || status=$?
    if [ $status != 0 ]; then
        return 1
    fi
    # Mean seconds of an epoch's steps so far stand at some steps: from the first such step behind those that the loader had ready when the
    # epoch began (and a run has its first steps among them) to the epoch's last.
    awk -v batch=$((batch * gpus)) -v steps="$steps" '
        function field(name) { return match($0, "\"" name "\":[^,}]*") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) : "" }
        BEGIN { ready = steps < 36 ? steps / 3 : steps < 120 ? 12 : steps / 10 }
        /"event":"step"/ {
            epoch = field("epoch"); step = field("step"); at = field("seconds") * (step + 1)
            if (!(epoch in from)) { if (step >= ready) { from[epoch] = step; begin[epoch] = at } }
            else { to[epoch] = step; end[epoch] = at }
        }
        END { for (epoch in to) { count += to[epoch] - from[epoch]; took += end[epoch] - begin[epoch] }
            printf "%.0f ", (took > 0 ? count * batch / took : 0) }' "$work/out/metrics.jsonl"
    sed -n 's/.*"images_per_second": *\([0-9.]*\).*/\1/p' "$work/out.json" | awk '{ printf "%.0f ", $1 }'
    sed -n 's/.*"loader_bound_percent": *\([0-9.]*\).*/\1/p' "$work/out.json" | awk '{ printf "%.1f\n", $1 }'
}

echo "$device x $gpus, $cores cores, $workers loader threads each, $type"
printf '%-20s %-12s %12s %8s %6s %12s %8s\n' job "fed from" "images/s" "percent" "" "all steps" "waited"
for job in "${jobs[@]}"; do
    read -r name set times ways <<<"$job"
    IFS=: read -r model pixels batch <<<"$name"
    if [ $# -gt 0 ] && ! [[ " $* " == *" $name "* ]]; then continue; fi
    if ! [ -d "$sets/$set" ]; then
        echo "$name: no $set in $sets: left out"
        continue
    fi
    pack "$set" "${FSHARD_BENCH_COPIES:-$times}"
    images=$(sed -n 's/^ *"samples": \([0-9]*\).*/\1/p' "$work/$set/jpeg/dataset.json" | sort -n | tail -n 1)
    try=$((pixels * batch > 50000 ? 15 : 100))
    if [ "$device" = cpu ]; then try=2; fi
    synthetic=$(TRAIN_STEP_GPUS=$gpus "$bin/train_step" time "$model" $type "$pixels" "$batch" "$try" "$device" |
        sed -n 's/.*"images_per_second": \([0-9]*\).*/\1/p')
    steps=$((images / batch / gpus)) epochs=$(awk "BEGIN { print int($seconds * $synthetic / $images) + 1 }")
    printf '%-20s %-12s %12d   (%d images, %d epochs)\n' "$name" synthetic "$synthetic" "$images" "$epochs"
    for way in ${FSHARD_BENCH_WAYS:-$ways}; do
        options=(--workers "$workers" --model "$model" --train-crop-size "$pixels" --batch-size "$batch" --epochs "$epochs" --log-interval $((steps < 10 ? 1 : steps / 10)))
        if grep -q '"name": "val"' "$work/$set/jpeg/dataset.json"; then options+=(--val-interval 100000); fi
        case $way in
        *:ram) options+=(--cache ram) ;;
        *:pixels) options+=(--cache pixels) ;;
        *:gpu) options+=(--cache gpu) ;;
        *:nvjpeg) options+=(--cache ram --decode gpu) ;;
        *:auto) options=("${options[@]:2}") ;;
        *) options+=(--cache none) ;;
        esac
        if ! line=$(fed "$set" "${way%:*}" "${options[@]}"); then
            printf '%-20s %-12s failed: %s\n' "" "$way" "$(grep '^ftrain: ' "$work/out.err" | tail -n 1 | cut -c1-120)"
            continue
        fi
        read -r steady whole waited <<<"$line"
        awk -v way="$way" -v steady="$steady" -v whole="$whole" -v waited="$waited" -v synthetic="$synthetic" 'BEGIN {
            percent = 100 * steady / synthetic
            printf "%-20s %-12s %12d %7.1f%% %6s %12d %7.1f%%\n", "", way, steady, percent, (percent >= 95 ? "met" : "MISSED"), whole, waited }'
    done
done
