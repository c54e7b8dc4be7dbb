/* cudnn_internal.h - what cudnn_graph.c (patterns) and cudnn_plan.c (plans) share. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_DEVICE_CUDNN_INTERNAL_H
#define FSHARD_TRAINER_BACKEND_CUDA_DEVICE_CUDNN_INTERNAL_H

#include <stdbool.h>

#include "trainer/backend/cuda/device/cudnn_graph.h"

enum { CUDNN_TENSORS_MAX = 16, CUDNN_OPERATIONS_MAX = 16, CUDNN_CANDIDATES_MAX = 16, CUDNN_TEXT_MAX = 1024 };

typedef cudnnBackendDescriptor_t Descriptor;

/* One finalized execution plan. */
typedef struct Candidate {
    Descriptor plan; /* owned */
    int64_t engine, workspace_bytes;
} Candidate;

struct CudnnPlan {
    const CudnnDevice *device;
    FshError failure; /* the first one of the describing calls */
    /* every descriptor but the plans, freed in reverse: those made last refer to those made first */
    Descriptor *owned;
    size_t owned_count, owned_capacity;
    Descriptor tensors[CUDNN_TENSORS_MAX], operations[CUDNN_OPERATIONS_MAX];
    bool is_virtual[CUDNN_TENSORS_MAX];
    int tensor_count, operation_count;
    char text[CUDNN_TEXT_MAX];
    size_t text_length;
    Candidate candidates[CUDNN_CANDIDATES_MAX];
    int candidate_count;
    double milliseconds;
};

/* Creates a descriptor, which the plan owns. This and the functions below do nothing after the plan's first
 * failure. */
Descriptor cudnn_create(CudnnPlan *plan, cudnnBackendDescriptorType_t type, const char *type_name);
void cudnn_set(CudnnPlan *plan, Descriptor descriptor, cudnnBackendAttributeName_t name,
               const char *name_text, cudnnBackendAttributeType_t type, int64_t count, const void *values);
void cudnn_finalize(CudnnPlan *plan, Descriptor descriptor, const char *what);
void cudnn_note_failure(CudnnPlan *plan, cudnnStatus_t code, const char *call);

/* The names of cuDNN's constants are what its manual and its messages speak of, so they travel as text too.
 */
#define CREATE(plan, type) cudnn_create(plan, type, #type)
#define SET(plan, descriptor, name, type, count, values)                                                     \
    cudnn_set(plan, descriptor, name, #name, type, count, values)
#define SET_INT64(plan, descriptor, name, count, values)                                                     \
    SET(plan, descriptor, name, CUDNN_TYPE_INT64, count, values)
#define SET_DESCRIPTOR(plan, descriptor, name, value)                                                        \
    SET(plan, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &(value))

#endif
