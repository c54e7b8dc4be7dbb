/* container.h - what libfshard knows of each container: one struct, which the container's own file fills, and
 * one row in the table of container.c.
 *
 *   container          its file                  its files on disk
 *   shards             container_shards.c        train-00000-of-00016.fshard
 *   lmdb               container_lmdb.c          train.lmdb/data.mdb
 *   tar                container_webdataset.c    train-000000.tar
 *   basicsr            container_basicsr.c       train.basicsr/blurry.lmdb, train.basicsr/sharp.lmdb
 *   folder2lmdb        container_folder2lmdb.c   train.lmdb/data.mdb
 *   files              container_files.c         a.jpg, b/c.png
 *   class folders      container_class_folder.c  train/cat/a.jpg
 *
 * There are two families. Containers of records (FSH_HAS_METADATA) hold what record.h describes: their
 * members `sample`, `verify` and `stretches` are the fsh_record_file_ functions. All others end in one table
 * of where each sample's fields are (sample_table.h): theirs are the fsh_table_file_ functions.
 *
 * To add a container: write its file, which defines a `const Container`, and add its row. Whoever must know
 * what a container can do asks for a fact, here and in the programs; nobody asks for its id. */
#ifndef FSHARD_FORMATS_CONTAINER_H
#define FSHARD_FORMATS_CONTAINER_H

#include <limits.h>

#include "formats/check.h"
#include "formats/collection.h"
#include "formats/metadata.h"
#include "formats/record.h"
#include "formats/split_file.h"
#include "formats/writer.h"

/* Facts that only libfshard asks for, beside those of FshContainerFact. */
enum {
    CONTAINER_CONTIGUOUS = 1 << 24, /* records lie one after the other, in the order of the index rows */
    CONTAINER_LABELS_IN_RECORDS = 1 << 25, /* index rows have neither labels nor CRCs: the records do */
    CONTAINER_COUNTS = 1 << 26,            /* a file's metadata tell how many samples it holds */
    CONTAINER_SIDES = 1 << 27, /* a file is a folder of LMDBs, one for each field, with two mappings each */
};

/* What a file is opened for. */
typedef struct OpenRequest {
    /* With FSH_HAS_METADATA: */
    const Metadata *expected;   /* what the file must say of itself; NULL: it may say anything */
    const FshFileInfo *updated; /* a shard of an updated dataset: its entry in the manifest; else NULL */
    Metadata *metadata_ret;     /* gets what the file says, owned by the caller; NULL: not wanted */
    /* All others: */
    const char *const *field_names; /* the fields to expect; NULL: those that are found */
    size_t field_count;
    bool written_by_us; /* a manifest lists the file */
    /* NULL, or gets why a tar breaks off, with a message that names no file; it then opens with the samples
     * before the place */
    FshError *tear_ret;
} OpenRequest;

/* A part of a mapping. */
typedef struct Stretch {
    const FileMapping *mapping;
    uint64_t offset, bytes;
} Stretch;

enum { STRETCHES_MAX = 2 * FSH_FIELDS_MAX };

/* Members that are NULL are of nothing that the container does. Messages of functions that take an open file
 * name no file. */
struct Container {
    FshContainer id;        /* what fsh_manifest tells; rows that find files in different ways share it */
    const char *name;       /* as manifests and --format have it */
    const char *one, *many; /* "shard", "shards": in sentences */
    unsigned facts;         /* FshContainerFact, and the above */
    const char *suffix;     /* of the files that a manifest lists, with its dot */
    const char *data_name;  /* a file is a folder, and its bytes are in the file of this name */
    const ContainerWriter *writer;

    /* ---- finding ---- */

    /* Returns whether what is at path is of the container. data: the mapped file, or data.mdb in that
     * folder. */
    bool (*sniff)(const char *path, const FileMapping *data);
    /* Adds the files of the container in the folder path, which is none itself; for containers that others
     * write. */
    FshStatus (*find)(Collection *collection, const char *path, FshError *error);
    /* Writes the name of file `index` of `count` into buffer. */
    void (*write_name)(char *buffer, size_t buffer_bytes, const char *split, uint32_t index, uint32_t count);
    /* Writes the key as a file of the container has it, into *encoded. FSH_ERR_MISMATCH: it cannot. */
    FshStatus (*encode_key)(const char *key, size_t key_bytes, Buffer *encoded, FshError *error);

    /* ---- reading ---- */

    /* Maps path and reads its structure into *file, which holds nothing but container and written_by_us.
     * Messages begin with the path. On failure the caller closes the file. */
    FshStatus (*open)(SplitFile *file, const char *path, const OpenRequest *request, FshError *error);
    /* Reads the structure of a file that fsh_record_file_open has mapped; NULL where open is another.
     * *metadata_ret gets what the file says of itself where nothing is expected; the caller frees it, also on
     * failure. Messages name no file. */
    FshStatus (*parse)(SplitFile *file, const OpenRequest *request, Metadata *metadata_ret, FshError *error);
    /* Reads a sample as fsh_split_file_sample does; the next checks one as fsh_split_file_verify does.
     * Neither looks for what the disk did not give. */
    FshStatus (*sample)(const SplitFile *file, uint64_t record, FshSample *sample, RecordHead *head,
                        FshError *error);
    FshStatus (*verify)(const SplitFile *file, uint64_t record, FshError *error);
    /* Fills stretches with all that is read of a record. Returns how many there are; 0 where the record
     * cannot be found, as `sample` says. */
    size_t (*stretches)(const SplitFile *file, uint64_t record, Stretch stretches[STRETCHES_MAX]);

