/* destination.h - the folder a dataset is packed into: who may write there, what is there already, and the
 * last step.
 *
 * A dataset without dataset.json is unfinished. While fpack writes, the hidden file .fpack-unfinished holds
 * the dataset's id and, by a lock (flock), says that someone writes. A run that was stopped leaves it: the
 * next run with the same id goes on there, any other is refused. What is not fpack's own, by its content (contents.h), is
 * never removed, whatever the options: a folder with other files in it is refused.
 *
 * With --force a finished dataset is replaced whole: the new one is packed into a hidden folder beside it,
 * and the two change names in one step (renameat2 with RENAME_EXCHANGE; where the file system lacks it, two
 * renames, of which the first is undone if the second fails). */
#ifndef FSHARD_PACK_DESTINATION_H
#define FSHARD_PACK_DESTINATION_H

#include <limits.h>
#include <stdbool.h>

#include "common/error.h"

typedef struct Destination {
    char target[PATH_MAX];  /* the folder asked for */
    char folder[PATH_MAX];  /* where files are written: target, or a hidden folder beside it */
    char partial[PATH_MAX]; /* .fpack-unfinished in folder */
    bool replaces;          /* folder is not target */
    bool made_folder;       /* it was not there before */
    bool resumes;           /* an earlier run with the same id was stopped here */
    int lock;               /* descriptor of `partial`; -1: none */
} Destination;

/* Looks whether path could be opened, and changes nothing: for --dry-run. Errors as destination_open. */
FshStatus destination_check(const char *path, const char *source, const char *id, bool force,
                            FshError *error);

/* Makes the folder where there is none, locks it, clears what an earlier run left half-written.
 * FSH_ERR_EXISTS: a finished dataset (without force), an unfinished one with another id (without force),
 * files that are not fpack's, or another fpack at work there. FSH_ERR_USAGE: path is the source or lies in
 * it. On failure nothing is held. */
FshStatus destination_open(Destination *destination, const char *path, const char *source, const char *id,
                           bool force, FshError *error);

/* To be called when dataset.json is in folder: puts it in the place of the dataset that it replaces, if it does, and
 * removes that, then the marks of work in progress. Closes. After a failure before the last step the next run with this id
 * goes on. */
FshStatus destination_finish(Destination *destination, FshError *error);

/* FSH_ERR_USAGE: file, which need not exist, lies in the folder path, which need not either. */
FshStatus destination_check_outside(const char *path, const char *file, FshError *error);

/* Removes every file of a dataset from folder, finished or not. */
FshStatus destination_clear(const Destination *destination, FshError *error);

/* Lets go. Unless finished, what is complete stays for the next run; if nothing is, the folder looks as it
 * did before. Safe twice, and on a struct that destination_open failed on. */
void destination_close(Destination *destination);

#endif
