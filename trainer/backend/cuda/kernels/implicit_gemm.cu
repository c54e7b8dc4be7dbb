/* implicit_gemm.cu - 3 x 3 convolutions and their data gradients as products of warp groups.
 *
 * A block has a part of the channels that are written, and walks over tiles of pixels. A tile is 4 squares of
 * 8 x 8 pixels (2 where work is scarce), in one image or in several small ones; two warp groups have half of
 * the squares each, and their sums in registers. A thread of a third has the copy engine bring what they read
 * to shared memory, some steps ahead: 64 channels of the tile's pixels with a border of one, once for all
 * nine taps, and the weights of each tap. Where the weights of all channels fit, they are brought once and
 * stay; else two blocks of the same part bring half of them each, for both, so that the cache is read half as
 * often.
 *
 * A pixel is a row of 64 channels, and 8 neighbours are the 8 rows that the matrix units take together; the
 * next row of a square lies a constant distance away. So a tap is the same descriptor begun at another pixel,
 * with nothing copied twice, and zeros around the images are what the copy engine writes beyond them.
 *
 * For a norm that follows, blocks also add up what they have written and its squares, by channel; a second
 * kernel joins those of all blocks. */
#include "trainer/backend/cuda/kernels/implicit_gemm_plan.cuh"
#include "trainer/backend/cuda/kernels/partial_sums.cuh"

using namespace fshard;
using namespace fshard::implicit;

