#include "imaging/image_plugin.h"

#include "common/plugin.h"

FshStatus image_plugin_load(const ImagePlugin **plugin, FshError *error)
{
    const void *address = NULL;
    *plugin = NULL;
    FshStatus status = plugin_load(IMAGE_PLUGIN_FILE, IMAGE_PLUGIN_SYMBOL, &address, error);
    if (status == FSH_ERR_NOT_FOUND)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "this needs libvips, and " IMAGE_PLUGIN_FILE
                             " is not here; install libvips-dev and build "
                             "again, or name its folder in FSHARD_PLUGINS");
    if (status)
        return fsh_error_prepend(error, "this needs the libvips plugin");
    /* ISO C has no cast from object to function pointer; POSIX guarantees that this works */
    ImagePluginOpen open_plugin = NULL;
    *(const void **)(&open_plugin) = address;
    *plugin = open_plugin(IMAGE_PLUGIN_VERSION);
    if (!*plugin)
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "the libvips plugin is of another version of fshard, or libvips cannot start; rebuild both");
    return FSH_OK;
}
