/* pixel_gemm.cu - 3 x 3 convolutions of many small images, and their data gradients, as products whose rows
 * are the same pixel of 256 images.
 *
 * A block has a part of the channels that are written, up to 128, and walks over tiles, each a pixel of 256
 * images. Of each tap that lies inside the images it multiplies what lies there with the tap's weights, 64
 * channels a step; taps outside are left out. Two warp groups have half of the images each, and their sums in
 * registers; a thread of a third has the copy engine bring both operands some steps ahead. Two blocks of a
 * cluster share what they bring: the pixels, where they have two parts of the channels, else the weights, for
 * twice as many images. Without that, the cache would be the bound; a block is alone where pairs would have
 * too many tiles without images.
 *
 * Tiles have 9 taps, fewer at the edges. They are sorted by these, and clusters take them in turn, from the
 * first cluster to the last and back, so that all have about the same work. */
#include "trainer/backend/cuda/kernels/implicit_gemm_block.cuh"
#include "trainer/backend/cuda/kernels/kernels_pixel_gemm.h"
#include "trainer/backend/cuda/kernels/partial_sums.cuh"

using namespace fshard;
using namespace fshard::implicit;

namespace
{

constexpr int squares = 2; /* of 64 images, in a group */
constexpr int tile_images = groups * squares * group_rows, tile_place_bytes = tile_images * place_bytes;
constexpr int slots_least = 2, slots_most = 8;
constexpr int pixels_most = PIXEL_GEMM_PIXELS_MAX;

/* Height and width. */
struct Size {
    int rows, columns;
};

template <typename T> struct Job {
    CUtensorMap pixels, weights;
    T *to;
    float *moments; /* [streams][2][to_pitch], or NULL: sums of what is written, and of its squares */
    int samples, to_pitch;
    Size from, to_size;
    int padding;      /* pixels of zeros around the images that are read */
    int parts, part;  /* of the channels that are written; channels of one */
    int chunks, last; /* of 64 channels that are summed; of the last one, how many times 16 */
    int slots;
    int peers;           /* blocks of a cluster: 1 or 2 */
    bool shares_pixels;  /* they do, and have a part of the channels each; else they share weights */
    int blocks_of_pixel; /* tiles of a pixel, or pairs of tiles where peers have one each */
    int tiles;           /* of all pixels, in such units */
    unsigned char pixel_rows[pixels_most],
        pixel_columns[pixels_most]; /* of the pixels, those of most taps first */
};

/* A step's operands, in shared memory: 64 channels of a pixel of each image, and their weights; what begins
 * there begins where the exchange of vectors does. */
template <int Columns, bool Backward>
constexpr int slot_bytes = tile_place_bytes + Weights<Columns, Backward>::bytes;

struct Ring {
    CopyBarrier full[slots_most], empty[slots_most];
};

/* The barriers lie in front, so that what follows begins where the exchange of vectors does. */
constexpr int ring_room = pattern_bytes;
static_assert(sizeof(Ring) <= ring_room, "the barriers have room");

template <int Columns, bool Backward> int64_t shared_bytes(int slots, bool moments)
{
    return ring_room + (moments ? Moments<Columns>::room : 0) +
           (int64_t)slots * slot_bytes<Columns, Backward>;
}

/* ---- a block's work ---- */

/* A block's channels and tiles. */
struct Share {
    int first, count;    /* of the channels that are written */
    int peer;            /* this one of its cluster */
    int stream, streams; /* of clusters, by whose number they take tiles */
};

template <typename T> __device__ Share share_of(const Job<T> &job)
{
    const int peer = (int)blockIdx.x % job.peers, cluster = (int)blockIdx.x / job.peers,
              parts_of_cluster = job.shares_pixels ? job.peers : 1, clusters = job.parts / parts_of_cluster,
              part = cluster % clusters * parts_of_cluster + (job.shares_pixels ? peer : 0),
              first = part * job.part;
    return {first, min(job.part, job.to_pitch - first), peer, cluster / clusters,
            (int)gridDim.x / job.peers / clusters};
}

/* A tile: the first of its images, the pixel that is written, and the taps that lie inside: those from first_
 * to before last_. */
struct Tile {
    bool exists;
    int image, row, column;
    int first_row, last_row, first_column, last_column;
};

/* Returns a block's tile of a round: the first is those of most taps. */
template <typename T> __device__ Tile tile_of(const Job<T> &job, const Share &share, int round)
{
    const int at = round * share.streams + (round % 2 ? share.streams - 1 - share.stream : share.stream);
    Tile tile = {};
    tile.exists = at < job.tiles;
    if (!tile.exists)
        return tile;
    const int pixel = at / job.blocks_of_pixel, block = at % job.blocks_of_pixel;
    tile.image = (job.shares_pixels ? block : block * job.peers + share.peer) * tile_images;
    tile.row = job.pixel_rows[pixel];
    tile.column = job.pixel_columns[pixel];
    tile.first_row = max(0, job.padding - tile.row);
    tile.last_row = min(taps_across, job.from.rows + job.padding - tile.row);
    tile.first_column = max(0, job.padding - tile.column);
    tile.last_column = min(taps_across, job.from.columns + job.padding - tile.column);
    return tile;
}

/* Has a step's operands brought, this block's share of them to both. part: 64 of the channels that are
 * summed. */
template <typename T, int Columns, bool Backward>
__device__ void bring(const Job<T> &job, const Share &share, const Tile &tile, int tap_row, int tap_column,
                      int part, char *slot, CopyBarrier *full)
{
    using W = Weights<Columns, Backward>;
    const int row = tile.row + tap_row - job.padding, column = tile.column + tap_column - job.padding,
              tap = tap_row * taps_across + tap_column, of_filter = Backward ? taps - 1 - tap : tap;
    const bool two = job.peers > 1;
    const unsigned short all = 3;
    char *weights = slot + tile_place_bytes;
    barrier_expect(full, (unsigned)slot_bytes<Columns, Backward>);
    if (two && job.shares_pixels) {
        const int images = tile_images / 2 * share.peer;
        copy_box_to_all(slot + images * place_bytes, &job.pixels, part * chunk, column, row,
                        tile.image + images, full, all);
    } else {
        copy_box(slot, &job.pixels, part * chunk, column, row, tile.image, full);
    }
    for (int box = 0; box < W::boxes; box++) {
        const int from = Backward ? share.first + box * chunk : part * chunk,
                  to = Backward ? part * chunk : share.first;
        if (two && !job.shares_pixels) {
            const int rows = W::box_rows / 2 * share.peer;
            copy_box_to_all(weights + box * W::box_bytes + rows * place_bytes, &job.weights, from, to + rows,
                            of_filter, full, all);
        } else {
            copy_box(weights + box * W::box_bytes, &job.weights, from, to, of_filter, full);
        }
    }
}

/* Has all steps of a block's tiles brought, one after the other. A slot is free at first: the phase before
 * the first counts as ended. */
template <typename T, int Columns, bool Backward>
__device__ void bring_all(const Job<T> &job, Ring *ring, char *slots)
{
    const Share share = share_of(job);
    Turn turn;
    for (int round = 0; round * share.streams < job.tiles; round++) {
        const Tile tile = tile_of(job, share, round);
        if (!tile.exists)
            continue;
        for (int row = tile.first_row; row < tile.last_row; row++)
            for (int column = tile.first_column; column < tile.last_column; column++)
                for (int part = 0; part < job.chunks; part++) {
                    barrier_wait(&ring->empty[turn.slot], turn.parity ^ 1);
                    bring<T, Columns, Backward>(job, share, tile, row, column, part,
                                                slots + turn.slot * slot_bytes<Columns, Backward>,
                                                &ring->full[turn.slot]);
                    turn.next(job.slots);
                }
    }
    /* a block leaves when all that its peer gives back has come */
    for (int i = 0; i < job.slots && job.peers > 1; i++, turn.next(job.slots))
        barrier_wait(&ring->empty[turn.slot], turn.parity ^ 1);
}

/* Where a group is in the ring. */
struct Walk {
    Turn turn;
    CopyBarrier *owed = nullptr; /* of the last step */
};

/* Adds what 16 times `Sixteens` channels of a tap have to the sums, or begins them: straight code, since
 * products that a branch may skip wait for each other. */
template <typename T, int Columns, bool Backward, int Sixteens>
__device__ void multiply_step(const Job<T> &job, Ring *ring, const char *slots, Walk *walk,
                              float (&sums)[squares][Columns / 8][4], int add)
{
    using W = Weights<Columns, Backward>;
    const Turn turn = walk->turn;
    const char *slot = slots + turn.slot * slot_bytes<Columns, Backward>;
    const uint64_t of_pixels = rows_descriptor(slot + group_of_warp() * squares * group_rows * place_bytes),
                   of_weights = rows_descriptor(slot + tile_place_bytes, pattern_bytes, W::box_bytes);
    barrier_wait(&ring->full[turn.slot], turn.parity);
    __syncwarp(); /* lanes may leave a wait one by one */
    products_begin();
#pragma unroll
    for (int k = 0; k < Sixteens; k++)
#pragma unroll
        for (int i = 0; i < squares; i++)
            multiply_shared<0, Backward>(
                T{}, sums[i],
                descriptor_at(of_pixels, (i * group_rows * place_bytes + k * sixteen * 2) / descriptor_bytes),
                descriptor_at(of_weights, k * W::of_sixteen), k > 0 ? 1 : add);
    products_end();
    products_wait<1>();
    give_back(walk->owed, job.peers);
    walk->owed = &ring->empty[turn.slot];
    walk->turn.next(job.slots);
}

/* Computes the sums of a tile. */
template <typename T, int Columns, bool Backward>
__device__ void multiply(const Job<T> &job, const Tile &tile, Ring *ring, const char *slots, Walk *walk,
                         float (&sums)[squares][Columns / 8][4])
{
    const int inside = (tile.last_row - tile.first_row) * (tile.last_column - tile.first_column);
    for (int tap = 0; tap < inside; tap++) {
        for (int part = 0; part + 1 < job.chunks; part++)
            multiply_step<T, Columns, Backward, chunk / sixteen>(job, ring, slots, walk, sums,
                                                                 tap + part > 0);
        const int add = tap + job.chunks > 1;
        if (job.last == 4)
            multiply_step<T, Columns, Backward, 4>(job, ring, slots, walk, sums, add);
        else if (job.last == 3)
            multiply_step<T, Columns, Backward, 3>(job, ring, slots, walk, sums, add);
        else if (job.last == 2)
            multiply_step<T, Columns, Backward, 2>(job, ring, slots, walk, sums, add);
        else
            multiply_step<T, Columns, Backward, 1>(job, ring, slots, walk, sums, add);
    }
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < squares; i++)
        products_of(sums[i]);
    give_back(walk->owed, job.peers);
    walk->owed = nullptr;
}

