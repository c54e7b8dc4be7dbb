#!/usr/bin/env bash
# Parity of `ftrain --recipe rsb-a3`: it and timm's training of the same procedure (bench/rsb_timm.py) from the same first weights, seed by
# seed, then means and deviations of both, and whether their difference lies within the deviation of the seeds.
# usage: bench/rsb_a3.sh FOLDER SHARDS [OPTION…]     FOLDER: train/CLASS/*, val/CLASS/*; SHARDS: fpack FOLDER SHARDS; OPTION…: of ftrain
# FSHARD_BENCH_BIN [build/bin], FSHARD_BENCH_PYTHON [python3; with torch, timm, safetensors, Pillow, NumPy]
# SEEDS [1 2 3], EPOCHS [24], WARMUP [5], BATCH [256], MODEL [resnet50], TRAIN_SIZE [160], VAL_SIZE [224], AMP [fp16], DEVICE [cuda],
# TIMM [more options of rsb_timm.py]: a short run of the recipe
# The learning rate is 0.008 for 2,048 images, for others in proportion to their root, as train.py's --lr-base has it for LAMB. train.py's
# warm-up begins at 1e-4. Seconds are of training alone; behind them, from the start of the program.
set -euo pipefail
export LC_ALL=C
[ $# -ge 2 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
bin=${FSHARD_BENCH_BIN:-$here/build/bin} python=${FSHARD_BENCH_PYTHON:-python3}
epochs=${EPOCHS:-24} warmup=${WARMUP:-5} batch=${BATCH:-256} model=${MODEL:-resnet50} size=${TRAIN_SIZE:-160} val_size=${VAL_SIZE:-224}
amp=${AMP:-fp16} device=${DEVICE:-cuda}
read -ra seeds <<<"${SEEDS:-1 2 3}"
read -ra timm_options <<<"${TIMM:-}"
images=$(readlink -f "$1") shards=$(readlink -f "$2")
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
rate=$(awk -v batch="$batch" 'BEGIN { printf "%.6g", 0.008 * sqrt(batch / 2048) }')
begins=$(awk -v rate="$rate" 'BEGIN { printf "%.6g", 1e-4 / rate }')

start=$EPOCHREALTIME
"$python" "$here/bench/rsb_timm.py" "$images" --first "$folder/first" --seeds "$(IFS=,; echo "${seeds[*]}")" --model "$model" --epochs "$epochs" \
    --warmup-epochs "$warmup" --batch-size "$batch" --lr "$rate" --warmup-lr 1e-4 --size "$size" --val-size "$val_size" --amp "$amp" \
    ${timm_options[@]+"${timm_options[@]}"} | tee "$folder/timm.json"
awk -v start="$start" -v end="$EPOCHREALTIME" 'BEGIN { printf "timm: %.1f s from the start of the program, all seeds\n", end - start }'

# ours SEED OPTION…: trains; one line.
ours() {
    local seed=$1 start=$EPOCHREALTIME
    shift
    "$bin/ftrain" --force --quiet --device "$device" --amp "$([ "$device" = cpu ] && echo off || echo "$amp")" --recipe rsb-a3 \
        --weights "$folder/first/$seed.safetensors" --model "$model" --seed "$seed" --epochs "$epochs" --lr-warmup-epochs "$warmup" \
        --batch-size "$batch" --lr "$rate" --lr-warmup-decay "$begins" --train-crop-size "$size" --val-crop-size "$val_size" \
        --val-resize-size "$((val_size * 100 / 95))" --val-batch-size 250 --val-interval "$epochs" "$@" "$shards" "$folder/run" >/dev/null
    awk -F, -v start="$start" -v end="$EPOCHREALTIME" -v seed="$seed" '
        NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
        { loss = $column["train_loss"]; top1 = $column["eval_top1"]; seconds = $column["time"] }
        END { printf "{\"seed\": %d, \"top1\": %.2f, \"train_loss\": %.5f, \"seconds\": %.2f, \"from_start\": %.2f}\n", seed, top1, loss,
            seconds, end - start }' "$folder/run/summary.csv"
}
for seed in "${seeds[@]}"; do
    ours "$seed" "$@"
done | tee "$folder/ftrain.json"

"$python" - "$folder/timm.json" "$folder/ftrain.json" <<'PYTHON'
import json
import statistics
import sys

runs = [[json.loads(line) for line in open(path)] for path in sys.argv[1:]]
for name in ("top1", "train_loss", "seconds"):
    found = [[run[name] for run in side] for side in runs]
    means = [statistics.mean(side) for side in found]
    deviations = [statistics.stdev(side) if len(side) > 1 else 0 for side in found]
    line = f"{name:12} timm {means[0]:9.4f} ({deviations[0]:.4f})   ftrain {means[1]:9.4f} ({deviations[1]:.4f})"
    if name != "seconds":
        difference, deviation = means[1] - means[0], max(deviations)
        line += f"   {difference:+.4f}: {'within' if abs(difference) <= deviation else 'MORE THAN'} the deviation of the seeds, {deviation:.4f}"
    print(line)
PYTHON
