/* archive_plugin.h - the line between tar_read.h and libarchive, whose dependencies (libxml2, ICU, nettle, …) cost each
 * start 6 ms: libfshard-archive.so is loaded at the first tar that is read (common/plugin.h says from where).
 *
 * It exports one object, ARCHIVE_PLUGIN_SYMBOL. A program that is linked to fshard_archive has it inside, and loads
 * nothing: the fuzzer of tars does so. */
#ifndef FSHARD_TAR_ARCHIVE_PLUGIN_H
#define FSHARD_TAR_ARCHIVE_PLUGIN_H

#include "tar/tar_read.h"

#define ARCHIVE_PLUGIN_VERSION 1 /* changes with any struct below, and with TarEntry, Buffer and FshError */
#define ARCHIVE_PLUGIN_FILE    "libfshard-archive.so"
#define ARCHIVE_PLUGIN_SYMBOL  "fshard_archive_plugin"

/* Each function is tar_read.h's function of that name. close frees the reader. */
typedef struct ArchivePlugin {
    uint32_t version; /* ARCHIVE_PLUGIN_VERSION it was built with */
    bool (*is_tar)(const char *path);
    FshStatus (*open)(TarReader **reader, const char *path, FshError *error);
    FshStatus (*next)(TarReader *reader, TarEntry *entry, FshError *error);
    FshStatus (*content)(TarReader *reader, Buffer *content, uint64_t most, FshError *error);
    void (*position)(const TarReader *reader, uint64_t *position_ret, uint64_t *extent_ret);
    uint64_t (*hidden_count)(const TarReader *reader);
    void (*close)(TarReader *reader);
} ArchivePlugin;

/* What the plugin's own reader begins with. */
struct TarReader {
    const ArchivePlugin *plugin;
};

extern const ArchivePlugin fshard_archive_plugin;

#endif
