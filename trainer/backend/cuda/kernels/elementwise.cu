/* elementwise.cu - operations that read and write each element once. Memory is the bound, so elements are
 * moved in 16-byte accesses, four floats or eight narrow ones. */
#include "trainer/backend/cuda/kernels/channel_constants.cuh"
#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_pointwise.h"
#include "trainer/backend/cuda/kernels/pointwise.cuh"
#include "trainer/backend/pointwise_math.h"

using namespace fshard;

extern "C" int64_t device_tensor_count(const DeviceTensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++)
        count *= tensor->shape[i];
    return count;
}

extern "C" int64_t device_tensor_channels(const DeviceTensor *tensor)
{
    return tensor->shape[tensor->rank - 1];
}

extern "C" int64_t device_tensor_rows(const DeviceTensor *tensor)
{
    return device_tensor_count(tensor) / device_tensor_channels(tensor);
}

extern "C" int64_t device_tensor_stored(const DeviceTensor *tensor)
{
    return tensor->rows * tensor->pitch;
}

namespace
{

/* Computes y[i] = function(a[i], b[i]) over all that is stored; 0 must map to 0, so that padding stays. Loads
 * in flight hide the memory's latency: each thread has `Depth` of them before it computes. A block reads its
 * part before it writes it, and no other block touches that part: y may be a or b. The last elements, which
 * fill no vector, go to the first threads. */
template <typename T, bool Binary, int Depth, typename Function>
__global__ void map_kernel(const T *a, const T *b, T *y, int64_t count, Function function)
{
    constexpr int width = vector_width<T>;
    using Vector = Pack<T, width>;
    const int64_t vectors = count / width;
    const int64_t first = (int64_t)blockIdx.x * (block_threads * Depth) + threadIdx.x;
    Vector from_a[Depth], from_b[Depth];
#pragma unroll
    for (int d = 0; d < Depth; d++) {
        int64_t i = first + d * block_threads;
        if (i < vectors) {
            from_a[d] = reinterpret_cast<const Vector *>(a)[i];
            if (Binary)
                from_b[d] = reinterpret_cast<const Vector *>(b)[i];
        }
    }
#pragma unroll
    for (int d = 0; d < Depth; d++) {
        int64_t i = first + d * block_threads;
        if (i >= vectors)
            continue;
        Vector to;
#pragma unroll
        for (int k = 0; k < width; k++)
            to.values[k] =
                (T)function((float)from_a[d].values[k], Binary ? (float)from_b[d].values[k] : 0.0F);
        reinterpret_cast<Vector *>(y)[i] = to;
    }
    if (first < count % width) {
        int64_t i = count - 1 - first;
        y[i] = (T)function((float)a[i], Binary ? (float)b[i] : 0.0F);
    }
}

/* As many vectors as a large card has threads. */
constexpr int64_t deep_vectors = 1 << 18;

template <typename T, bool Binary, int Depth, typename Function>
void launch_map(const DeviceTensor *a, const DeviceTensor *b, const DeviceTensor *y, Function function,
                cudaStream_t stream)
{
    constexpr int64_t of_block = (int64_t)block_threads * Depth;
    const int64_t count = device_tensor_stored(y), vectors = count / vector_width<T>;
    const int64_t blocks = vectors > 0 ? (vectors + of_block - 1) / of_block : 1;
    map_kernel<T, Binary, Depth><<<(unsigned)blocks, block_threads, 0, stream>>>(
        data_of<T>(a), data_of<T>(b), data_of<T>(y), count, function);
}

/* Launches the map. With one operand b is a. */
template <bool Binary, typename Function>
cudaError_t map(const DeviceTensor *a, const DeviceTensor *b, const DeviceTensor *y, Function function,
                cudaStream_t stream)
{
    if (a->element != y->element || b->element != y->element)
        return cudaErrorNotSupported;
    if (device_tensor_stored(a) != device_tensor_stored(y) ||
        device_tensor_stored(b) != device_tensor_stored(y))
        return cudaErrorInvalidValue;
    return with_storage(y, [&](auto zero) {
        using T = decltype(zero);
        constexpr int depth = Binary ? 2 : 4;
        if (device_tensor_stored(y) / vector_width<T> >= depth * deep_vectors)
            launch_map<T, Binary, depth>(a, b, y, function, stream);
        else
            launch_map<T, Binary, 1>(a, b, y, function, stream);
    });
}

/* Fills small tensors, such as the seed of a backward pass. */
template <typename T>
__global__ void fill_kernel(T *y, int64_t stored, int64_t pitch, int64_t channels, float value)
{
    int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < stored; i += threads)
        y[i] = (T)(i % pitch < channels ? value : 0.0F);
}

