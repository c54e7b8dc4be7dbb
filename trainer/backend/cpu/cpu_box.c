#include "trainer/backend/cpu/cpu_internal.h"

#include <string.h>

/* Returns the bytes of one element. */
static size_t element_bytes(const Tensor *tensor)
{
    return data_type_bytes(tensor->type);
}

/* Copies the channels of some pixels; strides in bytes. */
static void copy_pixels(char *to, size_t to_stride, const char *from, size_t from_stride, size_t pixel_bytes,
                        int64_t pixels)
{
    if (to_stride == pixel_bytes && from_stride == pixel_bytes) {
        memcpy(to, from, pixel_bytes * (size_t)pixels);
        return;
    }
    for (int64_t i = 0; i < pixels; i++, to += to_stride, from += from_stride)
        memcpy(to, from, pixel_bytes);
}

/* ---- zero pad, crop, concat: one row of an image at a time ---- */

static void zero_pad_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const Tensor *x = cpu_input(step, 0), *y = cpu_output(step, 0);
    const size_t bytes = element_bytes(x);
    const size_t x_pixel = (size_t)x->shape[3] * bytes, y_pixel = (size_t)y->shape[3] * bytes;
    const size_t x_row = (size_t)x->shape[2] * x_pixel, y_row = (size_t)y->shape[2] * y_pixel;
    (void)part;
    for (int64_t i = begin; i < end; i++) {
        const int64_t image = i / y->shape[1], row = i % y->shape[1];
        char *to = (char *)step->outputs[0] + (size_t)i * y_row;
        if (row >= x->shape[1] || x_pixel != y_pixel)
            memset(to, 0, y_row);
        else
            memset(to + x_row, 0, y_row - x_row);
        if (row < x->shape[1])
            copy_pixels(to + (size_t)step->node->as.box.first_channel * bytes, y_pixel,
                        (const char *)step->inputs[0] + (size_t)(image * x->shape[1] + row) * x_row, x_pixel,
                        x_pixel, x->shape[2]);
    }
}

static FshStatus zero_pad_run(CpuStep *step, FshError *error)
{
    const Tensor *y = cpu_output(step, 0);
    (void)error;
    cpu_parallel(step->program->backend, y->shape[0] * y->shape[1], zero_pad_part, step);
    return FSH_OK;
}

static void crop_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const Tensor *x = cpu_input(step, 0), *y = cpu_output(step, 0);
    const size_t bytes = element_bytes(x);
    const size_t x_pixel = (size_t)x->shape[3] * bytes, y_pixel = (size_t)y->shape[3] * bytes;
    (void)part;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i / y->shape[1] * x->shape[1] + i % y->shape[1];
        copy_pixels((char *)step->outputs[0] + (size_t)(i * y->shape[2]) * y_pixel, y_pixel,
                    (const char *)step->inputs[0] + (size_t)(row * x->shape[2]) * x_pixel +
                        (size_t)step->node->as.box.first_channel * bytes,
                    x_pixel, y_pixel, y->shape[2]);
    }
}

static FshStatus crop_run(CpuStep *step, FshError *error)
{
    const Tensor *y = cpu_output(step, 0);
    (void)error;
    cpu_parallel(step->program->backend, y->shape[0] * y->shape[1], crop_part, step);
    return FSH_OK;
}

static void concat_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const Tensor *y = cpu_output(step, 0);
    const size_t bytes = element_bytes(y), y_pixel = (size_t)y->shape[3] * bytes;
    char *to = (char *)step->outputs[0] + (size_t)begin * y_pixel;
    (void)part;
    for (int k = 0; k < 2; k++) {
        const size_t pixel = (size_t)cpu_input(step, k)->shape[3] * bytes;
        copy_pixels(to, y_pixel, (const char *)step->inputs[k] + (size_t)begin * pixel, pixel, pixel,
                    end - begin);
        to += pixel;
    }
}

static FshStatus concat_run(CpuStep *step, FshError *error)
{
    const Tensor *y = cpu_output(step, 0);
    (void)error;
    cpu_parallel(step->program->backend, tensor_count(y) / y->shape[3], concat_part, step);
    return FSH_OK;
}

