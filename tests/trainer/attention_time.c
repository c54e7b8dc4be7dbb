/* What the kernels of attention take, forward and backward, at shapes of vision transformers (bf16, heads of
 * 64 channels), and the products that they make of it, as a share of 790 TFLOP/s (a large product's speed on
 * an H200). bench/attention_torch.py times the same in PyTorch. No test: scripts/device.sh time runs it.
 * Operands rotate through more memory than the cache holds. usage: attention_time */
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "tests/trainer/gpu_time.h"
#include "trainer/backend/cuda/kernels/kernels_tokens.h"

static const double card_tflops = 790;
enum { CHANNELS = 64, TURNS_MOST = 8 };
enum { X, Y, DY, DX, TENSORS };
static const uint64_t rotation_bytes = 400 << 20;

typedef struct Shape {
    int64_t samples, tokens, heads;
} Shape;

enum { WAYS = 2 };
static const AttentionWay *const ways[WAYS] = {&attention_tiles, &attention_warpgroup};

/* The operands of a call, one set for each turn. */
typedef struct Room {
    DeviceTensor tensors[TURNS_MOST][TENSORS], log_sums;
    void *scratch;
    int turns;
    cudaStream_t stream;
} Room;

/* Makes a tensor of bf16 numbers of both signs between 1/16 and 2. */
static DeviceTensor make_tensor(const Shape *shape, int64_t width)
{
    const size_t count = (size_t)(shape->samples * shape->tokens * width);
    uint16_t *values = malloc(count * sizeof *values);
    DeviceTensor tensor = {.element = ELEMENT_BF16,
                           .rank = 4,
                           .shape = {shape->samples, shape->tokens, 1, width},
                           .pitch = width,
                           .rows = shape->samples * shape->tokens};
    uint32_t random = 1;
    if (!values)
        exit(1);
    for (size_t i = 0; i < count; i++) {
        random = random * 1664525U + 1013904223U;
        values[i] = (uint16_t)((random >> 16 & 0x8000U) | (0x3D80U + (random >> 17) % 0x280U));
    }
    CHECK(cudaMalloc(&tensor.data, count * sizeof *values));
    CHECK(cudaMemcpy(tensor.data, values, count * sizeof *values, cudaMemcpyHostToDevice));
    free(values);
    return tensor;
}

static Room make_room(const Shape *shape)
{
    const int64_t width = shape->heads * CHANNELS, numbers = shape->samples * shape->heads * shape->tokens;
    const uint64_t bytes = (uint64_t)(shape->samples * shape->tokens * width * 8 * 2);
    Room room = {.turns = (int)(rotation_bytes / bytes) + 1};
    if (room.turns > TURNS_MOST)
        room.turns = TURNS_MOST;
    for (int turn = 0; turn < room.turns; turn++)
        for (int t = 0; t < TENSORS; t++)
            room.tensors[turn][t] = make_tensor(shape, t == X || t == DX ? 3 * width : width);
    room.log_sums = (DeviceTensor){.element = ELEMENT_F32,
                                   .rank = 4,
                                   .shape = {shape->samples, shape->heads, shape->tokens, 1},
                                   .pitch = 1,
                                   .rows = numbers};
    CHECK(cudaMalloc(&room.log_sums.data, (size_t)numbers * sizeof(float)));
    CHECK(cudaMalloc(&room.scratch, kernel_attention_scratch_bytes(&room.log_sums)));
    CHECK(cudaStreamCreate(&room.stream));
    return room;
}

static void free_room(Room *room)
{
    for (int turn = 0; turn < room->turns; turn++)
        for (int t = 0; t < TENSORS; t++)
            CHECK(cudaFree(room->tensors[turn][t].data));
    CHECK(cudaFree(room->log_sums.data));
    CHECK(cudaFree(room->scratch));
    CHECK(cudaStreamDestroy(room->stream));
}

typedef struct Call {
    const AttentionWay *way;
    const Room *room;
    const Shape *shape;
    bool backward;
} Call;

static cudaError_t call(const void *context, int turn)
{
    const Call *c = context;
    const Room *room = c->room;
    const DeviceTensor *tensors = room->tensors[turn % room->turns];
    const AttentionGradient gradient = {.dy = &tensors[DY],
                                        .x = &tensors[X],
                                        .y = &tensors[Y],
                                        .log_sums = &room->log_sums,
                                        .heads = c->shape->heads};
    return c->backward
               ? c->way->backward(&gradient, &tensors[DX], room->scratch, room->stream)
               : c->way->forward(&tensors[X], c->shape->heads, &tensors[Y], &room->log_sums, room->stream);
}

static void report(const AttentionWay *way, const Room *room, const Shape *shape)
{
    /* two products forward, five backward, of which each is this */
    const double product =
        2.0 * (double)(shape->samples * shape->heads * shape->tokens * shape->tokens) * CHANNELS / 1e9;
    printf("%-10s %4d x %4d x %2d", way->name, (int)shape->samples, (int)shape->tokens, (int)shape->heads);
    for (int backward = 0; backward < 2; backward++) {
        const Call c = {way, room, shape, backward != 0};
        const double ms = gpu_time_median(call, &c, room->stream), tflops = product * (backward ? 5 : 2) / ms;
        printf("   %s %7.4f ms %6.1f TFLOP/s %5.2f", backward ? "backward" : "forward", ms, tflops,
               tflops / card_tflops);
    }
    printf("\n");
    (void)fflush(stdout);
}

int main(void)
{
    static const Shape shapes[] = {{128, 401, 6},  {512, 101, 6}, {256, 197, 6},
                                   {1024, 101, 3}, {64, 101, 6},  {64, 785, 6}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        Room room = make_room(&shapes[s]);
        for (int w = 0; w < WAYS; w++)
            if (ways[w]->fits(&room.tensors[0][X], shapes[s].heads))
                report(ways[w], &room, &shapes[s]);
        free_room(&room);
    }
    return 0;
}
