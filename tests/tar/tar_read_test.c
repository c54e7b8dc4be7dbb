#include "tar/tar_read.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tar/tar_tools.h"
#include "tests/support/support.h"

enum { MOST_BYTES = 1 << 24 };

/* ---- good tars ---- */

TEST_IN_FOLDER(test_entries_come_in_order_with_content_and_time, folder)
{
    const char *path = tar_write_small(folder, "a.tar");
    static const struct {
        const char *path, *content;
        int64_t modified_ns;
        uint64_t bytes;
    } expected[] = {
        {"a", "first", 1000000000, 5}, {"b/b", "second", 2000000000, 6}, {"c", "\7", 3000000000, 5000}};
    TarReader *reader = NULL;
    TarEntry entry;
    Buffer content = {0};
    FshError error = {0};
    assert_true(tar_is_tar(path));
    assert_ok(tar_reader_open(&reader, path, &error), &error);
    for (size_t i = 0; i < 3; i++) {
        assert_ok(tar_reader_next(reader, &entry, &error), &error);
        assert_string_equal(entry.path, expected[i].path);
        assert_null(entry.reason);
        assert_int_equal(entry.bytes, expected[i].bytes);
        assert_true(entry.modified_ns == expected[i].modified_ns);
        assert_ok(tar_reader_content(reader, &content, 5000, &error), &error);
        assert_int_equal(content.length, expected[i].bytes);
        assert_memory_equal(content.bytes, expected[i].content, strlen(expected[i].content));
        assert_int_equal(tar_reader_content(reader, &content, 5000, &error), FSH_ERR_USAGE); /* once */
    }
    assert_ok(tar_reader_next(reader, &entry, &error), &error);
    assert_null(entry.path);
    uint64_t position = 0, extent = 0;
    tar_reader_position(reader, &position, &extent);
    assert_int_equal(extent, test_file_size(path));
    assert_int_equal(position, extent);
    tar_reader_close(&reader);
    tar_reader_close(&reader);
    buffer_free(&content);
}

/* What the writer writes, the reader reads: any name, any time, in any locale. */
TEST_IN_FOLDER(test_names_and_times_of_all_kinds_come_back, folder)
{
    char long_name[301], long_latin[201];
    memset(long_name, 'n', 300);
    long_name[150] = '/';
    long_name[300] = '\0';
    memset(long_latin, '\xE9', 200);
    long_latin[200] = '\0';
    enum { NAMES = 9 };
    const char *const names[NAMES] = {"größe.jpg", "家/дом.jpg",    "gr\xF6\xDF.jpg", long_name, long_latin,
                                      "old",       "a\nb\t\033[1m", "a b\\c:d\"e",    "older"};
    static const int64_t times_ns[NAMES] = {
        0,           1,         1500000000123456789, -86400000000000, 8589934592000000000,
        -1500000000, 999999999, 9223372036854775807, INT64_MIN};
    /* "latin1" is made here, where this machine can. */
    static const char *const locales[] = {"C", "C.UTF-8", "latin1"};
    RunResult made = run_program(NULL, "/usr/bin/env", "localedef", "-i", "de_DE", "-f", "ISO-8859-1",
                                 test_path(folder, "latin1"), NULL);
    run_result_free(&made);
    assert_int_equal(setenv("LOCPATH", folder->path, 1), 0);
    const char *path = test_path(folder, "a.tar");
    TarWriter *writer = tar_begin(path);
    for (size_t i = 0; i < NAMES; i++)
        tar_add(writer, names[i], "x", 1, times_ns[i]);
    tar_finish(&writer);
    for (size_t l = 0; l < sizeof locales / sizeof *locales; l++) {
        (void)setlocale(LC_ALL, locales[l]);
        TarReader *reader = NULL;
        TarEntry entry;
        FshError error = {0};
        assert_ok(tar_reader_open(&reader, path, &error), &error);
        for (size_t i = 0; i < NAMES; i++) {
            assert_ok(tar_reader_next(reader, &entry, &error), &error);
            assert_string_equal(entry.path, names[i]);
            assert_null(entry.reason);
            if (entry.modified_ns != times_ns[i])
                fail_msg("%s: time %" PRId64 " instead of %" PRId64, names[i], entry.modified_ns,
                         times_ns[i]);
        }
        tar_reader_close(&reader);
        assert_true(uselocale((locale_t)0) == LC_GLOBAL_LOCALE); /* the thread's own is as it was */
    }
    (void)setlocale(LC_ALL, "C");
    assert_int_equal(unsetenv("LOCPATH"), 0);
}