/* Writes 64 images of a pixel. Sets inside to which of this thread's two exist. */
template <typename T, int Columns>
__device__ void write_images(const Job<T> &job, const Share &share, const Tile &tile, int first_image,
                             const float (&sums)[Columns / 8][4], bool (&inside)[2])
{
    const auto write = [&](auto of_row) {
        constexpr int low = decltype(of_row)::value;
        const int image = first_image + row_of_square(low);
        inside[low] = image < job.samples;
        T *to = job.to +
                (((int64_t)image * job.to_size.rows + tile.row) * job.to_size.columns + tile.column) *
                    job.to_pitch +
                share.first;
        write_row<T, Columns, low>(to, inside[low], share.count, sums);
    };
    write(std::integral_constant<int, 0>{});
    write(std::integral_constant<int, 1>{});
}

template <typename T, int Columns, bool Backward>
__device__ void compute_all(const Job<T> &job, Ring *ring, float *of_warps, const char *slots)
{
    using M = Moments<Columns>;
    const Share share = share_of(job);
    const int group = group_of_warp();
    float *moments = of_warps + (int)threadIdx.x / 32 * M::per_lane * 32; /* of this warp */
    Walk walk;
    for (int i = 0; i < M::per_lane && job.moments; i++)
        moments[i * 32 + (int)threadIdx.x % 32] = 0;
    for (int round = 0; round * share.streams < job.tiles; round++) {
        const Tile tile = tile_of(job, share, round);
        float sums[squares][Columns / 8][4];
        bool inside[squares][2];
        if (!tile.exists)
            continue;
        multiply<T, Columns, Backward>(job, tile, ring, slots, &walk, sums);
#pragma unroll
        for (int i = 0; i < squares; i++)
            write_images<T, Columns>(job, share, tile, tile.image + (group * squares + i) * group_rows,
                                     sums[i], inside[i]);
        if (job.moments)
            add_moments<T, Columns, squares>(moments, sums, inside);
    }
    if (job.moments) {
        const int stream = job.shares_pixels ? share.stream : share.stream * job.peers + share.peer;
        leave_moments<Columns>(job.moments + (int64_t)stream * 2 * job.to_pitch + share.first, job.to_pitch,
                               share.count, of_warps);
    }
}

