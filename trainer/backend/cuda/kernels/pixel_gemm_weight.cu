/* pixel_gemm_weight.cu - weight gradients of 3 x 3 convolutions of many small images: of each tap the sum,
 * over the pixels of dy whose tap lies inside x, of dy [images, channels] transposed times x [images,
 * channels] there. Taps outside are left out.
 *
 * A tile is 256 channels of dy by 128 of x, of one tap; a step, 64 images of one pixel. Two blocks of a
 * cluster have neighbouring channels of x, and bring half of dy each, for both. All steps of all tiles, one
 * behind the other, are divided evenly among the clusters, so that each has the end of one tile and the
 * beginning of the next, at most; it leaves the sums of both in memory, and a second kernel adds up what
 * clusters have of a tile, in their order. */
#include "trainer/backend/cuda/kernels/implicit_gemm_block.cuh"
#include "trainer/backend/cuda/kernels/kernels_pixel_gemm.h"

using namespace fshard;
using namespace fshard::implicit;

namespace
{

constexpr int squares = 2; /* of 64 channels of dy, in a group */
constexpr int boxes = groups * squares, rows = boxes * group_rows, columns = columns_most;
constexpr int column_boxes = columns / chunk, peers = 2, boxes_of_peer = boxes / peers;
constexpr int step_images = 64, box_bytes = step_images * place_bytes;
constexpr int slot_bytes = (boxes + column_boxes) * box_bytes, slots = 4;
constexpr int streams = processors / peers, segments = 2; /* of a cluster: parts of tiles */
constexpr int ring_room = pattern_bytes, shared_bytes = ring_room + slots * slot_bytes;

/* The pixels of dy whose tap lies inside x: rows and columns from these to before those. */
struct Inside {
    int first_row, last_row, first_column, last_column;
};

/* How steps are divided: those of a tap's tiles begin at `begins`, and each tile has so many. */
struct Plan {
    Inside inside[taps];
    int begins[taps + 1], steps[taps];
    int row_tiles, column_pairs; /* of a tap; of the latter, two tiles each */
    int image_blocks;
};

template <typename T> struct Job {
    CUtensorMap dy, x;
    float *sums; /* [streams][segments][peers][rows][columns] */
    int padding;
    Plan plan;
};

struct Ring {
    CopyBarrier full[slots], empty[slots];
};

static_assert(sizeof(Ring) <= ring_room, "the barriers have room");

/* ---- who does what ---- */

/* Returns the first step of a cluster. */
__host__ __device__ inline int begin_of(const Plan &plan, int stream)
{
    return (int)((int64_t)plan.begins[taps] * stream / streams);
}

/* A part of a cluster's steps that are of one tile. */
struct Segment {
    int tap, tile;    /* of the tap's */
    int first, count; /* steps of the tile */
};

/* Returns the segment that begins with step `at` and ends before `end`. */
__device__ inline Segment segment_at(const Plan &plan, int at, int end)
{
    Segment segment = {};
    while (at >= plan.begins[segment.tap + 1])
        segment.tap++;
    const int steps = plan.steps[segment.tap], of_tap = at - plan.begins[segment.tap];
    segment.tile = of_tap / steps;
    segment.first = of_tap % steps;
    segment.count = min(end - at, steps - segment.first);
    return segment;
}

/* ---- the thread that has things copied ---- */

/* Has a step's operands brought, this block's half of dy to both. */
template <typename T>
__device__ void bring(const Job<T> &job, const Segment &segment, int step, char *slot, CopyBarrier *full)
{
    const Plan &plan = job.plan;
    const Inside &inside = plan.inside[segment.tap];
    const int across = inside.last_column - inside.first_column, peer = (int)cluster_rank();
    const int image = step % plan.image_blocks * step_images, pixel = step / plan.image_blocks,
              row = inside.first_row + pixel / across, column = inside.first_column + pixel % across;
    const int dy_channel = segment.tile / plan.column_pairs * rows,
              x_channel = (segment.tile % plan.column_pairs * peers + peer) * columns;
    barrier_expect(full, (unsigned)slot_bytes);
    for (int box = peer * boxes_of_peer; box < (peer + 1) * boxes_of_peer; box++)
        copy_box_to_all(slot + box * box_bytes, &job.dy, dy_channel + box * chunk, column, row, image, full,
                        (unsigned short)((1 << peers) - 1));
    for (int box = 0; box < column_boxes; box++)
        copy_box(slot + (boxes + box) * box_bytes, &job.x, x_channel + box * chunk,
                 column + segment.tap % taps_across - job.padding,
                 row + segment.tap / taps_across - job.padding, image, full);
}

/* Has all steps of a block brought, one after the other. A slot is free at first: the phase before the first
 * counts as ended. */
template <typename T> __device__ void bring_all(const Job<T> &job, Ring *ring, char *memory)
{
    const int stream = (int)blockIdx.x / peers, end = begin_of(job.plan, stream + 1);
    Turn turn;
    for (int at = begin_of(job.plan, stream); at < end;) {
        const Segment segment = segment_at(job.plan, at, end);
        for (int step = segment.first; step < segment.first + segment.count; step++) {
            barrier_wait(&ring->empty[turn.slot], turn.parity ^ 1);
            bring(job, segment, step, memory + turn.slot * slot_bytes, &ring->full[turn.slot]);
            turn.next(slots);
        }
        at += segment.count;
    }
    /* a block leaves when all that its peer gives back has come */
    for (int i = 0; i < slots; i++, turn.next(slots))
        barrier_wait(&ring->empty[turn.slot], turn.parity ^ 1);
}

/* ---- the groups that compute ---- */

/* Computes the sums of so many steps. */
template <typename T>
__device__ void multiply(int count, Ring *ring, const char *memory, Turn *turn,
                         float (&sums)[squares][columns / 8][4])
{
    constexpr int of_sixteen = sixteen * place_bytes / descriptor_bytes;
    const int own = group_of_warp() * squares * box_bytes;
    CopyBarrier *owed = nullptr;
#pragma unroll 1
    for (int step = 0; step < count; step++) {
        const char *slot = memory + turn->slot * slot_bytes;
        const uint64_t of_dy = rows_descriptor(slot + own),
                       of_x = rows_descriptor(slot + boxes * box_bytes, pattern_bytes, box_bytes);
        barrier_wait(&ring->full[turn->slot], turn->parity);
        __syncwarp(); /* lanes may leave a wait one by one */
        products_begin();
#pragma unroll
        for (int k = 0; k < step_images / sixteen; k++)
#pragma unroll
            for (int i = 0; i < squares; i++)
                multiply_shared<1, 1>(T{}, sums[i],
                                      descriptor_at(of_dy, i * box_bytes / descriptor_bytes + k * of_sixteen),
                                      descriptor_at(of_x, k * of_sixteen), step > 0 || k > 0);
        products_end();
        products_wait<1>();
        give_back(owed, peers);
        owed = &ring->empty[turn->slot];
        turn->next(slots);
    }
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < squares; i++)
        products_of(sums[i]);
    give_back(owed, peers);
}

