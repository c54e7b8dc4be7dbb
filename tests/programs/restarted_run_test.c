/* ftrain --gpus 2 --device cpu --max-restarts N, whose ranks are killed: the run ends as one that nobody has
 * disturbed, and leaves nothing behind. FSHARD_KILLS is the number of kills at moments chosen by chance. */
#include "tests/programs/ranks_support.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/progress.h"

enum { KILLS = 5, KILLS_MAX = 1000, ARGUMENTS_MAX = 48 };

/* Epochs of 10 steps for two ranks, with state in everything. */
#define RANK                                                                                                 \
    "--device", "cpu", "--model", "conv8", "--batch-size", "2", "--opt", "adamw", "--lr", "0.003",           \
        "--grad-accum-steps", "2", "--model-ema", "--model-ema-decay", "0.9", "--mixup-alpha", "0.2"
#define RICH "--gpus", "2", RANK

/* Starts ftrain with one thread a rank. stop_at is that of RunOptions, or NULL. */
static RunningProgram start(const char *stop_at, const char *const *arguments)
{
    const char *all[ARGUMENTS_MAX] = {"--jobs", "1"};
    const RunOptions options = {.timeout_seconds = 600, .stop_at = stop_at};
    size_t count = 2;
    while (*arguments && count < ARGUMENTS_MAX - 1)
        all[count++] = *arguments++;
    return run_start(&options, "ftrain", all);
}

#define START(stop_at, ...) start((stop_at), (const char *const[]){__VA_ARGS__, NULL})

/* Returns the end of what a program has said, which is as much as a failed test prints. */
static const char *end_of(const char *text)
{
    enum { SHOWN = 700 };
    const size_t length = strlen(text);
    return length > SHOWN ? text + length - SHOWN : text;
}

/* Waits for the end of a program, which must be a good one. */
static RunResult end_well(RunningProgram *running)
{
    RunResult result = run_wait(running);
    if (result.exit_status)
        fail_msg("exit status %d\n%s", result.exit_status, end_of(result.err));
    return result;
}

/* ---- the ranks of a running program ---- */

/* Returns whether the program has ended; it is still to be waited for. */
static bool has_ended(const RunningProgram *running)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)running->process, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == running->process;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Waits until ranks run that are not those of `before`, the process of one of them, and have written two
 * checkpoints: at the end of an epoch the first is that from which they began, once more. Returns false if
 * the program has ended first. */
static bool wait_for_progress(const RunningProgram *running, const char *path, pid_t before)
{
    const double start = progress_now_seconds();
    struct stat seen = {0}, now = {0};
    bool started = false;
    int written = 0;
    while (!has_ended(running)) {
        const pid_t rank = started_rank(running->process, 0);
        if (!started && rank > 0 && rank != before) {
            started = true;
            (void)stat(path, &seen);
        }
        if (started && stat(path, &now) == 0 && !same_file(&seen, &now)) {
            seen = now;
            written++;
        }
        if (written == 2)
            return true;
        assert_true(progress_now_seconds() - start < 120);
        sleep_seconds(0.001);
    }
    return false;
}

static double chance(void)
{
    return (double)random() / 2147483648.0;
}

/* ---- what is left behind ---- */

/* Asserts that no process of the program is left. */
static void assert_all_gone(pid_t group)
{
    const double start = progress_now_seconds();
    while (kill(-group, 0) == 0 || errno != ESRCH) {
        assert_true(progress_now_seconds() - start < 20);
        sleep_seconds(0.01);
    }
}

/* Asserts that both folders hold files of the same names: nothing half-written. Each start of a run has
 * events of its own, for TensorBoard. */
static void assert_same_names(const char *a, const char *b)
{
    RunResult of_a = run_program(NULL, "/bin/ls", "-A", "-I", "events.out.*", a, NULL);
    RunResult of_b = run_program(NULL, "/bin/ls", "-A", "-I", "events.out.*", b, NULL);
    assert_string_equal(of_a.out, of_b.out);
    run_result_free(&of_a);
    run_result_free(&of_b);
}

/* Returns the name of a file through which ranks of ftrain --gpus meet and which is newer than the file at
 * path; NULL: there is none. */
