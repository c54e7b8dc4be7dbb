#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "common/progress.h"
#include "common/file.h"
#include "formats/manifest.h"
#include "formats/names.h"
#include "tests/formats/samples.h"

static const DatasetPlan plan = {.train_count = 10, .val_count = 4, .shard_count = 2};

TEST_IN_FOLDER(test_what_is_saved_is_loaded, folder)
{
    FshError error = {0};
    FshManifest manifest;
    samples_write_dataset(&plan, folder->path);
    assert_ok(fsh_manifest_load(&manifest, folder->path, &error), &error);
    assert_string_equal(manifest.files_id, SAMPLES_ID);
    assert_true(fsh_id_valid(manifest.id));
    assert_string_not_equal(manifest.id, SAMPLES_ID); /* which says nothing of what the files hold */
    assert_int_equal(manifest.container, FSH_CONTAINER_SHARDS);
    assert_int_equal(manifest.kind, FSH_KIND_CLASSES);
    assert_int_equal(manifest.field_count, 1);
    assert_string_equal(manifest.field_names[0], "image");
    assert_int_equal(manifest.class_count, SAMPLES_CLASS_COUNT);
    assert_string_equal(manifest.class_names[2], "däwg");
    assert_int_equal(manifest.split_count, 2);
    const FshSplitInfo *train = &manifest.splits[0];
    assert_string_equal(train->name, "train");
    assert_int_equal(train->sample_count, 10);
    assert_int_equal(train->class_counts[0], 3); /* 0, 3, 9: sample 6 has no label */
    assert_int_equal(train->file_count, 2);
    assert_string_equal(train->files[1].name, "train-00001-of-00002.fshard");
    assert_int_equal(train->files[1].sample_count, 5);
    assert_int_equal(train->files[1].bytes, test_file_size(test_path(folder, "train-00001-of-00002.fshard")));
    assert_int_equal(manifest.statistics.channels, 3);
    assert_int_equal(manifest.statistics.width_max, 20);
    assert_int_equal(manifest.statistics.height_max, 8);
    assert_true(fabs(manifest.statistics.mean[2] - 0.406) < 1e-9);
    assert_true(fabs(manifest.statistics.standard_deviation[0] - 0.229) < 1e-9);
    assert_contains(manifest.provenance_json, "samples");

    /* Saving what was loaded gives the same bytes; the file itself loads as its folder does. */
    char *before = test_file_read(test_path(folder, "dataset.json"), NULL);
    assert_int_equal(fsh_manifest_save(&manifest, folder->path, false, &error), FSH_ERR_EXISTS);
    assert_ok(fsh_manifest_save(&manifest, folder->path, true, &error), &error);
    char *after = test_file_read(test_path(folder, "dataset.json"), NULL);
    assert_string_equal(before, after);
    assert_contains(after, "0.485,\n");
    fsh_manifest_free(&manifest);
    fsh_manifest_free(&manifest);
    assert_ok(fsh_manifest_load(&manifest, test_path(folder, "dataset.json"), &error), &error);
    fsh_manifest_free(&manifest);
    free(before);
    free(after);
}

TEST_IN_FOLDER(test_the_hash_is_that_of_the_footer, folder)
{
    FshError error = {0};
    FshManifest manifest;
    samples_write_dataset(&plan, folder->path);
    assert_ok(fsh_manifest_load(&manifest, folder->path, &error), &error);
    size_t bytes = 0;
    char *shard = test_file_read(test_path(folder, "val-00000-of-00001.fshard"), &bytes);
    assert_memory_equal(manifest.splits[1].files[0].hash.bytes, shard + bytes - 128 + 64, 16);
    free(shard);
    fsh_manifest_free(&manifest);
}

/* ---- hostile manifests ---- */

/* One change of a good manifest: the member at `path` ("splits/0/files/1/name") becomes the JSON `value`;
 * NULL removes it. */
