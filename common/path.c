#include "common/path.h"

#include <string.h>

bool path_goes_up(const char *path)
{
    for (size_t length = 0; *path; path += length + (path[length] == '/')) {
        length = strcspn(path, "/");
        if (length == 2 && path[0] == '.' && path[1] == '.')
            return true;
    }
    return false;
}

bool path_lies_in(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 &&
           (path[length] == '/' || path[length] == '\0' || (length && folder[length - 1] == '/'));
}

void path_clean(char *path)
{
    const char *from = path;
    char *to = path;
    while (*from) {
        size_t length = strcspn(from, "/");
        bool dropped = length == 0 || (length == 1 && from[0] == '.');
        if (!dropped) {
            if (to > path)
                *to++ = '/'; /* in place of the last one, or before it */
            memmove(to, from, length);
            to += length;
        }
        from += length;
        from += *from == '/';
    }
    *to = '\0';
}

size_t path_stem_bytes(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    return dot && dot > name ? (size_t)(dot - path) : strlen(path);
}

bool path_names_several(const char *text)
{
    return strchr(text, '{') || strstr(text, "::");
}
