/* implicit_gemm_weight.cu - weight gradients of 3 x 3 convolutions as products of warp groups: of each tap,
 * dy [64 channels, pixels] times x [pixels, channels], moved by the tap.
 *
 * A block has 64 channels of dy, a part of the channels of x, and every n-th tile (implicit_gemm.cuh), one
 * after the other. Three warp groups have a row of taps each, and their sums in registers; a thread of a
 * fourth has the next tile brought while they compute. Pixels are rows of 64 channels, and the products sum
 * over them, so that both sides are taken transposed. dy goes through registers, once for a group's three
 * taps: shared memory, whose rate would be the bound, is read a third as often for it. Where one cluster has
 * all tiles, its blocks add up their sums in each other's shared memory; else blocks leave them in memory,
 * and a second kernel adds them up. Always in one order. */
#include "trainer/backend/cuda/kernels/implicit_gemm.cuh"
#include "trainer/backend/cuda/kernels/matrix_units.cuh"

using namespace fshard;
using namespace fshard::implicit;

namespace
{

constexpr int groups = taps_across, threads = (groups + 1) * group_threads;
constexpr int rows = group_rows;    /* channels of dy in a block */
constexpr int columns_most = chunk; /* of x in a part */
constexpr int depth = 2;
constexpr int pairs_of_rows = side / 2; /* of pixels, in a square: what a product sums */
constexpr int pairs_at_once = 2;
/* Of a block's 65,536 registers, for a thread that has things copied and one that computes. */
constexpr int copier_registers = 40, computer_registers = 152;

struct Plan {
    Tiles tiles;
    int row_blocks, parts, part; /* of dy's channels; of x's, and channels of one */
    int columns;                 /* those, rounded up to what there is an instance for */
    /* Blocks of a cluster, and clusters that share the tiles: several if of one block. */
    int peers, clusters;
};

struct Job {
    CUtensorMap dy, x;
    /* Float32 [clusters][parts][row_blocks][taps][rows][columns]; of one cluster: dweight itself */
    void *to;
    int dy_pitch, x_pitch;
    int padding; /* pixels of zeros around the images x */
    Plan plan;
};

struct Ring {
    CopyBarrier full[depth], empty[depth];
};

/* The barriers lie in front, so that what follows begins where the exchange of vectors does. */
constexpr int ring_room = pattern_bytes;
static_assert(sizeof(Ring) <= ring_room, "the barriers have room");

__host__ __device__ inline int slot_bytes(const Cover &cover)
{
    return tile_room(cover, 0) + tile_room(cover, 1);
}

/* What a block has. */
struct Share {
    int block;       /* of all rows and parts */
    int row, column; /* its first channels of dy and of x */
    int tile, step;
};

__device__ inline Share share_of(const Plan &plan)
{
    const int blocks = plan.row_blocks * plan.parts, rest = (int)blockIdx.x / plan.peers,
              block = rest % blocks, cluster = rest / blocks;
    return {block, block % plan.row_blocks * rows, block / plan.row_blocks * plan.part,
            cluster * plan.peers + (int)blockIdx.x % plan.peers, plan.clusters * plan.peers};
}

/* Has a block's tiles brought, one after the other. A slot is free at first: the phase before the first
 * counts as ended. */
__device__ void bring_all(const Job &job, Ring *ring, char *memory, const Share &share)
{
    const Cover &cover = job.plan.tiles.cover;
    int brought = 0;
    for (int tile = share.tile; tile < job.plan.tiles.count; tile += share.step, brought++) {
        const int slot = brought % depth;
        const Corner corner = corner_of(job.plan.tiles, tile);
        char *to = memory + slot * slot_bytes(cover);
        CopyBarrier *full = &ring->full[slot];
        barrier_wait(&ring->empty[slot], (unsigned)(brought / depth & 1) ^ 1);
        barrier_expect(full, (unsigned)(tile_bytes(cover, 0) + tile_bytes(cover, 1)));
        copy_box(to, &job.dy, share.row, corner.column, corner.row, corner.image, full);
        copy_box(to + tile_room(cover, 0), &job.x, share.column, corner.column - job.padding,
                 corner.row - job.padding, corner.image, full);
    }
}

/* ---- the groups that compute ---- */

/* Loads 16 channels of dy, those of this warp, of two rows of 8 pixels, the first at a place that is a
 * multiple of 8. */
__device__ void load_rows(unsigned (&two)[4], const char *dy, const Places &places, int place)
{
    const int lane = (int)threadIdx.x % 32, matrix = lane / 8, pixel = lane % 8;
    const int vector = (int)threadIdx.x / 32 % 4 * 2 + matrix % 2;
    load_transposed(two, dy + (place + matrix / 2 * places.pitch + pixel) * place_bytes +
                             (vector ^ pixel) * piece_bytes);
}

template <typename T, int Columns>
__device__ void compute_all(const Job &job, Ring *ring, char *memory, const Share &share)
{
    const Cover &cover = job.plan.tiles.cover;
    const Places of_dy = places_of(cover, 0), of_x = places_of(cover, 1);
    const int group = group_of_warp(), lane = (int)threadIdx.x % 32;
    float sums[taps_across][Columns / 8][4];
    int used = 0, from_dy[squares_most], from_x[squares_most];
#pragma unroll
    for (int s = 0; s < squares_most; s++) {
        from_dy[s] = origin_of(cover, of_dy, s);
        from_x[s] = origin_of(cover, of_x, s) + group * of_x.pitch;
    }
    for (int tile = share.tile; tile < job.plan.tiles.count; tile += share.step, used++) {
        const char *dy = memory + used % depth * slot_bytes(cover);
        const uint64_t x = rows_descriptor(dy + tile_room(cover, 0), of_x.pitch * place_bytes);
        unsigned two[2][pairs_at_once][4];
        barrier_wait(&ring->full[used % depth], (unsigned)(used / depth) & 1);
        __syncwarp(); /* lanes may leave a wait one by one */
#pragma unroll
        for (int i = 0; i < squares_most * pairs_of_rows / pairs_at_once; i++) {
            const int s = i * pairs_at_once / pairs_of_rows, first = i * pairs_at_once % pairs_of_rows;
            products_wait<1>(); /* those before the last, whose registers these are */
#pragma unroll
            for (int k = 0; k < pairs_at_once; k++)
                load_rows(two[i % 2][k], dy, of_dy, from_dy[s] + 2 * (first + k) * of_dy.pitch);
            products_begin();
#pragma unroll
            for (int k = 0; k < pairs_at_once; k++)
#pragma unroll
                for (int tap = 0; tap < taps_across; tap++)
                    multiply_own<1>(
                        T{}, sums[tap], two[i % 2][k],
                        descriptor_at(x, (from_x[s] + 2 * (first + k) * of_x.pitch + tap) * place_pieces),
                        used > 0 || i > 0 || k > 0);
            products_end();
        }
        products_wait<0>();
        if (lane == 0)
            barrier_arrive(&ring->empty[used % depth]);
    }
    float *to = reinterpret_cast<float *>(memory);
    if (job.plan.clusters > 1)
        to = static_cast<float *>(job.to) + (int64_t)blockIdx.x * taps * rows * Columns;
    else
        computers_meet<groups>(); /* all tiles are used up, and give their memory to sums */
    const int row = (int)threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int tap = 0; tap < taps_across; tap++) {
        products_of(sums[tap]);
        float *of_tap = to + (group * taps_across + tap) * rows * Columns;
#pragma unroll
        for (int j = 0; j < Columns / 8; j++)
#pragma unroll
            for (int low = 0; low < 2; low++)
                *reinterpret_cast<float2 *>(of_tap + (row + 8 * low) * Columns + 8 * j + 2 * (lane % 4)) =
                    used > 0 ? make_float2(sums[tap][j][2 * low], sums[tap][j][2 * low + 1])
                             : make_float2(0, 0);
    }
}

