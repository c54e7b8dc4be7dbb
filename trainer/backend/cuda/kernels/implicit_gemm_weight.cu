/* implicit_gemm_weight.cu - weight gradients of 3 x 3 convolutions as products of warp groups: of each tap,
 * dy [64 channels, pixels] times x [pixels, channels], moved by the tap.
 *
 * A block has 64 channels of dy, a part of the channels of x, and every n-th tile (implicit_gemm.cuh), one
 * after the other. Three warp groups have a row of taps each, and their sums in registers; a fourth brings
 * the next tile while they compute. Channels lie as [8 channels][place][8 of them], so that 8 neighbours in a
 * row are a core, transposed, of both sides of the products. dy goes through registers, once for a group's
 * three taps: shared memory, whose rate would be the bound, is read a third as often for it. Blocks leave
 * their sums in memory, and a second kernel adds them up in their order. */
#include "trainer/backend/cuda/kernels/implicit_gemm.cuh"
#include "trainer/backend/cuda/kernels/matrix_units.cuh"

using namespace fshard;
using namespace fshard::implicit;

namespace
{

constexpr int groups = taps_across, threads = (groups + 1) * group_threads;
constexpr int rows = group_rows, row_pieces = rows / piece; /* channels of dy in a block */
constexpr int columns_most = 64;                            /* of x in a part */
constexpr int depth = 2;
constexpr int pairs_of_rows = side / 2; /* of pixels, in a square: what a product sums */
constexpr int pairs_at_once = 2;
/* Of a block's 65,536 registers, for a thread that copies and one that computes. */
constexpr int copier_registers = 40, computer_registers = 152;

struct Plan {
    Tiles tiles;
    int row_blocks, parts, part; /* of dy's channels; of x's, and channels of one */
    int columns;                 /* those, rounded up to what there is an instance for */
    int splits;                  /* of the tiles */
};

template <typename T> struct Job {
    const T *dy, *x;
    float *partial; /* [splits][parts][row_blocks][taps][rows][columns] */
    int samples, height, width, dy_pitch, x_pitch;
    Plan plan;
};

/* Returns how a tile lies, with an odd number of places, so that 8 pieces of a pixel lie in different
 * banks. */
__host__ __device__ inline Places odd_places(const Cover &cover, int border)
{
    Places places = places_of(cover, border);
    places.count |= 1;
    return places;
}

__host__ __device__ inline int dy_bytes(const Cover &cover)
{
    return row_pieces * odd_places(cover, 0).count * piece_bytes;
}

__host__ __device__ inline int slot_bytes(const Cover &cover, int columns)
{
    return dy_bytes(cover) + columns / piece * odd_places(cover, 1).count * piece_bytes;
}

struct Ring {
    CopyBarrier full[depth], empty[depth];
    /* Image, row and column of each place in a tile, from its corner. */
    unsigned dy[squares_most * square], x[places_most];
};

/* ---- the group that copies ---- */

/* Lists the places of a tile. */
__device__ void list_places(const Cover &cover, const Places &places, unsigned *list)
{
    for (int place = (int)threadIdx.x; place < cover.images * places.of_image; place += threads) {
        const int within = place % places.of_image;
        list[place] = (unsigned)(place / places.of_image) << 20 | (unsigned)(within / places.pitch) << 10 |
                      (unsigned)(within % places.pitch);
    }
}

/* Begins to bring `Pieces` pieces of a tile's pixels, of which count exist. border: places before the
 * corner. */
template <int Pieces, typename T>
__device__ void bring_image(const Job<T> &job, const T *from, int pitch, const Corner &corner, int border,
                            const Places &places, const unsigned *list, int count, char *to)
{
    const int units = job.plan.tiles.cover.images * places.of_image * Pieces;
#pragma unroll 4
    for (int unit = (int)threadIdx.x % group_threads; unit < units; unit += group_threads) {
        const int eight = unit % Pieces, place = unit / Pieces;
        const unsigned at = list[place];
        const int image = corner.image + (int)(at >> 20), row = corner.row - border + (int)(at >> 10 & 1023),
                  column = corner.column - border + (int)(at & 1023);
        const bool there =
            image < job.samples && row >= 0 && row < job.height && column >= 0 && column < job.width;
        if (eight * piece < count)
            copy_16_if(to + (eight * places.count + place) * piece_bytes,
                       from + (there
                                   ? ((image * job.height + row) * job.width + column) * pitch + eight * piece
                                   : 0),
                       there);
    }
}

template <typename T, int Columns>
__device__ void bring_all(const Job<T> &job, Ring *ring, char *memory, int split, int row, int column)
{
    const Cover &cover = job.plan.tiles.cover;
    const Places of_dy = odd_places(cover, 0), of_x = odd_places(cover, 1);
    int brought = 0;
    for (int tile = split; tile < job.plan.tiles.count; tile += job.plan.splits, brought++) {
        const int slot = brought % depth;
        char *to = memory + slot * slot_bytes(cover, Columns);
        const Corner corner = corner_of(job.plan.tiles, tile);
        if (brought >= depth)
            barrier_wait(&ring->empty[slot], (unsigned)(brought / depth - 1) & 1);
        bring_image<row_pieces>(job, job.dy + row, job.dy_pitch, corner, 0, of_dy, ring->dy,
                                job.dy_pitch - row, to);
        bring_image<Columns / piece>(job, job.x + column, job.x_pitch, corner, 1, of_x, ring->x,
                                     min(job.plan.part, job.x_pitch - column), to + dy_bytes(cover));
        copies_close();
        copies_wait<0>();
        shared_memory_written();
        barrier_arrive(&ring->full[slot]);
    }
}

/* ---- the groups that compute ---- */

/* Loads 16 channels of dy, those of this warp, of two rows of pixels. */
__device__ void load_rows(unsigned (&two)[4], const char *dy, const Places &places, int place)
{
    const int lane = (int)threadIdx.x % 32, matrix = lane / 8;
    const int eight = (int)threadIdx.x / 32 % 4 * 2 + matrix % 2;
    load_transposed(two,
                    dy + (eight * places.count + place + matrix / 2 * places.pitch + lane % 8) * piece_bytes);
}

template <typename T, int Columns>
__device__ void compute_all(const Job<T> &job, Ring *ring, const char *memory, int split, float *to)
{
    const Cover &cover = job.plan.tiles.cover;
    const Places of_dy = odd_places(cover, 0), of_x = odd_places(cover, 1);
    const int group = group_of_warp() - 1, lane = (int)threadIdx.x % 32;
    float sums[taps_across][Columns / 8][4];
    int used = 0, from_dy[squares_most], from_x[squares_most];
#pragma unroll
    for (int s = 0; s < squares_most; s++) {
        from_dy[s] = origin_of(cover, of_dy, s);
        from_x[s] = origin_of(cover, of_x, s) + group * of_x.pitch;
    }
    for (int tile = split; tile < job.plan.tiles.count; tile += job.plan.splits, used++) {
        const char *dy = memory + used % depth * slot_bytes(cover, Columns);
        const uint64_t x =
            cores_descriptor(dy + dy_bytes(cover), of_x.pitch * piece_bytes, of_x.count * piece_bytes);
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
                    multiply_own<1>(T{}, sums[tap], two[i % 2][k],
                                    descriptor_at(x, from_x[s] + 2 * (first + k) * of_x.pitch + tap),
                                    used > 0 || i > 0 || k > 0);
            products_end();
        }
        products_wait<0>();
        if (lane == 0)
            barrier_arrive(&ring->empty[used % depth]);
    }
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
                    make_float2(sums[tap][j][2 * low], sums[tap][j][2 * low + 1]);
    }
}

