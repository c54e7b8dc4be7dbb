/* weights.h - a network's parameters and buffers in a safetensors file with torchvision's names (state_file.h), and what
 * is known about them in its metadata.
 *
 * Threads: one at a time on a State. */
#ifndef FSHARD_TRAINER_LOOP_WEIGHTS_H
#define FSHARD_TRAINER_LOOP_WEIGHTS_H

#include "trainer/backend/backend.h"
#include "trainer/models/models.h"

/* What is known about weights, beside the numbers; in the file's metadata as "model", "dataset", "epoch", "steps", the
 * metric under its name, "mean" and "std" as "0.48,0.45,0.40". */
typedef struct WeightsInfo {
    const char *model;
    const ModelSpec
        *spec; /* its depth, width, blocks: what the network leaves open; in the metadata as JSON, "shape" */
    uint32_t crop, resize; /* of evaluation, pixels, with the spec; 0: whole images */
    const char *dataset_id;
    uint64_t epoch;          /* the last one trained in, from 0, as in summary.csv */
    uint64_t steps;          /* steps trained: num_batches_tracked */
    const char *metric_name; /* "top1", "psnr"; NULL: not evaluated */
    double metric;           /* percent, dB */
    uint32_t channels;
    double mean[4], deviation[4]; /* what pixels were normalised with, of full scale 0..1; channels values */
} WeightsInfo;

/* Writes path atomically, replacing what is there. */
FshStatus weights_save(const char *path, State *state, const Graph *graph, const WeightsInfo *info,
                       FshError *error);

/* What a file says of its own network; what it does not say is left as it was. */
typedef struct WeightsOrigin {
    const Model *model; /* NULL: it names none that is known here */
    bool normalised;    /* then mean and deviation hold `channels` values */
    uint32_t channels;
    double mean[4], deviation[4];
    /* What the network leaves open: 0 or "" where it has its default. */
    int64_t depth, alpha, base_channels;
    int64_t crop, resize; /* how images were evaluated; 0: not said */
    char encoder_blocks[128], middle_blocks[32], decoder_blocks[128];
} WeightsOrigin;
FshStatus weights_origin(const char *path, WeightsOrigin *origin, FshError *error);

/* Sets every parameter and buffer of the graph from path. FSH_ERR_MISMATCH names the first tensor that is missing, has
 * another shape, or is in the file and not in the network. Nothing is changed in that case.
 * *kept_head_ret (may be NULL: then this is a mismatch too): NULL, or the name of the last linear layer where the file has it
 * for another number of classes: that layer keeps what it has. It points into the graph. */
FshStatus weights_load(const char *path, State *state, const Graph *graph, const char **kept_head_ret,
                       FshError *error);

#endif