namespace
{

constexpr int pixel_slots_least = 2, pixel_slots_most = 3; /* of 64 channels of a tile */
constexpr int weight_slots_least = 4, weight_slots_good = 5, weight_slots_most = 4 * taps; /* of a tap */

/* Blocks share weights where each has as many tiles: before the first, they wait for each other. */
constexpr int tiles_to_share = 3;

template <typename T> struct Job {
    CUtensorMap pixels, weights;
    T *to;
    float *moments; /* [streams][2][to_pitch], or NULL: sums of what is written, and of its squares */
    int samples, height, width, to_pitch;
    int padding; /* pixels of zeros around the images that are read */
    Plan plan;
    int chunks, last;       /* of 64 channels that are summed; of the last one, how many times 16 */
    int pixel_slots, slots; /* the latter: of weights */
    int peers;              /* 1, or 2 that share them: a cluster */
    bool stay;              /* the weights do */
};

/* ---- shared memory ---- */

struct Ring {
    CopyBarrier pixels_full[pixel_slots_most], pixels_empty[pixel_slots_most];
    CopyBarrier weights_full[weight_slots_most], weights_empty[weight_slots_most];
};

/* The barriers lie in front, so that what follows begins where the exchange of vectors does. */
constexpr int ring_room = (int)(sizeof(Ring) + pattern_bytes - 1) / pattern_bytes * pattern_bytes;

/* Where things lie in shared memory, one behind the other. */
template <typename T, int Columns> struct Memory {
    Ring *ring;
    float *moments;
    char *pixels, *weights;

    __device__ Memory(const Job<T> &job, char *memory)
        : ring(reinterpret_cast<Ring *>(memory)), moments(reinterpret_cast<float *>(memory + ring_room)),
          pixels(memory + ring_room + (job.moments ? Moments<Columns>::room : 0)),
          weights(pixels + job.pixel_slots * tile_room(job.plan.tiles.cover, 1))
    {
    }
};

template <int Columns, bool Backward>
int64_t shared_bytes(const Cover &cover, int pixel_slots, int slots, bool moments)
{
    return ring_room + (moments ? Moments<Columns>::room : 0) + pixel_slots * tile_room(cover, 1) +
           (int64_t)slots * Weights<Columns, Backward>::bytes;
}

/* ---- the thread that has things copied ---- */

/* A block's part and tiles: of `streams` streams of tiles, peers have neighbours, and go on alike, so that
 * one may have a tile too many, outside all images. */
struct Share {
    int first, count; /* of the channels that are written */
    int tile, streams;
};

template <typename T> __device__ Share share_of(const Job<T> &job)
{
    const Plan &plan = job.plan;
    const int peer = (int)blockIdx.x % job.peers, rest = (int)blockIdx.x / job.peers,
              first = rest % plan.parts * plan.part;
    return {first, min(plan.part, job.to_pitch - first), rest / plan.parts * job.peers + peer,
            (int)gridDim.x / plan.parts};
}

/* Returns whether a block or its peer has this tile. */
template <typename T> __device__ bool has_tile(const Job<T> &job, int tile)
{
    return tile / job.peers * job.peers < job.plan.tiles.count;
}

/* Has this block's share of a tap's weights brought to all peers. first: of the channels that are written;
 * part: 64 of those that are summed. */
template <typename T, int Columns, bool Backward>
__device__ void bring_weights(const Job<T> &job, int first, int part, int tap, char *to, CopyBarrier *full)
{
    using W = Weights<Columns, Backward>;
    const int of_filter = Backward ? taps - 1 - tap : tap, rows = W::box_rows / job.peers,
              row = (int)cluster_rank() * rows;
    for (int box = 0; box < W::boxes; box++)
        copy_box_to_all(to + box * W::box_bytes + row * place_bytes, &job.weights,
                        Backward ? first + box * chunk : part * chunk,
                        (Backward ? part * chunk : first) + row, of_filter, full,
                        (unsigned short)((1 << job.peers) - 1));
}

/* Has all steps of a block's tiles brought, one after the other. A place is free at first: the phase before
 * the first counts as ended. */
template <typename T, int Columns, bool Backward>
__device__ void bring_all(const Job<T> &job, const Memory<T, Columns> &memory)
{
    Ring *ring = memory.ring;
    char *pixels = memory.pixels, *weights = memory.weights;
    using W = Weights<Columns, Backward>;
    const Cover &cover = job.plan.tiles.cover;
    const Share share = share_of(job);
    Turn pixel, weight;
    bool is_there = false; /* all weights, for good */
    for (int tile = share.tile; has_tile(job, tile); tile += share.streams) {
        const Corner corner = corner_of(job.plan.tiles, tile);
        for (int part = 0; part < job.chunks; part++) {
            CopyBarrier *full = &ring->pixels_full[pixel.slot];
            barrier_wait(&ring->pixels_empty[pixel.slot], pixel.parity ^ 1);
            barrier_expect(full, (unsigned)tile_bytes(cover, 1));
            copy_box(pixels + pixel.slot * tile_room(cover, 1), &job.pixels, part * chunk,
                     corner.column - job.padding, corner.row - job.padding, corner.image, full);
            pixel.next(job.pixel_slots);
            for (int tap = 0; tap < taps && !is_there; tap++) {
                full = &ring->weights_full[weight.slot];
                barrier_wait(&ring->weights_empty[weight.slot], weight.parity ^ 1);
                barrier_expect(full, W::bytes);
                bring_weights<T, Columns, Backward>(job, share.first, part, tap,
                                                    weights + weight.slot * W::bytes, full);
                weight.next(job.slots);
            }
        }
        is_there = job.stay;
    }
    /* a block leaves when all that its peer gives back has come */
    for (int i = 0; i < job.slots && job.peers > 1; i++, weight.next(job.slots))
        barrier_wait(&ring->weights_empty[weight.slot], weight.parity ^ 1);
}

/* ---- the groups that compute ---- */

/* Writes the sums of a square's pixels. Sets inside to which of this thread's two exist. */
template <typename T, int Columns>
__device__ void write_square(const Job<T> &job, int image, int first_row, int first_column, int first,
                             int count, const float (&sums)[Columns / 8][4], bool (&inside)[2])
{
    const auto write = [&](auto of_row) {
        constexpr int low = decltype(of_row)::value;
        const int pixel = row_of_square(low), row = first_row + pixel / side,
                  column = first_column + pixel % side;
        inside[low] = image < job.samples && row < job.height && column < job.width;
        T *to = job.to + ((int64_t)(image * job.height + row) * job.width + column) * job.to_pitch + first;
        write_row<T, Columns, low>(to, inside[low], count, sums);
    };
    write(std::integral_constant<int, 0>{});
    write(std::integral_constant<int, 1>{});
}

/* What a warp has read and gives back when the products that read it are computed: barriers, or NULL. */
struct Owed {
    CopyBarrier *pixels, *weights;
};

__device__ inline void pay(const Owed &owed, int peers)
{
    if ((int)threadIdx.x % 32 != 0)
        return;
    if (owed.pixels)
        barrier_arrive(owed.pixels);
    if (owed.weights)
        barrier_arrive(owed.weights);
    if (owed.weights && peers > 1)
        barrier_arrive_at(cluster_rank() ^ 1, owed.weights);
}

/* How many taps' products may be under way when the next tap's begin: where they are few, those of one end
 * before that. */
template <int Columns> constexpr int taps_open = Columns > chunk ? 1 : 2;

/* Where a group is. */
template <int Squares> struct Walk {
    int origins[Squares]; /* of its squares, in pieces */
    Turn pixel, weight;
    Owed owed[2]; /* of the last taps */
};

/* Adds what 16 times `Sixteens` channels have to the sums, or begins them: straight code, since products that
 * a branch may skip wait for each other. */
template <typename T, int Columns, int Squares, bool Backward, int Sixteens>
__device__ void multiply(const Job<T> &job, const Memory<T, Columns> &memory, Walk<Squares> *walk,
                         float (&sums)[Squares][Columns / 8][4], int add)
{
    using W = Weights<Columns, Backward>;
    constexpr int open = taps_open<Columns>;
    const Cover &cover = job.plan.tiles.cover;
    const int pitch = places_of(cover, 1).pitch;
    const uint64_t of_pixels =
        rows_descriptor(memory.pixels + walk->pixel.slot * tile_room(cover, 1), pitch * place_bytes);
    barrier_wait(&memory.ring->pixels_full[walk->pixel.slot], walk->pixel.parity);
#pragma unroll 1
    for (int row = 0; row < taps_across; row++)
#pragma unroll
        for (int column = 0; column < taps_across; column++) {
            const int slot = walk->weight.slot, moved = (row * pitch + column) * place_pieces;
            const bool is_first = row == 0 && column == 0, is_last = row + column == 2 * (taps_across - 1);
            const uint64_t of_weights =
                rows_descriptor(memory.weights + slot * W::bytes, pattern_bytes, W::box_bytes);
            barrier_wait(&memory.ring->weights_full[slot], walk->weight.parity);
            __syncwarp(); /* lanes may leave a wait one by one */
            products_begin();
#pragma unroll
            for (int k = 0; k < Sixteens; k++)
#pragma unroll
                for (int i = 0; i < Squares; i++)
                    multiply_shared<0, Backward>(
                        T{}, sums[i],
                        descriptor_at(of_pixels, walk->origins[i] + moved + k * sixteen * 2 / piece_bytes),
                        descriptor_at(of_weights, k * W::of_sixteen), !is_first || k > 0 ? 1 : add);
            products_end();
            products_wait<open>();
            pay(walk->owed[open - 1], job.peers);
            walk->owed[1] = walk->owed[0];
            walk->owed[0] = {is_last ? &memory.ring->pixels_empty[walk->pixel.slot] : nullptr,
                             job.stay ? nullptr : &memory.ring->weights_empty[slot]};
            walk->weight.next(job.slots);
        }
    walk->pixel.next(job.pixel_slots);
}

/* ---- a group's work ---- */

template <typename T, int Columns, int Squares, bool Backward>
__device__ void compute_all(const Job<T> &job, const Memory<T, Columns> &memory)
{
    const Cover &cover = job.plan.tiles.cover;
    const Share share = share_of(job);
    const int group = group_of_warp();
    Walk<Squares> walk = {};
#pragma unroll
    for (int i = 0; i < Squares; i++)
        walk.origins[i] = origin_of(cover, places_of(cover, 1), group * Squares + i) * place_pieces;
    float *moments =
        memory.moments + (int)threadIdx.x / 32 * Moments<Columns>::per_lane * 32; /* of this warp */
    if (job.moments)
        for (int i = 0; i < Moments<Columns>::per_lane; i++)
            moments[i * 32 + (int)threadIdx.x % 32] = 0;
    for (int tile = share.tile; has_tile(job, tile); tile += share.streams) {
        float sums[Squares][Columns / 8][4];
        for (int part = 0; part < job.chunks; part++) {
            const int sixteens = part + 1 < job.chunks ? chunk / sixteen : job.last;
            if (sixteens == 4)
                multiply<T, Columns, Squares, Backward, 4>(job, memory, &walk, sums, part > 0);
            else if (sixteens == 3)
                multiply<T, Columns, Squares, Backward, 3>(job, memory, &walk, sums, part > 0);
            else if (sixteens == 2)
                multiply<T, Columns, Squares, Backward, 2>(job, memory, &walk, sums, part > 0);
            else
                multiply<T, Columns, Squares, Backward, 1>(job, memory, &walk, sums, part > 0);
        }
        if (job.stay)
            walk.weight = Turn{}; /* they came once */
        products_wait<0>();
#pragma unroll
        for (int i = 0; i < Squares; i++)
            products_of(sums[i]);
#pragma unroll
        for (int i = taps_open<Columns> - 1; i >= 0; i--)
            pay(walk.owed[i], job.peers);
        walk.owed[0] = walk.owed[1] = {};
        const Corner corner = corner_of(job.plan.tiles, tile);
        bool inside[Squares][2];
#pragma unroll
        for (int i = 0; i < Squares; i++) {
            const int of_tile = group * Squares + i, of_image = of_tile % (cover.rows * cover.columns);
            write_square<T, Columns>(job, corner.image + of_tile / (cover.rows * cover.columns),
                                     corner.row + of_image / cover.columns * side,
                                     corner.column + of_image % cover.columns * side, share.first,
                                     share.count, sums[i], inside[i]);
        }
        if (job.moments)
            add_moments<T, Columns, Squares>(moments, sums, inside);
    }
    if (job.moments)
        leave_moments<Columns>(job.moments + (int64_t)share.tile * 2 * job.to_pitch + share.first,
                               job.to_pitch, share.count, memory.moments);
}

template <typename T, int Columns, int Squares, bool Backward>
__global__ void __launch_bounds__(threads, 1) implicit_gemm_kernel(const __grid_constant__ Job<T> job)
{
    extern __shared__ __align__(1024) char bytes[];
    const Memory<T, Columns> memory(job, bytes);
    Ring *ring = memory.ring;
    if (threadIdx.x == 0) {
        for (int i = 0; i < job.pixel_slots; i++) {
            barrier_init(&ring->pixels_full[i], 1);
            barrier_init(&ring->pixels_empty[i], computing_warps);
        }
        for (int i = 0; i < job.slots; i++) {
            barrier_init(&ring->weights_full[i], 1);
            barrier_init(&ring->weights_empty[i], (unsigned)(job.peers * computing_warps));
        }
        barriers_to_copies();
    }
    cluster_meet();
    launch_before_wait();
    if (threadIdx.x < groups * group_threads) {
        registers_take<computer_registers>();
        compute_all<T, Columns, Squares, Backward>(job, memory);
    } else {
        registers_give<copier_registers>();
        if (threadIdx.x == groups * group_threads)
            bring_all<T, Columns, Backward>(job, memory);
    }
}

/* ---- launches ---- */

/* The tensors of a convolution over `from`, or of the gradient that goes from dy to dx. */
struct Tensors {
    const DeviceTensor *from, *weight, *to;
    float *moments; /* of blocks, or NULL */
};

template <typename T, int Columns, int Squares, bool Backward>
cudaError_t launch(const Tensors &tensors, const Plan &plan, int *streams, cudaStream_t stream)
{
    using W = Weights<Columns, Backward>;
    void (*const kernel)(Job<T>) = implicit_gemm_kernel<T, Columns, Squares, Backward>;
    const DeviceTensor *from = tensors.from, *weight = tensors.weight, *to = tensors.to;
    const int64_t room = shared_bytes_most(reinterpret_cast<const void *>(kernel));
    const Cover &cover = plan.tiles.cover;
    Job<T> job = {};
    job.to = data_of<T>(to);
    job.moments = tensors.moments;
    job.samples = (int)to->shape[0];
    job.height = (int)to->shape[1];
    job.width = (int)to->shape[2];
    job.to_pitch = (int)to->pitch;
    job.padding = padding_of(from, to);
    job.plan = plan;
    job.chunks = ceil_of(from->pitch, chunk);
    job.last = ceil_of(from->pitch - (int64_t)(job.chunks - 1) * chunk, sixteen);
    const int slots_wanted = min(weight_slots_most, job.chunks * taps);
    const auto fits = [&](int pixel_slots, int slots) {
        return shared_bytes<Columns, Backward>(cover, pixel_slots, slots, job.moments) <= room;
    };
    job.pixel_slots = fits(pixel_slots_most, min(weight_slots_good, slots_wanted)) &&
                              (fits(pixel_slots_most, slots_wanted) || !fits(pixel_slots_least, slots_wanted))
                          ? pixel_slots_most
                          : pixel_slots_least;
    job.slots = weight_slots_least;
    while (job.slots < slots_wanted && fits(job.pixel_slots, job.slots + 1))
        job.slots++;
    job.stay = job.slots == job.chunks * taps;
    job.peers = job.stay || plan.tiles.count < tiles_to_share * streams_of(plan, 1) ? 1 : 2;
    const int64_t bytes = shared_bytes<Columns, Backward>(cover, job.pixel_slots, job.slots, job.moments);
    /* all of the room, whatever this layer takes: the limit is the function's, and other layers share it */
    cudaError_t status =
        bytes <= room ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)room)
                      : cudaErrorNotSupported;
    if (status == cudaSuccess)
        status = make_tile_map(&job.pixels, from, cover, 1);
    if (status == cudaSuccess)
        status = make_weight_map(&job.weights, weight, W::box_rows / job.peers);
    if (status != cudaSuccess)
        return status;
    *streams = streams_of(plan, job.peers);
    return launch_clusters(kernel, (unsigned)(*streams * plan.parts), threads, (size_t)bytes,
                           (unsigned)job.peers, stream, job);
}

