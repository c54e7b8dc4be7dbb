/* boxes.cu - operations that move values unchanged: boxes of images, concatenation of channels, pixels to
 * channels and back.
 *
 * Each thread writes one 16-byte vector of the result (in a pixel shuffle by two: four), padding included.
 * Each value is read and written once; memory is the bound. If channels stay within their vectors, whole
 * vectors are read; else single elements, from the cache. */
#include "trainer/backend/cuda/kernels/kernels_channel.h"
#include "trainer/backend/cuda/kernels/kernels_common.cuh"

#include <initializer_list>
#include <type_traits>

using namespace fshard;

namespace
{

/* An image. Values are never computed with: Bits is an integer of their size. */
template <typename Bits> struct Image {
    Bits *data;
    unsigned height, width, channels, pitch;

    __device__ Bits *pixel(unsigned n, unsigned h, unsigned w) const
    {
        return data + (((int64_t)n * height + h) * width + w) * pitch;
    }
};

template <typename Bits> Image<Bits> image_of(const DeviceTensor *tensor)
{
    return {static_cast<Bits *>(tensor->data), (unsigned)tensor->shape[1], (unsigned)tensor->shape[2],
            (unsigned)tensor->shape[3], (unsigned)tensor->pitch};
}

/* Calls launch(bits, width) with the type of an element's bits and the elements of one access: whole vectors
 * in narrow images, and in f32 images if `f32_fits`. */
template <typename Launch> cudaError_t with_bits(ElementType element, bool f32_fits, Launch launch)
{
    if (element_is_narrow(element))
        launch(uint16_t{}, std::integral_constant<int, 8>{});
    else if (element == ELEMENT_F32 && f32_fits)
        launch(uint32_t{}, std::integral_constant<int, 4>{});
    else if (element == ELEMENT_F32)
        launch(uint32_t{}, std::integral_constant<int, 1>{});
    else
        return cudaErrorNotSupported;
    return cudaGetLastError();
}

template <int Width, typename Bits> __device__ Pack<Bits, Width> load_pack(const Bits *from)
{
    return *reinterpret_cast<const Pack<Bits, Width> *>(from);
}

template <int Width, typename Bits> __device__ void store_pack(Bits *to, const Pack<Bits, Width> &pack)
{
    *reinterpret_cast<Pack<Bits, Width> *>(to) = pack;
}

/* Calls move.at<Width>(n, h, w, c) for each vector of each pixel, c being its first channel: height x width x
 * columns of them in each image. */
template <int Width, typename Move>
__global__ void __launch_bounds__(block_threads)
    move_kernel(unsigned images, unsigned height, unsigned width, unsigned columns,
                const __grid_constant__ Move move)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= height * width * columns)
        return;
    unsigned pixel = i / columns, h = pixel / width;
    for (unsigned n = blockIdx.y; n < images; n += gridDim.y)
        move.template at<Width>(n, h, pixel - h * width, (i - pixel * columns) * Width);
}

template <int Width, typename Move>
void move_images(int64_t images, unsigned height, unsigned width, unsigned columns, const Move &move,
                 cudaStream_t stream)
{
    constexpr int64_t grid_y_max = 65535;
    int64_t vectors = (int64_t)height * width * columns;
    dim3 grid((unsigned)((vectors + block_threads - 1) / block_threads),
              (unsigned)(images < grid_y_max ? images : grid_y_max));
    move_kernel<Width><<<grid, block_threads, 0, stream>>>((unsigned)images, height, width, columns, move);
}

/* Computes y[n, h, w, c] = x[n, h, w, c + shift] inside x, else 0. Whole: shift is a multiple of the
 * vector. */
template <bool Whole, typename Bits> struct Box {
    Image<Bits> x, y;
    int shift;

    template <int Width> __device__ void at(unsigned n, unsigned h, unsigned w, unsigned c) const
    {
        int from = (int)c + shift;
        int inside = min((int)x.channels - from, (int)y.channels - (int)c); /* how many elements lie inside,
                                                                             * from the first on */
        Pack<Bits, Width> pack = {};
        if (h < x.height && w < x.width) {
            const Bits *pixel = x.pixel(n, h, w);
            if constexpr (Whole) {
                if (from >= 0 && inside > 0)
                    pack = load_pack<Width>(pixel + from);
            }
#pragma unroll
            for (int k = 0; k < Width; k++) {
                if constexpr (Whole)
                    pack.values[k] = k < inside ? pack.values[k] : (Bits)0;
                else if (from + k >= 0 && k < inside)
                    pack.values[k] = pixel[from + k];
            }
        }
        store_pack(y.pixel(n, h, w) + c, pack);
    }
};

