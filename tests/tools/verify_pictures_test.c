/* fverify's page and sheet: what is wrong is shown first, as pictures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imaging/decode.h"
#include "tests/tools/sources.h"

enum { CELL = 132, ROW = CELL + 24, TITLE = 26, MARGIN = 4 }; /* of a sheet, in pixels */

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

/* Returns the text from one mark up to the next, which must come after it; the caller frees it. */
static char *between(const char *text, const char *from, const char *to)
{
    const char *begin = strstr(text, from), *end = begin ? strstr(begin, to) : NULL;
    assert_non_null(begin);
    assert_non_null(end);
    return begin && end ? strndup(begin, (size_t)(end - begin)) : NULL;
}

static void expect_size(const char *path, uint32_t width, uint32_t height)
{
    ImageDecoder *decoder = NULL;
    ImageInfo info = {0};
    size_t length = 0;
    char *bytes = test_file_read(path, &length);
    assert_ok(image_decoder_new(&decoder, NULL), NULL);
    assert_ok(image_probe(decoder, bytes, length, &info, NULL), NULL);
    assert_int_equal(info.width, width);
    assert_int_equal(info.height, height);
    image_decoder_free(&decoder);
    free(bytes);
}

/* Packs four pairs, of which the third has a side upside down: another picture. Returns the dataset. */
static const char *pack_pairs(TestFolder *folder)
{
    for (unsigned i = 0; i < 4; i++) {
        source_jpeg(test_path(folder, "pairs/blurry/%u.jpg", i), 64, 48, 3, i);
        source_jpeg(test_path(folder, "pairs/sharp/%u.jpg", i), 64, 48, 3, i);
    }
    source_jpeg_turned(test_path(folder, "pairs/sharp/2.jpg"), 64, 48, 3, 2);
    const char *packed = test_path(folder, "packed");
    run_ok("fpack", "--pairs", "blurry:sharp", test_path(folder, "pairs"), packed, NULL);
    return packed;
}

TEST_IN_FOLDER(test_suspicious_pairs_come_first_on_the_page, folder)
{
    const char *packed = pack_pairs(folder), *page = test_path(folder, "page.html");
    run_forget(run_expecting(1, "fverify", "--pairs", "--html", page, packed, NULL));
    char *text = test_file_read(page, NULL),
         *suspects = between(text, ">Suspicious pairs: 1<", ">Problems: 1<"),
         *problems = between(text, ">Problems: 1<", ">Splits<");
    assert_int_equal(count_of(suspects, "<img "), 2);
    assert_contains(suspects, "<b>2</b><br><em>likeness 0.");
    assert_contains(suspects, "<small>blurry</small>");
    assert_contains(suspects, "<small>sharp</small>");
    assert_int_equal(count_of(problems, "<img "), 0); /* it is shown once */
    assert_contains(problems, "suspicious: its sides do not look alike");
    free(suspects);
    free(problems);
    free(text);
    run_ok("fverify", "--force", "--html", page, packed, NULL); /* without --pairs nothing is suspected */
    text = test_file_read(page, NULL);
    assert_contains_not(text, "Suspicious");
    free(text);
}

TEST_IN_FOLDER(test_suspicious_pairs_come_first_in_the_sheet, folder)
{
    const char *packed = pack_pairs(folder), *sheet = test_path(folder, "sheet.jpg");
    run_ok("fverify", "--sheet", sheet, packed, NULL);
    expect_size(sheet, 2 * 2 * CELL + MARGIN, 2 * ROW + MARGIN); /* four pairs, two in a row */
    RunResult result = run_expecting(1, "fverify", "--force", "--pairs", "--sheet", sheet, packed, NULL);
    assert_contains(result.out, "; 1 suspicious");
    run_result_free(&result);
    /* A title and a row of their own. */
    expect_size(sheet, 2 * 2 * CELL + MARGIN, TITLE + ROW + TITLE + 2 * ROW + MARGIN);
    /* What would stop it is told before the work. */
    result = run_expecting(1, "fverify", "--pairs", "--sheet", sheet, packed, NULL);
    assert_contains(result.err, "sheet.jpg: exists already; --force replaces it");
    assert_string_equal(result.out, "");
    run_result_free(&result);
    result = run_expecting(2, "fverify", "--pairs", "--sheet", test_path(folder, "s.txt"), packed, NULL);
    assert_contains(result.err, "should end in .jpg");
    assert_string_equal(result.out, "");
    run_result_free(&result);
}

