/* fpack --store and --dictionary: what is stored is what was asked for, the bytes do not depend on threads or
 * kills, and the statistics are those of the stored pixels. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "imaging/decode.h"
#include "tests/imaging/make_images.h"
#include "tests/tools/sources.h"

/* ---- reading back ---- */

typedef void (*VisitField)(const FshField *field, const void *data, size_t bytes, void *context);

/* Calls visit with the unpacked bytes of every field of a split. */
static void each_field(const char *path, const char *split_name, VisitField visit, void *context)
{
    FshDataset *dataset = packed_open(path);
    const FshSplit *split = fsh_split(dataset, split_name);
    FshUnpacker *unpacker = NULL;
    FshError error = {0};
    assert_non_null(split);
    assert_ok(fsh_unpacker_new(&unpacker, &error), &error);
    for (uint64_t i = 0; i < split->sample_count; i++) {
        FshSample sample;
        assert_ok(fsh_sample_get(split, i, &sample, &error), &error);
        for (unsigned f = 0; f < sample.field_count; f++) {
            const void *data = NULL;
            size_t bytes = 0;
            assert_ok(fsh_field_unpack(unpacker, split, &sample.fields[f], &data, &bytes, &error), &error);
            visit(&sample.fields[f], data, bytes, context);
        }
    }
    fsh_unpacker_free(&unpacker);
    fsh_close(&dataset);
}

typedef struct Sums {
    const char *source_root; /* of files that must be stored as they are; NULL: not compared */
    uint64_t count, stored_bytes, unpacked_bytes, compressed_count, raw_count, jpeg_count, y4m_count;
    uint64_t pixel_count;
    double sum, squares; /* of the first channel */
    ImageDecoder *decoder;
} Sums;

static void add_pixels(Sums *sums, const uint8_t *pixels, uint64_t count, uint32_t channels)
{
    for (uint64_t i = 0; i < count; i++) {
        sums->sum += pixels[i * channels];
        sums->squares += (double)pixels[i * channels] * pixels[i * channels];
    }
    sums->pixel_count += count;
}

static void add_field(const FshField *field, const void *data, size_t bytes, void *context)
{
    Sums *sums = context;
    FshError error = {0};
    sums->count++;
    sums->stored_bytes += field->bytes;
    sums->unpacked_bytes += bytes;
    sums->compressed_count += field->compression == FSH_COMPRESSION_ZSTD;
    sums->raw_count += field->codec == FSH_CODEC_RAW;
    sums->jpeg_count += field->codec == FSH_CODEC_JPEG;
    sums->y4m_count += field->codec == FSH_CODEC_Y4M;
    if (sums->source_root) {
        char path[1024];
        size_t length = 0;
        (void)snprintf(path, sizeof path, "%s/%.*s", sums->source_root, (int)field->source_bytes,
                       field->source);
        char *file = test_file_read(path, &length);
        assert_int_equal(length, bytes);
        assert_memory_equal(file, data, bytes);
        free(file);
    }
    if (field->codec == FSH_CODEC_RAW) {
        assert_int_equal(bytes, (uint64_t)field->width * field->height * field->channels);
        add_pixels(sums, data, (uint64_t)field->width * field->height, field->channels);
        return;
    }
    Image image = {0};
    if (!sums->decoder)
        assert_ok(image_decoder_new(&sums->decoder, &error), &error);
    const ImageDecodeOptions options = {0};
    assert_ok(image_decode(sums->decoder, data, bytes, &options, &image, NULL, &error), &error);
    assert_int_equal(image.width, field->width);
    assert_int_equal(image.height, field->height);
    assert_int_equal(image.channels, field->channels);
    add_pixels(sums, image.pixels, (uint64_t)image.width * image.height, image.channels);
    image_free(&image);
}

/* Returns the sums of all of train; the manifest's mean and deviation must be those of the stored pixels. */
static Sums sum_up(const char *path, const char *source_root)
{
    Sums sums = {.source_root = source_root};
    each_field(path, "train", add_field, &sums);
    image_decoder_free(&sums.decoder);
    FshDataset *dataset = packed_open(path);
    const FshStatistics *statistics = &fsh_manifest(dataset)->statistics;
    const double mean = sums.sum / (double)sums.pixel_count;
    const double deviation = sqrt(sums.squares / (double)sums.pixel_count - mean * mean);
    if (fabs(statistics->mean[0] - mean / 255) > 1e-9 ||
        fabs(statistics->standard_deviation[0] - deviation / 255) > 1e-7)
        fail_msg("%s: mean %.9f, deviation %.9f; of the stored pixels %.9f, %.9f", path, statistics->mean[0],
                 statistics->standard_deviation[0], mean / 255, deviation / 255);
    fsh_close(&dataset);
    return sums;
}

