#!/usr/bin/env bash
# prepare.sh PHOTOS SMALL SHARDS: photographs to a packed dataset, on as many nodes as Slurm gives; all three on a disk that the nodes share.
# Two arrays with a job behind each. PARTS (8) is their length; other variables of sbatch (SBATCH_PARTITION, SBATCH_TIMELIMIT …) count too.
#
# A part ends with 1 where images were damaged, which stops nothing: hence afterany. A part that has failed is found by the job behind its array:
# fresize does what is missing, and fpack --merge names the parts that are to be packed again.
set -euo pipefail
[ $# -eq 3 ] || { echo "usage: prepare.sh PHOTOS SMALL SHARDS" >&2; exit 2; }
photos=$1 small=$2 shards=$3 parts=${PARTS:-8}

# submit AFTER OPTIONS… COMMAND: prints the id of the job. AFTER: the job that must have ended; "": none.
submit() {
    local after=$1
    sbatch --parsable ${after:+--dependency=afterany:$after} "${@:2:$#-2}" --wrap "${!#}"
}
quoted() { printf '%q ' "$@"; }
resize=$(submit "" --job-name=resize --array="1-$parts" "$(quoted fresize --part auto --max-size 160 "$photos" "$small")")
whole=$(submit "$resize" --job-name=resize-rest "$(quoted fresize --max-size 160 "$photos" "$small")")
pack=$(submit "$whole" --job-name=pack --array="1-$parts" "$(quoted fpack --part auto --split 0.1 "$small" "$shards")")
merge=$(submit "$pack" --job-name=merge "$(quoted fpack --merge "$shards")")
echo "jobs $resize, $whole, $pack, $merge: the last one makes $shards"
