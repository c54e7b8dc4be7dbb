#!/usr/bin/env bash
# The whole chain on pictures of flowers (or DIR's), then on pairs, noisy and clean, then a table of what happened. Called by
# `./run demo [DIR]`.
#   FSHARD_DEMO_SIZE    short edge after fresize (96)
#   FSHARD_DEMO_CROP    pixels that the network sees (64)
#   FSHARD_DEMO_EPOCHS  passes over the training images (12)
#   FSHARD_DEMO_PAIRS   passes over the pairs (40); 0 leaves them out, as DIR does
#   FSHARD_DEMO_DEVICE  what trains: cpu or cuda (cpu)
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
root=$PWD
bin=$root/build/bin
work=$root/demo
size=${FSHARD_DEMO_SIZE:-96}
crop=${FSHARD_DEMO_CROP:-64}
epochs=${FSHARD_DEMO_EPOCHS:-12}
pair_epochs=${FSHARD_DEMO_PAIRS:-40}
device=${FSHARD_DEMO_DEVICE:-cpu}

rows=()
# stage NAME COMMAND…: prints the command, runs it, keeps its seconds in $seconds.
stage() {
    local name=$1
    shift
    printf '\n$ %s\n' "${*//$root\//}" >&2
    local from status=0
    from=$(date +%s.%N)
    # Exit 1 of a tool means: done, some inputs were bad, each was named above. The chain goes on with the rest.
    "$@" || status=$?
    seconds=$(awk -v a="$from" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
    # A stage without its output is over, whatever its status.
    if [ "$status" -gt 1 ] || { [ "$status" -eq 1 ] && { [ "$name" != fresize ] && [ "$name" != fpack ] || [ ! -e "${!#}" ]; }; }; then
        echo "demo: $name stopped with exit status $status" >&2
        exit "$status"
    fi
}
# Files below a folder and their bytes; what has a hidden name, fresize's state, is not counted.
files() { find -L "$1" -mindepth 1 -name '.*' -prune -o -type f -print | wc -l; }
bytes() { find -L "$1" -mindepth 1 -name '.*' -prune -o -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%.0f", s }'; }
human() { numfmt --to=iec-i --suffix=B --format=%.1f "$1"; }
row() { rows+=("$1|$2|$3|$4|$5"); }

[ $# -le 1 ] || {
    echo "demo: one folder at most; '$2' is one too many" >&2
    exit 2
}
if [ $# -gt 0 ]; then
    [ -d "$1" ] || {
        echo "demo: $1: no such folder; give a folder with one folder of images for each class" >&2
        exit 1
    }
    source_folder=$(readlink -f "$1")
    pair_epochs=0
    [ -n "$(find -L "$source_folder" -mindepth 1 -maxdepth 1 -type d ! -name '.*' -print -quit)" ] || {
        echo "demo: $source_folder: has no folders in it; the demo wants one folder of images for each class" >&2
        exit 1
    }
    work=$work/$(basename "$source_folder")
else
    work=$work/pictures
    source_folder=$work/photos
fi
# Each set has a folder of its own below demo/; what the last run of the same set left is replaced.
[ -d "$work" ] && echo "demo: $work: replacing what the last run left" >&2
rm -rf "$work"
mkdir -p "$work"
if [ $# -eq 0 ]; then
    stage make-photos "$bin/make-photos" --count 120 --edge-min 160 --edge-max 320 "$source_folder"
    row "render pictures" "$(files "$source_folder")" "" "$(human "$(bytes "$source_folder")")" "$seconds"
fi
before=$(bytes "$source_folder")

stage fresize "$bin/fresize" --max-size "$size" "$source_folder" "$work/resized"
after=$(bytes "$work/resized")
row "fresize to $size px" "$(files "$work/resized")" "$(human "$before")" "$(human "$after")" "$seconds"

split=(--split 0.2)
for name in val valid validation; do
    [ -d "$work/resized/$name" ] && split=()
done
stage fpack "$bin/fpack" "${split[@]}" "$work/resized" "$work/shards"
packed=$(bytes "$work/shards")
row "fpack into shards" "$(files "$work/resized")" "$(human "$after")" "$(human "$packed")" "$seconds"

stage fverify "$bin/fverify" --decode "$work/shards"
row "fverify" "$(files "$work/resized")" "$(human "$packed")" "" "$seconds"

recipe=()
[ $# -gt 0 ] || recipe=(--opt adamw --lr 0.001 --scale 0.6:1) # flowers fill half of their pictures
stage ftrain "$bin/ftrain" --device "$device" --model resnet18 --epochs "$epochs" --train-crop-size "$crop" --val-crop-size "$crop" \
    "${recipe[@]}" "$work/shards" "$work/training"
row "ftrain resnet18, $epochs epochs" "" "" "$(human "$(bytes "$work/training")")" "$seconds"

# best COLUMN FILE: the highest value of a column of summary.csv.
best() {
    awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i }
        NR > 1 && $c != "" && $c > best { best = $c } END { printf "%.2f", best }' "$2"
}

if [ "$pair_epochs" -gt 0 ]; then
    pairs=$work/pairs
    stage make-photos "$bin/make-photos" --set night --count 12 --edge-min 128 --edge-max 160 "$pairs/photos"
    stage fpack "$bin/fpack" --pairs noisy:clean --split 0.15 "$pairs/photos" "$pairs/shards"
    stage ftrain "$bin/ftrain" --device "$device" --model unet --width 16 --epochs "$pair_epochs" --train-crop-size 64 --batch-size 2 \
        --lr 0.001 "$pairs/shards" "$pairs/training"
    row "ftrain unet on pairs, $pair_epochs epochs" "" "" "$(human "$(bytes "$pairs/training")")" "$seconds"
fi

printf '\n%-32s %8s %10s %10s %9s\n' stage images before after seconds
printf '%-32s %8s %10s %10s %9s\n' -------------------------------- ------ --------- --------- -------
for line in "${rows[@]}"; do
    IFS='|' read -r a b c d e <<<"$line"
    printf '%-32s %8s %10s %10s %9s\n' "$a" "$b" "$c" "$d" "$e"
done
printf '\nbest validation accuracy (top-1)   %s %%\n' "$(best eval_top1 "$work/training/summary.csv")"
if [ "$pair_epochs" -gt 0 ]; then
    input=$(sed -n 's/.*"eval_input_psnr":\([0-9]*\.[0-9]\{2\}\).*/\1/p' "$pairs/training/metrics.jsonl" | tail -n 1)
    printf 'noisy pictures made clean (PSNR)   %s -> %s dB\n' "$input" "$(best eval_psnr "$pairs/training/summary.csv")"
fi
printf '\nLook at   %s\n' "$work/training/report.html"
[ "$pair_epochs" -gt 0 ] && printf '          %s\n' "$pairs/training/report.html"
relative=${work#"$root"/}
cat <<TEXT
pictures  $source_folder
weights   $work/training/model_best.safetensors

What to try next:
  ./run demo DIR                     # your own class folders
  build/bin/ftrain --weights $relative/training/model_best.safetensors --predict $relative/told $relative/resized
  build/bin/fverify --html $relative/shards.html $relative/shards
  build/bin/ftrain --list-models     # and man -l man/ftrain.1
TEXT
