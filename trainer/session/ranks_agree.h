/* ranks_agree.h - agreements between the ranks of a run: when to stop, what was measured.
 *
 * `communicator` is NULL in a run of one process: then each function returns at once, with this process's own
 * values.
 *
 * Every rank has its own network, loader and optimizer, and takes the same decisions, because it has the same
 * numbers: gradients and loss are means over the ranks (backend_join), metrics are sums. Only rank 0 writes
 * and prints; the others print warnings, with their rank.
 *
 * Norms: in training each rank keeps running statistics of its own batches. PyTorch's DistributedDataParallel
 * replaces them by those of rank 0 in each forward pass; here that happens before an evaluation, with the
 * same result, since running statistics are used only in evaluation and rank 0 never takes those of others.
 * Rank 0's are saved. With --sync-bn they are the same bits on all ranks anyhow.
 *
 * A skipped sample (--on-error skip) changes only its rank's mean: the gradient is the mean over ranks of
 * each rank's mean, as in DistributedDataParallel.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_RANKS_AGREE_H
#define FSHARD_TRAINER_SESSION_RANKS_AGREE_H

#include "trainer/ranks/communicator.h"
#include "trainer/report/metrics.h"

/* Exchanges the statuses of all ranks: FSH_OK, a failure, or FSH_ERR_INTERRUPTED; either all go on or none
 * does. Returns FSH_OK if all are well, and `mine` if this rank failed. Otherwise returns FSH_ERR_INTERRUPTED
 * if a rank was interrupted (the signal then counts as received here too), or FSH_ERR_PEER if another rank
 * failed or ended. With several ranks a signal that this process received counts as its status. What several
 * ranks of a host say is said by the first of them: the message of the others is ranks_told_elsewhere. */
FshStatus ranks_agree(Communicator *communicator, FshStatus mine, FshError *error);
/* Returns whether this process was interrupted; false with several ranks, which decide in ranks_agree. */
bool ranks_interrupted(const Communicator *communicator);

/* Returns FSH_ERR_PEER if a rank has ended or failed: results of the device may then be invalid. */
FshStatus ranks_check_there(Communicator *communicator, FshError *error);

/* Replaces the message of a failure by that of a rank that is lost, if one is: it is the cause, whatever a
 * library or the system says. Returns the status: FSH_ERR_PEER in place of FSH_ERR_LIBRARY and
 * FSH_ERR_SYSTEM, and FSH_ERR_INTERRUPTED if that rank was given up because of a signal, which then counts as
 * received here too. */
FshStatus ranks_explain(Communicator *communicator, FshStatus status, FshError *error);

/* Replaces metrics by their sum over the ranks. */
FshStatus ranks_sum_metrics(Communicator *communicator, Metrics *metrics, FshError *error);
/* Replace count by its maximum, or its sum, over the ranks. */
FshStatus ranks_max_count(Communicator *communicator, uint64_t *count, FshError *error);
FshStatus ranks_sum_count(Communicator *communicator, uint64_t *count, FshError *error);

/* Sets *rank_ret to the lowest rank whose `mine` is true; to the number of ranks if there is none.
 * communicator must not be NULL. */
FshStatus ranks_lowest(Communicator *communicator, bool mine, uint64_t *rank_ret, FshError *error);
/* Replaces the text by that of the lowest rank whose text is not "", on all ranks; leaves "" if there is
 * none. All of text_bytes are sent. communicator must not be NULL. */
FshStatus ranks_share_text(Communicator *communicator, char *text, size_t text_bytes, FshError *error);

/* Replaces this rank's message by ranks_told_elsewhere where another rank of its host tells the same: that a
 * rank is lost, or that one has failed and says why. Called when the rank ends, before the communicator is
 * closed, and where a rank is lost, after ranks_explain. */
void ranks_tell_once(Communicator *communicator, FshError *error);

/* Replaces this rank's message by ranks_told_elsewhere unless it speaks for its host (rank_place_speaks). For
 * failures that rank 0 reports too. */
void ranks_leave_to_first(const Communicator *communicator, FshError *error);

#endif
