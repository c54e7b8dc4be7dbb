/* fpack --masks: images and the masks of their pixels. Masks stay as they are, byte for byte, whatever is
 * done to images; what is no mask is left out with the reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "imaging/decode.h"
#include "tests/imaging/make_images.h"
#include "tests/tools/sources.h"

/* Four pairs, the largest value of which is 5, and one of them in val. */
static void make_tree(TestFolder *folder)
{
    const char *root = test_path(folder, "src");
    source_masked(root, "train/photos", "train/labels", "a", 40, 30, 2);
    source_masked(root, "train/photos", "train/labels", "b", 50, 30, 5);
    source_masked(root, "train/photos", "train/labels", "deep/c", 40, 60, 0);
    source_masked(root, "val/photos", "val/labels", "d", 44, 33, 4);
}

static void assert_masks_are_the_files(TestFolder *folder, const char *packed)
{
    FshDataset *dataset = packed_open(packed);
    const FshManifest *manifest = fsh_manifest(dataset);
    FshUnpacker *unpacker = NULL;
    FshError error = {0};
    assert_int_equal(manifest->kind, FSH_KIND_MASKS);
    assert_int_equal(manifest->statistics.mask_classes, 6);
    assert_ok(fsh_unpacker_new(&unpacker, &error), &error);
    for (size_t s = 0; s < manifest->split_count; s++) {
        const FshSplit *split = fsh_split(dataset, manifest->splits[s].name);
        for (uint64_t i = 0; i < split->sample_count; i++) {
            FshSample sample;
            const void *data = NULL;
            size_t bytes = 0, length = 0;
            assert_ok(fsh_sample_get(split, i, &sample, &error), &error);
            const FshField *mask = &sample.fields[FSH_MASK_FIELD];
            assert_int_equal(mask->codec, FSH_CODEC_PNG);
            assert_int_equal(mask->channels, 1);
            assert_int_equal(mask->width, sample.fields[0].width);
            assert_int_equal(mask->height, sample.fields[0].height);
            assert_ok(fsh_field_unpack(unpacker, split, mask, &data, &bytes, &error), &error);
            char *file =
                test_file_read(test_path(folder, "src/%.*s", (int)mask->source_bytes, mask->source), &length);
            assert_int_equal(bytes, length);
            assert_memory_equal(data, file, length);
            free(file);
        }
    }
    fsh_unpacker_free(&unpacker);
    fsh_close(&dataset);
    run_ok("fverify", "--decode", packed, NULL);
}

TEST_IN_FOLDER(test_masks_stay_as_they_are_however_images_are_stored, folder)
{
    make_tree(folder);
    const char *source = test_path(folder, "src");
    const char *const stores[] = {"copy", "jpeg", "raw", "zstd", "yuv420"};
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        const char *shards = test_path(folder, "shards-%s", stores[i]),
                   *lmdb = test_path(folder, "lmdb-%s", stores[i]);
        run_ok("fpack", "--masks", "photos:labels", "--store", stores[i], source, shards, NULL);
        assert_masks_are_the_files(folder, shards);
        run_ok("fpack", "--masks", "photos:labels", "--store", stores[i], "--format", "lmdb", source, lmdb,
               NULL);
        assert_masks_are_the_files(folder, lmdb);
        run_ok("fverify", "--against", source, shards, NULL);
    }
    const char *automatic = test_path(folder, "auto");
    run_ok("fpack", "--masks", "photos:labels", "--store", "auto", "--raw-under", "5000", source, automatic,
           NULL);
    assert_masks_are_the_files(folder, automatic);
    /* from a dataset to another */
    const char *again = test_path(folder, "again");
    run_ok("fpack", "--store", "raw", "--format", "lmdb", test_path(folder, "shards-copy"), again, NULL);
    assert_masks_are_the_files(folder, again);
}

TEST_IN_FOLDER(test_masks_are_extracted_as_they_were, folder)
{
    make_tree(folder);
    const char *source = test_path(folder, "src"), *packed = test_path(folder, "shards"),
               *out = test_path(folder, "out");
    run_ok("fpack", "--masks", "photos:labels", "--store", "raw", source, packed, NULL);
    run_ok("fverify", "--extract", out, packed, NULL);
    static const char *const names[] = {"train/labels/a.png", "train/labels/deep/c.png", "val/labels/d.png"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t length = 0, extracted_length = 0;
        char *file = test_file_read(test_path(folder, "src/%s", names[i]), &length);
        char *extracted = test_file_read(test_path(folder, "out/%s", names[i]), &extracted_length);
        assert_int_equal(extracted_length, length);
        assert_memory_equal(extracted, file, length);
        free(file);
        free(extracted);
    }
}

