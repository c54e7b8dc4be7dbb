/* What the kernels of 3 x 3 convolutions take (implicit_gemm.cu, implicit_gemm_weight.cu), forward and
 * backward, at shapes of pyramidnet and resnets (f16), and the products that they make of it, as a share of
 * 790 TFLOP/s (a large product's speed on an H200). No test: scripts/device.sh time runs it. Operands rotate
 * through more memory than the cache holds where shapes are large; those of pyramidnet at 64 come from the
 * cache, as they do in a step. usage: implicit_gemm_time */
#include <stdio.h>

#include <cuda_runtime_api.h>

#include "tests/trainer/gpu_time.h"
#include "trainer/backend/cuda/kernels/kernels_implicit_gemm.h"

static const double card_tflops = 790;
enum { X, Y, IMAGES };
enum {
    IMAGE_BYTES = 400 << 20,
    FILTER_BYTES = 16 << 20,
    SCRATCH_BYTES = 256 << 20,
    SUMS_BYTES = 1 << 16,
    CACHED_TURNS = 2
};
static const int64_t cached_bytes = 20 << 20;

typedef struct Shape {
    int64_t samples, side, in, out;
} Shape;

typedef struct Room {
    char *images[IMAGES];
    void *filter, *dfilter, *scratch, *sums;
    cudaStream_t stream;
} Room;

static DeviceTensor tensor_of(void *data, int64_t n, int64_t height, int64_t width, int64_t channels)
{
    return (DeviceTensor){.data = data,
                          .element = ELEMENT_F16,
                          .rank = 4,
                          .shape = {n, height, width, channels},
                          .pitch = padded_channels(channels),
                          .rows = n * height * width};
}

typedef enum Kind { FORWARD, SUMS, DATA, WEIGHT, KINDS } Kind;

typedef struct Call {
    const Room *room;
    const Shape *shape;
    Kind kind;
} Call;

/* Makes the call on the turn-th part of the memory. */
static cudaError_t call(const void *context, int turn)
{
    const Call *c = context;
    const Shape *s = c->shape;
    const int64_t channels[IMAGES] = {s->in, s->out};
    DeviceTensor images[IMAGES];
    for (int i = 0; i < IMAGES; i++) {
        const int64_t bytes = s->samples * s->side * s->side * padded_channels(channels[i]) * 2;
        const int64_t parts = bytes < cached_bytes ? CACHED_TURNS : IMAGE_BYTES / bytes;
        images[i] =
            tensor_of(c->room->images[i] + turn % parts * bytes, s->samples, s->side, s->side, channels[i]);
    }
    DeviceTensor filter = tensor_of(c->room->filter, s->out, 3, 3, s->in),
                 dfilter = tensor_of(c->room->dfilter, s->out, 3, 3, s->in);
    const DeviceTensor sums = {.data = c->room->sums,
                               .element = ELEMENT_F32,
                               .rank = 2,
                               .shape = {2, s->out},
                               .pitch = padded_channels(s->out),
                               .rows = 2};
    filter.rows = dfilter.rows = padded_channels(s->out) * 9;
    switch (c->kind) {
    case FORWARD:
        return kernel_implicit_gemm(&images[X], &filter, &images[Y], NULL, NULL, c->room->stream);
    case SUMS:
        return kernel_implicit_gemm(&images[X], &filter, &images[Y], &sums, c->room->scratch,
                                    c->room->stream);
    case DATA:
        return kernel_implicit_gemm_backward_data(&images[Y], &filter, &images[X], c->room->stream);
    default:
        return kernel_implicit_gemm_backward_weight(&images[Y], &images[X], &dfilter, c->room->scratch,
                                                    c->room->stream);
    }
}

int main(void)
{
    static const Shape shapes[] = {
        {64, 32, 21, 21},    {64, 32, 61, 61},    {64, 32, 101, 106}, {64, 16, 111, 111}, {64, 16, 151, 151},
        {64, 16, 191, 196},  {64, 8, 201, 201},   {64, 8, 241, 241},  {64, 8, 281, 286},  {768, 32, 61, 61},
        {768, 32, 101, 101}, {768, 16, 151, 151}, {768, 8, 241, 241}, {64, 40, 64, 64},   {512, 40, 64, 64},
        {512, 20, 128, 128}, {512, 10, 256, 256}, {64, 14, 256, 256}};
    Room room = {.filter = gpu_time_memory(FILTER_BYTES),
                 .dfilter = gpu_time_memory(FILTER_BYTES),
                 .scratch = gpu_time_memory(SCRATCH_BYTES),
                 .sums = gpu_time_memory(SUMS_BYTES)};
    for (int i = 0; i < IMAGES; i++)
        room.images[i] = gpu_time_memory(IMAGE_BYTES);
    CHECK(cudaStreamCreate(&room.stream));
    printf("%-28s %30s %30s %30s %30s\n", "", "forward", "with sums", "data gradient", "weight gradient");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const Shape *s = &shapes[i];
        const double products = 2.0 * 9 * (double)(s->samples * s->side * s->side * s->in * s->out);
        printf("%3d x %2d x %2d, %3d to %3d   ", (int)s->samples, (int)s->side, (int)s->side, (int)s->in,
               (int)s->out);
        for (Kind kind = FORWARD; kind < KINDS; kind++) {
            const Call one = {&room, s, kind};
            const double ms = gpu_time_median(call, &one, room.stream);
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
