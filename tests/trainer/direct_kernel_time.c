/* What the kernels for few channels take (direct.cu, direct_weight.cu), at the layers of conv8, nafnet's
 * first and last, and some of other networks (f16), and their bytes as a share of the memory's rate; operands
 * of conv8 come from the cache, as they do in a step. No test: scripts/device.sh time runs it. usage:
 * direct_kernel_time [ROW], the row that is timed alone, for profilers */
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "tests/trainer/gpu_time.h"
#include "trainer/backend/cuda/kernels/kernels_direct.h"

static const double bytes_per_millisecond = 4.2e9; /* of an H200's memory */
enum { X, Y, IMAGES };
enum { IMAGE_BYTES = 400 << 20, FILTER_BYTES = 1 << 20, SCRATCH_BYTES = 64 << 20, CACHED_TURNS = 2 };
static const int64_t cached_bytes = 20 << 20;

typedef struct Shape {
    int64_t samples, side, in, out;
    Direct direct;
} Shape;

#define CONVOLUTION(kernel_, stride_, padding_, reflects_)                                                   \
    {                                                                                                        \
        .kernel = (kernel_), .stride = (stride_), .padding = (padding_), .reflects = (reflects_)             \
    }

typedef struct Room {
    char *images[IMAGES];
    void *filter, *dfilter, *scratch, *sums;
    cudaStream_t stream;
} Room;

static DeviceTensor tensor_of(void *data, int64_t n, int64_t side, int64_t channels)
{
    return (DeviceTensor){.data = data,
                          .element = ELEMENT_F16,
                          .rank = 4,
                          .shape = {n, side, side, channels},
                          .pitch = padded_channels(channels),
                          .rows = n * side * side};
}

typedef enum Kind { FORWARD, SUMS, DATA, WEIGHT, KINDS } Kind;

typedef struct Call {
    const Room *room;
    const Shape *shape;
    Kind kind;
} Call;

static void set_sides(const Shape *s, int64_t sides[IMAGES])
{
    sides[X] = s->side;
    sides[Y] = (s->side + 2 * s->direct.padding - s->direct.kernel) / s->direct.stride + 1;
}

/* Makes the call on the turn-th part of the memory. */
static cudaError_t call(const void *context, int turn)
{
    const Call *c = context;
    const Shape *s = c->shape;
    const int64_t channels[IMAGES] = {s->in, s->out};
    int64_t sides[IMAGES];
    DeviceTensor images[IMAGES];
    set_sides(s, sides);
    for (int i = 0; i < IMAGES; i++) {
        const int64_t bytes = s->samples * sides[i] * sides[i] * padded_channels(channels[i]) * 2;
        const int64_t parts = bytes < cached_bytes ? CACHED_TURNS : IMAGE_BYTES / bytes;
        images[i] = tensor_of(c->room->images[i] + turn % parts * bytes, s->samples, sides[i], channels[i]);
    }
    DeviceTensor filter = tensor_of(c->room->filter, s->out, s->direct.kernel, s->in),
                 dfilter = tensor_of(c->room->dfilter, s->out, s->direct.kernel, s->in);
    const DeviceTensor sums = {.data = c->room->sums,
                               .element = ELEMENT_F32,
                               .rank = 2,
                               .shape = {2, s->out},
                               .pitch = padded_channels(s->out),
                               .rows = 2};
    filter.rows = dfilter.rows = padded_channels(s->out) * s->direct.kernel * s->direct.kernel;
    switch (c->kind) {
    case FORWARD:
        return kernel_direct(&images[X], &filter, NULL, 1, &s->direct, &images[Y], NULL, NULL,
                             c->room->stream);
    case SUMS:
        return kernel_direct(&images[X], &filter, NULL, 1, &s->direct, &images[Y], &sums, c->room->scratch,
                             c->room->stream);
    case DATA:
        return kernel_direct_backward_data(&images[Y], &filter, &s->direct, &images[X], c->room->stream);
    default:
        return kernel_direct_backward_weight(&images[Y], &images[X], &s->direct, &dfilter, c->room->scratch,
                                             c->room->stream);
    }
}

static double image_bytes(const Shape *s)
{
    int64_t sides[IMAGES];
    set_sides(s, sides);
    return 2.0 * (double)s->samples *
           (double)(sides[X] * sides[X] * padded_channels(s->in) +
                    sides[Y] * sides[Y] * padded_channels(s->out));
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
    Room room = {.filter = gpu_time_memory(FILTER_BYTES),
                 .dfilter = gpu_time_memory(FILTER_BYTES),
                 .scratch = gpu_time_memory(SCRATCH_BYTES),
                 .sums = gpu_time_memory(FILTER_BYTES)};
    for (int i = 0; i < IMAGES; i++)
        room.images[i] = gpu_time_memory(IMAGE_BYTES);
    CHECK(cudaStreamCreate(&room.stream));
    printf("%-34s %16s %16s %16s %16s\n", "", "forward", "with sums", "data gradient", "weight gradient");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const Shape *s = &shapes[i];
        if (alone >= 0 && (long)i != alone)
            continue;
        printf("%4d x %3d x %3d, %2d to %2d, stride %d ", (int)s->samples, (int)s->side, (int)s->side,
               (int)s->in, (int)s->out, (int)s->direct.stride);
        for (Kind kind = FORWARD; kind < KINDS; kind++) {
            const Call one = {&room, s, kind};
            const double ms = gpu_time_median(call, &one, room.stream);
            if (ms < 0)
                printf(" %16s", "not supported");
            else
                printf("  %7.4f ms %3.0f%%", ms, 100 * image_bytes(s) / ms / bytes_per_millisecond);
        }
        printf("\n");
    }
    return 0;
}
