#!/usr/bin/env bash
# ftrain under a Slurm of two nodes (slurm_nodes.sh): by srun, and as a job that is put back into the queue.
# shellcheck source=tests/cluster/slurm_nodes.sh
. "$(dirname "$0")/slurm_nodes.sh"
make_data
train_by_hand

show srun --nodes 2 --ntasks 4 --ntasks-per-node 2 --overcommit "$bin/ftrain" "${options[@]}" "$work/shards" "$work/srun" ||
    fail "srun: $(cat "$work/said")"
compare srun
# One task on each node, which starts its ranks itself.
show srun --nodes 2 --ntasks 2 --ntasks-per-node 1 --overcommit "$bin/ftrain" --gpus 2 "${options[@]}" "$work/shards" "$work/starters" ||
    fail "srun, a task on each node: $(cat "$work/said")"
compare starters

# A batch job that Slurm asks to stop, as it does before the time limit (--signal), and that is put back into the queue by
# an administrator: each time it goes on where it was, and ends as one that was never stopped.
long=(--device cpu --jobs 1 --model conv8 --train-crop-size 32 --epochs 60 --batch-size 2 --seed 1 --val-interval 20)
cat >"$work/job.sh" <<JOB
#!/bin/bash
#SBATCH --requeue --open-mode=append --signal=TERM@30
srun --overcommit $bin/ftrain ${long[*]} --checkpoint-interval 20 --resume auto $work/shards $work/\$1 ||
    { [ \$? -eq 75 ] && scontrol requeue \$SLURM_JOB_ID; }
JOB
submit() { sbatch --parsable --nodes 2 --ntasks 4 --ntasks-per-node 2 --overcommit --output "$work/$1.log" "$work/job.sh" "$1"; }
goes_on() { [ "$(grep -c 'goes on from' "$work/requeued.log" 2>/dev/null)" = "$1" ]; }
whole=$(submit whole)
wait_until 120 has_gone "$whole" || fail "the job that is not stopped: $(cat "$work/whole.log")"
job=$(submit requeued)
wait_until 60 test -s "$work/requeued/checkpoint.safetensors" || fail "no checkpoint: $(cat "$work/requeued.log")"
show scancel --signal TERM "$job" # the steps get it, as before the time limit, and not the script
wait_until 60 goes_on 1 || fail "not put back: $(squeue -j "$job") $(cat "$work/requeued.log")"
show scontrol requeue "$job"
wait_until 60 goes_on 2 || fail "not put back again: $(squeue -j "$job") $(cat "$work/requeued.log")"
wait_until 120 has_gone "$job" || fail "the job does not end: $(cat "$work/requeued.log")"
cmp "$work/whole/last.safetensors" "$work/requeued/last.safetensors" || fail "requeued: other weights than without a stop"
echo "$(basename "$0"): requeued: stopped twice, the same weights as without a stop"
{ printf '$ cat job.sh\n'; cat "$work/job.sh"; printf '$ cat requeued.log\n'; cat "$work/requeued.log"; } |
    grep -E -v '^(Epoch|epoch|Test| \*)' | sed "s|$work/||g; s|$bin/||g" >>"$work/transcript"
keep_transcript
