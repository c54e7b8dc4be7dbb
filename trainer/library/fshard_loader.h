/* fshard_loader.h - the loader of ftrain for other programs: batches of decoded, augmented images, made ahead
 * by threads. libfshard_loader.so's one public header; python/fshard/loader.py calls it through ctypes.
 *
 *   FshLoader *loader = NULL;
 *   FshError error = {0};
 *   FshLoaderConfig config = {.bytes = sizeof config, .shards = "shards/", .split = "train", .training = 1,
 *                             .augment = 1, .batch = 64, .world_size = 1};
 *   if (fsh_loader_open(&loader, &config, &error)) { fprintf(stderr, "%s\n", error.message); return 1; }
 *   const FshLoaderInfo *info = fsh_loader_info(loader);
 *   for (uint64_t slot = 0; slot < info->ring; slot++)
 *       fsh_loader_lend(loader, slot, &(FshLoaderMemory){.images = take(info->image_bytes)});
 *   fsh_loader_start(loader, epoch, 0);
 *   FshLoaderBatch batch;
 *   do {
 *       FshLoaderMemory fresh = {.images = take(info->image_bytes), .labels = labels};
 *       if (fsh_loader_next(loader, &fresh, 1.0, &batch, &error)) ...
 *       if (batch.state == FSH_LOADER_BATCH)
 *           use(batch.images, labels, batch.count);       // yours now: take's memory of an earlier call
 *   } while (batch.state != FSH_LOADER_END);
 *   fsh_loader_close(&loader);
 *
 * Memory. Images are made where they will be used: the caller lends each slot of the ring memory, and gets
 * that of a finished batch back in exchange for other. So nothing is copied, and a batch that was handed out
 * never changes. Whole images (info->whole) alone are the loader's, until the next call, for nobody knows
 * their size before.
 *
 * What is in a batch follows from (seed, epoch, sample), and is what ftrain trains on with the same seed,
 * batch, ranks and options.
 *
 * Threads: one at a time for a loader; any number of loaders. Do not use a loader after fork() in the child.
 *
 * Stability. Functions are added and stay. A config of another size, from another version's header, is
 * refused. */
#ifndef FSHARD_LOADER_H
#define FSHARD_LOADER_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct FshLoader FshLoader;

/* An option of ftrain by its name, with `-` or `_`, and its value as on the command line; flags: "true" or
 * "false". */
typedef struct FshLoaderOption {
    const char *name, *value;
} FshLoaderOption;

/* What a value of a pixel is. */
typedef enum FshLoaderElement {
    FSH_LOADER_U8,  /* 0..255, as decoded */
    FSH_LOADER_F32, /* in 0..1, then (value - mean) / deviation if asked for */
    FSH_LOADER_F16,
    FSH_LOADER_BF16,
} FshLoaderElement;

typedef enum FshLoaderNormalize {
    FSH_LOADER_AS_IT_IS,
    FSH_LOADER_BY_DATASET, /* by the mean and deviation that ftrain would use; not for pairs */
    FSH_LOADER_BY_CALLER,
} FshLoaderNormalize;

typedef struct FshLoaderConfig {
    size_t bytes;       /* sizeof(FshLoaderConfig), which tells versions apart */
    const char *shards; /* what ftrain takes as SHARDS */
    const char *split;
    /* Those of --help that choose samples, labels and views: the groups of images, augmentation, mixing,
     * sampling, --where and --labels. */
    const FshLoaderOption *options;
    size_t option_count;
    uint64_t batch; /* samples of this rank; 0: 64, pairs 16, fewer where the split is small */
    uint64_t seed;
    uint64_t rank, world_size;
    uint64_t local_world; /* ranks on this host, which share its cores; 0: 1 */
    uint32_t size;        /* edge of the crop, pixels; 0: from the dataset, as ftrain */
    uint32_t workers;     /* threads; 0: as many as it takes, at most all cores */
    uint32_t ahead;       /* batches made before they are asked for; 0: chosen */
    uint32_t training;    /* shuffled, in random views; else as stored, centre crops or whole pairs */
    uint32_t augment;     /* of training: 0 sees each image as evaluation does */
    uint32_t keep_last;   /* of training on one rank: the last batch comes, too, if it is not full */
    uint32_t skip_bad;    /* leave samples out that cannot be used, and name them; else fail at them */
    uint32_t element;     /* FshLoaderElement */
    uint32_t planes; /* a batch is [count, channels, height, width]; else [count, height, width, channels] */
    uint32_t normalize;           /* FshLoaderNormalize; not of FSH_LOADER_U8 */
    double mean[4], deviation[4]; /* FSH_LOADER_BY_CALLER: of full scale 1 */
} FshLoaderConfig;

typedef struct FshLoaderInfo {
    uint64_t samples;     /* of the split, as chosen */
    uint64_t steps;       /* batches of this rank in an epoch, but for those of skipped samples alone */
    uint64_t batch;       /* samples in a full batch */
    uint64_t ring;        /* slots */
    uint64_t image_bytes; /* of the memory for the images of a batch; whole: 0 */
    uint64_t row_width;   /* of rows of targets (several labels, numbers, mixed labels); 0: labels, pairs */
    uint64_t class_count; /* pairs: 0 */
    const char *const *class_names;       /* [class_count] */
    const char *input_name, *target_name; /* of pairs: "blurry", "sharp" */
    double mean[4], deviation[4];         /* of the dataset, in 0..1 */
    uint32_t channels;                    /* 1 or 3 */
    uint32_t size;                        /* edge of the largest crop; whole: 0 */
    uint32_t pairs, whole;
    uint32_t workers; /* threads that there are at most */
    uint32_t element_bytes;
} FshLoaderInfo;

