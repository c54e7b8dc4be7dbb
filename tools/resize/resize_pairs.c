#include "tools/resize/resize_pairs.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "common/path.h"
#include "imaging/image.h"
#include "tools/resize/resize_folder.h"

FshStatus pair_find_partner(const char *root, const ResizeItem *item, char partner[PATH_MAX], FshError *error)
{
    char path[PATH_MAX];
    memcpy(partner, item->partner, strlen(item->partner) + 1);
    FshStatus status = file_join(path, sizeof path, root, item->partner, error);
    struct stat partner_file;
    if (status)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "its partner's path would be too long");
    if (stat(path, &partner_file)) {
        if (errno != ENOENT && errno != ENOTDIR)
            return fsh_error_system(error, errno, "its partner %.300s cannot be read", partner);
    } else if (S_ISREG(partner_file.st_mode)) {
        return FSH_OK;
    }
    char *slash = strrchr(path, '/'), *wanted = strrchr(partner, '/') + 1; /* it lies in its side's folder */
    *slash = '\0';
    size_t folder_bytes = (size_t)(wanted - partner), stem = path_stem_bytes(wanted), found = 0;
    DIR *folder = NULL;
    status = folder_open(path, &folder, error);
    for (const struct dirent *entry = folder_next(folder, path, &status, error); entry;
         entry = folder_next(folder, path, &status, error)) {
        const char *name = entry->d_name;
        if (path_stem_bytes(name) != stem || strncmp(name, wanted, stem) != 0 || !image_name_is_image(name) ||
            folder_bytes + strlen(name) >= PATH_MAX || fstatat(dirfd(folder), name, &partner_file, 0) != 0 ||
            !S_ISREG(partner_file.st_mode))
            continue;
        if (found++ == 0)
            memcpy(wanted, name, strlen(name) + 1);
    }
    folder_close(folder);
    if (status || found == 1)
        return status;
    return found ? fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "has several partners: %.300s and others of that name", partner)
                 : fsh_error_set(error, FSH_ERR_NOT_FOUND, "has no partner %.300s", item->partner);
}
