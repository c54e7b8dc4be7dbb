/* fverify's other ways: list, extract, repair, sheet, page. Names are hostile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "imaging/decode.h"
#include "tests/tools/sources.h"

/* Writes a shard of one record of one field: an image of 40 x 30 under this key and source. Returns its path.
 */
static const char *write_named(TestFolder *folder, const char *file, const char *key, const char *source)
{
    static const char *const classes[] = {"<script>alert(1)</script>", "..", "/"};
    const char *shard = test_path(folder, "%s", file);
    size_t length = 0;
    source_jpeg(test_path(folder, "made/x.jpg"), 40, 30, 3, 1);
    char *bytes = test_file_read(test_path(folder, "made/x.jpg"), &length);
    const FshSample sample = {.key = key,
                              .key_bytes = strlen(key),
                              .field_count = 1,
                              .fields = {{.data = bytes,
                                          .bytes = length,
                                          .width = 40,
                                          .height = 30,
                                          .channels = 3,
                                          .codec = FSH_CODEC_JPEG,
                                          .source = source,
                                          .source_bytes = strlen(source)}}};
    FshWriter *writer = shard_writer(shard, classes, 3);
    FshError error = {0};
    assert_ok(fsh_writer_put(writer, &sample, &error), &error);
    assert_ok(fsh_writer_finish(writer, NULL, &error), &error);
    fsh_writer_close(&writer);
    free(bytes);
    return shard;
}

/* ---- extract ---- */

static void expect_round_trip(TestFolder *folder, const char *source, const char *const *options)
{
    static unsigned count; /* of folders made by this test program */
    const char *packed = test_path(folder, "packed%u", count), *out = test_path(folder, "out%u", count);
    const char *arguments[8] = {NULL};
    size_t filled = 0;
    count++;
    while (options[filled]) {
        arguments[filled] = options[filled];
        filled++;
    }
    arguments[filled++] = source;
    arguments[filled] = packed;
    RunResult result = run_program_arguments(NULL, "fpack", arguments);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    run_ok("fverify", "--extract", out, packed, NULL);
    char *difference = test_tree_difference(source, out);
    if (difference)
        fail_msg("%s", difference);
}

TEST_IN_FOLDER(test_pack_then_extract_gives_identical_files, folder)
{
    const char *photos = test_path(folder, "photos"), *pairs = test_path(folder, "pairs");
    static const char *const copy[] = {NULL}, *const lmdb[] = {"--format", "lmdb", NULL};
    static const char *const sides[] = {"--pairs", "blurry:sharp", NULL};
    source_two_classes(test_path(folder, "photos/train"));
    source_class(test_path(folder, "photos/val"), "dog", 1);
    source_jpeg(test_path(folder, "photos/train/cat/two words/ümläut.JPEG"), 20, 30, 1, 9);
    expect_round_trip(folder, photos, copy);
    expect_round_trip(folder, photos, lmdb);
    source_jpeg(test_path(folder, "pairs/train/blurry/a/1.jpg"), 40, 30, 3, 1);
    source_jpeg(test_path(folder, "pairs/train/sharp/a/1.jpg"), 40, 30, 3, 2);
    expect_round_trip(folder, pairs, sides);
}

/* Packs extracted images again, and asserts that their records hold the bytes that those of `raw` do. */
static void expect_same_pixels(const char *raw, const char *extracted, const char *again, uint64_t count)
{
    run_ok("fpack", "--store", "raw", extracted, again, NULL);
    FshDataset *first = packed_open(raw), *second = packed_open(again);
    for (uint64_t i = 0; i < count; i++) {
        FshSample a, b;
        assert_ok(fsh_sample_get(fsh_split(first, "train"), i, &a, NULL), NULL);
        assert_ok(fsh_sample_get(fsh_split(second, "train"), i, &b, NULL), NULL);
        assert_int_equal(a.fields[0].width, b.fields[0].width);
        assert_int_equal(a.fields[0].bytes, b.fields[0].bytes);
        assert_memory_equal(a.fields[0].data, b.fields[0].data, a.fields[0].bytes);
    }
    fsh_close(&first);
    fsh_close(&second);
}

