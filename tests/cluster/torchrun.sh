#!/usr/bin/env bash
# Two torchrun, --nnodes 2, on this machine. See common.sh.
# shellcheck source=tests/cluster/common.sh
. "$(dirname "$0")/common.sh"
command -v torchrun >/dev/null || leave_out "no torchrun"
trial() { torchrun --nnodes 1 --nproc_per_node 1 --master_port "$(free_port)" --no_python true; }
trial >"$work/said" 2>&1 || leave_out "torchrun does not run: $(tail -n 1 "$work/said")"
make_data
train_by_hand
port=$(free_port)
node() {
    torchrun --nnodes 2 --node_rank "$1" --nproc_per_node 2 --master_addr 127.0.0.1 --master_port "$port" --no_python \
        "$bin/ftrain" "${options[@]}" "$work/shards" "$work/torchrun"
}
node 1 >"$work/second.log" 2>&1 &
pids+=($!)
printf '$ torchrun --nnodes 2 --node_rank {0,1} --nproc_per_node 2 --master_addr 127.0.0.1 --master_port %s --no_python ftrain …\n' "$port" \
    >>"$work/transcript"
show node 0 || fail "torchrun: $(cat "$work/said" "$work/second.log")"
keep_transcript
compare torchrun