TEST_IN_FOLDER(test_folders_anywhere_and_a_suffix, folder)
{
    const char *root = test_path(folder, "src"), *packed = test_path(folder, "shards");
    source_masked(root, "x", "y", "a", 40, 30, 2);
    assert_int_equal(rename(test_path(folder, "src/y/a.png"), test_path(folder, "src/y/a_labels.png")), 0);
    char sides[1024];
    (void)snprintf(sides, sizeof sides, "i=%s/x:m=%s/y", root, root);
    run_ok("fpack", "--masks", sides, "--pair-suffix", "m=_labels", packed, NULL);
    FshDataset *dataset = packed_open(packed);
    assert_int_equal(fsh_manifest(dataset)->kind, FSH_KIND_MASKS);
    assert_int_equal(fsh_manifest(dataset)->statistics.mask_classes, 3);
    fsh_close(&dataset);
}

/* Writes a good pair and one with this mask, and expects the second to be left out for the reason. */
static void expect_left_out(TestFolder *folder, const char *name, const Buffer *mask, const char *reason)
{
    const char *root = test_path(folder, "%s", name), *packed = test_path(folder, "%s-shards", name);
    source_masked(root, "photos", "labels", "good", 40, 30, 2);
    source_masked(root, "photos", "labels", "bad", 40, 30, 2);
    if (mask)
        test_file_write(test_path(folder, "%s/labels/bad.png", name), mask->bytes, mask->length);
    RunResult result = run_expecting(1, "fpack", "--masks", "photos:labels", root, packed, NULL);
    assert_contains(result.err, reason);
    assert_contains(result.err, "left out");
    run_result_free(&result);
    assert_int_equal(packed_count(packed, "train"), 1);
}

static void make_bad_png(Buffer *file, uint8_t bit_depth, uint8_t colour_type, uint32_t height)
{
    static const uint8_t rows[40 * 31 * 8];
    buffer_free(file);
    make_png(
        &(MakePng){
            .width = 40, .height = height, .bit_depth = bit_depth, .colour_type = colour_type, .rows = rows},
        file);
}

TEST_IN_FOLDER(test_what_is_no_mask_is_left_out_with_the_reason, folder)
{
    Buffer file = {0};
    make_bad_png(&file, 8, 2, 30);
    expect_left_out(folder, "rgb", &file, "labels/bad.png: a mask is a PNG of a palette or of gray");
    expect_left_out(folder, "rgb2", &file, "this one has colours (RGB)");
    make_bad_png(&file, 16, 0, 30);
    expect_left_out(folder, "deep", &file, "this one has 16 bits a pixel: write it with 8");
    make_bad_png(&file, 8, 0, 31);
    expect_left_out(folder, "size", &file, "sizes differ: photos is 40x30, labels (labels/bad.png) is 40x31");
    make_bad_png(&file, 8, 0, 30);
    file.length -= 20;
    expect_left_out(folder, "torn", &file, "labels/bad.png: the PNG is damaged: it is cut short");
    uint8_t ignored[40 * 30];
    memset(ignored, 255, sizeof ignored);
    buffer_free(&file);
    make_png(&(MakePng){.width = 40, .height = 30, .bit_depth = 8, .colour_type = 0, .rows = ignored}, &file);
    expect_left_out(
        folder, "empty", &file,
        "labels/bad.png: every pixel of the mask is 255, which is no class: there is nothing to learn");
    buffer_free(&file);
}

/* Packs two masks of these two values, and returns what fpack printed; free it. */
static RunResult pack_two_values(TestFolder *folder, const char *name, uint8_t first, uint8_t second)
{
    const char *root = test_path(folder, "%s", name);
    uint8_t values[16];
    memset(values, first, sizeof values);
    values[5] = second;
    for (int i = 0; i < 2; i++) {
        source_jpeg(test_path(folder, "%s/photos/%d.jpg", name, i), 4, 4, 3, 1);
        source_mask(test_path(folder, "%s/labels/%d.png", name, i), 4, 4, values, i);
    }
    return run_expecting(0, "fpack", "--masks", "photos:labels", root, test_path(folder, "%s-shards", name),
                         NULL);
}

