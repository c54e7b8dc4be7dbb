#include "tar/tar_read.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/plugin.h"
#include "tar/archive_plugin.h"
#include "tar/tar_sniff.h"

/* Its address is 0 unless the program is linked to the reader itself. */
#pragma weak fshard_archive_plugin

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
    if ((*plugin_ret)->version != ARCHIVE_PLUGIN_VERSION)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "the libarchive plugin is of another version of fshard; rebuild both");
    return FSH_OK;
}

/* Returns whether the file begins with the header of an uncompressed tar. */
static bool begins_plainly(const char *path)
{
    uint8_t start[TAR_START_BYTES];
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for a FIFO */
    const ssize_t length = descriptor < 0 ? 0 : pread(descriptor, start, sizeof start, 0);
    if (descriptor >= 0)
        (void)close(descriptor);
    return length > 0 && tar_sniff_start(start, (size_t)length, tar_name_stem(path) > 0);
}

bool tar_is_tar(const char *path)
{
    const ArchivePlugin *plugin = NULL;
    if (begins_plainly(path))
        return true;
    /* Without the plugin a name like a tar's is believed; opening it then says what is missing. */
    return load_plugin(&plugin, NULL) ? tar_name_stem(path) > 0 : plugin->is_tar(path);
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
