#include "common/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/random.h"
#include "tests/support/support.h"

static bool permissions_bind;

static void walk(const char *root, int jobs, FileList *list)
{
    FshError error = {0};
    assert_ok(walk_files(root, jobs, list, &error), &error);
}

/* Returns the paths with '\n' between them; the caller frees the text. */
static char *joined(const FileList *list)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    assert_non_null(stream);
    for (uint64_t i = 0; i < list->count; i++)
        (void)fprintf(stream, "%s\n", list->files[i].path);
    assert_int_equal(fclose(stream), 0);
    return text;
}

static void assert_paths(const char *root, const char *expected)
{
    for (int jobs = 1; jobs < 6; jobs++) {
        FileList list;
        walk(root, jobs, &list);
        char *paths = joined(&list);
        assert_string_equal(paths, expected);
        free(paths);
        file_list_free(&list);
    }
}

TEST_IN_FOLDER(test_paths_come_in_the_order_of_their_bytes, folder)
{
    static const char *const paths[] = {"b/x.jpg",   "a/z.jpg", "a/y/1.jpg",   "a.jpg",
                                        "a-b/x.jpg", "B/x.jpg", "é/x.jpg",     "a/Z.jpg",
                                        "10.jpg",    "9.jpg",   "a b/c d.jpg", "z\x7f/\xff.jpg"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        test_file_write_text(test_path(folder, "%s", paths[i]), "x");
    /* '-' and '.' come before '/', so "a-b/" and "a.jpg" before "a/". */
    assert_paths(folder->path,
                 "10.jpg\n9.jpg\nB/x.jpg\na b/c d.jpg\na-b/x.jpg\na.jpg\na/Z.jpg\na/y/1.jpg\na/z.jpg\n"
                 "b/x.jpg\nz\x7f/\xff.jpg\né/x.jpg\n");
    assert_paths(test_path(folder, "a/"), "Z.jpg\ny/1.jpg\nz.jpg\n");
}

TEST_IN_FOLDER(test_sizes_and_times_are_told, folder)
{
    const char *path = test_path(folder, "a.bin");
    test_file_write(path, "12345", 5);
    test_file_write(test_path(folder, "b/empty"), "", 0);
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1700000000, .tv_nsec = 123456789}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    FileList list;
    walk(folder->path, 2, &list);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.files[0].bytes, 5);
    assert_true(list.files[0].modified_ns == INT64_C(1700000000123456789));
    assert_int_equal(list.files[1].bytes, 0);
    assert_int_equal(list.total_bytes, 5);
    file_list_free(&list);
    assert_null(list.files);
    file_list_free(&list);
}

