/* dataset.h - what the parts of libfshard that read an open dataset share. */
#ifndef FSHARD_FORMATS_DATASET_H
#define FSHARD_FORMATS_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "common/file.h"
#include "formats/metadata.h"
#include "formats/split_file.h"

struct FshSplitFiles {
    SplitFile *files; /* in the order of the manifest */
    size_t count;
    const char *folder;
    const FshManifest *manifest;
    Metadata metadata;                     /* what each file must say of itself */
    const struct ZSTD_DDict_s *dictionary; /* the dataset's, or NULL */
    /* Of a chosen split (choose.c): its samples in the files, [sample_count], ascending; NULL: all. */
    const uint64_t *chosen;
    /* With other classes than the files have (choose.c): which of them each of the label_count stored ones is
     * now, or FSH_NO_LABEL; NULL: the same. */
    const int32_t *label_places;
    size_t label_count;
    /* Of a joined dataset (join.c): its members, and where the samples of each end among the stored ones;
     * else NULL. */
    const struct Joined *joined;
    const uint64_t *member_ends;
};

/* A split that was chosen from another. */
typedef struct ChosenSplit {
    FshSplit split;
    FshSplitInfo info; /* name and files are the other's; class_counts its own */
    struct FshSplitFiles files;
    uint64_t *chosen;
    struct ChosenSplit *next;
} ChosenSplit;

struct FshDataset {
    char *path;   /* as it was given to fsh_open */
    char *folder; /* in which the files are; "" for the current one */
    FshManifest manifest;
    FshSplit *splits;                  /* manifest.split_count */
    struct FshSplitFiles *split_files; /* as many */
    struct ZSTD_DDict_s *dictionary;   /* NULL if there is none */
    int lock;                          /* on the manifest, see manifest_lock.h; -1: none */
    ChosenSplit *chosen;               /* owned */
    int32_t *label_places;             /* of FshSplitFiles; owned */
    struct Joined *joined;             /* owned; NULL: it is one dataset */
};

/* Frees what choosing has made. (choose.c) */
void fsh_chosen_free(FshDataset *dataset);

/* Frees what joining has made, and closes the members. (join.c) */
void fsh_joined_free(FshDataset *dataset);
/* Returns the dictionary that a field of the split was packed with, by where its data lies; NULL: none.
 * (join.c) */
const struct ZSTD_DDict_s *fsh_field_dictionary(const FshSplit *split, const FshField *field);

/* Returns the place in the files of a split's sample. */
static inline uint64_t fsh_stored_place(const FshSplit *split, uint64_t index)
{
    return split->files->chosen ? split->files->chosen[index] : index;
}

/* Returns how many classes a file of the split has. */
static inline size_t fsh_stored_class_count(const struct FshSplitFiles *files, const SplitFile *file)
{
    return file->joined_labels   ? file->joined_label_count
           : files->label_places ? files->label_count
                                 : files->manifest->class_count;
}

/* Returns what a label in a file is now; stored: FSH_NO_LABEL, or below fsh_stored_class_count. */
static inline int64_t fsh_label_now(const struct FshSplitFiles *files, const SplitFile *file, int64_t stored)
{
    const int64_t joined = file->joined_labels && stored >= 0 ? file->joined_labels[stored] : stored;
    return files->label_places && joined >= 0 ? files->label_places[joined] : joined;
}

/* Returns the file that holds a sample of the split, and sets *record_ret to its record there. index <
 * sample_count. (split_samples.c) */
const SplitFile *fsh_split_find(const FshSplit *split, uint64_t index, uint64_t *record_ret);
/* Puts file, record and byte offset of the record that holds data in front of a failure's message. Returns
 * status. */
FshStatus fsh_split_fail_at_data(const FshSplit *split, const void *data, FshStatus status, FshError *error);
/* Checks whether these bytes of a mapping of the split were there: FSH_ERR_SYSTEM. */
FshStatus fsh_split_check_read_data(const FshSplit *split, const void *data, size_t bytes, FshError *error);

/* Reads a range of a mapping into the page cache and maps it. A disk that fails is FSH_ERR_SYSTEM here
 * instead of SIGBUS later: where the kernel can (Linux 5.14), or the program has called read_fault_outlive.
 * The message names the byte where that is known, else the range's first. (residency.c) */
FshStatus fsh_populate(const FileMapping *mapping, uint64_t offset, uint64_t length, FshError *error);

/* ---- files that nobody has packed (container_files.c) ---- */

/* Reads the file of a field of FSH_COMPRESSION_FILE. Messages begin with its path. */
FshStatus fsh_files_read(const FshSplit *split, const FshField *field, Buffer *bytes, FshError *error);

#endif
