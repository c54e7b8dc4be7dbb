#include "common/folder_list.h"

#include <errno.h>
#include <stddef.h>

FshStatus folder_open(const char *path, DIR **folder_ret, FshError *error)
{
    *folder_ret = opendir(path);
    return *folder_ret || errno == ENOENT || errno == ENOTDIR
               ? FSH_OK
               : fsh_error_system(error, errno, "%s: cannot be listed", path);
}

const struct dirent *folder_next(DIR *folder, const char *path, FshStatus *status_ret, FshError *error)
{
    if (!folder || *status_ret)
        return NULL;
    errno = 0;
    const struct dirent *entry = readdir(folder);
    if (!entry && errno)
        *status_ret = fsh_error_system(error, errno, "%s: cannot be listed", path);
    return entry;
}

void folder_close(DIR *folder)
{
    if (folder)
        (void)closedir(folder);
}