TEST_IN_FOLDER(test_hidden_names_are_skipped_and_counted, folder)
{
    static const char *const paths[] = {".root/a.jpg", ".root/.hidden", ".root/b/.DS_Store",
                                        ".root/.git/config", ".root/.git/x"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        test_file_write_text(test_path(folder, "%s", paths[i]), "x");
    FileList list;
    walk(test_path(folder, ".root"), 2, &list); /* the root itself may be hidden */
    assert_int_equal(list.count, 1);
    assert_string_equal(list.files[0].path, "a.jpg");
    assert_int_equal(list.hidden_count, 3); /* .git counts once: it is not entered */
    assert_int_equal(list.problem_count, 0);
    file_list_free(&list);
}

TEST_IN_FOLDER(test_links_are_followed_and_loops_are_not, folder)
{
    test_file_write_text(test_path(folder, "outside/o.jpg"), "xyz");
    test_file_write_text(test_path(folder, "root/a/x.jpg"), "x");
    assert_int_equal(symlink("../outside", test_path(folder, "root/folder")), 0);
    assert_int_equal(symlink("a/x.jpg", test_path(folder, "root/file.jpg")), 0);
    assert_int_equal(symlink("../a", test_path(folder, "root/a/itself")), 0);
    assert_int_equal(symlink("..", test_path(folder, "outside/up")), 0);
    assert_int_equal(symlink("nowhere", test_path(folder, "root/dangling: twice")), 0);
    assert_int_equal(symlink("circle", test_path(folder, "root/circle")), 0);
    for (int jobs = 1; jobs < 5; jobs++) {
        FileList list;
        walk(test_path(folder, "root"), jobs, &list);
        char *paths = joined(&list);
        /* up/ is the folder above: it is entered once, and both of its folders are met above then. */
        assert_string_equal(paths, "a/x.jpg\nfile.jpg\nfolder/o.jpg\n");
        free(paths);
        assert_int_equal(list.total_bytes, 5);
        static const WalkProblem problems[] = {
            {.path = "a/itself", .reason = "leads back to a folder above it; not entered again"},
            {.path = "circle", .reason = "cannot be read: Too many levels of symbolic links"},
            {.path = "dangling: twice", .reason = "link to nothing"},
            {.path = "folder/up/outside", .reason = "leads back to a folder above it; not entered again"},
            {.path = "folder/up/root", .reason = "leads back to a folder above it; not entered again"},
        };
        assert_int_equal(list.problem_count, sizeof problems / sizeof *problems);
        for (size_t i = 0; i < list.problem_count; i++) {
            assert_string_equal(list.problems[i].path, problems[i].path);
            assert_string_equal(list.problems[i].reason, problems[i].reason);
        }
        file_list_free(&list);
    }
}

TEST_IN_FOLDER(test_only_regular_files_are_listed, folder)
{
    test_file_write_text(test_path(folder, "a.jpg"), "x");
    assert_int_equal(mkdir(test_path(folder, "empty"), 0700), 0);
    assert_int_equal(mkfifo(test_path(folder, "fifo"), 0600), 0);
    FileList list;
    walk(folder->path, 2, &list);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.problem_count, 1);
    assert_string_equal(list.problems[0].path, "fifo");
    assert_string_equal(list.problems[0].reason, "is no regular file");
    file_list_free(&list);
}

TEST_IN_FOLDER(test_an_unreadable_folder_is_a_problem_and_an_unreadable_root_a_failure, folder)
{
    if (!permissions_bind)
        skip();
    test_file_write_text(test_path(folder, "a/x.jpg"), "x");
    test_file_write_text(test_path(folder, "secret/x.jpg"), "x");
    assert_int_equal(chmod(test_path(folder, "secret"), 0), 0);
    FileList list;
    walk(folder->path, 3, &list);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.problem_count, 1);
    assert_string_equal(list.problems[0].path, "secret");
    assert_string_equal(list.problems[0].reason, "cannot read the folder: Permission denied");
    file_list_free(&list);

    FshError error = {0};
    assert_int_equal(walk_files(test_path(folder, "secret"), 3, &list, &error), FSH_ERR_SYSTEM);
    assert_contains(error.message, "secret: cannot read the folder: Permission denied");
    assert_null(list.files);
}

TEST_IN_FOLDER(test_a_root_that_is_no_folder_is_refused, folder)
{
    FileList list;
    FshError error = {0};
    assert_int_equal(walk_files(test_path(folder, "missing"), 2, &list, &error), FSH_ERR_NOT_FOUND);
    assert_contains(error.message, "missing: cannot read the folder: No such file or directory");
    test_file_write_text(test_path(folder, "file"), "x");
    assert_int_equal(walk_files(test_path(folder, "file"), 2, &list, &error), FSH_ERR_NOT_FOUND);
    assert_contains(error.message, "file: is no folder");
    assert_int_equal(mkdir(test_path(folder, "empty"), 0700), 0);
    walk(test_path(folder, "empty"), 2, &list);
    assert_int_equal(list.count, 0);
    file_list_free(&list);
}

/* More names than fit in one batch, in one flat folder and in many: the same list for any number of threads.
 */
