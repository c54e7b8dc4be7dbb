/* fpack: the destination. Nothing is overwritten, nothing is half-written, and what was stopped goes on. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/sources.h"

/* ---- what is there already ---- */

TEST_IN_FOLDER(test_a_finished_dataset_is_replaced_only_by_force, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "out/shards");
    source_two_classes(source);
    run_ok("fpack", source, packed, NULL);
    source_class(source, "cat", 5);
    RunResult result = run_expecting(1, "fpack", source, packed, NULL);
    assert_contains(result.err, "--force");
    run_result_free(&result);
    assert_int_equal(packed_count(packed, "train"), 5);
    run_ok("fpack", "--force", source, packed, NULL);
    assert_int_equal(packed_count(packed, "train"), 7);
    run_ok("fpack", "--force", "--format", "lmdb", source, packed, NULL);
    assert_int_equal(packed_count(packed, "train"), 7);
    run_ok("fverify", packed, NULL);
    /* Nothing of the shards is left, in it or beside it: an LMDB's data.mdb and dataset.json. */
    assert_int_equal(test_count_files(test_path(folder, "out")), 2);
}

TEST_IN_FOLDER(test_other_files_are_never_touched, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    test_file_write_text(test_path(folder, "shards/thesis.tex"), "years of work");
    RunResult result = run_expecting(1, "fpack", "--force", source, packed, NULL);
    assert_contains(result.err, "thesis.tex");
    run_result_free(&result);
    assert_int_equal(test_count_files(packed), 1);
    result = run_expecting(1, "fpack", "--dry-run", source, packed, NULL);
    run_result_free(&result);

    result = run_expecting(1, "fpack", source, test_path(folder, "shards/thesis.tex"), NULL);
    assert_contains(result.err, "is no folder");
    run_result_free(&result);
    /* Also beside a finished dataset. */
    assert_int_equal(unlink(test_path(folder, "shards/thesis.tex")), 0);
    run_ok("fpack", source, packed, NULL);
    test_file_write_text(test_path(folder, "shards/notes.md"), "mine");
    result = run_expecting(1, "fpack", "--force", source, packed, NULL);
    assert_contains(result.err, "notes.md");
    run_result_free(&result);
    assert_int_equal(test_count_files(packed), 4);
}

TEST_IN_FOLDER(test_a_second_writer_is_refused, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_two_classes(source);
    test_file_write_text(test_path(folder, "shards/.fpack-unfinished"), "");
    int lock = open(test_path(folder, "shards/.fpack-unfinished"), O_RDWR | O_CLOEXEC);
    assert_true(lock >= 0);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    RunResult result = run_expecting(1, "fpack", source, packed, NULL);
    assert_contains(result.err, "another fpack is writing there");
    run_result_free(&result);
    assert_int_equal(test_count_files(packed), 1);
    (void)close(lock);
    run_ok("fpack", source, packed, NULL);
    assert_int_equal(test_count_files(packed), 3);
}

/* ---- full disk ---- */

TEST_IN_FOLDER(test_a_full_disk_leaves_whole_shards_or_nothing, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_class(source, "cat", 30);
    source_class(source, "dog", 30);
    run_ok("fpack", "--shard-size", "16K", source, test_path(folder, "whole"), NULL);
    static const uint64_t limits[] = {0, 10, 3000, 40000, 40000};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const RunOptions options = {.limit_disk = true, .disk_bytes = limits[i]};
        RunResult result = run_program(&options, "fpack", "--shard-size", "16K", source, packed, NULL);
        if (result.exit_status != 1)
            fail_msg("%llu bytes of disk: exit status %d\n%s", (unsigned long long)limits[i],
                     result.exit_status, result.err);
        assert_contains(result.err, packed);
        assert_contains(result.err, "No space left on device");
        if (i >= 3)
            assert_contains(result.err,
                            " files of the dataset are complete; with more room, the same command "
                            "goes on from there\n");
        run_result_free(&result);
        assert_false(access(test_path(folder, "shards/dataset.json"), F_OK) == 0);
        if (i < 3) /* not one shard: no trace */
            assert_false(access(packed, F_OK) == 0);
    }
    assert_true(access(packed, F_OK) == 0);
    /* No temporary file among what stayed. */
    RunResult listing = run_program(NULL, "/bin/ls", "-A", packed, NULL);
    assert_contains_not(listing.out, ".tmp-");
    run_result_free(&listing);
    /* With space again it goes on. */
    RunResult result = run_expecting(0, "fpack", "--shard-size", "16K", source, packed, NULL);
    assert_contains(result.err, "kept from the run that was stopped");
    run_result_free(&result);
    char *difference = test_tree_difference(packed, test_path(folder, "whole"));
    assert_null(difference);
}

