/* verify_names.h - what people call the classes of a dataset whose manifest does not tell it
 * (common/display_names.h). */
#ifndef FSHARD_VERIFY_VERIFY_NAMES_H
#define FSHARD_VERIFY_VERIFY_NAMES_H

#include "formats/fshard.h"

/* Reads what the file that $FSHARD_CLASS_NAMES names calls the classes of manifest. *names_ret: class_count
 * strings; NULL where the manifest has display names of its own or no classes, or the variable is not set.
 * Free with display_names_free. As display_names_read fails. */
FshStatus verify_names_read(const FshManifest *manifest, char ***names_ret, FshError *error);

/* Opens path as fsh_open does into *dataset_ret and gives its classes these names, for what is shown of it.
 */
FshStatus verify_open_named(FshDataset **dataset_ret, const char *path, FshError *error);

/* Tells before an hour of proof that the names of the dataset at path cannot be read; one whose manifest
 * cannot be is fine. */
FshStatus verify_names_check(const char *path, FshError *error);

#endif
