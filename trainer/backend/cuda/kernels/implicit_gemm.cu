/* implicit_gemm.cu - 3 x 3 convolutions and their data gradients as products of warp groups.
 *
 * A block has a part of the channels that are written, and walks over tiles of pixels. A tile is 4 squares of
 * 8 x 8 pixels (2 where work is scarce), in one image or in several small ones; two warp groups have half of
 * the squares each, and their sums in registers. A further warp has the copy engine bring what they read to
 * shared memory, some steps ahead: 64 channels of the tile's pixels with a border of one, once for all nine
 * taps, and the weights of each tap. Where the weights of all channels fit, they are brought once and stay.
 *
 * A pixel is a row of 64 channels, and 8 neighbours are the 8 rows that the matrix units take together; the
 * next row of a square lies a constant distance away. So a tap is the same descriptor begun at another pixel,
 * with nothing copied twice, and zeros around the images are what the copy engine writes beyond them. */
#include "trainer/backend/cuda/kernels/implicit_gemm.cuh"

using namespace fshard;
using namespace fshard::implicit;

namespace
{

constexpr int groups = 2, threads = groups * group_threads + 32;
constexpr int columns_most = 128;
constexpr int pixel_slots = 2;                                      /* of 64 channels of a tile */
constexpr int weight_slots_least = 4, weight_slots_most = 4 * taps; /* of a tap */

/* How a convolution is computed. */
struct Plan {
    Tiles tiles;
    int parts, part; /* of the channels that are written; channels of one */
    int columns;     /* those, rounded up to what there is an instance for */
};

template <typename T> struct Job {
    CUtensorMap pixels, weights;
    T *to;
    int samples, height, width, to_pitch;
    Plan plan;
    int chunks, last; /* of 64 channels that are summed; of the last one, how many times 16 */
    int slots;        /* of weights */
    bool stay;        /* the weights do */
};

/* ---- shared memory ---- */

/* How the weights of a tap and of 64 channels lie: forward, a row is 64 input channels of an output channel;
 * backward, it is 64 of the channels that are written, of one of those that are summed, with the next 64 in a
 * block of their own. */
template <int Columns, bool Backward> struct Weights {
    static constexpr int box_rows = Backward ? chunk : Columns;
    static constexpr int boxes = Backward ? (Columns + chunk - 1) / chunk : 1;
    static constexpr int box_bytes = box_rows * place_bytes, bytes = boxes * box_bytes;
    /* From 16 of those that are summed to the next 16. */
    static constexpr int of_sixteen = (Backward ? sixteen * place_bytes : sixteen * 2) / piece_bytes;
};

struct Ring {
    CopyBarrier pixels_full[pixel_slots], pixels_empty[pixel_slots];
    CopyBarrier weights_full[weight_slots_most], weights_empty[weight_slots_most];
};

/* The barriers lie in front, so that what follows begins where the exchange of vectors does. */
constexpr int ring_room = (int)(sizeof(Ring) + pattern_bytes - 1) / pattern_bytes * pattern_bytes;

template <int Columns, bool Backward> int64_t shared_bytes(const Cover &cover, int slots)
{
    return ring_room + pixel_slots * tile_room(cover, 1) + (int64_t)slots * Weights<Columns, Backward>::bytes;
}

/* A place in a ring, and how often it was gone around, as barriers count it. */
struct Turn {
    int slot = 0;
    unsigned parity = 0;

