/* program_inputs.h - how a batch gets to the device while the one before is worked on.
 *
 *   program_write   host memory  -> pinned[next]    by the processor, once the device has taken the last
 *   program_run     pinned[next] -> staging         on a stream of its own, while earlier runs compute
 *                   staging      -> block           at the head of the run, on the stream of the work
 *
 * The recorded graph reads at fixed addresses, those in block. So a batch is copied once more, within the
 * device: 39 MB, resnet50's at 160 px and 512 images, take 20 us of a step of 30 ms, where two recorded
 * graphs would take twice the memory for their plans and twice the time to make. All inputs lie one after
 * the other, so a batch is one copy of each kind, whatever it consists of.
 *
 * Only what was written since the last run is copied: an input that is made on the device stays as it is. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_PROGRAM_INPUTS_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_PROGRAM_INPUTS_H

#include "trainer/backend/cuda/lowering/tensors.h"

typedef struct ProgramInput {
    TensorId tensor;
    int64_t classes; /* of a loss that takes this input for labels; else 0 */
    uint64_t offset_bytes, bytes;
    bool written; /* since the last run */
} ProgramInput;

typedef struct ProgramInputs {
    ProgramInput *list; /* by offset */
    size_t count;
    uint64_t block_bytes;
    void *block;                  /* where the steps read */
    void *staging;                /* as block */
    void *pinned[2];              /* host; as block */
    int next;                     /* pinned[next] takes what is written */
    bool any_written;             /* since the last run */
    cudaStream_t stream;          /* pinned to staging */
    cudaEvent_t copied[2], taken; /* pinned[i] is in staging; staging is in block */
} ProgramInputs;

/* Takes memory for the graph's inputs and sets their addresses in tensors [graph_tensor_count]. held_bytes:
 * what the program has taken before that grows with the batch. FSH_ERR_MEMORY tells the batch that fits. On
 * failure: program_inputs_free. */
FshStatus program_inputs_make(ProgramInputs *inputs, const Graph *graph, DeviceTensor *tensors,
                              uint64_t held_bytes, FshError *error);
/* Frees inputs when the work is done. Zeroed is fine. */
void program_inputs_free(ProgramInputs *inputs);

/* Writes an input of the next run. FSH_ERR_MISMATCH: a label that is no class. */
FshStatus program_inputs_write(ProgramInputs *inputs, const Graph *graph, TensorId id, const void *values,
                               size_t bytes, FshError *error);
/* Lets work wait for what was written; called before the steps of a run are enqueued on it. */
FshStatus program_inputs_send(ProgramInputs *inputs, cudaStream_t work, FshError *error);

#endif
