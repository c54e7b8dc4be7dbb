/* Ranks as processes of this host: they know their places, end together, and the parent says how. */
#include "tests/support/support.h"
#include "trainer/launch_gpus.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/progress.h"
#include "trainer/ranks/communicator.h"
#include "trainer/ranks/rank_place.h"

enum { RANKS = 3, REQUEUED = 75 };

/* Does a rank's part of a test and returns the rank's exit status. */
typedef int (*RankWork)(TestFolder *folder, const RankPlace *place);

/* That of a process that start_launcher_on has started, and of its ranks. */
static Launcher own_launcher;

/* Starts a process that launches the ranks, as ftrain does, and ends as they do. */
static pid_t start_launcher_on(const RankPlace *host, double notice_seconds, TestFolder *folder,
                               RankWork work)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    RankPlace place;
    LaunchEnd end;
    bool is_parent = false;
    interrupt_install();
    if (launcher_open(&own_launcher, NULL))
        _exit(99);
    own_launcher.notice_seconds = notice_seconds;
    if (launcher_run(&own_launcher, host, RANKS, &is_parent, &end, NULL))
        _exit(99);
    if (is_parent)
        _exit(getenv("RANK") || getenv("FSHARD_JOB") ? 97 : end.exit_status); /* it is no rank itself */
    _exit(rank_place_from_environment(&place, NULL, NULL) ? 98 : work(folder, &place));
}

static pid_t start_launcher(TestFolder *folder, RankWork work)
{
    return start_launcher_on(&(RankPlace){.world_size = 1, .local_world = 1}, 15, folder, work);
}