static const char *find_meeting(const char *path, char name[NAME_MAX + 1])
{
    char beginning[64], of_memory[NAME_MAX + 16];
    struct stat since, of;
    struct dirent *entry;
    DIR *folder = opendir("/dev/shm");
    bool found = false;
    assert_non_null(folder);
    assert_int_equal(stat(path, &since), 0);
    (void)snprintf(beginning, sizeof beginning, "fshard-%lu-ftraingpus-", (unsigned long)geteuid());
    while (!found && (entry = readdir(folder))) {
        (void)snprintf(of_memory, sizeof of_memory, "/dev/shm/%s", entry->d_name);
        found = strncmp(entry->d_name, beginning, strlen(beginning)) == 0 && stat(of_memory, &of) == 0 &&
                of.st_mtim.tv_sec >= since.st_mtim.tv_sec;
        if (found)
            (void)snprintf(name, NAME_MAX + 1, "%s", entry->d_name);
    }
    (void)closedir(folder);
    return found ? name : NULL;
}

/* Asserts that the file through which the ranks of each launch met is gone. `before`: a file that was written
 * before them. Those of other tests, which run meanwhile, are gone soon. */
static void assert_no_shared_memory(const char *before)
{
    char name[NAME_MAX + 1];
    const double start = progress_now_seconds();
    while (find_meeting(before, name)) {
        if (progress_now_seconds() - start > 30)
            fail_msg("/dev/shm/%s is left", name);
        sleep_seconds(0.002);
    }
}

static void assert_nothing_left(const RunningProgram *ended, const char *before)
{
    assert_all_gone(ended->process);
    assert_no_shared_memory(before);
}

/* ---- kills ---- */

static int kills_wanted(void)
{
    const char *text = getenv("FSHARD_KILLS");
    const int wanted = text ? atoi(text) : KILLS;
    return wanted < 1 ? 1 : wanted > KILLS_MAX ? KILLS_MAX : wanted;
}

/* Kills a rank at a random moment after each restart's first checkpoint, until so many are killed or the run
 * has ended. Returns how many were. */
static int kill_again_and_again(const RunningProgram *running, const char *checkpoint, int wanted)
{
    pid_t first = 0;
    int kills = 0;
    while (kills < wanted && wait_for_progress(running, checkpoint, first)) {
        first = started_rank(running->process, 0);
        sleep_seconds(0.04 * chance());
        const pid_t victim = started_rank(running->process, chance() < 0.5);
        kills += victim > 0 && kill(victim, SIGKILL) == 0;
    }
    return kills;
}

TEST_IN_FOLDER(test_killed_ranks_are_started_again_and_the_result_is_the_same, folder)
{
    const int wanted = kills_wanted();
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "killed");
    char epochs[16], restarts[16];
    if (!started_ranks_are_told())
        skip();
    (void)snprintf(epochs, sizeof epochs, "%d", 4 + wanted);
    (void)snprintf(restarts, sizeof restarts, "%d", wanted);
    /* Checkpoints within an update round what the ranks have accumulated: both runs write them. */
    TRAINED(RICH, "--epochs", epochs, "--checkpoint-interval", "1", shards, test_path(folder, "whole"));
    RunningProgram running = START(NULL, RICH, "--epochs", epochs, "--max-restarts", restarts,
                                   "--checkpoint-interval", "1", shards, out);
    const int kills =
        kill_again_and_again(&running, test_path(folder, "killed/checkpoint.safetensors"), wanted);
    const RunningProgram ended = running;
    RunResult result = run_wait(&running);
    if (result.exit_status)
        fail_msg("after %d kills: exit status %d\n%s", kills, result.exit_status, end_of(result.err));
    assert_int_equal(kills, wanted);
    assert_contains(result.err, "was ended by signal 9 (Killed)");
    assert_contains(result.err, ": all ranks go on from step ");
    assert_same_file(folder, "whole", "killed", true);
    assert_same_names(test_path(folder, "whole"), out);
    assert_nothing_left(&ended, shards);
    run_result_free(&result);
}

/* ---- before there is a checkpoint ---- */

static bool is_stopped(pid_t process)
{
    char path[64], state = 0;
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    FILE *file = process > 0 ? fopen(path, "re") : NULL;
    const bool read = file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
    if (file)
        (void)fclose(file);
    return read && state == 'T';
}