/* GNU tar writes every format and filter of the field. */
TEST_IN_FOLDER(test_tars_of_gnu_tar_are_read, folder)
{
    run_shell(folder, "cd \"$0\"; mkdir -p in/d; echo hello > in/d/$(printf '%0120d' 1); : > in/empty; cd in;"
                      "for f in v7 ustar oldgnu; do tar -c --format=$f -f ../$f.tar empty; done;"
                      "for f in gnu pax; do tar -c --format=$f -f ../$f.tar d empty; done;"
                      "for c in gzip bzip2 xz; do tar -c --$c -f ../$c.tar d empty; done;"
                      "tar -c --zstd -f ../zstd.tar d empty || cp ../xz.tar ../zstd.tar");
    static const char *const names[] = {"v7", "ustar", "oldgnu", "gnu", "pax", "gzip", "bzip2", "xz", "zstd"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = test_path(folder, "%s.tar", names[i]);
        assert_true(tar_is_tar(path));
        char expected[300] = "empty (0)\n0 hidden\n";
        if (i >= 3)
            (void)snprintf(expected, sizeof expected, "d/%0120d (6)\nempty (0)\n0 hidden\n", 1);
        assert_tar_listing(path, expected);
    }
}

/* GNU tar's own format, the three of pax, and one compressed; "m" has more parts than a header holds. */
TEST_IN_FOLDER(test_sparse_files_have_their_zeros, folder)
{
    run_shell(folder,
              "cd \"$0\"; printf begin > s; truncate -s 100000 s; printf middle >> s; truncate -s 300000 s;"
              ": > m; for i in $(seq 40); do truncate -s ${i}00000 m; echo part $i >> m; done; : > e;"
              "truncate -s 70000 e; tar -cS --format=gnu -f gnu.tar s m e; tar -czS -f z.tar s m e;"
              "for v in 0.0 0.1 1.0; do tar -cS --format=pax --sparse-version=$v -f $v.tar s m e; done");
    static const char *const names[] = {"gnu", "z", "0.0", "0.1", "1.0"}, *const files[] = {"s", "m", "e"};
    Buffer content = {0};
    FshError error = {0};
    TarEntry entry;
    for (size_t i = 0; i < 15; i++) {
        size_t length = 0;
        char *expected = test_file_read(test_path(folder, "%s", files[i % 3]), &length);
        const char *path = test_path(folder, "%s.tar", names[i / 3]);
        assert_true(test_file_size(path) < 400000); /* of 4.4 MB: the holes are not stored */
        assert_ok(tar_read_one(path, files[i % 3], &content, MOST_BYTES, &entry, &error), &error);
        assert_int_equal(entry.bytes, length);
        assert_int_equal(content.length, length);
        assert_memory_equal(content.bytes, expected, length);
        free(expected);
    }
    /* A tar with holes is not entered. */
    run_shell(folder, "cd \"$0\"; truncate -s 900000 gnu.tar; tar -cS -f holes.tar gnu.tar; tar -cS "
                      "--format=pax -f pax.tar gnu.tar");
    assert_tar_listing(test_path(folder, "holes.tar"), "gnu.tar (900000)\n0 hidden\n");
    assert_tar_listing(test_path(folder, "pax.tar"), "gnu.tar (900000)\n0 hidden\n");
    buffer_free(&content);
}

