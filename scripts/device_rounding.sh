#!/usr/bin/env bash
# What bf16 and fp16 do to loss and gradients of every kind of network, ours beside PyTorch's on the same weights and batch, against float64
# (bench/rounding.py): a table, and exit status 1 where ours is too far off. Builds first; the output lies in $OUT, too.
#   scripts/device_rounding.sh [JOB…]     JOB: NETWORK or NETWORK:PIXELS:BATCH; default: eight networks
# FSHARD_BENCH_BIN: a folder with train_step and fshard-cuda, which is not built then. FSHARD_BENCH_PYTHON [python3].
# On a lent machine without Debian's packages: scripts/device_deps.sh first, and name .deps in `carry`.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
build=${FSHARD_DEVICE_BUILD:-/tmp/fshard-device}
out=${OUT:-$build}
python=${FSHARD_BENCH_PYTHON:-python3}
if ! said=$("$python" -c 'import numpy, safetensors, torch' 2>&1); then
    echo "device_rounding: $python: ${said##*$'\n'}; install it, or name another Python in FSHARD_BENCH_PYTHON" >&2
    exit 1
fi
mkdir -p "$out" "$build/plans"
export PATH=/usr/local/cuda/bin:$PATH FSHARD_BENCH_PLANS=${FSHARD_BENCH_PLANS:-$build/plans}

. scripts/device_packages.sh

if [ -z "${FSHARD_BENCH_BIN:-}" ] && ! { cmake -S . -B "$build" -G Ninja -DFSHARD_CUDA=ON -DFSHARD_VIPS=OFF "${cmake_options[@]}" &&
    cmake --build "$build" --target fshard-cuda train_step; } >"$out/build.txt" 2>&1; then
    tail -n 30 "$out/build.txt"
    exit 1
fi
"$python" bench/rounding.py "${FSHARD_BENCH_BIN:-$build/bin}/train_step" "$@" 2>&1 | tee "$out/rounding.txt"
