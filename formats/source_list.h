/* source_list.h - what the samples of a shard were made of: the hidden file .NAME.sources beside the shard
 * NAME. fpack --update compares it with the folder that was packed; nobody else reads it. Its bytes are in
 * fshard(5), "Sources".
 *
 *   SourcesView view;
 *   SourceRecord record;
 *   status = fsh_sources_parse(&view, bytes, length, &error);
 *   while (!status && view.next < view.head.record_count)
 *       status = fsh_sources_next(&view, &record, &error);
 *
 * Parsers are pure functions of (bytes, length); pointers in their results lie in the bytes they were given.
 * Messages name no file.
 *
 * Threads: nothing is shared. */
#ifndef FSHARD_FORMATS_SOURCE_LIST_H
#define FSHARD_FORMATS_SOURCE_LIST_H

#include "common/file.h"
#include "formats/fshard.h"

/* What one field of a sample was made of, and the image that it is. */
typedef struct SourceField {
    uint64_t bytes;      /* of the file; of a dataset's field, unpacked */
    int64_t modified_ns; /* of the file, since 1970; of a dataset a number that changes with its files */
    uint64_t hash;       /* fsh_source_hash of those bytes */
    uint32_t width, height;
    uint8_t channels; /* of the image as it is stored */
    const char *path; /* path_bytes of it, relative to the root; not NUL-terminated */
    size_t path_bytes;
} SourceField;

/* Of one record; they have the order of the shard's rows. */
typedef struct SourceRecord {
    const char *key; /* not NUL-terminated */
    size_t key_bytes;
    unsigned field_count;
    SourceField fields[FSH_FIELDS_MAX];
} SourceRecord;

typedef struct SourcesHead {
    unsigned field_count;
    uint64_t record_count;
    FshHash128 shard_hash; /* of the shard, as its footer has it */
    const char *root;      /* the folder that was packed, root_bytes of it */
    size_t root_bytes;
    const char *statistics; /* JSON: sizes and sums of pixels of all its images, statistics_bytes of it */
    size_t statistics_bytes;
} SourcesHead;

typedef struct SourcesView {
    SourcesHead head;
    const uint8_t *at, *end;
    uint64_t next; /* record that fsh_sources_next reads */
} SourcesView;

/* Returns the hash of a source's bytes, XXH3-64. */
uint64_t fsh_source_hash(const void *bytes, size_t length);

/* Appends a record to the rows of a file in the making. FSH_ERR_MEMORY. */
FshStatus fsh_sources_add(Buffer *rows, const SourceRecord *record, FshError *error);
/* Writes the sources of the shard `name` in folder, atomically; what was there is replaced. rows: what
 * fsh_sources_add has made of head->record_count records. */
FshStatus fsh_sources_save(const char *folder, const char *name, const SourcesHead *head, const Buffer *rows,
                           FshError *error);
/* Writes the name of that file to buffer: ".NAME.sources". Returns buffer. */
const char *fsh_sources_name(char *buffer, size_t buffer_bytes, const char *name);
#define FSH_SOURCES_SUFFIX ".sources"

/* Reads the head, and checks the checksum of the whole. FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED. */
FshStatus fsh_sources_parse(SourcesView *view, const uint8_t *bytes, uint64_t length, FshError *error);
/* Reads the next record; there is one. FSH_ERR_CORRUPT. */
FshStatus fsh_sources_next(SourcesView *view, SourceRecord *record, FshError *error);

#endif