typedef struct Change {
    const char *path, *value;
    FshStatus status;
    const char *message;
} Change;

static const Change changes[] = {
    {"format", "\"fshardx\"", FSH_ERR_UNSUPPORTED, "fshardx"},
    {"format", NULL, FSH_ERR_CORRUPT, "\"format\" is missing"},
    {"version", "4", FSH_ERR_UNSUPPORTED, "version 4 of the format; this program knows 1 to 3"},
    {"version", "\"1\"", FSH_ERR_CORRUPT, "version"},
    {"version", "1.0", FSH_ERR_CORRUPT, "version"},
    {"id", "\"x\"", FSH_ERR_CORRUPT, "hexadecimal"},
    {"id", "7", FSH_ERR_CORRUPT, "id"},
    {"container", "\"zip\"", FSH_ERR_UNSUPPORTED, "zip"},
    {"container", "\"lmdb\"", FSH_ERR_CORRUPT, "files in a dataset of lmdb"},
    {"kind", "\"boxes\"", FSH_ERR_UNSUPPORTED, "boxes"},
    {"kind", "\"pairs\"", FSH_ERR_CORRUPT, "pairs"},
    {"fields", "[]", FSH_ERR_CORRUPT, "field"},
    {"fields", "\"image\"", FSH_ERR_CORRUPT, "not a list"},
    {"fields", "[1]", FSH_ERR_CORRUPT, "not a string"},
    {"fields", "[\"\"]", FSH_ERR_CORRUPT, "empty"},
    {"classes", "[\"a\", \"b\", \"a\"]", FSH_ERR_CORRUPT, "\"a\" is there twice"},
    {"classes", "[\"a\", \"b\"]", FSH_ERR_CORRUPT, "3 entries for 2 classes"},
    {"classes", "{}", FSH_ERR_CORRUPT, "not a list"},
    {"class_display_names", "[\"a\"]", FSH_ERR_CORRUPT,
     "\"class_display_names\" has 1 entries for 3 classes"},
    {"class_display_names", "[\"a\", \"\", 3]", FSH_ERR_CORRUPT,
     "\"class_display_names\": entry 2 is no text"},
    {"class_display_names", "{}", FSH_ERR_CORRUPT, "not a list"},
    {"mask_class_names", "[\"a\"]", FSH_ERR_CORRUPT, "1 names of mask classes: of masks, at most 255"},
    {"mask_class_names", "[\"a\", \"a\"]", FSH_ERR_CORRUPT, "\"a\" is there twice"},
    {"splits", "[]", FSH_ERR_CORRUPT, "no splits"},
    {"splits", "null", FSH_ERR_CORRUPT, "splits"},
    {"splits/0", "3", FSH_ERR_CORRUPT, "splits[0]"},
    {"splits/0/name", "\"../train\"", FSH_ERR_CORRUPT, "../train"},
    {"splits/0/name", "\"val\"", FSH_ERR_CORRUPT, "listed twice"},
    {"splits/0/samples", "11", FSH_ERR_CORRUPT, "11 samples, but its files hold 10"},
    {"splits/0/samples", "-1", FSH_ERR_CORRUPT, "samples"},
    {"splits/0/samples", "1e3", FSH_ERR_CORRUPT, "samples"},
    {"splits/0/samples", "99999999999999999999", FSH_ERR_CORRUPT, "integer"},
    {"splits/0/class_counts", "[3, 3]", FSH_ERR_CORRUPT, "2 entries for 3 classes"},
    {"splits/0/class_counts", "[3, 3, 5]", FSH_ERR_CORRUPT, "classes count 11"},
    {"splits/0/class_counts", "[3, 3, -1]", FSH_ERR_CORRUPT, "entry 2"},
    {"splits/0/class_counts", "[3, 3, \"2\"]", FSH_ERR_CORRUPT, "entry 2"},
    {"splits/0/files", "[]", FSH_ERR_CORRUPT, "0 files"},
    {"splits/0/files/1", "[]", FSH_ERR_CORRUPT, "files[1]"},
    {"splits/0/files/1/samples", "6", FSH_ERR_CORRUPT, "its files hold 11"},
    {"splits/0/files/1/samples", "9223372036854775807", FSH_ERR_CORRUPT, "files hold"},
    {"splits/0/files/1/bytes", "true", FSH_ERR_CORRUPT, "bytes"},
    {"splits/0/files/1/xxh3_128", "\"00\"", FSH_ERR_CORRUPT, "xxh3_128"},
    {"splits/0/files/1/xxh3_128", "\"0123456789ABCDEF0123456789ABCDEF\"", FSH_ERR_CORRUPT, "xxh3_128"},
    {"splits/0/files/1/name", "\"../a.fshard\"", FSH_ERR_CORRUPT, "plain name"},
    {"splits/0/files/1/name", "\"/etc/a.fshard\"", FSH_ERR_CORRUPT, "plain name"},
    {"splits/0/files/1/name", "\"sub/a.fshard\"", FSH_ERR_CORRUPT, "plain name"},
    {"splits/0/files/1/name", "\"..\"", FSH_ERR_CORRUPT, "plain name"},
    {"splits/0/files/1/name", "\".a.fshard\"", FSH_ERR_CORRUPT, "plain name"},
    {"splits/0/files/1/name", "\"\"", FSH_ERR_CORRUPT, "plain name"},
    {"splits/0/files/1/name", "\"dataset.json\"", FSH_ERR_CORRUPT, ".fshard"},
    {"splits/0/files/1/name", "\"a\\u0000.fshard\"", FSH_ERR_CORRUPT, "NUL"},
    {"splits/0/files/1/name", "\"train-00000-of-00002.fshard\"", FSH_ERR_CORRUPT, "listed twice"},
    {"statistics", NULL, FSH_ERR_CORRUPT, "statistics"},
    {"statistics/channels", "5", FSH_ERR_CORRUPT, "channels"},
    {"statistics/channels", "1", FSH_ERR_CORRUPT, "3 entries for 1 channels"},
    {"statistics/channels", "4", FSH_ERR_CORRUPT, "3 entries for 4 channels"},
    {"statistics/mean", "[0.5, 0.99, 0.5]", FSH_ERR_CORRUPT,
     "statistics.std[1] is 0.224, more than values with the mean 0.99 can have"},
    {"statistics/mean", "[-0.1, 0.5, 0.5]", FSH_ERR_CORRUPT,
     "statistics.mean[0] is -0.1, not between 0 and 1"},
    {"statistics/mean", "[0.5, 0.5, 2.1e29]", FSH_ERR_CORRUPT, "statistics.mean[2] is 2.1e+29"},
    {"statistics/std", "[0.2, -0.2, 0.2]", FSH_ERR_CORRUPT, "statistics.std[1] is -0.2, neither 0 nor"},
    {"statistics/std", "[0.2, 0.2, 1e-30]", FSH_ERR_CORRUPT, "statistics.std[2] is 1e-30"},
    {"statistics/std", "[0.51, 0.2, 0.2]", FSH_ERR_CORRUPT, "statistics.std[0] is 0.51"},
    {"statistics/width", "[0, 20]", FSH_ERR_CORRUPT, "statistics.width is 0 to 20"},
    {"statistics/width", "[20, 1]", FSH_ERR_CORRUPT, "width"},
    {"statistics/height", "[1]", FSH_ERR_CORRUPT, "height"},
    {"statistics/height", "[1, 4294967296]", FSH_ERR_CORRUPT, "height"},
    {"statistics/mean", "[1, 2]", FSH_ERR_CORRUPT, "2 entries for 3 channels"},
    {"statistics/mean", "[1, 2, \"3\"]", FSH_ERR_CORRUPT, "entry 2"},
    {"provenance", "[]", FSH_ERR_CORRUPT, "provenance"},
    {"provenance/recipe", "\"short edge 160\"", FSH_ERR_CORRUPT, "provenance: \"recipe\""},
};