template <typename T> __device__ void compute_all(const Job<T> &job, Ring *ring, const char *memory)
{
    const int stream = (int)blockIdx.x / peers, end = begin_of(job.plan, stream + 1);
    const int lane = (int)threadIdx.x % 32;
    Turn turn;
    int done = 0;
    for (int at = begin_of(job.plan, stream); at < end; done++) {
        const Segment segment = segment_at(job.plan, at, end);
        float sums[squares][columns / 8][4];
        multiply<T>(segment.count, ring, memory, &turn, sums);
        float *to =
            job.sums + (((int64_t)stream * segments + done) * peers + (int)cluster_rank()) * rows * columns;
#pragma unroll
        for (int i = 0; i < squares; i++)
#pragma unroll
            for (int j = 0; j < columns / 8; j++)
#pragma unroll
                for (int low = 0; low < 2; low++) {
                    const int row = (group_of_warp() * squares + i) * group_rows + row_of_square(low);
                    *reinterpret_cast<float2 *>(to + row * columns + 8 * j + lane % 4 * 2) =
                        make_float2(sums[i][j][2 * low], sums[i][j][2 * low + 1]);
                }
        at += segment.count;
    }
}

template <typename T>
__global__ void __launch_bounds__(threads, 1) pixel_weight_kernel(const __grid_constant__ Job<T> job)
{
    extern __shared__ __align__(1024) char bytes[];
    Ring *ring = reinterpret_cast<Ring *>(bytes);
    char *memory = bytes + ring_room;
    if (threadIdx.x == 0) {
        for (int i = 0; i < slots; i++) {
            barrier_init(&ring->full[i], 1);
            barrier_init(&ring->empty[i], (unsigned)(peers * computing_warps));
        }
        barriers_to_copies();
    }
    cluster_meet();
    launch_before_wait();
    if (threadIdx.x < groups * group_threads) {
        registers_take<computer_registers>();
        compute_all(job, ring, memory);
    } else {
        registers_give<copier_registers>();
        if (threadIdx.x == groups * group_threads)
            bring_all(job, ring, memory);
    }
}

