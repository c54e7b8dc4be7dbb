#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/resolve.h"
#include "tests/support/support.h"

static bool permissions_bind;

TEST(test_buffers_keep_what_they_have_and_stay_aligned)
{
    Buffer buffer = {0};
    FshError error = {0};
    for (int i = 0; i < 5000; i++) {
        const unsigned char bytes[3] = {(unsigned char)i, (unsigned char)(i >> 8), 7};
        assert_ok(buffer_append(&buffer, bytes, sizeof bytes, &error), &error);
        assert_int_equal((uintptr_t)buffer.bytes % 64, 0);
        assert_true(buffer.length <= buffer.capacity);
    }
    assert_int_equal(buffer.length, 15000);
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(buffer.bytes[3 * i], i & 0xFF);
        assert_int_equal(buffer.bytes[3 * i + 1], i >> 8);
    }
    const uint8_t *before = buffer.bytes;
    assert_ok(buffer_reserve(&buffer, 10, &error), &error);
    assert_ok(buffer_append(&buffer, NULL, 0, &error), &error);
    assert_ptr_equal(buffer.bytes, before);
    assert_int_equal(buffer_reserve(&buffer, SIZE_MAX, &error), FSH_ERR_MEMORY);
    assert_int_equal(buffer_append(&buffer, "x", SIZE_MAX - 5, &error), FSH_ERR_MEMORY);
    assert_int_equal(buffer.length, 15000); /* a refusal changes nothing */
    buffer_free(&buffer);
    assert_null(buffer.bytes);
    buffer_free(&buffer);
}

TEST_IN_FOLDER(test_read_and_map_give_the_whole_file, folder)
{
    static const size_t lengths[] = {0, 1, 63, 64, 4096, 100001};
    uint8_t *bytes = malloc(300000);
    assert_non_null(bytes);
    test_fill_noise(bytes, 1000, 100, 1);
    Buffer buffer = {0};
    FshError error = {0};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const char *path = test_path(folder, "%zu.bin", lengths[i]);
        test_file_write(path, bytes, lengths[i]);
        assert_ok(file_read(path, &buffer, &error), &error);
        assert_int_equal(buffer.length, lengths[i]);
        FileMapping mapping;
        assert_ok(file_map(path, &mapping, &error), &error);
        assert_int_equal(mapping.length, lengths[i]);
        if (lengths[i]) {
            assert_memory_equal(buffer.bytes, bytes, lengths[i]);
            assert_memory_equal(mapping.bytes, bytes, lengths[i]);
        } else {
            assert_null(mapping.bytes);
        }
        file_unmap(&mapping);
        assert_null(mapping.bytes);
    }
    /* A file that does not tell its size. */
    assert_ok(file_read("/proc/self/status", &buffer, &error), &error);
    assert_true(buffer.length > 100);
    buffer_free(&buffer);
    free(bytes);
}

TEST_IN_FOLDER(test_what_is_no_readable_file_is_refused_by_name, folder)
{
    const char *missing = test_path(folder, "missing"), *fifo = test_path(folder, "fifo");
    const char *secret = test_path(folder, "secret");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    test_file_write_text(secret, "x");
    assert_int_equal(chmod(secret, 0), 0);
    const struct {
        const char *path;
        FshStatus status;
        const char *message;
    } cases[] = {
        {missing, FSH_ERR_NOT_FOUND, "cannot open: No such file or directory"},
        {folder->path, FSH_ERR_UNSUPPORTED, "is a folder"},
        {fifo, FSH_ERR_UNSUPPORTED, "is not a regular file"},
        {secret, FSH_ERR_SYSTEM, "cannot open: Permission denied"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].path == secret && !permissions_bind)
            continue;
        Buffer buffer = {.length = 9};
        FileMapping mapping;
        FshError error = {0};
        char expected[PATH_MAX];
        (void)snprintf(expected, sizeof expected, "%s: %s", cases[i].path, cases[i].message);
        assert_int_equal(file_read(cases[i].path, &buffer, &error), cases[i].status);
        assert_string_equal(error.message, expected);
        assert_int_equal(buffer.length, 0);
        assert_int_equal(file_map(cases[i].path, &mapping, &error), cases[i].status);
        assert_string_equal(error.message, expected);
        assert_null(mapping.bytes);
        buffer_free(&buffer);
    }
}

