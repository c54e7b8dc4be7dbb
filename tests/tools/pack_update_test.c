/* fpack --update and --append: what they make of a dataset holds what a packing from nothing would hold. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "tests/tools/sources.h"

enum { ARGUMENTS_MAX = 24 };

/* ---- comparing ---- */

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Returns a line for each sample: its split, key, class, and of each field source, codec and a hash of its
 * bytes, unpacked; sorted. The caller frees the lines and the array. */
static char **list_samples(const char *path, size_t *count_ret)
{
    FshDataset *dataset = packed_open(path);
    const FshManifest *manifest = fsh_manifest(dataset);
    FshUnpacker *unpacker = NULL;
    FshError error = {0};
    assert_ok(fsh_unpacker_new(&unpacker, &error), &error);
    size_t count = 0;
    for (size_t s = 0; s < manifest->split_count; s++)
        count += manifest->splits[s].sample_count;
    char **lines = calloc(count + 1, sizeof *lines);
    *count_ret = 0;
    for (size_t s = 0; s < manifest->split_count; s++) {
        const FshSplit *split = fsh_split(dataset, manifest->splits[s].name);
        for (uint64_t i = 0; i < split->sample_count; i++) {
            FshSample sample;
            char line[4096];
            assert_ok(fsh_sample_get(split, i, &sample, &error), &error);
            assert_ok(fsh_sample_verify(split, i, &error), &error);
            assert_int_equal(sample.label, fsh_sample_label(split, i));
            int length = snprintf(line, sizeof line, "%s %.*s %s", split->info->name, (int)sample.key_bytes,
                                  sample.key, sample.label < 0 ? "-" : manifest->class_names[sample.label]);
            for (unsigned f = 0; f < sample.field_count; f++) {
                const void *data = NULL;
                size_t bytes = 0;
                uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
                assert_ok(fsh_field_unpack(unpacker, split, &sample.fields[f], &data, &bytes, &error),
                          &error);
                for (size_t at = 0; at < bytes; at++)
                    hash = (hash ^ ((const uint8_t *)data)[at]) * UINT64_C(0x100000001b3);
                length += snprintf(line + length, sizeof line - (size_t)length, " %.*s %d %zu %016llx",
                                   (int)sample.fields[f].source_bytes, sample.fields[f].source,
                                   (int)sample.fields[f].codec, bytes, (unsigned long long)hash);
            }
            lines[(*count_ret)++] = strdup(line);
        }
    }
    qsort(lines, count, sizeof *lines, compare_lines);
    fsh_unpacker_free(&unpacker);
    fsh_close(&dataset);
    return lines;
}

static void assert_same_member(const char *a_path, const char *b_path, const char *name)
{
    json_t *a = packed_manifest(a_path), *b = packed_manifest(b_path);
    if (!json_equal(json_object_get(a, name), json_object_get(b, name)))
        fail_msg("\"%s\" of %s and %s differ:\n%s\n%s", name, a_path, b_path,
                 json_dumps(json_object_get(a, name), JSON_ENCODE_ANY),
                 json_dumps(json_object_get(b, name), JSON_ENCODE_ANY));
    json_decref(a);
    json_decref(b);
}

/* Asserts that two datasets hold the same samples, classes and statistics, whatever their shards. */
static void assert_same_samples(const char *a, const char *b)
{
    size_t a_count = 0, b_count = 0;
    char **a_lines = list_samples(a, &a_count), **b_lines = list_samples(b, &b_count);
    for (size_t i = 0; i < a_count || i < b_count; i++) {
        if (i >= a_count || i >= b_count || strcmp(a_lines[i], b_lines[i]) != 0)
            fail_msg("%s and %s differ:\n%s\n%s", a, b, i < a_count ? a_lines[i] : "(none)",
                     i < b_count ? b_lines[i] : "(none)");
    }
    for (size_t i = 0; i < a_count; i++) {
        free(a_lines[i]);
        free(b_lines[i]);
    }
    free(a_lines);
    free(b_lines);
    assert_same_member(a, b, "classes");
    assert_same_member(a, b, "statistics");
    json_t *splits[2] = {packed_manifest(a), packed_manifest(b)};
    for (size_t i = 0; i < json_array_size(json_object_get(splits[0], "splits")); i++) {
        const json_t *one = json_array_get(json_object_get(splits[0], "splits"), i);
        const json_t *other = json_array_get(json_object_get(splits[1], "splits"), i);
        assert_true(json_equal(json_object_get(one, "class_counts"), json_object_get(other, "class_counts")));
    }
    json_decref(splits[0]);
    json_decref(splits[1]);
}

