#include "common/walk.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "tests/support/support.h"

static bool permissions_bind;

static void walk(const char *root, int jobs, FileList *list)
{
    FshError error = {0};
    assert_ok(walk_files(root, jobs, list, &error), &error);
}

/* Paths with '\n' between them; free it. */
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

static void test_paths_come_in_the_order_of_their_bytes(void **state)
{
    TestFolder *folder = *state;
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

static void test_sizes_and_times_are_told(void **state)
{
    TestFolder *folder = *state;
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

static void test_hidden_names_are_skipped_and_counted(void **state)
{
    TestFolder *folder = *state;
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

static void test_links_are_followed_and_loops_are_not(void **state)
{
    TestFolder *folder = *state;
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
            {"a/itself", "leads back to a folder above it; not entered again"},
            {"circle", "cannot be read: Too many levels of symbolic links"},
            {"dangling: twice", "link to nothing"},
            {"folder/up/outside", "leads back to a folder above it; not entered again"},
            {"folder/up/root", "leads back to a folder above it; not entered again"},
        };
        assert_int_equal(list.problem_count, sizeof problems / sizeof *problems);
        for (size_t i = 0; i < list.problem_count; i++) {
            assert_string_equal(list.problems[i].path, problems[i].path);
            assert_string_equal(list.problems[i].reason, problems[i].reason);
        }
        file_list_free(&list);
    }
}

static void test_only_regular_files_are_listed(void **state)
{
    TestFolder *folder = *state;
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

static void test_an_unreadable_folder_is_a_problem_and_an_unreadable_root_a_failure(void **state)
{
    TestFolder *folder = *state;
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

static void test_a_root_that_is_no_folder_is_refused(void **state)
{
    TestFolder *folder = *state;
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
static void test_large_folders_are_complete_and_the_same_for_any_number_of_threads(void **state)
{
    TestFolder *folder = *state;
    enum { FLAT = 3000, FOLDERS = 40, EACH = 25 };
    for (int i = 0; i < FLAT; i++) {
        const char *path =
            test_path(folder, "flat/%04d-with-a-name-long-enough-for-batches.jpg", i * 7919 % FLAT);
        FILE *stream = i ? fopen(path, "we") : (test_file_write_text(path, ""), NULL);
        if (stream)
            (void)fclose(stream);
    }
    for (int i = 0; i < FOLDERS; i++)
        for (int j = 0; j < EACH; j++)
            test_file_write_text(test_path(folder, "deep/%d/%d/%d/%d.jpg", i % 3, i % 5, i, j), "xx");
    FileList first;
    walk(folder->path, 1, &first);
    assert_int_equal(first.count, FLAT + FOLDERS * EACH);
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

static void test_paths_longer_than_the_system_takes_are_problems(void **state)
{
    TestFolder *folder = *state;
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

static void test_an_interrupt_ends_the_walk(void **state)
{
    TestFolder *folder = *state;
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

#define in_folder(test) cmocka_unit_test_setup_teardown(test, test_folder_setup, test_folder_teardown)

int main(void)
{
    permissions_bind = test_bind_to_permissions();
    const struct CMUnitTest tests[] = {
        in_folder(test_paths_come_in_the_order_of_their_bytes),
        in_folder(test_sizes_and_times_are_told),
        in_folder(test_hidden_names_are_skipped_and_counted),
        in_folder(test_links_are_followed_and_loops_are_not),
        in_folder(test_only_regular_files_are_listed),
        in_folder(test_an_unreadable_folder_is_a_problem_and_an_unreadable_root_a_failure),
        in_folder(test_a_root_that_is_no_folder_is_refused),
        in_folder(test_large_folders_are_complete_and_the_same_for_any_number_of_threads),
        in_folder(test_paths_longer_than_the_system_takes_are_problems),
        in_folder(test_an_interrupt_ends_the_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
