/* ranks_agree.h - what the ranks of one run agree on in the loop: when to stop, what was measured, that they
 * are of one run at all.
 *
 * `communicator` is NULL in a run of one process: then everything is as this process says, and nothing costs
 * anything.
 *
 * Every rank has its own network, loader and optimizer, and takes the same decisions, because it has the same
 * numbers: gradients and loss are means over the ranks (backend_join), metrics are sums. Rank 0 alone writes
 * and speaks; the others warn, by name.
 *
 * Norms: each rank has its own running statistics in training, of its own batches, as under PyTorch's
 * DistributedDataParallel, where those of rank 0 replace the others' in each forward pass. Here they do so
 * before an evaluation, which comes to the same: rank 0's are never touched by another's, and theirs are used
 * nowhere but in evaluation. Rank 0's are saved.
 *
 * A sample that is skipped (--on-error skip) counts in its rank's mean alone: the gradient is the mean over
 * ranks of the means over what each has, as DistributedDataParallel's is.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_RANKS_AGREE_H
#define FSHARD_TRAINER_SESSION_RANKS_AGREE_H

#include "trainer/backend/backend.h"
#include "trainer/ranks/communicator.h"
#include "trainer/report/metrics.h"

/* Every rank says how it stands: FSH_OK, a failure, FSH_ERR_INTERRUPTED. All go on, or none: returns FSH_OK
 * where all are well, mine where that is none; else FSH_ERR_INTERRUPTED (the signal then counts as come here
 * too), or FSH_ERR_SYSTEM: another rank has failed, or ended. With several ranks a signal that came to this
 * process counts as mine. */
FshStatus ranks_agree(Communicator *communicator, FshStatus mine, FshError *error);
/* True where this process alone decides by signals. */
bool ranks_interrupted(const Communicator *communicator);

/* FSH_ERR_SYSTEM where a rank has ended or failed: what a device gives then may be worth nothing. */
FshStatus ranks_check_there(Communicator *communicator, FshError *error);

/* After a failure: where a rank has ended, that is what to say, whatever a library makes of it. */
void ranks_explain(Communicator *communicator, FshError *error);

/* Becomes the sum over the ranks. */
FshStatus ranks_sum_metrics(Communicator *communicator, Metrics *metrics, FshError *error);
/* Becomes the greatest of all ranks'. */
FshStatus ranks_max_count(Communicator *communicator, uint64_t *count, FshError *error);
FshStatus ranks_sum_count(Communicator *communicator, uint64_t *count, FshError *error);

/* FSH_ERR_USAGE: not all ranks have given the same text, which stands for what they were started with. */
FshStatus ranks_check_same(Communicator *communicator, const char *text, FshError *error);

/* Rank 0's running statistics, and whatever else its norms keep, come to all. */
FshStatus ranks_share_buffers(Communicator *communicator, State *state, const Graph *graph, FshError *error);

/* The message of a failure that rank 0 tells too, or that is told by the rank it happened to: not worth a
 * line. */
extern const char ranks_told_elsewhere[];
/* This rank's message becomes that, if rank 0 tells the same: on ranks other than 0. */
void ranks_leave_to_first(const Communicator *communicator, FshError *error);

#endif
