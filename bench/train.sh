#!/usr/bin/env bash
# The training step on one GPU beside PyTorch's, in turn, in one run: the table of README. Synthetic batches in device memory.
# usage: ./run bench train [JOB…]     JOB: MODEL:PIXELS:BATCH of the table below, resnet50:160:512 for one; default: all
# FSHARD_BENCH_PEER=0 leaves PyTorch out; best, the default, runs its two best ways, a compiled network with CUDA graphs and the step of
# a compiled network captured by hand (compiling takes minutes); all runs every way: eager, compiled and captured alone, too.
# FSHARD_BENCH_COMPILE=N: compiles the peer's networks of all jobs first, N at a time, which the rows then find in the cache.
# FSHARD_BENCH_ROUNDS: 2. FSHARD_BENCH_PYTHON: one that has torch [python3].
# floor: images/s of a step whose every node runs at the rate of a copy or of a large product (profile.h), and our share of it.
# GiB: what the step was given (ours: its memory plan; theirs: max_memory_allocated), and all that is gone of the device since its context
# was made: loaded kernels, workspaces, what an allocator holds.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "$0")")/.."
bin=${FSHARD_BENCH_BIN:-build/bin} python=${FSHARD_BENCH_PYTHON:-python3} rounds=${FSHARD_BENCH_ROUNDS:-2} peer=${FSHARD_BENCH_PEER:-best}
# model:pixels:batch  our type  steps  at least  aim: images/s, or times the peer's
jobs=(
    "resnet50:160:512 f16 30 1.4x 20000"
    "resnet50:224:256 f16 30 1.4x 10000"
    "resnet18:160:1024 f16 40 1.4x 60000"
    "resnet50:160:64 f16 100 1.4x 16000"
    "resnet18:160:64 f16 200 1.4x 1.5x"
    "resnet50d:160:512 f16 20 1x 1.2x"
    "resnet50d:160:64 f16 100 1x 1.2x"
    "seresnet50:160:512 f16 20 1x 1.2x"
    "seresnet50:160:64 f16 100 1x 1.2x"
    "resnext50_32x4d:160:512 f16 20 1x 1.2x"
    "resnext50_32x4d:160:64 f16 100 1x 1.2x"
    "vit_small_patch16:160:512 bf16 20 1x 1.2x"
    "vit_small_patch16:160:64 bf16 100 1x 1.2x"
    "vit_small_patch16:224:256 bf16 20 1x 1.2x"
    "vit_tiny_patch16:160:1024 bf16 20 1x 1.2x"
    "vit_small_patch8:160:128 bf16 20 1x 1.2x"
    "deit_small_patch16:224:256 bf16 20 1x 1.2x"
    "simplevit_small_patch16:160:512 bf16 20 1x 1.2x"
    "convnext_atto:160:512 bf16 20 1x 1.2x"
    "convnext_atto:160:64 bf16 100 1x 1.2x"
    "convnext_tiny:160:256 bf16 20 1x 1.2x"
    "convnext_tiny:160:64 bf16 60 1x 1.2x"
    "convnextv2_atto:160:256 bf16 20 1x 1.2x"
    "resnet34d:160:512 f16 20 1x 1.2x"
    "xresnet18:128:512 f16 20 1x 1.2x"
    "xresnet50:160:256 f16 20 1x 1.2x"
    "resnet18d:160:1024 f16 20 1x 1.2x"
    "airbench94:32:2000 f16 50 1x 1.2x"
    "airbench94:32:64 f16 200 1x 1.2x"
    "convnextv2_atto:160:64 bf16 100 1x 1.2x"
    "deit_small_patch16:224:64 bf16 60 1x 1.2x"
    "resnet34d:160:64 f16 100 1x 1.2x"
    "vit_small_patch8:160:64 bf16 40 1x 1.2x"
    "vit_tiny_patch8:128:256 bf16 40 1x 1.2x"
    "vit_tiny_patch8:128:64 bf16 100 1x 1.2x"
    "xse_resnext50:160:256 f16 20 1x 1.2x"
    "xse_resnext50:160:64 f16 60 1x 1.2x"
    "airbench96:32:1000 f16 50 1x 1.2x"
    "airbench96:32:64 f16 200 1x 1.2x"
    "pyramidnet:32:64 f16 50 1.4x 9000"
    "pyramidnet:32:768 f16 10 1.4x 12500"
    "toynet:28:1024 f16 200 1.4x 450000"
    "conv8:28:2048 f16 400 1.4x 6000000"
    "nafnet:256:16 bf16 20 1.4x 1000"
)
best_ways="bf16.reduce bf16.compilegraph" # type.mode
every_way="bf16.eager fp16.eager bf16.compile bf16.reduce bf16.graph bf16.compilegraph"
. bench/jobs.bash
check_jobs "${jobs[*]%% *}" "$@"
[ -n "${FSHARD_BENCH_BIN:-}" ] || cmake --build build --target train_step fshard-cuda >/dev/null
export FSHARD_BENCH_PLANS=${FSHARD_BENCH_PLANS:-$(mktemp -d)}
# Without a GPU: what is missing, once.
"$bin/train_step" time conv8 f16 28 2048 1 cuda >/dev/null || exit 1
has_torch=1
if [ "$peer" = 0 ] || ! "$python" -c 'import torch' 2>/dev/null; then has_torch=; fi
field() { sed -n -e "s/.*\"$1\": \([0-9.]*\).*/\1/p"; }
# bar OURS THEIRS BAR: "16000 met"; of a bar that is a ratio, without the peer, "1.3x -".
bar() {
    awk -v ours="$1" -v theirs="$2" -v bar="$3" 'BEGIN {
        is_ratio = bar ~ /x$/
        if (ours == 0 || (is_ratio && theirs == 0)) print bar " -"
        else print bar ((is_ratio ? ours / theirs : ours) >= bar + 0 ? " met" : " MISSED") }'
}
printf '%-18s %-4s %10s %10s %5s %13s   %-12s %10s %13s %6s %15s %15s\n' job type "images/s" floor "of it" "GiB plan,gone" "PyTorch" "images/s" \
    "GiB peak,gone" ratio "at least" aim
