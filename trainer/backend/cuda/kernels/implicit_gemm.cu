/* implicit_gemm.cu - 3 x 3 convolutions and their data gradients as products of warp groups.
 *
 * A block has a part of the channels that are written, and walks over tiles of pixels. A tile is 4 squares of
 * 8 x 8 pixels (2 where work is scarce), in one image or in several small ones; two warp groups have half of
 * the squares each, and their sums in registers. A third group brings what they read to shared memory, 16
 * channels at a time and some steps ahead: the pixels of the tile with a border of one, once for all nine
 * taps, and the weights of nine taps. Where the weights of all channels fit, they are brought once and stay.
 *
 * Pixels lie as [2 halves of 8 channels][place][8 channels]: 8 neighbours in a row are a core of the matrix
 * units (warpgroup.cuh), and the next row of a square lies a constant distance away, so a tap is the same
 * descriptor begun at another place, with nothing copied twice. Places are 4 more than a multiple of 8, so
 * that the two halves of 4 pixels, which 8 threads write together, are in different banks; distances between
 * the cores of weights are chosen likewise (backward, where columns are no multiple of 64, two writes
 * meet). */
#include "trainer/backend/cuda/kernels/implicit_gemm.cuh"

using namespace fshard;
using namespace fshard::implicit;

namespace
{

constexpr int groups = 2, threads = (groups + 1) * group_threads;
constexpr int step_channels = 16, halves = 2, columns_most = 128;
/* A step is told to be there when `ahead` later ones are on their way, and used up once the next one is
 * there. */
constexpr int ahead = 2, depth_least = ahead + 2, depth_most = 8;
constexpr int units_most = (places_most * halves + group_threads - 1) / group_threads;

/* Returns how the pixels of a tile lie, with room so that the two halves of 4 of them lie in different
 * banks. */
__host__ __device__ inline Places padded_places(const Cover &cover)
{
    Places places = places_of(cover, 1);
    places.count = (places.count + 3) / 8 * 8 + 4;
    return places;
}

/* How a convolution is computed. */
struct Plan {
    Tiles tiles;
    int parts, part; /* of the channels that are written; channels of one */
    int columns;     /* those, rounded up to what there is an instance for */
};

template <typename T> struct Job {
    const T *from, *weight;
    T *to;
    int samples, height, width, from_pitch, to_pitch, weight_pitch;
    Plan plan;
    int steps, depth; /* of 16 channels; of those, how many shared memory holds */
    bool stays;       /* the weights do */
};

/* ---- shared memory ---- */

/* How the weights of a step lie. Forward, a piece is 8 input channels of an output channel, and a core is 8
 * output channels; backward, a piece is 8 of the channels that are written, and a core is 8 of those that
 * are summed. */
template <int Columns, bool Backward> struct Weights {
    static constexpr int across = Backward ? square * 2 + piece_bytes : square * 2; /* from core to core */
    static constexpr int half = Columns / piece * across + (Backward ? 0 : square);
    static constexpr int tap = halves * half, bytes = taps * tap;
};

__host__ __device__ inline int pixel_bytes(const Cover &cover)
{
    return halves * padded_places(cover).count * piece_bytes;
}

template <int Columns, bool Backward> int64_t shared_bytes(const Cover &cover, int depth, int weight_steps)
{
    return (int64_t)depth * pixel_bytes(cover) + (int64_t)weight_steps * Weights<Columns, Backward>::bytes;
}

struct Ring {
    CopyBarrier full[depth_most], empty[depth_most];
};

/* ---- the group that copies ---- */

/* Finds the element of each of this thread's pixels, channel 0; below 0: it is outside the image. */
template <typename T> __device__ void find_pixels(const Job<T> &job, int tile, int (&elements)[units_most])
{
    const Cover &cover = job.plan.tiles.cover;
    const Places places = padded_places(cover);
    const Corner corner = corner_of(job.plan.tiles, tile);
#pragma unroll
    for (int i = 0; i < units_most; i++) {
        const int place = ((int)threadIdx.x % group_threads + i * group_threads) / halves;
        const int image = corner.image + place / places.of_image,
                  row = corner.row - 1 + place % places.of_image / places.pitch,
                  column = corner.column - 1 + place % places.of_image % places.pitch;
        const bool inside = place < cover.images * places.of_image && image < job.samples && row >= 0 &&
                            row < job.height && column >= 0 && column < job.width;
        elements[i] = inside ? ((image * job.height + row) * job.width + column) * job.from_pitch : -1;
    }
}

/* Begins to bring 16 channels of a tile's pixels. */
template <typename T>
__device__ void bring_pixels(const Job<T> &job, int step, const int (&elements)[units_most], char *to)
{
    const int places = padded_places(job.plan.tiles.cover).count;
#pragma unroll
    for (int i = 0; i < units_most; i++) {
        const int unit = (int)threadIdx.x % group_threads + i * group_threads;
        const int half = unit % halves, channel = step * step_channels + half * piece;
        const bool there = elements[i] >= 0 && channel < job.from_pitch;
        if (unit / halves < places)
            copy_16_if(to + (half * places + unit / halves) * piece_bytes,
                       job.from + (there ? elements[i] + channel : 0), there);
    }
}

/* Begins to bring the weights of 16 channels that are summed. Columns after the last channel keep what was
 * there: nobody stores their sums. */
template <typename T, int Columns, bool Backward>
__device__ void bring_weights(const Job<T> &job, int step, int first, int count, char *to)
{
    using W = Weights<Columns, Backward>;
    constexpr int units = taps * halves * Columns;
#pragma unroll 4
    for (int unit = (int)threadIdx.x % group_threads; unit < units; unit += group_threads) {
        if (Backward) {
            const int eight = unit % (Columns / piece), summed = unit / (Columns / piece) % step_channels,
                      tap = unit / (Columns / piece) / step_channels;
            const int channel = step * step_channels + summed;
            const bool there = channel < job.from_pitch;
            if (eight * piece < count)
                copy_16_if(to + tap * W::tap + summed / piece * W::half + eight * W::across +
                               summed % piece * piece_bytes,
                           job.weight + (there
                                             ? (int64_t)(channel * taps + taps - 1 - tap) * job.weight_pitch +
                                                   first + eight * piece
                                             : 0),
                           there);
        } else {
            const int half = unit % halves, column = unit / halves % Columns, tap = unit / halves / Columns;
            const int channel = step * step_channels + half * piece;
            const bool there = channel < job.from_pitch;
            if (column < count)
                copy_16_if(
                    to + tap * W::tap + half * W::half + column * piece_bytes,
                    job.weight +
                        (there ? (int64_t)((first + column) * taps + tap) * job.weight_pitch + channel : 0),
                    there);
        }
    }
}

/* Brings all steps of a block's tiles, one after the other. */
template <typename T, int Columns, bool Backward>
__device__ void bring_all(const Job<T> &job, Ring *ring, char *pixels, char *weights)
{
    using W = Weights<Columns, Backward>;
    const int part = (int)blockIdx.x % job.plan.parts, first = part * job.plan.part;
    const int count = min(job.plan.part, job.to_pitch - first);
    int brought = 0;
    for (int tile = (int)blockIdx.x / job.plan.parts; tile < job.plan.tiles.count;
         tile += (int)gridDim.x / job.plan.parts) {
        int elements[units_most];
        find_pixels(job, tile, elements);
        for (int step = 0; step < job.steps; step++, brought++) {
            const int slot = brought % job.depth;
            if (brought >= job.depth)
                barrier_wait(&ring->empty[slot], (unsigned)(brought / job.depth - 1) & 1);
            bring_pixels(job, step, elements, pixels + slot * pixel_bytes(job.plan.tiles.cover));
            if (!job.stays)
                bring_weights<T, Columns, Backward>(job, step, first, count, weights + slot * W::bytes);
            else if (brought < job.steps)
                bring_weights<T, Columns, Backward>(job, step, first, count, weights + step * W::bytes);
            copies_close();
            if (brought >= ahead) {
                copies_wait<ahead>();
                shared_memory_written();
                barrier_arrive(&ring->full[(brought - ahead) % job.depth]);
            }
        }
    }
    copies_wait<0>();
    shared_memory_written();
    for (int i = max(brought - ahead, 0); i < brought; i++)
        barrier_arrive(&ring->full[i % job.depth]);
}

/* ---- the groups that compute ---- */

/* Exchanges among the four threads of a quad: each gives pair q of 4 pieces, q its number, and gets the 4
 * pairs of piece q. */
__device__ void gather_piece(unsigned (&pairs)[4])
{
    const int quarter = (int)threadIdx.x % 4;
#pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int low = distance == 1 ? 2 * k : k, high = low + distance;
            const bool upper = (quarter & distance) != 0;
            const unsigned got = __shfl_xor_sync(0xFFFFFFFFU, upper ? pairs[low] : pairs[high], distance);
            if (upper)
                pairs[low] = got;
            else
                pairs[high] = got;
        }
}

