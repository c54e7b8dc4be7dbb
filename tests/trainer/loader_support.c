#include "tests/trainer/loader_support.h"

#include "tests/support/support.h"

Loader *open_loader(const LoaderOptions *options)
{
    Loader *loader = NULL;
    FshError error = {0};
    assert_ok(loader_new(&loader, options, &error), &error);
    return loader;
}

const Batch *next_batch(Loader *loader)
{
    const Batch *batch = NULL;
    FshError error = {0};
    assert_ok(loader_next(loader, &batch, &error), &error);
    return batch;
}