static void assert_same(const char *packed, const char *whole)
{
    char *difference = test_tree_difference(packed, whole);
    if (difference)
        fail_msg("%s", difference);
}

/* Writes a square of one colour: pixels that take next to nothing. */
static void flat_jpeg(const char *path, uint32_t size, uint8_t value)
{
    Buffer file = {0};
    uint8_t *pixels = malloc((size_t)size * size * 3);
    assert_non_null(pixels);
    memset(pixels, value, (size_t)size * size * 3);
    make_jpeg(&(MakeJpeg){.width = size, .height = size, .colours = MAKE_RGB, .pixels = pixels}, &file);
    test_file_write(path, file.bytes, file.length);
    free(pixels);
    buffer_free(&file);
}

static const char *make_source(TestFolder *folder)
{
    const char *source = test_path(folder, "photos");
    source_class(source, "train/cat", 40);
    source_class(source, "train/dog", 30);
    source_class(source, "val/cat", 8);
    source_class(source, "val/dog", 3);
    return source;
}

/* Packs twice, with one thread and with three, and returns the first path. */
static const char *pack_twice(TestFolder *folder, const char *name, const char *source,
                              const char *const *options)
{
    const char *paths[] = {test_path(folder, "%s-1", name), test_path(folder, "%s-3", name)};
    for (size_t run = 0; run < 2; run++) {
        const bool lmdb = strcmp(name, "lmdb") == 0; /* which has no shards */
        const char *arguments[24] = {lmdb ? "--format=lmdb" : "--shard-size=32K", run ? "-j3" : "-j1"};
        size_t count = 2;
        for (size_t i = 0; options[i]; i++)
            arguments[count++] = options[i];
        arguments[count++] = source;
        arguments[count] = paths[run];
        RunResult result = run_program_arguments(NULL, "fpack", arguments);
        if (result.exit_status)
            fail_msg("%s: exit status %d\n%s", name, result.exit_status, result.err);
        run_result_free(&result);
    }
    assert_same(paths[1], paths[0]);
    run_ok("fverify", paths[0], NULL);
    return paths[0];
}

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- stores ---- */

TEST_IN_FOLDER(test_zstd_holds_the_pixels_of_raw_in_fewer_bytes, folder)
{
    const char *source = test_path(folder, "flat");
    for (unsigned i = 0; i < 70; i++)
        flat_jpeg(test_path(folder, "flat/a/%02u.jpg", i), 40 + i % 9, (uint8_t)(3 * i));
    const Sums raw = sum_up(pack_twice(folder, "raw", source, OPTIONS("--store", "raw")), NULL);
    const Sums zstd = sum_up(pack_twice(folder, "zstd", source, OPTIONS("--store", "zstd")), NULL);
    const Sums high =
        sum_up(pack_twice(folder, "high", source, OPTIONS("--store", "zstd", "--level", "19")), NULL);
    assert_int_equal(raw.raw_count, 70);
    assert_int_equal(raw.compressed_count, 0);
    assert_int_equal(zstd.raw_count, 70);
    assert_int_equal(zstd.compressed_count, 70);
    assert_int_equal(zstd.unpacked_bytes, raw.unpacked_bytes);
    assert_true(zstd.sum == raw.sum && zstd.squares == raw.squares);
    assert_true(zstd.stored_bytes < raw.stored_bytes);
    assert_true(high.stored_bytes <= zstd.stored_bytes && high.sum == raw.sum);
}

/* Every kind of image, in every container that holds them; the manifest's mean is of the pixels (sum_up), and
 * these are those of the sources (fverify --against). */
