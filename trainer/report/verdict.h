/* verdict.h - what is said of a run in one sentence: what bounded its speed, or why it was ended.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_REPORT_VERDICT_H
#define FSHARD_TRAINER_REPORT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/graph/graph.h"

typedef struct SpeedFacts {
    double waited_percent; /* of the steps' time, for the loader */
    bool cuda;
    DataType compute_type;
    int workers, cores; /* of the loader; that this rank may use */
    bool raw;           /* the samples are pixels: nothing is decoded */
    bool cache_gpu;     /* and lie in the GPU's memory */
    bool cache_pixels;  /* or in the host's, decoded */
} SpeedFacts;

/* What bounded the speed, and what to do about it: nothing that the run does already. */
void verdict_of_speed(const SpeedFacts *facts, char *text, size_t text_bytes);

typedef struct DivergenceFacts {
    double loss;      /* of the step; finite: it is the gradients that were not */
    uint64_t skipped; /* updates in a row that were left out for that */
    uint64_t epoch, step;
    double rate, peak_rate; /* the step's learning rate, and the highest of the run */
    const char *samples;    /* their keys, shortened */
    const char *folder;
    bool saved; /* diverged.safetensors and diverged.json are in folder */
} DivergenceFacts;

/* What has happened, at which samples, what to do, and where the state is. */
void verdict_of_divergence(const DivergenceFacts *facts, char *text, size_t text_bytes);

#endif
