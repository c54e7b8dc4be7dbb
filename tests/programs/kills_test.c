/* fpack, fresize and ftrain, killed by strace at one system call after the other that changes a folder, and
 * again on the way back: the same command goes on to what an undisturbed run makes. Moments chosen by the
 * clock miss those that are short. FSHARD_KILLS_STRIDE=1 takes every call; the test leaves some out. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "tests/programs/train_support.h"
#include "tests/tools/sources.h"

static const char calls[] =
    "ftruncate,fallocate,write,pwrite64,fsync,fdatasync,?rename,?renameat,renameat2,?link,linkat,?unlink,"
    "unlinkat,?mkdir,mkdirat,?rmdir,flock,msync";
static const char renames[] = "?rename,?renameat,renameat2,?link,linkat";

enum { ARGUMENTS_MAX = 32, KILLS_LEAST = 6 };

typedef struct Job {
    const char *name, *program;
    const char *arguments[16]; /* without the output, which is the last one */
    const char *source;
    unsigned stride; /* calls from one kill to the next */
    const char
        *expected; /* files that must be the same, one space between two; NULL: all that is not hidden */
    /* what the output is at first, for a job that changes it: killed, it must be what it was or what it will
     * be; NULL: nothing */
    const char *before;
} Job;

static const char strace[] = "/usr/bin/strace";
static void fill_arguments(const Job *job, const char *output, const char *arguments[ARGUMENTS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; job->arguments[i]; i++)
        arguments[count++] = job->arguments[i];
    arguments[count++] = job->source;
    arguments[count++] = output;
    arguments[count] = NULL;
}

static void finish(const Job *job, const char *output, unsigned call)
{
    const char *arguments[ARGUMENTS_MAX];
    fill_arguments(job, output, arguments);
    RunResult result = run_program_arguments(NULL, job->program, arguments);
    if (result.exit_status)
        fail_msg("%s, killed at call %u: exit status %d\n%s", job->name, call, result.exit_status,
                 result.err);
    run_result_free(&result);
}

/* Runs the job with strace doing `fault` to call number `call` of `which`, counted in each thread; log gets
 * the calls. The caller frees the result. */
static RunResult run_with(const char *which, const char *fault, unsigned call, const char *log,
                          const Job *job, const char *output)
{
    /* Leaks cannot be looked for under strace. */
    char sanitizer[512];
    const char *given = getenv("ASAN_OPTIONS");
    (void)snprintf(sanitizer, sizeof sanitizer, "ASAN_OPTIONS=%s%sdetect_leaks=0", given ? given : "",
                   given ? ":" : "");
    const char *const environment[] = {sanitizer, NULL};
    const RunOptions traced = {.environment = environment};
    char trace[sizeof calls + 16], inject[sizeof calls + 64], program[1024];
    (void)snprintf(trace, sizeof trace, "trace=%s", which);
    (void)snprintf(inject, sizeof inject, "inject=%s:%s:when=%u", which, fault, call);
    (void)snprintf(program, sizeof program, "%s/%s", getenv("FSHARD_BIN"), job->program);
    const char *arguments[10 + ARGUMENTS_MAX] = {"-f", "-s",  "200", "-o",   log,
                                                 "-e", trace, "-e",  inject, program};
    fill_arguments(job, output, arguments + 10);
    return run_program_arguments(&traced, strace, arguments);
}

/* Runs the job and kills it at that call. Returns false if the job ended before. */
static bool kill_at(const Job *job, const char *output, unsigned call)
{
    RunResult result = run_with(calls, "signal=KILL", call, "/dev/null", job, output);
    const bool killed = result.exit_status == 128 + SIGKILL;
    if (!killed && result.exit_status)
        fail_msg("%s: exit status %d\n%s", job->name, result.exit_status, result.err);
    run_result_free(&result);
    return killed;
}

static void remove_tree(const char *path)
{
    RunResult result = run_program(NULL, "/bin/rm", "-rf", path, NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
}

static void assert_same_files(const Job *job, const char *output, const char *whole, unsigned call)
{
    char names[256], *rest = NULL;
    (void)snprintf(names, sizeof names, "%s", job->expected);
    for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        char a[512], b[512];
        (void)snprintf(a, sizeof a, "%s/%s", output, name);
        (void)snprintf(b, sizeof b, "%s/%s", whole, name);
        if (!same_bytes(a, b))
            fail_msg("%s, killed at call %u: %s differs", job->name, call, name);
    }
}

