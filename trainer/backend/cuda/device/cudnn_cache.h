/* cudnn_cache.h - cuDNN plans that are built once: shared by the layers of one shape, and kept on disk for
 * the next start.
 *
 *   CudnnPlan *described = …;                        // cudnn_graph.h, not built
 *   const CudnnPlan *plan;
 *   status = cudnn_cache_get(cache, &described, &policy, &trial, &plan, error);
 *   …                                                // plan is the cache's, good until cudnn_cache_release
 *
 * Plans take long to build, and 2 ms each to load: so they are loaded and built together, cudnn_cache_want
 * for each, cudnn_cache_build on several threads, then cudnn_cache_get as above, which finds them there;
 * trials, which need the GPU for themselves, are made there, one at a time.
 *
 * A plan's key is one line of text: machine (library, driver's build and card), the pattern with its shapes
 * and types, the policy. On disk each plan is a file of its own, FOLDER/HASH-OF-KEY.cudnn: the key, the time
 * of one run and the engine, a checksum, cuDNN's JSON. A file that is torn, damaged or of another key counts
 * as absent and is replaced; a folder that cannot be written is noted once (cudnn_cache_warning) and does no
 * harm. Any number of processes may share a folder.
 *
 * Of processes that miss the same plans at the same time, as the ranks of a first start do, one builds and
 * times them, and the others take them from the disk when it is done: otherwise each would choose others by
 * chance, and the slowest rank would set the pace. From cudnn_cache_build to cudnn_cache_settle the one holds
 * a lock in the folder (flock on .timing-lock). Where there are no locks, or after CUDNN_CACHE_WAIT_SECONDS,
 * each process builds its own.
 *
 * What nobody uses stays, for the next who asks, as long as there are not too many of them: evaluation of
 * whole images meets sizes without end.
 *
 * Threads: one drives a cache; cudnn_cache_build has others of its own, each with a cuDNN handle. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_DEVICE_CUDNN_CACHE_H
#define FSHARD_TRAINER_BACKEND_CUDA_DEVICE_CUDNN_CACHE_H

#include <stdbool.h>

#include "trainer/backend/cuda/device/cudnn_graph.h"

typedef struct CudnnCache CudnnCache;

typedef struct CudnnCacheCounts {
    uint64_t built;  /* by cuDNN, from the heuristics' proposals */
    uint64_t loaded; /* from disk */
    uint64_t shared; /* asked for again */
} CudnnCacheCounts;

/* Where several candidates are tried: see cudnn_plan_choose. Workspace is allocated for the trial alone. */
typedef struct CudnnTrial {
    void *const *data;
    cudaStream_t stream;
} CudnnTrial;

enum { CUDNN_PLANS_KEPT = 1000, CUDNN_CACHE_WAIT_SECONDS = 180 };
/* Makes a cache. machine: without a line break. folder: where plans are kept on disk, made when the first is
 * written; NULL: they live in memory alone. kept: the number of plans above which cudnn_cache_build forgets
 * those that nobody uses and nobody has asked for since the last one; CUDNN_PLANS_KEPT but in tests.
 * FSH_ERR_MEMORY. */
FshStatus cudnn_cache_new(CudnnCache **cache, const char *machine, const char *folder, size_t kept,
                          FshError *error);
void cudnn_cache_free(CudnnCache **cache);
/* Sets the number of threads that load and build, and the stream of the cuDNN handles that they make;
 * without the call there is one thread, with the device of each plan. The current CUDA device must be the
 * one that the plans are for. */
void cudnn_cache_set_threads(CudnnCache *cache, int threads, cudaStream_t stream);
/* Notes a plan for cudnn_cache_build to build. Takes *described in any case. timed: whether cudnn_cache_get
 * will bring a trial. */
FshStatus cudnn_cache_want(CudnnCache *cache, CudnnPlan **described, const CudnnPolicy *policy, bool timed,
                           FshError *error);
/* Loads what was wanted and builds what is not on disk, or waits for another process that does.
 * cudnn_cache_get tells if a plan could not be built. */
FshStatus cudnn_cache_build(CudnnCache *cache, FshError *error);
/* Lets other processes go on that wait for plans: those of cudnn_cache_build are timed and on the disk. */
void cudnn_cache_settle(CudnnCache *cache);
/* Sets *plan to the plan of a pattern: the one that is there, or one that is built now. Takes *described in
 * any case. trial may be NULL: then the first candidate is taken. Each plan that is given is released once,
 * or goes with the cache. */
FshStatus cudnn_cache_get(CudnnCache *cache, CudnnPlan **described, const CudnnPolicy *policy,
                          const CudnnTrial *trial, const CudnnPlan **plan, FshError *error);
/* Sets *milliseconds_ret to what cudnn_cache_remember has kept; returns false if there is nothing. The times
 * are of what competes with a plan, and lie on disk as the plans' times do, so that the next start chooses
 * alike. what: one line, all that the time depends on but the machine. */
bool cudnn_cache_recall(const CudnnCache *cache, const char *what, double *milliseconds_ret);
void cudnn_cache_remember(CudnnCache *cache, const char *what, double milliseconds);
/* Releases a plan of cudnn_cache_get; NULL is fine. */
void cudnn_cache_release(CudnnCache *cache, const CudnnPlan *plan);
/* Returns how many plans were built, loaded and shared. Only tests ask: a plan itself does not tell. */
CudnnCacheCounts cudnn_cache_counts(const CudnnCache *cache);
/* Returns why plans are not kept on disk; NULL: they are, or no folder was given. */
const char *cudnn_cache_warning(const CudnnCache *cache);

#endif
