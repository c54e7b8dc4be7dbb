/* fpack --part and --merge: what many machines pack is what one does, byte for byte. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/sources.h"

#define OPTIONS "--shard-size", "16K", "--split", "0.2", "--shuffle", "3"

/* Makes three classes in about ten shards, an image that is damaged, and one in no class. */
static const char *make_source(TestFolder *folder)
{
    const char *source = test_path(folder, "photos");
    source_class(source, "cat", 30);
    source_class(source, "dog", 20);
    source_class(source, "owl", 25);
    test_file_truncate(test_path(folder, "photos/cat/7.jpg"), -300);
    return source;
}

/* Packs part i/n into destination; 1 is what a part with the damaged image exits with. */
static void pack_part(const char *source, const char *destination, unsigned index, unsigned count)
{
    char part[32];
    (void)snprintf(part, sizeof part, "%u/%u", index, count);
    RunResult result = run_program(NULL, "fpack", OPTIONS, "--part", part, source, destination, NULL);
    if (result.exit_status > 1 || !strstr(result.err, "--merge"))
        fail_msg("part %s: exit status %d\n%s", part, result.exit_status, result.err);
    run_result_free(&result);
}

static const char *pack_whole(TestFolder *folder, const char *source)
{
    const char *whole = test_path(folder, "whole");
    run_forget(run_expecting(1, "fpack", OPTIONS, source, whole, NULL));
    assert_true(test_count_files(whole) > 8);
    return whole;
}

static void assert_same(const char *packed, const char *whole)
{
    char *difference = test_tree_difference(packed, whole);
    if (difference)
        fail_msg("%s", difference);
}

TEST_IN_FOLDER(test_parts_in_one_folder_merge_to_what_one_machine_packs, folder)
{
    const char *source = make_source(folder), *whole = pack_whole(folder, source);
    for (unsigned count = 1; count <= 20; count += count < 4 ? 1 : 16) { /* 20: more than there are shards */
        const char *packed = test_path(folder, "of-%u", count);
        for (unsigned i = count; i >= 1; i--)
            pack_part(source, packed, i, count);
        RunResult result = run_expecting(1, "fverify", packed, NULL); /* unfinished until then */
        run_result_free(&result);
        run_ok("fpack", "--merge", packed, NULL);
        assert_same(packed, whole);
        run_ok("fverify", packed, NULL);
    }
}

TEST_IN_FOLDER(test_parts_in_folders_of_their_own_stay_as_they_are, folder)
{
    const char *source = make_source(folder), *whole = pack_whole(folder, source);
    const char *first = test_path(folder, "first"), *second = test_path(folder, "second");
    const char *packed = test_path(folder, "packed");
    pack_part(source, first, 1, 2);
    pack_part(source, second, 2, 2);
    const uint64_t first_count = test_count_files(first);

    /* One is missing: told, nothing lost, and the next merge needs it alone. */
    RunResult result = run_expecting(1, "fpack", "--merge", packed, first, NULL);
    assert_contains(result.err, "files are missing, the first is ");
    assert_contains(result.err, ": pack again part 2 of 2 (fpack --part 2/2 ...), or name the folders");
    run_result_free(&result);
    result = run_expecting(0, "fpack", "--merge", "--dry-run", packed, first, second, NULL);
    assert_contains(result.err, "would hold 74 samples (train 59, val 15; 3 classes)");
    run_result_free(&result);
    assert_false(access(test_path(folder, "packed/dataset.json"), F_OK) == 0);
    result = run_expecting(0, "fpack", "--merge", "--json", packed, second, NULL);
    json_t *json = json_of(result.out);
    assert_int_equal(json_integer_value(json_object_get(json, "samples")), 74);
    assert_int_equal(json_array_size(json_object_get(json, "left_out")), 1);
    json_decref(json);
    run_result_free(&result);
    assert_same(packed, whole);
    assert_int_equal(test_count_files(first), first_count);

    /* A finished dataset is replaced by force only. */
    result = run_expecting(1, "fpack", "--merge", packed, first, second, NULL);
    assert_contains(result.err, "--force");
    run_result_free(&result);
    run_ok("fpack", "--merge", "--force", packed, first, second, NULL);
    assert_same(packed, whole);
}

