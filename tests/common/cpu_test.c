#include "common/cpu.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <unistd.h>

#include "tests/support/support.h"

TEST(test_the_affinity_mask_is_honoured)
{
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

TEST(test_jobs_are_taken_as_given_but_for_zero)
{
    assert_int_equal(cpu_jobs(0), cpu_count_available());
    assert_int_equal(cpu_jobs(1), 1);
    assert_int_equal(cpu_jobs(37), 37);
    assert_int_equal(cpu_jobs(INT64_MAX), INT_MAX);
}

TEST(test_memory_is_within_what_the_machine_has)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_in_range(cpu_memory_available(), UINT64_C(1) << 20, machine);
}

/* The system, and this process, have taken some of it. */
TEST(test_free_memory_is_less_than_all_of_it)
{
    assert_in_range(cpu_free_memory_bytes(1), UINT64_C(1) << 20, cpu_memory_available() - 1);
    assert_int_equal(cpu_free_memory_bytes(UINT64_C(1) << 60), 0); /* of so many like this one */
}

static CpuLimits limits_of(TestFolder *folder, const char *groups)
{
    test_file_write_text(test_path(folder, "groups"), groups);
    return cpu_limits_read(test_path(folder, "groups"), folder->path);
}

TEST_IN_FOLDER(test_limits_of_version_2_hold_along_the_path, folder)
{
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

TEST_IN_FOLDER(test_limits_of_version_1_hold_too, folder)
{
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

TEST_IN_FOLDER(test_what_cannot_be_read_limits_nothing, folder)
{
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
