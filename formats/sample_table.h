/* sample_table.h - samples that are no records: of tars, of LMDBs of others, of files.
 *
 * Whatever the container, opening it ends in one table: for each sample its key, its label and where its
 * fields are. A read is then a look into the table. */
#ifndef FSHARD_FORMATS_SAMPLE_TABLE_H
#define FSHARD_FORMATS_SAMPLE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/file.h"
#include "formats/fshard.h"

/* Labels are below this: each costs a name, and none of these containers says how many classes there are. */
enum { FOREIGN_CLASSES_MAX = 1 << 20 };

typedef struct SampleRow {
    /* in the table's text: the key, then (with sources) u16 length and source of each field */
    uint64_t text_at;
    uint64_t note_at;    /* of the sample's .json in the file */
    uint32_t note_bytes; /* 0: none */
    int32_t label;
    uint16_t key_bytes;
    bool with_sources;
} SampleRow;

typedef struct FieldRow {
    uint64_t offset, bytes;
    uint32_t width, height; /* 0: not told */
    uint8_t channels;       /* 0: not told */
} FieldRow;

struct JsonSlice;

/* Begins with label_max FSH_NO_LABEL and all else zero. */
typedef struct SampleTable {
    char *field_names[FSH_FIELDS_MAX]; /* owned */
    unsigned field_count;
    uint64_t sample_count;
    Buffer samples; /* SampleRow each */
    Buffer fields;  /* FieldRow, field_count for each sample */
    Buffer text;
    int32_t label_max;       /* FSH_NO_LABEL: no sample has one */
    uint64_t ignored_count;  /* members that belong to no sample, or are no image, label or .json */
    char **class_names;      /* NULL where nothing names the class; owned */
    size_t class_name_count; /* of its entries: 0, or more than label_max */
    /* a .cls names its class: labels count class_names, in the order in which they came */
    bool names_are_labels;
    bool unmarked_end; /* a tar without the end marker: it may be cut short between two members */
} SampleTable;

/* Starts a sample at the end of the table; its fields are zero. Keys of 1 to 65,535 bytes. FSH_ERR_CORRUPT,
 * FSH_ERR_MEMORY. */
FshStatus fsh_table_add(SampleTable *table, const char *key, size_t key_bytes, FshError *error);
SampleRow *fsh_table_row(const SampleTable *table, uint64_t sample);
FieldRow *fsh_table_fields(const SampleTable *table, uint64_t sample);
/* Adds a field to the table. FSH_ERR_UNSUPPORTED: too many, or a name that is not UTF-8, as a manifest's must
 * be; FSH_ERR_MEMORY. */
FshStatus fsh_table_name_field(SampleTable *table, const char *name, size_t bytes, FshError *error);
/* Copies the names; the table has none yet. Fails as fsh_table_name_field does. */
FshStatus fsh_table_name_fields(SampleTable *table, const char *const *names, size_t count, FshError *error);
/* Sets the label of a sample, as a file tells it. FSH_ERR_CORRUPT below -1, FSH_ERR_UNSUPPORTED from
 * FOREIGN_CLASSES_MAX on. */
FshStatus fsh_table_label(SampleTable *table, uint64_t sample, int64_t label, FshError *error);
void fsh_table_free(SampleTable *table);

/* Fills *sample with sample `record` of a table whose field i lies in sides[i] (one mapping may stand in
 * several places). What an image is shows in its first bytes; a .npy of bytes is raw pixels; sizes, sources
 * and names come from the table and from a .json of ours. The sample's index is not set. FSH_ERR_CORRUPT. */
FshStatus fsh_table_sample(const SampleTable *table, const FileMapping *const *sides, uint64_t record,
                           FshSample *sample, FshError *error);
/* Finds, in a .json of ours (it has a member "fshard"), the object that tells of a field: *object_ret. It
 * stands under the field's name in "fields", or is the whole where there is no "fields". Returns false if
 * there is none. */
bool fsh_note_object(const char *text, size_t bytes, const char *field_name, struct JsonSlice *object_ret);
/* Checks the CRC32C of each field, where the sample's .json tells it. must: FSH_ERR_CORRUPT where it does
 * not. */
FshStatus fsh_table_verify(const SampleTable *table, const FileMapping *const *sides, uint64_t record,
                           bool must, FshError *error);

#endif
