/* attention_tiles.cu - see attention_tiles.cuh, attention_whole.cuh and kernels_tokens.h. */
#include "trainer/backend/cuda/kernels/attention_whole.cuh"
#include "trainer/backend/cuda/kernels/kernels_tokens.h"

using namespace fshard;

namespace
{

/* Sets the blocks of a head, and *warps_ret to those of a block, so that no warp is without rows where that
 * can be. */
template <typename T> void deal(Attention<T> *a, unsigned *warps_ret)
{
    const int groups = (a->tokens + own_rows - 1) / own_rows;
    a->blocks = (groups + warps_most - 1) / warps_most;
    *warps_ret = (unsigned)((groups + a->blocks - 1) / a->blocks);
}

/* Calls launch(T{}, std::integral_constant<int, Channels>{}) with the type of x and the channels of a
 * head. */
template <typename Launch> cudaError_t with_instance(const DeviceTensor *x, int64_t heads, Launch launch)
{
    const auto with_channels = [&](auto zero) {
        if (x->shape[3] / 3 / heads == 64)
            launch(zero, std::integral_constant<int, 64>{});
        else
            launch(zero, std::integral_constant<int, 32>{});
    };
    if (x->element == ELEMENT_F16)
        with_channels(__half{});
    else
        with_channels(__nv_bfloat16{});
    return cudaGetLastError();
}

/* Launches attend_whole_backward. Returns false, and does nothing, if a head takes more shared memory than
 * the card has. */
template <typename T, int Channels>
bool launch_whole(const Attention<T> &a, int64_t samples, cudaStream_t stream)
{
    const int groups = (a.tokens + own_rows - 1) / own_rows, rows = groups * own_rows;
    const size_t bytes = WholeHead<T, Channels>::bytes(rows);
    const auto kernel = attend_whole_backward<T, Channels>;
    const int most = shared_bytes_most((const void *)kernel);
    if (bytes > (size_t)most ||
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most) != cudaSuccess) {
        (void)cudaGetLastError(); /* not that of the launch that comes in its place */
        return false;
    }
    const int warps = groups < whole_warps_most ? groups : whole_warps_most;
    Attention<T> whole = a;
    whole.blocks = 1;
    kernel<<<(unsigned)(samples * a.heads), (unsigned)warps * 32, bytes, stream>>>(whole, rows);
    return true;
}

bool fits(const DeviceTensor *x, int64_t heads)
{
    const int64_t channels = x->shape[3] / 3 / heads;
    return element_is_narrow(x->element) && (channels == 64 || channels == 32);
}

cudaError_t forward(const DeviceTensor *x, int64_t heads, const DeviceTensor *y, const DeviceTensor *log_sums,
                    cudaStream_t stream)
{
    if (!fits(x, heads))
        return cudaErrorNotSupported;
    return with_instance(x, heads, [&](auto zero, auto channels) {
        using T = decltype(zero);
        unsigned warps = 0;
        Attention<T> a = attention_of<T>(x, heads, y, log_sums);
        deal(&a, &warps);
        const unsigned blocks = (unsigned)(x->shape[0] * heads * a.blocks);
        attend_tiles<T, channels.value><<<blocks, warps * 32, 0, stream>>>(a);
    });
}

cudaError_t backward(const AttentionGradient *gradient, const DeviceTensor *dx, void *scratch,
                     cudaStream_t stream)
{
    const DeviceTensor *x = gradient->x;
    const int64_t heads = gradient->heads;
    if (!fits(x, heads))
        return cudaErrorNotSupported;
    return with_instance(x, heads, [&](auto zero, auto channels) {
        using T = decltype(zero);
        unsigned warps = 0;
        Attention<T> a = attention_of_gradient<T>(gradient, dx, scratch);
        deal(&a, &warps);
        if (launch_whole<T, channels.value>(a, x->shape[0], stream))
            return;
        const unsigned blocks = (unsigned)(x->shape[0] * heads * a.blocks);
        attend_tiles_backward<T, channels.value, false><<<blocks, warps * 32, 0, stream>>>(a);
        attend_tiles_backward<T, channels.value, true><<<blocks, warps * 32, 0, stream>>>(a);
    });
}

} // namespace

extern "C" const AttentionWay attention_tiles = {"tiles", fits, forward, backward};