/* Changes the member at path within node. */
static void change_member(json_t *node, const char *path, json_t *value)
{
    const char *slash = strchr(path, '/');
    char part[64] = {0};
    (void)snprintf(part, sizeof part, "%.*s", slash ? (int)(slash - path) : (int)strlen(path), path);
    json_t *child =
        json_is_array(node) ? json_array_get(node, strtoul(part, NULL, 10)) : json_object_get(node, part);
    assert_true(child || (value && !slash)); /* a member may also be new */
    if (slash)
        change_member(child, slash + 1, value);
    else if (json_is_array(node))
        assert_int_equal(json_array_set(node, strtoul(part, NULL, 10), value), 0);
    else if (value)
        assert_int_equal(json_object_set(node, part, value), 0);
    else
        assert_int_equal(json_object_del(node, part), 0);
}

/* Turns a manifest into one of version 1, which had no checksum. */
static void make_version_1(json_t *object)
{
    assert_int_equal(json_object_set(object, "id", json_object_get(object, "files_id")), 0);
    assert_int_equal(json_object_del(object, "files_id"), 0);
    assert_int_equal(json_object_del(object, "checksum"), 0);
    assert_int_equal(json_object_set_new(object, "version", json_integer(1)), 0);
}

/* Returns the manifest with one change, as text; the caller frees it. Sealed, it has a checksum that fits;
 * else it is of version 1, as is every manifest with a value that jansson refuses, which is put into the text
 * afterwards. */
