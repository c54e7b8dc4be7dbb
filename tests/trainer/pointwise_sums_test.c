/* Gradients of functions, gates and channel scales that add themselves up by channel (pointwise_sums.cu,
 * gate.cu, channel.cu): the bits of the gradients that do not, and sums right to the rounding of what is
 * summed. Needs a GPU; leaves with 77 where there is none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "trainer/backend/cuda/kernels/kernels_channel.h"
#include "trainer/backend/cuda/kernels/kernels_norm.h"
#include "trainer/backend/cuda/kernels/kernels_pointwise.h"

typedef struct Case {
    int samples; /* more than 1: of a gate, which has factors and gradients of means for each */
    int rows, channels;
    OpKind op;
    ElementType element;
} Case;

/* Returns a matrix of the case's rows; drawn, or all zeros. */
static DeviceTensor make_matrix(const Case *c, int channels, Random *random)
{
    const int pitch = (int)padded_channels(channels);
    const size_t count = (size_t)c->rows * (size_t)pitch;
    uint16_t *bits = calloc(count, sizeof *bits);
    assert_non_null(bits);
    for (size_t i = 0; random && i < count; i++) {
        const float value = 2 * random_normal(random);
        if ((int)(i % (size_t)pitch) < channels && fabsf(value) > 1e-3F)
            bits[i] = narrow_bits(c->element, value);
    }
    const DeviceTensor matrix = {.data = gpu_copy_of(bits, count * sizeof *bits),
                                 .element = c->element,
                                 .rank = 4,
                                 .shape = {c->samples, c->rows / c->samples, 1, channels},
                                 .pitch = pitch,
                                 .rows = c->rows};
    free(bits);
    return matrix;
}

/* Returns a matrix of floats, a row for each sample; drawn, or all zeros. */
static DeviceTensor make_floats(int samples, int channels, Random *random)
{
    const int pitch = (int)padded_channels(channels);
    float *values = calloc((size_t)samples * (size_t)pitch, sizeof *values);
    assert_non_null(values);
    for (int i = 0; random && i < samples * pitch; i++)
        values[i] = random_normal(random);
    const DeviceTensor floats = {.data =
                                     gpu_copy_of(values, (size_t)samples * (size_t)pitch * sizeof *values),
                                 .element = ELEMENT_F32,
                                 .rank = samples > 1 ? 2 : 1,
                                 .shape = {samples > 1 ? samples : channels, channels},
                                 .pitch = pitch,
                                 .rows = samples};
    free(values);
    return floats;
}

static uint16_t *read_matrix(const DeviceTensor *matrix)
{
    return gpu_read(matrix->data, (size_t)device_tensor_stored(matrix) * sizeof(uint16_t));
}

/* Compares the sums with those of the gradient as it was rounded. */
static void compare_sums(const Case *c, const DeviceTensor *sums, const uint16_t *dx, int pitch)
{
    const int channels = (int)sums->shape[0];
    const double epsilon = c->element == ELEMENT_BF16 ? ldexp(1, -8) : ldexp(1, -11);
    float *found = gpu_read(sums->data, (size_t)sums->pitch * sizeof *found);
    for (int channel = 0; channel < channels; channel++) {
        double sum = 0, sizes = 0;
        for (int row = 0; row < c->rows; row++) {
            const double value =
                (double)narrow_value(c->element, dx[(size_t)row * (size_t)pitch + (size_t)channel]);
            sum += value;
            sizes += fabs(value);
        }
        if (!(fabs((double)found[channel] - sum) <= epsilon * sizes + 1e-6))
            fail_msg("%d x %d, op %d, element %d: sum of channel %d: %.9g, not %.9g", c->rows, c->channels,
                     c->op, c->element, channel, (double)found[channel], sum);
    }
    free(found);
}

/* Operands of one gradient, and where it goes. */
typedef struct Operands {
    DeviceTensor dy, x, dx, factors, dmeans, sums;
    void *scratch;
} Operands;

/* Returns the operands of a gate's gradient. */
static GateGradient gate_of(const Case *c, const Operands *o, const DeviceTensor *dx,
                            const DeviceTensor *sums)
{
    const bool has_terms = c->samples > 1;
    return (GateGradient){.dy = &o->dy,
                          .x = &o->x,
                          .dx = dx,
                          .factors = has_terms ? &o->factors : NULL,
                          .dmeans = has_terms ? &o->dmeans : NULL,
                          .sums = sums};
}

/* Computes the gradient in dx; with the sums if they are wanted. */
static void compute(const Case *c, const Operands *o, const DeviceTensor *dx, const DeviceTensor *sums)
{
    const GateGradient gate = gate_of(c, o, dx, sums);
    if (c->op == OP_GATE_BACKWARD)
        gpu_check(kernel_gate_backward(&gate, o->scratch, NULL));
    else if (c->op == OP_CHANNEL_SCALE_BACKWARD)
        gpu_check(
            kernel_channel_scale_backward(&o->dy, &o->x, &o->factors, dx, NULL, sums, o->scratch, NULL));
    else if (sums)
        gpu_check(kernel_pointwise_backward_sums(c->op, &o->dy, &o->x, dx, sums, o->scratch, NULL));
    else
        gpu_check(kernel_pointwise_backward(c->op, &o->dy, &o->x, dx, NULL));
}

