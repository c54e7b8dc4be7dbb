/* kernels.h - what our own CUDA kernels have in common: the tensor that they work on, and their rules.
 *
 * Functions are declared by topic in kernels_*.h and defined in .cu files. Each enqueues one operation on a
 * stream and returns the launch's cudaError_t; none allocates, none synchronizes, so all can be captured.
 *
 * - Activations are NHWC. Arithmetic and sums are float32 whatever the storage is (partial sums are joined in
 *   float64). No atomics on values: every sum has one order, fixed by the shapes, so the same input gives the
 *   same bits, on any card.
 * - Storage of activations, and of the gradients of weights, is ELEMENT_F32, ELEMENT_BF16 or ELEMENT_F16, the
 *   same for all of them in one call; parameters of norms, biases, statistics, losses and the optimizer's
 *   state are ELEMENT_F32 in every mode. A call with types that have no instance returns
 *   cudaErrorNotSupported.
 * - Narrow tensors (16 bits) are padded to a multiple of PADDED_CHANNELS channels (DeviceTensor.pitch):
 *   16-byte accesses then fit every row, and the tensor cores have what they want. What lies between is 0,
 *   always: who writes a tensor writes zeros there, and may rely on them when it reads. So what maps 0 to 0
 *   need not know the padding, and a sum over channels may run over it.
 * - Vectors of one float32 for each channel, [C], lie in rooms of 256 bytes: they can be read up to the pitch
 *   of the images they belong to, and are 0 there; a kernel that makes one writes it up to there. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ElementType {
    ELEMENT_F32,
    ELEMENT_U8,
    ELEMENT_I64,
    ELEMENT_BF16,
    ELEMENT_F16,
    ELEMENT_TYPE_COUNT
} ElementType;

enum { PADDED_CHANNELS = 8 };

/* A tensor in device memory. data: owned by the program or the state, 256-byte aligned. */
typedef struct DeviceTensor {
    void *data;
    ElementType element;
    int rank;
    int64_t shape[4]; /* in memory order, the last one dense: [N, H, W, C], [N, C], filters [O, kernel_h,
                         kernel_w, I]; padding not counted */
    /* elements from one row of channels to the next: shape[rank - 1], in narrow tensors rounded up */
    int64_t pitch;
    /* rows of channels that lie there: the product of the other dimensions; in narrow weights the first of
     * them is rounded up, too */
    int64_t rows;
    bool is_filter; /* OHWI here, OIHW to the graph */
} DeviceTensor;

/* Of the shape: elements; the last dimension; elements for each of those: rows of a matrix whose columns are
 * channels. */
int64_t device_tensor_count(const DeviceTensor *tensor);
int64_t device_tensor_channels(const DeviceTensor *tensor);
int64_t device_tensor_rows(const DeviceTensor *tensor);
/* Elements that lie there, padding included: rows * pitch. */
int64_t device_tensor_stored(const DeviceTensor *tensor);
/* 16 bits: bf16 or f16. */
static inline bool element_is_narrow(ElementType element)
{
    return element == ELEMENT_BF16 || element == ELEMENT_F16;
}

#ifdef __cplusplus
}
#endif
#endif