TEST_IN_FOLDER(test_raw_pixels_become_png, folder)
{
    if (!png_is_supported())
        skip();
    const char *photos = test_path(folder, "photos"), *raw = test_path(folder, "raw");
    const char *out = test_path(folder, "out"), *again = test_path(folder, "again");
    source_two_classes(photos);
    run_ok("fpack", "--store", "raw", photos, raw, NULL);
    run_ok("fverify", "--extract", out, raw, NULL);
    assert_int_equal(test_count_files(out), 5);
    assert_int_equal(access(test_path(folder, "out/cat/0.png"), R_OK), 0);
    expect_same_pixels(raw, out, again, 5);
}

TEST_IN_FOLDER(test_raw_pixels_of_one_name_keep_their_extension, folder)
{
    if (!png_is_supported())
        skip();
    const char *raw = test_path(folder, "raw"), *out = test_path(folder, "out");
    source_jpeg(test_path(folder, "photos/cat/x.jpg"), 20, 30, 3, 1);
    source_png(test_path(folder, "photos/cat/x.png"), 40, 30, 3, 2);
    source_jpeg(test_path(folder, "photos/cat/y.jpg"), 20, 30, 3, 3);
    run_ok("fpack", "--store", "raw", test_path(folder, "photos"), raw, NULL);
    run_ok("fverify", "--extract", out, raw, NULL);
    assert_int_equal(test_count_files(out), 3);
    assert_int_equal(access(test_path(folder, "out/cat/x.jpg.png"), R_OK), 0);
    assert_int_equal(access(test_path(folder, "out/cat/x.png"), R_OK), 0);
    assert_int_equal(access(test_path(folder, "out/cat/y.png"), R_OK), 0);
    expect_same_pixels(raw, out, test_path(folder, "again"), 3);
}

TEST_IN_FOLDER(test_extract_never_overwrites, folder)
{
    const char *photos = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    const char *out = test_path(folder, "out"), *there = test_path(folder, "out/cat/1.jpg");
    source_two_classes(photos);
    run_ok("fpack", photos, packed, NULL);
    test_file_write_text(there, "mine");
    RunResult result = run_expecting(1, "fverify", "--extract", out, packed, NULL);
    assert_contains(result.out, "key cat/1, source cat/1.jpg: cat/1.jpg is there already: not replaced");
    assert_contains(result.out, "4 files");
    assert_contains(result.out, "1 problem\n");
    run_result_free(&result);
    char *text = test_file_read(there, NULL);
    assert_string_equal(text, "mine");
    free(text);
    assert_int_equal(test_count_files(out), 5); /* and no temporary file */
}

TEST_IN_FOLDER(test_extract_writes_into_no_dataset, folder)
{
    const char *packed = test_path(folder, "packed");
    const char *const inside[] = {packed, test_path(folder, "packed/"), test_path(folder, "packed/new/deep"),
                                  test_path(folder, "link/new")};
    source_two_classes(test_path(folder, "photos"));
    run_ok("fpack", test_path(folder, "photos"), packed, NULL);
    assert_int_equal(symlink(packed, test_path(folder, "link")), 0);
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        RunResult result = run_expecting(2, "fverify", "--extract", inside[i], packed, NULL);
        assert_contains(result.err, " lies in the dataset ");
        run_result_free(&result);
    }
    assert_int_equal(test_count_files(packed), 3);
    run_ok("fverify", "--extract", test_path(folder, "packed-too"), packed, NULL);
}

TEST_IN_FOLDER(test_extract_never_leaves_its_folder, folder)
{
    static const char *const sources[] = {"../escaped.jpg",
                                          "/tmp/fverify-escaped.jpg",
                                          "a/../../escaped.jpg",
                                          "a/./b.jpg",
                                          "a//b.jpg",
                                          "..",
                                          ".",
                                          "a/"};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char file[32];
        (void)snprintf(file, sizeof file, "%zu.fshard", i);
        const char *shard = write_named(folder, file, "key", sources[i]);
        RunResult result =
            run_expecting(1, "fverify", "--extract", test_path(folder, "deep/out"), shard, NULL);
        assert_contains(result.out, "its name is no path below ");
        assert_contains(result.out, "0 files");
        run_result_free(&result);
    }
    /* Without a source the key is the name, and the class's. */
    const char *shard = write_named(folder, "key.fshard", "../../escaped", "");
    RunResult result = run_expecting(1, "fverify", "--extract", test_path(folder, "deep/out"), shard, NULL);
    assert_contains(result.out, "its name is no path below ");
    run_result_free(&result);
    assert_int_equal(test_count_files(test_path(folder, "deep")), 0);
    assert_int_equal(access("/tmp/fverify-escaped.jpg", F_OK), -1);
}

