/* internal.h - what the files of libfshard share. Layouts are in fshard(5); this header only names their
 * parts.
 *
 * Parsers are pure functions of (bytes, length): they never read outside, keep no state, and can be fuzzed.
 * Their messages name no file: the caller prepends it. Pointers in their results lie in the bytes they were
 * given. */
#ifndef FSHARD_FORMATS_INTERNAL_H
#define FSHARD_FORMATS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <limits.h>
#include <stdint.h>

#include <jansson.h>

#include "common/error.h"
#include "common/file.h"
#include "formats/foreign.h"
#include "formats/fshard.h"

/* Returns the next multiple of FSH_ALIGNMENT; value at most 2^63. */
static inline uint64_t align_up(uint64_t value)
{
    return (value + FSH_ALIGNMENT - 1) & ~(uint64_t)(FSH_ALIGNMENT - 1);
}

/* ---- names (names.c) ---- */

enum { FSH_ID_DIGITS = 32, FSH_HASH_TEXT_BYTES = 33, FSH_FILE_NAME_BYTES = 128 };

bool fsh_codec_known(unsigned codec);
/* 32 lower-case hexadecimal digits. */
bool fsh_id_valid(const char *id);
/* Letters, digits, '_' and '-', the first a letter or digit, at most 64: it becomes part of a file name. */
bool fsh_split_name_valid(const char *name);
/* The last part of path, slashes at its end left out: "b" of "a/b/"; *length_ret is its length. What stands
 * before it in path is its folder. */
const char *fsh_path_name(const char *path, size_t *length_ret);
/* A name in the manifest's own folder: no '/', not hidden, not empty, at most 255 bytes. */
bool fsh_file_name_valid(const char *name);
const char *fsh_kind_name(FshKind kind);
/* False if text names none. */
bool fsh_kind_from_name(const char *text, FshKind *kind_ret);
/* 32 digits and a NUL into text. */
void fsh_hash_format(const FshHash128 *hash, char text[FSH_HASH_TEXT_BYTES]);
bool fsh_hash_parse(const char *text, FshHash128 *hash_ret);
bool fsh_hash_equal(const FshHash128 *a, const FshHash128 *b);

/* ---- JSON (json.c) ---- */

/* Checked members of an object. FSH_ERR_CORRUPT when a member is missing or of the wrong type; the caller
 * prepends which object it is. Strings and arrays are borrowed from object. */
FshStatus fsh_json_text(const json_t *object, const char *key, const char **text_ret, FshError *error);
FshStatus fsh_json_count(const json_t *object, const char *key, uint64_t *count_ret, FshError *error);
FshStatus fsh_json_array(const json_t *object, const char *key, const json_t **array_ret, FshError *error);
FshStatus fsh_json_object(const json_t *object, const char *key, const json_t **object_ret, FshError *error);
/* Copies an array of strings that all differ and are not empty. On success *names_ret (NULL if there are
 * none) is owned by the caller: fsh_names_free. */
FshStatus fsh_json_names(const json_t *object, const char *key, char ***names_ret, size_t *count_ret,
                         FshError *error);
/* A new array of strings; NULL when memory is short or a name is not UTF-8. */
json_t *fsh_json_from_names(char *const *names, size_t count);
/* The member "dictionary", which need not be there: *info_ret is empty then. */
FshStatus fsh_json_dictionary(const json_t *object, FshDictionaryInfo *info_ret, FshError *error);
/* The value of that member; NULL when memory is short. */
json_t *fsh_json_from_dictionary(const FshDictionaryInfo *info);

/* Copies count strings. FSH_ERR_MEMORY. */
FshStatus fsh_names_copy(char ***copy_ret, const char *const *names, size_t count, FshError *error);
void fsh_names_free(char **names, size_t count);
bool fsh_names_equal(char *const *a, size_t a_count, char *const *b, size_t b_count);
/* FSH_ERR_USAGE naming `what` when a name is NULL, empty, not UTF-8 or there twice. */
FshStatus fsh_names_check(const char *what, const char *const *names, size_t count, FshError *error);

/* ---- dictionaries (dictionary.c, unpacker.c) ---- */

enum { DICTIONARY_BYTES_MIN = 256 }; /* zstd trains none that is smaller */

