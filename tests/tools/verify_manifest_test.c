/* fverify and fpack --repair-manifest: a manifest and what lies beside it are proved, and made again. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/file.h"
#include "tests/tools/sources.h"

/* fpack's options for each container. */
static const struct Form {
    const char *name, *options[6];
} forms[] = {{"shards", {"--shard-size", "8K"}},
             {"lmdb", {"--format", "lmdb"}},
             {"tar", {"--format", "tar", "--shard-size", "16K"}},
             {"pairs", {"--pairs", "a:b"}},
             {"basicsr", {"--pairs", "a:b", "--layout", "basicsr"}},
             {"pair-tar", {"--pairs", "a:b", "--format", "tar"}}};
enum { FORMS = sizeof forms / sizeof forms[0] };

/* Packs twelve photographs in two classes, of which some are gray, as both classes and sides of pairs.
 * Returns FOLDER/NAME, packed. */
static const char *pack_form(TestFolder *folder, const struct Form *form)
{
    const char *packed = test_path(folder, "%s", form->name);
    const char *arguments[16] = {"-q"};
    size_t count = 1;
    for (unsigned i = 0; i < 24; i++)
        source_jpeg(test_path(folder, "photos/%c/%02u.jpg", "ab"[i / 12], i % 12), 40, 30,
                    i % 12 == 3 ? 1 : 3, i);
    for (size_t i = 0; form->options[i]; i++)
        arguments[count++] = form->options[i];
    arguments[count++] = test_path(folder, "photos");
    arguments[count++] = packed;
    RunResult result = run_program_arguments(NULL, "fpack", arguments);
    if (result.exit_status)
        fail_msg("%s", result.err);
    run_result_free(&result);
    return packed;
}

/* Runs fverify --decode, or less; expects the exit status and, unless NULL, this in what it prints. */
static void expect_verify(int exit_status, const char *option, const char *packed, const char *says)
{
    RunResult result = run_expecting(exit_status, "fverify", option, packed, NULL);
    if (says)
        assert_contains(result.out, says);
    run_result_free(&result);
}

/* ---- statistics ---- */

/* Writes the manifest with other statistics, and a checksum that fits. */
static void save_statistics(const char *packed, const FshStatistics *statistics)
{
    FshError error = {0};
    FshManifest manifest;
    assert_ok(fsh_manifest_load(&manifest, packed, &error), &error);
    manifest.statistics = *statistics;
    assert_ok(fsh_manifest_save(&manifest, packed, true, &error), &error);
    fsh_manifest_free(&manifest);
}

TEST_IN_FOLDER(test_statistics_are_computed_again, folder)
{
    for (size_t i = 0; i < FORMS; i++) {
        const char *packed = pack_form(folder, &forms[i]);
        FshError error = {0};
        FshManifest manifest;
        assert_ok(fsh_manifest_load(&manifest, packed, &error), &error);
        const FshStatistics good = manifest.statistics;
        fsh_manifest_free(&manifest);
        expect_verify(0, "--decode", packed, ": ok");
        FshStatistics changed = good;
        changed.mean[1] += 0.001;
        save_statistics(packed, &changed);
        expect_verify(0, "-v", packed, NULL);
        expect_verify(1, "--decode", packed, "dataset.json: statistics.mean[1] is ");
        changed = good;
        changed.standard_deviation[2] -= 0.001;
        save_statistics(packed, &changed);
        expect_verify(1, "--decode", packed, "dataset.json: statistics.std[2] is ");
        changed = good;
        changed.channels = 1;
        save_statistics(packed, &changed);
        /* BasicSR's LMDBs tell channels too; every record does. */
        expect_verify(1, "--decode", packed, "dataset.json: statistics.channels is 1, but ");
        changed = good;
        changed.height_max++;
        save_statistics(packed, &changed);
        expect_verify(1, "--decode", packed, "dataset.json: statistics.width and .height: ");
        changed = good;
        memset(changed.mean, 0, sizeof changed.mean);
        memset(changed.standard_deviation, 0, sizeof changed.standard_deviation);
        save_statistics(packed, &changed);
        expect_verify(0, "--decode", packed, "has no mean and deviation");
        run_ok("fpack", "-q", "--repair-manifest", packed, NULL);
        expect_verify(0, "--decode", packed, ": ok");
    }
}

/* ---- repair ---- */

