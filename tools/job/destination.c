#include "tools/job/destination.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"
#include "common/path.h"
#include "common/resolve.h"
#include "tools/job/contents.h"

FshStatus destination_clear(const Destination *destination, FshError *error)
{
    return contents_remove(destination->folder, CONTENTS_DATASET, error);
}

/* ---- may we write there? ---- */

/* Refuses a folder, as contents_look saw it, into which a dataset of this id must not be packed. */
static FshStatus judge(const char *folder, const Contents *contents, const char *id, bool force,
                       FshError *error)
{
    if (contents->foreign[0])
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "%s: holds files that are not fpack's (%s); choose an empty or a new folder",
                             folder, contents->foreign);
    if (contents->finished && !force)
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: holds a finished dataset; %s--force replaces it",
                             folder,
                             contents->shards ? "fpack --update packs what has changed in its source, " : "");
    if (contents->unfinished && !force && strcmp(contents->id, id) != 0 &&
        (contents->id[0] || contents->outputs))
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "%s: holds an unfinished dataset of other input or options; --force starts anew",
                             folder);
    return FSH_OK;
}

static FshStatus find_target(const char *path, const char *source, char target[PATH_MAX], FshError *error)
{
    char source_path[PATH_MAX];
    const bool known = source && realpath(source, source_path); /* else several files in one word */
    if (source && !known && (file_exists(source) || !path_names_several(source)))
        return fsh_error_system(error, errno, "%s", source);
    if (!path_resolve(path, target))
        return fsh_error_system(error, errno ? errno : ENAMETOOLONG, "%s", path);
    if (known && !file_is_folder(source_path) && path_lies_in(source_path, target))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: the source %s lies in it; choose another folder",
                             path, source);
    if (known && path_lies_in(target, source_path))
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s: lies in the source %s, and would be a part of it the next time; choose a folder outside",
            path, source);
    return FSH_OK;
}

FshStatus destination_check(const char *path, const DestinationOptions *options, FshError *error)
{
    char target[PATH_MAX];
    Contents contents;
    FshStatus status = find_target(path, options->source, target, error);
    if (!status)
        status = contents_look(target, &contents, error);
    return status ? status : judge(path, &contents, options->id, options->force, error);
}

/* ---- locks ---- */

/* Takes the lock on a mark: operation is LOCK_EX or LOCK_SH. Whoever finishes removes that file, so a lock
 * counts only if the name still leads to the file that was locked. FSH_ERR_EXISTS: somebody else has it. */
