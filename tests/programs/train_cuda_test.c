/* ftrain on a GPU from outside: what runs of the other tests do on the CPU, where steps are under way while
 * others are looked at. Leaves with 77 where there is no GPU. */
#include "tests/programs/train_support.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "trainer/backend/backend.h"
#include "trainer/checkpoint/safetensors.h"

static const DatasetSpec learnable = {.codec = FSH_CODEC_RAW,
                                      .width = 32,
                                      .height = 32,
                                      .channels = 3,
                                      .class_count = 4,
                                      .train_count = 320,
                                      .val_count = 64,
                                      .shard_count = 2};

static const char *make_learnable(TestFolder *folder)
{
    return make_set(folder, &learnable);
}

/* ---- runs side by side ---- */

/* Most of the time of a short run on a GPU is its start, and a GPU takes several at a time. */
enum { ARGUMENTS_MOST = 40, SIDE_BY_SIDE = 9 };

typedef struct Job {
    const char *arguments[ARGUMENTS_MOST];
    const char *environment; /* "NAME=value"; NULL: nothing more */
    int exit_status;         /* that it shall have */
    RunResult result;
} Job;

static RunningProgram start_job(const Job *job)
{
    const char *all[ARGUMENTS_MOST + 4] = {"--jobs", "2", "--device", "cuda"};
    const char *const environment[] = {job->environment, NULL};
    const RunOptions options = {.environment = environment};
    for (size_t i = 0; i < ARGUMENTS_MOST && job->arguments[i]; i++)
        all[i + 4] = job->arguments[i];
    return run_start(&options, "ftrain", all);
}

static void end_job(Job *job, RunningProgram *running)
{
    job->result = run_wait(running);
    if (job->result.exit_status != job->exit_status)
        fail_msg("%s %s …: exit status %d, not %d\n%s%s", job->arguments[0], job->arguments[1],
                 job->result.exit_status, job->exit_status, job->result.out, job->result.err);
}

static void run_jobs(Job *jobs, size_t count)
{
    RunningProgram running[SIDE_BY_SIDE];
    assert_in_range(count, 1, SIDE_BY_SIDE);
    for (size_t i = 0; i < count; i++)
        running[i] = start_job(&jobs[i]);
    for (size_t i = 0; i < count; i++)
        end_job(&jobs[i], &running[i]);
}

static void free_jobs(Job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        run_result_free(&jobs[i].result);
}

/* ---- learning ---- */

/* A class is a bright quarter of the image: a mirror image is one of another class. */
TEST_IN_FOLDER(test_the_loss_falls_in_every_precision, folder)
{
    enum { MODELS = 3, PRECISIONS = 3 };
    const char *shards = make_learnable(folder);
    static const char *const precisions[] = {"off", "bf16", "fp16"}, *const said[] = {"float32", "bf16",
                                                                                      "fp16"};
    static const char *const models[] = {"conv8", "resnet9", "toynet"};
    Job jobs[MODELS * PRECISIONS] = {{.environment = NULL}};
    const char *outs[MODELS * PRECISIONS];
    for (size_t i = 0; i < MODELS * PRECISIONS; i++) {
        const char *model = models[i / PRECISIONS], *amp = precisions[i % PRECISIONS];
        outs[i] = test_path(folder, "%s-%s", model, amp);
        jobs[i] = (Job){.arguments = {"--model", model, "--amp", amp, "--epochs", "6", "-b", "16",
                                      "--hflip-prob", "0", shards, outs[i]}};
    }
    run_jobs(jobs, MODELS * PRECISIONS);
    for (size_t i = 0; i < MODELS * PRECISIONS; i++) {
        char precision[32];
        (void)snprintf(precision, sizeof precision, "precision %s", said[i % PRECISIONS]);
        assert_contains(jobs[i].result.err, precision);
        const double first = summary_number(outs[i], 0, "train_loss"),
                     last = summary_number(outs[i], 5, "train_loss"),
                     top1 = summary_number(outs[i], 5, "eval_top1");
        if (!(last < 0.9 * first) || !(top1 > 90))
            fail_msg("%s, %s: loss %g to %g, top-1 %g %%", models[i / PRECISIONS], precisions[i % PRECISIONS],
                     first, last, top1);
    }
    free_jobs(jobs, MODELS * PRECISIONS);
}

