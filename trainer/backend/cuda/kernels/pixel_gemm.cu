/* pixel_gemm.cu - 3 x 3 convolutions of many small images, and their data gradients, as products whose rows
 * are the same pixel of 256 images.
 *
 * A block has 128 of the channels that are written, and walks over tiles, each a pixel of 256 images. Of each
 * tap that lies inside the images it multiplies what lies there with the tap's weights, 64 channels a step;
 * taps outside are left out. Two warp groups have half of the images each, and their sums in registers; a
 * thread of a third has the copy engine bring both operands some steps ahead. Two blocks of a cluster share
 * what they bring: the pixels, where they have two parts of the channels, else the weights, for twice as many
 * images. Without that, the cache would be the bound.
 *
 * Tiles have 9 taps, fewer at the edges. They are sorted by these, and blocks take them in turn, from the
 * first block to the last and back, so that all have about the same work. */
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
    int padding; /* pixels of zeros around the images that are read */
    int parts, chunks, slots;
    int peers;           /* blocks of a cluster: 1 or 2 */
    bool shares_pixels;  /* they do, and have a part of the channels each; else they share weights */
    int blocks_of_pixel; /* tiles of a pixel, or pairs of tiles where peers have one each */
    int tiles;           /* of all pixels, in such units */
    unsigned char rows[pixels_most], columns[pixels_most]; /* of the pixels, those of most taps first */
};

/* A step's operands, in shared memory: 64 channels of a pixel of each image, and their weights. */
template <bool Backward> using TapWeights = Weights<columns_most, Backward>;
template <bool Backward> constexpr int slot_bytes = tile_place_bytes + TapWeights<Backward>::bytes;

struct Ring {
    CopyBarrier full[slots_most], empty[slots_most];
};

/* The barriers lie in front, so that what follows begins where the exchange of vectors does. */
constexpr int ring_room = pattern_bytes;
static_assert(sizeof(Ring) <= ring_room, "the barriers have room");

template <bool Backward> int64_t shared_bytes(int slots, bool moments)
{
    return ring_room + (moments ? Moments<columns_most>::room : 0) + (int64_t)slots * slot_bytes<Backward>;
}

/* ---- a block's work ---- */

/* A block's channels and tiles. */
struct Share {
    int first;           /* of the channels that are written */
    int peer;            /* this one of its cluster */
    int stream, streams; /* of clusters, by whose number they take tiles */
};

template <typename T> __device__ Share share_of(const Job<T> &job)
{
    const int peer = (int)blockIdx.x % job.peers, cluster = (int)blockIdx.x / job.peers,
              parts_of_cluster = job.shares_pixels ? job.peers : 1, clusters = job.parts / parts_of_cluster,
              part = cluster % clusters * parts_of_cluster + (job.shares_pixels ? peer : 0);
    return {part * columns_most, peer, cluster / clusters, (int)gridDim.x / job.peers / clusters};
}

/* A tile: the first of its images, the pixel that is written, and the taps that lie inside, of which the last
 * ones are no more there. */
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
    tile.row = job.rows[pixel];
    tile.column = job.columns[pixel];
    tile.first_row = max(0, job.padding - tile.row);
    tile.last_row = min(taps_across, job.from.rows + job.padding - tile.row);
    tile.first_column = max(0, job.padding - tile.column);
    tile.last_column = min(taps_across, job.from.columns + job.padding - tile.column);
    return tile;
}

/* Has a step's operands brought, this block's share of them to both. part: 64 of the channels that are
 * summed. */
