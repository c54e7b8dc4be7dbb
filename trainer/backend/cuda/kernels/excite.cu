/* excite.cu - see kernels_excite.h.
 *
 * The numbers of an image are few: 2048 channels and 128 hidden ones at most in the networks that have these
 * layers. What bounds a chain of products and passes is launches, one launch for each and about 5 us; what
 * bounds one launch is how fast blocks read the weights, a megabyte of 16 bits at that size, from the L2
 * cache: 64 bytes a clock for each of them and a few thousand for all. So a block takes a few images, and a
 * team of blocks the same ones: each computes its part of the hidden numbers, writes it to the shared memory
 * of all, and computes its part of what follows. A team is a cluster, and one block on cards without
 * clusters. At 2048 channels and a batch of 32, 8 teams of 8 blocks take 4 images each: 8 MB from the L2
 * cache, 128 KiB a block, 1.2 us, and as long for the products.
 *
 * Every sum has one order, whatever the sizes of teams are and however many images a block has. */
#include <cooperative_groups.h>

#include "trainer/backend/cuda/kernels/excite.cuh"
#include "trainer/backend/cuda/kernels/kernels_excite.h"
#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"
#include "trainer/backend/pointwise_math.h"

using namespace fshard;

namespace
{

constexpr int clusters_since = 90;  /* compute capability, times ten */
constexpr int team_most = 8;        /* blocks of a cluster that any card with clusters can run */
constexpr int hidden_of_block = 16; /* a block of a team has at least as many */
constexpr int blocks_wanted = 64; /* more images share a block where there are as many blocks all the same */
constexpr int shared_most = 48 << 10;
constexpr int channels_most = 8192, hidden_most = 256; /* whose rows of one image fit there */

/* The blocks that work on the same images. */
struct Team {
    int rank = 0, size = 1;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __device__ Team()
        : rank((int)cooperative_groups::this_cluster().block_rank()),
          size((int)cooperative_groups::this_cluster().num_blocks())
    {
    }
    /* Waits for all threads of the team, and sees what they wrote. */
    __device__ void meet() const
    {
        cooperative_groups::this_cluster().sync();
    }
    /* Returns where `place`, in shared memory, lies in block `peer`. */
    __device__ float *of(int peer, float *place) const
    {
        return cooperative_groups::this_cluster().map_shared_rank(place, (unsigned)peer);
    }
#else
    __device__ void meet() const
    {
        __syncthreads();
    }
    __device__ float *of(int, float *place) const
    {
        return place;
    }
#endif
};

/* What is the same forward and backward. Rows of weight1 have the pitch of x, those of weight2 that of the
 * hidden numbers. */
template <typename T> struct Sizes {
    const T *weight1, *weight2;
    int64_t images;
    int channels, pitch, hidden, hidden_pitch;
    OpKind activation;
};

template <typename T> __device__ float activate(OpKind activation, float x)
{
#define CASE(KIND, function, narrow)                                                                         \
    case OP_##KIND:                                                                                          \
        return sizeof(T) == 2 ? narrow(x) : function(x);
    switch (activation) {
        POINTWISE_ACTIVATIONS(CASE)
    default:
        return x > 0 ? x : 0 * x;
    }
#undef CASE
}

/* Returns the gradient of the activation's operand x. */
template <typename T> __device__ float through_activation(OpKind activation, float dy, float x)
{
#define CASE(KIND, function, narrow)                                                                         \
    case OP_##KIND:                                                                                          \
        return dy * (sizeof(T) == 2 ? narrow##_slope(x) : function##_slope(x));
    switch (activation) {
        POINTWISE_ACTIVATIONS(CASE)
    default:
        return x > 0 ? dy : 0 * dy;
    }
#undef CASE
}

template <typename T> __device__ float rounded(float value)
{
    return (float)(T)value;
}

/* ---- forward ---- */

template <typename T> struct Forward {
    Sizes<T> sizes;
    const T *x;
    const float *bias1, *bias2;
    float *gates;
    T *sums, *hidden;

    template <int Width, int Images> static auto kernel();
    size_t shared_bytes(int, int images, int) const
    {
        return (size_t)images *
               ((size_t)sizes.hidden_pitch * sizeof(float) + (size_t)sizes.pitch * sizeof(T));
    }
};

/* A warp computes two hidden numbers of all images, lanes the channels of a product; then two lanes an
 * output. */
template <typename T, int Width, int Images>
__global__ void __launch_bounds__(block_threads) excite_kernel(const __grid_constant__ Forward<T> forward)
{
    constexpr int together = 2;
    constexpr int outputs = block_threads / 2; /* of a sweep of the block */
    extern __shared__ __align__(128) unsigned char shared[];
    const Sizes<T> &sizes = forward.sizes;
    const int pitch = sizes.pitch, hidden_pitch = sizes.hidden_pitch, vectors = pitch / Width;
    float *hidden = reinterpret_cast<float *>(shared);            /* [Images, hidden_pitch] */
    T *x = reinterpret_cast<T *>(hidden + Images * hidden_pitch); /* [Images, pitch] */
    const Team team;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t first = (int64_t)((int)blockIdx.x / team.size) * Images;
    const int here = (int)min((int64_t)Images, sizes.images - first);

    for (int v = (int)threadIdx.x; v < Images * vectors; v += block_threads) {
        float values[Width] = {};
        if (v < here * vectors)
            load(forward.x + first * pitch + v * Width, values);
        store(x + v * Width, values);
    }
    team.meet(); /* a block must have begun before others write to its memory */

    for (int j = (team.rank * block_warps + warp) * together; j < hidden_pitch;
         j += team.size * block_warps * together) {
        const T *rows[together];
        float sum[together][Images] = {};
#pragma unroll
        for (int u = 0; u < together; u++)
            rows[u] = sizes.weight1 + (int64_t)min(j + u, sizes.hidden - 1) * pitch;
#pragma unroll 4
        for (int v = lane; v < vectors; v += 32) {
            float weights[together][Width];
#pragma unroll
            for (int u = 0; u < together; u++)
                load(rows[u] + v * Width, weights[u]);
#pragma unroll
            for (int image = 0; image < Images; image++) {
                float values[Width];
                load(x + image * pitch + v * Width, values);
#pragma unroll
                for (int u = 0; u < together; u++)
#pragma unroll
                    for (int k = 0; k < Width; k++)
                        sum[u][image] = fmaf(weights[u][k], values[k], sum[u][image]);
            }
        }
#pragma unroll
        for (int u = 0; u < together; u++) {
            const bool is_padding = j + u >= sizes.hidden;
            const float bias = is_padding ? 0 : forward.bias1[j + u];
#pragma unroll
            for (int image = 0; image < Images; image++) {
                const float total = warp_sum(sum[u][image]);
                if (j + u >= hidden_pitch) /* the same in all lanes */
                    continue;
                const float of_layer = is_padding ? 0 : rounded<T>(total + bias),
                            activated = rounded<T>(activate<T>(sizes.activation, of_layer));
                const int64_t i = (first + image) * hidden_pitch + j + u;
                if (lane < team.size)
                    *team.of(lane, hidden + image * hidden_pitch + j + u) = activated;
                if (lane == 0 && image < here) {
                    forward.sums[i] = (T)of_layer;
                    forward.hidden[i] = (T)activated;
                }
            }
        }
    }
    team.meet();

    const int side = (int)threadIdx.x % 2;
    for (int base = team.rank * outputs; base < sizes.channels; base += team.size * outputs) {
        const int c = base + (int)threadIdx.x / 2, row = min(c, sizes.channels - 1);
        const T *weights_of_row = sizes.weight2 + (int64_t)row * hidden_pitch;
        float sum[Images] = {};
#pragma unroll 4
        for (int v = side; v < hidden_pitch / Width; v += 2) {
            float weights[Width];
            load(weights_of_row + v * Width, weights);
#pragma unroll
            for (int image = 0; image < Images; image++) {
                float values[Width];
                load(hidden + image * hidden_pitch + v * Width, values);
#pragma unroll
                for (int k = 0; k < Width; k++)
                    sum[image] = fmaf(weights[k], values[k], sum[image]);
            }
        }
        const float bias = forward.bias2[row];
#pragma unroll
        for (int image = 0; image < Images; image++) {
            const float total = sum[image] + __shfl_xor_sync(0xFFFFFFFFU, sum[image], 1);
            if (image % 2 == side && image < here && c < sizes.channels)
                forward.gates[(first + image) * sizes.channels + c] =
                    pointwise_sigmoid(rounded<T>(total + bias));
        }
    }
}

template <typename T> template <int Width, int Images> auto Forward<T>::kernel()
{
    return excite_kernel<T, Width, Images>;
}

/* ---- backward ---- */

/* A block's columns of the hidden numbers: every team.size-th piece of two vectors, which two lanes read. */
template <int Width> struct HiddenColumns {
    static constexpr int piece = 2 * Width;
    int pieces, count; /* count: with room for a piece that is there for other blocks of the team alone */
    __host__ __device__ HiddenColumns(int hidden_pitch, int team_size)
        : pieces((hidden_pitch + piece - 1) / piece), count((pieces + team_size - 1) / team_size * piece)
    {
    }
};

template <typename T> struct Backward {
    Sizes<T> sizes;
    const float *dgates, *gates;
    const T *sums;
    T *dlogits, *dsums, *dx;

    template <int Width, int Images> static auto kernel();
    static int columns(int width, int hidden_pitch, int team_size)
    {
        return width == 8   ? HiddenColumns<8>(hidden_pitch, team_size).count
               : width == 4 ? HiddenColumns<4>(hidden_pitch, team_size).count
                            : HiddenColumns<1>(hidden_pitch, team_size).count;
    }
    size_t shared_bytes(int width, int images, int team_size) const
    {
        const size_t dlogits_bytes = (size_t)sizes.pitch * sizeof(T),
                     dx_bytes = (size_t)(block_warps * 32 * width) * sizeof(float);
        const int hidden = sizes.hidden_pitch + block_warps * columns(width, sizes.hidden_pitch, team_size);
        return (size_t)images *
               ((size_t)hidden * sizeof(float) + (dlogits_bytes > dx_bytes ? dlogits_bytes : dx_bytes));
    }
};

/* Loads values [N, channels], whose rows are not padded, of channels c..c + Width, 0 after the last. */
template <int Width>
__device__ void load_unpadded(const float *from, int64_t image, int channels, int c, float (&values)[Width])
{
    const float *of_image = from + image * channels;
    if (channels % Width == 0) {
        load(of_image + c, values);
        return;
    }
#pragma unroll
    for (int k = 0; k < Width; k++)
        values[k] = c + k < channels ? of_image[c + k] : 0;
}

/* All blocks of a team compute dlogits. dhidden = dlogits weight2: two lanes read a piece of a row, and the
 * rows are dealt to the other lanes and to the warps. dx = dsums weight1: lanes read a row, and rows are
 * dealt to the warps. */
template <typename T, int Width, int Images>
__global__ void __launch_bounds__(block_threads)
    excite_backward_kernel(const __grid_constant__ Backward<T> backward)
{
    using Columns = HiddenColumns<Width>;
    constexpr int row_lanes = 16, group = 32 * Width;
    extern __shared__ __align__(128) unsigned char shared[];
    const Sizes<T> &sizes = backward.sizes;
    const int pitch = sizes.pitch, hidden_pitch = sizes.hidden_pitch, vectors = pitch / Width;
    const Team team;
    const Columns columns(hidden_pitch, team.size);
    float *dsums = reinterpret_cast<float *>(shared);               /* [hidden_pitch, Images] */
    float *of_hidden = dsums + Images * hidden_pitch;               /* [warps, Images, columns.count] */
    float *of_x = of_hidden + block_warps * Images * columns.count; /* [warps, Images, group] */
    T *dlogits = reinterpret_cast<T *>(of_x);                       /* before that: [Images, pitch] */
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t first = (int64_t)((int)blockIdx.x / team.size) * Images;
    const int here = (int)min((int64_t)Images, sizes.images - first);

    for (int v = (int)threadIdx.x; v < Images * vectors; v += block_threads) {
        const int image = v / vectors, c = (v - image * vectors) * Width;
        float values[Width] = {};
        if (image < here) {
            float gates[Width];
            load_unpadded(backward.gates, first + image, sizes.channels, c, gates);
            load_unpadded(backward.dgates, first + image, sizes.channels, c, values);
#pragma unroll
            for (int k = 0; k < Width; k++)
                values[k] *= gates[k] * (1 - gates[k]);
            if (v % team.size == team.rank)
                store(backward.dlogits + first * pitch + v * Width, values);
        }
        store(dlogits + v * Width, values);
    }
    team.meet(); /* a block must have begun before others write to its memory */

    for (int piece = team.rank, at = 0; piece < columns.pieces; piece += team.size, at += Columns::piece) {
        const int side = lane % 2, j = piece * Columns::piece + side * Width;
        float sum[Images][Width] = {};
        if (j < hidden_pitch) {
#pragma unroll 4
            for (int c = warp * row_lanes + lane / 2; c < sizes.channels; c += block_warps * row_lanes) {
                float weights[Width];
                load(sizes.weight2 + (int64_t)c * hidden_pitch + j, weights);
#pragma unroll
                for (int image = 0; image < Images; image++) {
                    const float gradient = (float)dlogits[image * pitch + c];
#pragma unroll
                    for (int k = 0; k < Width; k++)
                        sum[image][k] = fmaf(gradient, weights[k], sum[image][k]);
                }
            }
        }
#pragma unroll
        for (int image = 0; image < Images; image++) {
#pragma unroll
            for (int k = 0; k < Width; k++)
#pragma unroll
                for (int offset = 16; offset > 1; offset /= 2)
                    sum[image][k] += __shfl_xor_sync(0xFFFFFFFFU, sum[image][k], offset);
            if (lane < 2)
                store(of_hidden + (warp * Images + image) * columns.count + at + side * Width, sum[image]);
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < Images * columns.count; i += block_threads) {
        const int image = i / columns.count, column = i - image * columns.count,
                  piece = team.rank + column / Columns::piece * team.size,
                  j = piece * Columns::piece + column % Columns::piece;
        if (j >= hidden_pitch)
            continue;
        float sum = 0, gradient = 0;
#pragma unroll
        for (int part = 0; part < block_warps; part++)
            sum += of_hidden[(part * Images + image) * columns.count + column];
        if (image < here) {
            const int64_t to = (first + image) * hidden_pitch + j;
            gradient = rounded<T>(
                through_activation<T>(sizes.activation, rounded<T>(sum), (float)backward.sums[to]));
            backward.dsums[to] = (T)gradient;
        }
        for (int peer = 0; peer < team.size; peer++)
            *team.of(peer, dsums + j * Images + image) = gradient;
    }
    team.meet();

    for (int base = team.rank * group; base < pitch; base += team.size * group) {
        const int c = base + lane * Width;
        float sum[Images][Width] = {};
        if (c < pitch) {
#pragma unroll 4
            for (int j = warp; j < sizes.hidden; j += block_warps) {
                float weights[Width], gradients[Images];
                load(sizes.weight1 + (int64_t)j * pitch + c, weights);
                load(dsums + j * Images, gradients);
#pragma unroll
                for (int image = 0; image < Images; image++)
#pragma unroll
                    for (int k = 0; k < Width; k++)
                        sum[image][k] = fmaf(gradients[image], weights[k], sum[image][k]);
            }
        }
#pragma unroll
        for (int image = 0; image < Images; image++)
            store(of_x + (warp * Images + image) * group + lane * Width, sum[image]);
        __syncthreads();
        for (int i = (int)threadIdx.x; i < Images * group; i += block_threads) {
            const int image = i / group, column = i % group;
            if (image >= here || base + column >= pitch)
                continue;
            float total = 0;
#pragma unroll
            for (int part = 0; part < block_warps; part++)
                total += of_x[(part * Images + image) * group + column];
            backward.dx[(first + image) * pitch + base + column] = (T)total;
        }
        __syncthreads(); /* before of_x is written again */
    }
}

template <typename T> template <int Width, int Images> auto Backward<T>::kernel()
{
    return excite_backward_kernel<T, Width, Images>;
}

/* ---- launches ---- */

cudaLaunchConfig_t config_of(int64_t blocks, size_t shared_bytes, cudaLaunchAttribute *cluster, int team_size,
                             cudaStream_t stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(block_threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    cluster->id = cudaLaunchAttributeClusterDimension;
    cluster->val.clusterDim.x = (unsigned)team_size;
    cluster->val.clusterDim.y = cluster->val.clusterDim.z = 1;
    config.attrs = cluster;
    config.numAttrs = team_size > 1 ? 1 : 0;
    return config;
}

/* Returns how many blocks shall be a team: as many as have hidden numbers to compute and as the card can run,
 * if what was compiled for it knows of clusters. */
int team_size_for(const void *kernel, int hidden)
{
    cudaFuncAttributes attributes = {};
    int size = 1;
    if (cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= clusters_since)
        while (size < team_most && 2 * size * hidden_of_block <= hidden)
            size *= 2;
    for (; size > 1; size /= 2) {
        cudaLaunchAttribute cluster = {};
        const cudaLaunchConfig_t config = config_of(size, shared_most, &cluster, size, nullptr);
        int clusters = 0;
        if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess && clusters > 0)
            break;
    }
    (void)cudaGetLastError(); /* or the next launch would be blamed for it */
    return size;
}

template <int Width, int Images, typename Pass>
bool run_images(const Pass &pass, int team_size, cudaStream_t stream)
{
    const int64_t teams = (pass.sizes.images + Images - 1) / Images;
    const size_t bytes = pass.shared_bytes(Width, Images, team_size);
    if (Images > 1 && (teams * team_size < blocks_wanted || bytes > shared_most))
        return false;
    cudaLaunchAttribute cluster = {};
    const cudaLaunchConfig_t config = config_of(teams * team_size, bytes, &cluster, team_size, stream);
    (void)cudaLaunchKernelEx(&config, Pass::template kernel<Width, Images>(), pass); /* see with_storage */
    return true;
}

/* Launches a pass with as many images a block as leave enough blocks. */
template <int Width, typename Pass> void run_pass(const Pass &pass, cudaStream_t stream)
{
    const int team_size =
        team_size_for(reinterpret_cast<const void *>(Pass::template kernel<Width, 1>()), pass.sizes.hidden);
    if constexpr (Width > 1)
        if (run_images<Width, 4>(pass, team_size, stream) || run_images<Width, 2>(pass, team_size, stream))
            return;
    run_images<Width, 1>(pass, team_size, stream);
}

/* Returns the sizes, of x and sums or what is like them. */
template <typename T>
Sizes<T> sizes_of(const DeviceTensor *x, const DeviceTensor *sums, const ExciteLayers *layers)
{
    return {data_of<T>(layers->weight1),
            data_of<T>(layers->weight2),
            x->shape[0],
            (int)device_tensor_channels(x),
            (int)x->pitch,
            (int)device_tensor_channels(sums),
            (int)sums->pitch,
            layers->activation};
}

/* Returns whether the tensors, like x and sums, and the layers are what kernels_excite.h says. */
bool fits(const DeviceTensor *x, const DeviceTensor *sums, const ExciteLayers *layers)
{
    return device_tensor_channels(x) <= channels_most && device_tensor_channels(sums) <= hidden_most &&
           sums->element == x->element && layers->weight1->element == x->element &&
           layers->weight2->element == x->element && layers->weight1->pitch == x->pitch &&
           layers->weight2->pitch == sums->pitch && x->shape[0] == sums->shape[0];
}

bool is_like(const DeviceTensor *a, const DeviceTensor *b)
{
    return a->element == b->element && a->pitch == b->pitch && a->shape[0] == b->shape[0];
}

} // namespace

extern "C" cudaError_t kernel_excite(const DeviceTensor *x, const ExciteLayers *layers,
                                     const DeviceTensor *gates, const DeviceTensor *sums,
                                     const DeviceTensor *hidden, cudaStream_t stream)
{
    if (!fits(x, sums, layers) || !is_like(hidden, sums) || !is_f32(gates) || !is_f32(layers->bias1) ||
        !is_f32(layers->bias2))
        return cudaErrorNotSupported;
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        const Forward<T> forward = {sizes_of<T>(x, sums, layers),
                                    data_of<T>(x),
                                    data_of<float>(layers->bias1),
                                    data_of<float>(layers->bias2),
                                    data_of<float>(gates),
                                    data_of<T>(sums),
                                    data_of<T>(hidden)};
        with_width<T>(x->pitch, sums->pitch,
                      [&](auto width) { run_pass<decltype(width)::value>(forward, stream); });
    });
}

extern "C" cudaError_t kernel_excite_backward(const ExciteGradient *gradient, const ExciteLayers *layers,
                                              cudaStream_t stream)
{
    const DeviceTensor *dx = gradient->dx, *sums = gradient->sums;
    if (!fits(dx, sums, layers) || !is_like(gradient->dlogits, dx) || !is_like(gradient->dsums, sums) ||
        !is_f32(gradient->dgates) || !is_f32(gradient->gates))
        return cudaErrorNotSupported;
    return with_storage(dx, [&](auto zero) {
        using T = decltype(zero);
        const Backward<T> backward = {sizes_of<T>(dx, sums, layers),
                                      data_of<float>(gradient->dgates),
                                      data_of<float>(gradient->gates),
                                      data_of<T>(sums),
                                      data_of<T>(gradient->dlogits),
                                      data_of<T>(gradient->dsums),
                                      data_of<T>(dx)};
        with_width<T>(dx->pitch, sums->pitch,
                      [&](auto width) { run_pass<decltype(width)::value>(backward, stream); });
    });
}