TEST_IN_FOLDER(test_yuv420_holds_planes_without_loss, folder)
{
    static const char *const formats[] = {"shards", "lmdb", "tar"};
    const char *source = make_source(folder), *train = "photos/train/cat";
    source_jpeg(test_path(folder, "%s/gray.jpg", train), 50, 40, 1, 3);
    source_jpeg(test_path(folder, "%s/tiny.jpg", train), 3, 2, 3, 4); /* libjpeg repeats its chroma */
    source_jpeg_turned(test_path(folder, "%s/turned.jpg", train), 40, 30, 6, 5);
    source_png(test_path(folder, "%s/drawing.png", train), 30, 20, 3, 6);
    source_png(test_path(folder, "%s/gray.png", train), 30, 20, 1, 7);
    const Sums raw = sum_up(pack_twice(folder, "raw", source, OPTIONS("--store", "raw")), NULL);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const char *packed = test_path(folder, "y4m-%s", formats[i]);
        run_ok("fpack", "--store", "yuv420", "--format", formats[i], source, packed, NULL);
        run_ok("fverify", "--decode", "--against", source, packed, NULL);
        const Sums planes = sum_up(packed, NULL);
        assert_int_equal(planes.count, raw.count);
        assert_int_equal(planes.raw_count, 3); /* tiny, turned, drawing */
        assert_int_equal(planes.y4m_count, raw.count - 3);
        assert_true(planes.sum == raw.sum && planes.squares == raw.squares);
        assert_true(planes.unpacked_bytes < raw.unpacked_bytes * 3 / 5);
    }
    /* from planes to planes, to pixels, to files, and back */
    const char *planes = test_path(folder, "y4m-shards"), *again = test_path(folder, "again");
    run_ok("fpack", "--store", "yuv420", planes, again, NULL);
    assert_true(sum_up(again, NULL).y4m_count == raw.count - 3);
    run_ok("fverify", "--against", source, again, NULL);
    run_ok("fpack", "--store", "raw", planes, test_path(folder, "pixels"), NULL);
    assert_true(sum_up(test_path(folder, "pixels"), NULL).sum == raw.sum);
    run_ok("fverify", "--extract", test_path(folder, "files"), planes, NULL);
    run_ok("fpack", test_path(folder, "files"), test_path(folder, "files-packed"), NULL);
    assert_true(sum_up(test_path(folder, "files-packed"), NULL).sum == raw.sum);
    /* another picture under the name of a source is seen */
    source_jpeg(test_path(folder, "%s/gray.jpg", train), 50, 40, 1, 4);
    RunResult result = run_program(NULL, "fverify", "--against", source, planes, NULL);
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.out, "is not what its source in");
    run_result_free(&result);
}

