#!/usr/bin/env bash
# What is run on a machine with several GPUs: that they train as one, what they gain, and what PyTorch's DistributedDataParallel gains, in
# turn. Builds first; the whole output of each part lies in $OUT (default: the build folder), a table is printed last.
#   scripts/device_ranks.sh [test|time|all] [TORCH_DDP]     TORCH_DDP: the peer's script (shared/peers/torch_ddp.py), which torchrun starts
# On a lent machine without Debian's packages: scripts/device_deps.sh first, and name .deps in `carry`.
# NCCL_NVLS_ENABLE and the like stay as the machine sets them.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
what=${1:-all} peer=${2:-}
case $what in
test | time | all) ;;
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
    cmake --build "$build" --target fshard-cuda ftrain fpack device_ranks_test train_step; } >"$out/build.txt" 2>&1; then
    tail -n 30 "$out/build.txt"
    exit 1
fi
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c
env | grep '^NCCL_' || true

failed=0
if [ "$what" != time ]; then
    ctest --test-dir "$build" -R '^device_ranks_test$' --verbose >"$out/ranks_test.txt" 2>&1 || failed=1
    grep -E 'two GPUs|FAILED|PASSED|ERROR|LINE|left out|ftrain:' "$out/ranks_test.txt" | cut -c1-180 || true
    if command -v torchrun >/dev/null; then # its environment, and not ours
        printf 'under torchrun: '
        torchrun --no-python --nproc-per-node "$gpus" "$build/bin/train_step" time conv8 f16 28 2048 50 cuda 2>"$out/torchrun.err" ||
            { tail -n 3 "$out/torchrun.err"; failed=1; }
    fi
fi

# images/s of all GPUs, median of five rounds of STEPS steps.
rate() {
    TRAIN_STEP_GPUS=$1 "$build/bin/train_step" time "$2" "$3" "$4" "$5" "$6" cuda 2>"$out/rate.err" |
        sed -n 's/.*"images_per_second": \([0-9]*\).*/\1/p' || true
}

if [ "$what" != test ]; then
    # ours and the peer's in turn, twice
    for round in 1 2; do
        for job in "resnet50 f16 160 512 20 fp16" "resnet50 bf16 160 512 20 bf16" "resnet50 f16 160 64 50 fp16"; do
            read -r model type pixels batch steps peer_type <<<"$job"
            one=$(rate 1 "$model" "$type" "$pixels" "$batch" "$steps")
            all=$(rate "$gpus" "$model" "$type" "$pixels" "$batch" "$steps")
            if [ -z "$one" ] || [ -z "$all" ]; then
                echo "$model $type $batch: failed: $(tail -n 1 "$out/rate.err")"
                continue
            fi
            printf '%-9s %-4s %3s px %4s on each  1 GPU %7s images/s  %s GPUs %7s images/s  %s times\n' "$model" "$type" "$pixels" "$batch" \
                "$one" "$gpus" "$all" "$(awk -v a="$all" -v b="$one" 'BEGIN { printf "%.3f", a / b }')"
            [ -n "$peer" ] || continue
            for count in 1 "$gpus"; do
                torchrun --nproc-per-node "$count" --master-port $((29500 + round)) "$peer" "$model:$pixels:$batch:$peer_type:eager" \
                    2>>"$out/peer.err" | grep '^PEER' || tail -n 2 "$out/peer.err"
            done
        done
    done | tee "$out/ranks_time.txt"
    if grep -q ': failed: ' "$out/ranks_time.txt"; then failed=1; fi
fi
exit $failed