TEST_IN_FOLDER(test_a_tar_in_a_tar_is_a_folder, folder)
{
    const char *inner = tar_write_small(folder, "inner.tar"), *outer = test_path(folder, "outer.tar");
    const char *deep = test_path(folder, "deep.tar"), *empty = test_path(folder, "empty.tar");
    run_shell(
        folder,
        "cd \"$0\"; gzip -k inner.tar; bzip2 -k inner.tar; xz -k inner.tar; tar -cf empty.tar -T /dev/null;"
        "zstd -q inner.tar || cp inner.tar.gz inner.tar.zst");
    TarWriter *writer = tar_begin(deep);
    tar_add_file(writer, "inner.tar", inner);
    tar_finish(&writer);
    writer = tar_begin(outer);
    tar_add(writer, "before", "x", 1, 0);
    tar_add_file(writer, "n01.tar", inner);
    tar_add_file(writer, "d/n02.TAR.GZ", test_path(folder, "inner.tar.gz"));
    tar_add_file(writer, "n03.tbz2", test_path(folder, "inner.tar.bz2"));
    tar_add_file(writer, "n04.tar.xz", test_path(folder, "inner.tar.xz"));
    tar_add_file(writer, "n05.tar.zst", test_path(folder, "inner.tar.zst"));
    tar_add(writer, "text.tar", "no tar at all", 13, 0);
    tar_add(writer, "none.tar", "", 0, 0);
    tar_add(writer, ".tar", "x", 1, 0);
    tar_add_file(writer, "image.jpg", inner);
    tar_add_file(writer, "deep.tar", deep);
    tar_add_file(writer, "empty.tar", empty);
    tar_add_file(writer, ".hidden.tar", inner);
    tar_add(writer, "after", "y", 1, 0);
    tar_finish(&writer);
    char expected[1024];
    (void)snprintf(expected, sizeof expected,
                   "before (1)\n"
                   "n01/a (5)\nn01/b/b (6)\nn01/c (5000)\n"
                   "d/n02/a (5)\nd/n02/b/b (6)\nd/n02/c (5000)\n"
                   "n03/a (5)\nn03/b/b (6)\nn03/c (5000)\n"
                   "n04/a (5)\nn04/b/b (6)\nn04/c (5000)\n"
                   "n05/a (5)\nn05/b/b (6)\nn05/c (5000)\n"
                   "text.tar (13)\nnone.tar (0)\nimage.jpg (%" PRIu64 ")\ndeep/inner.tar (%" PRIu64
                   ")\nafter (1)\n2 hidden\n",
                   test_file_size(inner), test_file_size(inner));
    assert_tar_listing(outer, expected);
    run_shell(folder, "cd \"$0\"; gzip -k outer.tar");
    const char *compressed = test_path(folder, "outer.tar.gz");
    assert_tar_listing(compressed, expected);

    static const char *const names[] = {"n01/b/b", "d/n02/b/b", "n05/b/b"};
    Buffer content = {0};
    FshError error = {0};
    TarEntry entry;
    for (size_t i = 0; i < 6; i++) {
        assert_ok(tar_read_one(i < 3 ? outer : compressed, names[i % 3], &content, 6, &entry, &error),
                  &error);
        assert_memory_equal(content.bytes, "second", 6);
    }
    /* Bytes that were looked at to see whether it is a tar are there. */
    assert_ok(tar_read_one(compressed, "text.tar", &content, 13, &entry, &error), &error);
    assert_int_equal(content.length, 13);
    assert_memory_equal(content.bytes, "no tar at all", 13);
    buffer_free(&content);
}

/* Returns how many bytes this process has read so far, cached or not. */
static uint64_t bytes_read_so_far(void)
{
    char *text = test_file_read("/proc/self/io", NULL);
    uint64_t bytes = 0;
    bool found = sscanf(text, "rchar: %" SCNu64, &bytes) == 1;
    free(text);
    if (!found)
        skip();
    return bytes;
}

TEST_IN_FOLDER(test_what_is_passed_over_is_not_read, folder)
{
    enum { IMAGE_BYTES = 110000, IMAGES = 40, TARS = 3 };
    uint8_t *image = calloc(1, IMAGE_BYTES);
    assert_non_null(image);
    const char *inner = test_path(folder, "inner.tar"), *outer = test_path(folder, "outer.tar");
    TarWriter *writer = tar_begin(inner);
    for (int i = 0; i < IMAGES; i++)
        tar_add(writer, test_path(folder, "%d.jpg", i) + strlen(folder->path) + 1, image, IMAGE_BYTES, 0);
    tar_finish(&writer);
    free(image);
    writer = tar_begin(outer);
    for (int i = 0; i < TARS; i++)
        tar_add_file(writer, test_path(folder, "n%d.tar", i) + strlen(folder->path) + 1, inner);
    tar_finish(&writer);
    if (access("/proc/self/io", R_OK))
        skip();
    uint64_t before = bytes_read_so_far();
    char *listing = tar_listing(outer, false);
    uint64_t read = bytes_read_so_far() - before, all = test_file_size(outer);
    size_t lines = 0;
    for (const char *c = listing; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, IMAGES * TARS + 1);
    free(listing);
    if (read > all / 8)
        fail_msg("%" PRIu64 " of %" PRIu64 " bytes are read", read, all);
}
