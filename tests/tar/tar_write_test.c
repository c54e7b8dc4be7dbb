#include "tar/tar_write.h"

#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/file.h"
#include "common/random.h"
#include "tests/support/support.h"

/* The tar that most tests write: entries of many sizes, names and times. */

typedef struct Entry {
    char path[320];
    size_t length; /* of its content: the first bytes of `noise` */
    int64_t modified_ns;
} Entry;

enum { ENTRY_COUNT = 50, NOISE_WIDTH = 100, NOISE_BYTES = 3 * NOISE_WIDTH * NOISE_WIDTH };

static uint8_t noise[NOISE_BYTES];

static void repeat(char *text, char c, size_t count)
{
    memset(text, c, count);
    text[count] = '\0';
}

static void make_entries(Entry entries[ENTRY_COUNT])
{
    static const size_t lengths[] = {0, 1, 511, 512, 513, 4096, 29999};
    static const int64_t times_ns[] = {
        0,           1500000000000000000, 1500000000123456789, 1500000000500000000,
        -1000000000, 8589934591000000000, 8589934592000000000, INT64_MAX};
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        entries[i].length = lengths[i % 7];
        entries[i].modified_ns = times_ns[i % 8];
        (void)snprintf(entries[i].path, sizeof entries[i].path, "folder %zu/%zu.jpg", i % 3, i);
    }
    repeat(entries[3].path, 'a', 100); /* as long as a plain name gets */
    repeat(entries[4].path, 'b', 101);
    repeat(entries[5].path, 'c', 255); /* a prefix of 155 and a name of 99 */
    entries[5].path[155] = '/';
    repeat(entries[6].path, 'd', 256); /* 155 and 100: the longest that ustar holds */
    entries[6].path[155] = '/';
    repeat(entries[7].path, 'e', 256); /* 156 and 99: one too many */
    entries[7].path[156] = '/';
    repeat(entries[8].path, 'f', 300);
    entries[8].path[200] = '/';
    (void)strcpy(entries[9].path, "größe/дом/家.jpg");
    (void)strcpy(entries[10].path, "gr\xF6\xDF"
                                   "e.jpg"); /* Latin-1 */
    repeat(entries[11].path, '\xE9', 200);
    (void)strcpy(entries[12].path, "line\nbreak\t\033[1m.jpg");
    (void)strcpy(entries[13].path, "\xED\xA0\x80 surrogate"); /* not UTF-8, though it looks so */
}

static void open_writer(TarWriter **writer, const char *path, uint64_t offset)
{
    FshError error = {0};
    assert_ok(tar_writer_open(writer, path, offset, &error), &error);
}

static uint64_t add(TarWriter *writer, const Entry *entry)
{
    FshError error = {0};
    uint64_t offset = 0;
    assert_ok(tar_writer_add(writer, entry->path, noise, entry->length, entry->modified_ns, &offset, &error),
              &error);
    return offset;
}

static void finish(TarWriter **writer)
{
    FshError error = {0};
    assert_ok(tar_writer_finish(writer, &error), &error);
    assert_null(*writer);
}

/* Writes the entries. offsets has place for count + 1, where each entry begins and the last ends; it may be
 * NULL. */
static void write_tar(const char *path, const Entry *entries, size_t count, uint64_t *offsets)
{
    TarWriter *writer = NULL;
    open_writer(&writer, path, 0);
    if (offsets)
        offsets[0] = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t offset = add(writer, &entries[i]);
        if (offsets)
            offsets[i + 1] = offset;
    }
    finish(&writer);
}

static void assert_same_file(const char *path, const char *expected, size_t expected_bytes)
{
    size_t length = 0;
    char *bytes = test_file_read(path, &length);
    assert_int_equal(length, expected_bytes);
    assert_memory_equal(bytes, expected, length);
    free(bytes);
}

/* ---- what others read ---- */

