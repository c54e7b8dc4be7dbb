/* norm_pool.cuh - the gradient of a batch norm and a max pool of its result, pixel by pixel. For norm_pool.cu
 * and stem_gradient.cu.
 *
 * Windows begin at every second pixel, so the pixels of a square, rows 2 q and 2 q + 1, columns 2 w and 2 w +
 * 1, are in windows (q, w) to (q + 1, w + 1) where there is a padding, and in (q, w) alone where there is
 * none. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_NORM_POOL_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_NORM_POOL_CUH

#include "trainer/backend/cuda/kernels/batch_norm_operands.cuh"
#include "trainer/backend/cuda/kernels/kernels_norm_pool.h"
#include "trainer/backend/cuda/kernels/window_places.cuh"

namespace fshard
{
namespace norm_pool
{

using window::Image;

/* The operands of OP_NORM_POOL_BACKWARD. */
template <typename T> struct PoolGradient {
    Norm norm;
    const float *dweight, *dbias;
    double inverse_rows;
    const T *g, *x;
    const uint8_t *index;
    Image in, out;
};

template <typename T>
PoolGradient<T> pool_gradient(const DeviceTensor *g, const DeviceTensor *index, const NormTensors *tensors,
                              const DeviceTensor *dweight, const DeviceTensor *dbias)
{
    const NormActivation none = {};
    return {norm_of(tensors, &none),
            data_of<const float>(dweight),
            data_of<const float>(dbias),
            1 / (double)device_tensor_rows(tensors->x),
            data_of<const T>(g),
            data_of<const T>(tensors->x),
            data_of<const uint8_t>(index),
            window::image_of(tensors->x),
            window::image_of(g)};
}

/* Returns a word of bytes that are all ones or all zeros: byte b of it as the highest bit of byte `nibble b
 * of Bytes` - 8 of the word. Source: PTX ISA, "prmt", where the highest bit of a nibble asks for signs. */
template <unsigned Bytes> __device__ inline unsigned signs_of(unsigned word)
{
    unsigned signs;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(signs) : "r"(word), "n"(Bytes));
    return signs;
}

/* dx = from_g * G + from_x * x + constant, for 16 bytes of channels. */
template <typename T> struct GradientColumns {
    float from_g[vector_width<T>], from_x[vector_width<T>], constant[vector_width<T>];
    __device__ GradientColumns(const PoolGradient<T> &of, int c)
    {
        constexpr int width = vector_width<T>;
        float mean[width], inverse[width], dweight[width], dbias[width];
        load(of.norm.weight + c, from_g);
        load(of.norm.mean + c, mean);
        load(of.norm.inverse_deviation + c, inverse);
        load(of.dweight + c, dweight);
        load(of.dbias + c, dbias);
#pragma unroll
        for (int k = 0; k < width; k++) {
            from_g[k] *= inverse[k];
            gradient_of(from_g[k], mean[k], inverse[k], dweight[k], dbias[k], of.inverse_rows, &from_x[k],
                        &constant[k]);
        }
    }
};

/* Returns values where the index of their window is `place`, and 0 elsewhere. */
template <typename T>
__device__ Raw<T, vector_width<T>> kept_at(unsigned place, const Raw<T, vector_width<T>> &values,
                                           const Raw<uint8_t, vector_width<T>> &index)
{
    Raw<T, vector_width<T>> kept;
#pragma unroll
    for (int word = 0; word < vector_width<T> / 4; word++) {
        /* Indices and places are below 128: 128 less what sets them apart has the highest bit only where they
         * are equal, and no byte borrows. */
        const unsigned match = 0x80808080U - (index.words[word] ^ place * 0x01010101U);
        if constexpr (sizeof(T) == 2) {
            kept.words[2 * word] = values.words[2 * word] & signs_of<0x9988>(match);
            kept.words[2 * word + 1] = values.words[2 * word + 1] & signs_of<0xBBAA>(match);
        } else {
            kept.words[0] = values.words[0] & signs_of<0x8888>(match);
            kept.words[1] = values.words[1] & signs_of<0x9999>(match);
            kept.words[2] = values.words[2] & signs_of<0xAAAA>(match);
            kept.words[3] = values.words[3] & signs_of<0xBBBB>(match);
        }
    }
    return kept;
}

/* What a thread has of windows next to each other. One that is not there is zeros. */
template <typename T, int Count> struct Windows {
    static constexpr int width = vector_width<T>;
    Raw<T, width> g[Count];
    Raw<uint8_t, width> index[Count];
    /* Reads windows (h, w) to (h, w + Count - 1) of image n, from channel c on. */
    __device__ void read(const PoolGradient<T> &of, int n, int h, int w, int c)
    {
#pragma unroll
        for (int i = 0; i < Count; i++) {
            const bool there = of.out.has(h, w + i);
            const int64_t from = of.out.element(n, h, w + i, c);
            g[i] = Raw<T, width>{};
            index[i] = Raw<uint8_t, width>{};
            if (there)
                g[i] = fetch<T, width>(of.g + from);
            if (there)
                index[i] = fetch<uint8_t, width>(of.index + from);
        }
    }
    /* Adds what they have for the pixel in column 0 or 1 of the square below window 0, in their row kh. */
    template <int Kernel, int Padding> __device__ void add(int kh, int column, float (&sum)[width]) const
    {
#pragma unroll
        for (int i = 0; i < Count; i++) {
            const int kw = column + Padding - 2 * i;
            if (kh < 0 || kh >= Kernel || kw < 0 || kw >= Kernel)
                continue;
            float values[width];
            unpack(kept_at<T>((unsigned)(kh * Kernel + kw), g[i], index[i]), values);
#pragma unroll
            for (int k = 0; k < width; k++)
                sum[k] += values[k];
        }
    }
};

/* x of the pixels of square (q, w), those that there are. */
template <typename T> struct Square {
    Raw<T, vector_width<T>> x[4];
    __device__ void read(const PoolGradient<T> &of, int n, int q, int w, int c)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (of.in.has(2 * q + i / 2, 2 * w + i % 2))
                x[i] =
                    fetch_last<T, vector_width<T>>(of.x + of.in.element(n, 2 * q + i / 2, 2 * w + i % 2, c));
    }
    /* Returns dx of pixel i, with the windows of rows q and q + 1. */
    template <int Kernel, int Padding>
    __device__ Raw<T, vector_width<T>> gradient_of_pixel(int i, const Windows<T, Padding + 1> &line,
                                                         const Windows<T, Padding + 1> &below,
                                                         const GradientColumns<T> &columns) const
    {
        constexpr int width = vector_width<T>;
        float values[width], sum[width];
#pragma unroll
        for (int k = 0; k < width; k++)
            sum[k] = -0.0F; /* and v is v, so that the first addition is none */
        line.template add<Kernel, Padding>(i / 2 + Padding, i % 2, sum);
        if constexpr (Padding > 0)
            below.template add<Kernel, Padding>(i / 2 + Padding - 2, i % 2, sum);
        unpack(x[i], values);
#pragma unroll
        for (int k = 0; k < width; k++)
            values[k] =
                fmaf(columns.from_g[k], sum[k], fmaf(columns.from_x[k], values[k], columns.constant[k]));
        return pack<T, width>(values);
    }
};

} // namespace norm_pool
} // namespace fshard

#endif
