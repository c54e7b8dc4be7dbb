/* A disk that cannot read a page, and a file that is cut short, under every program that maps datasets: none
 * of them dies of it, each names file, record and byte, and those that may go on do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "tests/programs/train_support.h"

enum { DIED = 128 }; /* exit statuses from here on are signals */

static const char *const shard = "train-00000-of-00002.fshard";

/* Two records of 40 lie in it, in the middle of the first shard. */
#define BAD_PAGE "train-00000-of-00002.fshard:pages:16384:4096"

static RunResult run_on(const char *bad_disk, const char *program, const char *const *arguments)
{
    const RunOptions options = {.bad_disk = bad_disk, .timeout_seconds = 400};
    RunResult result = run_program_arguments(&options, program, arguments);
    if (result.exit_status >= DIED)
        fail_msg("%s with %s: exit status %d\n%s%s", program, bad_disk, result.exit_status, result.out,
                 result.err);
    return result;
}

/* Runs the program and asserts its exit status and that its output holds all of the parts. */
static void says_on(const char *bad_disk, int exit_status, const char *const *parts, const char *program,
                    const char *const *arguments)
{
    RunResult result = run_on(bad_disk, program, arguments);
    if (result.exit_status != exit_status)
        fail_msg("%s with %s: exit status %d, not %d\n%s%s", program, bad_disk, result.exit_status,
                 exit_status, result.out, result.err);
    char *all = calloc(1, result.out_bytes + result.err_bytes + 1);
    assert_non_null(all);
    memcpy(all, result.out, result.out_bytes);
    memcpy(all + result.out_bytes, result.err, result.err_bytes);
    for (; *parts; parts++)
        assert_contains(all, *parts);
    free(all);
    run_result_free(&result);
}

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define PARTS(...)     ((const char *const[]){__VA_ARGS__, NULL})

#define TRAINING                                                                                             \
    "--jobs", "1", "--device", "cpu", "--model", "toynet", "--batch-size", "8", "--workers", "1",            \
        "--train-crop-size", "32", "--val-crop-size", "32", "--epochs"

static const char *make_plain(TestFolder *folder, FshCodec codec)
{
    DatasetSpec spec = train_plain;
    spec.codec = codec;
    if (codec == FSH_CODEC_JPEG)
        spec.width = spec.height = 96;
    return make_set(folder, &spec);
}

TEST_IN_FOLDER(test_fverify_names_the_records_and_checks_the_others, folder)
{
    const char *set = make_plain(folder, FSH_CODEC_RAW);
    const char *const where[] = {shard, "record 4", "record 5", "byte 16384 cannot be read", NULL};
    says_on(BAD_PAGE ":1", 1, where, "fverify", ARGUMENTS("--decode", "--no-overlap", set));
    says_on(BAD_PAGE ":1", 1, where, "fverify", ARGUMENTS(set));
    says_on(BAD_PAGE ":1", 1, where, "fverify", ARGUMENTS("--quick", set));
    says_on(BAD_PAGE ":2", 1, where, "fverify",
            ARGUMENTS("--decode", "--no-overlap", set)); /* after the hashes */
    RunResult result = run_on(BAD_PAGE ":1", "fverify", ARGUMENTS("--decode", "--no-overlap", set));
    assert_contains_not(result.out, "record 3");
    assert_contains_not(result.out, "record 7");
    assert_contains_not(result.out, "CRC32C");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_extracting_leaves_out_what_cannot_be_read, folder)
{
    const char *set = make_plain(folder, FSH_CODEC_JPEG), *tree = test_path(folder, "tree");
    says_on(BAD_PAGE ":1", 1, PARTS(shard, "cannot be read"), "fverify", ARGUMENTS("--extract", tree, set));
    const uint64_t count = test_count_files(tree);
    assert_true(count >= 40 && count < 48);
}

