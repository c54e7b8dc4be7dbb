/* bad_disk.c - a disk that cannot read, for one process: LD_PRELOAD of
 * build/tests/libfshard-test-bad-disk.so.
 *
 * FSHARD_BAD_DISK is a list of rules with ';' between them, each "END:WHAT:…", for every path that ends so:
 *   END:pages:OFFSET:BYTES:FROM   the pages of these bytes cannot be read through mappings, from the file's
 *                                 FROM-th mapping on (1: all of them); touching one is SIGBUS, and EFAULT in
 *                                 a system call, as on a disk that fails
 *   END:cut:LENGTH:FROM           the file is cut to LENGTH bytes after its FROM-th mapping
 *   END:open:ERRNO                it cannot be opened
 *   END:read:ERRNO                it can, and not be read
 *   END:list:ERRNO                the folder can be opened, and not be listed
 *   END:stat:ERRNO                nothing is told of it */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REPLACES __attribute__((visibility("default")))

/* ISO C knows no conversion of an object's address to a function's; POSIX promises it for dlsym. */
#define NEXT(type, name) (*(type *)&(void *){dlsym(RTLD_NEXT, name)})

/* The C library's headers name their parameters "__fd". */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */

enum { RULES = 8, NUMBERS = 3 };

typedef struct Rule {
    char end[256], what[16];
    long long numbers[NUMBERS];
    atomic_llong mappings; /* so far */
} Rule;

static Rule rules[RULES];
static size_t rule_count;

__attribute__((constructor)) static void read_rules(void)
{
    const char *text = getenv("FSHARD_BAD_DISK");
    while (text && *text && rule_count < RULES) {
        Rule *rule = &rules[rule_count++];
        if (sscanf(text, "%255[^:]:%15[^:]:%lld:%lld:%lld", rule->end, rule->what, &rule->numbers[0],
                   &rule->numbers[1], &rule->numbers[2]) < 3)
            abort();
        text = strchr(text, ';');
        text = text ? text + 1 : NULL;
    }
}

static bool ends_with(const char *path, const char *end)
{
    const size_t length = strlen(path), end_length = strlen(end);
    return length >= end_length && strcmp(path + length - end_length, end) == 0;
}

static Rule *rule_for(const char *path, const char *what)
{
    for (size_t i = 0; path && i < rule_count; i++) {
        if (strcmp(rules[i].what, what) == 0 && ends_with(path, rules[i].end))
            return &rules[i];
    }
    return NULL;
}

static const char *path_of(int descriptor, char path[PATH_MAX])
{
    char link[64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t length = rule_count && descriptor >= 0 ? readlink(link, path, PATH_MAX - 1) : -1;
    if (length < 0)
        return NULL;
    path[length] = '\0';
    return path;
}

/* Returns whether the call is to fail, with errno set if so. */
static bool fails(const char *path, const char *what)
{
    const Rule *rule = rule_for(path, what);
    if (rule)
        errno = (int)rule->numbers[0];
    return rule;
}

/* ---- mappings ---- */

/* Maps an empty file in place of the pages, so that touching them is SIGBUS. */
static void spoil(uint8_t *bytes, size_t length, long long offset, long long count)
{
    const long page = sysconf(_SC_PAGESIZE);
    const size_t begin = (size_t)(offset / page * page);
    size_t end = (size_t)((offset + count + page - 1) / page * page);
    end = end < length ? end : (length + (size_t)page - 1) / (size_t)page * (size_t)page;
    const int empty = (int)syscall(SYS_memfd_create, "empty", 0);
    if (begin < end && empty >= 0)
        (void)syscall(SYS_mmap, bytes + begin, end - begin, PROT_READ, MAP_SHARED | MAP_FIXED, empty, 0);
    (void)syscall(SYS_close, empty);
}

REPLACES void *mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset)
{
    char path[PATH_MAX];
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): that is how the call gives it */
    void *bytes = (void *)syscall(SYS_mmap, address, length, protection, flags, descriptor, offset);
    const char *name = bytes != MAP_FAILED && !(flags & MAP_ANONYMOUS) ? path_of(descriptor, path) : NULL;
    Rule *pages = rule_for(name, "pages"), *cut = rule_for(name, "cut");
    if (pages && atomic_fetch_add(&pages->mappings, 1) + 1 >= pages->numbers[2])
        spoil(bytes, length, pages->numbers[0], pages->numbers[1]);
    if (name && cut && atomic_fetch_add(&cut->mappings, 1) + 1 == cut->numbers[1] &&
        truncate(name, (off_t)cut->numbers[0]))
        abort();
    return bytes;
}

REPLACES void *mmap64(void *address, size_t length, int protection, int flags, int descriptor, off64_t offset)
{
    return mmap(address, length, protection, flags, descriptor, offset);
}

/* ---- calls ---- */

REPLACES int openat(int folder, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return fails(path, "open") ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode);
}

REPLACES int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return openat(AT_FDCWD, path, flags, mode);
}

REPLACES ssize_t read(int descriptor, void *bytes, size_t length)
{
    char path[PATH_MAX];
    return fails(path_of(descriptor, path), "read") ? -1 : syscall(SYS_read, descriptor, bytes, length);
}

typedef FILE *(*OpenFile)(const char *path, const char *mode);
typedef DIR *(*OpenFolder)(const char *path);
typedef struct dirent *(*ReadFolder)(DIR *folder);
typedef int (*Stat)(const char *path, struct stat *status);
typedef int (*StatAt)(int folder, const char *path, struct stat *status, int flags);

REPLACES FILE *fopen(const char *path, const char *mode)
{
    return fails(path, "open") ? NULL : NEXT(OpenFile, "fopen")(path, mode);
}

REPLACES DIR *opendir(const char *path)
{
    return fails(path, "open") ? NULL : NEXT(OpenFolder, "opendir")(path);
}

REPLACES struct dirent *readdir(DIR *folder)
{
    char path[PATH_MAX];
    return fails(path_of(dirfd(folder), path), "list") ? NULL : NEXT(ReadFolder, "readdir")(folder);
}

REPLACES int stat(const char *path, struct stat *status)
{
    return fails(path, "stat") ? -1 : NEXT(Stat, "stat")(path, status);
}

REPLACES int lstat(const char *path, struct stat *status)
{
    return fails(path, "stat") ? -1 : NEXT(Stat, "lstat")(path, status);
}

REPLACES int fstatat(int folder, const char *path, struct stat *status, int flags)
{
    return fails(path, "stat") ? -1 : NEXT(StatAt, "fstatat")(folder, path, status, flags);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
