# shellcheck shell=bash
# common.sh - what the scripts of tests/cluster share. Each starts ftrain on two hosts of two ranks by a cluster's own
# launcher, on this machine, and compares the weights with those of two hosts by hand: they must have the same bytes.
#
# usage: X.sh [BIN]      BIN: the folder of ftrain, fpack and make-photos; else $FSHARD_BIN, else build/bin
# Exit 77: the launcher is not installed, or may not be tried here; a line says which.
# FSHARD_TRANSCRIPT=FILE: the commands and what they say are appended to it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$(cd "${1:-${FSHARD_BIN:-$here/../../build/bin}}" && pwd)
work=$(mktemp -d)
pids=()

leave_out() {
    echo "$(basename "$0"): left out: $*" >&2
    exit 77
}
fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}
# What a script starts in the background, it ends.
clean_up() {
    local pid
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    if declare -F clean_hosts >/dev/null; then clean_hosts; fi
    rm -rf "$work"
}
trap clean_up EXIT

# show COMMAND… runs it, and keeps it and its output for the transcript.
show() {
    local status=0
    printf '$ %s\n' "${*//$work\//}" >>"$work/transcript"
    "$@" >"$work/said" 2>&1 || status=$?
    sed "s|$work/||g; s|$bin/||g" "$work/said" >>"$work/transcript"
    [ "$status" -eq 0 ] || printf '(exit status %d)\n' "$status" >>"$work/transcript"
    return "$status"
}
keep_transcript() {
    [ -z "${FSHARD_TRANSCRIPT:-}" ] || { cat "$work/transcript"; echo; } >>"$FSHARD_TRANSCRIPT"
}

make_data() {
    "$bin/make-photos" --count 40 --edge-min 32 --edge-max 48 "$work/photos" >/dev/null 2>&1 || fail "make-photos"
    "$bin/fpack" --split 0.2 "$work/photos" "$work/shards" >/dev/null 2>&1 || fail "fpack"
    options=(--device cpu --jobs 1 --model conv8 --train-crop-size 32 --epochs 3 --batch-size 2 --seed 1)
}

# A port that nobody listens on, and whose next one is free too.
free_port() {
    local port
    while port=$((20000 + RANDOM % 10000)); do
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && ! (exec 3<>"/dev/tcp/127.0.0.1/$((port + 1))") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
}

# The run to compare with: two hosts by hand, on the loopback address.
train_by_hand() {
    local port
    port=$(free_port)
    "$bin/ftrain" --nnodes 2 --node-rank 1 --master-addr 127.0.0.1 --master-port "$port" --gpus 2 "${options[@]}" \
        "$work/shards" "$work/by_hand" >"$work/by_hand.log" 2>&1 &
    pids+=($!)
    "$bin/ftrain" --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port "$port" --gpus 2 "${options[@]}" \
        "$work/shards" "$work/by_hand" >"$work/by_hand0.log" 2>&1 || fail "by hand: $(cat "$work/by_hand0.log")"
}

# compare NAME: the weights of $work/NAME are those of the run by hand.
compare() {
    cmp "$work/by_hand/last.safetensors" "$work/$1/last.safetensors" || fail "$1: other weights than by hand"
    echo "$(basename "$0"): $1: two hosts of two ranks, the same weights as by hand"
}

# Makes two hosts, h1 and h2, as network namespaces with their own names; in_host N COMMAND… runs on one of them, with
# its own /dev/shm.
make_hosts() {
    [ "$(id -u)" -eq 0 ] || leave_out "two hosts as network namespaces need root"
    command -v ip >/dev/null && command -v unshare >/dev/null || leave_out "no ip or no unshare"
    space=fh$$
    clean_hosts() {
        for i in 1 2; do
            ip netns del "$space-h$i" 2>/dev/null || true
            rm -rf "/etc/netns/$space-h$i"
        done
    }
    local i
    for i in 1 2; do
        ip netns add "$space-h$i" 2>/dev/null || leave_out "network namespaces may not be made"
        mkdir -p "/etc/netns/$space-h$i"
        printf '127.0.0.1 localhost\n10.98.0.1 h1\n10.98.0.2 h2\n' >"/etc/netns/$space-h$i/hosts"
        ip -n "$space-h$i" link set lo up
    done
    ip -n "$space-h1" link add cable type veth peer name cable netns "$space-h2"
    for i in 1 2; do
        ip -n "$space-h$i" addr add "10.98.0.$i/24" dev cable
        ip -n "$space-h$i" link set cable up
    done
    # What mpirun starts its daemons with, in place of ssh: agent [-x…] HOST COMMAND…
    cat >"$work/agent" <<AGENT
#!/bin/bash
while [ "\${1#-}" != "\$1" ]; do shift; done
host=\$1
shift
exec ip netns exec "$space-\$host" unshare -m -u -i bash -c 'mount -t tmpfs tmpfs /dev/shm; hostname '"\$host"'; exec bash -c "\$*"' agent "\$@"
AGENT
    chmod +x "$work/agent"
}
in_host() {
    local host=$1
    shift
    "$work/agent" "h$host" "$(printf '%q ' "$@")"
}
