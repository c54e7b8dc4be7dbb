/* Slurm's lists of hosts and of tasks. */
#include "tests/support/support.h"
#include "trainer/ranks/node_list.h"

TEST(test_the_first_host_of_a_list_is_found)
{
    static const char *const lists[][2] = {
        {"n1", "n1"},
        {"n1,n2", "n1"},
        {"n[1-2]", "n1"},
        {"n[01-03,7],login", "n01"},
        {"n[7]", "n7"},
        {"gpu-a[3,1]-ib.cluster,b", "gpu-a3-ib.cluster"},
        {"rack[1-2]n[03,5],x", "rack1n03"},
        {"a_b", "a_b"},
    };
    char name[64];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        assert_true(node_list_first(lists[i][0], name, sizeof name));
        assert_string_equal(name, lists[i][1]);
    }
}

TEST(test_what_is_no_list_of_hosts_is_refused)
{
    static const char *const lists[] = {
        "",   ",n1",     "n[",    "n[]",   "n[1",   "n[a]", "n[-]",   "n 1",
        "n]", "n[1]/..", "$(ls)", "n[1-2", "n[1x]", "n\n",  "n[[1]]", "0123456789012345"};
    char name[12];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (node_list_first(lists[i], name, sizeof name))
            fail_msg("'%s' gives '%s'", lists[i], name);
        assert_string_equal(name, "");
    }
    assert_false(node_list_first(NULL, name, sizeof name));
    assert_false(node_list_first("01234567890[1]", name, sizeof name));
    assert_true(node_list_first("0123456789[1]", name, sizeof name)); /* 11 letters and the end */
}

TEST(test_the_tasks_of_each_host_are_read)
{
    static const uint64_t counts[] = {2, 2, 2, 1, 4};
    uint64_t before = 0;
    NodeTasks tasks;
    for (uint64_t host = 0; host < 5; host++) {
        assert_true(node_list_tasks("2(x3),1,4(x1)", host, &tasks));
        assert_int_equal(tasks.count, counts[host]);
        assert_int_equal(tasks.before, before);
        before += counts[host];
    }
    assert_false(node_list_tasks("2(x3),1,4(x1)", 5, &tasks));
}

TEST(test_what_is_no_list_of_tasks_is_refused)
{
    static const char *const lists[] = {"",      ",",      "x",  "2(x",  "2(x3",         "2(3)",
                                        "2(x0)", "2(x3)1", "-1", "2 ,1", "9999999999,1", "1(x9999999999)",
                                        "2x3"};
    NodeTasks tasks;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (node_list_tasks(lists[i], 0, &tasks))
            fail_msg("'%s' gives %d", lists[i], (int)tasks.count);
}