/* One that does not decode, one whose checksum is wrong and that does, and one shard that is gone. */
TEST_IN_FOLDER(test_problems_are_pictures_or_say_why_there_is_none, folder)
{
    const char *page = test_path(folder, "page.html"), *packed = test_path(folder, "packed"),
               *sheet = test_path(folder, "sheet.png");
    const char *shard = test_path(folder, "packed/train-00000-of-00001.fshard");
    source_two_classes(test_path(folder, "photos"));
    source_jpeg(test_path(folder, "photos/cat/1.jpg"), 40, 30, 3, 77);
    run_ok("fpack", test_path(folder, "photos"), packed, NULL);
    size_t length = 0, bytes = 0;
    char *all = test_file_read(shard, &length);
    char *image = test_file_read(test_path(folder, "photos/cat/1.jpg"), &bytes);
    char *at = memmem(all, length, image, bytes);
    assert_non_null(at);
    memset(at + 2, 0, 40); /* no markers where they should be */
    test_file_write(shard, all, length);
    free(image);
    free(all);
    run_forget(run_expecting(1, "fverify", "--decode", "--html", page, packed, NULL));
    char *text = test_file_read(page, NULL), *problems = between(text, ">Problems: ", ">Splits<");
    assert_int_equal(count_of(problems, "<img "), 0);
    assert_int_equal(count_of(problems, "<div class=\"none\">"), 1);
    char *box = between(problems, "<div class=\"none\">", "</div>");
    assert_true(strlen(box) > strlen("<div class=\"none\">") + 5); /* with the reason */
    assert_contains(problems, "<b>cat</b><br><em>CRC32C is ");
    free(box);
    free(problems);
    free(text);
    run_forget(run_expecting(1, "fverify", "--decode", "--sheet", sheet, packed, NULL));
    expect_size(sheet, 3 * CELL + MARGIN, TITLE + ROW + TITLE + 2 * ROW + MARGIN);
}

/* Without one of its shards a dataset cannot be opened: each file is looked at by itself. */
TEST_IN_FOLDER(test_problems_are_shown_where_the_dataset_cannot_be_opened, folder)
{
    const char *page = test_path(folder, "page.html"), *packed = test_path(folder, "packed");
    source_two_classes(test_path(folder, "photos/train"));
    source_two_classes(test_path(folder, "photos/val"));
    run_ok("fpack", test_path(folder, "photos"), packed, NULL);
    test_file_flip_byte(test_path(folder, "packed/train-00000-of-00001.fshard"), 900);
    assert_int_equal(remove(test_path(folder, "packed/val-00000-of-00001.fshard")), 0);
    run_forget(run_expecting(1, "fverify", "--html", page, packed, NULL));
    char *text = test_file_read(page, NULL), *problems = between(text, ">Problems: ", ">Splits<");
    assert_int_equal(count_of(problems, "<figure>"), 1);
    assert_contains(problems, "CRC32C is ");
    free(problems);
    free(text);
}

/* Nor do suspicious pairs get lost there. */
TEST_IN_FOLDER(test_suspicious_pairs_are_shown_where_the_dataset_cannot_be_opened, folder)
{
    const char *page = test_path(folder, "page.html"), *packed = test_path(folder, "packed");
    for (unsigned i = 0; i < 2; i++) {
        source_jpeg(test_path(folder, "pairs/train/blurry/%u.jpg", i), 64, 48, 3, 2);
        source_jpeg(test_path(folder, "pairs/train/sharp/%u.jpg", i), 64, 48, 3, 2);
        source_jpeg(test_path(folder, "pairs/val/blurry/%u.jpg", i), 64, 48, 3, 2);
        source_jpeg(test_path(folder, "pairs/val/sharp/%u.jpg", i), 64, 48, 3, 2);
    }
    source_jpeg_turned(test_path(folder, "pairs/train/sharp/1.jpg"), 64, 48, 3, 2);
    run_ok("fpack", "--pairs", "blurry:sharp", test_path(folder, "pairs"), packed, NULL);
    assert_int_equal(remove(test_path(folder, "packed/val-00000-of-00001.fshard")), 0);
    run_forget(run_expecting(1, "fverify", "--pairs", "--html", page, packed, NULL));
    char *text = test_file_read(page, NULL), *problems = between(text, ">Problems: ", ">Splits<");
    assert_int_equal(count_of(problems, "<img "), 2);
    assert_contains(problems, "<em>suspicious: its sides do not look alike");
    free(problems);
    free(text);
}