/* Concatenates channels. Whole: a's channels are whole vectors, so b's padding becomes y's. */
template <bool Whole, typename Bits> struct Concat {
    Image<Bits> a, b, y;

    template <int Width> __device__ void at(unsigned n, unsigned h, unsigned w, unsigned c) const
    {
        const Bits *from_a = a.pixel(n, h, w), *from_b = b.pixel(n, h, w);
        Pack<Bits, Width> pack = {};
        if constexpr (Whole) {
            pack = load_pack<Width>(c < a.channels ? from_a + c : from_b + (c - a.channels));
        } else {
#pragma unroll
            for (unsigned k = 0; k < Width; k++)
                if (c + k < a.channels)
                    pack.values[k] = from_a[c + k];
                else if (c + k < y.channels)
                    pack.values[k] = from_b[c + k - a.channels];
        }
        store_pack(y.pixel(n, h, w) + c, pack);
    }
};

/* Shuffles by any factor and with any channels, element by element. */
template <typename Bits> struct Shuffle {
    Image<Bits> x, y;
    unsigned r;

    template <int Width> __device__ void at(unsigned n, unsigned h, unsigned w, unsigned c) const
    {
        const Bits *pixel = x.pixel(n, h / r, w / r);
        unsigned place = h % r * r + w % r;
        Pack<Bits, Width> pack = {};
#pragma unroll
        for (unsigned k = 0; k < Width; k++)
            if (c + k < y.channels)
                pack.values[k] = pixel[(c + k) * r * r + place];
        store_pack(y.pixel(n, h, w) + c, pack);
    }
};

template <typename Bits> struct Unshuffle {
    Image<Bits> x, y;
    unsigned r;

    template <int Width> __device__ void at(unsigned n, unsigned h, unsigned w, unsigned c) const
    {
        Pack<Bits, Width> pack = {};
#pragma unroll
        for (unsigned k = 0; k < Width; k++) {
            unsigned row = (c + k) / r, channel = row / r; /* c + k = (channel * r + i) * r + j */
            if (c + k < y.channels)
                pack.values[k] = x.pixel(n, h * r + (row - channel * r), w * r + (c + k - row * r))[channel];
        }
        store_pack(y.pixel(n, h, w) + c, pack);
    }
};

/* Shuffles by two, in either direction, if the large image's channels are whole vectors: of a pixel of the
 * small image a thread takes the 4 Width channels that make one vector in each of four pixels of the large
 * image. c counts the large image's channels. */
template <bool Forward, typename Bits> struct ShuffleByTwo {
    Image<Bits> small, large;

    template <int Width> __device__ void at(unsigned n, unsigned h, unsigned w, unsigned c) const
    {
        Bits *in_small = small.pixel(n, h, w) + 4 * c;
        Pack<Bits, Width> packs[4], moved[4];
#pragma unroll
        for (unsigned v = 0; v < 4; v++)
            packs[v] = load_pack<Width>(Forward ? in_small + v * Width
                                                : large.pixel(n, 2 * h + v / 2, 2 * w + v % 2) + c);
#pragma unroll
        for (int k = 0; k < Width; k++)
#pragma unroll
            for (int place = 0; place < 4; place++) {
                int in_pixel = 4 * k + place;
                if constexpr (Forward)
                    moved[place].values[k] = packs[in_pixel / Width].values[in_pixel % Width];
                else
                    moved[in_pixel / Width].values[in_pixel % Width] = packs[place].values[k];
            }
#pragma unroll
        for (unsigned v = 0; v < 4; v++)
            store_pack(Forward ? large.pixel(n, 2 * h + v / 2, 2 * w + v % 2) + c : in_small + v * Width,
                       moved[v]);
    }
};

/* Returns whether the images have one type and few enough elements for the kernels' indices. */
bool images_fit(std::initializer_list<const DeviceTensor *> images)
{
    const DeviceTensor *first = *images.begin();
    for (const DeviceTensor *image : images)
        if (image->rank != 4 || image->element != first->element || image->shape[0] != first->shape[0] ||
            image->shape[0] > INT32_MAX || image->rows / image->shape[0] * image->pitch > INT32_MAX)
            return false;
    return true;
}

