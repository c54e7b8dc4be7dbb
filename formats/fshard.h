/* fshard.h - read and write fshard datasets: samples, splits, checksums. libfshard's one public header.
 *
 *   FshDataset *dataset = NULL;
 *   FshError error = {0};
 *   if (fsh_open(&dataset, "shards/", &error)) { fprintf(stderr, "%s\n", error.message); return 1; }
 *   const FshSplit *train = fsh_split(dataset, "train");
 *   FshSample sample;
 *   for (uint64_t i = 0; i < train->sample_count; i++)
 *       if (fsh_sample_get(train, i, &sample, &error) == FSH_OK)
 *           use(sample.fields[0].data, sample.fields[0].bytes, sample.label);   // points into the mapping
 *   fsh_close(&dataset);
 *
 * Concepts. A dataset is a folder with a manifest (dataset.json) and, for each split (train, val, test), its
 * records: in shards (train-00000-of-00016.fshard) or in one LMDB (train.lmdb/). A sample is one training
 * example: an index in its split, a key (relative path without extension), a label or none, and fields: named
 * bytes with a codec. A record is a sample on disk; shards and LMDB hold the same records. The byte layout is
 * in fshard(5), exact enough to write a reader. libfshard moves bytes and never decodes an image.
 *
 * Compression. A field's bytes may be kept as a zstd frame: of raw pixels or of any codec's bytes. Reading a
 * sample gives what is stored; fsh_field_unpack gives the codec's bytes, and costs nothing where nothing is
 * compressed. Many small images are packed with a dictionary that was trained on some of them. It belongs to
 * the dataset: every one of its files carries it.
 *
 * Threads. An open dataset is immutable: any number of threads read it without locks. A writer, a packer and
 * an unpacker each belong to one thread at a time.
 *
 * Trust. Every length, offset and count from a file is checked before it is used; a hostile file gives
 * FSH_ERR_CORRUPT, never a crash. fsh_open checks headers, indexes and footers, not payloads, and of an LMDB
 * that a manifest lists the ends of its tree: the pages to a record are checked when it is read, and tell in
 * the same words what is wrong. Whoever wants proof calls fsh_check (fverify does).
 *
 * Caveats.
 * - A file that is truncated by someone else while it is mapped, or that the disk cannot read, gives SIGBUS.
 *   Fix: fsh_outlive_read_errors makes failures of them. Never write into a dataset; fpack writes to new
 *   names and renames.
 * - Field data is 64-byte aligned in shards of aligned records only. Elsewhere it has no alignment.
 *   Fix: copy, or pack as shards without compression.
 * - A field's data may be compressed, whatever its codec.
 *   Fix: always go through fsh_field_unpack before decoding.
 *
 * Limits: FSH_FIELDS_MAX fields, keys and source paths of 65,535 bytes, records below 2^40 bytes, 2^32
 * samples a shard, FSH_UNPACKED_BYTES_MAX for a compressed field, FSH_DICTIONARY_BYTES_MAX. */
#ifndef FSHARD_FSHARD_H
#define FSHARD_FSHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FSH_FORMAT_VERSION = 1,
    FSH_FIELDS_MAX = 8,
    FSH_PAIR_SCALE_MAX = 64,
    FSH_CHANNELS_MAX = 4,
    FSH_ALIGNMENT = 64, /* of records and payloads: a cache line, and what AVX-512 and GPU copies like */
    /* 1 GiB: raw pixels of 18,900 x 18,900 in colour. A reader's thread never takes more for a compressed
     * field, whatever a file says. */
    FSH_UNPACKED_BYTES_MAX = 1 << 30,
    FSH_DICTIONARY_BYTES_MAX = 1 << 20, /* zstd's own default is 112,640 */
};

#define FSH_NO_LABEL (-1)

/* What a field's bytes are. Values are on disk: never renumber. */
typedef enum FshCodec {
    FSH_CODEC_RAW = 1,  /* uint8 pixels, height x width x channels (HWC), no padding */
    FSH_CODEC_JPEG = 2, /* a file as it was, known by its content */
    FSH_CODEC_PNG = 3,
    FSH_CODEC_WEBP = 4,
    FSH_CODEC_TIFF = 5,
    FSH_CODEC_GIF = 6,
    FSH_CODEC_BMP = 7,
    FSH_CODEC_PNM = 8,
    FSH_CODEC_Y4M = 9,    /* the planes of a JPEG as they are (fpack --store yuv420) */
    FSH_CODEC_OTHER = 15, /* an image file of another kind: the decoder sniffs */
} FshCodec;

/* Returns "raw", "jpeg", …; "unknown" for a value not above. */
FSH_API const char *fsh_codec_name(FshCodec codec);
/* Returns the codec of an image file by its first bytes; FSH_CODEC_OTHER where they tell nothing. Never
 * FSH_CODEC_RAW. */
FSH_API FshCodec fsh_codec_sniff(const uint8_t *bytes, size_t length);

/* Returns the name of a split that programs make, of 0 to FSH_SPLIT_COUNT - 1: "train", "val", "test". */
enum { FSH_SPLIT_COUNT = 3 };
FSH_API const char *fsh_split_name(size_t index);
/* Returns the number of the split that a folder of this name (length bytes) holds, FSH_SPLIT_COUNT where it
 * is no split's: "valid" and "validation" are val, "training" is train, "testing" is test. */