bool fsh_dictionary_info_equal(const FshDictionaryInfo *a, const FshDictionaryInfo *b);
/* Whether a file's dictionary (0 bytes: it has none) is the one that its metadata names. FSH_ERR_CORRUPT. */
FshStatus fsh_dictionary_check(const void *dictionary, size_t bytes, const FshDictionaryInfo *expected,
                               FshError *error);
/* zstd's own form of a dictionary, which any number of threads decompress with. FSH_ERR_CORRUPT. */
struct ZSTD_DDict_s;
FshStatus fsh_dictionary_prepare(const void *dictionary, size_t bytes, struct ZSTD_DDict_s **prepared_ret,
                                 FshError *error);
/* NULL is fine. */
void fsh_dictionary_release(struct ZSTD_DDict_s *prepared);

/* ---- what every file of a split says of itself (metadata.c) ---- */

typedef struct Metadata {
    char id[FSH_ID_DIGITS + 1];
    char *split; /* all owned */
    FshKind kind;
    char **field_names;
    size_t field_count;
    char **class_names; /* NULL for pairs */
    size_t class_count;
    FshDictionaryInfo dictionary; /* bytes 0: none */
    char *text;                   /* as in a shard's header, where fsh_metadata_make made it; else NULL */
    size_t text_bytes;
} Metadata;

enum { METADATA_BYTES_MIN = 2, METADATA_BYTES_MAX = 64 << 20, METADATA_NO_COUNT = -1 };

/* What the files of a manifest's split say: id, kind, fields, classes and dictionary are copied and checked,
 * the rest of the manifest is not looked at. FSH_ERR_USAGE for what fshard(5) does not allow. On failure
 * *metadata is empty. */
FshStatus fsh_metadata_make(Metadata *metadata, const FshManifest *manifest, const char *split,
                            FshError *error);
/* The JSON, *text_ret owned by the caller (free). count: METADATA_NO_COUNT for shards, the number of samples
 * for LMDB. */
FshStatus fsh_metadata_encode(const Metadata *metadata, int64_t count, char **text_ret, size_t *bytes_ret,
                              FshError *error);
/* count_ret: NULL for shards. On failure *metadata is empty. FSH_ERR_CORRUPT. */
FshStatus fsh_metadata_parse(Metadata *metadata, const char *text, size_t bytes, uint64_t *count_ret,
                             FshError *error);
/* FSH_ERR_CORRUPT, naming the first thing in which the text differs from what is expected. */
FshStatus fsh_metadata_compare(const char *text, size_t bytes, uint64_t *count_ret, const Metadata *expected,
                               FshError *error);
/* Moves metadata into *to; frees it where to is NULL. */
void fsh_metadata_hand_over(Metadata *metadata, Metadata *to);
void fsh_metadata_free(Metadata *metadata);

/* ---- records (record.c) ---- */

enum { RECORD_HEADER_BYTES = 64, FIELD_ROW_BYTES = 32, RECORD_BYTES_MIN = 192, COMPACT_BYTES_MIN = 18 };
#define RECORD_BYTES_MAX (UINT64_C(1) << 40)

/* What a record's first bytes say, for comparing with its index row. */
typedef struct RecordHead {
    uint64_t record_bytes;
    int64_t label;
    uint32_t crc;
    FshRecordForm form;
} RecordHead;

/* Structure of the record at bytes, of which available bytes may be read; padding and CRC are not looked at.
 * A record of another form is none. Fills sample (its index excepted) and head. FSH_ERR_CORRUPT,
 * FSH_ERR_UNSUPPORTED. */
FshStatus fsh_record_parse(const uint8_t *bytes, uint64_t available, FshRecordForm form, FshSample *sample,
                           RecordHead *head, FshError *error);
/* The label of an aligned record of at least RECORD_BYTES_MIN bytes, unchecked. */
int64_t fsh_record_label(const uint8_t *bytes);
/* The stored CRC of a record of either form. */
uint32_t fsh_record_crc(const uint8_t *bytes);
/* CRC32C and zero padding of a record that fsh_record_parse has passed. */
FshStatus fsh_record_verify(const uint8_t *bytes, const FshSample *sample, const RecordHead *head,
                            FshError *error);
/* The same where the CRC32C of the record's bytes from RECORD_CRC_BEGIN on is known. */
enum { RECORD_CRC_BEGIN = 8 };
FshStatus fsh_record_verify_crc(const FshSample *sample, const RecordHead *head, uint32_t crc,
                                FshError *error);
