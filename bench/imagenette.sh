#!/usr/bin/env bash
# The recipes for sets like Imagenette: `ftrain --recipe imagenette-5` and the same recipe in PyTorch (bench/imagenette_torch.py), in turn, seed by
# seed, each run a program of its own; then means and deviations.
# usage: bench/imagenette.sh FOLDER OUT [OPTION…]     FOLDER: train/CLASS/*.jpg, val/CLASS/*.jpg; OUT: a folder for results.jsonl and ftrain.log;
# OPTION…: of the recipe, for both: --epochs 8, --lr 0.004; those of ftrain alone stand in FTRAIN, another --opt too, with PEER_ATTENTION empty
# FSHARD_BENCH_BIN [build/bin], FSHARD_BENCH_PYTHON [python3; with torch, torchvision, Pillow, NumPy]
# RECIPE [imagenette-5], SEEDS [1 2 3], ATTENTION [no yes]: with and without the layer of --self-attention, ours; PEER_ATTENTION [yes]: the peer's,
# or empty; MODES [graph]: the peer's --mode; AMP [fp16], PEER_AMP [bf16, which spares it the scaler], EVERY [1]: epochs between evaluations,
# LIMIT: images of each class, for a try, DEVICE [cuda]; with cpu both compute in float32, MODES is eager
# Of each run: from_start, seconds from the start of the program to the end of the last evaluation; started, those of them before training: the first
# start of ftrain on a machine searches for plans in them, and PyTorch decodes, tries convolutions and captures; seconds, the rest; training, without
# evaluations. Means of from_start and started leave out a first start where there are others.
set -euo pipefail
export LC_ALL=C
[ $# -ge 2 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
bin=${FSHARD_BENCH_BIN:-$here/build/bin} python=${FSHARD_BENCH_PYTHON:-python3} device=${DEVICE:-cuda} recipe=${RECIPE:-imagenette-5} every=${EVERY:-1}
amp=${AMP:-fp16} peer_amp=${PEER_AMP:-bf16} cache=gpu
read -ra seeds <<<"${SEEDS:-1 2 3}"
read -ra attention <<<"${ATTENTION-no yes}"
read -ra peer_attention <<<"${PEER_ATTENTION-yes}"
read -ra modes <<<"${MODES:-graph}"
read -ra own <<<"${FTRAIN:-}"
images=$(readlink -f "$1")
mkdir -p "$2"
out=$(readlink -f "$2")
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [ "$device" = cpu ]; then
    amp=off peer_amp=off modes=(eager) cache=pixels
    export CUDA_VISIBLE_DEVICES= # the peer takes a GPU where it sees one
fi
if [ -n "${LIMIT:-}" ]; then
    for class in "$images"/{train,val}/*/; do
        into=$folder/images/${class#"$images"/}
        mkdir -p "$into"
        find "$class" -type f | sort | awk -v most="$LIMIT" 'NR <= most' | xargs -d '\n' cp -t "$into"
    done
    images=$folder/images
fi
"$bin/fpack" --quiet "$images" "$folder/shards"
: >"$out/results.jsonl"
: >"$out/ftrain.log"

# ours SEED ATTENTION OPTION…: trains; one line.
ours() {
    local seed=$1 layer=$2 start=$EPOCHREALTIME
    shift 2
    echo "== seed $seed, --self-attention $layer $*" >>"$out/ftrain.log"
    "$bin/ftrain" --force --device "$device" --amp "$amp" --cache "$cache" --recipe "$recipe" --self-attention "$layer" --seed "$seed" \
        --val-interval "$every" "$@" ${own[@]+"${own[@]}"} "$folder/shards" "$folder/run" >>"$out/ftrain.log" 2>&1 ||
        { tail -n 5 "$out/ftrain.log" >&2; return 1; }
    # the last row of summary.csv is written after the last evaluation
    awk -F, -v start="$start" -v end="$(stat -c %.6Y "$folder/run/summary.csv")" -v seed="$seed" -v who="ftrain $amp" -v layer="$layer" \
        -v training="$(sed -n 's/.*"step_seconds":\([0-9.e+-]*\).*/\1/p' "$folder/run/metrics.jsonl" | awk '{ sum += $1 } END { print sum }')" '
        NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
        { loss = $column["train_loss"]; seconds = $column["time"] }
        $column["eval_top1"] != "" { top1 = $column["eval_top1"] }
        END { printf "{\"who\": \"%s\", \"self_attention\": \"%s\", \"seed\": %d, \"top1\": %.2f, \"train_loss\": %.5f, \"from_start\": %.2f, " \
            "\"started\": %.2f, \"seconds\": %.2f, \"training\": %.2f}\n", who, layer, seed, top1, loss, end - start, end - start - seconds,
            seconds, training }' "$folder/run/summary.csv" | tee -a "$out/results.jsonl"
}
# peer SEED ATTENTION MODE OPTION…: the same.
peer() {
    local seed=$1 layer=$2 mode=$3 start=$EPOCHREALTIME
    shift 3
    "$python" "$here/bench/imagenette_torch.py" "$images" --began "$start" --recipe "$recipe" --self-attention "$layer" --seed "$seed" \
        --val-interval "$every" --amp "$peer_amp" --mode "$mode" "$@" | tee -a "$out/results.jsonl"
}
for seed in "${seeds[@]}"; do
    for layer in ${attention[@]+"${attention[@]}"}; do
        ours "$seed" "$layer" "$@"
    done
    for layer in ${peer_attention[@]+"${peer_attention[@]}"}; do
        for mode in "${modes[@]}"; do
            peer "$seed" "$layer" "$mode" "$@"
        done
    done
done

"$python" - "$out/results.jsonl" <<'PYTHON' | tee "$out/means.txt"
import json
import statistics
import sys

runs = {}
for line in open(sys.argv[1]):
    run = json.loads(line)
    runs.setdefault((run["who"], run["self_attention"]), []).append(run)
print(f"{'':24} {'self-attention':14} {'seeds':>5}" + "".join(f"{name:>18}" for name in ("top1", "from_start", "started", "seconds", "training")))
for (who, layer), all_runs in runs.items():
    line = f"{who:24} {layer:14} {len(all_runs):5}"
    for name in ("top1", "from_start", "started", "seconds", "training"):
        counted = all_runs[1:] if name in ("from_start", "started") and len(all_runs) > 1 else all_runs
        values = [run[name] for run in counted]
        line += f"{statistics.mean(values):9.2f} ({statistics.stdev(values) if len(values) > 1 else 0:6.2f})"
    print(line)
PYTHON
