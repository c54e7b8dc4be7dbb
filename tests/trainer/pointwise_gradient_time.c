/* What pointwise_gradient.cu reaches of the memory's speed, at resnet50's shapes (160 px, batch 512, f16). No
 * test: scripts/device.sh time runs it. Each line: median time of a call, bytes that must cross memory, their
 * share of 4.2 TB/s; and the time of the norm's sums alone, from a dy in memory, which the call has in it.
 * Operands rotate through more memory than the cache holds. usage: pointwise_gradient_time */
#include <stdio.h>

#include <cuda_runtime_api.h>

#include "tests/trainer/gpu_time.h"
#include "trainer/backend/cuda/kernels/kernels_pointwise_gradient.h"

static const double floor_tb_per_second = 4.2;
enum { DY, X, DY2, Y, G, IMAGES };
enum { WEIGHT, BIAS, MEAN, INVERSE, DWEIGHT, DBIAS, VECTORS };
enum { IMAGE_BYTES = 400 << 20, FILTER_BYTES = 4 << 20, CHANNELS_MOST = 2048 };

typedef struct Room {
    char *images[IMAGES];
    void *filter, *scratch, *column_scratch;
    float *vectors;
    cudaStream_t stream;
} Room;

static Room make_room(void)
{
    Room room = {0};
    static float floats[VECTORS * CHANNELS_MOST];
    for (int i = 0; i < IMAGES; i++)
        room.images[i] = gpu_time_memory(IMAGE_BYTES);
    room.filter = gpu_time_memory(FILTER_BYTES);
    CHECK(cudaMalloc(&room.scratch, 64 << 20));
    CHECK(cudaMalloc(&room.column_scratch, 64 << 20));
    for (int i = 0; i < VECTORS * CHANNELS_MOST; i++)
        floats[i] = 0.5F + (float)(i % 97) / 97;
    CHECK(cudaMalloc((void **)&room.vectors, sizeof floats));
    CHECK(cudaMemcpy(room.vectors, floats, sizeof floats, cudaMemcpyHostToDevice));
    CHECK(cudaStreamCreate(&room.stream));
    return room;
}

typedef struct Shape {
    int64_t rows, from, channels;
    bool block_end; /* with dy2 and signs */
} Shape;

static DeviceTensor matrix(void *data, int64_t rows, int64_t channels)
{
    return (DeviceTensor){.data = data,
                          .element = ELEMENT_F16,
                          .rank = 4,
                          .shape = {rows, 1, 1, channels},
                          .pitch = channels,
                          .rows = rows};
}

/* What is called: the kernel, or, alone, the sums from a dy of x's shape, in g's place. */
typedef struct Call {
    const Room *room;
    const Shape *shape;
    bool alone;
} Call;

/* Makes the call on the turn-th part of the memory. */
static cudaError_t call(const void *context, int turn)
{
    const Call *c = context;
    const Room *room = c->room;
    const Shape *shape = c->shape;
    DeviceTensor images[IMAGES], vectors[VECTORS];
    for (int i = 0; i < IMAGES; i++) {
        const int64_t channels = i == DY ? shape->from : shape->channels, bytes = shape->rows * channels * 2;
        const int64_t parts = IMAGE_BYTES / bytes;
        images[i] = matrix(room->images[i] + turn % parts * bytes, shape->rows, channels);
    }
    for (int v = 0; v < VECTORS; v++)
        vectors[v] = (DeviceTensor){.data = room->vectors + v * CHANNELS_MOST,
                                    .element = ELEMENT_F32,
                                    .rank = 1,
                                    .shape = {shape->channels},
                                    .pitch = shape->channels,
                                    .rows = 1};
    const DeviceTensor filter = matrix(room->filter, shape->from, shape->channels);
    /* bits that are there, whatever they are */
    const DeviceTensor signs = {.data = images[Y].data,
                                .element = ELEMENT_U8,
                                .rank = 4,
                                .shape = {shape->rows, 1, 1, shape->channels / 8},
                                .pitch = shape->channels / 8,
                                .rows = shape->rows};
    const NormTensors tensors = {.x = &images[X],
                                 .weight = &vectors[WEIGHT],
                                 .bias = &vectors[BIAS],
                                 .mean = &vectors[MEAN],
                                 .inverse_deviation = &vectors[INVERSE],
                                 .signs = shape->block_end ? &signs : NULL};
    const NormActivation relu = {OP_RELU, 0};
    NormGradient gradient = {.dy = &images[G],
                             .dy2 = shape->block_end ? &images[DY2] : NULL,
                             .g = &images[G],
                             .dweight = &vectors[DWEIGHT],
                             .dbias = &vectors[DBIAS],
                             .batch_statistics = true,
                             .part = NORM_GRADIENT_SUMS};
    if (!c->alone)
        return kernel_pointwise_gradient(&images[DY], &filter, &gradient, &tensors, &relu, room->scratch,
                                         room->stream);
    if (!shape->block_end)
        gradient.g = NULL;
    return kernel_batch_norm_backward(&gradient, &tensors, &relu, room->column_scratch, room->stream);
}

static void report(const Room *room, const Shape *shape)
{
    const double bytes =
        2 * (double)shape->rows *
        ((double)shape->from + (double)shape->channels * (shape->block_end ? 3 + 1.0 / 16 : 2));
    const Call joined = {room, shape, false}, sums = {room, shape, true};
    const double ms = gpu_time_median(call, &joined, room->stream),
                 alone = gpu_time_median(call, &sums, room->stream);
    printf("%7d x %4d -> %4d%s ", (int)shape->rows, (int)shape->from, (int)shape->channels,
           shape->block_end ? ", dy2, signs" : "            ");
    if (ms < 0)
        printf(" not supported");
    else
        printf("%8.4f ms %8.1f MB %8.1f GB/s %5.2f", ms, bytes / 1e6, bytes / ms / 1e6,
               bytes / ms / 1e9 / floor_tb_per_second);
    printf("   sums alone %8.4f ms\n", alone);
}

int main(void)
{
    static const Shape shapes[] = {
        {819200, 64, 256, true},   {819200, 128, 256, true},  {204800, 128, 512, true},
        {204800, 256, 512, true},  {51200, 256, 1024, true},  {51200, 512, 1024, true},
        {12800, 512, 2048, true},  {819200, 256, 64, false},  {204800, 512, 128, false},
        {51200, 1024, 256, false}, {12800, 2048, 512, false},
    };
    const Room room = make_room();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        report(&room, &shapes[i]);
    return 0;
}
