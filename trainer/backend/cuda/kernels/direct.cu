/* direct.cu - convolutions of few channels and their data gradients on the matrix units. A block multiplies a
 * tile of pixels with all weights; the patch below the tile, the weights, and what is written lie in shared
 * memory (direct_tile.cuh). Step by step: docs/kernels.md. */
#include "trainer/backend/cuda/kernels/direct_tile.cuh"

using namespace fshard;
using namespace fshard::direct;

namespace
{

constexpr int steps_of_nine = 5; /* nine taps of eight channels */
constexpr int group_pixels = 32; /* of a warp: two matrices of 16 rows share the weights */

/* So many threads run on a processor at a time, by their registers. */
__host__ __device__ constexpr int threads_at_a_time(int instance)
{
    return instance <= 2 ? 1024 : 512;
}

/* What lies in shared memory. Weights: rows of all taps of one channel of y, as in device memory (of a window
 * the nine numbers alone), with zeros behind each: a row of a matrix begins 16 bytes times an odd number
 * behind the one before, in other banks. Of each chunk, where it lies: by the patch's pixel of a first tap,
 * and by the weights. The patch; the tile. */
struct Room {
    int weight_rows, weight_vectors;                     /* vectors: 16 bytes; of a row */
    int patch_offsets, weight_offsets, patch, tile, all; /* bytes */
};

/* What a launch does. */
struct Plan {
    Layout layout;
    Room room;
    int chunks;                     /* in both tables */
    int weight_offsets[chunks_max]; /* bytes between the weights of a chunk and its row; where it does not
                                       exist, zeros lie there */
};

/* Brings the weights of windows: of each tap, the first of a chunk of channels in device memory. */
template <typename T>
__device__ void make_weights(const T *weight, T *to, const Room &room, const Layout &layout)
{
    const int rows = layout.here.chunks * chunk, columns = room.weight_vectors * chunk;
    for (int i = (int)threadIdx.x; i < room.weight_rows * columns; i += (int)blockDim.x) {
        const int row = i / columns, tap = i % columns;
        to[i] = row < rows && tap < window_taps ? weight[(row * window_taps + tap) * chunk] : T(0.F);
    }
}

/* Brings the weights to shared memory: asynchronously, in copies that are not closed; those of windows at
 * once. */
template <typename T>
__device__ void bring_weights(const T *weight, char *shared, const Room &room, const Layout &layout)
{
    if (layout.window.stride) {
        make_weights(weight, reinterpret_cast<T *>(shared), room, layout);
        return;
    }
    const unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    const int there_are = layout.kernel * layout.kernel * layout.weight_pitch / chunk;
    const int rows = layout.direction > 0 ? layout.here.chunks * chunk : room.weight_rows; /* with numbers */
    const int lane = (int)threadIdx.x % 32;
    for (int row = (int)threadIdx.x / 32; row < room.weight_rows; row += (int)blockDim.x / 32)
        for (int v = lane; v < room.weight_vectors; v += 32) {
            const bool inside = row < rows && v < there_are;
            copy_16_or_zeros(to + (unsigned)((row * room.weight_vectors + v) * chunk_bytes),
                             weight + (inside ? (row * there_are + v) * chunk : 0), inside);
        }
}

/* Loads the weights of a step for N chunks of y, or x. row: that of the lane in the first two chunks; next:
 * the bytes to those of the next two. */
template <int N, bool Backward> __device__ void load_weights(unsigned row, unsigned next, uint2 (&pairs)[N])
{
    if constexpr (N == 1) {
        unsigned two[2];
        if constexpr (Backward)
            load_transposed(two, row);
        else
            load_matrices(two, row);
        pairs[0] = make_uint2(two[0], two[1]);
    } else {
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            unsigned two[4];
            if constexpr (Backward)
                load_transposed(two, row + (unsigned)(n / 2) * next);
            else
                load_matrices(two, row + (unsigned)(n / 2) * next);
            pairs[n] = make_uint2(two[0], two[1]);
            pairs[n + 1] = make_uint2(two[2], two[3]);
        }
    }
}

/* What the warps of a block multiply with, in shared memory. */
struct Operands {
    unsigned patch, weights, next; /* weights: the lane's row; next: see load_weights */
    char *tile;
    const int *patch_offsets, *weight_offsets; /* the lane's */
};