template <typename T> __device__ unsigned pair_bits(T first, T second)
{
    return (unsigned)__builtin_bit_cast(unsigned short, first) |
           (unsigned)__builtin_bit_cast(unsigned short, second) << 16;
}

/* Writes the sums of a square's pixels: 64 bytes of a pixel in four threads of a warp. */
template <typename T, int Columns>
__device__ void write_square(const Job<T> &job, int image, int first_row, int first_column, int first,
                             int count, const float (&sums)[Columns / 8][4])
{
    const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32, quarter = lane % 4;
    const int column = first_column + lane / 4;
#pragma unroll
    for (int low = 0; low < 2; low++) {
        const int row = first_row + 2 * warp + low;
        const bool inside = image < job.samples && row < job.height && column < job.width;
        T *to = job.to + ((int64_t)(image * job.height + row) * job.width + column) * job.to_pitch + first;
#pragma unroll
        for (int four = 0; four < Columns / piece; four += 4) {
            unsigned pairs[4] = {};
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (four + k < Columns / piece)
                    pairs[k] = pair_bits((T)sums[four + k][2 * low], (T)sums[four + k][2 * low + 1]);
            gather_piece(pairs);
            const int channel = (four + quarter) * piece;
            if (inside && channel < count)
                *reinterpret_cast<uint4 *>(to + channel) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
    }
}

__device__ inline int slot_before(int slot, int depth)
{
    return slot == 0 ? depth - 1 : slot - 1;
}

template <typename T, int Columns, int Squares, bool Backward>
__device__ void compute_all(const Job<T> &job, Ring *ring, char *pixels, char *weights)
{
    using W = Weights<Columns, Backward>;
    const Plan &plan = job.plan;
    const Cover &cover = plan.tiles.cover;
    const Places places = padded_places(cover);
    const int group = group_of_warp() - 1, lane = (int)threadIdx.x % 32;
    const int part = (int)blockIdx.x % plan.parts, first = part * plan.part,
              count = min(plan.part, job.to_pitch - first);
    int origins[Squares], slot = 0;
    unsigned phase = 0;
#pragma unroll
    for (int i = 0; i < Squares; i++)
        origins[i] = origin_of(cover, places, group * Squares + i);
    for (int tile = (int)blockIdx.x / plan.parts; tile < plan.tiles.count;
         tile += (int)gridDim.x / plan.parts) {
        float sums[Squares][Columns / 8][4];
        for (int step = 0; step < job.steps; step++) {
            barrier_wait(&ring->full[slot], phase);
            __syncwarp(); /* lanes may leave a wait one by one */
            const uint64_t pixel = cores_descriptor(pixels + slot * pixel_bytes(cover),
                                                    places.count * piece_bytes, places.pitch * piece_bytes),
                           weight = cores_descriptor(weights + (job.stays ? step : slot) * W::bytes, W::half,
                                                     W::across);
            products_begin();
#pragma unroll
            for (int tap = 0; tap < taps; tap++)
#pragma unroll
                for (int i = 0; i < Squares; i++)
                    multiply_shared<0, Backward>(
                        T{}, sums[i],
                        descriptor_at(pixel,
                                      origins[i] + tap / taps_across * places.pitch + tap % taps_across),
                        descriptor_at(weight, tap * W::tap / piece_bytes), step > 0 || tap > 0);
            products_end();
            if (step > 0) {
                products_wait<1>();
                if (lane == 0)
                    barrier_arrive(&ring->empty[slot_before(slot, job.depth)]);
            }
            if (++slot == job.depth) {
                slot = 0;
                phase ^= 1;
            }
        }
        products_wait<0>();
#pragma unroll
        for (int i = 0; i < Squares; i++)
            products_of(sums[i]);
        if (lane == 0)
            barrier_arrive(&ring->empty[slot_before(slot, job.depth)]);
        const Corner corner = corner_of(plan.tiles, tile);
#pragma unroll
        for (int i = 0; i < Squares; i++) {
            const int of_tile = group * Squares + i, of_image = of_tile % (cover.rows * cover.columns);
            write_square<T, Columns>(job, corner.image + of_tile / (cover.rows * cover.columns),
                                     corner.row + of_image / cover.columns * side,
                                     corner.column + of_image % cover.columns * side, first, count, sums[i]);
        }
    }
}

template <typename T, int Columns, int Squares, bool Backward>
__global__ void __launch_bounds__(threads, 1) implicit_gemm_kernel(const __grid_constant__ Job<T> job)
{
    extern __shared__ __align__(128) char memory[];
    __shared__ Ring ring;
    char *weights = memory + job.depth * pixel_bytes(job.plan.tiles.cover);
    if (threadIdx.x == 0) {
        for (int i = 0; i < job.depth; i++) {
            barrier_init(&ring.full[i], group_threads);
            barrier_init(&ring.empty[i], groups * group_threads / 32);
        }
        barriers_to_copies();
    }
    __syncthreads();
    if (threadIdx.x < group_threads)
        bring_all<T, Columns, Backward>(job, &ring, memory, weights);
    else
        compute_all<T, Columns, Squares, Backward>(job, &ring, memory, weights);
}

/* ---- plans ---- */

/* Returns the plan of a cover. */
Plan plan_of_cover(const DeviceTensor *to, const Cover &cover, int parts)
{
    Plan plan = {};
    plan.tiles = tiles_of(to, cover);
    plan.part = ceil_of(to->pitch, (int64_t)piece * parts) * piece;
    plan.parts = ceil_of(to->pitch, plan.part);
    plan.columns = ceil_of(plan.part, 16) * 16;
    return plan;
}

/* Returns whether shared memory holds the weights of all steps beside a ring of pixels, as far as it matters
 * to tell plans apart. */
bool weights_stay(const Plan &plan, int steps, int weight_bytes)
{
    constexpr int room = 224 << 10; /* of such a card */
    return depth_least * pixel_bytes(plan.tiles.cover) + steps * weight_bytes <= room;
}

/* Returns the clocks of a plan, as far as they tell plans apart: a product of 64 x columns takes columns / 2
 * on the matrix units and reads (64 + columns) * 32 bytes of shared memory at 128 a clock; what a step reads
 * comes at 20 bytes a clock; a tile begins and ends. */
double clocks_of(const Plan &plan, int64_t from_pitch)
{
    const int steps = ceil_of(from_pitch, step_channels),
              weight_bytes = taps * halves * plan.columns * piece_bytes;
    const int streams = processors > plan.parts ? processors / plan.parts : 1,
              tiles = ceil_of(plan.tiles.count, streams); /* of a block */
    const double product = plan.columns > 64 ? plan.columns / 2.0 : 16 + plan.columns / 4.0;
    const double compute = taps * squares_of(plan.tiles.cover) * product,
                 copy = (pixel_bytes(plan.tiles.cover) + weight_bytes) / 20.0,
                 later =
                     weights_stay(plan, steps, weight_bytes) ? pixel_bytes(plan.tiles.cover) / 20.0 : copy;
    const double first_tile = steps * (compute > copy ? compute : copy),
                 later_tile = steps * (compute > later ? compute : later);
    return (first_tile + (tiles - 1) * later_tile + tiles * 1500.0) * ceil_of(plan.parts, processors);
}

/* Returns the plan that takes the fewest clocks. */
Plan plan_of(const DeviceTensor *from, const DeviceTensor *to)
{
    Plan best = {};
    double least = 0;
    for (const Cover &cover : covers)
        for (int parts = ceil_of(to->pitch, columns_most), most = parts + 7; parts <= most; parts++) {
            const Plan plan = plan_of_cover(to, cover, parts);
            const double clocks = clocks_of(plan, from->pitch);
            if (least == 0 || clocks < least) {
                least = clocks;
                best = plan;
            }
        }
    return best;
}

/* ---- launches ---- */

template <typename T, int Columns, int Squares, bool Backward>
cudaError_t launch(Job<T> job, cudaStream_t stream)
{
    void (*const kernel)(Job<T>) = implicit_gemm_kernel<T, Columns, Squares, Backward>;
    const int64_t room = shared_bytes_most(reinterpret_cast<const void *>(kernel));
    const Cover &cover = job.plan.tiles.cover;
    const auto bytes_of = [&](int depth, int weight_steps) {
        return shared_bytes<Columns, Backward>(cover, depth, weight_steps);
    };
    job.stays = bytes_of(depth_least, job.steps) <= room;
    job.depth = depth_least;
    while (job.depth < depth_most && bytes_of(job.depth + 1, job.stays ? job.steps : job.depth + 1) <= room)
        job.depth++;
    /* all of the room, whatever this layer takes: the limit is the function's, and other layers share it */
    const int64_t bytes = bytes_of(job.depth, job.stays ? job.steps : job.depth);
    cudaError_t status =
        bytes <= room ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)room)
                      : cudaErrorNotSupported;
    int device = 0, streams = 0;
    if (status == cudaSuccess)
        status = cudaGetDevice(&device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&streams, cudaDevAttrMultiProcessorCount, device);
    if (status != cudaSuccess)
        return status;
    streams = max(streams / job.plan.parts, 1);
    kernel<<<(unsigned)(min(streams, job.plan.tiles.count) * job.plan.parts), threads, (size_t)bytes,
             stream>>>(job);
    return cudaGetLastError();
}

