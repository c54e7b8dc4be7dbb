#!/usr/bin/env bash
# What training on a GPU learns: CIFAR-10 with resnet9 in float32, bf16 and fp16, SEEDS seeds each, and other sets that are there. Prints a
# table: job, best accuracy (or PSNR), seconds of training. Three runs are on the GPU at a time.
#   scripts/device_accuracy.sh BIN SETS OUT [SEEDS]     SETS: a folder with packed sets: cifar10, tiny, deblur
set -euo pipefail
[ $# -ge 3 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
bin=$1 sets=$2 out=$3 seeds=${4:-3}
mkdir -p "$out"
# run NAME METRIC SET ARG…: trains; the best of a column of summary.csv, and the time.
run() {
    local name=$1 metric=$2 set=$3 start=$EPOCHREALTIME
    shift 3
    if ! "$bin/ftrain" --device cuda "$@" "$sets/$set" "$out/$name" >"$out/$name.log" 2>&1; then
        printf '%-24s failed: %s\n' "$name" "$(tail -n 1 "$out/$name.log" | cut -c1-150)"
        return
    fi
    awk -F, -v name="$name" -v metric="$metric" -v start="$start" -v end="$EPOCHREALTIME" '
        NR == 1 { for (i = 1; i <= NF; i++) if ($i == metric) column = i; next }
        $column != "" && $column > best { best = $column }
        { last = $column; seconds = $2 }
        END { printf "%-24s %-10s best %.2f last %.2f   %.1f s of training, %.1f s in all\n", name, metric, best, last, seconds,
              end - start }' "$out/$name/summary.csv"
}
cifar=(--model resnet9 --epochs 24 --batch-size 512 --lr 0.4 --lr-scheduler linear --lr-warmup-epochs 5 --random-erase 0.5 --flip-tta
    --val-interval 4)
for ((seed = 0; seed < seeds; seed++)); do
    for precision in off bf16 fp16; do
        run "cifar10-$precision-$seed" eval_top1 cifar10 "${cifar[@]}" --amp $precision --seed "$seed" &
    done
    wait
done
if [ -d "$sets/tiny" ]; then
    run tiny-resnet18 eval_top1 tiny --model resnet18 --epochs 40 --batch-size 128 --lr 0.1 --val-interval 5 &
fi
if [ -d "$sets/deblur" ]; then
    run deblur-unet eval_psnr deblur --model unet --loss psnr --batch-size 1 --train-crop-size 192 --lr 0.0005 --clip-grad 1 \
        --val-interval 50 --epochs 500 &
fi
wait
