/* The values that tensors begin with: those of the tensor's own stream, one after the other, however many
 * threads draw them. */
#include "trainer/backend/initial_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/support/support.h"

enum { TENSORS = 7, SEED = 5 };

/* The FNV-1a hash of "conv.weight", 64 bits: the stream of the tensor of that name. */
static const uint64_t conv_weight_hash = UINT64_C(0x796F8DF88F56D987);

static void describe(Tensor *tensor, const char *name, int kind, double scale, int64_t out, int64_t in,
                     int64_t kernel)
{
    *tensor = (Tensor){.rank = 4, .shape = {out, in, kernel, kernel}, .initializer = {kind, scale}};
    (void)snprintf(tensor->name, sizeof tensor->name, "%s", name);
}

static void draw(const Tensor *tensors, int jobs, InitialValues values[TENSORS])
{
    FshError error = {0};
    for (int i = 0; i < TENSORS; i++) {
        values[i] = (InitialValues){&tensors[i], malloc((size_t)tensor_count(&tensors[i]) * sizeof(float))};
        assert_non_null(values[i].values);
    }
    assert_ok(initial_values_draw(values, TENSORS, SEED, jobs, &error), &error);
}

TEST(test_any_number_of_threads_draws_the_stream_of_each_tensor)
{
    Tensor *tensors = calloc(TENSORS, sizeof *tensors);
    assert_non_null(tensors);
    /* four parts, the last of odd length */
    describe(&tensors[0], "conv.weight", INIT_NORMAL, 0.5, 200, 67, 3);
    describe(&tensors[1], "empty", INIT_ONES, 0, 0, 1, 1);
    describe(&tensors[2], "fc.weight", INIT_UNIFORM, 0.25, 300, 333, 1);
    describe(&tensors[3], "bn.weight", INIT_ONES, 0, 64, 1, 1);
    describe(&tensors[4], "bn.bias", INIT_ZEROS, 0, 65, 1, 1);
    describe(&tensors[5], "scale", INIT_CONSTANT, 1e-6, 40000, 1, 1);
    describe(&tensors[6], "dirac", INIT_DIRAC, 0.125, 130, 64, 3);
    InitialValues first[TENSORS], values[TENSORS];
    draw(tensors, 1, first);
    static const int jobs[] = {2, 5, 16};
    for (size_t j = 0; j < sizeof jobs / sizeof *jobs; j++) {
        draw(tensors, jobs[j], values);
        for (int i = 0; i < TENSORS; i++) {
            assert_memory_equal(values[i].values, first[i].values,
                                (size_t)tensor_count(&tensors[i]) * sizeof(float));
            free(values[i].values);
        }
    }
    Random random;
    random_start(&random, SEED, conv_weight_hash);
    for (int64_t i = 0; i < tensor_count(&tensors[0]); i++)
        assert_true(first[0].values[i] == (float)(0.5 * (double)random_normal(&random)));
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(&tensors[2]); i++) {
        assert_true(first[2].values[i] >= -0.25F && first[2].values[i] < 0.25F);
        sum += (double)first[2].values[i];
    }
    assert_true(sum > -200 && sum < 200); /* a deviation is 46 */
    assert_true(first[3].values[63] == 1 && first[4].values[64] == 0 && first[5].values[39999] == 1e-6F);
    const size_t filter = 64 * 9;
    for (size_t i = 0; i < filter; i++)
        assert_true(first[6].values[3 * filter + i] == (i == 3 * 9 + 4));
    assert_true(first[6].values[100 * filter + 7] != 0);
    for (int i = 0; i < TENSORS; i++)
        free(first[i].values);
    free(tensors);
}
