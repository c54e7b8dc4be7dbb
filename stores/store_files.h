/* store_files.h - the files that an address stands for, and what is known of each before it comes.
 *
 *   s3://bucket/set                       a dataset: the files that its dataset.json lists, and what stands
 *                                         beside them
 *   s3://bucket/set/train-{000..099}.tar  files by themselves, as webdataset spells lists of them
 *   https://host/photos.tar.zst           one
 *
 * Files by themselves are in one folder, and end in .tar, .tar.gz, .tgz, .tar.zst, … or .fshard. Nobody has
 * written down their checksums: the server is asked for the length and the ETag of each, and all parts of a
 * file must have both.
 *
 * Threads: one at a time; store_files_look starts its own. */
#ifndef FSHARD_STORES_STORE_FILES_H
#define FSHARD_STORES_STORE_FILES_H

#include "formats/fshard.h"
#include "formats/names.h"
#include "stores/store_request.h"

typedef struct StoreFile {
    char name[FSH_FILE_NAME_BYTES + 32]; /* below site and folder */
    uint64_t bytes;
    bool optional;               /* stands beside others: its length is not known, it need not be there */
    bool hashed;                 /* a manifest lists its checksum: */
    FshHash128 hash;             /* of all bytes */
    uint64_t unhashed_bytes;     /* but for these, at its end */
    char etag[STORE_ETAG_BYTES]; /* that all answers must have; "": none is known */
} StoreFile;

typedef struct StoreFiles {
    StoreFile *items; /* owned */
    size_t count;
    bool parts; /* the server gives parts of files */
} StoreFiles;

/* Returns whether an address names files by themselves, by its end and its braces. */
bool store_files_are_named(const char *address);

/* Lists the files that an address names, and writes the address of their folder. FSH_ERR_USAGE: they lie in
 * several folders, two have one name, or a name is none. FSH_ERR_MEMORY. */
FshStatus store_files_split(StoreFiles *files, const char *address, char folder[STORE_URL_BYTES],
                            FshError *error);

/* Returns whether what is written to `to` could replace what is read from `from`: both are one dataset or
 * have a file in common, or files are read from the folder that `to` is. false: one of them is no address. */
bool store_files_meet(const char *from, const char *to);

/* Asks the server for length and ETag of each. Fails as store_get. */
FshStatus store_files_look(StoreFiles *files, const StoreSite *site, const StorePatience *patience,
                           FshError *error);

/* Lists the files of a manifest and what stands beside them. address: for messages. FSH_ERR_UNSUPPORTED: a
 * container that is not fetched; FSH_ERR_MEMORY. */
FshStatus store_files_of_manifest(StoreFiles *files, const FshManifest *manifest, const char *address,
                                  FshError *error);

/* Frees, and empties *files. */
void store_files_free(StoreFiles *files);

#endif
