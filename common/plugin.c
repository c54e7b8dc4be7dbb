#include "common/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Sets folder to that of the running program, without a final slash; empty if the kernel does not give it. */
static void find_program_folder(char *folder, size_t folder_bytes)
{
    ssize_t length = readlink("/proc/self/exe", folder, folder_bytes - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
}

/* Sets folder to that of the shared library that holds this code, where it is in one. */
static void find_library_folder(char *folder, size_t folder_bytes)
{
    static const char here;
    Dl_info info;
    const bool found = dladdr(&here, &info) != 0 && info.dli_fname && strchr(info.dli_fname, '/');
    (void)snprintf(folder, folder_bytes, "%s", found ? info.dli_fname : "/nowhere/");
    *strrchr(folder, '/') = '\0';
}

static bool find_file(const char *file, char *path, size_t path_bytes)
{
    static const char *const places[] = {"%s/%s", "%s/../lib/%s", "%s/../lib/fshard/%s",
                                         "%s/%s", "%s/fshard/%s", "%s/../fshard/%s"};
    enum { OF_PROGRAM = 1, OF_LIBRARY = 3 }; /* the first of each */
    char program_folder[PATH_MAX], library_folder[PATH_MAX];
    find_program_folder(program_folder, sizeof program_folder);
    find_library_folder(library_folder, sizeof library_folder);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *folder = i < OF_PROGRAM   ? getenv("FSHARD_PLUGINS")
                             : i < OF_LIBRARY ? program_folder
                                              : library_folder;
        int length = folder ? snprintf(path, path_bytes, places[i], folder, file) : -1;
        if (length > 0 && (size_t)length < path_bytes && access(path, F_OK) == 0)
            return true;
    }
    return false;
}

FshStatus plugin_load(const char *file, const char *symbol, const void **address_ret, FshError *error)
{
    char path[PATH_MAX];
    *address_ret = NULL;
    if (!find_file(file, path, sizeof path))
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: is not here; name its folder in FSHARD_PLUGINS",
                             file);
    /* NODELETE: libraries with threads or registered types of their own cannot be unloaded */
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "cannot load a plugin: %s", dlerror());
    *address_ret = dlsym(handle, symbol);
    (void)dlclose(handle);
    if (!*address_ret)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: has no %s; build it from the same source", path,
                             symbol);
    return FSH_OK;
}
