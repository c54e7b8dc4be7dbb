/* Operations as a backend applies them, done here in loops, against the loader's: the same bytes. The
 * loader's are held to Pillow's in image_operations_test. */
#include "trainer/backend/pixel_operations.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/operations_support.h"

TEST(test_a_block_of_threads_gives_the_loaders_bytes)
{
    static const uint32_t threads[] = {512, 33}; /* as CUDA's, and another number */
    OperationsCase test;
    for (unsigned number = 0; operations_case_make(&test, number); number++) {
        const size_t bytes = (size_t)test.batch.width * test.batch.height * test.batch.channels;
        uint8_t *pixels = malloc(test.stored_bytes);
        assert_non_null(pixels);
        assert_memory_not_equal(test.stored, test.expected, test.stored_bytes); /* or the case says nothing */
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            memcpy(pixels, test.stored, test.stored_bytes);
            for (uint64_t i = 0; i < test.batch.count; i++)
                operations_apply(&test.batch, i, threads[t], pixels + i * bytes);
            operations_case_compare(&test, pixels);
        }
        free(pixels);
        operations_case_free(&test);
    }
}

TEST(test_sums_of_luma_do_not_run_over)
{
    enum { EDGE = 4200, LEVEL = 251 };
    const PixelOperations operations = {.count = 1,
                                        .steps = {{.operation = OPERATION_CONTRAST, .argument = 0}}};
    const PixelRecipe recipe = {.filter = RESAMPLE_BILINEAR};
    const PixelBatch batch = {
        .width = EDGE, .height = EDGE, .channels = 1, .recipes = &recipe, .operations = &operations};
    uint8_t *pixels = malloc((size_t)EDGE * EDGE);
    size_t others = 0;
    assert_non_null(pixels);
    memset(pixels, LEVEL, (size_t)EDGE * EDGE); /* a thread alone sums up more than 32 bits hold */
    operations_apply(&batch, 0, 1, pixels);
    for (size_t i = 0; i < (size_t)EDGE * EDGE; i++)
        others += pixels[i] != LEVEL;
    assert_int_equal(others, 0);
    free(pixels);
}
