/* collection.h - datasets of others, which have no manifest: what their files are, and one that is made
 * up. */
#ifndef FSHARD_FORMATS_COLLECTION_H
#define FSHARD_FORMATS_COLLECTION_H

#include <stddef.h>

#include "formats/split_file.h"

typedef struct CollectionFile {
    char *path, *name; /* owned; name: as the manifest lists it */
    const char *split; /* static; NULL, while files are found: its name tells */
} CollectionFile;

typedef struct Collection {
    const Container *container; /* NULL: nothing was found */
    CollectionFile *files;      /* split by split: train, val, test; in each by name, or as given */
    size_t count;
    char *folder; /* what the names are relative to; owned; "" for none */
} Collection;

/* What is at path: a tar, a folder of tars, LMDBs of others, a list with braces, of tars or of shards.
 * Its container is NULL where there is nothing of the kind. FSH_ERR_UNSUPPORTED, FSH_ERR_SYSTEM,
 * FSH_ERR_MEMORY. */
FshStatus fsh_collection_find(Collection *collection, const char *path, FshError *error);
/* The manifest of its opened files (file i is collection file i): fields, classes, counts, an id that names,
 * sizes, counts and the last bytes of images give. */
FshStatus fsh_collection_manifest(FshManifest *manifest, const Collection *collection, const SplitFile *files,
                                  FshError *error);
void fsh_collection_free(Collection *collection);

/* ---- for the member `find` of containers ---- */

/* Adds folder/name. FSH_ERR_MEMORY. */
FshStatus fsh_collection_add(Collection *collection, const char *folder, const char *name, const char *split,
                             FshError *error);
/* Adds the entries of the folder path whose names end in suffix, in byte order: those that are of the
 * container by their content or, where it is NULL, all. FSH_ERR_SYSTEM, FSH_ERR_MEMORY. */
FshStatus fsh_collection_gather(Collection *collection, const char *path, const char *suffix,
                                const Container *container, FshError *error);
/* Makes path itself the one file. FSH_ERR_MEMORY. */
FshStatus fsh_collection_take(Collection *collection, const char *path, FshError *error);

/* ---- for dataset.c ---- */

/* Where the labels of one of the files are places among names, makes them so in all: among the names of all
 * files, in byte order; numbers are names too. The first table has the names then. (label_names.c)
 * FSH_ERR_UNSUPPORTED: too many; FSH_ERR_MEMORY. */
FshStatus fsh_unite_class_names(SplitFile *files, size_t count, FshError *error);

/* Opens the dataset of one split that the collection's files are, opened: takes them over, whatever comes of
 * it. (dataset.c) */
FshStatus fsh_collection_open(FshDataset **dataset_ret, const char *path, const Collection *collection,
                              SplitFile *opened, FshError *error);

#endif