TEST_IN_FOLDER(test_values_that_are_no_indices_are_warned_about, folder)
{
    RunResult result = pack_two_values(folder, "white", 0, 255);
    assert_contains(result.err,
                    "warning: the masks have one class alone, value 0, and ftrain needs two; 255 is no "
                    "class, and is ignored: where it is what is to be found, write it as 1");
    run_result_free(&result);
    result = pack_two_values(folder, "empty", 0, 0);
    assert_contains(result.err, "warning: the masks have one class alone, value 0, and ftrain needs two\n");
    run_result_free(&result);
    result = run_expecting(0, "fpack", "-q", "--masks", "photos:labels", test_path(folder, "empty"),
                           test_path(folder, "quiet-shards"), NULL);
    assert_string_equal(result.err,
                        "fpack: warning: the masks have one class alone, value 0, and ftrain needs two\n");
    run_result_free(&result);
    result = pack_two_values(folder, "gray", 0, 254);
    assert_contains(result.err,
                    "warning: the largest value of the masks is 254, but only 2 values occur (0, 254): "
                    "they look like the grays of a picture, and not like indices; ftrain would learn "
                    "255 classes: number the classes 0, 1, 2 and on (255: no class) and pack again");
    run_result_free(&result);
    result = pack_two_values(folder, "good", 0, 1);
    assert_null(strstr(result.err, "warning"));
    run_result_free(&result);
    result = pack_two_values(folder, "gap", 0, 3); /* a class that no image has is usual */
    assert_null(strstr(result.err, "warning"));
    run_result_free(&result);
}

TEST_IN_FOLDER(test_sizes_that_differ_by_a_factor_get_no_hint_that_is_refused, folder)
{
    static const uint8_t values[40 * 30];
    const char *root = test_path(folder, "src");
    source_masked(root, "photos", "labels", "good", 40, 30, 2);
    source_masked(root, "photos", "labels", "bad", 40, 30, 2);
    source_mask(test_path(folder, "src/labels/bad.png"), 20, 15, values, true);
    RunResult result =
        run_expecting(1, "fpack", "--masks", "photos:labels", root, test_path(folder, "shards"), NULL);
    assert_contains(result.err, "is 20x15; make the mask of its image's size by the nearest pixel");
    assert_null(strstr(result.err, "--pair-scale"));
    run_result_free(&result);
}

/* Whichever side's name comes first. */
TEST_IN_FOLDER(test_masks_packed_as_classes_are_warned_about, folder)
{
    for (int i = 0; i < 8; i++) {
        char name[2] = {(char)('a' + i), '\0'};
        source_masked(test_path(folder, "x"), "images", "labels", name, 40, 30, 2);
        source_masked(test_path(folder, "y"), "photos", "labels", name, 40, 30, 2);
    }
    RunResult result = run_expecting(0, "fpack", test_path(folder, "x"), test_path(folder, "shards"), NULL);
    assert_contains(result.err, "--pairs images:labels, for images and the masks of segmentation --masks "
                                "images:labels");
    run_result_free(&result);
    result = run_expecting(0, "fpack", "--update", test_path(folder, "x"), test_path(folder, "shards"), NULL);
    assert_contains(result.err, "--masks images:labels");
    run_result_free(&result);
    result = run_expecting(0, "fpack", test_path(folder, "y"), test_path(folder, "other"), NULL);
    assert_contains(result.err, "--masks photos:labels");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_jpeg_masks_and_orphans_are_left_out, folder)
{
    const char *root = test_path(folder, "src"), *packed = test_path(folder, "shards");
    source_masked(root, "photos", "labels", "good", 40, 30, 2);
    source_jpeg(test_path(folder, "src/photos/lossy.jpg"), 40, 30, 3, 1);
    source_jpeg(test_path(folder, "src/labels/lossy.jpg"), 40, 30, 1, 1);
    source_jpeg(test_path(folder, "src/photos/alone.jpg"), 40, 30, 3, 1);
    const uint8_t values[4] = {0, 1, 0, 1};
    source_mask(test_path(folder, "src/labels/nothing.png"), 2, 2, values, false);
    RunResult result = run_expecting(1, "fpack", "--masks", "photos:labels", root, packed, NULL);
    assert_contains(result.err, "labels/lossy.jpg: a mask is a PNG");
    assert_contains(result.err,
                    "this one is jpeg, which changes values: write it as PNG from where it was made");
    assert_contains(result.err, "photos/alone.jpg: has no counterpart in 'labels'; left out");
    assert_contains(result.err, "labels/nothing.png: has no counterpart in 'photos'; left out");
    run_result_free(&result);
    assert_int_equal(packed_count(packed, "train"), 1);
}

