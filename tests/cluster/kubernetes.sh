#!/usr/bin/env bash
# examples/kubernetes without a Kubernetes: the commands of the YAML, each with the environment of its pod, on a /data that is a folder of this test.
# FSHARD_PYTHON: a Python that has PyYAML; else python3.
# shellcheck source=tests/cluster/common.sh
. "$(dirname "$0")/common.sh"
examples=$(cd "$here/../../examples/kubernetes" && pwd)
python=${FSHARD_PYTHON:-python3}
"$python" -c 'import yaml' 2>/dev/null || leave_out "no PyYAML (Debian: python3-yaml)"
export PATH=$bin:$PATH

# of FILE EXPRESSION: prints what Python makes of the document d; a list a line each.
of() {
    "$python" -c 'import sys, yaml
d = yaml.safe_load(open(sys.argv[1]))
value = eval(sys.argv[2])
print("\n".join(map(str, value)) if isinstance(value, list) else value)' "$examples/$1" "$2"
}
# run_pod FILE EXPRESSION: runs the command, a list, with /data in the test's folder.
run_pod() {
    local command
    mapfile -t command < <(of "$1" "$2")
    "${command[@]//\/data/$work/data}"
}
container="d['spec']['template']['spec']['containers'][0]['command']"

"$bin/make-photos" --count 40 --edge-min 48 --edge-max 64 "$work/data/photos" >/dev/null 2>&1 || fail "make-photos"
completions=$(of pack.yaml "d['spec']['completions']")
[ "$(of pack.yaml "d['spec']['completionMode']")" = Indexed ] || fail "pack.yaml is no Indexed Job"
for index in $(seq 0 $((completions - 1))); do
    [ "$index" -ne 3 ] || continue
    JOB_COMPLETION_INDEX=$index run_pod pack.yaml "$container" >"$work/pod$index.log" 2>&1 || fail "pod $index: $(cat "$work/pod$index.log")"
done
! show run_pod merge.yaml "$container" || fail "pod 3 did not run, and the merge went through"
grep -q "pack again part 4 of $completions" "$work/said" || fail "the merge says: $(cat "$work/said")"
JOB_COMPLETION_INDEX=3 run_pod pack.yaml "$container" >"$work/pod3.log" 2>&1 || fail "pod 3: $(cat "$work/pod3.log")"
show run_pod merge.yaml "$container" || fail "merge: $(cat "$work/said")"
show fverify --decode "$work/data/shards" || fail "fverify: $(cat "$work/said")"
echo "$(basename "$0"): pack.yaml, merge.yaml: $completions pods, one of them late"

# Two ranks of the CPU on each node in place of eight GPUs, and a small network.
nodes=$(of trainjob.yaml "d['spec']['trainer']['numNodes']")
port=$(free_port)
train="[a for a in d['spec']['trainer']['command'] + d['spec']['trainer']['args']]"
for node in $(seq $((nodes - 1)) -1 0); do
    mapfile -t command < <(of trainjob.yaml "$train" | sed "s|/data|$work/data|; s|^resnet50\$|conv8|; s|^bf16\$|off|")
    PET_NNODES=$nodes PET_NODE_RANK=$node PET_NPROC_PER_NODE=2 PET_MASTER_ADDR=127.0.0.1 PET_MASTER_PORT=$port \
        "${command[@]}" --device cpu --jobs 1 --train-crop-size 32 --epochs 1 --batch-size 2 >"$work/node$node.log" 2>&1 &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || fail "ftrain: $(cat "$work"/node*.log)"; done
pids=()
[ -s "$work/data/run/last.safetensors" ] || fail "no weights: $(cat "$work"/node*.log)"
grep -q "ranks: 4 on $nodes hosts" "$work/node0.log" || fail "not four ranks: $(cat "$work/node0.log")"
echo "$(basename "$0"): trainjob.yaml: $nodes nodes"
keep_transcript