/* Adds a step of 32 pixels. patch: where the lane's rows of either half are. */
template <typename T, int N>
__device__ void add_step(const unsigned (&patch)[2], unsigned offset, const uint2 (&weights)[N],
                         float (&sums)[2][N][4])
{
    unsigned pairs[2][4];
#pragma unroll
    for (int half = 0; half < 2; half++)
        load_matrices(pairs[half], patch[half] + offset);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            multiply_add(T{}, sums[half][n], pairs[half], weights[n]);
}

/* The steps of a class whose number is known: what all pixels share is in registers. */
template <typename T, int N, bool Backward, int Steps> struct Taps {
    unsigned offsets[Steps];
    uint2 weights[Steps][N];
    __device__ Taps(const Operands &of, int)
    {
#pragma unroll
        for (int step = 0; step < Steps; step++) {
            offsets[step] = (unsigned)of.patch_offsets[2 * step];
            load_weights<N, Backward>(of.weights + (unsigned)of.weight_offsets[2 * step], of.next,
                                      weights[step]);
        }
    }
    __device__ void add(const unsigned (&patch)[2], float (&sums)[2][N][4]) const
    {
#pragma unroll
        for (int step = 0; step < Steps; step++)
            add_step<T, N>(patch, offsets[step], weights[step], sums);
    }
};

/* Of any number. */
template <typename T, int N, bool Backward> struct Taps<T, N, Backward, 0> {
    const Operands &of;
    int steps;
    __device__ Taps(const Operands &operands, int count) : of(operands), steps(count)
    {
    }
    __device__ void add(const unsigned (&patch)[2], float (&sums)[2][N][4]) const
    {
#pragma unroll 3
        for (int step = 0; step < steps; step++) {
            uint2 weights[N];
            load_weights<N, Backward>(of.weights + (unsigned)of.weight_offsets[2 * step], of.next, weights);
            add_step<T, N>(patch, (unsigned)of.patch_offsets[2 * step], weights, sums);
        }
    }
};

/* Writes what a lane has of 16 pixels to a plane of the tile: of pixels low and high, two channels each. */
template <typename T> __device__ void write_two(char *plane, int low, int high, const float (&v)[4])
{
    const Pack<T, 2> first = {{(T)v[0], (T)v[1]}}, second = {{(T)v[2], (T)v[3]}};
    *reinterpret_cast<Pack<T, 2> *>(plane + low * chunk_bytes) = first;
    *reinterpret_cast<Pack<T, 2> *>(plane + high * chunk_bytes) = second;
}

/* Computes the pixels of a class of a tile. Where a product has more rows than there are pixels, they go to
 * the place behind the tile. */
template <typename T, int N, bool Backward, int Steps>
__device__ void multiply_class(const Operands &of, const float (&bias)[N][2], float slope,
                               const Layout &layout, int row_class, int column_class)
{
    const Side &rows = layout.sides[row_class], &columns = layout.sides[column_class];
    const int lane = (int)threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
    const int count = layout.of_class.count;
    const Taps<T, N, Backward, Steps> taps(of, layout.steps[row_class][column_class]);
    for (int first = (int)threadIdx.x / 32 * group_pixels; first < count; first += (int)blockDim.x) {
        /* a lane finds the place of one pixel */
        const Place a = place_in(layout.of_class, min(first + lane, count - 1));
        const unsigned from = of.patch + (unsigned)patch_bytes(a, layout, rows, columns);
        const unsigned halves[2] = {__shfl_sync(0xFFFFFFFFU, from, lane % 16),
                                    __shfl_sync(0xFFFFFFFFU, from, 16 + lane % 16)};
        int place = 0;
        if constexpr (Backward) {
            place = (a.image * layout.rows + a.row * layout.out_step + rows.first_out) * layout.columns +
                    a.column * layout.out_step + columns.first_out;
            place = first + lane < count ? place : layout.tile.count;
        }
        float sums[2][N][4];
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                sums[0][n][k] = sums[1][n][k] = Backward ? 0 : bias[n][k % 2];
        taps.add(halves, sums);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int low = min(first + 16 * half + group, layout.tile.count),
                high = min(first + 16 * half + group + 8, layout.tile.count);
            if constexpr (Backward) {
                low = __shfl_sync(0xFFFFFFFFU, place, 16 * half + group);
                high = __shfl_sync(0xFFFFFFFFU, place, 16 * half + group + 8);
            }
#pragma unroll
            for (int n = 0; n < N; n++) {
                if (n >= layout.here.chunks)
                    continue;
                float(&v)[4] = sums[half][n];
                if (!Backward && slope != 1)
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        v[k] = v[k] > 0 ? v[k] : slope * v[k];
                write_two<T>(of.tile + n * layout.here_plane + quarter * 4, low, high, v);
            }
        }
    }
}

