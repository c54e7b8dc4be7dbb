#!/usr/bin/env bash
# A training step on the CPU beside Debian's PyTorch (python3-torch, which calls the same oneDNN), in turn, in float32 and bf16.
# usage: ./run bench train_cpu [MODEL [PIXELS [BATCH [ROUNDS [STEPS]]]]]: resnet18 at 64 px, batch 64, 3 rounds of 5 steps; MODEL:
# resnet9 (the usual: 32 px, batch 128), any resnet, or a vit of timm, which FSHARD_BENCH_PYTHON must have then. FSHARD_BENCH_PROFILE=1
# shows where our time goes, too.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "$0")")/.."
bin=${FSHARD_BENCH_BIN:-build/bin} model=${1:-resnet18} pixels=${2:-64} batch=${3:-64} rounds=${4:-3} steps=${5:-5}
[[ $pixels$batch$rounds$steps =~ ^[0-9]+$ ]] || {
    echo "usage: ./run bench train_cpu [MODEL [PIXELS [BATCH [ROUNDS [STEPS]]]]]" >&2
    exit 2
}
[ -n "${FSHARD_BENCH_BIN:-}" ] || cmake --build build --target train_step >/dev/null
python=${FSHARD_BENCH_PYTHON:-/usr/bin/python3}
torch=$("$python" -c 'import torch, torchvision; print(torch.__version__)' 2>/dev/null) || {
    echo "bench: PyTorch is missing, and left out: apt-get install python3-torch python3-torchvision" >&2
    torch=
}
declare -A best
# note NAME LINE: keeps the least of each time
note() {
    local field ms
    for field in best_ms processor_ms; do
        # shellcheck disable=SC2001 # a pattern with a group
        ms=$(sed -e "s/.*\"$field\": \([0-9.]*\).*/\1/" <<<"$2")
        if [ -z "${best[$1.$field]:-}" ] || awk "BEGIN { exit !($ms < ${best[$1.$field]}) }"; then best[$1.$field]=$ms; fi
    done
}
for ((round = 0; round < rounds; round++)); do
    for type in f32 bf16; do
        line=$("$bin/train_step" time "$model" $type "$pixels" "$batch" "$steps")
        note ours.$type "$line"
        [ -n "$torch" ] || continue
        for layout in channels_last default; do
            line=$("$python" bench/train_cpu_torch.py "$model" $type $layout "$pixels" "$batch" "$steps")
            note $layout.$type "$line"
        done
    done
done
# Of a machine that others use, too, the processor time tells more than the clock; waiting threads count as busy in it.
echo "$model, $pixels px, batch $batch, threads: $(nproc), SGD: the best step of $rounds rounds of $steps"
printf '%-30s %9s %9s %9s %9s %20s\n' "" "f32, ms" "images/s" "bf16, ms" "images/s" "processor, ms: both"
row() {
    [ -n "${best[$2.f32.best_ms]:-}" ] || return 0
    awk -v name="$1" -v f="${best[$2.f32.best_ms]}" -v b="${best[$2.bf16.best_ms]}" -v n="$batch" \
        -v pf="${best[$2.f32.processor_ms]}" -v pb="${best[$2.bf16.processor_ms]}" \
        'BEGIN { printf "%-30s %9.1f %9.0f %9.1f %9.0f %10.1f %9.1f\n", name, f, n / f * 1e3, b, n / b * 1e3, pf, pb }'
}
row "fshard" ours
row "PyTorch $torch channels_last" channels_last
row "PyTorch $torch default" default
if [ -n "$torch" ]; then
    for type in f32 bf16; do
        for field in best_ms processor_ms; do
            awk -v type=$type -v field=$field -v ours="${best[ours.$type.$field]}" -v a="${best[channels_last.$type.$field]}" \
                -v b="${best[default.$type.$field]}" 'BEGIN {
                peer = a < b ? a : b
                printf "%s by %s: %.2f times the faster of PyTorch'\''s; asked: at least 1: %s\n", type,
                    (field == "best_ms" ? "the clock" : "processor time"), peer / ours, (peer >= ours ? "met" : "MISSED") }'
        done
    done
fi
"$bin/train_step" memory "$model" f32 "$pixels" "$batch"
"$bin/train_step" memory "$model" bf16 "$pixels" "$batch"
if [ -n "${FSHARD_BENCH_PROFILE:-}" ]; then
    for type in f32 bf16; do
        echo && echo "$type:" && "$bin/train_step" profile "$model" $type "$pixels" "$batch" "$steps"
    done
fi
