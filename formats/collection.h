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

/* Finds what is at path: a tar, a folder of tars, LMDBs of others, class folders, a list with braces, of tars
 * or of shards. The collection's container is NULL where there is nothing of the kind. FSH_ERR_UNSUPPORTED,
 * FSH_ERR_SYSTEM, FSH_ERR_MEMORY. */
FshStatus fsh_collection_find(Collection *collection, const char *path, FshError *error);
/* Makes the manifest of the opened files (file i is collection file i): fields, classes, counts, and an id,
 * which is a hash of names, sizes, counts and the last bytes of images. */
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

/* Gives all files one numbering of classes, if the labels of any file are places among its names: the place
 * among the names of all files, in byte order. Numbers are names too. The first table gets the names.
 * (label_names.c) FSH_ERR_UNSUPPORTED: too many; FSH_ERR_MEMORY. */
FshStatus fsh_unite_class_names(SplitFile *files, size_t count, FshError *error);

/* Makes *dataset_ret, of one split, from the collection's opened files, which it closes or takes over in any
 * case. (dataset.c) */
FshStatus fsh_collection_open(FshDataset **dataset_ret, const char *path, const Collection *collection,
                              SplitFile *opened, FshError *error);
/* Makes *dataset_ret from a manifest, which it takes over in any case, and the opened files that it lists,
 * which it closes or takes over in any case; opened: [count], with empty ones behind those. (dataset.c) */
FshStatus fsh_opened_take(FshDataset **dataset_ret, const char *path, const char *folder,
                          FshManifest *manifest, SplitFile *opened, size_t count, FshError *error);

#endif