FSH_API size_t fsh_split_of_folder(const char *name, size_t length);

/* How a field's bytes are kept. Values are on disk: never renumber. */
typedef enum FshCompression {
    FSH_COMPRESSION_NONE = 0,
    FSH_COMPRESSION_ZSTD = 1, /* one zstd frame (RFC 8878), with the dataset's dictionary if it has one */
    /* never on disk: the bytes are in a file (fsh_open_files), which fsh_field_unpack reads */
    FSH_COMPRESSION_FILE = 256,
} FshCompression;

/* Returns "none", "zstd"; "unknown" for a value not above. */
FSH_API const char *fsh_compression_name(FshCompression compression);

/* How a file lays out its records. Values are on disk: never renumber. */
typedef enum FshRecordForm {
    FSH_RECORD_ALIGNED = 0, /* records and payloads at multiples of 64: raw pixels are used where they lie */
    /* shards only: no padding, no alignment; for small fields that are compressed. Records are below 2^32
     * bytes, labels below 2^29 - 1 */
    FSH_RECORD_COMPACT = 1,
} FshRecordForm;

typedef enum FshContainer {
    FSH_CONTAINER_SHARDS = 1,
    FSH_CONTAINER_LMDB = 2,
    FSH_CONTAINER_TAR = 3,         /* WebDataset */
    FSH_CONTAINER_BASICSR = 4,     /* a folder of LMDBs with meta_info.txt, one for each field */
    FSH_CONTAINER_FOLDER2LMDB = 5, /* read only */
    FSH_CONTAINER_FILES = 6,       /* files that nobody has packed (fsh_open_files); in no manifest */
} FshContainer;

/* What a container can do, for fsh_container_has. */
typedef enum FshContainerFact {
    FSH_HAS_METADATA = 1 << 0,    /* each file tells its dataset's id, split, fields and classes */
    FSH_HAS_CHECKSUMS = 1 << 1,   /* of each record */
    FSH_HAS_HASH = 1 << 2,        /* of the whole file, in the file */
    FSH_HAS_SIZES = 1 << 3,       /* of each image, in pixels */
    FSH_HAS_CLASSES = 1 << 4,     /* a place for labels */
    FSH_HAS_SHARDS = 1 << 5,      /* a split may be several files */
    FSH_HAS_RAW = 1 << 6,         /* may hold raw pixels */
    FSH_HAS_COMPRESSION = 1 << 7, /* may hold fields that are compressed */
    FSH_HAS_COMPACT = 1 << 8,     /* may hold records of FSH_RECORD_COMPACT */
    FSH_HAS_MEMBERS = 1 << 9,     /* each field is a file inside, with a path and a header: a tar */
    FSH_HAS_INDEX = 1 << 10,      /* an index stands beside each file */
    FSH_HAS_FILES = 1 << 11,      /* each field is a file of its own, which nobody has packed */
    FSH_HAS_SOURCES = 1 << 12,    /* what its samples were made of stands beside each file (source_list.h) */
} FshContainerFact;

/* Returns whether the container can do that; false for an id that is unknown. */
FSH_API bool fsh_container_has(FshContainer container, FshContainerFact fact);
/* Returns "shards", "lmdb", …, as a manifest and --format have it; "unknown" for a value not above. */
FSH_API const char *fsh_container_name(FshContainer container);
/* Returns what count files of it are called: "shard", "LMDBs". */
FSH_API const char *fsh_container_noun(FshContainer container, size_t count);
/* Finds a container by its name. Returns false, and leaves *container_ret as it was, if no container has the
 * name. */
FSH_API bool fsh_container_from_name(const char *text, FshContainer *container_ret);

typedef enum FshKind {
    FSH_KIND_CLASSES = 1, /* one field "image" and a label */
    FSH_KIND_PAIRS = 2,   /* two or more fields of equal geometry, no label */
    /* an image and its mask, of equal size: a PNG whose values (palette indices, or gray of 1, 2, 4 or 8
     * bits) are the classes of its pixels, and are kept as they are; FSH_MASK_IGNORED is no class */
    FSH_KIND_MASKS = 3,
} FshKind;
enum { FSH_MASK_FIELD = 1, FSH_MASK_IGNORED = 255 };
/* Returns whether a field of a dataset of this kind is a mask, which is never decoded to colours. */
FSH_API bool fsh_is_mask(FshKind kind, size_t field);

typedef struct FshField {
    const void *data; /* what is stored, bytes long; borrowed */
    size_t bytes;
    size_t unpacked_bytes; /* == bytes where nothing is compressed; writers may leave it 0 then */
    /* Pixels, as displayed (after EXIF orientation). 0: not known before decoding; so it is in containers of
     * others, unless the pixels are raw. Writers of shards and LMDB want them. */
    uint32_t width, height;
    uint8_t channels; /* 1 or 3 once decoded; 0: not known */
    FshCodec codec;   /* of the unpacked bytes */
    FshCompression compression;
    const char *source; /* path of the original, relative to the source root; not NUL-terminated; borrowed */
    size_t source_bytes;
} FshField;

typedef struct FshSample {
    uint64_t index;  /* in its split; writers ignore it */
    int64_t label;   /* class index, or FSH_NO_LABEL */
    const char *key; /* not NUL-terminated; borrowed */
    size_t key_bytes;
    unsigned field_count; /* 1..FSH_FIELDS_MAX */
    FshField fields[FSH_FIELDS_MAX];
} FshSample;

