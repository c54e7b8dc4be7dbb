/* What our own kernels reach of the memory's speed, at resnet50's shapes (160 px, batch 512, f16) and a few
 * small ones. No test: scripts/device.sh time runs it. Each line: time of one call, bytes that must cross
 * memory, their share of 4.29 TB/s (a copy's speed on an H200). Operands rotate through more memory than the
 * cache holds. usage: cuda_kernel_time */
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "tests/trainer/gpu_time.h"
#include "trainer/backend/cuda/kernels/kernels_channel.h"
#include "trainer/backend/cuda/kernels/kernels_norm.h"
#include "trainer/backend/cuda/kernels/kernels_window.h"

static const double copy_tb_per_second = 4.29;
enum {
    OPERANDS = 5,
    ROTATION_BYTES = 400 << 20,
    PAD_BYTES = 64 << 20,
    VECTORS = 12,
    CALLS = 20,
    ROUNDS = 5,
    NAME_BYTES = 48
};

typedef struct Room {
    char *operands[OPERANDS]; /* operand_bytes each */
    uint64_t operand_bytes;
    float *vectors;    /* VECTORS of channels_most */
    float *numbers[2]; /* of pixels_most */
    void *scratch;
    cudaStream_t stream;
    cudaEvent_t before, after;
} Room;

enum { channels_most = 4096, pixels_most = 1 << 20 };

/* Fills the operands with half-precision numbers of both signs between 1/16 and 2, and the vectors with
 * floats between 0.5 and 1.5. */
static void fill(Room *room)
{
    const size_t count = 1 << 22;
    uint16_t *values = malloc(count * sizeof *values);
    float *floats = malloc(VECTORS * channels_most * sizeof *floats);
    uint32_t random = 1;
    if (!values || !floats)
        exit(1);
    for (size_t i = 0; i < count; i++) {
        random = random * 1664525U + 1013904223U;
        values[i] = (uint16_t)((random >> 16 & 0x8000U) | (0x2C00U + (random >> 17) % 0x1400U));
    }
    for (int o = 0; o < OPERANDS; o++)
        for (uint64_t at = 0; at < room->operand_bytes; at += count * sizeof *values) {
            const uint64_t rest = room->operand_bytes - at, bytes = count * sizeof *values;
            CHECK(cudaMemcpy(room->operands[o] + at, values, rest < bytes ? rest : bytes,
                             cudaMemcpyHostToDevice));
        }
    for (int i = 0; i < VECTORS * channels_most; i++)
        floats[i] = 0.5F + (float)(i % 97) / 97;
    CHECK(
        cudaMemcpy(room->vectors, floats, VECTORS * channels_most * sizeof *floats, cudaMemcpyHostToDevice));
    free(values);
    free(floats);
}

/* One case: images [n, h, w, c], and what is called on them. */
typedef struct Case {
    int64_t n, h, w, c;
    Room *room;
    int turn;
    DeviceTensor images[OPERANDS], vectors[VECTORS], numbers[2]; /* numbers: of each pixel */
} Case;

enum { X, Y, DY, DY2, G }; /* images; dx takes the place of dy2, unless that is read */
enum { WEIGHT, BIAS, MEAN, INVERSE, RUNNING_MEAN, RUNNING_VAR, DWEIGHT, DBIAS };

static DeviceTensor image(void *data, ElementType element, int64_t n, int64_t h, int64_t w, int64_t c)
{
    return (DeviceTensor){
        .data = data, .element = element, .rank = 4, .shape = {n, h, w, c}, .pitch = c, .rows = n * h * w};
}

static uint64_t image_bytes(const Case *c)
{
    return (uint64_t)(c->n * c->h * c->w * c->c) * 2;
}

/* Points the operands at the next part of the rotation. */
static void turn(Case *c)
{
    const uint64_t bytes = image_bytes(c), turns = c->room->operand_bytes / bytes;
    c->turn = (int)((uint64_t)(c->turn + 1) % (turns ? turns : 1));
    for (int o = 0; o < OPERANDS; o++)
        c->images[o] =
            image(c->room->operands[o] + (uint64_t)c->turn * bytes, ELEMENT_F16, c->n, c->h, c->w, c->c);
    for (int v = 0; v < VECTORS; v++)
        c->vectors[v] = (DeviceTensor){.data = c->room->vectors + v * channels_most,
                                       .element = ELEMENT_F32,
                                       .rank = 1,
                                       .shape = {c->c},
                                       .pitch = c->c,
                                       .rows = 1};
    for (int i = 0; i < 2; i++)
        c->numbers[i] = image(c->room->numbers[i], ELEMENT_F32, c->n, c->h, c->w, 1);
}

