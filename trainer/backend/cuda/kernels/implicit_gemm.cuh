/* implicit_gemm.cuh - shared by implicit_gemm.cu and implicit_gemm_weight.cu, and in part by pixel_gemm.cu
 * and pixel_gemm_weight.cu: how images are cut into tiles, how tiles lie in shared memory, and how the copy
 * engine brings them there. Step by step: implicit_gemm.cu. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_IMPLICIT_GEMM_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_IMPLICIT_GEMM_CUH

#include <type_traits>

#include "trainer/backend/cuda/kernels/cluster.cuh"
#include "trainer/backend/cuda/kernels/kernels_implicit_gemm.h"
#include "trainer/backend/cuda/kernels/warpgroup.cuh"

namespace fshard
{
namespace implicit
{

constexpr int side = 8, square = side * side; /* of pixels, which are the rows of a product */
constexpr int piece = 8, piece_bytes = 16;    /* of channels */
constexpr int chunk = 64;                     /* channels that are brought at a time, */
constexpr int place_bytes = chunk * 2;        /* of each pixel */
constexpr int place_pieces = place_bytes / piece_bytes, pattern_bytes = 8 * place_bytes;
constexpr int sixteen = 16; /* what a product sums at a time */
constexpr int taps = 9, taps_across = 3;
constexpr int squares_most = 4;
/* The card that plans are made for: shapes alone decide them. */
constexpr int processors = 132;

/* What a tile covers: squares in so many rows and columns of them, of so many images. */
struct Cover {
    int images, rows, columns;
};

constexpr Cover covers[] = {{1, 1, 4}, {1, 2, 2}, {1, 4, 1}, {2, 1, 2}, {2, 2, 1},
                            {4, 1, 1}, {1, 1, 2}, {1, 2, 1}, {2, 1, 1}};

__host__ __device__ inline int squares_of(const Cover &cover)
{
    return cover.images * cover.rows * cover.columns;
}

/* How the pixels of a tile lie in shared memory, with so many around each image of it: as the rows of a right
 * operand (warpgroup.cuh), row by row, image by image. */
struct Places {
    int pitch, of_image, count; /* places from row to row, image to image; of all */
};

/* Returns how a tile lies, with so many pixels around each image of it. */
__host__ __device__ inline Places places_of(const Cover &cover, int border)
{
    const int pitch = side * cover.columns + 2 * border, of_image = (side * cover.rows + 2 * border) * pitch;
    return {pitch, of_image, cover.images * of_image};
}

/* Returns the bytes of a tile. */
__host__ __device__ inline int tile_bytes(const Cover &cover, int border)
{
    return places_of(cover, border).count * place_bytes;
}

/* Returns these bytes with what is left free behind them, so that the next tile begins where the exchange of
 * vectors does. */
__host__ __device__ inline int tile_room(const Cover &cover, int border)
{
    return (tile_bytes(cover, border) + pattern_bytes - 1) / pattern_bytes * pattern_bytes;
}

/* Returns the place at which a square of a tile begins, the border before it left out. */
__device__ inline int origin_of(const Cover &cover, const Places &places, int of_tile)
{
    const int within = of_tile % (cover.rows * cover.columns);
    return of_tile / (cover.rows * cover.columns) * places.of_image +
           within / cover.columns * side * places.pitch + within % cover.columns * side;
}

/* The tiles of all images: so many across and down an image. */
struct Tiles {
    Cover cover;
    int across, down, count;
};

inline int ceil_of(int64_t value, int64_t by)
{
    return (int)((value + by - 1) / by);
}

/* Returns the tiles of a cover. */
inline Tiles tiles_of(const DeviceTensor *image, const Cover &cover)
{
    const int across = ceil_of(image->shape[2], side * cover.columns),
              down = ceil_of(image->shape[1], side * cover.rows);
    return {cover, across, down, ceil_of(image->shape[0], cover.images) * across * down};
}

/* Where a tile begins. */
struct Corner {
    int image, row, column;
};

/* Returns where a tile begins; one behind the last begins in an image behind the last. */
__device__ inline Corner corner_of(const Tiles &tiles, int tile)
{
    const int of_image = tiles.across * tiles.down, within = tile % of_image;
    return {tile / of_image * tiles.cover.images, within / tiles.across * side * tiles.cover.rows,
            within % tiles.across * side * tiles.cover.columns};
}

/* Waits for all of the groups that compute, the first of a block. */
template <int Groups> __device__ void computers_meet()
{
    asm volatile("bar.sync 1, %0;" ::"n"(Groups * group_threads) : "memory");
}

/* Describes an image to the copy engine, in boxes of 64 channels of so many pixels. */
inline cudaError_t make_image_map(CUtensorMap *map, const DeviceTensor *image, int columns, int rows,
                                  int images)
{
    const cuuint64_t pixel = (cuuint64_t)image->pitch * sizeof(uint16_t), width = (cuuint64_t)image->shape[2],
                     height = (cuuint64_t)image->shape[1];
    return make_map<4>(map, image->element, image->data,
                       {(cuuint64_t)image->pitch, width, height, (cuuint64_t)image->shape[0]},
                       {pixel, pixel * width, pixel * width * height},
                       {chunk, (cuuint32_t)columns, (cuuint32_t)rows, (cuuint32_t)images});
}

/* The same, in boxes of a tile. */
inline cudaError_t make_tile_map(CUtensorMap *map, const DeviceTensor *image, const Cover &cover, int border)
{
    return make_image_map(map, image, side * cover.columns + 2 * border, side * cover.rows + 2 * border,
                          cover.images);
}

/* Calls launch with the number of columns as a constant: of the multiples of 16 up to Most, the least that
 * has as many. Begins at Columns. */
template <int Most, int Columns = 16, typename Launch> cudaError_t with_columns(int columns, Launch launch)
{
    if constexpr (Columns < Most)
        if (columns > Columns)
            return with_columns<Most, Columns + 16>(columns, launch);
    return launch(std::integral_constant<int, Columns>{});
}

/* Returns how many zeros around the images x, 0 to 2, give images of y's size; -1: none does. */
inline int padding_of(const DeviceTensor *x, const DeviceTensor *y)
{
    const int64_t more = y->shape[1] - x->shape[1] + taps_across - 1;
    const bool fits = more % 2 == 0 && more >= 0 && more < 2 * taps_across &&
                      y->shape[2] - x->shape[2] + taps_across - 1 == more;
    return fits ? (int)(more / 2) : -1;
}

/* Returns whether the tensor is narrow images, with some pixels. */
inline bool is_image(const DeviceTensor *tensor)
{
    return element_is_narrow(tensor->element) && tensor->rank == 4 && tensor->pitch % piece == 0 &&
           tensor->shape[0] > 0 && tensor->shape[1] > 0 && tensor->shape[2] > 0 &&
           device_tensor_stored(tensor) < (int64_t{1} << 31);
}

} // namespace implicit
} // namespace fshard

#endif