/* Eight channels of a row from `channel` on, with 0 after the last. Rows of narrow tensors are whole vectors
 * that end in zeros. */
constexpr int row_width = 8;

template <typename T> struct RowVector {
    static __device__ void read(const T *row, int64_t channel, int64_t, float (&values)[row_width])
    {
        load(row + channel, values);
    }
    static __device__ void write(T *row, int64_t channel, int64_t, const float (&values)[row_width])
    {
        store(row + channel, values);
    }
};

template <> struct RowVector<float> {
    static __device__ void read(const float *row, int64_t channel, int64_t channels,
                                float (&values)[row_width])
    {
        if (channels % 4 == 0) {
            float half[4] = {};
            load(row + channel, half);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                values[k] = half[k];
                values[4 + k] = 0;
            }
            if (channel + 4 < channels) {
                load(row + channel + 4, half);
#pragma unroll
                for (int k = 0; k < 4; k++)
                    values[4 + k] = half[k];
            }
            return;
        }
#pragma unroll
        for (int k = 0; k < row_width; k++)
            values[k] = channel + k < channels ? row[channel + k] : 0;
    }
    static __device__ void write(float *row, int64_t channel, int64_t channels,
                                 const float (&values)[row_width])
    {
        if (channels % 4 == 0) {
            float low[4] = {values[0], values[1], values[2], values[3]};
            float high[4] = {values[4], values[5], values[6], values[7]};
            store(row + channel, low);
            if (channel + 4 < channels)
                store(row + channel + 4, high);
            return;
        }
#pragma unroll
        for (int k = 0; k < row_width; k++)
            if (channel + k < channels)
                row[channel + k] = values[k];
    }
};

template <typename From, typename To>
__global__ void cast_kernel(const From *x, int64_t x_pitch, To *y, int64_t y_pitch, int64_t rows,
                            int64_t channels)
{
    int64_t vectors = (channels + row_width - 1) / row_width;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * vectors)
        return;
    int64_t row = i / vectors, channel = i % vectors * row_width;
    float values[row_width];
    RowVector<From>::read(x + row * x_pitch, channel, channels, values);
    RowVector<To>::write(y + row * y_pitch, channel, channels, values);
}

constexpr int normalize_pixels = 1024; /* pixels of a block */

/* Normalises pixels. The block's bytes pass through shared memory: otherwise neither three bytes in nor eight
 * channels of two bytes out would be contiguous for 32 threads. */
template <typename T>
__global__ void normalize_kernel(const uint8_t *x, T *y, int64_t pixels, int channels,
                                 const __grid_constant__ ChannelConstants constants)
{
    __shared__ uint32_t words[normalize_pixels];
    const uint8_t *bytes = reinterpret_cast<const uint8_t *>(words);
    const int thread = (int)threadIdx.x;
    const int64_t first = (int64_t)blockIdx.x * normalize_pixels;
    const int here = (int)(pixels - first < normalize_pixels ? pixels - first : normalize_pixels);
    const int count = here * channels;
    const uint8_t *from = x + first * channels;
    for (int i = thread; i < count / 4; i += block_threads)
        words[i] = reinterpret_cast<const uint32_t *>(from)[i];
    if (thread < count % 4)
        reinterpret_cast<uint8_t *>(words)[count - 1 - thread] = from[count - 1 - thread];
    __syncthreads();
    if constexpr (sizeof(T) == sizeof(float)) {
        for (int i = thread; i < count; i += block_threads)
            y[first * channels + i] = (T)number_of(bytes[i], constants, i % channels);
    } else {
        for (int p = thread; p < here; p += block_threads) {
            float pixel[pixel_channels];
            numbers_of(bytes + p * channels, channels, constants, pixel);
            const float values[row_width] = {pixel[0], pixel[1], pixel[2], pixel[3]};
            store(y + (first + p) * row_width, values);
        }
    }
}

/* How each sample's matrix [rows, columns] and its transpose lie: distances between rows and between
 * samples. */
struct TransposeLayout {
    int rows, columns;
    int64_t x_pitch, x_sample, y_pitch, y_sample;
    int rows_written; /* columns of y; those after `rows` are zeros */
    int tail;         /* zeros after each sample of y */
};

