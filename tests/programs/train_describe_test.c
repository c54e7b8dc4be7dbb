/* ftrain from outside: what it says of a run before there is one: --dry-run and the lists. */
#include "tests/programs/train_support.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/backend/backend.h"

TEST_IN_FOLDER(test_a_dry_run_prints_the_network_and_writes_nothing, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RunResult result = TRAIN(0, "--dry-run", "--epochs", "3", shards, out);
    assert_contains(result.out, "layer4  ");
    assert_contains_not(result.out, "layer4.1.conv2");
    assert_contains(result.out, "11178564"); /* torchvision.models.resnet18(num_classes=4) */
    assert_contains(result.out, "training, 32 pixels, activations");
    assert_contains(result.out, "in all, beside the dataset's pages");
    assert_contains(result.out, "3 epochs of 5 steps: 15 steps in all; evaluation 1 step\n");
    assert_contains(result.out, "s on this machine now: training about ");
    assert_int_equal(test_count_files(out), 0);
    run_result_free(&result);
    result = TRAIN(0, "--dry-run", "--json", shards);
    json_t *object = read_json(result.out);
    assert_int_equal((int)number_of(json_object_get(object, "chosen"), "parameters"), 11178564);
    assert_true(number_of(json_object_get(object, "chosen"), "weight_decay") == 5e-4);
    json_decref(object);
    run_result_free(&result);
}

/* Returns how many lines of the table of layers there are. *parameters_ret: what its rows sum up to, of
 * *total_ret parameters. */
static int count_rows(const char *table, long long *parameters_ret, long long *total_ret)
{
    int rows = 0;
    *parameters_ret = *total_ret = 0;
    for (const char *line = strchr(table, '\n'); line && *total_ret == 0; line = strchr(line + 1, '\n')) {
        char column[13] = ""; /* "%-38s %-22s %-22s %12s" */
        if (strcspn(line + 1, "\n") > 97)
            (void)snprintf(column, sizeof column, "%.12s", line + 1 + 85);
        rows++;
        if (strncmp(line + 1, "total ", 6) == 0)
            *total_ret = atoll(column);
        else
            *parameters_ret += atoll(column);
    }
    return rows;
}

/* By stages many layers are a dozen rows, whose sums are those of the layers; with --verbose there are
 * all. */
TEST_IN_FOLDER(test_a_dry_run_sums_up_the_layers_of_stages, folder)
{
    const char *shards = make_set(folder, &train_plain);
    long long sums[2], totals[2];
    RunResult result = TRAIN(0, "-q", "--dry-run", "--model", "resnet34", shards);
    assert_in_range(count_rows(result.out, &sums[0], &totals[0]), 6, 13);
    assert_contains(result.out, "(each of the ");
    assert_contains(result.out, " layers: --verbose)\n");
    run_result_free(&result);
    result = TRAIN(0, "-q", "--dry-run", "--verbose", "--model", "resnet34", shards);
    assert_in_range(count_rows(result.out, &sums[1], &totals[1]), 70, 90);
    assert_contains(result.out, "layer4.1.conv2");
    assert_contains_not(result.out, "(each of the ");
    run_result_free(&result);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(totals[i], 21286724); /* torchvision.models.resnet34(num_classes=4) */
        assert_int_equal(sums[i], totals[i]);
    }
}

/* Checks that no two rows of the table have the same name, and that it has one of this name. */
static void check_names(const char *out, const char *wanted)
{
    char names[64][40];
    size_t count = 0;
    bool found = false;
    assert_contains(out, "\ntotal ");
    for (const char *line = out; strncmp(line, "total ", 6) != 0; line = strchr(line, '\n') + 1) {
        assert_true(count < 64);
        (void)snprintf(names[count], sizeof names[count], "%.*s", (int)strcspn(line, " "), line);
        found |= strcmp(names[count], wanted) == 0;
        for (size_t i = 0; i < count; i++)
            assert_string_not_equal(names[i], names[count]);
        count++;
    }
    assert_true(found);
}

/* A shortcut's pool, named after the stage before, does not part a stage, and stages that others stand
 * between are called by more of their names. */
TEST_IN_FOLDER(test_stages_have_names_of_their_own, folder)
{
    RunResult result = TRAIN(0, "-q", "--dry-run", "--model", "xresnet18", make_set(folder, &train_plain));
    check_names(result.out, "5");
    run_result_free(&result);
    dataset_make(test_path(folder, "pairs"), &train_few_pairs);
    result = TRAIN(0, "-q", "--dry-run", "--model", "unet", test_path(folder, "pairs"));
    check_names(result.out, "encoders.1");
    run_result_free(&result);
}

