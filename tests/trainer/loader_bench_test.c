#include "trainer/data/loader_bench.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"

static const DatasetSpec spec = {.codec = FSH_CODEC_JPEG,
                                 .width = 48,
                                 .height = 40,
                                 .channels = 3,
                                 .class_count = 4,
                                 .train_count = 100,
                                 .shard_count = 2};

typedef struct Lines {
    char text[4096];
    size_t length;
} Lines;

static void add_line(void *context, const char *line)
{
    Lines *lines = context;
    lines->length +=
        (size_t)snprintf(lines->text + lines->length, sizeof lines->text - lines->length, "%s\n", line);
    assert_true(lines->length < sizeof lines->text);
}

static FshDataset *open_dataset(TestFolder *folder, const DatasetSpec *made)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    dataset_make(test_path(folder, "set"), made);
    assert_ok(fsh_open(&dataset, test_path(folder, "set"), &error), &error);
    return dataset;
}

static LoaderBenchOptions make_options(const FshDataset *dataset)
{
    return (LoaderBenchOptions){.loader = {.split = fsh_split(dataset, "train"),
                                           .augmentation = {.mode = CROP_RESIZED,
                                                            .size = 24,
                                                            .channels = 3,
                                                            .scale_min = 0.2,
                                                            .scale_max = 1,
                                                            .ratio_min = 0.75,
                                                            .ratio_max = 1.3333},
                                           .batch = 16,
                                           .world_size = 1,
                                           .training = true,
                                           .workers = 2,
                                           .batches_ahead = 2},
                                .seconds = 0.05};
}

TEST_IN_FOLDER(test_a_report_counts_samples_bytes_and_stages, folder)
{
    FshDataset *dataset = open_dataset(folder, &spec);
    const LoaderBenchOptions options = make_options(dataset);
    LoaderBenchReport report;
    FshError error = {0};
    assert_ok(loader_bench(&options, &report, &error), &error);
    const LoaderBenchPass *warm = &report.warm;
    assert_false(report.has_cold);
    assert_true(warm->seconds >= 0.05 && warm->samples >= 16 && warm->samples % 16 == 0);
    /* workers are ahead by no more than the ring */
    assert_true(warm->work.samples.images >= warm->samples - 48 &&
                warm->work.samples.images <= warm->samples + 48);
    assert_int_equal(warm->work.samples.pixel_bytes, warm->work.samples.images * 24 * 24 * 3);
    assert_int_equal(warm->longest_stage == SAMPLE_COPY, false);
    assert_int_equal(warm->bottleneck, BOTTLENECK_CPU);
    assert_true(report.memory_bytes_per_second > 1e7 && report.memory_bytes_per_cpu_second > 1e7);
    assert_int_equal(report.problems, 0);
    Lines lines = {0};
    loader_bench_tell(&report, add_line, &lines);
    assert_contains(lines.text, "warm: ");
    assert_contains(lines.text, "bottleneck: CPU, most of it to ");
    assert_null(strstr(lines.text, "cold"));
    fsh_close(&dataset);
}

/* What the kernel has kept is told, and the pass is made all the same. */
TEST_IN_FOLDER(test_a_cold_pass_tells_what_was_in_memory, folder)
{
    FshDataset *dataset = open_dataset(folder, &spec);
    LoaderBenchOptions options = make_options(dataset);
    options.drop_caches = true;
    LoaderBenchReport report;
    FshError error = {0};
    assert_ok(loader_bench(&options, &report, &error), &error);
    assert_true(report.has_cold && report.cold.samples >= 16);
    assert_int_equal(report.cold.residency.bytes, report.warm.residency.bytes);
    assert_true(report.cold.residency.bytes > 0);
    assert_true(report.cold.work.samples.seconds[SAMPLE_READ] > 0);
    /* by now it has been read */
    if (report.warm.residency.known)
        assert_true(report.warm.residency.resident_bytes > report.warm.residency.bytes / 2);
    Lines lines = {0};
    report.cold.residency = (FshResidency){.bytes = 1 << 20, .resident_bytes = 1 << 19, .known = true};
    loader_bench_tell(&report, add_line, &lines);
    assert_contains(lines.text, "cold: the kernel kept 512 KiB of 1 MiB in memory");
    assert_contains(lines.text, "cold: ");
    assert_contains(lines.text, "bottleneck");
    fsh_close(&dataset);
}

/* Files that nobody has packed are counted by their own bytes, and cannot be dropped. */
TEST_IN_FOLDER(test_files_have_bytes_and_no_cold_pass, folder)
{
    FshDataset *packed = open_dataset(folder, &spec), *files = NULL;
    FshError error = {0};
    LoaderBenchReport report;
    dataset_unpack(fsh_split(packed, "train"), test_path(folder, "files"));
    assert_ok(fsh_open(&files, test_path(folder, "files"), &error), &error);
    LoaderBenchOptions options = make_options(files);
    assert_ok(loader_bench(&options, &report, &error), &error);
    assert_true(report.warm.work.samples.images > 0);
    assert_true(report.warm.work.samples.stored_bytes > report.warm.work.samples.images * 300);
    options.drop_caches = true;
    assert_int_equal(loader_bench(&options, &report, &error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "--drop-caches: files that nobody has packed are not dropped");
    fsh_close(&files);
    fsh_close(&packed);
}

TEST(test_the_bottleneck_is_named)
{
    Lines lines = {0};
    LoaderBenchReport report = {.workers = 2, .memory_bytes_per_second = 1e9};
    report.warm = (LoaderBenchPass){.seconds = 1, .samples = 5, .bottleneck = BOTTLENECK_DISK};
    loader_bench_tell(&report, add_line, &lines);
    assert_contains(lines.text, "warm: bottleneck: disk");
    report.warm.bottleneck = BOTTLENECK_MEMORY;
    loader_bench_tell(&report, add_line, &lines);
    assert_contains(lines.text, "warm: bottleneck: memory");
}

TEST_IN_FOLDER(test_a_bad_sample_stops_it_or_is_counted, folder)
{
    DatasetSpec bad = spec;
    bad.garbage = true;
    FshDataset *dataset = open_dataset(folder, &bad);
    LoaderBenchOptions options = make_options(dataset);
    LoaderBenchReport report;
    FshError error = {0};
    options.loader.training = false; /* every sample is in the epoch */
    options.loader.augmentation.mode = CROP_CENTER;
    options.loader.augmentation.resize = 24;
    assert_int_not_equal(loader_bench(&options, &report, &error), FSH_OK);
    assert_contains(error.message, "record 5");
    options.loader.skip_bad = true;
    assert_ok(loader_bench(&options, &report, &error), &error);
    assert_int_equal(report.problems, 1);
    fsh_close(&dataset);
}
