#!/usr/bin/env bash
# What is run on a machine with several GPUs: that they train as one, what they gain, and what PyTorch's DistributedDataParallel gains, in
# turn. Builds first; the whole output of each part lies in $OUT (default: the build folder), a table is printed last.
#   scripts/device_ranks.sh [test|time|peers|all] [JOB…]
# JOB: MODEL:PIXELS:BATCH of the table below; default: all. time: ours, on each GPU alone, on all at the same time without any exchange, and
# joined; peers: joined, and PyTorch's best ways (bench/train_torch.py under torchrun), which compile for a minute each.
# On a lent machine without Debian's packages: scripts/device_deps.sh first, and name .deps in `carry`.
# NCCL_NVLS_ENABLE and the like stay as the machine sets them.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
what=${1:-all}
[ $# -eq 0 ] || shift
# model:pixels:batch  our type  steps  the peer's best ways (type.mode, with commas)
jobs=(
    "resnet50:160:512 f16 15 bf16.compile"
    "resnet50:160:64 f16 60 bf16.compilegraph,bf16.reduce"
    "resnet18:160:1024 f16 15 bf16.compile"
    "pyramidnet:32:64 f16 40 bf16.compilegraph"
    "conv8:28:2048 f16 400 bf16.compilegraph"
)
. bench/jobs.bash
case $what in
test | time | peers | all) check_jobs "${jobs[*]%% *}" "$@" ;;
*)
    sed -n 's/^#   /usage: /p' "$0" >&2
    exit 2
    ;;
esac
build=${FSHARD_DEVICE_BUILD:-/tmp/fshard-device}
out=${OUT:-$build}
command -v nvidia-smi >/dev/null || { echo "device_ranks: no nvidia-smi, so no GPU here: run it on a machine with two or more" >&2; exit 1; }
mkdir -p "$build" "$out"
export PATH=/usr/local/cuda/bin:$PATH FSHARD_BENCH_PLANS=$build/plans
mkdir -p "$FSHARD_BENCH_PLANS"

. scripts/device_packages.sh

if ! { cmake -S . -B "$build" -G Ninja -DFSHARD_CUDA=ON -DFSHARD_VIPS=OFF "${cmake_options[@]}" &&
    cmake --build "$build" --target fshard-cuda fshard-cpu ftrain fpack device_ranks_test train_step; } >"$out/build.txt" 2>&1; then
    tail -n 30 "$out/build.txt"
    exit 1
fi
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c
env | grep '^NCCL_' || true

failed=0
if [ "$what" = test ] || [ "$what" = all ]; then
    ctest --test-dir "$build" -R '^device_ranks_test$' --verbose >"$out/ranks_test.txt" 2>&1 || failed=1
    grep -E 'two GPUs|FAILED|PASSED|ERROR|LINE|left out|ftrain:' "$out/ranks_test.txt" | cut -c1-180 || true
    if command -v torchrun >/dev/null; then # its environment, and not ours
        printf 'under torchrun: '
        torchrun --no-python --nproc-per-node "$gpus" "$build/bin/train_step" time conv8 f16 28 2048 50 cuda 2>"$out/torchrun.err" ||
            { tail -n 3 "$out/torchrun.err"; failed=1; }
    fi
fi

speed() { sed -n 's/.*"images_per_second": \([0-9]*\).*/\1/p'; }
# ours RANKS GPU JOB TYPE STEPS: images/s of all, median of five rounds. GPU -: all.
ours() {
    local model pixels batch
    IFS=: read -r model pixels batch <<<"$3"
    [ "$2" = - ] || local -x CUDA_VISIBLE_DEVICES=$2
    TRAIN_STEP_GPUS=$1 timeout 120 "$build/bin/train_step" time "$model" "$4" "$pixels" "$batch" "$5" cuda 2>>"$out/rate.err" | speed || true
}
# apart JOB TYPE STEPS: the sum over the GPUs, at the same time, without any exchange
apart() {
    local gpu
    for ((gpu = 0; gpu < gpus; gpu++)); do ours 1 "$gpu" "$@" & done | awk '{ sum += $1 } END { print sum + 0 }'
}
peer() {
    local model pixels batch
    IFS=: read -r model pixels batch <<<"$1"
    timeout 240 torchrun --nproc-per-node "$gpus" --master-port 29510 bench/train_torch.py "$model" "${2%.*}" "${2#*.}" "$pixels" "$batch" "$3" \
        2>>"$out/peer.err" | speed || true
}
for row in "${jobs[@]}"; do
    read -r job type steps ways <<<"$row"
    if [ "$what" = test ] || { [ $# -gt 0 ] && ! [[ " $* " == *" $job "* ]]; }; then continue; fi
    ours 1 0 "$job" "$type" "$steps" >/dev/null # plans are made here
    for _ in 1 2; do
        if [ "$what" != peers ]; then
            alone=0
            for ((gpu = 0; gpu < gpus; gpu++)); do alone=$((alone + $(ours 1 "$gpu" "$job" "$type" "$steps"))); done
            beside=$(apart "$job" "$type" "$steps")
        fi
        joined=$(ours "$gpus" - "$job" "$type" "$steps")
        [ -n "$joined" ] || { echo "$job: failed: $(tail -n 1 "$out/rate.err")"; failed=1; break; }
        printf '%-18s %-4s joined %8s images/s' "$job" "$type" "$joined"
        [ "$what" = peers ] || awk -v j="$joined" -v a="$alone" -v b="$beside" \
            'BEGIN { printf "  alone, summed %8d: %.3f   apart at the same time %8d: %.3f", a, j / a, b, j / b }'
        if [ "$what" != time ]; then
            for way in ${ways//,/ }; do
                theirs=$(peer "$job" "$way" "$steps")
                awk -v w="$way" -v j="$joined" -v t="${theirs:-0}" 'BEGIN { printf "  PyTorch %s %s: %s", w, t ? t : "failed", t ? sprintf("%.2f", j / t) : "-" }'
            done
        fi
        echo
    done
done | tee "$out/ranks_time.txt"
if grep -q ': failed: ' "$out/ranks_time.txt"; then failed=1; fi
exit $failed
