/* foreign.h - containers whose samples are not records: tars of WebDataset, LMDBs of BasicSR and of
 * folder2lmdb. What is read of them stands in fshard(5).
 *
 * Whatever the container, opening it ends in one table: for each sample its key, its label and where its
 * fields are. A read is then a look into the table. Parsers are pure functions of (bytes, length), as all in
 * internal.h; their messages name the byte, and no file. */
#ifndef FSHARD_FORMATS_FOREIGN_H
#define FSHARD_FORMATS_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/file.h"
#include "formats/fshard.h"
#include "tar/tar_parse.h"

/* ---- the table (foreign.c) ---- */

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
} SampleTable;

/* Starts a sample at the end of the table; its fields are zero. Keys of 1 to 65,535 bytes. FSH_ERR_CORRUPT,
 * FSH_ERR_MEMORY. */
FshStatus fsh_table_add(SampleTable *table, const char *key, size_t key_bytes, FshError *error);
SampleRow *fsh_table_row(const SampleTable *table, uint64_t sample);
FieldRow *fsh_table_fields(const SampleTable *table, uint64_t sample);
/* Adds one field more. FSH_ERR_UNSUPPORTED: too many, or a name that is not UTF-8, as a manifest's must be;
 * FSH_ERR_MEMORY. */
FshStatus fsh_table_name_field(SampleTable *table, const char *name, size_t bytes, FshError *error);
/* Copies the names; the table has none yet. The same errors. */
FshStatus fsh_table_name_fields(SampleTable *table, const char *const *names, size_t count, FshError *error);
/* A label from a file: FSH_ERR_CORRUPT below -1, FSH_ERR_UNSUPPORTED from FOREIGN_CLASSES_MAX on. */
FshStatus fsh_table_label(SampleTable *table, uint64_t sample, int64_t label, FshError *error);
void fsh_table_free(SampleTable *table);

/* Sample `record` of a table whose field i lies in sides[i] (one mapping may stand in several places). What
 * an image is shows in its first bytes; a .npy of bytes is raw pixels; sizes, sources and names come from the
 * table and from a .json of ours. Its index is not set. FSH_ERR_CORRUPT. */
FshStatus fsh_table_sample(const SampleTable *table, const FileMapping *const *sides, uint64_t record,
                           FshSample *sample, FshError *error);
/* In a .json of ours (it has a member "fshard"), the object that tells of a field: that under its name in
 * "fields", or the whole where there is no "fields". False: none. */
bool fsh_note_object(const char *text, size_t bytes, const char *field_name, struct JsonSlice *object_ret);
/* CRC32C of each field, where the sample's .json tells it. must: FSH_ERR_CORRUPT where it does not. */
FshStatus fsh_table_verify(const SampleTable *table, const FileMapping *const *sides, uint64_t record,
                           bool must, FshError *error);

/* ---- what an image is (media.c) ---- */

/* By its first bytes; FSH_CODEC_OTHER where they tell nothing. Never FSH_CODEC_RAW. */
FshCodec fsh_codec_sniff(const uint8_t *bytes, size_t length);
/* "jpg", "png", …, without a dot; "npy" for raw. */
const char *fsh_codec_extension(FshCodec codec);
/* Whether a file of this extension (lower case, not NUL-terminated) is an image. npy is not among them: its
 * header tells. */
bool fsh_extension_is_image(const char *extension, size_t bytes);

/* NumPy's .npy, versions 1 to 3 (numpy.lib.format): uint8, C order, (height, width) or (height, width, 1 to
 * 4). */
typedef struct NpyArray {
    uint32_t height, width;
    uint8_t channels;
    size_t data_at; /* the pixels run from here to the end */
} NpyArray;
/* False: another type or shape, or no .npy; damaged ones too. */
bool fsh_npy_parse(const uint8_t *bytes, size_t length, NpyArray *array_ret);
enum { NPY_HEADER_BYTES = 128 };
/* Version 1.0; NPY_HEADER_BYTES for every size. */
void fsh_npy_store_header(uint8_t header[NPY_HEADER_BYTES], uint32_t height, uint32_t width,
                          uint8_t channels);

/* ---- JSON without a tree (json_scan.c): a million small objects are looked at when a tar is opened ---- */

typedef enum JsonKind { JSON_SCAN_TEXT, JSON_SCAN_NUMBER, JSON_SCAN_OBJECT, JSON_SCAN_OTHER } JsonKind;
/* A value where it stands: text without its quotes, escapes as they are; objects with their braces. */
typedef struct JsonSlice {
    JsonKind kind;
    const char *text;
    size_t bytes;
    bool escaped; /* a text with a backslash in it */
} JsonSlice;
typedef struct JsonScan {
    const char *next, *end;
    bool begun, broken; /* broken: what was scanned is no JSON object */
} JsonScan;

/* At an object's opening brace, blanks before it are fine. */
JsonScan fsh_json_scan(const char *text, size_t bytes);
/* The next member. False: the end, or scan->broken. Nested values are passed over and only balanced. */
bool fsh_json_scan_next(JsonScan *scan, JsonSlice *name, JsonSlice *value);
bool fsh_json_slice_is(const JsonSlice *slice, const char *text);
/* A whole number in range; false for all else. */
bool fsh_json_slice_integer(const JsonSlice *slice, int64_t *value_ret);
/* Escapes resolved, into out of at least slice->bytes; *bytes_ret is its length. \udc80 to \udcff alone is
 * the byte that Python's os.fsencode makes of it: names that are not UTF-8. False: a wrong escape, or a zero
 * byte. */