/* Without a JPEG between; what is small enough is stored as without --max-size. */
TEST_IN_FOLDER(test_yuv420_makes_planes_of_smaller_images, folder)
{
    const char *photos = test_path(folder, "photos"), *planes = test_path(folder, "planes"),
               *whole = test_path(folder, "whole"), *again = test_path(folder, "again");
    source_jpeg(test_path(folder, "photos/a/large.jpg"), 200, 150, 3, 1);
    source_jpeg(test_path(folder, "photos/a/gray.jpg"), 200, 150, 1, 2);
    source_jpeg_turned(test_path(folder, "photos/a/turned.jpg"), 200, 150, 6, 3);
    source_jpeg(test_path(folder, "photos/b/small.jpg"), 40, 30, 3, 4);
    source_jpeg_turned(test_path(folder, "photos/b/small-turned.jpg"), 40, 30, 6, 5);
    source_png(test_path(folder, "photos/b/drawing.png"), 100, 80, 3, 6);
    run_ok("fpack", "--store", "yuv420", "--max-size", "48", photos, planes, NULL);
    run_ok("fverify", "--decode", "--against", photos, planes, NULL);
    const Sums sums = sum_up(planes, NULL);
    assert_int_equal(sums.y4m_count, 4);
    assert_int_equal(sums.raw_count,
                     2); /* in colour and no JPEG's planes: the drawing, the small one turned */
    /* the same from a dataset of whole planes, by their pixels */
    run_ok("fpack", "--store", "yuv420", photos, whole, NULL);
    run_ok("fpack", "--store", "yuv420", "--max-size", "48", whole, again, NULL);
    run_ok("fverify", "--decode", again, NULL);
    const Sums from_whole = sum_up(again, NULL);
    assert_int_equal(from_whole.pixel_count, sums.pixel_count);
    assert_true(fabs(from_whole.sum - sums.sum) < 0.5 * (double)sums.pixel_count);
    /* another picture is seen */
    source_jpeg(test_path(folder, "photos/a/large.jpg"), 200, 150, 3, 7);
    RunResult result = run_expecting(1, "fverify", "--against", photos, planes, NULL);
    assert_contains(result.out, "is not what its source in");
    run_result_free(&result);
    result = run_expecting(2, "fpack", "--store", "yuv420", "--max-size", "48", "--quality", "80", photos,
                           test_path(folder, "none"), NULL);
    assert_contains(result.err, "--quality: --store yuv420 keeps planes");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_yuv420_tells_what_it_stored_raw, folder)
{
    const char *source = make_source(folder), *planes = test_path(folder, "planes");
    const char *drawings = test_path(folder, "drawings"), *packed = test_path(folder, "packed");
    RunResult result = run_expecting(0, "fpack", "--store", "yuv420", source, planes, NULL);
    assert_contains(result.err, "fpack: yuv420: 81 images as planes (");
    assert_null(strstr(result.err, " raw ("));
    run_result_free(&result);
    source_png(test_path(folder, "drawings/a/drawing.png"), 30, 20, 3, 6);
    source_png(test_path(folder, "drawings/b/gray.png"), 30, 20, 1, 7);
    result = run_expecting(0, "fpack", "--json", "--store", "yuv420", drawings, packed, NULL);
    assert_contains(result.err, "yuv420: 1 image as planes (");
    assert_contains(result.err, "; 1 raw (1.76 KiB): in colour, and no JPEG whose planes could be kept");
    json_t *object = json_of(result.out);
    const json_t *told = json_object_get(object, "yuv420");
    assert_int_equal(json_integer_value(json_object_get(told, "raw")), 1);
    assert_int_equal(json_integer_value(json_object_get(told, "raw_bytes")), 30 * 20 * 3);
    assert_int_equal(json_integer_value(json_object_get(told, "planes")), 1);
    json_decref(object);
    run_result_free(&result);
    /* Parts keep what they counted for who joins them. */
    run_ok("fpack", "--store", "yuv420", "--part", "1/1", drawings, test_path(folder, "parts"), NULL);
    result = run_expecting(0, "fpack", "--merge", test_path(folder, "parts"), NULL);
    assert_contains(result.err, "yuv420: 1 image as planes (");
    run_result_free(&result);
    result = run_expecting(0, "fpack", "--store", "raw", drawings, test_path(folder, "raw"), NULL);
    assert_null(strstr(result.err, "yuv420"));
    run_result_free(&result);
}

TEST_IN_FOLDER(test_jpeg_encodes_again_at_the_quality_asked_for, folder)
{
    const char *source = make_source(folder);
    source_jpeg(test_path(folder, "photos/train/cat/gray.jpg"), 50, 40, 1, 3);
    const Sums fine =
        sum_up(pack_twice(folder, "fine", source, OPTIONS("--store", "jpeg", "--quality", "95")), NULL);
    const Sums coarse =
        sum_up(pack_twice(folder, "coarse", source, OPTIONS("--store", "jpeg", "--quality", "30")), NULL);
    const Sums by_default = sum_up(pack_twice(folder, "default", source, OPTIONS("--store", "jpeg")), NULL);
    assert_int_equal(fine.jpeg_count, 71);
    assert_true(coarse.stored_bytes < by_default.stored_bytes);
    assert_true(by_default.stored_bytes < fine.stored_bytes);
    json_t *manifest = packed_manifest(test_path(folder, "coarse-1"));
    json_t *options = json_object_get(json_object_get(manifest, "provenance"), "options");
    assert_string_equal(json_string_value(json_object_get(options, "store")), "jpeg");
    assert_int_equal(json_integer_value(json_object_get(options, "quality")), 30);
    json_decref(manifest);
}

/* A JPEG that was made smaller here has the recipe's quality: encoding it a second time would only lose. */
TEST_IN_FOLDER(test_jpeg_made_smaller_is_not_encoded_twice, folder)
{
    const char *source = make_source(folder);
    const Sums copy = sum_up(pack_twice(folder, "copy", source, OPTIONS("--max-size", "16")), NULL);
    const Sums jpeg =
        sum_up(pack_twice(folder, "jpeg", source, OPTIONS("--max-size", "16", "--store", "jpeg")), NULL);
    assert_int_equal(copy.stored_bytes, jpeg.stored_bytes);
    assert_true(copy.sum == jpeg.sum);
}

TEST_IN_FOLDER(test_unchecked_stores_decode_what_they_must, folder)
{
    const char *source = make_source(folder);
    (void)sum_up(pack_twice(folder, "zstd", source, OPTIONS("--store", "zstd", "--no-check")), NULL);
    (void)sum_up(pack_twice(folder, "jpeg", source, OPTIONS("--store", "jpeg", "--no-check")), NULL);
}

