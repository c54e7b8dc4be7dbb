/* fresize --masks: an image and its mask in one geometry; values and palette stay, and what is no mask is
 * left out with its pair. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "imaging/decode.h"
#include "tests/tools/resize_files.h"

/* Reads the values of a mask; image is the caller's. */
static void read_mask(const char *path, Image *image)
{
    ImageDecoder *decoder = NULL;
    FshError error = {0};
    size_t length = 0;
    char *file = test_file_read(path, &length);
    assert_ok(image_decoder_new(&decoder, &error), &error);
    assert_ok(image_decode_mask(decoder, file, length, 0, image, &error), &error);
    image_decoder_free(&decoder);
    free(file);
}

/* Fails unless each value is one of the source's: nothing was interpolated, or looked up in a palette. */
static void assert_resized(const char *source, const char *target, uint32_t width, uint32_t height)
{
    Image before = {0}, after = {0};
    bool has[256] = {false};
    read_mask(source, &before);
    read_mask(target, &after);
    assert_int_equal(after.width, width);
    assert_int_equal(after.height, height);
    for (size_t i = 0; i < (size_t)before.width * before.height; i++)
        has[before.pixels[i]] = true;
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++) /* a half of an even size: the pixel right and below */
            assert_int_equal(after.pixels[y * width + x],
                             before.pixels[(2 * y + 1) * before.width + 2 * x + 1]);
    for (size_t i = 0; i < (size_t)width * height; i++)
        assert_true(has[after.pixels[i]]);
    image_free(&before);
    image_free(&after);
}

static void make_source(TestFolder *folder)
{
    const char *root = test_path(folder, "in");
    source_masked(root, "train/images", "train/labels", "a", 80, 60, 2);
    source_masked(root, "train/images", "train/labels", "b", 80, 60, 254);
    source_masked(root, "val/images", "val/labels", "small", 36, 30, 7);
}

TEST_IN_FOLDER(test_masks_keep_their_values_and_fpack_takes_them, folder)
{
    make_source(folder);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    /* --format is of images: a mask that became a JPEG would be none */
    run_ok("fresize", "--max-size=30", "--format=jpeg", "--masks=images:labels", in, out, NULL);
    assert_resized(test_path(folder, "in/train/labels/a.png"), test_path(folder, "out/train/labels/a.png"),
                   40, 30);
    assert_resized(test_path(folder, "in/train/labels/b.png"), test_path(folder, "out/train/labels/b.png"),
                   40, 30);
    assert_image(test_path(folder, "out/train/images/a.jpg"), IMAGE_JPEG, 40, 30, 3);
    assert_same_bytes(test_path(folder, "in/val/labels/small.png"),
                      test_path(folder, "out/val/labels/small.png"));
    assert_same_bytes(test_path(folder, "in/val/images/small.jpg"),
                      test_path(folder, "out/val/images/small.jpg"));
    run_ok("fpack", "--masks=images:labels", out, test_path(folder, "shards"), NULL);
    assert_int_equal(packed_count(test_path(folder, "shards"), "train"), 2);
    FshDataset *dataset = packed_open(test_path(folder, "shards"));
    assert_int_equal(fsh_manifest(dataset)->statistics.mask_classes, 255);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_the_same_command_goes_on_and_check_sees, folder)
{
    make_source(folder);
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out"),
               *mask = test_path(folder, "out/train/labels/a.png");
    const char *const arguments[] = {"--max-size=30", "--masks=images:labels", in, out, NULL};
    json_decref(fresize_json(0, arguments));
    size_t length = 0;
    char *first = test_file_read(mask, &length);
    const char *const check[] = {"--check", in, out, NULL}; /* the recipe says that they are masks */
    json_t *summary = fresize_json(0, check);
    assert_int_equal(json_count(summary, "good"), 6);
    json_decref(summary);
    assert_int_equal(unlink(mask), 0);
    summary = fresize_json(1, check);
    assert_int_equal(json_count(summary, "good"), 5);
    assert_int_equal(json_count(summary, "missing"), 1);
    json_decref(summary);
    summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "done_before"), 5);
    assert_int_equal(json_count(summary, "resized"), 1);
    json_decref(summary);
    size_t again_length = 0;
    char *again = test_file_read(mask, &again_length);
    assert_int_equal(again_length, length);
    assert_memory_equal(again, first, length);
    free(first);
    free(again);
    /* another kind of run would make other files of them */
    RunResult result = run_expecting(1, "fresize", "--max-size=30", "--pairs=images:labels", in, out, NULL);
    assert_contains(result.err, "was made with");
    run_result_free(&result);
    result = run_expecting(1, "fresize", "--max-size=30", in, out, NULL);
    assert_contains(result.err, "was made with --masks images:labels, now none");
    run_result_free(&result);
    result = run_expecting(0, "fresize", "--max-size=30", "--pairs=images:labels", in,
                           test_path(folder, "pairs"), NULL);
    assert_contains(result.err, "warning: 2 pairs with a PNG of a palette or of gray on one side alone");
    run_result_free(&result);
    result = run_expecting(0, "fresize", "-q", "--max-size=30", "--pairs=images:labels", in,
                           test_path(folder, "quiet"), NULL);
    assert_int_equal(strncmp(result.err, "fresize: warning: 2 pairs with ", 31), 0); /* and no sums */
    run_result_free(&result);
    result = run_expecting(1, "fresize", "--max-size=30", "--masks=images:labels", in,
                           test_path(folder, "pairs"), NULL);
    assert_contains(result.err, "was made with --pairs images:labels");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_tar_holds_the_same_masks, folder)
{
    make_source(folder);
    const char *in = test_path(folder, "in"), *tar = test_path(folder, "out.tar");
    run_ok("fresize", "--max-size=30", "--masks=images:labels", in, tar, NULL);
    run_ok("fresize", "--max-size=30", "--masks=images:labels", in, test_path(folder, "out"), NULL);
    run_ok("fresize", "--check", in, tar, NULL);
    shell(folder, "mkdir untarred && tar -xf out.tar -C untarred");
    assert_same_bytes(test_path(folder, "untarred/train/labels/a.png"),
                      test_path(folder, "out/train/labels/a.png"));
}