template <typename T, bool Backward>
__device__ void bring(const Job<T> &job, const Share &share, const Tile &tile, int tap_row, int tap_column,
                      int part, char *slot, CopyBarrier *full)
{
    using W = TapWeights<Backward>;
    const int row = tile.row + tap_row - job.padding, column = tile.column + tap_column - job.padding,
              tap = tap_row * taps_across + tap_column, of_filter = Backward ? taps - 1 - tap : tap;
    const bool two = job.peers > 1;
    const unsigned short all = 3;
    char *weights = slot + tile_place_bytes;
    barrier_expect(full, (unsigned)slot_bytes<Backward>);
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
template <typename T, bool Backward> __device__ void bring_all(const Job<T> &job, Ring *ring, char *slots)
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
                    bring<T, Backward>(job, share, tile, row, column, part,
                                       slots + turn.slot * slot_bytes<Backward>, &ring->full[turn.slot]);
                    turn.next(job.slots);
                }
    }
    /* a block leaves when all that its peer gives back has come */
    for (int i = 0; i < job.slots && job.peers > 1; i++, turn.next(job.slots))
        barrier_wait(&ring->empty[turn.slot], turn.parity ^ 1);
}

/* Gives back a slot whose products are computed; NULL: none. */
__device__ inline void give_back(CopyBarrier *empty, int peers)
{
    if (!empty || (int)threadIdx.x % 32 != 0)
        return;
    barrier_arrive(empty);
    if (peers > 1)
        barrier_arrive_at(cluster_rank() ^ 1, empty);
}

/* Computes the sums of a tile. */
template <typename T, bool Backward>
__device__ void multiply(const Job<T> &job, const Tile &tile, Ring *ring, const char *slots, Turn *turn,
                         float (&sums)[squares][columns_most / 8][4])
{
    using W = TapWeights<Backward>;
    const int steps = (tile.last_row - tile.first_row) * (tile.last_column - tile.first_column) * job.chunks;
    const char *own = slots + group_of_warp() * squares * group_rows * place_bytes;
    CopyBarrier *owed = nullptr;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        const char *slot = own + turn->slot * slot_bytes<Backward>;
        const uint64_t of_pixels = rows_descriptor(slot),
                       of_weights =
                           rows_descriptor(slots + turn->slot * slot_bytes<Backward> + tile_place_bytes,
                                           pattern_bytes, W::box_bytes);
        barrier_wait(&ring->full[turn->slot], turn->parity);
        __syncwarp(); /* lanes may leave a wait one by one */
        products_begin();
#pragma unroll
        for (int k = 0; k < chunk / sixteen; k++)
#pragma unroll
            for (int i = 0; i < squares; i++)
                multiply_shared<0, Backward>(
                    T{}, sums[i],
                    descriptor_at(of_pixels,
                                  (i * group_rows * place_bytes + k * sixteen * 2) / descriptor_bytes),
                    descriptor_at(of_weights, k * W::of_sixteen), step > 0 || k > 0);
        products_end();
        products_wait<1>();
        give_back(owed, job.peers);
        owed = &ring->empty[turn->slot];
        turn->next(job.slots);
    }
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < squares; i++)
        products_of(sums[i]);
    give_back(owed, job.peers);
}

/* Writes 64 images of a pixel. Sets inside to which of this thread's two exist. */
template <typename T>
__device__ void write_images(const Job<T> &job, const Tile &tile, int first_image, int first,
                             const float (&sums)[columns_most / 8][4], bool (&inside)[2])
{
    const auto write = [&](auto of_row) {
        constexpr int low = decltype(of_row)::value;
        const int image = first_image + row_of_square(low);
        inside[low] = image < job.samples;
        T *to = job.to +
                (((int64_t)image * job.to_size.rows + tile.row) * job.to_size.columns + tile.column) *
                    job.to_pitch +
                first;
        write_row<T, columns_most, low>(to, inside[low], columns_most, sums);
    };
    write(std::integral_constant<int, 0>{});
    write(std::integral_constant<int, 1>{});
}

