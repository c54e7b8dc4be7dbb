/* ftrain on a GPU from outside: what runs of the other tests do on the CPU, where steps are under way while others are looked at.
 * Leaves with 77 where there is no GPU. */
#include "tests/programs/train_support.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/backend/backend.h"
#include "trainer/loop/safetensors.h"

static const DatasetSpec learnable = {.codec = FSH_CODEC_RAW,
                                      .width = 32,
                                      .height = 32,
                                      .channels = 3,
                                      .class_count = 4,
                                      .train_count = 320,
                                      .val_count = 64,
                                      .shard_count = 2};

/* No plans of these tests in the user's cache. */
static const char *make_learnable(TestFolder *folder)
{
    assert_int_equal(setenv("XDG_CACHE_HOME", test_path(folder, "cache"), 1), 0);
    return make_set(folder, &learnable);
}

/* A class is a bright quarter of the image: a mirror image is one of another class. */
static void test_the_loss_falls_in_every_precision(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_learnable(folder);
    static const char *const precisions[] = {"off", "bf16", "fp16"}, *const said[] = {"f32", "bf16", "f16"};
    static const char *const models[] = {"conv8", "resnet9", "toynet"};
    for (size_t m = 0; m < 3; m++)
        for (size_t i = 0; i < 3; i++) {
            const char *out = test_path(folder, "%s-%s", models[m], precisions[i]);
            char precision[32];
            RunResult result = TRAIN(0, "--device", "cuda", "--model", models[m], "--amp", precisions[i],
                                     "--epochs", "6", "-b", "16", "--hflip-prob", "0", shards, out);
            (void)snprintf(precision, sizeof precision, "precision %s", said[i]);
            assert_contains(result.err, precision);
            run_result_free(&result);
            const double first = summary_number(out, 0, "train_loss"),
                         last = summary_number(out, 5, "train_loss"),
                         top1 = summary_number(out, 5, "eval_top1");
            if (!(last < 0.9 * first) || !(top1 > 90))
                fail_msg("%s, %s: loss %g to %g, top-1 %g %%", models[m], precisions[i], first, last, top1);
        }
}

static void test_precision_is_chosen_by_the_network(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_learnable(folder);
    SAYS(0, "precision f16 (--amp off for f32), loss scale 65536", "--device", "cuda", "--model", "conv8",
         "--dry-run", shards);
    SAYS(0, "precision f32 with TF32 products", "--device", "cuda", "--model", "conv8", "--amp", "off",
         "--tf32", "--dry-run", shards);
    SAYS(2, "--tf32: does nothing here", "--device", "cuda", "--tf32", "--dry-run", shards);
}

static void train_and_kill(TestFolder *folder, const char *const *arguments)
{
    const char *checkpoint = test_path(folder, "killed/checkpoint.safetensors");
    RunningProgram running = run_start(NULL, "ftrain", arguments);
    assert_true(wait_for_file(checkpoint, 60));
    assert_int_equal(kill(running.process, SIGKILL), 0);
    RunResult result = run_wait(&running);
    assert_int_not_equal(result.exit_status, 0); /* it was under way */
    run_result_free(&result);
}

static void test_a_killed_run_goes_on_with_the_same_bits(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_learnable(folder), *killed = test_path(folder, "killed");
    static const char *const precisions[] = {"off", "fp16"};
    for (size_t i = 0; i < 2; i++) {
#define SAME                                                                                                 \
    "--device", "cuda", "--deterministic", "--amp", precisions[i], "--model", "resnet9", "--epochs", "30",   \
        "-b", "16", "--opt", "adamw", "--lr", "0.002", "--model-ema", "--force"
        const char *const first[] = {SAME, "--checkpoint-interval", "7", shards, killed, NULL};
        (void)remove(test_path(folder, "killed/checkpoint.safetensors"));
        train_and_kill(folder, first);
        RunResult result = TRAIN(0, SAME, "--resume", "auto", shards, killed);
        assert_contains(result.err, "goes on from ");
        assert_contains(result.err, "deterministic");
        run_result_free(&result);
        TRAINED(SAME, shards, test_path(folder, "whole"));
        assert_same_file(folder, "killed", "whole", true);
#undef SAME
    }
}