template <typename T, int Columns, bool Backward>
__global__ void __launch_bounds__(threads, 1) pixel_gemm_kernel(const __grid_constant__ Job<T> job)
{
    extern __shared__ __align__(1024) char memory[];
    Ring *ring = reinterpret_cast<Ring *>(memory);
    float *moments = reinterpret_cast<float *>(memory + ring_room);
    char *slots = memory + ring_room + (job.moments ? Moments<Columns>::room : 0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < job.slots; i++) {
            barrier_init(&ring->full[i], 1);
            barrier_init(&ring->empty[i], (unsigned)(job.peers * computing_warps));
        }
        barriers_to_copies();
    }
    __syncthreads();
    cluster_meet();
    launch_before_wait();
    if (threadIdx.x < groups * group_threads) {
        registers_take<computer_registers>();
        compute_all<T, Columns, Backward>(job, ring, moments, slots);
    } else {
        registers_give<copier_registers>();
        if (threadIdx.x == groups * group_threads)
            bring_all<T, Columns, Backward>(job, ring, slots);
    }
}

/* ---- launches ---- */

/* The tensors of a convolution over `from`, or of the gradient that goes from dy to dx. */
struct Tensors {
    const DeviceTensor *from, *weight, *to;
    float *moments; /* of blocks, or NULL */
};