TEST_IN_FOLDER(test_large_folders_are_complete_and_the_same_for_any_number_of_threads, folder)
{
    enum { FLAT = 3000, ALIKE = 1500, FOLDERS = 40, EACH = 25 };
    for (int i = 0; i < FLAT; i++) {
        const char *path =
            test_path(folder, "flat/%04d-with-a-name-long-enough-for-batches.jpg", i * 7919 % FLAT);
        FILE *stream = i ? fopen(path, "we") : (test_file_write_text(path, ""), NULL);
        if (stream)
            (void)fclose(stream);
    }
    for (int i = 0; i < ALIKE; i++) { /* what differs comes after what sorts most of them */
        const char *path = test_path(folder, "alike/%s%d-the-same-in-many-%d", i % 5 ? "" : "é", i * 7919 % 4,
                                     i * 7919 % ALIKE);
        FILE *stream = i ? fopen(path, "we") : (test_file_write_text(path, ""), NULL);
        if (stream)
            (void)fclose(stream);
    }
    for (int i = 0; i < FOLDERS; i++)
        for (int j = 0; j < EACH; j++)
            test_file_write_text(test_path(folder, "deep/%d/%d/%d/%d.jpg", i % 3, i % 5, i, j), "xx");
    FileList first;
    walk(folder->path, 1, &first);
    assert_int_equal(first.count, FLAT + ALIKE + FOLDERS * EACH);
    assert_int_equal(first.total_bytes, FOLDERS * EACH * 2);
    for (uint64_t i = 1; i < first.count; i++)
        assert_true(strcmp(first.files[i - 1].path, first.files[i].path) < 0);
    for (int jobs = 2; jobs < 12; jobs++) {
        FileList list;
        walk(folder->path, jobs, &list);
        assert_int_equal(list.count, first.count);
        for (uint64_t i = 0; i < list.count; i++) {
            assert_string_equal(list.files[i].path, first.files[i].path);
            assert_int_equal(list.files[i].bytes, first.files[i].bytes);
        }
        file_list_free(&list);
    }
    file_list_free(&first);
}