wanted=()
for job in "${jobs[@]}"; do
    if [ $# = 0 ] || [[ " $* " == *" ${job%% *} "* ]]; then wanted+=("$job"); fi
done
if [ -n "$has_torch" ] && [ -n "${FSHARD_BENCH_COMPILE:-}" ]; then
    export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$(mktemp -d)}
    for job in "${wanted[@]}"; do
        IFS=: read -r model pixels batch <<<"${job%% *}"
        for try in $best_ways; do echo "$model ${try%.*} ${try#*.} $pixels $batch 2"; done
    done | TORCHINDUCTOR_COMPILE_THREADS=4 xargs -P "$FSHARD_BENCH_COMPILE" -L 1 timeout 400 "$python" bench/train_torch.py >/dev/null 2>&1 || true
fi
status=0
for job in "${wanted[@]}"; do
    read -r name type steps least aim <<<"$job"
    IFS=: read -r model pixels batch <<<"$name"
    ours=0 theirs=0 way=- memory=- their_memory=- floor=0
    for ((round = 0; round < rounds; round++)); do
        line=$("$bin/train_step" time "$model" "$type" "$pixels" "$batch" "$steps" cuda) || line=
        speed=$(field images_per_second <<<"$line")
        if awk "BEGIN { exit !(${speed:-0} > $ours) }"; then
            ours=$speed floor=$(field floor_ms <<<"$line") memory="$(field planned_gib <<<"$line") $(field memory_gib <<<"$line")"
        fi
        [ -n "$has_torch" ] || continue
        for try in $(if [ "$peer" = all ]; then echo "$every_way"; else echo "$best_ways"; fi); do
            line=$("$python" bench/train_torch.py "$model" "${try%.*}" "${try#*.}" "$pixels" "$batch" "$steps" 2>/dev/null) || line=
            speed=$(field images_per_second <<<"$line")
            if awk "BEGIN { exit !(${speed:-0} > $theirs) }"; then
                theirs=$speed way=$try their_memory="$(field memory_gib <<<"$line") $(field taken_gib <<<"$line")"
            fi
        done
    done
    floor=$(awk "BEGIN { if (${floor:-0} > 0) printf \"%.0f\", $batch / ${floor:-0} * 1000; else print 0 }")
    [ "$ours" != 0 ] || status=1 # a row of zeros: the program has said why
    printf '%-18s %-4s %10.0f %10d %5s %13s   %-12s %10.0f %13s %6s %15s %15s\n' "$name" "$type" "$ours" "$floor" \
        "$(awk "BEGIN { if ($floor > 0) printf \"%.0f%%\", 100 * $ours / $floor; else printf \"-\" }")" "$memory" "$way" "$theirs" "$their_memory" \
        "$(awk "BEGIN { if ($theirs > 0) printf \"%.2f\", $ours / $theirs; else printf \"-\" }")" "$(bar "$ours" "$theirs" "$least")" \
        "$(bar "$ours" "$theirs" "$aim")"
done
exit $status
