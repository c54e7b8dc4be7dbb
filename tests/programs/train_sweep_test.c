/* ftrain --sweep from outside: which runs there are, what becomes of those that fail or are stopped, and what
 * is refused before any begins. */
#include "tests/programs/train_support.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"

#define TINY "--model", "conv8", "--epochs", "2", "--batch-size", "8"

/* Returns how many names in the folder do not begin with a dot. */
static size_t count_names(const char *folder)
{
    size_t count = 0;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    for (const struct dirent *entry = readdir(entries); entry; entry = readdir(entries))
        count += entry->d_name[0] != '.';
    (void)closedir(entries);
    return count;
}

TEST_IN_FOLDER(test_a_sweep_runs_every_combination_with_every_seed, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RunResult result = TRAIN(0, "--sweep", "lr=0.01,0.02", "--sweep", "nesterov=true,false", "--seeds", "2",
                             "--seed", "5", TINY, shards, out);
    assert_contains(result.err, "sweep: 8 runs, 0 ended before; 1 at a time");
    assert_contains(result.err, "[8/8] lr=0.02,nesterov=false,seed=6: best top-1 ");
    assert_contains(result.out, "\nnesterov false, lr 0.02     2       2  ");
    assert_contains(result.out, "±: standard deviation over seeds");
    run_result_free(&result);
    assert_int_equal(count_names(out), 2 * 8 + 1); /* each with a log, and the page */
    json_t *notes = read_json_file(test_path(folder, "out/lr=0.02,nesterov=false,seed=6/args.json"));
    const json_t *options = json_object_get(notes, "options");
    assert_true(number_of(options, "lr") == 0.02);
    assert_true(json_is_false(json_object_get(options, "nesterov")));
    assert_int_equal((int)number_of(options, "seed"), 6);
    json_decref(notes);
    /* A run of a sweep is the run that it would be alone. */
    TRAINED(TINY, "--lr", "0.01", "--seed", "5", "--nesterov", shards, test_path(folder, "alone"));
    assert_same_file(folder, "alone", "out/lr=0.01,nesterov=true,seed=5", true);
}

/* Returns how often text is in there. */
static size_t count_of(const char *there, const char *text)
{
    size_t count = 0;
    while ((there = strstr(there, text))) {
        there += strlen(text);
        count++;
    }
    return count;
}

TEST_IN_FOLDER(test_what_runs_warn_of_is_told_once, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    static const char text[] = "warning: --head-only keeps weights that are random";
    RunResult result = TRAIN(0, "--sweep", "lr=0.01,0.02", "--head-only", TINY, shards, out);
    assert_contains(result.err, "[1/2] lr=0.01,seed=0: warning: --head-only keeps");
    assert_int_equal((int)count_of(result.err, text), 1);
    run_result_free(&result);
    /* What stands in a log from before is not told again. */
    const char *log = test_path(folder, "out/lr=0.03,seed=0.log");
    test_file_write_text(log, "warning: of yesterday\n");
    result = TRAIN(0, "--sweep", "lr=0.03", "--head-only", TINY, shards, out);
    assert_contains_not(result.err, "yesterday");
    assert_int_equal((int)count_of(result.err, text), 1);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_runs_that_have_ended_are_not_run_again, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    TRAINED("--sweep", "lr=0.01,0.02", TINY, shards, out);
    const char *weights = test_path(folder, "out/lr=0.01,seed=0/last.safetensors");
    test_file_write_text(weights, "a mark"); /* a run that begins again would replace it */
    /* More seeds, with two at a time. */
    RunResult result = TRAIN(0, "--sweep", "lr=0.01,0.02", "--seeds", "2", "--gpus", "2", "--device", "cpu",
                             TINY, shards, out);
    assert_contains(result.err, "sweep: 4 runs, 2 ended before; 2 at a time");
    assert_contains_not(result.err, "[1/4]");
    assert_contains(result.err, "[2/4] lr=0.01,seed=1: begins");
    assert_contains(result.out, "\nlr 0.01     2       2  ");
    run_result_free(&result);
    assert_int_equal(test_file_size(weights), 6);
    /* The same folders with other options hold other runs. */
    SAYS(1, "out/lr=0.01,seed=0: its run has ended, and had other options: --epochs 3 (was 2)", "--sweep",
         "lr=0.01,0.02", "--model", "conv8", "--epochs", "3", "--batch-size", "8", shards, out);
}

