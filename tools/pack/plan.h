/* plan.h - every decision of a packing, made before a pixel is read: plan, then work, then deliver.
 *
 *   Plan plan = {.folder = -1};
 *   FshStatus status = plan_make(&plan, &options, &error); // which sample goes where, with which key and label
 *   if (!status)                                           // pack.h: reads, checks, writes
 *       status = pack_run(&plan, &options, left_out, context, &result, &error);
 *   plan_free(&plan);
 *
 * A plan is a function of the names, sizes (and for `raw` the image headers) below the source and of the
 * options: not of threads, times or the destination. Its parts, in the order they run:
 *
 * - plan.c: walk, which files are images; after plan_select, the order of the samples
 * - plan_classes.c: class folders to split, class and key; keys that would clash
 * - plan_pairs.c: side folders to split, key and one source for each field
 * - plan_flat.c: a hint, where neither finds a sample
 * - plan_select.c: --limit and --split, stratified by a hash of the key
 * - plan_outputs.c: bytes of each record, cut into shards; the dataset's id
 *
 * Threads: a finished plan is only read. */
#ifndef FSHARD_PACK_PLAN_H
#define FSHARD_PACK_PLAN_H

#include <jansson.h>

#include "common/walk.h"
#include "formats/fshard.h"
#include "tools/pack/notes.h"

typedef enum PackStore {
    PACK_STORE_COPY, /* the file's bytes as they are */
    PACK_STORE_RAW,  /* decoded: uint8 HWC */
} PackStore;

typedef struct PackOptions {
    const char *source, *destination;
    FshContainer container;
    PackStore store;
    char field_names[FSH_FIELDS_MAX][256]; /* the side folders */
    size_t field_count;                    /* 0: class folders */
    uint64_t shard_bytes;                  /* aimed at, for each shard */
    double val_fraction;                   /* of each class, from train to val; 0: none */
    uint64_t seed;                         /* of that choice and of limit's */
    bool shuffle;                          /* order of the samples: shuffle_seed's instead of the paths' */
    uint64_t shuffle_seed;
    uint64_t limit; /* samples of each split at most, spread over its classes; 0: all */
    bool check;     /* decode every image in full */
    bool force;
    uint64_t max_pixels; /* larger images are left out */
    int jobs;
    bool quiet;
} PackOptions;

typedef enum PlanSplitIndex { PLAN_TRAIN, PLAN_VAL, PLAN_TEST, PLAN_SPLITS } PlanSplitIndex;

/* "train", "val", "test". */
extern const char *const plan_split_names[PLAN_SPLITS];

typedef struct PlanSample {
    const char *key; /* key_bytes long, not NUL-terminated; owned by the plan */
    uint32_t key_bytes;
    int32_t label;         /* index into class_names, or -1 */
    uint32_t split;        /* PlanSplitIndex */
    uint64_t first_source; /* sources[first_source + field] is the file of a field */
} PlanSample;

typedef struct PlanSplit {
    bool present;                        /* has at least one sample */
    uint64_t first_sample, sample_count; /* its samples are neighbours */
} PlanSplit;

/* One file of the dataset: a shard, or a split's LMDB. Its samples are neighbours. */
typedef struct PlanOutput {
    uint32_t split;
    uint32_t shard_index, shard_count; /* of its split */
    uint64_t first_sample, sample_count;
    uint64_t record_bytes;
} PlanOutput;

typedef struct Plan {
    const char *root; /* options->source */
    int folder;       /* descriptor of it, see source.h; -1: not open */
    FshKind kind;
    FileList files;
    uint8_t *is_image;         /* for each file: by name, or by content where the name says nothing */
    uint64_t other_file_count; /* files that are no images */

    const char *field_names[FSH_FIELDS_MAX]; /* borrowed from the options; "image" for classes */
    size_t field_count;
    char **class_names; /* byte order */
    size_t class_count;

    PlanSplit splits[PLAN_SPLITS];
    PlanSample *samples; /* in packing order, split after split */
    uint64_t sample_count;
    uint64_t *sources; /* indexes into files.files */
    uint64_t source_count;
    char *key_storage; /* keys that are not part of a path */

    PlanOutput *outputs;
    size_t output_count;
    uint32_t raw_channels;   /* PACK_STORE_RAW: 1 where every image is gray, else 3 */
    uint64_t *payload_bytes; /* PACK_STORE_RAW: for each file, from its header; NULL for copy */
    char id[33];

    json_t *recipe; /* what fresize noted in the source about how it was made; NULL if it was not */

    NoteList left_out; /* inputs that go into no sample: orphans, images in no class, unreadable folders */
    NoteList warnings; /* what is odd but no failure */
} Plan;

/* FSH_ERR_NOT_FOUND: no source, or no image in the layout that was looked for. FSH_ERR_MISMATCH: splits with
 * different classes. FSH_ERR_USAGE: options that contradict what is there. FSH_ERR_INTERRUPTED. On failure
 * only plan_free is allowed. */
FshStatus plan_make(Plan *plan, const PackOptions *options, FshError *error);
void plan_free(Plan *plan);

/* The file behind a field of a sample. */
const FileEntry *plan_source(const Plan *plan, const PlanSample *sample, size_t field);

/* The sample as fsh_record_bytes wants it: key, label, sources, and the payload's length as planned. Data,
 * geometry and codec are placeholders until the work fills them in. */
void plan_describe(const Plan *plan, const PlanSample *sample, FshSample *description);

/* ---- for the parts of the plan ---- */

/* PLAN_SPLITS where the name (length bytes) is no split's: "valid" and "validation" are val. */
PlanSplitIndex plan_split_by_name(const char *name, size_t length);

/* Appends a sample and its field_count sources (file indexes). There is room: no file is in two samples. */
void plan_add_sample(Plan *plan, const char *key, size_t key_bytes, int32_t label, PlanSplitIndex split,
                     const uint64_t *sources);

/* Bytes of path without the extension, if it is an image's: 3 for "a/b.jpg", 10 for "a/b.000001" (a number,
 * not a kind of file). */
size_t plan_stem_bytes(const char *path);

/* Fill samples, sources and class_names. */
FshStatus plan_classes(Plan *plan, const PackOptions *options, FshError *error);
FshStatus plan_pairs(Plan *plan, const PackOptions *options, FshError *error);

/* Where plan_make fails for want of samples: adds to its message, if all images lie in one folder and their names pair
 * up. Returns status. */
FshStatus plan_hint_flat_pairs(const Plan *plan, FshStatus status, FshError *error);

/* Apply --limit, then --split. Sample order is kept. */
FshStatus plan_select(Plan *plan, const PackOptions *options, FshError *error);

/* Probe (raw), cut into outputs, compute the id. */
FshStatus plan_outputs(Plan *plan, const PackOptions *options, FshError *error);

#endif
