/* ftrain --cache pixels from outside: the same training as from files, for classes, pairs and ranks, and what
 * is said of it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "tests/programs/ranks_support.h"

/* No image is larger than the crop, so that none is decoded at a part of its size. */
static const DatasetSpec jpegs = {.codec = FSH_CODEC_JPEG,
                                  .width = 20,
                                  .height = 17,
                                  .channels = 3,
                                  .class_count = 4,
                                  .train_count = 40,
                                  .val_count = 8,
                                  .shard_count = 2};

#define CONV8 "--model", "conv8", "--epochs", "2", "--train-crop-size", "20", "--val-crop-size", "20"

/* Asserts that FOLDER/none and FOLDER/pixels have the same numbers in every column but that of time, and the
 * same weights. */
static void assert_same_runs(TestFolder *folder)
{
    char *none = summary_without_time(test_path(folder, "none")),
         *pixels = summary_without_time(test_path(folder, "pixels"));
    assert_int_equal(count_lines(none), 3);
    assert_string_equal(none, pixels);
    assert_same_file(folder, "none", "pixels", true);
    free(none);
    free(pixels);
}

TEST_IN_FOLDER(test_classes_train_as_from_files, folder)
{
    const char *shards = make_set(folder, &jpegs), *weights = test_path(folder, "none/last.safetensors");
    TRAINED("--jobs", "2", CONV8, "--train-crop-mode", "rrc", "--batch-size", "8", "--color-jitter", "0.4",
            "--mixup-alpha", "0.2", shards, test_path(folder, "none"));
    RunResult result =
        TRAIN(0, "--jobs", "2", CONV8, "--train-crop-mode", "rrc", "--batch-size", "8", "--color-jitter",
              "0.4", "--mixup-alpha", "0.2", "--cache", "pixels", shards, test_path(folder, "pixels"));
    assert_contains(result.err, "decoded images come on top");
    assert_contains(result.err, "train: 40 samples, 39.8 KiB of pixels in memory, decoded, in ");
    assert_contains(result.err, "val: 8 samples, 7.97 KiB of pixels in memory, decoded, in ");
    run_result_free(&result);
    assert_same_runs(folder);
    const char *const hows[] = {"none", "pixels"};
    char *said[2];
    for (int i = 0; i < 2; i++) {
        result = TRAIN(0, "--evaluate", "--weights", weights, "--cache", hows[i], "--predict",
                       test_path(folder, "predicted-%s", hows[i]), shards);
        assert_contains_not(result.err, "train: 40 samples");
        assert_true((strstr(result.err, "val: 8 samples, 7.97 KiB of pixels in memory") != NULL) == (i == 1));
        said[i] = test_file_read(test_path(folder, "predicted-%s/predictions.csv", hows[i]), NULL);
        run_result_free(&result);
    }
    assert_string_equal(said[0], said[1]);
    free(said[0]);
    free(said[1]);
}

/* Planes as they are mapped become the pixels of the JPEGs that they are of. */
TEST_IN_FOLDER(test_planes_in_shards_train_as_jpegs, folder)
{
    DatasetSpec spec = jpegs;
    spec.subsampled = true;
    const char *shards = make_set(folder, &spec), *copies = test_path(folder, "copy"),
               *planes = test_path(folder, "yuv420");
    for (int i = 0; i < 2; i++) { /* which measures the same mean of both */
        RunResult packed =
            run_program(NULL, "fpack", "--store", i ? "yuv420" : "copy", shards, i ? planes : copies, NULL);
        assert_int_equal(packed.exit_status, 0);
        run_result_free(&packed);
    }
    TRAINED("--jobs", "2", CONV8, "--train-crop-mode", "rrc", "--batch-size", "8", copies,
            test_path(folder, "none"));
    for (int cached = 0; cached < 2; cached++) {
        TRAINED("--jobs", "2", CONV8, "--train-crop-mode", "rrc", "--batch-size", "8", "--cache",
                cached ? "planes" : "none", "--force", planes, test_path(folder, "pixels"));
        char *of_files = summary_without_time(test_path(folder, "none")),
             *of_planes = summary_without_time(test_path(folder, "pixels"));
        assert_string_equal(of_files, of_planes);
        assert_true(weights_distance(test_path(folder, "none/last.safetensors"),
                                     test_path(folder, "pixels/last.safetensors")) == 0);
        free(of_files);
        free(of_planes);
    }
}