TEST_IN_FOLDER(test_precision_is_chosen_by_the_network, folder)
{
    const char *shards = make_learnable(folder);
    static const char *const said[] = {"precision fp16 (--amp off for float32), loss scale 65536",
                                       "precision float32 with TF32 products", "--tf32: does nothing here"};
    Job jobs[] = {{.arguments = {"--model", "conv8", "--dry-run", shards}},
                  {.arguments = {"--model", "conv8", "--amp", "off", "--tf32", "--dry-run", shards}},
                  {.arguments = {"--tf32", "--dry-run", shards}, .exit_status = 2}};
    run_jobs(jobs, 3);
    for (int i = 0; i < 3; i++)
        assert_contains(jobs[i].result.err, said[i]);
    free_jobs(jobs, 3);
}

/* ---- memory ---- */

/* The run without a GPU knows what the one with it has taken, but for scratch memory. */
TEST_IN_FOLDER(test_what_a_gpu_takes_is_foreseen_without_one, folder)
{
    enum { CASES = 3 };
    static const char *const kinds[] = {"weights", "weight_copies", "gradients", "activations",
                                        "inputs",  "results",       "pinned"};
    static const char *const models[CASES][2] = {
        {"resnet9", "fp16"}, {"toynet", "bf16"}, {"resnet18", "off"}};
    const char *shards = make_learnable(folder);
    Job jobs[2 * CASES] = {{.environment = NULL}};
    for (size_t i = 0; i < 2 * (size_t)CASES; i++)
        jobs[i] = (Job){.arguments = {"--model", models[i / 2][0], "--amp", models[i / 2][1], "--model-ema",
                                      "-b", "16", "--dry-run", "--json", shards},
                        .environment = i % 2 ? "CUDA_VISIBLE_DEVICES=-1" : NULL};
    run_jobs(jobs, 2 * (size_t)CASES);
    for (size_t i = 0; i < CASES; i++) {
        json_t *taken = read_json(jobs[2 * i].result.out), *foreseen = read_json(jobs[2 * i + 1].result.out);
        assert_contains(jobs[2 * i + 1].result.err, "foreseen without a GPU");
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const double a = number_of(json_object_get(taken, "memory"), kinds[k]),
                         b = number_of(json_object_get(foreseen, "memory"), kinds[k]);
            if (a != b)
                fail_msg("%s, %s: %s are %.0f bytes, and %.0f foreseen", models[i][0], models[i][1], kinds[k],
                         a, b);
        }
        assert_true(number_of(json_object_get(taken, "memory"), "scratch") > 0);
        json_decref(taken);
        json_decref(foreseen);
    }
    free_jobs(jobs, 2 * (size_t)CASES);
}

/* ---- going on ---- */

/* What a run that goes on has to restore: each case runs whole, and is stopped after a checkpoint and gone on
 * with. */
typedef struct ResumeCase {
    const char *name;
    const char *arguments[24];
    int signal;
} ResumeCase;

static const ResumeCase resume_cases[] = {
    {"off",
     {"--amp", "off", "--model", "resnet9", "--epochs", "6", "--opt", "adamw", "--lr", "0.002",
      "--model-ema"},
     SIGKILL},
    {"fp16",
     {"--amp", "fp16", "--model", "resnet9", "--epochs", "6", "--opt", "adamw", "--lr", "0.002",
      "--model-ema"},
     SIGKILL},
    /* the first checkpoint is between the parts of an update */
    {"gathered",
     {"--model", "conv8", "--epochs", "40", "--grad-accum-steps", "3", "--val-interval", "40"},
     SIGKILL},
    {"cached",
     {"--model", "conv8", "--epochs", "40", "--cache", "gpu", "--mixup-alpha", "0.2", "--val-interval", "40"},
     SIGUSR1},
    {"growing",
     {"--model", "conv8", "--epochs", "40", "--progressive", "24:32", "--progressive-epochs", "1:8",
      "--val-interval", "40"},
     SIGUSR1},
};
enum { RESUME_CASES = sizeof resume_cases / sizeof *resume_cases };

