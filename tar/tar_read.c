#include "tar/tar_read.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/plugin.h"
#include "tar/archive_plugin.h"
#include "tar/tar_sniff.h"

/* Its address is 0 unless the program is linked to the reader itself. */
#pragma weak fshard_archive_plugin

/* Returns whether the plugin is of the build of this file. */
static bool is_of_this_build(const ArchivePlugin *plugin)
{
    static const ArchivePlugin here = {ARCHIVE_PLUGIN_HERE};
    return plugin->plugin_bytes == here.plugin_bytes && plugin->reader_bytes == here.reader_bytes &&
           plugin->entry_bytes == here.entry_bytes && plugin->buffer_bytes == here.buffer_bytes &&
           plugin->error_bytes == here.error_bytes && strcmp(plugin->version, here.version) == 0;
}

/* Loads the plugin, or finds it in this program, and sets *plugin_ret to its interface. Loading again is
 * cheap. */
static FshStatus load_plugin(const ArchivePlugin **plugin_ret, FshError *error)
{
    const void *address = &fshard_archive_plugin;
    FshStatus status = FSH_OK;
    if (!address)
        status = plugin_load(ARCHIVE_PLUGIN_FILE, ARCHIVE_PLUGIN_SYMBOL, &address, error);
    if (status == FSH_ERR_NOT_FOUND)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "reading a tar needs libarchive, and " ARCHIVE_PLUGIN_FILE
                             " is not here; install libarchive-dev and build again, or name its folder in "
                             "FSHARD_PLUGINS");
    if (status)
        return fsh_error_prepend(error, "reading a tar needs libarchive (Debian: libarchive13)");
    *plugin_ret = address;
    if (!is_of_this_build(*plugin_ret))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "the libarchive plugin is of another version of fshard; rebuild both");
    return FSH_OK;
}

/* Reads the first bytes of the file; returns how many there are, 0 if it cannot be read. */
static size_t read_start(const char *path, uint8_t start[TAR_START_BYTES])
{
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for a FIFO */
    const ssize_t length = descriptor < 0 ? 0 : pread(descriptor, start, TAR_START_BYTES, 0);
    if (descriptor >= 0)
        (void)close(descriptor);
    return length > 0 ? (size_t)length : 0;
}

bool tar_is_tar(const char *path)
{
    const ArchivePlugin *plugin = NULL;
    uint8_t start[TAR_START_BYTES];
    const size_t length = read_start(path, start);
    const bool named_tar = tar_name_stem(path) > 0;
    if (tar_sniff_start(start, length, named_tar))
        return true;
    /* Without the plugin a name like a tar's is believed, and so is a compressed file; opening it then says
     * what is missing. */
    return load_plugin(&plugin, NULL) ? named_tar || tar_sniff_compressed(start, length)
                                      : plugin->is_tar(path);
}

FshStatus tar_reader_open(TarReader **reader, const char *path, FshError *error)
{
    const ArchivePlugin *plugin = NULL;
    *reader = NULL;
    if (load_plugin(&plugin, error))
        return fsh_error_prepend(error, "%s", path);
    return plugin->open(reader, path, error);
}

FshStatus tar_reader_next(TarReader *reader, TarEntry *entry, FshError *error)
{
    return reader->plugin->next(reader, entry, error);
}

FshStatus tar_reader_content(TarReader *reader, Buffer *content, uint64_t most, FshError *error)
{
    return reader->plugin->content(reader, content, most, error);
}

void tar_reader_position(const TarReader *reader, uint64_t *position_ret, uint64_t *extent_ret)
{
    reader->plugin->position(reader, position_ret, extent_ret);
}

uint64_t tar_reader_hidden_count(const TarReader *reader)
{
    return reader->plugin->hidden_count(reader);
}

void tar_reader_close(TarReader **reader)
{
    if (*reader)
        (*reader)->plugin->close(*reader);
    *reader = NULL;
}
