#!/usr/bin/env bash
# The mark of CIFAR-10 on one GPU: `ftrain --recipe airbench94` and other people's scripts on the same decoded pixels, in turn.
# usage: bench/airbench.sh SHARDS [SCRIPT.py…]     SHARDS: fpack cifar10/ SHARDS; SCRIPT.py: airbench94_muon.py of KellerJordan/cifar10-airbench,
# cifar10_speedrun.py of hiverge, whose 200 runs become RUNS
# FSHARD_BENCH_BIN [build/bin], FSHARD_BENCH_PYTHON [python3; with torch, torchvision, Pillow, NumPy], RUNS [3]: of each
# Ours: seconds of summary.csv (training and the evaluation of six views) and from the start of the program. Theirs: the clock of the script, from the
# whitening to the end of the evaluation; compiling and a run that warms up are not in it.
set -euo pipefail
export LC_ALL=C
[ $# -ge 1 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
bin=${FSHARD_BENCH_BIN:-$here/build/bin} python=${FSHARD_BENCH_PYTHON:-python3} runs=${RUNS:-3}
shards=$(readlink -f "$1")
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
scripts=()
for script in "$@"; do
    scripts+=("$(readlink -f "$script")")
done
[ $# -eq 0 ] || "$python" "$here/bench/airbench_pixels.py" "$shards" "$folder"
# ours SEED OPTION…: trains; one line.
ours() {
    local seed=$1 start=$EPOCHREALTIME
    shift
    "$bin/ftrain" --force --quiet --device cuda --amp fp16 --cache gpu --recipe airbench94 --seed "$seed" "$@" "$shards" "$folder/run" >/dev/null
    awk -F, -v start="$start" -v end="$EPOCHREALTIME" -v what="ftrain seed $seed $*" '
        NR == 1 { for (i = 1; i <= NF; i++) if ($i == "eval_top1") column = i; next }
        $column != "" { top1 = $column }
        { seconds = $2 }
        END { printf "%-40s top-1 %.2f %%, %.3f s, %.2f s from the start of the program\n", what, top1, seconds, end - start }' "$folder/run/summary.csv"
}
ours 0 >"$folder/first" # searches for plans
sed 's/$/ (the first start)/' "$folder/first"
for round in 1 2; do
    for ((seed = 1; seed <= runs; seed++)); do
        ours $((seed + (round - 1) * runs))
    done
    for script in ${scripts[@]+"${scripts[@]}"}; do
        echo "$(basename "$script"), $runs runs:"
        sed "s/range(200)/range($runs)/; s/torch.cuda._sleep(.*)/pass/" "$script" >"$folder/peer.py"
        (cd "$folder" && "$python" peer.py 2>&1 | tr '\r' '\n' | grep -E 'eval|Mean|Accuracies|Times|Error' | cut -c1-140) || true
    done
done
