#include "tests/trainer/convolution_time.h"

enum {
    IMAGE_BYTES = 400 << 20,
    FILTER_BYTES = 16 << 20,
    SCRATCH_BYTES = 256 << 20,
    SUMS_BYTES = 1 << 16,
    CACHED_BYTES = 20 << 20,
    CACHED_TURNS = 2
};

typedef struct Room {
    char *x, *y;
    void *filter, *dfilter, *scratch, *sums;
    cudaStream_t stream;
} Room;

static const Room *room(void)
{
    static Room made;
    if (!made.x) {
        made = (Room){.x = gpu_time_memory(IMAGE_BYTES),
                      .y = gpu_time_memory(IMAGE_BYTES),
                      .filter = gpu_time_memory(FILTER_BYTES),
                      .dfilter = gpu_time_memory(FILTER_BYTES),
                      .scratch = gpu_time_memory(SCRATCH_BYTES),
                      .sums = gpu_time_memory(SUMS_BYTES)};
        CHECK(cudaStreamCreate(&made.stream));
    }
    return &made;
}

static DeviceTensor tensor_of(void *data, int64_t n, int64_t side, int64_t channels)
{
    return (DeviceTensor){.data = data,
                          .element = ELEMENT_F16,
                          .rank = 4,
                          .shape = {n, side, side, channels},
                          .pitch = padded_channels(channels),
                          .rows = n * side * side};
}

/* Returns images that are the turn-th part of the memory. */
static DeviceTensor images_of(char *memory, int turn, int64_t n, int64_t side, int64_t channels)
{
    const int64_t bytes = n * side * side * padded_channels(channels) * 2,
                  parts = bytes < CACHED_BYTES ? CACHED_TURNS : IMAGE_BYTES / bytes;
    return tensor_of(memory + turn % parts * bytes, n, side, channels);
}

typedef struct Timed {
    TimedCall *call;
    const void *context;
    const TimedShape *shape;
    TimedKind kind;
} Timed;

static cudaError_t make_call(const void *context, int turn)
{
    const Timed *timed = context;
    const TimedShape *s = timed->shape;
    const Room *of = room();
    TimedOperands operands = {.x = images_of(of->x, turn, s->samples, s->x_side, s->in),
                              .y = images_of(of->y, turn, s->samples, s->y_side, s->out),
                              .filter = tensor_of(of->filter, s->out, s->kernel, s->in),
                              .dfilter = tensor_of(of->dfilter, s->out, s->kernel, s->in),
                              .sums = {.data = of->sums,
                                       .element = ELEMENT_F32,
                                       .rank = 2,
                                       .shape = {2, s->out},
                                       .pitch = padded_channels(s->out),
                                       .rows = 2},
                              .scratch = of->scratch,
                              .stream = of->stream};
    operands.filter.rows = operands.dfilter.rows = padded_channels(s->out) * s->kernel * s->kernel;
    return timed->call(timed->context, &operands, timed->kind);
}

double convolution_time(TimedCall *call, const void *context, const TimedShape *shape, TimedKind kind)
{
    const Timed timed = {call, context, shape, kind};
    return gpu_time_median(make_call, &timed, room()->stream);
}