template <typename T, bool Backward, int Squares>
cudaError_t launch_columns(const Job<T> &job, cudaStream_t stream)
{
    return with_columns<columns_most>(job.plan.columns, [&](auto columns) {
        return launch<T, decltype(columns)::value, Squares, Backward>(job, stream);
    });
}

/* Launches a convolution over `from`, or the gradient that goes from dy to dx. */
template <bool Backward>
cudaError_t launch_any(const DeviceTensor *from, const DeviceTensor *weight, const DeviceTensor *to,
                       cudaStream_t stream)
{
    const Plan plan = plan_of(from, to);
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        const Job<T> job = {.from = data_of<const T>(from),
                            .weight = data_of<const T>(weight),
                            .to = data_of<T>(to),
                            .samples = (int)to->shape[0],
                            .height = (int)to->shape[1],
                            .width = (int)to->shape[2],
                            .from_pitch = (int)from->pitch,
                            .to_pitch = (int)to->pitch,
                            .weight_pitch = (int)weight->pitch,
                            .plan = plan,
                            .steps = ceil_of(from->pitch, step_channels),
                            .depth = 0,
                            .stays = false};
        return squares_of(plan.tiles.cover) == squares_most ? launch_columns<T, Backward, 2>(job, stream)
                                                            : launch_columns<T, Backward, 1>(job, stream);
    };
    return from->element == ELEMENT_F16 ? run(__half{}) : run(__nv_bfloat16{});
}

} // namespace