TEST_IN_FOLDER(test_gnu_tar_takes_it_out_again, folder)
{
    Entry entries[ENTRY_COUNT];
    make_entries(entries);
    const char *path = test_path(folder, "a.tar"), *out = test_path(folder, "out");
    write_tar(path, entries, ENTRY_COUNT, NULL);
    for (size_t i = 0; i < ENTRY_COUNT; i++)
        test_file_write(test_path(folder, "expected/%s", entries[i].path), noise, entries[i].length);
    FshError error = {0};
    assert_ok(file_make_folders(out, &error), &error);
    RunResult result = run_program(NULL, "/bin/tar", "--warning=no-unknown-keyword", "--warning=no-timestamp",
                                   "-xf", path, "-C", out, NULL);
    assert_string_equal(result.err, "");
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    char *difference = test_tree_difference(out, test_path(folder, "expected"));
    if (difference)
        fail_msg("%s", difference);
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        struct stat file;
        assert_int_equal(stat(test_path(folder, "out/%s", entries[i].path), &file), 0);
        assert_int_equal(file.st_mode & 07777, 0644);
        if (entries[i].modified_ns < 4000000000000000000) /* what every file system can hold */
            assert_true(file_time_ns(file.st_mtim) == entries[i].modified_ns);
    }
}

static const char python_list[] = "import os, sys, tarfile\n"
                                  "for member in tarfile.open(sys.argv[1]):\n"
                                  "    name = member.name.encode('utf-8', 'surrogateescape')\n"
                                  "    time = member.pax_headers.get('mtime') or '%d' % member.mtime\n"
                                  "    print(name.hex(), member.size, time, member.isreg(), "
                                  "oct(member.mode), member.uid, repr(member.uname))\n";

TEST_IN_FOLDER(test_python_reads_names_and_times, folder)
{
    Entry entries[ENTRY_COUNT];
    make_entries(entries);
    entries[20].modified_ns = -1500000000;
    entries[21].modified_ns = -1;
    const char *path = test_path(folder, "a.tar");
    write_tar(path, entries, ENTRY_COUNT, NULL);
    RunResult result = run_program(NULL, "/usr/bin/env", "python3", "-c", python_list, path, NULL);
    if (result.exit_status == 127) {
        run_result_free(&result);
        skip();
    }
    assert_string_equal(result.err, "");
    char *expected = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&expected, &length);
    assert_non_null(stream);
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        for (const char *c = entries[i].path; *c; c++)
            (void)fprintf(stream, "%02x", (unsigned char)*c);
        const char *time = i == 20                                            ? "-1.5"
                           : i == 21                                          ? "-0.000000001"
                           : entries[i].modified_ns == INT64_MAX              ? "9223372036.854775807"
                           : entries[i].modified_ns % 1000000000 == 123456789 ? "1500000000.123456789"
                           : entries[i].modified_ns % 1000000000              ? "1500000000.5"
                                                                              : NULL;
        (void)fprintf(stream, " %zu ", entries[i].length);
        if (time)
            (void)fprintf(stream, "%s", time);
        else
            (void)fprintf(stream, "%" PRId64, entries[i].modified_ns / 1000000000);
        (void)fprintf(stream, " True 0o644 0 ''\n");
    }
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(result.out, expected);
    free(expected);
    run_result_free(&result);
}

/* ---- bytes ---- */

TEST_IN_FOLDER(test_plain_entries_take_a_header_their_bytes_and_no_more, folder)
{
    const Entry entries[] = {{"a", 0, 0}, {"b", 1, 1500000000000000000}, {"c/d", 512, 0}, {"e", 513, 0}};
    uint64_t offsets[5];
    const char *path = test_path(folder, "a.tar");
    write_tar(path, entries, 4, offsets);
    const uint64_t expected[] = {0, 512, 1536, 2560, 4096};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(offsets[i], expected[i]);
    assert_int_equal(test_file_size(path), 4096 + 1024);
    size_t length = 0;
    char *bytes = test_file_read(path, &length);
    assert_memory_equal(bytes + 512 + 257, "ustar\00000", 8);
    assert_memory_equal(bytes + 512 + 124, "00000000001\00013132027400",
                        24); /* 1 byte, 1,500,000,000 seconds */
    assert_memory_equal(bytes + 1536 + 512, noise, 512);
    for (size_t i = 4096; i < length; i++)
        assert_int_equal(bytes[i], 0);
    free(bytes);
}