    __device__ void next(int slots)
    {
        if (++slot == slots) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/* ---- the thread that has things copied ---- */

/* Has all steps of a block's tiles brought, one after the other. A place is free at first: the phase before
 * the first counts as ended. */
template <typename T, int Columns, bool Backward>
__device__ void bring_all(const Job<T> &job, Ring *ring, char *pixels, char *weights)
{
    using W = Weights<Columns, Backward>;
    const Plan &plan = job.plan;
    const Cover &cover = plan.tiles.cover;
    const int first = (int)blockIdx.x % plan.parts * plan.part;
    Turn pixel, weight;
    bool is_there = false; /* all weights, for good */
    for (int tile = (int)blockIdx.x / plan.parts; tile < plan.tiles.count;
         tile += (int)gridDim.x / plan.parts) {
        const Corner corner = corner_of(plan.tiles, tile);
        for (int part = 0; part < job.chunks; part++) {
            CopyBarrier *full = &ring->pixels_full[pixel.slot];
            barrier_wait(&ring->pixels_empty[pixel.slot], pixel.parity ^ 1);
            barrier_expect(full, (unsigned)tile_bytes(cover, 1));
            copy_box(pixels + pixel.slot * tile_room(cover, 1), &job.pixels, part * chunk, corner.column - 1,
                     corner.row - 1, corner.image, full);
            pixel.next(pixel_slots);
            for (int tap = 0; tap < taps && !is_there; tap++) {
                const int of_filter = Backward ? taps - 1 - tap : tap;
                full = &ring->weights_full[weight.slot];
                barrier_wait(&ring->weights_empty[weight.slot], weight.parity ^ 1);
                barrier_expect(full, W::bytes);
                for (int box = 0; box < W::boxes; box++)
                    copy_box(weights + weight.slot * W::bytes + box * W::box_bytes, &job.weights,
                             Backward ? first + box * chunk : part * chunk, Backward ? part * chunk : first,
                             of_filter, full);
                weight.next(job.slots);
            }
        }
        is_there = job.stay;
    }
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

/* What a warp has read and must yet give back: the barriers of the step before. */
struct Owed {
    CopyBarrier *pixels, *weights; /* NULL: none */

    __device__ void pay()
    {
        if ((int)threadIdx.x % 32 != 0)
            return;
        if (pixels)
            barrier_arrive(pixels);
        if (weights)
            barrier_arrive(weights);
    }
};

/* Adds what a tap has of 16 times `Sixteens` channels to the sums, or begins them. */
template <typename T, int Columns, int Squares, bool Backward, int Sixteens>
__device__ void multiply(float (&sums)[Squares][Columns / 8][4], uint64_t pixels,
                         const int (&origins)[Squares], int moved, uint64_t weights, int add)
{
    products_begin();
#pragma unroll
    for (int k = 0; k < Sixteens; k++)
#pragma unroll
        for (int i = 0; i < Squares; i++)
            multiply_shared<0, Backward>(
                T{}, sums[i], descriptor_at(pixels, origins[i] + moved + k * sixteen * 2 / piece_bytes),
                descriptor_at(weights, k * Weights<Columns, Backward>::of_sixteen), k > 0 ? 1 : add);
    products_end();
}

/* The same of any number of them, up to a chunk: for each there is straight code, since products that a
 * branch may skip wait for each other. */
template <typename T, int Columns, int Squares, bool Backward>
__device__ void multiply_tap(float (&sums)[Squares][Columns / 8][4], uint64_t pixels,
                             const int (&origins)[Squares], int moved, uint64_t weights, int sixteens,
                             int add)
{
    if (sixteens == 4)
        multiply<T, Columns, Squares, Backward, 4>(sums, pixels, origins, moved, weights, add);
    else if (sixteens == 3)
        multiply<T, Columns, Squares, Backward, 3>(sums, pixels, origins, moved, weights, add);
    else if (sixteens == 2)
        multiply<T, Columns, Squares, Backward, 2>(sums, pixels, origins, moved, weights, add);
    else
        multiply<T, Columns, Squares, Backward, 1>(sums, pixels, origins, moved, weights, add);
}

template <typename T, int Columns, int Squares, bool Backward>
__device__ void compute_all(const Job<T> &job, Ring *ring, char *pixels, char *weights)
{
    using W = Weights<Columns, Backward>;
    const Plan &plan = job.plan;
    const Cover &cover = plan.tiles.cover;
    const Places places = places_of(cover, 1);
    const int group = group_of_warp();
    const int first = (int)blockIdx.x % plan.parts * plan.part, count = min(plan.part, job.to_pitch - first);
    int origins[Squares];
#pragma unroll
    for (int i = 0; i < Squares; i++)
        origins[i] = origin_of(cover, places, group * Squares + i) * place_pieces;
    Turn pixel, weight;
    for (int tile = (int)blockIdx.x / plan.parts; tile < plan.tiles.count;
         tile += (int)gridDim.x / plan.parts) {
        float sums[Squares][Columns / 8][4];
        Owed owed = {nullptr, nullptr};
        for (int part = 0; part < job.chunks; part++) {
            const int sixteens = part + 1 < job.chunks ? chunk / sixteen : job.last;
            const uint64_t pixel_rows =
                rows_descriptor(pixels + pixel.slot * tile_room(cover, 1), places.pitch * place_bytes);
            barrier_wait(&ring->pixels_full[pixel.slot], pixel.parity);
#pragma unroll 1
            for (int tap = 0; tap < taps; tap++) {
                const uint64_t weight_rows =
                    rows_descriptor(weights + weight.slot * W::bytes, pattern_bytes, W::box_bytes);
                const int moved = (tap / taps_across * places.pitch + tap % taps_across) * place_pieces;
                barrier_wait(&ring->weights_full[weight.slot], weight.parity);
                __syncwarp(); /* lanes may leave a wait one by one */
                multiply_tap<T, Columns, Squares, Backward>(sums, pixel_rows, origins, moved, weight_rows,
                                                            sixteens, part > 0 || tap > 0);
                products_wait<1>();
                owed.pay();
                owed = {tap + 1 == taps ? &ring->pixels_empty[pixel.slot] : nullptr,
                        job.stay ? nullptr : &ring->weights_empty[weight.slot]};
                weight.next(job.slots);
            }
            pixel.next(pixel_slots);
        }
        if (job.stay)
            weight = Turn{}; /* they came once */
        products_wait<0>();
#pragma unroll
        for (int i = 0; i < Squares; i++)
            products_of(sums[i]);
        owed.pay();
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
    extern __shared__ __align__(1024) char memory[];
    Ring *ring = reinterpret_cast<Ring *>(memory);
    char *pixels = memory + ring_room, *weights = pixels + pixel_slots * tile_room(job.plan.tiles.cover, 1);
    if (threadIdx.x == 0) {
        for (int i = 0; i < pixel_slots; i++) {
            barrier_init(&ring->pixels_full[i], 1);
            barrier_init(&ring->pixels_empty[i], groups * group_threads / 32);
        }
        for (int i = 0; i < job.slots; i++) {
            barrier_init(&ring->weights_full[i], 1);
            barrier_init(&ring->weights_empty[i], groups * group_threads / 32);
        }
        barriers_to_copies();
    }
    __syncthreads();
    if (threadIdx.x < groups * group_threads)
        compute_all<T, Columns, Squares, Backward>(job, ring, pixels, weights);
    else if (threadIdx.x == groups * group_threads)
        bring_all<T, Columns, Backward>(job, ring, pixels, weights);
}

/* ---- plans ---- */

/* Returns the plan of a cover. */
Plan plan_of_cover(const DeviceTensor *to, const Cover &cover, int parts)
{
    Plan plan = {};
    plan.tiles = tiles_of(to, cover);
    plan.part = ceil_of(to->pitch, (int64_t)piece * parts) * piece;
    plan.parts = ceil_of(to->pitch, plan.part);
    plan.columns = ceil_of(plan.part, sixteen) * sixteen;
    return plan;
}

/* Returns the clocks of a plan, as far as they tell plans apart: a product of 64 x columns takes columns / 2
 * on the matrix units and reads (64 + columns) * 32 bytes of shared memory at 128 a clock; what a step reads
 * comes at 32 bytes a clock; a tile begins and ends. */
double clocks_of(const Plan &plan, int64_t from_pitch)
{
    const int chunks = ceil_of(from_pitch, chunk), sixteens = ceil_of(from_pitch, sixteen);
    const int streams = processors > plan.parts ? processors / plan.parts : 1,
              tiles = ceil_of(plan.tiles.count, streams); /* of a block */
    const double product = plan.columns > 64 ? plan.columns / 2.0 : 16 + plan.columns / 4.0;
    const double compute = sixteens * taps * squares_of(plan.tiles.cover) * product,
                 copy = chunks * (tile_bytes(plan.tiles.cover, 1) + taps * plan.columns * place_bytes) / 32.0;
    return (tiles * ((compute > copy ? compute : copy) + 1500.0) + copy / chunks) *
           ceil_of(plan.parts, processors);
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

/* The tensors of a convolution over `from`, or of the gradient that goes from dy to dx. */
struct Tensors {
    const DeviceTensor *from, *weight, *to;
};

template <typename T, int Columns, int Squares, bool Backward>
cudaError_t launch(const Tensors &tensors, const Plan &plan, cudaStream_t stream)
{
    using W = Weights<Columns, Backward>;
    void (*const kernel)(Job<T>) = implicit_gemm_kernel<T, Columns, Squares, Backward>;
    const DeviceTensor *from = tensors.from, *weight = tensors.weight, *to = tensors.to;
    const int64_t room = shared_bytes_most(reinterpret_cast<const void *>(kernel));
    const Cover &cover = plan.tiles.cover;
    const cuuint64_t filter = (cuuint64_t)weight->pitch * sizeof(T);
    Job<T> job = {};
    job.to = data_of<T>(to);
    job.samples = (int)to->shape[0];
    job.height = (int)to->shape[1];
    job.width = (int)to->shape[2];
    job.to_pitch = (int)to->pitch;
    job.plan = plan;
    job.chunks = ceil_of(from->pitch, chunk);
    job.last = ceil_of(from->pitch - (int64_t)(job.chunks - 1) * chunk, sixteen);
    job.slots = weight_slots_least;
    while (job.slots < min(weight_slots_most, job.chunks * taps) &&
           shared_bytes<Columns, Backward>(cover, job.slots + 1) <= room)
        job.slots++;
    job.stay = job.slots == job.chunks * taps;
    const int64_t bytes = shared_bytes<Columns, Backward>(cover, job.slots);
    /* all of the room, whatever this layer takes: the limit is the function's, and other layers share it */
    cudaError_t status =
        bytes <= room ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)room)
                      : cudaErrorNotSupported;
    if (status == cudaSuccess)
        status = make_tile_map(&job.pixels, from, cover, 1);
    if (status == cudaSuccess)
        status = make_map<3>(&job.weights, weight->element, weight->data,
                             {(cuuint64_t)weight->pitch, (cuuint64_t)weight->rows / taps, taps},
                             {filter * taps, filter}, {chunk, W::box_rows, 1});
    int device = 0, streams = 0;
    if (status == cudaSuccess)
        status = cudaGetDevice(&device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&streams, cudaDevAttrMultiProcessorCount, device);
    if (status != cudaSuccess)
        return status;
    streams = max(streams / plan.parts, 1);
    kernel<<<(unsigned)(min(streams, plan.tiles.count) * plan.parts), threads, (size_t)bytes, stream>>>(job);
    return cudaGetLastError();
}

template <bool Backward> cudaError_t launch_any(const Tensors &tensors, cudaStream_t stream)
{
    const Plan plan = plan_of(tensors.from, tensors.to);
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        return with_columns<columns_most>(plan.columns, [&](auto columns) {
            constexpr int most = decltype(columns)::value;
            return squares_of(plan.tiles.cover) == squares_most
                       ? launch<T, most, 2, Backward>(tensors, plan, stream)
                       : launch<T, most, 1, Backward>(tensors, plan, stream);
        });
    };
    return tensors.from->element == ELEMENT_F16 ? run(__half{}) : run(__nv_bfloat16{});
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
    return kernel_implicit_gemm_fits(x, weight, y) ? launch_any<false>({x, weight, y}, stream)
                                                   : cudaErrorNotSupported;
}

extern "C" cudaError_t kernel_implicit_gemm_backward_data(const DeviceTensor *dy, const DeviceTensor *weight,
                                                          const DeviceTensor *dx, cudaStream_t stream)
{
    return kernel_implicit_gemm_fits(dx, weight, dy) ? launch_any<true>({dy, weight, dx}, stream)
                                                     : cudaErrorNotSupported;
}
