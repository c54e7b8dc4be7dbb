#include "tests/support/support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"

/* ---- a folder for one test ---- */

void test_folder_make(TestFolder *folder)
{
    const char *temporary = getenv("TMPDIR");
    const char *candidates[] = {"/dev/shm", temporary ? temporary : "/tmp", "/tmp"};
    *folder = (TestFolder){0};
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        char path[sizeof folder->path];
        int length = snprintf(path, sizeof path, "%s/fshard-test-XXXXXX", candidates[i]);
        if (length > 0 && (size_t)length < sizeof path && mkdtemp(path)) {
            memcpy(folder->path, path, sizeof path);
            return;
        }
    }
    fail_msg("no folder for the test: neither /dev/shm nor TMPDIR nor /tmp can be written: %s",
             strerror(errno));
}

static void remove_tree(const char *path)
{
    struct stat status;
    if (lstat(path, &status))
        return;
    if (S_ISDIR(status.st_mode)) {
        (void)chmod(path, 0700);
        DIR *entries = opendir(path);
        struct dirent *entry = NULL;
        while (entries && (entry = readdir(entries))) {
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            char *below = NULL;
            if (asprintf(&below, "%s/%s", path, entry->d_name) < 0)
                continue;
            remove_tree(below);
            free(below);
        }
        if (entries)
            (void)closedir(entries);
    }
    (void)remove(path);
}

void test_folder_remove(TestFolder *folder)
{
    remove_tree(folder->path);
    for (size_t i = 0; i < folder->path_count; i++)
        free(folder->paths[i]);
    free(folder->paths);
    struct stat status;
    if (lstat(folder->path, &status) == 0)
        fail_msg("%s: cannot be removed", folder->path);
    *folder = (TestFolder){0};
}

int test_folder_setup(void **state)
{
    TestFolder *folder = malloc(sizeof *folder);
    if (!folder)
        return -1;
    test_folder_make(folder);
    *state = folder;
    return 0;
}

int test_folder_teardown(void **state)
{
    test_folder_remove(*state);
    free(*state);
    return 0;
}

const char *test_path(TestFolder *folder, const char *format, ...)
{
    char name[PATH_MAX], *path = NULL;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    char **paths = realloc(folder->paths, (folder->path_count + 1) * sizeof *paths);
    if (paths)
        folder->paths = paths;
    if (!paths || asprintf(&path, "%s/%s", folder->path, name) < 0) {
        fail_msg("out of memory");
        return NULL; /* fail_msg does not come back, but no header says so */
    }
    folder->paths[folder->path_count++] = path;
    return path;
}

/* ---- files ---- */

void test_assert_ok(FshStatus status, const FshError *error, const char *file, int line)
{
    if (status == FSH_OK)
        return;
    print_error("%s: %s\n", fsh_strerror(status), error ? error->message : "");
    _fail(file, line);
}

void test_assert_contains(const char *text, const char *part, bool expected, const char *file, int line)
{
    if ((strstr(text, part) != NULL) == expected)
        return;
    (void)fprintf(stderr, "%s\n--- %s ---\n%s\n", text, expected ? "does not have" : "has",
                  part); /* cmocka's print_error cuts it at 1 KiB */
    _fail(file, line);
}

void test_file_write(const char *path, const void *bytes, size_t length)
{
    FshError error = {0};
    assert_ok(file_make_parent_folders(path, &error), &error);
    assert_ok(file_write_atomic(path, bytes, length, true, false, &error), &error);
}

void test_file_write_text(const char *path, const char *text)
{
    test_file_write(path, text, strlen(text));
}

char *test_file_read(const char *path, size_t *length_ret)
{
    FshError error = {0};
    Buffer buffer = {0};
    assert_ok(file_read(path, &buffer, &error), &error);
    assert_ok(buffer_append(&buffer, "", 1, &error), &error);
    if (length_ret)
        *length_ret = buffer.length - 1;
    return (char *)buffer.bytes;
}

void test_file_copy(const char *from, const char *to)
{
    size_t length = 0;
    char *bytes = test_file_read(from, &length);
    test_file_write(to, bytes, length);
    free(bytes);
}

uint64_t test_file_size(const char *path)
{
    struct stat status;
    if (stat(path, &status))
        fail_msg("%s: %s", path, strerror(errno));
    return (uint64_t)status.st_size;
}

void test_file_flip_byte(const char *path, int64_t offset)
{
    int64_t size = (int64_t)test_file_size(path);
    int64_t at = offset < 0 ? size + offset : offset;
    if (at < 0 || at >= size)
        fail_msg("%s: no byte %lld in %lld bytes", path, (long long)offset, (long long)size);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte = 0;
    bool flipped = descriptor >= 0 && pread(descriptor, &byte, 1, at) == 1;
    byte ^= 0xFF;
    flipped = flipped && pwrite(descriptor, &byte, 1, at) == 1;
    if (descriptor >= 0)
        (void)close(descriptor);
    if (!flipped)
        fail_msg("%s: cannot flip byte %lld", path, (long long)at);
}

void test_file_truncate(const char *path, int64_t length)
{
    int64_t size = (int64_t)test_file_size(path);
    int64_t kept = length < 0 ? size + length : length;
    if (kept < 0 || kept > size)
        fail_msg("%s: cannot cut %lld bytes to %lld", path, (long long)size, (long long)length);
    if (truncate(path, kept))
        fail_msg("%s: cannot cut: %s", path, strerror(errno));
}