static NormTensors norm_tensors(const Case *c)
{
    return (NormTensors){.x = &c->images[X],
                         .weight = &c->vectors[WEIGHT],
                         .bias = &c->vectors[BIAS],
                         .mean = &c->vectors[MEAN],
                         .inverse_deviation = &c->vectors[INVERSE]};
}

static const NormActivation relu = {OP_RELU, 0};

static cudaError_t apply(Case *c)
{
    const NormTensors tensors = norm_tensors(c);
    return kernel_batch_norm_apply(&tensors, &relu, NULL, &c->images[Y], c->room->stream);
}

static cudaError_t apply_add(Case *c)
{
    const NormTensors tensors = norm_tensors(c);
    return kernel_batch_norm_apply(&tensors, &relu, &c->images[DY], &c->images[Y], c->room->stream);
}

static cudaError_t forward(Case *c)
{
    const NormTensors tensors = norm_tensors(c);
    const NormRunning running = {
        .mean = &c->vectors[RUNNING_MEAN], .var = &c->vectors[RUNNING_VAR], .epsilon = 1e-5, .momentum = 0.1};
    return kernel_batch_norm_forward(&tensors, &running, &relu, NULL, &c->images[Y], c->room->scratch,
                                     c->room->stream);
}

static cudaError_t backward_of(Case *c, bool second, bool addend, bool dx)
{
    const NormTensors tensors = norm_tensors(c);
    const NormGradient gradient = {.dy = &c->images[DY],
                                   .dy2 = second ? &c->images[DY2] : NULL,
                                   .y = addend ? &c->images[Y] : NULL,
                                   .dx = dx ? &c->images[second ? DY : DY2] : NULL,
                                   .g = addend ? &c->images[G] : NULL,
                                   .dweight = &c->vectors[DWEIGHT],
                                   .dbias = &c->vectors[DBIAS],
                                   .batch_statistics = true};
    return kernel_batch_norm_backward(&gradient, &tensors, &relu, c->room->scratch, c->room->stream);
}

static cudaError_t backward_sums(Case *c)
{
    return backward_of(c, false, false, false);
}

static cudaError_t backward(Case *c)
{
    return backward_of(c, false, false, true);
}

static cudaError_t backward_add_sums(Case *c)
{
    return backward_of(c, false, true, false);
}

static cudaError_t backward_add(Case *c)
{
    return backward_of(c, false, true, true);
}

static cudaError_t backward_add_twice_sums(Case *c)
{
    return backward_of(c, true, true, false);
}

static cudaError_t backward_add_twice(Case *c)
{
    return backward_of(c, true, true, true);
}

static cudaError_t column_sum(Case *c)
{
    return kernel_column_sum(&c->images[DY], &c->vectors[DBIAS], c->room->scratch, c->room->stream);
}

static cudaError_t add_bias(Case *c)
{
    return kernel_add_bias(&c->images[Y], &c->vectors[BIAS], 1, c->room->stream);
}

/* Runs a max pool, or its backward pass, whose index lies in DY. */
static cudaError_t max_pool_of(Case *c, const PoolShape *pool, bool backward_too)
{
    const int64_t h = (c->h + 2 * pool->padding - pool->kernel) / pool->stride + 1,
                  w = (c->w + 2 * pool->padding - pool->kernel) / pool->stride + 1;
    const DeviceTensor y = image(c->images[Y].data, ELEMENT_F16, c->n, h, w, c->c),
                       index = image(c->images[DY].data, ELEMENT_U8, c->n, h, w, c->c);
    return backward_too ? kernel_max_pool_backward(&y, &index, pool, &c->images[X], c->room->stream)
                        : kernel_max_pool(&c->images[X], pool, &y, &index, c->room->stream);
}

static const PoolShape pool_3_2_1 = {3, 2, 1, false}, pool_2_2_0 = {2, 2, 0, false};

static cudaError_t max_pool_3(Case *c)
{
    return max_pool_of(c, &pool_3_2_1, false);
}

static cudaError_t max_pool_3_backward(Case *c)
{
    return max_pool_of(c, &pool_3_2_1, true);
}