TEST_IN_FOLDER(test_a_full_disk_ends_an_lmdb_too, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "lmdb");
    source_class(source, "cat", 30);
    source_class(source, "dog", 30);
    const RunOptions options = {.limit_disk = true, .disk_bytes = 20000};
    RunResult result = run_program(&options, "fpack", "--format", "lmdb", source, packed, NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "No space left on device");
    run_result_free(&result);
    assert_false(access(packed, F_OK) == 0);
}

/* ---- stops ---- */

/* Makes a source that takes a second or so. Its first file is no image. */
static void make_slow_source(TestFolder *folder)
{
    static const char *const splits[] = {"train", "val"};
    for (size_t i = 0; i < 2; i++) {
        source_slow_class(test_path(folder, "slow/%s", splits[i]), "a", 40, 960, 720);
        source_slow_class(test_path(folder, "slow/%s", splits[i]), "b", 40, 960, 720);
    }
    test_file_write_text(test_path(folder, "slow/train/a/0-bad.jpg"), "text");
}

/* The arguments of all slow packings but the destination. */
#define SLOW_OPTIONS "-j1", "--shard-size", "400K"

/* Returns the name of a finished dataset's shard, "train-00001-of-00007.fshard", which lives as long as the
 * folder. */
static const char *shard_name(TestFolder *folder, const char *dataset, size_t index)
{
    json_t *manifest = packed_manifest(dataset);
    json_t *files = json_object_get(json_array_get(json_object_get(manifest, "splits"), 0), "files");
    const char *name = json_string_value(json_object_get(json_array_get(files, index), "name"));
    assert_non_null(name);
    const char *kept = test_path(folder, "%s", name) + strlen(folder->path) + 1;
    json_decref(manifest);
    return kept;
}

/* Returns what packing the slow source makes without a stop. */
static const char *make_slow_whole(TestFolder *folder)
{
    make_slow_source(folder);
    const char *whole = test_path(folder, "whole");
    run_forget(run_expecting(1, "fpack", SLOW_OPTIONS, test_path(folder, "slow"), whole, NULL));
    return whole;
}

/* A train-000000.tar may be anybody's: only ours, by what is in it, is replaced. */
TEST_IN_FOLDER(test_tars_of_others_are_never_touched, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "tars");
    source_two_classes(source);
    run_ok("fpack", "--format", "tar", source, packed, NULL);
    run_ok("fpack", "--format", "tar", "--force", source, packed, NULL);
    /* What a kill before the manifest leaves is gone on from, though nothing lists it. */
    assert_int_equal(unlink(test_path(folder, "tars/dataset.json")), 0);
    run_ok("fpack", "--format", "tar", "--force", source, packed, NULL);
    RunResult result =
        run_program(NULL, "/bin/tar", "cf", test_path(folder, "others/train-000000.tar"), source, NULL);
    assert_int_equal(result.exit_status, 2); /* no folder yet */
    run_result_free(&result);
    test_file_write_text(test_path(folder, "others/train-000000.tar"), "");
    result = run_program(NULL, "/bin/tar", "cf", test_path(folder, "others/train-000000.tar"), "-C", source,
                         ".", NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    result =
        run_expecting(1, "fpack", "--format", "tar", "--force", source, test_path(folder, "others"), NULL);
    assert_contains(result.err, "train-000000.tar");
    run_result_free(&result);
    assert_int_equal(test_count_files(test_path(folder, "others")), 1);
}

