/* norm_pool.cu - a batch norm whose result goes to a max pool alone: see kernels_norm_pool.h.
 *
 * A norm rises or falls with x throughout a channel, so the pool looks for the largest or smallest x, before
 * the norm. Values are compared as they are stored, two of 16 bits at a time, with the sign turned where the
 * norm falls. A thread has 16 bytes of channels of a strip: some places of the pool below each other, whose
 * windows share a row of x where they are 3 high; what neighbours share is found in the cache. The
 * statistics, where no convolution made sums of x, read it before.
 *
 * Bytes in 16 bits, in tensors of x's size, of which the pool's are a quarter: forward x is read, y, extreme
 * and index are written, 1 5/8; apart the norm reads x and writes its result, the pool reads that and writes
 * y and index, 3 3/8. Backward the norm's sums read dy and extreme and write g, 3/4, and dx reads x, g and
 * index and is written, 2 3/8; apart the pool's gradient takes 1 3/8 and the norm's 5. */
#include "trainer/backend/cuda/kernels/norm_pool.cuh"

using namespace fshard;
using namespace fshard::norm_pool;
using namespace fshard::window;

namespace
{

constexpr int strip = 4; /* places of the pool below each other that a thread has */

/* ---- values as they are stored, in words of 32 bits ---- */

template <typename T> struct Stored {
    using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    static constexpr unsigned both = 0x10001, sign = 0x8000;
    static constexpr unsigned least = std::is_same_v<T, __half> ? 0xFC00 : 0xFF80; /* minus infinity */
    static __device__ Two two(unsigned word)
    {
        return *reinterpret_cast<const Two *>(&word);
    }
    /* Returns ones in the halves where a is above b. */
    static __device__ unsigned above(unsigned a, unsigned b)
    {
        return __hgt2_mask(two(a), two(b));
    }
    /* Returns the larger of each half; NaN of NaN. */
    static __device__ unsigned larger(unsigned a, unsigned b)
    {
        const Two most = __hmax2_nan(two(a), two(b));
        return *reinterpret_cast<const unsigned *>(&most);
    }
};

template <> struct Stored<float> {
    static constexpr unsigned both = 1, sign = 0x80000000U, least = 0xFF800000U;
    static __device__ unsigned above(unsigned a, unsigned b)
    {
        return __uint_as_float(a) > __uint_as_float(b) ? 0xFFFFFFFFU : 0;
    }
    static __device__ unsigned larger(unsigned a, unsigned b)
    {
        const float first = __uint_as_float(a), second = __uint_as_float(b);
        return first > second || first != first ? a : b;
    }
};

/* The largest values that a thread has met, 16 bytes of channels, and their places, as wide as they are. */
template <typename T> struct Most {
    unsigned values[4], places[4];
    __device__ Most()
    {
#pragma unroll
        for (int w = 0; w < 4; w++) {
            values[w] = Stored<T>::least * Stored<T>::both;
            places[w] = 0;
        }
    }
    __device__ void meet(const unsigned (&other)[4], const unsigned (&where)[4])
    {
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const unsigned wins = Stored<T>::above(other[w], values[w]);
            values[w] = Stored<T>::larger(other[w], values[w]);
            places[w] = (where[w] & wins) | (places[w] & ~wins);
        }
    }
    /* Meets what another has met, whose places count from `first` on here. */
    __device__ void meet(const Most &other, int first)
    {
        unsigned where[4];
#pragma unroll
        for (int w = 0; w < 4; w++)
            where[w] = other.places[w] + (unsigned)first * Stored<T>::both;
        meet(other.values, where);
    }
    __device__ void meet(const Raw<T, vector_width<T>> &raw, int place)
    {
        unsigned where[4];
#pragma unroll
        for (int w = 0; w < 4; w++)
            where[w] = (unsigned)place * Stored<T>::both;
        meet(raw.words, where);
    }
};

/* Returns the sign bits of the stored values of channels whose scale is below 0. */
template <typename T> __device__ void turns_of(const float (&scale)[vector_width<T>], unsigned (&turns)[4])
{
    constexpr int in_word = vector_width<T> / 4, bits = 32 / in_word;
#pragma unroll
    for (int w = 0; w < 4; w++) {
        turns[w] = 0;
#pragma unroll
        for (int k = 0; k < in_word; k++)
            turns[w] |= scale[w * in_word + k] < 0 ? Stored<T>::sign << k * bits : 0;
    }
}

/* Returns the places as bytes. */
template <typename T> __device__ Raw<uint8_t, vector_width<T>> bytes_of(const unsigned (&places)[4])
{
    constexpr int in_word = vector_width<T> / 4, bits = 32 / in_word;
    Raw<uint8_t, vector_width<T>> bytes = {};
#pragma unroll
    for (int k = 0; k < vector_width<T>; k++)
        bytes.words[k / 4] |= (places[k / in_word] >> k % in_word * bits & 0xFF) << 8 * (k % 4);
    return bytes;
}