/* How a convolution is divided. */
struct Plan {
    int parts, part, columns; /* of the channels that are written; the latter rounded up to an instance's */
    int peers;                /* blocks of a cluster */
    bool shares_pixels;
    int blocks_of_pixel, clusters_of_tile, streams;
};

/* Returns the plan of so many parts, in clusters of two, or of one. */
Plan plan_of_parts(const DeviceTensor *to, int parts, int peers)
{
    const int image_blocks = ceil_of(to->shape[0], tile_images);
    Plan plan = {};
    plan.part = ceil_of(to->pitch, (int64_t)piece * parts) * piece;
    plan.parts = ceil_of(to->pitch, plan.part);
    plan.columns = ceil_of(plan.part, sixteen) * sixteen;
    plan.peers = peers;
    plan.shares_pixels = plan.parts % 2 == 0 && peers > 1;
    plan.blocks_of_pixel = plan.shares_pixels ? image_blocks : ceil_of(image_blocks, peers);
    plan.clusters_of_tile = plan.shares_pixels ? plan.parts / peers : plan.parts;
    plan.streams = max(1, min(plan.blocks_of_pixel * (int)(to->shape[1] * to->shape[2]),
                              processors / peers / plan.clusters_of_tile));
    return plan;
}

/* Returns the clocks of a tap of 64 channels, as far as they tell plans apart: on the matrix units (clocks_of
 * in implicit_gemm_plan.cuh), or for what comes at 32 bytes a clock, forward: backward brings whole boxes of
 * 64 channels of weights. */
