#include "common/resolve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"

bool path_resolve(const char *path, char resolved[PATH_MAX])
{
    if (realpath(path, resolved))
        return true;
    char folder[PATH_MAX];
    if ((size_t)snprintf(folder, sizeof folder, "%s", path) >= sizeof folder)
        return false;
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/')
        folder[--end] = '\0';
    char *slash = strrchr(folder, '/');
    const char *name = slash ? slash + 1 : folder;
    const char *parent = slash == folder ? "/" : slash ? folder : ".";
    char above[PATH_MAX], last[NAME_MAX + 1];
    if ((size_t)snprintf(last, sizeof last, "%s", name) >= sizeof last)
        return false;
    if (slash && slash != folder)
        *slash = '\0';
    if (strcmp(parent, ".") == 0 ? !realpath(".", above) : !path_resolve(parent, above))
        return false;
    return file_join(resolved, PATH_MAX, above, last, NULL) == FSH_OK;
}