/* ---- forward ---- */

template <typename T> struct Forward {
    Norm norm;
    const T *x;
    T *y, *extreme;
    uint8_t *index;
    Image in, out;
    Places places; /* of strips */
};

/* Returns the largest values of the columns that a window has of row h; of none where there is no row. */
template <typename T, int Kernel, int Padding>
__device__ Most<T> largest_in_row(const Forward<T> &job, const Place &p, int h, const unsigned (&turns)[4])
{
    constexpr int width = vector_width<T>;
    Raw<T, width> columns[Kernel];
    const int left = 2 * p.w - Padding;
    Most<T> most;
#pragma unroll
    for (int i = 0; i < Kernel; i++)
        if (job.in.has(h, left + i))
            columns[i] = fetch<T, width>(job.x + job.in.element(p.n, h, left + i, p.vector * width));
#pragma unroll
    for (int i = 0; i < Kernel; i++)
        if (job.in.has(h, left + i)) {
#pragma unroll
            for (int w = 0; w < 4; w++)
                columns[i].words[w] ^= turns[w];
            most.meet(columns[i], i);
        }
    return most;
}

template <typename T>
__device__ void leave(const Forward<T> &job, const Place &p, int h, const Most<T> &most,
                      const unsigned (&turns)[4], const Affine<vector_width<T>> &affine)
{
    constexpr int width = vector_width<T>;
    const int64_t to = job.out.element(p.n, h, p.w, p.vector * width);
    Raw<T, width> extreme;
    float values[width];
#pragma unroll
    for (int w = 0; w < 4; w++)
        extreme.words[w] = most.values[w] ^ turns[w];
    put(job.extreme + to, extreme);
    unpack(extreme, values);
#pragma unroll
    for (int k = 0; k < width; k++)
        values[k] = activated<T, OP_RELU>(affine.of(values[k], k), job.norm.slope);
    put(job.y + to, values);
    put(job.index + to, bytes_of<T>(most.places));
}

template <typename T, int Kernel, int Padding>
__global__ void __launch_bounds__(block_threads) norm_pool_kernel(const __grid_constant__ Forward<T> job)
{
    const Place p = place_of_thread(job.places);
    if (!p.exists)
        return;
    const Affine<vector_width<T>> affine(job.norm, p.vector * vector_width<T>);
    const int first = p.h * strip, end = min(first + strip, job.out.height);
    unsigned turns[4];
    turns_of<T>(affine.scale, turns);
    Most<T> above; /* of the row that a window of 3 rows shares with the one before */
    if constexpr (Padding > 0)
        above = largest_in_row<T, Kernel, Padding>(job, p, 2 * first - 1, turns);
    for (int h = first; h < end; h++) {
        const Most<T> upper = largest_in_row<T, Kernel, Padding>(job, p, 2 * h, turns),
                      lower = largest_in_row<T, Kernel, Padding>(job, p, 2 * h + 1, turns);
        Most<T> most = above;
        most.meet(upper, Padding * Kernel);
        most.meet(lower, (Padding + 1) * Kernel);
        leave(job, p, h, most, turns, affine);
        if constexpr (Padding > 0)
            above = lower;
    }
}

__global__ void sum_statistics_kernel(const SumsOfX sums, int pitch)
{
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c < pitch)
        (void)FromSums<1>(sums, c, true);
}

/* ---- backward ---- */

template <typename T> struct BackwardJob {
    PoolGradient<T> gradient;
    T *dx;
    Places places; /* of strips of squares of 2 x 2 pixels */
};

template <typename T, int Kernel, int Padding>
__global__ void __launch_bounds__(block_threads)
    norm_pool_backward_kernel(const __grid_constant__ BackwardJob<T> job)
{
    constexpr int width = vector_width<T>;
    const PoolGradient<T> &gradient = job.gradient;
    const Image &in = gradient.in;
    const Place p = place_of_thread(job.places);
    if (!p.exists)
        return;
    const int c = p.vector * width, first = p.h * strip, end = min(first + strip, (in.height + 1) / 2);
    const GradientColumns<T> columns(gradient, c);
    Windows<T, Padding + 1> line, below;
    line.read(gradient, p.n, first, p.w, c);
    for (int q = first; q < end; q++) {
        Square<T> square;
        below.read(gradient, p.n, q + 1, p.w, c);
        square.read(gradient, p.n, q, p.w, c);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (in.has(2 * q + i / 2, 2 * p.w + i % 2))
                put(job.dx + in.element(p.n, 2 * q + i / 2, 2 * p.w + i % 2, c),
                    square.template gradient_of_pixel<Kernel, Padding>(i, line, below, columns));
        line = below;
    }
}

/* ---- launches ---- */