TEST_IN_FOLDER(test_a_manifest_is_made_again_to_the_byte, folder)
{
    for (size_t i = 0; i < FORMS; i++) {
        const char *packed = pack_form(folder, &forms[i]);
        const char *path = test_path(folder, "%s/dataset.json", forms[i].name);
        size_t bytes = 0;
        char *good = test_file_read(path, &bytes);
        /* One bit in each of a hundred places, of which some make it no JSON any more. */
        for (size_t at = 40; at < bytes; at += bytes / 100) {
            /* What it tells of its making is kept as it stands, and only the files of a tar or of BasicSR
             * know its names. */
            const char *provenance = strstr(good, "\n  \"provenance\": "),
                       *end = strstr(good, "\n  \"splits\": ");
            if (good + at > provenance && good + at < end)
                continue;
            test_file_flip_byte(path, (int64_t)at);
            expect_verify(1, "--quick", packed, "dataset.json: ");
            RunResult result = run_program(NULL, "fpack", "-q", "--repair-manifest", packed, NULL);
            char *again = test_file_read(path, NULL);
            json_t *before = json_loads(good, 0, NULL), *after = json_loads(again, 0, NULL);
            if (result.exit_status)
                fail_msg("%s, byte %zu: %s", forms[i].name, at, result.err);
            /* Where it was no JSON any more nothing of it is left to be kept. */
            assert_int_equal(json_object_del(before, "checksum"), 0);
            assert_int_equal(json_object_del(after, "checksum"), 0);
            if (!json_object_size(json_object_get(after, "provenance")))
                assert_int_equal(json_object_set(after, "provenance", json_object_get(before, "provenance")),
                                 0);
            /* Tars and BasicSR's LMDBs do not tell it: where it was lost there is another. */
            if (i == 2 || i > 3) {
                static const char *const ids[] = {"id", "files_id"};
                for (size_t n = 0; n < 2; n++)
                    assert_int_equal(json_object_set(after, ids[n], json_object_get(before, ids[n])), 0);
            }
            if (!json_equal(before, after))
                fail_msg("%s, byte %zu:\n%s", forms[i].name, at, again);
            json_decref(before);
            json_decref(after);
            run_result_free(&result);
            free(again);
            test_file_write(path, good, bytes);
        }
        run_ok("fpack", "-q", "--repair-manifest", packed, NULL);
        char *again = test_file_read(path, NULL);
        assert_string_equal(good, again);
        expect_verify(0, "--decode", packed, ": ok");
        free(again);
        free(good);
    }
}

TEST_IN_FOLDER(test_a_manifest_of_version_1_gets_a_checksum, folder)
{
    const char *packed = pack_form(folder, &forms[0]), *path = test_path(folder, "shards/dataset.json");
    char *good = test_file_read(path, NULL);
    json_t *manifest = packed_manifest(packed);
    assert_int_equal(json_object_set(manifest, "id", json_object_get(manifest, "files_id")), 0);
    assert_int_equal(json_object_del(manifest, "files_id"), 0);
    assert_int_equal(json_object_del(manifest, "checksum"), 0);
    assert_int_equal(json_object_set_new(manifest, "version", json_integer(1)), 0);
    assert_int_equal(json_dump_file(manifest, path, JSON_INDENT(2)), 0);
    json_decref(manifest);
    expect_verify(0, "--decode", packed, "dataset.json: is of version 1, without a checksum");
    run_ok("fpack", "-n", "--repair-manifest", packed, NULL);
    expect_verify(0, "-v", packed, "is of version 1");
    run_ok("fpack", "--repair-manifest", packed, NULL);
    char *again = test_file_read(path, NULL);
    assert_string_equal(good, again);
    free(again);
    free(good);
}

TEST_IN_FOLDER(test_no_manifest_is_made_of_what_is_not_whole, folder)
{
    const char *packed = pack_form(folder, &forms[0]), *path = test_path(folder, "shards/dataset.json");
    FshManifest manifest;
    assert_ok(fsh_manifest_load(&manifest, packed, NULL), NULL);
    const size_t count = manifest.splits[0].file_count;
    const char *shard = test_path(folder, "shards/%s", manifest.splits[0].files[1].name);
    fsh_manifest_free(&manifest);
    char says[256];
    for (int i = 0; i < 2; i++) { /* by what the manifest lists, and by what the shards say */
        assert_int_equal(unlink(i ? path : shard), 0);
        if (i)
            (void)snprintf(says, sizeof says, "split train: file 1 of %zu is missing; bring it back", count);
        else
            (void)snprintf(says, sizeof says, "%s: is missing; bring it back first", strrchr(shard, '/') + 1);
        RunResult result = run_expecting(1, "fpack", "--repair-manifest", packed, NULL);
        assert_contains(result.err, says);
        run_result_free(&result);
    }
    assert_false(file_exists(path));
    RunResult result = run_expecting(1, "fpack", "--repair-manifest", test_path(folder, "photos"), NULL);
    assert_contains(result.err, "holds no files of a dataset");
    run_result_free(&result);
    result = run_expecting(2, "fpack", "--repair-manifest", packed, packed, NULL);
    assert_contains(result.err, "takes one folder");
    run_result_free(&result);
    result = run_expecting(2, "fpack", "--repair-manifest", "--store", "raw", packed, NULL);
    assert_contains(result.err, "--store: was decided when the dataset was packed");
    run_result_free(&result);
}

