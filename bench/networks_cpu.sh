#!/usr/bin/env bash
# A training step of many networks on the CPU beside PyTorch's, in turn: a row of a table for each, the best of all rounds.
# usage: bench/networks_cpu.sh TYPE [MODEL:PIXELS:BATCH…]     TYPE: f32 or bf16
# FSHARD_BENCH_BIN [build/bin], FSHARD_BENCH_PYTHON [python3; with torch, torchvision, timm], ROUNDS [2], STEPS [3], LAYOUTS
# [channels_last,default; compiled too, which takes minutes]: of PyTorch, the faster counts. Threads: as many as cores it may use (taskset).
# floor: by the clock, of a step whose every node runs at the rate of a copy or of a large product (profile.h), as measured; what fits a cache can be faster.
set -euo pipefail
export LC_ALL=C
[ $# -ge 1 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
cd "$(dirname "$(readlink -f "$0")")/.."
bin=${FSHARD_BENCH_BIN:-build/bin} python=${FSHARD_BENCH_PYTHON:-python3} rounds=${ROUNDS:-2} steps=${STEPS:-3} layouts=${LAYOUTS:-channels_last,default}
type=$1
shift
[ $# -gt 0 ] || set -- resnet18d:64:16 resnet50d:64:16 seresnet50:64:16 resnext50_32x4d:64:16 convnext_atto:96:16 convnextv2_atto:96:16 \
    vit_tiny_patch16:96:16 deit_tiny_patch16:96:16
OMP_NUM_THREADS=$(nproc)
export OMP_NUM_THREADS
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
echo "| network | px | batch | ours, ms: processor | clock | PyTorch, ms: processor | clock | by | ratio: processor | clock | floor, ms | share of it |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
for job in "$@"; do
    IFS=: read -r model pixels batch <<<"$job"
    : >"$lines"
    for ((round = 0; round < rounds; round++)); do
        "$bin/train_step" time "$model" "$type" "$pixels" "$batch" "$steps" | sed 's/^{/{"layout": "ours", /' >>"$lines"
        "$python" bench/train_cpu_torch.py "$model" "$type" "$layouts" "$pixels" "$batch" "$steps" >>"$lines"
    done
    "$python" - "$lines" "$model" "$pixels" "$batch" <<'PYTHON'
import json
import sys

best = {}
for line in map(json.loads, open(sys.argv[1])):
    for field in ("processor_ms", "best_ms", "floor_ms")[: 3 if line["layout"] == "ours" else 2]:
        key = line["layout"], field
        best[key] = min(best.get(key, 1e30), line[field])
layouts = {layout for layout, _ in best} - {"ours"}
peer = min(layouts, key=lambda layout: best[layout, "processor_ms"])
clock = min(best[layout, "best_ms"] for layout in layouts)
ours = best["ours", "processor_ms"], best["ours", "best_ms"]
print(f"| {sys.argv[2]} | {sys.argv[3]} | {sys.argv[4]} | {ours[0]:.0f} | {ours[1]:.0f} | {best[peer, 'processor_ms']:.0f} | {clock:.0f} | {peer} | "
      f"{best[peer, 'processor_ms'] / ours[0]:.2f} | {clock / ours[1]:.2f} | {best['ours', 'floor_ms']:.0f} | "
      f"{100 * best['ours', 'floor_ms'] / ours[1]:.0f} % |", flush=True)
PYTHON
done
