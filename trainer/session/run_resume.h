/* run_resume.h - finds a run's checkpoint and goes on from it.
 *
 * A run goes on with the options that decide its result (deciding_options.h). How the images of an update
 * are dealt out may change: as long as ranks x batch size x accumulation is the same, every update takes
 * the same images, and the learning rate is the same, since both count updates. What then differs is told:
 * batch norm sees other batches.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_RUN_RESUME_H
#define FSHARD_TRAINER_SESSION_RUN_RESUME_H

#include "trainer/checkpoint/run_state.h"
#include "trainer/session/session.h"

enum { CHECKPOINT_VERSION = 2 }; /* of its notes */

/* How the images of an update are dealt out. */
typedef struct RunShape {
    uint64_t ranks, batch,
        accumulation; /* batch: images of a rank in a step; accumulation: steps of an update */
    uint64_t steps;   /* of an epoch */
} RunShape;

/* Returns the shape of the run that the session is for. */
RunShape run_shape(const Session *session);

/* Returns the images of an update. */
uint64_t run_shape_images(const RunShape *shape);

/* Returns the shape of the run that has left the notes of a checkpoint. A batch or steps of 0 are not known:
 * an earlier version has left them, which did not note what it chose. */
RunShape run_shape_noted(const json_t *notes);

/* Writes the path of the checkpoint that --resume means to buffer, or "" to begin anew ("auto" and no
 * checkpoint, or no OUTPUT, as --dry-run may have none). FSH_ERR_USAGE, FSH_ERR_MEMORY: the path is too
 * long. FSH_ERR_NOT_FOUND: there is no such file, and "auto" was probably meant; run_resume looks for
 * others. */
FshStatus run_resume_find(const TrainOptions *options, char *buffer, size_t buffer_bytes, FshError *error);
/* Makes the options those of a session that goes on from the checkpoint: without --weights, whose place its
 * own take, and with run_batch and run_ranks of the run that has left it. Leaves these where it cannot be
 * read: run_resume says why. */
void run_resume_take(const char *path, TrainOptions *options);
/* Returns whether the checkpoint lies in this folder, by whatever path: its run then goes on there, and
 * nothing in the folder may be replaced. */
bool run_resume_lies_in(const char *checkpoint, const char *folder);

/* Reads `state` and the session's State from the checkpoint at path, and sets *before_ret to the shape
 * that the run had. Where the steps of an update are others, state counts the new ones; one that was begun
 * is begun anew, and the images that it had taken count twice in the epoch's mean loss. A session whose
 * network is only foreseen (--dry-run) has no State, and gets none. FSH_ERR_MISMATCH: it is from a run with
 * other options or another number of images in an update (the message says what would fit), another dataset,
 * network or optimizer. */
FshStatus run_resume(const char *path, Session *session, const TrainOptions *options, RunState *state,
                     RunShape *before_ret, FshError *error);

/* Prints where the run goes on, or that it has ended, and what differs from before. */
void run_resume_tell(Session *session, const char *path, const RunState *state, const RunShape *before);

#endif
