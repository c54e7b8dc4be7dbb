/* pack_plan.h - every decision of a packing, made before a pixel is read: plan, then work, then deliver.
 *
 *   Plan plan = {.folder = -1};
 *   FshStatus status = pack_plan_make(&plan, &options, &error); // which sample goes where
 *   if (!status)                                           // pack.h: reads, checks, writes
 *       status = pack_run(&plan, &options, left_out, context, &result, &error);
 *   plan_free(&plan);
 *
 * A plan is a function of the names, sizes (and for `raw` the image headers) below the source and of the
 * options: not of threads, times or the destination. Its parts, in the order they run:
 *
 * - pack_plan.c: walk, which files are images; after plan_select, the order of the samples
 * - pack_dataset.c: instead of all that up to plan_select, where the source is a dataset
 * - pack_classes.c: class folders to split, class and key
 * - pack_list.c: instead of the walk and that, a list of paths and labels
 * - pack_texts.c: classes from labels that stand in a file
 * - pack_pairs.c: side folders to split, key and one source for each field
 * - pack_flat.c: a hint, where neither finds a sample
 * - pack_keys.c: keys that would clash
 * - pack_chosen.c, pack_dedupe.c, pack_tally.c: --classes, --dedupe and what is left then
 * - pack_split.c: --limit and --split, stratified by a hash of the key
 * - pack_store.c: how each sample is stored, and what its record takes
 * - pack_trial.c: what compressing and encoding make of that; the dictionary
 * - pack_outputs.c: bytes of each record, cut into shards; the dataset's id
 *
 * Threads: a finished plan is only read. */
#ifndef FSHARD_PACK_PLAN_H
#define FSHARD_PACK_PLAN_H

#include <limits.h>

#include <jansson.h>

#include "common/file.h"
#include "tools/job/part.h"
#include "common/walk.h"
#include "formats/fshard.h"
#include "tools/pack/pack_names.h"
#include "tools/job/notes.h"
#include "imaging/shrink.h"

typedef enum PackStore {
    PACK_STORE_COPY, /* the file's bytes as they are */
    PACK_STORE_JPEG, /* decoded, and encoded again */
    PACK_STORE_RAW,  /* decoded: uint8 HWC */
    PACK_STORE_ZSTD, /* the same, compressed */
    PACK_STORE_AUTO, /* copy or raw, chosen for each sample */
} PackStore;

/* "copy", "jpeg", …; NULL behind the last. Indexed by PackStore. */
extern const char *const pack_store_names[];

typedef struct PackOptions {
    const char *source, *destination;
    FshContainer container;
    PackStore store;    /* quality of JPEG: resize.quality */
    int level;          /* of zstd: 1 to FSH_PACK_LEVEL_MAX */
    uint64_t raw_under; /* PACK_STORE_AUTO: raw where no image of the sample takes more bytes; 0: no bound */
    uint64_t budget_bytes;                 /* PACK_STORE_AUTO: what all records may take; 0: no bound */
    uint64_t dictionary_bytes;             /* what a dictionary may take at most; 0: none */
    char field_names[FSH_FIELDS_MAX][256]; /* the side folders */
    size_t field_count;                    /* 0: class folders */
    /* sides with folders of their own: source, the folder that all of them lie in; "": none */
    char root[PATH_MAX];
    char side_folders[FSH_FIELDS_MAX][PATH_MAX]; /* these folders, below root */
    char side_suffixes[FSH_FIELDS_MAX][64];      /* what the names of a side end in, besides; "": nothing */
    uint32_t pair_scale;  /* of pairs: fields after the first are so many times as large; 1: as large */
    uint64_t shard_bytes; /* aimed at, for each shard */
    double val_fraction;  /* of each class, from train to val; 0: none */
    uint64_t seed;        /* of that choice and of limit's */
    bool shuffle;         /* order of the samples: shuffle_seed's instead of the paths' */
    uint64_t shuffle_seed;
    uint64_t limit;         /* samples of each split at most, spread over its classes; 0: all */
    ShrinkRecipe resize;    /* what is done to images on the way in; max_size 0: nothing */
    const char *files_from; /* a list of paths and labels, see pack_list.c; "-": standard input; NULL: none */
    /* a file that says what the images of flat folders, or a dataset's that have no label, are (labels.h);
     * NULL: none */
    const char *labels;
    const char *class_names; /* a file of what people call the classes (display_names.h); NULL: none */
    const char *classes;     /* a file of class names: these and no others, in this order; NULL: all */
    bool dedupe;             /* of samples with the same content only the first */
    bool check;              /* decode every image in full */
    bool skip_unread;        /* the dataset is finished without what the system could not read */
    bool force;
    uint64_t max_pixels; /* larger images are left out */
    Part part;           /* of the outputs; {0, 0}: all */
    int jobs;
    bool quiet;
} PackOptions;