double clocks_of_step(const Plan &plan)
{
    const double pixels = tile_place_bytes / (plan.shares_pixels ? plan.peers : 1),
                 weights = plan.columns * place_bytes / (plan.shares_pixels ? 1 : plan.peers),
                 product = plan.columns > 64 ? plan.columns / 2.0 : 16 + plan.columns / 4.0,
                 compute = groups * squares * chunk / sixteen * product, copy = (pixels + weights) / 32;
    return compute > copy ? compute : copy;
}

/* Returns the plan that takes the fewest clocks. */
Plan plan_of(const DeviceTensor *to)
{
    const int fewest = ceil_of(to->pitch, columns_most);
    Plan best = {};
    double least = 0;
    for (int parts = fewest; parts <= fewest + 2; parts++)
        for (int peers = 1; peers <= 2; peers++) {
            const Plan plan = plan_of_parts(to, parts, peers);
            const double clocks = clocks_of_step(plan) * plan.blocks_of_pixel / plan.streams;
            if (least == 0 || clocks < least) {
                least = clocks;
                best = plan;
            }
        }
    return best;
}

/* Returns how many taps along one axis lie inside. */
int taps_inside(int at, int padding, int from)
{
    return min(taps_across, from + padding - at) - max(0, padding - at);
}

/* Sets the order of pixels. */
template <typename T> void sort_pixels(Job<T> *job)
{
    int count = 0;
    for (int inside = taps; inside > 0; inside--)
        for (int row = 0; row < job->to_size.rows; row++)
            for (int column = 0; column < job->to_size.columns; column++)
                if (taps_inside(row, job->padding, job->from.rows) *
                        taps_inside(column, job->padding, job->from.columns) ==
                    inside) {
                    job->pixel_rows[count] = (unsigned char)row;
                    job->pixel_columns[count++] = (unsigned char)column;
                }
}

Size size_of(const DeviceTensor *image)
{
    return {(int)image->shape[1], (int)image->shape[2]};
}

template <typename T> Job<T> job_of(const Tensors &tensors, const Plan &plan)
{
    const DeviceTensor *from = tensors.from, *to = tensors.to;
    Job<T> job = {};
    job.to = data_of<T>(to);
    job.moments = tensors.moments;
    job.samples = (int)to->shape[0];
    job.to_pitch = (int)to->pitch;
    job.from = size_of(from);
    job.to_size = size_of(to);
    job.padding = padding_of(from, to);
    job.parts = plan.parts;
    job.part = plan.part;
    job.chunks = ceil_of(from->pitch, chunk);
    job.last = ceil_of(from->pitch - (int64_t)(job.chunks - 1) * chunk, sixteen);
    job.peers = plan.peers;
    job.shares_pixels = plan.shares_pixels;
    job.blocks_of_pixel = plan.blocks_of_pixel;
    job.tiles = plan.blocks_of_pixel * job.to_size.rows * job.to_size.columns;
    sort_pixels(&job);
    return job;
}

/* Sets what the copy engine is to know. box_rows: of a box of weights. */
template <typename T> cudaError_t make_maps(const Tensors &tensors, int box_rows, Job<T> *job)
{
    const bool shares_weights = job->peers > 1 && !job->shares_pixels;
    const cudaError_t status = make_image_map(&job->pixels, tensors.from, 1, 1,
                                              job->shares_pixels ? tile_images / job->peers : tile_images);
    return status == cudaSuccess ? make_weight_map(&job->weights, tensors.weight,
                                                   shares_weights ? box_rows / job->peers : box_rows)
                                 : status;
}