TEST_IN_FOLDER(test_a_merge_names_the_parts_that_are_missing, folder)
{
    const char *source = make_source(folder), *packed = test_path(folder, "packed");
    pack_part(source, packed, 3, 6);
    RunResult result = run_expecting(1, "fpack", "--merge", packed, NULL);
    assert_contains(result.err, "pack again part 1-2, 4-6 of 6 (fpack --part 1/6 ...)");
    run_result_free(&result);
    pack_part(source, packed, 4, 6);
    pack_part(source, packed, 1, 6);
    result = run_expecting(1, "fpack", "--merge", "--dry-run", packed, NULL);
    assert_contains(result.err, "pack again part 2, 5-6 of 6 (fpack --part 2/6 ...)");
    run_result_free(&result);
    /* Parts of another count may do the rest: those of the last count are named. */
    pack_part(source, packed, 1, 2);
    result = run_expecting(1, "fpack", "--merge", packed, NULL);
    assert_contains(result.err, "pack again part 2 of 2 (fpack --part 2/2 ...)");
    run_result_free(&result);
    pack_part(source, packed, 2, 2);
    run_ok("fpack", "--merge", packed, NULL);
    run_ok("fverify", packed, NULL);
}

TEST_IN_FOLDER(test_lmdbs_and_tars_merge_too, folder)
{
    static const char *const formats[] = {"lmdb", "tar"};
    const char *source = test_path(folder, "photos");
    source_two_classes(source);
    for (size_t i = 0; i < 2; i++) {
        const char *format = formats[i], *whole = test_path(folder, "whole-%zu", i);
        const char *first = test_path(folder, "first-%zu", i), *second = test_path(folder, "second-%zu", i);
        run_ok("fpack", "--format", format, "--split", "0.4", source, whole, NULL);
        run_ok("fpack", "--format", format, "--split", "0.4", "--part", "1/2", source, first, NULL);
        run_ok("fpack", "--format", format, "--split", "0.4", "--part", "2/2", source, second, NULL);
        run_ok("fpack", "--merge", "--dst", test_path(folder, "packed-%zu", i), first, second, NULL);
        assert_same(test_path(folder, "packed-%zu", i), whole);
    }
}

/* BasicSR's layout: whole and by parts. */
TEST_IN_FOLDER(test_basicsr_merges_too, folder)
{
    const char *source = test_path(folder, "pairs"), *whole = test_path(folder, "whole");
    const char *first = test_path(folder, "first"), *second = test_path(folder, "second");
    const char *packed = test_path(folder, "packed");
    static const char *const splits[] = {"train", "val"};
    for (unsigned i = 0; i < 120; i++) {
        for (unsigned side = 0; side < 2; side++)
            source_jpeg(test_path(folder, "pairs/%s/%s/s.%u/%03u.jpg", splits[i % 4 == 3], side ? "lq" : "gt",
                                  i % 3, i),
                        150, 120, 3, 2 * i + side);
    }
#define BASICSR "-j1", "--layout", "basicsr", "--pairs", "lq:gt"
    run_ok("fpack", BASICSR, source, whole, NULL);
    run_ok("fverify", whole, NULL);
    char *meta = test_file_read(test_path(folder, "whole/train.basicsr/lq.lmdb/meta_info.txt"), NULL);
    assert_contains(meta, "(120,150,3) 1\n");
    free(meta);
    run_ok("fpack", BASICSR, "--part", "1/2", source, first, NULL);
    run_ok("fpack", BASICSR, "--part", "2/2", source, second, NULL);
    run_ok("fpack", "--merge", packed, first, second, NULL);
    assert_same(packed, whole);
    run_ok("fpack", "--merge", "--force", packed, first, second, NULL);
    assert_same(packed, whole);

    source_two_classes(test_path(folder, "photos"));
    RunResult result = run_expecting(2, "fpack", "--layout", "basicsr", test_path(folder, "photos"),
                                     test_path(folder, "labels"), NULL);
    assert_contains(result.err, "has no place for classes");
    run_result_free(&result);
    result = run_expecting(2, "fpack", BASICSR, "--format", "tar", source, test_path(folder, "labels"), NULL);
    assert_contains(result.err, "leave out --format tar");
    run_result_free(&result);
    result = run_expecting(2, "fpack", BASICSR, "--store", "raw", source, test_path(folder, "labels"), NULL);
    assert_contains(result.err, "--layout basicsr");
    run_result_free(&result);
}

/* Returns the file of the folder whose name begins so; the caller frees it. */
static char *find_mark(const char *folder, const char *beginning)
{
    DIR *entries = opendir(folder);
    char *path = NULL;
    assert_non_null(entries);
    for (const struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        if (strncmp(entry->d_name, beginning, strlen(beginning)) == 0 && !path)
            assert_true(asprintf(&path, "%s/%s", folder, entry->d_name) > 0);
    }
    (void)closedir(entries);
    assert_non_null(path);
    return path;
}

