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
    [tools/job]="common tar formats imaging"
    [tools/resize]="common tar formats imaging tools/job"
    [tools/pack]="common tar formats imaging tools/job"
    [tools/verify]="common tar formats imaging tools/job"
    [trainer/graph]="common"
    [trainer/models]="common trainer/graph"
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
    [trainer/plan]="common imaging trainer/graph trainer/models trainer/optim trainer/ranks trainer/backend
        trainer/data trainer/report trainer/checkpoint"
)
may[trainer/session]="${may[trainer/plan]} formats trainer/plan"
may[trainer/loop]="${may[trainer/session]} trainer/session"
may[trainer/inference]="${may[trainer/loop]} trainer/loop"
may[trainer]="${may[trainer/inference]} trainer/inference"

breaches=$(
    git ls-files '*.c' '*.h' '*.cu' '*.cuh' | grep -v -e '^tests/' -e '^bench/' -e '^examples/' | while read -r file; do
        folder=${file%/*}
        [ -n "${may[$folder]+x}" ] || { echo "$folder: a folder that scripts/layout.sh does not know" && continue; }
        { grep -h '^#include "' "$file" || true; } | sed 's/#include "\(.*\)".*/\1/' | while read -r header; do
            [[ " $folder $(echo ${may[$folder]}) " == *" ${header%/*} "* ]] || echo "$file: $folder/ may not include $header"
        done
    done
    git ls-files '*.c' '*.h' '*.cu' '*.cuh' | sed 's:.*/::' | sort | uniq -d | sed 's/$/: two files have this name/'
    git ls-files '*.c' '*.h' '*.cu' '*.cuh' | { LC_ALL=C.UTF-8 xargs grep -nE '^.{111}' || true; } | sed 's/:\([0-9]*\):.*/:\1: longer than 110 columns/'
)
if [ "${1:-}" = --headers ]; then
    breaches+=$(echo && git ls-files 'common/*.h' 'tar/*.h' 'formats/*.h' 'imaging/*.h' 'tools/*.h' 'trainer/*.h' | grep -v -e "^$cuda/" -e image_tiff | while read -r header; do
        ${CC:-cc} -std=c11 -D_GNU_SOURCE -DFSHARD_VERSION='""' -I. -fsyntax-only -x c "$header" 2>&1 | grep -m1 'error' || true
    done)
fi
[ -z "${breaches//[[:space:]]/}" ] || { echo "$breaches" && exit 1; }
echo "layout: $(git ls-files '*.c' '*.h' '*.cu' '*.cuh' | wc -l) files keep the table"
