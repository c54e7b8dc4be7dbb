/* fresize and what it must not fall for: names that no file can have, links, ledgers of another recipe, a broken state. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/resize_files.h"

/* ---- names ---- */

static void test_a_name_that_no_file_can_have_costs_its_image_only(void **state)
{
    TestFolder *folder = *state;
    char name[252] = {0};
    memset(name, 'x', sizeof name - 1);
    write_size(test_path(folder, "in/%s.jpg", name), 40, 40);
    for (unsigned i = 0; i < 80; i++)
        write_size(test_path(folder, "in/z%02u.jpg", i), 40, 40);
    shell(folder,
          "tar cf long.tar --transform 's|xx.jpg|xxxxxxxxx.jpg|' -C in . && "
          "mkdir flat && cp in/z00.jpg flat/a.jpg && cp in/z00.jpg flat/b.jpg && "
          "tar cf nested.tar -C flat a.jpg && tar rf nested.tar -C flat --transform 's|b|a.jpg/b|' b.jpg && "
          "tar rf nested.tar -C in z01.jpg");
    RunResult result = fresize_expecting(1, "--max-size=20", "-j1", test_path(folder, "long.tar"),
                                         test_path(folder, "long"), NULL);
    assert_contains(result.err, "File name too long");
    assert_contains(result.err, "81 images: 80 resized, 1 failed");
    run_result_free(&result);
    result = fresize_expecting(1, "--max-size=20", "-j1", test_path(folder, "nested.tar"),
                               test_path(folder, "nested"), NULL);
    assert_contains(result.err, "a.jpg/b.jpg: ");
    assert_contains(result.err, "3 images: 2 resized, 1 failed");
    run_result_free(&result);
}

static void test_files_without_label_that_are_no_images_are_left_alone(void **state)
{
    TestFolder *folder = *state;
    write_size(test_path(folder, "in/v_1.jpg"), 40, 40);
    test_file_write_text(test_path(folder, "in/LICENSE"), "text");
    test_file_write_text(test_path(folder, "in/README"), "text");
    test_file_write_text(test_path(folder, "labels"), "v_1.jpg cat\n");
    const char *const arguments[] = {
        "--max-size=20",          "--labels", test_path(folder, "labels"), test_path(folder, "in"),
        test_path(folder, "out"), NULL};
    json_t *summary = fresize_json(0, arguments);
    assert_int_equal(json_count(summary, "resized"), 1);
    assert_int_equal(json_count(summary, "other_files"), 2);
    json_decref(summary);
}

/* ---- links ---- */

static void test_a_link_is_of_the_file_that_a_symbolic_link_leads_to(void **state)
{
    TestFolder *folder = *state;
    write_size(test_path(folder, "real/a.jpg"), 20, 20);
    shell(folder, "mkdir in && ln -s ../real/a.jpg in/a.jpg");
    fresize_ok("--max-size=30", "--link", test_path(folder, "in"), test_path(folder, "deep/out"), NULL);
    struct stat from, to;
    assert_int_equal(stat(test_path(folder, "real/a.jpg"), &from), 0);
    assert_int_equal(lstat(test_path(folder, "deep/out/a.jpg"), &to), 0);
    assert_int_equal(from.st_ino, to.st_ino);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_name_that_no_file_can_have_costs_its_image_only,
                                        test_folder_setup, test_folder_teardown),
        cmocka_unit_test_setup_teardown(test_files_without_label_that_are_no_images_are_left_alone,
                                        test_folder_setup, test_folder_teardown),
        cmocka_unit_test_setup_teardown(test_a_link_is_of_the_file_that_a_symbolic_link_leads_to,
                                        test_folder_setup, test_folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
