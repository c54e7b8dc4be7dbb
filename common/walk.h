/* walk.h - every file below a folder, in byte order.
 *
 *   FileList list = {0};
 *   FshStatus status = walk_files(root, jobs, &list, &error);
 *   for (uint64_t i = 0; i < list.count; i++) use(list.files[i].path, list.files[i].bytes);
 *   file_list_free(&list);
 *
 * Folders are read in parallel; the result is sorted by the bytes of the relative path, so it does not depend
 * on the file system or on threads. Links are followed; a folder met a second time on its own path (same
 * device and inode among its ancestors) is not entered again. Names that begin with "." are skipped, files
 * and folders, and reported only by count; the root itself may have such a name. Only regular files are
 * listed. */
#ifndef FSHARD_COMMON_WALK_H
#define FSHARD_COMMON_WALK_H

#include <stdint.h>

#include "common/error.h"

typedef struct FileEntry {
    const char *path;    /* relative to the root, '/' between parts; owned by the list */
    uint64_t bytes;      /* st_size */
    int64_t modified_ns; /* st_mtim, as file_time_ns gives it */
} FileEntry;

/* Something below the root that is no file to list. */
typedef struct WalkProblem {
    const char *path;   /* as FileEntry's; owned by the list */
    const char *reason; /* "link to nothing", "cannot be read: Permission denied"; owned by the list */
} WalkProblem;

typedef struct FileList {
    FileEntry *files;
    uint64_t count;
    uint64_t total_bytes;
    uint64_t hidden_count;  /* names skipped because they begin with "." */
    uint64_t problem_count; /* entries left out: dangling links, folders without permission, loops, devices
                               and pipes */
    WalkProblem *problems;  /* problem_count of them, sorted by path */
    struct WalkArena *arena;
} FileList;

/* FSH_ERR_NOT_FOUND: root does not exist or is no folder. An unreadable folder below the root is a problem in
 * the list, not a failure; an unreadable root is a failure. An empty list is FSH_OK: the caller knows what it
 * was looking for. FSH_ERR_INTERRUPTED after a signal. On failure the list is empty and needs no free. */
FshStatus walk_files(const char *root, int jobs, FileList *list, FshError *error);

void file_list_free(FileList *list);

#endif
