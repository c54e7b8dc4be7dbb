/* direct_tile.cuh - shared by direct.cu and direct_weight.cu: how two images are cut into tiles, where taps
 * lie in them, and how tiles come to shared memory.
 *
 * The kernels walk over the pixels of one image, "here", and each tap of a pixel meets a pixel of the other,
 * "there". A block has a tile of here, of one image or of several whole ones, and below it the patch of
 * there: all that taps meet, with what lies outside the image (zeros, or the mirrored image). So a tap is a
 * constant distance, whatever the pixel.
 *
 * The unit is a chunk of 8 channels, 16 bytes: a row of the matrices that ldmatrix loads. Chunk c of all
 * pixels lies in plane c, so that 8 neighbouring pixels are in different banks; a product 16 wide takes two
 * chunks, mostly of neighbouring taps. Of bytes of one channel, whose chunks would be empty but for an
 * eighth, a pixel has the nine that its taps meet (Window). Step by step: docs/kernels.md. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_DIRECT_TILE_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_DIRECT_TILE_CUH

#include <type_traits>

#include "trainer/backend/cuda/kernels/async_copy.cuh"
#include "trainer/backend/cuda/kernels/channel_constants.cuh"
#include "trainer/backend/cuda/kernels/kernels_direct.h"
#include "trainer/backend/cuda/kernels/matrix_units.cuh"
#include "trainer/backend/cuda/kernels/partial_sums.cuh"
#include "trainer/backend/cuda/kernels/reflection.cuh"

namespace fshard
{
namespace direct
{

constexpr int threads_most = 512, chunk = 8, chunk_bytes = 16;
/* Chunks of all taps, of which those of each of four classes are rounded up to pairs. */
constexpr int chunks_max = DIRECT_KERNEL_MAX * DIRECT_KERNEL_MAX * DIRECT_CHANNELS_MAX / chunk + 4;
constexpr int processors = 132; /* of the cards that sizes are chosen for: bits do not depend on the card */

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

/* Returns x divided, and sets *rest to what is left. */
__device__ inline int divide(int x, const Divider &by, int *rest)
{
    const int whole = (int)(((uint64_t)(unsigned)x * by.multiplier) >> by.shift);
    *rest = x - whole * (int)by.divisor;
    return whole;
}

/* A place in a tile: image, row, column. */
struct Place {
    int image, row, column;
};

/* How many places there are along each axis of a Place. */
struct Box {
    Divider rows, columns;
    int count; /* of all */
};

inline Box box_of(int images, int rows, int columns)
{
    return {divider_of(rows), divider_of(columns), images * rows * columns};
}

__device__ inline Place place_in(const Box &box, int i)
{
    Place place;
    place.image = divide(divide(i, box.columns, &place.column), box.rows, &place.row);
    return place;
}

/* Taps along one side, seen from the pixels that are walked over: pixel a * out_step + first_out meets pixel
 * in_step * a + first_in + u * direction for each u < count, through tap first_tap + u * tap_step. */
struct Side {
    int first_out, first_in, first_tap, count;
};

struct Image {
    int height, width, chunks;
};

/* A kernel of 3 x 3 over an image of one channel. Its patch has a pixel for each of here, whose two chunks
 * hold what the nine taps meet: a kernel of one tap then, and one step in place of five. stride 0: none. */
struct Window {
    int stride, padding, height, width;
    bool mirrored;
};

constexpr int window_edge = 3, window_taps = 9, window_chunks = 2;
static_assert(window_taps <= window_chunks * chunk, "the taps have room");

/* What a launch does. Where pixels of here are of several classes, by the remainder of row or column divided
 * by out_step, each has taps of its own. */
