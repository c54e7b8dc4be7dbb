/* stem_image.cuh - the image below a tile of a stem's result, as numbers in shared memory: for a convolution
 * of 7 x 7, stride 2 and padding 3 over images of bytes. For stem_forward.cu and stem_gradient.cuh.
 *
 * A tile is 16 x 16 pixels of the result. Some warps of a block, the imagers, bring the bytes below a tile,
 * and make numbers of them, while others multiply those of the tile before. The numbers need no copies of
 * what windows share: a row of a window is 8 pixels of 4 channels, 32 numbers, of which 7 and 3 count, and
 * the next window begins 2 pixels, 16 bytes, further, as a row of a matrix may. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_STEM_IMAGE_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_STEM_IMAGE_CUH

#include "trainer/backend/cuda/kernels/async_copy.cuh"
#include "trainer/backend/cuda/kernels/channel_constants.cuh"
#include "trainer/backend/cuda/kernels/window_places.cuh"

namespace fshard
{
namespace stem
{

using window::Image;

constexpr int kernel = 7, padding = 3, channels = 64; /* of the result */
constexpr int row_numbers = 32;                       /* of a row of a window */
constexpr int tile = 16;                              /* rows and columns of the result */
/* of the image below a tile: its last window ends with a column that does not count */
constexpr int image_rows = 2 * tile + kernel - 2, image_columns = 2 * tile + kernel - 1, image_pitch = 40;

/* The numbers below a tile, a pixel in eight bytes; rows of a matrix begin at every second one. */
struct Numbers {
    alignas(16) uint2 pixels[image_rows * image_pitch];
};
static_assert(image_pitch % 2 == 0, "rows begin at multiples of 16 bytes");

/* The bytes below a tile, in rows of words, of which the first pixel begins at any byte. */
constexpr int row_words_most = (image_columns * pixel_channels + 3 + 3) / 4;
struct ByteSlot {
    alignas(16) unsigned words[image_rows * row_words_most];
};
constexpr int byte_slots = 2;

/* Images of bytes [N, H, W, C at most 4], and how they become numbers. */
struct Pixels {
    const uint8_t *bytes;
    int64_t byte_count;
    Image image;
    int row_bytes; /* of a row of an image */
    ChannelConstants constants;
};

inline Pixels pixels_of(const DeviceTensor *pixels, const float *mean, const float *deviation)
{
    return {data_of<const uint8_t>(pixels), pixels->rows * pixels->pitch, window::image_of(pixels),
            (int)(pixels->shape[2] * pixels->pitch), channel_constants(mean, deviation, pixels->shape[3])};
}

/* The tiles of a result, image after image; a tile begins at pixel (row, column) of image n. */
struct Tile {
    int n, row, column;
};

struct Tiles {
    int count, rows, columns; /* rows and columns of an image */
    __device__ Tile at(int index) const
    {
        const int in_image = rows * columns, n = index / in_image, rest = index - n * in_image;
        return {n, rest / columns * tile, rest % columns * tile};
    }
};

/* Returns the tiles of a result [N, h, w, ..]; count is 0 where they are too many. */
inline Tiles tiles_of(const DeviceTensor *y)
{
    const int64_t rows = (y->shape[1] + tile - 1) / tile, columns = (y->shape[2] + tile - 1) / tile,
                  count = y->shape[0] * rows * columns;
    return {count <= INT32_MAX / 2 ? (int)count : 0, (int)rows, (int)columns};
}

/* Returns the blocks that walk over them. */
inline int blocks_of(const Tiles &tiles)
{
    return tiles.count < multiprocessors ? tiles.count : multiprocessors;
}

/* Returns whether pixels are bytes that such a convolution with the filter [64, 7, 7, C] makes the result of,
 * or what has the result's shape. */
inline bool is_stem(const DeviceTensor *pixels, const DeviceTensor *filter, const DeviceTensor *result)
{
    for (int axis = 1; axis < 3; axis++)
        if (result->shape[axis] != (pixels->shape[axis] + 2 * padding - kernel) / 2 + 1 ||
            filter->shape[axis] != kernel)
            return false;
    return pixels->element == ELEMENT_U8 && pixels->shape[3] <= pixel_channels &&
           pixels->pitch == pixels->shape[3] && element_is_narrow(result->element) &&
           result->shape[3] == channels && result->pitch == channels &&
           result->shape[0] == pixels->shape[0] && filter->element == result->element &&
           filter->shape[0] == channels && filter->shape[3] == pixels->shape[3];
}

/* ---- roles, and the barriers between them ---- */

constexpr int stages_most = 2; /* of what is multiplied */

/* Waits until so many threads have arrived; what they wrote to shared memory before is there. */
template <int Threads> __device__ void wait_for(int barrier)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(Threads) : "memory");
}

/* Tells those who wait there, and goes on. */
template <int Threads> __device__ void arrive_at(int barrier)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(Threads) : "memory");
}

/* A block's walk over tiles. */
struct Walk {
    int index, step, tiles, stages;
    int count = 0; /* of tiles before this one */
    __device__ Walk(int all, int stages_)
        : index((int)blockIdx.x), step((int)gridDim.x), tiles(all), stages(stages_)
    {
    }
    __device__ bool has(int ahead) const
    {
        return index + (int64_t)ahead * step < tiles;
    }
    __device__ int stage() const
    {
        return stages == 1 ? 0 : count % stages_most;
    }
    __device__ int slot() const
    {
        return count % byte_slots;
    }
    __device__ void go_on()
    {
        index += step;
        count++;
    }
};