/* Asserts that output equals the whole tree but for the marks that a kill at the very end leaves. */
static void assert_same_tree(const Job *job, const char *output, const char *whole, unsigned call)
{
    RunResult result =
        run_program(NULL, "/usr/bin/find", output, "-name", ".*", "-not", "-path", output, "-delete", NULL);
    run_result_free(&result);
    char *difference = test_tree_difference(output, whole);
    if (difference)
        fail_msg("%s, killed at call %u: %s", job->name, call, difference);
}

/* Makes the output what it is before the job. */
static void begin(const Job *job, const char *output)
{
    if (!job->before)
        return;
    RunResult result = run_program(NULL, "/bin/cp", "-a", job->before, output, NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
}

/* Asserts that a dataset that was being changed is sound, and the old one or the new one. */
static void assert_old_or_new(const Job *job, const char *output, const char *whole, unsigned call)
{
    if (!job->before)
        return;
    RunResult result = run_program(NULL, "fverify", "-q", output, NULL);
    if (result.exit_status)
        fail_msg("%s, killed at call %u: fverify says\n%s", job->name, call, result.err);
    run_result_free(&result);
    char manifests[3][512];
    const char *const folders[] = {output, job->before, whole};
    for (size_t i = 0; i < 3; i++)
        (void)snprintf(manifests[i], sizeof manifests[i], "%s/dataset.json", folders[i]);
    if (!same_bytes(manifests[0], manifests[1]) && !same_bytes(manifests[0], manifests[2]))
        fail_msg("%s, killed at call %u: dataset.json is neither the old one nor the new one", job->name,
                 call);
}

/* Returns whether the job is a finished fpack, which has nothing to go on with and says so. */
static bool is_done(const Job *job, const char *output)
{
    char manifest[512];
    (void)snprintf(manifest, sizeof manifest, "%s/dataset.json", output);
    return strcmp(job->program, "fpack") == 0 && !job->before && file_exists(manifest);
}

static void kill_everywhere(TestFolder *folder, const Job *job)
{
    const char *stride_text = getenv("FSHARD_KILLS_STRIDE");
    const unsigned stride = stride_text ? (unsigned)strtoul(stride_text, NULL, 10) : job->stride;
    const char *whole = test_path(folder, "%s-whole", job->name),
               *output = test_path(folder, "%s", job->name);
    unsigned kills = 0, ended = 0;
    begin(job, whole);
    finish(job, whole, 0);
    if (!job->expected) {
        RunResult result = run_program(NULL, "/usr/bin/find", whole, "-name", ".*", "-delete", NULL);
        run_result_free(&result);
    }
    for (unsigned call = 1; !ended; call += stride ? stride : 1) {
        begin(job, output);
        ended = !kill_at(job, output, call);
        kills += !ended;
        assert_old_or_new(job, output, whole, call);
        if (!ended && !is_done(job, output))
            kills += kill_at(job, output, 1 + call % 7);
        if (!is_done(job, output))
            finish(job, output, call);
        if (job->expected)
            assert_same_files(job, output, whole, call);
        else
            assert_same_tree(job, output, whole, call);
        remove_tree(output);
    }
    print_message("%s: %u kills\n", job->name, kills);
    assert_true(kills >= KILLS_LEAST);
}

/* Returns whether processes may be traced here; where not, there is nothing to test. */
static bool can_trace(void)
{
    if (!file_exists(strace))
        return false;
    RunResult result = run_program(NULL, strace, "-f", "-o", "/dev/null", "/bin/true", NULL);
    const bool can = result.exit_status == 0;
    run_result_free(&result);
    return can;
}

static const char *make_images(TestFolder *folder)
{
    const char *source = test_path(folder, "images");
    for (unsigned i = 0; i < 12; i++)
        source_jpeg(test_path(folder, "images/%c/%02u.jpg", 'a' + i % 2, i), 60 + i % 7, 60, 3, i);
    return source;
}

TEST_IN_FOLDER(test_fpack_goes_on_from_any_call, folder)
{
    const char *source = make_images(folder);
    const Job jobs[] = {
        {"shards", "fpack", {"-j1", "--shard-size", "16K"}, source, 2, NULL, NULL},
        {"dictionary",
         "fpack",
         {"-j1", "--shard-size", "16K", "--store", "zstd", "--dictionary", "--dictionary-size", "1K"},
         source,
         2,
         NULL,
         NULL},
        {"lmdb", "fpack", {"-j1", "--format", "lmdb"}, source, 2, NULL, NULL},
        {"tar", "fpack", {"-j1", "--format", "tar", "--shard-size", "16K"}, source, 2, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        kill_everywhere(folder, &jobs[i]);
}

/* Some files are new, changed and gone, and one class comes before the others; a shard loses all it has. */
TEST_IN_FOLDER(test_an_update_leaves_the_old_dataset_or_the_new_one, folder)
{
    const char *source = make_images(folder), *before = test_path(folder, "before");
    const Job packing = {"packing", "fpack", {"-j1", "--shard-size", "4K"}, source, 1, NULL, NULL};
    finish(&packing, before, 0);
    source_jpeg(test_path(folder, "images/a/02.jpg"), 61, 60, 3, 90);
    source_jpeg(test_path(folder, "images/b/90.jpg"), 62, 60, 3, 91);
    source_jpeg(test_path(folder, "images/0/00.jpg"), 63, 60, 3, 92);
    assert_int_equal(unlink(test_path(folder, "images/b/11.jpg")), 0);
    assert_int_equal(unlink(test_path(folder, "images/b/09.jpg")), 0);
    const Job job = {"updated", "fpack", {"-j1", "--shard-size", "4K", "--update"}, source, 1, NULL, before};
    kill_everywhere(folder, &job);
}

TEST_IN_FOLDER(test_fresize_goes_on_from_any_call, folder)
{
    const Job job = {"resized", "fresize", {"-j1", "--max-size", "40"}, make_images(folder), 2, NULL, NULL};
    kill_everywhere(folder, &job);
}

#define TRAINING                                                                                             \
    "--jobs", "1", "--workers", "1", "--model", "conv8", "--epochs", "2", "--batch-size", "8",               \
        "--model-ema", "--resume", "auto"

TEST_IN_FOLDER(test_ftrain_goes_on_from_any_call, folder)
{
    const Job job = {.name = "trained",
                     .program = "ftrain",
                     .arguments = {TRAINING},
                     .source = make_set(folder, &train_plain),
                     .stride = 41,
                     .expected = "last.safetensors model_best.safetensors model_ema.safetensors"};
    kill_everywhere(folder, &job);
}

/* A disk that fails once: the run says so, and afterwards, or once it has gone on, nothing is missing. */
TEST_IN_FOLDER(test_ftrain_makes_good_what_could_not_be_put_in_place, folder)
{
    static const char *const learnt[] = {"checkpoint", "last", "model_best", "model_ema"};
    enum { RENAMES = 14, TOLD_LEAST = 8 };
    const Job job = {.name = "failed",
                     .program = "ftrain",
                     .arguments = {TRAINING},
                     .source = make_set(folder, &train_plain),
                     .expected = "last.safetensors"};
    const char *whole = test_path(folder, "whole"), *output = test_path(folder, "failed");
    unsigned told = 0;
    finish(&job, whole, 0);
    for (unsigned call = 1; call <= RENAMES; call++) {
        RunResult result = run_with(renames, "error=EIO", call, "/dev/null", &job, output);
        told += strstr(result.err, "Input/output error") != NULL;
        run_result_free(&result);
        finish(&job, output, call);
        assert_same_files(&job, output, whole, call);
        for (size_t i = 0; i < sizeof learnt / sizeof *learnt; i++)
            if (!file_exists(test_path(folder, "failed/%s.safetensors", learnt[i])))
                fail_msg("call %u: %s.safetensors is missing", call, learnt[i]);
        remove_tree(output);
    }
    assert_true(told >= TOLD_LEAST);
}

/* Returns which call of its thread was the last in the log whose second path is the named file. */
static unsigned last_call_to(const char *log, const char *name)
{
    enum { THREADS_MAX = 64 };
    struct {
        long thread;
        unsigned calls;
    } threads[THREADS_MAX] = {{0}};
    char *text = test_file_read(log, NULL), *rest = NULL, end[256];
    unsigned last = 0;
    (void)snprintf(end, sizeof end, "/%s\"", name);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const long thread = strtol(line, NULL, 10);
        size_t i = 0;
        if (!strchr(line, '('))
            continue;
        while (i < THREADS_MAX - 1 && threads[i].thread && threads[i].thread != thread)
            i++;
        threads[i].thread = thread;
        threads[i].calls++;
        if (strstr(line, end))
            last = threads[i].calls;
    }
    free(text);
    return last;
}

/* Trains while the best epoch's weights cannot be written. The run must say so and fail unless a later epoch
 * was as good; resumed, it must fail again unless the best epoch was the last. */
static void lose_best_weights(TestFolder *folder, const char *shards, const char *rate)
{
    enum { EPOCHS = 6 };
    const Job job = {.name = rate,
                     .program = "ftrain",
                     /* without the page, which is written by the clock too: its calls would be counted */
                     .arguments = {"--jobs", "1", "--model", "conv8", "--epochs", "6", "--batch-size", "2",
                                   "--lr", rate, "--json", "--no-html", "--resume", "auto"},
                     .source = shards};
    const char *whole = test_path(folder, "whole-%s", rate), *output = test_path(folder, "%s", rate);
    const char *log = test_path(folder, "calls");
    RunResult result = run_with(renames, "error=EIO", 10000, log, &job, whole);
    assert_int_equal(result.exit_status, 0);
    json_t *object = read_json(result.out);
    const double best = number_of(object, "best_top1");
    const int best_epoch = (int)number_of(object, "best_epoch");
    bool as_good = false;
    for (int i = best_epoch + 1; i < EPOCHS; i++)
        as_good = as_good || fabs(summary_number(whole, (size_t)i, "eval_top1") - best) < 1e-3;
    json_decref(object);
    run_result_free(&result);
    print_message("rate %s: best in epoch %d of %d%s\n", rate, best_epoch, EPOCHS,
                  as_good ? ", and later" : "");

    result = run_with(renames, "error=EIO", last_call_to(log, "model_best.safetensors"), "/dev/null", &job,
                      output);
    assert_contains(result.err, "model_best.safetensors: cannot put the file in place: Input/output error");
    assert_int_equal(result.exit_status, as_good ? 0 : 1);
    object = read_json(result.out);
    assert_true(number_of(object, "best_top1") == best);
    json_decref(object);
    run_result_free(&result);
    const char *arguments[ARGUMENTS_MAX];
    fill_arguments(&job, output, arguments);
    const bool lost = !as_good && best_epoch < EPOCHS - 1;
    for (int again = 0; again < 2; again++) { /* the second finds the run done */
        result = run_program_arguments(NULL, "ftrain", arguments);
        assert_int_equal(result.exit_status, lost ? 1 : 0);
        if (lost)
            assert_contains(result.err, "could not be saved: ");
        run_result_free(&result);
        assert_true(file_exists(test_path(folder, "%s/model_best.safetensors", rate)));
    }
}

/* Where it was the last epoch's, and one before. */
TEST_IN_FOLDER(test_ftrain_says_that_the_best_weights_are_lost, folder)
{
    DatasetSpec spec = train_plain;
    spec.val_count = 97; /* so many that few epochs are equal */
    const char *shards = make_set(folder, &spec);
    lose_best_weights(folder, shards, "0.02");
    lose_best_weights(folder, shards, "0.05");
}

/* The first flock of a run is that on the dataset, which an update looks for; the second that on its
 * output. */
TEST_IN_FOLDER(test_ftrain_says_where_nothing_keeps_a_second_run_out, folder)
{
    const Job job = {.name = "unlocked",
                     .program = "ftrain",
                     .arguments = {"--jobs", "1", "--model", "conv8", "--epochs", "1"},
                     .source = make_set(folder, &train_plain)};
    const char *output = test_path(folder, "unlocked");
    RunResult result = run_with("flock", "error=ENOLCK", 2, "/dev/null", &job, output);
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.err,
                    "unlocked: its file system knows no locks: nothing keeps a second run out of it");
    run_result_free(&result);
    const Job predicts = {
        .name = "predicted",
        .program = "ftrain",
        .arguments = {"--jobs", "1", "--weights", test_path(folder, "unlocked/last.safetensors"), job.source},
        .source = "--predict"};
    result = run_with("flock", "error=ENOLCK", 2, "/dev/null", &predicts, test_path(folder, "predicted"));
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.err, "predicted: its file system knows no locks");
    run_result_free(&result);
}

int test_program_begin(void)
{
    if (can_trace())
        return TEST_RUN;
    (void)printf("left out: strace is not there, or may not trace\n");
    return TEST_SKIP_ALL;
}
