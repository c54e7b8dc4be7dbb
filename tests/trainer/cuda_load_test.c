/* --device cuda where there is nothing to run it: said with the reason and the way out, in every build. */
#include <dlfcn.h>
#include <stdlib.h>

#include "tests/support/support.h"
#include "trainer/backend/backend.h"

static FshStatus open_cuda(FshError *error)
{
    Backend *backend = NULL;
    const BackendOptions options = {0};
    FshStatus status = backend_open(&backend, "cuda", &options, error);
    backend_close(&backend);
    return status;
}

static bool has_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver)
        (void)dlclose(driver);
    return driver != NULL;
}

TEST(test_a_machine_without_a_driver_is_told)
{
    FshError error = {0};
    if (has_driver())
        skip();
    assert_int_equal(open_cuda(&error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "cuda: no NVIDIA driver on this machine");
    assert_contains(error.message, "--device cpu");
}

TEST(test_a_hidden_gpu_or_a_missing_plugin_is_told)
{
    FshError error = {0};
    if (!has_driver())
        skip();
    (void)setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    assert_int_equal(open_cuda(&error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "cuda: ");
    assert_contains(error.message, "--device cpu");
}