    /* ---- proving ---- */

    /* Maps the file of a check and reports each thing that is wrong with its structure. *metadata_ret gets
     * what the file says of itself. Fails as fsh_check_file. */
    FshStatus (*check)(const FileCheck *check, FileReport *report, Metadata *metadata_ret, FshError *error);
    /* Does so for a file that fsh_record_file_check has mapped; NULL where check is another. */
    FshStatus (*check_structure)(const FileCheck *check, FileReport *report, Metadata *metadata_ret,
                                 FshError *error);
    /* Returns whether a name in the folder that a file of the container is belongs to it. */
    bool (*owns)(const FshManifest *manifest, const char *name);

    /* ---- what stands beside the files ---- */

    const char *index_suffix; /* of an index beside each file, which has the file's name else */
    FshStatus (*check_index)(const char *path, FshError *error);
    const char *list_suffix; /* of a list of each split's files, after the split's name */
    FshStatus (*save_list)(const FshManifest *manifest, const FshSplitInfo *split, const char *folder,
                           bool force, FshError *error);
    FshStatus (*check_list)(const FshManifest *manifest, const FshSplitInfo *split, const char *folder,
                            FshError *error);
};

extern const Container fsh_shards_container, fsh_lmdb_container, fsh_webdataset_container,
    fsh_basicsr_container, fsh_folder2lmdb_container, fsh_files_container;

/* ---- the table (container.c) ---- */

/* Returns row i of the table; NULL after the last. */
const Container *fsh_container_row(size_t i);
/* Returns the row of this id; NULL: there is none. */
const Container *fsh_container_find(FshContainer id);
/* Returns the row of the container that writes files of this name's suffix; NULL: none does. */
const Container *fsh_container_of_name(const char *name);
static inline bool container_has(const Container *container, unsigned fact)
{
    return (container->facts & fact) != 0;
}

/* Returns how a checked file is opened for a look at its samples: it may say anything of itself, but a
 * manifest tells which fields to expect. (check_file.c) */
OpenRequest fsh_check_request(const FileCheck *check);

/* ---- for containers of records (record_file.c) ---- */

/* Checks metadata and dictionary of a file, which *file has already, against request->expected, or parses the
 * metadata into *metadata_ret. *metadata_ret is the caller's, also on failure. count_ret: NULL for shards.
 * FSH_ERR_CORRUPT. */
FshStatus fsh_record_file_take(SplitFile *file, const OpenRequest *request, Metadata *metadata_ret,
                               uint64_t *count_ret, FshError *error);
/* Opens a file of a container: maps it, calls parse, and hands the metadata over. */
FshStatus fsh_record_file_open(SplitFile *file, const char *path, const OpenRequest *request,
                               FshError *error);
/* Checks a file of a container: maps its data_name, or the file itself, then calls check_structure. */
FshStatus fsh_record_file_check(const FileCheck *check, FileReport *report, Metadata *metadata_ret,
                                FshError *error);
FshStatus fsh_record_file_sample(const SplitFile *file, uint64_t record, FshSample *sample, RecordHead *head,
                                 FshError *error);
FshStatus fsh_record_file_verify(const SplitFile *file, uint64_t record, FshError *error);
size_t fsh_record_file_stretches(const SplitFile *file, uint64_t record, Stretch stretches[STRETCHES_MAX]);

/* ---- for all others (table_file.c) ---- */

FshStatus fsh_table_file_sample(const SplitFile *file, uint64_t record, FshSample *sample, RecordHead *head,
                                FshError *error);
FshStatus fsh_table_file_verify(const SplitFile *file, uint64_t record, FshError *error);
size_t fsh_table_file_stretches(const SplitFile *file, uint64_t record, Stretch stretches[STRETCHES_MAX]);
FshStatus fsh_table_file_check(const FileCheck *check, FileReport *report, Metadata *metadata_ret,
                               FshError *error);

/* Fills a sample of files that nobody has packed; the key in the table is the path of the file.
 * (container_files.c) */
FshStatus fsh_files_sample(const SplitFile *file, uint64_t record, FshSample *sample, RecordHead *head,
                           FshError *error);

/* ---- for both ---- */

/* Maps the file of a container at path: the container's data_name in it, where there is one. *mapped_ret is
 * the path of what is mapped: path, or data_path, which is filled then. Fails as file_map. */
FshStatus fsh_container_map(const Container *container, const char *path, char data_path[PATH_MAX],
                            const char **mapped_ret, FileMapping *mapping, FshError *error);
/* Returns status with path in front of its message; FSH_ERR_SYSTEM instead where the disk did not give what
 * was read of the file. */
FshStatus fsh_split_file_conclude(const SplitFile *file, const char *path, FshStatus status, FshError *error);

#endif