static char *changed_text(const char *good, const Change *change, bool sealed)
{
    json_t *object = json_loads(good, 0, NULL);
    if (!sealed)
        make_version_1(object);
    json_t *value = change->value ? json_loads(change->value, JSON_DECODE_ANY, NULL) : NULL;
    json_t *stand_in = change->value && !value ? json_string("@@") : NULL;
    change_member(object, change->path, stand_in ? stand_in : value);
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_SORT_KEYS);
    if (sealed && !stand_in) {
        size_t bytes = 0;
        free(text);
        assert_int_equal(fsh_manifest_seal(object, &text, &bytes, NULL), FSH_OK);
        text[bytes - 1] = '\0';
        assert_non_null(text = realloc(text, bytes + 1));
        text[bytes - 1] = '\n'; /* it belongs to what was summed */
        text[bytes] = '\0';
    }
    char *mark = strstr(text, "\"@@\"");
    if (mark) {
        char *longer = NULL;
        assert_true(asprintf(&longer, "%.*s%s%s", (int)(mark - text), text, change->value, mark + 4) > 0);
        free(text);
        text = longer;
    }
    json_decref(object);
    json_decref(value);
    json_decref(stand_in);
    return text;
}

TEST_IN_FOLDER(test_hostile_manifests_are_refused, folder)
{
    const char *path = test_path(folder, "dataset.json");
    samples_write_dataset(&plan, folder->path);
    char *good = test_file_read(path, NULL);
    for (size_t n = 0; n < 2 * (sizeof changes / sizeof *changes); n++) {
        const size_t i = n / 2;
        FshError error = {0};
        FshManifest manifest;
        FshDataset *dataset = NULL;
        char *text = changed_text(good, &changes[i], n % 2);
        test_file_write_text(path, text);
        free(text);
        FshStatus status = fsh_manifest_load(&manifest, path, &error);
        if (status != changes[i].status || error.status != status)
            fail_msg("%s = %s gives %d: %s", changes[i].path, changes[i].value, status, error.message);
        assert_contains(error.message, path);
        assert_contains(error.message, changes[i].message);
        assert_null(manifest.splits);
        assert_int_equal(fsh_open(&dataset, folder->path, &error), status);
        assert_null(dataset);
    }
    free(good);
}