/* ---- running ---- */

/* Runs fpack with options, one mode option (NULL: none), and two paths. */
static RunResult pack(int exit_status, const char *const *options, const char *mode, const char *source,
                      const char *destination)
{
    const char *arguments[ARGUMENTS_MAX];
    size_t count = 0;
    for (; options && options[count]; count++)
        arguments[count] = options[count];
    if (mode)
        arguments[count++] = mode;
    arguments[count++] = source;
    arguments[count++] = destination;
    arguments[count] = NULL;
    RunResult result = run_program_arguments(NULL, "fpack", arguments);
    if (result.exit_status != exit_status)
        fail_msg("fpack %s: exit status %d, not %d\n%s", mode ? mode : "", result.exit_status, exit_status,
                 result.err);
    return result;
}

#define pack_ok(...) run_forget(pack(0, __VA_ARGS__))

/* Asserts that an update fails so, and that it leaves every byte of the dataset as it was. */
static void assert_refused(TestFolder *folder, const char *const *options, const char *mode,
                           const char *source, const char *packed, int exit_status, const char *reason)
{
    const char *before = test_path(folder, "before");
    if (file_exists(packed))
        run_ok("/bin/cp", "-a", packed, before, NULL);
    RunResult result = pack(exit_status, options, mode, source, packed);
    assert_contains(result.err, reason);
    run_result_free(&result);
    if (file_exists(packed)) {
        char *difference = test_tree_difference(packed, before);
        if (difference)
            fail_msg("%s", difference);
        run_ok("/bin/rm", "-r", before, NULL);
    }
}

static json_int_t count_of(const RunResult *result, const char *name)
{
    json_t *object = json_of(result->out);
    const json_t *value = json_object_get(json_object_get(object, "update"), name);
    assert_true(json_is_integer(value));
    const json_int_t count = json_integer_value(value);
    json_decref(object);
    return count;
}

