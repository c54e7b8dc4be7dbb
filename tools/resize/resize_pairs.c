#include "tools/resize/resize_pairs.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "common/path.h"
#include "imaging/image.h"

FshStatus pair_find_partner(const char *root, const ResizeItem *item, char partner[PATH_MAX], FshError *error)
{
    char path[PATH_MAX];
    memcpy(partner, item->partner, strlen(item->partner) + 1);
    FshStatus status = file_join(path, sizeof path, root, item->partner, error);
    struct stat partner_file;
    if (status || (stat(path, &partner_file) == 0 && S_ISREG(partner_file.st_mode)))
        return status;
    char *slash = strrchr(path, '/'), *wanted = strrchr(partner, '/') + 1; /* it lies in its side's folder */
    *slash = '\0';
    size_t folder_bytes = (size_t)(wanted - partner), stem = path_stem_bytes(wanted), found = 0;
    DIR *folder = opendir(path);
    for (const struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder)) {
        const char *name = entry->d_name;
        if (path_stem_bytes(name) != stem || strncmp(name, wanted, stem) != 0 || !image_name_is_image(name) ||
            folder_bytes + strlen(name) >= PATH_MAX || fstatat(dirfd(folder), name, &partner_file, 0) != 0 ||
            !S_ISREG(partner_file.st_mode))
            continue;
        if (found++ == 0)
            memcpy(wanted, name, strlen(name) + 1);
    }
    if (folder)
        (void)closedir(folder);
    if (found == 1)
        return FSH_OK;
    return found ? fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "has several partners: %.300s and others of that name", partner)
                 : fsh_error_set(error, FSH_ERR_NOT_FOUND, "has no partner %.300s", item->partner);
}

uint32_t pair_factor(uint32_t width, uint32_t height, uint32_t other_width, uint32_t other_height)
{
    const uint32_t factor = width ? other_width / width : 0;
    const bool whole = other_width == (uint64_t)factor * width && other_height == (uint64_t)factor * height;
    return factor > 1 && whole ? factor : 0;
}