extern "C" bool kernel_implicit_gemm_fits(const DeviceTensor *x, const DeviceTensor *weight,
                                          const DeviceTensor *y)
{
    return is_image(x, y) && is_image(y, x) && weight->element == x->element &&
           weight->shape[1] == taps_across && weight->shape[2] == taps_across &&
           weight->shape[0] == y->shape[3] && weight->shape[3] == x->shape[3] && weight->pitch == x->pitch &&
           weight->rank == 4 && weight->rows >= padded_channels(y->shape[3]) * taps && runs_hopper_code();
}

extern "C" cudaError_t kernel_implicit_gemm(const DeviceTensor *x, const DeviceTensor *weight,
                                            const DeviceTensor *y, cudaStream_t stream)
{
    return kernel_implicit_gemm_fits(x, weight, y) ? launch_any<false>(x, weight, y, stream)
                                                   : cudaErrorNotSupported;
}

extern "C" cudaError_t kernel_implicit_gemm_backward_data(const DeviceTensor *dy, const DeviceTensor *weight,
                                                          const DeviceTensor *dx, cudaStream_t stream)
{
    return kernel_implicit_gemm_fits(dx, weight, dy) ? launch_any<true>(dy, weight, dx, stream)
                                                     : cudaErrorNotSupported;
}
