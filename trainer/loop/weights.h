/* weights.h - a network's parameters and buffers in a safetensors file with torchvision's names.
 *
 * Beside each running_var stands num_batches_tracked, as PyTorch's batch norm has it, so that
 * model.load_state_dict(safetensors.torch.load_file(path)) takes the file with strict=True. */
#ifndef FSHARD_TRAINER_LOOP_WEIGHTS_H
#define FSHARD_TRAINER_LOOP_WEIGHTS_H

#include "trainer/backend/backend.h"
#include "trainer/models/models.h"

/* What is known about weights, beside the numbers; in the file's metadata. */
typedef struct WeightsInfo {
    const char *model;
    const char *dataset_id;
    uint64_t epoch; /* the last one trained in, from 0, as in summary.csv */
    uint64_t steps; /* steps trained: num_batches_tracked */
    double top1;    /* percent; negative: not evaluated */
} WeightsInfo;

/* Writes path atomically, replacing what is there. */
FshStatus weights_save(const char *path, State *state, const Graph *graph, const WeightsInfo *info,
                       FshError *error);

/* The network that the metadata of path names, or NULL where it names none that is known here. */
FshStatus weights_model(const char *path, const Model **model_ret, FshError *error);

/* Sets every parameter and buffer of the graph from path. FSH_ERR_MISMATCH names the first tensor that is
 * missing, has another shape, or is in the file and not in the network. Nothing is changed in that case. */
FshStatus weights_load(const char *path, State *state, const Graph *graph, FshError *error);

#endif