static Job resume_job(const ResumeCase *test, const char *first, const char *second, const char *shards,
                      const char *out)
{
    Job job = {.arguments = {"--deterministic", "-b", "16", "--force", first, second}};
    size_t count = 6;
    for (size_t i = 0; test->arguments[i]; i++)
        job.arguments[count++] = test->arguments[i];
    job.arguments[count++] = shards;
    job.arguments[count] = out;
    return job;
}

/* Sends each run its signal as soon as the run has a checkpoint. */
static void signal_behind_checkpoints(TestFolder *folder, const RunningProgram *running)
{
    const char *checkpoints[RESUME_CASES];
    bool signalled[RESUME_CASES] = {false};
    size_t left = RESUME_CASES;
    for (size_t i = 0; i < RESUME_CASES; i++)
        checkpoints[i] = test_path(folder, "%s-stopped/checkpoint.safetensors", resume_cases[i].name);
    for (int tries = 0; left > 0; tries++) {
        if (tries > 12000)
            fail_msg("%zu runs have no checkpoint after a minute", left);
        for (size_t i = 0; i < RESUME_CASES; i++) {
            if (signalled[i] || !file_exists(checkpoints[i]))
                continue;
            assert_int_equal(kill(running[i].process, resume_cases[i].signal), 0);
            signalled[i] = true;
            left--;
        }
        sleep_seconds(0.005);
    }
}

TEST_IN_FOLDER(test_a_stopped_run_goes_on_with_the_same_bits, folder)
{
    const char *shards = make_learnable(folder);
    Job whole[RESUME_CASES], stopped[RESUME_CASES], resumed[RESUME_CASES];
    enum { STOPPED, WHOLE };
    RunningProgram running[2][RESUME_CASES];
    for (size_t i = 0; i < RESUME_CASES; i++) {
        const ResumeCase *test = &resume_cases[i];
        const char *out = test_path(folder, "%s-stopped", test->name);
        whole[i] =
            resume_job(test, "--log-interval", "10", shards, test_path(folder, "%s-whole", test->name));
        stopped[i] = resume_job(test, "--checkpoint-interval", "7", shards, out);
        stopped[i].exit_status = test->signal == SIGKILL ? 128 + SIGKILL : 75;
        resumed[i] = resume_job(test, "--resume", "auto", shards, out);
    }
    for (size_t i = 0; i < RESUME_CASES; i++)
        running[STOPPED][i] = start_job(&stopped[i]);
    signal_behind_checkpoints(folder, running[STOPPED]);
    for (size_t i = 0; i < RESUME_CASES; i++) {
        end_job(&stopped[i], &running[STOPPED][i]); /* it was under way */
        running[WHOLE][i] = start_job(&whole[i]);
    }
    run_jobs(resumed, RESUME_CASES);
    for (size_t i = 0; i < RESUME_CASES; i++) {
        const char *name = resume_cases[i].name;
        end_job(&whole[i], &running[WHOLE][i]);
        assert_contains(resumed[i].result.err, "goes on from ");
        assert_contains(resumed[i].result.err, "deterministic");
        if (!same_bytes(test_path(folder, "%s-whole/last.safetensors", name),
                        test_path(folder, "%s-stopped/last.safetensors", name)))
            fail_msg("%s: the weights of a run that went on are others", name);
    }
    free_jobs(whole, RESUME_CASES);
    free_jobs(stopped, RESUME_CASES);
    free_jobs(resumed, RESUME_CASES);
}

/* ---- what is told ---- */

TEST_IN_FOLDER(test_a_profile_has_rates_of_this_device, folder)
{
    const char *shards = make_learnable(folder);
    size_t length = 0;
    TRAINED("--device", "cuda", "--model", "resnet9", "--epochs", "2", "-b", "32", "--profile", "5", shards,
            test_path(folder, "out"));
    char *text = test_file_read(test_path(folder, "out/PROFILE.txt"), &length);
    assert_contains(text, "resnet9, 5 steps of 32 images of 32 x 32 pixels, f16: steps 7 to 11 of the run\n");
    assert_contains(text, "TFLOP/s (measured: a product of f16)");
    assert_contains(text, "conv2d_backward_data");
    free(text);
}