TEST_IN_FOLDER(test_shards_of_compressed_samples_have_about_the_size_asked_for, folder)
{
    const char *source = test_path(folder, "flat");
    for (unsigned i = 0; i < 400; i++)
        flat_jpeg(test_path(folder, "flat/a/%03u.jpg", i), 128, (uint8_t)i);
    const char *zstd = test_path(folder, "zstd"); /* 48 KiB of pixels each, of which 50 bytes or so stay */
    run_ok("fpack", "--store", "zstd", "--shard-size", "10K", source, zstd, NULL);
    json_t *manifest = packed_manifest(zstd);
    json_t *files = json_object_get(json_array_get(json_object_get(manifest, "splits"), 0), "files");
    assert_true(json_array_size(files) >= 2);
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_int_t bytes = json_integer_value(json_object_get(json_array_get(files, i), "bytes"));
        if (bytes < 5 * 1024 || bytes > 15 * 1024)
            fail_msg("shard %zu of %zu has %lld bytes", i, json_array_size(files), (long long)bytes);
    }
    json_decref(manifest);
}

/* ---- auto ---- */

TEST_IN_FOLDER(test_auto_takes_small_images_raw, folder)
{
    const char *source = test_path(folder, "photos");
    for (unsigned i = 0; i < 30; i++) /* 3 * 40 * w bytes: 12 of them at most 4800 */
        source_jpeg(test_path(folder, "photos/a/%02u.jpg", i), 29 + i, 40, 3, i);
    const char *packed =
        pack_twice(folder, "auto", source, OPTIONS("--store", "auto", "--raw-under", "4800"));
    const Sums sums = sum_up(packed, NULL);
    assert_int_equal(sums.raw_count, 12);
    assert_int_equal(sums.jpeg_count, 18);
    RunResult result = run_expecting(0, "fpack", "--dry-run", "--json", "--store", "auto", "--raw-under",
                                     "4800", source, test_path(folder, "none"), NULL);
    assert_contains(result.err, "auto: 12 samples raw");
    json_t *json = json_of(result.out);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "chosen"), "raw")), 12);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "chosen"), "copy")), 18);
    json_decref(json);
    run_result_free(&result);
    json_t *manifest = packed_manifest(packed);
    json_t *options = json_object_get(json_object_get(manifest, "provenance"), "options");
    assert_int_equal(json_integer_value(json_object_get(options, "raw_under")), 4800);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(options, "chosen"), "raw")), 12);
    json_decref(manifest);
}

static uint64_t records_bytes(const char *path)
{
    uint64_t bytes = 0;
    FshDataset *dataset = packed_open(path);
    const FshManifest *manifest = fsh_manifest(dataset);
    for (size_t i = 0; i < manifest->split_count; i++)
        bytes += fsh_split_bytes(fsh_split(dataset, manifest->splits[i].name));
    fsh_close(&dataset);
    return bytes;
}

TEST_IN_FOLDER(test_auto_keeps_to_the_budget_and_uses_it, folder)
{
    const char *source = make_source(folder);
    const uint64_t all_raw = records_bytes(pack_twice(folder, "raw", source, OPTIONS("--store", "raw")));
    const uint64_t all_copy = records_bytes(pack_twice(folder, "copy", source, OPTIONS("--store", "copy")));
    uint64_t raw_before = 0;
    for (unsigned part = 0; part <= 4; part++) {
        const uint64_t budget = all_copy + (all_raw - all_copy) * part / 4;
        char text[32];
        (void)snprintf(text, sizeof text, "%" PRIu64, budget);
        char name[32];
        (void)snprintf(name, sizeof name, "auto-%u", part);
        const char *packed = pack_twice(folder, name, source, OPTIONS("--store", "auto", "--budget", text));
        const Sums sums = sum_up(packed, NULL);
        const uint64_t bytes = records_bytes(packed);
        if (bytes > budget || bytes + 8192 < budget) /* one image more would take at most 44 * 30 * 3 bytes */
            fail_msg("budget %" PRIu64 ": %" PRIu64 " bytes", budget, bytes);
        assert_true(part == 0 || sums.raw_count > raw_before);
        raw_before = sums.raw_count;
    }
    assert_int_equal(raw_before, 70); /* with all of it, all */
    RunResult result = run_expecting(0, "fpack", "--store", "auto", "--budget", "10K", source,
                                     test_path(folder, "little"), NULL);
    assert_contains(result.err, "--budget: the files as they are come to");
    run_result_free(&result);
    assert_int_equal(sum_up(test_path(folder, "little"), source).jpeg_count, 70);
}

