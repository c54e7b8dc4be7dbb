#!/usr/bin/env bash
# The whole chain on one set of pictures, then a table of what happened. Called by `./run demo [DIR]`.
#   FSHARD_DEMO_SIZE    short edge after fresize (96)
#   FSHARD_DEMO_CROP    pixels that the network sees (64)
#   FSHARD_DEMO_EPOCHS  passes over the training images (12)
#   FSHARD_DEMO_DEVICE  what trains: cpu or cuda (cpu)
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
root=$PWD
bin=$root/build/bin
work=$root/demo
size=${FSHARD_DEMO_SIZE:-96}
crop=${FSHARD_DEMO_CROP:-64}
epochs=${FSHARD_DEMO_EPOCHS:-12}

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
    stage make-photos "$bin/make-photos" "$source_folder"
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

stage ftrain "$bin/ftrain" --device "${FSHARD_DEMO_DEVICE:-cpu}" --model resnet18 --epochs "$epochs" --train-crop-size "$crop" \
    --val-crop-size "$crop" "$work/shards" "$work/training"
row "ftrain resnet18, $epochs epochs" "" "" "$(human "$(bytes "$work/training")")" "$seconds"

accuracy=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "eval_top1") c = i } NR > 1 && $c > best { best = $c } END { printf "%.1f", best }' \
    "$work/training/summary.csv")

printf '\n%-28s %8s %10s %10s %9s\n' stage images before after seconds
printf '%-28s %8s %10s %10s %9s\n' ---------------------------- ------ --------- --------- -------
for line in "${rows[@]}"; do
    IFS='|' read -r a b c d e <<<"$line"
    printf '%-28s %8s %10s %10s %9s\n' "$a" "$b" "$c" "$d" "$e"
done
printf '\nbest validation accuracy (top-1)  %s %%\n' "$accuracy"
printf 'pictures   %s\nresized    %s\nshards     %s\ntraining   %s (model_best.safetensors, summary.csv, …)\n' \
    "$source_folder" "$work/resized" "$work/shards" "$work/training"