template <typename T, int Columns, bool Backward>
cudaError_t launch(const Tensors &tensors, const Plan &plan, cudaStream_t stream)
{
    void (*const kernel)(Job<T>) = pixel_gemm_kernel<T, Columns, Backward>;
    const int64_t room = shared_bytes_most(reinterpret_cast<const void *>(kernel));
    Job<T> job = job_of<T>(tensors, plan);
    job.slots = slots_least;
    while (job.slots < slots_most && shared_bytes<Columns, Backward>(job.slots + 1, job.moments) <= room)
        job.slots++;
    const int64_t bytes = shared_bytes<Columns, Backward>(job.slots, job.moments);
    /* all of the room, whatever this layer takes: the limit is the function's, and other layers share it */
    cudaError_t status =
        bytes <= room ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)room)
                      : cudaErrorNotSupported;
    if (status == cudaSuccess)
        status = make_maps(tensors, Weights<Columns, Backward>::box_rows, &job);
    if (status != cudaSuccess)
        return status;
    return launch_clusters(kernel, (unsigned)(plan.streams * plan.clusters_of_tile * plan.peers), threads,
                           (size_t)bytes, (unsigned)plan.peers, stream, job);
}

/* Computes a convolution or its data gradient. */
template <bool Backward> cudaError_t launch_any(const Tensors &tensors, const Plan &plan, cudaStream_t stream)
{
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        return with_columns<columns_most>(plan.columns, [&](auto columns) {
            return launch<T, decltype(columns)::value, Backward>(tensors, plan, stream);
        });
    };
    return tensors.from->element == ELEMENT_F16 ? run(__half{}) : run(__nv_bfloat16{});
}

bool has_few_pixels(const DeviceTensor *to)
{
    return to->shape[1] * to->shape[2] <= pixels_most;
}

} // namespace

extern "C" bool kernel_pixel_gemm_fits(const DeviceTensor *x, const DeviceTensor *weight,
                                       const DeviceTensor *y)
{
    return kernel_implicit_gemm_fits(x, weight, y) && has_few_pixels(y);
}

extern "C" bool kernel_pixel_gemm_backward_fits(const DeviceTensor *dy, const DeviceTensor *weight,
                                                const DeviceTensor *dx)
{
    return kernel_implicit_gemm_fits(dx, weight, dy) && has_few_pixels(dx);
}

extern "C" uint64_t kernel_pixel_gemm_sums_scratch_bytes(const DeviceTensor *y)
{
    return (uint64_t)processors * 2 * (uint64_t)y->pitch * sizeof(float);
}

extern "C" cudaError_t kernel_pixel_gemm(const DeviceTensor *x, const DeviceTensor *weight,
                                         const DeviceTensor *y, const DeviceTensor *sums, void *scratch,
                                         cudaStream_t stream)
{
    if (!kernel_pixel_gemm_fits(x, weight, y) || !is_f32(sums) || (sums && sums->pitch != y->pitch))
        return cudaErrorNotSupported;
    const Plan plan = plan_of(y);
    float *moments = sums ? static_cast<float *>(scratch) : nullptr;
    cudaError_t status = launch_any<false>({x, weight, y, moments}, plan, stream);
    if (status == cudaSuccess && sums) {
        const int streams = plan.streams * (plan.shares_pixels ? 1 : plan.peers);
        join_moments(moments, data_of<float>(sums), streams, 2 * (int)y->pitch, stream);
        status = cudaGetLastError();
    }
    return status;
}

extern "C" cudaError_t kernel_pixel_gemm_backward_data(const DeviceTensor *dy, const DeviceTensor *weight,
                                                       const DeviceTensor *dx, cudaStream_t stream)
{
    return kernel_pixel_gemm_backward_fits(dy, weight, dx)
               ? launch_any<true>({dy, weight, dx, nullptr}, plan_of(dx), stream)
               : cudaErrorNotSupported;
}
