/* cpu_update.h - what the update's files share: cpu_update.c (the run of an update, and every optimizer but
 * one), cpu_update_muon.c (that one's passes), cpu_update_sam.c (what comes before an update with sam). */
#ifndef FSHARD_TRAINER_BACKEND_CPU_CPU_UPDATE_H
#define FSHARD_TRAINER_BACKEND_CPU_CPU_UPDATE_H

#include "trainer/backend/cpu/cpu_internal.h"
#include "trainer/backend/cpu/cpu_muon.h"

enum { UPDATE_CHUNK = 2048 }; /* six arrays of it are 48 KiB */

/* A parameter. */
typedef struct Segment {
    float *w, *g;
    float *slots[OPTIMIZER_SLOT_COUNT]; /* NULL: not kept */
    int64_t count, first_chunk, chunk_count;
    bool decays;
    double rate, decay; /* factors of the learning rate and, where it decays, of the weight decay */
    double trust;       /* of this run: lars, lamb */
    int64_t matrix;     /* of Muon's: its place in CpuMuon; -1: the rest's */
    double scale, rows; /* of Muon's: of the learning rate; of the matrix */
} Segment;

/* A buffer with slots. */
typedef struct FollowedBuffer {
    float *value;
    float *slots[OPTIMIZER_SLOT_COUNT]; /* NULL: not kept */
    int64_t count;
} FollowedBuffer;

typedef struct UpdatePlan {
    Segment *segments;
    FollowedBuffer *buffers;
    int64_t segment_count, buffer_count, chunk_count, matrix_count;
    CpuMuon *muon; /* NULL: another optimizer */
} UpdatePlan;

/* Sums of squares that each chunk leaves. */
enum { OF_GRADIENT, OF_WEIGHT, OF_DIRECTION, SUM_COUNT };

struct UpdateRun;
/* Works on the elements first..first + count of the segment, which are the chunk; room: UPDATE_CHUNK floats
 * of this thread. */
typedef void (*ChunkWork)(const struct UpdateRun *run, const Segment *segment, int64_t first, int64_t count,
                          int64_t chunk, float *room);

/* One run. */
typedef struct UpdateRun {
    const CpuStep *step;
    const UpdatePlan *plan;
    const Optimizer *optimizer;
    const CpuUpdateKernels *kernels;
    int64_t updates;  /* before this one */
    double rate;      /* learning rate */
    float factor;     /* from what was accumulated to the gradient that the update takes */
    bool joined;      /* the gradient contains what was accumulated */
    bool measures;    /* the gradient's norm is taken in passing */
    bool first_micro; /* of a run that accumulates */
    bool looks_ahead; /* after this update */
    float ema_share;  /* 1 - decay of this update */
    AdamNumbers adam;
    double *sums; /* [SUM_COUNT][chunk_count] */
    ChunkWork work;
    ChunkWork matrix_work; /* in place of work, on chunks of Muon's matrices; NULL: none */
} UpdateRun;

/* Works on all chunks, divided over the threads. */
void cpu_update_pass(UpdateRun *run, ChunkWork work);
/* Returns where the chunks leave sums of one kind, [chunk_count]; and the sum over a parameter's chunks. */
double *cpu_update_sums(const UpdateRun *run, int which);
double cpu_update_segment_sum(const UpdateRun *run, const Segment *segment, int which);
/* Returns the sum over all chunks of OF_GRADIENT. */
double cpu_update_gradient_square(const UpdateRun *run);
/* Returns whether the loss stops the update. With a loss scale it does not: the gradient tells, and the scale
 * must learn of it. */
bool cpu_update_loss_is_no_number(const CpuStep *step);
/* Returns what the update takes for the gradient of a chunk: the memory where it lies, or the room of this
 * thread. */
const float *cpu_update_gradient(const UpdateRun *run, const Segment *segment, int64_t first, int64_t count,
                                 int64_t chunk, float *room);
/* Do what stands around the weights of a chunk: before they move, lookahead's and the average's copies begin;
 * after that they follow. */
void cpu_update_begin_chunk(const UpdateRun *run, const Segment *segment, int64_t first, int64_t count);
void cpu_update_end_chunk(const UpdateRun *run, const Segment *segment, int64_t first, int64_t count);

/* Moves the momentum of a matrix of Muon's, and leaves its step: matrix_work of the pass that moves the rest.
 */
void cpu_update_matrix_step(const UpdateRun *run, const Segment *segment, int64_t first, int64_t count,
                            int64_t chunk, float *room);
/* Perturbs the parameters by this run's gradient (Optimizer.sam_rho), and keeps what they and the buffers
 * were. Where loss or gradient is no number the parameters stay. */
void cpu_update_perturb(UpdateRun *run);
/* Puts back what the last run has kept, if it perturbed. */
void cpu_update_put_back(UpdateRun *run);

/* Makes the steps orthogonal and moves the matrices. */
FshStatus cpu_update_matrices(UpdateRun *run, FshError *error);

#endif
