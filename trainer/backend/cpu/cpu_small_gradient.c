#include "trainer/backend/cpu/cpu_internal.h"

#include <stdlib.h>
#include <string.h>

/* The weight gradient of a convolution over small images, as one matrix product for each tap of the kernel.
 *
 * oneDNN adds each image's share to the whole gradient: for 512 x 512 x 3 x 3 weights that is 9.4 MB read and
 * written for the four pixels of a 2 x 2 image. Here, for each tap, the pixels of all images that it joins
 * are gathered (a tap at the kernel's edge meets padding in half of them and is left out there), and
 * dweight[tap] = transpose(x gathered) * (dy gathered), [in, out]. The taps make [kernel, kernel, in, out],
 * which is converted to the weight's layout.
 *
 * resnet18, batch 64, one core, oneDNN 2.6.3 alone and so: 512 channels of 2 x 2 pixels 23.0 and 4.9 ms, of 3
 * x 3 pixels 26.3 and 11.3 ms, 256 channels of 4 x 4 pixels 7.8 and 6.1 ms (docs/measurements). */

enum { OUT_PIXELS_MAX = 16, CHANNELS_MIN = 64, VALUES_IN_LINE = 16 };

typedef struct Tap {
    DnnPrimitive *product; /* NULL: every pixel of it is padding */
    int64_t row, column;   /* in the kernel */
} Tap;

typedef struct SmallGradient {
    DnnConvolution convolution;
    int64_t x_values, dy_values,
        gradient_values; /* in scratch, one after the other; then the primitives' own */
    DnnPrimitive *conversion;
    int64_t tap_count;
    Tap taps[];
} SmallGradient;

bool cpu_small_gradient_wins(const CpuStep *step, const DnnConvolution *convolution)
{
    /* A kernel of one pixel is a single product to oneDNN, too. */
    return convolution->type == DATA_F32 && !step->outputs[CONV_WEIGHT_DBIAS] && convolution->kernel > 1 &&
           convolution->groups == 1 && convolution->out_height * convolution->out_width <= OUT_PIXELS_MAX &&
           convolution->in_channels >= CHANNELS_MIN && convolution->out_channels >= CHANNELS_MIN;
}

/* Returns how many output pixels have an input inside the image under this tap, along one axis. */
static int64_t pixels_inside(int64_t tap, int64_t in_size, int64_t out_size, const DnnConvolution *c)
{
    int64_t count = 0;
    for (int64_t out = 0; out < out_size; out++) {
        const int64_t in = out * c->stride + tap - c->padding;
        count += in >= 0 && in < in_size;
    }
    return count;
}

static int64_t whole_lines(int64_t values)
{
    return (values + VALUES_IN_LINE - 1) / VALUES_IN_LINE * VALUES_IN_LINE;
}

static void release(CpuStep *step)
{
    SmallGradient *plan = step->plan;
    for (int64_t i = 0; i < plan->tap_count; i++)
        dnn_primitive_free(&plan->taps[i].product);
    dnn_primitive_free(&plan->conversion);
}

static FshStatus bind_primitive(const CpuStep *step, DnnPrimitive *primitive, void *const *memories,
                                int count, FshError *error)
{
    const SmallGradient *plan = step->plan;
    float *own = (float *)step->program->scratch + plan->x_values + plan->dy_values + plan->gradient_values;
    FshStatus status = dnn_primitive_bind(primitive, memories, count, error);
    return status ? status : dnn_primitive_set_scratch(primitive, own, error);
}

static FshStatus bind_scratch(CpuStep *step, FshError *error)
{
    const SmallGradient *plan = step->plan;
    const DnnConvolution *c = &plan->convolution;
    float *x = (float *)step->program->scratch, *dy = x + plan->x_values, *gradient = dy + plan->dy_values;
    FshStatus status =
        bind_primitive(step, plan->conversion, (void *[]){gradient, step->outputs[0]}, 2, error);
    for (int64_t i = 0; !status && i < plan->tap_count; i++)
        if (plan->taps[i].product)
            status =
                bind_primitive(step, plan->taps[i].product,
                               (void *[]){x, dy, gradient + i * c->in_channels * c->out_channels}, 3, error);
    return status;
}

/* Copies what a tap joins: rows of x and dy, pixel by pixel, for images begin..end. */
typedef struct Gather {
    const CpuStep *step;
    const Tap *tap;
} Gather;