TEST_IN_FOLDER(test_the_locale_changes_no_byte, folder)
{
    Entry entries[ENTRY_COUNT];
    make_entries(entries);
    if (!setlocale(LC_ALL, "C.UTF-8"))
        skip();
    write_tar(test_path(folder, "utf8.tar"), entries, ENTRY_COUNT, NULL);
    (void)setlocale(LC_ALL, "C");
    write_tar(test_path(folder, "c.tar"), entries, ENTRY_COUNT, NULL);
    size_t length = 0;
    char *bytes = test_file_read(test_path(folder, "c.tar"), &length);
    assert_same_file(test_path(folder, "utf8.tar"), bytes, length);
    free(bytes);
}

TEST_IN_FOLDER(test_a_cut_tar_goes_on_to_the_same_bytes, folder)
{
    Entry entries[ENTRY_COUNT];
    make_entries(entries);
    uint64_t offsets[ENTRY_COUNT + 1];
    const char *path = test_path(folder, "a.tar");
    write_tar(path, entries, ENTRY_COUNT, offsets);
    size_t length = 0;
    char *whole = test_file_read(path, &length);
    Random random;
    random_start(&random, 1, 0);
    for (int round = 0; round < 200; round++) {
        size_t kept = random_below(&random, ENTRY_COUNT + 1);
        uint64_t cut = offsets[kept] + random_below(&random, (uint32_t)(length - offsets[kept] + 1));
        test_file_write(path, whole, cut);
        TarWriter *writer = NULL;
        open_writer(&writer, path, offsets[kept]);
        assert_int_equal(test_file_size(path), offsets[kept]);
        for (size_t i = kept; i < ENTRY_COUNT; i++)
            assert_int_equal(add(writer, &entries[i]), offsets[i + 1]);
        finish(&writer);
        assert_same_file(path, whole, length);
    }
    free(whole);
}

TEST_IN_FOLDER(test_every_entry_is_in_the_file_when_it_is_added, folder)
{
    Entry entries[ENTRY_COUNT];
    make_entries(entries);
    const char *path = test_path(folder, "a.tar");
    TarWriter *writer = NULL;
    FshError error = {0};
    open_writer(&writer, path, 0);
    for (size_t i = 0; i < ENTRY_COUNT; i++)
        assert_int_equal(test_file_size(path), add(writer, &entries[i]));
    assert_ok(tar_writer_sync(writer, &error), &error);
    uint64_t length = test_file_size(path);
    tar_writer_abandon(&writer);
    assert_null(writer);
    tar_writer_abandon(&writer);
    assert_int_equal(test_file_size(path), length);
}

/* ---- what it refuses ---- */