/* ---- imagers ---- */

/* Returns where the bytes below a tile begin, outside the image as well as in it. */
__device__ inline int64_t first_byte(const Pixels &pixels, const Tile &at)
{
    return pixels.image.pixel(at.n, 2 * at.row - padding, 2 * at.column - padding) * pixels.image.channels;
}

/* Brings a word, or what there is of it: none before the first byte of all, and up to the last. Apart, so
 * that the way of all other words is short. */
__device__ __noinline__ inline void bring_edge(const uint8_t *all, int64_t byte_count, int64_t byte,
                                               unsigned *to)
{
    const int64_t rest = byte_count - byte;
    if (byte >= 0 && rest >= 4)
        copy_4(to, all + byte);
    else if (byte >= 0)
#pragma unroll 1
        for (int i = 0; i < rest; i++)
            reinterpret_cast<uint8_t *>(to)[i] = all[byte + i];
}

/* Begins to bring the bytes below a tile, those that there are; a warp has a row at a time. */
template <int Imagers>
__device__ void bring_bytes(const Pixels &pixels, const Tile &at, int thread, ByteSlot *to)
{
    constexpr int rows_at_once = Imagers / 32;
    const int words = (image_columns * pixels.image.channels + 3 + 3) / 4, top = 2 * at.row - padding;
    const int64_t first = first_byte(pixels, at), end = first + (int64_t)image_rows * pixels.row_bytes;
    const bool inside = first >= 0 && end + 4 * row_words_most <= pixels.byte_count;
#pragma unroll 1
    for (int word = thread % 32; word < words; word += 32) {
        int row = thread / 32;
        unsigned *line = to->words + row * row_words_most + word;
        int64_t byte = first + row * pixels.row_bytes;
#pragma unroll 2
        for (; row < image_rows; row += rows_at_once) {
            const int64_t begin = (byte & ~INT64_C(3)) + 4 * word;
            const bool there = (unsigned)(top + row) < (unsigned)pixels.image.height;
            if (there && inside)
                copy_4(line, pixels.bytes + begin);
            else if (there)
                bring_edge(pixels.bytes, pixels.byte_count, begin, line);
            byte += rows_at_once * pixels.row_bytes;
            line += rows_at_once * row_words_most;
        }
    }
}

/* Makes numbers of the bytes below a tile, zeros outside the image. A thread stays in its column, if it has
 * one. Channels that there are not become 0, for so are their constants. */
template <typename T, int Imagers>
__device__ void make_numbers(const Pixels &pixels, const Tile &at, int thread, const ByteSlot &from,
                             Numbers *to)
{
    constexpr int rows_at_once = Imagers / image_columns;
    const int first = thread / image_columns, column = thread % image_columns;
    const int top = 2 * at.row - padding, left = 2 * at.column - padding;
    const uint8_t *bytes = reinterpret_cast<const uint8_t *>(from.words) + column * pixels.image.channels;
    const bool is_column = (unsigned)(left + column) < (unsigned)pixels.image.width;
    if (first >= rows_at_once)
        return;
    unsigned begin = (unsigned)first_byte(pixels, at) + (unsigned)(first * pixels.row_bytes);
#pragma unroll 4
    for (int row = first; row < image_rows; row += rows_at_once) {
        const bool there = is_column && (unsigned)(top + row) < (unsigned)pixels.image.height;
        const uint8_t *pixel = bytes + row * row_words_most * 4 + begin % 4;
        float numbers[pixel_channels];
#pragma unroll
        for (int c = 0; c < pixel_channels; c++)
            numbers[c] = number_of(pixel[c], pixels.constants, c);
        const Raw<T, pixel_channels> raw = pack<T, pixel_channels>(numbers);
        to->pixels[row * image_pitch + column] =
            make_uint2(there ? raw.words[0] : 0, there ? raw.words[1] : 0);
        begin += (unsigned)(rows_at_once * pixels.row_bytes);
    }
}

/* What imagers do: `stages` of numbers are filled in turn, numbers_of(stage) being where. Copies are a tile
 * ahead, in the slot that all have left before they met. Barriers full and full + 1, free and free + 1 are
 * those of stages: of all threads, and met that of imagers. show() lets others see what a thread has
 * written. */
template <typename T, int Imagers, int Threads, typename NumbersOf, typename Show>
__device__ void make_images(const Pixels &pixels, const Tiles &tiles, int stages, int thread,
                            ByteSlot *memory, int full, int free, int met, NumbersOf numbers_of, Show show)
{
    Walk walk(tiles.count, stages);
    Tile at = tiles.at(walk.index);
    bring_bytes<Imagers>(pixels, at, thread, &memory[0]);
    for (; walk.has(0); walk.go_on()) {
        const Tile then = tiles.at(walk.has(1) ? walk.index + walk.step : walk.index);
        copies_close();
        copies_wait<0>();
        wait_for<Imagers>(met);
        if (walk.has(1))
            bring_bytes<Imagers>(pixels, then, thread, &memory[walk.slot() ^ 1]);
        if (walk.count >= stages)
            wait_for<Threads>(free + walk.stage());
        make_numbers<T, Imagers>(pixels, at, thread, memory[walk.slot()], numbers_of(walk.stage()));
        show();
        arrive_at<Threads>(full + walk.stage());
        at = then;
    }
}

} // namespace stem
} // namespace fshard

#endif