template <typename T, int Columns>
__global__ void __launch_bounds__(threads, 1) weight_kernel(const __grid_constant__ Job<T> job)
{
    extern __shared__ __align__(128) char memory[];
    __shared__ Ring ring;
    const int blocks = job.plan.row_blocks * job.plan.parts, block = (int)blockIdx.x % blocks,
              split = (int)blockIdx.x / blocks;
    list_places(job.plan.tiles.cover, odd_places(job.plan.tiles.cover, 0), ring.dy);
    list_places(job.plan.tiles.cover, odd_places(job.plan.tiles.cover, 1), ring.x);
    if (threadIdx.x == 0) {
        for (int i = 0; i < depth; i++) {
            barrier_init(&ring.full[i], group_threads);
            barrier_init(&ring.empty[i], groups * group_threads / 32);
        }
        barriers_to_copies();
    }
    __syncthreads();
    if (threadIdx.x < group_threads) {
        registers_give<copier_registers>();
        bring_all<T, Columns>(job, &ring, memory, split, block % job.plan.row_blocks * rows,
                              block / job.plan.row_blocks * job.plan.part);
    } else {
        registers_take<computer_registers>();
        compute_all<T, Columns>(job, &ring, memory, split,
                                job.partial + (int64_t)blockIdx.x * taps * rows * Columns);
    }
}

