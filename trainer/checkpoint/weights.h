/* weights.h - a network's parameters and buffers in a safetensors file with torchvision's names
 * (state_file.h), and what is known about them in its metadata.
 *
 * Threads: one at a time on a State. */
#ifndef FSHARD_TRAINER_CHECKPOINT_WEIGHTS_H
#define FSHARD_TRAINER_CHECKPOINT_WEIGHTS_H

#include "trainer/backend/backend.h"
#include "trainer/checkpoint/class_names.h"
#include "trainer/models/models.h"

/* What is known about weights, beside the numbers; in the file's metadata as "model", "dataset", "epoch",
 * "steps", the metric under its name, "mean" and "std" as "0.48,0.45,0.40", "class_names" as a JSON array of
 * strings. */
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
    const char *const *class_names; /* [class_count], in the order of the logits */
    size_t class_count;             /* 0: a restorer */
} WeightsInfo;

/* Writes path atomically, replacing what is there. */
FshStatus weights_save(const char *path, State *state, const Graph *graph, const WeightsInfo *info,
                       FshError *error);

/* What a file says of its own network. */
typedef struct WeightsOrigin {
    const Model *model; /* NULL: it names none that is known here */
    bool normalised;    /* then mean and deviation hold `channels` values */
    uint32_t channels;
    double mean[4], deviation[4];
    /* What the network leaves open: 0 or "" where it has its default. */
    int64_t depth, alpha, base_channels;
    int64_t crop, resize; /* how images were evaluated; 0: not said */
    char encoder_blocks[128], middle_blocks[32], decoder_blocks[128];
    ClassNames classes; /* count 0: it does not say, as weights of PyTorch and timm do not, and restorers' */
    bool trained;       /* it says in which epoch; then epoch and, unless NULL, the metric are told */
    uint64_t epoch;
    const char *metric_name; /* of metric_names */
    double metric;
} WeightsOrigin;

/* Reads what path says. FSH_ERR_CORRUPT: names of classes that are no list. On failure nothing is held. */
FshStatus weights_origin(const char *path, WeightsOrigin *origin, FshError *error);
/* Frees what it owns and zeroes it; zeroed is fine. */
void weights_origin_free(WeightsOrigin *origin);

/* Finds the number of classes that the weights at path tell apart: that of their names, where they have them,
 * else the rows of their last linear layer. model: the network that they are of; origin: what they say
 * (weights_origin). *class_count_ret: 0 for a restorer. FSH_ERR_MISMATCH: they have no such layer. */
FshStatus weights_class_count(const char *path, const Model *model, const WeightsOrigin *origin,
                              uint64_t *class_count_ret, FshError *error);

/* Finds the network whose tensors the weights at path have: those of other programs do not name it. NULL:
 * none that is known here, or they cannot be read. */
const Model *weights_recognise(const char *path);

/* What is to become of the last linear layer, which makes the logits. */
typedef struct WeightsHead {
    bool anew; /* it keeps what it has */
    /* the same where the file has it for another number of classes, or has none; else that is a mismatch */
    bool anew_if_other;
    const int32_t *rows; /* [the network's classes]: the file's row of each; borrowed; NULL: the same rows */
    uint64_t file_rows;  /* with rows: how many the file must have */
} WeightsHead;

/* Sets every parameter and buffer of the graph from path. FSH_ERR_MISMATCH names the first tensor that is
 * missing, has another shape, or is in the file and not in the network. Nothing is changed in that case.
 * head: NULL: the whole file must fit. *kept_head_ret (may be NULL): NULL, or the name of the last linear
 * layer where that keeps what it has; it points into the graph. */
FshStatus weights_load(const char *path, State *state, const Graph *graph, const WeightsHead *head,
                       const char **kept_head_ret, FshError *error);

#endif
