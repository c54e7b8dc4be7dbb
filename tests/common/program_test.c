#include "common/program.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

static void assert_run(const char *const *arguments, int exit_status, const char *out, const char *err)
{
    RunResult result = run_program_arguments(NULL, PROGRAM_FIXTURE, arguments);
    assert_string_equal(result.err, err);
    assert_string_equal(result.out, out);
    assert_int_equal(result.exit_status, exit_status);
    run_result_free(&result);
}

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(test_exit_statuses_and_messages)
{
    assert_run(ARGUMENTS("hello"), 0, "hello\n", "");
    assert_run(ARGUMENTS("--end=partial", "--list", "a", "--list=b"), 1, "", "");
    assert_run(ARGUMENTS("--end=corrupt"), 1, "", "fixture: a.fshard: torn\n");
    assert_run(ARGUMENTS("--end=silent"), 1, "", "fixture: library failure\n");
    assert_run(ARGUMENTS("--end=interrupted"), 130, "", "fixture: stopped\n");
}

TEST(test_wrong_usage_points_to_the_help)
{
    assert_run(ARGUMENTS("--ned=ok"), 2, "",
               "fixture: --ned: no such option; did you mean --end?\nTry 'fixture --help'.\n");
    assert_run(ARGUMENTS("a", "b"), 2, "",
               "fixture: 'b': one argument too many: fixture [OPTIONS] [WORD]\nTry 'fixture --help'.\n");
    assert_run(ARGUMENTS("--end=usage"), 2, "",
               "fixture: --a and --b contradict each other\nTry 'fixture --help'.\n");
}

TEST(test_help_version_and_the_list_go_to_stdout)
{
    RunResult help = run_program(NULL, PROGRAM_FIXTURE, "--bogus", "--help", NULL);
    assert_int_equal(help.exit_status, 0);
    assert_contains(help.out, "Does as it is told.\n\nUsage: fixture [OPTIONS] [WORD]\n");
    assert_contains(help.out, "General:\n  -j, --jobs N");
    assert_string_equal(help.err, "");
    run_result_free(&help);
    assert_run(ARGUMENTS("--version"), 0, "fixture (fshard) " FSHARD_VERSION "\nlibnothing 1.0\n", "");
    assert_run(
        ARGUMENTS("--help-options"), 0,
        "--end HOW\n--ready FILE\n--write FILE\n--stdio FILE\n--bytes N\n--lines N\n--list X\n-j, --jobs N\n"
        "-n, --dry-run\n-q, --quiet\n-v, --verbose\n--json\n-h, --help\n--version\n",
        "");
}