TEST_IN_FOLDER(test_repairing_keeps_what_can_be_read, folder)
{
    (void)make_plain(folder, FSH_CODEC_RAW);
    const char *path = test_path(folder, "set/%s", shard), *whole = test_path(folder, "whole.fshard");
    says_on(BAD_PAGE ":1", 1, PARTS("cannot be read"), "fverify", ARGUMENTS("--repair", whole, path));
    RunResult result = run_program(NULL, "fverify", whole, NULL);
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.out, "  17"); /* of 20 */
    run_result_free(&result);
    /* Without its index records are looked for. */
    test_file_truncate(path, -200);
    const char *found = test_path(folder, "found.fshard");
    says_on(BAD_PAGE ":1", 1, PARTS("cannot be read"), "fverify", ARGUMENTS("--repair", found, path));
    result = run_program(NULL, "fverify", found, NULL);
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.out, "  17");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_packing_leaves_out_what_cannot_be_read, folder)
{
    const char *set = make_plain(folder, FSH_CODEC_RAW);
    const char *const packings[][4] = {{NULL}, {"--no-check"}, {"--store", "zstd"}, {"--format", "lmdb"}};
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++) {
        const char *packed = test_path(folder, "packed-%zu", i), *arguments[8] = {"-q", "--on-error", "skip"};
        size_t count = 3;
        for (size_t j = 0; packings[i][j]; j++)
            arguments[count++] = packings[i][j];
        arguments[count++] = set;
        arguments[count++] = packed;
        says_on(BAD_PAGE ":1", 1, PARTS(shard, "cannot be read", "left out"), "fpack", arguments);
        RunResult result = run_program(NULL, "fverify", "--decode", "--no-overlap", packed, NULL);
        assert_int_equal(result.exit_status, 0);
        assert_contains(result.out, "45 images decoded"); /* of 48 */
        run_result_free(&result);
    }
}

/* Runs a program on a disk that is well. */
static void ends_well(const char *program, const char *const *arguments)
{
    RunResult result = run_program_arguments(NULL, program, arguments);
    if (result.exit_status)
        fail_msg("%s: exit status %d\n%s%s", program, result.exit_status, result.out, result.err);
    run_result_free(&result);
}

