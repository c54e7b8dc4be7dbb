#include "tools/resize/resize_output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/interrupt.h"

FshStatus output_write(const char *path, const void *bytes, size_t length, int64_t modified_ns,
                       FshError *error)
{
    AtomicFile file;
    FshStatus status = atomic_file_open(&file, path, true, error);
    if (status == FSH_ERR_NOT_FOUND) { /* the first image of its folder */
        status = file_make_parent_folders(path, error);
        if (!status)
            status = atomic_file_open(&file, path, true, error);
    }
    if (status)
        return status;
    status = atomic_file_write(&file, bytes, length, error);
    const struct timespec modified = file_time_of_ns(modified_ns);
    const struct timespec times[2] = {modified, modified};
    if (!status && futimens(file.descriptor, times))
        status = fsh_error_system(error, errno, "%s: cannot set its time", path);
    /* A sync for each image would take longer than the image. */
    if (!status)
        status = atomic_file_commit(&file, false, error);
    atomic_file_abandon(&file);
    return status;
}

/* Gives source the name path too, where source is a symbolic link the file it leads to. Returns 0 or errno.
 */
static int link_file(const char *source, const char *path)
{
    return linkat(AT_FDCWD, source, AT_FDCWD, path, AT_SYMLINK_FOLLOW) ? errno : 0;
}

FshStatus output_link(const char *source, const char *path, bool *linked_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    int failure = link_file(source, path);
    if (failure == ENOENT) {
        status = file_make_parent_folders(path, error);
        failure = status ? 0 : link_file(source, path);
    }
    if (failure == EEXIST) { /* of an earlier run; a kill here leaves no file, and the next run makes it */
        failure = unlink(path) ? errno : link_file(source, path);
    }
    *linked_ret = !status && !failure;
    if (failure && failure != EXDEV && failure != EMLINK && failure != EPERM && failure != EACCES &&
        failure != EOPNOTSUPP && failure != ENOSYS)
        status = fsh_error_system(error, failure, "%s: cannot become a link of %s", path, source);
    return status;
}

/* Looks at the folder that a path lies in. Returns false where it cannot be looked at. */
static bool stat_folder(const char *path, struct stat *status)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash ? snprintf(folder, sizeof folder, "%.*s", (int)(slash + 1 - path), path)
                       : snprintf(folder, sizeof folder, ".");
    return length > 0 && (size_t)length < sizeof folder && stat(folder, status) == 0;
}

bool output_is_beside(const char *source, const char *path)
{
    struct stat from, to;
    return stat_folder(source, &from) && stat_folder(path, &to) && from.st_dev == to.st_dev &&
           from.st_ino == to.st_ino;
}

static bool is_real_folder(DIR *folder, const struct dirent *entry)
{
    struct stat status;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
        return false;
    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(status.st_mode);
}

/* Removes temporary files below path, which is one buffer for all levels, and is as it was afterwards. */
static void remove_leftovers(char path[PATH_MAX])
{
    const size_t length = strlen(path);
    (void)file_remove_stale_temporaries(path);
    DIR *folder = opendir(path);
    for (const struct dirent *entry = folder ? readdir(folder) : NULL; entry && !interrupt_requested();
         entry = readdir(folder)) {
        if (!is_real_folder(folder, entry) || length + 1 + strlen(entry->d_name) >= PATH_MAX)
            continue;
        (void)snprintf(path + length, PATH_MAX - length, "/%s", entry->d_name);
        remove_leftovers(path);
        path[length] = '\0';
    }
    if (folder)
        (void)closedir(folder);
}

void output_remove_leftovers(const char *folder)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s", folder) < (int)sizeof path)
        remove_leftovers(path);
}

FshStatus output_finish_tar(const char *temporary_path, const char *path, FshError *error)
{
    if (rename(temporary_path, path))
        return fsh_error_system(error, errno, "%s: cannot get its name from %s", path, temporary_path);
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash + 1 - path) : 1, slash ? path : ".");
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) { /* the name survives a power cut where the file system can see to it */
        (void)fsync(descriptor);
        (void)close(descriptor);
    }
    return FSH_OK;
}