/* As fsh_split_name counts them. */
typedef enum PlanSplitIndex { PLAN_TRAIN, PLAN_VAL, PLAN_TEST, PLAN_SPLITS = FSH_SPLIT_COUNT } PlanSplitIndex;

typedef struct PlanSample {
    const char *key; /* key_bytes long, not NUL-terminated; owned by the plan */
    uint32_t key_bytes;
    int32_t label;         /* index into class_names, or -1 */
    uint32_t split;        /* PlanSplitIndex */
    uint64_t first_source; /* sources[first_source + field] is the item of a field */
} PlanSample;

/* What one field of one sample is made from: an item. Of a tree of files it is the file, of a dataset a field
 * of one of its samples; pack_intake.h reads either. */
typedef struct PlanSource {
    const char
        *path; /* of the file, relative to the source; what the dataset says it was; not NUL-terminated */
    size_t path_bytes;
    uint64_t bytes;      /* as listed; not compressed */
    int64_t modified_ns; /* of the file; of a dataset a number that changes with any of its files */
} PlanSource;

typedef struct PlanSplit {
    bool present;                        /* has at least one sample */
    uint64_t first_sample, sample_count; /* its samples are neighbours */
} PlanSplit;

enum { PLAN_SHARDS_MAX = 99999 }; /* of a split: what five digits in the name hold */

/* One file of the dataset: a shard, or a split's LMDB. Its samples are neighbours. */
typedef struct PlanOutput {
    uint32_t split;
    uint32_t shard_index, shard_count; /* of its split */
    uint64_t first_sample, sample_count;
    uint64_t record_bytes;
} PlanOutput;

/* How many samples are stored in which way, and the bytes of their records. */
typedef struct PlanChosen {
    uint64_t raw_count, raw_bytes, copy_count, copy_bytes;
} PlanChosen;

/* A dataset as the source: anything that fsh_open opens. Item i is field i % field_count of the dataset's
 * sample i / field_count, counted through its splits. */
typedef struct PlanDataset {
    FshDataset *dataset; /* NULL: the source is a tree of files */
    const FshSplit *splits[PLAN_SPLITS];
    uint64_t first_samples[PLAN_SPLITS]; /* the split's first, among those of all splits */
    size_t field_count;
    int64_t modified; /* a number that changes with the times and sizes of its files */
} PlanDataset;

