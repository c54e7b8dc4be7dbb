/* What a graph would take of a GPU's memory, and what is said where that is not there: arithmetic, for which
 * no GPU need be here. */
#include "trainer/backend/cuda/memory_use.h"

#include "tests/support/support.h"
#include "tests/trainer/odd_network.h"
#include "trainer/backend/memory_advice.h"

/* Every tensor takes a multiple of 256 bytes; copies and gradients of weights are padded to 8 channels both
 * ways. */
TEST(test_each_kind_of_memory_is_foreseen)
{
    static const DataType types[] = {DATA_F32, DATA_F16};
    /* conv 16 x 3 x 3 x 8, its bias, linear 24 x 16, its bias; the depthwise one is read as it is */
    static const uint64_t copies[] = {0, 2304 + 256 + 768 + 256};
    /* f32: as the weights; f16: conv, linear as their copies; biases, norm, depthwise in f32 */
    static const uint64_t gradients[] = {1024 + 256 + 2 * 256 + 512 + 768 + 256,
                                         2304 + 256 + 2 * 256 + 512 + 768 + 256};
    for (int i = 0; i < 2; i++) {
        FshError error = {0};
        MemoryUse use = {0};
        Graph *graph = odd_network(types[i], 9);
        assert_ok(cuda_foresee_memory(graph, &use, &error), &error);
        assert_int_equal(use.bytes[MEMORY_WEIGHTS], 1024 + 256 + 4 * 256 + 512 + 768 + 256);
        assert_int_equal(use.bytes[MEMORY_COPIES], copies[i]);
        assert_int_equal(use.bytes[MEMORY_GRADIENTS], gradients[i]);
        assert_int_equal(use.bytes[MEMORY_INPUTS], 2 * (256 + 256));
        assert_int_equal(use.bytes[MEMORY_PINNED], 2 * (256 + 256));
        assert_int_equal(use.bytes[MEMORY_ACTIVATIONS] % 64, 0);
        assert_true(use.bytes[MEMORY_ACTIVATIONS] > 0 && use.bytes[MEMORY_SCRATCH] == 0);
        assert_int_equal(memory_batch_use(graph), BATCHES_OF_TRAINING);
        graph_free(&graph);
    }
}

static void check_advice(int64_t batch, BatchRoom room, const char *message)
{
    FshError error = {0};
    (void)fsh_error_set(&error, FSH_ERR_MEMORY, "no memory");
    assert_int_equal(memory_advise_batch(batch, &room, &error), FSH_ERR_MEMORY);
    assert_string_equal(error.message, message);
    assert_int_equal(memory_advise_batch(batch, &room, NULL), FSH_ERR_MEMORY);
}

TEST(test_the_batch_that_fits_is_told)
{
    check_advice(512, (BatchRoom){BATCHES_OF_ALL, 1000, 0, 500},
                 "no memory; use a smaller batch: of 512 samples, about 256 fit");
    /* what is held would be taken anew */
    check_advice(512, (BatchRoom){BATCHES_OF_ALL, 1000, 250, 500},
                 "no memory; use a smaller batch: of 512 samples, about 384 fit");
    /* free, but not in one piece */
    check_advice(512, (BatchRoom){BATCHES_OF_ALL, 1000, 0, 2000},
                 "no memory; use a smaller batch: of 512 samples, about 511 fit");
    check_advice(
        512, (BatchRoom){BATCHES_OF_TRAINING, 1000, 0, 500},
        "no memory; use a smaller --batch-size: of 512 samples, about 256 fit; --grad-accum-steps makes "
        "an update of several batches");
    check_advice(512, (BatchRoom){BATCHES_OF_EVALUATION, 1000, 0, 500},
                 "no memory; use a smaller --val-batch-size: of 512 samples, about 256 fit");
    check_advice(512, (BatchRoom){BATCHES_OF_ALL, 1000, 0, 1},
                 "no memory; a batch of 1 does not fit either: use smaller images");
    check_advice(1, (BatchRoom){BATCHES_OF_ALL, 1000, 0, 1}, "no memory");
    check_advice(8, (BatchRoom){0}, "no memory");
}
