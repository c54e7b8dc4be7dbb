#!/usr/bin/env bash
# examples/slurm, as they are, in a Slurm of two nodes (slurm_nodes.sh): photographs to a dataset by two arrays and the jobs behind them, a part that
# fails and is done again, and a training that is put back into the queue.
# shellcheck source=tests/cluster/slurm_nodes.sh
. "$(dirname "$0")/slurm_nodes.sh"
examples=$(cd "$here/../../examples/slurm" && pwd)
export PATH=$bin:$PATH
cd "$work"
"$bin/make-photos" --count 40 --edge-min 300 --edge-max 400 photos >/dev/null 2>&1 || fail "make-photos"
head -c 300 /dev/zero >photos/"$(ls photos | head -n 1)"/damaged.jpg # parts that leave an image out end with 1, and stop nothing
ended() { ! squeue -h -o %i | grep -q .; }

PARTS=4 show "$examples/prepare.sh" photos small shards || fail "prepare.sh: $(cat said)"
wait_until 200 ended || fail "the jobs do not end: $(squeue)"
show fverify --decode shards || fail "fverify: $(cat said; cat slurm-*.out)"
fresize -q --max-size 160 photos small.alone || [ $? -eq 1 ] || fail "fresize alone"
mkdir alone && (cd alone && ln -s ../small.alone small && fpack -q --split 0.1 small shards) || fail "fpack alone"
for file in shards/*.fshard; do cmp "$file" "alone/$file" || fail "$file is not what one machine packs"; done
echo "$(basename "$0"): prepare.sh: the shards that one machine makes, byte for byte"

# A part that never ran: the merge names it, and it alone is done again.
show sbatch --wait --array=1-2 --wrap 'fpack --part $SLURM_ARRAY_TASK_ID/3 --split 0.1 small shards2' >/dev/null || true
show sbatch --wait --output merge.out --wrap 'fpack --merge shards2' && fail "a part is missing, and the merge went through"
cat merge.out >>transcript
grep -q 'pack again part 3 of 3 (fpack --part 3/3 ...)' merge.out || fail "the merge says: $(cat merge.out)"
show sbatch --wait --wrap 'fpack --part 3/3 --split 0.1 small shards2' || true
show sbatch --wait --output merge.out --wrap 'fpack --merge shards2' || fail "merge: $(cat merge.out)"
for file in shards/*.fshard; do cmp "$file" "shards2/$(basename "$file")" || fail "$file"; done
echo "$(basename "$0"): the merge names the part that is missing"

export TRAIN_ON="--device cpu --gpus 2 --jobs 1"
long=(--model conv8 --train-crop-size 32 --epochs 40 --batch-size 2 --seed 1 --val-interval 20 --checkpoint-interval 20)
job=$(sbatch --parsable --nodes 2 --overcommit --output train.log "$examples/train.sbatch" shards trained "${long[@]}")
wait_until 90 test -s trained/checkpoint.safetensors || fail "no checkpoint: $(cat train.log)"
show scancel --signal TERM "$job"
goes_on() { grep -q 'goes on from' train.log; }
wait_until 60 goes_on || fail "not put back: $(squeue -j "$job") $(cat train.log)"
wait_until 150 ended || fail "the job does not end: $(cat train.log)"
job=$(sbatch --parsable --nodes 2 --overcommit --output whole.log "$examples/train.sbatch" shards whole "${long[@]}")
wait_until 150 ended || fail "the job that is not stopped does not end: $(cat whole.log)"
cmp whole/last.safetensors trained/last.safetensors || fail "train.sbatch: other weights than without a stop"
echo "$(basename "$0"): train.sbatch: put back, the same weights as without a stop"
keep_transcript