typedef struct Plan {
    const char *root; /* options->source */
    int folder;       /* descriptor of it, see pack_source.h; -1: not open */
    FshKind kind;
    PlanDataset from;
    FileList files;             /* empty where the source is a dataset */
    Buffer list_text;           /* --files-from: their paths */
    uint8_t *is_image;          /* for each file: by name, or by content where the name says nothing */
    uint64_t other_file_count;  /* files that are no images */
    uint64_t other_class_count; /* images of classes that --classes does not name */
    char other_class_example[PATH_MAX];

    const char *field_names[FSH_FIELDS_MAX]; /* the options' or the dataset's; "image" for classes */
    size_t field_count;
    /* every field after the first is so many times as wide and high; 0 and 1: as large */
    uint32_t pair_scale;
    char **class_names; /* byte order */
    size_t class_count;
    char **display_names; /* of the classes, as the manifest has them; NULL: none */

    PlanSplit splits[PLAN_SPLITS];
    PlanSample *samples; /* in packing order, split after split */
    uint64_t sample_count;
    uint64_t *sources; /* items */
    uint64_t source_count;
    uint64_t item_count; /* items are below this: all files, or all fields of the dataset */
    char *key_storage;   /* keys that are not part of a path */
    NameList made_keys;  /* keys that got a number */
    /* what an image made smaller takes, about: JPEG and WebP, others; 0: as they are */
    uint64_t smaller_bytes[2];

    PlanOutput *outputs;
    size_t output_count;
    uint8_t *is_raw;  /* PACK_STORE_AUTO: for each sample; else NULL */
    void *dictionary; /* owned; NULL: none */
    size_t dictionary_bytes;
    PlanChosen chosen;        /* PACK_STORE_AUTO */
    uint32_t raw_channels;    /* of raw pixels: 1 where every image is gray, else 3 */
    uint64_t file_most_bytes; /* of a source's image: longer ones are left out unread (shrink_most_bytes) */
    uint64_t *payload_bytes;  /* for each item, where headers were read; else NULL */
    char id[33];

    json_t *provenance; /* of the dataset that is the source, which has one of its own; NULL: none */
    json_t *recipe; /* how the images were made smaller: here, or by fresize before; NULL: they were not */

    uint64_t duplicates[PLAN_SPLITS]; /* samples that --dedupe left out of each split */

    /* Inputs that go into no sample: orphans, images in no class, unreadable folders; with status FSH_OK what
     * --dedupe left out, as asked. */
    NoteList left_out;
    NoteList warnings;   /* what is odd but no failure */
    char pair_hint[320]; /* the --pair-suffix by which images without counterpart would pair up; "": none */
} Plan;

/* FSH_ERR_NOT_FOUND: no source, or no image in the layout that was looked for. FSH_ERR_MISMATCH: splits with
 * different classes. FSH_ERR_USAGE: options that contradict what is there. FSH_ERR_INTERRUPTED. On failure
 * only plan_free is allowed. */
FshStatus pack_plan_make(Plan *plan, const PackOptions *options, FshError *error);
/* Refuses a plan that lacks files or folders because the system could not read them, unless
 * options->skip_unread: another time they would make another dataset. FSH_ERR_SYSTEM. */
FshStatus plan_check_read(const Plan *plan, const PackOptions *options, FshError *error);
void plan_free(Plan *plan);

/* What stands behind a field of a sample. A dataset's sample that cannot be got any more has no path and no
 * bytes: the work tells why. */
PlanSource plan_source(const Plan *plan, const PlanSample *sample, size_t field);

/* Its item. */
uint64_t plan_item(const Plan *plan, const PlanSample *sample, size_t field);

/* The dataset's sample behind an item, and which of its fields; where the source is a dataset. As
 * fsh_sample_get. split_ret may be NULL. */
FshStatus plan_dataset_sample(const Plan *plan, uint64_t item, FshSample *sample, size_t *field_ret,
                              const FshSplit **split_ret, FshError *error);

/* What messages call that source: its path or, where it has none, the sample's key. Cut to PATH_MAX - 1
 * bytes. Returns buffer. */
const char *plan_source_name(const Plan *plan, const PlanSample *sample, size_t field, char buffer[PATH_MAX]);

/* Payload bytes of a sample in its record, about: known for raw, the files' for copy, guessed for images that
 * are made smaller. */
uint64_t plan_sample_bytes(const Plan *plan, const PlanSample *sample);

/* How it is stored: never PACK_STORE_AUTO. */
PackStore plan_store_of(const Plan *plan, const PackOptions *options, const PlanSample *sample);

/* Bytes of its record as planned: aligned, before compression, and before encoding again. 0: too large for a
 * record, or unreadable; the work leaves it out. */
uint64_t plan_record_bytes(const Plan *plan, const PlanSample *sample);

/* The sample as fsh_record_bytes wants it: key, label, sources, and the payload's length as planned. Data,
 * geometry and codec are placeholders until the work fills them in. */
void pack_plan_describe(const Plan *plan, const PlanSample *sample, FshSample *description);

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

/* One image of one side. */
typedef struct SideImage {
    const char *key; /* key_bytes long */
    size_t key_bytes;
    uint64_t file;
    uint32_t split, field;
} SideImage;

/* Looks for ends of names by which most images without counterpart would pair up, those of two sides: count
 * of them, in order of split, key and field. Fills plan->pair_hint where there are. FSH_ERR_MEMORY. */