struct Layout {
    int samples;
    Image here, there;
    int kernel, in_step, out_step, tap_step, direction, weight_pitch;
    Side sides[2];
    int mirrored; /* so many pixels around there are those of the mirrored image; 0: zeros are there */
    int folded;   /* so many pixels at each edge of here are added to those that they mirror */
    int bytes;    /* of a pixel of there, which are to become numbers by the constants; 0: it has numbers */
    ChannelConstants constants;
    Window window;       /* with one, kernel, there, in_step and weight_pitch are those of its patch */
    int threads, blocks; /* threads of a block; blocks that run at a time */
    int images;          /* of a tile */
    int rows, columns;   /* of an image of a tile: multiples of out_step */
    int patch_rows, patch_columns; /* pixels of there between the patches of two tiles */
    int low;                       /* of the patch: its first row and column, seen from those of pixel 0 */
    int tiles;                     /* of all images */
    Box of_images;                 /* tiles */
    Box tile, of_class, patch;     /* pixels of a tile, those of one class, and of the patch */
    Box inner;                     /* of a tile without those that are folded */
    int here_plane, there_plane;   /* bytes */
    int steps[2][2];               /* of two chunks each, that a class of rows and columns takes */
    int offsets[chunks_max]; /* of these chunks, by classes: bytes from the patch's pixel of the first tap */
};

/* Where a tile begins in here, and its patch in there. */
struct Spot {
    int sample, row, column, patch_row, patch_column;
};

__device__ inline Spot spot_of(int tile, const Layout &layout)
{
    const Place place = place_in(layout.of_images, tile);
    return {place.image * layout.images, place.row * layout.rows, place.column * layout.columns,
            place.row * layout.patch_rows + layout.low, place.column * layout.patch_columns + layout.low};
}

/* How the threads of a block share the 16-byte chunks of pixels: each has the same chunk of every pixel that
 * it takes. Begins with pixel `first`, and goes on by `step`. Chunks: of an instance; where a pixel has
 * fewer, threads of the others do nothing. */
struct Share {
    int chunk, first, step;
};

__device__ inline Share share_of(int chunks)
{
    const int shift = chunks <= 2 ? chunks - 1 : 2;
    return {(int)threadIdx.x & ((1 << shift) - 1), (int)threadIdx.x >> shift, (int)blockDim.x >> shift};
}

/* Returns the elements before a pixel. Tensors have fewer than 2^31. */
__device__ inline int element_of(const Image &image, int sample, int row, int column)
{
    return ((sample * image.height + row) * image.width + column) * image.chunks * chunk;
}

/* Where a pixel of a patch comes from; at: how many pixels precede it. */
struct Source {
    bool inside;
    int at;
};

__device__ inline Source source_of(int pixel, const Layout &layout, const Spot &spot)
{
    const Image &image = layout.there;
    const Place place = place_in(layout.patch, pixel);
    int h = spot.patch_row + place.row, w = spot.patch_column + place.column;
    if (layout.mirrored) {
        h = reflect(h + layout.mirrored, layout.mirrored, image.height);
        w = reflect(w + layout.mirrored, layout.mirrored, image.width);
    }
    const int sample = spot.sample + place.image;
    const bool inside = sample < layout.samples && (unsigned)h < (unsigned)image.height &&
                        (unsigned)w < (unsigned)image.width;
    return {inside, inside ? (sample * image.height + h) * image.width + w : 0};
}

/* Makes the patch below a tile, of bytes; a thread asks for those of several pixels at a time. */
template <typename T>
__device__ void make_patch(const uint8_t *there, T *plane, const Layout &layout, const Spot &spot)
{
    constexpr int at_a_time = 4;
    const int step = (int)blockDim.x;
    for (int first = (int)threadIdx.x; first < layout.patch.count; first += at_a_time * step) {
        uint8_t bytes[at_a_time][pixel_channels] = {};
        bool inside[at_a_time];
#pragma unroll
        for (int u = 0; u < at_a_time; u++) {
            const Source source = source_of(min(first + u * step, layout.patch.count - 1), layout, spot);
            inside[u] = source.inside;
#pragma unroll
            for (int c = 0; c < pixel_channels; c++)
                if (c < layout.bytes)
                    bytes[u][c] = there[source.at * layout.bytes + c];
        }
#pragma unroll
        for (int u = 0; u < at_a_time; u++) {
            float values[chunk] = {}, numbers[pixel_channels];
            numbers_of(bytes[u], layout.bytes, layout.constants, numbers);
#pragma unroll
            for (int c = 0; c < pixel_channels; c++)
                values[c] = inside[u] ? numbers[c] : 0;
            if (first + u * step < layout.patch.count)
                store(plane + (first + u * step) * chunk, values);
        }
    }
}