TEST_IN_FOLDER(test_unknown_members_are_ignored, folder)
{
    FshError error = {0};
    FshManifest manifest;
    samples_write_dataset(&plan, folder->path);
    char *good = test_file_read(test_path(folder, "dataset.json"), NULL);
    char *text = NULL;
    size_t bytes = 0;
    json_t *object = json_loads(good, 0, NULL);
    assert_int_equal(json_object_set_new(object, "later", json_pack("[i, {s:n}]", 1, "a")), 0);
    assert_ok(fsh_manifest_seal(object, &text, &bytes, &error), &error);
    json_decref(object);
    assert_ok(fsh_manifest_parse(&manifest, text, bytes, &error), &error);
    fsh_manifest_free(&manifest);
    free(text);
    /* One that came later than the checksum is a change like any other. */
    assert_true(asprintf(&text, "{\"later\": [1, {\"a\": null}],%s", good + 1) > 0);
    assert_int_equal(fsh_manifest_parse(&manifest, text, strlen(text), &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "was changed since it was written: \"later\" by its checksum");
    free(text);
    /* The same member twice could be read in two ways. */
    assert_true(asprintf(&text, "{\"id\": \"%s\",%s", SAMPLES_ID, good + 1) > 0);
    assert_int_equal(fsh_manifest_parse(&manifest, text, strlen(text), &error), FSH_ERR_CORRUPT);
    free(text);
    free(good);
}

/* ---- the checksum ---- */

static void assert_refused(const char *text, size_t bytes, const char *what, size_t at)
{
    FshError error = {0};
    FshManifest manifest;
    if (fsh_manifest_parse(&manifest, text, bytes, &error) == FSH_OK)
        fail_msg("%s at byte %zu is not seen", what, at);
    assert_contains_not(error.message, "memory");
}

TEST_IN_FOLDER(test_no_changed_byte_passes, folder)
{
    samples_write_dataset(&plan, folder->path);
    size_t bytes = 0;
    char *text = test_file_read(test_path(folder, "dataset.json"), &bytes);
    char *longer = malloc(bytes + 1);
    for (size_t at = 0; at < bytes; at++) {
        const char was = text[at];
        for (unsigned bit = 0; bit < 8; bit++) {
            text[at] = (char)(was ^ 1 << bit);
            assert_refused(text, bytes, "a flipped bit", at);
        }
        for (char digit = '0'; digit <= '9' && was >= '0' && was <= '9'; digit++) {
            text[at] = digit;
            if (digit != was)
                assert_refused(text, bytes, "another digit", at);
        }
        text[at] = was;
        memcpy(longer, text, at);
        memcpy(longer + at, text + at + 1, bytes - at - 1);
        assert_refused(longer, bytes - 1, "a byte left out", at);
        longer[at] = ' ';
        memcpy(longer + at + 1, text + at, bytes - at);
        assert_refused(longer, bytes + 1, "a blank", at);
    }
    free(longer);
    free(text);
}

/* Replaces the first `from` after `after` in text by as many bytes. */
static void replace(char *text, const char *after, const char *from, const char *to)
{
    char *at = strstr(text, after);
    at = at ? strstr(at, from) : NULL;
    if (!at)
        fail_msg("there is no %s after %s", from, after);
    for (size_t i = 0; at && to[i]; i++)
        at[i] = to[i];
}

TEST_IN_FOLDER(test_what_was_changed_is_told_by_its_name, folder)
{
    const struct {
        const char *after, *from, *to, *message;
    } edits[] = {
        {"\"mean\": [", "0.485", "0.486", "\"statistics.mean\" by its checksum"},
        {"\"std\": [", "0.229", "0.228", "\"statistics.std\" by its checksum"},
        {"\"channels\": ", "3", "1", "\"statistics.channels\" by its checksum"},
        {"\n  \"splits\": ", "fshard", "fsharx", "\"splits\" by its checksum"},
        {"\"classes\": [", "bee", "fee", "\"classes\" by its checksum"},
        {"\n  \"provenance\": ", "160", "161", "\"provenance\" by its checksum"},
        {"\n  \"version\": ", "2", "1", "\"version\" by its checksum"},
        {"\n  ],\n  \"statistics\"", "statistics", "statistica", "\"statistica\", \"statistics.channels\", "},
        {"\"checksum\": ", "checksum", "shecksum", "\"checksum\" is missing"},
        {"{", "  ", " \n", "\"checksum\" or what stands between members"},
    };
    samples_write_dataset(&plan, folder->path);
    char *good = test_file_read(test_path(folder, "dataset.json"), NULL);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        FshError error = {0};
        FshManifest manifest;
        char *text = strdup(good);
        replace(text, edits[i].after, edits[i].from, edits[i].to);
        assert_int_equal(fsh_manifest_parse(&manifest, text, strlen(text), &error), FSH_ERR_CORRUPT);
        assert_contains(error.message, edits[i].message);
        assert_contains(error.message, "; fpack --repair-manifest makes it again");
        free(text);
    }
    free(good);
}

