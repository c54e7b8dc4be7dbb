#!/usr/bin/env bash
# Packs what was built here for a lent machine with a GPU, which then builds nothing: device time goes to runs alone.
# usage: scripts/device_bundle.sh SCRIPT [TEST…]     SCRIPT: what is to run there; it begins with `. .gpu/use.sh`. TEST: programs of build/tests
# Makes .gpu.tar.xz of SCRIPT (as .gpu/run.sh), programs, plugins, tests, and the libraries that they need and that machine lacks; git ignores it.
# There, with .gpu.tar.xz in `carry`: mkdir -p .gpu && tar xJf .gpu.tar.xz -C .gpu && bash .gpu/run.sh 2>&1 | tee $OUT/log
# Build first: ninja -C build train_step cuda_tests. FSHARD_BUNDLE_PLUGIN: another libfshard-cuda.so, which goes into .gpu/other/, to time both in turn.
set -euo pipefail
[ $# -ge 1 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
script=$(readlink -f "$1") other=${FSHARD_BUNDLE_PLUGIN:+$(readlink -f "$FSHARD_BUNDLE_PLUGIN")}
shift
cd "$(dirname "$(readlink -f "$0")")/.."
rm -rf .gpu
mkdir -p .gpu/bin .gpu/lib .gpu/tests .gpu/needed
cp "$script" .gpu/run.sh
cp scripts/device_use.sh .gpu/use.sh
cp build/bin/* .gpu/bin/
cp -L build/lib/libfshard-cuda.so build/lib/libfshard-cpu.so build/lib/libfshard.so.0 .gpu/lib/
for test; do cp "build/tests/$test" .gpu/tests/; done
cp build/tests/libfshard-test-stop.so .gpu/tests/ # which device_ranks_test loads into a run
if [ -n "$other" ]; then
    mkdir .gpu/other
    cp .gpu/lib/* .gpu/other/
    cp -L "$other" .gpu/other/libfshard-cuda.so
fi
find .gpu -type f \( -name '*.so*' -o -perm -u+x \) ! -name '*.sh' -exec strip -s {} +
# That machine has CUDA, cuDNN, NCCL and the compiler's libraries. libvips and what it brings is for programs that do not run there.
find .gpu/bin .gpu/lib .gpu/tests -type f -exec ldd {} + 2>/dev/null | awk '/=> \// { print $3 }' | sort -u |
    grep -E '/lib(OpenCL|cmocka|deflate|dnnl|gomp|jansson|jpeg|lmdb|xxhash|zstd)\.' | xargs cp -L -t .gpu/needed
# Each test of kernels has the kernels in it: a dictionary that spans them all stores them once.
tar c -C .gpu . | xz --lzma2=preset=4,dict=300MiB >.gpu.tar.xz
echo "device_bundle: $(du -h .gpu.tar.xz | cut -f1) in .gpu.tar.xz"
