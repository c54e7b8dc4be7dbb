#include "common/cache_folder.h"

#include <stdlib.h>

#include "common/file.h"

bool cache_folder_find(char *path, size_t path_bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/')
        return file_join(path, path_bytes, cache, "fshard", NULL) == FSH_OK;
    if (home && home[0] == '/')
        return file_join(path, path_bytes, home, ".cache/fshard", NULL) == FSH_OK;
    return false;
}