/* Transposes each sample's matrix in tiles of 32 x 32. The 33rd column avoids bank conflicts in shared
 * memory. */
template <typename T>
__global__ void transpose_kernel(const T *x, T *y, int64_t samples, const TransposeLayout layout)
{
    __shared__ float tile[32][33];
    int row0 = (int)blockIdx.y * 32, column0 = (int)blockIdx.x * 32, lane = (int)threadIdx.x;
    for (int64_t sample = blockIdx.z; sample < samples; sample += gridDim.z) {
        const T *from = x + sample * layout.x_sample;
        T *to = y + sample * layout.y_sample;
        for (int i = (int)threadIdx.y; i < 32; i += (int)blockDim.y)
            tile[i][lane] = row0 + i < layout.rows && column0 + lane < layout.columns
                                ? (float)from[(row0 + i) * layout.x_pitch + column0 + lane]
                                : 0.0F;
        __syncthreads();
        for (int i = (int)threadIdx.y; i < 32; i += (int)blockDim.y)
            if (column0 + i < layout.columns && row0 + lane < layout.rows_written)
                to[(column0 + i) * layout.y_pitch + row0 + lane] = (T)tile[lane][i];
        if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.y == 0 && lane < layout.tail)
            to[layout.y_sample - 1 - lane] = (T)0.0F;
        __syncthreads();
    }
}

cudaError_t transpose(const DeviceTensor *x, const DeviceTensor *y, int64_t samples,
                      const TransposeLayout &layout, cudaStream_t stream)
{
    constexpr int64_t grid_z_max = 65535;
    dim3 grid((unsigned)((layout.columns + 31) / 32), (unsigned)((layout.rows_written + 31) / 32),
              (unsigned)(samples < grid_z_max ? samples : grid_z_max));
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        transpose_kernel<T><<<grid, dim3(32, 8), 0, stream>>>(data_of<T>(x), data_of<T>(y), samples, layout);
    });
}

/* Flattens narrow images. A block takes a group of a sample's channels, whose elements are contiguous in the
 * matrix, and transposes them in shared memory, so that both sides have 16-byte accesses. */
constexpr int flatten_elements = 8192;

struct FlattenLayout {
    int pixels, channels, pitch, group; /* pitch of the image; group: channels of a block, a multiple of
                                         * eight */
    int64_t matrix_pitch;
};

template <typename T, bool Backward>
__global__ void flatten_kernel(T *image, T *matrix, const FlattenLayout layout)
{
    using Vector = Pack<T, row_width>;
    __shared__ alignas(sizeof(Vector)) T tile[flatten_elements];
    const int pixels = layout.pixels, thread = (int)threadIdx.x;
    const int channel0 = (int)blockIdx.y * layout.group;
    const int group = layout.pitch - channel0 < layout.group ? layout.pitch - channel0 : layout.group;
    const int across = group / row_width;
    /* The matrix ends before the last padded channels do; what it has of them is zeros, like its padding. */
    const int64_t first = (int64_t)channel0 * pixels, rest = layout.matrix_pitch - first;
    const int count = (int)(rest < (int64_t)group * pixels ? rest : (int64_t)group * pixels);
    image += (int64_t)blockIdx.x * pixels * layout.pitch + channel0;
    matrix += (int64_t)blockIdx.x * layout.matrix_pitch + first;
    if (Backward) {
        for (int v = thread; v < count / row_width; v += block_threads)
            reinterpret_cast<Vector *>(tile)[v] = reinterpret_cast<const Vector *>(matrix)[v];
        __syncthreads();
    }
    /* Threads side by side have pixels side by side, and so elements side by side in the tile, which lie in
     * different banks; two of them have the two vectors of a sector of memory. */
    const int pair = across % 2 ? 1 : 2;
    for (int v = thread; v < pixels * across; v += block_threads) {
        const int pixel = v / pair % pixels;
        const int channel = (v / (pair * pixels) * pair + v % pair) * row_width;
        Vector *at = reinterpret_cast<Vector *>(image + (int64_t)pixel * layout.pitch + channel);
        Vector vector;
        if (!Backward)
            vector = *at;
#pragma unroll
        for (int k = 0; k < row_width; k++) {
            T &turned = tile[(channel + k) * pixels + pixel];
            if (!Backward)
                turned = vector.values[k];
            else
                vector.values[k] = channel0 + channel + k < layout.channels ? turned : (T)0.0F;
        }
        if (Backward)
            *at = vector;
    }
    if (!Backward) {
        __syncthreads();
        for (int v = thread; v < count / row_width; v += block_threads)
            reinterpret_cast<Vector *>(matrix)[v] = reinterpret_cast<const Vector *>(tile)[v];
    }
}

