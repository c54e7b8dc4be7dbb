#include "tools/pack/destination.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "formats/fshard.h"
#include "tools/pack/plan.h"

/* ---- names that are ours ---- */

typedef enum NameKind {
    NAME_FOREIGN,
    NAME_MANIFEST,  /* dataset.json */
    NAME_PARTIAL,   /* .fpack-unfinished */
    NAME_OUTPUT,    /* train-00000-of-00002.fshard, train.lmdb */
    NAME_PROGRESS,  /* .train-00000-of-00002.fshard.json: see resume.h */
    NAME_TEMPORARY, /* .train-00000-of-00002.fshard.tmp-4711-0 */
} NameKind;

/* Length of the output name that text begins with, or 0. */
static size_t output_name_bytes(const char *text)
{
    for (size_t split = 0; split < PLAN_SPLITS; split++) {
        size_t length = strlen(plan_split_names[split]);
        if (strncmp(text, plan_split_names[split], length) != 0)
            continue;
        const char *rest = text + length;
        if (strncmp(rest, ".lmdb", 5) == 0)
            return length + 5;
        static const char form[] = "-#####-of-#####.fshard";
        size_t i = 0;
        while (form[i] && (form[i] == '#' ? rest[i] >= '0' && rest[i] <= '9' : rest[i] == form[i]))
            i++;
        if (!form[i])
            return length + i;
    }
    return 0;
}

static NameKind name_kind(const char *name)
{
    if (strcmp(name, FSH_MANIFEST_NAME) == 0)
        return NAME_MANIFEST;
    if (strcmp(name, DESTINATION_PARTIAL_NAME) == 0)
        return NAME_PARTIAL;
    size_t length = output_name_bytes(name);
    if (length && name[length] == '\0')
        return NAME_OUTPUT;
    if (name[0] != '.')
        return NAME_FOREIGN;
    length = output_name_bytes(name + 1);
    if (length && strcmp(name + 1 + length, ".json") == 0)
        return NAME_PROGRESS;
    /* Temporary names: a dot, what it will be called, ".tmp-" and numbers. */
    const char *mark = strstr(name, ".tmp-");
    if (!mark)
        return NAME_FOREIGN;
    const char *base = name + strspn(name, ".");
    bool ours = output_name_bytes(base) || strncmp(base, FSH_MANIFEST_NAME, strlen(FSH_MANIFEST_NAME)) == 0;
    return ours ? NAME_TEMPORARY : NAME_FOREIGN;
}

/* ---- what is in a folder ---- */

typedef struct Contents {
    bool exists;
    bool finished;              /* dataset.json */
    bool unfinished;            /* the mark, or outputs without a manifest */
    bool outputs;               /* at least one output */
    char id[33];                /* what the mark says; "" when it says nothing */
    char foreign[NAME_MAX + 1]; /* a file that is not ours, or "" */
} Contents;

static void read_id(const char *path, char id[33])
{
    FILE *stream = fopen(path, "re");
    size_t length = 0;
    if (stream) {
        length = fread(id, 1, 32, stream);
        (void)fclose(stream);
    }
    id[length] = '\0';
}

static FshStatus look(const char *folder, Contents *contents, FshError *error)
{
    *contents = (Contents){0};
    DIR *stream = opendir(folder);
    if (!stream && errno == ENOENT)
        return FSH_OK;
    if (!stream)
        return errno == ENOTDIR
                   ? fsh_error_set(error, FSH_ERR_EXISTS, "%s: is there and is no folder", folder)
                   : fsh_error_system(error, errno, "%s: cannot open the folder", folder);
    contents->exists = true;
    FshStatus status = FSH_OK;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry) {
            if (errno)
                status = fsh_error_system(error, errno, "%s: cannot read the folder", folder);
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char path[PATH_MAX];
        switch (name_kind(entry->d_name)) {
        case NAME_MANIFEST:
            contents->finished = true;
            break;
        case NAME_PARTIAL:
            contents->unfinished = true;
            status = file_join(path, sizeof path, folder, entry->d_name, error);
            if (!status)
                read_id(path, contents->id);
            break;
        case NAME_OUTPUT:
            contents->outputs = true;
            break;
        case NAME_FOREIGN:
            (void)snprintf(contents->foreign, sizeof contents->foreign, "%s", entry->d_name);
            break;
        case NAME_PROGRESS:
        case NAME_TEMPORARY:
            break;
        }
        if (status)
            break;
    }
    (void)closedir(stream);
    contents->unfinished = !contents->finished && (contents->unfinished || contents->outputs);
    return status;
}