/* Rounds and stores four sums of a block of channels, the at-th of all its taps, rows and columns. */
template <typename T>
__device__ void store_four(T *dweight, const Plan &plan, int dy_pitch, int x_pitch, int block, int at,
                           const float (&four)[4])
{
    const int in_part = at % plan.columns, row = at / plan.columns % rows, tap = at / plan.columns / rows;
    const int channel = block % plan.row_blocks * rows + row,
              column = block / plan.row_blocks * plan.part + in_part;
    if (channel < dy_pitch && in_part < plan.part && column < x_pitch)
        store<4>(dweight + ((int64_t)channel * taps + tap) * x_pitch + column, four);
}

/* Stores this block's share of the gradient: adds up what the blocks of the cluster have in shared memory. */
template <typename T, int Columns>
__device__ void join_peers(const Job &job, const char *memory, const Share &share)
{
    constexpr int count = taps * rows * Columns;
    const Plan &plan = job.plan;
    const int all = groups * group_threads * plan.peers;
    for (int i = (int)cluster_rank() * groups * group_threads + (int)threadIdx.x; i < count / 4; i += all) {
        float sums[4] = {};
        for (int peer = 0; peer < plan.peers; peer++) {
            const float4 four = load_at(address_at((unsigned)peer, memory + (int64_t)i * 16));
            sums[0] += four.x;
            sums[1] += four.y;
            sums[2] += four.z;
            sums[3] += four.w;
        }
        store_four(static_cast<T *>(job.to), plan, job.dy_pitch, job.x_pitch, share.block, i * 4, sums);
    }
}