TEST_IN_FOLDER(test_charts_have_axes_with_round_numbers_and_units, folder)
{
    const char *page = test_path(folder, "page.html"), *packed = test_path(folder, "packed");
    source_class(test_path(folder, "photos"), "cat", 9);
    source_jpeg(test_path(folder, "photos/dog/large.jpg"), 300, 90, 3, 1);
    run_ok("fpack", test_path(folder, "photos"), packed, NULL);
    run_ok("fverify", "--html", page, packed, NULL);
    char *text = test_file_read(page, NULL), *width = between(text, ">Width <", "</figure>");
    static const char *const parts[] = {" to 300 px, ",
                                        ">images</span>",
                                        ">32 px</text>",
                                        ">64 px</text>",
                                        ">128 px</text>",
                                        ">256 px</text>",
                                        "text-anchor=\"end\">0</text>",
                                        "text-anchor=\"end\">10</text>",
                                        "<title>from 256 px: 1</title>"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_contains(width, parts[i]);
    assert_contains_not(width, "text-anchor=\"end\">9</text>");
    char *bytes = between(text, ">Bytes of an image <", "</figure>");
    assert_contains(bytes, " KiB</text>");
    free(bytes);
    free(width);
    free(text);
}

TEST_IN_FOLDER(test_many_classes_have_a_chart_and_a_table, folder)
{
    const char *page = test_path(folder, "page.html"), *packed = test_path(folder, "packed");
    char name[32];
    for (unsigned i = 0; i < 60; i++) {
        (void)snprintf(name, sizeof name, "class%02u", i);
        source_class(test_path(folder, "photos"), name, i == 59 ? 5 : 1);
    }
    run_ok("fpack", test_path(folder, "photos"), packed, NULL);
    run_ok("fverify", "--html", page, packed, NULL);
    char *text = test_file_read(page, NULL), *classes = between(text, ">Classes<", ">Sizes<");
    assert_contains(classes, "classes from the largest, 5, to the smallest, 1<");
    assert_int_equal(count_of(classes, "<rect "), 60);
    assert_contains(classes, ">50</text>"); /* the axis counts classes */
    assert_contains(classes,
                    "<tr><td>class59<td class=\"n\">5<td class=\"share\"><i style=\"width:100.0%\">");
    assert_contains(classes, "<tr><td>class00<td class=\"n\">1<td class=\"share\"><i style=\"width:20.0%\">");
    free(classes);
    free(text);
}

/* Values 1 and 2 are dark red and dark green there, and not two blacks. */
TEST_IN_FOLDER(test_masks_are_shown_in_colours, folder)
{
    enum { EDGE = 20 };
    const char *sheet = test_path(folder, "sheet.png");
    uint8_t values[EDGE * EDGE];
    for (size_t i = 0; i < sizeof values; i++)
        values[i] = i < sizeof values / 2 ? 1 : 2;
    source_jpeg(test_path(folder, "in/images/a.jpg"), EDGE, EDGE, 1, 1);
    source_mask(test_path(folder, "in/labels/a.png"), EDGE, EDGE, values, false);
    run_ok("fpack", "--masks", "images:labels", test_path(folder, "in"), test_path(folder, "shards"), NULL);
    run_ok("fverify", "--sheet", sheet, test_path(folder, "shards"), NULL);
    ImageDecoder *decoder = NULL;
    Image image = {0};
    FshError error = {0};
    size_t length = 0, red = 0, green = 0;
    char *file = test_file_read(sheet, &length);
    assert_ok(image_decoder_new(&decoder, &error), &error);
    assert_ok(image_decode(decoder, file, length, &(ImageDecodeOptions){.channels = 3}, &image, NULL, &error),
              &error);
    for (size_t i = 0; i < (size_t)image.width * image.height; i++) {
        const uint8_t *pixel = image.pixels + i * 3;
        red += pixel[0] == 128 && pixel[1] == 0 && pixel[2] == 0;
        green += pixel[0] == 0 && pixel[1] == 128 && pixel[2] == 0;
    }
    assert_int_equal(red, EDGE * EDGE / 2);
    assert_int_equal(green, EDGE * EDGE / 2);
    free(file);
    image_free(&image);
    image_decoder_free(&decoder);
}

TEST_IN_FOLDER(test_a_wrong_source_folder_is_told_once_on_the_page, folder)
{
    const char *photos = test_path(folder, "photos"), *packed = test_path(folder, "packed"),
               *page = test_path(folder, "page.html");
    source_class(photos, "cat", 20);
    run_ok("fpack", photos, packed, NULL);
    source_jpeg(test_path(folder, "other/cat/9.jpg"), 40, 30, 3, 1000); /* the last */
    run_forget(
        run_expecting(1, "fverify", "--against", test_path(folder, "other"), "--html", page, packed, NULL));
    char *text = test_file_read(page, NULL);
    const char *heading = strstr(text, "Problems: 20</h2>"),
               *told = strstr(text, "--against: 1 of the 20 images that records name is below ");
    assert_non_null(heading);
    assert_non_null(told);
    assert_true(heading < told && told < strstr(text, "is not what its source in "));
    assert_contains(told, "it is likely another folder than the one that was packed, which fpack was given ");
    assert_int_equal(count_of(text, "cannot open"), 2 * 3); /* below pictures, and in the table */
    assert_int_equal(count_of(text, "is not what its source in "), 2);
    assert_contains(text, "and 16 more: --json lists them.");
    free(text);
}