/* Waits until the first rank has stopped itself, as stop_at asks, sends it the signal and lets it go on. */
static void send_when_stopped(const RunningProgram *running, int signal_number)
{
    const double start = progress_now_seconds();
    pid_t first = 0;
    while (!is_stopped(first)) {
        assert_true(progress_now_seconds() - start < 60);
        sleep_seconds(0.002);
        first = started_rank(running->process, 0);
    }
    assert_int_equal(kill(first, signal_number), 0);
    (void)kill(first, SIGCONT);
    while (kill(first, 0) == 0 && is_stopped(first))
        sleep_seconds(0.002);
}

TEST_IN_FOLDER(test_a_run_without_a_checkpoint_begins_anew, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "killed");
    if (!started_ranks_are_told())
        skip();
    TRAINED(RICH, "--epochs", "2", shards, test_path(folder, "whole"));
    for (int force = 0; force < 2; force++) { /* the second run may replace what the first has made */
        RunningProgram running = START("killed/args.json", RICH, "--epochs", "2", "--max-restarts", "1",
                                       shards, out, force ? "--force" : NULL);
        send_when_stopped(&running, SIGKILL);
        send_when_stopped(&running, SIGCONT);
        const RunningProgram ended = running;
        RunResult result = end_well(&running);
        assert_contains(result.err, "restart 1 of 1: all ranks go on from the beginning");
        run_result_free(&result);
        assert_same_file(folder, "whole", "killed", true);
        assert_same_names(test_path(folder, "whole"), out);
        assert_nothing_left(&ended, shards);
    }
}

TEST_IN_FOLDER(test_a_run_that_does_not_get_on_is_not_started_again, folder)
{
    const char *shards = make_set(folder, &train_plain);
    if (!started_ranks_are_told())
        skip();
    RunningProgram running = START("out/args.json", RICH, "--epochs", "2", "--max-restarts", "9", shards,
                                   test_path(folder, "out"));
    send_when_stopped(&running, SIGKILL);
    send_when_stopped(&running, SIGKILL);
    const RunningProgram ended = running;
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, 128 + SIGKILL);
    assert_contains(result.err, "restart 1 of 9: ");
    assert_contains(result.err, "no restart: the last one began there too");
    run_result_free(&result);
    assert_nothing_left(&ended, shards);
}

/* ---- no restart ---- */

TEST_IN_FOLDER(test_a_run_that_is_asked_to_stop_is_not_started_again, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RunningProgram running = START(NULL, RICH, "--epochs", "100000", "--max-restarts", "9",
                                   "--checkpoint-interval", "5", shards, out);
    assert_true(wait_for_file(test_path(folder, "out/checkpoint.safetensors"), 60));
    assert_int_equal(kill(running.process, SIGTERM), 0);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, 75);
    assert_contains_not(result.err, "restart");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_run_that_fails_by_itself_is_not_started_again, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    spoil_sample(folder, "train", 3);
    RunResult result = TRAIN(1, RICH, "--epochs", "1", "--max-restarts", "9", shards, out);
    assert_contains(result.err, "ftrain: no restart: a rank has failed by itself");
    assert_contains_not(result.err, "all ranks go on");
    run_result_free(&result);
    SAYS(2, "--max-restarts: is for --gpus, which starts ranks", "--max-restarts", "1", shards, out);
    SAYS(2, "--max-restarts: does nothing with --evaluate; it is for training", "--gpus", "2", "--device",
         "cpu", "--max-restarts", "1", "--evaluate", "--weights", "w", shards);
}

/* ---- fewer ranks ---- */

#define ONE_RANK "--device", "cpu", RANKS_UNET("3"), "--batch-size", "3"
#define UNET     "--gpus", "2", ONE_RANK