TEST_IN_FOLDER(test_a_failed_run_costs_the_others_nothing, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    spoil_sample(folder, "train", 3);
    RunResult result = TRAIN(1, "--sweep", "on-error=stop,skip", TINY, shards, out);
    assert_contains(result.err, "[1/2] on-error=stop,seed=0: failed (exit status 1): ftrain: ");
    assert_contains(result.err, "record 3");
    assert_contains(result.err, "[2/2] on-error=skip,seed=0: best top-1 ");
    assert_contains(result.err, "ftrain: 2 of 2 runs failed: on-error=stop,seed=0 on-error=skip,seed=0;");
    assert_contains(result.out, "on-error=skip,seed=0");
    run_result_free(&result);
    assert_true(file_exists(test_path(folder, "out/compare.html")));
}

/* What has diverged begins again over its weights, beside new values; a dry run leaves all where it lies. */
TEST_IN_FOLDER(test_a_run_that_diverged_is_tried_again, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    const char *remains = test_path(folder, "out/lr=1e6,seed=0/diverged.safetensors");
    const char *temporary = test_path(folder, "out/lr=1e6,seed=0/.mine.tmp-1-2");
    RunResult result = TRAIN(1, "--sweep", "lr=0.01,1e6", TINY, shards, out);
    assert_contains(result.err, "1 of 2 runs failed: lr=1e6,seed=0;");
    run_result_free(&result);
    assert_true(file_exists(remains));
    test_file_write_text(temporary, "of a run that was killed");
    result = TRAIN(0, "-n", "--sweep", "lr=0.01,1e6", TINY, shards, out);
    run_result_free(&result);
    assert_true(file_exists(temporary));
    assert_int_equal(unlink(remains), 0);
    test_file_write_text(remains, "of the first attempt");
    result = TRAIN(1, "--sweep", "lr=0.01,1e6,0.02", TINY, shards, out);
    assert_contains(result.err, "sweep: 3 runs, 1 ended before");
    assert_contains(result.err, "lr=0.02,seed=0: best top-1 ");
    assert_contains(result.err, "1 of 3 runs failed: lr=1e6,seed=0;");
    run_result_free(&result);
    assert_true(test_file_size(remains) > 1000);
}

/* Starts a sweep of two long runs, stops it in the first, and lets it go on. */
static void stop_and_go_on(TestFolder *folder, int signal_number, int exit_status)
{
    const char *shards = test_path(folder, "set"), *out = test_path(folder, "out%d", signal_number);
    const char *const arguments[] = {
        "--jobs", "1",        "--sweep", "lr=0.01,0.02", "--model", "conv8", "--batch-size",
        "1",      "--epochs", "60",      shards,         out,       NULL};
    RunningProgram running = run_start(NULL, "ftrain", arguments);
    assert_true(wait_for_file(test_path(folder, "out%d/lr=0.01,seed=0/last.safetensors", signal_number), 60));
    assert_int_equal(kill(running.process, signal_number), 0);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, exit_status);
    assert_contains(result.err, "ftrain: ends once the runs in hand have ended their steps and saved");
    assert_contains(result.err, "[1/2] lr=0.01,seed=0: stopped");
    assert_contains(result.err, "interrupted: 0 of 2 runs have ended; the same command goes on");
    assert_contains_not(result.err, "[2/2]");
    run_result_free(&result);
    result = expect_train(0, NULL, arguments);
    run_result_free(&result);
    char *log = test_file_read(test_path(folder, "out%d/lr=0.01,seed=0.log", signal_number), NULL);
    assert_contains(log, "goes on from ");
    free(log);
}

TEST_IN_FOLDER(test_a_sweep_that_was_stopped_goes_on, folder)
{
    (void)make_set(folder, &train_plain);
    stop_and_go_on(folder, SIGINT, 130);
    stop_and_go_on(folder, SIGTERM, 75);
    assert_same_file(folder, "out2/lr=0.02,seed=0", "out15/lr=0.02,seed=0", true);
    assert_same_file(folder, "out2/lr=0.01,seed=0", "out15/lr=0.01,seed=0", true);
}