TEST_IN_FOLDER(test_interrupt_finishes_cleanly_and_says_how_to_go_on, folder)
{
    const char *whole = make_slow_whole(folder);
    const char *source = test_path(folder, "slow"), *packed = test_path(folder, "stopped");
    static const int signals[] = {SIGINT, SIGTERM};
    const char *const arguments[] = {SLOW_OPTIONS, source, packed, NULL};
    for (size_t i = 0; i < 2; i++) {
        const RunOptions stops = {.stop_at = shard_name(folder, whole, i)};
        RunningProgram running = run_start(&stops, "fpack", arguments);
        run_wait_until_stopped(&running);
        run_go_on(&running, signals[i]);
        RunResult result = run_wait(&running);
        assert_int_equal(result.exit_status, 128 + signals[i]);
        assert_contains(result.err, "the same command goes on");
        run_result_free(&result);
        RunResult listing = run_program(NULL, "/bin/ls", "-A", packed, NULL);
        assert_contains_not(listing.out, ".tmp-");
        assert_contains_not(listing.out, "dataset.json");
        run_result_free(&listing);
    }
    /* The last run keeps what is finished, and tells again of what was left out there. */
    struct stat before, after;
    const char *first = test_path(folder, "stopped/%s", shard_name(folder, whole, 0));
    assert_int_equal(stat(first, &before), 0);
    RunResult result = run_expecting(1, "fpack", SLOW_OPTIONS, "--json", source, packed, NULL);
    assert_contains(result.err, "train/a/0-bad.jpg: ");
    json_t *json = json_of(result.out);
    assert_int_equal(json_array_size(json_object_get(json, "left_out")), 1);
    assert_true(json_integer_value(json_object_get(json, "kept_files")) >= 2);
    json_decref(json);
    run_result_free(&result);
    assert_int_equal(stat(first, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    char *difference = test_tree_difference(packed, whole);
    assert_null(difference);
}

/* Packs until the first shard is there, then stops. */
static void stop_after_first_shard(TestFolder *folder, const char *packed, const char *first)
{
    const char *const arguments[] = {"-j1", "--shard-size", "100K", test_path(folder, "slow"), packed, NULL};
    const RunOptions stops = {.stop_at = first};
    RunningProgram running = run_start(&stops, "fpack", arguments);
    run_wait_until_stopped(&running);
    run_go_on(&running, SIGINT);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, 130);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_changed_sources_and_damaged_shards_are_packed_again, folder)
{
    const char *source = test_path(folder, "slow"), *packed = test_path(folder, "shards");
    source_slow_class(source, "a", 100, 640, 480);
    source_slow_class(source, "b", 2, 640, 480);
    run_ok("fpack", "--shard-size", "100K", source, test_path(folder, "count"), NULL);
    const char *name = shard_name(folder, test_path(folder, "count"), 0);
    const char *first = test_path(folder, "shards/%s", name);

    /* Another image of the same size: names and sizes are as they were, the time is not. */
    stop_after_first_shard(folder, packed, first);
    size_t length = 0;
    char *bytes = test_file_read(test_path(folder, "slow/b/00000.jpg"), &length);
    assert_int_equal(unlink(test_path(folder, "slow/a/00000.jpg")), 0);
    bytes[12] ^= 1; /* the minor version of JFIF */
    test_file_write(test_path(folder, "slow/a/00000.jpg"), bytes, length);
    free(bytes);
    run_ok("fpack", "--shard-size", "100K", source, packed, NULL);
    packed_assert_copies(packed, source);
    run_ok("fpack", "--force", "--shard-size", "100K", source, test_path(folder, "count"), NULL);
    char *difference = test_tree_difference(packed, test_path(folder, "count"));
    assert_null(difference);

    /* A finished shard that lost its footer is seen on resuming. */
    const char *again = test_path(folder, "again");
    stop_after_first_shard(folder, again, test_path(folder, "again/%s", name));
    test_file_truncate(test_path(folder, "again/%s", name), -50);
    run_ok("fpack", "--shard-size", "100K", source, again, NULL);
    difference = test_tree_difference(again, test_path(folder, "count"));
    assert_null(difference);

    /* Other options do not go on there, except by force. */
    const char *other = test_path(folder, "other");
    stop_after_first_shard(folder, other, test_path(folder, "other/%s", name));
    RunResult result = run_expecting(1, "fpack", "--shard-size", "200K", source, other, NULL);
    assert_contains(result.err, "other input or options");
    run_result_free(&result);
    result = run_expecting(1, "fverify", other, NULL);
    assert_contains(result.out, "did not finish");
    run_result_free(&result);
    run_ok("fpack", "--force", "--store", "raw", source, other, NULL);
    run_ok("fverify", other, NULL);
    assert_int_equal(test_count_files(other), 3);
}

TEST_IN_FOLDER(test_force_leaves_the_old_dataset_whole_until_the_new_one_is, folder)
{
    const char *whole = make_slow_whole(folder);
    const char *source = test_path(folder, "slow"), *packed = test_path(folder, "out/shards");
    source_two_classes(test_path(folder, "small"));
    run_ok("fpack", test_path(folder, "small"), packed, NULL);
    run_ok("fpack", test_path(folder, "small"), test_path(folder, "old"), NULL);
    const char *const arguments[] = {SLOW_OPTIONS, "--force", source, packed, NULL};
    const RunOptions stops = {.stop_at = shard_name(folder, whole, 1)};
    RunningProgram running = run_start(&stops, "fpack", arguments);
    run_wait_until_stopped(&running);
    run_go_on(&running, SIGKILL);
    RunResult result = run_wait(&running);
    assert_int_equal(result.exit_status, 128 + SIGKILL);
    run_result_free(&result);
    char *difference = test_tree_difference(packed, test_path(folder, "old"));
    assert_null(difference);

    result = run_expecting(1, "fpack", SLOW_OPTIONS, "--force", source, packed, NULL); /* 1: the bad image */
    assert_contains(result.err, "kept from the run that was stopped");
    run_result_free(&result);
    difference = test_tree_difference(packed, whole);
    assert_null(difference);
    assert_int_equal(test_count_files(test_path(folder, "out")), test_count_files(whole));
}
