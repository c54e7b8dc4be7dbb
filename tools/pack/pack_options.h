/* pack_options.h - what the user asked of fpack, checked: every phase of the plan (pack_plan.h) and the work
 * (pack.h) read it, and none writes it. pack_settings.h makes it from the command line. */
#ifndef FSHARD_PACK_OPTIONS_H
#define FSHARD_PACK_OPTIONS_H

#include <limits.h>

#include "formats/fshard.h"
#include "imaging/shrink.h"
#include "tools/job/part.h"

typedef enum PackStore {
    PACK_STORE_COPY,   /* the file's bytes as they are */
    PACK_STORE_JPEG,   /* decoded, and encoded again */
    PACK_STORE_RAW,    /* decoded: uint8 HWC */
    PACK_STORE_ZSTD,   /* the same, compressed */
    PACK_STORE_AUTO,   /* copy or raw, chosen for each sample */
    PACK_STORE_YUV420, /* the planes of JPEGs and of gray images as Y4M (imaging/y4m.h); others as raw */
} PackStore;

/* "copy", "jpeg", …; NULL after the last. Indexed by PackStore. */
extern const char *const pack_store_names[];

/* Who takes finished files away as they come, to send them to a server. */
typedef struct PackTaker {
    /* Takes a file of the dataset that is finished, in this run or in an earlier one. */
    FshStatus (*file)(void *context, const char *name, FshError *error);
    /* Takes the manifest, when it and all files are written; what is left of the run is to let go. */
    FshStatus (*manifest)(void *context, const FshManifest *manifest, FshError *error);
    /* Takes the end of a part, whose files have all been given. */
    FshStatus (*part)(void *context, FshError *error);
    void *context;
} PackTaker;

typedef struct PackOptions {
    const char *source, *destination;
    const PackTaker *taker; /* NULL: files stay where they are packed */
    const char *address;    /* of the server that source was fetched from; NULL: source is where it is */
    FshContainer container;
    PackStore store;    /* quality of JPEG: resize.quality */
    int level;          /* of zstd: 1 to FSH_PACK_LEVEL_MAX */
    uint64_t raw_under; /* PACK_STORE_AUTO: raw where no image of the sample takes more bytes; 0: no bound */
    uint64_t budget_bytes;                 /* PACK_STORE_AUTO: what all records may take; 0: no bound */
    uint64_t dictionary_bytes;             /* what a dictionary may take at most; 0: none */
    char field_names[FSH_FIELDS_MAX][256]; /* the side folders */
    size_t field_count;                    /* 0: class folders */
    bool masks;                            /* the second of two sides holds masks (FSH_KIND_MASKS) */
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

#endif