TEST_IN_FOLDER(test_extract_follows_no_link, folder)
{
    const char *shard = write_named(folder, "x.fshard", "key", "cat/x.jpg");
    const char *outside = test_path(folder, "outside"), *out = test_path(folder, "out");
    assert_int_equal(mkdir(outside, 0777), 0);
    assert_int_equal(mkdir(out, 0777), 0);
    assert_int_equal(symlink(outside, test_path(folder, "out/cat")), 0);
    RunResult result = run_expecting(1, "fverify", "--extract", out, shard, NULL);
    assert_contains(result.out, "a file or a link has its name");
    run_result_free(&result);
    assert_int_equal(test_count_files(outside), 0);
    /* Nor one that has the file's own name, dangling or not. */
    assert_int_equal(unlink(test_path(folder, "out/cat")), 0);
    assert_int_equal(mkdir(test_path(folder, "out/cat"), 0777), 0);
    assert_int_equal(symlink(test_path(folder, "outside/new.jpg"), test_path(folder, "out/cat/x.jpg")), 0);
    result = run_expecting(1, "fverify", "--extract", out, shard, NULL);
    assert_contains(result.out, "is there already: not replaced");
    run_result_free(&result);
    assert_int_equal(test_count_files(outside), 0);
}

TEST_IN_FOLDER(test_extract_leaves_damaged_records_out, folder)
{
    const char *shard = write_named(folder, "x.fshard", "key", "cat/x.jpg");
    test_file_flip_byte(shard, 900);
    RunResult result = run_expecting(1, "fverify", "--extract", test_path(folder, "out"), shard, NULL);
    assert_contains(result.out, " record 0, key key, source cat/x.jpg: CRC32C is ");
    assert_contains(result.out, "0 files");
    run_result_free(&result);
    assert_int_equal(test_count_files(test_path(folder, "out")), 0);
}

/* ---- list ---- */

TEST_IN_FOLDER(test_list_has_a_line_of_nine_columns_for_each_sample, folder)
{
    const char *photos = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    source_class(test_path(folder, "photos/train"), "cat", 2);
    source_class(test_path(folder, "photos/train"), "dog\there", 1);
    source_class(test_path(folder, "photos/val"), "cat", 1);
    run_ok("fpack", photos, packed, NULL);
    RunResult result = run_expecting(0, "fverify", "--list", packed, NULL);
    char expected[128];
    (void)snprintf(expected, sizeof expected, "train\t1\tcat/1\t0\tcat\timage\t41x30x3\tjpeg\t%llu\n",
                   (unsigned long long)test_file_size(test_path(folder, "photos/train/cat/1.jpg")));
    assert_contains(result.out, expected);
    assert_contains(result.out, "train\t2\tdog\\there/0\t1\tdog\\there\timage\t40x30x3\tjpeg\t");
    assert_contains(result.out, "val\t0\tcat/0\t0\tcat\t");
    size_t lines = 0, tabs = 0;
    for (const char *at = result.out; *at; at++) {
        lines += *at == '\n';
        tabs += *at == '\t';
    }
    assert_int_equal(lines, 4);
    assert_int_equal(tabs, 4 * 8);
    run_result_free(&result);
}

TEST_IN_FOLDER(test_list_of_pairs_joins_the_sides, folder)
{
    source_jpeg(test_path(folder, "pairs/blurry/1.jpg"), 40, 30, 3, 1);
    source_jpeg(test_path(folder, "pairs/sharp/1.jpg"), 40, 30, 3, 2);
    run_ok("fpack", "--pairs", "blurry:sharp", test_path(folder, "pairs"), test_path(folder, "packed"), NULL);
    RunResult result = run_expecting(0, "fverify", "--list", test_path(folder, "packed"), NULL);
    assert_contains(result.out, "train\t0\t1\t-\t-\tblurry,sharp\t40x30x3,40x30x3\tjpeg,jpeg\t");
    run_result_free(&result);
}

/* ---- repair ---- */

