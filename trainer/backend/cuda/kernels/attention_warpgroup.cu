/* attention_warpgroup.cu - see attention_warpgroup.cuh, attention_warpgroup_whole.cuh, kernels_tokens.h. */
#include "trainer/backend/cuda/kernels/attention_warpgroup_whole.cuh"
#include "trainer/backend/cuda/kernels/kernels_tokens.h"

using namespace fshard;

namespace
{

/* Launches a kernel of blocks of so many warp groups on the heads of all samples. */
template <typename T>
cudaError_t launch(void (*kernel)(Attention<T>, Maps), Attention<T> a, const Maps &maps, int64_t samples,
                   int groups, size_t bytes, cudaStream_t stream)
{
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (status != cudaSuccess)
        return status;
    a.blocks = (a.tokens + groups * group_rows - 1) / (groups * group_rows);
    kernel<<<(unsigned)(samples * a.heads * a.blocks), (unsigned)(groups * group_threads), bytes, stream>>>(
        a, maps);
    return cudaGetLastError();
}

/* Sets a map of each tensor [N, T, 1, ..] that is given. */
cudaError_t make_maps(Maps *maps, const DeviceTensor *x, const DeviceTensor *y, const DeviceTensor *dy,
                      const DeviceTensor *dx)
{
    const DeviceTensor *const tensors[] = {x, y, dy, dx};
    CUtensorMap *const places[] = {&maps->x, &maps->y, &maps->dy, &maps->dx};
    cudaError_t status = cudaSuccess;
    for (int i = 0; i < 4 && status == cudaSuccess; i++)
        if (tensors[i])
            status = make_map(places[i], tensors[i], x->shape[0], x->shape[1], tile_rows);
    return status;
}

template <typename T>
cudaError_t forward_of(const DeviceTensor *x, int64_t heads, const DeviceTensor *y,
                       const DeviceTensor *log_sums, cudaStream_t stream)
{
    Maps maps = {};
    const Attention<T> a = attention_of<T>(x, heads, y, log_sums);
    const cudaError_t status = make_maps(&maps, x, y, nullptr, nullptr);
    return status != cudaSuccess
               ? status
               : launch(attend<T>, a, maps, x->shape[0], forward_groups, sizeof(Forward<T>), stream);
}

template <typename T>
cudaError_t backward_of(const AttentionGradient *gradient, const DeviceTensor *dx, void *scratch,
                        cudaStream_t stream)
{
    Maps maps = {};
    const Attention<T> a = attention_of_gradient<T>(gradient, dx, scratch);
    const int64_t samples = gradient->x->shape[0];
    const int tiles = (a.tokens + tile_rows - 1) / tile_rows;
    const size_t padded = (size_t)tiles * tile_rows;
    cudaError_t status = make_maps(&maps, gradient->x, nullptr, gradient->dy, dx);
    if (status != cudaSuccess)
        return status;
    switch (tiles) {
    case 1:
        return launch(attend_whole_backward<T, 1>, a, maps, samples, 1, sizeof(Whole<T, 1>), stream);
    case 2:
        return launch(attend_whole_backward<T, 2>, a, maps, samples, 2, sizeof(Whole<T, 2>), stream);
    case 3:
        return launch(attend_whole_backward<T, 3>, a, maps, samples, 3, sizeof(Whole<T, 3>), stream);
    case 4:
        return launch(attend_whole_backward<T, 4>, a, maps, samples, 4, sizeof(Whole<T, 4>), stream);
    default:
        status = launch(attend_backward<T, false>, a, maps, samples, 1, sizeof(Backward<T>), stream);
        return status != cudaSuccess ? status
                                     : launch(attend_backward<T, true>, a, maps, samples, 1,
                                              sizeof(Backward<T>) + 2 * padded * sizeof(float), stream);
    }
}

bool fits(const DeviceTensor *x, int64_t heads)
{
    return element_is_narrow(x->element) && x->shape[3] / 3 / heads == channels &&
           x->shape[1] <= tokens_most && runs_hopper_code() && map_encoder();
}

cudaError_t forward(const DeviceTensor *x, int64_t heads, const DeviceTensor *y, const DeviceTensor *log_sums,
                    cudaStream_t stream)
{
    if (!fits(x, heads))
        return cudaErrorNotSupported;
    return x->element == ELEMENT_F16 ? forward_of<__half>(x, heads, y, log_sums, stream)
                                     : forward_of<__nv_bfloat16>(x, heads, y, log_sums, stream);
}

cudaError_t backward(const AttentionGradient *gradient, const DeviceTensor *dx, void *scratch,
                     cudaStream_t stream)
{
    if (!fits(gradient->x, gradient->heads))
        return cudaErrorNotSupported;
    return gradient->x->element == ELEMENT_F16 ? backward_of<__half>(gradient, dx, scratch, stream)
                                               : backward_of<__nv_bfloat16>(gradient, dx, scratch, stream);
}

} // namespace

extern "C" const AttentionWay attention_warpgroup = {"warpgroup", fits, forward, backward};
