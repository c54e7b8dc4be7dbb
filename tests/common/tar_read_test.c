#include "common/tar_read.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/random.h"
#include "common/tar_write.h"
#include "tests/support/support.h"

enum { MOST_BYTES = 1 << 24 };

/* ---- making tars ---- */

static void add(TarWriter *writer, const char *path, const void *bytes, size_t length, int64_t modified_ns)
{
    FshError error = {0};
    assert_ok(tar_writer_add(writer, path, bytes, length, modified_ns, NULL, &error), &error);
}

static TarWriter *begin(const char *path)
{
    FshError error = {0};
    TarWriter *writer = NULL;
    assert_ok(tar_writer_open(&writer, path, 0, &error), &error);
    return writer;
}

static void finish(TarWriter **writer)
{
    FshError error = {0};
    assert_ok(tar_writer_finish(writer, &error), &error);
}

/* "a" … with a text each, the last of them of 5,000 bytes: 512-byte blocks at known places. */
static const char *write_small(TestFolder *folder, const char *name)
{
    static const uint8_t zeros[5000] = {7};
    const char *path = test_path(folder, "%s", name);
    TarWriter *writer = begin(path);
    add(writer, "a", "first", 5, 1000000000);
    add(writer, "b/b", "second", 6, 2000000000);
    add(writer, "c", zeros, sizeof zeros, 3000000000);
    finish(&writer);
    return path;
}

/* The file as an entry of that name of an open tar. */
static void add_file(TarWriter *writer, const char *name, const char *path)
{
    size_t length = 0;
    char *bytes = test_file_read(path, &length);
    add(writer, name, bytes, length, 0);
    free(bytes);
}

/* `command` by a shell, $0 being the test's folder. */
static void shell(TestFolder *folder, const char *command)
{
    RunResult result = run_program(NULL, "/bin/sh", "-ec", command, folder->path, NULL);
    if (result.exit_status != 0)
        fail_msg("%s: %s", command, result.err);
    run_result_free(&result);
}

/* Makes the checksum of the header block right again. */
static void sign_header(uint8_t *block)
{
    uint32_t sum = 0;
    memset(block + 148, ' ', 8);
    for (size_t i = 0; i < 512; i++)
        sum += block[i];
    (void)snprintf((char *)block + 148, 8, "%06o", sum);
}

/* ---- what the reader says, as text: "PATH (BYTES)" or "PATH: REASON" for each entry ---- */

static char *listing_of(const char *path, bool with_content)
{
    FshError error = {0};
    TarReader *reader = NULL;
    TarEntry entry = {0};
    Buffer content = {0};
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    assert_non_null(stream);
    assert_ok(tar_reader_open(&reader, path, &error), &error);
    FshStatus status = FSH_OK;
    while (!(status = tar_reader_next(reader, &entry, &error)) && entry.path) {
        const char *name = strcmp(entry.path, path) == 0 ? "(tar)" : entry.path;
        if (entry.reason) {
            (void)fprintf(stream, "%s: %s\n", name, entry.reason);
            continue;
        }
        (void)fprintf(stream, "%s (%" PRIu64 ")\n", name, entry.bytes);
        if (!with_content)
            continue;
        if (tar_reader_content(reader, &content, MOST_BYTES, &error)) {
            (void)fprintf(stream, "  %s\n", error.message);
            assert_int_equal(content.length, 0);
        } else {
            assert_int_equal(content.length, entry.bytes);
        }
    }
    assert_ok(status, &error);
    (void)fprintf(stream, "%" PRIu64 " hidden\n", tar_reader_hidden_count(reader));
    assert_ok(tar_reader_next(reader, &entry, &error), &error); /* the end stays the end */
    assert_null(entry.path);
    buffer_free(&content);
    tar_reader_close(&reader);
    assert_null(reader);
    assert_int_equal(fclose(stream), 0);
    return text;
}

static void assert_listing(const char *path, const char *expected)
{
    for (int with_content = 0; with_content < 2; with_content++) {
        char *listing = listing_of(path, with_content);
        assert_string_equal(listing, expected);
        free(listing);
    }
}