/* ---- the manifest ---- */

typedef struct FshHash128 {
    uint8_t bytes[16]; /* XXH3-128, canonical (big endian), as xxhsum -H2 prints it */
} FshHash128;

/* Rows of a shard: first to first + count - 1. */
typedef struct FshRowRange {
    uint32_t first, count;
} FshRowRange;

typedef struct FshFileInfo {
    char *name; /* "train-00000-of-00002.fshard" or "train.lmdb"; relative to the manifest */
    uint64_t sample_count;
    uint64_t bytes;
    FshHash128 hash; /* of the shard up to its footer; of data.mdb for LMDB */
    /* of an updated dataset: what it says of itself as its dataset's id, where that is not the manifest's;
     * and its rows that are no samples any more, ascending, owned; sample_count is of the others */
    char files_id[33];
    FshRowRange *removed;
    size_t removed_count;
} FshFileInfo;

typedef struct FshSplitInfo {
    char *name; /* "train", "val", "test" */
    uint64_t sample_count;
    uint64_t *class_counts; /* class_count entries; NULL for pairs */
    FshFileInfo *files;
    size_t file_count;
} FshSplitInfo;

/* Over all images of the training split (of the first split where there is no train), on decoded 0..255
 * pixels. */
typedef struct FshStatistics {
    uint32_t channels;                                     /* 1 if every image is gray, else 3 */
    uint32_t width_min, width_max, height_min, height_max; /* over all splits */
    double mean[FSH_CHANNELS_MAX];                         /* in 0..1 */
    double standard_deviation[FSH_CHANNELS_MAX];
    /* of masks: one more than the largest value of a pixel that is not FSH_MASK_IGNORED, over all splits; 0:
     * not measured, or no masks */
    uint32_t mask_classes;
} FshStatistics;

/* Names a dictionary; bytes 0: there is none. */
typedef struct FshDictionaryInfo {
    uint32_t bytes;
    uint32_t id; /* zstd's, never 0 */
    FshHash128 hash;
} FshDictionaryInfo;

/* dataset.json in memory. All strings owned; free with fsh_manifest_free. */
typedef struct FshManifest {
    /* 32 hex digits: of what the files hold, made by fsh_manifest_identify. The same input and options give
     * the same id, and one byte that differs gives another. */
    char id[33];
    char files_id[33]; /* what each file says of itself as its dataset's id; "": what stands in id */
    uint32_t version;  /* of the dataset.json that was read: 1 has no checksum; 0: none was */
    uint32_t updates;  /* how often fpack --update or --append has changed it since it was packed */
    FshContainer container;
    FshKind kind;
    char **field_names;
    size_t field_count;
    char **class_names; /* in byte order of the folder names; NULL for pairs */
    size_t class_count;
    char **
        /* what people call the classes: class_count, "" where it is not known; NULL: none is */
        class_display_names;
    /* Of masks, what the values 0, 1, 2 … are called, all different; NULL: not told. At most
     * FSH_MASK_IGNORED, and more or fewer than statistics.mask_classes. */
    char **mask_names;
    size_t mask_name_count;
    FshSplitInfo *splits;
    size_t split_count;
    FshDictionaryInfo dictionary; /* what its files carry */
    /* every field after the first is so many times as wide and high; 0 and 1: as large */
    uint32_t pair_scale;
    FshStatistics statistics;
    char *provenance_json; /* a JSON object: tool, version, options, …; never NULL after load */
} FshManifest;

/* Writes how a class is shown, "tench, Tinca tinca (n01440764)", or its name alone where nothing else is
 * known; cut to the buffer. Returns buffer. class_index: below class_count. */
FSH_API const char *fsh_class_display(const FshManifest *manifest, size_t class_index, char *buffer,
                                      size_t buffer_bytes);

#define FSH_MANIFEST_NAME "dataset.json"
/* While a dataset is being packed, or was stopped, this file stands in its folder instead. */
#define FSH_UNFINISHED_NAME ".fpack-unfinished"

/* Reads and checks dataset.json at path (the file, or the folder it is in), by its checksum too.
 * FSH_ERR_CORRUPT names the member that was changed or is out of its range. A manifest of version 1 has no
 * checksum: only ranges and sums are checked. */
FSH_API FshStatus fsh_manifest_load(FshManifest *manifest, const char *path, FshError *error);
/* Fills in id, over files_id and the name, size and hash of every file; files_id, where it is "", takes over
 * what id was. fsh_manifest_save writes the id that this gives. FSH_ERR_MEMORY. */
FSH_API FshStatus fsh_manifest_identify(FshManifest *manifest, FshError *error);
/* Writes folder/dataset.json atomically, with its checksum. Deterministic: the same manifest gives the same
 * bytes. */
FSH_API FshStatus fsh_manifest_save(const FshManifest *manifest, const char *folder, bool force,
                                    FshError *error);
FSH_API void fsh_manifest_free(FshManifest *manifest);

/* ---- reading ---- */

typedef struct FshDataset FshDataset;

/* Has the process outlive a disk that fails, or a file that somebody cuts short, under an open dataset: the
 * bytes that are not there read as zeros, and every function here that has read them returns FSH_ERR_SYSTEM.
 * Installs a handler for SIGBUS, which passes on what is not about files of ours to the handler that was
 * there before; one that is installed later should do the same. Once for the process, before datasets are
 * read; nothing here calls it by itself. */
