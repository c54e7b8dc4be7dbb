/* writer.h - what is common to the writers of containers. */
#ifndef FSHARD_FORMATS_WRITER_H
#define FSHARD_FORMATS_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/file.h"
#include "formats/fshard.h"
#include "formats/metadata.h"

typedef enum WriterState {
    WRITER_OPEN,
    WRITER_ENDED, /* finished or failed: only closing is left */
} WriterState;

/* Records gather in a batch, which the container takes over whole: a shard writes and hashes it, an LMDB
 * makes it one transaction. */
struct FshWriter {
    const struct ContainerWriter *container;
    char *path;
    Metadata metadata;
    void *dictionary; /* metadata.dictionary.bytes of them, or NULL */
    uint32_t shard_index, shard_count;
    FshRecordForm record_form;
    bool force;
    WriterState state;
    Buffer batch;         /* records, one after the other */
    uint64_t batch_first; /* row of the batch's first record */
    Buffer rows;          /* INDEX_ROW_BYTES for each record so far */
    uint64_t record_count;
    uint64_t next_offset; /* of the next record: in the file (shards), among all records (LMDB) */
    AtomicFile file;      /* the shard, or data.mdb */
    void *private_data;   /* the container's own; owned by it */
};

typedef struct ContainerWriter {
    size_t batch_bytes;        /* how much gathers before write_batch */
    bool takes_small_batches;  /* a batch of one record costs no more than in company */
    uint64_t record_bytes_max; /* a record is smaller than this */
    uint64_t record_count_max; /* there are at most so many */
    FshStatus (*open)(FshWriter *writer, FshError *error);
    FshStatus (*write_batch)(FshWriter *writer, FshError *error);
    /* Ends the file, after the last batch. Fills bytes and hash of info. */
    FshStatus (*finish)(FshWriter *writer, FshFileInfo *info, FshError *error);
    /* Frees private_data and abandons what is not finished. After a failed open too. */
    void (*close)(FshWriter *writer);
} ContainerWriter;

/* shard_writer.c, lmdb_writer.c, webdataset_writer.c, basicsr_writer.c */
extern const ContainerWriter fsh_shard_writer, fsh_lmdb_writer, fsh_webdataset_writer, fsh_basicsr_writer;

#endif
