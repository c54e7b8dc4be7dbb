/* The tools that tests lean on: a tool that says "equal" too easily makes every test that uses it worthless.
 */
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- trees and files ---- */

static void make_tree(TestFolder *folder, const char *name)
{
    test_file_write_text(test_path(folder, "%s/a/x.jpg", name), "xxxx");
    test_file_write_text(test_path(folder, "%s/a/.hidden", name), "h");
    test_file_write_text(test_path(folder, "%s/b.jpg", name), "");
    assert_int_equal(symlink("b.jpg", test_path(folder, "%s/link", name)), 0);
}

static void assert_differ(TestFolder *folder, const char *words)
{
    char *there = test_tree_difference(test_path(folder, "one"), test_path(folder, "two"));
    char *back = test_tree_difference(test_path(folder, "two"), test_path(folder, "one"));
    assert_non_null(there);
    assert_non_null(back);
    assert_contains(there, words);
    free(there);
    free(back);
}

TEST_IN_FOLDER(test_tree_difference_sees_every_difference, folder)
{
    make_tree(folder, "one");
    make_tree(folder, "two");
    char *difference = test_tree_difference(test_path(folder, "one"), test_path(folder, "two"));
    assert_null(difference);
    assert_int_equal(test_count_files(test_path(folder, "one")), 4);
    assert_int_equal(test_count_files(test_path(folder, "missing")), 0);

    const char *x = test_path(folder, "two/a/x.jpg");
    test_file_flip_byte(x, 2);
    assert_differ(folder, "differ at byte 2 of 4");
    test_file_flip_byte(x, -2);
    test_file_truncate(x, -1);
    assert_int_equal(test_file_size(x), 3);
    assert_differ(folder, "has 3; they part at byte 3");
    test_file_write_text(x, "xxxx");
    test_file_write_text(test_path(folder, "two/c"), "");
    assert_differ(folder, "two/c is not in");
    assert_int_equal(unlink(test_path(folder, "two/c")), 0);
    assert_int_equal(unlink(test_path(folder, "two/a/.hidden")), 0);
    assert_differ(folder, "one/a/.hidden is not in");
    test_file_write_text(test_path(folder, "two/a/.hidden"), "h");
    assert_int_equal(unlink(test_path(folder, "two/link")), 0);
    assert_int_equal(symlink("a", test_path(folder, "two/link")), 0);
    assert_differ(folder, "leads to b.jpg");
    assert_int_equal(unlink(test_path(folder, "two/link")), 0);
    test_file_write_text(test_path(folder, "two/link"), "");
    assert_differ(folder, "are not of one kind");
}

TEST(test_a_folder_without_permissions_is_removed_too)
{
    TestFolder folder;
    test_folder_make(&folder);
    test_file_write_text(test_path(&folder, "a/b/c"), "x");
    assert_int_equal(chmod(test_path(&folder, "a/b"), 0), 0);
    assert_int_equal(chmod(test_path(&folder, "a"), 0), 0);
    char path[sizeof folder.path];
    memcpy(path, folder.path, sizeof path);
    test_folder_remove(&folder);
    struct stat status;
    assert_int_equal(lstat(path, &status), -1);
}

TEST(test_pixels_are_the_same_everywhere)
{
    uint8_t gradient[7 * 5 * 3], again[7 * 5 * 3], noise[3 * 3 * 3];
    test_fill_gradient(gradient, 7, 5, 1);
    test_fill_gradient(again, 7, 5, 1);
    assert_memory_equal(gradient, again, sizeof gradient);
    test_fill_gradient(again, 7, 5, 2);
    assert_memory_not_equal(gradient, again, sizeof gradient);
    test_fill_noise(noise, 3, 3, 1);
    /* Values, so that golden files made from them stay valid. */
    static const uint8_t first_of_gradient[6] = {37, 37, 37, 109, 182, 255};
    static const uint8_t first_of_noise[6] = {174, 179, 228, 43, 134, 75};
    assert_memory_equal(gradient, first_of_gradient, 6);
    assert_memory_equal(noise, first_of_noise, 6);
}

/* ---- programs ---- */

TEST_IN_FOLDER(test_programs_are_captured, folder)
{
    const char *const environment[] = {"FSHARD_TEST_WORD=two words", "PATH=/usr/bin:/bin", NULL};
    const RunOptions options = {.environment = environment, .folder = folder->path};
    RunResult result =
        run_program(&options, "/bin/sh", "-c",
                    "echo \"$FSHARD_TEST_WORD\"; pwd; echo \"$0\" >&2; cat; exit 7", "an argument", NULL);
    char expected[PATH_MAX];
    (void)snprintf(expected, sizeof expected, "two words\n%s\n", folder->path);
    assert_string_equal(result.out, expected);
    assert_string_equal(result.err, "an argument\n");
    assert_int_equal(result.exit_status, 7);
    run_result_free(&result);

    result = run_program(NULL, "/bin/sh", "-c", "head -c 300000 /dev/zero; kill -TERM $$", NULL);
    assert_int_equal(result.out_bytes, 300000);
    assert_int_equal(result.exit_status, 128 + SIGTERM);
    run_result_free(&result);
}

/* ---- the full disk: this program runs itself as the one that writes ---- */