FSH_API void fsh_outlive_read_errors(void);

/* Read-only view of one split; lives as long as its dataset. */
typedef struct FshSplit {
    const FshDataset *dataset;
    const FshSplitInfo *info;
    uint64_t sample_count;
    struct FshSplitFiles *files; /* private */
} FshSplit;

/* Opens a dataset folder, its dataset.json, a single .fshard file or a single .lmdb folder, or the one file
 * of that, under any name. A single one says itself what its fields and classes are; its split then has one
 * file, statistics are zero, and so is the hash of an LMDB. Sniffed by content. Headers, indexes and footers
 * are checked, and against the manifest; payloads are not read. FSH_ERR_NOT_FOUND: nothing there, or a file
 * of the manifest is missing. FSH_ERR_CORRUPT: torn or damaged headers, indexes or footers, or files that are
 * not those of the manifest; the message names the file. FSH_ERR_UNSUPPORTED: a newer format version, or an
 * unknown kind of file. On failure *dataset is NULL.
 *
 * Also opens what others have written: a tar of WebDataset, a folder of them, or a list as webdataset spells
 * it ("train-{000000..000127}.tar", "a.tar::b.tar"; also of .fshard files: those of one split, in order, some
 * of them may be left out); a folder of BasicSR's LMDBs, or one; LMDBs of folder2lmdb. fshard(5) says what is
 * read of them. They have no manifest: one is made up, with classes "0", "1", … or the names that a .json
 * tells (one class "unlabelled" where nothing has a label), statistics and hashes of zero, and an id from
 * names, sizes, counts and the last bytes of images. Fields of pairs may differ in size. Opening reads every
 * header (tars) or value's edges (folder2lmdb).
 *
 * And class folders that nobody has packed (FSH_HAS_FILES): no file is read before its sample is unpacked. */
FSH_API FshStatus fsh_open(FshDataset **dataset, const char *path, FshError *error);
/* Opens what can be read of a dataset that fsh_open refuses, whose files have tables of samples (tars, and
 * LMDBs of others): files that cannot be opened are not in its manifest, and of a tar that breaks off, the
 * samples before the place are there. Files are not compared with the dataset.json that lists them. Fails as
 * fsh_open where nothing can be read; FSH_ERR_UNSUPPORTED where it has other files. */
FSH_API FshStatus fsh_open_readable(FshDataset **dataset, const char *path, FshError *error);
/* Opens one file of a manifest in folder by itself, as the manifest lists it: without the records that an
 * update has removed, and with the dataset's labels. Fails as fsh_open. On failure *dataset is NULL. */
FSH_API FshStatus fsh_open_listed(FshDataset **dataset, const char *folder, const FshManifest *manifest,
                                  size_t split, size_t file, FshError *error);
/* Opens files that nobody has packed as a dataset of one split, "images": a sample without label for each
 * path, in their order, whose key and source are the path, and whose one field, "image", is the file:
 * fsh_field_unpack reads it, then and not before, of at most FSH_UNPACKED_BYTES_MAX. folder: what the paths
 * are relative to. FSH_ERR_MISMATCH: no paths, or one that is empty or longer than 65,535 bytes;
 * FSH_ERR_MEMORY. On failure *dataset is NULL. */
FSH_API FshStatus fsh_open_files(FshDataset **dataset, const char *folder, const char *const *paths,
                                 uint64_t count, FshError *error);
/* Opens the files in a tar that is not compressed in the same way, each by its whole path: those that
 * `wanted` returns true for. What has a part that begins with "." is passed over. FSH_ERR_MISMATCH: there are
 * none; FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED as fsh_open. */
FSH_API FshStatus fsh_open_tar_files(FshDataset **dataset, const char *path,
                                     bool (*wanted)(void *context, const char *path), void *context,
                                     FshError *error);
/* Opens the files of a dataset's folder by what they say of themselves, whatever its dataset.json says,
 * damaged or missing: for making that again. fsh_manifest tells what it ought to be, but for statistics,
 * which are zero. Of the old one provenance is kept, and of tars and BasicSR's LMDBs, which do not tell them,
 * names of fields and classes that are as they were written. FSH_ERR_NOT_FOUND: no files, or one of a split
 * is missing. Else as fsh_open. */
FSH_API FshStatus fsh_open_without_manifest(FshDataset **dataset, const char *folder, FshError *error);
/* Frees and sets to NULL; NULL is fine. Samples borrowed from it are gone. */
FSH_API void fsh_close(FshDataset **dataset);

FSH_API const FshManifest *fsh_manifest(const FshDataset *dataset);
/* Gives the classes of an open dataset other display names for as long as it is open; its files stay as they
 * are. names: class_count strings of malloc, of which the dataset frees each, and their array. */
FSH_API void fsh_set_class_display_names(FshDataset *dataset, char **names);
FSH_API const char *fsh_path(const FshDataset *dataset);
/* Returns how many tars of an open dataset have no end marker: some programs write none, and a tar that is
 * cut short between two members has lost it. *first_ret: the name of the first; unchanged where there is
 * none. */
