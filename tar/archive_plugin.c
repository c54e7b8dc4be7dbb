#include "tar/archive_plugin.h"

#include <string.h>

#include "common/plugin.h"

/* Its address is 0 unless the program is linked to the plugin's side itself. */
#pragma weak fshard_archive_plugin

/* Returns whether the plugin is of the build of this file. */
static bool is_of_this_build(const ArchivePlugin *plugin)
{
    static const ArchivePlugin here = {ARCHIVE_PLUGIN_HERE};
    return plugin->plugin_bytes == here.plugin_bytes && plugin->error_bytes == here.error_bytes &&
           strcmp(plugin->version, here.version) == 0;
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
                             "reading a compressed tar needs libarchive, and " ARCHIVE_PLUGIN_FILE
                             " is not here; install libarchive-dev and build again, or name its folder in "
                             "FSHARD_PLUGINS");
    if (status)
        return fsh_error_prepend(error, "reading a compressed tar needs libarchive (Debian: libarchive13)");
    *plugin_ret = address;
    if (!is_of_this_build(*plugin_ret))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "the libarchive plugin is of another version of fshard; rebuild both");
    return FSH_OK;
}

/* Gives the decompressor of a source the next bytes of its base. */
static FshStatus take_more(void *context, const uint8_t **bytes_ret, size_t *length_ret, FshError *error)
{
    TarSource *source = context;
    const FshStatus status =
        tar_source_at(source->base, source->taken_bytes, 1, bytes_ret, length_ret, error);
    source->taken_bytes += *length_ret;
    return status;
}

FshStatus tar_source_decompress(TarSource *source, TarSource *base, FshError *error)
{
    const ArchivePlugin *plugin = NULL;
    *source = tar_source_file(-1, UINT64_MAX);
    source->base = base;
    FshStatus status = load_plugin(&plugin, error);
    if (!status)
        status = plugin->open(&source->decompressor, take_more, source, error);
    if (!status)
        source->plugin = plugin;
    return status;
}
