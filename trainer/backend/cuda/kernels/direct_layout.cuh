/* direct_layout.cuh - shared by direct.cu and direct_weight.cu: how pixels and taps are found, and how
 * partial sums are joined.
 *
 * The unit is a chunk of 8 channels: a matrix product 16 wide takes two chunks, mostly of neighbouring
 * pixels. A lane computes the places of its pixels, and a bit for each tap that lies inside the image, once
 * for all taps. Sums are float32 in the order of the chunks; the sums of blocks are joined in their order.
 * Step by step: docs/kernels.md. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_DIRECT_LAYOUT_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_DIRECT_LAYOUT_CUH

#include <type_traits>

#include "trainer/backend/cuda/kernels/kernels_direct.h"
#include "trainer/backend/cuda/kernels/matrix_units.cuh"
#include "trainer/backend/cuda/kernels/partial_sums.cuh"

namespace fshard
{
namespace direct
{

constexpr int tile_pixels = 16, warps = block_threads / 32;
constexpr int chunk = 8, chunks_max = DIRECT_KERNEL_MAX * DIRECT_KERNEL_MAX * DIRECT_CHANNELS_MAX / chunk;
constexpr int unrolled_steps = 3; /* steps of two chunks; 9 taps of 8, 16, 32 channels are 5, 9, 18 steps */
constexpr int table_max = chunks_max + 2 * unrolled_steps;
constexpr int64_t processors = 132, blocks_wanted = 4 * processors;
/* Shared memory left by the table and the sums of warps. */
constexpr int weight_bytes_max = (48 << 10) - table_max * (int)(sizeof(int2) + sizeof(int)) -
                                 warps * 2 * DIRECT_CHANNELS_MAX * (int)sizeof(float);
constexpr unsigned never = 31; /* a bit that no mask has: there are at most 25 taps */

/* Division of x < 2^31 by a constant without a division: Granlund and Montgomery, 1994. */
struct Divider {
    unsigned divisor, multiplier, shift;
};

inline Divider divider_of(int64_t divisor)
{
    unsigned log = 0;
    while ((int64_t{1} << log) < divisor)
        log++;
    return {(unsigned)divisor, (unsigned)((uint64_t{1} << (31 + log)) / (uint64_t)divisor + 1), 31 + log};
}

__device__ inline unsigned divide(unsigned x, const Divider &by)
{
    return (unsigned)(((uint64_t)x * by.multiplier) >> by.shift);
}

/* Taps along one side, seen from the pixels that are written: pixel a * out_step + first_out reads in_step *
 * a + first_in + u * direction for each u < count, through tap first_tap + u * tap_step. */
struct Side {
    int first_out, first_in, first_tap, count;
    unsigned first_bits; /* the first bit of each row of `count` bits */
};

inline Side side_of(int first_out, int first_in, int first_tap, int count)
{
    Side side = {first_out, first_in, first_tap, count, 0};
    for (int u = 0; u < DIRECT_KERNEL_MAX; u++)
        side.first_bits |= 1U << (u * count);
    return side;
}

/* The two images. The kernel walks over the pixels of "here"; each tap of a pixel reads a pixel of
 * "there". */
struct Layout {
    int here_height, here_width, here_pitch;
    int there_height, there_width, there_pitch;
    int kernel, in_step, out_step, tap_step, direction;
    int weight_pitch;
    Side sides[2]; /* by the remainder of row or column divided by out_step */
    /* By class, a pair of sides with the rows' first: how many pixels it has. */
    Divider rows[2], columns[2];
    unsigned pixels[4];
    int samples;
};

/* What a lane needs to know of a pixel. here < 0: there is no such pixel. */
struct Place {
    int here, there; /* elements that precede it */
    unsigned mask;   /* a bit for each tap inside the image */
};

/* Returns a number with bits first..end - 1 set. */
__device__ inline unsigned bits_between(int first, int end)
{
    return first < end ? (1U << end) - (1U << first) : 0;
}

/* Sets *from and *end to the range of u for which 0 <= first + u * direction < size. */
__device__ inline void range_inside(int first, int direction, int size, int count, int *from, int *end)
{
    *from = max(0, direction > 0 ? -first : first - size + 1);
    *end = min(count, direction > 0 ? size - first : first + 1);
}

__device__ inline Place place_of(unsigned pixel, const Layout &layout, int row_class, int column_class)
{
    const Side &rows = layout.sides[row_class], &columns = layout.sides[column_class];
    const unsigned line = divide(pixel, layout.columns[column_class]);
    const unsigned sample = divide(line, layout.rows[row_class]);
    const int b = (int)(pixel - line * layout.columns[column_class].divisor);
    const int a = (int)(line - sample * layout.rows[row_class].divisor);
    const int row = a * layout.in_step + rows.first_in, column = b * layout.in_step + columns.first_in;
    int from, end;
    range_inside(column, layout.direction, layout.there_width, columns.count, &from, &end);
    const unsigned of_columns = bits_between(from, end);
    range_inside(row, layout.direction, layout.there_height, rows.count, &from, &end);
    const unsigned of_rows = columns.first_bits & bits_between(from * columns.count, end * columns.count);
    Place place;
    place.mask = of_rows * of_columns;
    place.there =
        (((int)sample * layout.there_height + row) * layout.there_width + column) * layout.there_pitch;
    place.here =
        (((int)sample * layout.here_height + a * layout.out_step + rows.first_out) * layout.here_width +
         b * layout.out_step + columns.first_out) *
        layout.here_pitch;
    if (pixel >= layout.pixels[row_class * 2 + column_class]) {
        place.here = -1;
        place.mask = 0;
    }
    return place;
}