static int end_of(pid_t process)
{
    int status = 0;
    assert_int_equal(waitpid(process, &status, 0), process);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void leave_note(TestFolder *folder, const char *what, const RankPlace *place)
{
    char path[512], text[16];
    (void)snprintf(path, sizeof path, "%s/%s%d", folder->path, what, (int)place->rank);
    (void)snprintf(text, sizeof text, "%ld", (long)getpid());
    FILE *file = fopen(path, "we");
    if (file) {
        (void)fputs(text, file);
        (void)fclose(file);
    }
}

static int know_place(TestFolder *folder, const RankPlace *place)
{
    leave_note(folder, "place", place);
    return place->world_size != RANKS || place->local_rank != place->rank || place->local_world != RANKS ||
           strcmp(place->launcher, "ftrain --gpus") != 0;
}

TEST_IN_FOLDER(test_every_rank_knows_its_place, folder)
{
    assert_int_equal(end_of(start_launcher(folder, know_place)), 0);
    assert_int_equal(test_count_files(folder->path), RANKS);
}

static int know_hosts(TestFolder *folder, const RankPlace *place)
{
    leave_note(folder, "place", place);
    return place->world_size != 2 * (uint64_t)RANKS || place->rank != RANKS + place->local_rank ||
           place->local_world != RANKS || place->port != 4711 || strcmp(place->address, "first") != 0;
}

/* Each of several hosts starts as many ranks. */
TEST_IN_FOLDER(test_ranks_of_the_second_host_follow_those_of_the_first, folder)
{
    const RankPlace host = {.rank = 1, .world_size = 2, .local_world = 1, .address = "first", .port = 4711};
    assert_int_equal(end_of(start_launcher_on(&host, 15, folder, know_hosts)), 0);
    assert_true(wait_for_file(test_path(folder, "place%d", RANKS), 0.1));
    assert_true(wait_for_file(test_path(folder, "place%d", 2 * RANKS - 1), 0.1));
}

static int fail_in_turn(TestFolder *folder, const RankPlace *place)
{
    (void)folder;
    if (place->rank == 1)
        return 3;
    sleep_seconds(0.3);
    return place->rank == 2 ? 4 : 0;
}

TEST_IN_FOLDER(test_the_first_failure_is_the_status, folder)
{
    assert_int_equal(end_of(start_launcher(folder, fail_in_turn)), 3);
}

static int die_as_rank_1(TestFolder *folder, const RankPlace *place)
{
    (void)folder;
    if (place->rank == 1)
        (void)raise(SIGKILL);
    sleep_seconds(0.2);
    return 1;
}

TEST_IN_FOLDER(test_a_rank_that_was_killed_is_the_status, folder)
{
    assert_int_equal(end_of(start_launcher(folder, die_as_rank_1)), 128 + SIGKILL);
}

static int stop_as_rank_1(TestFolder *folder, const RankPlace *place)
{
    if (place->rank == 1) {
        (void)raise(SIGSTOP);
        leave_note(folder, "went-on", place);
        return 0;
    }
    sleep_seconds(0.2);
    return raise(SIGKILL);
}

/* One that stands still when the others fail goes on, and so ends by itself. Else it would be killed, 15 s
 * later. */
TEST_IN_FOLDER(test_a_rank_that_is_stopped_is_made_to_go_on, folder)
{
    assert_int_equal(end_of(start_launcher(folder, stop_as_rank_1)), 128 + SIGKILL);
    assert_true(wait_for_file(test_path(folder, "went-on1"), 0.1));
}

static int wait_for_signal(TestFolder *folder, const RankPlace *place)
{
    const double start = progress_now_seconds();
    leave_note(folder, "waits", place);
    while (!interrupt_requested() && progress_now_seconds() - start < 30)
        sleep_seconds(0.02);
    leave_note(folder, "ended", place);
    return interrupt_signal() == SIGTERM ? REQUEUED : 1;
}

static void wait_for_ranks(TestFolder *folder, const char *what)
{
    for (int rank = 0; rank < RANKS; rank++)
        assert_true(wait_for_file(test_path(folder, "%s%d", what, rank), 20));
}

TEST_IN_FOLDER(test_a_signal_is_passed_on, folder)
{
    const pid_t launcher = start_launcher(folder, wait_for_signal);
    wait_for_ranks(folder, "waits");
    assert_int_equal(kill(launcher, SIGTERM), 0);
    assert_int_equal(end_of(launcher), REQUEUED);
}

/* Ends as a rank that a signal has stopped in order; the first writes for so long before. */
static int write_last_checkpoint(TestFolder *folder, const RankPlace *place)
{
    (void)wait_for_signal(folder, place);
    if (place->rank == 0)
        sleep_seconds(2);
    if (interrupt_count() == 1)
        leave_note(folder, "undisturbed", place);
    launcher_report(&own_launcher, (int)place->local_rank, FSH_ERR_INTERRUPTED);
    return REQUEUED;
}

TEST_IN_FOLDER(test_a_rank_that_writes_after_a_signal_is_not_hurried, folder)
{
    const RankPlace host = {.world_size = 1, .local_world = 1};
    const pid_t launcher = start_launcher_on(&host, 0.3, folder, write_last_checkpoint);
    wait_for_ranks(folder, "waits");
    assert_int_equal(kill(launcher, SIGTERM), 0);
    assert_int_equal(end_of(launcher), REQUEUED);
    assert_true(wait_for_file(test_path(folder, "undisturbed0"), 0.1));
}

/* Fails by itself while the first is in no hurry, after another was ended by a signal in order. */
static int fail_after_an_orderly_end(TestFolder *folder, const RankPlace *place)
{
    if (place->rank == 2)
        launcher_report(&own_launcher, 2, FSH_ERR_INTERRUPTED);
    sleep_seconds(place->rank == 1 ? 0.3 : 0);
    return place->rank ? 2 : wait_for_signal(folder, place);
}

TEST_IN_FOLDER(test_a_failure_after_an_orderly_end_is_heeded_soon, folder)
{
    const RankPlace host = {.world_size = 1, .local_world = 1};
    const double start = progress_now_seconds();
    assert_int_equal(end_of(start_launcher_on(&host, 0.3, folder, fail_after_an_orderly_end)), 2);
    assert_true(progress_now_seconds() - start < 20);
}

TEST_IN_FOLDER(test_ranks_end_with_the_one_that_started_them, folder)
{
    const pid_t launcher = start_launcher(folder, wait_for_signal);
    wait_for_ranks(folder, "waits");
    assert_int_equal(kill(launcher, SIGKILL), 0);
    assert_int_equal(end_of(launcher), 128 + SIGKILL);
    wait_for_ranks(folder, "ended");
}

/* The first rank waits for the others, who kill it and themselves. */
static int die_while_meeting(TestFolder *folder, const RankPlace *place)
{
    char path[sizeof place->job + 64], note[512];
    Communicator *communicator = NULL;
    (void)snprintf(path, sizeof path, "/dev/shm/fshard-%lu-%s", (unsigned long)geteuid(), place->job);
    if (place->rank == 0) {
        leave_note(folder, "first", place);
        (void)communicator_open(&communicator, place, NULL, NULL);
    }
    (void)snprintf(note, sizeof note, "%s/first0", folder->path);
    if (place->rank == 1 && wait_for_file(path, 20) && wait_for_file(note, 20)) {
        char file[512], *process = test_file_read(note, NULL);
        (void)snprintf(file, sizeof file, "%s/file", folder->path);
        test_file_write_text(file, path);
        (void)kill((pid_t)strtol(process, NULL, 10), SIGKILL);
        free(process);
    }
    (void)raise(SIGKILL);
    return 0;
}

TEST_IN_FOLDER(test_ranks_that_all_die_leave_no_shared_memory, folder)
{
    assert_int_equal(end_of(start_launcher(folder, die_while_meeting)), 128 + SIGKILL);
    char *path = test_file_read(test_path(folder, "file"), NULL);
    assert_int_equal(access(path, F_OK), -1);
    free(path);
}

/* ---- jobs ---- */

/* In containers that share memory the numbers of processes and launches may be the same. */
TEST(test_launchers_of_one_process_number_have_jobs_of_their_own)
{
    Launcher first, second;
    FshError error = {0};
    assert_ok(launcher_open(&first, &error), &error);
    assert_ok(launcher_open(&second, &error), &error);
    assert_true(first.name != second.name);
    launcher_close(&second);
    launcher_close(&first);
}

/* ---- questions to a child ---- */

static void tell_twice(const void *number, void *told)
{
    *(int *)told = 2 * *(const int *)number;
}

static void end_silently(const void *number, void *told)
{
    (void)told;
    _exit(*(const int *)number);
}

static void hang(const void *number, void *told)
{
    (void)number;
    (void)told;
    for (;;)
        (void)pause();
}

static FshStatus ask(const Launcher *launcher, void (*answer)(const void *number, void *told), double seconds,
                     int *told, FshError *error)
{
    const int number = 21;
    const LaunchQuestion question = {
        .what = "asking", .answer = answer, .about = &number, .told_bytes = sizeof *told, .seconds = seconds};
    return launch_ask(launcher, &question, told, error);
}

TEST(test_a_child_answers_or_is_left)
{
    int told = 0;
    FshError error = {0};
    assert_ok(ask(NULL, tell_twice, 60, &told, &error), &error);
    assert_int_equal(told, 42);
    assert_int_equal(ask(NULL, end_silently, 60, &told, &error), FSH_ERR_LIBRARY);
    assert_string_equal(error.message, "asking has ended without an answer");
    const double start = progress_now_seconds();
    assert_int_equal(ask(NULL, hang, 0.2, &told, &error), FSH_ERR_LIBRARY);
    assert_string_equal(error.message, "asking has not ended after 0.2 s");
    assert_true(progress_now_seconds() - start < 20);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* none is left */
}

TEST(test_a_signal_that_is_held_back_ends_the_wait_for_an_answer)
{
    Launcher launcher;
    int told = 0;
    FshError error = {0};
    assert_ok(launcher_open(&launcher, &error), &error);
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    const double start = progress_now_seconds();
    assert_int_equal(ask(&launcher, hang, 60, &told, &error), FSH_ERR_INTERRUPTED);
    assert_string_equal(error.message, "interrupted while asking");
    assert_int_equal(interrupt_signal(), SIGTERM);
    assert_true(progress_now_seconds() - start < 30);
    interrupt_simulate(0);
    launcher_close(&launcher);
}