FSH_API uint64_t fsh_unmarked_files(const FshDataset *dataset, const char **first_ret);
/* Has fsh_path and messages call a dataset something else than the path it was opened by: the address that it
 * was fetched from. FSH_ERR_MEMORY: it keeps its name. */
FSH_API FshStatus fsh_set_path(FshDataset *dataset, const char *path, FshError *error);
/* Returns the split of this name, or NULL if there is no such split. */
FSH_API const FshSplit *fsh_split(const FshDataset *dataset, const char *name);

/* Fills *sample with sample `index` of a split, zero-copy and O(1); in an LMDB a way down its tree, some 200
 * ns. Checks that the record's structure lies
 * within its bounds, not its CRC. FSH_ERR_NOT_FOUND: index >= sample_count. FSH_ERR_CORRUPT: the message
 * names file, record and byte offset. */
FSH_API FshStatus fsh_sample_get(const FshSplit *split, uint64_t index, FshSample *sample, FshError *error);

/* Returns the label alone, from the index row: does not touch the record (LMDB: the record's header). Always
 * FSH_NO_LABEL or a class of the manifest; FSH_NO_LABEL where the record cannot be found, of which
 * fsh_sample_get tells why. index must be in range. */
FSH_API int64_t fsh_sample_label(const FshSplit *split, uint64_t index);

/* Prepares a sample that will be read soon: the beginning of its record comes into the processor's cache, and
 * with from_disk the kernel is asked to read what of the record is not in memory, while the caller does
 * something else. Is a request, whose cost is some nanoseconds, or a system call; does nothing for LMDBs and
 * tars. index must be in range. */
FSH_API void fsh_sample_prefetch(const FshSplit *split, uint64_t index, bool from_disk);

/* Recomputes the record's CRC32C. FSH_ERR_CORRUPT names file, record and key. */
FSH_API FshStatus fsh_sample_verify(const FshSplit *split, uint64_t index, FshError *error);

/* Checks that all was there that was read of a sample since fsh_sample_get gave it, for whoever has used its
 * bytes in place. Can fail only in a program that has called fsh_outlive_read_errors; elsewhere always
 * FSH_OK. FSH_ERR_SYSTEM names file, record and byte: what was read was zeros, and what was made of it is to
 * be thrown away. Costs nothing where nothing has failed. */
FSH_API FshStatus fsh_sample_check_read(const FshSplit *split, const FshSample *sample, FshError *error);

/* Writes where a sample lies, for messages: "train-00000-of-00002.fshard record 17". Returns buffer. */
FSH_API const char *fsh_sample_where(const FshSplit *split, uint64_t index, char *buffer,
                                     size_t buffer_bytes);

/* Returns the bytes of all records of the split; of a damaged file no more than the file has. */
FSH_API uint64_t fsh_split_bytes(const FshSplit *split);

/* Returns the dataset's dictionary, borrowed, for whoever packs its records again; *bytes_ret is its length,
 * 0 where the dataset has none. */
FSH_API const void *fsh_dictionary(const FshDataset *dataset, size_t *bytes_ret);

/* ---- several datasets as one ---- */

/* Makes one dataset of several that are open, and takes them over: they are closed with it, or at a failure,
 * and their pointers in `members` become NULL. Their splits must not have been chosen from, and are not to be
 * used any more.
 *
 * Each of its splits has the samples of the members' splits of that name, member after member. Its classes
 * are those of all by name: in the members' order where all have the same, else in byte order. Labels, counts
 * of classes and the manifest follow. Its id is of the members' ids in their order. Mean and deviation are
 * those of all images where each image counts the same; zero if a member has none. Messages name a file with
 * its member's folder.
 *
 * FSH_ERR_MISMATCH: a member that comes twice (by its id), or of another kind, other fields or another
 * pair_scale than the first; the message says which. FSH_ERR_UNSUPPORTED: class folders that nobody has
 * packed. FSH_ERR_USAGE: count is 0. FSH_ERR_MEMORY. On failure *joined is NULL. */
FSH_API FshStatus fsh_join(FshDataset **joined, FshDataset **members, size_t count, FshError *error);
/* Returns of how many datasets this one was joined; 1: it was not, or is NULL. */
FSH_API size_t fsh_member_count(const FshDataset *dataset);
/* Returns one of them, for its manifest and path; of one that was not joined itself. index in range. */
FSH_API const FshDataset *fsh_member(const FshDataset *dataset, size_t index);
/* Returns where the samples of a member end in a split of a joined dataset, also of one that was chosen: they
 * begin where those of the one before end. Of another dataset: sample_count. index in range. */
FSH_API uint64_t fsh_split_member_end(const FshSplit *split, size_t index);

/* ---- choosing ---- */

/* Makes a split of the samples chosen[0..count) of another one, ascending. It has that one's name and its own
 * counts; a sample's index in it is its place among the chosen, and whatever is done with a split is done
 * with these samples alone. *split_ret lives as long as the dataset. To be called before other threads read
 * the dataset. FSH_ERR_USAGE: not ascending, or beyond the split. FSH_ERR_MEMORY. */
FSH_API FshStatus fsh_split_choose(FshDataset *dataset, const FshSplit *split, const uint64_t *chosen,
                                   uint64_t count, const FshSplit **split_ret, FshError *error);