/* ---- trees ---- */

static int keep_entry(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

/* Lists the names of a folder, sorted, in *entries_ret; returns their number. The caller frees names and
 * array. */
static int list_names(const char *path, struct dirent ***entries_ret)
{
    int count = scandir(path, entries_ret, keep_entry, alphasort);
    if (count < 0)
        fail_msg("%s: cannot list: %s", path, strerror(errno));
    return count;
}

static void free_names(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

uint64_t test_count_files(const char *path)
{
    struct stat status;
    if (lstat(path, &status))
        return 0;
    if (!S_ISDIR(status.st_mode))
        return 1;
    uint64_t files = 0;
    struct dirent **entries = NULL;
    int count = list_names(path, &entries);
    for (int i = 0; i < count; i++) {
        char below[PATH_MAX];
        (void)snprintf(below, sizeof below, "%s/%s", path, entries[i]->d_name);
        files += test_count_files(below);
    }
    free_names(entries, count);
    return files;
}

static char *describe(const char *format, ...) FSH_PRINTF(1, 2);
static char *describe(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    if (!text)
        fail_msg("out of memory");
    return text;
}

static char *file_difference(const char *a, const char *b)
{
    size_t a_length = 0, b_length = 0;
    char *a_bytes = test_file_read(a, &a_length), *b_bytes = test_file_read(b, &b_length);
    size_t at = 0;
    while (at < a_length && at < b_length && a_bytes[at] == b_bytes[at])
        at++;
    char *difference = NULL;
    if (a_length != b_length)
        difference =
            describe("%s has %zu bytes, %s has %zu; they part at byte %zu", a, a_length, b, b_length, at);
    else if (at < a_length)
        difference = describe("%s and %s differ at byte %zu of %zu", a, b, at, a_length);
    free(a_bytes);
    free(b_bytes);
    return difference;
}

static char *link_difference(const char *a, const char *b)
{
    char a_target[PATH_MAX] = "", b_target[PATH_MAX] = "";
    (void)!readlink(a, a_target, sizeof a_target - 1);
    (void)!readlink(b, b_target, sizeof b_target - 1);
    return strcmp(a_target, b_target) == 0 ? NULL
                                           : describe("%s leads to %s, %s to %s", a, a_target, b, b_target);
}

static char *folder_difference(const char *a, const char *b)
{
    struct dirent **a_entries = NULL, **b_entries = NULL;
    int a_count = list_names(a, &a_entries), b_count = list_names(b, &b_entries);
    char *difference = NULL;
    for (int i = 0; !difference && (i < a_count || i < b_count); i++) {
        int order = i >= a_count ? 1 : i >= b_count ? -1 : strcmp(a_entries[i]->d_name, b_entries[i]->d_name);
        if (order) {
            difference = order < 0 ? describe("%s/%s is not in %s", a, a_entries[i]->d_name, b)
                                   : describe("%s/%s is not in %s", b, b_entries[i]->d_name, a);
            break;
        }
        char *below_a = describe("%s/%s", a, a_entries[i]->d_name);
        char *below_b = describe("%s/%s", b, b_entries[i]->d_name);
        difference = test_tree_difference(below_a, below_b);
        free(below_a);
        free(below_b);
    }
    free_names(a_entries, a_count);
    free_names(b_entries, b_count);
    return difference;
}

char *test_tree_difference(const char *a, const char *b)
{
    struct stat a_status, b_status;
    if (lstat(a, &a_status))
        return describe("%s is not there", a);
    if (lstat(b, &b_status))
        return describe("%s is not there", b);
    if ((a_status.st_mode & S_IFMT) != (b_status.st_mode & S_IFMT))
        return describe("%s and %s are not of one kind", a, b);
    if (S_ISDIR(a_status.st_mode))
        return folder_difference(a, b);
    if (S_ISLNK(a_status.st_mode))
        return link_difference(a, b);
    return S_ISREG(a_status.st_mode) ? file_difference(a, b) : NULL;
}

/* ---- permissions ---- */

bool test_bind_to_permissions(void)
{
    if (geteuid() != 0)
        return true;
    static const unsigned dropped[] = {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH};
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, data))
        return false;
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++) {
        /* The bounding set, or programs that we start would get them back. */
        if (prctl(PR_CAPBSET_DROP, dropped[i], 0, 0, 0))
            return false;
        data[0].effective &= ~(1U << dropped[i]);
        data[0].permitted &= ~(1U << dropped[i]);
        data[0].inheritable &= ~(1U << dropped[i]);
    }
    return syscall(SYS_capset, &header, data) == 0;
}

/* ---- pixels ---- */

void test_fill_gradient(uint8_t *rgb, size_t width, size_t height, uint32_t seed)
{
    /* Waves of a few periods over the image, in integers so that no machine rounds otherwise: a triangle in
     * 0..255. */
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++)
            for (size_t channel = 0; channel < 3; channel++) {
                size_t along =
                    x * 510 * (1 + channel) / width + y * 510 * (3 - channel) / height + 37 * (size_t)seed;
                size_t phase = along % 510;
                rgb[(y * width + x) * 3 + channel] = (uint8_t)(phase < 256 ? phase : 510 - phase);
            }
}

void test_fill_noise(uint8_t *rgb, size_t width, size_t height, uint32_t seed)
{
    uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1; /* of xorshift64, never 0 */
    for (size_t i = 0; i < width * height * 3; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        rgb[i] = (uint8_t)(state >> 32);
    }
}