enum { LIMIT = 10000 };

static ssize_t by_write(int descriptor, const char *bytes, size_t length)
{
    return write(descriptor, bytes, length);
}

static ssize_t by_writev(int descriptor, const char *bytes, size_t length)
{
    struct iovec parts[2] = {{(void *)bytes, length / 2},
                             {(void *)(bytes + length / 2), length - length / 2}};
    return writev(descriptor, parts, 2);
}

static ssize_t by_pwrite(int descriptor, const char *bytes, size_t length)
{
    return pwrite(descriptor, bytes, length, lseek(descriptor, (off_t)length, SEEK_CUR) - (off_t)length);
}

static ssize_t by_pwritev(int descriptor, const char *bytes, size_t length)
{
    struct iovec part = {(void *)bytes, length};
    return pwritev(descriptor, &part, 1, lseek(descriptor, (off_t)length, SEEK_CUR) - (off_t)length);
}

static ssize_t by_ftruncate(int descriptor, const char *bytes, size_t length)
{
    (void)bytes;
    struct stat status;
    return fstat(descriptor, &status) || ftruncate(descriptor, status.st_size + (off_t)length)
               ? -1
               : (ssize_t)length;
}

static ssize_t by_posix_fallocate(int descriptor, const char *bytes, size_t length)
{
    (void)bytes;
    struct stat status;
    if (fstat(descriptor, &status))
        return -1;
    errno = posix_fallocate(descriptor, status.st_size, (off_t)length);
    return errno ? -1 : (ssize_t)length;
}

/* Both copy from this program's own file. */
static ssize_t by_sendfile(int descriptor, const char *bytes, size_t length)
{
    (void)bytes;
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ssize_t sent = from < 0 ? -1 : sendfile(descriptor, from, NULL, length);
    int kept = errno;
    (void)close(from);
    errno = kept;
    return sent;
}

static ssize_t by_copy_file_range(int descriptor, const char *bytes, size_t length)
{
    (void)bytes;
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ssize_t copied = from < 0 ? -1 : copy_file_range(from, NULL, descriptor, NULL, length, 0);
    int kept = errno;
    (void)close(from);
    errno = kept;
    /* Between file systems of two kinds there is no copying; the disk is not full then. */
    if (copied < 0 && (kept == EXDEV || kept == ENOSYS || kept == EOPNOTSUPP || kept == EINVAL))
        return write(descriptor, bytes, length);
    return copied;
}

static const struct Way {
    const char *name;
    ssize_t (*append)(int descriptor, const char *bytes, size_t length);
} ways[] = {
    {"write", by_write},         {"writev", by_writev},
    {"pwrite", by_pwrite},       {"pwritev", by_pwritev},
    {"ftruncate", by_ftruncate}, {"posix_fallocate", by_posix_fallocate},
    {"sendfile", by_sendfile},   {"copy_file_range", by_copy_file_range},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* Appends to path until that fails or the file is five times as long as the disk; says how long it became and
 * why. */
static int write_until_full(const char *way, const char *path)
{
    enum { PIECE = 3000 };
    static const char piece[PIECE] = {1};
    size_t i = 0;
    while (i < WAYS && strcmp(ways[i].name, way) != 0)
        i++;
    int descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (i == WAYS || descriptor < 0)
        return 1;
    ssize_t total = 0, part = 0;
    while (total < 5 * LIMIT && (part = ways[i].append(descriptor, piece, PIECE)) > 0)
        total += part;
    (void)printf("%zd %s\n", total, part < 0 ? strerrorname_np(errno) : "fits");
    (void)close(descriptor);
    return 0;
}

TEST_IN_FOLDER(test_the_full_disk_stops_every_way_of_writing, folder)
{
    const RunOptions small = {.limit_disk = true, .disk_bytes = LIMIT};
    for (size_t i = 0; i < WAYS; i++) {
        const char *path = test_path(folder, "%s", ways[i].name);
        RunResult result = run_program(&small, "/proc/self/exe", ways[i].name, path, NULL);
        char *end = NULL;
        long total = strtol(result.out, &end, 10);
        assert_string_equal(end, " ENOSPC\n");
        /* Calls that cannot be cut short leave the last piece out. */
        assert_in_range(total, 9000, LIMIT);
        assert_int_equal(test_file_size(path), total);
        run_result_free(&result);
        result = run_program(NULL, "/proc/self/exe", ways[i].name, path, NULL);
        assert_contains(result.out, " fits\n");
        run_result_free(&result);
    }
}

TEST(test_pipes_and_the_standard_streams_are_not_counted)
{
    const RunOptions none = {.limit_disk = true, .disk_bytes = 0};
    RunResult result =
        run_program(&none, "/bin/sh", "-c", "head -c 20000 /dev/zero | cat; head -c 100 /dev/zero >&2", NULL);
    assert_int_equal(result.out_bytes, 20000);
    assert_int_equal(result.err_bytes, 100);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
}

int test_program_arguments(int argc, char **argv)
{
    return argc == 3 ? write_until_full(argv[1], argv[2]) : test_take_pattern(argc, argv);
}

int test_program_begin(void)
{
    (void)test_bind_to_permissions();
    return TEST_RUN;
}