TEST_IN_FOLDER(test_pairs_train_as_from_files, folder)
{
    static const char *const hows[] = {"none", "pixels"};
    DatasetSpec spec = jpegs;
    spec.kind = FSH_KIND_PAIRS;
    spec.grow = 6;
    spec.width = 40;
    spec.height = 36;
    const char *shards = make_set(folder, &spec);
    for (int i = 0; i < 2; i++) {
        RunResult result = TRAIN(0, "--model", "unet", "--width", "8", "--epochs", "2", "--batch-size", "8",
                                 "--cache", hows[i], shards, test_path(folder, "%s", hows[i]));
        assert_true((strstr(result.err, "val: 8 samples, 82.8 KiB of pixels in memory") != NULL) == (i == 1));
        run_result_free(&result);
    }
    assert_same_runs(folder);
}

/* Trains ranks from files, and from what they have decoded together; compares. */
static void compare_ranks(TestFolder *folder, int ranks, const char *cache)
{
    const char *shards = make_set(folder, &jpegs);
    char says[64];
    RANKS_TRAINED(ranks, CONV8, "--batch-size", "4", shards, test_path(folder, "none"));
    RanksResult result =
        RANKS(ranks, 0, CONV8, "--batch-size", "4", "--cache", cache, shards, test_path(folder, "pixels"));
    (void)snprintf(says, sizeof says, ", once for %d ranks, in ", ranks);
    assert_contains(result.of[0].err, "train: 40 samples, ");
    assert_contains(result.of[0].err, says);
    assert_contains_not(result.of[0].err, "cannot share memory");
    free_ranks(&result);
    assert_same_runs(folder);
}

TEST_IN_FOLDER(test_two_ranks_train_as_from_files, folder)
{
    compare_ranks(folder, 2, "pixels");
}

TEST_IN_FOLDER(test_three_ranks_train_as_from_files, folder)
{
    compare_ranks(folder, 3, "planes");
}

/* Adds the bytes of the images that the process has mapped, and its share of them in memory, to the two
 * sums. */
static void add_mapped(pid_t process, unsigned long *mapped, unsigned long *share)
{
    char path[40], line[512];
    bool ours = false;
    (void)snprintf(path, sizeof path, "/proc/%ld/smaps", (long)process);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        unsigned long first, end, kilobytes;
        if (sscanf(line, "%lx-%lx ", &first, &end) == 2) {
            ours = strstr(line, "memfd:fshard-pixels") != NULL;
            *mapped += ours ? end - first : 0;
            assert_true(!ours || strstr(line, " r--s ")); /* no rank can spoil what the others read */
        } else if (ours && sscanf(line, "Pss: %lu kB", &kilobytes) == 1) {
            *share += kilobytes * 1024;
        }
    }
    (void)fclose(file);
}

/* Three ranks map the images three times, and they lie in memory once; without a name, so that nothing is
 * left of them where the ranks are killed. */
TEST_IN_FOLDER(test_ranks_of_a_host_have_one_copy, folder)
{
    DatasetSpec spec = jpegs;
    spec.width = spec.height = 100;
    const char *shards = make_set(folder, &spec), *out = test_path(folder, "out");
    const char *const arguments[] = {CONV8, "--batch-size", "4", "--cache", "pixels", "--checkpoint-interval",
                                     "1",   shards,         out, NULL};
    RunningProgram running[3];
    unsigned long mapped = 0, share = 0;
    for (int rank = 0; rank < 3; rank++) /* rank 0 stops, and the others wait for it */
        running[rank] = start_rank(rank, 3, 81, rank == 0 ? "checkpoint.safetensors" : NULL, arguments);
    run_wait_until_stopped(&running[0]);
    for (int rank = 0; rank < 3; rank++)
        add_mapped(running[rank].process, &mapped, &share);
    for (int rank = 0; rank < 3; rank++)
        (void)kill(running[rank].process, SIGKILL);
    for (int rank = 0; rank < 3; rank++) {
        RunResult result = run_wait(&running[rank]);
        run_result_free(&result);
    }
    assert_true(mapped > 3UL * 40 * 100 * 100 * 3);
    assert_true(share > mapped / 4);
    assert_true(share < mapped / 3 + 65536);
}

/* The one that meets the sample tells it, the others end with it. */
TEST_IN_FOLDER(test_a_bad_sample_of_one_rank_stops_all, folder)
{
    DatasetSpec spec = jpegs;
    spec.untabled = true;
    spec.val_count = 4;
    const char *const arguments[] = {
        CONV8, "--batch-size", "4", "--cache", "pixels", make_set(folder, &spec), test_path(folder, "out"),
        NULL};
    RanksResult result = run_ranks(2, arguments);
    int told = 0;
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(result.of[rank].exit_status, 1);
        told += strstr(result.of[rank].err, "packed from train/class01/000005.png") != NULL;
    }
    assert_int_equal(told, 1);
    free_ranks(&result);
}