/* ---- pixel shuffle: for one row of the small image ---- */

/* Copies one pixel of the small image, [channels, r * r], from or to its r x r pixels [channels] of the large
 * one. stride: between rows of the large image, in elements. */
static void shuffle_u32(const uint32_t *from, uint32_t *to, int64_t channels, int64_t r, int64_t stride)
{
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < r; j++)
            for (int64_t c = 0; c < channels; c++)
                to[i * stride + j * channels + c] = from[(c * r + i) * r + j];
}

static void unshuffle_u32(const uint32_t *from, uint32_t *to, int64_t channels, int64_t r, int64_t stride)
{
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < r; j++)
            for (int64_t c = 0; c < channels; c++)
                to[(c * r + i) * r + j] = from[i * stride + j * channels + c];
}

static void shuffle_u16(const uint16_t *from, uint16_t *to, int64_t channels, int64_t r, int64_t stride)
{
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < r; j++)
            for (int64_t c = 0; c < channels; c++)
                to[i * stride + j * channels + c] = from[(c * r + i) * r + j];
}

static void unshuffle_u16(const uint16_t *from, uint16_t *to, int64_t channels, int64_t r, int64_t stride)
{
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < r; j++)
            for (int64_t c = 0; c < channels; c++)
                to[(c * r + i) * r + j] = from[i * stride + j * channels + c];
}

static void shuffle_part(void *context, int part, int64_t begin, int64_t end)
{
    const CpuStep *step = context;
    const bool forward = step->node->op == OP_PIXEL_SHUFFLE;
    const Tensor *small = forward ? cpu_input(step, 0) : cpu_output(step, 0);
    const int64_t r = step->node->as.shuffle.factor, width = small->shape[2];
    const int64_t channels = small->shape[3] / (r * r), stride = width * r * channels;
    const size_t bytes = element_bytes(small);
    (void)part;
    for (int64_t row = begin; row < end; row++)
        for (int64_t column = 0; column < width; column++) {
            /* Rows of all images follow each other: row `row` of the small ones is rows row * r, … of the
             * large. */
            const size_t in_small = (size_t)((row * width + column) * small->shape[3]) * bytes;
            const size_t in_large = (size_t)(row * r * stride + column * r * channels) * bytes;
            const char *from = (const char *)step->inputs[0] + (forward ? in_small : in_large);
            char *to = (char *)step->outputs[0] + (forward ? in_large : in_small);
            if (forward && bytes == sizeof(uint32_t))
                shuffle_u32((const uint32_t *)(const void *)from, (uint32_t *)(void *)to, channels, r,
                            stride);
            else if (forward)
                shuffle_u16((const uint16_t *)(const void *)from, (uint16_t *)(void *)to, channels, r,
                            stride);
            else if (bytes == sizeof(uint32_t))
                unshuffle_u32((const uint32_t *)(const void *)from, (uint32_t *)(void *)to, channels, r,
                              stride);
            else
                unshuffle_u16((const uint16_t *)(const void *)from, (uint16_t *)(void *)to, channels, r,
                              stride);
        }
}

static FshStatus pixel_shuffle_run(CpuStep *step, FshError *error)
{
    const Tensor *small = step->node->op == OP_PIXEL_SHUFFLE ? cpu_input(step, 0) : cpu_output(step, 0);
    (void)error;
    cpu_parallel(step->program->backend, small->shape[0] * small->shape[1], shuffle_part, step);
    return FSH_OK;
}

const CpuOp cpu_ops_box[] = {
    {OP_ZERO_PAD, .run = zero_pad_run},
    {OP_CROP, .run = crop_run},
    {OP_CONCAT, .run = concat_run},
    {OP_PIXEL_SHUFFLE, .run = pixel_shuffle_run},
    {OP_PIXEL_UNSHUFFLE, .run = pixel_shuffle_run},
    {OP_KIND_COUNT, NULL, NULL},
};