/* The sums of eight channels, and of their squares. */
typedef float Moments[2][chunk];

/* Writes a tile as it is, and adds what is written to the moments of the thread's chunk if they are
 * wanted. */
template <typename T, bool Sums>
__device__ void write_tile(const char *tile, T *here, const Layout &layout, const Spot &spot, bool wanted,
                           Moments &moments)
{
    const Image &image = layout.here;
    const Share share = share_of(image.chunks);
    const bool whole = layout.rows == image.height && layout.columns == image.width;
    const int pixels = min(layout.images, layout.samples - spot.sample) * layout.rows * layout.columns;
    if (share.chunk >= image.chunks)
        return;
    tile += share.chunk * layout.here_plane;
    here += share.chunk * chunk;
    for (int pixel = share.first; pixel < pixels; pixel += share.step) {
        int at = element_of(image, spot.sample, 0, 0) + pixel * image.chunks * chunk;
        if (!whole) {
            const Place place = place_in(layout.tile, pixel);
            const int h = spot.row + place.row, w = spot.column + place.column;
            if (h >= image.height || w >= image.width)
                continue;
            at = element_of(image, spot.sample + place.image, h, w);
        }
        const uint4 eight = *reinterpret_cast<const uint4 *>(tile + pixel * chunk_bytes);
        *reinterpret_cast<uint4 *>(here + at) = eight;
        if (!Sums || !wanted)
            continue;
        float values[chunk];
        load(reinterpret_cast<const T *>(&eight), values);
#pragma unroll
        for (int k = 0; k < chunk; k++) {
            moments[0][k] += values[k];
            moments[1][k] += values[k] * values[k];
        }
    }
}

/* Writes a tile of whole images without the pixels around them, which are added to those that they show. */
template <typename T>
__device__ void write_folded(const char *tile, T *here, const Layout &layout, const Spot &spot)
{
    const int height = layout.here.height - 2 * layout.folded, width = layout.here.width - 2 * layout.folded;
    const Share share = share_of(layout.here.chunks);
    const int images = min(layout.images, layout.samples - spot.sample);
    if (share.chunk >= layout.here.chunks)
        return;
    tile += share.chunk * layout.here_plane;
    here += spot.sample * height * width * layout.here.chunks * chunk + share.chunk * chunk;
    for (int pixel = share.first; pixel < images * height * width; pixel += share.step) {
        const Place place = place_in(layout.inner, pixel);
        int rows[3], columns[3];
        const int row_count = reflections(place.row, layout.folded, height, rows),
                  column_count = reflections(place.column, layout.folded, width, columns);
        const char *from = tile + place.image * layout.rows * layout.columns * chunk_bytes;
        float sum[chunk] = {};
        for (int a = 0; a < row_count; a++)
            for (int b = 0; b < column_count; b++) {
                float values[chunk];
                load(
                    reinterpret_cast<const T *>(from + (rows[a] * layout.columns + columns[b]) * chunk_bytes),
                    values);
#pragma unroll
                for (int k = 0; k < chunk; k++)
                    sum[k] += values[k];
            }
        store(here + pixel * layout.here.chunks * chunk, sum);
    }
}

/* Sums the moments over a block, by channel, to to[2][channels of here]. Lanes whose chunk is the same share
 * the work: of what two of them have, each adds up half. */
