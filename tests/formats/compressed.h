/* compressed.h - datasets of small compressed fields: a head that all have in common, as JPEG tables are, and
 * a tail of their own. */
#ifndef FSHARD_TESTS_FORMATS_COMPRESSED_H
#define FSHARD_TESTS_FORMATS_COMPRESSED_H

#include "common/file.h"
#include "formats/fshard.h"

typedef struct CompressedPlan {
    FshContainer container; /* 0: shards */
    uint64_t train_count, val_count;
    uint32_t shard_count;  /* of train; 0: one */
    int level;             /* 0: nothing is compressed */
    bool dictionary;       /* the files carry compressed_dictionary(), and fields are packed with it */
    bool other_dictionary; /* another one in its place */
    bool pairs;
    FshRecordForm form;
} CompressedPlan;

/* Writes the dataset and its manifest into folder (made). Fails the test on errors. */
void compressed_write(const CompressedPlan *plan, const char *folder);
/* Writes the content of field `field` of sample `index` over what drawn holds; the caller frees drawn. Any
 * thread may call it. */
void compressed_draw(uint64_t index, unsigned field, Buffer *drawn);
/* Returns the dictionary, trained on such fields at the first call; compressed_forget frees it. */
const Buffer *compressed_dictionary(void);
void compressed_forget(void);

#endif
