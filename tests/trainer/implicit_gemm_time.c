/* What the kernels of 3 x 3 convolutions take (implicit_gemm.cu, implicit_gemm_weight.cu), forward and
 * backward, at shapes of pyramidnet and resnets (f16), and the products that they make of it, as a share of
 * 790 TFLOP/s (a large product's speed on an H200). No test: scripts/device.sh time runs it. Operands rotate
 * through more memory than the cache holds where shapes are large; those of pyramidnet at 64 come from the
 * cache, as they do in a step. usage: implicit_gemm_time */
#include <stdio.h>

#include "tests/trainer/convolution_time.h"
#include "trainer/backend/cuda/kernels/kernels_implicit_gemm.h"

static const double card_tflops = 790;

typedef struct Shape {
    int64_t samples, side, in, out;
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

int main(void)
{
    static const Shape shapes[] = {
        {64, 32, 21, 21},    {64, 32, 61, 61},    {64, 32, 101, 106}, {64, 16, 111, 111}, {64, 16, 151, 151},
        {64, 16, 191, 196},  {64, 8, 201, 201},   {64, 8, 241, 241},  {64, 8, 281, 286},  {768, 32, 61, 61},
        {768, 32, 101, 101}, {768, 16, 151, 151}, {768, 8, 241, 241}, {64, 40, 64, 64},   {512, 40, 64, 64},
        {512, 20, 128, 128}, {512, 10, 256, 256}, {64, 14, 256, 256}};
    printf("%-28s %30s %30s %30s %30s\n", "", "forward", "with sums", "data gradient", "weight gradient");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const Shape *s = &shapes[i];
        const TimedShape shape = {s->samples, s->side, s->side, s->in, s->out, 3};
        const double products = 2.0 * 9 * (double)(s->samples * s->side * s->side * s->in * s->out);
        printf("%3d x %2d x %2d, %3d to %3d   ", (int)s->samples, (int)s->side, (int)s->side, (int)s->in,
               (int)s->out);
        for (TimedKind kind = TIMED_FORWARD; kind < TIMED_KINDS; kind++) {
            const double ms = convolution_time(call, NULL, &shape, kind);
            if (ms < 0)
                printf(" %29s", "not supported");
            else
                printf("  %8.4f ms %6.1f TFLOP/s %3.0f%%", ms, products / ms / 1e9,
                       100 * products / ms / 1e9 / card_tflops);
        }
        printf("\n");
    }
    return 0;
}