template <int N> __device__ void write_moments(const Moments &moments, float *to, int channels)
{
    constexpr int values = 2 * chunk;
    __shared__ float of_warps[threads_most / 32][N][values];
    static_assert(shared_most + sizeof of_warps <= shared_of_cards, "blocks fit on cards from Ampere on");
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    float v[values];
    int first = 0, left = values;
#pragma unroll
    for (int i = 0; i < values; i++)
        v[i] = moments[i / chunk][i % chunk];
#pragma unroll
    for (int offset = 16; offset >= N; offset /= 2) {
        const bool upper = lane & offset;
        if (left == 1) {
            v[0] += __shfl_xor_sync(0xFFFFFFFFU, v[0], offset);
            continue;
        }
        left /= 2;
#pragma unroll
        for (int i = 0; i < values / 2; i++)
            if (i < left) {
                const float mine = upper ? v[i + left] : v[i], others = upper ? v[i] : v[i + left];
                v[i] = mine + __shfl_xor_sync(0xFFFFFFFFU, others, offset);
            }
        first += upper ? left : 0;
    }
#pragma unroll
    for (int i = 0; i < values / 2; i++)
        if (i < left)
            of_warps[warp][lane % N][first + i] = v[i];
    __syncthreads();
    const int channel = (int)threadIdx.x % (N * chunk), squares = (int)threadIdx.x / (N * chunk);
    if (squares >= 2 || channel >= channels)
        return;
    float sum = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++)
        sum += of_warps[w][channel / chunk][squares * chunk + channel % chunk];
    to[squares * channels + channel] = sum;
}

/* Computes all channels, N chunks, of tiles. Steps: of the only class; 0: any. */
template <typename T, int N, bool Backward, int Steps>
__global__ void __launch_bounds__(threads_most, threads_at_a_time(N) / threads_most)
    direct_kernel(const void *there, const T *weight, const float *bias, float slope, T *here,
                  float *partial_moments, const __grid_constant__ Plan plan)
{
    extern __shared__ __align__(128) char shared[];
    const unsigned memory = (unsigned)__cvta_generic_to_shared(shared);
    const Layout &layout = plan.layout;
    const Room &room = plan.room;
    const int lane = (int)threadIdx.x % 32, second = N > 1 ? lane / 16 : 0;
    const int row_bytes = room.weight_vectors * chunk_bytes;
    int *patch_offsets = reinterpret_cast<int *>(shared + room.patch_offsets),
        *weight_offsets = reinterpret_cast<int *>(shared + room.weight_offsets);
    Operands of = {memory + (unsigned)room.patch,
                   memory + (unsigned)(Backward ? lane % 8 * row_bytes + second * chunk_bytes
                                                : (second * chunk + lane % 8) * row_bytes),
                   (unsigned)(Backward ? 2 * chunk_bytes : 2 * chunk * row_bytes), shared + room.tile};
    float biases[N][2] = {};
    Moments moments = {};
    bring_patch<T>(there, shared + room.patch, layout, spot_of((int)blockIdx.x, layout));
    bring_weights(weight, shared, room, layout);
    copies_close();
    for (int i = (int)threadIdx.x; i < plan.chunks; i += (int)blockDim.x) {
        patch_offsets[i] = layout.offsets[i];
        weight_offsets[i] = plan.weight_offsets[i];
    }
    if constexpr (!Backward) {
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int k = 0; k < 2; k++)
                biases[n][k] = bias && n < layout.here.chunks ? bias[n * chunk + lane % 4 * 2 + k] : 0;
    }
    for (int t = (int)blockIdx.x; t < layout.tiles; t += (int)gridDim.x) {
        const Spot spot = spot_of(t, layout);
        copies_wait<0>();
        __syncthreads();
        of.patch_offsets = patch_offsets + lane / 16;
        of.weight_offsets = weight_offsets + lane / 8 % 2;
        if constexpr (Backward) {
            for (int i = 0; i < layout.out_step; i++)
                for (int j = 0; j < layout.out_step; j++) {
                    multiply_class<T, N, true, Steps>(of, biases, slope, layout, i, j);
                    of.patch_offsets += 2 * layout.steps[i][j];
                    of.weight_offsets += 2 * layout.steps[i][j];
                }
        } else {
            multiply_class<T, N, false, Steps>(of, biases, slope, layout, 0, 0);
        }
        __syncthreads();
        if (t + (int)gridDim.x < layout.tiles)
            bring_patch<T>(there, shared + room.patch, layout, spot_of(t + (int)gridDim.x, layout));
        copies_close();
        if (Backward && layout.folded)
            write_folded(of.tile, here, layout, spot);
        else
            write_tile<T, !Backward>(of.tile, here, layout, spot, partial_moments != nullptr, moments);
    }
    if (!Backward && partial_moments)
        write_moments<N>(moments, partial_moments + (int64_t)blockIdx.x * 2 * layout.here.chunks * chunk,
                         layout.here.chunks * chunk);
}

/* ---- launches ---- */