TEST_IN_FOLDER(test_repair_tells_what_is_lost_and_leaves_the_shard_alone, folder)
{
    const char *photos = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    const char *shard = test_path(folder, "packed/train-00000-of-00001.fshard");
    const char *fixed = test_path(folder, "fixed.fshard");
    source_two_classes(photos);
    run_ok("fpack", photos, packed, NULL);
    test_file_truncate(shard, -400); /* index and footer are gone, and the end of the last record */
    const uint64_t size = test_file_size(shard);
    RunResult result = run_expecting(1, "fverify", "--repair", fixed, shard, NULL);
    assert_contains(result.out, "lost: bytes ");
    assert_contains(result.out, "fixed.fshard: 4 records, ");
    run_result_free(&result);
    assert_int_equal(test_file_size(shard), size);
    run_ok("fverify", "--decode", fixed, NULL);
    assert_int_equal(packed_count(fixed, "train"), 4);
    result = run_expecting(1, "fverify", "--repair", fixed, shard, NULL);
    assert_contains(result.err, "exists already; --repair takes the name of a new file");
    run_result_free(&result);
    result = run_expecting(1, "fverify", "--json", "--repair", test_path(folder, "2.fshard"), shard, NULL);
    json_t *json = json_of(result.out);
    assert_int_equal(json_integer_value(json_object_get(json, "records")), 4);
    assert_int_equal(json_array_size(json_object_get(json, "lost")), 1);
    json_decref(json);
    run_result_free(&result);
    result = run_expecting(1, "fverify", "--repair", test_path(folder, "3.fshard"), packed, NULL);
    assert_contains(result.err, "--repair takes one shard");
    run_result_free(&result);
    /* What was repaired can be packed from. */
    run_ok("fverify", "--extract", test_path(folder, "out"), fixed, NULL);
    assert_int_equal(test_count_files(test_path(folder, "out")), 4);
}

/* ---- sheet and page ---- */

