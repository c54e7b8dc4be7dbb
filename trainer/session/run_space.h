/* run_space.h - computes the disk space that a run's files take, before it begins.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_RUN_SPACE_H
#define FSHARD_TRAINER_SESSION_RUN_SPACE_H

#include "trainer/session/session.h"

typedef struct RunSpace {
    uint64_t checkpoint_bytes, weights_bytes; /* of one file of each kind */
    uint64_t weights_count;                   /* last, best, average, --checkpoint-hist's */
    /* the largest at any moment: a file and its replacement exist side by side for a moment */
    uint64_t total_bytes;
} RunSpace;

/* Returns the disk space that the run takes. Sizes are those of the tensors and a bound of the small
 * header. */
RunSpace run_space_needed(const Session *session, const TrainOptions *options);

/* Checks that the folder, which must exist, has that much space. The files of an earlier run count as free,
 * since they are replaced. FSH_ERR_SYSTEM: there is too little, and the message says how much is needed and
 * how much there is; with options->force it is only a warning on the session's console. Limits that the file
 * system does not report (quotas, some file systems in user space) are not seen. */
FshStatus run_space_check(Session *session, const TrainOptions *options, const char *folder, FshError *error);

#endif