/* ---- the sums of all clusters ---- */

constexpr int join_threads = 256, join_width = 4;

/* Adds up what clusters have of a tile: a block, join_threads * join_width numbers of one. */
template <typename T>
__global__ void __launch_bounds__(join_threads)
    join_tiles_kernel(const float *sums, T *dweight, const __grid_constant__ Plan plan, int x_pitch)
{
    constexpr int numbers = rows * columns, blocks_of_tile = numbers / (join_threads * join_width);
    const int tile = (int)blockIdx.x / blocks_of_tile, peer = tile % peers,
              at = ((int)blockIdx.x % blocks_of_tile * join_threads + (int)threadIdx.x) * join_width;
    const int tiles_of_tap = plan.row_tiles * plan.column_pairs, pair = tile / peers,
              tap = pair / tiles_of_tap, of_tap = pair % tiles_of_tap;
    const int begin = plan.begins[tap] + of_tap * plan.steps[tap], end = begin + plan.steps[tap];
    double sum[join_width] = {};
    int stream = (int)((int64_t)begin * streams / plan.begins[taps]);
    while (begin_of(plan, stream + 1) <= begin)
        stream++;
    launch_before_wait();
    for (; stream < streams && begin_of(plan, stream) < end; stream++) {
        const int segment = begin_of(plan, stream) < begin ? 1 : 0;
        const float4 four = *reinterpret_cast<const float4 *>(
            sums + (((int64_t)stream * segments + segment) * peers + peer) * numbers + at);
        sum[0] += four.x;
        sum[1] += four.y;
        sum[2] += four.z;
        sum[3] += four.w;
    }
    const int channel = of_tap / plan.column_pairs * rows + at / columns,
              column = (of_tap % plan.column_pairs * peers + peer) * columns + at % columns;
    float rounded[join_width];
#pragma unroll
    for (int i = 0; i < join_width; i++)
        rounded[i] = (float)sum[i];
    store<join_width>(dweight + ((int64_t)channel * taps + tap) * x_pitch + column, rounded);
}

/* ---- launches ---- */

/* Sets *first and *last to where along an axis of dy a tap lies inside x: from first to before last. */
void inside_of(int tap, int padding, int64_t dy, int64_t x, int *first, int *last)
{
    *first = max(0, padding - tap);
    *last = min((int)dy, (int)x + padding - tap);
}

