/* archive_plugin.h - the interface between tar_source.h and libarchive, which decompresses tars. Its
 * dependencies (libxml2, ICU, nettle, …) would cost each start 6 ms: libfshard-archive.so is loaded at the
 * first compressed tar (common/plugin.h says from where).
 *
 * It exports one object, ARCHIVE_PLUGIN_SYMBOL. A program that is linked to fshard_archive, such as the
 * fuzzer of tars, contains it and loads nothing.
 *
 * Both sides share structs by address, so they must be of one build: FSHARD_VERSION and the sizes of the
 * structs are compared. */
#ifndef FSHARD_TAR_ARCHIVE_PLUGIN_H
#define FSHARD_TAR_ARCHIVE_PLUGIN_H

#include "tar/tar_source.h"

#define ARCHIVE_PLUGIN_FILE   "libfshard-archive.so"
#define ARCHIVE_PLUGIN_SYMBOL "fshard_archive_plugin"

typedef struct Decompressor Decompressor;

/* Gives the next compressed bytes, until the next call; none at the end. */
typedef FshStatus ArchiveInput(void *context, const uint8_t **bytes_ret, size_t *length_ret, FshError *error);

typedef struct ArchivePlugin {
    size_t plugin_bytes; /* first: the other fields may be read only where it is sizeof(ArchivePlugin) */
    size_t error_bytes;
    const char *version; /* FSHARD_VERSION */
    /* Opens a stream of gzip, bzip2, xz, zstd, lz4, lzip or compress. FSH_ERR_MEMORY. What is wrong with the
     * stream is told by read. */
    FshStatus (*open)(Decompressor **decompressor, ArchiveInput *input, void *context, FshError *error);
    /* Reads up to length bytes; *got_ret is 0 at the end alone. FSH_ERR_CORRUPT: the stream is damaged, then
     * and at each later call; also what the input returned. */
    FshStatus (*read)(Decompressor *decompressor, uint8_t *bytes, size_t length, size_t *got_ret,
                      FshError *error);
    void (*close)(Decompressor *decompressor);
} ArchivePlugin;

/* What the side that is compiled has; the functions are left to the plugin. */
#define ARCHIVE_PLUGIN_HERE                                                                                  \
    .plugin_bytes = sizeof(ArchivePlugin), .error_bytes = sizeof(FshError), .version = FSHARD_VERSION

extern const ArchivePlugin fshard_archive_plugin;

/* Sets *source to what the compressed bytes of base become; both must stay where they are, and base is read
 * by nobody else from then on. FSH_ERR_UNSUPPORTED: the plugin is missing; FSH_ERR_MEMORY. */
FshStatus tar_source_decompress(TarSource *source, TarSource *base, FshError *error);

#endif