static void gather_part(void *context, int part, int64_t begin, int64_t end)
{
    const Gather *gather = context;
    const SmallGradient *plan = gather->step->plan;
    const DnnConvolution *c = &plan->convolution;
    const int64_t row = gather->tap->row, column = gather->tap->column;
    const int64_t pixels = pixels_inside(row, c->in_height, c->out_height, c) *
                           pixels_inside(column, c->in_width, c->out_width, c);
    float *x_to = (float *)gather->step->program->scratch + begin * pixels * c->in_channels;
    float *dy_to =
        (float *)gather->step->program->scratch + plan->x_values + begin * pixels * c->out_channels;
    (void)part;
    for (int64_t image = begin; image < end; image++)
        for (int64_t i = 0; i < c->out_height * c->out_width; i++) {
            const int64_t in_row = i / c->out_width * c->stride + row - c->padding;
            const int64_t in_column = i % c->out_width * c->stride + column - c->padding;
            if (in_row < 0 || in_row >= c->in_height || in_column < 0 || in_column >= c->in_width)
                continue;
            const int64_t x_pixel = (image * c->in_height + in_row) * c->in_width + in_column;
            const int64_t dy_pixel = image * c->out_height * c->out_width + i;
            memcpy(x_to, (const float *)gather->step->inputs[CONV_WEIGHT_X] + x_pixel * c->in_channels,
                   (size_t)c->in_channels * sizeof *x_to);
            memcpy(dy_to, (const float *)gather->step->inputs[0] + dy_pixel * c->out_channels,
                   (size_t)c->out_channels * sizeof *dy_to);
            x_to += c->in_channels;
            dy_to += c->out_channels;
        }
}

static FshStatus run(CpuStep *step, FshError *error)
{
    const SmallGradient *plan = step->plan;
    const DnnConvolution *c = &plan->convolution;
    float *gradient = (float *)step->program->scratch + plan->x_values + plan->dy_values;
    for (int64_t i = 0; i < plan->tap_count; i++) {
        Gather gather = {step, &plan->taps[i]};
        const int64_t size = c->in_channels * c->out_channels;
        if (!plan->taps[i].product) {
            memset(gradient + i * size, 0, (size_t)size * sizeof *gradient);
            continue;
        }
        cpu_parallel(step->program->backend, c->batch, gather_part, &gather);
        FshStatus status = dnn_primitive_run(plan->taps[i].product, error);
        if (status)
            return status;
    }
    return dnn_primitive_run(plan->conversion, error);
}

FshStatus cpu_small_gradient_prepare(CpuStep *step, const DnnConvolution *c, const DnnLayout *weights,
                                     FshError *error)
{
    DnnEngine *engine = step->program->backend->dnn;
    const int64_t taps = c->kernel * c->kernel;
    int64_t most_pixels = 0;
    SmallGradient *plan = step->plan = calloc(1, sizeof *plan + (size_t)taps * sizeof *plan->taps);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    plan->convolution = *c;
    plan->tap_count = taps;
    step->run = run;
    step->engine = "onednn by-taps";
    step->bind_scratch = bind_scratch;
    step->release = release;
    FshStatus status = dnn_conversion_new(&plan->conversion, engine, c, weights, error);
    uint64_t own_bytes = status ? 0 : dnn_primitive_scratch_bytes(plan->conversion);
    for (int64_t i = 0; !status && i < taps; i++) {
        Tap *tap = &plan->taps[i];
        tap->row = i / c->kernel;
        tap->column = i % c->kernel;
        const int64_t pixels = c->batch * pixels_inside(tap->row, c->in_height, c->out_height, c) *
                               pixels_inside(tap->column, c->in_width, c->out_width, c);
        if (pixels == 0)
            continue;
        most_pixels = pixels > most_pixels ? pixels : most_pixels;
        status = dnn_product_new(
            &tap->product, engine,
            &(DnnProduct){
                .type = c->type, .inner = pixels, .rows = c->in_channels, .columns = c->out_channels},
            error);
        if (!status && dnn_primitive_scratch_bytes(tap->product) > own_bytes)
            own_bytes = dnn_primitive_scratch_bytes(tap->product);
    }
    plan->x_values = whole_lines(most_pixels * c->in_channels);
    plan->dy_values = whole_lines(most_pixels * c->out_channels);
    plan->gradient_values = whole_lines(taps * c->in_channels * c->out_channels);
    step->scratch_bytes =
        (uint64_t)(plan->x_values + plan->dy_values + plan->gradient_values) * sizeof(float) + own_bytes;
    return status;
}