bool fsh_json_slice_unescape(const JsonSlice *slice, char *out, size_t *bytes_ret);
/* Appends bytes as a JSON text with its quotes, the other way of the above. */
FshStatus fsh_json_append_text(Buffer *out, const char *bytes, size_t length, FshError *error);

/* ---- samples of a tar (webdataset_samples.c) ---- */

/* Groups members as webdataset does: neighbours whose paths are equal up to the first dot of the last part.
 * names: the fields to expect, or NULL and 0: then those of the first sample with images, in their order.
 * with_class_names: the table gets those that .json or .cls tells, which no manifest has told; else a .cls
 * must be a number. On failure the table is empty. FSH_ERR_CORRUPT, FSH_ERR_MISMATCH: a sample with other
 * fields than the first; FSH_ERR_UNSUPPORTED, FSH_ERR_MEMORY. */
FshStatus fsh_webdataset_table(SampleTable *table, const uint8_t *bytes, uint64_t length,
                               const char *const *names, size_t name_count, bool with_class_names,
                               FshError *error);

/* The path of a key in a tar, without extension, NUL-terminated: '%', blanks and control characters, dots in
 * the last part and a first '_' of two become %XX. FSH_ERR_MISMATCH: a key that no reader of tars would take
 * (absolute, with "..", ending in '/', longer than 65,535 bytes); FSH_ERR_MEMORY. */
FshStatus fsh_webdataset_key_encode(const char *key, size_t key_bytes, Buffer *path, FshError *error);

/* ---- LMDB of any making (lmdb_reader.c) ---- */

typedef struct LmdbEntry {
    const char *key;
    size_t key_bytes;
    uint64_t offset, bytes; /* of the value, in the file */
} LmdbEntry;
typedef FshStatus (*LmdbVisit)(const LmdbEntry *entry, void *context, FshError *error);
/* Every entry of the unnamed database, keys in byte order, each checked to be after the one before; all
 * values together are no longer than the file. Ends with the first visit that fails. FSH_ERR_CORRUPT,
 * FSH_ERR_UNSUPPORTED. */
FshStatus fsh_lmdb_walk(const uint8_t *bytes, uint64_t length, LmdbVisit visit, void *context,
                        FshError *error);

/* ---- BasicSR (basicsr.c) ---- */

#define BASICSR_META_NAME "meta_info.txt"

/* A line of meta_info.txt: "KEY.png (h,w,c) 1". What stands after the name may be missing: 0 then. */
typedef struct MetaLine {
    const char *key;
    size_t key_bytes;
    uint32_t height, width;
    uint8_t channels;
} MetaLine;
/* The line at *offset, which moves on; empty ones are passed over; key is NULL at the end. FSH_ERR_CORRUPT
 * names the line's byte. */
FshStatus fsh_meta_line_next(const char *text, size_t bytes, size_t *offset, MetaLine *line, FshError *error);

/* One folder of BasicSR: data.mdb and meta_info.txt in memory. */
typedef struct BasicsrSide {
    const char *name; /* of the field */
    const uint8_t *data;
    uint64_t data_bytes;
    const char *meta;
    size_t meta_bytes;
} BasicsrSide;
/* decode: %XX in keys stands for a byte, as fsh_basicsr_key_encode writes it. Samples in the order of the
 * first side's meta_info.txt. FSH_ERR_MISMATCH: a key that one side has and another has not, or that is there
 * twice; FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED, FSH_ERR_MEMORY. */
FshStatus fsh_basicsr_table(SampleTable *table, const BasicsrSide *sides, size_t side_count, bool decode,
                            FshError *error);
/* A key as BasicSR's reader takes it: '%', dots, control characters, and bytes that are not ASCII become %XX.
 * FSH_ERR_MISMATCH: longer than LMDB takes, 511 bytes; FSH_ERR_MEMORY. */
FshStatus fsh_basicsr_key_encode(const char *key, size_t key_bytes, Buffer *out, FshError *error);

/* ---- folder2lmdb (folder2lmdb.c) ---- */

/* Where (bytes, int) lies in a pickle of protocol 0 to 5. Nothing is executed or built: opcodes that such a
 * tuple needs are read, every other one is refused by name. FSH_ERR_UNSUPPORTED, FSH_ERR_CORRUPT. */
FshStatus fsh_pickle_sample(const uint8_t *bytes, size_t length, uint64_t *image_at, uint64_t *image_bytes,
                            int64_t *label_ret, FshError *error);
/* Whether an LMDB's first key is one of folder2lmdb's. False also for what is damaged. */
bool fsh_folder2lmdb_sniff(const uint8_t *bytes, uint64_t length);
/* Keys "0", "1", … in the order of numbers, without gaps. */
FshStatus fsh_folder2lmdb_table(SampleTable *table, const uint8_t *bytes, uint64_t length, FshError *error);

/* ---- shard lists (brace.c) ---- */

/* Paths as webdataset spells them: "train-{000000..000127}.tar", {a,b}, nested, several with "::" between. A
 * '{' that does not fit is text. paths_ret: fsh_names_free. FSH_ERR_USAGE: more than a million;
 * FSH_ERR_MEMORY. */
FshStatus fsh_brace_expand(const char *text, char ***paths_ret, size_t *count_ret, FshError *error);

#endif