/* Makes the patch of a window: a chunk of taps in each plane. */
template <typename T>
__device__ void make_windows(const uint8_t *there, T *planes, const Layout &layout, const Spot &spot)
{
    const Window &window = layout.window;
    for (int pixel = (int)threadIdx.x; pixel < layout.patch.count; pixel += (int)blockDim.x) {
        const Place place = place_in(layout.patch, pixel);
        const int sample = min(spot.sample + place.image, layout.samples - 1),
                  top = (spot.row + place.row) * window.stride - window.padding,
                  left = (spot.column + place.column) * window.stride - window.padding;
        float taps[window_chunks][chunk] = {};
#pragma unroll
        for (int u = 0; u < window_edge; u++)
#pragma unroll
            for (int v = 0; v < window_edge; v++) {
                int h = top + u, w = left + v;
                if (window.mirrored) {
                    h = reflect(h + window.padding, window.padding, window.height);
                    w = reflect(w + window.padding, window.padding, window.width);
                }
                const bool inside =
                    (unsigned)h < (unsigned)window.height && (unsigned)w < (unsigned)window.width;
                const int tap = u * window_edge + v;
                if (inside)
                    taps[tap / chunk][tap % chunk] = number_of(
                        there[(sample * window.height + h) * window.width + w], layout.constants, 0);
            }
#pragma unroll
        for (int c = 0; c < window_chunks; c++)
            store(planes + c * layout.there_plane / (int)sizeof(T) + pixel * chunk, taps[c]);
    }
}

/* Brings the patch below a tile to planes of shared memory: numbers, of T, asynchronously, in copies that are
 * not closed; bytes at once. */
template <typename T>
__device__ void bring_patch(const void *there, char *planes, const Layout &layout, const Spot &spot)
{
    const Share share = share_of(layout.there.chunks);
    if (layout.bytes) {
        const uint8_t *bytes = static_cast<const uint8_t *>(there);
        if (layout.window.stride)
            make_windows(bytes, reinterpret_cast<T *>(planes), layout, spot);
        else
            make_patch(bytes, reinterpret_cast<T *>(planes), layout, spot);
        return;
    }
    if (share.chunk >= layout.there.chunks)
        return;
    const unsigned plane =
        (unsigned)__cvta_generic_to_shared(planes) + (unsigned)(share.chunk * layout.there_plane);
    const T *numbers = static_cast<const T *>(there) + share.chunk * chunk;
#pragma unroll 4
    for (int pixel = share.first; pixel < layout.patch.count; pixel += share.step) {
        const Source source = source_of(pixel, layout, spot);
        copy_16_or_zeros(plane + (unsigned)(pixel * chunk_bytes),
                         numbers + source.at * layout.there.chunks * chunk, source.inside);
    }
}

/* Returns the bytes between the patch's pixel of tap (u, v) = (0, 0) of a pixel of a class, and the planes.
 * a: the pixel among those of its class. */
__device__ inline int patch_bytes(const Place &a, const Layout &layout, const Side &rows, const Side &columns)
{
    const int row = a.row * layout.in_step + rows.first_in - layout.low,
              column = a.column * layout.in_step + columns.first_in - layout.low;
    return ((a.image * (int)layout.patch.rows.divisor + row) * (int)layout.patch.columns.divisor + column) *
           chunk_bytes;
}

/* ---- launches ---- */

/* Returns the bytes of a plane of so many pixels and one more, rounded up to 16 of them; planes begin in
 * different banks. */
inline int plane_bytes(int pixels, int chunks)
{
    const int bytes = (pixels / 16 + 1) * 16 * chunk_bytes;
    return bytes + (chunks == 1 ? 0 : chunks == 2 ? 64 : 32);
}

inline int tile_bytes(const Layout &layout)
{
    return layout.here_plane * layout.here.chunks + layout.there_plane * layout.there.chunks;
}