/* Whether the sample may be in a split of this metadata. FSH_ERR_MISMATCH. */
FshStatus fsh_record_fits(const FshSample *sample, const Metadata *metadata, FshError *error);

/* Channels, codec, and whether raw bytes are width x height x channels. FSH_ERR_CORRUPT,
 * FSH_ERR_UNSUPPORTED. */
FshStatus fsh_field_check_codec(const FshField *field, unsigned index, FshError *error);

/* The compact form (record_compact.c), for record.c, which has checked the sample. FSH_ERR_MISMATCH: too
 * large. */
FshStatus fsh_compact_measure(const FshSample *sample, uint64_t *bytes_ret, FshError *error);
/* Writes record_bytes, as measured. */
void fsh_compact_store(const FshSample *sample, uint8_t *bytes, size_t record_bytes);
FshStatus fsh_compact_parse(const uint8_t *bytes, uint64_t available, FshSample *sample, RecordHead *head,
                            FshError *error);
/* Whether the key of a sample that was parsed stands where a writer would have put it. */
bool fsh_compact_has_key_in_place(const FshSample *sample);
/* The first place where a compact record may begin, or NULL. */
const uint8_t *fsh_compact_find(const uint8_t *bytes, uint64_t length);

/* ---- shards (shard.c) ---- */

enum {
    SHARD_HEADER_BYTES = 64,
    SHARD_FOOTER_BYTES = 128,
    INDEX_ROW_BYTES = 32,
    COMPACT_ROW_BYTES = 12, /* in shards of compact records; they are read into rows of INDEX_ROW_BYTES */
};

typedef struct IndexRow {
    uint64_t offset; /* of the record, in its file */
    uint64_t record_bytes;
    int64_t label;
    uint32_t crc;
} IndexRow;

void fsh_index_row_store(uint8_t *at, const IndexRow *row);
IndexRow fsh_index_row_load(const uint8_t *at);

/* A shard in memory. */
typedef struct ShardView {
    const uint8_t *bytes;
    uint64_t file_bytes;
    /* from the header */
    uint32_t header_bytes, shard_index, shard_count;
    FshRecordForm record_form;
    const char *metadata; /* JSON, not NUL-terminated */
    size_t metadata_bytes;
    const uint8_t *dictionary;
    size_t dictionary_bytes; /* 0: none */
    /* from the footer */
    uint64_t record_count, index_offset, footer_offset;
    const uint8_t *index; /* record_count rows of index_bytes in all */
    uint64_t index_bytes;
    uint32_t index_crc;
    FshHash128 hash;
} ShardView;

bool fsh_shard_sniff(const uint8_t *bytes, uint64_t length);
/* bytes and file_bytes are set here. Checks the header's CRC. */
FshStatus fsh_shard_parse_header(ShardView *view, const uint8_t *bytes, uint64_t length, FshError *error);
/* After the header. A missing footer is FSH_ERR_CORRUPT and *torn_ret. */
FshStatus fsh_shard_parse_footer(ShardView *view, bool *torn_ret, FshError *error);
/* After the footer: CRC of the index, and that its rows cover the records without gaps; labels below
 * class_count (below 0 for 0 classes). class_counts, if not NULL, is added to. On failure *row_ret, if not
 * NULL, is the row or -1. */
FshStatus fsh_shard_check_index(const ShardView *view, uint64_t class_count, uint64_t *class_counts,
                                int64_t *row_ret, FshError *error);
/* After the index: its rows of INDEX_ROW_BYTES each, in the file or, of compact ones, in *own_rows (the
 * caller's to free). FSH_ERR_MEMORY. */
FshStatus fsh_shard_rows(const ShardView *view, Buffer *own_rows, const uint8_t **rows_ret, FshError *error);
/* Brings rows of INDEX_ROW_BYTES into the form in which a shard has them, in place. Returns their bytes. */
size_t fsh_shard_pack_rows(uint8_t *rows, uint64_t count, FshRecordForm form);
/* Number of intact records from the front of a shard whose header is good; needs no index. */
uint64_t fsh_shard_count_intact(const ShardView *view);

/* header_bytes of a shard with this metadata and dictionary. */
uint32_t fsh_shard_header_bytes(size_t metadata_bytes, size_t dictionary_bytes);
/* Writes header_bytes bytes. */
void fsh_shard_store_header(uint8_t *header, const char *metadata, size_t metadata_bytes,
                            const void *dictionary, size_t dictionary_bytes, FshRecordForm form,
                            uint32_t shard_index, uint32_t shard_count);
