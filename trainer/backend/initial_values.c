#include "trainer/backend/initial_values.h"

#include <string.h>

#include "common/pool.h"
#include "common/random.h"

/* Values of a tensor that a thread draws at a time: a multiple of 4, so that a part begins with a block of
 * Philox. */
enum { PART_VALUES = 1 << 15 };

typedef struct Drawing {
    const InitialValues *tensors;
    size_t count;
    uint64_t seed;
} Drawing;

/* Returns the FNV-1a hash of a name, 64 bits (Fowler, Noll, Vo). */
static uint64_t name_hash(const char *name)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001B3);
    return hash;
}

static uint64_t part_count(const Tensor *tensor)
{
    return ((uint64_t)tensor_count(tensor) + PART_VALUES - 1) / PART_VALUES;
}

/* Makes filter i of a convolution [out, in, kernel, kernel] pass on channel i, for all channels in. */
static void pass_channels_on(const Tensor *weight, float *values)
{
    const int64_t in = weight->shape[1], area = weight->shape[2] * weight->shape[3], filter = in * area;
    const int64_t count = in < weight->shape[0] ? in : weight->shape[0];
    memset(values, 0, (size_t)(count * filter) * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i * filter + i * area + area / 2] = 1;
}

/* Draws count values of a tensor, from first on, a multiple of PART_VALUES. A normal takes one number of the
 * stream, a uniform one two. */
static void draw(const Tensor *tensor, uint64_t seed, uint64_t first, float *values, size_t count)
{
    const double scale = tensor->initializer.scale;
    Random random;
    random_start(&random, seed, name_hash(tensor->name));
    switch (tensor->initializer.kind) {
    case INIT_ZEROS:
        memset(values, 0, count * sizeof *values);
        break;
    case INIT_ONES:
        for (size_t i = 0; i < count; i++)
            values[i] = 1;
        break;
    case INIT_NORMAL:
        random_skip(&random, first / 4);
        for (size_t i = 0; i < count; i++)
            values[i] = (float)(scale * (double)random_normal(&random));
        break;
    case INIT_UNIFORM:
    case INIT_DIRAC:
        random_skip(&random, first / 2);
        for (size_t i = 0; i < count; i++)
            values[i] = (float)(scale * (2 * random_uniform_double(&random) - 1));
        break;
    case INIT_CONSTANT:
        for (size_t i = 0; i < count; i++)
            values[i] = (float)scale;
        break;
    }
}

static FshStatus draw_part(uint64_t item, int thread, void *context, FshError *error)
{
    const Drawing *drawing = context;
    const InitialValues *tensor = drawing->tensors;
    (void)thread;
    (void)error;
    while (item >= part_count(tensor->tensor))
        item -= part_count(tensor++->tensor);
    const uint64_t first = item * PART_VALUES, left = (uint64_t)tensor_count(tensor->tensor) - first;
    draw(tensor->tensor, drawing->seed, first, tensor->values + first,
         (size_t)(left < PART_VALUES ? left : PART_VALUES));
    return FSH_OK;
}

FshStatus initial_values_draw(const InitialValues *tensors, size_t count, uint64_t seed, int jobs,
                              FshError *error)
{
    Drawing drawing = {tensors, count, seed};
    uint64_t parts = 0, values = 0;
    for (size_t i = 0; i < count; i++) {
        parts += part_count(tensors[i].tensor);
        values += (uint64_t)tensor_count(tensors[i].tensor);
    }
    /* a thread that has less than a part to draw costs more than it saves */
    const uint64_t most = values / PART_VALUES + 1;
    FshStatus status = pool_run((uint64_t)jobs < most ? jobs : (int)most, parts, draw_part, &drawing, error);
    for (size_t i = 0; i < count && !status; i++)
        if (tensors[i].tensor->initializer.kind == INIT_DIRAC)
            pass_channels_on(tensors[i].tensor, tensors[i].values);
    return status;
}