/* Removes a file, or a folder with files in it (an LMDB). */
static FshStatus remove_entry(const char *path, FshError *error)
{
    if (unlink(path) == 0 || errno == ENOENT)
        return FSH_OK;
    if (errno != EISDIR && errno != EPERM)
        return fsh_error_system(error, errno, "%s: cannot remove", path);
    static const char *const inside[] = {"data.mdb", "lock.mdb"};
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        char file[PATH_MAX];
        FshStatus status = file_join(file, sizeof file, path, inside[i], error);
        if (status)
            return status;
        if (unlink(file) && errno != ENOENT)
            return fsh_error_system(error, errno, "%s: cannot remove", file);
    }
    if (rmdir(path))
        return fsh_error_system(error, errno, "%s: cannot remove", path);
    return FSH_OK;
}

/* Removes the entries of the kinds in the set (bits 1 << NameKind); the manifest first, so that a stop
 * half-way leaves something that is seen to be unfinished. */
static FshStatus remove_kinds(const char *folder, unsigned kinds, FshError *error)
{
    char path[PATH_MAX];
    FshStatus status = FSH_OK;
    if (kinds & 1u << NAME_MANIFEST) {
        status = file_join(path, sizeof path, folder, FSH_MANIFEST_NAME, error);
        if (!status)
            status = remove_entry(path, error);
        if (status)
            return status;
    }
    DIR *stream = opendir(folder);
    if (!stream)
        return fsh_error_system(error, errno, "%s: cannot open the folder", folder);
    for (const struct dirent *entry = readdir(stream); entry && !status; entry = readdir(stream)) {
        NameKind kind = name_kind(entry->d_name);
        if (kind == NAME_FOREIGN || !(kinds & 1u << kind))
            continue;
        status = file_join(path, sizeof path, folder, entry->d_name, error);
        if (!status)
            status = remove_entry(path, error);
    }
    (void)closedir(stream);
    return status;
}

enum {
    KINDS_HALF_WRITTEN = 1u << NAME_TEMPORARY,
    KINDS_DATASET = 1u << NAME_MANIFEST | 1u << NAME_OUTPUT | 1u << NAME_PROGRESS | 1u << NAME_TEMPORARY,
};

FshStatus destination_clear(const Destination *destination, FshError *error)
{
    return remove_kinds(destination->folder, KINDS_DATASET, error);
}

/* ---- may we write there? ---- */

/* What stands against packing into folder. */
static FshStatus judge(const char *folder, const Contents *contents, const char *id, bool force,
                       FshError *error)
{
    if (contents->foreign[0])
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "%s: holds files that are not fpack's (%s); choose an empty or a new folder",
                             folder, contents->foreign);
    if (contents->finished && !force)
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: holds a finished dataset; --force replaces it",
                             folder);
    if (contents->unfinished && !force && strcmp(contents->id, id) != 0 &&
        (contents->id[0] || contents->outputs))
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "%s: holds an unfinished dataset of other input or options; --force starts anew",
                             folder);
    return FSH_OK;
}

/* The real path of what exists of path, the rest as given: "/data/x" for "/link/x" whose x is yet to be made.
 */