TEST_IN_FOLDER(test_manifests_of_version_1_open, folder)
{
    FshError error = {0};
    FshManifest manifest, older;
    FshDataset *dataset = NULL;
    samples_write_dataset(&plan, folder->path);
    assert_ok(fsh_manifest_load(&manifest, folder->path, &error), &error);
    json_t *object = json_load_file(test_path(folder, "dataset.json"), 0, NULL);
    make_version_1(object);
    assert_int_equal(json_dump_file(object, test_path(folder, "dataset.json"), JSON_INDENT(2)), 0);
    json_decref(object);
    assert_ok(fsh_manifest_load(&older, folder->path, &error), &error);
    assert_string_equal(older.files_id, SAMPLES_ID);
    assert_string_equal(older.id, manifest.id); /* of the same files */
    assert_ok(fsh_open(&dataset, folder->path, &error), &error);
    fsh_close(&dataset);
    fsh_manifest_free(&manifest);
    fsh_manifest_free(&older);
}

TEST_IN_FOLDER(test_the_id_covers_the_hashes_of_files, folder)
{
    FshError error = {0};
    FshManifest manifest;
    samples_write_dataset(&plan, folder->path);
    assert_ok(fsh_manifest_load(&manifest, folder->path, &error), &error);
    char before[33];
    memcpy(before, manifest.id, sizeof before);
    manifest.splits[1].files[0].hash.bytes[15] ^= 1;
    assert_ok(fsh_manifest_identify(&manifest, &error), &error);
    assert_string_not_equal(manifest.id, before);
    assert_string_equal(manifest.files_id, SAMPLES_ID);
    /* Whoever seals a manifest with an id that is not that of its files is not believed. */
    json_t *object = json_load_file(test_path(folder, "dataset.json"), 0, NULL);
    assert_int_equal(json_object_set_new(object, "id", json_string(manifest.id)), 0);
    fsh_manifest_free(&manifest);
    char *text = NULL;
    size_t bytes = 0;
    assert_ok(fsh_manifest_seal(object, &text, &bytes, &error), &error);
    json_decref(object);
    assert_int_equal(fsh_manifest_parse(&manifest, text, bytes, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "is that of the files it lists");
    free(text);
}

/* jansson takes 46 seconds and 880 MB for it. */
TEST_IN_FOLDER(test_a_string_of_300_megabytes_is_refused_at_once, folder)
{
    enum { STRING_BYTES = 40 << 20 };
    FshError error = {0};
    FshManifest manifest;
    char *text = malloc(STRING_BYTES + 64);
    size_t length = (size_t)sprintf(text, "{\n\"format\": \"fshard\", \"later\":\n\"");
    memset(text + length, 'x', STRING_BYTES);
    length += STRING_BYTES;
    length += (size_t)sprintf(text + length, "\"}");
    const double begin = progress_now_seconds();
    assert_int_equal(fsh_manifest_parse(&manifest, text, length, &error), FSH_ERR_CORRUPT);
    assert_string_equal(error.message, "line 3: a string of 41943040 bytes; at most 65535 are read");
    assert_true(progress_now_seconds() - begin < 1);
    free(text);
    /* And a file that is longer than any manifest is not read at all. */
    const char *path = test_path(folder, "dataset.json");
    test_file_write_text(path, "{");
    assert_int_equal(truncate(path, 300 << 20), 0);
    assert_int_equal(fsh_manifest_load(&manifest, path, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "67108864");
}

TEST_IN_FOLDER(test_text_that_is_no_manifest_is_refused, folder)
{
    FshError error = {0};
    FshManifest manifest;
    samples_write_dataset(&plan, folder->path);
    char *good = test_file_read(test_path(folder, "dataset.json"), NULL);
    size_t length = strlen(good) - 1; /* without the newline at the end, which JSON can spare */
    for (size_t cut = 0; cut < length; cut++) {
        char *exact = malloc(cut ? cut : 1);
        memcpy(exact, good, cut);
        assert_int_equal(fsh_manifest_parse(&manifest, exact, cut, &error), FSH_ERR_CORRUPT);
        free(exact);
    }
    free(good);
    assert_int_equal(fsh_manifest_parse(&manifest, "[]", 2, &error), FSH_ERR_CORRUPT);
    char deep[5000];
    memset(deep, '[', sizeof deep);
    assert_int_equal(fsh_manifest_parse(&manifest, deep, sizeof deep, &error), FSH_ERR_CORRUPT);
    assert_int_equal(fsh_manifest_load(&manifest, test_path(folder, "none"), &error), FSH_ERR_NOT_FOUND);
}

TEST_IN_FOLDER(test_a_manifest_that_contradicts_itself_is_not_saved, folder)
{
    FshError error = {0};
    FshManifest manifest;
    samples_write_dataset(&plan, folder->path);
    assert_ok(fsh_manifest_load(&manifest, folder->path, &error), &error);
    const char *elsewhere = test_path(folder, "elsewhere");
    assert_ok(file_make_folders(elsewhere, &error), &error);

    manifest.splits[0].sample_count++;
    assert_int_equal(fsh_manifest_save(&manifest, elsewhere, false, &error), FSH_ERR_USAGE);
    manifest.splits[0].sample_count--;
    manifest.statistics.mean[0] = NAN;
    assert_int_equal(fsh_manifest_save(&manifest, elsewhere, false, &error), FSH_ERR_USAGE);
    manifest.statistics.mean[0] = 0.5;
    manifest.pair_scale = 2; /* of classes */
    assert_int_equal(fsh_manifest_save(&manifest, elsewhere, false, &error), FSH_ERR_USAGE);
    assert_contains(error.message, "pair_scale 2: of pairs, at most 64");
    manifest.pair_scale = 0;
    char *provenance = manifest.provenance_json;
    manifest.provenance_json = (char[]){"[1]"};
    assert_int_equal(fsh_manifest_save(&manifest, elsewhere, false, &error), FSH_ERR_USAGE);
    manifest.provenance_json = provenance;
    char *name = manifest.class_names[0];
    manifest.class_names[0] = (char[]){"\xff\xfe"};
    assert_int_equal(fsh_manifest_save(&manifest, elsewhere, false, &error), FSH_ERR_USAGE);
    assert_contains(error.message, "UTF-8");
    manifest.class_names[0] = name;
    assert_int_equal(test_count_files(elsewhere), 0);
    assert_ok(fsh_manifest_save(&manifest, elsewhere, false, &error), &error);
    fsh_manifest_free(&manifest);
}