template <typename T, bool Backward>
__device__ void compute_all(const Job<T> &job, Ring *ring, float *of_warps, const char *slots)
{
    using M = Moments<columns_most>;
    const Share share = share_of(job);
    const int group = group_of_warp();
    float *moments = of_warps + (int)threadIdx.x / 32 * M::per_lane * 32; /* of this warp */
    Turn turn;
    for (int i = 0; i < M::per_lane && job.moments; i++)
        moments[i * 32 + (int)threadIdx.x % 32] = 0;
    for (int round = 0; round * share.streams < job.tiles; round++) {
        const Tile tile = tile_of(job, share, round);
        float sums[squares][columns_most / 8][4];
        bool inside[squares][2];
        if (!tile.exists)
            continue;
        multiply<T, Backward>(job, tile, ring, slots, &turn, sums);
#pragma unroll
        for (int i = 0; i < squares; i++)
            write_images(job, tile, tile.image + (group * squares + i) * group_rows, share.first, sums[i],
                         inside[i]);
        if (job.moments)
            add_moments<T, columns_most, squares>(moments, sums, inside);
    }
    if (job.moments) {
        const int stream = job.shares_pixels ? share.stream : share.stream * job.peers + share.peer;
        leave_moments<columns_most>(job.moments + (int64_t)stream * 2 * job.to_pitch + share.first,
                                    job.to_pitch, columns_most, of_warps);
    }
}

template <typename T, bool Backward>
__global__ void __launch_bounds__(threads, 1) pixel_gemm_kernel(const __grid_constant__ Job<T> job)
{
    extern __shared__ __align__(1024) char memory[];
    Ring *ring = reinterpret_cast<Ring *>(memory);
    float *moments = reinterpret_cast<float *>(memory + ring_room);
    char *slots = memory + ring_room + (job.moments ? Moments<columns_most>::room : 0);
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
        compute_all<T, Backward>(job, ring, moments, slots);
    } else {
        registers_give<copier_registers>();
        if (threadIdx.x == groups * group_threads)
            bring_all<T, Backward>(job, ring, slots);
    }
}

/* ---- launches ---- */

/* The tensors of a convolution over `from`, or of the gradient that goes from dy to dx. */
struct Tensors {
    const DeviceTensor *from, *weight, *to;
    float *moments; /* of blocks, or NULL */
};

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
                    job->rows[count] = (unsigned char)row;
                    job->columns[count++] = (unsigned char)column;
                }
}

Size size_of(const DeviceTensor *image)
{
    return {(int)image->shape[1], (int)image->shape[2]};
}

/* Sets what the copy engine is to know. */
template <typename T, bool Backward> cudaError_t make_maps(const Tensors &tensors, Job<T> *job)
{
    const DeviceTensor *from = tensors.from, *weight = tensors.weight;
    const cuuint64_t pixel = (cuuint64_t)from->pitch * sizeof(T), width = (cuuint64_t)from->shape[2],
                     height = (cuuint64_t)from->shape[1], filter = (cuuint64_t)weight->pitch * sizeof(T);
    const int images = job->shares_pixels ? tile_images / job->peers : tile_images,
              rows = TapWeights<Backward>::box_rows / (job->shares_pixels ? 1 : job->peers);
    cudaError_t status =
        make_map<4>(&job->pixels, from->element, from->data,
                    {(cuuint64_t)from->pitch, width, height, (cuuint64_t)from->shape[0]},
                    {pixel, pixel * width, pixel * width * height}, {chunk, 1, 1, (cuuint32_t)images});
    if (status == cudaSuccess)
        status = make_map<3>(&job->weights, weight->element, weight->data,
                             {(cuuint64_t)weight->pitch, (cuuint64_t)weight->rows / taps, taps},
                             {filter * taps, filter}, {chunk, (cuuint32_t)rows, 1});
    return status;
}

