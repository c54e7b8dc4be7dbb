/* What the kernels of 3 x 3 convolutions take (implicit_gemm.cu, implicit_gemm_weight.cu), forward and
 * backward, at shapes of pyramidnet and resnets (f16), and the products that they make of it, as a share of
 * 790 TFLOP/s (a large product's speed on an H200). No test: scripts/device.sh time runs it. Operands rotate
 * through more memory than the cache holds where shapes are large; those of pyramidnet at 64 come from the
 * cache, as they do in a step. usage: implicit_gemm_time */
#include <stdio.h>

#include "tests/trainer/convolution_time.h"
#include "trainer/backend/cuda/kernels/kernels_implicit_gemm.h"
#include "trainer/backend/cuda/kernels/kernels_pixel_gemm.h"

static const double card_tflops = 790;

typedef struct Shape {
    int64_t samples, side, in, out, y_side;
} Shape;

static cudaError_t call(const void *context, const TimedOperands *o, TimedKind kind)
{
    (void)context;
    switch (kind) {
    case TIMED_FORWARD:
        return kernel_implicit_gemm(&o->x, &o->filter, &o->y, NULL, NULL, o->stream);
    case TIMED_SUMS:
        return kernel_implicit_gemm(&o->x, &o->filter, &o->y, &o->sums, o->scratch, o->stream);
    case TIMED_DATA:
        return kernel_implicit_gemm_backward_data(&o->y, &o->filter, &o->x, o->stream);
    default:
        return kernel_implicit_gemm_backward_weight(&o->y, &o->x, &o->dfilter, o->scratch, o->stream);
    }
}

static cudaError_t call_pixels(const void *context, const TimedOperands *o, TimedKind kind)
{
    (void)context;
    switch (kind) {
    case TIMED_FORWARD:
        return kernel_pixel_gemm(&o->x, &o->filter, &o->y, NULL, NULL, o->stream);
    case TIMED_SUMS:
        return kernel_pixel_gemm(&o->x, &o->filter, &o->y, &o->sums, o->scratch, o->stream);
    case TIMED_DATA:
        return kernel_pixel_gemm_backward_data(&o->y, &o->filter, &o->x, o->stream);
    default:
        return kernel_pixel_gemm_backward_weight(&o->y, &o->x, &o->dfilter, o->scratch, o->stream);
    }
}

/* Prints a line of what a shape takes by one kernel. */
static void print_times(const char *name, TimedCall *kernel, const TimedShape *s)
{
    const double products = 2.0 * 9 * (double)(s->samples * s->y_side * s->y_side * s->in * s->out);
    printf("%-8s %4d x %2d x %2d, %3d to %3d   ", name, (int)s->samples, (int)s->y_side, (int)s->y_side,
           (int)s->in, (int)s->out);
    for (TimedKind kind = TIMED_FORWARD; kind < TIMED_KINDS; kind++) {
        const double ms = convolution_time(kernel, NULL, s, kind);
        if (ms < 0)
            printf(" %29s", "not supported");
        else
            printf("  %8.4f ms %6.1f TFLOP/s %3.0f%%", ms, products / ms / 1e9,
                   100 * products / ms / 1e9 / card_tflops);
    }
    printf("\n");
}

int main(void)
{
    static const Shape shapes[] = {
        {64, 32, 21, 21, 32},   {64, 32, 61, 61, 32},     {64, 32, 101, 106, 32},   {64, 16, 111, 111, 16},
        {64, 16, 151, 151, 16}, {64, 16, 191, 196, 16},   {64, 8, 201, 201, 8},     {64, 8, 241, 241, 8},
        {64, 8, 281, 286, 8},   {768, 32, 61, 61, 32},    {768, 32, 101, 101, 32},  {768, 16, 151, 151, 16},
        {768, 8, 241, 241, 8},  {768, 16, 191, 196, 16},  {768, 16, 111, 116, 16},  {768, 8, 281, 286, 8},
        {64, 40, 64, 64, 40},   {512, 40, 64, 64, 40},    {512, 20, 128, 128, 20},  {512, 10, 256, 256, 10},
        {64, 14, 256, 256, 14}, {1024, 26, 64, 128, 24},  {1024, 12, 128, 256, 10}, {1024, 10, 256, 512, 8},
        {512, 5, 512, 512, 5},  {1024, 10, 256, 256, 10}, {1024, 5, 512, 512, 5},   {256, 14, 256, 256, 14},
        {256, 7, 512, 512, 7}};
    printf("%-36s %30s %30s %30s %30s\n", "", "forward", "with sums", "data gradient", "weight gradient");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const Shape *s = &shapes[i];
        const TimedShape shape = {s->samples, s->side, s->y_side, s->in, s->out, 3};
        print_times("tiles", call, &shape);
        if (s->samples >= 256 && s->side <= 16)
            print_times("pixels", call_pixels, &shape);
    }
    return 0;
}
