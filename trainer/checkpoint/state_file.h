/* state_file.h - writes the tensors of a State to a safetensors file, and reads them back.
 *
 * Parameters and buffers have their names, which are torchvision's. Each running_var is accompanied by
 * num_batches_tracked, as in PyTorch's batch norm, so that
 * model.load_state_dict(safetensors.torch.load_file(path)) takes a file of STATE_NETWORK with strict=True. A
 * checkpoint (STATE_ALL) holds the optimizer's tensors too: "conv1.weight.momentum_buffer", "optimizer.step".
 *
 * Shapes are those of the graph. Those of a file may have more or fewer ones ([1, C, 1, 1] for [C]), and
 * positions of images of another size (position_grid.h).
 *
 * Threads: one at a time on a State. */
#ifndef FSHARD_TRAINER_CHECKPOINT_STATE_FILE_H
#define FSHARD_TRAINER_CHECKPOINT_STATE_FILE_H

#include "trainer/backend/backend.h"
#include "trainer/checkpoint/safetensors.h"

typedef enum StatePart {
    STATE_NETWORK,   /* parameters and buffers of layers, which evaluation needs */
    STATE_ALL,       /* the optimizer's tensors too, which training needs to resume */
    STATE_AT_UPDATE, /* these, but for what is gathered for the next update, which a file may hold */
} StatePart;

/* Writes path atomically and replaces an existing file. batches: num_batches_tracked. */
FshStatus state_file_write(const char *path, State *state, const Graph *graph, StatePart part,
                           uint64_t batches, const SafetensorsMetadata *metadata, size_t metadata_count,
                           FshError *error);

/* Returns an upper bound of the bytes that a file of the part takes on disk: the size of headers is
 * overestimated. */
uint64_t state_file_bytes(const Graph *graph, StatePart part);

/* Checks that the file holds every tensor of the part with its shape, as floating-point numbers, and no
 * tensor that the graph lacks. left_out: names of tensors that need not be there, NULL-terminated, or NULL.
 * FSH_ERR_MISMATCH names the first tensor that differs; FSH_ERR_CORRUPT the first that does not match its
 * checksum. */
FshStatus state_file_check(const char *path, const Safetensors *file, const Graph *graph, StatePart part,
                           const char *const *left_out, FshError *error);
/* Returns whether file and part have the same tensor names. */
bool state_file_has_names(const Safetensors *file, const Graph *graph, StatePart part);
/* Sets values to those of a tensor from its entry of a checked file: the entry's numbers, or positions of
 * another size, resampled. */
FshStatus state_file_values(const SafetensorsEntry *entry, const Tensor *tensor, float *values,
                            FshError *error);
/* Sets the part's tensors of the State, except those left out, from a checked file. */
FshStatus state_file_read(const char *path, const Safetensors *file, State *state, const Graph *graph,
                          StatePart part, const char *const *left_out, FshError *error);

#endif