TEST_IN_FOLDER(test_a_bad_sample_stops_before_training_or_is_skipped, folder)
{
    DatasetSpec spec = jpegs;
    spec.untabled = true;
    spec.val_count = 4; /* that has no sample 5 */
    const char *shards = make_set(folder, &spec), *out = test_path(folder, "out");
    RunResult result = TRAIN(1, CONV8, "--cache", "pixels", shards, out);
    assert_contains(result.err, "packed from train/class01/000005.png");
    assert_contains_not(result.err, "epoch 0");
    run_result_free(&result);
    result = TRAIN(1, CONV8, "--cache", "pixels", "--on-error", "skip", "--force", shards, out);
    assert_contains(result.err, "packed from train/class01/000005.png");
    assert_contains(result.err, "skipped");
    assert_contains(result.err, "1 sample could not be read");
    assert_true(test_file_size(test_path(folder, "out/last.safetensors")) > 1000);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_memory_and_the_loaders_speed_are_told, folder)
{
    const char *shards = make_set(folder, &jpegs);
    RunResult result = TRAIN(0, "--dry-run", CONV8, "--cache", "pixels", shards);
    const char *row = strstr(result.out, "decoded images");
    assert_non_null(row);
    assert_contains(row, "47.8 KiB\n");
    run_result_free(&result);
    double totals[2], decoded = 0;
    for (int i = 0; i < 2; i++) {
        result = TRAIN(0, "--dry-run", "--json", CONV8, "--cache", i ? "pixels" : "none", shards);
        json_t *object = read_json(result.out), *memory = json_object_get(object, "memory");
        totals[i] = number_of(memory, "total");
        if (i)
            decoded = number_of(memory, "decoded_images");
        json_decref(object);
        run_result_free(&result);
    }
    assert_true(decoded == 48 * 20 * 17 * 3);
    assert_true(totals[1] - totals[0] == decoded);
    result = TRAIN(0, "--bench-loader", "--model", "conv8", "--cache", "pixels", shards);
    assert_contains(result.out, "warm: ");
    assert_contains(result.out, " 0.0 MB/s read");
    assert_contains(result.out, "decode 0 %");
    run_result_free(&result);
}

/* The log's line, which every run begins with, and --dry-run's table. */
TEST_IN_FOLDER(test_the_log_and_the_table_of_memory_tell_one_sum, folder)
{
    const char *shards = make_set(folder, &jpegs);
    RunResult result = TRAIN(0, "--dry-run", CONV8, shards);
    char said[32] = "", unit[8] = "", sum[64];
    const char *line = strstr(result.err, "memory: "),
               *row = strstr(result.out, "in all, beside the dataset's");
    assert_non_null(line);
    assert_non_null(row);
    assert_int_equal(sscanf(line, "memory: %31s %7[A-Za-z]", said, unit), 2);
    (void)snprintf(sum, sizeof sum, " %s %s\n", said, unit);
    assert_contains(row, sum);
    assert_contains(line, ", loader ");
    run_result_free(&result);
}

/* Terabytes, by what the records say. */
TEST_IN_FOLDER(test_images_that_do_not_fit_are_refused_before_one_is_decoded, folder)
{
    DatasetSpec spec = jpegs;
    spec.claimed = 60000;
    spec.train_count = 4000;
    spec.val_count = 0;
    const char *shards = make_set(folder, &spec);
    RunResult result = TRAIN(1, CONV8, "--cache", "pixels", shards, test_path(folder, "out"));
    assert_contains(result.err, "set: --cache pixels: the decoded images take 39.3 TiB, and ");
    assert_contains(result.err,
                    " of memory are free; pack smaller images (fpack --max-size), or use --cache ram");
    run_result_free(&result);
    assert_false(file_exists(test_path(folder, "out")));
    /* With --force too what was there stays. */
    const char *notes = test_path(folder, "was/args.json");
    test_file_write_text(notes, "{}");
    SAYS(1, "39.3 TiB", CONV8, "--cache", "pixels", "--force", shards, test_path(folder, "was"));
    assert_int_equal(test_file_size(notes), 2);
    /* Told once. */
    RanksResult ranks = RANKS(2, 1, CONV8, "--cache", "pixels", shards, test_path(folder, "two"));
    assert_contains(ranks.of[0].err, "39.3 TiB, and "); /* once for both */
    free_ranks(&ranks);
    assert_false(file_exists(test_path(folder, "two")));
}
