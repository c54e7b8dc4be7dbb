#!/usr/bin/env bash
# What is run on a machine with a GPU: builds the CUDA backend, its tests and its timing program, and prints a short table last.
# The whole output of each part lies in $OUT (default: the build folder).
#   scripts/device.sh [test|memcheck|racecheck|initcheck|time|all]     default: all
# On a lent machine without Debian's packages: scripts/device_deps.sh first, and name .deps in `carry`.
# Where a machine's time is short, scripts/device_bundle.sh carries what was built elsewhere.
# shellcheck disable=SC2317 # functions that `part` calls
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
what=${1:-all}
case $what in
test | memcheck | racecheck | initcheck | time | all) ;;
*)
    sed -n 's/^#   /usage: /p' "$0" >&2
    exit 2
    ;;
esac
build=${FSHARD_DEVICE_BUILD:-/tmp/fshard-device}
out=${OUT:-$build}
mkdir -p "$build" "$out"
export PATH=/usr/local/cuda/bin:$PATH

. scripts/device_packages.sh

summary=()
# part NAME COMMAND…: runs it, keeps its output, adds a line to the table.
part() {
    local name=$1 start=$SECONDS status=0
    shift
    "$@" >"$out/$name.txt" 2>&1 || status=$?
    summary+=("$(printf '%-10s %-8s %4d s' "$name" "$([ $status = 0 ] && echo passed || echo "exit $status")" $((SECONDS - start)))")
    return $status
}

build_all() {
    cmake -S . -B "$build" -G Ninja -DFSHARD_CUDA=ON -DFSHARD_VIPS=OFF "${cmake_options[@]}" &&
        cmake --build "$build" --target fshard-cuda cuda_tests train_step
}

# Those of our programs that take a seed (tests/trainer/cuda_support.h).
cuda_programs() {
    find "$build/tests" -maxdepth 1 -type f -name 'cuda_*test' ! -name cuda_load_test | sort
}

# Three seeds: other inputs, other weights. All are run, whatever fails.
tests() {
    local failed=0 program
    ctest --test-dir "$build" -L cuda --verbose || failed=1
    for program in $(cuda_programs); do
        "$program" 2 || failed=1
        "$program" 3 || failed=1
    done
    return "$failed"
}

# Every op at small shapes under one of compute-sanitizer's tools.
sanitize() {
    local failed=0 program
    for program in $(cuda_programs); do
        compute-sanitizer --tool "$1" --error-exitcode 9 "$program" 2 '*_agree' || failed=1
    done
    return "$failed"
}

# A step of every network that a job of bench/train.sh has, and where the time of three goes.
times() {
    local job
    FSHARD_BENCH_PLANS=$build/plans && export FSHARD_BENCH_PLANS
    for job in "resnet18 f32 160 256 10" "resnet50 f16 160 512 20" "resnet18 f16 160 1024 20" "resnet50 f16 160 64 50" \
        "pyramidnet f16 32 64 20" "toynet f16 28 1024 50" "conv8 f16 28 2048 100" "nafnet bf16 256 16 10" "unet bf16 256 16 10"; do
        # shellcheck disable=SC2086 # words
        "$build/bin/train_step" time $job cuda || true
    done
    "$build/tests/cuda_kernel_time" || true
    "$build/tests/cuda_operation_time" || true
    "$build/tests/pointwise_gradient_time" || true
    "$build/tests/attention_time" || true
    "$build/tests/implicit_gemm_time" || true
    "$build/tests/direct_kernel_time" || true
    for job in "resnet50 f16 160 512 5" "pyramidnet f16 32 64 5" "conv8 f16 28 2048 5"; do
        # shellcheck disable=SC2086
        "$build/bin/train_step" profile $job cuda >"$out/profile-${job// /-}.txt" 2>&1 || true
    done
}

failed=0
if part build build_all; then
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || true
    case $what in test | all) part test tests || failed=1 ;; esac
    for tool in memcheck racecheck initcheck; do
        case $what in "$tool" | all) part $tool sanitize $tool || failed=1 ;; esac
    done
    case $what in time | all) part time times || failed=1 ;; esac
else
    failed=1
fi
for log in build test memcheck racecheck initcheck time; do
    [ -f "$out/$log.txt" ] || continue
    if ! printf '%s\n' "${summary[@]}" | grep -q "^$log *passed"; then
        echo "---- $log"
        { grep -E -A3 'error|ERROR|FAILED|differs|finite|=========' "$out/$log.txt" || tail -n 30 "$out/$log.txt"; } |
            head -n 25 | cut -c1-180 || true # head closes the pipe
    fi
done
[ -f "$out/time.txt" ] && cat "$out/time.txt"
printf '%s\n' "${summary[@]}"
exit $failed
