/* fresize, what it writes: the real program over images made here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "imaging/decode.h"
#include "imaging/orient.h"
#include "imaging/resample.h"
#include "tests/tools/resize_files.h"

TEST_IN_FOLDER(test_tree_is_mirrored_with_the_short_edge_fitted, folder)
{
    write_jpeg(test_path(folder, "in/cat/a.jpg"),
               (MakeJpeg){.width = 200, .height = 150, .colours = MAKE_RGB});
    write_jpeg(test_path(folder, "in/cat/deep/er/b.JPEG"),
               (MakeJpeg){.width = 150, .height = 211, .colours = MAKE_RGB});
    write_jpeg(test_path(folder, "in/dog/wide.jpg"),
               (MakeJpeg){.width = 900, .height = 90, .colours = MAKE_RGB});
    write_jpeg(test_path(folder, "in/dog/thin.jpg"),
               (MakeJpeg){.width = 1, .height = 400, .colours = MAKE_RGB});
    test_file_write_text(test_path(folder, "in/dog/README.txt"), "words");
    test_file_write_text(test_path(folder, "in/.hidden.jpg"), "not looked at");
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    RunResult result = run_expecting(0, "fresize", "--max-size", "60", in, out, NULL);
    assert_contains(result.err, "4 images: 3 resized, 1 copied");
    assert_contains(result.err, "1 other file left alone");
    assert_string_equal(result.out, "");
    run_result_free(&result);
    assert_image(test_path(folder, "out/cat/a.jpg"), IMAGE_JPEG, 80, 60, 3);
    assert_image(test_path(folder, "out/cat/deep/er/b.JPEG"), IMAGE_JPEG, 60, 84, 3);
    assert_image(test_path(folder, "out/dog/wide.jpg"), IMAGE_JPEG, 600, 60, 3);
    assert_same_bytes(test_path(folder, "out/dog/thin.jpg"), test_path(folder, "in/dog/thin.jpg"));
    assert_int_equal(count_outputs(out), 4);

    const char *by_long = test_path(folder, "long");
    run_ok("fresize", "--edge", "long", "--max_size=100", "--src", in, "--dst", by_long, NULL);
    assert_image(test_path(folder, "long/cat/a.jpg"), IMAGE_JPEG, 100, 75, 3);
    assert_image(test_path(folder, "long/dog/wide.jpg"), IMAGE_JPEG, 100, 10, 3);
    assert_image(test_path(folder, "long/dog/thin.jpg"), IMAGE_JPEG, 1, 100, 3);
}

TEST_IN_FOLDER(test_small_images_are_copied_byte_for_byte, folder)
{
    /* a quality and a marker that writing anew would lose */
    write_jpeg(
        test_path(folder, "in/exact.jpg"),
        (MakeJpeg){.width = 64, .height = 80, .colours = MAKE_RGB, .quality = 33, .progressive = true});
    write_jpeg(test_path(folder, "in/small.jpg"),
               (MakeJpeg){.width = 20, .height = 30, .colours = MAKE_GRAY, .orientation = 1});
    run_ok("fresize", "--max-size", "64", test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_same_bytes(test_path(folder, "out/exact.jpg"), test_path(folder, "in/exact.jpg"));
    assert_same_bytes(test_path(folder, "out/small.jpg"), test_path(folder, "in/small.jpg"));
}