/* Memory of the caller's, 64-byte aligned. */
typedef struct FshLoaderMemory {
    void *images; /* image_bytes; whole: NULL */
    void *target; /* of pairs: image_bytes; else NULL */
    /* Written by fsh_loader_next, for the batch that it returns. Each may be NULL. */
    int64_t *labels;   /* [batch]; not of pairs and rows of targets */
    float *rows;       /* [batch, row_width] */
    uint64_t *samples; /* [batch] index in the split as chosen */
} FshLoaderMemory;

typedef enum FshLoaderState {
    FSH_LOADER_BATCH,
    FSH_LOADER_WAIT, /* the time is over: call again */
    FSH_LOADER_END,  /* the epoch is over */
} FshLoaderState;

typedef struct FshLoaderBatch {
    uint32_t state;         /* FshLoaderState; what follows is of FSH_LOADER_BATCH */
    uint32_t height, width; /* of each image */
    uint32_t reserved;
    uint64_t epoch, step;
    uint64_t count;        /* samples: 1..info->batch */
    void *images, *target; /* [count, ...]: memory that was lent earlier; whole: the loader's */
} FshLoaderBatch;

/* Returns "0.1.0". */
FSH_API const char *fsh_loader_version(void);
/* As fsh_outlive_read_errors of fshard.h: a file that is cut short or that the disk cannot read is a failure
 * then, not SIGBUS. Once for the process. */
FSH_API void fsh_loader_outlive_read_errors(void);

/* Opens a dataset and starts the threads. FSH_ERR_USAGE: an option that is none, does nothing here, or has a
 * wrong value; else what ftrain fails with: FSH_ERR_NOT_FOUND (dataset, split), FSH_ERR_MISMATCH (a batch
 * larger than the split, pairs smaller than the crop, a sample without a label), FSH_ERR_CORRUPT,
 * FSH_ERR_MEMORY, FSH_ERR_SYSTEM. On failure *loader is NULL. */
FSH_API FshStatus fsh_loader_open(FshLoader **loader, const FshLoaderConfig *config, FshError *error);
/* Stops the threads, frees the loader and sets *loader to NULL; NULL is fine. What was lent is the caller's
 * again. */
FSH_API void fsh_loader_close(FshLoader **loader);
/* Returns what is known of the loader; lives as long as it does. */
FSH_API const FshLoaderInfo *fsh_loader_info(const FshLoader *loader);

/* Lends a slot of the ring its memory: all slots once, before fsh_loader_start. Not of whole images. */
FSH_API void fsh_loader_lend(FshLoader *loader, uint64_t slot, const FshLoaderMemory *memory);
/* Lets fsh_loader_next give the batches of an epoch from step on. The epoch after the last one is being made
 * already; any other drops what was made ahead. */
FSH_API void fsh_loader_start(FshLoader *loader, uint64_t epoch, uint64_t step);
/* Gives the next batch, for which it waits no longer than so many seconds. fresh takes the place of the
 * memory that batch->images and batch->target are in from now on; with a state other than FSH_LOADER_BATCH,
 * and on failure, it was not taken. Without skip_bad, fails at a batch with a sample that cannot be used: the
 * message has shard, record, key, source and reason; the next call goes on behind it. */
FSH_API FshStatus fsh_loader_next(FshLoader *loader, const FshLoaderMemory *fresh, double seconds,
                                  FshLoaderBatch *batch, FshError *error);
/* Copies the message of problem `number` and returns 1; returns 0 if there are no more so far. A problem is a
 * sample that was skipped, named once. */
FSH_API int fsh_loader_problem(FshLoader *loader, uint64_t number, char *message, size_t message_bytes);
/* Returns how many different samples were skipped so far: also those above 1,000, whose messages are not
 * kept. */
FSH_API uint64_t fsh_loader_problem_count(FshLoader *loader);

/* Image files to pixels, as the loader decodes them. One decoder per thread. */
typedef struct FshDecoder FshDecoder;

/* Makes a decoder. FSH_ERR_MEMORY. */
FSH_API FshStatus fsh_decoder_open(FshDecoder **decoder, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
FSH_API void fsh_decoder_close(FshDecoder **decoder);
/* Decodes a file that has width x height pixels as displayed into pixels [height, width, channels]; channels:
 * 1 or 3. FSH_ERR_CORRUPT: truncated or damaged; FSH_ERR_UNSUPPORTED: no image, or of a kind that takes a
 * plugin that is not here; FSH_ERR_MISMATCH: another size. */
FSH_API FshStatus fsh_decoder_decode(FshDecoder *decoder, const void *bytes, size_t length, uint32_t width,
                                     uint32_t height, uint32_t channels, uint8_t *pixels, FshError *error);

/* Decodes a mask, an index PNG of width x height, into values [height, width], exactly as they stand in it.
 * Fails as fsh_decoder_decode; FSH_ERR_UNSUPPORTED: it is none. */
FSH_API FshStatus fsh_decoder_decode_mask(FshDecoder *decoder, const void *bytes, size_t length,
                                          uint32_t width, uint32_t height, uint8_t *values, FshError *error);

#ifdef __cplusplus
}
#endif
#endif