FshStatus plan_hint_suffix(Plan *plan, const SideImage *orphans, size_t count, FshError *error);

/* The samples of --files-from. */
FshStatus plan_list(Plan *plan, const PackOptions *options, FshError *error);

/* Whether the source is to be opened as a dataset: a file, several, or a folder in which a dataset, an LMDB,
 * or tars, LMDBs and shards without any other folder lie. */
bool plan_is_dataset(const char *source);
/* Opens it and takes its samples, classes, fields and splits as they are. */
FshStatus plan_dataset(Plan *plan, const PackOptions *options, FshError *error);

/* Makes keys differ within each split: those of files by their extensions, those of a dataset by a number,
 * with a warning. */
FshStatus plan_mend_keys(Plan *plan, FshError *error);

/* Where pack_plan_make fails for want of samples: adds to its message, if all images lie in one folder and
 * their names pair up. Returns status. */
FshStatus plan_hint_flat_pairs(const Plan *plan, FshStatus status, FshError *error);

/* "blur:sharp", or what else the folders are called in which more than half of a tree's images lie, if those
 * are usual names of the sides of pairs; NULL: they are not. Packed without --pairs, each film of such a set
 * is a class. */
const char *plan_hint_sides(const Plan *plan);

/* Names, one a line, what is behind a tab and empty lines passed over. FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM;
 * FSH_ERR_CORRUPT: no text, no name, or one name twice. */
FshStatus plan_read_class_list(const char *path, NameList *names, FshError *error);
/* Gives every sample the class that its text names, and the plan its classes: the names in byte order or, if
 * all texts are numbers, what they count: the names in the file of --classes, else themselves. what: the file
 * they come from. */
FshStatus plan_label_by_texts(Plan *plan, const PackOptions *options, const char *const *texts,
                              const char *what, FshError *error);
/* An image left out because its class is not one of --classes. */
void plan_count_other_class(Plan *plan, const char *path);
/* Applies --classes. */
FshStatus plan_choose_classes(Plan *plan, const PackOptions *options, FshError *error);

/* Applies --dedupe. */
FshStatus plan_dedupe(Plan *plan, const PackOptions *options, FshError *error);

/* How many samples there are of each split, and of each class in it. */
typedef struct PlanTally {
    uint64_t splits[PLAN_SPLITS];
    uint64_t *classes; /* class_count of train, of val, of test; owned */
} PlanTally;

/* Counts what the plan has now; free(tally->classes). FSH_ERR_MEMORY. */
FshStatus plan_tally(PlanTally *tally, const Plan *plan, FshError *error);
/* Fills plan->duplicates with what --dedupe has taken since, and warns of classes that are empty now.
 * FSH_ERR_MISMATCH: a split is, so training or its measure would be of nothing. */
FshStatus plan_tell_duplicates(Plan *plan, const PlanTally *before, FshError *error);

/* Apply --limit, then --split. Sample order is kept. */
FshStatus plan_select(Plan *plan, const PackOptions *options, FshError *error);

/* Whether --shard-size says how many outputs a split has; else it is one. */
bool plan_is_cut(const PackOptions *options);

/* Outputs *begin_ret .. *end_ret - 1 are what options->part packs. FSH_ERR_MEMORY. */
FshStatus plan_part(const Plan *plan, const PackOptions *options, size_t *begin_ret, size_t *end_ret,
                    FshError *error);

/* Reads headers where sizes follow from them, and chooses (PACK_STORE_AUTO). */
FshStatus plan_store(Plan *plan, const PackOptions *options, FshError *error);

/* Stored bytes are about numerator / denominator times the planned ones. */
typedef struct PlanShare {
    uint64_t numerator, denominator;
} PlanShare;

/* Where the planned sizes are not the stored ones: does the work for some samples of the training split,
 * trains the dictionary on them, and measures. Deterministic. FSH_ERR_MISMATCH: too few samples for a
 * dictionary. */
FshStatus plan_trial(Plan *plan, const PackOptions *options, PlanShare *share, FshError *error);

/* The split that statistics and dictionary come from: train, or the first that is there. */
uint32_t plan_main_split(const Plan *plan);

/* All that, cut into outputs, and the id. */
FshStatus plan_outputs(Plan *plan, const PackOptions *options, FshError *error);

#endif