/* What is written must look like what a viewer shows of the source, whether or not it was made smaller. */
TEST_IN_FOLDER(test_orientation_is_applied_to_large_and_small, folder)
{
    for (uint8_t orientation = 2; orientation <= 8; orientation++) {
        MakeJpeg options = {.width = 80, .height = 40, .colours = MAKE_RGB, .orientation = orientation};
        write_jpeg(test_path(folder, "in/large%u.jpg", orientation), options);
        options.width = 40;
        options.height = 20;
        write_jpeg(test_path(folder, "in/small%u.jpg", orientation), options);
    }
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    RunResult result = run_expecting(0, "fresize", "--max-size", "20", in, out, NULL);
    assert_contains(result.err, "7 resized, 7 converted");
    assert_contains(result.err, "14 orientation");
    run_result_free(&result);
    Image plain = {0}, upright = {0}, read = {0};
    ImageInfo info = {0};
    uint8_t *pixels = make_pixels(40, 20, 3);
    assert_int_equal(image_reserve(&plain, 40, 20, 3, NULL), FSH_OK);
    memcpy(plain.pixels, pixels, 40 * 20 * 3);
    for (uint8_t orientation = 2; orientation <= 8; orientation++) {
        assert_int_equal(image_orient(&plain, orientation, &upright, NULL), FSH_OK);
        static const char *const names[] = {"large", "small"};
        for (size_t i = 0; i < 2; i++) {
            read_image(test_path(folder, "out/%s%u.jpg", names[i], orientation), &read, &info);
            assert_int_equal(read.width, upright.width);
            assert_int_equal(info.orientation, 1);
            if (psnr(read.pixels, upright.pixels, 40 * 20 * 3) < 30)
                fail_msg("%s%u.jpg: %.1f dB", names[i], orientation,
                         psnr(read.pixels, upright.pixels, 40 * 20 * 3));
        }
    }
    free(pixels);
    image_free(&plain);
    image_free(&upright);
    image_free(&read);

    const char *ignored = test_path(folder, "ignored");
    run_ok("fresize", "--orient", "ignore", "--max-size", "20", in, ignored, NULL);
    assert_image(test_path(folder, "ignored/large6.jpg"), IMAGE_JPEG, 40, 20, 3);
    assert_same_bytes(test_path(folder, "ignored/small6.jpg"), test_path(folder, "in/small6.jpg"));
}

