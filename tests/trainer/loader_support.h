/* loader_support.h - loaders in tests; whatever cannot be done fails the running test. */
#ifndef FSHARD_TESTS_TRAINER_LOADER_SUPPORT_H
#define FSHARD_TESTS_TRAINER_LOADER_SUPPORT_H

#include "trainer/data/loader.h"

/* Opens a loader, which the caller frees with loader_free. */
Loader *open_loader(const LoaderOptions *options);
/* Returns the next batch, NULL after the last. */
const Batch *next_batch(Loader *loader);

#endif