TEST_IN_FOLDER(test_a_stream_is_read_to_its_end_and_no_further_than_the_bound, folder)
{
    enum { BYTES = 200000 }; /* more than a pipe holds, and than a step of reading */
    Buffer buffer = {.length = 9};
    FshError error = {0};
    char name[64];
    int ends[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe(ends), 0);
        const pid_t writer = fork();
        if (writer == 0) {
            (void)close(ends[0]);
            for (int j = 0; j < BYTES; j++)
                if (write(ends[1], j % 7 ? "x" : "y", 1) != 1)
                    _exit(1);
            _exit(0);
        }
        (void)close(ends[1]);
        (void)snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
        const FshStatus status = file_read_stream(name, i ? BYTES - 1 : BYTES, &buffer, &error);
        (void)close(ends[0]);
        (void)waitpid(writer, NULL, 0);
        if (i == 0) {
            assert_ok(status, &error);
            assert_int_equal(buffer.length, BYTES);
            assert_memory_equal(buffer.bytes + BYTES - 6, "xxxyxx", 6);
        } else {
            assert_int_equal(status, FSH_ERR_MISMATCH);
        }
    }
    assert_int_equal(file_read_stream(folder->path, 9, &buffer, &error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "is a folder");
    assert_int_equal(file_read_stream(test_path(folder, "missing"), 9, &buffer, &error), FSH_ERR_NOT_FOUND);
    buffer_free(&buffer);
}

