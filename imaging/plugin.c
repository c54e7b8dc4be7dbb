#include "imaging/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of the running program, without a final slash; empty if the kernel will not say. */
static void find_program_folder(char *folder, size_t folder_bytes)
{
    ssize_t length = readlink("/proc/self/exe", folder, folder_bytes - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
}

FshStatus image_plugin_load(const ImagePlugin **plugin, FshError *error)
{
    static const char *const places[] = {"%s/" IMAGE_PLUGIN_FILE, "%s/../lib/" IMAGE_PLUGIN_FILE,
                                         "%s/../lib/fshard/" IMAGE_PLUGIN_FILE};
    char program_folder[PATH_MAX], path[PATH_MAX + sizeof "/../lib/fshard/" IMAGE_PLUGIN_FILE];
    find_program_folder(program_folder, sizeof program_folder);
    const char *asked = getenv("FSHARD_PLUGINS");
    *plugin = NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *folder = i == 0 ? asked : program_folder;
        if (!folder || strlen(folder) >= PATH_MAX)
            continue;
        (void)snprintf(path, sizeof path, places[i], folder);
        if (access(path, F_OK) != 0)
            continue;
        /* NODELETE: GLib's types cannot be unloaded. Loading again only counts. */
        void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (!handle)
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "cannot load the libvips plugin: %s", dlerror());
        /* ISO C has no cast from object to function pointer; POSIX promises that this works */
        ImagePluginOpen open_plugin = NULL;
        *(void **)(&open_plugin) = dlsym(handle, IMAGE_PLUGIN_SYMBOL);
        *plugin = open_plugin ? open_plugin(IMAGE_PLUGIN_VERSION) : NULL;
        (void)dlclose(handle);
        if (!*plugin)
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                                 "%s is of another version of fshard, or libvips cannot start; rebuild both",
                                 path);
        return FSH_OK;
    }
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                         "this needs libvips, and " IMAGE_PLUGIN_FILE
                         " is not here; install libvips-dev and build "
                         "again, or name its folder in FSHARD_PLUGINS");
}
