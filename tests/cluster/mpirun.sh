#!/usr/bin/env bash
# mpirun of Open MPI and of MPICH over two hosts, which are network namespaces of this machine. See common.sh.
# shellcheck source=tests/cluster/common.sh
. "$(dirname "$0")/common.sh"
open=$(command -v mpirun.openmpi || true)
mpich=$(command -v mpirun.mpich || true)
if [ -z "$open$mpich" ] && command -v mpirun >/dev/null; then
    case $(mpirun --version 2>&1) in
    *"Open MPI"* | *OpenRTE*) open=$(command -v mpirun) ;;
    *HYDRA*) mpich=$(command -v mpirun) ;;
    esac
fi
[ -n "$open$mpich" ] || leave_out "no mpirun, neither Open MPI's nor MPICH's"
make_hosts
make_data
train_by_hand
if [ -n "$open" ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    over=("$open" --mca plm_rsh_agent "$work/agent" --mca oob_tcp_if_include cable --host h1:2,h2:2 -np 4)
    show in_host 1 "${over[@]}" -x MASTER_ADDR=h1 "$bin/ftrain" "${options[@]}" "$work/shards" "$work/openmpi" ||
        fail "Open MPI: $(cat "$work/said")"
    compare openmpi
    # Without the address each host says what to give.
    ! show in_host 1 "${over[@]}" "$bin/ftrain" "${options[@]}" "$work/shards" "$work/no_address" ||
        fail "Open MPI without an address: exit status 0"
    grep -q "mpirun -x MASTER_ADDR=HOST" "$work/said" || fail "Open MPI without an address: $(cat "$work/said")"
fi
if [ -n "$mpich" ]; then
    show in_host 1 "$mpich" -launcher ssh -launcher-exec "$work/agent" -iface cable -hosts h1:2,h2:2 -np 4 -genv MASTER_ADDR h1 \
        "$bin/ftrain" "${options[@]}" "$work/shards" "$work/mpich" || fail "MPICH: $(cat "$work/said")"
    compare mpich
fi
keep_transcript