bool pool_is(const PoolShape *pool, int kernel, int padding)
{
    return pool->kernel == kernel && pool->stride == 2 && pool->padding == padding && !pool->ceil;
}

/* Returns whether the tensor has the type, and a pool of x has its shape. */
bool is_pooled(const DeviceTensor *tensor, ElementType element, const DeviceTensor *x, const PoolShape *pool)
{
    const int64_t lost = pool->kernel - 2 * pool->padding - 1; /* 0 or 1 */
    for (int axis = 1; axis < 3; axis++)
        if (x->shape[axis] <= lost || tensor->shape[axis] != (x->shape[axis] - lost - 1) / 2 + 1)
            return false;
    return tensor->element == element && tensor->shape[0] == x->shape[0] && tensor->pitch == x->pitch;
}

/* Returns whether there is a kernel for x, and for what has its pool's shape. */
bool fits(const DeviceTensor *x, const DeviceTensor *pooled, const DeviceTensor *index, const PoolShape *pool)
{
    return x->pitch == device_tensor_channels(x) && x->pitch % 8 == 0 &&
           (pool_is(pool, 3, 1) || pool_is(pool, 2, 0)) && is_pooled(pooled, x->element, x, pool) &&
           is_pooled(index, ELEMENT_U8, x, pool);
}

/* Returns the strips of so many rows of the image of so many columns. */
template <typename T> Places strips_of(const DeviceTensor *image, int64_t rows, int64_t columns)
{
    return Places(image->shape[0], (int)((rows + strip - 1) / strip), (int)columns,
                  (int)(image->pitch / vector_width<T>));
}

/* Launches one of the kernels above for all places of its job. */
template <typename Job> cudaError_t run(void (*kernel)(Job), const Job &job, cudaStream_t stream)
{
    if (job.places.total >= INT64_C(1) << 31)
        return cudaErrorNotSupported;
    const unsigned blocks = (unsigned)((job.places.total + block_threads - 1) / block_threads);
    kernel<<<blocks, block_threads, 0, stream>>>(job);
    return cudaGetLastError();
}

} // namespace

extern "C" cudaError_t kernel_batch_norm_sum_statistics(const NormTensors *tensors,
                                                        const NormRunning *running, const DeviceTensor *sums,
                                                        cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x;
    if (!all_f32(
            {tensors->mean, tensors->inverse_deviation, running->mean, running->var, running->bias, sums}) ||
        sums->pitch < x->pitch)
        return cudaErrorNotSupported;
    sum_statistics_kernel<<<blocks_for(x->pitch), block_threads, 0, stream>>>(
        sums_of_x(tensors, running, sums), (int)x->pitch);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_norm_pool(const NormTensors *tensors, const NormActivation *activation,
                                        const PoolShape *pool, const NormPooled *pooled, cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x, *y = pooled->y;
    if (!all_f32({tensors->weight, tensors->bias, tensors->mean, tensors->inverse_deviation}) ||
        (activation->op && activation->op != OP_RELU) || !fits(x, y, pooled->index, pool) ||
        !is_pooled(pooled->extreme, x->element, x, pool))
        return cudaErrorNotSupported;
    return with_storage_checked(x, [&](auto zero) {
        using T = decltype(zero);
        const Forward<T> job = {norm_of(tensors, activation),
                                data_of<const T>(x),
                                data_of<T>(y),
                                data_of<T>(pooled->extreme),
                                data_of<uint8_t>(pooled->index),
                                image_of(x),
                                image_of(y),
                                strips_of<T>(x, y->shape[1], y->shape[2])};
        return run(pool->kernel == 3 ? norm_pool_kernel<T, 3, 1> : norm_pool_kernel<T, 2, 0>, job, stream);
    });
}

extern "C" cudaError_t kernel_norm_pool_backward(const DeviceTensor *g, const DeviceTensor *index,
                                                 const NormTensors *tensors, const DeviceTensor *dweight,
                                                 const DeviceTensor *dbias, const PoolShape *pool,
                                                 const DeviceTensor *dx, cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x;
    if (!all_f32({tensors->weight, tensors->mean, tensors->inverse_deviation, dweight, dbias}) ||
        !fits(x, g, index, pool) || dx->element != x->element || dx->pitch != x->pitch || dx->rows != x->rows)
        return cudaErrorNotSupported;
    return with_storage_checked(x, [&](auto zero) {
        using T = decltype(zero);
        const BackwardJob<T> job = {pool_gradient<T>(g, index, tensors, dweight, dbias), data_of<T>(dx),
                                    strips_of<T>(x, (x->shape[1] + 1) / 2, (x->shape[2] + 1) / 2)};
        return run(pool->kernel == 3 ? norm_pool_backward_kernel<T, 3, 1>
                                     : norm_pool_backward_kernel<T, 2, 0>,
                   job, stream);
    });
}
