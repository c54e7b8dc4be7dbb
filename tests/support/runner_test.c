/* The runner of all test programs: nothing that is registered is lost, and the order is that of the lines. */
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>

static void pass(void **state)
{
    (void)state;
}

/* Registers the tests in another order, as a compiler may. */
int test_program_begin(void)
{
    static char names[4][2] = {"c", "a", "d", "b"};
    static const int lines[4] = {30, 10, 30, 20};
    static TestRecord records[4];
    for (int i = 0; i < 4; i++) {
        records[i] = (TestRecord){{names[i], pass, NULL, NULL, names[i]}, "made.c", lines[i], NULL};
        test_register(&records[i]);
    }
    return TEST_RUN;
}

TEST(test_the_tests_of_a_file_run_in_the_order_of_their_lines)
{
    RunResult result = run_program(NULL, "/proc/self/exe", "?", NULL);
    assert_int_equal(result.exit_status, 0);
    assert_contains(result.out, "Running 4 test(s)");
    assert_contains(result.out, "[ RUN      ] a\n[       OK ] a\n"
                                "[ RUN      ] b\n[       OK ] b\n"
                                "[ RUN      ] c\n[       OK ] c\n"
                                "[ RUN      ] d\n[       OK ] d\n");
    run_result_free(&result);
}

static int count_to_seven(void **state)
{
    static int seven = 7;
    *state = &seven;
    return 0;
}

TEST_WITH(test_a_test_gets_what_its_setup_made, count_to_seven, NULL, const int *number)
{
    assert_int_equal(*number, 7);
}

TEST(test_a_program_without_tests_fails)
{
    char program[4096];
    (void)snprintf(program, sizeof program, "%s/../tests/fshard-test-none", getenv("FSHARD_BIN"));
    RunResult result = run_program(NULL, program, NULL);
    assert_int_equal(result.exit_status, 1);
    assert_string_equal(result.err, "fshard-test-none: it has no tests\n");
    run_result_free(&result);
}

TEST(test_a_second_argument_is_a_usage_error)
{
    RunResult result = run_program(NULL, "/proc/self/exe", "a", "b", NULL);
    assert_int_equal(result.exit_status, 2);
    run_result_free(&result);
}
