#!/usr/bin/env bash
# Runs the fuzz targets that the preset "fuzz" has built (./run test --fuzz does that first):
#   scripts/fuzz.sh [SECONDS [TARGET...]]   each target for SECONDS (60), FUZZ_JOBS (2) at a time; prints a table, exits 1
#                                           after any find
#   scripts/fuzz.sh --keep [TARGET...]      adds to tests/fuzz/corpus what reached new code in earlier runs
#   scripts/fuzz.sh --pack FOLDER           the targets and the libraries they need as FOLDER/targets.tar.gz, for a machine
#                                           with more cores and nothing installed (docs/fuzzing.md)
# Each target begins with the saved corpus (tests/fuzz/corpus), the seeds (build/fuzz/seeds) and what earlier runs found
# (build/fuzz/found); finds that crash go to build/fuzz/crashes. docs/fuzzing.md says what to do with them.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
build=${FUZZ_BUILD:-$PWD/build/fuzz}
saved=${FUZZ_CORPUS:-$PWD/tests/fuzz/corpus}
# Room for a find's claims, not for its bytes: what wants gigabytes is a find.
limits=(-timeout=20 -rss_limit_mb=3000)
export ASAN_OPTIONS=detect_leaks=${FUZZ_LEAKS:-1}:strict_string_checks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1

die() {
    echo "fuzz: $*" >&2
    exit 1
}

# run_target NAME ARGUMENTS: with the libraries that --pack put beside it.
run_target() {
    LD_LIBRARY_PATH=$build/lib "$build/tests/fuzz_$1" "${@:2}"
}

targets() {
    if [ $# -gt 0 ]; then
        printf '%s\n' "$@"
    else
        find "$build/tests" -maxdepth 1 -type f -name 'fuzz_*' ! -name fuzz_seeds -printf '%f\n' | sed 's/^fuzz_//' | sort
    fi
}

# fuzz_one TARGET SECONDS: one line of the table.
fuzz_one() {
    local target=$1 seconds=$2 log=$build/logs/$1.log options=() verdict=ok
    mkdir -p "$build/found/$target" "$build/crashes" "$build/logs"
    [ -f "tests/fuzz/$target.dict" ] && options+=("-dict=tests/fuzz/$target.dict")
    run_target "$target" "${limits[@]}" "${options[@]}" -max_total_time="$seconds" -use_value_profile=1 -reload=0 \
        -print_final_stats=1 -artifact_prefix="$build/crashes/$target-" \
        "$build/found/$target" "$saved/$target" "$build/seeds/$target" >"$log" 2>&1 || verdict=FAILED
    awk -v target="$target" -v verdict="$verdict" '
        /^stat::number_of_executed_units/ {runs = $2}
        /^stat::average_exec_per_sec/ {rate = $2}
        /^#[0-9]+/ {for (i = 1; i < NF; i++) {if ($i == "cov:") edges = $(i + 1); if ($i == "corp:") corpus = $(i + 1)}}
        /^Done [0-9]+ runs in/ {took = $5}
        END {
            split(corpus, kept, "/")
            printf "%-16s %8d %12d %10d %8d %8d  %s\n", target, took, runs, rate, edges, kept[1], verdict
        }' "$log"
    if [ "$verdict" != ok ]; then
        grep -E -m 6 'ERROR|SUMMARY|runtime error|fuzz:|Test unit written' "$log" | sed 's/^/    /' || true
        echo "    the whole log: $log"
        return 1
    fi
}

# keep_one TARGET: coverage alone decides, the smallest input for each edge. What is larger than a page is left to the seeds:
# the corpus is part of the sources.
keep_one() {
    local target=$1 fresh
    fresh=$(mktemp -d)
    mkdir -p "$saved/$target" "$build/found/$target"
    run_target "$target" "${limits[@]}" -merge=1 -use_counters=0 -use_value_profile=0 "$fresh" \
        "$saved/$target" "$build/seeds/$target" "$build/found/$target" >"$build/logs/$target-keep.log" 2>&1 ||
        die "$target: merging failed: $build/logs/$target-keep.log"
    find "$saved/$target" -type f ! -name 'find-*' -delete
    find "$fresh" -type f -size -4097c -exec cp -t "$saved/$target" {} +
    rm -rf "$fresh"
    printf '%-16s %5d inputs %8d bytes\n' "$target" "$(find "$saved/$target" -type f | wc -l)" \
        "$(find "$saved/$target" -type f -printf '%s\n' | awk '{sum += $1} END {print sum + 0}')"
}

# pack FOLDER: all but the C library, which is that of the machine they run on; without symbols: a find is played here.
pack() {
    local work
    work=$(mktemp -d)
    mkdir -p "$work/tests" "$work/lib" "$1"
    cp "$build"/tests/fuzz_* "$work/tests/"
    strip "$work"/tests/*
    for library in $(ldd "$build"/tests/fuzz_* | awk '$2 == "=>" {print $3}' | sort -u); do
        case $library in
        */libc.so* | */libm.so* | */libpthread.so* | */libdl.so* | */librt.so*) ;;
        *) cp -L "$library" "$work/lib/" ;;
        esac
    done
    tar -C "$work" -czf "$1/targets.tar.gz" tests lib
    rm -rf "$work"
    du -h "$1/targets.tar.gz"
}

case ${1:-} in # calls of this script by itself
--one)
    fuzz_one "$2" "$3"
    exit
    ;;
--keep-one)
    keep_one "$2"
    exit
    ;;
esac
[ -x "$build/tests/fuzz_seeds" ] || die "nothing is built: ./run test --fuzz"
if [ "${1:-}" = --pack ]; then
    [ $# -eq 2 ] || die "--pack takes a folder"
    pack "$2"
    exit
fi
rm -rf "$build/seeds"
run_target seeds "$build/seeds"
mkdir -p "$build/logs"
if [ "${1:-}" = --keep ]; then
    targets "${@:2}" | xargs -P "${FUZZ_JOBS:-2}" -I{} scripts/fuzz.sh --keep-one {}
    exit
fi
seconds=${1:-60}
case $seconds in
'' | *[!0-9]*) die "'$seconds' is no number of seconds" ;;
esac
for target in "${@:2}"; do
    [ -x "$build/tests/fuzz_$target" ] || die "there is no target '$target': $(targets | tr '\n' ' ')"
done
printf '%-16s %8s %12s %10s %8s %8s\n' target seconds runs 'runs/s' edges corpus
failed=0
targets "${@:2}" | xargs -P "${FUZZ_JOBS:-2}" -I{} scripts/fuzz.sh --one {} "$seconds" || failed=1
[ $failed -eq 0 ] || echo "fuzz: there are finds; the inputs are in $build/crashes"
exit $failed
