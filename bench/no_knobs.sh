#!/usr/bin/env bash
# `ftrain` as it chooses for itself beside hand-set --cache and --workers, in turn, on 16, 2 and 8 cores (asked: at least 0.97 of the best).
# usage: bench/no_knobs.sh BIN SETS OUT [JOB…]     JOB: a model of the table below; default: all
# BIN: a folder of ftrain, fpack and make-photos. SETS: a folder with in160, cifar10, mnist (packed, or folders of classes) and pairs (folders
# blurry and sharp, or noisy and clean); what is not there is rendered. OUT: no_knobs.txt and log.txt.
# Default: a run of E epochs to its end. Hand-set: the run is ended after some seconds of training, as its pace no longer changes.
#   steady  images/s: of the default's last quarter of epochs, of the hand-set run but its first tenth
#   E       seconds from the program's start to its end for E epochs; of a hand-set run: its start, decoding too, and E epochs at that pace
# FSHARD_BENCH_SECONDS [5]: of the default runs, about; FSHARD_BENCH_LIMIT [290]: after so many what is left is left out; FSHARD_BENCH_CORES [16 2 8];
# FSHARD_BENCH_DEVICE [cuda]; FSHARD_BENCH_IMAGES: of each set, in place of the table's.
set -euo pipefail
export LC_ALL=C
[ $# -ge 3 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
bin=$(readlink -f "$1") sets=$(readlink -m "$2")
mkdir -p "$3"
out=$(readlink -f "$3")
shift 3
device=${FSHARD_BENCH_DEVICE:-cuda} seconds=${FSHARD_BENCH_SECONDS:-5} limit=${FSHARD_BENCH_LIMIT:-290}
read -ra core_counts <<<"${FSHARD_BENCH_CORES:-16 2 8}"
# model  set  images, at least  batch  options
jobs=(
    "resnet18 in160 19200 128 --train-crop-size 128"
    "resnet50 in160 19200 512 --train-crop-size 160"
    "conv8 mnist 320000 2048"
    "resnet9 cifar10 50000 512"
    "unet pairs 480 32 --train-crop-size 128"
)
known=" ${jobs[*]%% *} "
for name; do
    [[ $known == *" $name "* ]] || { echo "no_knobs: no job '$name':$known" >&2; exit 2; }
done
room=$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)
work=$(mktemp -d "$([ "${room:-0}" -gt 8000000 ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")/fshard-knobs-XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
: >"$out/log.txt"
exec > >(tee "$out/no_knobs.txt") 2>&1

# render SET: pictures in place of a set that is not there, as folders in $work/SET/source.
render() {
    local edge=160 count=50
    case $1 in
    pairs)
        "$bin/make-photos" -q --set night --count "${FSHARD_BENCH_PICTURES:-10}" --edge-min 320 --edge-max 320 "$work/$1/source"
        return
        ;;
    cifar10) edge=32 count=800 ;;
    mnist) edge=28 count=800 ;;
    esac
    "$bin/make-photos" -q --count "${FSHARD_BENCH_PICTURES:-$count}" --edge-min $edge --edge-max $edge "$work/$1/source"
}

# samples PACKED: of its training split.
samples() { sed -n '/"name": "train"/,/}/s/^ *"samples": \([0-9]*\).*/\1/p' "$1/dataset.json" | sed -n 1p; }