TEST_IN_FOLDER(test_a_file_above_the_bound_is_refused_before_memory_is_taken, folder)
{
    const char *path = test_path(folder, "large.jpg");
    Buffer buffer = {0};
    FshError error = {0};
    test_file_write_text(path, "12345");
    assert_ok(file_read_most(path, 5, &buffer, &error), &error);
    assert_int_equal(buffer.length, 5);
    buffer_free(&buffer);
    assert_int_equal(file_read_most(path, 4, &buffer, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "large.jpg: 5 bytes or more, and at most 4 are read");
    assert_int_equal(truncate(path, (off_t)10 << 30), 0); /* sparse */
    assert_int_equal(file_read_most(path, 1 << 20, &buffer, &error), FSH_ERR_MISMATCH);
    assert_int_equal(buffer.capacity, 0);
    /* A file that says 0 and goes on. */
    assert_int_equal(file_read_most("/proc/self/status", 100, &buffer, &error), FSH_ERR_MISMATCH);
    assert_true(buffer.capacity < 1000);
    buffer_free(&buffer);
}

TEST_IN_FOLDER(test_a_file_appears_only_when_it_is_committed, folder)
{
    const char *path = test_path(folder, "a.bin");
    AtomicFile file;
    FshError error = {0};
    assert_ok(atomic_file_open(&file, path, false, &error), &error);
    assert_ok(atomic_file_write(&file, "half", 4, &error), &error);
    assert_ok(atomic_file_write(&file, " and half", 9, &error), &error);
    assert_int_equal(file.offset, 13);
    assert_false(file_exists(path));
    assert_ok(atomic_file_commit(&file, true, &error), &error);
    char *text = test_file_read(path, NULL);
    assert_string_equal(text, "half and half");
    free(text);
    assert_int_equal(test_count_files(folder->path), 1);
    atomic_file_abandon(&file); /* safe after commit */
    assert_int_equal(test_count_files(folder->path), 1);
}

TEST_IN_FOLDER(test_an_abandoned_file_leaves_nothing, folder)
{
    AtomicFile file, untouched = {0};
    FshError error = {0};
    assert_ok(atomic_file_open(&file, test_path(folder, "a.bin"), false, &error), &error);
    assert_ok(atomic_file_write(&file, "x", 1, &error), &error);
    assert_int_equal(test_count_files(folder->path), 1);
    atomic_file_abandon(&file);
    assert_int_equal(test_count_files(folder->path), 0);
    atomic_file_abandon(&file);
    atomic_file_abandon(&untouched); /* must not close descriptor 0 */
    assert_true(fcntl(STDIN_FILENO, F_GETFD) >= 0);
}

TEST_IN_FOLDER(test_only_force_replaces_a_file, folder)
{
    const char *path = test_path(folder, "a.bin");
    char expected[PATH_MAX];
    (void)snprintf(expected, sizeof expected, "%s: exists already; --force replaces it", path);
    FshError error = {0};
    AtomicFile file;
    test_file_write_text(path, "old");
    assert_int_equal(atomic_file_open(&file, path, false, &error), FSH_ERR_EXISTS); /* before any work */
    assert_string_equal(error.message, expected);
    assert_ok(file_write_atomic(path, "new", 3, true, true, &error), &error);
    char *text = test_file_read(path, NULL);
    assert_string_equal(text, "new");
    free(text);

    /* One that comes between open and commit. */
    assert_int_equal(unlink(path), 0);
    assert_ok(atomic_file_open(&file, path, false, &error), &error);
    test_file_write_text(path, "faster");
    assert_int_equal(atomic_file_commit(&file, false, &error), FSH_ERR_EXISTS);
    assert_string_equal(error.message, expected);
    text = test_file_read(path, NULL);
    assert_string_equal(text, "faster");
    free(text);
    assert_int_equal(test_count_files(folder->path), 1);

    /* A link to nothing takes the name as well. */
    const char *dangling = test_path(folder, "dangling");
    assert_int_equal(symlink("nowhere", dangling), 0);
    assert_int_equal(atomic_file_open(&file, dangling, false, &error), FSH_ERR_EXISTS);
    assert_false(file_exists(dangling));
}

TEST_IN_FOLDER(test_a_file_that_cannot_be_put_in_place_is_removed, folder)
{
    FshError error = {0};
    const char *path = test_path(folder, "taken");
    test_file_write_text(test_path(folder, "taken/by a folder"), "x");
    assert_int_not_equal(file_write_atomic(path, "x", 1, true, false, &error), FSH_OK);
    assert_contains(error.message, "taken: cannot put the file in place: ");
    assert_int_equal(test_count_files(folder->path), 1);
    assert_int_equal(file_write_atomic(test_path(folder, "no/such/a"), "x", 1, true, false, &error),
                     FSH_ERR_NOT_FOUND);
    assert_contains(error.message, "no/such/a: cannot create: No such file or directory");
}

TEST_IN_FOLDER(test_two_writers_of_one_name_do_not_share_a_temporary, folder)
{
    const char *path = test_path(folder, "a");
    FshError error = {0};
    AtomicFile first, second;
    assert_ok(atomic_file_open(&first, path, true, &error), &error);
    assert_ok(atomic_file_open(&second, path, true, &error), &error);
    assert_string_not_equal(first.temporary_path, second.temporary_path);
    assert_ok(atomic_file_write(&first, "first", 5, &error), &error);
    assert_ok(atomic_file_write(&second, "second", 6, &error), &error);
    assert_ok(atomic_file_commit(&second, false, &error), &error);
    assert_ok(atomic_file_commit(&first, false, &error), &error);
    char *text = test_file_read(path, NULL);
    assert_string_equal(text, "first");
    free(text);
    assert_int_equal(test_count_files(folder->path), 1);
}

TEST_IN_FOLDER(test_names_of_any_length_and_no_folder_work, folder)
{
    FshError error = {0};
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    for (size_t i = 150; i + 1 < 255; i += 2)
        memcpy(name + i, "\xC3\xA9", 2); /* é, so that a cut may fall into a character */
    assert_ok(file_write_atomic(test_path(folder, "%s", name), "x", 1, false, true, &error), &error);

    char before[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder->path), 0);
    FshStatus status = file_write_atomic("plain", "x", 1, false, true, &error);
    assert_int_equal(chdir(before), 0);
    assert_ok(status, &error);
    assert_int_equal(test_count_files(folder->path), 2);
}

