/* Gradients of functions that add themselves up by channel (pointwise_sums.cu): the bits of the gradients
 * that do not (elementwise.cu), and sums right to the rounding of what is summed. Needs a GPU; leaves with 77
 * where there is none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "common/random.h"
#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "trainer/backend/cuda/kernels/kernels_norm.h"
#include "trainer/backend/cuda/kernels/kernels_pointwise.h"

typedef struct Case {
    int rows, channels;
    OpKind op;
    ElementType element;
} Case;

static DeviceTensor make_matrix(const Case *c, Random *random)
{
    const int pitch = (int)padded_channels(c->channels);
    const size_t count = (size_t)c->rows * (size_t)pitch;
    uint16_t *bits = calloc(count, sizeof *bits);
    assert_non_null(bits);
    for (size_t i = 0; random && i < count; i++) {
        const float value = 2 * random_normal(random);
        if ((int)(i % (size_t)pitch) < c->channels && fabsf(value) > 1e-3F)
            bits[i] = narrow_bits(c->element, value);
    }
    const DeviceTensor matrix = {.data = gpu_copy_of(bits, count * sizeof *bits),
                                 .element = c->element,
                                 .rank = 4,
                                 .shape = {c->rows, 1, 1, c->channels},
                                 .pitch = pitch,
                                 .rows = c->rows};
    free(bits);
    return matrix;
}

static uint16_t *read_matrix(const DeviceTensor *matrix)
{
    return gpu_read(matrix->data, (size_t)device_tensor_stored(matrix) * sizeof(uint16_t));
}

/* Compares the sums with those of the gradient as it was rounded. */
static void compare_sums(const Case *c, const DeviceTensor *sums, const uint16_t *dx, int pitch)
{
    const double epsilon = c->element == ELEMENT_BF16 ? ldexp(1, -8) : ldexp(1, -11);
    float *found = gpu_read(sums->data, (size_t)sums->pitch * sizeof *found);
    for (int channel = 0; channel < c->channels; channel++) {
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

/* Tries a result of its own, and one in the place of either operand. */
static void try(const Case *c)
{
    Random random;
    random_start(&random, (uint64_t)c->rows, (uint64_t)c->channels);
    DeviceTensor dy = make_matrix(c, &random), x = make_matrix(c, &random), dx = make_matrix(c, NULL);
    const DeviceTensor sums = {.data = gpu_copy_of(NULL, (size_t)dx.pitch * sizeof(float)),
                               .element = ELEMENT_F32,
                               .rank = 1,
                               .shape = {c->channels},
                               .pitch = dx.pitch,
                               .rows = 1};
    void *scratch = gpu_copy_of(NULL, kernel_column_scratch_bytes(&dx));
    gpu_check(kernel_pointwise_backward(c->op, &dy, &x, &dx, NULL));
    uint16_t *const wanted = read_matrix(&dx), *const of_dy = read_matrix(&dy), *const of_x = read_matrix(&x);
    const size_t bytes = (size_t)device_tensor_stored(&dx) * sizeof *wanted;
    DeviceTensor *const places[] = {&dx, &dy, &x};
    for (int i = 0; i < 3; i++) {
        gpu_check(cudaMemcpy(dy.data, of_dy, bytes, cudaMemcpyHostToDevice));
        gpu_check(cudaMemset(dx.data, 0xFF, bytes));
        gpu_check(kernel_pointwise_backward_sums(c->op, &dy, &x, places[i], &sums, scratch, NULL));
        uint16_t *found = read_matrix(places[i]);
        assert_memory_equal(found, wanted, bytes);
        compare_sums(c, &sums, found, (int)dx.pitch);
        free(found);
    }
    free(wanted);
    free(of_dy);
    free(of_x);
    gpu_check(cudaFree(dy.data));
    gpu_check(cudaFree(x.data));
    gpu_check(cudaFree(dx.data));
    gpu_check(cudaFree(sums.data));
    gpu_check(cudaFree(scratch));
}

TEST(test_gradients_are_the_same_and_their_sums_right)
{
    static const int shapes[][2] = {{1, 8}, {7, 12}, {333, 384}, {5001, 1536}, {20000, 96}};
    static const OpKind ops[] = {OP_GELU_BACKWARD, OP_SILU_BACKWARD, OP_MISH_BACKWARD};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
            for (int bf16 = 0; bf16 < 2; bf16++)
                try(&(Case){.rows = shapes[s][0],
                            .channels = shapes[s][1],
                            .op = ops[o],
                            .element = bf16 ? ELEMENT_BF16 : ELEMENT_F16});
}