static FshStatus take_lock(const char *mark, int operation, const char *refusal, int *lock_ret,
                           FshError *error)
{
    for (;;) {
        int descriptor = open(mark, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (descriptor < 0)
            return fsh_error_system(error, errno, "%s: cannot create", mark);
        struct stat locked, named;
        /* File systems without locks answer otherwise than EWOULDBLOCK: there nothing guards against two
         * writers. */
        if (flock(descriptor, operation | LOCK_NB) && errno == EWOULDBLOCK) {
            (void)close(descriptor);
            return fsh_error_set(error, FSH_ERR_EXISTS, "%s", refusal);
        }
        if (fstat(descriptor, &locked) == 0 && stat(mark, &named) == 0 && locked.st_dev == named.st_dev &&
            locked.st_ino == named.st_ino) {
            *lock_ret = descriptor;
            return FSH_OK;
        }
        (void)close(descriptor);
    }
}

/* For the length of PATH_MAX and some words. */
enum { REFUSAL_BYTES = PATH_MAX + 128 };

static FshStatus lock_alone(const char *mark, const char *target, int *lock_ret, FshError *error)
{
    char refusal[REFUSAL_BYTES];
    (void)snprintf(refusal, sizeof refusal, "%s: another fpack is writing there", target);
    return take_lock(mark, LOCK_EX, refusal, lock_ret, error);
}

FshStatus destination_hold(const char *folder, int *lock_ret, FshError *error)
{
    char mark[PATH_MAX];
    *lock_ret = -1;
    FshStatus status = file_join(mark, sizeof mark, folder, CONTENTS_PARTIAL_NAME, error);
    return status ? status : lock_alone(mark, folder, lock_ret, error);
}

FshStatus destination_check_finished(const char *folder, FshError *error)
{
    char mark[PATH_MAX], manifest[PATH_MAX];
    struct stat found;
    FshStatus status = file_join(mark, sizeof mark, folder, CONTENTS_PARTIAL_NAME, error);
    if (!status)
        status = file_join(manifest, sizeof manifest, folder, FSH_MANIFEST_NAME, error);
    /* A mark without an id is of a program that was killed while it replaced a manifest. */
    if (!status && stat(mark, &found) == 0 && found.st_size > 0 && !file_exists(manifest))
        status = fsh_error_set(error, FSH_ERR_EXISTS,
                               "%s: is unfinished: fpack was stopped, or is at work; the same fpack command "
                               "goes on",
                               folder);
    return status;
}

FshStatus destination_hold_dataset(const char *folder, int *lock_ret, FshError *error)
{
    FshStatus status = destination_hold(folder, lock_ret, error);
    if (status)
        return status;
    status = destination_check_finished(folder, error);
    if (status) { /* the mark is the run's, which goes on by it */
        (void)close(*lock_ret);
        *lock_ret = -1;
    }
    return status;
}

void destination_release(const char *folder, int lock)
{
    char mark[PATH_MAX];
    if (lock < 0)
        return;
    if (file_join(mark, sizeof mark, folder, CONTENTS_PARTIAL_NAME, NULL) == FSH_OK)
        (void)unlink(mark); /* before the lock goes: nobody else's is removed */
    (void)close(lock);
}

/* Writes the id into the mark. A mark that has the id is left as it is: killed or out of space while it
 * writes, fpack would leave outputs that nobody can tell apart from another dataset's. */
static FshStatus write_id(const Destination *destination, const char *id, bool has_it, FshError *error)
{
    char line[40];
    int length = snprintf(line, sizeof line, "%s\n", id);
    errno = 0;
    if (!has_it &&
        (ftruncate(destination->lock, 0) || pwrite(destination->lock, line, (size_t)length, 0) != length))
        return fsh_error_system(error, errno ? errno : ENOSPC, "%s: cannot write", destination->partial);
    if (fsync(destination->lock))
        return fsh_error_system(error, errno, "%s: cannot write", destination->partial);
    return FSH_OK;
}

/* Writes PARENT/.NAME.fpack-new to sibling. */
static FshStatus name_sibling(const char *target, char sibling[PATH_MAX], FshError *error)
{
    const char *slash = strrchr(target, '/');
    int length = snprintf(sibling, PATH_MAX, "%.*s/.%s.fpack-new", (int)(slash - target), target, slash + 1);
    if (length < 0 || length >= PATH_MAX)
        return fsh_error_system(error, ENAMETOOLONG, "%s", target);
    return FSH_OK;
}

FshStatus destination_sibling(const char *path, char sibling[PATH_MAX], FshError *error)
{
    char target[PATH_MAX];
    FshStatus status = find_target(path, NULL, target, error);
    return status ? status : name_sibling(target, sibling, error);
}

/* Chooses a folder beside the target, which must be on the target's file system. */
static FshStatus choose_sibling(Destination *destination, FshError *error)
{
    const char *target = destination->target;
    const char *slash = strrchr(target, '/');
    struct stat own, parent;
    FshStatus status = name_sibling(target, destination->folder, error);
    if (status)
        return status;
    char above[PATH_MAX];
    (void)snprintf(above, sizeof above, "%.*s", slash == target ? 1 : (int)(slash - target), target);
    if (stat(target, &own) || stat(above, &parent))
        return fsh_error_system(error, errno, "%s", above);
    if (own.st_dev != parent.st_dev)
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "%s: is a mount point and cannot be replaced whole; remove the dataset in it first, or "
            "pack into a folder below it",
            target);
    destination->replaces = true;
    return FSH_OK;
}

/* Makes the folder one of this id, with the lock held alone. Looks once more first: what was seen before may
 * have been another run's last moment. */
static FshStatus take_folder(Destination *destination, const char *path, const DestinationOptions *options,
                             FshError *error)
{
    Contents contents;
    FshStatus status = contents_look(destination->folder, &contents, error);
    if (!status)
        status = judge(path, &contents, options->id, options->force, error);
    if (status)
        return status;
    /* One that is complete but for changing names goes on too; its manifest is made again. */
    const bool has_id = strcmp(contents.id, options->id) == 0;
    destination->resumes = (destination->replaces || !contents.finished) && has_id;
    status = contents_remove(destination->folder,
                             destination->resumes ? CONTENTS_TEMPORARY | CONTENTS_MANIFEST | CONTENTS_LISTS
                                                  : CONTENTS_DATASET,
                             error);
    return status ? status : write_id(destination, options->id, has_id, error);
}

/* What came of a try to join the parts in a folder. */
typedef enum Joining { JOINED, REFUSED, IS_BUSY } Joining;

/* Joins other parts in the folder, with the lock shared. IS_BUSY: another part makes the folder ready at this
 * moment. */