Plan plan_of(const DeviceTensor *dy, const DeviceTensor *x)
{
    const int padding = padding_of(x, dy);
    Plan plan = {};
    plan.row_tiles = (int)dy->pitch / rows;
    plan.column_pairs = (int)x->pitch / (peers * columns);
    plan.image_blocks = ceil_of(x->shape[0], step_images);
    for (int tap = 0; tap < taps; tap++) {
        Inside *inside = &plan.inside[tap];
        inside_of(tap / taps_across, padding, dy->shape[1], x->shape[1], &inside->first_row,
                  &inside->last_row);
        inside_of(tap % taps_across, padding, dy->shape[2], x->shape[2], &inside->first_column,
                  &inside->last_column);
        plan.steps[tap] = (inside->last_row - inside->first_row) *
                          (inside->last_column - inside->first_column) * plan.image_blocks;
        plan.begins[tap + 1] = (int)(plan.begins[tap] + (int64_t)plan.steps[tap] * plan.row_tiles *
                                                            plan.column_pairs); /* what fits is small */
    }
    return plan;
}

template <typename T>
cudaError_t launch(const DeviceTensor *dy, const DeviceTensor *x, const DeviceTensor *dweight, void *scratch,
                   cudaStream_t stream)
{
    void (*const kernel)(Job<T>) = pixel_weight_kernel<T>;
    Job<T> job = {};
    job.sums = static_cast<float *>(scratch);
    job.padding = padding_of(x, dy);
    job.plan = plan_of(dy, x);
    cudaError_t status =
        shared_bytes <= shared_bytes_most(reinterpret_cast<const void *>(kernel))
            ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes)
            : cudaErrorNotSupported;
    if (status == cudaSuccess)
        status = make_image_map(&job.dy, dy, 1, 1, step_images);
    if (status == cudaSuccess)
        status = make_image_map(&job.x, x, 1, 1, step_images);
    if (status == cudaSuccess)
        status = launch_clusters(kernel, (unsigned)(streams * peers), threads, (size_t)shared_bytes,
                                 (unsigned)peers, stream, job);
    if (status != cudaSuccess)
        return status;
    const int64_t numbers = dy->pitch * taps * x->pitch;
    return launch_clusters(join_tiles_kernel<T>, (unsigned)(numbers / (join_threads * join_width)),
                           join_threads, 0, 1, stream, static_cast<const float *>(scratch),
                           data_of<T>(dweight), job.plan, (int)x->pitch);
}

} // namespace

extern "C" bool kernel_pixel_gemm_weight_fits(const DeviceTensor *dy, const DeviceTensor *x,
                                              const DeviceTensor *dweight)
{
    if (!kernel_implicit_gemm_fits(x, dweight, dy) || dy->pitch % rows != 0 ||
        x->pitch % (peers * columns) != 0)
        return false;
    const Plan plan = plan_of(dy, x);
    int64_t all = 0;
    int least = plan.steps[0];
    for (const int steps : plan.steps) {
        least = min(least, steps);
        all += (int64_t)steps * plan.row_tiles * plan.column_pairs;
    }
    /* no cluster has more than the end of one tile and the beginning of the next */
    return least > 0 && all >= streams && (all + streams - 1) / streams <= least;
}

extern "C" uint64_t kernel_pixel_gemm_weight_scratch_bytes(void)
{
    return (uint64_t)streams * segments * peers * rows * columns * sizeof(float);
}

extern "C" cudaError_t kernel_pixel_gemm_backward_weight(const DeviceTensor *dy, const DeviceTensor *x,
                                                         const DeviceTensor *dweight, void *scratch,
                                                         cudaStream_t stream)
{
    if (!kernel_pixel_gemm_weight_fits(dy, x, dweight))
        return cudaErrorNotSupported;
    return dy->element == ELEMENT_F16 ? launch<__half>(dy, x, dweight, scratch, stream)
                                      : launch<__nv_bfloat16>(dy, x, dweight, scratch, stream);
}