/* Expects that pair `bad` is left out for the reason, in a run and in a dry run, and `good` is not. */
static void expect_left_out(TestFolder *folder, const char *reason)
{
    for (int dry = 1; dry >= 0; dry--) {
        RunResult result =
            run_expecting(1, "fresize", dry ? "--dry-run" : "--quiet", "-v", "--max-size=30",
                          "--masks=images:labels", test_path(folder, "in"), test_path(folder, "out"), NULL);
        assert_contains(result.err, reason);
        run_result_free(&result);
    }
    assert_int_equal(count_outputs(test_path(folder, "out")), 2);
    assert_true(exists(test_path(folder, "out/labels/good.png")));
    shell(folder, "rm -r in out");
}

TEST_IN_FOLDER(test_what_fpack_would_refuse_is_left_out_with_its_pair, folder)
{
    static const uint8_t rows[80 * 61 * 8];
    const struct {
        uint8_t depth, colour;
        uint32_t height;
        const char *reason;
    } cases[] = {{8, 2, 60, "labels/bad.png: a mask is a PNG of a palette or of gray of 1 to 8 bits"},
                 {16, 0, 60, "this one has 16 bits a pixel: write it with 8"},
                 {8, 4, 60, "this one has an alpha channel"},
                 {8, 0, 61, "an image and its mask must be of one size"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buffer file = {0};
        source_masked(test_path(folder, "in"), "images", "labels", "good", 80, 60, 2);
        source_masked(test_path(folder, "in"), "images", "labels", "bad", 80, 60, 2);
        make_png(&(MakePng){.width = 80,
                            .height = cases[i].height,
                            .bit_depth = cases[i].depth,
                            .colour_type = cases[i].colour,
                            .rows = rows},
                 &file);
        test_file_write(test_path(folder, "in/labels/bad.png"), file.bytes, file.length);
        buffer_free(&file);
        expect_left_out(folder, cases[i].reason);
    }
    source_masked(test_path(folder, "in"), "images", "labels", "good", 80, 60, 2);
    source_jpeg(test_path(folder, "in/images/lossy.jpg"), 80, 60, 3, 1);
    source_jpeg(test_path(folder, "in/labels/lossy.jpg"), 80, 60, 1, 1);
    expect_left_out(folder, "this one is jpeg, which changes values");
    source_masked(test_path(folder, "in"), "images", "labels", "good", 80, 60, 2);
    source_masked(test_path(folder, "in"), "images", "labels", "turned", 80, 60, 2);
    source_jpeg_turned(test_path(folder, "in/images/turned.jpg"), 80, 60, 3, 1);
    expect_left_out(folder, "images/turned.jpg: is turned by its EXIF orientation (3)");
}