template <typename T, int Columns>
__global__ void __launch_bounds__(threads, 1) weight_kernel(const __grid_constant__ Job job)
{
    extern __shared__ __align__(1024) char memory[];
    Ring *ring = reinterpret_cast<Ring *>(memory);
    const Share share = share_of(job.plan);
    if (threadIdx.x == 0) {
        for (int i = 0; i < depth; i++) {
            barrier_init(&ring->full[i], 1);
            barrier_init(&ring->empty[i], groups * group_threads / 32);
        }
        barriers_to_copies();
    }
    __syncthreads();
    launch_before_wait();
    if (threadIdx.x < groups * group_threads) {
        registers_take<computer_registers>();
        compute_all<T, Columns>(job, ring, memory + ring_room, share);
    } else {
        registers_give<copier_registers>();
        if (threadIdx.x == groups * group_threads)
            bring_all(job, ring, memory + ring_room, share);
    }
    if (job.plan.clusters > 1)
        return;
    if (job.plan.peers > 1)
        cluster_show();
    else
        __syncthreads();
    if (threadIdx.x < groups * group_threads)
        join_peers<T, Columns>(job, memory + ring_room, share);
    if (job.plan.peers > 1)
        cluster_show(); /* no peer reads from a block that has left */
}

/* ---- the sums of all clusters ---- */

constexpr int cluster_lanes = 32, cluster_rows = 8, cluster_width = 4;

template <typename T>
__global__ void __launch_bounds__(cluster_lanes *cluster_rows)
    join_clusters_kernel(const float *partial, T *dweight, const __grid_constant__ Plan plan, int dy_pitch,
                         int x_pitch)
{
    __shared__ double joined[cluster_rows][cluster_lanes][cluster_width];
    const int lane = (int)threadIdx.x % cluster_lanes, first = (int)threadIdx.x / cluster_lanes;
    const int64_t of_cluster = (int64_t)plan.row_blocks * plan.parts * taps * rows * plan.columns,
                  at = ((int64_t)blockIdx.x * cluster_lanes + lane) * cluster_width;
    double sums[cluster_width] = {};
    launch_before_wait();
#pragma unroll 4
    for (int cluster = first; cluster < plan.clusters; cluster += cluster_rows) {
        const float4 four = *reinterpret_cast<const float4 *>(partial + cluster * of_cluster + at);
        sums[0] += four.x;
        sums[1] += four.y;
        sums[2] += four.z;
        sums[3] += four.w;
    }
#pragma unroll
    for (int i = 0; i < cluster_width; i++)
        joined[first][lane][i] = sums[i];
    __syncthreads();
    if (first > 0)
        return;
    for (int row = 1; row < cluster_rows; row++)
#pragma unroll
        for (int i = 0; i < cluster_width; i++)
            sums[i] += joined[row][lane][i];
    const int of_block = taps * rows * plan.columns;
    float rounded[cluster_width];
#pragma unroll
    for (int i = 0; i < cluster_width; i++)
        rounded[i] = (float)sums[i];
    store_four(dweight, plan, dy_pitch, x_pitch, (int)(at / of_block), (int)(at % of_block), rounded);
}

/* ---- plans ---- */

/* Sizes of clusters, and how many of their blocks such a card runs at once: its processors stand in groups
 * that hold whole clusters alone. Source: cudaOccupancyMaxActiveClusters on an H200; others may hold fewer,
 * which costs time alone. */
struct Cluster {
    int peers, blocks;
};

constexpr Cluster cluster_sizes[] = {{1, processors}, {2, processors}, {4, 120}, {8, 120}};

/* Returns the clocks of a plan, as far as they tell plans apart: 16 pixels of a tap take columns / 2 on the
 * matrix units; what a tile reads and what blocks leave comes and goes at 32 bytes a clock. */
double clocks_of(const Plan &plan, int blocks_at_once)
{
    const int splits = plan.peers * plan.clusters, blocks = plan.row_blocks * plan.parts * splits,
              waves = ceil_of(blocks, blocks_at_once);
    const double compute = squares_most * pairs_of_rows * taps * plan.columns / 2.0,
                 copy = slot_bytes(plan.tiles.cover) / 32.0,
                 sums = taps * rows * plan.columns * (double)sizeof(float) / 32;
    const double joining = sums + (plan.clusters > 1 ? 4000 + sums : 0);
    return waves * (ceil_of(plan.tiles.count, splits) * (compute > copy ? compute : copy) + copy + joining);
}