static cudaError_t max_pool_2(Case *c)
{
    return max_pool_of(c, &pool_2_2_0, false);
}

static cudaError_t max_pool_2_backward(Case *c)
{
    return max_pool_of(c, &pool_2_2_0, true);
}

static cudaError_t global_pool(Case *c)
{
    const DeviceTensor y = {.data = c->images[Y].data,
                            .element = ELEMENT_F16,
                            .rank = 2,
                            .shape = {c->n, c->c},
                            .pitch = c->c,
                            .rows = c->n};
    return kernel_global_avg_pool(&c->images[X], &y, c->room->scratch, c->room->stream);
}

static cudaError_t global_pool_backward(Case *c)
{
    const DeviceTensor dy = {.data = c->images[Y].data,
                             .element = ELEMENT_F16,
                             .rank = 2,
                             .shape = {c->n, c->c},
                             .pitch = c->c,
                             .rows = c->n};
    return kernel_global_avg_pool_backward(&dy, &c->images[X], c->room->stream);
}

static cudaError_t pad(Case *c)
{
    const DeviceTensor y = image(c->images[Y].data, ELEMENT_F16, c->n, c->h + 2, c->w + 2, c->c);
    return kernel_reflection_pad(&c->images[X], 1, &y, c->room->stream);
}

static cudaError_t pad_backward(Case *c)
{
    const DeviceTensor dy = image(c->images[Y].data, ELEMENT_F16, c->n, c->h + 2, c->w + 2, c->c);
    return kernel_reflection_pad_backward(&dy, 1, &c->images[X], c->room->stream);
}

static LayerNormTensors layer_norm_tensors(const Case *c)
{
    return (LayerNormTensors){.x = &c->images[X],
                              .weight = &c->vectors[WEIGHT],
                              .mean = &c->numbers[0],
                              .inverse_deviation = &c->numbers[1]};
}

static cudaError_t layer_norm(Case *c)
{
    const LayerNormTensors tensors = layer_norm_tensors(c);
    return kernel_layer_norm(&tensors, &c->vectors[BIAS], 1e-6F, &c->images[Y], c->room->stream);
}

static cudaError_t layer_norm_backward(Case *c)
{
    const LayerNormTensors tensors = layer_norm_tensors(c);
    return kernel_layer_norm_backward(&c->images[DY], &tensors, &c->images[DY2], &c->images[Y],
                                      &c->vectors[DWEIGHT], &c->vectors[DBIAS], c->room->scratch,
                                      c->room->stream);
}

