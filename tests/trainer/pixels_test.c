/* The arithmetic of a backend's own pixels, done here in loops, against the loader's rendering: the same
 * bytes. */
#include "trainer/backend/pixels.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/pixels_support.h"

TEST(test_recipes_give_the_loaders_bytes)
{
    for (uint64_t seed = 1; seed < 3; seed++) {
        PixelsCase test;
        for (unsigned number = 0; pixels_case_make(&test, seed, number); number++) {
            const PixelBatch *batch = &test.batch;
            const size_t bytes = (size_t)batch->width * batch->height * batch->channels;
            uint8_t *pixels = malloc(bytes * PIXELS_COUNT);
            assert_non_null(pixels);
            for (unsigned side = 0; side < 2 * test.sides; side++) {
                memset(pixels, 0x5A, bytes * PIXELS_COUNT);
                pixels_apply(batch, test.stored, side / 2, side % 2, pixels);
                pixels_case_compare(&test, side / 2, pixels);
            }
            free(pixels);
            pixels_case_free(&test);
        }
    }
}

/* ---- the interface on a backend that has none ---- */

TEST(test_the_cpu_backend_has_no_store)
{
    Backend *backend = NULL;
    PixelStore *store = NULL;
    FshError error = {0};
    uint64_t bytes = 0;
    assert_int_equal(backend_open(&backend, "cpu", &(BackendOptions){.threads = 1}, &error), FSH_OK);
    assert_int_equal(pixel_store_new(&store, backend, 100, &error), FSH_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "--device cuda"));
    assert_null(store);
    assert_int_equal(backend_free_memory(backend, &bytes, &error), FSH_ERR_UNSUPPORTED);
    pixel_store_free(&store);
    backend_close(&backend);
}