TEST_IN_FOLDER(test_options_that_would_do_nothing_are_refused, folder)
{
    const char *source = make_source(folder), *packed = test_path(folder, "packed");
    static const struct {
        const char *arguments[6], *message;
    } wrong[] = {
        {{"--store", "auto"}, "--raw-under or --budget"},
        {{"--budget", "1G"}, "--store auto"},
        {{"--store", "raw", "--raw-under", "1K"}, "--store auto"},
        {{"--quality", "80"}, "nothing is encoded"},
        {{"--level", "9"}, "nothing is compressed"},
        {{"--store", "raw", "--dictionary"}, "--dictionary"},
        {{"--store", "auto", "--budget", "1G", "--dictionary"}, "--dictionary"},
        {{"--store", "zstd", "--dictionary-size", "64K"}, "give --dictionary too"},
        {{"--store", "zstd", "--format", "tar"}, "--format tar"},
        {{"--dictionary", "--format", "tar"}, "--format tar"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const char *arguments[9] = {NULL};
        size_t count = 0;
        while (count < 6 && wrong[i].arguments[count]) {
            arguments[count] = wrong[i].arguments[count];
            count++;
        }
        arguments[count++] = source;
        arguments[count] = packed;
        RunResult result = run_program_arguments(NULL, "fpack", arguments);
        assert_int_equal(result.exit_status, 2);
        assert_contains(result.err, wrong[i].message);
        run_result_free(&result);
    }
    assert_false(access(packed, F_OK) == 0);
}

/* ---- dictionaries ---- */

TEST_IN_FOLDER(test_a_dictionary_makes_small_files_small_and_gives_them_back, folder)
{
    const char *source = test_path(folder, "small");
    for (unsigned i = 0; i < 600; i++)
        source_jpeg(test_path(folder, "small/%c/%03u.jpg", 'a' + i % 3, i), 12 + i % 5, 12, 3, i);
    const char *packed =
        pack_twice(folder, "dictionary", source, OPTIONS("--dictionary", "--dictionary-size", "4K"));
    const Sums sums = sum_up(packed, source);
    assert_true(sums.compressed_count > 590);
    if (sums.stored_bytes * 2 > sums.unpacked_bytes)
        fail_msg("%" PRIu64 " bytes of %" PRIu64, sums.stored_bytes, sums.unpacked_bytes);
    /* In LMDB too, and beside encoded and raw images. */
    (void)sum_up(pack_twice(folder, "lmdb", source, OPTIONS("--dictionary", "--dictionary-size", "4K")),
                 source);
    (void)sum_up(pack_twice(folder, "jpeg", source,
                            OPTIONS("--dictionary", "--dictionary-size", "4K", "--store", "jpeg")),
                 NULL);
    (void)sum_up(pack_twice(folder, "zstd", source,
                            OPTIONS("--dictionary", "--dictionary-size", "4K", "--store", "zstd")),
                 NULL);
    /* By parts as by one. */
    const char *parts = test_path(folder, "parts");
    run_ok("fpack", "--shard-size", "32K", "--dictionary", "--dictionary-size", "4K", "--part", "2/2", source,
           parts, NULL);
    run_ok("fpack", "--shard-size", "32K", "--dictionary", "--dictionary-size", "4K", "--part", "1/2", source,
           parts, NULL);
    run_ok("fpack", "--merge", parts, NULL);
    assert_same(parts, packed);
}

TEST_IN_FOLDER(test_too_few_images_for_a_dictionary_are_told, folder)
{
    const char *source = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    source_two_classes(source);
    RunResult result = run_expecting(1, "fpack", "--dictionary", source, packed, NULL);
    assert_contains(result.err, "--dictionary: ");
    run_result_free(&result);
    assert_false(access(packed, F_OK) == 0);
}

/* Returns the bytes of the shards, headers, indexes and all. */
static uint64_t shard_bytes(const char *packed)
{
    uint64_t bytes = 0;
    json_t *manifest = packed_manifest(packed);
    const json_t *splits = json_object_get(manifest, "splits");
    for (size_t i = 0; i < json_array_size(splits); i++) {
        const json_t *files = json_object_get(json_array_get(splits, i), "files");
        for (size_t j = 0; j < json_array_size(files); j++)
            bytes += (uint64_t)json_integer_value(json_object_get(json_array_get(files, j), "bytes"));
    }
    json_decref(manifest);
    return bytes;
}

/* To less than 1 / 2.5 of the JPEGs' own bytes, and so all the more of what a plain copy takes. */
TEST_IN_FOLDER(test_cifar10_in_copy_shrinks, folder)
{
    char source[512];
    const char *data = getenv("FSHARD_DATA");
    (void)snprintf(source, sizeof source, "%s/cifar10", data ? data : "");
    if (!data || access(source, F_OK))
        skip();
    const char *packed = test_path(folder, "packed");
    run_ok("fpack", "--no-check", "--dictionary", source, packed, NULL);
    Sums sums = {.source_root = source};
    each_field(packed, "train", add_field, &sums);
    each_field(packed, "val", add_field, &sums);
    image_decoder_free(&sums.decoder);
    assert_int_equal(sums.count, 60000);
    const uint64_t bytes = shard_bytes(packed);
    if (bytes * 5 > sums.unpacked_bytes * 2)
        fail_msg("%" PRIu64 " bytes of %" PRIu64, bytes, sums.unpacked_bytes);
}

/* ---- kills ---- */

static double run_whole(const char *const *arguments)
{
    RunResult result = run_program_arguments(NULL, "fpack", arguments);
    if (result.exit_status)
        fail_msg("exit status %d: %s", result.exit_status, result.err);
    const double seconds = result.seconds;
    run_result_free(&result);
    return seconds;
}

/* kill -9 at random moments, a hundred times over all stores: what is there is unfinished or verifies, and
 * the run that is let through comes to the bytes of an undisturbed one. */
TEST_IN_FOLDER(test_a_hundred_kills_and_the_same_bytes, folder)
{
    static const char *const stores[][6] = {
        {"--store", "copy"},
        {"--store", "jpeg", "--quality", "70"},
        {"--store", "zstd"},
        {"--store", "auto", "--budget", "3M"},
        {"--dictionary", "--dictionary-size", "2K"},
    };
    enum { STORES = sizeof stores / sizeof stores[0], KILLS = 20 };
    const char *source = test_path(folder, "photos");
    for (unsigned i = 0; i < 300; i++)
        source_jpeg(test_path(folder, "photos/%c/%03u.jpg", 'a' + i % 3, i), 60 + i % 7, 60, 3, i);
    uint32_t random = 12345;
    unsigned killed = 0;
    for (size_t store = 0; store < STORES; store++) {
        const char *whole = test_path(folder, "whole-%zu", store);
        const char *arguments[12] = {"-j2", "--shard-size", "24K"};
        size_t count = 3;
        for (size_t i = 0; i < 6 && stores[store][i]; i++)
            arguments[count++] = stores[store][i];
        arguments[count++] = source;
        arguments[count] = whole;
        double seconds =
            run_whole(arguments); /* shorter where runs come to their end first: machines are shared */
        unsigned killed_now = 0, place = 0, runs_there = 0;
        for (unsigned run = 0; killed_now < KILLS && run < 10 * KILLS; run++) {
            const char *packed = test_path(folder, "packed-%zu-%u", store, place);
            arguments[count] = packed;
            RunningProgram running = run_start(NULL, "fpack", arguments);
            random = random * 1664525 + 1013904223;
            sleep_seconds((random >> 8) / 16777216.0 * seconds);
            (void)kill(running.process, SIGKILL);
            RunResult result = run_wait(&running);
            killed_now += result.exit_status == 128 + SIGKILL;
            run_result_free(&result);
            result = run_program(NULL, "fverify", "--quick", packed, NULL);
            const bool finished =
                access(test_path(folder, "packed-%zu-%u/dataset.json", store, place), F_OK) == 0;
            assert_int_equal(result.exit_status, finished ? 0 : 1);
            run_result_free(&result);
            if (finished)
                seconds *= 0.9;
            if (++runs_there < 5 && !finished)
                continue;
            if (!finished) {
                (void)run_whole(arguments);
                assert_same(packed, whole);
            }
            place++; /* five kills a folder, at most */
            runs_there = 0;
        }
        killed += killed_now;
    }
    if (killed < STORES * KILLS)
        fail_msg("only %u kills", killed);
}