/* Returns the plan that takes the fewest clocks. */
Plan plan_of(const DeviceTensor *dy, const DeviceTensor *x)
{
    Plan best = {};
    double least = 0;
    for (const Cover &cover : covers)
        for (const Cluster &cluster : cluster_sizes)
            for (int parts = ceil_of(x->pitch, columns_most), most = parts + 3; parts <= most; parts++) {
                Plan plan = {};
                plan.tiles = tiles_of(dy, cover);
                plan.row_blocks = ceil_of(dy->pitch, rows);
                plan.part = ceil_of(x->pitch, (int64_t)piece * parts) * piece;
                plan.parts = ceil_of(x->pitch, plan.part);
                plan.columns = ceil_of(plan.part, sixteen) * sixteen;
                plan.peers = cluster.peers;
                plan.clusters = max(1, min(ceil_of(plan.tiles.count, cluster.peers),
                                           cluster.blocks / (plan.row_blocks * plan.parts * cluster.peers)));
                const double clocks = clocks_of(plan, cluster.blocks);
                if (squares_of(cover) == squares_most && (plan.clusters == 1 || plan.peers == 1) &&
                    (least == 0 || clocks < least)) {
                    least = clocks;
                    best = plan;
                }
            }
    return best;
}

/* ---- launches ---- */

template <typename T, int Columns> cudaError_t launch(const Job &job, cudaStream_t stream)
{
    void (*const kernel)(Job) = weight_kernel<T, Columns>;
    const int tiles = depth * slot_bytes(job.plan.tiles.cover),
              sums = taps * rows * Columns * (int)sizeof(float), bytes = ring_room + max(tiles, sums),
              room = shared_bytes_most(reinterpret_cast<const void *>(kernel));
    /* all of the room, whatever this layer takes: the limit is the function's, and other layers share it */
    const cudaError_t status =
        bytes <= room ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, room)
                      : cudaErrorNotSupported;
    if (status != cudaSuccess)
        return status;
    return launch_clusters(
        kernel, (unsigned)(job.plan.row_blocks * job.plan.parts * job.plan.peers * job.plan.clusters),
        threads, (size_t)bytes, (unsigned)job.plan.peers, stream, job);
}

} // namespace

extern "C" uint64_t kernel_implicit_gemm_scratch_bytes(const DeviceTensor *dy, const DeviceTensor *x)
{
    const Plan plan = plan_of(dy, x);
    return plan.clusters == 1
               ? 0
               : (uint64_t)plan.clusters *
                     (uint64_t)(plan.parts * plan.row_blocks * taps * rows * plan.columns) * sizeof(float);
}

extern "C" cudaError_t kernel_implicit_gemm_backward_weight(const DeviceTensor *dy, const DeviceTensor *x,
                                                            const DeviceTensor *dweight, void *scratch,
                                                            cudaStream_t stream)
{
    if (!kernel_implicit_gemm_fits(x, dweight, dy))
        return cudaErrorNotSupported;
    const Plan plan = plan_of(dy, x);
    Job job = {};
    job.to = plan.clusters == 1 ? dweight->data : scratch;
    job.dy_pitch = (int)dy->pitch;
    job.x_pitch = (int)x->pitch;
    job.padding = padding_of(x, dy);
    job.plan = plan;
    cudaError_t status = make_tile_map(&job.dy, dy, plan.tiles.cover, 0);
    if (status == cudaSuccess)
        status = make_tile_map(&job.x, x, plan.tiles.cover, 1);
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        if (status == cudaSuccess)
            status = with_columns<columns_most>(
                plan.columns, [&](auto columns) { return launch<T, decltype(columns)::value>(job, stream); });
        if (status != cudaSuccess || plan.clusters == 1)
            return status;
        const int vectors = plan.parts * plan.row_blocks * taps * rows * plan.columns / cluster_width;
        return launch_clusters(join_clusters_kernel<T>, (unsigned)(vectors / cluster_lanes),
                               cluster_lanes * cluster_rows, 0, 1, stream,
                               static_cast<const float *>(scratch), data_of<T>(dweight), plan, (int)dy->pitch,
                               (int)x->pitch);
    };
    return dy->element == ELEMENT_F16 ? run(__half{}) : run(__nv_bfloat16{});
}