static bool resolve(const char *path, char resolved[PATH_MAX])
{
    if (realpath(path, resolved))
        return true;
    char folder[PATH_MAX];
    if ((size_t)snprintf(folder, sizeof folder, "%s", path) >= sizeof folder)
        return false;
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/')
        folder[--end] = '\0';
    char *slash = strrchr(folder, '/');
    const char *name = slash ? slash + 1 : folder;
    const char *parent = slash == folder ? "/" : slash ? folder : ".";
    char above[PATH_MAX], last[NAME_MAX + 1];
    if ((size_t)snprintf(last, sizeof last, "%s", name) >= sizeof last)
        return false;
    if (slash && slash != folder)
        *slash = '\0';
    if (strcmp(parent, ".") == 0 ? !realpath(".", above) : !resolve(parent, above))
        return false;
    return file_join(resolved, PATH_MAX, above, last, NULL) == FSH_OK;
}

static FshStatus find_target(const char *path, const char *source, char target[PATH_MAX], FshError *error)
{
    char source_path[PATH_MAX];
    if (!realpath(source, source_path))
        return fsh_error_system(error, errno, "%s", source);
    if (!resolve(path, target))
        return fsh_error_system(error, errno ? errno : ENAMETOOLONG, "%s", path);
    size_t length = strlen(source_path);
    if (strncmp(target, source_path, length) == 0 && (target[length] == '/' || target[length] == '\0'))
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s: lies in the source %s, where it would be taken for a class; choose a folder outside", path,
            source);
    return FSH_OK;
}

FshStatus destination_check(const char *path, const char *source, const char *id, bool force, FshError *error)
{
    char target[PATH_MAX];
    Contents contents;
    FshStatus status = find_target(path, source, target, error);
    if (!status)
        status = look(target, &contents, error);
    return status ? status : judge(path, &contents, id, force, error);
}

/* ---- opening ---- */

/* Takes the lock on .fpack-unfinished. Whoever finishes removes that file, so a lock counts only if the name
 * still leads to the file that was locked. */