/* Replaces the digit at `at` in the file by another. */
static void change_digit(const char *path, const char *after)
{
    char *text = test_file_read(path, NULL);
    char *at = strstr(text, after);
    assert_non_null(at);
    at += strlen(after);
    assert_true(*at >= '0' && *at <= '9');
    *at = *at == '9' ? '1' : (char)(*at + 1);
    test_file_write_text(path, text);
    free(text);
}

/* One digit in the sums of a mark gave a mean of 2e29. */
TEST_IN_FOLDER(test_a_changed_mark_is_no_mark, folder)
{
    static const char *const places[] = {"\"bytes\":", "\"samples\":", "\"rgb\":[\"", "\"class_counts\":["};
    const char *source = make_source(folder), *whole = pack_whole(folder, source);
    const char *packed = test_path(folder, "packed");
    pack_part(source, packed, 1, 1);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char *mark = find_mark(packed, ".train-00002-");
        change_digit(mark, places[i]);
        free(mark);
        RunResult result = run_expecting(1, "fpack", "--merge", packed, NULL);
        assert_contains(result.err, "1 of ");
        assert_contains(result.err, "files are missing, the first is train-00002-");
        run_result_free(&result);
        pack_part(source, packed, 1, 1);
    }
    change_digit(test_path(folder, "packed/.fpack-plan.json"), "\"left_out\":");
    RunResult result = run_expecting(1, "fpack", "--merge", packed, NULL);
    assert_contains(result.err, "is damaged, or of another version of fpack");
    run_result_free(&result);
    pack_part(source, packed, 1, 1);
    run_ok("fpack", "--merge", packed, NULL);
    assert_same(packed, whole);
}

TEST_IN_FOLDER(test_a_run_without_part_goes_on_from_parts, folder)
{
    const char *source = make_source(folder), *whole = pack_whole(folder, source);
    const char *packed = test_path(folder, "packed");
    pack_part(source, packed, 2, 3);
    RunResult result = run_expecting(1, "fpack", OPTIONS, source, packed, NULL);
    assert_contains(result.err, "kept from the run that was stopped");
    run_result_free(&result);
    assert_same(packed, whole);
}

TEST_IN_FOLDER(test_parts_of_different_datasets_do_not_merge, folder)
{
    const char *source = make_source(folder);
    const char *first = test_path(folder, "first"), *second = test_path(folder, "second");
    pack_part(source, first, 1, 2);
    run_forget(run_expecting(0, "fpack", "--limit", "40", "--part", "2/2", source, second, NULL));
    RunResult result = run_expecting(1, "fpack", "--merge", test_path(folder, "packed"), first, second, NULL);
    assert_contains(result.err, "part of another dataset");
    run_result_free(&result);
    assert_false(access(test_path(folder, "packed"), F_OK) == 0);
    /* Nor does a part join another dataset's folder. */
    result = run_expecting(1, "fpack", "--limit", "40", "--part", "2/2", source, first, NULL);
    assert_contains(result.err, "other input or options");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_merge_refuses_what_it_would_ignore, folder)
{
    const char *packed = test_path(folder, "packed");
    RunResult result = run_expecting(1, "fpack", "--merge", packed, NULL);
    assert_contains(result.err, "holds no part of a dataset");
    run_result_free(&result);
    assert_false(access(packed, F_OK) == 0);
    source_two_classes(test_path(folder, "photos"));
    run_ok("fpack", test_path(folder, "photos"), test_path(folder, "whole"), NULL);
    result = run_expecting(1, "fpack", "--merge", test_path(folder, "whole"), NULL);
    assert_contains(result.err, "whole: holds a finished dataset, and no part of one is left");
    run_result_free(&result);
    result = run_expecting(2, "fpack", "--merge", "--store", "raw", packed, NULL);
    assert_contains(result.err, "--store");
    run_result_free(&result);
    result = run_expecting(2, "fpack", "--merge", "--limit", "3", packed, NULL);
    assert_contains(result.err, "--limit");
    run_result_free(&result);
    result = run_expecting(2, "fpack", "--merge", NULL);
    assert_contains(result.err, "DST");
    run_result_free(&result);
    result = run_expecting(2, "fpack", "--part", "4/3", packed, packed, NULL);
    assert_contains(result.err, "--part");
    run_result_free(&result);
}

/* ---- at the same time ---- */

