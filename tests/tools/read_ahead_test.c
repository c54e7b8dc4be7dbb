/* Files are asked for before their turn where they come from a disk, and only those that will be read.
 * slow_disk.c says that they come from one, and notes what is asked for; the first tests take a real disk. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/resize_files.h"
#include "tools/job/read_ahead.h"

/* ---- a real disk: a file beside the programs ---- */

enum { DISK_BYTES = 300 * 1024 };

typedef struct DiskFile {
    char path[512];
    int descriptor;
} DiskFile;

static void disk_file_make(DiskFile *file)
{
    static const uint8_t bytes[DISK_BYTES] = {1};
    (void)snprintf(file->path, sizeof file->path, "%s/read-ahead-%d", getenv("FSHARD_BIN"), (int)getpid());
    test_file_write(file->path, bytes, sizeof bytes);
    file->descriptor = open(file->path, O_RDONLY | O_CLOEXEC);
    assert_true(file->descriptor >= 0);
    assert_int_equal(fsync(file->descriptor), 0);
}

static void disk_file_remove(DiskFile *file)
{
    (void)close(file->descriptor);
    (void)unlink(file->path);
}

/* Returns whether all of the file lies in memory. */
static bool is_resident(const DiskFile *file)
{
    unsigned char pages[DISK_BYTES / 4096];
    size_t count = 0;
    void *mapping = mmap(NULL, DISK_BYTES, PROT_READ, MAP_SHARED, file->descriptor, 0);
    assert_ptr_not_equal(mapping, MAP_FAILED);
    assert_int_equal(mincore(mapping, DISK_BYTES, pages), 0);
    for (size_t i = 0; i < sizeof pages; i++)
        count += pages[i] & 1;
    (void)munmap(mapping, DISK_BYTES);
    return count == sizeof pages;
}

/* Returns whether the file could be put out of memory: it lies on a disk. */
static bool make_cold(const DiskFile *file)
{
    (void)posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_DONTNEED);
    return !is_resident(file);
}

static void read_whole(const DiskFile *file)
{
    static uint8_t bytes[DISK_BYTES];
    assert_int_equal(pread(file->descriptor, bytes, sizeof bytes, 0), sizeof bytes);
}

static long blocks_read(void)
{
    struct rusage used = {0};
    assert_int_equal(getrusage(RUSAGE_THREAD, &used), 0);
    return used.ru_inblock;
}

TEST(test_it_is_due_when_a_file_came_from_the_disk_and_some_looks_longer)
{
    DiskFile file;
    ReadAhead ahead = {0};
    disk_file_make(&file);
    const bool on_disk = make_cold(&file);
    const long before = blocks_read();
    read_whole(&file);
    const bool counted = blocks_read() > before;
    if (on_disk && counted) {
        assert_false(read_ahead_is_due(&ahead)); /* whatever this thread has read before */
        read_whole(&file);
        assert_false(read_ahead_is_due(&ahead));
        assert_true(make_cold(&file));
        read_whole(&file);
        for (unsigned i = 0; i < READ_AHEAD_PLACES; i++)
            assert_true(read_ahead_is_due(&ahead));
        assert_false(read_ahead_is_due(&ahead));
    }
    disk_file_remove(&file);
    if (!on_disk || !counted)
        skip();
}

TEST(test_what_is_asked_for_is_in_memory_soon_and_counts_as_from_the_disk)
{
    DiskFile file;
    ReadAhead ahead = {0};
    disk_file_make(&file);
    const bool on_disk = make_cold(&file);
    const long before = blocks_read();
    assert_false(read_ahead_is_due(&ahead));
    read_ahead_ask(AT_FDCWD, file.path);
    const bool counted = blocks_read() > before, due = read_ahead_is_due(&ahead);
    bool resident = false;
    for (int i = 0; i < 500 && !resident; i++) {
        resident = is_resident(&file);
        sleep_seconds(0.01);
    }
    disk_file_remove(&file);
    assert_true(resident);
    assert_int_equal(due, counted);
    if (!on_disk || !counted)
        skip();
}

/* Returns the number that the next descriptor has: one that was left open makes it larger. */
static int next_descriptor(void)
{
    const int descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)close(descriptor);
    return descriptor;
}