TEST_IN_FOLDER(test_a_dry_run_lists_the_runs, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    TRAINED("--sweep", "lr=0.01", TINY, shards, out);
    RunResult result = TRAIN(0, "--dry-run", "--sweep", "lr=0.01,0.02", TINY, shards, out);
    assert_contains(result.out, "out/lr=0.01,seed=0: has ended\n");
    assert_contains(result.out, "out/lr=0.02,seed=0\n");
    run_result_free(&result);
    assert_false(file_exists(test_path(folder, "out/lr=0.02,seed=0")));
    result = TRAIN(0, "--dry-run", "--sweep", "label-smoothing=10%,2.5%", TINY, shards, out);
    assert_contains(result.out, "out/label-smoothing=10%,seed=0\n"); /* as it was given */
    assert_contains(result.out, "out/label-smoothing=2.5%,seed=0\n");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_sweep_keeps_out_of_folders_of_others, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    test_file_write_text(test_path(folder, "out/thesis.tex"), "mine");
    SAYS(1, "out: exists, is not empty (thesis.tex) and holds no runs of a sweep; choose another", "--sweep",
         "lr=0.01,0.02", TINY, shards, out);
    SAYS(1, "set: it is a dataset, not an output folder", "--sweep", "lr=0.01,0.02", "--force", TINY, shards,
         shards);
    assert_int_equal(test_count_files(out), 1);
    /* a folder in the place of a run */
    const char *sweep = test_path(folder, "sweep");
    test_file_write_text(test_path(folder, "sweep/lr=0.02,seed=0/thesis.tex"), "mine");
    test_file_write_text(test_path(folder, "sweep/lr=0.03,seed=0.log"), "of a run that failed");
    SAYS(1, "sweep/lr=0.02,seed=0: exists and is not empty (thesis.tex)", "--sweep", "lr=0.01,0.02", TINY,
         shards, sweep);
    assert_int_equal(test_count_files(sweep), 2);
    /* a page in the place of that of the sweep; what the user adds to a sweep's folder is no matter */
    test_file_write_text(test_path(folder, "sweep/compare.html"), "mine");
    SAYS(1, "compare.html: exists, and is no page of --compare", "--sweep", "lr=0.01", TINY, shards, sweep);
    assert_int_equal(unlink(test_path(folder, "sweep/compare.html")), 0);
    test_file_write_text(test_path(folder, "sweep/notes.txt"), "mine");
    TRAINED("--sweep", "lr=0.01", TINY, shards, sweep);
    TRAINED("--sweep", "lr=0.01", TINY, shards, sweep);
}

TEST_IN_FOLDER(test_wrong_sweeps_are_refused_before_anything_runs, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    static const struct {
        int exit_status;
        const char *message, *arguments[6];
    } cases[] = {
        {2, "--sweep: --lr: '-1' is not a number", {"--sweep", "lr=0.1,-1"}},
        {2, "--sweep: there is no option 'learning-rate'", {"--sweep", "learning-rate=0.1"}},
        {2, "--sweep: 'lr' is not NAME=VALUE", {"--sweep", "lr"}},
        {2, "--sweep: lr has an empty value", {"--sweep", "lr=0.1,"}},
        {2, "--sweep: lr is to be 0.1 twice", {"--sweep", "lr=0.1,0.1"}},
        {2, "--sweep: lr is there twice", {"--sweep", "lr=0.1", "--sweep", "lr=0.2"}},
        {2, "--lr: --sweep gives its values", {"--sweep", "lr=0.1", "--lr", "0.2"}},
        {2, "--sweep: --force is the same for all runs", {"--sweep", "force=true"}},
        {2, "--sweep: --output is the same for all runs", {"--sweep", "output=a,b"}},
        {2, "--sweep: --gpus says how many", {"--sweep", "gpus=1,2"}},
        {2, "--seeds: --sweep gives the seeds", {"--sweep", "seed=1,2", "--seeds", "2"}},
        {2, "--resume: not together with --sweep", {"--sweep", "lr=0.1", "--resume", "auto"}},
        {2, "--sweep: two runs would have the folder", {"--sweep", "weights=a/b,a_b"}},
        /* Found by planning: nothing in the value itself is wrong. */
        {2, "model=resnet99,seed=0: --model: 'resnet99' is none", {"--sweep", "model=conv8,resnet99"}},
        {1, "batch-size=80,seed=0: --batch-size: 80 is more than", {"--sweep", "batch-size=8,80"}},
        {2, "lr-gamma=0.1,seed=0: --lr-gamma: does nothing here", {"--sweep", "lr-gamma=0.1"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *words = cases[i].arguments;
        const char *const arguments[] = {"--dry-run", "--epochs", "2",      shards,   out, words[0],
                                         words[1],    words[2],   words[3], words[4], NULL};
        for (int trains = 0; trains < 2; trains++) { /* a dry run refuses what a run does */
            RunResult result = expect_train(cases[i].exit_status, NULL, arguments + trains);
            assert_contains(result.err, cases[i].message);
            assert_string_equal(result.out, "");
            run_result_free(&result);
            assert_false(file_exists(out));
        }
    }
    SAYS(2, "OUTPUT is missing", "--sweep", "lr=0.1", shards);
    TRAINED(TINY, shards, out);
    SAYS(1, "out: holds a run; --sweep wants a folder of its own", "--sweep", "lr=0.1", shards, out);
}