static FshStatus take_lock(Destination *destination, FshError *error)
{
    for (;;) {
        int descriptor = open(destination->partial, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (descriptor < 0)
            return fsh_error_system(error, errno, "%s: cannot create", destination->partial);
        struct stat locked, named;
        /* File systems without locks answer otherwise than EWOULDBLOCK: there nothing guards against two
         * writers. */
        if (flock(descriptor, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
            (void)close(descriptor);
            return fsh_error_set(error, FSH_ERR_EXISTS, "%s: another fpack is writing there",
                                 destination->target);
        }
        if (fstat(descriptor, &locked) == 0 && stat(destination->partial, &named) == 0 &&
            locked.st_dev == named.st_dev && locked.st_ino == named.st_ino) {
            destination->lock = descriptor;
            return FSH_OK;
        }
        (void)close(descriptor);
    }
}

static FshStatus write_id(const Destination *destination, const char *id, FshError *error)
{
    char line[40];
    int length = snprintf(line, sizeof line, "%s\n", id);
    errno = 0;
    if (ftruncate(destination->lock, 0) || pwrite(destination->lock, line, (size_t)length, 0) != length ||
        fsync(destination->lock))
        return fsh_error_system(error, errno ? errno : ENOSPC, "%s: cannot write", destination->partial);
    return FSH_OK;
}

/* PARENT/.NAME.fpack-new, which must be on the same file system as the target. */
static FshStatus choose_sibling(Destination *destination, FshError *error)
{
    const char *target = destination->target;
    const char *slash = strrchr(target, '/');
    struct stat own, parent;
    int length = snprintf(destination->folder, sizeof destination->folder, "%.*s/.%s.fpack-new",
                          (int)(slash - target), target, slash + 1);
    if (length < 0 || (size_t)length >= sizeof destination->folder)
        return fsh_error_system(error, ENAMETOOLONG, "%s", target);
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

FshStatus destination_open(Destination *destination, const char *path, const char *source, const char *id,
                           bool force, FshError *error)
{
    *destination = (Destination){.lock = -1};
    Contents contents;
    FshStatus status = find_target(path, source, destination->target, error);
    if (!status)
        status = look(destination->target, &contents, error);
    if (!status)
        status = judge(path, &contents, id, force, error);
    if (status)
        return status;
    memcpy(destination->folder, destination->target, sizeof destination->folder);
    if (contents.finished) {
        status = choose_sibling(destination, error);
        if (!status)
            status = look(destination->folder, &contents, error);
        if (!status)
            status = judge(destination->folder, &contents, id, force, error);
    }
    if (!status && !contents.exists) {
        status = file_make_folders(destination->folder, error);
        destination->made_folder = !status;
    }
    if (!status)
        status = file_join(destination->partial, sizeof destination->partial, destination->folder,
                           DESTINATION_PARTIAL_NAME, error);
    if (!status)
        status = take_lock(destination, error);
    if (status)
        goto failed;

    /* Again, now that nobody else can write: what was seen before may have been another run's last moment. */
    status = look(destination->folder, &contents, error);
    if (!status)
        status = judge(path, &contents, id, force, error);
    if (status)
        goto failed;
    destination->resumes = !contents.finished && strcmp(contents.id, id) == 0;
    status =
        remove_kinds(destination->folder, destination->resumes ? KINDS_HALF_WRITTEN : KINDS_DATASET, error);
    if (!status)
        status = write_id(destination, id, error);
    if (!status)
        return FSH_OK;
failed:
    destination_close(destination);
    return status;
}

/* ---- closing ---- */

void destination_close(Destination *destination)
{
    Contents contents;
    if (destination->lock >= 0) {
        /* Nothing complete: nothing to resume from, so no trace either. */
        if (look(destination->folder, &contents, NULL) == FSH_OK && !contents.outputs && !contents.finished)
            (void)unlink(destination->partial);
        (void)close(destination->lock);
    }
    if (destination->made_folder)
        (void)rmdir(destination->folder); /* fails where something is in it, as it should */
    destination->lock = -1;
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

/* Puts folder in target's place and removes what was there. */
static FshStatus exchange(const Destination *destination, FshError *error)
{
    const char *folder = destination->folder, *target = destination->target;
    char old[PATH_MAX];
    if ((size_t)snprintf(old, sizeof old, "%s-old", folder) >= sizeof old)
        return fsh_error_system(error, ENAMETOOLONG, "%s", folder);
    if (renameat2(AT_FDCWD, folder, AT_FDCWD, target, RENAME_EXCHANGE) == 0) {
        memcpy(old, folder, sizeof old);
    } else if (errno != EINVAL && errno != ENOSYS) {
        return fsh_error_system(error, errno, "%s: cannot be put in the place of %s", folder, target);
    } else {
        if (rename(target, old) || rename(folder, target))
            return fsh_error_system(error, errno, "%s: cannot be put in the place of %s", folder, target);
    }
    FshStatus status = remove_kinds(old, KINDS_DATASET | 1u << NAME_PARTIAL, error);
    if (!status && rmdir(old))
        status = fsh_error_system(error, errno, "%s: cannot remove what was replaced", old);
    return status;
}

FshStatus destination_finish(Destination *destination, FshError *error)
{
    FshStatus status = remove_kinds(destination->folder, 1u << NAME_PROGRESS | 1u << NAME_TEMPORARY, error);
    if (!status && unlink(destination->partial) && errno != ENOENT)
        status = fsh_error_system(error, errno, "%s: cannot remove", destination->partial);
    if (!status)
        status = sync_folder(destination->folder, error);
    if (!status && destination->replaces)
        status = exchange(destination, error);
    destination->made_folder = false;
    destination_close(destination);
    return status;
}