TEST(test_a_full_disk_under_stdout_is_a_failure)
{
    const RunOptions full = {.stdout_path = "/dev/full"};
    static const char *const lines[] = {"--lines=1", "--lines=100000", "--help", "--version"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        RunResult result = run_program(&full, PROGRAM_FIXTURE, lines[i], NULL);
        assert_int_equal(result.exit_status, 1);
        assert_contains(result.err, "fixture: standard output: cannot write");
        run_result_free(&result);
    }
    /* A failure keeps its own status, and nothing written is nothing lost. */
    RunResult result = run_program(&full, PROGRAM_FIXTURE, "--lines=1", "--end=usage", NULL);
    assert_int_equal(result.exit_status, 2);
    run_result_free(&result);
    result = run_program(&full, PROGRAM_FIXTURE, "--lines=0", NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
}

TEST(test_a_reader_that_leaves_is_a_failure_without_a_word)
{
    /* More and less than a pipe and a buffer of stdio hold: the pipe breaks on an early write, or on the
     * last. */
    static const char *const counts[] = {"1000000", "100"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        RunResult result =
            run_program(NULL, "/bin/sh", "-c", "{ sleep 0.2; \"$0\" --lines=$1; echo $? >&2; } | head -n $2",
                        PROGRAM_FIXTURE, counts[i], i == 0 ? "1" : "0", NULL);
        assert_string_equal(result.out, i == 0 ? "line 0\n" : "");
        assert_string_equal(result.err,
                            "1\n"); /* the exit status alone: head | says nothing about it either */
        run_result_free(&result);
    }
}

TEST(test_a_missing_stdout_matters_only_when_it_is_written)
{
    RunResult result = run_program(NULL, "/bin/sh", "-c", "exec >&-; \"$0\" || exit 9; \"$0\" --lines=1",
                                   PROGRAM_FIXTURE, NULL);
    assert_string_equal(result.err, "fixture: standard output: cannot write: Bad file descriptor\n");
    assert_int_equal(result.exit_status, 1);
    run_result_free(&result);
}

static void assert_signalled(TestFolder *folder, const char *end, int first, int second, int exit_status,
                             const char *err)
{
    const char *ready = test_path(folder, "ready-%s-%d-%d", end, first, second);
    RunningProgram running = run_start(NULL, PROGRAM_FIXTURE, ARGUMENTS("--end", end, "--ready", ready));
    bool started = wait_for_file(ready, 20);
    (void)kill(running.process, first);
    if (second) {
        sleep_seconds(0.1);
        (void)kill(running.process, second);
    }
    RunResult result = run_wait(&running);
    assert_true(started);
    assert_string_equal(result.err, err);
    assert_int_equal(result.exit_status, exit_status);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_signals_end_a_run_with_their_status, folder)
{
    assert_signalled(folder, "wait", SIGINT, 0, 130, "fixture: stopped after 3 files\n");
    assert_signalled(folder, "wait", SIGTERM, 0, 143, "fixture: stopped after 3 files\n");
}

TEST_IN_FOLDER(test_a_program_that_goes_on_later_leaves_with_75, folder)
{
    assert_signalled(folder, "requeue", SIGTERM, 0, 75, "fixture: stopped after 3 files\n");
    assert_signalled(folder, "requeue", SIGUSR1, 0, 75, "fixture: stopped after 3 files\n");
    assert_signalled(folder, "requeue", SIGINT, 0, 130, "fixture: stopped after 3 files\n");
}

TEST_IN_FOLDER(test_a_second_ctrl_c_ends_at_once, folder)
{
    assert_signalled(folder, "ignore", SIGINT, SIGINT, 130, "");
    assert_signalled(folder, "ignore", SIGTERM, SIGINT, 130, "");
}

/* `nohup`-like starts ignore SIGINT on purpose; it stays ignored. */
TEST_IN_FOLDER(test_an_ignored_signal_stays_ignored, folder)
{
    const char *ready = test_path(folder, "ready");
    RunningProgram running = run_start(
        NULL, "/bin/sh",
        ARGUMENTS("-c", "trap '' INT; exec \"$0\" --end wait --ready \"$1\"", PROGRAM_FIXTURE, ready));
    bool started = wait_for_file(ready, 20);
    (void)kill(running.process, SIGINT);
    sleep_seconds(0.1);
    (void)kill(running.process, SIGTERM);
    RunResult result = run_wait(&running);
    assert_true(started);
    assert_int_equal(result.exit_status, 143);
    run_result_free(&result);
}

/* The full disk of tests/support, on both ways of writing; and that a file is absent or complete. */
TEST_IN_FOLDER(test_a_full_disk_leaves_no_half_written_file, folder)
{
    const char *path = test_path(folder, "out.bin"), *log = test_path(folder, "log.txt");
    const RunOptions small = {.limit_disk = true, .disk_bytes = 5500},
                     enough = {.limit_disk = true, .disk_bytes = 6000};
    RunResult result = run_program(&small, PROGRAM_FIXTURE, "--write", path, "--bytes=6000", NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "out.bin: cannot write: No space left on device\n");
    assert_int_equal(test_count_files(folder->path), 0);
    run_result_free(&result);

    result = run_program(&enough, PROGRAM_FIXTURE, "--write", path, "--bytes=6000", NULL);
    assert_string_equal(result.err, "");
    assert_int_equal(result.exit_status, 0);
    assert_int_equal(test_file_size(path), 6000);
    run_result_free(&result);

    result = run_program(&small, PROGRAM_FIXTURE, "--stdio", log, "--bytes=6000", NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "log.txt: cannot write\n");
    assert_int_equal(test_file_size(log),
                     5500); /* stdio has no second name: as on a disk, what fits is there */
    run_result_free(&result);

    result = run_program(&enough, PROGRAM_FIXTURE, "--stdio", log, "--bytes=6000", NULL);
    assert_int_equal(result.exit_status, 0);
    assert_int_equal(test_file_size(log), 6000);
    run_result_free(&result);
}