/* Computes a convolution or its data gradient; sets *streams to how many streams of tiles there are, each
 * with moments of its own. */
template <bool Backward> cudaError_t launch_any(const Tensors &tensors, int *streams, cudaStream_t stream)
{
    const Plan plan = plan_of(tensors.from, tensors.to);
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        return with_columns<columns_most>(plan.columns, [&](auto columns) {
            constexpr int most = decltype(columns)::value;
            return squares_of(plan.tiles.cover) == squares_most
                       ? launch<T, most, 2, Backward>(tensors, plan, streams, stream)
                       : launch<T, most, 1, Backward>(tensors, plan, streams, stream);
        });
    };
    return tensors.from->element == ELEMENT_F16 ? run(__half{}) : run(__nv_bfloat16{});
}

} // namespace

extern "C" bool kernel_implicit_gemm_fits(const DeviceTensor *x, const DeviceTensor *weight,
                                          const DeviceTensor *y)
{
    return is_image(x) && is_image(y) && x->shape[0] == y->shape[0] && padding_of(x, y) >= 0 &&
           y->element == x->element && weight->element == x->element && weight->shape[1] == taps_across &&
           weight->shape[2] == taps_across && weight->shape[0] == y->shape[3] &&
           weight->shape[3] == x->shape[3] && weight->pitch == x->pitch && weight->rank == 4 &&
           weight->rows >= y->pitch * taps && map_encoder() && runs_hopper_code();
}