/* Prints the best time of a call. passes: bytes that must cross memory, in tensors of the case's size. */
static void time_calls(const char *name, Case *c, double passes, cudaError_t (*call)(Case *c))
{
    Room *room = c->room;
    cudaGraph_t graph;
    cudaGraphExec_t calls;
    float best = 1e30F;
    CHECK(cudaStreamBeginCapture(room->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CALLS; i++) {
        turn(c);
        CHECK(call(c));
    }
    CHECK(cudaStreamEndCapture(room->stream, &graph));
    CHECK(cudaGraphInstantiate(&calls, graph, 0));
    for (int i = 0; i < ROUNDS; i++) {
        float ms;
        CHECK(cudaEventRecord(room->before, room->stream));
        CHECK(cudaGraphLaunch(calls, room->stream));
        CHECK(cudaEventRecord(room->after, room->stream));
        CHECK(cudaEventSynchronize(room->after));
        CHECK(cudaEventElapsedTime(&ms, room->before, room->after));
        if (i > 0 && ms < best)
            best = ms;
    }
    CHECK(cudaGraphExecDestroy(calls));
    CHECK(cudaGraphDestroy(graph));
    const double seconds = (double)best / CALLS * 1e-3, bytes = passes * (double)image_bytes(c);
    printf("%-24s %5d x %3d x %3d x %4d  %8.4f ms %8.1f MB %6.2f TB/s %5.2f\n", name, (int)c->n, (int)c->h,
           (int)c->w, (int)c->c, seconds * 1e3, bytes / 1e6, bytes / seconds / 1e12,
           bytes / seconds / 1e12 / copy_tb_per_second);
}

static Case case_of(Room *room, int64_t n, int64_t size, int64_t channels)
{
    return (Case){.n = n, .h = size, .w = size, .c = channels, .room = room};
}

static void time_norms(Room *room, int64_t n, int64_t size, int64_t channels, bool block_end)
{
    Case c = case_of(room, n, size, channels);
    time_calls("apply", &c, 2, apply);
    time_calls("statistics, apply", &c, 3, forward);
    time_calls("backward sums", &c, 2, backward_sums);
    time_calls("backward", &c, 5, backward);
    if (!block_end)
        return;
    time_calls("apply + add", &c, 3, apply_add);
    time_calls("backward sums, add", &c, 4, backward_add_sums);
    time_calls("backward, add", &c, 7, backward_add);
    time_calls("backward sums, 2 adds", &c, 5, backward_add_twice_sums);
    time_calls("backward, 2 adds", &c, 8, backward_add_twice);
}

/* Those of vision transformers and ConvNeXts. */
static void time_layer_norms(Room *room)
{
    static const int64_t shapes[][2] = {{51712, 384}, {103424, 192}, {51328, 384}, {819200, 40}, {204800, 80},
                                        {409600, 96}, {102400, 192}, {25600, 384}, {6400, 768}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        Case c = case_of(room, shapes[i][0], 1, shapes[i][1]);
        time_calls("layer norm", &c, 2, layer_norm);
        time_calls("layer norm backward, add", &c, 4, layer_norm_backward);
    }
}

int main(void)
{
    Room room = {.operand_bytes = (uint64_t)512 * 80 * 80 * 64 * 2};
    if (room.operand_bytes < ROTATION_BYTES)
        room.operand_bytes = ROTATION_BYTES;
    CHECK(cudaStreamCreate(&room.stream));
    CHECK(cudaEventCreate(&room.before));
    CHECK(cudaEventCreate(&room.after));
    for (int o = 0; o < OPERANDS; o++)
        CHECK(cudaMalloc((void **)&room.operands[o], room.operand_bytes + PAD_BYTES));
    CHECK(cudaMalloc((void **)&room.vectors, VECTORS * channels_most * sizeof(float)));
    for (int i = 0; i < 2; i++)
        CHECK(cudaMalloc((void **)&room.numbers[i], pixels_most * sizeof(float)));
    CHECK(cudaMalloc(&room.scratch, 64 << 20));
    fill(&room);
    time_layer_norms(&room);
    time_norms(&room, 512, 80, 64, false);
    time_norms(&room, 512, 40, 64, false);
    time_norms(&room, 512, 40, 128, false);
    time_norms(&room, 512, 40, 256, true);
    time_norms(&room, 512, 20, 128, false);
    time_norms(&room, 512, 20, 512, true);
    time_norms(&room, 512, 10, 256, false);
    time_norms(&room, 512, 10, 1024, true);
    time_norms(&room, 512, 5, 512, false);
    time_norms(&room, 512, 5, 2048, true);
    time_norms(&room, 64, 32, 16, true);
    time_norms(&room, 64, 32, 104, true);
    time_norms(&room, 64, 16, 192, true);
    time_norms(&room, 64, 8, 288, true);
    time_norms(&room, 2048, 14, 8, false);
    time_norms(&room, 1024, 1, 512, false);
    Case stem = case_of(&room, 512, 80, 64), toynet = case_of(&room, 1024, 24, 128),
         top = case_of(&room, 512, 5, 2048), padded = case_of(&room, 2048, 14, 8),
         wide = case_of(&room, 512, 40, 256), attention = case_of(&room, 16, 256, 32),
         attention_inside = case_of(&room, 16, 32, 256);
    time_calls("max pool 3/2", &stem, 1.375, max_pool_3);
    time_calls("max pool 3/2 backward", &stem, 1.375, max_pool_3_backward);
    time_calls("max pool 2/2", &toynet, 1.375, max_pool_2);
    time_calls("max pool 2/2 backward", &toynet, 1.375, max_pool_2_backward);
    time_calls("global pool", &top, 1.04, global_pool);
    time_calls("global pool backward", &top, 1.04, global_pool_backward);
    time_calls("global pool", &attention, 1, global_pool);
    time_calls("global pool", &attention_inside, 1, global_pool);
    time_calls("pad", &padded, 2.3, pad);
    time_calls("pad backward", &padded, 2.3, pad_backward);
    time_calls("column sum", &wide, 1, column_sum);
    time_calls("add bias", &wide, 2, add_bias);
    return 0;
}