/* Returns the layout that walks over dx, with the pixels around it where they are to be folded, and reads
 * dy; without tiles. */
Layout backward_layout(const DeviceTensor *dy, const DeviceTensor *dx, const Direct *direct)
{
    const int kernel = (int)direct->kernel, stride = (int)direct->stride;
    const int folded = direct->reflects ? (int)direct->padding : 0, padding = (int)direct->padding - folded;
    Layout layout = {};
    layout.samples = (int)dx->shape[0];
    layout.here = image_of(dx);
    layout.here.height += 2 * folded;
    layout.here.width += 2 * folded;
    layout.there = image_of(dy);
    layout.kernel = kernel;
    layout.in_step = 1;
    layout.out_step = layout.tap_step = stride;
    layout.direction = -1;
    layout.weight_pitch = (int)dx->pitch;
    layout.folded = folded;
    for (int side = 0; side < stride; side++) {
        const int first_tap = (side + padding) % stride;
        layout.sides[side] = {side, (side + padding - first_tap) / stride, first_tap,
                              first_tap < kernel ? (kernel - first_tap + stride - 1) / stride : 0};
    }
    return layout;
}

Room room_of(const Layout &layout, int chunks)
{
    const int instance = instance_chunks(layout.here.chunks), weight_chunks = layout.weight_pitch / chunk;
    Room room;
    room.weight_rows = layout.direction > 0 ? instance * chunk : layout.there.chunks * chunk;
    room.weight_vectors =
        (layout.kernel * layout.kernel * weight_chunks + (layout.direction > 0 ? 1 : instance)) | 1;
    room.patch_offsets = room.weight_rows * room.weight_vectors * chunk_bytes;
    room.weight_offsets = room.patch_offsets + chunks * (int)sizeof(int);
    room.patch = (room.weight_offsets + chunks * (int)sizeof(int) + 127) / 128 * 128;
    room.tile = room.patch + layout.there_plane * layout.there.chunks;
    room.all = room.tile + layout.here_plane * layout.here.chunks;
    return room;
}

/* Cuts a layout into tiles, and sets the rest of the plan; returns whether there are tiles that fit. */
bool make_plan(const Layout &layout, Plan *plan)
{
    const int weight_chunks = layout.weight_pitch / chunk;
    *plan = {};
    plan->layout = layout;
    for_chunks(&plan->layout, [&](int at, int i, int j, const Chunk &of) {
        const Side &rows = layout.sides[i], &columns = layout.sides[j];
        const int tap = (rows.first_tap + of.tap_row * layout.tap_step) * layout.kernel + columns.first_tap +
                        of.tap_column * layout.tap_step;
        int vectors = tap * weight_chunks + of.chunk;
        if (of.tap_row < 0)
            vectors = layout.kernel * layout.kernel * weight_chunks;
        else if (layout.direction < 0)
            vectors = of.chunk * chunk * room_of(layout, 0).weight_vectors + tap * weight_chunks;
        plan->weight_offsets[at] = vectors * chunk_bytes;
        plan->chunks = at + 1;
    });
    const int fixed = room_of(plan->layout, plan->chunks).patch;
    const bool fits =
        choose_tiles(&plan->layout, fixed, threads_at_a_time(instance_chunks(layout.here.chunks)));
    plan->room = room_of(plan->layout, plan->chunks);
    return fits;
}

int blocks_of(const Layout &layout)
{
    const int rounds = (layout.tiles + layout.blocks - 1) / layout.blocks;
    return (layout.tiles + rounds - 1) / rounds;
}

/* Launches direct_kernel. moments: [2, pitch] of what is written, joined from partial; or NULL. */
template <bool Backward>
cudaError_t launch_direct(const DeviceTensor *there, const DeviceTensor *weight, const DeviceTensor *bias,
                          float slope, const DeviceTensor *here, const DeviceTensor *moments, float *partial,
                          const Plan &plan, cudaStream_t stream)
{
    const int blocks = blocks_of(plan.layout);
    return with_narrow(here, [&](auto zero) {
        using T = decltype(zero);
        const cudaError_t code = with_chunks(plan.layout.here.chunks, [&](auto chunks) {
            constexpr int N = decltype(chunks)::value;
            constexpr int known = N == 1 ? steps_of_nine : 0; /* of more, registers hold no weights */
            const bool is_known = plan.layout.out_step == 1 && plan.layout.steps[0][0] == known;
            return launch_blocks(
                is_known ? direct_kernel<T, N, Backward, known> : direct_kernel<T, N, Backward, 0>, blocks,
                plan.layout.threads, plan.room.all, stream, data_of<const void>(there),
                data_of<const T>(weight), bias ? data_of<const float>(bias) : nullptr, slope,
                data_of<T>(here), moments ? partial : nullptr, plan);
        });
        if (code != cudaSuccess || !moments)
            return code;
        join_moments(partial, data_of<float>(moments), blocks, 2 * (int)here->pitch, stream);
        return cudaGetLastError();
    });
}

