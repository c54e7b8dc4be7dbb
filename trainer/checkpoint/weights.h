/* weights.h - saves and loads a network's parameters and buffers in a safetensors file with torchvision's
 * names (state_file.h), with facts about them in its metadata.
 *
 * Threads: one at a time on a State. */
#ifndef FSHARD_TRAINER_CHECKPOINT_WEIGHTS_H
#define FSHARD_TRAINER_CHECKPOINT_WEIGHTS_H

#include "trainer/backend/backend.h"
#include "trainer/checkpoint/class_names.h"
#include "trainer/models/models.h"

/* Facts about weights. The metadata has them as "model", "dataset", "epoch", "steps", the metric under its
 * name, "mean" and "std" as "0.48,0.45,0.40", "class_names" as a JSON array of strings. */
typedef struct WeightsInfo {
    const char *model;
    const ModelSpec *spec; /* its options, which the network leaves open; in the metadata as JSON, "shape" */
    /* The views of evaluation, in the metadata with the spec: pixels, and the name of how they are resized;
     * 0 and NULL: whole images. */
    uint32_t crop, resize;
    const char *interpolation;
    const char *problem_type; /* in "shape": "multi-label", "regression"; NULL: one class, or a restorer */
    const char *dataset_id;
    uint64_t epoch;          /* the last one trained, counted from 0 as in summary.csv */
    uint64_t steps;          /* steps trained: num_batches_tracked */
    const char *metric_name; /* "top1", "psnr"; NULL: not evaluated */
    double metric;           /* percent, dB */
    uint32_t channels;
    double mean[4], deviation[4];   /* of pixels at full scale 0..1; `channels` values */
    const char *const *class_names; /* [class_count], in the order of the logits */
    size_t class_count;             /* 0: a restorer */
} WeightsInfo;

/* Writes path atomically and replaces an existing file. */
FshStatus weights_save(const char *path, State *state, const Graph *graph, const WeightsInfo *info,
                       FshError *error);

/* What a file says about its weights. */
typedef struct WeightsOrigin {
    const Model *model; /* NULL: it names none that is known here */
    bool normalised;    /* mean and deviation hold `channels` values */
    uint32_t channels;
    double mean[4], deviation[4];
    ModelValues options;       /* what the network leaves open; texts point into shape */
    json_t *shape;             /* owned; NULL: the file has none */
    int64_t crop, resize;      /* image sizes of evaluation; 0: not given */
    const char *interpolation; /* of evaluation, any text; points into shape; NULL: not given */
    const char *problem_type;  /* as WeightsInfo's, any text; points into shape; NULL: not given */
    ClassNames classes;        /* count 0: not given, as in weights of PyTorch and timm, and of restorers */
    bool trained;              /* the epoch is given; and the metric, unless metric_name is NULL */
    uint64_t epoch;
    const char *metric_name; /* one of metric_names */
    double metric;
} WeightsOrigin;

/* Reads the metadata of path. FSH_ERR_CORRUPT: class names that are not a list. On failure nothing is
 * held. */
FshStatus weights_origin(const char *path, WeightsOrigin *origin, FshError *error);
/* Frees everything and zeroes the struct; a zeroed one is fine. */
void weights_origin_free(WeightsOrigin *origin);

/* Sets *class_count_ret to the number of classes of the weights at path: the number of their names if they
 * have any, else the rows of their last linear layer; 0 for a restorer. model: their network; origin: from
 * weights_origin. FSH_ERR_MISMATCH: they have no such layer. */
FshStatus weights_class_count(const char *path, const Model *model, const WeightsOrigin *origin,
                              uint64_t *class_count_ret, FshError *error);

/* Returns the network whose tensors the weights at path have, since files of other programs do not name it.
 * NULL: no network that is known here, or the file cannot be read. */
const Model *weights_recognise(const char *path);

/* What to do with the last linear layer, which makes the logits. */
typedef struct WeightsHead {
    bool anew; /* leave it as it is */
    /* leave it as it is if the file has it for another number of classes, or lacks it; else that is a
     * mismatch */
    bool anew_if_other;
    const int32_t *rows; /* [classes of the network]: the file's row of each; borrowed; NULL: the same rows */
    uint64_t file_rows;  /* with rows: how many rows the file must have */
} WeightsHead;

/* Sets every parameter and buffer of the graph from path. FSH_ERR_MISMATCH names the first tensor that is
 * missing, has another shape, or is not in the network; nothing is changed then. head NULL: the whole file
 * must fit. *kept_head_ret (may be NULL) is set to the name of the last linear layer if that was left as it
 * is, which points into the graph; else to NULL. */
FshStatus weights_load(const char *path, State *state, const Graph *graph, const WeightsHead *head,
                       const char **kept_head_ret, FshError *error);

#endif