# pack SET IMAGES: $work/SET/set, JPEG files only (of pairs as they are), as often over, as files of their own, as makes so many.
pack() {
    local set=$1 copies copy store=(copy) folder=$work/$1 from=$sets/$1
    [ -e "$folder/set" ] && return
    mkdir -p "$folder"
    if ! [ -e "$from" ]; then
        render "$set"
        from=$folder/source
    fi
    if [ "$set" = pairs ]; then
        sides=(blurry sharp)
        if [ -d "$from/noisy" ]; then sides=(noisy clean); fi
        copies=$(find "$from/${sides[0]}" -type f | wc -l)
        copies=$((($2 + copies - 1) / copies))
        for ((copy = 0; copy < copies; copy++)); do
            for side in "${sides[@]}"; do
                mkdir -p "$folder/many/$side"
                cp -r "$from/$side" "$folder/many/$side/$copy"
            done
        done
        "$bin/fpack" -q --pairs "${sides[0]}:${sides[1]}" "$folder/many" "$folder/set"
        rm -r "$folder/many"
        return
    fi
    if [ "$set" = mnist ]; then store=(jpeg --quality 95); fi # PNGs
    "$bin/fpack" -q --store "${store[@]}" "$from" "$folder/jpeg"
    from=$folder/jpeg
    copies=$((($2 + $(samples "$from") - 1) / $(samples "$from")))
    if [ "$copies" = 1 ]; then
        ln -s "$from" "$folder/set"
        return
    fi
    "$bin/fpack" -q --format tar "$from" "$folder/tar"
    mkdir "$folder/one" "$folder/many"
    for tar in "$folder"/tar/train-*.tar; do tar xf "$tar" -C "$folder/one" --wildcards '*.jpg'; done
    (cd "$folder/one" && find . -name '*.jpg' -printf '%P\t%h\n') | sed 's|\t\./|\t|' | sort >"$folder/list"
    for ((copy = 0; copy < copies; copy++)); do
        ln -s ../one "$folder/many/$copy"
        sed "s|^|$copy/|" "$folder/list"
    done >"$folder/lists"
    "$bin/fpack" -q --files-from "$folder/lists" "$folder/many" "$folder/set"
    rm -rf "$folder/one" "$folder/tar"
}

# paces FROM: of the run in $work/out, epochs from FROM on: "images/s, seconds of all training".
paces() {
    awk -v batch="$batch" -v from="$1" '
        function field(name) { return match($0, "\"" name "\":[^,}]*") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) : "" }
        /"event":"step"/ { n++; epoch[n] = field("epoch"); step[n] = field("step") + 1; at[n] = field("seconds") * step[n] }
        END {
            for (i = 1; i <= n; i++) {
                new = i == 1 || epoch[i] != epoch[i - 1]
                took = at[i] - (new ? 0 : at[i - 1]); all += took
                # batches that were ready when a run began are in its first tenth
                if (epoch[i] >= from && (i > n / 10 || n < 10) && i > 1) { counted += took; steps += step[i] - (new ? 0 : step[i - 1]) }
            }
            printf "%.0f %.3f\n", (counted ? steps * batch / counted : 0), all
        }' "$work/out/metrics.jsonl"
}

# train CORES HALT EPOCHS OPTION…: a run, ended HALT seconds after its first steps (0: at its own end). Sets wall, fed and stopped.
train() {
    local cores=$1 halt=$2 epochs=$3 begin=$EPOCHREALTIME pid status=0
    shift 3
    rm -rf "$work/out"
    if grep -q '"name": "val"' "$set_folder/dataset.json"; then set -- --val-interval 100000 "$@"; fi
    taskset -c "$(echo "$allowed" | cut -d, -f"1-$cores")" "$bin/ftrain" -f --json --device "$device" --lr 0.001 \
        --no-verdict --no-html --no-tensorboard --model "$model" "${options[@]}" --batch-size "$batch" --epochs "$epochs" \
        --log-interval "$every" "$@" "$set_folder" "$work/out" \
        >"$work/out.json" 2>"$work/out.err" &
    pid=$!
    if [ "$halt" != 0 ]; then
        until [ -s "$work/out/metrics.jsonl" ] || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
        sleep "$halt"
        kill -TERM $pid 2>/dev/null || true
    fi
    wait $pid || status=$?
    wall=$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')
    { echo "== $model, $cores cores, $epochs epochs: $*"; cat "$work/out.err"; } | grep -v '^Epoch: ' >>"$out/log.txt"
    fed=$(sed -n 's/^ *"fed_from": "\(.*\)".*/from \1/p; s/^ *"workers": \([0-9]*\).*/\1 threads/p' "$work/out.json" | paste -sd, | sed 's/,/, /')
    [ -s "$work/out/metrics.jsonl" ] && { [ "$halt" != 0 ] || [ $status = 0 ]; }
}
tell_failure() { echo "    failed: $(grep '^ftrain: ' "$work/out.err" | tail -n 1 | cut -c1-140)"; failed=1; }

