# shellcheck shell=bash
# Sourced on a lent machine, in the repository's root, by what scripts/device_bundle.sh has packed. Sets $gpu, the bundle's folder, what programs
# and tests find their files by, and two functions.
gpu=$PWD/.gpu
export gpu OUT=${OUT:-/tmp/out} LIBRARIES_BEFORE=${LD_LIBRARY_PATH:-} # PyTorch's own libraries are before cuDNN's of the machine
folder_of() { ldconfig -p | awk -v name="$1" '$1 == name { sub("/[^/]*$", "", $NF); print $NF; exit }'; }
LD_LIBRARY_PATH=$gpu/lib:$gpu/needed:$(folder_of libcudnn.so.9):$(folder_of libnccl.so.2):/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH FSHARD_PLUGINS=$gpu/lib FSHARD_SOURCE=$PWD FSHARD_BIN=$gpu/bin FSHARD_BENCH_PLANS=/tmp/plans GOMP_SPINCOUNT=1000
export FSHARD_STOP=$gpu/tests/libfshard-test-stop.so
mkdir -p /tmp/plans /tmp/tests "$OUT"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader

# check SECONDS NAME [COMMAND…]: runs a test, .gpu/tests/NAME unless a command is given; its output lies in /tmp/tests.
check() {
    local seconds=$1 name=$2 begin=$SECONDS status=0
    shift 2
    [ $# -gt 0 ] || set -- "$gpu/tests/$name"
    timeout "$seconds" "$@" >"/tmp/tests/$name.txt" 2>&1 || status=$?
    printf '%-28s rc %d  %d s  %s\n' "$name" $status $((SECONDS - begin)) "$(grep -aE 'PASSED|FAILED' "/tmp/tests/$name.txt" | tail -n 1)"
    [ $status = 0 ] || [ $status = 77 ] || { grep -a "^ERROR\|line [0-9]*: error" "/tmp/tests/$name.txt"; tail -n 8 "/tmp/tests/$name.txt"; } | cut -c1-200
}

# step MODEL TYPE PIXELS BATCH STEPS [FUSIONS]: images/s of train_step, without these fusions.
step() {
    local without=${6:-}
    printf '%-18s %s %s %s %s  ' "$1" "$2" "$3" "$4" "${without:+without $without}"
    FSHARD_BENCH_NO_FUSE=$without timeout 100 "$gpu/bin/train_step" time "$1" "$2" "$3" "$4" "$5" cuda 2>&1 |
        sed -n -e 's/.*"images_per_second": \([0-9.]*\).*/\1/p' -e '/^train_step: /p'
}