/* A manifest made of zeros that stand for what the disk cannot read would call them the dataset. */
TEST_IN_FOLDER(test_no_manifest_is_made_of_what_cannot_be_read, folder)
{
    const char *set = make_plain(folder, FSH_CODEC_RAW);
    const struct {
        const char *format, *bad_disk;
    } cases[] = {{"shards", BAD_PAGE ":1"},
                 {"lmdb", "train.lmdb/data.mdb:pages:16384:4096:1"},
                 {"tar", "train-000000.tar:pages:16384:4096:1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *packed = i ? test_path(folder, "%s", cases[i].format) : set;
        const char *manifest = test_path(folder, "%s/dataset.json", i ? cases[i].format : "set");
        if (i)
            ends_well("fpack", ARGUMENTS("-q", "--format", cases[i].format, set, packed));
        assert_int_equal(unlink(manifest), 0);
        says_on(cases[i].bad_disk, 1, PARTS("cannot be read"), "fpack",
                ARGUMENTS("-q", "--repair-manifest", packed));
        assert_false(file_exists(manifest));
        ends_well("fpack", ARGUMENTS("-q", "--repair-manifest", packed));
        ends_well("fverify", ARGUMENTS("-q", "--decode", "--no-overlap", packed));
    }
}

/* Of an LMDB the pages that lead to a record are read with the record. */
TEST_IN_FOLDER(test_pages_of_an_lmdb_are_told_when_they_are_needed, folder)
{
    const char *set = make_plain(folder, FSH_CODEC_RAW), *packed = test_path(folder, "lmdb");
    ends_well("fpack", ARGUMENTS("-q", "--format", "lmdb", set, packed));
    says_on("train.lmdb/data.mdb:pages:12288:4096:1", 1, PARTS("train.lmdb record", "cannot be read"),
            "fpack", ARGUMENTS("-q", packed, test_path(folder, "again")));
    says_on("train.lmdb/data.mdb:pages:12288:4096:1", 1, PARTS("cannot be read"), "fverify",
            ARGUMENTS(packed));
}

TEST_IN_FOLDER(test_training_names_the_sample_or_goes_on_without_it, folder)
{
    const FshCodec codecs[] = {FSH_CODEC_RAW, FSH_CODEC_JPEG};
    for (size_t i = 0; i < 2; i++) {
        const char *set = make_plain(folder, codecs[i]);
        const char *const caches[] = {"none", "ram", "pixels"};
        for (size_t j = 0; j < (i ? 1 : 3); j++) {
            const char *out = test_path(folder, "out-%zu-%zu", i, j);
            says_on(
                BAD_PAGE ":1", 1, PARTS(shard, "cannot be read"), "ftrain",
                ARGUMENTS(TRAINING, "2", "--cache", caches[j], set, test_path(folder, "no-%zu-%zu", i, j)));
            if (j != 1) /* the whole of the files is wanted in memory: no sample is to blame */
                says_on(BAD_PAGE ":1", 1, PARTS(shard, "record", "cannot be read"), "ftrain",
                        ARGUMENTS(TRAINING, "2", "--cache", caches[j], "--on-error", "skip", set, out));
        }
        test_folder_remove(folder);
        test_folder_make(folder);
    }
}

TEST_IN_FOLDER(test_evaluation_names_the_sample, folder)
{
    static const char bad_val[] = "val-00000-of-00001.fshard:pages:16384:4096:1";
    DatasetSpec spec = train_plain;
    spec.shard_count = 1;
    spec.val_count = 20;
    const char *set = make_set(folder, &spec), *out = test_path(folder, "out");
    TRAINED("--device", "cpu", "--model", "toynet", "--epochs", "1", "--batch-size", "8", "--train-crop-size",
            "32", "--val-crop-size", "32", set, out);
    const char *weights = test_path(folder, "out/last.safetensors");
    says_on(bad_val, 1, PARTS("val-00000-of-00001.fshard record", "cannot be read"), "ftrain",
            ARGUMENTS("--evaluate", "--device", "cpu", "--weights", weights, "--val-crop-size", "32", set));
    /* So does a file of weights. */
    says_on("last.safetensors:pages:8192:4096:1", 1, PARTS("last.safetensors: byte 8192 cannot be read"),
            "ftrain",
            ARGUMENTS("--evaluate", "--device", "cpu", "--weights", weights, "--val-crop-size", "32", set));
}

/* Headers, indexes, manifests' shards: every page of the shard in turn, from every mapping of it on. */
TEST_IN_FOLDER(test_no_program_dies_of_any_page, folder)
{
    const char *set = make_plain(folder, FSH_CODEC_RAW);
    const uint64_t bytes = test_file_size(test_path(folder, "set/%s", shard));
    for (uint64_t offset = 0, round = 0; offset < bytes; offset += 4096, round++) {
        if (round > 1 && offset + 2 * 4096 < bytes && round % 9) /* those in between are like each other */
            continue;
        for (int from = 1; from <= 2; from++) {
            char rule[128];
            (void)snprintf(rule, sizeof rule, "%s:pages:%llu:1:%d", shard, (unsigned long long)offset, from);
            const char *tree = test_path(folder, "tree-%d-%d", (int)round, from);
            RunResult results[] = {
                run_on(rule, "fverify", ARGUMENTS("--decode", "--no-overlap", set)),
                run_on(rule, "fverify", ARGUMENTS("--list", set)),
                run_on(rule, "fverify", ARGUMENTS("--extract", tree, set)),
                run_on(rule, "fpack",
                       ARGUMENTS("-q", "--on-error", "skip", set,
                                 test_path(folder, "p-%d-%d", (int)round, from))),
                run_on(rule, "fverify",
                       ARGUMENTS("--repair", test_path(folder, "r-%d-%d", (int)round, from),
                                 test_path(folder, "set/%s", shard))),
            };
            for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
                if (from == 1 && results[i].exit_status != 1)
                    fail_msg("run %zu with %s: exit status %d\n%s%s", i, rule, results[i].exit_status,
                             results[i].out, results[i].err);
                if (results[i].exit_status && i != 1 && !strstr(results[i].err, "cannot be read") &&
                    !strstr(results[i].out, "cannot be read"))
                    fail_msg("run %zu with %s says\n%s%s", i, rule, results[i].out, results[i].err);
                run_result_free(&results[i]);
            }
        }
    }
}