static void remove_file(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

/* Gives a file another time. */
static void touch(const char *path, long seconds)
{
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* ---- the same samples ---- */

static void make_classes(const char *source)
{
    source_class(source, "ant", 30);
    source_class(source, "cat", 25);
    source_class(source, "dog", 20);
    source_class(source, "owl", 15);
}

/* Changes the folder: round 0 takes, gives and changes a few; round 1 has a new class before others; round 2
 * loses one, and most of another. */
static void edit_classes(TestFolder *folder, const char *name, unsigned round)
{
    if (round == 0) {
        remove_file(test_path(folder, "%s/ant/3.jpg", name));
        remove_file(test_path(folder, "%s/dog/7.jpg", name));
        source_jpeg(test_path(folder, "%s/ant/90.jpg", name), 41, 33, 3, 901);
        source_jpeg(test_path(folder, "%s/cat/2.jpg", name), 52, 33, 3, 902);
        source_jpeg(test_path(folder, "%s/owl/4.jpg", name), 40, 37, 1, 903);
    } else if (round == 1) {
        source_class(test_path(folder, "%s", name), "bee", 5);
        remove_file(test_path(folder, "%s/ant/90.jpg", name));
    } else {
        run_ok("/bin/rm", "-r", test_path(folder, "%s/cat", name), NULL);
        for (unsigned i = 8; i < 20; i++)
            if (i != 7)
                remove_file(test_path(folder, "%s/dog/%u.jpg", name, i));
        assert_int_equal(
            rename(test_path(folder, "%s/owl/5.jpg", name), test_path(folder, "%s/bee/moved.jpg", name)), 0);
    }
}

TEST_IN_FOLDER(test_an_update_holds_what_a_packing_from_nothing_would_hold, folder)
{
    const struct {
        const char *name;
        const char *options[12];
    } cases[] = {
        {"copy", {"--shard-size", "16K"}},
        {"small", {"--shard-size", "8K", "--max-size", "20", "--quality", "80"}},
        {"jpeg", {"--store", "jpeg", "--quality", "70"}},
        {"raw", {"--shard-size", "32K", "--store", "raw"}},
        {"zstd", {"--shard-size", "16K", "--store", "zstd", "--dictionary", "--dictionary-size", "2K"}},
        {"auto", {"--shard-size", "32K", "--store", "auto", "--raw-under", "4100"}},
        {"split", {"--shard-size", "16K", "--split", "0.2", "--seed", "5", "--shuffle", "3"}},
        {"limit", {"--limit", "40", "--dedupe"}},
        {"unchecked", {"--shard-size", "16K", "--no-check"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *source = test_path(folder, "%s", cases[i].name);
        const char *packed = test_path(folder, "%s-packed", cases[i].name);
        make_classes(source);
        pack_ok(cases[i].options, NULL, source, packed);
        for (unsigned round = 0; round < 3; round++) {
            const char *anew = test_path(folder, "%s-anew-%u", cases[i].name, round);
            edit_classes(folder, cases[i].name, round);
            pack_ok(cases[i].options, "--update", source, packed);
            pack_ok(cases[i].options, NULL, source, anew);
            assert_same_samples(packed, anew);
            run_ok("fverify", "--decode", packed, NULL);
        }
        json_t *manifest = packed_manifest(packed);
        assert_int_equal(json_integer_value(json_object_get(manifest, "version")), 3);
        assert_int_equal(json_integer_value(json_object_get(manifest, "updates")), 3);
        json_decref(manifest);
    }
    run_ok("fverify", "--decode", "--against", test_path(folder, "copy"), test_path(folder, "copy-packed"),
           NULL);
}

TEST_IN_FOLDER(test_an_update_of_pairs_holds_what_a_packing_from_nothing_would_hold, folder)
{
    const char *const options[] = {"--pairs", "blur:sharp", "--shard-size", "16K", NULL};
    const char *source = test_path(folder, "pairs"), *packed = test_path(folder, "packed");
    for (unsigned i = 0; i < 30; i++) {
        source_jpeg(test_path(folder, "pairs/blur/%02u.jpg", i), 40, 30, 3, i);
        source_jpeg(test_path(folder, "pairs/sharp/%02u.jpg", i), 40, 30, 3, 100 + i);
    }
    pack_ok(options, NULL, source, packed);
    source_jpeg(test_path(folder, "pairs/sharp/05.jpg"), 40, 30, 3, 500); /* one side of it */
    remove_file(test_path(folder, "pairs/blur/09.jpg"));
    remove_file(test_path(folder, "pairs/sharp/09.jpg"));
    source_jpeg(test_path(folder, "pairs/blur/70.jpg"), 44, 30, 3, 70);
    source_jpeg(test_path(folder, "pairs/sharp/70.jpg"), 44, 30, 3, 170);
    pack_ok(options, "--update", source, packed);
    pack_ok(options, NULL, source, test_path(folder, "anew"));
    assert_same_samples(packed, test_path(folder, "anew"));
    run_ok("fverify", "--decode", "--against", source, packed, NULL);
    assert_refused(folder, NULL, "--update", source, packed, 1, "--pairs");
}

TEST_IN_FOLDER(test_a_dataset_of_parts_is_updated_like_any_other, folder)
{
    const char *const options[] = {"--shard-size", "16K", NULL};
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    make_classes(source);
    run_ok("fpack", "--shard-size", "16K", "--part", "1/2", source, test_path(folder, "one"), NULL);
    run_ok("fpack", "--shard-size", "16K", "--part", "2/2", source, test_path(folder, "two"), NULL);
    run_ok("fpack", "--merge", packed, test_path(folder, "one"), test_path(folder, "two"), NULL);
    edit_classes(folder, "photos", 0);
    pack_ok(options, "--update", source, packed);
    pack_ok(options, NULL, source, test_path(folder, "anew"));
    assert_same_samples(packed, test_path(folder, "anew"));
}

/* ---- what has changed ---- */

TEST_IN_FOLDER(test_an_update_of_what_is_the_same_changes_no_byte, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    make_classes(source);
    pack_ok(NULL, NULL, source, packed);
    run_ok("/bin/cp", "-a", packed, test_path(folder, "before"), NULL);
    RunResult result = pack(0, NULL, "--update", source, packed);
    assert_contains(result.err, "90 as they were; nothing to do");
    run_result_free(&result);
    assert_null(test_tree_difference(packed, test_path(folder, "before")));
    /* Nor does one whose folder was moved. */
    assert_int_equal(rename(source, test_path(folder, "elsewhere")), 0);
    pack_ok(NULL, "--update", test_path(folder, "elsewhere"), packed);
    assert_null(test_tree_difference(packed, test_path(folder, "before")));
}

TEST_IN_FOLDER(test_changed_files_are_told_by_time_and_with_checksum_by_bytes, folder)
{
    const char *const by_content[] = {"--checksum", "--json", NULL}, *const json[] = {"--json", NULL};
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    const char *file = test_path(folder, "photos/ant/1.jpg");
    size_t length = 0;
    make_classes(source);
    touch(file, 1000000000);
    pack_ok(NULL, NULL, source, packed);
    touch(test_path(folder, "photos/ant/2.jpg"), 1000000001);
    RunResult result = pack(0, by_content, "--update", source, packed);
    assert_int_equal(count_of(&result, "changed"), 0);
    run_result_free(&result);
    result = pack(0, json, "--update", source, packed);
    assert_int_equal(count_of(&result, "changed"), 1);
    assert_int_equal(count_of(&result, "dead_records"), 1);
    run_result_free(&result);
    /* Other bytes, as many, at the same time: a byte of a comment, after the last marker. */
    char *bytes = test_file_read(file, &length);
    bytes[length / 2] ^= 1;
    test_file_write(file, bytes, length);
    free(bytes);
    touch(file, 1000000000);
    result = pack(0, json, "--update", source, packed);
    assert_int_equal(count_of(&result, "changed"), 0);
    run_result_free(&result);
    result = pack(0, by_content, "--update", source, packed);
    assert_int_equal(count_of(&result, "changed"), 1);
    assert_int_equal(count_of(&result, "unchanged"), 89);
    run_result_free(&result);
    run_ok("fverify", "--against", source, packed, NULL);
}

TEST_IN_FOLDER(test_what_is_damaged_is_told_by_every_update_and_packed_once_it_is_mended, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    make_classes(source);
    pack_ok(NULL, NULL, source, packed);
    test_file_truncate(test_path(folder, "photos/cat/7.jpg"), -300);
    for (int again = 0; again < 2; again++) {
        RunResult result = pack(1, NULL, "--update", source, packed);
        assert_contains(result.err, "cat/7.jpg");
        assert_contains(result.err, "89 samples");
        run_result_free(&result);
    }
    source_jpeg(test_path(folder, "photos/cat/7.jpg"), 40, 30, 3, 77);
    pack_ok(NULL, "--update", source, packed);
    pack_ok(NULL, NULL, source, test_path(folder, "anew"));
    assert_same_samples(packed, test_path(folder, "anew"));
}

TEST_IN_FOLDER(test_a_file_that_is_still_damaged_changes_no_byte, folder)
{
    const char *const dry[] = {"--dry-run", NULL};
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    make_classes(source);
    test_file_write(test_path(folder, "photos/ant/bad.jpg"), "x\n", 2);
    run_forget(pack(1, NULL, NULL, source, packed));
    run_ok("/bin/cp", "-a", packed, test_path(folder, "first"), NULL);
    for (int again = 0; again < 2; again++) {
        RunResult result = pack(1, NULL, "--update", source, packed);
        assert_contains(result.err, "ant/bad.jpg");
        assert_contains(result.err, "0 new, 0 changed, 0 vanished, 90 as they were; nothing to do");
        run_result_free(&result);
        assert_null(test_tree_difference(packed, test_path(folder, "first")));
    }
    /* A second one, whose shard has no other sample, adds no shard beside what else is to be done. */
    test_file_truncate(test_path(folder, "photos/cat/7.jpg"), -300);
    run_forget(pack(1, NULL, "--update", source, packed));
    assert_int_equal(test_count_files(packed), 3); /* manifest, a shard, its sources */
    run_ok("fverify", "--decode", packed, NULL);
    /* Where nothing is left, the dataset stays. */
    const char *lost = test_path(folder, "lost"), *one = test_path(folder, "one");
    source_class(lost, "ant", 1);
    source_class(lost, "bee", 1);
    pack_ok(NULL, NULL, lost, one);
    test_file_write(test_path(folder, "lost/ant/0.jpg"), "x\n", 2);
    test_file_write(test_path(folder, "lost/bee/0.jpg"), "x\n", 2);
    assert_refused(folder, NULL, "--update", lost, one, 1, "none of its samples (2) can be packed");
    pack_ok(dry, "--update", lost, one);
}

TEST_IN_FOLDER(test_a_shard_that_has_lost_much_is_packed_again, folder)
{
    const char *const json[] = {"--json", NULL};
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    source_class(source, "ant", 20);
    source_class(source, "bee", 20);
    pack_ok(NULL, NULL, source, packed);
    for (unsigned i = 0; i < 10; i++) /* a quarter of its one shard: not yet */
        remove_file(test_path(folder, "photos/ant/%u.jpg", i));
    RunResult result = pack(0, json, "--update", source, packed);
    assert_int_equal(count_of(&result, "dead_records"), 10);
    assert_int_equal(count_of(&result, "new_files"), 0);
    run_result_free(&result);
    remove_file(test_path(folder, "photos/bee/3.jpg"));
    result = pack(0, json, "--update", source, packed);
    assert_int_equal(count_of(&result, "dead_records"), 0);
    assert_int_equal(count_of(&result, "packed_again"), 29);
    assert_int_equal(count_of(&result, "removed_files"), 1);
    run_result_free(&result);
    assert_false(file_exists(test_path(folder, "packed/train-00000-of-00001.fshard")));
    pack_ok(NULL, NULL, source, test_path(folder, "anew"));
    assert_same_samples(packed, test_path(folder, "anew"));
}

TEST_IN_FOLDER(test_a_dry_run_counts_and_writes_nothing, folder)
{
    const char *const dry[] = {"--json", "--dry-run", NULL};
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    make_classes(source);
    pack_ok(NULL, NULL, source, packed);
    edit_classes(folder, "photos", 0);
    run_ok("/bin/cp", "-a", packed, test_path(folder, "before"), NULL);
    RunResult result = pack(0, dry, "--update", source, packed);
    assert_int_equal(count_of(&result, "new"), 1);
    assert_int_equal(count_of(&result, "changed"), 2);
    assert_int_equal(count_of(&result, "vanished"), 2);
    json_t *object = json_of(result.out);
    assert_int_equal(json_integer_value(json_object_get(object, "samples")), 89);
    json_decref(object);
    run_result_free(&result);
    assert_null(test_tree_difference(packed, test_path(folder, "before")));
}

/* ---- readers ---- */

static void read_all(const FshSplit *split)
{
    for (uint64_t i = 0; i < split->sample_count; i++) {
        FshError error = {0};
        assert_ok(fsh_sample_verify(split, i, &error), &error);
    }
}

/* Records keep their numbers where those before them are dead space. */
TEST_IN_FOLDER(test_a_damaged_record_is_told_by_its_number_in_the_shard, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed"),
               *shard = test_path(folder, "packed/train-00000-of-00001.fshard");
    FshError error = {0};
    size_t length = 0;
    source_class(source, "ant", 10);
    source_class(source, "bee", 10);
    pack_ok(NULL, NULL, source, packed);
    remove_file(test_path(folder, "photos/ant/0.jpg"));
    pack_ok(NULL, "--update", source, packed);
    FshDataset *dataset = packed_open(packed);
    const FshSplit *split = fsh_split(dataset, "train");
    FshSample sample;
    assert_int_equal(split->sample_count, 19);
    assert_ok(fsh_sample_get(split, 18, &sample, &error), &error);
    char *bytes = test_file_read(shard, &length);
    char *payload = memmem(bytes, length, sample.fields[0].data, sample.fields[0].bytes);
    assert_non_null(payload);
    const uint8_t flipped = (uint8_t) ~*payload;
    const int file = open(shard, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(file, &flipped, 1, payload - bytes), 1);
    (void)close(file);
    assert_int_equal(fsh_sample_verify(split, 18, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "train-00000-of-00001.fshard record 19 at byte ");
    free(bytes);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_old_shards_stay_until_nobody_reads_them, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    const char *old = test_path(folder, "packed/train-00000-of-00001.fshard");
    FshDataset *reader = NULL, *other = NULL;
    FshError error = {0};
    make_classes(source);
    pack_ok(NULL, NULL, source, packed);
    assert_ok(fsh_open(&reader, packed, &error), &error);
    run_ok("/bin/rm", "-r", test_path(folder, "photos/ant"), NULL);
    RunResult result = pack(0, NULL, "--update", source, packed);
    assert_contains(result.err, "1 old shard stays for who reads the dataset as it was");
    run_result_free(&result);
    assert_true(file_exists(old));
    run_ok("fverify", packed, NULL);
    read_all(fsh_split(reader, "train"));
    assert_int_equal(fsh_split(reader, "train")->sample_count, 90);
    /* Who opens it now reads the new one, and holds no old shard. */
    assert_ok(fsh_open(&other, packed, &error), &error);
    assert_int_equal(fsh_split(other, "train")->sample_count, 60);
    pack_ok(NULL, "--update", source, packed);
    assert_true(file_exists(old));
    fsh_close(&reader);
    pack_ok(NULL, "--update", source, packed);
    assert_false(file_exists(old));
    read_all(fsh_split(other, "train"));
    fsh_close(&other);
    assert_int_equal(test_count_files(packed), 3); /* manifest, a shard, its sources */
}

/* ---- another folder ---- */

TEST_IN_FOLDER(test_append_adds_the_samples_of_another_folder, folder)
{
    const char *source = test_path(folder, "photos"), *more = test_path(folder, "more");
    const char *both = test_path(folder, "both"), *packed = test_path(folder, "packed");
    make_classes(source);
    pack_ok(NULL, NULL, source, packed);
    source_class(more, "bee", 12);
    source_jpeg(test_path(folder, "more/ant/new.jpg"), 40, 30, 3, 5);
    pack_ok(NULL, "--append", more, packed);
    run_ok("/bin/cp", "-a", source, both, NULL);
    run_ok("/bin/cp", "-a", test_path(folder, "more/bee"), both, NULL);
    run_ok("/bin/cp", "-a", test_path(folder, "more/ant/new.jpg"), test_path(folder, "both/ant"), NULL);
    pack_ok(NULL, NULL, both, test_path(folder, "anew"));
    assert_same_samples(packed, test_path(folder, "anew"));
    assert_refused(folder, NULL, "--append", more, packed, 1, "13 of its samples have keys that");
    /* Each folder is followed by itself. */
    remove_file(test_path(folder, "more/bee/3.jpg"));
    remove_file(test_path(folder, "both/bee/3.jpg"));
    pack_ok(NULL, "--update", more, packed);
    remove_file(test_path(folder, "photos/cat/3.jpg"));
    remove_file(test_path(folder, "both/cat/3.jpg"));
    pack_ok(NULL, "--update", source, packed);
    pack_ok(NULL, NULL, both, test_path(folder, "again"));
    assert_same_samples(packed, test_path(folder, "again"));
    assert_refused(folder, NULL, "--update", both, packed, 1, "holds samples of several folders");
}

TEST_IN_FOLDER(test_append_speaks_of_the_dataset_that_it_adds_to, folder)
{
    const char *const split[] = {"--split", "0.2", NULL};
    const char *more = test_path(folder, "more"), *packed = test_path(folder, "packed");
    make_classes(test_path(folder, "photos"));
    pack_ok(split, NULL, test_path(folder, "photos"), packed);
    run_ok("/bin/cp", "-a", packed, test_path(folder, "other"), NULL);
    source_class(more, "zebra", 10);
    RunResult result = pack(0, NULL, "--append", more, packed);
    assert_null(strstr(result.err, "the only class")); /* of five */
    assert_contains(result.err, "none of its samples goes to val");
    assert_contains(result.err, "was packed with --split 0.2");
    run_result_free(&result);
    result = pack(0, split, "--append", more, test_path(folder, "other"));
    assert_null(strstr(result.err, "warning"));
    run_result_free(&result);
    assert_int_equal(packed_count(test_path(folder, "other"), "val"), packed_count(packed, "val") + 2);
}

/* ---- refusals ---- */

TEST_IN_FOLDER(test_what_cannot_be_updated_is_refused_and_left_as_it_was, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    const char *const raw[] = {"--store", "raw", NULL}, *const small[] = {"--max-size", "20", NULL};
    const char *const part[] = {"--part", "1/2", NULL}, *const force[] = {"--force", NULL};
    const char *const lmdb[] = {"--format", "lmdb", NULL}, *const append[] = {"--append", NULL};
    const char *const checksum[] = {"--checksum", NULL};
    make_classes(source);
    assert_refused(folder, NULL, "--update", source, packed, 1, "holds no dataset that could be updated");
    pack_ok(NULL, NULL, source, packed);
    assert_refused(folder, raw, "--update", source, packed, 1, "--store: ");
    assert_refused(folder, small, "--update", source, packed, 1, "--max-size: ");
    assert_refused(folder, lmdb, "--update", source, packed, 1, "--format: ");
    assert_refused(folder, part, "--update", source, packed, 2, "--part");
    assert_refused(folder, force, "--update", source, packed, 2, "--force");
    assert_refused(folder, append, "--update", source, packed, 2, "one at a time");
    assert_refused(folder, NULL, "--checksum", source, packed, 2, "give --update too");
    assert_refused(folder, checksum, "--append", source, packed, 2, "give --update too");
    source_class(test_path(folder, "others"), "yak", 5);
    assert_refused(folder, NULL, "--update", test_path(folder, "others"), packed, 1,
                   "is it the folder that was packed?");
    pack_ok(lmdb, NULL, source, test_path(folder, "lmdb"));
    assert_refused(folder, lmdb, "--update", source, test_path(folder, "lmdb"), 1,
                   "fpack updates datasets of shards");
    /* A dataset of an earlier version has no sources; damaged ones are told. */
    const char *sources = test_path(folder, "packed/.train-00000-of-00001.fshard.sources");
    test_file_truncate(sources, -1);
    RunResult result = run_expecting(1, "fverify", packed, NULL);
    assert_contains(result.out,
                    ".train-00000-of-00001.fshard.sources: its XXH3-128 is not the one at its end");
    run_result_free(&result);
    assert_refused(folder, NULL, "--update", source, packed, 1, "bytes were changed");
    remove_file(sources);
    assert_refused(folder, NULL, "--update", source, packed, 1,
                   "as datasets of earlier versions of fpack do not");
}

TEST_IN_FOLDER(test_a_finished_dataset_is_refused_with_both_ways_out, folder)
{
    const char *const lmdb[] = {"--format", "lmdb", NULL};
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    make_classes(source);
    pack_ok(NULL, NULL, source, packed);
    assert_refused(folder, NULL, NULL, source, packed, 1,
                   "fpack --update packs what has changed in its source, --force replaces it");
    pack_ok(lmdb, NULL, source, test_path(folder, "lmdb")); /* which cannot be updated */
    assert_refused(folder, lmdb, NULL, source, test_path(folder, "lmdb"), 1,
                   "holds a finished dataset; --force replaces it");
}

TEST_IN_FOLDER(test_an_option_that_is_missing_is_named_as_it_is_given, folder)
{
    const char *const split[] = {"--split", "0.2", NULL}, *const split_more[] = {"--split", "0.3", NULL};
    const char *const chosen[] = {"--split", "0.2", "--seed", "3", NULL};
    const char *const dedupe[] = {"--dedupe", NULL}, *const unchecked[] = {"--no-check", NULL};
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed"),
               *once = test_path(folder, "once");
    make_classes(source);
    pack_ok(split, NULL, source, packed);
    assert_refused(folder, NULL, "--update", source, packed, 1,
                   "packed with --split 0.2, which is missing here");
    assert_refused(folder, split_more, "--update", source, packed, 1, "--split: ");
    assert_refused(folder, split_more, "--update", source, packed, 1,
                   "packed with 0.2, and this run says 0.3");
    assert_refused(folder, chosen, "--update", source, packed, 1, "packed with 0, and this run says 3");
    pack_ok(dedupe, NULL, source, once);
    assert_refused(folder, NULL, "--update", source, once, 1, "packed with --dedupe, which is missing here");
    run_ok("/bin/rm", "-r", once, NULL);
    pack_ok(NULL, NULL, source, once);
    assert_refused(folder, split, "--update", source, once, 1, "--split: ");
    assert_refused(folder, split, "--update", source, once, 1, "was packed without it; leave it out");
    assert_refused(folder, unchecked, "--update", source, once, 1,
                   "packed with true, and this run says false");
}

TEST_IN_FOLDER(test_the_manifest_of_an_updated_dataset_cannot_be_made_again, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    make_classes(source);
    pack_ok(NULL, NULL, source, packed);
    edit_classes(folder, "photos", 0);
    pack_ok(NULL, "--update", source, packed);
    for (int lost = 0; lost < 2; lost++) {
        RunResult result = run_expecting(1, "fpack", "--repair-manifest", packed, NULL);
        assert_contains(result.err, "was changed by fpack --update");
        run_result_free(&result);
        if (!lost)
            remove_file(test_path(folder, "packed/dataset.json"));
    }
}
