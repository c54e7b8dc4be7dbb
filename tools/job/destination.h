/* destination.h - the folder a dataset is packed into: who may write there, what is there already, and the
 * last step.
 *
 * A dataset without dataset.json is unfinished. While fpack writes, the hidden file .fpack-unfinished holds
 * the dataset's id and, by a lock (flock), says that someone writes. A run that was stopped leaves it: the
 * next run with the same id goes on there, any other is refused. What is not fpack's own, by its content
 * (contents.h), is never removed, whatever the options: a folder with other files in it is refused.
 *
 * Many machines: fpack --part I/N holds that lock shared, and one of its own, in .fpack-part-I-of-N. So the
 * parts of one dataset may be at work at once in one folder, the same part only once, and neither beside a
 * whole packing or a merge, which hold the first lock alone. The part that comes first, alone then too,
 * clears the folder. What parts finished is left for --merge, or for a run without --part, which goes on from
 * it.
 *
 * With --force a finished dataset is replaced whole: the new one is packed into a hidden folder beside it,
 * and the two change names in one step (renameat2 with RENAME_EXCHANGE; where the file system lacks it, two
 * renames, of which the first is undone if the second fails). */
#ifndef FSHARD_TOOLS_JOB_DESTINATION_H
#define FSHARD_TOOLS_JOB_DESTINATION_H

#include <limits.h>
#include <stdbool.h>

#include "common/error.h"
#include "tools/job/part.h"

typedef struct Destination {
    char target[PATH_MAX];  /* the folder asked for */
    char folder[PATH_MAX];  /* where files are written: target, or a hidden folder beside it */
    char partial[PATH_MAX]; /* .fpack-unfinished in folder */
    char part[PATH_MAX];    /* .fpack-part-I-of-N in folder; "": no part */
    bool replaces;          /* folder is not target */
    bool made_folder;       /* it was not there before */
    bool resumes;           /* an earlier run with the same id was stopped here */
    int lock;               /* descriptor of `partial`; -1: none */
    int part_lock;          /* of `part`; -1: none */
} Destination;

typedef struct DestinationOptions {
    const char *source; /* what is packed; NULL: nothing that DST must not lie in (merge, lists) */
    const char *id;     /* 32 hexadecimal digits */
    bool force;
    Part part; /* {0, 0}: all of it */
} DestinationOptions;

/* Looks whether path could be opened, and changes nothing: for --dry-run. Errors as destination_open. */
FshStatus destination_check(const char *path, const DestinationOptions *options, FshError *error);

/* Makes the folder where there is none, locks it, clears what an earlier run left half-written.
 * FSH_ERR_EXISTS: a finished dataset (without force), an unfinished one with another id (without force),
 * files that are not fpack's, or another fpack at work there. FSH_ERR_USAGE: path is the source or lies in
 * it. On failure nothing is held. */
FshStatus destination_open(Destination *destination, const char *path, const DestinationOptions *options,
                           FshError *error);

/* Writes to sibling the folder into which path, a finished dataset, is packed anew: PARENT/.NAME.fpack-new.
 */
FshStatus destination_sibling(const char *path, char sibling[PATH_MAX], FshError *error);

/* Keeps others from writing into a folder of parts that is only read: *lock_ret is to be closed.
 * FSH_ERR_EXISTS: someone writes there. */
FshStatus destination_hold(const char *folder, int *lock_ret, FshError *error);

/* Keeps other programs from writing into the folder of a dataset whose manifest is to be replaced. *lock_ret
 * is to be given to destination_release. FSH_ERR_EXISTS: another fpack writes there, or was stopped there
 * before the dataset was finished. */
FshStatus destination_hold_dataset(const char *folder, int *lock_ret, FshError *error);
/* Lets go of what destination_hold_dataset took, and removes the mark; -1 is fine. */
void destination_release(const char *folder, int lock);
/* Refuses a folder whose dataset is not finished: FSH_ERR_EXISTS if an fpack writes there, or was stopped
 * there. Changes nothing. */
FshStatus destination_check_finished(const char *folder, FshError *error);

/* Ends a packing whose dataset.json is in folder: puts folder in the place of the dataset that it replaces,
 * if any, removes the replaced dataset, then the marks of work in progress. Closes. After a failure before
 * the last step the next run with this id goes on. */
FshStatus destination_finish(Destination *destination, FshError *error);

/* Ends a part whose outputs are complete: they stay, and the marks with them. Closes. */
FshStatus destination_leave_part(Destination *destination, FshError *error);

/* Refuses a file that lies in the folder path: FSH_ERR_USAGE. Neither need exist. */
FshStatus destination_check_outside(const char *path, const char *file, FshError *error);

/* Removes every file of a dataset from folder, finished or not. */
FshStatus destination_clear(const Destination *destination, FshError *error);

/* Lets go. Unless finished, what is complete stays for the next run; if nothing is, the folder looks as it
 * did before. Safe twice, and on a struct that destination_open failed on. */
void destination_close(Destination *destination);

#endif