/* Computes a convolution or its data gradient; sets *streams to how many streams of moments there are. */
template <typename T, bool Backward>
cudaError_t launch(const Tensors &tensors, int *streams, cudaStream_t stream)
{
    void (*const kernel)(Job<T>) = pixel_gemm_kernel<T, Backward>;
    const DeviceTensor *from = tensors.from, *to = tensors.to;
    const int64_t room = shared_bytes_most(reinterpret_cast<const void *>(kernel));
    const int image_blocks = ceil_of(to->shape[0], tile_images);
    Job<T> job = {};
    job.to = data_of<T>(to);
    job.moments = tensors.moments;
    job.samples = (int)to->shape[0];
    job.to_pitch = (int)to->pitch;
    job.from = size_of(from);
    job.to_size = size_of(to);
    job.padding = padding_of(from, to);
    job.parts = (int)to->pitch / columns_most;
    job.chunks = (int)from->pitch / chunk;
    job.shares_pixels = job.parts % 2 == 0;
    job.peers = job.shares_pixels || image_blocks > 1 ? 2 : 1;
    job.blocks_of_pixel = job.shares_pixels ? image_blocks : ceil_of(image_blocks, job.peers);
    job.tiles = job.blocks_of_pixel * job.to_size.rows * job.to_size.columns;
    job.slots = slots_least;
    while (job.slots < slots_most && shared_bytes<Backward>(job.slots + 1, job.moments) <= room)
        job.slots++;
    sort_pixels(&job);
    const int64_t bytes = shared_bytes<Backward>(job.slots, job.moments);
    /* all of the room, whatever this layer takes: the limit is the function's, and other layers share it */
    cudaError_t status =
        bytes <= room ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)room)
                      : cudaErrorNotSupported;
    if (status == cudaSuccess)
        status = make_maps<T, Backward>(tensors, &job);
    if (status != cudaSuccess)
        return status;
    const int clusters_of_tile = job.shares_pixels ? job.parts / job.peers : job.parts,
              clusters = max(1, min(job.tiles, processors / job.peers / clusters_of_tile));
    *streams = job.shares_pixels ? clusters : clusters * job.peers;
    return launch_clusters(kernel, (unsigned)(clusters * clusters_of_tile * job.peers), threads,
                           (size_t)bytes, (unsigned)job.peers, stream, job);
}

template <bool Backward> cudaError_t launch_any(const Tensors &tensors, int *streams, cudaStream_t stream)
{
    return tensors.from->element == ELEMENT_F16 ? launch<__half, Backward>(tensors, streams, stream)
                                                : launch<__nv_bfloat16, Backward>(tensors, streams, stream);
}

bool are_channels(const DeviceTensor *from, const DeviceTensor *to)
{
    return from->pitch % chunk == 0 && to->pitch % columns_most == 0 &&
           to->shape[1] * to->shape[2] <= pixels_most;
}

} // namespace

extern "C" bool kernel_pixel_gemm_fits(const DeviceTensor *x, const DeviceTensor *weight,
                                       const DeviceTensor *y)
{
    return kernel_implicit_gemm_fits(x, weight, y) && are_channels(x, y);
}

extern "C" bool kernel_pixel_gemm_backward_fits(const DeviceTensor *dy, const DeviceTensor *weight,
                                                const DeviceTensor *dx)
{
    return kernel_implicit_gemm_fits(dx, weight, dy) && are_channels(dy, dx);
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
    float *moments = sums ? static_cast<float *>(scratch) : nullptr;
    int streams = 0;
    cudaError_t status = launch_any<false>({x, weight, y, moments}, &streams, stream);
    if (status == cudaSuccess && sums) {
        join_moments(moments, data_of<float>(sums), streams, 2 * (int)y->pitch, stream);
        status = cudaGetLastError();
    }
    return status;
}

extern "C" cudaError_t kernel_pixel_gemm_backward_data(const DeviceTensor *dy, const DeviceTensor *weight,
                                                       const DeviceTensor *dx, cudaStream_t stream)
{
    int streams = 0;
    return kernel_pixel_gemm_backward_fits(dy, weight, dx)
               ? launch_any<true>({dy, weight, dx, nullptr}, &streams, stream)
               : cudaErrorNotSupported;
}
