#!/usr/bin/env bash
# Random access from Python, warm, one core: python/fshard over shards and LMDB, and the module lmdb over a plain LMDB (keys as in
# BasicSR's files), in turn, on records of one size. The module's get checks nothing and gives bytes; a sample of ours is checked.
# usage: ./run bench read_python [COUNT] [BYTES] [ROUNDS]: 200,000 records of 1,024 bytes, three rounds
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(readlink -f "$0")")/.."
bin=${FSHARD_BENCH_BIN:-build/bin} count=${1:-200000} bytes=${2:-1024} rounds=${3:-3}
[[ $count =~ ^[1-9][0-9]*$ && $bytes =~ ^[1-9][0-9]*$ && $rounds =~ ^[1-9][0-9]*$ ]] || {
    echo "usage: ./run bench read_python [COUNT] [BYTES] [ROUNDS]" >&2
    exit 2
}
python=/usr/bin/python3
"$python" -c 'import numpy, lmdb' 2>/dev/null || {
    echo "bench: needs NumPy and the module lmdb: apt-get install python3-numpy python3-lmdb" >&2
    exit 1
}
[ -n "${FSHARD_BENCH_BIN:-}" ] || cmake --build build --target read_bench >/dev/null
work=$(mktemp -d /dev/shm/fshard-bench-XXXXXX)
trap 'rm -rf "$work"' EXIT
for kind in shards lmdb mdb; do
    "$bin/read_bench" make $kind "$work/$kind" "$count" "$bytes"
done
echo "$count records of $bytes bytes, in tmpfs, warm, one core; CPU time, the best of $rounds rounds"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=python taskset -c 0 "$python" bench/read_python.py "$work" "$count" "$rounds"
