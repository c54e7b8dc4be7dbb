/* state_file.h - tensors of a State in a safetensors file, and back.
 *
 * Parameters and buffers stand under their names, which are torchvision's. Beside each running_var stands
 * num_batches_tracked, as PyTorch's batch norm has it, so that
 * model.load_state_dict(safetensors.torch.load_file(path)) takes a file of STATE_NETWORK with strict=True.
 * A checkpoint (STATE_ALL) holds the optimizer's tensors too: "conv1.weight.momentum_buffer",
 * "optimizer.step".
 *
 * Shapes are those of the graph. A file's may have ones more or fewer ([1, C, 1, 1] for [C]).
 *
 * Threads: one at a time on a State. */
#ifndef FSHARD_TRAINER_CHECKPOINT_STATE_FILE_H
#define FSHARD_TRAINER_CHECKPOINT_STATE_FILE_H

#include "trainer/backend/backend.h"
#include "trainer/checkpoint/safetensors.h"

typedef enum StatePart {
    STATE_NETWORK, /* parameters and buffers of layers: what evaluation needs */
    STATE_ALL,     /* and the optimizer's: what training needs to go on */
} StatePart;

/* True if the tensor of the graph belongs to the part. */
bool state_part_has(StatePart part, const Tensor *tensor);

/* Writes path atomically, replacing what is there. batches: num_batches_tracked. */
FshStatus state_file_write(const char *path, State *state, const Graph *graph, StatePart part,
                           uint64_t batches, const SafetensorsMetadata *metadata, size_t metadata_count,
                           FshError *error);

/* Returns what a file of the part takes on disk, and a little more: headers are taken for longer than they
 * are. */
uint64_t state_file_bytes(const Graph *graph, StatePart part);

/* Checks that file holds every tensor of the part with its shape, as floating-point numbers, and nothing that
 * the graph has not; left_out: names (layers' tensors) that are not asked for, NULL-terminated, or NULL.
 * FSH_ERR_MISMATCH names the first that differs; FSH_ERR_CORRUPT the first whose bytes do not match their
 * checksum. */
FshStatus state_file_check(const char *path, const Safetensors *file, const Graph *graph, StatePart part,
                           const char *const *left_out, FshError *error);
/* Returns true if file and part have tensors of the same names. */
bool state_file_has_names(const Safetensors *file, const Graph *graph, StatePart part);
/* Sets the part's tensors of the State but those left out; the file was checked. */
FshStatus state_file_read(const char *path, const Safetensors *file, State *state, const Graph *graph,
                          StatePart part, const char *const *left_out, FshError *error);

#endif
