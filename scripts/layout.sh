#!/usr/bin/env bash
# Holds the house: which folder may include which, file names unique in the tree, public headers that compile alone, lines of at most
# 110 columns, no program that includes another. Prints each breach and exits 1. With --headers the headers are compiled, too.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
cuda=trainer/backend/cuda
# A folder, and those that it may include beside itself. A program or a library is not named by what lies below it.
declare -A may=(
    [common]=""
    [tar]="common"
    [formats]="common tar"
    [imaging]="common"
    [stores]="common formats"
    [tools/job]="common tar formats imaging"
    [tools/resize]="common tar formats imaging stores tools/job"
    [tools/pack]="common tar formats imaging stores tools/job"
    [tools/verify]="common tar formats imaging stores tools/job"
    [trainer/graph]="common"
    [trainer/models]="common trainer/graph"
    [trainer/onnx]="common trainer/graph"
    [trainer/optim]="common trainer/graph"
    [trainer/ranks]="common"
    [trainer/backend]="common imaging trainer/graph trainer/ranks"
    [trainer/backend/cpu]="common trainer/graph trainer/ranks trainer/backend"
    [$cuda/kernels]="trainer/graph trainer/backend"
    [$cuda/device]="common trainer/graph trainer/backend $cuda/kernels"
    [$cuda/lowering]="common trainer/graph trainer/ranks trainer/backend $cuda/kernels $cuda/device"
    [$cuda]="common trainer/graph trainer/ranks trainer/backend $cuda/kernels $cuda/device $cuda/lowering"
    [trainer/data]="common formats imaging trainer/backend"
    [trainer/report]="common formats imaging trainer/graph trainer/backend"
    [trainer/checkpoint]="common trainer/graph trainer/models trainer/optim trainer/backend trainer/report"
    [trainer/plan]="common imaging stores trainer/graph trainer/models trainer/optim trainer/ranks trainer/backend
        trainer/data trainer/report trainer/checkpoint"
)
may[trainer/library]="${may[trainer/plan]} formats trainer/plan"
may[trainer/session]="${may[trainer/plan]} formats trainer/plan"
may[trainer/loop]="${may[trainer/session]} trainer/session"
may[trainer/inference]="${may[trainer/loop]} trainer/loop trainer/onnx"
may[trainer/study]="common trainer/checkpoint trainer/plan trainer/report"
may[trainer]="${may[trainer/inference]} trainer/inference trainer/study"

sources() { git ls-files -z '*.c' '*.h' '*.cu' '*.cuh'; }
breaches=$(
    sources | grep -zv -e '^tests/' -e '^bench/' -e '^examples/' | while IFS= read -rd '' file; do
        folder=${file%/*}
        [ -n "${may[$folder]+x}" ] || { echo "$folder: a folder that scripts/layout.sh does not know" && continue; }
        # "path" and <path>: of the second kind those that begin with a folder of ours
        sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*(["<])([^">]*)[">].*/\1\2/p' "$file" | while read -r header; do
            [[ $header != "<"* || -e ${header:1} ]] || continue
            header=${header:1}
            [[ " $folder $(echo ${may[$folder]}) " == *" ${header%/*} "* ]] || echo "$file: $folder/ may not include $header"
        done
    done
    sources | tr '\0' '\n' | sed 's:.*/::' | sort | uniq -d | sed 's/$/: two files have this name/'
    sources | { LC_ALL=C.UTF-8 xargs -0 grep -nE '^.{111}' || true; } | sed 's/:\([0-9]*\):.*/:\1: longer than 110 columns/'
)
if [ "${1:-}" = --headers ]; then
    # not those of CUDA and libvips, which need their own headers: the build compiles them
    # shellcheck disable=SC2016 # of the inner shell
    breaches+=$(echo && sources | grep -z '\.h$' | grep -zv -e "^$cuda/" -e '/image_tiff.h$' -e '/vips_colour.h$' | xargs -0 -n 40 -P "$(nproc)" bash -c '
        for header; do
            told=$(${CC:-cc} -std=c11 -D_GNU_SOURCE -DFSHARD_VERSION="\"\"" -I. -fsyntax-only -x c "$header" 2>&1) ||
                echo "$header: does not compile alone: $(grep -m1 error <<<"$told" || head -n 1 <<<"$told")"
        done' bash)
fi
[ -z "${breaches//[[:space:]]/}" ] || { echo "$breaches" && exit 1; }
echo "layout: $(git ls-files '*.c' '*.h' '*.cu' '*.cuh' | wc -l) files keep the table"
