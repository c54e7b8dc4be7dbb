/* cores_shim.c - a process that may run on the cores FIRST-LAST of FSHARD_CORES, as sched_getaffinity tells
 * it: LD_PRELOAD of build/tests/libfshard-test-cores.so. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The C library's headers name their parameters "__pid". */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
__attribute__((visibility("default"))) int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set)
{
    const char *cores = getenv("FSHARD_CORES");
    int first = 0, last = 0;
    if (!cores || sscanf(cores, "%d-%d", &first, &last) != 2) /* NOLINT: the test's own numbers */
        return syscall(SYS_sched_getaffinity, process, bytes, set) < 0 ? -1 : 0;
    memset(set, 0, bytes);
    for (int core = first; core <= last; core++)
        CPU_SET_S((size_t)core, bytes, set);
    return 0;
}
