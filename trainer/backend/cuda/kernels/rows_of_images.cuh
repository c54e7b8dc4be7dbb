/* rows_of_images.cuh - the passes of rows.cuh over images one by one: a block's rows are of one image, so
 * that what is known of its channels may differ from image to image, and sums are of each. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ROWS_OF_IMAGES_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ROWS_OF_IMAGES_CUH

#include "trainer/backend/cuda/kernels/rows.cuh"

namespace fshard
{

/* Each image is divided into strips of rows; a block has a strip and blocks_x-th of the channels. */
struct ImageDeal {
    int64_t rows, rows_per_strip; /* of an image */
    unsigned images, strips;      /* strips of an image */
    int pitch;
    unsigned threads_x, threads_y, blocks_x;
};

/* Returns a division with at least `least` lines in a strip, at most `most` lines, and else as many strips as
 * give every multiprocessor several blocks. */
inline ImageDeal deal_images(const DeviceTensor *x, int width, int64_t least, int64_t most)
{
    constexpr int64_t blocks_wanted = 8 * multiprocessors;
    const Deal d = deal(x, width);
    const int64_t images = x->shape[0], rows = d.rows / images;
    const int64_t lines = (rows + d.threads_y - 1) / d.threads_y;
    const int64_t blocks = images * d.blocks_x;
    int64_t strips = (blocks_wanted + blocks - 1) / blocks;
    const int64_t strips_most = (lines + least - 1) / least, strips_least = (lines + most - 1) / most;
    strips = strips < strips_most ? strips : strips_most;
    strips = strips > strips_least ? strips : strips_least;
    ImageDeal deal = {};
    deal.rows = rows;
    deal.rows_per_strip = (lines + strips - 1) / strips * d.threads_y;
    deal.images = (unsigned)images;
    deal.strips = (unsigned)((rows + deal.rows_per_strip - 1) / deal.rows_per_strip);
    deal.pitch = d.pitch;
    deal.threads_x = d.threads_x;
    deal.threads_y = d.threads_y;
    deal.blocks_x = d.blocks_x;
    return deal;
}

/* Returns the division for sums: each makes numbers that are joined afterwards. */
inline ImageDeal deal_image_sums(const DeviceTensor *x, int width)
{
    return deal_images(x, width, 8, INT64_MAX / 2);
}

inline unsigned image_blocks(const ImageDeal &d)
{
    return d.blocks_x * d.strips * d.images;
}

/* Where a block works. */
struct ImagePlace {
    int64_t image, first, end; /* rows, counted over all images */
};

__device__ inline ImagePlace image_place(const ImageDeal &d, unsigned piece)
{
    const int64_t image = piece / d.strips, of_image = (int64_t)(piece % d.strips) * d.rows_per_strip;
    const int64_t end = of_image + d.rows_per_strip;
    return {image, image * d.rows + of_image, image * d.rows + (end < d.rows ? end : d.rows)};
}

/* Runs a Map whose Columns are made by map.columns<Width>(c, image). */
template <int Width, int Unroll, typename Map>
__global__ void __launch_bounds__(block_threads, 2) image_map_kernel(const Map map, const ImageDeal d)
{
    const int c = (int)((blockIdx.x % d.blocks_x) * d.threads_x + threadIdx.x) * Width;
    if (c >= d.pitch)
        return;
    const ImagePlace place = image_place(d, blockIdx.x / d.blocks_x);
    const auto columns = map.template columns<Width>(c, place.image);
    for (int64_t row = place.first + threadIdx.y; row < place.end; row += (int64_t)Unroll * d.threads_y) {
        typename Map::template Row<Width> rows[Unroll];
#pragma unroll
        for (int u = 0; u < Unroll; u++) {
            const int64_t at = row + (int64_t)u * d.threads_y;
            if (at < place.end)
                rows[u].read(map, Spot{at, at * d.pitch + c, c});
        }
#pragma unroll
        for (int u = 0; u < Unroll; u++) {
            const int64_t at = row + (int64_t)u * d.threads_y;
            if (at < place.end)
                map.write(columns, rows[u], at * d.pitch + c);
        }
    }
}

template <typename T, int Unroll, typename Map>
void run_image_map(const Map &map, const DeviceTensor *x, cudaStream_t stream)
{
    constexpr int64_t lines_most = 16;
    const int width = width_for<T>(x);
    const ImageDeal d = deal_images(x, width, Unroll, lines_most);
    const dim3 block(d.threads_x, d.threads_y);
    if constexpr (sizeof(T) != 2)
        if (width == 1) {
            image_map_kernel<1, Unroll, Map><<<image_blocks(d), block, 0, stream>>>(map, d);
            return;
        }
    image_map_kernel<vector_width<T>, Unroll, Map><<<image_blocks(d), block, 0, stream>>>(map, d);
}

/* Computes the sums of a Term over each strip, from the last image to the first: partial [images, strips,
 * sums, pitch], which finish_sums joins to those of all images. */
template <int Width, typename Term>
__global__ void __launch_bounds__(block_threads, Term::resident)
    image_sums_kernel(const Term term, const ImageDeal d, float *partial)
{
    constexpr int sums = Term::sums, unroll = Term::unroll;
    const unsigned piece = d.images * d.strips - 1 - blockIdx.x / d.blocks_x;
    const int c = (int)((blockIdx.x % d.blocks_x) * d.threads_x + threadIdx.x) * Width;
    float sum[sums][Width] = {};
    if (c < d.pitch) {
        const ImagePlace place = image_place(d, piece);
        const typename Term::template Columns<Width> columns(term, c);
        for (int64_t row = place.first + threadIdx.y; row < place.end; row += (int64_t)unroll * d.threads_y) {
            typename Term::template Row<Width> rows[unroll];
#pragma unroll
            for (int u = 0; u < unroll; u++) {
                const int64_t at = row + (int64_t)u * d.threads_y;
                if (at < place.end)
                    rows[u].read(term, Spot{at, at * d.pitch + c, c});
            }
#pragma unroll
            for (int u = 0; u < unroll; u++) {
                const int64_t at = row + (int64_t)u * d.threads_y;
                if (at < place.end)
                    term.add(columns, rows[u], at * d.pitch + c, sum);
            }
        }
    }
    leave_partial(sum, d.threads_x, d.threads_y, c, d.pitch, partial + (int64_t)piece * sums * d.pitch);
}

template <typename T, typename Term>
void sum_images(const Term &term, const DeviceTensor *x, void *scratch, cudaStream_t stream)
{
    const int width = width_for<T>(x);
    const ImageDeal d = deal_image_sums(x, width);
    const dim3 block(d.threads_x, d.threads_y);
    float *partial = static_cast<float *>(scratch);
    if constexpr (sizeof(T) != 2)
        if (width == 1) {
            image_sums_kernel<1, Term><<<image_blocks(d), block, 0, stream>>>(term, d, partial);
            return;
        }
    image_sums_kernel<vector_width<T>, Term><<<image_blocks(d), block, 0, stream>>>(term, d, partial);
}

/* Partial sums of images as a kernel reads them. */
struct ImageSums {
    const float *partial;
    unsigned strips;
    int pitch;
    /* Returns sum s of `sums` of a channel of an image. */
    __device__ double of(int64_t image, int s, int sums, int c) const
    {
        double sum = 0;
        for (unsigned strip = 0; strip < strips; strip++)
            sum += (double)partial[((image * strips + strip) * sums + s) * pitch + c];
        return sum;
    }
};

} // namespace fshard

#endif
