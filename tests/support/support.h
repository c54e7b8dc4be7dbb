/* support.h - what many tests need: a folder that goes away, programs run and watched, files made and broken.
 *
 *   TEST_IN_FOLDER(test_fverify_names_the_broken_record, folder)
 *   {
 *       test_file_flip_byte(test_path(folder, "train-00000-of-00001.fshard"), 5000);
 *       RunResult result = run_program(NULL, "fverify", folder->path, NULL);
 *       assert_int_equal(result.exit_status, 1);
 *       assert_contains(result.err, "record 3");
 *       run_result_free(&result);
 *   }
 *
 * Whatever cannot be done here fails the running test, with the file and the reason: callers check nothing.
 * Threads: one test, one thread. */
#ifndef FSHARD_TESTS_SUPPORT_H
#define FSHARD_TESTS_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "tests/support/test.h"

/* ---- a folder for one test ---- */

typedef struct TestFolder {
    char path[256]; /* in /dev/shm where that can be written, else in $TMPDIR or /tmp */
    char **paths;   /* what test_path has returned; owned */
    size_t path_count;
} TestFolder;

void test_folder_make(TestFolder *folder);
/* Removes the folder with all that is in it, folders without permissions included. */
void test_folder_remove(TestFolder *folder);

/* TEST_IN_FOLDER(name, folder) { … } defines a test whose parameter is a new TestFolder *folder. */
/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define TEST_IN_FOLDER(name, folder)                                                                         \
    TEST_WITH(name, test_folder_setup, test_folder_teardown, TestFolder *folder)
/* NOLINTEND(bugprone-macro-parentheses) */
int test_folder_setup(void **state);
int test_folder_teardown(void **state);

/* Returns "FOLDER/…", formatted as by printf; it lives until the folder is removed. */
const char *test_path(TestFolder *folder, const char *format, ...) FSH_PRINTF(2, 3);

/* ---- files ---- */

/* Write a file and make the folders above path; replace an existing file. */
void test_file_write(const char *path, const void *bytes, size_t length);
void test_file_write_text(const char *path, const char *text);
/* Returns the whole file with a NUL after it; the caller frees it. *length_ret is its length; length_ret may
 * be NULL. */
char *test_file_read(const char *path, size_t *length_ret);
uint64_t test_file_size(const char *path);
/* Writes a copy of a file, as test_file_write does. */
void test_file_copy(const char *from, const char *to);
/* Inverts all bits of a byte; a negative offset counts from the end. */
void test_file_flip_byte(const char *path, int64_t offset);
/* Cuts the file to that length; a negative one counts from the end: -1 cuts off the last byte. */
void test_file_truncate(const char *path, int64_t length);
/* Counts everything below path but folders, hidden names included: "nothing was left behind". Returns 0 where
 * path is not there. */
uint64_t test_count_files(const char *path);

/* Compares names (hidden ones too), kinds and bytes. Returns NULL if they are equal, else the first
 * difference in words, which the caller frees. */
char *test_tree_difference(const char *a, const char *b);

/* Makes permissions hold for root too, for this thread and all that come from it: call it first in
 * test_program_begin, before OpenMP starts threads. Returns false where this machine does not allow it; a
 * test of unreadable files must then skip(). */
bool test_bind_to_permissions(void);

/* ---- programs ---- */

typedef struct RunOptions {
    const char *const
        *environment;        /* "NAME=value" …, NULL at the end; added to the test's own; may be NULL */
    const char *folder;      /* to run in; NULL: the test's own */
    const char *stdout_path; /* "/dev/full"; NULL: captured */
    double timeout_seconds;  /* after which all its processes are killed and the test fails; 0: 60 */
    bool limit_disk;         /* regular files take disk_bytes in all, then ENOSPC (see enospc.c) */
    uint64_t disk_bytes;
    uint64_t told_free_bytes; /* with limit_disk: what statvfs says is free; 0: the truth */
    /* the end of a path: when that file gets its name, the program stops itself, or with FSHARD_STOP_SECONDS
     * in the environment sleeps (see stop_at.c); not with limit_disk */
    const char *stop_at;
    const char *bad_disk; /* what cannot be read: rules of bad_disk.c; not with the two above */
    const char *cores;    /* "4-7": what the program is told that it may run on; not with the three above */
    /* the program is told that all it reads comes from a disk; what it asks for before its turn is added to
     * this file (see slow_disk.c); not with the four above */
    const char *slow_disk;
} RunOptions;

typedef struct RunResult {
    int exit_status; /* as a shell says it: 128 + signal when killed */
    char *out, *err; /* a NUL after the text; owned; free with run_result_free */
    size_t out_bytes, err_bytes;
    double seconds;
    uint64_t resident_bytes; /* the most that it held in memory at a time, as the system tells */
} RunResult;

/* Runs $FSHARD_BIN/PROGRAM (or PROGRAM as it is, with a '/' in it) to its end. Arguments are const char *,
 * then NULL. options may be NULL. Standard input is empty. */
RunResult run_program(const RunOptions *options, const char *program, ...) __attribute__((sentinel));
/* Runs a program with the arguments, without its name and with NULL at the end. */
RunResult run_program_arguments(const RunOptions *options, const char *program, const char *const *arguments);
void run_result_free(RunResult *result);

/* The same in two steps, for tests that send signals on the way: kill(running.process, SIGINT). */
typedef struct RunningProgram {
    pid_t process; /* leads a process group of its own */
    int out, err;  /* descriptors; out is -1 with stdout_path */
    double start_seconds, timeout_seconds;
    char name[64];
} RunningProgram;
RunningProgram run_start(const RunOptions *options, const char *program, const char *const *arguments);
RunResult run_wait(RunningProgram *running);
/* Waits until the program has said so on stderr. */
void run_wait_for_text(const RunningProgram *running, const char *text);
/* Waits until the program has stopped itself, as stop_at asks. */
void run_wait_until_stopped(const RunningProgram *running);
/* Sends a stopped program the signal and lets it go on. */
void run_go_on(const RunningProgram *running, int signal_number);

/* Returns a port of the loopback address that was free a moment ago. */
uint16_t test_free_port(void);

/* Waits until path exists, at most `seconds`; returns false if it never does. */
bool wait_for_file(const char *path, double seconds);
void sleep_seconds(double seconds);

/* Fails with both texts when `text` does not have `part` in it. */
#define assert_contains(text, part)     test_assert_contains((text), (part), true, __FILE__, __LINE__)
#define assert_contains_not(text, part) test_assert_contains((text), (part), false, __FILE__, __LINE__)
void test_assert_contains(const char *text, const char *part, bool expected, const char *file, int line);

/* Fails with the message when a call that should work does not. */
#define assert_ok(status, error) test_assert_ok((status), (error), __FILE__, __LINE__)
void test_assert_ok(FshStatus status, const FshError *error, const char *file, int line);

/* ---- pixels: the same on every machine for the same arguments ---- */

/* Fills (height, width, 3) bytes with a smooth picture, which JPEG keeps well. seed shifts the colours. */
void test_fill_gradient(uint8_t *rgb, size_t width, size_t height, uint32_t seed);
/* Fills as many bytes with white noise, which JPEG keeps badly. */
void test_fill_noise(uint8_t *rgb, size_t width, size_t height, uint32_t seed);

#endif