TEST_IN_FOLDER(test_an_offset_that_is_not_there_is_refused, folder)
{
    TarWriter *writer = NULL;
    FshError error = {0};
    const char *path = test_path(folder, "a.tar");
    assert_int_equal(tar_writer_open(&writer, path, 512, &error), FSH_ERR_NOT_FOUND);
    assert_false(file_exists(path));
    write_tar(path, &(Entry){"a", 100, 0}, 1, NULL);
    assert_int_equal(tar_writer_open(&writer, path, 2560, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "a.tar: has 2048 bytes; it cannot be continued at byte 2560");
    assert_int_equal(tar_writer_open(&writer, path, 1000, &error), FSH_ERR_CORRUPT);
    assert_null(writer);
    assert_int_equal(test_file_size(path), 2048);
}

TEST_IN_FOLDER(test_what_cannot_be_a_tar_is_refused, folder)
{
    TarWriter *writer = NULL;
    FshError error = {0};
    const char *fifo = test_path(folder, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(tar_writer_open(&writer, fifo, 0, &error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "fifo: is not a regular file");
    assert_int_equal(tar_writer_open(&writer, folder->path, 0, &error), FSH_ERR_SYSTEM);
    assert_int_equal(tar_writer_open(&writer, test_path(folder, "no/a.tar"), 0, &error), FSH_ERR_NOT_FOUND);
    open_writer(&writer, test_path(folder, "a.tar"), 0);
    assert_int_equal(tar_writer_add(writer, "", "x", 1, 0, NULL, &error), FSH_ERR_USAGE);
    assert_int_equal(tar_writer_add(writer, "a/", "x", 1, 0, NULL, &error), FSH_ERR_USAGE);
    tar_writer_abandon(&writer);
    assert_int_equal(test_file_size(test_path(folder, "a.tar")), 0);
}

TEST_IN_FOLDER(test_a_second_writer_is_refused, folder)
{
    const char *path = test_path(folder, "a.tar");
    TarWriter *writer = NULL;
    open_writer(&writer, path, 0);
    add(writer, &(Entry){"a", 100, 0});
    pid_t child = fork();
    if (child == 0) {
        TarWriter *second = NULL;
        FshError error = {0};
        bool told = tar_writer_open(&second, path, 0, &error) == FSH_ERR_EXISTS && !second &&
                    strstr(error.message, "a.tar: is being written by another process");
        _exit(told ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(test_file_size(path), 1024); /* not cut off either */
    finish(&writer);
    open_writer(&writer, path, 1024);
    tar_writer_abandon(&writer);
}

/* ---- a full disk: this program, run again with "fill PATH", writes until that fails ---- */

static int fill(const char *path)
{
    TarWriter *writer = NULL;
    FshError error = {0};
    uint64_t offset = 0;
    if (tar_writer_open(&writer, path, 0, &error))
        return 3;
    FshStatus status = FSH_OK;
    for (int i = 0; i < 10 && !status; i++)
        status = tar_writer_add(writer, "a", noise, 1000, 0, &offset, &error);
    if (!status)
        status = tar_writer_finish(&writer, &error);
    tar_writer_abandon(&writer);
    (void)fprintf(stderr, "%s\n", error.message);
    return status == FSH_ERR_NO_SPACE ? 1 : status ? 3 : 0;
}

TEST_IN_FOLDER(test_a_full_disk_is_told_and_leaves_whole_entries, folder)
{
    enum { ENTRY_BYTES = 1536, ALL_BYTES = 10 * ENTRY_BYTES + 1024 };
    char self[PATH_MAX] = {0};
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (uint64_t disk_bytes = 0; disk_bytes <= ALL_BYTES; disk_bytes += 512) {
        const char *path = test_path(folder, "%" PRIu64 ".tar", disk_bytes);
        RunOptions options = {.limit_disk = true, .disk_bytes = disk_bytes};
        RunResult result = run_program(&options, self, "fill", path, NULL);
        uint64_t whole = disk_bytes / ENTRY_BYTES < 10 ? disk_bytes / ENTRY_BYTES : 10;
        if (disk_bytes < ALL_BYTES) {
            assert_int_equal(result.exit_status, 1);
            assert_contains(result.err, ".tar: cannot write: No space left on device");
            assert_int_equal(test_file_size(path), whole * ENTRY_BYTES);
        } else {
            assert_int_equal(result.exit_status, 0);
            assert_int_equal(test_file_size(path), ALL_BYTES);
        }
        run_result_free(&result);
    }
}

/* A write that is cut short, and then fails, leaves no part of an entry: RLIMIT_FSIZE does that to every
 * file. */
TEST_IN_FOLDER(test_a_part_of_an_entry_is_cut_off_again, folder)
{
    const char *path = test_path(folder, "a.tar");
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {5000, 5000};
        TarWriter *writer = NULL;
        FshError error = {0};
        bool fits = signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &limit) == 0 &&
                    tar_writer_open(&writer, path, 0, &error) == FSH_OK &&
                    tar_writer_add(writer, "a", noise, 1000, 0, NULL, &error) == FSH_OK;
        bool told = fits && tar_writer_add(writer, "b", noise, 20000, 0, NULL, &error) == FSH_ERR_SYSTEM &&
                    strstr(error.message, "a.tar: cannot write: File too large");
        /* What is smaller still fits. */
        uint64_t offset = 0;
        bool fits_again = told && tar_writer_add(writer, "c", noise, 512, 0, &offset, &error) == FSH_OK;
        _exit(fits_again && offset == 1536 + 1024 ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(test_file_size(path), 1536 + 1024);
}

/* Runs `tar_write_test fill PATH`, the program whose disk is full, or takes a pattern of tests. */
int test_program_arguments(int argc, char **argv)
{
    test_fill_noise(noise, NOISE_WIDTH, NOISE_WIDTH, 1);
    return argc == 3 && strcmp(argv[1], "fill") == 0 ? fill(argv[2]) : test_take_pattern(argc, argv);
}