/* Writes SHARD_FOOTER_BYTES. */
void fsh_shard_store_footer(uint8_t *footer, uint64_t record_count, FshRecordForm form, uint64_t index_offset,
                            uint32_t index_crc, const FshHash128 *hash);

/* ---- LMDB (lmdb_reader.c) ---- */

/* data.mdb in memory, read by our own walk over its pages: liblmdb trusts what it maps, and a hostile file
 * makes it crash. The walk is also what makes reads O(1), zero-copy and lock-free: it ends in a table of
 * where each value is. */
typedef struct LmdbView {
    Buffer rows; /* INDEX_ROW_BYTES each, offset and record_bytes filled, as in a shard's index; owned */
    uint64_t record_count;
    const char *metadata; /* JSON, not NUL-terminated */
    size_t metadata_bytes;
    const uint8_t *dictionary;
    size_t dictionary_bytes; /* 0: none */
} LmdbView;

#define LMDB_DATA_NAME      "data.mdb"
#define LMDB_METADATA_KEY   "~fshard"
#define LMDB_DICTIONARY_KEY "~fshard-dictionary"
enum { LMDB_KEY_DIGITS = 10 };

bool fsh_lmdb_sniff(const uint8_t *bytes, uint64_t length);
/* The file of an LMDB: data.mdb in the folder path, or path itself, as liblmdb's MDB_NOSUBDIR has it. */
FshStatus fsh_lmdb_data_path(char data_path[PATH_MAX], const char *path, FshError *error);
/* FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED (an LMDB that is none of ours), FSH_ERR_MEMORY. On failure *view is
 * empty. */
FshStatus fsh_lmdb_parse(LmdbView *view, const uint8_t *bytes, uint64_t length, FshError *error);
void fsh_lmdb_free(LmdbView *view);

/* ---- one file of a split, mapped (split_file.c) ---- */

typedef struct Container Container;
struct OpenRequest;

typedef struct SplitFile {
    const Container *container;
    FileMapping mapping;
    FileMapping *others; /* BasicSR has several: see fsh_split_file_mapping; owned */
    size_t other_count;
    uint64_t first; /* index in the split of this file's first record */
    uint64_t record_count;
    /* record_count index rows: of the shard, or in own_rows. An LMDB's have no labels and no CRCs; those of
     * tables have the label, the first field's offset and the bytes of all fields, without CRC. */
    const uint8_t *rows;
    Buffer own_rows;
    /* What a file of records says of itself: */
    const char *metadata; /* JSON, not NUL-terminated */
    size_t metadata_bytes;
    const uint8_t *dictionary;
    size_t dictionary_bytes; /* 0: none */
    FshRecordForm record_form;
    uint32_t shard_index, shard_count; /* shard_count 0: it does not say */
    /* FSH_HAS_HASH: */
    FshHash128 hash;
    uint64_t hashed_bytes; /* from the file's first on */
    /* All others: */
    SampleTable table;
    bool written_by_us; /* a manifest lists it, so a tar's .json must tell the CRCs */
} SplitFile;

/* Maps and parses path. Messages begin with the path. On failure *file is closed. (container.h) */
FshStatus fsh_split_file_open(SplitFile *file, const char *path, const Container *container,
                              const struct OpenRequest *request, FshError *error);
/* The label of a record: of its index row or, where that has none, of the record itself. */
int64_t fsh_split_file_label(const SplitFile *file, uint64_t record);
/* Whether the opened file is the one that the manifest lists as file_index of file_count. FSH_ERR_CORRUPT;
 * the message names no file. */
FshStatus fsh_split_file_compare(const SplitFile *file, const FshFileInfo *info, size_t file_index,
                                 size_t file_count, FshError *error);
void fsh_split_file_close(SplitFile *file);
/* The file's mappings in the order in which they are hashed: of BasicSR data.mdb and meta_info.txt of each
 * field, of every other container one. */
size_t fsh_split_file_mapping_count(const SplitFile *file);
const FileMapping *fsh_split_file_mapping(const SplitFile *file, size_t index);
/* Bytes of all of them. */
uint64_t fsh_split_file_bytes(const SplitFile *file);
/* A record of the file, whatever the container: the sample (its index excepted) and what its record or index
 * says. Checks its structure. FSH_ERR_CORRUPT; the message names no place. */
