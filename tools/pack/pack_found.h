/* pack_found.h - the first phase of a plan: what lies in the source, before anything is decided about it.
 *
 *   PackFound found;
 *   FshStatus status = pack_find(&found, &options, &notes, &error);   // walks, lists or opens the source
 *   … found.files, or found.from …
 *   pack_found_free(&found);                                          // after a failure, too
 *
 * The source is a tree of files (walked, or named by --files-from) or a dataset. Either has items: of a tree
 * item i is file i, of a dataset item i is field i % from.field_count of its sample i / from.field_count,
 * counted through its splits. Later phases name the bytes of a sample by its items and read them with the
 * functions below; pack_intake.h reads them.
 *
 * Threads: what was found is only read; the functions below may be called from any thread. */
#ifndef FSHARD_PACK_FOUND_H
#define FSHARD_PACK_FOUND_H

#include <limits.h>

#include <jansson.h>

#include "common/file.h"
#include "common/walk.h"
#include "tools/job/notes.h"
#include "tools/pack/pack_options.h"

/* As fsh_split_name counts them. */
typedef enum PackSplitIndex { PACK_TRAIN, PACK_VAL, PACK_TEST, PACK_SPLITS = FSH_SPLIT_COUNT } PackSplitIndex;

/* What a plan tells beside its samples. Every phase appends. */
typedef struct PackNotes {
    /* Inputs that go into no sample: orphans, images in no class, unreadable folders; with status FSH_OK what
     * --dedupe left out, as asked. */
    NoteList left_out;
    NoteList warnings; /* what is odd but no failure */
} PackNotes;

/* A dataset as the source: anything that fsh_open opens. */
typedef struct FoundDataset {
    FshDataset *dataset; /* NULL: the source is a tree of files */
    const FshSplit *splits[PACK_SPLITS];
    uint64_t first_samples[PACK_SPLITS]; /* the split's first, among those of all splits */
    size_t field_count;                  /* of the dataset; PackFound.field_count may be less */
    size_t fields[FSH_FIELDS_MAX];       /* [i]: the dataset's field that becomes field i */
    int64_t modified;                    /* a number that changes with the times and sizes of its files */
} FoundDataset;

/* All fields are written by pack_find, and by nothing after it; only *notes grows. */
typedef struct PackFound {
    const PackOptions *options; /* what the user asked; every later phase reads it here */
    const char *root;           /* options->source */
    PackNotes *notes;           /* the plan's; not owned */
    FshKind kind;
    const char *field_names[FSH_FIELDS_MAX]; /* the options' or the dataset's; "image" for classes */
    size_t field_count;
    /* every field after the first is so many times as wide and high; 0 and 1: as large */
    uint32_t pair_scale;
    uint64_t item_count;      /* items are below this: all files, or all fields of the dataset */
    uint64_t file_most_bytes; /* of a source's image: longer ones are left out unread (shrink_most_bytes) */
    json_t *recipe;           /* how fresize made the images smaller before; NULL: it did not */

    /* a tree */
    int folder;                /* descriptor of root; -1: not open */
    FileList files;            /* empty where the source is a dataset */
    uint8_t *is_image;         /* for each file: by name, or by content where the name says nothing */
    uint64_t other_file_count; /* files that are no images */
    Buffer list_text;          /* --files-from: their paths and labels */
    const char **list_labels;  /* --files-from: for each file; NULL where its line cannot be used */

    /* a dataset */
    FoundDataset from;
    json_t *provenance; /* what the dataset says of where it comes from; NULL: nothing */
} PackFound;

/* Fills *found: all below options->source that could become a sample. notes stay the caller's and take what
 * cannot be read. FSH_ERR_NOT_FOUND: no source, an empty list. FSH_ERR_MISMATCH: splits of a dataset that
 * are none of ours. FSH_ERR_USAGE: options that contradict what is there. FSH_ERR_CORRUPT: a list that
 * contradicts itself. FSH_ERR_SYSTEM, FSH_ERR_INTERRUPTED, FSH_ERR_MEMORY. */
FshStatus pack_find(PackFound *found, const PackOptions *options, PackNotes *notes, FshError *error);

/* Frees what pack_find took, and empties *found. */
void pack_found_free(PackFound *found);

/* ---- what later phases read ---- */

/* What one field of one sample is made from. */
typedef struct PackSource {
    const char
        *path; /* of the file, relative to the source; what the dataset says it was; not NUL-terminated */
    size_t path_bytes;
    uint64_t bytes;      /* as listed; not compressed */
    int64_t modified_ns; /* of the file; of a dataset a number that changes with any of its files */
} PackSource;

/* Returns where an item comes from. A dataset's sample that cannot be got any more has no path and no bytes:
 * the work tells why. */
PackSource found_source(const PackFound *found, uint64_t item);

/* Gets the dataset's sample that an item is of; *field_ret: which of its fields, *split_ret (may be NULL): in
 * which split. Only where the source is a dataset. Errors as fsh_sample_get. */
FshStatus found_dataset_sample(const PackFound *found, uint64_t item, FshSample *sample, size_t *field_ret,
                               const FshSplit **split_ret, FshError *error);

/* Opens a folder: files below it are named from there, which is shorter than from the root of the file
 * system, so that each costs three system calls. *descriptor_ret is the caller's to close. */
FshStatus source_open(const char *root, int *descriptor_ret, FshError *error);

/* Reads the first bytes of a file below the folder, `most` at most (fewer where the file ends), into buffer:
 * enough to know what it is. Messages of this and the next do not name the file: the caller knows it. */
FshStatus source_read_start(int folder, const char *path, size_t most, Buffer *buffer, FshError *error);

/* Reads the whole file, which had `expected` bytes when it was listed, into buffer. FSH_ERR_MISMATCH if it
 * has another size now. */
FshStatus source_read(int folder, const char *path, uint64_t expected, Buffer *buffer, FshError *error);

/* Returns the split that a folder of this name (length bytes) holds, PACK_SPLITS where it is no split's:
 * "valid" and "validation" are val. */
PackSplitIndex pack_split_by_name(const char *name, size_t length);

/* Returns the bytes of path without the extension, if it is an image's: 3 for "a/b.jpg", 10 for "a/b.000001"
 * (a number, not a kind of file). */
size_t pack_stem_bytes(const char *path);

/* ---- for the parts of this phase ---- */

/* Fills files and list_labels from --files-from. (pack_list.c) */
FshStatus find_list(PackFound *found, FshError *error);

/* Returns whether the source is to be opened as a dataset: a file, several, or a folder in which a dataset,
 * an LMDB, or tars, LMDBs and shards without any other folder lie. (pack_dataset.c) */
bool find_is_dataset(const char *source);
/* Opens it, and takes its fields and splits as they are. */
FshStatus find_dataset(PackFound *found, FshError *error);

/* ---- hints (pack_flat.c) ---- */

/* Names that the sides of pairs usually have, as --pairs takes them: "blur:sharp", …; ends with NULL. */
extern const char *const usual_sides[];

/* Adds to the message of a plan that fails for want of samples, if all images lie in one folder and their
 * names pair up. Returns status. */
FshStatus found_hint_flat_pairs(const PackFound *found, FshStatus status, FshError *error);

/* Returns "blur:sharp", or what else the folders are called in which more than half of a tree's images lie,
 * if those are usual names of the sides of pairs; NULL: they are not. Packed without --pairs, each film of
 * such a set is a class. */
const char *found_hint_sides(const PackFound *found);

#endif
