#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/seal.h"
#include "tests/fuzz/fuzz.h"

void(fuzz_expect)(bool holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "fuzz: does not hold: %s\n", what);
    abort();
}

void fuzz_expect_ok(FshStatus status, const FshError *error, const char *what)
{
    if (!status)
        return;
    (void)fprintf(stderr, "fuzz: %s: %s: %s\n", what, fsh_strerror(status), error->message);
    abort();
}

void fuzz_touch(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    uint8_t sum = 0;
    for (size_t i = 0; i < length; i++)
        sum = (uint8_t)(sum + at[i]);
    volatile uint8_t seen = sum; /* a sum that nobody wants would not be made */
    (void)seen;
}

/* Ends the run with its reason unless `done`: a machine without room for the input is no find. */
static void need(bool done, const char *what)
{
    if (done)
        return;
    (void)fprintf(stderr, "fuzz: %s: %s\n", what, strerror(errno));
    _exit(3);
}

static void write_all(int descriptor, const uint8_t *bytes, size_t length)
{
    while (length) {
        ssize_t written = write(descriptor, bytes, length);
        need(written > 0, "cannot write the input");
        bytes += written;
        length -= (size_t)written;
    }
}

FuzzFile fuzz_file_open(const uint8_t *bytes, size_t length)
{
    FuzzFile file = {.descriptor = memfd_create("input", MFD_CLOEXEC)};
    need(file.descriptor >= 0, "memfd_create");
    write_all(file.descriptor, bytes, length);
    (void)snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.descriptor);
    return file;
}

void fuzz_file_close(FuzzFile *file)
{
    (void)close(file->descriptor);
    file->descriptor = -1;
}

FuzzFolder fuzz_folder_open(const char *name, const uint8_t *bytes, size_t length)
{
    FuzzFolder folder;
    const char *root = getenv("TMPDIR");
    if (access("/dev/shm", W_OK) == 0)
        root = "/dev/shm";
    int fits = snprintf(folder.path, sizeof folder.path, "%s/fshard-fuzz-XXXXXX", root ? root : "/tmp");
    need(fits > 0 && (size_t)fits < sizeof folder.path && mkdtemp(folder.path), "mkdtemp");
    (void)snprintf(folder.file, sizeof folder.file, "%s/%s", folder.path, name);
    int descriptor = open(folder.file, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    need(descriptor >= 0, folder.file);
    write_all(descriptor, bytes, length);
    (void)close(descriptor);
    return folder;
}

void fuzz_folder_seal(const FuzzFolder *folder, const uint8_t *bytes, size_t length)
{
    json_t *object = json_loadb((const char *)bytes, length, 0, NULL);
    if (json_is_object(object))
        (void)seal_write(folder->file, object, JSON_COMPACT, NULL);
    json_decref(object);
}

void fuzz_folder_empty(const FuzzFolder *folder, const char *name)
{
    char path[2 * sizeof folder->path];
    (void)snprintf(path, sizeof path, "%s/%s", folder->path, name);
    (void)unlink(path);
}

/* Removes the folder with the input and all that the readers wrote beside it. */
void fuzz_folder_close(FuzzFolder *folder)
{
    DIR *files = opendir(folder->path);
    const struct dirent *file;
    while (files && (file = readdir(files)))
        (void)unlinkat(dirfd(files), file->d_name, 0); /* "." and ".." stay: they are folders */
    if (files)
        (void)closedir(files);
    (void)rmdir(folder->path);
    *folder = (FuzzFolder){{0}, {0}};
}