/* Opens a temporary file in a child and stays, or dies by SIGKILL; returns the child. */
static pid_t start_writer(const char *path, bool stays)
{
    pid_t process = fork();
    if (process == 0) {
        AtomicFile file;
        if (atomic_file_open(&file, path, true, NULL) || atomic_file_write(&file, "half", 4, NULL))
            _exit(1);
        if (!stays)
            (void)kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
    return process;
}

TEST_IN_FOLDER(test_only_temporaries_of_dead_writers_are_removed, folder)
{
    pid_t dead = start_writer(test_path(folder, "dead.bin"), false);
    int status = 0;
    assert_int_equal(waitpid(dead, &status, 0), dead);
    assert_true(WIFSIGNALED(status));
    pid_t alive = start_writer(test_path(folder, "alive.bin"), true);
    char alive_temporary[64];
    (void)snprintf(alive_temporary, sizeof alive_temporary, ".alive.bin.tmp-%ld-0", (long)alive);
    bool appeared = wait_for_file(test_path(folder, "%s", alive_temporary), 10);
    sleep_seconds(0.05); /* it is locked right after it is made */

    FshError error = {0};
    AtomicFile own;
    assert_ok(atomic_file_open(&own, test_path(folder, "own.bin"), true, &error), &error);
    static const char *const innocent[] = {".hidden",   "a.tmp-1-2",  ".a.tmp-1",
                                           ".a.tmp-1-", ".a.tmp--1",  ".a.tmp-1-2x",
                                           ".tmp-1-2",  ".a.tmp-x-2", ".a.tmp-1-2.jpg"};
    enum { INNOCENT = sizeof innocent / sizeof *innocent };
    for (size_t i = 0; i < INNOCENT; i++)
        test_file_write_text(test_path(folder, "%s", innocent[i]), "x");
    test_file_write_text(test_path(folder, ".b.tmp-7.jpg.tmp-999999999-12"), "x");
    assert_int_equal(test_count_files(folder->path), INNOCENT + 4);

    uint64_t removed = file_remove_stale_temporaries(folder->path);
    (void)kill(alive, SIGKILL);
    (void)waitpid(alive, &status, 0);
    assert_true(appeared);
    assert_int_equal(removed, 2);
    assert_int_equal(test_count_files(folder->path), INNOCENT + 2);
    assert_true(file_exists(test_path(folder, "%s", alive_temporary)));
    assert_ok(atomic_file_commit(&own, false, &error), &error);
    assert_int_equal(file_remove_stale_temporaries(folder->path), 1); /* alive is dead now */
    assert_int_equal(file_remove_stale_temporaries(test_path(folder, "missing")), 0);
}

TEST_IN_FOLDER(test_folders_are_made_with_all_above, folder)
{
    FshError error = {0};
    const char *deep = test_path(folder, "a/b//c/");
    assert_ok(file_make_folders(deep, &error), &error);
    assert_true(file_is_folder(deep));
    assert_ok(file_make_folders(deep, &error), &error);
    assert_ok(file_make_folders("/", &error), &error);
    assert_ok(file_make_parent_folders(test_path(folder, "x/y/z.jpg"), &error), &error);
    assert_true(file_is_folder(test_path(folder, "x/y")));
    assert_false(file_exists(test_path(folder, "x/y/z.jpg")));
    assert_ok(file_make_parent_folders("plain", &error), &error);
    assert_ok(file_make_parent_folders("/plain", &error), &error);

    test_file_write_text(test_path(folder, "file"), "x");
    assert_int_equal(file_make_folders(test_path(folder, "file"), &error), FSH_ERR_EXISTS);
    assert_contains(error.message, "file: exists and is no folder");
    assert_int_equal(file_make_folders(test_path(folder, "file/below"), &error), FSH_ERR_NOT_FOUND);
    assert_false(file_is_folder(test_path(folder, "file")));
    assert_true(file_exists(test_path(folder, "file")));
    if (permissions_bind) {
        assert_int_equal(chmod(test_path(folder, "x"), 0500), 0);
        assert_int_equal(file_make_folders(test_path(folder, "x/new/deep"), &error), FSH_ERR_SYSTEM);
        assert_contains(error.message, "x/new: cannot make the folder: Permission denied");
    }
}

TEST(test_join_puts_one_slash_and_refuses_what_does_not_fit)
{
    char buffer[8];
    FshError error = {0};
    assert_ok(file_join(buffer, sizeof buffer, "abc", "def", &error), &error);
    assert_string_equal(buffer, "abc/def");
    assert_ok(file_join(buffer, sizeof buffer, "abc/", "def", &error), &error);
    assert_string_equal(buffer, "abc/def");
    assert_ok(file_join(buffer, sizeof buffer, "/", "def", &error), &error);
    assert_string_equal(buffer, "/def");
    assert_ok(file_join(buffer, sizeof buffer, "", "def", &error), &error);
    assert_string_equal(buffer, "def");
    assert_int_equal(file_join(buffer, sizeof buffer, "abc", "defg", &error), FSH_ERR_MEMORY);
    assert_string_equal(error.message, "abc/defg: path is longer than 7 bytes");
}

/* A device that is always full stands for the disk; what a whole program does then is tested by its own
 * tests. */
TEST(test_a_full_disk_is_told)
{
    FshError error = {0};
    AtomicFile file = {.path = (char *)"a.bin", .descriptor = open("/dev/full", O_WRONLY | O_CLOEXEC)};
    assert_true(file.descriptor >= 0);
    assert_int_equal(atomic_file_write(&file, "x", 1, &error), FSH_ERR_NO_SPACE);
    assert_string_equal(error.message, "a.bin: cannot write: No space left on device");
    assert_int_equal(error.system_errno, ENOSPC);
    assert_int_equal(file.offset, 0);
    (void)close(file.descriptor);
}

TEST(test_times_of_any_year_are_numbers_and_back)
{
    static const struct {
        struct timespec time;
        int64_t time_ns;
    } rows[] = {
        {{0, 0}, 0},
        {{1763700000, 123456789}, 1763700000123456789},
        {{-1, 0}, -1000000000},
        {{-1, 999999999}, -1}, /* the kernel counts nanoseconds up, before 1970 too */
        {{-315619200, 500000000}, -315619199500000000},
        {{9223372036, 854775807}, INT64_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(file_time_ns(rows[i].time), rows[i].time_ns);
        struct timespec time = file_time_of_ns(rows[i].time_ns);
        assert_int_equal(time.tv_sec, rows[i].time.tv_sec);
        assert_int_equal(time.tv_nsec, rows[i].time.tv_nsec);
    }
    assert_true(file_time_ns((struct timespec){.tv_sec = 99999999999, .tv_nsec = 5}) == INT64_MAX);
    assert_true(file_time_ns((struct timespec){.tv_sec = 9223372036, .tv_nsec = 999999999}) == INT64_MAX);
    assert_true(file_time_ns((struct timespec){.tv_sec = -99999999999, .tv_nsec = 5}) == INT64_MIN);
}

TEST_IN_FOLDER(test_a_path_that_is_yet_to_be_made_is_resolved, folder)
{
    char resolved[PATH_MAX], real[PATH_MAX], wanted[PATH_MAX + 16];
    test_file_write_text(test_path(folder, "real/x"), "x");
    assert_int_equal(symlink(test_path(folder, "real"), test_path(folder, "link")), 0);
    assert_non_null(realpath(test_path(folder, "real"), real));
    (void)snprintf(wanted, sizeof wanted, "%s/a/b", real);
    assert_true(path_resolve(test_path(folder, "link/a/b"), resolved));
    assert_string_equal(resolved, wanted);
    assert_true(path_resolve(test_path(folder, "link/a/b//"), resolved));
    assert_string_equal(resolved, wanted);
    assert_true(path_resolve(test_path(folder, "link/x"), resolved));
    (void)snprintf(wanted, sizeof wanted, "%s/x", real);
    assert_string_equal(resolved, wanted);
}

int test_program_begin(void)
{
    permissions_bind = test_bind_to_permissions();
    return TEST_RUN;
}