bool has_sizes(const DeviceTensor *tensor)
{
    return device_tensor_stored(tensor) < (int64_t{1} << 31) && tensor->shape[0] > 0 &&
           tensor->shape[1] > 0 && tensor->shape[2] > 0;
}

bool is_image_of(const DeviceTensor *tensor, ElementType element)
{
    return tensor->element == element && tensor->pitch % chunk == 0 && tensor->pitch <= DIRECT_CHANNELS_MAX &&
           has_sizes(tensor);
}

bool is_bytes(const DeviceTensor *x, const Direct *direct)
{
    return x->element == ELEMENT_U8 && x->shape[3] <= pixel_channels && direct->mean && direct->deviation &&
           has_sizes(x);
}

/* Returns whether, where it is mirrored, the image is larger than its padding, and may fit in a tile. */
bool has_mirror(const DeviceTensor *x, const Direct *direct)
{
    const int64_t around = 2 * direct->padding;
    return !direct->reflects ||
           (direct->padding < x->shape[1] && direct->padding < x->shape[2] &&
            (x->shape[1] + around) * (x->shape[2] + around) <= shared_most / chunk_bytes);
}

} // namespace

extern "C" bool kernel_direct_fits(const DeviceTensor *x, const DeviceTensor *weight, const DeviceTensor *y,
                                   const Direct *direct)
{
    const int64_t kernel = direct->kernel, stride = direct->stride;
    const bool bytes = is_bytes(x, direct);
    if (!element_is_narrow(y->element) || !is_image_of(y, y->element) ||
        !(bytes || is_image_of(x, y->element)) || weight->element != y->element ||
        weight->pitch != padded_channels(x->shape[3]) || weight->shape[3] != x->shape[3] || kernel < 1 ||
        kernel > DIRECT_KERNEL_MAX || stride < 1 || stride > 2 || !has_mirror(x, direct))
        return false;
    Plan plan;
    return make_plan(forward_layout(x, y, direct), &plan) &&
           (bytes || make_plan(backward_layout(y, x, direct), &plan)) &&
           kernel_direct_scratch_bytes(y, x, direct) > 0;
}

extern "C" cudaError_t kernel_direct(const DeviceTensor *x, const DeviceTensor *weight,
                                     const DeviceTensor *bias, float slope, const Direct *direct,
                                     const DeviceTensor *y, const DeviceTensor *sums, void *scratch,
                                     cudaStream_t stream)
{
    if (!kernel_direct_fits(x, weight, y, direct) || !is_f32(bias) || !is_f32(sums) ||
        (sums && sums->pitch != y->pitch))
        return cudaErrorNotSupported;
    Plan plan;
    (void)make_plan(forward_layout(x, y, direct), &plan);
    return launch_direct<false>(x, weight, bias, slope, y, sums, static_cast<float *>(scratch), plan, stream);
}

extern "C" cudaError_t kernel_direct_backward_data(const DeviceTensor *dy, const DeviceTensor *weight,
                                                   const Direct *direct, const DeviceTensor *dx,
                                                   cudaStream_t stream)
{
    if (!kernel_direct_fits(dx, weight, dy, direct) || dx->element == ELEMENT_U8)
        return cudaErrorNotSupported;
    Plan plan;
    (void)make_plan(backward_layout(dy, dx, direct), &plan);
    return launch_direct<true>(dy, weight, nullptr, 1, dx, nullptr, nullptr, plan, stream);
}

extern "C" uint64_t kernel_direct_sums_scratch_bytes(const DeviceTensor *x, const DeviceTensor *y,
                                                     const Direct *direct)
{
    Plan plan;
    (void)make_plan(forward_layout(x, y, direct), &plan);
    return (uint64_t)blocks_of(plan.layout) * 2 * (uint64_t)y->pitch * sizeof(float);
}