/* They are what was asked for; the log is not. */
TEST_IN_FOLDER(test_a_quiet_dry_run_prints_its_tables_alone, folder)
{
    RunResult result =
        TRAIN(0, "-q", "-n", "--device", "cpu", "--model", "conv8", make_set(folder, &train_plain));
    assert_string_equal(result.err, "");
    assert_int_equal(strncmp(result.out, "layer ", 6), 0);
    assert_contains_not(result.out, "(each of the "); /* few layers have a row each */
    assert_contains(result.out, "training, 32 pixels, activations");
    assert_contains(result.out, "s on this machine now: training about ");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_the_memory_of_a_dry_run_adds_up, folder)
{
    static const char *const kinds[] = {"weights", "weight_copies", "gradients",     "activations", "scratch",
                                        "inputs",  "results",       "device_images", "loader"};
    RunResult result = TRAIN(0, "--device", "cpu", "--dry-run", "--json", "--model", "conv8", "--opt",
                             "adamw", "--batch-size", "8", make_set(folder, &train_plain));
    json_t *object = read_json(result.out), *memory = json_object_get(object, "memory");
    const double parameters = number_of(json_object_get(object, "chosen"), "parameters");
    double sum = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        sum += number_of(memory, kinds[i]);
    assert_true(number_of(memory, "total") == sum);
    assert_true(number_of(memory, "weights") >= 3 * 4 * parameters); /* with both moments */
    assert_true(number_of(memory, "weights") < 3.1 * 4 * parameters + 4096);
    assert_true(number_of(memory, "gradients") == 4 * parameters);
    /* images as bytes, labels and what goes with them, of training; and for evaluation */
    assert_in_range((int)number_of(memory, "inputs"), 8 * 32 * 32 * 3, 3 * 8 * 32 * 32 * 3 + 4096);
    assert_true(number_of(memory, "activations") > 0 && number_of(memory, "loader") > 0);
    assert_true(number_of(memory, "weight_copies") == 0 && number_of(memory, "pinned") == 0);
    json_decref(object);
    run_result_free(&result);
}

/* Terabytes of activations: the tables say where they would go, then the refusal, what to do. */
TEST_IN_FOLDER(test_a_network_that_memory_does_not_hold_has_its_tables, folder)
{
#define TOO_LARGE                                                                                            \
    "--device", "cpu", "--dry-run", "--model", "convnext_large", "--train-crop-size", "4096", "-b", "32"
    const char *shards = make_set(folder, &train_plain);
    RunResult result = TRAIN(1, TOO_LARGE, shards);
    assert_contains(result.out, "stages.2  ");
    assert_contains(result.out, "training, 4096 pixels, activations");
    assert_contains(result.out, "TiB  (");
    assert_contains(result.out, "not known"); /* scratch memory */
    assert_contains(result.out, "16 epochs of 1 step");
    assert_contains_not(result.out, "a step takes");
    assert_contains(
        result.err,
        "ftrain: batches of 32 images of 4096 x 4096 pixels: cpu: activations and gradients take ");
    run_result_free(&result);
    result = TRAIN(1, TOO_LARGE, "--json", shards);
    json_t *object = read_json(result.out), *memory = json_object_get(object, "memory");
    assert_true(number_of(memory, "activations") > 1e12);
    assert_true(json_is_null(json_object_get(memory, "scratch")));
    assert_true(json_is_null(json_object_get(memory, "loader")));
    assert_null(json_object_get(object, "step_seconds"));
    json_decref(object);
    run_result_free(&result);
    /* a run is refused without them */
    REFUSED(1, " of memory are free; ", test_path(folder, "out"), "--device", "cpu", "--model",
            "convnext_large", "--train-crop-size", "4096", "-b", "32", shards);
}

/* The GPU is hidden or there is none; train_cuda_test.c tests beside one. */
TEST_IN_FOLDER(test_what_a_gpu_would_take_is_foreseen, folder)
{
    if (backend_foresee("cuda", NULL, NULL, NULL, NULL) == FSH_ERR_UNSUPPORTED)
        skip(); /* this build has no such backend */
    const char *const environment[] = {"CUDA_VISIBLE_DEVICES=-1", NULL};
    const RunOptions options = {.environment = environment};
    const char *const arguments[] = {
        "--device", "cuda", "--dry-run", "--model", "conv8",
        "--amp",    "fp16", "--decode",  "gpu",     make_set(folder, &train_plain),
        NULL};
    RunningProgram running = run_start(&options, "ftrain", arguments);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.err, "foreseen without a GPU");
    assert_contains(result.err, "images on the device come on top");
    assert_contains(result.out, "copies of weights in 16 bits");
    assert_contains(result.out, "training, 32 pixels, activations");
    assert_contains(result.out, "not known"); /* scratch memory */
    assert_contains(result.out, "(without what is not known)");
    assert_contains(result.out, "steps in all");
    assert_contains_not(result.out, "s on this machine now");
    run_result_free(&result);
    const char *const in_json[] = {"--json",    "--quiet", "--device", "cuda",
                                   "--dry-run", "--model", "conv8",    test_path(folder, "set"),
                                   NULL};
    running = run_start(&options, "ftrain", in_json);
    result = run_wait(&running);
    json_t *object = read_json(result.out), *memory = json_object_get(object, "memory");
    assert_true(json_is_null(json_object_get(memory, "scratch")));
    assert_true(number_of(memory, "activations") > 0 && number_of(memory, "device_images") == 0);
    json_decref(object);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_memory_is_told_at_the_start, folder)
{
    SAYS(0, "memory: ", "--model", "conv8", "--dry-run", make_set(folder, &train_plain));
}