/* ---- the sums of all blocks ---- */

constexpr int join_lanes = 32, join_rows = 8, join_width = 4;

template <typename T> __device__ void store_rounded(T *to, const double (&sums)[join_width])
{
    float rounded[join_width];
#pragma unroll
    for (int i = 0; i < join_width; i++)
        rounded[i] = (float)sums[i];
    store<join_width>(to, rounded);
}

template <typename T>
__global__ void __launch_bounds__(join_lanes *join_rows)
    join_kernel(const float *partial, T *dweight, const __grid_constant__ Plan plan, int dy_pitch,
                int x_pitch)
{
    __shared__ double joined[join_rows][join_lanes][join_width];
    const int lane = (int)threadIdx.x % join_lanes, first = (int)threadIdx.x / join_lanes;
    const int64_t of_split = (int64_t)plan.row_blocks * plan.parts * taps * rows * plan.columns,
                  at = ((int64_t)blockIdx.x * join_lanes + lane) * join_width;
    double sums[join_width] = {};
#pragma unroll 4
    for (int split = first; split < plan.splits; split += join_rows) {
        const float4 four = *reinterpret_cast<const float4 *>(partial + split * of_split + at);
        sums[0] += four.x;
        sums[1] += four.y;
        sums[2] += four.z;
        sums[3] += four.w;
    }
#pragma unroll
    for (int i = 0; i < join_width; i++)
        joined[first][lane][i] = sums[i];
    __syncthreads();
    if (first > 0)
        return;
    for (int row = 1; row < join_rows; row++)
#pragma unroll
        for (int i = 0; i < join_width; i++)
            sums[i] += joined[row][lane][i];
    const int in_part = (int)(at % plan.columns), row = (int)(at / plan.columns % rows),
              tap = (int)(at / plan.columns / rows % taps), block = (int)(at / plan.columns / rows / taps);
    const int channel = block % plan.row_blocks * rows + row,
              column = block / plan.row_blocks * plan.part + in_part;
    if (channel < dy_pitch && in_part < plan.part && column < x_pitch)
        store_rounded(dweight + ((int64_t)channel * taps + tap) * x_pitch + column, sums);
}

/* ---- plans ---- */

/* Returns the clocks of a plan, as far as they tell plans apart: 16 pixels of a tap take columns / 2 on the
 * matrix units; what a tile reads and what blocks leave comes and goes at 20 bytes a clock. */
double clocks_of(const Plan &plan)
{
    const int blocks = plan.row_blocks * plan.parts * plan.splits, waves = ceil_of(blocks, processors);
    const double compute = squares_most * pairs_of_rows * taps * plan.columns / 2.0,
                 copy = slot_bytes(plan.tiles.cover, plan.columns) / 20.0;
    const double joining = 2.0 * taps * rows * plan.columns * sizeof(float) / 20;
    return waves *
           (ceil_of(plan.tiles.count, plan.splits) * (compute > copy ? compute : copy) + joining + 2000);
}