/* Opens at the entry of that path and reads it. */
static FshStatus read_one(const char *path, const char *name, Buffer *content, uint64_t most, TarEntry *entry,
                          FshError *error)
{
    TarReader *reader = NULL;
    assert_ok(tar_reader_open(&reader, path, error), error);
    do
        assert_ok(tar_reader_next(reader, entry, error), error);
    while (entry->path && strcmp(entry->path, name) != 0);
    if (!entry->path)
        fail_msg("%s: no entry %s", path, name);
    FshStatus status = tar_reader_content(reader, content, most, error);
    tar_reader_close(&reader);
    entry->path = NULL;
    return status;
}

/* ---- good tars ---- */

static void test_entries_come_in_order_with_content_and_time(void **state)
{
    const char *path = write_small(*state, "a.tar");
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
static void test_names_and_times_of_all_kinds_come_back(void **state)
{
    char long_name[301], long_latin[201];
    memset(long_name, 'n', 300);
    long_name[150] = '/';
    long_name[300] = '\0';
    memset(long_latin, '\xE9', 200);
    long_latin[200] = '\0';
    const char *const names[] = {"größe/家.jpg", "gr\xF6\xDF.jpg", long_name,
                                 long_latin,     "a\nb\t\033[1m",  "a b\\c:d\"e"};
    static const int64_t times_ns[] = {0,         1500000000123456789, -86400000000000, 8589934592000000000,
                                       999999999, 9223372036854775807};
    static const char *const locales[] = {"C", "C.UTF-8"};
    TestFolder *folder = *state;
    const char *path = test_path(folder, "a.tar");
    TarWriter *writer = begin(path);
    for (size_t i = 0; i < 6; i++)
        add(writer, names[i], "x", 1, times_ns[i]);
    finish(&writer);
    for (size_t l = 0; l < 2; l++) {
        (void)setlocale(LC_ALL, locales[l]);
        TarReader *reader = NULL;
        TarEntry entry;
        FshError error = {0};
        assert_ok(tar_reader_open(&reader, path, &error), &error);
        for (size_t i = 0; i < 6; i++) {
            assert_ok(tar_reader_next(reader, &entry, &error), &error);
            assert_string_equal(entry.path, names[i]);
            assert_null(entry.reason);
            if (entry.modified_ns != times_ns[i])
                fail_msg("%s: time %" PRId64 " instead of %" PRId64, names[i], entry.modified_ns,
                         times_ns[i]);
        }
        tar_reader_close(&reader);
    }
    (void)setlocale(LC_ALL, "C");
}

/* By GNU tar: every format and filter of the field. */
static void test_tars_of_gnu_tar_are_read(void **state)
{
    TestFolder *folder = *state;
    shell(folder, "cd \"$0\"; mkdir -p in/d; echo hello > in/d/$(printf '%0120d' 1); : > in/empty; cd in;"
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
        assert_listing(path, expected);
    }
}

static void test_sparse_files_have_their_zeros(void **state)
{
    TestFolder *folder = *state;
    shell(folder,
          "cd \"$0\"; printf begin > s; truncate -s 100000 s; printf middle >> s; truncate -s 300000 s;"
          "tar -cS -f gnu.tar s; tar -cS --format=pax -f pax.tar s; tar -czS -f z.tar s; : > e; truncate -s "
          "70000 e;"
          "tar -cS -f e.tar e");
    static const char *const names[] = {"gnu", "pax", "z"};
    Buffer content = {0};
    FshError error = {0};
    TarEntry entry;
    size_t length = 0;
    char *expected = test_file_read(test_path(folder, "s"), &length);
    for (size_t i = 0; i < 3; i++) {
        assert_ok(read_one(test_path(folder, "%s.tar", names[i]), "s", &content, MOST_BYTES, &entry, &error),
                  &error);
        assert_int_equal(entry.bytes, 300000);
        assert_int_equal(content.length, 300000);
        assert_memory_equal(content.bytes, expected, 300000);
    }
    free(expected);
    assert_ok(read_one(test_path(folder, "e.tar"), "e", &content, MOST_BYTES, &entry, &error), &error);
    assert_int_equal(content.length, 70000);
    for (size_t i = 0; i < content.length; i++)
        assert_int_equal(content.bytes[i], 0);
    buffer_free(&content);
}

static void test_a_tar_in_a_tar_is_a_folder(void **state)
{
    TestFolder *folder = *state;
    const char *inner = write_small(folder, "inner.tar"), *outer = test_path(folder, "outer.tar");
    const char *deep = test_path(folder, "deep.tar"), *empty = test_path(folder, "empty.tar");
    shell(folder,
          "cd \"$0\"; gzip -k inner.tar; bzip2 -k inner.tar; xz -k inner.tar; tar -cf empty.tar -T /dev/null;"
          "zstd -q inner.tar || cp inner.tar.gz inner.tar.zst");
    TarWriter *writer = begin(deep);
    add_file(writer, "inner.tar", inner);
    finish(&writer);
    writer = begin(outer);
    add(writer, "before", "x", 1, 0);
    add_file(writer, "n01.tar", inner);
    add_file(writer, "d/n02.TAR.GZ", test_path(folder, "inner.tar.gz"));
    add_file(writer, "n03.tbz2", test_path(folder, "inner.tar.bz2"));
    add_file(writer, "n04.tar.xz", test_path(folder, "inner.tar.xz"));
    add_file(writer, "n05.tar.zst", test_path(folder, "inner.tar.zst"));
    add(writer, "text.tar", "no tar at all", 13, 0);
    add(writer, "none.tar", "", 0, 0);
    add(writer, ".tar", "x", 1, 0);
    add_file(writer, "image.jpg", inner);
    add_file(writer, "deep.tar", deep);
    add_file(writer, "empty.tar", empty);
    add_file(writer, ".hidden.tar", inner);
    add(writer, "after", "y", 1, 0);
    finish(&writer);
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
    assert_listing(outer, expected);
    shell(folder, "cd \"$0\"; gzip -k outer.tar");
    const char *compressed = test_path(folder, "outer.tar.gz");
    assert_listing(compressed, expected);

    static const char *const names[] = {"n01/b/b", "d/n02/b/b", "n05/b/b"};
    Buffer content = {0};
    FshError error = {0};
    TarEntry entry;
    for (size_t i = 0; i < 6; i++) {
        assert_ok(read_one(i < 3 ? outer : compressed, names[i % 3], &content, 6, &entry, &error), &error);
        assert_memory_equal(content.bytes, "second", 6);
    }
    /* Bytes that were looked at to see whether it is a tar are there. */
    assert_ok(read_one(compressed, "text.tar", &content, 13, &entry, &error), &error);
    assert_int_equal(content.length, 13);
    assert_memory_equal(content.bytes, "no tar at all", 13);
    buffer_free(&content);
}

/* What this process has read so far, cached or not. */
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

static void test_what_is_passed_over_is_not_read(void **state)
{
    enum { IMAGE_BYTES = 110000, IMAGES = 40, TARS = 3 };
    TestFolder *folder = *state;
    uint8_t *image = calloc(1, IMAGE_BYTES);
    assert_non_null(image);
    const char *inner = test_path(folder, "inner.tar"), *outer = test_path(folder, "outer.tar");
    TarWriter *writer = begin(inner);
    for (int i = 0; i < IMAGES; i++)
        add(writer, test_path(folder, "%d.jpg", i) + strlen(folder->path) + 1, image, IMAGE_BYTES, 0);
    finish(&writer);
    free(image);
    writer = begin(outer);
    for (int i = 0; i < TARS; i++)
        add_file(writer, test_path(folder, "n%d.tar", i) + strlen(folder->path) + 1, inner);
    finish(&writer);
    if (access("/proc/self/io", R_OK))
        skip();
    uint64_t before = bytes_read_so_far();
    char *listing = listing_of(outer, false);
    uint64_t read = bytes_read_so_far() - before, all = test_file_size(outer);
    size_t lines = 0;
    for (const char *c = listing; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, IMAGES * TARS + 1);
    free(listing);
    if (read > all / 8)
        fail_msg("%" PRIu64 " of %" PRIu64 " bytes are read", read, all);
}

/* ---- hostile ones ---- */

static void test_hostile_names_are_entries_with_a_reason(void **state)
{
    TestFolder *folder = *state;
    char long_name[5001];
    for (size_t i = 0; i < 5000; i++)
        long_name[i] = i % 100 == 99 ? '/' : 'l';
    long_name[5000] = '\0';
    long_name[4999] = 'l';
    const char *inner = test_path(folder, "inner.tar"), *path = test_path(folder, "a.tar");
    TarWriter *writer = begin(inner);
    add(writer, "../x", "x", 1, 0);
    add(writer, "fine", "x", 1, 0);
    finish(&writer);
    writer = begin(path);
    static const char *const names[] = {"../a",        "a/../b",    "a/..",    "/etc/passwd", "//x", ".",
                                        "./.",         "./a",       "a//b",    "a/./b",       "...", "..a/x",
                                        ".git/config", "a/._b.jpg", "a/../.b", "./.DS_Store"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        add(writer, names[i], "x", 1, 0);
    add(writer, long_name, "x", 1, 0);
    add_file(writer, "n.tar", inner);
    finish(&writer);
    char expected[6000];
    (void)snprintf(
        expected, sizeof expected,
        "../a: has \"..\" in its name\na/../b: has \"..\" in its name\na/..: has \"..\" in its name\n"
        "/etc/passwd: has an absolute name\n//x: has an absolute name\n.: has no name\n./.: has no name\n"
        "a (1)\na/b (1)\na/b (1)\na/../.b: has \"..\" in its name\n"
        "%s: has a name that is too long\nn/../x: has \"..\" in its name\nn/fine (1)\n5 hidden\n",
        long_name);
    assert_listing(path, expected);
}

static void test_what_is_no_file_is_never_followed(void **state)
{
    TestFolder *folder = *state;
    shell(folder, "cd \"$0\"; mkdir in; cd in; echo x > file; ln -s /etc/passwd link; ln file link2; mkfifo "
                  "pipe; mkdir d;"
                  "tar -cf ../a.tar d file link link2 pipe");
    /* A device takes root to make: the pipe's kind is changed instead. */
    size_t length = 0;
    const char *path = test_path(folder, "a.tar");
    uint8_t *bytes = (uint8_t *)test_file_read(path, &length);
    assert_listing(
        path, "file (2)\nlink: is a symbolic link\nlink2: is a hard link to file\npipe: is a named pipe\n"
              "0 hidden\n");
    static const struct {
        char kind;
        const char *reason;
    } kinds[] = {{'3', "is a device"}, {'4', "is a device"}};
    for (size_t i = 0; i < 2; i++) {
        uint8_t *pipe = bytes + 5 * 512; /* folder, file and its block, two links */
        assert_string_equal((char *)pipe, "pipe");
        pipe[156] = (uint8_t)kinds[i].kind;
        sign_header(pipe);
        test_file_write(path, bytes, length);
        char *listing = listing_of(path, true);
        assert_contains(listing, test_path(folder, "pipe: %s", kinds[i].reason) + strlen(folder->path) + 1);
        free(listing);
    }
    free(bytes);
}

static void test_more_than_is_allowed_is_refused_and_the_walk_goes_on(void **state)
{
    const char *path = write_small(*state, "a.tar");
    TarReader *reader = NULL;
    TarEntry entry;
    Buffer content = {0};
    FshError error = {0};
    assert_ok(tar_reader_open(&reader, path, &error), &error);
    assert_int_equal(tar_reader_content(reader, &content, 5, &error), FSH_ERR_USAGE); /* before the first */
    assert_ok(tar_reader_next(reader, &entry, &error), &error);
    assert_int_equal(tar_reader_content(reader, &content, 4, &error), FSH_ERR_MISMATCH);
    assert_string_equal(error.message, "has 5 bytes, more than the 4 allowed");
    assert_ok(tar_reader_next(reader, &entry, &error), &error);
    assert_ok(tar_reader_content(reader, &content, 6, &error), &error);
    assert_memory_equal(content.bytes, "second", 6);
    buffer_free(&content);
    tar_reader_close(&reader);
}

/* A header that claims 4 GB takes no memory for them. */
static void test_a_claim_costs_no_memory(void **state)
{
    TestFolder *folder = *state;
    size_t length = 0;
    const char *path = write_small(folder, "a.tar");
    uint8_t *bytes = (uint8_t *)test_file_read(path, &length);
    (void)snprintf((char *)bytes + 2048 + 124, 12, "40000000000"); /* 4 GiB, of "c" */
    sign_header(bytes + 2048);
    test_file_write(path, bytes, length);
    free(bytes);
    shell(folder, "cd \"$0\"; gzip -k a.tar");
    static const char *const names[] = {"a.tar", "a.tar.gz"};
    for (size_t i = 0; i < 2; i++) {
        Buffer content = {0};
        FshError error = {0};
        TarEntry entry;
        assert_int_equal(
            read_one(test_path(folder, "%s", names[i]), "c", &content, UINT64_MAX, &entry, &error),
            FSH_ERR_CORRUPT);
        assert_int_equal(entry.bytes, UINT64_C(1) << 32);
        assert_true(content.capacity < 4 << 20);
        buffer_free(&content);
    }
}

/* ---- damaged ones ---- */

static void test_a_cut_tar_tells_where(void **state)
{
    TestFolder *folder = *state;
    const char *path = write_small(folder, "a.tar");
    size_t length = 0;
    char *bytes = test_file_read(path, &length);
    static const struct {
        size_t kept;
        const char *listing;
    } cuts[] = {
        {2048 + 100, "a (5)\nb/b (6)\n(tar): is damaged at byte 2048: "}, /* in a header */
        {2048, "a (5)\nb/b (6)\n(tar): is damaged at byte 2048: ends without an end marker"},
        {2048 + 512 + 100, "a (5)\nb/b (6)\nc (5000)\n"}, /* in content */
        {1024 + 512 + 2, "a (5)\nb/b (6)\n"},
    };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        test_file_write(path, bytes, cuts[i].kept);
        for (int with_content = 0; with_content < 2; with_content++) {
            char *listing = listing_of(path, with_content);
            assert_int_equal(strncmp(listing, cuts[i].listing, strlen(cuts[i].listing)), 0);
            assert_contains(listing, "(tar): is damaged at byte ");
            if (with_content && i >= 2)
                assert_contains(listing, "  the tar ");
            free(listing);
        }
    }
    free(bytes);
}

static void test_garbage_ends_the_walk_with_its_place(void **state)
{
    TestFolder *folder = *state;
    const char *path = write_small(folder, "a.tar");
    size_t length = 0;
    uint8_t *bytes = (uint8_t *)test_file_read(path, &length);
    bytes[1024 + 3] ^= 1;
    test_file_write(path, bytes, length);
    char *listing = listing_of(path, true);
    assert_contains(listing, "a (5)\n(tar): is damaged at byte 1024: ");
    assert_contains_not(listing, "c (");
    free(listing);
    free(bytes);
}

static void test_tars_one_behind_the_other_are_one(void **state)
{
    TestFolder *folder = *state;
    (void)write_small(folder, "a.tar");
    shell(folder, "cd \"$0\"; dd if=/dev/zero bs=512 count=9 of=zeros 2>/dev/null; cat a.tar zeros a.tar "
                  "zeros > b.tar");
    assert_listing(test_path(folder, "b.tar"),
                   "a (5)\nb/b (6)\nc (5000)\na (5)\nb/b (6)\nc (5000)\n0 hidden\n");
}

static void test_damage_in_an_inner_tar_leaves_the_others(void **state)
{
    TestFolder *folder = *state;
    const char *good = write_small(folder, "good.tar"), *path = test_path(folder, "a.tar");
    size_t length = 0;
    char *bytes = test_file_read(good, &length);
    TarWriter *writer = begin(path);
    add(writer, "cut.tar", bytes, 2048 + 100, 0);
    bytes[1024] ^= 1;
    add(writer, "flipped.tar", bytes, length, 0);
    add(writer, "gz.tgz", "\x1F\x8B no gzip at all", 18, 0);
    add_file(writer, "good.tar", good);
    finish(&writer);
    free(bytes);
    shell(folder, "cd \"$0\"; gzip -k a.tar");
    static const char *const names[] = {"a.tar", "a.tar.gz"};
    for (size_t i = 0; i < 4; i++) {
        char *listing = listing_of(test_path(folder, "%s", names[i / 2]), i % 2);
        assert_contains(listing, "cut/a (5)\ncut/b/b (6)\ncut.tar: is damaged at byte 2048: ");
        assert_contains(listing, "flipped/a (5)\nflipped.tar: is damaged at byte 1024: ");
        assert_contains(listing, "gz.tgz: is damaged at byte 0");
        assert_contains(listing, "good/a (5)\ngood/b/b (6)\ngood/c (5000)\n0 hidden\n");
        free(listing);
    }
}

static void test_a_damaged_compressed_tar_is_told(void **state)
{
    TestFolder *folder = *state;
    enum { BYTES = 200000 };
    uint8_t *noise = malloc(BYTES);
    assert_non_null(noise);
    test_fill_noise(noise, 200, 300, 1);
    TarWriter *writer = begin(test_path(folder, "a.tar"));
    for (int i = 0; i < 5; i++)
        add(writer, "image", noise, 180000, 0);
    finish(&writer);
    free(noise);
    shell(folder,
          "cd \"$0\"; gzip -k a.tar; xz -k -0 a.tar; cp a.tar.gz cut.tar.gz; truncate -s 500000 cut.tar.gz");
    test_file_flip_byte(test_path(folder, "a.tar.xz"), 150000);
    static const char *const names[] = {"cut.tar.gz", "a.tar.xz"};
    for (size_t i = 0; i < 4; i++) {
        char *listing = listing_of(test_path(folder, "%s", names[i / 2]), i % 2);
        assert_contains(listing, "image (180000)\n");
        assert_contains(listing, "(tar): is damaged at byte ");
        assert_contains(listing, " of its uncompressed bytes: ");
        free(listing);
    }
}

/* ---- what is none ---- */

static void test_what_is_no_tar_is_refused(void **state)
{
    TestFolder *folder = *state;
    static const uint8_t zeros[4096] = {0};
    uint8_t noise[3 * 64 * 64];
    test_fill_noise(noise, 64, 64, 1);
    test_file_write(test_path(folder, "zeros"), zeros, sizeof zeros);
    test_file_write(test_path(folder, "noise.tar"), noise, sizeof noise);
    test_file_write(test_path(folder, "none.tar"), "", 0);
    test_file_write_text(test_path(folder, "text.tar"), "one line\n");
    test_file_write(test_path(folder, "short.tar"), zeros, 512);
    shell(
        folder,
        "cd \"$0\"; gzip -k noise.tar; mkdir d; mkfifo f; printf '\\377\\330\\377\\340\\0\\020JFIF' > a.jpg;"
        "dd if=/dev/zero bs=1000 count=9 >> a.jpg 2>/dev/null; seq 10000 > seq.txt; gzip -k seq.txt");
    static const char *const names[] = {
        "zeros", "noise.tar", "none.tar",   "text.tar", "short.tar", "noise.tar.gz",
        "a.jpg", "seq.txt",   "seq.txt.gz", "d",        "f"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = test_path(folder, "%s", names[i]);
        TarReader *reader = (TarReader *)state;
        FshError error = {0};
        if (tar_is_tar(path))
            fail_msg("%s is taken for a tar", names[i]);
        assert_int_equal(tar_reader_open(&reader, path, &error), FSH_ERR_UNSUPPORTED);
        assert_null(reader);
        assert_contains(error.message, path);
    }
    TarReader *reader = NULL;
    FshError error = {0};
    assert_false(tar_is_tar(test_path(folder, "missing.tar")));
    assert_int_equal(tar_reader_open(&reader, test_path(folder, "missing.tar"), &error), FSH_ERR_NOT_FOUND);
    test_file_write(test_path(folder, "empty.tar"), zeros, 1024);
    assert_true(tar_is_tar(test_path(folder, "empty.tar")));
    assert_listing(test_path(folder, "empty.tar"), "0 hidden\n");
}

/* Nothing but an end comes of any bytes. Run under the sanitizers, too. */
static void test_bytes_at_random_do_no_harm(void **state)
{
    enum { ROUNDS = 3000, MOST_ENTRIES = 1000 };
    TestFolder *folder = *state;
    const char *inner = write_small(folder, "inner.tar"), *path = test_path(folder, "a.tar");
    shell(folder, "cd \"$0\"; gzip -k inner.tar; mkdir in; cd in; echo x > file; ln -s file l; printf x > s; "
                  "truncate -s 90000 s;"
                  "tar -cS --format=pax -f ../pax.tar .; tar -cS --format=gnu -f ../gnu.tar ./$(printf "
                  "'%0150d' 1 | tee $(printf "
                  "'%0150d' 1)) s; cd ..; tar -cf nested.tar inner.tar inner.tar.gz pax.tar gnu.tar; gzip -k "
                  "nested.tar");
    (void)inner;
    static const char *const seeds[] = {"inner.tar",  "pax.tar",       "gnu.tar",
                                        "nested.tar", "nested.tar.gz", "inner.tar.gz"};
    Random random;
    random_start(&random, 7, 0);
    Buffer content = {0};
    for (int round = 0; round < ROUNDS; round++) {
        size_t length = 0;
        char *bytes = test_file_read(test_path(folder, "%s", seeds[round % 6]), &length);
        uint32_t changes = random_below(&random, 6);
        for (uint32_t i = 0; i < changes; i++) {
            size_t at = random_below(&random, (uint32_t)length);
            uint32_t change = random_below(&random, 2) ? random_u32(&random) : 1U << random_below(&random, 8);
            bytes[at] = (char)((unsigned char)bytes[at] ^ change);
            /* Damage behind the checksum: only then is more than a sum tested. */
            if (length % 512 == 0 && at % 512 < 500 && random_below(&random, 2))
                sign_header((uint8_t *)bytes + at / 512 * 512);
        }
        if (random_below(&random, 4) == 0)
            length = random_below(&random, (uint32_t)length);
        test_file_write(path, bytes, length);
        free(bytes);
        FshError error = {0};
        TarReader *reader = NULL;
        TarEntry entry = {0};
        int entries = 0;
        if (tar_reader_open(&reader, path, &error))
            continue;
        while (!tar_reader_next(reader, &entry, &error) && entry.path) {
            assert_true(++entries < MOST_ENTRIES);
            if (!entry.reason && random_below(&random, 2))
                (void)tar_reader_content(reader, &content, 1 << 20, &error);
        }
        tar_reader_close(&reader);
    }
    buffer_free(&content);
}

#define with_folder(test) cmocka_unit_test_setup_teardown(test, test_folder_setup, test_folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_folder(test_entries_come_in_order_with_content_and_time),
        with_folder(test_names_and_times_of_all_kinds_come_back),
        with_folder(test_tars_of_gnu_tar_are_read),
        with_folder(test_sparse_files_have_their_zeros),
        with_folder(test_a_tar_in_a_tar_is_a_folder),
        with_folder(test_what_is_passed_over_is_not_read),
        with_folder(test_hostile_names_are_entries_with_a_reason),
        with_folder(test_what_is_no_file_is_never_followed),
        with_folder(test_more_than_is_allowed_is_refused_and_the_walk_goes_on),
        with_folder(test_a_claim_costs_no_memory),
        with_folder(test_a_cut_tar_tells_where),
        with_folder(test_garbage_ends_the_walk_with_its_place),
        with_folder(test_tars_one_behind_the_other_are_one),
        with_folder(test_damage_in_an_inner_tar_leaves_the_others),
        with_folder(test_a_damaged_compressed_tar_is_told),
        with_folder(test_what_is_no_tar_is_refused),
        with_folder(test_bytes_at_random_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