TEST_IN_FOLDER(test_no_program_dies_of_a_file_that_is_cut_short, folder)
{
    const int lengths[] = {0, 20000};
    for (size_t i = 0; i < 2; i++) {
        for (int from = 1; from <= 2; from++) {
            char rule[128];
            (void)snprintf(rule, sizeof rule, "%s:cut:%d:%d", shard, lengths[i], from);
            const char *const runs[][8] = {
                {"fverify", "--decode", "SET"},
                {"fverify", "--extract", test_path(folder, "tree-%zu-%d", i, from), "SET"},
                {"fverify", "--repair", test_path(folder, "r-%zu-%d", i, from), "SHARD"},
                {"fpack", "-q", "--on-error", "skip", "SET", test_path(folder, "p-%zu-%d", i, from)}};
            for (size_t j = 0; j < 4; j++) {
                const char *set = make_plain(folder, FSH_CODEC_RAW), *arguments[8] = {0};
                for (size_t k = 1; runs[j][k]; k++)
                    arguments[k - 1] = strcmp(runs[j][k], "SET") == 0     ? set
                                       : strcmp(runs[j][k], "SHARD") == 0 ? test_path(folder, "set/%s", shard)
                                                                          : runs[j][k];
                RunResult result = run_on(rule, runs[j][0], arguments);
                if (from == 1 && result.exit_status != 1)
                    fail_msg("%s with %s: exit status %d", runs[j][0], rule, result.exit_status);
                run_result_free(&result);
                RunResult removed = run_program(NULL, "/bin/rm", "-r", set, NULL);
                assert_int_equal(removed.exit_status, 0);
                run_result_free(&removed);
            }
        }
    }
}

TEST_IN_FOLDER(test_ftrain_names_a_shard_that_is_cut_short_as_it_trains, folder)
{
    for (int i = 0; i < 2; i++) { /* the second goes on without */
        const char *set = make_plain(folder, FSH_CODEC_RAW), *out = test_path(folder, "out-%d", i);
        const RunOptions options = {.timeout_seconds = 400};
        RunningProgram running =
            run_start(&options, "ftrain",
                      ARGUMENTS(TRAINING, i ? "30" : "3000", "--on-error", i ? "skip" : "stop", set, out));
        assert_true(wait_for_file(test_path(folder, "out-%d/summary.csv", i), 60));
        test_file_truncate(test_path(folder, "set/%s", shard), 8192);
        RunResult result = run_wait(&running);
        if (result.exit_status != 1)
            fail_msg("exit status %d\n%s%s", result.exit_status, result.out, result.err);
        assert_contains(result.err, shard);
        assert_contains(result.err, "cannot be read: the disk fails, or the file was cut short meanwhile");
        run_result_free(&result);
        test_folder_remove(folder);
        test_folder_make(folder);
    }
}

/* The disk of one rank fails: it says what, and the others end with it. */
TEST_IN_FOLDER(test_a_rank_whose_disk_fails_says_so, folder)
{
    const char *set = make_plain(folder, FSH_CODEC_RAW), *out = test_path(folder, "out");
    RunningProgram running[2];
    char port[40], rank[2][16];
    (void)snprintf(port, sizeof port, "MASTER_PORT=%ld77", (long)getpid());
    for (int i = 0; i < 2; i++) {
        (void)snprintf(rank[i], sizeof rank[i], "RANK=%d", i);
        const char *const environment[] = {
            rank[i], i ? "LOCAL_RANK=1" : "LOCAL_RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", port, NULL};
        const RunOptions options = {
            .environment = environment, .timeout_seconds = 400, .bad_disk = i ? BAD_PAGE ":1" : NULL};
        running[i] = run_start(&options, "ftrain", ARGUMENTS(TRAINING, "5", set, out));
    }
    RunResult first = run_wait(&running[0]), second = run_wait(&running[1]);
    assert_int_equal(first.exit_status, 1);
    assert_int_equal(second.exit_status, 1);
    assert_contains(second.err, "rank 1: ");
    assert_contains(second.err, "cannot be read: the disk fails");
    assert_contains(second.err, shard);
    assert_contains(first.err, "another rank has failed, and says why");
    run_result_free(&first);
    run_result_free(&second);
}