cudaError_t move_box(const DeviceTensor *x, int64_t shift, const DeviceTensor *y, cudaStream_t stream)
{
    if (!images_fit({x, y}))
        return cudaErrorNotSupported;
    bool f32_fits = x->pitch % 4 == 0 && y->pitch % 4 == 0 && shift % 4 == 0;
    return with_bits(y->element, f32_fits, [&](auto zero, auto width) {
        using Bits = decltype(zero);
        constexpr int Width = decltype(width)::value;
        Image<Bits> from = image_of<Bits>(x), to = image_of<Bits>(y);
        if (shift % Width == 0)
            move_images<Width>(y->shape[0], to.height, to.width, to.pitch / Width,
                               Box<true, Bits>{from, to, (int)shift}, stream);
        else
            move_images<Width>(y->shape[0], to.height, to.width, to.pitch / Width,
                               Box<false, Bits>{from, to, (int)shift}, stream);
    });
}

/* Launches a pixel shuffle or unshuffle. */
cudaError_t shuffle(const DeviceTensor *x, int64_t r, const DeviceTensor *y, bool forward,
                    cudaStream_t stream)
{
    const DeviceTensor *small = forward ? x : y, *large = forward ? y : x;
    if (!images_fit({x, y}) || r < 1 || small->shape[3] != large->shape[3] * r * r ||
        large->shape[1] != small->shape[1] * r || large->shape[2] != small->shape[2] * r)
        return cudaErrorNotSupported;
    return with_bits(y->element, large->shape[3] % 4 == 0, [&](auto zero, auto width) {
        using Bits = decltype(zero);
        constexpr int Width = decltype(width)::value;
        Image<Bits> from = image_of<Bits>(x), to = image_of<Bits>(y);
        if (r == 2 && large->shape[3] % Width == 0) {
            Image<Bits> few = forward ? from : to, many = forward ? to : from;
            if (forward)
                move_images<Width>(y->shape[0], few.height, few.width, many.pitch / Width,
                                   ShuffleByTwo<true, Bits>{few, many}, stream);
            else
                move_images<Width>(y->shape[0], few.height, few.width, many.pitch / Width,
                                   ShuffleByTwo<false, Bits>{few, many}, stream);
        } else if (forward) {
            move_images<Width>(y->shape[0], to.height, to.width, to.pitch / Width,
                               Shuffle<Bits>{from, to, (unsigned)r}, stream);
        } else {
            move_images<Width>(y->shape[0], to.height, to.width, to.pitch / Width,
                               Unshuffle<Bits>{from, to, (unsigned)r}, stream);
        }
    });
}

} // namespace

extern "C" cudaError_t kernel_zero_pad(const DeviceTensor *x, int64_t first_channel, const DeviceTensor *y,
                                       cudaStream_t stream)
{
    return move_box(x, -first_channel, y, stream);
}

extern "C" cudaError_t kernel_crop(const DeviceTensor *x, int64_t first_channel, const DeviceTensor *y,
                                   cudaStream_t stream)
{
    return move_box(x, first_channel, y, stream);
}

extern "C" cudaError_t kernel_concat(const DeviceTensor *a, const DeviceTensor *b, const DeviceTensor *y,
                                     cudaStream_t stream)
{
    if (!images_fit({a, b, y}))
        return cudaErrorNotSupported;
    bool f32_fits = a->pitch % 4 == 0 && b->pitch % 4 == 0;
    return with_bits(y->element, f32_fits, [&](auto zero, auto width) {
        using Bits = decltype(zero);
        constexpr int Width = decltype(width)::value;
        Image<Bits> left = image_of<Bits>(a), right = image_of<Bits>(b), to = image_of<Bits>(y);
        if (left.channels % Width == 0)
            move_images<Width>(y->shape[0], to.height, to.width, to.pitch / Width,
                               Concat<true, Bits>{left, right, to}, stream);
        else
            move_images<Width>(y->shape[0], to.height, to.width, to.pitch / Width,
                               Concat<false, Bits>{left, right, to}, stream);
    });
}

extern "C" cudaError_t kernel_pixel_shuffle(const DeviceTensor *x, int64_t r, const DeviceTensor *y,
                                            cudaStream_t stream)
{
    return shuffle(x, r, y, true, stream);
}

extern "C" cudaError_t kernel_pixel_unshuffle(const DeviceTensor *x, int64_t r, const DeviceTensor *y,
                                              cudaStream_t stream)
{
    return shuffle(x, r, y, false, stream);
}
