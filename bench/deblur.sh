#!/usr/bin/env bash
# The mark of deblur-pairs on one GPU: PSNR of the 20 test photographs, by settings of ftrain, from the 60 training pairs and from more that are
# made of them (bench/deblur_pairs.py: the same photographs and blurs, crossed and turned).
# usage: bench/deblur.sh FOLDER [SETTING…]     FOLDER: deblur-pairs, unpacked; SETTING: unet-60 nafnet-60 unet-made wide-made nafnet-made
# FSHARD_BENCH_BIN [build/bin], FSHARD_BENCH_PYTHON [python3; with NumPy, Pillow], EACH [40]: made pairs of a photograph, LENGTH [1]: of each run,
# SIZE [256]: of the crops, DEVICE [cuda], MORE [options of ftrain for all]
# A line for each setting: best PSNR of the weights and of their average, both with the mirror image, seconds of training and in all.
set -euo pipefail
export LC_ALL=C OPENBLAS_NUM_THREADS=1
[ $# -ge 1 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
bin=${FSHARD_BENCH_BIN:-$here/build/bin} python=${FSHARD_BENCH_PYTHON:-python3} each=${EACH:-40} length=${LENGTH:-1} device=${DEVICE:-cuda}
read -ra more <<<"${MORE:-}"
source=$(readlink -f "$1")
shift
# iterations, options
declare -A settings=(
    [unet-60]="10000 --model unet --batch-size 8 --lr 0.0005 --weight-decay 0.01"
    [nafnet-60]="4000 --model nafnet --batch-size 8 --lr 0.0005 --opt-betas 0.9:0.9 --weight-decay 0.01"
    [unet-made]="40000 --model unet --batch-size 16 --lr 0.001"
    [wide-made]="14000 --model unet --width 64 --batch-size 16 --lr 0.0007"
    [nafnet-made]="8000 --model nafnet --batch-size 8 --lr 0.0007 --opt-betas 0.9:0.9"
)
[ $# -gt 0 ] || set -- unet-60 nafnet-60 unet-made wide-made nafnet-made
for setting in "$@"; do
    [ -n "${settings[$setting]:-}" ] || { echo "deblur: no setting '$setting': ${!settings[*]}" >&2; exit 2; }
done
folder=$(mktemp -d)
makes=
trap '[ -z "$makes" ] || kill "$makes" 2>/dev/null; rm -rf "$folder"' EXIT
"$bin/fpack" -q --store raw --pairs blurry:sharp "$source" "$folder/60"
case " $* " in *-made\ *)
    "$python" "$here/bench/deblur_pairs.py" "$source" "$folder/more" --each "$each" &&
        "$bin/fpack" -q --store raw --pairs blurry:sharp "$folder/more" "$folder/made" &
    makes=$! # beside the first settings
    ;;
esac
# psnr SET WEIGHTS: of the test photographs and their mirror images.
psnr() {
    "$bin/ftrain" --evaluate --json --device "$device" --weights "$2" --flip-tta "$1" 2>/dev/null | sed -n 's/.*"psnr": *\([0-9.]*\).*/\1/p' | head -n 1
}
for setting in "$@"; do
    read -r iterations options <<<"${settings[$setting]}"
    set=$folder/${setting#*-} out=$folder/run
    if [ "${setting#*-}" = made ] && [ -n "$makes" ]; then
        wait "$makes"
        makes=
    fi
    start=$EPOCHREALTIME
    iterations=$(awk -v n="$iterations" -v length_="$length" 'BEGIN { printf "%d", n * length_ }')
    # shellcheck disable=SC2086 # words
    if ! "$bin/ftrain" --force --device "$device" --loss psnr --train-crop-size "${SIZE:-256}" --clip-grad 1 --lr-min 1e-6 --lr-warmup-iters $((iterations / 40)) \
        --iters "$iterations" --val-every $((iterations / 5)) --model-ema --model-ema-decay 0.999 $options ${more[@]+"${more[@]}"} "$set" "$out" \
        >"$folder/log" 2>&1; then
        printf '%-12s failed: %s\n' "$setting" "$(grep '^ftrain: ' "$folder/log" | tail -n 1 | cut -c1-200)"
        continue
    fi
    line=$(awk -F, '
        NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
        { own = $column["eval_psnr"]; average = $column["ema_psnr"]; seconds = $column["time"]
          if (own > best) best = own
          if (average > best_average) best_average = average }
        END { printf "best %.2f, average %.2f, last %.2f and %.2f dB, %.1f s of training", best, best_average, own, average, seconds }' "$out/summary.csv")
    printf '%-12s %s, %.1f s in all' "$setting" "$line" "$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')"
    printf '; with mirror images %.2f, %.2f\n' "$(psnr "$set" "$out/model_best.safetensors")" "$(psnr "$set" "$out/model_ema.safetensors")"
done
