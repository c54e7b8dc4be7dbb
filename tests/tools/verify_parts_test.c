/* fverify --part: the parts are disjoint and together all files; each says what is wrong in its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tools/sources.h"

enum { PARTS = 3 };

/* Packs three classes into about ten shards. */
static const char *make_dataset(TestFolder *folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "shards");
    source_class(source, "cat", 30);
    source_class(source, "dog", 20);
    source_class(source, "owl", 25);
    run_ok("fpack", "--shard-size", "16K", "--split", "0.2", source, packed, NULL);
    return packed;
}

/* Runs fverify --json --part index/PARTS with an option or NULL. Returns its one dataset; *whole_ret is to be
 * freed. */
static json_t *verify_part(int status, const char *packed, unsigned index, const char *option,
                           json_t **whole_ret)
{
    char part[32];
    (void)snprintf(part, sizeof part, "%u/%d", index, PARTS);
    RunResult result = run_expecting(status, "fverify", "--json", "--part", part, packed, option, NULL);
    *whole_ret = json_of(result.out);
    run_result_free(&result);
    return json_array_get(json_object_get(*whole_ret, "datasets"), 0);
}

/* Returns a count of all splits of what fverify said. */
static json_int_t sum(const json_t *dataset, const char *key)
{
    json_int_t total = 0;
    const char *name;
    const json_t *split;
    json_object_foreach(json_object_get(dataset, "splits"), name, split)
    {
        assert_true(json_is_integer(json_object_get(split, key)));
        total += json_integer_value(json_object_get(split, key));
    }
    return total;
}

TEST_IN_FOLDER(test_parts_are_together_all_files, folder)
{
    static const char *const options[] = {"--quick", "--decode", NULL};
    const char *packed = make_dataset(folder);
    for (size_t i = 0; i < 3; i++) {
        json_int_t samples = 0, files = 0, bytes = 0;
        for (unsigned index = 1; index <= PARTS; index++) {
            json_t *whole, *dataset = verify_part(0, packed, index, options[i], &whole);
            assert_true(sum(dataset, "samples") > 0 && sum(dataset, "samples") < 40);
            samples += sum(dataset, "samples");
            files += sum(dataset, "files");
            bytes += sum(dataset, "bytes");
            assert_int_equal(json_integer_value(json_array_get(json_object_get(dataset, "part"), 0)), index);
            json_decref(whole);
        }
        RunResult result = run_expecting(0, "fverify", "--json", packed, NULL);
        json_t *whole = json_of(result.out);
        const json_t *dataset = json_array_get(json_object_get(whole, "datasets"), 0);
        assert_int_equal(samples, 75);
        assert_int_equal(files, sum(dataset, "files"));
        assert_int_equal(bytes, sum(dataset, "bytes"));
        assert_null(json_object_get(dataset, "part"));
        json_decref(whole);
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_what_is_wrong_is_told_by_its_part_alone, folder)
{
    const char *packed = make_dataset(folder);
    char *names[64] = {NULL};
    size_t count = 0;
    FshDataset *dataset = packed_open(packed);
    const FshManifest *manifest = fsh_manifest(dataset);
    for (size_t i = 0; i < manifest->split_count; i++) {
        for (size_t f = 0; f < manifest->splits[i].file_count && count < 64; f++)
            names[count++] = strdup(manifest->splits[i].files[f].name);
    }
    fsh_close(&dataset);
    assert_true(count > 5);
    test_file_flip_byte(test_path(folder, "shards/%s", names[count - 1]), 5000);
    test_file_flip_byte(test_path(folder, "shards/%s", names[0]), 5000);
    for (unsigned index = 1; index <= PARTS; index++) {
        json_t *whole, *part = verify_part(index == 2 ? 0 : 1, packed, index, NULL, &whole);
        const json_t *problems = json_object_get(part, "problems");
        assert_int_equal(json_array_size(problems) > 0, index != 2);
        for (size_t i = 0; i < json_array_size(problems); i++)
            assert_string_equal(json_string_value(json_object_get(json_array_get(problems, i), "file")),
                                names[index == 1 ? 0 : count - 1]);
        json_decref(whole);
    }
    for (size_t i = 0; i < count; i++)
        free(names[i]);
}

TEST_IN_FOLDER(test_a_part_is_compared_with_the_source_too, folder)
{
    const char *packed = make_dataset(folder), *photos = test_path(folder, "photos");
    const char *const variables[] = {"JOB_COMPLETION_INDEX=1", NULL};
    const char *const arguments[] = {"--against", photos, "--part=auto/3", packed, NULL};
    RunResult result = run_program_arguments(&(RunOptions){.environment = variables}, "fverify", arguments);
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.out, "part 2/3: checksums of files and records");
    assert_contains(result.out, " compared with their sources");
    assert_null(strstr(result.out, "that are in no record"));
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_part_of_what_has_no_files_of_its_own_is_refused, folder)
{
    const char *packed = make_dataset(folder), *page = test_path(folder, "page.html");
    RunResult result = run_expecting(2, "fverify", "--part", "1/3", "--html", page, packed, NULL);
    assert_contains(result.err, "--part");
    run_result_free(&result);
    result = run_expecting(2, "fverify", "--part", "1/3", "--list", packed, NULL);
    assert_contains(result.err, "--list proves nothing");
    run_result_free(&result);
    result = run_expecting(2, "fverify", "--part", "4/3", packed, NULL);
    assert_contains(result.err, "--part: '4/3' is no part");
    run_result_free(&result);
    result = run_expecting(1, "fverify", "--part", "1/3", test_path(folder, "photos"), NULL);
    assert_contains(result.err, "is no dataset with a dataset.json");
    run_result_free(&result);
    test_file_write_text(test_path(folder, "shards/dataset.json"), "{");
    result = run_expecting(1, "fverify", "--part", "1/3", packed, NULL);
    assert_contains(result.err, "dataset.json");
    run_result_free(&result);
}
