#!/usr/bin/env bash
# What training on a GPU learns: recipes of the table below, CIFAR-10 with resnet9 in float32, bf16 and fp16, SEEDS seeds each (three runs
# are on the GPU at a time). Prints a line for each run (best and last accuracy or PSNR, of the average of the weights too, seconds), and for
# each recipe the means over the seeds and how far bf16 and fp16 end from float32 (asked: 0.3).
#   scripts/device_accuracy.sh BIN SETS OUT [SEEDS [RECIPE…]]     BIN: build/bin; SETS: a folder with packed sets: cifar10, tiny, deblur;
#                                                                 default: 3 seeds of the recipes 24 tiny deblur; more: 12 long
set -euo pipefail
[ $# -ge 3 ] || { sed -n -e 's/^#    *\(scripts\)/usage: \1/p' -e 's/^#      / /p' "$0" >&2; exit 2; }
bin=$1 sets=$2 out=$3 seeds=${4:-3}
shift $(($# < 4 ? $# : 4))
[ $# -gt 0 ] || set -- 24 tiny deblur
cifar="--model resnet9 --batch-size 512 --lr 0.4 --lr-scheduler linear --flip-tta --cache gpu"
# set, metric, precisions, options
declare -A recipes=(
    [12]="cifar10 top1 off,bf16,fp16 $cifar --epochs 12 --lr-warmup-epochs 2 --val-interval 4"
    [24]="cifar10 top1 off,bf16,fp16 $cifar --epochs 24 --lr-warmup-epochs 5 --random-erase 0.5 --val-interval 4"
    [long]="cifar10 top1 off,bf16,fp16 $cifar --epochs 300 --lr-warmup-epochs 10 --cutmix-alpha 1 --mixup-prob 0.5 --model-ema
        --model-ema-decay 0.999 --val-interval 20"
    [tiny]="tiny top1 auto --model resnet18 --epochs 40 --batch-size 128 --lr 0.1 --val-interval 5"
    [deblur]="deblur psnr auto --model unet --loss psnr --batch-size 1 --train-crop-size 192 --lr 0.0005 --clip-grad 1 --val-interval 50
        --epochs 500"
)
for recipe in "$@"; do
    [ -n "${recipes[$recipe]:-}" ] || { echo "device_accuracy: no recipe '$recipe': ${!recipes[*]}" >&2; exit 2; }
done
mkdir -p "$out"
rm -f "$out/failed"
# run NAME METRIC SET ARG…: trains; the best and last of a column of summary.csv, and the time.
run() {
    local name=$1 metric=$2 set=$3 start=$EPOCHREALTIME
    shift 3
    if ! "$bin/ftrain" --device cuda "$@" "$sets/$set" "$out/$name" >"$out/$name.log" 2>&1; then
        echo "$name" >>"$out/failed"
        printf '%-24s failed: %s\n' "$name" "$(grep '^ftrain: ' "$out/$name.log" | tail -n 1 | cut -c1-150)"
        return
    fi
    awk -F, -v name="$name" -v metric="$metric" -v start="$start" -v end="$EPOCHREALTIME" '
        NR == 1 { for (i = 1; i <= NF; i++) { if ($i == "eval_" metric) column = i; if ($i == "ema_" metric) average = i } next }
        $column != "" { last = $column; if (last > best) best = last }
        average && $average != "" { ema = $average; if (ema > ema_best) ema_best = ema }
        { seconds = $2 }
        END { printf "%-24s %s best %.2f last %.2f", name, metric, best, last
            if (average) printf " EMA best %.2f last %.2f", ema_best, ema
            printf "   %.1f s of training, %.1f s in all\n", seconds, end - start }' "$out/$name/summary.csv"
}
# means NAME METRIC LINES: of the last values (of EMA, where there is one), by precision.
means() {
    awk -v recipe="$1" -v metric="$2" '
        $1 !~ "^" recipe "-" || $3 != "best" { next }
        { split(substr($1, length(recipe) + 2), part, "-"); value = $6
          for (i = 7; i < NF; i++) if ($i == "EMA") value = $(i + 4)
          sum[part[1]] += value; count[part[1]]++ }
        END { for (p in sum) mean[p] = sum[p] / count[p]
            count_of = split("off bf16 fp16", names, " ")
            for (i = 1; i <= count_of; i++) { p = names[i]
                if (!(p in mean)) continue
                printf "%-24s %s mean of %d: %.2f", recipe "-" p, metric, count[p], mean[p]
                if (p != "off" && ("off" in mean)) { d = mean[p] - mean["off"]
                    printf "   %+.2f beside float32: %s", d, (d <= 0.3 && d >= -0.3 ? "met" : "MISSED") }
                printf "\n" } }' "$3"
}
for recipe in "$@"; do
    read -r -d '' set metric precisions options <<<"${recipes[$recipe]}" || true # ends at no delimiter
    if ! [ -d "$sets/$set" ]; then
        echo "$recipe: no $set in $sets: left out"
        continue
    fi
    if [ "$precisions" = auto ]; then
        # shellcheck disable=SC2086 # words
        run "$recipe" "$metric" "$set" $options
        continue
    fi
    for ((seed = 0; seed < seeds; seed++)); do
        for precision in ${precisions//,/ }; do
            # shellcheck disable=SC2086
            run "$recipe-$precision-$seed" "$metric" "$set" $options --amp "$precision" --seed "$seed" &
        done
        wait
    done | tee "$out/$recipe.txt"
    means "$recipe" "$metric" "$out/$recipe.txt"
done
[ ! -s "$out/failed" ] # exit status 1 where a run failed
