# shellcheck shell=bash
# slurm_nodes.sh - a Slurm of two nodes, n1 and n2, on this machine: munged, slurmctld and two slurmd of its own, in a mount namespace where
# the names of the nodes are known. Sourced by the tests of Slurm, in place of common.sh, with the test's own arguments.
# shellcheck source=tests/cluster/common.sh
if [ -z "${FSHARD_SLURM_INSIDE:-}" ]; then
    for program in munged slurmctld slurmd srun; do
        command -v "$program" >/dev/null || [ -x "/usr/sbin/$program" ] || {
            echo "$(basename "$0"): left out: no $program" >&2
            exit 77
        }
    done
    [ "$(id -u)" -eq 0 ] || {
        echo "$(basename "$0"): left out: a Slurm of its own needs root" >&2
        exit 77
    }
    FSHARD_SLURM_INSIDE=1 exec unshare -m --propagation private "$0" "$@"
fi
. "$(dirname "$0")/common.sh"
PATH=$PATH:/usr/sbin

# Names, keys and programs of this Slurm alone.
chmod 755 "$work"
mkdir -p "$work/etc" "$work/munge" "$work/state" "$work/spool.n1" "$work/spool.n2"
{ cat /etc/hosts; echo "127.0.0.1 n1 n2"; } >"$work/etc/hosts"
mount --bind "$work/etc/hosts" /etc/hosts || leave_out "nothing may be mounted here"
head -c 1024 /dev/urandom >"$work/munge/key"
chmod 700 "$work/munge"
chmod 600 "$work/munge/key"
mkdir -p "$work/run"
chmod 755 "$work/run"
munged --foreground --key-file="$work/munge/key" --socket="$work/run/socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed" --force --num-threads=2 >"$work/munged.out" 2>&1 &
pids+=($!)
host=$(hostname -s)
first=$((22000 + RANDOM % 5000))
cat >"$work/etc/slurm.conf" <<CONF
ClusterName=fshard
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$first
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$work/run/socket,cred_expire=5
JobRequeue=1
SlurmUser=root
SlurmdUser=root
SlurmctldPidFile=$work/state/slurmctld.pid
SlurmdPidFile=$work/state/slurmd.%n.pid
SlurmdSpoolDir=$work/spool.%n
StateSaveLocation=$work/state
SlurmctldLogFile=$work/state/slurmctld.log
SlurmdLogFile=$work/state/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((first + 1)) CPUs=2 State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((first + 2)) CPUs=2 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
CONF
export SLURM_CONF=$work/etc/slurm.conf
# slurmd starts a slurmstepd for each step, which outlives it: those that have this configuration are ours.
clean_hosts() {
    local environment pid
    for environment in $(grep -lsz "^SLURM_CONF=$SLURM_CONF\$" /proc/[0-9]*/environ || true); do
        pid=${environment#/proc/}
        pid=${pid%/environ}
        case $(cat "/proc/$pid/comm" 2>/dev/null || true) in slurmstepd*) kill -9 "$pid" 2>/dev/null || true ;; esac
    done
    umount /etc/hosts 2>/dev/null || true
}
for _ in $(seq 50); do [ -S "$work/run/socket" ] && break || sleep 0.1; done
slurmctld -D >"$work/slurmctld.out" 2>&1 &
pids+=($!)
for node in n1 n2; do
    slurmd -D -N "$node" >"$work/slurmd.$node.out" 2>&1 &
    pids+=($!)
done
up=0
for _ in $(seq 100); do
    up=$(sinfo -h -t idle -o %D 2>/dev/null | head -n 1 || true)
    [ "${up:-0}" = 2 ] && break || sleep 0.2
done
[ "${up:-0}" = 2 ] || {
    tail -n 5 "$work"/state/*.log "$work"/*.out >&2
    leave_out "the two nodes do not come up"
}

# wait_until SECONDS COMMAND…
wait_until() {
    local until=$((SECONDS + $1))
    shift
    while ! "$@"; do [ $SECONDS -lt $until ] || return 1; sleep 0.1; done
}
has_gone() { [ -z "$(squeue -h -j "$1" -t PENDING,RUNNING,COMPLETING,SUSPENDED -o %T 2>/dev/null)" ]; }
