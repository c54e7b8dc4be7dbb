#include "tools/verify/verify_root.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/folder_list.h"
#include "tools/verify/verify_against.h"
#include "tools/verify/verify_report.h"

enum { TRIED_MAX = 8, FOLDERS_MAX = 512 };

typedef struct Tried {
    const char *sources[TRIED_MAX]; /* of the report's problems */
    size_t count;
} Tried;

/* Chooses the sources that are tried: of the first, the last, and those between. */
static void choose_sources(Tried *tried, const VerifyReport *report)
{
    size_t absent_count = 0, next = 0;
    for (size_t i = 0; i < report->problem_count; i++)
        absent_count += verify_is_absent(&report->problems[i]);
    const size_t most = absent_count < TRIED_MAX ? absent_count : TRIED_MAX;
    for (size_t i = 0; i < report->problem_count && tried->count < most; i++) {
        const char *source = report->problems[i].source;
        if (!verify_is_absent(&report->problems[i]))
            continue;
        const size_t wanted = most > 1 ? tried->count * (absent_count - 1) / (most - 1) : 0;
        if (next++ >= wanted && path_stays_inside(source, strlen(source)))
            tried->sources[tried->count++] = source;
    }
}

/* Returns whether a folder has all sources that are tried, as regular files. */
static bool has_all(const char *folder, const Tried *tried)
{
    for (size_t i = 0; i < tried->count; i++) {
        char path[PATH_MAX];
        struct stat status;
        if (file_join(path, sizeof path, folder, tried->sources[i], NULL) || stat(path, &status) ||
            !S_ISREG(status.st_mode))
            return false;
    }
    return tried->count > 0;
}

/* Looks into the folders below the one given, *found_ret the one that has the sources; none of two. */
static FshStatus look_below(const char *folder, const Tried *tried, char **found_ret, FshError *error)
{
    DIR *entries = opendir(folder);
    FshStatus status = FSH_OK;
    FshError unused = {0};
    unsigned left = FOLDERS_MAX;
    size_t found_count = 0;
    for (const struct dirent *entry;
         entries && left && (entry = folder_next(entries, folder, &status, &unused));) {
        char path[PATH_MAX];
        if (entry->d_name[0] == '.' || file_join(path, sizeof path, folder, entry->d_name, NULL) ||
            !file_is_folder(path))
            continue;
        left--;
        if (!has_all(path, tried))
            continue;
        free(*found_ret);
        *found_ret = found_count++ ? NULL : strdup(path);
        if (found_count == 1 && !*found_ret)
            status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
    }
    folder_close(entries);
    return status == FSH_ERR_MEMORY ? status : FSH_OK;
}

/* Writes the folder around one to parent: by its name, where that tells, else by ".." behind it. */
static bool parent_of(const char *folder, char parent[PATH_MAX])
{
    size_t bytes = strlen(folder);
    while (bytes > 1 && folder[bytes - 1] == '/')
        bytes--;
    size_t begin = bytes;
    while (begin > 0 && folder[begin - 1] != '/')
        begin--;
    const size_t name_bytes = bytes - begin;
    const bool is_named = name_bytes > 2 || (name_bytes && folder[begin] != '.');
    if (bytes == 1 && folder[0] == '.')
        return snprintf(parent, PATH_MAX, "..") > 0;
    if (!is_named)
        return snprintf(parent, PATH_MAX, "%.*s/..", (int)bytes, folder) < PATH_MAX;
    if (begin > 1)
        begin--;
    return begin ? snprintf(parent, PATH_MAX, "%.*s", (int)begin, folder) < PATH_MAX
                 : snprintf(parent, PATH_MAX, ".") > 0;
}

static FshStatus look_above(const char *folder, const Tried *tried, char **found_ret, FshError *error)
{
    char here[PATH_MAX], parent[PATH_MAX];
    size_t levels = 0;
    for (const char *at = tried->sources[0]; (at = strchr(at, '/')); at++)
        levels++;
    if (snprintf(here, sizeof here, "%s", folder) >= PATH_MAX)
        return FSH_OK;
    for (size_t i = 0; i < levels && parent_of(here, parent); i++) {
        if (has_all(parent, tried)) {
            *found_ret = strdup(parent);
            return *found_ret ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
        }
        memcpy(here, parent, sizeof here);
    }
    return FSH_OK;
}

FshStatus verify_root_find(VerifyReport *report, const char *folder, FshError *error)
{
    Tried tried = {0};
    choose_sources(&tried, report);
    FshStatus status = tried.count ? look_below(folder, &tried, &report->nearby_root, error) : FSH_OK;
    if (!status && tried.count && !report->nearby_root)
        status = look_above(folder, &tried, &report->nearby_root, error);
    report->nearby_count = tried.count;
    return status;
}