TEST_IN_FOLDER(test_paths_longer_than_the_system_takes_are_problems, folder)
{
    char before[4096], name[201];
    assert_non_null(getcwd(before, sizeof before));
    memset(name, 'd', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(chdir(folder->path), 0);
    bool made = true;
    for (int depth = 0; made && depth < 25; depth++) /* 5,000 bytes; PATH_MAX is 4,096 */
        made = mkdir(name, 0700) == 0 && chdir(name) == 0;
    /* Back by steps: the folder is removed by the same steps. */
    FileList list = {0};
    FshError error = {0};
    FshStatus status = walk_files(folder->path, 2, &list, &error);
    for (int depth = 0; depth < 25; depth++) {
        (void)!chdir("..");
        (void)rmdir(name);
    }
    assert_int_equal(chdir(before), 0);
    assert_true(made);
    assert_ok(status, &error);
    assert_int_equal(list.count, 0);
    assert_int_equal(list.problem_count, 1);
    assert_contains(list.problems[0].reason, "File name too long");
    file_list_free(&list);
}

TEST_IN_FOLDER(test_an_interrupt_ends_the_walk, folder)
{
    test_file_write_text(test_path(folder, "a/x.jpg"), "x");
    FileList list;
    FshError error = {0};
    interrupt_simulate(SIGINT);
    FshStatus status = walk_files(folder->path, 2, &list, &error);
    interrupt_simulate(0);
    assert_int_equal(status, FSH_ERR_INTERRUPTED);
    assert_null(list.files);
    assert_contains(error.message, "interrupted");
}

/* ---- the cursor ---- */

/* Returns lines of PATH, or of PATH: REASON, in the cursor's order; the caller frees the text. */
static char *walked(const char *root, uint64_t *hidden_count)
{
    WalkCursor *cursor = NULL;
    FshError error = {0};
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    assert_non_null(stream);
    assert_ok(walk_open(&cursor, root, &error), &error);
    for (;;) {
        WalkEntry entry;
        assert_ok(walk_next(cursor, &entry, &error), &error);
        if (!entry.path)
            break;
        (void)fprintf(stream, entry.reason ? "%s: %s\n" : "%s\n", entry.path, entry.reason);
    }
    WalkEntry entry;
    assert_ok(walk_next(cursor, &entry, &error), &error); /* the end stays the end */
    assert_null(entry.path);
    if (hidden_count)
        *hidden_count = walk_hidden_count(cursor);
    walk_close(&cursor);
    assert_null(cursor);
    walk_close(&cursor);
    assert_int_equal(fclose(stream), 0);
    return text;
}

static void assert_walked(const char *root, const char *expected)
{
    char *text = walked(root, NULL);
    assert_string_equal(text, expected);
    free(text);
}

static void link_to(TestFolder *folder, const char *target, const char *path)
{
    assert_int_equal(symlink(target, test_path(folder, "%s", path)), 0);
}

TEST_IN_FOLDER(test_the_cursor_gives_files_and_problems_in_one_order, folder)
{
    static const char *const paths[] = {"r/a/x",   "r/a-b/x", "r/a.txt", "r/a0",         "r/a!/x",
                                        "r/l.txt", "r/l0",    "r/m.",    "r/\xff\xfe/x", "r/.hidden/x",
                                        "r/b/.x",  "o/.h",    "o/x",     "r/a/.-"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        test_file_write_text(test_path(folder, "%s", paths[i]), "12");
    link_to(folder, "../o", "r/l");      /* a folder: after l.txt */
    link_to(folder, "a.txt", "r/m");     /* a file: before m. */
    link_to(folder, "../o", "r/l-");     /* followed for the order's sake by l alone */
    link_to(folder, "nothing", "r/l-!"); /* before l-/ */
    link_to(folder, "circle", "r/circle");
    link_to(folder, "..", "r/b/up");
    assert_int_equal(mkfifo(test_path(folder, "r/a.fifo"), 0600), 0);
    static const char expected[] = "a!/x\na-b/x\na.fifo: is no regular file\na.txt\na/x\na0\n"
                                   "b/up: leads back to a folder above it; not entered again\n"
                                   "circle: cannot be read: Too many levels of symbolic links\n"
                                   "l-!: link to nothing\nl-/x\nl.txt\nl/x\nl0\nm\nm.\n\xff\xfe/x\n";
    assert_walked(test_path(folder, "r"), expected);
    uint64_t hidden_count = 0;
    free(walked(test_path(folder, "r"), &hidden_count));
    assert_int_equal(hidden_count, 5); /* o/.h by two links */
    for (int jobs = 1; jobs < 4; jobs++) {
        FileList list;
        walk(test_path(folder, "r"), jobs, &list);
        char *text = joined(&list);
        assert_string_equal(text, "a!/x\na-b/x\na.txt\na/x\na0\nl-/x\nl.txt\nl/x\nl0\nm\nm.\n\xff\xfe/x\n");
        free(text);
        assert_int_equal(list.problem_count, 4);
        assert_string_equal(list.problems[3].path, "l-!");
        assert_int_equal(list.total_bytes, 12 * 2);
        assert_int_equal(list.hidden_count, 5);
        file_list_free(&list);
    }
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Trees of names that begin alike and end around '/'; the truth is what the test made, sorted as strings. */
TEST_IN_FOLDER(test_any_tree_comes_in_the_order_of_its_paths, folder)
{
    static const char *const parts[] = {"a", "a.", "a-", "a!", "a0", "a/", "aa", "\x01", "\xff", "a .b"};
    enum { PART_COUNT = sizeof parts / sizeof *parts, FILES = 200 };
    Random random;
    random_start(&random, 5, 0);
    for (int round = 0; round < 12; round++) {
        const char *root = test_path(folder, "t%d", round), *files[FILES];
        size_t count = 0;
        for (int i = 0; i < FILES; i++) {
            char path[256] = "";
            uint64_t depth = 1 + random_below(&random, 5);
            for (uint64_t at = 0; at < depth; at++)
                (void)snprintf(path + strlen(path), sizeof path - strlen(path), "%s%s", at ? "/" : "",
                               parts[random_below(&random, PART_COUNT)]);
            const char *full = test_path(folder, "t%d/%s", round, path);
            struct stat found;
            /* Neither a folder with this name, nor a file where a folder would be. */
            if (path[strlen(path) - 1] == '/' || stat(full, &found) == 0 || errno == ENOTDIR)
                continue;
            test_file_write_text(full, "");
            files[count++] = full + strlen(root) + 1;
        }
        char *expected = NULL;
        size_t length = 0;
        FILE *stream = open_memstream(&expected, &length);
        assert_non_null(stream);
        for (size_t i = 0; i < count; i++) { /* "a//b" and "a/b" are one */
            char *path = (char *)files[i], *end = path;
            for (const char *from = path; *from; from++)
                if (*from != '/' || end[-1] != '/')
                    *end++ = *from;
            *end = '\0';
        }
        qsort(files, count, sizeof *files, compare_texts);
        for (size_t i = 0; i < count; i++)
            (void)fprintf(stream, "%s\n", files[i]);
        assert_int_equal(fclose(stream), 0);
        assert_true(count > 20);
        assert_walked(root, expected);
        assert_paths(root, expected);
        free(expected);
    }
}

TEST_IN_FOLDER(test_the_first_file_comes_before_the_rest_is_read, folder)
{
    for (int i = 0; i < 50; i++)
        test_file_write_text(test_path(folder, "%02d/%d/x", i / 10, i), "x");
    WalkCursor *cursor = NULL;
    FshError error = {0};
    WalkEntry entry;
    assert_ok(walk_open(&cursor, folder->path, &error), &error);
    assert_ok(walk_next(cursor, &entry, &error), &error);
    assert_string_equal(entry.path, "00/0/x");
    assert_false(entry.looked_at);
    test_file_write_text(test_path(folder, "00/1/new"), "x"); /* a folder is read as it is entered */
    test_file_write_text(test_path(folder, "04/new"), "x");
    size_t count = 1;
    bool seen[2] = {false, false};
    for (;; count++) {
        assert_ok(walk_next(cursor, &entry, &error), &error);
        if (!entry.path)
            break;
        seen[0] = seen[0] || !strcmp(entry.path, "00/1/new");
        seen[1] = seen[1] || !strcmp(entry.path, "04/new");
    }
    walk_close(&cursor);
    assert_int_equal(count, 52);
    assert_true(seen[0] && seen[1]);
}

TEST_IN_FOLDER(test_the_cursor_holds_the_folders_on_its_way_only, folder)
{
    enum { FOLDERS = 60, EACH = 200 };
    for (int i = 0; i < FOLDERS; i++) {
        test_file_write_text(test_path(folder, "%02d/first", i), "x");
        for (int j = 1; j < EACH; j++) {
            char path[512];
            (void)snprintf(path, sizeof path, "%s/%02d/file-%d", folder->path, i, j);
            FILE *stream = fopen(path, "we");
            assert_non_null(stream);
            assert_int_equal(fclose(stream), 0);
        }
    }
    WalkCursor *cursor = NULL;
    FshError error = {0};
    WalkEntry entry;
    size_t before = mallinfo2().uordblks, most = 0, count = 0;
    assert_ok(walk_open(&cursor, folder->path, &error), &error);
    for (;; count++) {
        assert_ok(walk_next(cursor, &entry, &error), &error);
        if (!entry.path)
            break;
        size_t now = mallinfo2().uordblks;
        most = now - before > most ? now - before : most;
    }
    walk_close(&cursor);
    assert_int_equal(count, FOLDERS * EACH);
    if (!mallinfo2().uordblks)
        skip();                                /* a sanitizer's malloc tells nothing */
    assert_true(most > 0 && most < 48 * 1024); /* one folder's 200 names; all 12,000 take 400 KiB and more */
    /* LeakSanitizer tells of leaks: malloc counts what a thread's cache keeps as used. */
}

TEST_IN_FOLDER(test_what_a_link_leads_to_is_told, folder)
{
    test_file_write_text(test_path(folder, "o/x"), "12345");
    assert_int_equal(mkdir(test_path(folder, "r"), 0700), 0);
    link_to(folder, "../o/x", "r/link");
    WalkCursor *cursor = NULL;
    WalkEntry entry;
    FileList list;
    assert_int_equal(walk_open(&cursor, test_path(folder, "r"), NULL), FSH_OK);
    assert_int_equal(walk_next(cursor, &entry, NULL), FSH_OK);
    walk(test_path(folder, "r"), 1, &list);
    assert_true(entry.looked_at);
    assert_int_equal(entry.bytes, 5);
    assert_true(entry.modified_ns == list.files[0].modified_ns);
    assert_int_equal(list.files[0].bytes, 5);
    file_list_free(&list);
    walk_close(&cursor);
}

/* Each folder has a file and a link to each folder: 12! paths without a bound. */
TEST_IN_FOLDER(test_a_web_of_links_comes_to_an_end, folder)
{
    enum { FOLDERS = 12 };
    for (int i = 0; i < FOLDERS; i++) {
        test_file_write_text(test_path(folder, "%02d/x", i), "x");
        for (int j = 0; j < FOLDERS; j++) {
            char target[16], path[32];
            (void)snprintf(target, sizeof target, "../%02d", j);
            (void)snprintf(path, sizeof path, "%02d/link%02d", i, j);
            link_to(folder, target, path);
        }
    }
    FileList list;
    walk(folder->path, 2, &list);
    /* Folders, links in them, and each folder once more by links in linked folders. */
    assert_int_equal(list.count, FOLDERS + FOLDERS * (FOLDERS - 1) + FOLDERS);
    size_t again = 0;
    for (uint64_t i = 0; i < list.problem_count; i++)
        again += !strcmp(list.problems[i].reason,
                         "a link in a linked folder, to one entered so before; not entered again");
    assert_true(again > 0);
    file_list_free(&list);
}

TEST_IN_FOLDER(test_a_folder_linked_many_times_is_entered_each_time, folder)
{
    test_file_write_text(test_path(folder, "pool/class/x"), "x");
    assert_int_equal(mkdir(test_path(folder, "r"), 0700), 0);
    link_to(folder, "../pool", "r/a"); /* class is no link there: it counts as often as pool does */
    link_to(folder, "../pool", "r/b");
    link_to(folder, "../pool/class", "r/c");
    link_to(folder, "class", "pool/same");
    assert_walked(test_path(folder, "r"),
                  "a/class/x\na/same/x\nb/class/x\n"
                  "b/same: a link in a linked folder, to one entered so before; not entered again\nc/x\n");
}

TEST_IN_FOLDER(test_the_cursor_fails_as_the_list_does, folder)
{
    WalkCursor *cursor = NULL;
    WalkEntry entry;
    FshError error = {0};
    assert_int_equal(walk_open(&cursor, test_path(folder, "missing"), &error), FSH_ERR_NOT_FOUND);
    assert_contains(error.message, "missing: cannot read the folder: No such file or directory");
    assert_null(cursor);
    test_file_write_text(test_path(folder, "a/x"), "x");
    assert_int_equal(walk_open(&cursor, test_path(folder, "a/x"), &error), FSH_ERR_NOT_FOUND);
    assert_contains(error.message, "a/x: is no folder");
    assert_ok(walk_open(&cursor, folder->path, &error), &error);
    interrupt_simulate(SIGINT);
    FshStatus status = walk_next(cursor, &entry, &error);
    interrupt_simulate(0);
    assert_int_equal(status, FSH_ERR_INTERRUPTED);
    assert_contains(error.message, "interrupted while its files were listed");
    walk_close(&cursor);
    if (!permissions_bind)
        skip();
    test_file_write_text(test_path(folder, "secret/x"), "x");
    test_file_write_text(test_path(folder, "secret.txt"), "x");
    assert_int_equal(chmod(test_path(folder, "secret"), 0), 0);
    assert_walked(folder->path, "a/x\nsecret.txt\nsecret: cannot read the folder: Permission denied\n");
    assert_int_equal(walk_open(&cursor, test_path(folder, "secret"), &error), FSH_ERR_SYSTEM);
    assert_contains(error.message, "secret: cannot read the folder: Permission denied");
    assert_null(cursor);
}

TEST_IN_FOLDER(test_some_folders_are_listed_with_their_names, folder)
{
    static const char *const folders[] = {"a/b-", "a/b", "z"};
    test_file_write_text(test_path(folder, "a/b/c/1.jpg"), "x");
    test_file_write_text(test_path(folder, "a/b-/2.jpg"), "xy");
    test_file_write_text(test_path(folder, "a/3.jpg"), "x");
    test_file_write_text(test_path(folder, "z/.4.jpg"), "x");
    FileList list;
    FshError error = {0};
    assert_ok(walk_folders(folder->path, folders, 3, 2, &list, &error), &error);
    char *paths = joined(&list);
    assert_string_equal(paths, "a/b-/2.jpg\na/b/c/1.jpg\n");
    assert_int_equal(list.total_bytes, 3);
    assert_int_equal(list.hidden_count, 1);
    free(paths);
    file_list_free(&list);
    static const char *const missing[] = {"a/b", "nowhere"};
    assert_int_equal(walk_folders(folder->path, missing, 2, 2, &list, &error), FSH_ERR_NOT_FOUND);
    assert_int_equal(list.count, 0);
}

int test_program_begin(void)
{
    permissions_bind = test_bind_to_permissions();
    return TEST_RUN;
}