TEST_IN_FOLDER(test_what_is_no_file_is_passed_over, folder)
{
    const int descriptor = next_descriptor();
    test_file_write_text(test_path(folder, "empty"), "");
    assert_int_equal(mkfifo(test_path(folder, "pipe"), 0600), 0);
    assert_int_equal(symlink("loop", test_path(folder, "loop")), 0);
    const char *const names[] = {"empty", "pipe", "loop", "", "nowhere"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        read_ahead_ask(AT_FDCWD, test_path(folder, "%s", names[i]));
    assert_int_equal(next_descriptor(), descriptor);
}

/* ---- what the programs ask for ---- */

/* Runs a program on a slow disk, and returns what it asked for, "path\n" below root for each; the caller
 * frees it. looks: how often the disk says that it was read; NULL: always. */
static char *asked_by(TestFolder *folder, const char *looks, const char *root, int exit_status,
                      const char *program, const char *const *arguments)
{
    char variable[64];
    const char *notes = test_path(folder, "asked"), *const environment[] = {variable, NULL};
    const RunOptions options = {.slow_disk = notes, .environment = looks ? environment : NULL};
    (void)snprintf(variable, sizeof variable, "FSHARD_SLOW_DISK_LOOKS=%s", looks ? looks : "");
    test_file_write_text(notes, "");
    RunResult result = run_program_arguments(&options, program, arguments);
    if (result.exit_status != exit_status)
        fail_msg("%s: exit status %d\n%s", program, result.exit_status, result.err);
    run_result_free(&result);
    char *text = test_file_read(notes, NULL);
    char *to = text;
    for (char *line = text, *end = strchr(line, '\n'); end; line = end + 1, end = strchr(line, '\n')) {
        const size_t root_length = strlen(root), length = (size_t)(end + 1 - line);
        if (length <= root_length || strncmp(line, root, root_length) != 0 || line[root_length] != '/')
            fail_msg("asked for %.*s, which is not below %s", (int)length, line, root);
        memmove(to, line + root_length + 1, length - root_length - 1);
        to += length - root_length - 1;
    }
    *to = '\0';
    return text;
}

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void expect_asked(char *asked, const char *expected)
{
    assert_string_equal(asked, expected);
    free(asked);
}

/* Writes "a/FIRST.jpg\n" … "a/LAST.jpg\n" to text. */
static const char *numbered(char text[1024], unsigned first, unsigned last)
{
    size_t length = 0;
    text[0] = '\0';
    for (unsigned i = first; i <= last; i++)
        length += (size_t)snprintf(text + length, 1024 - length, "a/%03u.jpg\n", i);
    return text;
}

TEST_IN_FOLDER(test_fresize_asks_for_the_sixteenth_file_after_each, folder)
{
    char expected[1024];
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_many(folder, "in/a", 40, 40);
    test_file_write_text(test_path(folder, "in/a/030.txt"), "no image");
    /* the first look only begins, and at the text nothing is read: what it would have asked for is not */
    char *asked = asked_by(folder, NULL, in, 0, "fresize", ARGUMENTS("-q", "-j1", "--max-size=20", in, out));
    expect_asked(asked, numbered(expected, 17, 39));
    assert_int_equal(count_outputs(out), 40);
    run_ok("fresize", "-q", "-j1", "--max-size=20", in, test_path(folder, "other"), NULL);
    shell(folder, "diff -r -x .fresize out other");
    asked = asked_by(folder, NULL, in, 0, "fresize", ARGUMENTS("-q", "-j1", "--max-size=20", in, out));
    expect_asked(asked, ""); /* all is done */
    asked = asked_by(folder, NULL, in, 0, "fresize",
                     ARGUMENTS("-q", "-j1", "--dry-run", "--max-size=20", in, test_path(folder, "third")));
    expect_asked(asked, "");
}

TEST_IN_FOLDER(test_fresize_asks_farther_ahead_for_more_jobs, folder)
{
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_many(folder, "in/a", 80, 20);
    char *asked = asked_by(folder, NULL, in, 0, "fresize", ARGUMENTS("-q", "-j2", "--max-size=10", in, out));
    unsigned count = 0;
    bool seen[80] = {false};
    for (const char *line = asked; *line; line = strchr(line, '\n') + 1, count++) {
        const unsigned long number = strtoul(line + 2, NULL, 10);
        assert_in_range(number, 32, 79);
        assert_false(seen[number]);
        seen[number] = true;
    }
    free(asked);
    assert_in_range(count, 80 - 32 - 2, 80 - 32); /* each thread's first look begins */
    assert_int_equal(count_outputs(out), 80);
}

TEST_IN_FOLDER(test_fresize_stops_asking_when_the_disk_is_not_read_any_more, folder)
{
    char expected[1024];
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_many(folder, "in/a", 60, 20);
    /* of its looks 2 to 5 find more blocks, and 15 more are due; look 2 asks for file 17 */
    char *asked = asked_by(folder, "5", in, 0, "fresize", ARGUMENTS("-q", "-j1", "--max-size=10", in, out));
    expect_asked(asked, numbered(expected, 17, 17 + 4 + 15 - 1));
    asked = asked_by(folder, "1", in, 0, "fresize",
                     ARGUMENTS("-q", "-j1", "--max-size=10", in, test_path(folder, "warm")));
    expect_asked(asked, "");
}

TEST_IN_FOLDER(test_fresize_asks_for_nothing_of_another_part, folder)
{
    char expected[1024];
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_many(folder, "in/a", 60, 20);
    char *asked = asked_by(folder, NULL, in, 0, "fresize",
                           ARGUMENTS("-q", "-j1", "--part=1/2", "--max-size=10", in, out));
    expect_asked(asked, numbered(expected, 17, 29));
    asked = asked_by(folder, NULL, in, 0, "fresize",
                     ARGUMENTS("-q", "-j1", "--part=2/2", "--max-size=10", in, out));
    expect_asked(asked, numbered(expected, 30 + 17, 59));
}

TEST_IN_FOLDER(test_fresize_asks_for_what_a_list_names_and_not_for_tars_and_pipes, folder)
{
    char list[1024];
    const char *in = test_path(folder, "in");
    write_many(folder, "in/a", 20, 20);
    numbered(list, 3, 15);
    const size_t length = strlen(list);
    (void)snprintf(
        list + length, sizeof list - length,
        "a/nowhere.jpg\na/002.jpg\na/017.jpg\na/016.jpg\na/gone.jpg\na/../a/018.jpg\na/000.jpg\na/001.jpg\n");
    test_file_write_text(test_path(folder, "list"), list);
    char *asked = asked_by(folder, NULL, in, 1, "fresize",
                           ARGUMENTS("-q", "-j1", "--max-size=10", "--files-from", test_path(folder, "list"),
                                     in, test_path(folder, "listed")));
    /* the first look begins at line 1; lines 18 and 19 are gone and refused */
    expect_asked(asked, "a/000.jpg\na/001.jpg\n");
    shell(folder, "tar cf in.tar in");
    asked = asked_by(
        folder, NULL, in, 0, "fresize",
        ARGUMENTS("-q", "-j1", "--max-size=10", test_path(folder, "in.tar"), test_path(folder, "t")));
    expect_asked(asked, "");
    const char *const bin = getenv("FSHARD_BIN");
    const char *const command = "cat \"$1/list\" |"
                                " \"$2/fresize\" -q -j1 --max-size 10 --files-from - \"$1/in\" \"$1/p\"";
    asked = asked_by(folder, NULL, in, 1, "/bin/sh", ARGUMENTS("-c", command, "sh", folder->path, bin));
    expect_asked(asked, "");
    shell(folder, "diff -r -x .fresize listed p");
}

TEST_IN_FOLDER(test_what_stands_before_a_bad_line_is_done, folder)
{
    char list[1024];
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    write_many(folder, "in/a", 20, 20);
    numbered(list, 0, 4);
    const size_t begin = strlen(list);
    const int length = snprintf(list + begin, sizeof list - begin, "a/0?five\na/006.jpg\n");
    list[begin + 3] = '\0';
    test_file_write(test_path(folder, "list"), list, begin + (size_t)length);
    RunResult result = run_expecting(2, "fresize", "-j1", "--max-size=10", "--files-from",
                                     test_path(folder, "list"), in, out, NULL);
    assert_contains(result.err, "line 6 holds a NUL");
    run_result_free(&result);
    assert_int_equal(count_outputs(out), 5);
}

TEST_IN_FOLDER(test_fresize_asks_for_both_sides_of_a_pair, folder)
{
    const char *in = test_path(folder, "in");
    write_many(folder, "in/blurry", 20, 20);
    write_many(folder, "in/sharp", 20, 20);
    char *asked = asked_by(
        folder, NULL, in, 0, "fresize",
        ARGUMENTS("-q", "-j1", "--pairs=blurry:sharp", "--max-size=10", in, test_path(folder, "out")));
    /* the second sides come along: beyond the first sides there is nothing to ask for */
    expect_asked(asked, "sharp/016.jpg\nblurry/017.jpg\nsharp/017.jpg\nblurry/018.jpg\nsharp/018.jpg\n"
                        "blurry/019.jpg\nsharp/019.jpg\n");
}

TEST_IN_FOLDER(test_fpack_asks_for_the_files_of_later_chunks, folder)
{
    enum { FILES = 600, CHUNK = 32 };
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    source_slow_class(in, "a", FILES, 8, 8);
    char *asked = asked_by(folder, NULL, in, 0, "fpack", ARGUMENTS("-q", "-j1", in, out));
    char *listed = packed_list(out, "train");
    /* chunk 0 begins, so that chunk 17 is the first that is asked for */
    const char *key = listed;
    for (size_t i = 0; i < (READ_AHEAD_PLACES + 1) * CHUNK; i++)
        key = strchr(key, '\n') + 1;
    const char *line = asked;
    size_t count = 0;
    for (; *line && *key; line = strchr(line, '\n') + 1, key = strchr(key, '\n') + 1, count++) {
        const size_t length = strcspn(key, " ");
        if (strncmp(line, key, length) != 0 || strncmp(line + length, ".jpg\n", 5) != 0)
            fail_msg("asked for %.20s, and %.20s follows", line, key);
    }
    assert_int_equal(*line, '\0');
    assert_int_equal(*key, '\0');
    assert_int_equal(count, FILES - (READ_AHEAD_PLACES + 1) * CHUNK);
    free(asked);
    free(listed);
    asked = asked_by(folder, "1", in, 0, "fpack", ARGUMENTS("-q", "-j1", in, test_path(folder, "warm")));
    expect_asked(asked, "");
    asked = asked_by(folder, NULL, in, 0, "fpack", ARGUMENTS("-q", "-j1", out, test_path(folder, "again")));
    expect_asked(asked, "");
    shell(folder, "cmp out/train-00000-of-00001.fshard warm/train-00000-of-00001.fshard");
}