FshStatus fsh_split_file_sample(const SplitFile *file, uint64_t record, FshSample *sample, RecordHead *head,
                                FshError *error);
/* Reads all of that record, and compares its checksums where the container has any. */
FshStatus fsh_split_file_verify(const SplitFile *file, uint64_t record, FshError *error);
/* Checks whether what was read of that record, or of the whole file, was there: FSH_ERR_SYSTEM where the disk
 * failed, or the file was cut short (common/read_fault.h). The message names the byte. */
FshStatus fsh_split_file_check_read(const SplitFile *file, uint64_t record, FshError *error);
FshStatus fsh_split_file_check_all_read(const SplitFile *file, FshError *error);
/* Reads that record into the page cache and maps it, as fsh_populate. */
FshStatus fsh_split_file_populate(const SplitFile *file, uint64_t record, FshError *error);

/* Makes the index rows of a file whose table is made. FSH_ERR_MEMORY. (table_file.c) */
FshStatus fsh_table_rows(SplitFile *file, FshError *error);
/* Where a .cls in one of the files is a name, in all of them: labels become places among the names of all
 * files, in byte order, and numbers are names too. The first table has the names. (webdataset_names.c)
 * FSH_ERR_UNSUPPORTED: too many; FSH_ERR_MEMORY. */
FshStatus fsh_webdataset_unite_classes(SplitFile *files, size_t count, FshError *error);

/* ---- datasets without a manifest, of foreign containers (collection.c) ---- */

typedef struct CollectionFile {
    char *path, *name; /* owned; name: as the manifest lists it */
    const char *split; /* static */
} CollectionFile;

typedef struct Collection {
    const Container *container; /* NULL: nothing was found */
    CollectionFile *files;      /* split by split: train, val, test; in each by name, or as given */
    size_t count;
    char *folder; /* what the names are relative to; owned; "" for none */
} Collection;

/* What is at path: a tar, a folder of tars, LMDBs of others, a list with braces, of tars or of shards.
 * Its container is NULL where there is nothing of the kind. FSH_ERR_UNSUPPORTED, FSH_ERR_SYSTEM,
 * FSH_ERR_MEMORY. */
FshStatus fsh_collection_find(Collection *collection, const char *path, FshError *error);
/* The manifest of its opened files (file i is collection file i): fields, classes, counts, an id that names,
 * sizes, counts and the last bytes of images give. */
FshStatus fsh_collection_manifest(FshManifest *manifest, const Collection *collection, const SplitFile *files,
                                  FshError *error);
void fsh_collection_free(Collection *collection);

/* Opens the dataset of one split that the collection's files are, opened: takes them over, whatever comes of
 * it. (dataset.c) */
FshStatus fsh_collection_open(FshDataset **dataset_ret, const char *path, const Collection *collection,
                              SplitFile *opened, FshError *error);

/* ---- files that nobody has packed (container_files.c) ---- */

/* Reads the file of a field of FSH_COMPRESSION_FILE. Messages begin with its path. */
FshStatus fsh_files_read(const FshSplit *split, const FshField *field, Buffer *bytes, FshError *error);

/* ---- the files of a split (dataset.c) ---- */

struct FshSplitFiles {
    SplitFile *files; /* in the order of the manifest */
    size_t count;
    const char *folder;
    const FshManifest *manifest;
    Metadata metadata;                     /* what each file must say of itself */
    const struct ZSTD_DDict_s *dictionary; /* the dataset's, or NULL */
};

/* Puts file, record and byte offset of the record that holds data in front of a failure's message. Returns
 * status. */
FshStatus fsh_split_fail_at_data(const FshSplit *split, const void *data, FshStatus status, FshError *error);
/* Checks whether these bytes of a mapping of the split were there: FSH_ERR_SYSTEM. */
FshStatus fsh_split_check_read_data(const FshSplit *split, const void *data, size_t bytes, FshError *error);

/* Reads a range of a mapping into the page cache and maps it. A disk that fails is FSH_ERR_SYSTEM here
 * instead of SIGBUS later: where the kernel can (Linux 5.14), or the program has called read_fault_outlive.
 * The message names the byte where that is known, else the range's first. (residency.c) */
FshStatus fsh_populate(const FileMapping *mapping, uint64_t offset, uint64_t length, FshError *error);

