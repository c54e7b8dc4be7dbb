/* check_list.h - which files fsh_check is to check: those of a manifest, of others' tars and LMDBs, or those
 * that lie in a folder without a manifest; and what does not belong beside them. Internal to check.c. */
#ifndef FSHARD_FORMATS_CHECK_LIST_H
#define FSHARD_FORMATS_CHECK_LIST_H

#include <limits.h>

#include "formats/check.h"

typedef struct CheckList {
    /* the caller's */
    FshCheckLevel level;
    const FshCounting *counting;                                                   /* or NULL */
    void *counting_context;                                                        /* of counting->wants */
    void (*tell)(void *context, const char *file, FshStatus status, char *reason); /* FSH_OK: a remark */
    void *context;
    /* filled */
    char folder[PATH_MAX]; /* of the files */
    FshManifest manifest;  /* empty where there is none or it cannot be read */
    const char *manifest_name;
    bool has_manifest;
    bool has_splits;    /* split_of is told by the manifest, or by the names of others' files */
    Metadata *expected; /* owned: for each split of the manifest */
    FileCheck *files;   /* owned: in the order of the manifest, or of their names */
    char **paths;       /* owned: what files[].path points to */
    char **names;       /* owned: what files[].name points to */
    size_t *split_of;   /* owned: index of each file's split; without a manifest each file is its own */
    size_t file_count, file_capacity;
} CheckList;

/* Fills the list with the files of path, and tells what is wrong with the manifest, the lists of splits and
 * other files beside them. FSH_ERR_NOT_FOUND, FSH_ERR_UNSUPPORTED: path is nothing that can be checked;
 * FSH_ERR_SYSTEM, FSH_ERR_MEMORY. What was filled is to be freed in any case. */
FshStatus fsh_check_list(CheckList *list, const char *path, FshError *error);
/* Frees what was filled, and zeroes the list. */
void fsh_check_list_free(CheckList *list);

#endif
