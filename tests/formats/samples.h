/* samples.h - data sets for the tests of formats/, the same on every machine for the same plan. */
#ifndef FSHARD_TESTS_FORMATS_SAMPLES_H
#define FSHARD_TESTS_FORMATS_SAMPLES_H

#include "formats/fshard.h"
#include "tests/support/support.h"

typedef struct DatasetPlan {
    FshContainer container;
    FshKind kind;
    FshRecordForm form;
    uint32_t shard_count;            /* of train; val has one */
    uint64_t train_count, val_count; /* samples; no val split if 0 */
    size_t payload_bytes_max;        /* 0: 500 */
} DatasetPlan;

#define SAMPLES_ID "0123456789abcdef0123456789abcdef"
enum { SAMPLES_CLASS_COUNT = 3 };
extern const char *const samples_class_names[SAMPLES_CLASS_COUNT];
extern const char *const samples_pair_names[2];

/* A sample and the memory it borrows. */
typedef struct MadeSample {
    FshSample sample;
    char key[64];
    char sources[2][80];
    uint8_t *payloads[2];
} MadeSample;

/* Makes sample `index` of a split. Even samples hold raw pixels, odd ones bytes that pass for JPEG; every
 * seventh of kind classes has no label. */
void sample_make(MadeSample *made, const DatasetPlan *plan, const char *split, uint64_t index);
void sample_free(MadeSample *made);
/* Fails the test unless read is what sample_make gives for it. */
void sample_assert_equal(const FshSample *read, const DatasetPlan *plan, const char *split, uint64_t index);

/* Returns the options of one file of the plan. */
FshWriterOptions samples_writer_options(const DatasetPlan *plan, const char *split, uint32_t shard_index);
/* Writes samples first..first+count-1 of a split into path; *info_ret's name is the caller's. Fails the test
 * on errors. */
void samples_write_file(const DatasetPlan *plan, const char *split, const char *path, uint32_t shard_index,
                        uint64_t first, uint64_t count, FshFileInfo *info_ret);

/* Writes the whole data set and its manifest into folder, which exists. The second returns the error instead
 * of failing the test, for programs without cmocka. */
void samples_write_dataset(const DatasetPlan *plan, const char *folder);
FshStatus samples_try_write_dataset(const DatasetPlan *plan, const char *folder, FshError *error);

/* Reads every sample of a split and compares it with the plan's. */
void samples_assert_split(const FshDataset *dataset, const DatasetPlan *plan, const char *split,
                          uint64_t count);

#endif
