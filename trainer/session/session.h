/* session.h - all that a run holds: dataset, plan, network, loaders; opened in one go and checked before
 * anything is written.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_SESSION_H
#define FSHARD_TRAINER_SESSION_SESSION_H

#include "trainer/data/loader.h"
#include "trainer/session/network.h"
#include "trainer/session/ranks_agree.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/report/class_counts.h"
#include "trainer/report/console.h"

typedef struct Session {
    Console console;
    Communicator *communicator; /* with the other ranks; NULL: one process */
    TrainingData data;
    TrainPlan plan;
    Network network;
    Loader *train, *evaluation; /* NULL where the plan has no such split */
    PixelStore *files_store;    /* with plan.decode_gpu, else NULL */
    ResidentSplit resident[2]; /* cache_gpu, cache_pixels: of train, evaluation; empty before session_cache */
    const char *weights;       /* --weights, borrowed; NULL: none */
    WeightsOrigin origin;      /* of --weights */
    ClassMap classes;          /* the dataset's among those that --weights name; count 0: they name none */
    const char *kept_head;     /* the last layer, where it is not that of --weights; or NULL */
    bool weights_normalise;    /* mean and deviation are those of --weights */
    uint64_t told_of[2];       /* problems of train, evaluation that were told */
    uint64_t problems_told;    /* their sum */
    ClassCounts class_counts;  /* of the last session_evaluate of classes, over all ranks; else empty */
} Session;

/* What the session is for. */
typedef enum SessionUse {
    SESSION_TRAIN,
    SESSION_EVALUATE, /* no training split; --weights must fit whole */
    SESSION_LOAD,     /* neither network nor loaders: what loaders would be made from */
} SessionUse;

/* Opens everything that the options given name, with the other ranks where the environment says that there
 * are some (rank_place.h): returns when all have come this far, and fails on all where it fails on one. place
 * is found here; given->shards is the dataset. Parameters are drawn from the seed, then read from
 * given->weights if given. On failure nothing is held. The session must not move: its parts point at each
 * other. */
FshStatus session_open(Session *session, const TrainOptions *given, SessionUse use, FshError *error);
/* Frees what it owns; zeroed is fine. */
void session_close(Session *session);

/* What a split's loader is made from. *sizes_ret: owned by the caller (free); options point into it. */
FshStatus session_loader_options(const Session *session, bool training, LoaderOptions *options,
                                 uint32_t **sizes_ret, FshError *error);

/* Says what has been decided. */
void session_describe(Session *session);

/* Brings the splits into memory if the plan wants that, and says how much of them is there; before the first
 * batch. FSH_ERR_SYSTEM: the disk fails, or memory may not be locked. FSH_ERR_MEMORY: the GPU's or the host's
 * is too small. FSH_ERR_INTERRUPTED. It fails on all ranks or on none. */
FshStatus session_cache(Session *session, FshError *error);

/* network_write_step with a batch of the training loader, the one in hand. Files that the device's decoder
 * refuses are decoded here, and what cannot be decoded here either is skipped (batch->valid_count is less
 * then), or is the failure (plan.skip_bad). */
FshStatus session_write_step(Session *session, const Batch *batch, double learning_rate, FshError *error);

/* Warns of each sample that a loader has skipped since the last call. */
void session_tell_problems(Session *session);
uint64_t session_problem_count(const Session *session);

/* What looks at each batch that was evaluated; may be NULL. */
typedef struct SessionVisitor {
    FshStatus (*visit)(void *context, const Batch *batch, const Evaluated *evaluated, FshError *error);
    void *context;
} SessionVisitor;

/* Evaluates the whole split once, in stored order: every sample counted once, those of classes in
 * session->class_counts too. With several ranks each takes its share, all have the metrics and counts of the
 * whole, and visitor sees the samples of this rank. FSH_ERR_INTERRUPTED on a signal. */
FshStatus session_evaluate(Session *session, NetworkWeights weights, const SessionVisitor *visitor,
                           Metrics *metrics, FshError *error);

/* The key of a sample of the split; points into the dataset, no NUL at its end. "" of no bytes where it
 * cannot be read. */
const char *session_key(const FshSplit *split, uint64_t sample, size_t *bytes_ret);

#endif