bool fits_flatten_kernel(const DeviceTensor *image)
{
    return element_is_narrow(image->element) &&
           image->shape[1] * image->shape[2] * row_width <= flatten_elements;
}

template <bool Backward>
cudaError_t flatten_narrow(const DeviceTensor *image, const DeviceTensor *matrix, cudaStream_t stream)
{
    FlattenLayout layout = {};
    layout.pixels = (int)(image->shape[1] * image->shape[2]);
    layout.channels = (int)image->shape[3];
    layout.pitch = (int)image->pitch;
    layout.group = flatten_elements / layout.pixels / row_width * row_width;
    if (layout.group > layout.pitch)
        layout.group = layout.pitch;
    layout.matrix_pitch = matrix->pitch;
    const dim3 grid((unsigned)image->shape[0], (unsigned)((layout.pitch + layout.group - 1) / layout.group));
    return with_storage(image, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (sizeof(T) == 2)
            flatten_kernel<T, Backward>
                <<<grid, block_threads, 0, stream>>>(data_of<T>(image), data_of<T>(matrix), layout);
    });
}

/* Copies: one pixel, or one packed channel, has the same elements in the same order. */
cudaError_t copy(const DeviceTensor *x, const DeviceTensor *y, cudaStream_t stream)
{
    const size_t bytes = (size_t)device_tensor_stored(y) * (x->element == ELEMENT_F32 ? 4 : 2);
    if (x->data == y->data)
        return cudaSuccess;
    return cudaMemcpyAsync(y->data, x->data, bytes, cudaMemcpyDeviceToDevice, stream);
}

bool is_view(const DeviceTensor *image, const DeviceTensor *matrix)
{
    return image->rows == matrix->rows || (image->pitch == 1 && image->element == ELEMENT_F32);
}

struct Scale {
    float factor;
    __device__ float operator()(float x, float) const
    {
        return factor * x;
    }
};

struct Rectify {
    float slope;
    __device__ float operator()(float x, float) const
    {
        return x > 0 ? x : slope * x;
    }
};

struct RectifyBackward {
    float slope;
    __device__ float operator()(float dy, float y) const
    {
        return y > 0 ? dy : slope * dy;
    }
};

template <float (*Function)(float)> struct Pointwise {
    __device__ float operator()(float x, float) const
    {
        return Function(x);
    }
};

struct Add {
    __device__ float operator()(float a, float b) const
    {
        return a + b;
    }
};

} // namespace

extern "C" cudaError_t kernel_fill(const DeviceTensor *y, float value, cudaStream_t stream)
{
    int64_t stored = device_tensor_stored(y), channels = device_tensor_channels(y);
    return with_storage(y, [&](auto zero) {
        using T = decltype(zero);
        fill_kernel<T><<<grid_blocks(stored), block_threads, 0, stream>>>(data_of<T>(y), stored, y->pitch,
                                                                          channels, value);
    });
}

extern "C" cudaError_t kernel_cast(const DeviceTensor *x, const DeviceTensor *y, cudaStream_t stream)
{
    int64_t rows = x->rows, channels = device_tensor_channels(x);
    int64_t x_pitch = x->pitch, y_pitch = y->pitch;
    if (x_pitch == y_pitch && channels == x_pitch) { /* without padding all is one row */
        channels = x_pitch = y_pitch = rows * channels;
        rows = 1;
    }
    const int64_t vectors = rows * ((channels + row_width - 1) / row_width);
    const unsigned blocks = (unsigned)((vectors + block_threads - 1) / block_threads);
    cudaError_t inner = cudaSuccess;
    cudaError_t outer = with_storage(x, [&](auto from) {
        using From = decltype(from);
        inner = with_storage(y, [&](auto to) {
            using To = decltype(to);
            cast_kernel<From, To><<<blocks, block_threads, 0, stream>>>(
                data_of<From>(x), x_pitch, data_of<To>(y), y_pitch, rows, channels);
        });
    });
    return inner != cudaSuccess ? inner : outer;
}

extern "C" cudaError_t kernel_scale(const DeviceTensor *x, float factor, const DeviceTensor *y,
                                    cudaStream_t stream)
{
    return map<false>(x, x, y, Scale{factor}, stream);
}