/* Runs fpack --repair-manifest, which is to fail and to say this. */
static void expect_no_repair(const char *packed, const char *says)
{
    RunResult result = run_expecting(1, "fpack", "-q", "--repair-manifest", packed, NULL);
    assert_contains(result.err, says);
    run_result_free(&result);
}

/* Two programs that both write the manifest would mix it with files of another dataset. */
TEST_IN_FOLDER(test_no_manifest_is_replaced_while_fpack_writes, folder)
{
    const char *packed = pack_form(folder, &forms[0]), *mark = test_path(folder, "shards/.fpack-unfinished");
    const char *words = test_path(folder, "words");
    test_file_write_text(words, "a alpha\nb beta\n");
    test_file_write_text(mark, "");
    const int lock = open(mark, O_RDWR | O_CLOEXEC);
    assert_true(lock >= 0);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    expect_no_repair(packed, "another fpack is writing there");
    RunResult result = run_expecting(1, "fverify", "--set-class-names", words, packed, NULL);
    assert_contains(result.err, "another fpack is writing there");
    run_result_free(&result);
    (void)close(lock);
    run_ok("fverify", "-q", "--set-class-names", words, packed, NULL);
    assert_false(file_exists(mark));
    run_ok("fpack", "-q", "--repair-manifest", packed, NULL);
    assert_false(file_exists(mark));
}

/* What a stopped run has left is no dataset: its tars tell nothing of those to come. */
TEST_IN_FOLDER(test_no_manifest_is_made_of_what_is_unfinished, folder)
{
    const char *packed = pack_form(folder, &forms[2]), *mark = test_path(folder, "tar/.fpack-unfinished");
    assert_int_equal(unlink(test_path(folder, "tar/dataset.json")), 0);
    test_file_write_text(mark, "0123456789abcdef0123456789abcdef\n");
    expect_no_repair(packed, "is unfinished: fpack was stopped");
    RunResult result = run_expecting(1, "fpack", "-n", "--repair-manifest", packed, NULL);
    assert_contains(result.err, "is unfinished: fpack was stopped");
    run_result_free(&result);
    assert_true(file_exists(mark));
    assert_false(file_exists(test_path(folder, "tar/dataset.json")));
}

/* Tars do not tell how many there are; a list that is as it was written does. */
TEST_IN_FOLDER(test_a_tar_that_is_not_listed_gets_into_no_manifest, folder)
{
    const char *packed = pack_form(folder, &forms[2]);
    FshManifest manifest;
    size_t bytes = 0;
    assert_ok(fsh_manifest_load(&manifest, packed, NULL), NULL);
    const char *more = test_path(folder, "tar/train-%06zu.tar", manifest.splits[0].file_count);
    char *tar = test_file_read(test_path(folder, "tar/%s", manifest.splits[0].files[0].name), &bytes);
    fsh_manifest_free(&manifest);
    test_file_write(more, tar, bytes);
    free(tar);
    expect_no_repair(packed, "is not in the manifest's list of files");
    assert_int_equal(unlink(more), 0);
    run_ok("fpack", "-q", "--repair-manifest", packed, NULL);
    expect_verify(0, "--decode", packed, ": ok");
}

/* A recipe that is no object would make a manifest that nobody reads. */
TEST_IN_FOLDER(test_a_repaired_manifest_can_be_read, folder)
{
    const char *packed = pack_form(folder, &forms[0]), *path = test_path(folder, "shards/dataset.json");
    json_t *manifest = packed_manifest(packed);
    json_t *provenance = json_object_get(manifest, "provenance");
    assert_int_equal(json_object_set_new(provenance, "recipe", json_string("by hand")), 0);
    assert_int_equal(json_object_set_new(provenance, "note", json_string("mine")), 0);
    assert_int_equal(json_dump_file(manifest, path, JSON_INDENT(2)), 0);
    json_decref(manifest);
    run_ok("fpack", "-q", "--repair-manifest", packed, NULL);
    expect_verify(0, "--decode", packed, ": ok");
    char *again = test_file_read(path, NULL);
    assert_contains(again, "\"note\": \"mine\"");
    free(again);
}