static uint64_t scratch_bytes(const Case *c, const Operands *o)
{
    const GateGradient gate = gate_of(c, o, &o->dx, &o->sums);
    switch (c->op) {
    case OP_GATE_BACKWARD:
        return kernel_gate_backward_scratch_bytes(&gate);
    case OP_CHANNEL_SCALE_BACKWARD:
        return kernel_channel_scale_scratch_bytes(&o->x, &o->factors, true);
    default:
        return kernel_column_scratch_bytes(&o->dx);
    }
}

/* Tries a result of its own, and one in the place of x, and of dy where that has as many channels. */
static void try(const Case *c)
{
    const int of_x = c->op == OP_GATE_BACKWARD ? 2 * c->channels : c->channels;
    Random random;
    random_start(&random, (uint64_t)c->rows, (uint64_t)c->channels);
    Operands o = {.dy = make_matrix(c, c->channels, &random),
                  .x = make_matrix(c, of_x, &random),
                  .dx = make_matrix(c, of_x, NULL),
                  .factors = make_floats(c->samples, c->channels, &random),
                  .sums = make_floats(1, of_x, NULL)};
    const Case of_means = {
        .samples = c->samples, .rows = c->samples, .channels = c->channels, .element = c->element};
    o.dmeans = make_matrix(&of_means, c->channels, &random);
    o.scratch = gpu_copy_of(NULL, scratch_bytes(c, &o));
    compute(c, &o, &o.dx, NULL);
    uint16_t *const wanted = read_matrix(&o.dx), *const dy = read_matrix(&o.dy), *const x = read_matrix(&o.x);
    const size_t bytes = (size_t)device_tensor_stored(&o.dx) * sizeof *wanted,
                 bytes_of_dy = (size_t)device_tensor_stored(&o.dy) * sizeof *wanted;
    const DeviceTensor *const places[] = {&o.dx, &o.x, &o.dy};
    for (int i = 0; i < (of_x == c->channels ? 3 : 2); i++) {
        gpu_check(cudaMemcpy(o.dy.data, dy, bytes_of_dy, cudaMemcpyHostToDevice));
        gpu_check(cudaMemcpy(o.x.data, x, bytes, cudaMemcpyHostToDevice));
        gpu_check(cudaMemset(o.dx.data, 0xFF, bytes));
        gpu_check(cudaMemset(o.sums.data, 0xFF, (size_t)o.sums.pitch * sizeof(float)));
        compute(c, &o, places[i], &o.sums);
        uint16_t *found = read_matrix(places[i]);
        assert_memory_equal(found, wanted, bytes);
        compare_sums(c, &o.sums, found, (int)o.dx.pitch);
        free(found);
    }
    free(wanted);
    free(dy);
    free(x);
    gpu_check(cudaFree(o.dy.data));
    gpu_check(cudaFree(o.x.data));
    gpu_check(cudaFree(o.dx.data));
    gpu_check(cudaFree(o.factors.data));
    gpu_check(cudaFree(o.dmeans.data));
    gpu_check(cudaFree(o.sums.data));
    gpu_check(cudaFree(o.scratch));
}

TEST(test_gradients_are_the_same_and_their_sums_right)
{
    static const int shapes[][2] = {{1, 8}, {7, 12}, {333, 384}, {5001, 1536}, {20000, 96}, {70000, 16}};
    static const OpKind ops[] = {OP_GELU_BACKWARD, OP_SILU_BACKWARD, OP_MISH_BACKWARD, OP_GATE_BACKWARD,
                                 OP_CHANNEL_SCALE_BACKWARD};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
            for (int bf16 = 0; bf16 < 2; bf16++)
                if (ops[o] != OP_GATE_BACKWARD || shapes[s][1] % 8 == 0)
                    try(&(Case){.samples = 1,
                                .rows = shapes[s][0],
                                .channels = shapes[s][1],
                                .op = ops[o],
                                .element = bf16 ? ELEMENT_BF16 : ELEMENT_F16});
}

/* Strips of several samples are added up: one strip each, several, more than the card runs at a time. */
TEST(test_gates_with_factors_and_means_sum_all_samples)
{
    static const int shapes[][3] = {{2, 10, 8}, {6, 144, 16}, {5, 3000, 64}, {3, 999, 520}, {700, 40, 16}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            try(&(Case){.samples = shapes[s][0],
                        .rows = shapes[s][0] * shapes[s][1],
                        .channels = shapes[s][2],
                        .op = OP_GATE_BACKWARD,
                        .element = bf16 ? ELEMENT_BF16 : ELEMENT_F16});
}