extern "C" cudaError_t kernel_normalize(const DeviceTensor *x, const float *mean, const float *deviation,
                                        const DeviceTensor *y, cudaStream_t stream)
{
    int64_t channels = device_tensor_channels(x), pixels = x->rows;
    if (x->element != ELEMENT_U8 || channels > pixel_channels)
        return cudaErrorNotSupported;
    const ChannelConstants constants = channel_constants(mean, deviation, channels);
    return with_storage(y, [&](auto zero) {
        using T = decltype(zero);
        normalize_kernel<T>
            <<<(unsigned)((pixels + normalize_pixels - 1) / normalize_pixels), block_threads, 0, stream>>>(
                data_of<uint8_t>(x), data_of<T>(y), pixels, (int)channels, constants);
    });
}

extern "C" cudaError_t kernel_relu(const DeviceTensor *x, float slope, const DeviceTensor *y,
                                   cudaStream_t stream)
{
    return map<false>(x, x, y, Rectify{slope}, stream);
}

extern "C" cudaError_t kernel_relu_backward(const DeviceTensor *dy, const DeviceTensor *y, float slope,
                                            const DeviceTensor *dx, cudaStream_t stream)
{
    return map<true>(dy, y, dx, RectifyBackward{slope}, stream);
}

extern "C" cudaError_t kernel_pointwise(OpKind op, const DeviceTensor *x, const DeviceTensor *y,
                                        cudaStream_t stream)
{
#define CASE(KIND, function, narrow)                                                                         \
    case OP_##KIND:                                                                                          \
        return element_is_narrow(y->element) ? map<false>(x, x, y, Pointwise<narrow>{}, stream)              \
                                             : map<false>(x, x, y, Pointwise<function>{}, stream);
    switch (op) {
        POINTWISE_FUNCTIONS(CASE)
    default:
        return cudaErrorInvalidValue;
    }
#undef CASE
}

extern "C" cudaError_t kernel_pointwise_backward(OpKind op, const DeviceTensor *dy, const DeviceTensor *x,
                                                 const DeviceTensor *dx, cudaStream_t stream)
{
#define CASE(KIND, function, narrow)                                                                         \
    case OP_##KIND##_BACKWARD:                                                                               \
        return element_is_narrow(dx->element)                                                                \
                   ? map<true>(dy, x, dx, PointwiseBackward<narrow##_slope>{}, stream)                       \
                   : map<true>(dy, x, dx, PointwiseBackward<function##_slope>{}, stream);
    switch (op) {
        POINTWISE_FUNCTIONS(CASE)
    default:
        return cudaErrorInvalidValue;
    }
#undef CASE
}

extern "C" cudaError_t kernel_add(const DeviceTensor *a, const DeviceTensor *b, const DeviceTensor *y,
                                  cudaStream_t stream)
{
    return map<true>(a, b, y, Add{}, stream);
}

extern "C" cudaError_t kernel_flatten(const DeviceTensor *x, const DeviceTensor *y, cudaStream_t stream)
{
    if (is_view(x, y))
        return copy(x, y, stream);
    if (fits_flatten_kernel(x))
        return flatten_narrow<false>(x, y, stream);
    const int pixels = (int)(x->shape[1] * x->shape[2]), channels = (int)x->shape[3];
    const TransposeLayout layout = {.rows = pixels,
                                    .columns = channels,
                                    .x_pitch = x->pitch,
                                    .x_sample = pixels * x->pitch,
                                    .y_pitch = pixels,
                                    .y_sample = y->pitch,
                                    .rows_written = pixels,
                                    .tail = (int)(y->pitch - y->shape[1])};
    return transpose(x, y, x->shape[0], layout, stream);
}

extern "C" cudaError_t kernel_flatten_backward(const DeviceTensor *dy, const DeviceTensor *dx,
                                               cudaStream_t stream)
{
    if (is_view(dx, dy))
        return copy(dy, dx, stream);
    if (fits_flatten_kernel(dx))
        return flatten_narrow<true>(dx, dy, stream);
    const int pixels = (int)(dx->shape[1] * dx->shape[2]), channels = (int)dx->shape[3];
    const TransposeLayout layout = {.rows = channels,
                                    .columns = pixels,
                                    .x_pitch = pixels,
                                    .x_sample = dy->pitch,
                                    .y_pitch = dx->pitch,
                                    .y_sample = pixels * dx->pitch,
                                    .rows_written = (int)dx->pitch,
                                    .tail = 0};
    return transpose(dy, dx, dx->shape[0], layout, stream);
}