# Each core that this process may use, with commas between.
allowed=$(taskset -cp $$ | sed 's/.*: //' | tr , '\n' | awk -F- '{ for (c = $1; c <= ($2 == "" ? $1 : $2); c++) printf "%s%d", n++ ? "," : "", c }')
have=$(echo "$allowed" | tr , '\n' | wc -l) failed=0
echo "$device, $have cores; $("$bin/ftrain" --version | sed -n 1p)"
if [ "$device" = cuda ]; then nvidia-smi --query-gpu=name --format=csv,noheader || true; fi
declare -A paced
for cores in "${core_counts[@]}"; do
    if [ "$cores" -gt "$have" ]; then
        echo "$cores cores: there are $have: left out"
        continue
    fi
    for job in "${jobs[@]}"; do
        read -r model set wanted batch options <<<"$job"
        read -ra options <<<"$options"
        if [ $# -gt 0 ] && ! [[ " $* " == *" $model "* ]]; then continue; fi
        if [ $SECONDS -gt "$limit" ]; then
            echo "$model, $cores cores: left out, $limit s are over"
            continue
        fi
        pack "$set" "${FSHARD_BENCH_IMAGES:-$wanted}"
        set_folder=$work/$set/set
        images=$(samples "$set_folder")
        if [ "$batch" -gt $((images / 4)) ]; then batch=$((images / 4)); fi # of a trial
        steps=$((images / batch)) every=$((images / batch / 40 + 1))
        best_cache=gpu
        if [ "$device" = cpu ]; then best_cache=pixels; fi
        if [ -z "${paced[$model]:-}" ]; then # finds plans, and how fast the device is when it is fed
            train "$have" "$(awk "BEGIN { print $seconds / 5 }")" 100000 --cache $best_cache || { tell_failure; continue; }
            read -r pace _ <<<"$(paces 0)"
            if [ "$pace" = 0 ]; then
                echo "$model: too slow to measure in $seconds s"
                failed=1
                continue
            fi
            paced[$model]=$pace
        fi
        epochs=$(awk "BEGIN { e = int($seconds * ${paced[$model]} / ($steps * $batch)) + 1; print e < 4 ? 4 : e }")
        printf '%s, %d cores: %d images, %d steps of %d, E = %d\n' "$model" "$cores" "$images" "$steps" "$batch" "$epochs"
        train "$cores" 0 "$epochs" || { tell_failure; continue; }
        read -r own _ <<<"$(paces $((epochs - (epochs + 3) / 4)))"
        own_wall=$wall
        printf '    %-24s %10d images/s steady %8.2f s   %s\n' default "$own" "$wall" "$fed"
        ways=("--cache $best_cache" "--cache none --workers $cores")
        if [ "$cores" != 8 ] && [ "$cores" != 1 ]; then ways+=("--cache none --workers $((cores / 2))"); fi
        if [ "$cores" != 8 ] && [ "$device" != cpu ]; then ways+=("--cache pixels"); fi
        best=0 best_wall=1e9
        for way in "${ways[@]}"; do
            # shellcheck disable=SC2086 # words
            train "$cores" "$(awk "BEGIN { print $seconds * 0.4 }")" 100000 $way || { tell_failure; continue; }
            read -r pace trained <<<"$(paces 0)"
            if [ "$pace" = 0 ]; then
                echo "    ${way//--/}: too slow to measure in so short a time"
                failed=1
                continue
            fi
            whole=$(awk "BEGIN { printf \"%.2f\", $wall - $trained + $epochs * $steps * $batch / $pace }")
            printf '    %-24s %10d images/s steady %8.2f s\n' "${way//--/}" "$pace" "$whole"
            if awk "BEGIN { exit !($pace > $best) }"; then best=$pace; fi
            if awk "BEGIN { exit !($whole < $best_wall) }"; then best_wall=$whole; fi
        done
        awk -v own="$own" -v best="$best" -v wall="$own_wall" -v least="$best_wall" 'BEGIN {
            if (!best) exit
            printf "    default / best            %.3f steady %s, %.3f of E epochs %s\n", own / best, (own / best >= 0.97 ? "met" : "MISSED"),
                least / wall, (least / wall >= 0.97 ? "met" : "MISSED") }'
    done
done
exit $failed
