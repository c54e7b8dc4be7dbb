#include <stdbool.h>
#include <stdint.h>

#include "common/file.h"
#include "tests/support/support.h"

/* Runs write_dataset on a disk that takes `disk_bytes`; returns the run's result. */
static RunResult write_on_full_disk(const char *folder, const char *container, uint64_t disk_bytes)
{
    RunOptions options = {.limit_disk = true, .disk_bytes = disk_bytes};
    return run_program(&options, WRITE_DATASET, folder, container, "classes", "60", "5", "200000", NULL);
}

static void assert_full_disk_is_reported(TestFolder *folder, const char *container, const char *file_name)
{
    /* From the first bytes to nearly the last of about 3 MB. */
    static const uint64_t sizes[] = {0, 100, 5000, 70000, 300000, 1500000, 2500000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *path = test_path(folder, "%s-%zu", container, i);
        FshError error = {0};
        assert_ok(file_make_folders(path, &error), &error);
        RunResult result = write_on_full_disk(path, container, sizes[i]);
        if (result.exit_status != 1)
            fail_msg("%s with %llu bytes: exit status %d", container, (unsigned long long)sizes[i],
                     result.exit_status);
        assert_contains(result.err, "no space left");
        assert_contains(result.err, path);
        if (sizes[i] < 500000) {
            /* The first file is not finished, so nothing at all is there. */
            assert_contains(result.err, file_name);
            assert_int_equal(test_count_files(path), 0);
        }
        assert_false(file_exists(test_path(folder, "%s-%zu/dataset.json", container, i)));
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_full_disk_leaves_no_shard_behind, folder)
{
    assert_full_disk_is_reported(folder, "shards", "train-00000-of-00003.fshard");
}

TEST_IN_FOLDER(test_full_disk_leaves_no_lmdb_behind, folder)
{
    assert_full_disk_is_reported(folder, "lmdb", "train.lmdb");
}

/* A tar's indexes for others (.idx, -wids.json) are written after the tar. */
TEST_IN_FOLDER(test_full_disk_leaves_no_tar_behind, folder)
{
    assert_full_disk_is_reported(folder, "tar", "train-000000.tar");
}

/* A write that is cut short comes back from LMDB as an I/O error; the user must hear of the disk all the
 * same. */
TEST_IN_FOLDER(test_full_disk_is_told_from_an_io_error, folder)
{
    FshError error = {0};
    uint64_t disk_bytes = 30000;
    bool done = false;
    for (; !done; disk_bytes += 61) {
        const char *path = test_path(folder, "%llu", (unsigned long long)disk_bytes);
        assert_ok(file_make_folders(path, &error), &error);
        RunOptions options = {.limit_disk = true, .disk_bytes = disk_bytes};
        RunResult result =
            run_program(&options, WRITE_DATASET, path, "lmdb", "classes", "30", "0", "200", NULL);
        done = result.exit_status == 0;
        if (!done)
            assert_contains(result.err, "no space left");
        run_result_free(&result);
    }
    assert_true(disk_bytes > 30061 && disk_bytes < 100000); /* the line was crossed on the way */
}

TEST_IN_FOLDER(test_a_disk_with_room_is_enough, folder)
{
    RunResult result = write_on_full_disk(folder->path, "shards", 64 << 20);
    assert_int_equal(result.exit_status, 0);
    assert_int_equal(test_count_files(folder->path), 5);
    run_result_free(&result);
}
