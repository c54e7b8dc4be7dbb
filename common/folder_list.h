/* folder_list.h - the names in one folder, and what keeps them from being listed: breaking off is no end.
 *
 *   FshStatus status = folder_open(path, &folder, &error);
 *   while ((entry = folder_next(folder, path, &status, &error))) …
 *   folder_close(folder); */
#ifndef FSHARD_COMMON_FOLDER_LIST_H
#define FSHARD_COMMON_FOLDER_LIST_H

#include <dirent.h>

#include "common/error.h"

/* Opens a folder; *folder_ret: NULL if there is none, or on failure. FSH_ERR_SYSTEM, FSH_ERR_MEMORY. */
FshStatus folder_open(const char *path, DIR **folder_ret, FshError *error);
/* Returns the next entry, which stays valid until the next call. Returns NULL at the end, or if *status_ret
 * is a failure, now or before. */
const struct dirent *folder_next(DIR *folder, const char *path, FshStatus *status_ret, FshError *error);
/* Closes a folder; NULL is fine. */
void folder_close(DIR *folder);

#endif