inline int rounded_up(int value, int multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* A chunk of a tap of a class; tap_row below 0: there is none. */
struct Chunk {
    int tap_row, tap_column, chunk;
};

/* Calls take(place in the table, row class, column class, chunk) for all chunks of a layout, and counts the
 * steps. */
template <typename Take> void for_chunks(Layout *layout, Take take)
{
    int at = 0;
    for (int i = 0; i < layout->out_step; i++)
        for (int j = 0; j < layout->out_step; j++) {
            const int across = layout->sides[j].count, taps = layout->sides[i].count * across,
                      each = layout->there.chunks;
            layout->steps[i][j] = (taps * each + 1) / 2;
            for (int s = 0; s < 2 * layout->steps[i][j]; s++, at++) {
                const int tap = s / each;
                take(at, i, j, tap < taps ? Chunk{tap / across, tap % across, s % each} : Chunk{-1, -1, 0});
            }
        }
}

/* Sets where chunks lie; one that does not exist lies where the first one does. */
inline void set_offsets(Layout *layout)
{
    for_chunks(layout, [&](int at, int, int, const Chunk &of) {
        const int pixels = of.tap_row * (int)layout->patch.columns.divisor + of.tap_column;
        layout->offsets[at] =
            of.tap_row < 0 ? 0 : pixels * layout->direction * chunk_bytes + of.chunk * layout->there_plane;
    });
}

inline void set_tile(Layout *layout, int images, int rows, int columns)
{
    const int last = rows / layout->out_step - 1, last_across = columns / layout->out_step - 1;
    int low = 1 << 30, high = -(1 << 30); /* first and last tap, seen from the first pixel */
    for (int side = 0; side < layout->out_step; side++) {
        const Side &s = layout->sides[side];
        const int other = s.first_in + (s.count - 1) * layout->direction;
        if (s.count == 0)
            continue;
        low = s.first_in < low ? s.first_in : low;
        low = other < low ? other : low;
        high = s.first_in > high ? s.first_in : high;
        high = other > high ? other : high;
    }
    layout->images = images;
    layout->rows = rows;
    layout->columns = columns;
    layout->patch_rows = rows / layout->out_step * layout->in_step;
    layout->patch_columns = columns / layout->out_step * layout->in_step;
    layout->of_images =
        box_of((layout->samples + images - 1) / images, (layout->here.height + rows - 1) / rows,
               (layout->here.width + columns - 1) / columns);
    layout->tiles = layout->of_images.count;
    layout->low = low;
    layout->tile = box_of(images, rows, columns);
    layout->of_class = box_of(images, rows / layout->out_step, columns / layout->out_step);
    layout->patch = box_of(images, last * layout->in_step + high - low + 1,
                           last_across * layout->in_step + high - low + 1);
    layout->inner =
        box_of(images, layout->here.height - 2 * layout->folded, layout->here.width - 2 * layout->folded);
    layout->here_plane = plane_bytes(layout->tile.count, layout->here.chunks);
    layout->there_plane = plane_bytes(layout->patch.count, layout->there.chunks);
}

constexpr int tile_pixels_most = 1024, columns_most = 64;
/* Of a block, besides what moments take: cards from Ampere on have 99 KiB for it (programming guide, "Compute
 * Capabilities"). fuse_convolution.c counts on it. */
constexpr int shared_most = 94 << 10, shared_of_cards = 99 << 10;

/* Chooses tiles of whole images: as many as fit, and no more tiles than blocks; returns whether one fits. */
inline bool choose_whole(Layout *layout, int room)
{
    const int blocks = layout->blocks, rows = rounded_up(layout->here.height, layout->out_step),
              columns = rounded_up(layout->here.width, layout->out_step);
    int most = 1, too_many = 2 * tile_pixels_most / (rows * columns) + 1;
    while (most + 1 < too_many) {
        const int images = (most + too_many) / 2;
        set_tile(layout, images, rows, columns);
        if (tile_bytes(*layout) <= room)
            most = images;
        else
            too_many = images;
    }
    const int rounds = (layout->samples + most * blocks - 1) / (most * blocks);
    set_tile(layout, (layout->samples + rounds * blocks - 1) / (rounds * blocks), rows, columns);
    return tile_bytes(*layout) <= room;
}

/* Chooses tiles of one image: as many rows as fit; returns whether the least do. */
inline bool choose_parts(Layout *layout, int room)
{
    const int step = layout->out_step, rows = rounded_up(layout->here.height, step),
              columns = rounded_up(layout->here.width, step);
    const int across = columns < columns_most ? columns : columns_most;
    int down = rounded_up(tile_pixels_most / across, step);
    down = down > rows ? rows : down;
    for (set_tile(layout, 1, down, across); tile_bytes(*layout) > room && down > step; down -= step)
        set_tile(layout, 1, down - step, across);
    return tile_bytes(*layout) <= room;
}

/* Chooses the tiles of blocks that have `fixed` bytes of shared memory besides, where a processor runs
 * threads_at_a_time; returns whether there are any. Small images are in large blocks, which leave fewer sums
 * to join; of tiles of one image, more blocks overlap what they do. */
inline bool choose_tiles(Layout *layout, int fixed, int threads_at_a_time)
{
    constexpr int shared_bytes = 224 << 10; /* of a processor */
    const bool small = layout->folded || layout->here.height * layout->here.width <= tile_pixels_most;
    bool chosen = false;
    for (int whole = small ? 1 : 0; whole >= 0 && !chosen; whole -= layout->folded ? 2 : 1) {
        layout->threads = whole ? threads_most : threads_most / 2;
        const int at_a_time = threads_at_a_time / layout->threads, wanted = shared_bytes / at_a_time,
                  room = (wanted < shared_most ? wanted : shared_most) - fixed;
        layout->blocks = processors * at_a_time;
        chosen = whole ? choose_whole(layout, room)
                       : choose_parts(layout, room) || choose_parts(layout, shared_most - fixed);
    }
    set_offsets(layout);
    return chosen;
}

/* Returns an image whose pixels are chunks, those of bytes once they are numbers. */
inline Image image_of(const DeviceTensor *tensor)
{
    return {(int)tensor->shape[1], (int)tensor->shape[2],
            tensor->element == ELEMENT_U8 ? 1 : (int)(tensor->pitch / chunk)};
}

/* Returns the layout that walks over y and reads x, without tiles. */
inline Layout forward_layout(const DeviceTensor *x, const DeviceTensor *y, const Direct *direct)
{
    Layout layout = {};
    layout.samples = (int)y->shape[0];
    layout.here = image_of(y);
    layout.there = image_of(x);
    layout.kernel = (int)direct->kernel;
    layout.in_step = (int)direct->stride;
    layout.out_step = layout.tap_step = layout.direction = 1;
    layout.weight_pitch = layout.there.chunks * chunk;
    if (x->element == ELEMENT_U8) {
        layout.bytes = (int)x->shape[3];
        layout.constants = channel_constants(direct->mean, direct->deviation, x->shape[3]);
    }
    layout.mirrored = direct->reflects ? (int)direct->padding : 0;
    layout.sides[0] = {0, -(int)direct->padding, 0, (int)direct->kernel};
    if (layout.bytes == 1 && direct->kernel == window_edge) {
        layout.window = {(int)direct->stride, (int)direct->padding, layout.there.height, layout.there.width,
                         direct->reflects};
        layout.there = {layout.here.height, layout.here.width, window_chunks};
        layout.weight_pitch = window_chunks * chunk;
        layout.kernel = layout.in_step = 1;
        layout.mirrored = 0;
        layout.sides[0] = {0, 0, 0, 1};
    }
    return layout;
}

/* Calls launch with a number of chunks for which kernels have an instance. */
template <typename Launch> cudaError_t with_chunks(int64_t chunks, Launch launch)
{
    if (chunks == 1)
        return launch(std::integral_constant<int, 1>{});
    if (chunks == 2)
        return launch(std::integral_constant<int, 2>{});
    return launch(std::integral_constant<int, 4>{});
}

inline int instance_chunks(int chunks)
{
    return chunks <= 2 ? chunks : 4;
}

template <typename Launch> cudaError_t with_narrow(const DeviceTensor *tensor, Launch launch)
{
    return tensor->element == ELEMENT_F16 ? launch(__half{}) : launch(__nv_bfloat16{});
}

/* Launches `blocks` of a kernel with so much shared memory. */
template <typename... Parameters, typename... Arguments>
cudaError_t launch_blocks(void (*kernel)(Parameters...), int blocks, int threads, int shared_bytes,
                          cudaStream_t stream, const Arguments &...arguments)
{
    const cudaError_t code = cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                                  cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (code != cudaSuccess)
        return code;
    kernel<<<(unsigned)blocks, (unsigned)threads, (size_t)shared_bytes, stream>>>(arguments...);
    return cudaGetLastError();
}

} // namespace direct
} // namespace fshard

#endif