TEST_IN_FOLDER(test_a_sheet_is_an_image_of_all_samples, folder)
{
    const char *photos = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    const char *sheet = test_path(folder, "sheet.jpg");
    ImageDecoder *decoder = NULL;
    ImageInfo info;
    size_t length = 0;
    source_two_classes(photos);
    run_ok("fpack", photos, packed, NULL);
    RunResult result = run_expecting(0, "fverify", "--sheet", sheet, packed, NULL);
    assert_contains(result.out, "5 samples");
    run_result_free(&result);
    char *bytes = test_file_read(sheet, &length);
    assert_ok(image_decoder_new(&decoder, NULL), NULL);
    assert_ok(image_probe(decoder, bytes, length, &info, NULL), NULL);
    assert_int_equal(info.format, IMAGE_JPEG);
    assert_int_equal(info.width, 3 * 132 + 4);
    assert_int_equal(info.height, 2 * (132 + 24) + 4); /* each with two lines below: class, key */
    image_decoder_free(&decoder);
    free(bytes);
    result = run_expecting(1, "fverify", "--sheet", sheet, packed, NULL);
    assert_contains(result.err, "exists");
    run_result_free(&result);
    run_ok("fverify", "--force", "--sheet", sheet, packed, NULL);
    result = run_expecting(2, "fverify", "--sheet", test_path(folder, "sheet.txt"), packed, NULL);
    assert_contains(result.err, "should end in .jpg");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_the_page_is_whole_and_needs_nothing_else, folder)
{
    const char *photos = test_path(folder, "photos"), *packed = test_path(folder, "packed");
    const char *page = test_path(folder, "page.html");
    source_two_classes(photos);
    run_ok("fpack", photos, packed, NULL);
    test_file_flip_byte(test_path(folder, "packed/train-00000-of-00001.fshard"), 1200);
    RunResult result = run_expecting(1, "fverify", "--html", page, packed, NULL);
    run_result_free(&result);
    char *text = test_file_read(page, NULL);
    static const char *const parts[] = {"<!DOCTYPE html>",
                                        "default-src 'none'",
                                        "data:image/jpeg;base64,/9j/",
                                        "<svg viewBox",
                                        "CRC32C is ",
                                        "</body></html>\n",
                                        "shards, id ",
                                        "; checksums of files and records; images were not decoded",
                                        "<table class=\"sort\"><thead><tr><th>class<"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_contains(text, parts[i]);
    static const char *const never[] = {"http://", "https://", "<link", "url("};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        assert_contains_not(text, never[i]);
    size_t images = 0;
    for (const char *at = strstr(text, "<img "); at; at = strstr(at + 1, "<img "))
        images++;
    assert_in_range(images, 4, 6); /* the one that is damaged stands under problems too */
    free(text);
}

TEST_IN_FOLDER(test_the_page_of_pairs_names_the_sides, folder)
{
    const char *page = test_path(folder, "page.html");
    source_jpeg(test_path(folder, "pairs/blurry/1.jpg"), 40, 30, 3, 1);
    source_jpeg(test_path(folder, "pairs/sharp/1.jpg"), 40, 30, 3, 2);
    run_ok("fpack", "--pairs", "blurry:sharp", test_path(folder, "pairs"), test_path(folder, "packed"), NULL);
    run_ok("fverify", "--decode", "--html", page, test_path(folder, "packed"), NULL);
    char *text = test_file_read(page, NULL);
    assert_contains(text, "shards of pairs, id ");
    assert_contains(text, ", 2 images decoded");
    assert_contains(text, "pixel for pixel: blurry, sharp</p>");
    free(text);
}

TEST_IN_FOLDER(test_names_cannot_break_out_of_the_page, folder)
{
    const char *shard = write_named(folder, "\"><img src=x onerror=alert(1)>.fshard",
                                    "\"><script>alert('2')</script>&amp;\xff\x1b[1m\xc2\x9b\xed\xa0\x80é",
                                    "</td><svg onload=alert(3)>.jpg");
    const char *page = test_path(folder, "page.html");
    test_file_flip_byte(shard, 900);
    RunResult result = run_expecting(1, "fverify", "--html", page, shard, NULL);
    run_result_free(&result);
    char *text = test_file_read(page, NULL);
    assert_contains(text, "&quot;&gt;&lt;script&gt;alert(&#39;2&#39;)&lt;/script&gt;&amp;amp;");
    assert_contains(text,
                    "\xEF\xBF\xBD\xEF\xBF\xBD[1m\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
                    "é"); /* ff, 1b, c2 9b and ed a0 80 byte by byte */
    assert_contains(text, "&lt;/td&gt;&lt;svg onload=alert(3)&gt;.jpg");
    assert_contains(text, "&lt;script&gt;alert(1)&lt;/script&gt;"); /* the class */
    const char *script = strstr(text, "<script");
    assert_non_null(script); /* ours, and no other */
    assert_null(strstr(script + 1, "<script"));
    assert_contains_not(text, "<img src");
    assert_contains_not(text, "<svg onload");
    assert_contains_not(text, "\x1b");
    free(text);
}

TEST_IN_FOLDER(test_one_thing_at_a_time, folder)
{
    const char *shard = write_named(folder, "x.fshard", "key", "x.jpg");
    const struct {
        const char *a, *b, *c, *d;
        const char *message;
    } wrong[] = {{"--list", "--sheet", "s.jpg", shard, "--list and --sheet: one at a time"},
                 {"--extract", "out", shard, shard, "--extract takes one PATH"},
                 {"--list", "--decode", shard, NULL, "--list proves nothing"},
                 {"--list", "--json", shard, NULL, "--list prints lines"},
                 {"--quick", "--decode", shard, NULL, "contradict"},
                 {"--likeness", "0.5", shard, NULL, "--likeness: of what --pairs compares"},
                 {"-f", "--extract", "out", shard, "--force: replaces the FILE of --html or --sheet"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        RunResult result = run_expecting(2, "fverify", wrong[i].a, wrong[i].b, wrong[i].c, wrong[i].d, NULL);
        assert_contains(result.err, wrong[i].message);
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_a_page_that_is_there_is_told_before_anything_is_checked, folder)
{
    const char *shard = write_named(folder, "x.fshard", "key", "x.jpg"),
               *page = test_path(folder, "page.html");
    test_file_write_text(page, "mine");
    RunResult result = run_expecting(1, "fverify", "--html", page, shard, NULL);
    assert_contains(result.err, "page.html: exists already; --force replaces it");
    assert_string_equal(result.out, "");
    run_result_free(&result);
    run_ok("fverify", "--force", "--html", page, shard, NULL);
    result = run_expecting(1, "fverify", "--html", test_path(folder, "nowhere/page.html"), shard, NULL);
    assert_contains(result.err, "nowhere/page.html: cannot be written: there is no folder ");
    assert_string_equal(result.out, "");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_pairs_are_missed_where_there_are_none, folder)
{
    const char *shard = write_named(folder, "x.fshard", "key", "x.jpg");
    RunResult result = run_expecting(1, "fverify", "--pairs", shard, NULL);
    assert_contains(result.out, "--pairs: its samples are single images");
    run_result_free(&result);
}