TEST_IN_FOLDER(test_plans_of_layers_are_told, folder)
{
    const char *shards = make_learnable(folder);
    Job jobs[] = {{.arguments = {"--model", "resnet9", "--dry-run", "-v", shards}},
                  {.arguments = {"--model", "resnet9", "--dry-run", shards}}};
    run_jobs(jobs, 2);
    assert_contains(jobs[0].result.out, "cuDNN engine ");
    assert_contains(jobs[0].result.out, "copies of weights in 16 bits");
    assert_contains(jobs[0].result.out, "in all, on the device");
    assert_contains(jobs[0].result.err, "memory: ");
    assert_contains(jobs[0].result.err, "cuDNN 9.");
    assert_null(strstr(jobs[1].result.out, "cuDNN engine "));
    free_jobs(jobs, 2);
}

TEST_IN_FOLDER(test_fusions_can_be_left_out, folder)
{
    const char *shards = make_learnable(folder), *out = test_path(folder, "out");
    Job jobs[] = {{.arguments = {"--model", "resnet9", "--epochs", "1", "--no-fuse",
                                 "norm-relu,gradient-add,bias-norm", shards, test_path(folder, "apart")}},
                  {.arguments = {"--no-fuse", "relu", shards, out}, .exit_status = 2}};
    run_jobs(jobs, 2);
    assert_contains(jobs[1].result.err,
                    "--no-fuse: 'relu' is no fusion; the cuda backend has norm-relu");
    assert_int_equal(test_count_files(out), 0);
    free_jobs(jobs, 2);
}

/* ---- files that the device's decoder refuses ---- */

/* The file's head is good, so the device gets it; with Huffman tables of impossible sizes neither decoder
 * reads it. */
TEST_IN_FOLDER(test_a_file_that_no_decoder_reads_is_skipped_or_stops, folder)
{
    DatasetSpec spec = learnable;
    spec.codec = FSH_CODEC_JPEG;
    spec.untabled = true;
    spec.val_count = 0;
    const char *shards = make_set(folder, &spec);
    Job jobs[] = {{.arguments = {"--model", "conv8", "--decode", "gpu", "--epochs", "3", "-b", "16",
                                 "--on-error", "skip", shards, test_path(folder, "skipped")},
                   .exit_status = 1},
                  {.arguments = {"--model", "conv8", "--decode", "gpu", "--epochs", "3", "-b", "16", shards,
                                 test_path(folder, "stopped")},
                   .exit_status = 1}};
    run_jobs(jobs, 2);
    if (strstr(jobs[0].result.err, "this build has no nvJPEG")) {
        free_jobs(jobs, 2);
        skip();
    }
    for (int i = 0; i < 2; i++)
        assert_contains(jobs[i].result.err, "packed from train/class01/000005.png");
    assert_contains(jobs[0].result.err, "skipped");
    assert_contains(jobs[0].result.out, "3 epochs in");
    assert_contains_not(jobs[1].result.out, "3 epochs in");
    free_jobs(jobs, 2);
}

/* ---- a loss that is no number ---- */

/* Asserts that all tensors are the same but the running statistics, which each run of the network moves. */
static void assert_same_weights(const char *a_path, const char *b_path)
{
    Safetensors *a = NULL, *b = NULL;
    FshError error = {0};
    size_t compared = 0;
    assert_ok(safetensors_open(&a, a_path, &error), &error);
    assert_ok(safetensors_open(&b, b_path, &error), &error);
    assert_int_equal(safetensors_count(a), safetensors_count(b));
    for (size_t i = 0; i < safetensors_count(a); i++) {
        const SafetensorsEntry *entry = safetensors_entry(a, i), *other = safetensors_find(b, entry->name);
        assert_non_null(other);
        assert_int_equal(entry->bytes, other->bytes);
        if (strstr(entry->name, "running_"))
            continue;
        if (memcmp(entry->data, other->data, entry->bytes) != 0)
            fail_msg("%s differs", entry->name);
        compared++;
    }
    assert_true(compared > 10);
    safetensors_close(&a);
    safetensors_close(&b);
}

