/* strided_rows.cuh - images of every second row and column of others, from the first on. For batch_norm.cu
 * and pointwise_gradient.cu. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_STRIDED_ROWS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_STRIDED_ROWS_CUH

#include "trainer/backend/cuda/kernels/divider.cuh"
#include "trainer/backend/cuda/kernels/kernels_common.cuh"

namespace fshard
{

/* Where the pixels of the whole images, below 2^31, are among the others. */
struct StridedRows {
    Divider by_height, by_width;
    int height, width; /* of the others */
    /* Returns the pixel of the others; -1: there is none. */
    __device__ int of(int64_t pixel) const
    {
        const unsigned p = (unsigned)pixel, line = by_width.quotient(p), column = p - line * by_width.divisor,
                       image = by_height.quotient(line), row = line - image * by_height.divisor;
        return (row | column) & 1 ? -1 : ((int)image * height + (int)(row / 2)) * width + (int)(column / 2);
    }
};

/* Returns whether these are other images than x's: then those of x's stride 2, or they do not fit. */
inline bool is_strided(const DeviceTensor *images, const DeviceTensor *x)
{
    return images && x->rank == 4 && (images->shape[1] != x->shape[1] || images->shape[2] != x->shape[2]);
}

inline bool strided_fits(const DeviceTensor *images, const DeviceTensor *x)
{
    return element_is_narrow(x->element) && images->element == x->element && images->rank == 4 &&
           images->pitch == x->pitch && images->shape[3] == x->shape[3] && images->shape[0] == x->shape[0] &&
           images->shape[1] == (x->shape[1] + 1) / 2 && images->shape[2] == (x->shape[2] + 1) / 2 &&
           device_tensor_rows(x) <= INT32_MAX;
}

inline StridedRows strided_rows(const DeviceTensor *x)
{
    StridedRows rows = {};
    rows.by_height = Divider((int)x->shape[1]);
    rows.by_width = Divider((int)x->shape[2]);
    rows.height = (int)(x->shape[1] + 1) / 2;
    rows.width = (int)(x->shape[2] + 1) / 2;
    return rows;
}

} // namespace fshard

#endif
