/* kernels.h - the common part of our CUDA kernels: the tensor that they work on, and their rules.
 *
 * Functions are declared by topic in kernels_*.h and defined in .cu files. Each enqueues one operation on a
 * stream and returns the launch's cudaError_t; none allocates or synchronizes, so all can be captured.
 * docs/kernels.md shows how two of the kernels came to be.
 *
 * - Activations are NHWC. Arithmetic and sums are float32 whatever the storage is (partial sums are joined in
 *   float64). There are no atomics on values: every sum has one order, fixed by the shapes, so the same input
 *   gives the same bits on any card.
 * - Activations and gradients of weights are stored as ELEMENT_F32, ELEMENT_BF16 or ELEMENT_F16, the same for
 *   all of them in one call. Parameters of norms, biases, statistics, losses and the optimizer's state are
 *   ELEMENT_F32 in every mode. A call with types that have no instance returns cudaErrorNotSupported.
 * - Narrow tensors (16 bits) are padded to a multiple of PADDED_CHANNELS channels (DeviceTensor.pitch), so
 *   that 16-byte accesses fit every row, as the tensor cores need. The padding is always 0: a kernel that
 *   writes a tensor writes zeros there, and a kernel that reads it may rely on them. So a function that maps
 *   0 to 0 need not know the padding, and a sum over channels may include it.
 * - Vectors of one float32 for each channel, [C], lie in blocks of 256 bytes. They can be read up to the
 *   pitch of their images, and are 0 there; a kernel that makes one writes it up to there. */
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

/* Returns how many channels a narrow tensor of so many has with those that pad them. */
static inline int64_t padded_channels(int64_t channels)
{
    return (channels + PADDED_CHANNELS - 1) / PADDED_CHANNELS * PADDED_CHANNELS;
}

/* A tensor in device memory. data is 256-byte aligned and owned by the program or the state. */
typedef struct DeviceTensor {
    void *data;
    ElementType element;
    int rank;
    int64_t shape[4]; /* in memory order, the last one dense: [N, H, W, C], [N, C], filters [O, kernel_h,
                       * kernel_w, I]; without padding */
    /* distance in elements between two rows of channels: shape[rank - 1], rounded up in narrow tensors */
    int64_t pitch;
    /* rows of channels in memory: the product of the other dimensions; in narrow weights the first of them is
     * rounded up too */
    int64_t rows;
    bool is_filter; /* OHWI here, OIHW in the graph */
} DeviceTensor;

/* Return, by the shape: the number of elements; the last dimension; the number of rows of that length. */
int64_t device_tensor_count(const DeviceTensor *tensor);
int64_t device_tensor_channels(const DeviceTensor *tensor);
int64_t device_tensor_rows(const DeviceTensor *tensor);
/* Returns the number of elements in memory, padding included: rows * pitch. */
int64_t device_tensor_stored(const DeviceTensor *tensor);
/* Returns whether an element has 16 bits: bf16 or f16. */
static inline bool element_is_narrow(ElementType element)
{
    return element == ELEMENT_BF16 || element == ELEMENT_F16;
}

#ifdef __cplusplus
}
#endif
#endif