TEST_IN_FOLDER(test_gray_stays_gray_and_kinds_of_jpeg_are_read, folder)
{
    write_jpeg(test_path(folder, "in/gray.jpg"), (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_GRAY});
    write_jpeg(test_path(folder, "in/progressive.jpg"),
               (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_RGB, .progressive = true});
    write_jpeg(test_path(folder, "in/arithmetic.jpg"),
               (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_RGB, .arithmetic = true});
    run_ok("fresize", "--max-size", "30", test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_image(test_path(folder, "out/gray.jpg"), IMAGE_JPEG, 45, 30, 1);
    assert_image(test_path(folder, "out/progressive.jpg"), IMAGE_JPEG, 45, 30, 3);
    assert_image(test_path(folder, "out/arithmetic.jpg"), IMAGE_JPEG, 45, 30, 3);
}

/* Pixels are those of the resampler on a full decode, through one JPEG: quality, subsampling and filter as
 * asked for. */
TEST_IN_FOLDER(test_exact_pixels_and_the_options_that_change_them, folder)
{
    write_jpeg(test_path(folder, "in/a.jpg"), (MakeJpeg){.width = 480, .height = 360, .colours = MAKE_RGB});
    const char *in = test_path(folder, "in");
    Image source = {0}, expected = {0}, read = {0};
    ImageInfo info = {0};
    Resampler *resampler = NULL;
    assert_int_equal(resampler_new(&resampler, NULL), FSH_OK);
    read_image(test_path(folder, "in/a.jpg"), &source, &info);
    assert_int_equal(resample(resampler, &source, NULL, 80, 60, RESAMPLE_LANCZOS, &expected, NULL), FSH_OK);
    run_ok("fresize", "--max-size=60", "--exact", "--quality=100", "--subsampling=444", in,
           test_path(folder, "exact"), NULL);
    read_image(test_path(folder, "exact/a.jpg"), &read, &info);
    assert_true(psnr(expected.pixels, read.pixels, 80 * 60 * 3) > 50);
    uint64_t exact = test_file_size(test_path(folder, "exact/a.jpg"));
    run_ok("fresize", "--max-size=60", "--quality=100", "--subsampling=444", in, test_path(folder, "fast"),
           NULL);
    read_image(test_path(folder, "fast/a.jpg"), &read, &info);
    assert_true(psnr(expected.pixels, read.pixels, 80 * 60 * 3) > 40);
    run_ok("fresize", "--max-size=60", "--quality=30", in, test_path(folder, "coarse"), NULL);
    assert_true(test_file_size(test_path(folder, "coarse/a.jpg")) < exact / 2);
    run_ok("fresize", "--max-size=60", "--exact", "--quality=100", "--subsampling=444", "--filter=box", in,
           test_path(folder, "box"), NULL);
    size_t box_length = 0, lanczos_length = 0;
    char *box = test_file_read(test_path(folder, "box/a.jpg"), &box_length);
    char *lanczos = test_file_read(test_path(folder, "exact/a.jpg"), &lanczos_length);
    assert_true(box_length != lanczos_length || memcmp(box, lanczos, box_length) != 0);
    free(box);
    free(lanczos);
    image_free(&source);
    image_free(&expected);
    image_free(&read);
    resampler_free(&resampler);
}

TEST_IN_FOLDER(test_names_decide_formats, folder)
{
    if (!png_is_supported())
        skip();
    write_png(test_path(folder, "in/large.png"), 90, 60);
    write_png(test_path(folder, "in/small.png"), 30, 20);
    write_png(test_path(folder, "in/large_png.JPEG"), 90, 60); /* as one file of ImageNet is */
    write_png(test_path(folder, "in/small_png.JPEG"), 30, 20);
    write_jpeg(test_path(folder, "in/jpeg.png"), (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_RGB});
    write_png(test_path(folder, "in/no_extension"), 90, 60);
    write_jpeg(test_path(folder, "in/hash.0f3a"), (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_RGB});
    test_file_write(test_path(folder, "in/picture.ppm"), "P6\n2 1\n255\n\1\2\3\4\5\6", 17);
    const char *report = test_path(folder, "report.jsonl");
    RunResult result = run_expecting(0, "fresize", "--max-size", "30", "--report", report,
                                     test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_contains(result.err, "8 images: 5 resized, 2 converted, 1 copied");
    assert_contains(result.err, "3 extension");
    run_result_free(&result);
    assert_image(test_path(folder, "out/large.png"), IMAGE_PNG, 45, 30, 3);
    assert_same_bytes(test_path(folder, "out/small.png"), test_path(folder, "in/small.png"));
    assert_image(test_path(folder, "out/large_png.JPEG"), IMAGE_JPEG, 45, 30, 3);
    assert_image(test_path(folder, "out/small_png.JPEG"), IMAGE_JPEG, 30, 20, 3);
    assert_image(test_path(folder, "out/jpeg.png"), IMAGE_PNG, 45, 30, 3);
    assert_image(test_path(folder, "out/no_extension"), IMAGE_PNG, 45, 30, 3);
    assert_image(test_path(folder, "out/hash.0f3a"), IMAGE_JPEG, 45, 30, 3);
    assert_image(test_path(folder, "out/picture.png"), IMAGE_PNG, 2, 1, 3);
    char *lines = test_file_read(report, NULL);
    assert_contains(lines,
                    "{\"path\":\"large_png.JPEG\",\"status\":\"resized\",\"format\":\"png\",\"width\":90,"
                    "\"height\":60,\"bytes\":");
    assert_contains(lines, "\"quirks\":[\"extension\"],\"target\":\"large_png.JPEG\",\"new_format\":\"jpeg\","
                           "\"new_width\":45,\"new_height\":30,\"new_bytes\":");
    free(lines);
}

TEST_IN_FOLDER(test_two_sources_of_one_name_lose_nothing, folder)
{
    if (!png_is_supported())
        skip();
    write_png(test_path(folder, "in/a.png"), 10, 8);
    test_file_write(test_path(folder, "in/a.gif"), "GIF89a", 6);
    test_file_write(test_path(folder, "in/b.pgm"), "P5\n1 1\n255\n\1", 12);
    test_file_write(test_path(folder, "in/b.ppm"), "P6\n1 1\n255\n\1\1\1", 14);
    RunResult result = run_expecting(1, "fresize", test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_contains(result.err,
                    "fresize: a.gif: would be written to a.png, as a.png is; rename one of them; left out");
    assert_contains(result.err, "fresize: b.ppm: would be written to b.png, as b.pgm is");
    assert_contains(result.err, "1 converted, 1 copied, 2 failed");
    run_result_free(&result);
    assert_same_bytes(test_path(folder, "out/a.png"), test_path(folder, "in/a.png"));
    assert_image(test_path(folder, "out/b.png"), IMAGE_PNG, 1, 1, 1);
}

TEST_IN_FOLDER(test_image_renamed_to_the_name_of_a_folder_is_left_out, folder)
{
    write_many(folder, "in/a.png", 2, 20);
    write_many(folder, "in/a.png-other", 1, 20);
    write_many(folder, "in/0", 1, 20);
    test_file_write(test_path(folder, "in/a.gif"), "GIF89a", 6);
    RunResult result = run_expecting(1, "fresize", test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_contains(result.err, "fresize: a.gif: would be written to a.png, which is a folder; rename");
    assert_contains(result.err, "4 copied, 1 failed");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_cmyk_and_profiles_become_srgb, folder)
{
    if (!png_is_supported())
        skip();
    uint8_t icc[1024];
    size_t icc_length = make_icc(false, MAKE_CURVE_GAMMA, "Wide RGB", icc);
    write_jpeg(test_path(folder, "in/cmyk_large.jpg"),
               (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_CMYK});
    write_jpeg(test_path(folder, "in/cmyk_small.jpg"),
               (MakeJpeg){.width = 30, .height = 20, .colours = MAKE_YCCK});
    write_jpeg(
        test_path(folder, "in/profile.jpg"),
        (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_RGB, .icc = icc, .icc_length = icc_length});
    write_jpeg(test_path(folder, "in/useless.jpg"),
               (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_RGB, .icc = icc, .icc_length = 180});
    const char *in = test_path(folder, "in");
    RunResult result =
        run_expecting(0, "fresize", "--max-size=30", "--quality=100", in, test_path(folder, "out"), NULL);
    assert_contains(result.err, "3 resized, 1 converted");
    assert_contains(result.err, "2 cmyk, 2 icc, 1 warning");
    run_result_free(&result);
    assert_image(test_path(folder, "out/cmyk_large.jpg"), IMAGE_JPEG, 45, 30, 3);
    assert_image(test_path(folder, "out/cmyk_small.jpg"), IMAGE_JPEG, 30, 20, 3);
    run_ok("fresize", "--max-size=30", "--quality=100", "--icc=ignore", in, test_path(folder, "ignored"),
           NULL);
    Image converted = {0}, ignored = {0}, useless = {0};
    ImageInfo info = {0};
    read_image(test_path(folder, "out/profile.jpg"), &converted, &info);
    assert_int_equal(info.quirks, 0); /* no profile is left */
    read_image(test_path(folder, "ignored/profile.jpg"), &ignored, &info);
    read_image(test_path(folder, "out/useless.jpg"), &useless, &info);
    assert_true(psnr(converted.pixels, ignored.pixels, 45 * 30 * 3) < 35);
    assert_true(psnr(useless.pixels, ignored.pixels, 45 * 30 * 3) > 45);
    image_free(&converted);
    image_free(&ignored);
    image_free(&useless);
}

TEST_IN_FOLDER(test_bad_images_are_named_and_left_out, folder)
{
    write_jpeg(test_path(folder, "in/good.jpg"), (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_RGB});
    write_jpeg(test_path(folder, "in/cut_large.jpg"),
               (MakeJpeg){.width = 90, .height = 60, .colours = MAKE_RGB});
    write_jpeg(test_path(folder, "in/cut_small.jpg"),
               (MakeJpeg){.width = 30, .height = 20, .colours = MAKE_RGB});
    test_file_truncate(test_path(folder, "in/cut_large.jpg"), -100);
    test_file_truncate(test_path(folder, "in/cut_small.jpg"), -100);
    test_file_write_text(test_path(folder, "in/text.jpg"), "I am no photograph");
    test_file_write_text(test_path(folder, "in/empty.jpg"), "");
    write_jpeg(test_path(folder, "in/bomb.jpg"),
               (MakeJpeg){.width = 200, .height = 200, .colours = MAKE_RGB});
    const char *report = test_path(folder, "report.jsonl");
    RunResult result = run_expecting(1, "fresize", "--max-size=30", "--max-pixels=39999", "--report", report,
                                     test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_contains(result.err, "fresize: cut_large.jpg: premature end of JPEG file; left out");
    assert_contains(result.err, "fresize: cut_small.jpg: premature end of JPEG file; left out");
    assert_contains(result.err, "fresize: text.jpg: not an image of a known format; left out");
    assert_contains(result.err, "fresize: empty.jpg: the file is empty; left out");
    assert_contains(result.err, "fresize: bomb.jpg: the header claims 200 x 200 pixels");
    assert_contains(result.err, "6 images: 1 resized, 5 failed");
    run_result_free(&result);
    assert_int_equal(count_outputs(test_path(folder, "out")), 1); /* good.jpg, nothing half-written */
    char *lines = test_file_read(report, NULL);
    assert_contains(
        lines, "{\"path\":\"text.jpg\",\"status\":\"failed\",\"reason\":\"not an image of a known format\"");
    free(lines);

    result = run_expecting(1, "fresize", "--on-error", "fail", test_path(folder, "in"),
                           test_path(folder, "stopped"), NULL);
    assert_contains(result.err,
                    "fresize: cut_large.jpg: premature end of JPEG file; stopped, as --on-error fail asks");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_unreadable_files_are_named, folder)
{
    write_jpeg(test_path(folder, "in/good.jpg"), (MakeJpeg){.width = 9, .height = 6, .colours = MAKE_RGB});
    assert_int_equal(symlink("nowhere", test_path(folder, "in/dangling.jpg")), 0);
    RunResult result = run_expecting(1, "fresize", test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_contains(result.err, "fresize: dangling.jpg: ");
    assert_contains(result.err, "1 copied, 1 failed");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_number_of_threads_changes_no_byte, folder)
{
    for (uint32_t i = 0; i < 24; i++)
        write_jpeg(
            test_path(folder, "in/%u/%u.jpg", i % 3, i),
            (MakeJpeg){.width = 60 + 11 * i, .height = 50 + 7 * i, .colours = i % 5 ? MAKE_RGB : MAKE_GRAY});
    run_ok("fresize", "-j1", "--max-size=48", test_path(folder, "in"), test_path(folder, "one"), NULL);
    run_ok("fresize", "-j2", "--max-size=48", test_path(folder, "in"), test_path(folder, "two"), NULL);
    run_ok("fresize", "-j9", "--max-size=48", test_path(folder, "in"), test_path(folder, "nine"), NULL);
    char *difference = test_tree_difference(test_path(folder, "one"), test_path(folder, "two"));
    assert_null(difference);
    difference = test_tree_difference(test_path(folder, "one"), test_path(folder, "nine"));
    assert_null(difference);
    assert_int_equal(count_outputs(test_path(folder, "one")), 24);
}

/* The last: permissions hold from here on. */
TEST_IN_FOLDER(test_file_without_permission_is_named, folder)
{
    if (!test_bind_to_permissions()) {
        print_message("skipped: permissions cannot be made to hold for root here\n");
        skip();
    }
    write_jpeg(test_path(folder, "in/good.jpg"), (MakeJpeg){.width = 9, .height = 6, .colours = MAKE_RGB});
    write_jpeg(test_path(folder, "in/secret.jpg"), (MakeJpeg){.width = 9, .height = 6, .colours = MAKE_RGB});
    assert_int_equal(chmod(test_path(folder, "in/secret.jpg"), 0), 0);
    RunResult result = run_expecting(1, "fresize", test_path(folder, "in"), test_path(folder, "out"), NULL);
    assert_contains(result.err, "fresize: secret.jpg: cannot open: Permission denied; left out");
    run_result_free(&result);
    /* a destination that cannot be written is one error, with its path, not one for each image */
    assert_int_equal(mkdir(test_path(folder, "locked"), 0555), 0);
    result = run_expecting(1, "fresize", test_path(folder, "in"), test_path(folder, "locked/out"), NULL);
    assert_contains(result.err, "locked/out");
    assert_contains(result.err, "Permission denied");
    run_result_free(&result);
}