TEST_IN_FOLDER(test_parts_are_packed_at_once, folder)
{
    enum { PARTS = 6 };
    const char *source = make_source(folder), *whole = pack_whole(folder, source);
    const char *packed = test_path(folder, "packed");
    RunningProgram running[PARTS];
    for (unsigned i = 0; i < PARTS; i++) {
        char part[32];
        (void)snprintf(part, sizeof part, "%u/%d", i + 1, PARTS);
        const char *const arguments[] = {OPTIONS, "-j1", "--part", part, source, packed, NULL};
        running[i] = run_start(NULL, "fpack", arguments);
    }
    for (unsigned i = 0; i < PARTS; i++) {
        RunResult result = run_wait(&running[i]);
        if (result.exit_status > 1 || !strstr(result.err, "--merge"))
            fail_msg("part %u: exit status %d\n%s", i + 1, result.exit_status, result.err);
        run_result_free(&result);
    }
    run_ok("fpack", "--merge", packed, NULL);
    assert_same(packed, whole);
}

/* Returns a descriptor that holds a lock on a mark in the folder. */
static int hold(TestFolder *folder, const char *name, int operation)
{
    int lock = open(test_path(folder, "packed/%s", name), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_true(lock >= 0);
    assert_int_equal(flock(lock, operation), 0);
    return lock;
}

TEST_IN_FOLDER(test_one_part_has_one_writer_and_parts_exclude_the_whole, folder)
{
    const char *source = make_source(folder), *packed = test_path(folder, "packed");
    pack_part(source, packed, 1, 2);

    int lock = hold(folder, ".fpack-part-2-of-2", LOCK_EX);
    RunResult result = run_expecting(1, "fpack", OPTIONS, "--part", "2/2", source, packed, NULL);
    assert_contains(result.err, "another fpack is packing part 2/2 there");
    run_result_free(&result);
    pack_part(source, packed, 1, 2); /* another part may */
    (void)close(lock);

    lock = hold(folder, ".fpack-unfinished", LOCK_SH); /* as a part at work does */
    result = run_expecting(1, "fpack", OPTIONS, source, packed, NULL);
    assert_contains(result.err, "another fpack is writing there");
    run_result_free(&result);
    result = run_expecting(1, "fpack", "--merge", packed, NULL);
    assert_contains(result.err, "another fpack is writing there");
    run_result_free(&result);
    result = run_expecting(1, "fpack", "--merge", test_path(folder, "elsewhere"), packed, NULL);
    assert_contains(result.err, "another fpack is writing there");
    run_result_free(&result);
    pack_part(source, packed, 2, 2);
    (void)close(lock);

    lock = hold(folder, ".fpack-unfinished", LOCK_EX); /* as a merge does */
    result = run_expecting(1, "fpack", OPTIONS, "--part", "2/2", source, packed, NULL);
    assert_contains(result.err, "which packs or merges all of it");
    run_result_free(&result);
    (void)close(lock);
    run_ok("fpack", "--merge", packed, NULL);
}

TEST_IN_FOLDER(test_a_part_that_is_killed_goes_on, folder)
{
    const char *source = test_path(folder, "photos"), *whole = test_path(folder, "whole");
    const char *packed = test_path(folder, "packed");
    source_slow_class(source, "a", 60, 640, 480);
    run_ok("fpack", "--shard-size", "40K", source, whole, NULL);
    const char *const arguments[] = {"-j1", "--shard-size", "40K", "--part", "1/2", source, packed, NULL};
    const RunOptions stops = {.stop_at = ".fshard"};
    enum { AT_A_SHARD = 3 }; /* the first ones; the others by the clock */
    unsigned killed = 0;
    for (unsigned run = 0; run < 20; run++) {
        RunningProgram running = run_start(run < AT_A_SHARD ? &stops : NULL, "fpack", arguments);
        if (run < AT_A_SHARD)
            run_wait_until_stopped(&running);
        else
            sleep_seconds(0.004 * (run - AT_A_SHARD + 1));
        (void)kill(running.process, SIGKILL);
        RunResult result = run_wait(&running);
        killed += result.exit_status == 128 + SIGKILL;
        run_result_free(&result);
        if (run % 5 == 4) { /* another part comes and goes meanwhile */
            run_ok("fpack", "--shard-size", "40K", "--part", "2/2", source, packed, NULL);
        }
    }
    assert_true(killed >= AT_A_SHARD);
    run_ok("fpack", "--shard-size", "40K", "--part", "1/2", source, packed, NULL);
    run_ok("fpack", "--merge", packed, NULL);
    assert_same(packed, whole);
}