/* ---- writing (writer.c) ---- */

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
    /* After the last batch. Fills bytes and hash of info. */
    FshStatus (*finish)(FshWriter *writer, FshFileInfo *info, FshError *error);
    /* Frees private_data and abandons what is not finished. After a failed open too. */
    void (*close)(FshWriter *writer);
} ContainerWriter;

/* shard_writer.c, lmdb_writer.c, webdataset_writer.c, basicsr_writer.c */
extern const ContainerWriter fsh_shard_writer, fsh_lmdb_writer, fsh_webdataset_writer, fsh_basicsr_writer;

/* folder/SPLIT-wids.json, the shard list that webdataset's indexed reader takes. (webdataset_wids.c) */
FshStatus fsh_wids_save(const FshManifest *manifest, const FshSplitInfo *split, const char *folder,
                        bool force, FshError *error);
/* Proves it. FSH_ERR_NOT_FOUND, FSH_ERR_CORRUPT; the message names no file. */
#define WIDS_SUFFIX          "-wids.json"
#define FSH_TAR_INDEX_SUFFIX ".idx"
FshStatus fsh_wids_check(const FshManifest *manifest, const FshSplitInfo *split, const char *folder,
                         FshError *error);

/* ---- manifest (manifest.c) ---- */

/* Version 1 had no checksums, and its "id" did not cover what the files hold. */
enum { MANIFEST_VERSION = 2, MANIFEST_VERSION_WITHOUT_SEAL = 1 };
/* What is longer is no manifest: a hundred thousand shards and a million classes fit. jansson takes a second
 * for 6 MB. */
enum { MANIFEST_BYTES_MAX = 64 << 20 };
/* What a user does about a manifest that is not what was written. */
#define MANIFEST_REMEDY "fpack --repair-manifest makes it again from the files of its folder"

/* The whole of dataset.json. FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED. On failure *manifest is empty. */
FshStatus fsh_manifest_parse(FshManifest *manifest, const char *text, size_t bytes, FshError *error);
/* What is promised of every manifest: names, sums, counts. `status` is what a violation gives:
 * FSH_ERR_CORRUPT on reading, FSH_ERR_USAGE on writing. */
FshStatus fsh_manifest_check(const FshManifest *manifest, FshStatus status, FshError *error);
/* Makes dataset.json of its object: adds "checksum" to it. *text_ret is the caller's (free), *bytes_ret its
 * bytes, with a newline at the end and no NUL. FSH_ERR_MEMORY. (manifest_seal.c) */
FshStatus fsh_manifest_seal(json_t *object, char **text_ret, size_t *bytes_ret, FshError *error);
/* Proves a text, which is a JSON object, by its "checksum". FSH_ERR_CORRUPT names the members that were
 * changed. */
FshStatus fsh_manifest_check_seal(const char *text, size_t bytes, FshError *error);
/* Fills class_display_names from a manifest as JSON, one for each class of manifest, or NULL where there is
 * no such member. FSH_ERR_CORRUPT, FSH_ERR_MEMORY. */
FshStatus fsh_manifest_parse_display_names(FshManifest *manifest, const json_t *object, FshError *error);
/* Returns whether the member of a text, which is a JSON object, is what was written, whatever else was
 * changed. */
bool fsh_manifest_member_is_whole(const char *text, size_t bytes, const char *name);
/* Makes a manifest of the files in folder, whatever its dataset.json says: of that, provenance is kept, and
 * what only it tells, where that is as it was written: the classes' display names, and of tars and BasicSR
 * all names. Statistics are zero. FSH_ERR_NOT_FOUND: no files, or one of a split is missing;
 * FSH_ERR_UNSUPPORTED: there is one that a list which is as it was written does not name; what opening them
 * gives. On failure *manifest is empty. (rebuild.c) */
FshStatus fsh_manifest_rebuild(FshManifest *manifest, const char *folder, FshError *error);
/* Mixes bytes into an id, in place: other bytes give another id. */
void fsh_id_mix(char id[FSH_ID_DIGITS + 1], const void *bytes, size_t length);

/* A manifest for a file that stands alone: takes over metadata's names (metadata is empty then). */
FshStatus fsh_manifest_from_file(FshManifest *manifest, Metadata *metadata, FshContainer container,
                                 const FshFileInfo *file, FshError *error);
/* One file more of its first split; *file is copied. FSH_ERR_MEMORY. */
FshStatus fsh_manifest_add_file(FshManifest *manifest, const FshFileInfo *file, FshError *error);

#endif
