/* The main of every test program. */
#include "tests/support/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma weak test_program_arguments
#pragma weak test_program_begin
#pragma weak test_group_setup
#pragma weak test_group_teardown

static TestRecord *first;
static size_t count;

void test_register(TestRecord *record)
{
    TestRecord **place = &first;
    while (*place && !(strcmp((*place)->file, record->file) == 0 && (*place)->line > record->line))
        place = &(*place)->next;
    record->next = *place;
    *place = record;
    count++;
}

int test_take_pattern(int argc, char **argv)
{
    if (argc > 2) {
        (void)fprintf(stderr, "usage: %s [PATTERN]\n", argv[0]);
        return 2;
    }
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    return TEST_RUN;
}

static int run_all(void)
{
    struct CMUnitTest *tests = calloc(count, sizeof *tests);
    size_t i = 0;
    if (!tests) {
        (void)fprintf(stderr, "%s: no memory for %zu tests\n", program_invocation_short_name, count);
        return 1;
    }
    for (const TestRecord *record = first; record; record = record->next)
        tests[i++] = record->test;
    int failed = _cmocka_run_group_tests(program_invocation_short_name, tests, count, test_group_setup,
                                         test_group_teardown);
    free(tests);
    return failed;
}

int main(int argc, char **argv)
{
    int status = test_program_arguments ? test_program_arguments(argc, argv) : test_take_pattern(argc, argv);
    if (status == TEST_RUN && test_program_begin)
        status = test_program_begin();
    if (status != TEST_RUN)
        return status;
    if (count == 0) {
        (void)fprintf(stderr, "%s: it has no tests\n", program_invocation_short_name);
        return 1;
    }
    return run_all();
}
