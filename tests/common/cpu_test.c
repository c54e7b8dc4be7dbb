#include "common/cpu.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <unistd.h>

#include "tests/support/support.h"

static void test_the_affinity_mask_is_honoured(void **state)
{
    (void)state;
    cpu_set_t before, one;
    if (sched_getaffinity(0, sizeof before, &before))
        skip(); /* more than 1,024 cores */
    int available = cpu_count_available();
    assert_in_range(available, 1, CPU_COUNT(&before));
    size_t first = 0;
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    int alone = cpu_count_available(), jobs = cpu_jobs(0);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(alone, 1);
    assert_int_equal(jobs, 1);
    assert_int_equal(cpu_count_available(), available);
}

static void test_jobs_are_taken_as_given_but_for_zero(void **state)
{
    (void)state;
    assert_int_equal(cpu_jobs(0), cpu_count_available());
    assert_int_equal(cpu_jobs(1), 1);
    assert_int_equal(cpu_jobs(37), 37);
    assert_int_equal(cpu_jobs(INT64_MAX), INT_MAX);
}

static void test_memory_is_within_what_the_machine_has(void **state)
{
    (void)state;
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_in_range(cpu_memory_available(), UINT64_C(1) << 20, machine);
}

/* The system, and this process, have taken some of it. */
static void test_free_memory_is_less_than_all_of_it(void **state)
{
    (void)state;
    assert_in_range(cpu_free_memory_bytes(1), UINT64_C(1) << 20, cpu_memory_available() - 1);
    assert_int_equal(cpu_free_memory_bytes(UINT64_C(1) << 60), 0); /* of so many like this one */
}

static CpuLimits limits_of(TestFolder *folder, const char *groups)
{
    test_file_write_text(test_path(folder, "groups"), groups);
    return cpu_limits_read(test_path(folder, "groups"), folder->path);
}

static void test_limits_of_version_2_hold_along_the_path(void **state)
{
    TestFolder *folder = *state;
    test_file_write_text(test_path(folder, "cpu.max"), "max 100000\n");
    test_file_write_text(test_path(folder, "job/cpu.max"), "350000 100000\n");
    test_file_write_text(test_path(folder, "job/memory.max"), "4294967296\n");
    test_file_write_text(test_path(folder, "job/step/cpu.max"), "max 100000\n");
    test_file_write_text(test_path(folder, "job/step/memory.max"), "max\n");
    CpuLimits limits = limits_of(folder, "0::/job/step\n");
    assert_true(limits.cores == 3.5);
    assert_true(limits.memory_bytes == UINT64_C(4) << 30);
    test_file_write_text(test_path(folder, "job/step/cpu.max"), "50000 100000\n");
    assert_true(limits_of(folder, "0::/job/step\n").cores == 0.5);
    assert_true(limits_of(folder, "0::/job\n").cores == 3.5);
    assert_true(isinf(limits_of(folder, "0::/\n").cores));
    /* In a container the path may be that of the host: the mount's own limit counts still. */
    test_file_write_text(test_path(folder, "cpu.max"), "200000 100000\n");
    assert_true(limits_of(folder, "0::/kubepods/pod1/abc\n").cores == 2);
}

static void test_limits_of_version_1_hold_too(void **state)
{
    TestFolder *folder = *state;
    test_file_write_text(test_path(folder, "cpu,cpuacct/slurm/cpu.cfs_quota_us"), "250000\n");
    test_file_write_text(test_path(folder, "cpu,cpuacct/slurm/cpu.cfs_period_us"), "100000\n");
    test_file_write_text(test_path(folder, "cpu,cpuacct/cpu.cfs_quota_us"), "-1\n");
    test_file_write_text(test_path(folder, "cpu,cpuacct/cpu.cfs_period_us"), "100000\n");
    test_file_write_text(test_path(folder, "memory/slurm/memory.limit_in_bytes"), "1073741824\n");
    test_file_write_text(test_path(folder, "memory/memory.limit_in_bytes"), "9223372036854771712\n");
    CpuLimits limits =
        limits_of(folder, "12:memory:/slurm\n4:cpu,cpuacct:/slurm\n1:name=systemd:/x\n0::/x\n");
    assert_true(limits.cores == 2.5);
    assert_true(limits.memory_bytes == UINT64_C(1) << 30);
    /* A group of another controller is none of the CPU's. */
    limits = limits_of(folder, "4:cpuset:/slurm\n5:cpuacct:/slurm\n");
    assert_true(isinf(limits.cores));
    assert_true(limits.memory_bytes == UINT64_MAX);
}

static void test_what_cannot_be_read_limits_nothing(void **state)
{
    TestFolder *folder = *state;
    CpuLimits limits = cpu_limits_read(test_path(folder, "missing"), folder->path);
    assert_true(isinf(limits.cores));
    assert_true(limits.memory_bytes == UINT64_MAX);
    static const char *const damaged[] = {"", "\n", "0", "0:", "0::", ":::", "0::job", "x"};
    test_file_write_text(test_path(folder, "cpu.max"), "");
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++)
        assert_true(isinf(limits_of(folder, damaged[i]).cores));
    static const char *const contents[] = {"0 100000\n", "-1 100000\n", "100000\n",
                                           "100000 0\n", "words\n",     "100000 x\n"};
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        test_file_write_text(test_path(folder, "cpu.max"), contents[i]);
        assert_true(isinf(limits_of(folder, "0::/\n").cores));
    }
}

#define in_folder(test) cmocka_unit_test_setup_teardown(test, test_folder_setup, test_folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_affinity_mask_is_honoured),
        cmocka_unit_test(test_jobs_are_taken_as_given_but_for_zero),
        cmocka_unit_test(test_memory_is_within_what_the_machine_has),
        cmocka_unit_test(test_free_memory_is_less_than_all_of_it),
        in_folder(test_limits_of_version_2_hold_along_the_path),
        in_folder(test_limits_of_version_1_hold_too),
        in_folder(test_what_cannot_be_read_limits_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
