/* run_space.h - the room on disk that a run's files take: known from its plan, before it begins.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_RUN_SPACE_H
#define FSHARD_TRAINER_SESSION_RUN_SPACE_H

#include "trainer/session/session.h"

typedef struct RunSpace {
    uint64_t checkpoint_bytes, weights_bytes; /* of one file of each kind */
    uint64_t weights_count;                   /* last, best, average, --checkpoint-hist's */
    /* at most at any moment: the file that replaces another stands beside it for a moment */
    uint64_t total_bytes;
} RunSpace;

/* Returns what the run will take. A size is that of the tensors and more than that of the header, which is
 * small. */
RunSpace run_space_needed(const Session *session, const TrainOptions *options);

/* Looks whether folder, which is there, has so much room, the files of an earlier run counted as free, for
 * they are replaced. FSH_ERR_SYSTEM: it has not, and the message says how much is needed and how much there
 * is; with options->force that is a warning on the session's console. What a file system does not tell
 * (quotas, some in user space) is not seen. */
FshStatus run_space_check(Session *session, const TrainOptions *options, const char *folder, FshError *error);

#endif
