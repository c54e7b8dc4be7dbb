/* session.h - everything that a run needs: dataset, plan, network, loaders. It is opened and checked in one
 * call, before anything is written.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_SESSION_H
#define FSHARD_TRAINER_SESSION_SESSION_H

#include "trainer/data/loader.h"
#include "trainer/session/host_team.h"
#include "trainer/session/network.h"
#include "trainer/session/ranks_agree.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/report/class_counts.h"
#include "trainer/report/label_scores.h"
#include "trainer/report/console.h"

/* All fields are set by session_open, except where noted. */
typedef struct Session {
    Console console;
    /* For the end of the line of the device: why no GPU computes; NULL: nothing to say. */
    const char *why_cpu;
    Communicator *communicator; /* to the other ranks; NULL: one process, or --dry-run */
    RankPlace place;            /* of this rank */
    TrainingData data;
    TrainPlan plan;
    Network network;
    /* --dry-run: why memory does not hold the network, which is only foreseen then; status FSH_OK: it
     * does. */
    FshError refusal;
    Loader *train, *evaluation; /* NULL if the plan has no such split */
    PixelSource *sources[2];    /* of train, evaluation; NULL likewise; loaded by session_cache */
    HostTeam team;              /* that loads them; without a communicator unused */
    const char *weights;        /* --weights, borrowed; NULL: none */
    WeightsOrigin origin;       /* of --weights */
    ClassMap classes;           /* the dataset's classes among those of --weights; count 0: --weights names
                                * none */
    const char *kept_head;      /* the last layer, if it was not read from --weights; or NULL */
    bool weights_normalise;     /* mean and deviation are those of --weights */
    uint64_t told_of[2];        /* problems already reported, of train and evaluation: written by
                                * session_tell_problems */
    uint64_t problems_told;     /* their sum, written likewise */
    /* Of the last session_evaluate, over all ranks, which writes them: of classes, of the pixels of
     * masks, and of several labels; else empty. */
    ClassCounts class_counts;
    ClassCounts
        *set_counts; /* of masks of several sets: those of each, [data.sets.count]; else NULL. Owned. */
    LabelScores label_scores;
    /* Of the last session_evaluate of each weights, over all ranks, which writes them: [data.sets.count], of
     * each set alone; NULL before. Owned. */
    Metrics *set_metrics[NETWORK_AVERAGED + 1];
} Session;

/* The purpose of a session. */
typedef enum SessionUse {
    SESSION_TRAIN,
    SESSION_EVALUATE, /* no training split; --weights must fit whole */
    SESSION_LOAD,     /* neither network nor loaders; session_loader_options gives what loaders are made
                       * from */
} SessionUse;

/* Opens everything that the options name, together with the other ranks if the environment says that there
 * are some (rank_place.h). Returns when all ranks have come this far; if one rank fails, all fail.
 * With --dry-run rank 0 alone opens a session, as one of all ranks and without them; a network that memory
 * does not hold is then no failure, but session->refusal.
 * given->shards is the dataset; given->place is ignored and found here. Parameters are drawn from the seed
 * and then read from given->weights if set. On failure nothing is held. The session must not move afterwards:
 * its parts point at each other. */
FshStatus session_open(Session *session, const TrainOptions *given, SessionUse use, FshError *error);
/* Frees everything; a zeroed session is fine. */
void session_close(Session *session);

/* Fills options with what a split's loader is made from. They point into *sizes_ret, which the caller frees
 * with free(). */
FshStatus session_loader_options(const Session *session, bool training, LoaderOptions *options,
                                 uint32_t **sizes_ret, FshError *error);

/* Open the sources of the splits that there are, as the plan says, and the loaders that render from them.
 * Parts of session_open. */
FshStatus session_open_sources(Session *session, SessionUse use, FshError *error);
FshStatus session_open_loaders(Session *session, FshError *error);

/* Prints what was decided, on the first rank; on that of each host a warning of its device. */
void session_describe(Session *session);
/* Prints, for a run that begins: that its recipe is for weights of others, or that random ones are kept,
 * where there is no --weights; and that its average of weights ends near what it began with. */
void session_describe_begin(Session *session);

/* Brings the splits into memory if the plan says so, and prints how much is there; call it before the first
 * batch. FSH_ERR_SYSTEM: the disk fails, or memory may not be locked. FSH_ERR_MEMORY: the GPU's or the host's
 * memory is too small. FSH_ERR_INTERRUPTED. It fails on all ranks or on none. */
FshStatus session_cache(Session *session, FshError *error);
/* Find out what the splits will take; check that there is room, bring them there and print it. Parts of
 * session_cache. */
FshStatus session_cache_measure(Session *session, FshError *error);
FshStatus session_cache_load(Session *session, FshError *error);

/* Gives the network's first_weight its values, of images spread evenly over the training split: all ranks get
 * the same. Call it where a run begins with weights that were drawn. FSH_ERR_CORRUPT and such: an image that
 * cannot be used (plan.skip_bad false). FSH_ERR_MEMORY, FSH_ERR_INTERRUPTED. */
FshStatus session_find_first_weight(Session *session, FshError *error);

/* Calls network_write_step with the current batch of the training loader. Files that the device's decoder
 * refuses are decoded here. A file that cannot be decoded here either is skipped (batch->valid_count becomes
 * less), or is the failure (plan.skip_bad false). */
FshStatus session_write_step(Session *session, const Batch *batch, const StepRates *rates, FshError *error);

/* Warns of each sample that a loader has skipped since the last call. */
void session_tell_problems(Session *session);
/* Returns how many samples the loaders have skipped. */
uint64_t session_problem_count(const Session *session);

/* Called with each evaluated batch; may be NULL. */
typedef struct SessionVisitor {
    FshStatus (*visit)(void *context, const Batch *batch, const Evaluated *evaluated, FshError *error);
    void *context;
} SessionVisitor;

/* Evaluates the whole split once, in stored order, counting every sample once; those of classes also in
 * session->class_counts, of several labels in session->label_scores, and of several sets, each in batches of
 * its own, in session->set_metrics. With several ranks each evaluates
 * its share: all get the metrics and counts of the whole, and visitor sees the samples of this rank.
 * FSH_ERR_INTERRUPTED on a signal. */
FshStatus session_evaluate(Session *session, NetworkWeights weights, const SessionVisitor *visitor,
                           Metrics *metrics, FshError *error);

/* Returns the key of a sample of the split and sets *bytes_ret; not NUL-terminated, and it points into the
 * dataset. Returns "" of no bytes if it cannot be read. */
const char *session_key(const FshSplit *split, uint64_t sample, size_t *bytes_ret);

#endif