extern "C" uint64_t kernel_implicit_gemm_sums_scratch_bytes(const DeviceTensor *y)
{
    return (uint64_t)processors * 2 * (uint64_t)y->pitch * sizeof(float);
}

extern "C" cudaError_t kernel_implicit_gemm(const DeviceTensor *x, const DeviceTensor *weight,
                                            const DeviceTensor *y, const DeviceTensor *sums, void *scratch,
                                            cudaStream_t stream)
{
    if (!kernel_implicit_gemm_fits(x, weight, y) || !is_f32(sums) || (sums && sums->pitch != y->pitch))
        return cudaErrorNotSupported;
    float *moments = sums ? static_cast<float *>(scratch) : nullptr;
    int streams = 0;
    cudaError_t status = launch_any<false>({x, weight, y, moments}, &streams, stream);
    if (status == cudaSuccess && sums) {
        join_moments(moments, data_of<float>(sums), streams, 2 * (int)y->pitch, stream);
        status = cudaGetLastError();
    }
    return status;
}

extern "C" cudaError_t kernel_implicit_gemm_backward_data(const DeviceTensor *dy, const DeviceTensor *weight,
                                                          const DeviceTensor *dx, cudaStream_t stream)
{
    int streams = 0;
    return kernel_implicit_gemm_fits(dx, weight, dy)
               ? launch_any<true>({dy, weight, dx, nullptr}, &streams, stream)
               : cudaErrorNotSupported;
}
