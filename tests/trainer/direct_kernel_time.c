/* What the kernels for few channels take (direct.cu, direct_weight.cu), at the layers of conv8, nafnet's
 * first and last, and some of other networks (f16), and their bytes as a share of the memory's rate; operands
 * of conv8 come from the cache, as they do in a step. No test: scripts/device.sh time runs it. usage:
 * direct_kernel_time [ROW], the row that is timed alone, for profilers */
#include <stdio.h>
#include <stdlib.h>

#include "tests/trainer/convolution_time.h"
#include "trainer/backend/cuda/kernels/kernels_direct.h"

static const double bytes_per_millisecond = 4.2e9; /* of an H200's memory */

typedef struct Shape {
    int64_t samples, side, in, out;
    Direct direct;
} Shape;

#define CONVOLUTION(kernel_, stride_, padding_, reflects_)                                                   \
    {                                                                                                        \
        .kernel = (kernel_), .stride = (stride_), .padding = (padding_), .reflects = (reflects_)             \
    }

static int64_t y_side(const Shape *s)
{
    return (s->side + 2 * s->direct.padding - s->direct.kernel) / s->direct.stride + 1;
}

static cudaError_t call(const void *context, const TimedOperands *o, TimedKind kind)
{
    const Direct *direct = context;
    switch (kind) {
    case TIMED_FORWARD:
        return kernel_direct(&o->x, &o->filter, NULL, 1, direct, &o->y, NULL, NULL, o->stream);
    case TIMED_SUMS:
        return kernel_direct(&o->x, &o->filter, NULL, 1, direct, &o->y, &o->sums, o->scratch, o->stream);
    case TIMED_DATA:
        return kernel_direct_backward_data(&o->y, &o->filter, direct, &o->x, o->stream);
    default:
        return kernel_direct_backward_weight(&o->y, &o->x, direct, &o->dfilter, o->scratch, o->stream);
    }
}

static double image_bytes(const Shape *s)
{
    return 2.0 * (double)s->samples *
           (double)(s->side * s->side * padded_channels(s->in) +
                    y_side(s) * y_side(s) * padded_channels(s->out));
}

int main(int argc, char **argv)
{
    const long alone = argc > 1 ? strtol(argv[1], NULL, 10) : -1;
    static const Shape shapes[] = {
        {2048, 28, 1, 3, CONVOLUTION(3, 2, 1, true)},  {2048, 14, 3, 3, CONVOLUTION(3, 1, 1, true)},
        {2048, 14, 3, 8, CONVOLUTION(3, 2, 1, true)},  {2048, 7, 8, 8, CONVOLUTION(3, 1, 1, true)},
        {2048, 7, 8, 16, CONVOLUTION(3, 2, 1, true)},  {2048, 4, 16, 16, CONVOLUTION(3, 1, 1, true)},
        {2048, 4, 16, 32, CONVOLUTION(3, 2, 1, true)}, {2048, 2, 32, 32, CONVOLUTION(3, 1, 1, true)},
        {16, 256, 3, 32, CONVOLUTION(3, 1, 1, false)}, {16, 256, 32, 3, CONVOLUTION(3, 1, 1, false)},
        {512, 32, 3, 16, CONVOLUTION(3, 1, 1, false)}, {768, 32, 16, 16, CONVOLUTION(3, 1, 1, false)},
        {256, 80, 32, 32, CONVOLUTION(3, 1, 1, false)}};
    printf("%-34s %16s %16s %16s %16s\n", "", "forward", "with sums", "data gradient", "weight gradient");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const Shape *s = &shapes[i];
        const TimedShape shape = {s->samples, s->side, y_side(s), s->in, s->out, s->direct.kernel};
        if (alone >= 0 && (long)i != alone)
            continue;
        printf("%4d x %3d x %3d, %2d to %2d, stride %d ", (int)s->samples, (int)s->side, (int)s->side,
               (int)s->in, (int)s->out, (int)s->direct.stride);
        for (TimedKind kind = TIMED_FORWARD; kind < TIMED_KINDS; kind++) {
            const double ms = convolution_time(call, &s->direct, &shape, kind);
            if (ms < 0)
                printf(" %16s", "not supported");
            else
                printf("  %7.4f ms %3.0f%%", ms, 100 * image_bytes(s) / ms / bytes_per_millisecond);
        }
        printf("\n");
    }
    return 0;
}