static FshStatus join_folder(Destination *destination, const char *path, const DestinationOptions *options,
                             Joining *joining, FshError *error)
{
    Contents contents;
    *joining = REFUSED;
    FshStatus status = contents_look(destination->folder, &contents, error);
    if (status)
        return status;
    if (strcmp(contents.id, options->id) != 0 || contents.finished) {
        if (flock(destination->lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
            if (contents.id[0])
                return fsh_error_set(error, FSH_ERR_EXISTS,
                                     "%s: parts of another dataset are being packed there",
                                     destination->target);
            *joining = IS_BUSY;
            return FSH_OK;
        }
        status = take_folder(destination, path, options, error);
        if (status)
            return status;
        /* Going from one lock to the other lets go for a moment: who comes in between finds the id. */
        if (flock(destination->lock, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK) {
            *joining = IS_BUSY;
            return FSH_OK;
        }
    }
    (void)file_remove_stale_temporaries(destination->folder);
    destination->resumes = true;
    *joining = JOINED;
    return FSH_OK;
}

static FshStatus join_parts(Destination *destination, const char *path, const DestinationOptions *options,
                            FshError *error)
{
    enum { TRIES = 200 };
    const struct timespec wait = {.tv_nsec = 10 * 1000 * 1000};
    char refusal[REFUSAL_BYTES];
    FshStatus status = FSH_OK;
    Joining joining = IS_BUSY;
    (void)snprintf(refusal, sizeof refusal,
                   "%s: another fpack is writing there, which packs or merges all of it",
                   destination->target);
    for (int try = 0; try < TRIES && joining == IS_BUSY; try++) {
        if (try)
            (void)nanosleep(&wait, NULL);
        status = take_lock(destination->partial, LOCK_SH, refusal, &destination->lock, error);
        if (status == FSH_ERR_EXISTS)
            continue; /* a part that makes the folder ready holds it for a moment; others for long */
        if (!status)
            status = join_folder(destination, path, options, &joining, error);
        if (status)
            return status;
        if (joining == IS_BUSY) {
            (void)close(destination->lock);
            destination->lock = -1;
        }
    }
    if (joining == IS_BUSY)
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s", refusal);
    (void)snprintf(refusal, sizeof refusal, "%s: another fpack is packing part %u/%u there",
                   destination->target, options->part.index, options->part.count);
    return take_lock(destination->part, LOCK_EX, refusal, &destination->part_lock, error);
}

/* Chooses the folder and makes it. */
static FshStatus make_folder(Destination *destination, const char *path, const DestinationOptions *options,
                             FshError *error)
{
    Contents contents;
    FshStatus status = find_target(path, options->source, destination->target, error);
    if (!status)
        status = contents_look(destination->target, &contents, error);
    if (!status)
        status = judge(path, &contents, options->id, options->force, error);
    if (status)
        return status;
    memcpy(destination->folder, destination->target, sizeof destination->folder);
    if (contents.finished) {
        status = choose_sibling(destination, error);
        if (!status)
            status = contents_look(destination->folder, &contents, error);
        if (!status)
            status = judge(destination->folder, &contents, options->id, options->force, error);
    }
    if (!status && !contents.exists) {
        status = file_make_folders(destination->folder, error);
        destination->made_folder = !status;
    }
    return status;
}

FshStatus destination_open(Destination *destination, const char *path, const DestinationOptions *options,
                           FshError *error)
{
    *destination = (Destination){.lock = -1, .part_lock = -1};
    FshStatus status = make_folder(destination, path, options, error);
    if (!status)
        status = file_join(destination->partial, sizeof destination->partial, destination->folder,
                           CONTENTS_PARTIAL_NAME, error);
    if (!status && options->part.count) {
        char name[64];
        (void)snprintf(name, sizeof name, CONTENTS_PART_NAME "%u-of-%u", options->part.index,
                       options->part.count);
        status = file_join(destination->part, sizeof destination->part, destination->folder, name, error);
        if (!status)
            status = join_parts(destination, path, options, error);
    } else if (!status) {
        status = lock_alone(destination->partial, destination->target, &destination->lock, error);
        if (!status)
            status = take_folder(destination, path, options, error);
    }
    if (status)
        destination_close(destination);
    return status;
}

/* ---- closing ---- */

/* Removes what this run made, where no output is complete: there is nothing to resume from. */
static void remove_traces(const Destination *destination)
{
    Contents contents;
    if (contents_look(destination->folder, &contents, NULL) || contents.outputs || contents.finished)
        return;
    if (destination->part[0] && flock(destination->lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return; /* other parts are at work */
    (void)contents_remove(destination->folder, CONTENTS_PROGRESS, NULL);
    (void)unlink(destination->partial);
}

static void let_go(Destination *destination)
{
    if (destination->part_lock >= 0) {
        (void)unlink(destination->part);
        (void)close(destination->part_lock);
    }
    if (destination->lock >= 0)
        (void)close(destination->lock);
    destination->lock = destination->part_lock = -1;
}

void destination_close(Destination *destination)
{
    if (destination->lock >= 0)
        remove_traces(destination);
    let_go(destination);
    if (destination->made_folder)
        (void)rmdir(destination->folder); /* fails where something is in it, as it should */
    destination->made_folder = false;
}

static FshStatus sync_folder(const char *folder, FshError *error)
{
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FshStatus status = FSH_OK;
    if (descriptor < 0 || (fsync(descriptor) && errno != EINVAL && errno != ENOTSUP))
        status = fsh_error_system(error, errno, "%s: cannot sync the folder", folder);
    if (descriptor >= 0)
        (void)close(descriptor);
    return status;
}

/* Removes a dataset that was replaced, and what an earlier replacement left, but nothing that is not
 * fpack's. */
static FshStatus remove_replaced(const char *folder, FshError *error)
{
    Contents contents;
    FshStatus status = contents_look(folder, &contents, error);
    if (status || !contents.exists)
        return status;
    if (contents.foreign[0])
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "%s: what was replaced stays there: it holds files that are not fpack's (%s)",
                             folder, contents.foreign);
    status = contents_remove(folder, CONTENTS_DATASET | CONTENTS_PARTIAL, error);
    if (!status && rmdir(folder))
        status = fsh_error_system(error, errno, "%s: cannot remove what was replaced", folder);
    return status;
}

/* Puts folder in target's place; what was there is then at `old`. On failure all is as it was. */
static FshStatus exchange(const Destination *destination, char old[PATH_MAX], FshError *error)
{
    const char *folder = destination->folder, *target = destination->target;
    memcpy(old, folder, PATH_MAX);
    if (renameat2(AT_FDCWD, folder, AT_FDCWD, target, RENAME_EXCHANGE) == 0)
        return FSH_OK;
    if (errno != EINVAL && errno != ENOSYS)
        return fsh_error_system(error, errno, "%s: cannot be put in the place of %s", folder, target);
    if ((size_t)snprintf(old, PATH_MAX, "%s-old", folder) >= PATH_MAX)
        return fsh_error_system(error, ENAMETOOLONG, "%s", folder);
    FshStatus status = remove_replaced(old, error);
    if (status)
        return status;
    if (rename(target, old))
        return fsh_error_system(error, errno, "%s: cannot make room for %s", target, folder);
    if (rename(folder, target) == 0)
        return FSH_OK;
    status = fsh_error_system(error, errno, "%s: cannot be put in the place of %s", folder, target);
    if (rename(old, target))
        status =
            fsh_error_set(error, status, "%s; what was there is now %s", error ? error->message : "", old);
    return status;
}

FshStatus destination_finish(Destination *destination, FshError *error)
{
    char mark[PATH_MAX], old[PATH_MAX];
    bool exchanged = false;
    int old_lock = -1;
    FshStatus status = sync_folder(destination->folder, error);
    if (!status && destination->replaces) {
        /* A mark in what is replaced, locked, keeps another fpack from taking that folder over while it is
         * removed: after the exchange it has the name under which the next replacement is packed. */
        status = file_join(mark, sizeof mark, destination->target, CONTENTS_PARTIAL_NAME, error);
        if (!status)
            status = lock_alone(mark, destination->target, &old_lock, error);
        if (!status)
            status = exchange(destination, old, error);
        exchanged = !status;
        if (old_lock >= 0 && !exchanged)
            (void)unlink(mark);
    }
    /* The marks go last: until here a failure leaves what the same command goes on from. */
    if (!status)
        status = contents_remove(destination->target,
                                 CONTENTS_PROGRESS | CONTENTS_TEMPORARY | CONTENTS_PARTIAL, error);
    if (!status)
        status = sync_folder(destination->target, error);
    if (exchanged) {
        FshStatus removed = remove_replaced(old, status ? NULL : error);
        status = status ? status : removed;
        (void)close(destination->lock); /* its file is in target now, and folder is gone */
        destination->lock = -1;
    }
    if (old_lock >= 0)
        (void)close(old_lock);
    destination->made_folder = false;
    destination_close(destination);
    return status;
}

FshStatus destination_leave_part(Destination *destination, FshError *error)
{
    FshStatus status = sync_folder(destination->folder, error);
    let_go(destination);
    return status;
}

FshStatus destination_check_outside(const char *path, const char *file, FshError *error)
{
    char target[PATH_MAX], resolved[PATH_MAX];
    if (!path_resolve(path, target))
        return fsh_error_system(error, errno ? errno : ENAMETOOLONG, "%s", path);
    if (!path_resolve(file, resolved))
        return fsh_error_system(error, errno ? errno : ENAMETOOLONG, "%s", file);
    if (!path_lies_in(resolved, target))
        return FSH_OK;
    return fsh_error_set(
        error, FSH_ERR_USAGE,
        "%s: lies in %s, which is to hold the dataset and nothing else; choose a name outside", file, path);
}