static void test_a_profile_has_rates_of_this_device(void **state)
{
    TestFolder *folder = *state;
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

static void test_plans_of_layers_are_told(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_learnable(folder);
    RunResult result = TRAIN(0, "--device", "cuda", "--model", "resnet9", "--dry-run", "-v", shards);
    assert_contains(result.out, "cuDNN engine ");
    assert_contains(result.err, "memory: ");
    assert_contains(result.err, "cuDNN 9.");
    run_result_free(&result);
    result = TRAIN(0, "--device", "cuda", "--model", "resnet9", "--dry-run", shards);
    assert_null(strstr(result.out, "cuDNN engine "));
    run_result_free(&result);
}

static void test_fusions_can_be_left_out(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_learnable(folder);
    TRAINED("--device", "cuda", "--model", "resnet9", "--epochs", "1", "--no-fuse",
            "norm-relu,gradient-add,bias-norm", shards, test_path(folder, "apart"));
    REFUSED(2, "--no-fuse: 'relu' is no fusion of the cuda backend; it has norm-relu",
            test_path(folder, "out"), "--device", "cuda", "--no-fuse", "relu", shards);
}

/* All but running statistics, which each run of the network moves. */
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

/* Steps behind it have begun when the loss is seen; with a checkpoint behind each step none has. */
static void test_a_loss_that_is_no_number_stops_at_its_step(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_learnable(folder);
    const char *const outs[] = {test_path(folder, "ahead"), test_path(folder, "alone")};
    double steps[2] = {0, 1};
    for (int alone = 0; alone < 2; alone++) {
        RunResult result = TRAIN(1, "--device", "cuda", "--deterministic", "--model", "conv8", "--amp", "off",
                                 "--lr", "1e6", "--lr-warmup-epochs", "0", "--epochs", "50", "-b", "16",
                                 "--checkpoint-interval", alone ? "1" : "0", shards, outs[alone]);
        assert_contains(result.err, "training has diverged; lower --lr");
        run_result_free(&result);
        char *text = test_file_read(test_path(folder, "%s/diverged.json", alone ? "alone" : "ahead"), NULL);
        json_t *object = read_json(text);
        steps[alone] = number_of(object, "steps_done");
        assert_int_equal(json_array_size(json_object_get(object, "samples")), 16);
        json_decref(object);
        free(text);
    }
    assert_true(steps[0] == steps[1]);
    assert_same_weights(test_path(folder, "ahead/diverged.safetensors"),
                        test_path(folder, "alone/diverged.safetensors"));
}

/* Steps that only gather gradients stand between updates that are left out. */
static void test_a_loss_scale_that_falls_for_ever_ends_a_run_that_accumulates(void **state)
{
    TestFolder *folder = *state;
    const char *shards = make_learnable(folder);
    RunResult result = TRAIN(1, "--device", "cuda", "--model", "conv8", "--amp", "fp16", "--grad-accum-steps",
                             "2", "--lr", "1e6", "--lr-warmup-epochs", "0", "--epochs", "50", "-b", "16",
                             shards, test_path(folder, "out"));
    assert_contains(result.err, "training has diverged; lower --lr");
    run_result_free(&result);
}

static void test_a_batch_that_does_not_fit_is_told(void **state)
{
    TestFolder *folder = *state;
    DatasetSpec spec = learnable;
    spec.width = spec.height = 8;
    spec.train_count = 4096;
    assert_int_equal(setenv("XDG_CACHE_HOME", test_path(folder, "cache"), 1), 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_the_loss_falls_in_every_precision),
        IN_FOLDER(test_precision_is_chosen_by_the_network),
        IN_FOLDER(test_a_killed_run_goes_on_with_the_same_bits),
        IN_FOLDER(test_a_profile_has_rates_of_this_device),
        IN_FOLDER(test_plans_of_layers_are_told),
        IN_FOLDER(test_fusions_can_be_left_out),
        IN_FOLDER(test_a_loss_that_is_no_number_stops_at_its_step),
        IN_FOLDER(test_a_loss_scale_that_falls_for_ever_ends_a_run_that_accumulates),
        IN_FOLDER(test_a_batch_that_does_not_fit_is_told),
    };
    Backend *backend = NULL;
    FshError error = {0};
    if (backend_open(&backend, "cuda", &(BackendOptions){0}, &error) == FSH_ERR_UNSUPPORTED) {
        print_message("left out: %s\n", error.message);
        return 77;
    }
    backend_close(&backend);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
