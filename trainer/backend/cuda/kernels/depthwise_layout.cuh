/* depthwise_layout.cuh - shared by depthwise.cu and depthwise_weight.cu: how images are divided among blocks,
 * and which instances are launched. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_DEPTHWISE_LAYOUT_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_DEPTHWISE_LAYOUT_CUH

#include <type_traits>

#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_convolution.h"
#include "trainer/backend/cuda/kernels/rows.cuh"

namespace fshard
{
namespace depthwise
{

/* A block's threads are `lanes` neighbouring vectors for each of `tasks` strips. */
constexpr int lanes_max = 16, strip_columns = 4;

/* The images and how each sample is divided. */
struct Layout {
    int64_t samples;
    int in_height, in_width, out_height, out_width; /* the image that is read, the image that is written */
    int stride, padding;
    int channels, pitch, vectors, lanes, tasks;
    int strips, strips_of_tile, tiles_high, tiles_wide; /* tiles have 8 rows and some strips */
    bool flipped;                                       /* weights are taken in reverse order */
};

template <int Width> __device__ void clear(float (&values)[Width])
{
#pragma unroll
    for (int i = 0; i < Width; i++)
        values[i] = 0;
}

/* Returns the layout. in: the image read; out: the image written, or dy. threads_of_a_strip: for each
 * lane. */
inline Layout layout_of(const DeviceTensor *in, const DeviceTensor *out, const Depthwise *depthwise,
                        int width, int threads_of_a_strip)
{
    Layout layout = {};
    layout.samples = in->shape[0];
    layout.in_height = (int)in->shape[1];
    layout.in_width = (int)in->shape[2];
    layout.out_height = (int)out->shape[1];
    layout.out_width = (int)out->shape[2];
    layout.stride = (int)depthwise->stride;
    layout.padding = (int)depthwise->padding;
    layout.channels = (int)in->shape[3];
    layout.pitch = (int)in->pitch;
    layout.vectors = layout.pitch / width;
    /* slabs of channels of nearly equal width */
    const int slabs = (layout.vectors + lanes_max - 1) / lanes_max;
    layout.lanes = (layout.vectors + slabs - 1) / slabs;
    layout.tasks = block_threads / (layout.lanes * threads_of_a_strip);
    return layout;
}

inline unsigned slabs_of(const Layout &layout)
{
    return (unsigned)((layout.vectors + layout.lanes - 1) / layout.lanes);
}

/* Calls launch with the kernel size as a constant. */
template <typename Launch> void with_kernel(int64_t kernel, Launch launch)
{
    switch (kernel) {
    case 3:
        return launch(std::integral_constant<int, 3>{});
    case 5:
        return launch(std::integral_constant<int, 5>{});
    default:
        return launch(std::integral_constant<int, 7>{});
    }
}

/* Calls launch(T{}, width) with the storage type and the elements of one access; 1 if rows of channels are
 * not whole vectors. */
template <typename Launch> cudaError_t with_vectors(const DeviceTensor *tensor, Launch launch)
{
    if (tensor->element == ELEMENT_F32 && tensor->pitch % vector_width<float> != 0) {
        launch(float{}, std::integral_constant<int, 1>{});
        return cudaGetLastError();
    }
    return with_storage(tensor, [&](auto zero) {
        launch(zero, std::integral_constant<int, vector_width<decltype(zero)>>{});
    });
}

inline bool fits(const DeviceTensor *a, const DeviceTensor *b, const DeviceTensor *weight,
                 const Depthwise *depthwise)
{
    const bool whole = !element_is_narrow(a->element) || a->pitch % vector_width<__half> == 0;
    return kernel_depthwise_fits(depthwise) && a->element == b->element && a->pitch == b->pitch && whole &&
           weight->element == ELEMENT_F32;
}

} // namespace depthwise
} // namespace fshard

#endif
