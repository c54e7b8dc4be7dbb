/* loader_options.h - what a program asks of the loader, as ftrain's options.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_LIBRARY_LOADER_OPTIONS_H
#define FSHARD_TRAINER_LIBRARY_LOADER_OPTIONS_H

#include "trainer/library/fshard_loader.h"
#include "trainer/plan/train_options.h"

/* The options, and the texts that they point to. */
typedef struct LoaderSettings {
    TrainOptions options;
    char **texts; /* owned */
    size_t text_count;
} LoaderSettings;

/* Reads the config. Everything is copied. FSH_ERR_USAGE: an option that the loader has not; a value that is
 * none; ranks that are none. FSH_ERR_MEMORY. On failure loader_settings_free is the caller's, too. */
FshStatus loader_settings_read(LoaderSettings *settings, const FshLoaderConfig *config, FshError *error);
/* Frees what the settings own; zeroed is fine. */
void loader_settings_free(LoaderSettings *settings);

#endif