/* ---- what lies beside it ---- */

TEST_IN_FOLDER(test_every_file_of_our_kind_that_is_not_listed_is_named, folder)
{
    static const char *const strays[] = {"train-00009-of-00010.fshard",
                                         "train-000009.tar",
                                         "train-000009.idx",
                                         "test-wids.json",
                                         "test.basicsr/",
                                         "test.lmdb/"};
    for (size_t i = 0; i < FORMS; i++) {
        const char *packed = pack_form(folder, &forms[i]);
        for (size_t s = 0; s < sizeof strays / sizeof strays[0]; s++) {
            const char *path = test_path(folder, "%s/%s", forms[i].name, strays[s]);
            const size_t length = strlen(strays[s]) - (strays[s][strlen(strays[s]) - 1] == '/');
            char says[128];
            if (strays[s][length])
                assert_ok(file_make_folders(path, NULL), NULL);
            else
                test_file_write_text(path, "");
            (void)snprintf(says, sizeof says, ": %.*s: is not in the manifest: left over", (int)length,
                           strays[s]);
            expect_verify(1, "--quick", packed, says);
            assert_int_equal(remove(path), 0);
        }
        test_file_write_text(test_path(folder, "%s/notes.txt", forms[i].name), "");
        expect_verify(0, "--decode", packed, "notes.txt: is no file of the dataset");
    }
    test_file_write_text(test_path(folder, "lmdb/train.lmdb/other.mdb"), "");
    expect_verify(1, "--quick", test_path(folder, "lmdb"), "train.lmdb: holds other.mdb, which is not of it");
    assert_ok(file_make_folders(test_path(folder, "basicsr/train.basicsr/c.lmdb"), NULL), NULL);
    expect_verify(1, "--quick", test_path(folder, "basicsr"),
                  "train.basicsr: holds c.lmdb, which is not of it");
}

TEST_IN_FOLDER(test_indexes_and_lists_of_tars_are_proved, folder)
{
    static const char *const names[] = {"train-000000.idx", "train-wids.json"};
    const char *packed = pack_form(folder, &forms[2]);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *path = test_path(folder, "tar/%s", names[i]);
        size_t bytes = 0;
        char *good = test_file_read(path, &bytes);
        for (size_t at = 0; at < bytes; at += bytes / 40) {
            test_file_flip_byte(path, (int64_t)at);
            expect_verify(1, "--quick", packed, names[i]);
            test_file_write(path, good, bytes);
        }
        for (size_t cut = 0; cut < bytes; cut += bytes / 5) {
            test_file_write(path, good, cut);
            expect_verify(1, "--quick", packed, names[i]);
        }
        assert_int_equal(unlink(path), 0);
        expect_verify(1, "--quick", packed, "missing; fpack --repair-manifest makes it again");
        run_ok("fpack", "-q", "--repair-manifest", packed, NULL);
        char *again = test_file_read(path, NULL);
        assert_string_equal(good, again);
        free(again);
        free(good);
    }
    expect_verify(0, "--decode", packed, ": ok");
}

/* A part leaves its tars with indexes; one that was damaged since does not get into the dataset. */
TEST_IN_FOLDER(test_a_damaged_index_does_not_survive_a_run_that_goes_on, folder)
{
    pack_form(folder, &forms[2]);
    const char *photos = test_path(folder, "photos"), *again = test_path(folder, "again");
    const char *index = test_path(folder, "again/train-000000.idx");
    for (int i = 0; i < 2; i++) {
        run_ok("fpack", "-q", "--format", "tar", "--shard-size", "16K", "--part", "1/1", photos, again, NULL);
        if (i == 0)
            test_file_flip_byte(index, 12);
        else
            assert_int_equal(unlink(index), 0);
        RunResult result = run_expecting(1, "fpack", "--merge", again, NULL);
        assert_contains(result.err, "the first is train-000000.tar");
        run_result_free(&result);
    }
    run_ok("fpack", "-q", "--format", "tar", "--shard-size", "16K", photos, again, NULL);
    char *difference = test_tree_difference(again, test_path(folder, "tar"));
    if (difference)
        fail_msg("%s", difference);
    expect_verify(0, "--decode", again, ": ok");
}