/* A rank that cannot start is left out: one goes on with all images of an update. */
TEST_IN_FOLDER(test_an_elastic_run_goes_on_with_the_ranks_that_are_left, folder)
{
    const DatasetSpec pairs = rank_pairs(24, 4);
    const char *shards = make_set(folder, &pairs), *out = test_path(folder, "out");
    if (!started_ranks_are_told())
        skip();
    TRAINED(UNET, shards, test_path(folder, "whole"));
    RunningProgram running = START("out/args.json", UNET, "--max-restarts", "3", "--elastic", shards, out);
    send_when_stopped(&running, SIGKILL);
    send_when_stopped(&running, SIGKILL);
    send_when_stopped(&running, SIGCONT);
    const RunningProgram ended = running;
    RunResult result = end_well(&running);
    assert_contains(result.err, "restart 2 of 3: the other ranks go on from the beginning");
    assert_contains(result.err, "1 of 2 ranks go on (--elastic)");
    run_result_free(&result);
    const double far = weights_distance(test_path(folder, "whole/last.safetensors"),
                                        test_path(folder, "out/last.safetensors"));
    if (!(far < 2e-6))
        fail_msg("one rank's weights are %g from those of two", far);
    assert_nothing_left(&ended, shards);
}

/* What torchrun and Slurm do with fewer hosts: the ranks that there are go on. */
TEST_IN_FOLDER(test_an_elastic_run_resumes_with_another_number_of_ranks, folder)
{
    const DatasetSpec pairs = rank_pairs(24, 4);
    const char *shards = make_set(folder, &pairs), *out = test_path(folder, "out");
    TRAINED(UNET, shards, test_path(folder, "whole"));
    RunningProgram running = START("out/checkpoint.safetensors", UNET, shards, out);
    send_when_stopped(&running, SIGTERM);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, 75);
    run_result_free(&result);
    result = TRAIN(1, "--gpus", "4", ONE_RANK, "--resume", "auto", "--elastic", shards, out);
    assert_contains(result.err, "rank 0: --elastic: each update takes 6 images, which 4 ranks cannot share");
    assert_contains_not(result.err, "rank 1: ");
    run_result_free(&result);
    SAYS(0, "1 x 3 x 2, and 2 x 3 x 1 before: each update takes the same images", ONE_RANK, "--resume",
         "auto", "--elastic", shards, out);
    const double far = weights_distance(test_path(folder, "whole/last.safetensors"),
                                        test_path(folder, "out/last.safetensors"));
    if (!(far < 2e-6))
        fail_msg("one rank's weights are %g from those of two", far);
    SAYS(2, "--elastic: is for a run that goes on", UNET, "--elastic", shards, test_path(folder, "other"));
}

/* ---- other launchers ---- */

static const char torchrun[] = "/usr/bin/torchrun";

/* torchrun restarts its ranks itself; what they need is --resume auto. Left out where it is not installed. */
TEST_IN_FOLDER(test_torchrun_restarts_killed_ranks, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "killed");
    char program[512];
    if (access(torchrun, X_OK) != 0 || !started_ranks_are_told())
        skip();
    (void)snprintf(program, sizeof program, "%s/ftrain", getenv("FSHARD_BIN"));
    TRAINED("--gpus", "2", RANK, "--epochs", "4", "--checkpoint-interval", "1", shards,
            test_path(folder, "whole"));
    /* Debian's torchrun 1.13 wants to be told where outputs go: it fails by its own default. */
    const char *const arguments[] = {"--no_python",
                                     "--nproc_per_node",
                                     "2",
                                     "--max_restarts",
                                     "2",
                                     "--monitor_interval",
                                     "0.2",
                                     "--redirects",
                                     "0:1,1:1",
                                     "--tee",
                                     "0:1,1:1",
                                     "--log_dir",
                                     test_path(folder, "log"),
                                     "--standalone",
                                     program,
                                     "--jobs",
                                     "1",
                                     RANK,
                                     "--epochs",
                                     "4",
                                     "--checkpoint-interval",
                                     "1",
                                     "--resume",
                                     "auto",
                                     shards,
                                     out,
                                     NULL};
    const RunOptions options = {.timeout_seconds = 300};
    RunningProgram running = run_start(&options, torchrun, arguments);
    assert_int_equal(kill_again_and_again(&running, test_path(folder, "killed/checkpoint.safetensors"), 1),
                     1);
    RunResult result = end_well(&running);
    assert_contains(result.err, "goes on from ");
    run_result_free(&result);
    assert_same_file(folder, "whole", "killed", true);
}