TEST_IN_FOLDER(test_list_models_gives_parameters_and_flops, folder)
{
    RunResult result = TRAIN(0, "--list-models");
    assert_contains(result.out, "conv8");
    assert_contains(result.out, "11.69 M"); /* resnet18 for ImageNet */
    run_result_free(&result);
    SAYS(2, "--lr: does nothing with --list-models; it is for training", "--list-models", "--lr", "3");
    SAYS(2, "--output: does nothing with --list-recipes", "--list-recipes", "shards", "out");
    SAYS(2, "--list-models: not together with --list-recipes", "--list-recipes", "--list-models");
}

/* Asserts what --dry-run --json says was chosen for a dataset whose manifest has no mean and deviation. */
static void check_stand_in(TestFolder *folder, uint8_t channels, double mean, double deviation)
{
    DatasetSpec spec = train_plain;
    spec.unmeasured = true;
    spec.channels = channels;
    const char *shards = test_path(folder, "set%d", channels);
    dataset_make(shards, &spec);
    RunResult result = TRAIN(0, "--dry-run", "--json", "--model", "conv8", shards);
    assert_contains(result.err, "ImageNet's mean and deviation, for the dataset has none");
    json_t *object = read_json(result.out), *chosen = json_object_get(object, "chosen");
    assert_true(json_number_value(json_array_get(json_object_get(chosen, "mean"), 0)) == mean);
    assert_true(json_number_value(json_array_get(json_object_get(chosen, "std"), 0)) == deviation);
    json_decref(object);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_dataset_without_mean_and_deviation_gets_imagenets, folder)
{
    check_stand_in(folder, 3, 0.485, 0.229);
    check_stand_in(folder, 1, 0.449, 0.226);
    RunResult result = TRAIN(0, "--dry-run", "--model", "conv8", make_set(folder, &train_plain));
    assert_null(strstr(result.err, "normalisation")); /* that of the dataset goes without saying */
    run_result_free(&result);
}

/* Images of 32 pixels and crops of 32: where the short edge leaves no room, the log says what makes some. */
TEST_IN_FOLDER(test_crops_without_room_to_lie_elsewhere_are_told, folder)
{
#define ROOMLESS   "the short edge becomes as long as the crop, "
#define KEPT_RATIO "--dry-run", "--model", "resnet18", "--train-crop-mode", "rkrc"
    const char *shards = make_set(folder, &train_plain);
    SAYS(0, ROOMLESS "32 pixels: crops differ along the long edge alone, and ", KEPT_RATIO, shards);
    SAYS(0, ROOMLESS "32 pixels", KEPT_RATIO, "--progressive", "16:32", "--epochs", "6", shards);
    const char *const roomy[][2] = {
        {"--val-resize-size", "36"}, {"--train-crop-size", "24"}, {"--train-crop-mode", "rrc"}};
    for (size_t i = 0; i < sizeof roomy / sizeof *roomy; i++) {
        RunResult result =
            i < 2 ? TRAIN(0, KEPT_RATIO, roomy[i][0], roomy[i][1], shards)
                  : TRAIN(0, "--dry-run", "--model", "resnet18", roomy[i][0], roomy[i][1], shards);
        assert_contains_not(result.err, ROOMLESS);
        run_result_free(&result);
    }
}

/* oneDNN leaves undone what falls to threads that OpenMP does not give it. */
TEST_IN_FOLDER(test_threads_keep_to_the_limit_of_openmp, folder)
{
    static const char *const limited[] = {"OMP_THREAD_LIMIT=1", NULL};
    const char *shards = make_set(folder, &train_plain);
    const RunOptions options = {.environment = limited};
    const char *const arguments[] = {"--jobs",     "2",        "--device", "cpu",  "--model",
                                     "airbench94", "--epochs", "1",        shards, test_path(folder, "out"),
                                     NULL};
    RunResult result = expect_train(0, &options, arguments);
    assert_contains(result.err, ", 1 thread;");
    assert_contains_not(result.err, "nan");
    run_result_free(&result);
}
