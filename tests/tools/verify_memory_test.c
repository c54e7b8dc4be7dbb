/* fverify holds a few windows for each thread of the files that it reads, whatever their size. */
#include "tests/formats/samples.h"
#include "tests/tools/sources.h"

/* So much more than on a set of a few records may fverify hold on one of 300 MB or more: two threads'
 * windows, and what it remembers of each record. */
enum { MORE_BYTES = 100 << 20 };

/* Returns what fverify held in memory; mode: NULL is the default. */
static uint64_t resident_bytes(const char *path, const char *mode)
{
    RunResult result = run_expecting(0, "fverify", "-q", "-j2", path, mode, NULL);
    const uint64_t bytes = result.resident_bytes;
    run_result_free(&result);
    return bytes;
}

static void assert_bounded(TestFolder *folder, const char *mode)
{
    const uint64_t few = resident_bytes(test_path(folder, "few"), mode);
    const uint64_t many = resident_bytes(test_path(folder, "many"), mode);
    if (many > few + MORE_BYTES)
        fail_msg("fverify %s: %llu MB resident, %llu of a few records", mode ? mode : "",
                 (unsigned long long)(many >> 20), (unsigned long long)(few >> 20));
}

/* Verifies 432 MB of records of 720 kB, in each mode, since each reads all of a record in its own way. */
static void verify_images(TestFolder *folder, const char *format)
{
    const char *few = test_path(folder, "photos/few"), *many = test_path(folder, "photos/many");
    source_slow_class(few, "cat", 4, 600, 400);
    source_slow_class(many, "cat", 600, 600, 400);
    run_ok("fpack", "--store", "raw", "--format", format, few, test_path(folder, "few"), NULL);
    run_ok("fpack", "--store", "raw", "--format", format, many, test_path(folder, "many"), NULL);
    assert_bounded(folder, "--quick");
    assert_bounded(folder, NULL);
    assert_bounded(folder, "--decode");
}

/* Verifies 300 MB of records of 2.5 kB: a look at each touches nearly all pages. */
static void verify_small_records(TestFolder *folder, FshContainer container)
{
    DatasetPlan plan = {
        .container = container, .train_count = 5000, .shard_count = 2, .payload_bytes_max = 5000};
    run_ok("/bin/mkdir", test_path(folder, "few"), test_path(folder, "many"), NULL);
    samples_write_dataset(&plan, test_path(folder, "few")); /* enough for all sizes that the manifest tells */
    plan.train_count = 120000;
    samples_write_dataset(&plan, test_path(folder, "many"));
    assert_bounded(folder, "--quick");
    assert_bounded(folder, NULL);
}

TEST_IN_FOLDER(test_shards_of_images_are_not_held_in_memory, folder)
{
    verify_images(folder, "shards");
}

TEST_IN_FOLDER(test_an_lmdb_of_images_is_not_held_in_memory, folder)
{
    verify_images(folder, "lmdb");
}

TEST_IN_FOLDER(test_tars_of_images_are_not_held_in_memory, folder)
{
    verify_images(folder, "tar");
}

TEST_IN_FOLDER(test_shards_of_small_records_are_not_held_in_memory, folder)
{
    verify_small_records(folder, FSH_CONTAINER_SHARDS);
}

TEST_IN_FOLDER(test_an_lmdb_of_small_records_is_not_held_in_memory, folder)
{
    verify_small_records(folder, FSH_CONTAINER_LMDB);
}

TEST_IN_FOLDER(test_tars_of_small_records_are_not_held_in_memory, folder)
{
    verify_small_records(folder, FSH_CONTAINER_TAR);
}
