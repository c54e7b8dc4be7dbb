/* verdict.h - the sentence that sums up a run: what bounded its speed, or why it diverged.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_REPORT_VERDICT_H
#define FSHARD_TRAINER_REPORT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/graph/graph.h"

typedef struct SpeedFacts {
    double step_seconds;   /* that the run's steps took */
    double waited_percent; /* share of that time spent waiting for the loader */
    bool cuda;
    DataType compute_type;
    int workers, cores; /* workers of the loader; cores that this rank may use */
    bool raw;           /* the samples are pixels, so nothing is decoded */
    bool cache_gpu;     /* the samples lie in the GPU's memory */
    bool cache_pixels;  /* the samples lie decoded in the host's memory */
} SpeedFacts;

/* Writes what bounded the speed, and what would help that the run does not do yet; of steps of a few seconds,
 * where the wait for the first batches weighs most, that they were too short to tell. */
void verdict_of_speed(const SpeedFacts *facts, char *text, size_t text_bytes);

typedef struct DivergenceFacts {
    double loss;      /* of the step; finite: the gradients were not */
    uint64_t skipped; /* updates in a row that were skipped because of that */
    uint64_t epoch, step;
    double rate, peak_rate; /* learning rate of the step, and the highest of the run */
    const char *samples;    /* the keys of its samples, shortened */
    const char *folder;
    bool saved; /* diverged.safetensors and diverged.json are in folder */
} DivergenceFacts;

/* Writes what happened, at which samples, what to do, and where the state is. */
void verdict_of_divergence(const DivergenceFacts *facts, char *text, size_t text_bytes);

#endif
