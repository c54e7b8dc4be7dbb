/* archive_plugin.h - the interface between tar_read.h and libarchive, whose dependencies (libxml2, ICU,
 * nettle, …) would cost each start 6 ms: libfshard-archive.so is loaded at the first tar that is read
 * (common/plugin.h says from where).
 *
 * It exports one object, ARCHIVE_PLUGIN_SYMBOL. A program that is linked to fshard_archive, such as the
 * fuzzer of tars, contains it and loads nothing.
 *
 * Both sides share structs by address, so they must be of one build: FSHARD_VERSION and the sizes of the
 * structs are compared. */
#ifndef FSHARD_TAR_ARCHIVE_PLUGIN_H
#define FSHARD_TAR_ARCHIVE_PLUGIN_H

#include "tar/tar_read.h"

#define ARCHIVE_PLUGIN_FILE   "libfshard-archive.so"
#define ARCHIVE_PLUGIN_SYMBOL "fshard_archive_plugin"

/* Each function is the one of that name in tar_read.h. close frees the reader. */
typedef struct ArchivePlugin {
    size_t plugin_bytes; /* first: the other fields may be read only where it is sizeof(ArchivePlugin) */
    size_t reader_bytes, entry_bytes, buffer_bytes, error_bytes;
    const char *version; /* FSHARD_VERSION */
    bool (*is_tar)(const char *path);
    FshStatus (*open)(TarReader **reader, const char *path, FshError *error);
    FshStatus (*next)(TarReader *reader, TarEntry *entry, FshError *error);
    FshStatus (*content)(TarReader *reader, Buffer *content, uint64_t most, FshError *error);
    void (*position)(const TarReader *reader, uint64_t *position_ret, uint64_t *extent_ret);
    uint64_t (*hidden_count)(const TarReader *reader);
    void (*close)(TarReader *reader);
} ArchivePlugin;

/* The beginning of the plugin's own reader. */
struct TarReader {
    const ArchivePlugin *plugin;
};

/* What the side that is compiled has; the functions are left to the plugin. */
#define ARCHIVE_PLUGIN_HERE                                                                                  \
    .plugin_bytes = sizeof(ArchivePlugin), .reader_bytes = sizeof(struct TarReader),                         \
    .entry_bytes = sizeof(TarEntry), .buffer_bytes = sizeof(Buffer), .error_bytes = sizeof(FshError),        \
    .version = FSHARD_VERSION

extern const ArchivePlugin fshard_archive_plugin;

#endif