/* Returns the plan that takes the fewest clocks. */
Plan plan_of(const DeviceTensor *dy, const DeviceTensor *x)
{
    Plan best = {};
    double least = 0;
    for (const Cover &cover : covers)
        for (int parts = ceil_of(x->pitch, columns_most), most = parts + 3; parts <= most; parts++) {
            Plan plan = {};
            plan.tiles = tiles_of(dy, cover);
            plan.row_blocks = ceil_of(dy->pitch, rows);
            plan.part = ceil_of(x->pitch, (int64_t)piece * parts) * piece;
            plan.parts = ceil_of(x->pitch, plan.part);
            plan.columns = ceil_of(plan.part, 16) * 16;
            plan.splits = max(1, min(plan.tiles.count, processors / (plan.row_blocks * plan.parts)));
            if (squares_of(cover) == squares_most && (least == 0 || clocks_of(plan) < least)) {
                least = clocks_of(plan);
                best = plan;
            }
        }
    return best;
}

/* ---- launches ---- */

template <typename T, int Columns> cudaError_t launch(const Job<T> &job, cudaStream_t stream)
{
    void (*const kernel)(Job<T>) = weight_kernel<T, Columns>;
    const int bytes = depth * slot_bytes(job.plan.tiles.cover, Columns),
              room = shared_bytes_most(reinterpret_cast<const void *>(kernel));
    /* all of the room, whatever this layer takes: the limit is the function's, and other layers share it */
    const cudaError_t status =
        bytes <= room ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, room)
                      : cudaErrorNotSupported;
    if (status != cudaSuccess)
        return status;
    kernel<<<(unsigned)(job.plan.row_blocks * job.plan.parts * job.plan.splits), threads, (size_t)bytes,
             stream>>>(job);
    return cudaGetLastError();
}

} // namespace

extern "C" uint64_t kernel_implicit_gemm_scratch_bytes(const DeviceTensor *dy, const DeviceTensor *x)
{
    const Plan plan = plan_of(dy, x);
    return (uint64_t)plan.splits * (uint64_t)(plan.parts * plan.row_blocks * taps * rows * plan.columns) *
           sizeof(float);
}

extern "C" cudaError_t kernel_implicit_gemm_backward_weight(const DeviceTensor *dy, const DeviceTensor *x,
                                                            const DeviceTensor *dweight, void *scratch,
                                                            cudaStream_t stream)
{
    if (!kernel_implicit_gemm_fits(x, dweight, dy))
        return cudaErrorNotSupported;
    const Plan plan = plan_of(dy, x);
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        float *partial = static_cast<float *>(scratch);
        const Job<T> job = {.dy = data_of<const T>(dy),
                            .x = data_of<const T>(x),
                            .partial = partial,
                            .samples = (int)dy->shape[0],
                            .height = (int)dy->shape[1],
                            .width = (int)dy->shape[2],
                            .dy_pitch = (int)dy->pitch,
                            .x_pitch = (int)x->pitch,
                            .plan = plan};
        const cudaError_t status = with_columns<columns_most>(
            job.plan.columns, [&](auto columns) { return launch<T, decltype(columns)::value>(job, stream); });
        if (status != cudaSuccess)
            return status;
        const int vectors = plan.parts * plan.row_blocks * taps * rows * plan.columns / join_width;
        join_kernel<T><<<(unsigned)(vectors / join_lanes), join_lanes * join_rows, 0, stream>>>(
            partial, data_of<T>(dweight), plan, (int)dy->pitch, (int)x->pitch);
        return cudaGetLastError();
    };
    return dy->element == ELEMENT_F16 ? run(__half{}) : run(__nv_bfloat16{});
}
