/* Sets of cores: lists as Linux writes them, and the affinity of a thread. */
#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cpu_mask.h"

TEST(test_lists_of_cores_are_read_and_written)
{
    static const char *const lists[][2] = {
        {"0", "0"}, {"0-3", "0-3"}, {"0-15,32-47\n", "0-15,32-47"}, {"3,1,2,64", "1-3,64"}, {"4095", "4095"}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        CpuMask mask;
        char text[64];
        assert_true(cpu_mask_parse(&mask, lists[i][0]));
        assert_string_equal(cpu_mask_list(&mask, text, sizeof text), lists[i][1]);
    }
}

TEST(test_what_is_no_list_of_cores_is_refused)
{
    static const char *const texts[] = {"",
                                        "\n",
                                        "a",
                                        "1-",
                                        "3-1",
                                        "1,",
                                        ",1",
                                        "-1",
                                        "1 2",
                                        "4096",
                                        "0-4096",
                                        "1\n\n",
                                        "99999999999999999999"};
    CpuMask mask;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (cpu_mask_parse(&mask, texts[i]))
            fail_msg("'%s' is taken for a list", texts[i]);
}

TEST(test_a_list_that_is_too_long_is_cut)
{
    CpuMask mask;
    char text[8];
    assert_true(cpu_mask_parse(&mask, "1000,1002,1004"));
    assert_string_equal(cpu_mask_list(&mask, text, sizeof text), "1000,10");
}

/* In a process of its own, whose affinity changes. */
TEST(test_a_thread_is_bound_to_one_of_its_cores)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        CpuMask own, one = {0}, then;
        int core = 0;
        if (!cpu_mask_read_own(&own) || cpu_mask_count(&own) < 1)
            _exit(1);
        while (!cpu_mask_has(&own, core))
            core++;
        one.words[core / 64] = UINT64_C(1) << (core % 64);
        if (!cpu_mask_bind(&one) || !cpu_mask_read_own(&then) || memcmp(&one, &then, sizeof one) != 0)
            _exit(2);
        _exit(cpu_mask_bind(&(CpuMask){0}) ? 3 : 0); /* no core at all: refused */
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}
