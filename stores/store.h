/* store.h - datasets and tars on web servers and in object stores, as folders and files of this machine.
 *
 *   StoreOptions options = store_options_default();      // and STORE_ROWS(&options) in the option table
 *   StoreFolder folder = STORE_FOLDER_NONE;
 *   if (store_is_address(path)) {
 *       status = store_open(&folder, path, &options, &error);
 *       path = folder.path;                              // fsh_open(&dataset, path, …)
 *   }
 *   store_close(&folder);
 *
 * An address names the folder of a finished dataset, with its dataset.json; or a tar, or several of one
 * folder in the spelling of webdataset, "s3://bucket/set/train-{000..099}.tar" (store_files.h). All files are
 * fetched into a folder of the cache before store_open returns, in parts of 16 MiB over 16 connections at a
 * time, and each gets its name when it is whole: its length and its checksum are those of the manifest, or
 * all its parts have the length and the ETag that the server told. What is there already is not fetched
 * again; dataset.json is read anew, and the server asked for lengths and ETags, at each start.
 *
 * The cache (--cache-dir) holds a folder and a lock for each dataset that was fetched:
 *
 *   imagenet-1f6c8a7d2b90e4c3/        dataset.json, train-00000-of-00016.fshard, …; .part-N: on its way
 *   imagenet-1f6c8a7d2b90e4c3.lock    its bytes as text; locked (flock) alone by the process that fetches,
 *                                     shared by those that read; its time is that of the last use
 *   .room.lock                        held while room is made
 *
 * All processes of a host, and of other hosts where the file system has locks, share it: one fetches, the
 * others wait for it. Where there is no room, datasets that nobody has open go, the longest unused first. A
 * process that is killed at any moment leaves whole files and .part-N, which the next one removes.
 *
 * Threads: one at a time. */
#ifndef FSHARD_STORES_STORE_H
#define FSHARD_STORES_STORE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/options.h"

typedef struct StoreOptions {
    const char *cache_dir; /* NULL: datasets/ in the user's cache (cache_folder.h) */
    uint64_t cache_bytes;  /* 0: what the disk has left */
    int64_t retries;
    double timeout_seconds; /* without (almost) any byte */
    /* Not of the command line: */
    const char *speaker; /* the program's name, for what is told on stderr */
    bool quiet;          /* failures alone */
} StoreOptions;

StoreOptions store_options_default(void);

/* Rows of the option table: STORE_ROWS(&settings.store, of the uses that read them). */
/* clang-format off */
#define STORE_ROWS(o, read_by)                                                                               \
    {.name = "cache-dir", .kind = OPTION_TEXT, .value = &(o)->cache_dir, .argument = "DIR",                  \
     .group = "Datasets on servers", .marks = OPTION_FREE, .uses = (read_by),                                \
     .help = "where datasets of https://, s3:// and gs:// are kept; ~/.cache/fshard/datasets unless given"}, \
    {.name = "cache-size", .kind = OPTION_SIZE, .value = &(o)->cache_bytes, .argument = "SIZE",              \
     .maximum = 0x1p60, .marks = OPTION_FREE, .uses = (read_by),                                             \
     .help = "bytes to keep there at most; the longest unused go first; 0: what the disk has left"},         \
    {.name = "fetch-retries", .kind = OPTION_INTEGER, .value = &(o)->retries, .argument = "N",               \
     .maximum = 1000, .marks = OPTION_FREE, .uses = (read_by),                                               \
     .help = "how often what failed is asked for again, after longer and longer waits"},                     \
    {.name = "fetch-timeout", .kind = OPTION_REAL, .value = &(o)->timeout_seconds, .argument = "SECONDS",    \
     .minimum = 1, .maximum = 3600, .marks = OPTION_FREE, .uses = (read_by),                                 \
     .help = "a connection that brings less than 1 KiB/s for so long has failed"}
/* clang-format on */

/* Returns whether a text is an address (store_url.h) rather than a path. */
bool store_is_address(const char *text);

/* Refuses options that are not at their defaults where no address is given. FSH_ERR_USAGE. */
FshStatus store_options_check(const StoreOptions *options, bool has_address, FshError *error);

/* A dataset, or tars, in the cache, which stay there while they are held. */
typedef struct StoreFolder {
    char path[PATH_MAX]; /* of the folder, or of the one tar */
    int lock;            /* -1: none is held */
} StoreFolder;
#define STORE_FOLDER_NONE                                                                                    \
    {                                                                                                        \
        .lock = -1                                                                                           \
    }

/* Brings what an address names into the cache, or finds it there. A child process of fork holds it too.
 * FSH_ERR_USAGE: the address, or the cache's folder is not to be had. FSH_ERR_NOT_FOUND: nothing is there.
 * FSH_ERR_CORRUPT: a manifest that is damaged, or a file that is not what the manifest lists, three times.
 * FSH_ERR_NO_SPACE: more than --cache-size, or than the disk has. FSH_ERR_UNSUPPORTED: the plugin with
 * libcurl is not here; a dataset of BasicSR's LMDBs. FSH_ERR_SYSTEM, FSH_ERR_MEMORY, FSH_ERR_INTERRUPTED. On
 * failure nothing is held. */
FshStatus store_open(StoreFolder *folder, const char *address, const StoreOptions *options, FshError *error);
/* Lets others remove it. Safe twice, and on STORE_FOLDER_NONE. */
void store_close(StoreFolder *folder);

/* Puts an address into a message in the place of the path that stands for it here. */
void store_name_error(FshError *error, const char *path, const char *address);

#endif