/* Later steps have begun when the loss is seen; with a checkpoint after each step none has. */
TEST_IN_FOLDER(test_a_loss_that_is_no_number_stops_at_its_step, folder)
{
    const char *shards = make_learnable(folder);
    const char *const outs[] = {test_path(folder, "ahead"), test_path(folder, "alone")};
    double steps[2] = {0, 1};
    Job jobs[2] = {{.environment = NULL}};
    for (int alone = 0; alone < 2; alone++)
        jobs[alone] = (Job){.arguments = {"--deterministic", "--model", "conv8", "--amp", "off", "--lr",
                                          "1e6", "--lr-warmup-epochs", "0", "--epochs", "50", "-b", "16",
                                          "--checkpoint-interval", alone ? "1" : "0", shards, outs[alone]},
                            .exit_status = 1};
    run_jobs(jobs, 2);
    for (int alone = 0; alone < 2; alone++) {
        assert_contains(jobs[alone].result.err, "training has diverged; lower --lr");
        char *text = test_file_read(test_path(folder, "%s/diverged.json", alone ? "alone" : "ahead"), NULL);
        json_t *object = read_json(text);
        steps[alone] = number_of(object, "steps_done");
        assert_int_equal(json_array_size(json_object_get(object, "samples")), 16);
        json_decref(object);
        free(text);
    }
    free_jobs(jobs, 2);
    assert_true(steps[0] == steps[1]);
    assert_same_weights(test_path(folder, "ahead/diverged.safetensors"),
                        test_path(folder, "alone/diverged.safetensors"));
}

/* Steps that only gather gradients stand between updates that are left out. */
TEST_IN_FOLDER(test_a_loss_scale_that_falls_for_ever_ends_a_run_that_accumulates, folder)
{
    const char *shards = make_learnable(folder);
    RunResult result = TRAIN(1, "--device", "cuda", "--model", "conv8", "--amp", "fp16", "--grad-accum-steps",
                             "2", "--lr", "1e6", "--lr-warmup-epochs", "0", "--epochs", "50", "-b", "16",
                             shards, test_path(folder, "out"));
    assert_contains(result.err, "training has diverged; lower --lr");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_batch_that_does_not_fit_is_told, folder)
{
    DatasetSpec spec = learnable;
    spec.width = spec.height = 8;
    spec.train_count = 4096;
    const char *shards = make_set(folder, &spec);
    RunResult result = TRAIN(1, "--device", "cuda", "--model", "resnet50", "--amp", "off",
                             "--train-crop-size", "1024", "--val-crop-size", "32", "--val-batch-size", "8",
                             "-b", "2048", shards, test_path(folder, "out"));
    assert_contains(result.err, "batches of 2048 images of 1024 x 1024 pixels");
    assert_contains(result.err, "batch");
    assert_contains(result.err, "fit");
    assert_int_equal(test_count_files(test_path(folder, "out")), 0);
    run_result_free(&result);
}

static TestFolder cache;

int test_program_begin(void)
{
    Backend *backend = NULL;
    FshError error = {0};
    if (backend_open(&backend, "cuda", &(BackendOptions){0}, &error) == FSH_ERR_UNSUPPORTED) {
        print_message("left out: %s\n", error.message);
        return TEST_SKIP_ALL;
    }
    backend_close(&backend);
    return TEST_RUN;
}

/* Gives the tests a cache of plans of their own, apart from the user's; a plan that one test has timed is
 * there for the next. */
int test_group_setup(void **state)
{
    (void)state;
    test_folder_make(&cache);
    return setenv("XDG_CACHE_HOME", test_path(&cache, "cache"), 1);
}

int test_group_teardown(void **state)
{
    (void)state;
    test_folder_remove(&cache);
    return 0;
}
