/* test.h - a test registers itself where it is defined; the main of test_main.c runs a program's tests in the
 * order of their lines.
 *
 *   TEST(test_two_and_two_are_four)
 *   {
 *       assert_int_equal(2 + 2, 4);
 *   }
 *
 *   TEST_WITH(test_a_new_bench_is_empty, make_bench, free_bench, Bench *bench)
 *   {
 *       assert_int_equal(bench->count, 0);
 *   }
 *
 * usage of each program: X_test [PATTERN]     runs only the tests whose names match, as '*_are_four'
 * Threads: main registers all tests before it starts. */
#ifndef FSHARD_TESTS_SUPPORT_TEST_H
#define FSHARD_TESTS_SUPPORT_TEST_H

#include <stddef.h>
#include <stdint.h>

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

typedef struct TestRecord {
    struct CMUnitTest test;
    const char *file;
    int line;
    struct TestRecord *next;
} TestRecord;

/* Adds a record to the tests of this program: among those of its file by its line, and after those of other
 * files. The record must outlive main. TEST and TEST_WITH call it before main starts; test_program_begin may
 * call it for tests made from a table. */
void test_register(TestRecord *record);

/* TEST(name) { … } defines a test without a fixture. */
#define TEST(name)                                                                                           \
    static void name(void);                                                                                  \
    static void name##_run(void **state)                                                                     \
    {                                                                                                        \
        (void)state;                                                                                         \
        name();                                                                                              \
    }                                                                                                        \
    TEST_REGISTER(name, NULL, NULL)                                                                          \
    static void name(void)

/* TEST_WITH(name, setup, teardown, parameter) { … } defines a test with a fixture: cmocka calls setup(&state)
 * before it and teardown(&state) after it, and the test gets state as its parameter, a declaration such as
 * `Bench *bench`. The teardown runs after a failure too. NULL and NULL: the parameter is the state that
 * test_group_setup has set. */
/* NOLINTBEGIN(bugprone-macro-parentheses): a declaration takes none */
#define TEST_WITH(name, setup, teardown, parameter)                                                          \
    static void name(parameter);                                                                             \
    static void name##_run(void **state)                                                                     \
    {                                                                                                        \
        name(*state);                                                                                        \
    }                                                                                                        \
    TEST_REGISTER(name, setup, teardown)                                                                     \
    static void name(__attribute__((unused)) parameter)
/* NOLINTEND(bugprone-macro-parentheses) */

#define TEST_REGISTER(name, setup, teardown)                                                                 \
    __attribute__((constructor)) static void name##_register(void)                                           \
    {                                                                                                        \
        static TestRecord record = {{#name, name##_run, setup, teardown, NULL}, __FILE__, __LINE__, NULL};   \
        test_register(&record);                                                                              \
    }

/* ---- what a program may define; main calls what is there, in this order ---- */

/* In a source of the program: a static library that has them is not searched for them. */

/* Results of the first two. Every other result ends the program: it is the exit status. */
enum { TEST_RUN = -1, TEST_SKIP_ALL = 77 };

/* Reads the program's arguments. A program without it takes a PATTERN only. */
int test_program_arguments(int argc, char **argv);
/* Takes argv[1], if it is there, as the PATTERN; for programs that have other arguments too. */
int test_take_pattern(int argc, char **argv);
/* Runs before the first test and before any thread. */
int test_program_begin(void);
/* Run before the first test and after the last, as cmocka's fixtures of a group. */
int test_group_setup(void **state);
int test_group_teardown(void **state);

#endif