__device__ inline Place place_from(const Place &place, int lane)
{
    Place other;
    other.here = __shfl_sync(0xFFFFFFFFU, place.here, lane);
    other.there = __shfl_sync(0xFFFFFFFFU, place.there, lane);
    other.mask = __shfl_sync(0xFFFFFFFFU, place.mask, lane);
    return other;
}

/* Returns for chunk s of the taps its distance from a pixel's first tap, and its tap's bit. */
__device__ inline int2 table_entry(int s, int chunks, const Layout &layout, int columns)
{
    const int each = layout.there_pitch / chunk, tap = s / each;
    if (s >= chunks)
        return make_int2(0, never);
    const int moved = (tap / columns * layout.there_width + tap % columns) * layout.direction;
    return make_int2(moved * layout.there_pitch + s % each * chunk, tap);
}

/* Returns two elements of the chunk; zeros if it lies outside the image. Inside: it never does. */
template <bool Inside, typename T>
__device__ inline unsigned two_of(const T *there, const Place &place, int2 entry, int quarter)
{
    const bool inside = Inside || place.mask >> entry.y & 1;
    return inside ? *reinterpret_cast<const unsigned *>(there + place.there + entry.x + 2 * quarter) : 0;
}

/* Returns whether all taps of all pixels of the warp lie inside the image. */
__device__ inline bool all_inside(const Place &mine, const Layout &layout, int row_class, int column_class)
{
    const int taps = layout.sides[row_class].count * layout.sides[column_class].count;
    return __all_sync(0xFFFFFFFFU, taps > 0 && mine.mask == (1U << taps) - 1);
}

template <typename T> __device__ unsigned pair_of(T first, T second)
{
    Pack<T, 2> pack = {{first, second}};
    return *reinterpret_cast<unsigned *>(&pack);
}

/* ---- launches ---- */

inline void set_here(Layout *layout, const DeviceTensor *here, const DeviceTensor *there)
{
    layout->samples = (int)here->shape[0];
    layout->here_height = (int)here->shape[1];
    layout->here_width = (int)here->shape[2];
    layout->here_pitch = (int)here->pitch;
    layout->there_height = (int)there->shape[1];
    layout->there_width = (int)there->shape[2];
    layout->there_pitch = (int)there->pitch;
}

inline void count_pixels(Layout *layout)
{
    int64_t lines[2], across[2];
    for (int side = 0; side < layout->out_step; side++) {
        lines[side] = (layout->here_height - side + layout->out_step - 1) / layout->out_step;
        across[side] = (layout->here_width - side + layout->out_step - 1) / layout->out_step;
        layout->rows[side] = divider_of(lines[side] > 0 ? lines[side] : 1);
        layout->columns[side] = divider_of(across[side] > 0 ? across[side] : 1);
    }
    for (int i = 0; i < layout->out_step; i++)
        for (int j = 0; j < layout->out_step; j++)
            layout->pixels[i * 2 + j] = (unsigned)(layout->samples * lines[i] * across[j]);
}

/* Returns the layout that walks over y and reads x. */
inline Layout forward_layout(const DeviceTensor *x, const DeviceTensor *y, const Direct *direct)
{
    Layout layout = {};
    set_here(&layout, y, x);
    layout.kernel = (int)direct->kernel;
    layout.in_step = (int)direct->stride;
    layout.out_step = layout.tap_step = layout.direction = 1;
    layout.weight_pitch = (int)x->pitch;
    layout.sides[0] = side_of(0, -(int)direct->padding, 0, (int)direct->kernel);
    count_pixels(&layout);
    return layout;
}

/* Calls launch with a number of chunks for which kernels have an instance. */
template <typename Launch> void with_chunks(int64_t pitch, Launch launch)
{
    if (pitch <= chunk)
        return launch(std::integral_constant<int, 1>{});
    if (pitch <= 2 * chunk)
        return launch(std::integral_constant<int, 2>{});
    return launch(std::integral_constant<int, 4>{});
}

template <typename Launch> cudaError_t with_narrow(const DeviceTensor *tensor, Launch launch)
{
    if (tensor->element == ELEMENT_F16)
        launch(__half{});
    else
        launch(__nv_bfloat16{});
    return cudaGetLastError();
}

inline int64_t instance_chunks(int64_t pitch)
{
    return pitch <= 2 * chunk ? pitch / chunk : 4;
}

} // namespace direct
} // namespace fshard

#endif