/* Leaves an open dataset the classes classes[0..count) of those that it has, in this order, for as long as it
 * is open; its files stay as they are. Samples of the others have no label then. The manifest and all splits
 * follow. To be called once, before other threads read the dataset and before a split is chosen.
 * FSH_ERR_USAGE: no classes, a class that is not there, or one that is named twice. FSH_ERR_MEMORY. */
FSH_API FshStatus fsh_set_classes(FshDataset *dataset, const size_t *classes, size_t count, FshError *error);

/* ---- compressed fields ---- */

/* A decompression context and a buffer. Any number of them may work on one dataset at a time. */
typedef struct FshUnpacker FshUnpacker;

/* Makes an unpacker, which takes memory as fields need it. FSH_ERR_MEMORY; *unpacker is NULL then. */
FSH_API FshStatus fsh_unpacker_new(FshUnpacker **unpacker, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
FSH_API void fsh_unpacker_free(FshUnpacker **unpacker);

/* Gives the codec's bytes of a field that fsh_sample_get gave for this split: *bytes_ret of them at
 * *data_ret. Not compressed: the field's own data, nothing is copied. Compressed: in the unpacker's buffer,
 * 64-byte aligned, until its next call; whoever needs several fields at a time takes an unpacker for each.
 * FSH_ERR_CORRUPT: the frame is damaged or does not give exactly unpacked_bytes; the message names file and
 * record. FSH_ERR_MEMORY. */
FSH_API FshStatus fsh_field_unpack(FshUnpacker *unpacker, const FshSplit *split, const FshField *field,
                                   const void **data_ret, size_t *bytes_ret, FshError *error);

/* A compression context, and a buffer for each field of a sample. */
typedef struct FshPacker FshPacker;

enum {
    FSH_PACK_LEVEL_DEFAULT = 3,
    FSH_PACK_LEVEL_MAX = 19
}; /* zstd's levels; above 19 readers need more memory */

/* Makes a packer. level: 1 to FSH_PACK_LEVEL_MAX. dictionary: that of FshWriterOptions, or NULL and 0;
 * copied. FSH_ERR_USAGE: a level out of range, or bytes that are no zstd dictionary. FSH_ERR_MEMORY. On
 * failure *packer is NULL. */
FSH_API FshStatus fsh_packer_new(FshPacker **packer, int level, const void *dictionary,
                                 size_t dictionary_bytes, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
FSH_API void fsh_packer_free(FshPacker **packer);

/* Compresses the fields of a sample into *packed; a field that would not become smaller, or is larger than
 * FSH_UNPACKED_BYTES_MAX, stays as it is. Borrows from the sample, and from the packer until its next call.
 * packed may be the sample itself. The same sample, level, dictionary and libzstd give the same bytes.
 * FSH_ERR_USAGE: a field is compressed already. FSH_ERR_MEMORY. */
FSH_API FshStatus fsh_sample_pack(FshPacker *packer, const FshSample *sample, FshSample *packed,
                                  FshError *error);

/* Trains a zstd dictionary of at most capacity bytes (256 to FSH_DICTIONARY_BYTES_MAX) on count samples that
 * lie one after the other at samples, each sizes[i] bytes. A hundred times as many bytes of samples as of
 * dictionary are plenty. Deterministic, on one thread. *dictionary_ret, of *dictionary_bytes_ret bytes, is
 * owned by the caller (free). FSH_ERR_MISMATCH: too few or too small samples. FSH_ERR_USAGE,
 * FSH_ERR_MEMORY. */
FSH_API FshStatus fsh_dictionary_train(const void *samples, const size_t *sizes, size_t count,
                                       size_t capacity, void **dictionary_ret, size_t *dictionary_bytes_ret,
                                       FshError *error);
/* Fills *info_ret with what the manifest says of a dictionary. FSH_ERR_USAGE: these bytes are no zstd
 * dictionary. */
FSH_API FshStatus fsh_dictionary_describe(const void *dictionary, size_t bytes, FshDictionaryInfo *info_ret,
                                          FshError *error);

/* ---- residency ---- */

/* What shall be done so that reading a split waits for no disk. */
typedef enum FshCache {
    FSH_CACHE_NONE = 0, /* nothing: the kernel reads pages as they are touched */
    FSH_CACHE_RAM,  /* read the files into the page cache and map them, in huge pages where the kernel can */
    FSH_CACHE_LOCK, /* and keep them there (mlock), for as long as the dataset is open */
} FshCache;

/* Sets *cache_ret to what text names: "none", "ram", "lock". Returns false if text names none. */
FSH_API bool fsh_cache_from_name(const char *text, FshCache *cache_ret);

/* Does what cache says, on jobs threads; all processes of a host share the pages. Of a split that was
 * chosen its records alone are read, and locked with what lies between where they are very many. Reads
 * stay as they are: zero-copy, lock-free, and possible while this runs. FSH_ERR_SYSTEM: the disk fails, or
 * memory may not be locked (the message says how much the limit allows). FSH_ERR_INTERRUPTED. */
FSH_API FshStatus fsh_split_cache(const FshSplit *split, FshCache cache, int jobs, FshError *error);

typedef struct FshResidency {
    uint64_t bytes;          /* of the split's files; of a chosen split's records */
    uint64_t resident_bytes; /* of them in memory at this moment */
    bool known; /* false: Linux does not tell it of files that the caller neither owns nor may write */
} FshResidency;

/* Fills *residency with how much of the split's files is in memory. FSH_ERR_MEMORY, FSH_ERR_SYSTEM. */
FSH_API FshStatus fsh_split_residency(const FshSplit *split, FshResidency *residency, FshError *error);

/* Asks the kernel to forget what it holds in memory of the split's files, so that the next reading comes from
 * the disk: for measurements. It need not follow: what another process has mapped stays, and all of a tmpfs;
 * fsh_split_residency tells. */
FSH_API void fsh_split_drop(const FshSplit *split);

/* ---- writing ---- */

typedef struct FshWriterOptions {
    FshContainer container;
    const char *dataset_id; /* 32 hex digits */
    const char *split;      /* "train" */
    FshKind kind;
    const char *const *field_names;
    size_t field_count;
    const char *const *class_names; /* may be NULL */
    size_t class_count;
    uint32_t shard_index, shard_count; /* of the split; 0 and 1 for LMDB */
    bool force;                        /* replace a file of this name */
    const void *dictionary;            /* what the samples are packed with, or NULL; the same in all files */
    size_t dictionary_bytes;
    FshRecordForm record_form; /* FSH_RECORD_COMPACT: shards only */
} FshWriterOptions;

typedef struct FshWriter FshWriter;

/* Starts path (a .fshard file, or the .lmdb folder) under a temporary name. All option strings are copied.
 * FSH_ERR_EXISTS without force; FSH_ERR_USAGE for options out of range. On failure *writer is NULL. */
FSH_API FshStatus fsh_writer_open(FshWriter **writer, const char *path, const FshWriterOptions *options,
                                  FshError *error);

/* Appends one sample: builds its record and writes it. Borrows the sample for the call only.
 * Fields are written as they are: whoever wants them compressed calls fsh_sample_pack first.
 * FSH_ERR_MISMATCH: fields or label contradict the options (label >= class_count, wrong field count, raw
 * bytes that are not width * height * channels). FSH_ERR_NO_SPACE and FSH_ERR_SYSTEM: after these only
 * fsh_writer_close is allowed. */
FSH_API FshStatus fsh_writer_put(FshWriter *writer, const FshSample *sample, FshError *error);

/* Do the first half of fsh_writer_put, and fsh_writer_put_record the second, so that threads build records in
 * parallel and one thread appends them in order. fsh_record_bytes returns the bytes the record takes, 0 if a
 * length is out of range. fsh_record_build writes them to `record` (fsh_record_bytes long), CRC included. A
 * record does not know its row: the index does. fsh_record_payload_offset returns where in an aligned record
 * the payload of field `index` begins, by the sample's key, the fields' sources and the bytes of the fields
 * before it. Who reads or decodes to that place of `record`, and gives it as the field's data, has
 * fsh_record_build leave it there: nothing is copied. */
FSH_API size_t fsh_record_payload_offset(const FshSample *sample, unsigned index);
FSH_API size_t fsh_record_bytes(const FshSample *sample, FshRecordForm form);
FSH_API FshStatus fsh_record_build(const FshSample *sample, FshRecordForm form, void *record,
                                   size_t record_bytes, FshError *error);
/* Appends a record that fsh_record_build made in the writer's form. */
FSH_API FshStatus fsh_writer_put_record(FshWriter *writer, const void *record, size_t record_bytes,
                                        FshError *error);

/* Writes index and footer, syncs, renames. *info_ret (may be NULL) gets name, count, bytes and hash; its name
 * is owned by the caller (free). After success or failure only fsh_writer_close is allowed. */
FSH_API FshStatus fsh_writer_finish(FshWriter *writer, FshFileInfo *info_ret, FshError *error);

/* Frees and sets to NULL; without a successful finish nothing stays on disk. */
FSH_API void fsh_writer_close(FshWriter **writer);

/* Checks whether a container can hold a sample of this key, for whoever would rather leave a sample out than
 * fail with its writer. FSH_ERR_MISMATCH: BasicSR's LMDBs take keys of 511 bytes as they are written there,
 * tars no path that leads up or ends in '/'. FSH_ERR_MEMORY. Any thread. */
FSH_API FshStatus fsh_key_fits(FshContainer container, const char *key, size_t key_bytes, FshError *error);

/* Writes "train-00003-of-00016.fshard" or "train.lmdb" to buffer; returns buffer. */
FSH_API const char *fsh_file_name(char *buffer, size_t buffer_bytes, FshContainer container,
                                  const char *split, uint32_t shard_index, uint32_t shard_count);

/* Proves the index that fpack writes beside a tar, NAME.idx beside NAME.tar. FSH_ERR_NOT_FOUND: there is
 * none. FSH_ERR_CORRUPT: it is not that of the tar, or the tar cannot be read. The message names the index,
 * and not the tar. */
FSH_API FshStatus fsh_tar_index_check(const char *tar_path, FshError *error);
/* Writes the index beside a tar, atomically; what was there is replaced. */
FSH_API FshStatus fsh_tar_index_save(const char *tar_path, FshError *error);

/* ---- proving ---- */

typedef enum FshCheckLevel {
    FSH_CHECK_QUICK = 1, /* structure, footers, indexes, whole-file hashes against the manifest */
    /* and each record: structure and CRC32C, index row against record. Compressed fields are not unpacked:
     * the CRC covers them as they are, and whoever decodes them unpacks them */
    FSH_CHECK_RECORDS,
    /* and that no two splits hold a sample of the same content (stored bytes); how many samples of a split
     * repeat another's is a remark */
    FSH_CHECK_CONTENTS,
} FshCheckLevel;

/* One thing that is wrong; with status FSH_OK a remark: what is worth knowing, and counts as no problem. */
typedef struct FshProblem {
    FshStatus status;
    const char *file;   /* relative to the dataset; never NULL */
    int64_t record;     /* row in the file, or -1 for the file as a whole */
    const char *key;    /* NUL-terminated, or NULL where it is not known */
    const char *source; /* original's path, or NULL */
    const char *reason; /* "CRC32C is 1234abcd, stored 5678ef00" */
} FshProblem;

typedef void (*FshProblemVisit)(const FshProblem *problem, void *context);

/* Who wants to check some files only, or to count samples while fsh_check has them at hand, instead of
 * reading all of them again. wants returns whether a file is to be checked; it is asked once for each of the
 * manifest, in its order, before anything is read; NULL: all are. Of some files alone, counts of classes are
 * not compared with the manifest's. add, NULL where nothing is counted, gets
 * each sample that is whole, in the order of its file, from the thread that checks the file; false: this one
 * wants a closer look. end comes file by file, in the order of the manifest, for those in which nothing is
 * wrong and every add was true: what it is not called for is to be looked at by itself. Both get the same
 * memory, own_bytes of it, zeroed before the first add. Containers of others are not counted. */
typedef struct FshCounting {
    bool (*wants)(const FshFileInfo *file, void *context);
    size_t own_bytes;
    bool (*add)(const FshSample *sample, void *own);
    FshStatus (*end)(const FshFileInfo *file, const uint64_t *class_counts, size_t class_count,
                     const void *own, void *context, FshError *error);
} FshCounting;

/* Checks a dataset, opened or not (one whose shards cannot be opened is the usual customer), file by file,
 * `jobs` at a time: visit is called for each problem, from one thread at a time, files in manifest order.
 * Everything is checked even after problems were found. path: as for fsh_open, and a folder whose manifest
 * is missing or damaged, where each file is checked alone. *problem_count_ret (may be NULL) counts the
 * problems; visit may be NULL too. FSH_CHECK_QUICK reads each byte once; a file whose hash is wrong is then
 * searched for the records that are damaged. FSH_CHECK_RECORDS also finds keys that are there twice in a
 * split (16 to 96 bytes of memory for each sample). FSH_CHECK_CONTENTS takes 32 bytes more for each sample,
 * and 64 to 128 for each that is not in the largest split; what it finds is FSH_ERR_MISMATCH. FSH_OK means
 * the check could be made, not that all is well. FSH_ERR_NOT_FOUND, FSH_ERR_UNSUPPORTED: there is nothing to
 * check at path. FSH_ERR_INTERRUPTED, FSH_ERR_MEMORY. */
FSH_API FshStatus fsh_check(const char *path, FshCheckLevel level, int jobs, FshProblemVisit visit,
                            void *context, uint64_t *problem_count_ret, FshError *error);
/* Does what fsh_check does and counts, from FSH_CHECK_RECORDS on. Of the file that end gets, name, bytes and
 * sample_count are set; class_counts, by label, has as many entries as its metadata has classes. context is
 * wants's, visit's and end's. */
FSH_API FshStatus fsh_check_counting(const char *path, FshCheckLevel level, int jobs, FshProblemVisit visit,
                                     const FshCounting *counting, void *context, uint64_t *problem_count_ret,
                                     FshError *error);

/* A part of a shard that is lost. */
typedef struct FshLoss {
    uint64_t offset, bytes; /* in the torn shard */
    /* What stands at its beginning, where that can still be read; not NUL-terminated; borrowed; NULL and
     * 0. */
    const char *key, *source;
    size_t key_bytes, source_bytes;
    const char *reason; /* "CRC32C is 1234abcd, stored 5678ef00", "no intact record" */
} FshLoss;

typedef void (*FshLossVisit)(const FshLoss *loss, void *context);

typedef struct FshRepairReport {
    uint64_t record_count, record_bytes; /* kept */
    uint64_t lost_ranges, lost_bytes;    /* an index that was cut off counts as lost bytes */
    bool indexed;                        /* the old index is whole: then each range is one record */
} FshRepairReport;

/* Writes the intact records of the shard at path, in their order, as a new shard: repaired_path, which must
 * not exist; it appears when it is whole, as with a writer. A record is intact whose magic, structure and
 * CRC32C are right; after a damaged one they are looked for wherever one may begin. Header and records are
 * taken over byte for byte, so a shard that lacks nothing but index and footer comes back as it was. visit
 * (may be NULL) is called for each part that is lost, from the front. report may be NULL. A repaired shard
 * that lost records is not the one its manifest lists: it is opened by itself. FSH_ERR_CORRUPT,
 * FSH_ERR_UNSUPPORTED: the header is not intact. FSH_ERR_NOT_FOUND, FSH_ERR_EXISTS, FSH_ERR_NO_SPACE,
 * FSH_ERR_SYSTEM, FSH_ERR_MEMORY, FSH_ERR_INTERRUPTED: nothing is written. */
FSH_API FshStatus fsh_repair(const char *path, const char *repaired_path, FshLossVisit visit, void *context,
                             FshRepairReport *report, FshError *error);

#ifdef __cplusplus
}
#endif
#endif