TEST_IN_FOLDER(test_an_image_that_exif_turns_is_left_out, folder)
{
    const char *root = test_path(folder, "src"), *packed = test_path(folder, "shards");
    source_masked(root, "photos", "labels", "good", 40, 30, 2);
    source_masked(root, "photos", "labels", "turned", 40, 30, 2);
    source_jpeg_turned(test_path(folder, "src/photos/turned.jpg"), 40, 30, 3, 1);
    for (int i = 0; i < 2; i++) { /* by the header alone, too */
        RunResult result = run_expecting(1, "fpack", i ? "--no-check" : "--check", "--force", "--masks",
                                         "photos:labels", root, packed, NULL);
        assert_contains(result.err, "photos/turned.jpg: is turned by its EXIF orientation (3)");
        run_result_free(&result);
        assert_int_equal(packed_count(packed, "train"), 1);
    }
}

TEST_IN_FOLDER(test_options_that_would_change_masks_are_refused, folder)
{
    make_tree(folder);
    const char *source = test_path(folder, "src"), *packed = test_path(folder, "shards"),
               *to = test_path(folder, "to");
    const struct {
        const char *option, *value, *message;
    } refused[] = {
        {"--max-size", "16", "masks are stored as they are, and ftrain resizes them"},
        {"--pair-scale", "2", "an image and its mask are of one size"},
        {"--format", "tar", "only --format shards and lmdb note that a field is a mask"},
        {"--layout", "basicsr", "only --format shards and lmdb note that a field is a mask"},
        {"--pairs", "photos:labels", "--pairs, --fields and --masks: give one of them"},
        {"--classes", "x", "classes are values of pixels; leave out --labels, --files-from and --classes"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        RunResult result = run_expecting(2, "fpack", "--masks", "photos:labels", refused[i].option,
                                         refused[i].value, source, to, NULL);
        assert_contains(result.err, refused[i].message);
        run_result_free(&result);
    }
    /* and where a dataset that holds masks is packed again */
    run_ok("fpack", "--masks", "photos:labels", source, packed, NULL);
    const struct {
        const char *option, *value, *message;
    } again[] = {
        {"--max-size", "16", "holds masks, which are stored as they are"},
        {"--format", "tar", "only --format shards and lmdb note that a field is one"},
        {"--pairs", "photos:labels", "holds images and masks; give --masks photos:labels"},
        {"--masks", "labels:photos", "holds images and masks; give --masks photos:labels"},
    };
    for (size_t i = 0; i < sizeof again / sizeof *again; i++) {
        RunResult result = run_expecting(2, "fpack", again[i].option, again[i].value, packed, to, NULL);
        assert_contains(result.err, again[i].message);
        run_result_free(&result);
    }
    assert_int_not_equal(access(to, F_OK), 0);
}

/* Pairs whose second side holds masks, as they were packed before there was --masks, become what they are. */
TEST_IN_FOLDER(test_a_dataset_of_pairs_becomes_one_of_masks, folder)
{
    make_tree(folder);
    const char *pairs = test_path(folder, "pairs"), *packed = test_path(folder, "shards");
    run_ok("fpack", "--pairs", "photos:labels", test_path(folder, "src"), pairs, NULL);
    run_ok("fpack", "--masks", "photos:labels", pairs, packed, NULL);
    assert_masks_are_the_files(folder, packed);
}

TEST_IN_FOLDER(test_update_parts_and_repair_keep_masks, folder)
{
    make_tree(folder);
    const char *source = test_path(folder, "src"), *packed = test_path(folder, "shards"),
               *parts = test_path(folder, "parts");
    run_ok("fpack", "--masks", "photos:labels", source, packed, NULL);
    source_masked(source, "train/photos", "train/labels", "b", 50, 30, 3); /* was 5 */
    source_masked(source, "train/photos", "train/labels", "e", 40, 30, 8);
    RunResult result =
        run_expecting(1, "fpack", "--update", "--pairs", "photos:labels", source, packed, NULL);
    assert_contains(result.err, "holds images and masks");
    run_result_free(&result);
    run_ok("fpack", "--update", "--masks", "photos:labels", source, packed, NULL);
    run_ok("fverify", "--decode", packed, NULL);
    FshDataset *dataset = packed_open(packed);
    assert_int_equal(fsh_manifest(dataset)->kind, FSH_KIND_MASKS);
    assert_int_equal(fsh_manifest(dataset)->statistics.mask_classes, 9);
    fsh_close(&dataset);

    run_ok("fpack", "--masks", "photos:labels", "--shard-size", "4096", "--part", "1/2", source, parts, NULL);
    run_ok("fpack", "--masks", "photos:labels", "--shard-size", "4096", "--part", "2/2", source, parts, NULL);
    run_ok("fpack", "--merge", parts, NULL);
    dataset = packed_open(parts);
    assert_int_equal(fsh_manifest(dataset)->kind, FSH_KIND_MASKS);
    assert_int_equal(fsh_manifest(dataset)->statistics.mask_classes, 9);
    const double mean = fsh_manifest(dataset)->statistics.mean[0];
    fsh_close(&dataset);

    assert_int_equal(unlink(test_path(folder, "parts/dataset.json")), 0);
    run_ok("fpack", "--repair-manifest", parts, NULL);
    dataset = packed_open(parts);
    assert_int_equal(fsh_manifest(dataset)->kind, FSH_KIND_MASKS);
    assert_int_equal(fsh_manifest(dataset)->statistics.mask_classes, 9);
    assert_float_equal(fsh_manifest(dataset)->statistics.mean[0], mean,
                       1e-12); /* without the masks' pixels */
    fsh_close(&dataset);
    run_ok("fverify", "--decode", parts, NULL);
}

static void assert_mask_names(const char *packed, const char *expected)
{
    FshDataset *dataset = packed_open(packed);
    const FshManifest *manifest = fsh_manifest(dataset);
    char text[1024] = "";
    for (size_t i = 0; i < manifest->mask_name_count; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? "," : "",
                       manifest->mask_names[i]);
    fsh_close(&dataset);
    assert_string_equal(text, expected);
}

TEST_IN_FOLDER(test_values_of_masks_have_names, folder)
{
    make_tree(folder);
    const char *source = test_path(folder, "src"), *packed = test_path(folder, "shards"),
               *parts = test_path(folder, "parts"), *list = test_path(folder, "names.txt"),
               *table = test_path(folder, "table.txt"), *few = test_path(folder, "few.txt"),
               *twice = test_path(folder, "twice.txt");
    test_file_write_text(list, "background\naeroplane\nbicycle\nbird\nboat\nbottle\ndining table\n");
    test_file_write_text(table, "5\tbottle\n0\tbackground\n");
    test_file_write_text(few, "background\naeroplane\n");
    test_file_write_text(twice, "background\nbird\nbird\n");
    static const char all[] = "background,aeroplane,bicycle,bird,boat,bottle,dining table";
    run_ok("fpack", "--masks", "photos:labels", "--class-names", list, source, packed, NULL);
    assert_mask_names(packed, all);
    RunResult result = run_expecting(0, "fverify", "--decode", packed, NULL);
    assert_contains(result.out, "  masks    0 background, 1 aeroplane, 2 bicycle, 3 bird, ");
    run_result_free(&result);
    result = run_expecting(0, "fverify", "--json", packed, NULL);
    assert_contains(result.out, "\"mask_class_names\":[\"background\",\"aeroplane\",");
    run_result_free(&result);

    /* They go with the dataset: into another container, through an update, a repair, and parts. */
    run_ok("fpack", "--format", "lmdb", packed, test_path(folder, "lmdb"), NULL);
    assert_mask_names(test_path(folder, "lmdb"), all);
    run_ok("fpack", "--repair-manifest", packed, NULL);
    assert_mask_names(packed, all);
    source_masked(source, "train/photos", "train/labels", "e", 40, 30, 3);
    run_ok("fpack", "--update", "--masks", "photos:labels", "--class-names", list, source, packed, NULL);
    assert_mask_names(packed, all);
    for (int part = 1; part <= 2; part++)
        run_ok("fpack", "--masks", "photos:labels", "--class-names", list, "--part",
               part == 1 ? "1/2" : "2/2", source, parts, NULL);
    run_ok("fpack", "--merge", parts, NULL);
    assert_mask_names(parts, all);

    /* A finished dataset gets others; what a table passes over has its number. */
    run_ok("fverify", "--set-class-names", table, packed, NULL);
    assert_mask_names(packed, "background,1,2,3,4,bottle");
    result = run_expecting(1, "fverify", "--set-class-names", few, packed, NULL);
    assert_contains(result.out, "2 of 6 classes have names");
    run_result_free(&result);
    result = run_expecting(0, "fpack", "--force", "--masks", "photos:labels", "--class-names", few, source,
                           packed, NULL);
    assert_contains(result.err, "2 classes have names, and the values of the masks go up to 5");
    run_result_free(&result);
    result = run_expecting(1, "fpack", "--force", "--masks", "photos:labels", "--class-names", twice, source,
                           packed, NULL);
    assert_contains(result.err, "the values 1 and 2 are both called 'bird'");
    run_result_free(&result);
    result = run_expecting(2, "fpack", "--pairs", "photos:labels", "--class-names", list, source,
                           test_path(folder, "never"), NULL);
    assert_contains(result.err, "pairs have no classes");
    run_result_free(&result);
}

/* A dataset.json without checksums: names that nobody can read are lost, and nothing else. */
TEST_IN_FOLDER(test_a_repair_goes_on_without_names_that_are_wrong, folder)
{
    make_tree(folder);
    const char *packed = test_path(folder, "shards");
    run_ok("fpack", "--masks", "photos:labels", test_path(folder, "src"), packed, NULL);
    for (int i = 0; i < 3; i++) {
        json_t *manifest = packed_manifest(packed), *names = i == 1 ? json_string("a") : json_array();
        for (int k = 0; k < (i == 0 ? 256 : 2); k++) {
            char name[8];
            (void)snprintf(name, sizeof name, "c%d", k);
            if (i != 1)
                (void)json_array_append_new(names, i == 2 ? json_string("twice") : json_string(name));
        }
        (void)json_object_set_new(manifest, "mask_class_names", names);
        (void)json_object_del(manifest, "checksum");
        (void)json_object_set_new(manifest, "version", json_integer(1));
        char *text = json_dumps(manifest, JSON_INDENT(2));
        test_file_write_text(test_path(folder, "shards/dataset.json"), text);
        free(text);
        json_decref(manifest);
        RunResult result = run_expecting(0, "fpack", "--repair-manifest", packed, NULL);
        assert_contains(result.err, "readable names of classes, if the old");
        run_result_free(&result);
        assert_mask_names(packed, "");
        run_ok("fverify", "--decode", packed, NULL);
    }
}

/* A dataset.json that tells fewer classes than its masks have, under a right checksum. */
TEST_IN_FOLDER(test_fverify_tells_a_value_beyond_the_classes, folder)
{
    make_tree(folder);
    const char *packed = test_path(folder, "shards");
    run_ok("fpack", "--masks", "photos:labels", test_path(folder, "src"), packed, NULL);
    FshManifest manifest = {0};
    FshError error = {0};
    assert_ok(fsh_manifest_load(&manifest, packed, &error), &error);
    manifest.statistics.mask_classes = 4;
    assert_ok(fsh_manifest_save(&manifest, packed, true, &error), &error);
    fsh_manifest_free(&manifest);
    RunResult result = run_expecting(1, "fverify", "--decode", packed, NULL);
    assert_contains(result.out, "the mask has a value of 5, and dataset.json tells 4 classes");
    assert_contains(result.out, "source train/labels/b.png");
    run_result_free(&result);
    result = run_expecting(1, "fverify", "--pairs", packed, NULL);
    assert_contains(result.out, "--pairs: compares images that show the same, and a mask shows classes");
    run_result_free(&result);
}
