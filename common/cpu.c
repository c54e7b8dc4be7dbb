#include "common/cpu.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- control groups ----
 *
 * /proc/self/cgroup has a line "id:controllers:path" for each hierarchy; v2 is the one without controllers. A
 * limit applies to everything below it, so every folder from path up to the mount counts. In a container the
 * path may be that of the host and not exist: such folders are skipped, and the mount itself is the
 * container's own group. */

/* Reads the first whole number of a file, and the second if second_ret is not NULL. "max" and missing numbers
 * give `otherwise`. */
static bool read_numbers(const char *folder, const char *name, double otherwise, double *first_ret,
                         double *second_ret)
{
    char path[PATH_MAX], line[128];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return false;
    FILE *stream = fopen(path, "re");
    if (!stream)
        return false;
    bool found = fgets(line, sizeof line, stream) != NULL;
    (void)fclose(stream);
    if (!found)
        return false;
    char *end = line;
    *first_ret = strtod(line, &end);
    if (end == line) {
        *first_ret = otherwise;
        end += strcspn(line, " \n");
    }
    if (second_ret)
        *second_ret = strtod(end, NULL);
    return true;
}

static void lower_cores(CpuLimits *limits, double quota, double period)
{
    /* v1 writes -1 for "no quota". */
    if (quota > 0 && period > 0 && isfinite(quota) && quota / period < limits->cores)
        limits->cores = quota / period;
}

static void lower_memory(CpuLimits *limits, double bytes)
{
    /* v1 writes the largest multiple of the page size below 2^63 for "no limit", which lowers nothing. */
    if (bytes > 0 && bytes < (double)limits->memory_bytes)
        limits->memory_bytes = (uint64_t)bytes;
}

static void read_group_v2(const char *folder, CpuLimits *limits)
{
    double quota = 0, period = 0, bytes = 0;
    if (read_numbers(folder, "cpu.max", INFINITY, &quota, &period))
        lower_cores(limits, quota, period);
    if (read_numbers(folder, "memory.max", INFINITY, &bytes, NULL))
        lower_memory(limits, bytes);
}

static void read_group_v1_cpu(const char *folder, CpuLimits *limits)
{
    double quota = 0, period = 0;
    if (read_numbers(folder, "cpu.cfs_quota_us", INFINITY, &quota, NULL) &&
        read_numbers(folder, "cpu.cfs_period_us", INFINITY, &period, NULL))
        lower_cores(limits, quota, period);
}

static void read_group_v1_memory(const char *folder, CpuLimits *limits)
{
    double bytes = 0;
    if (read_numbers(folder, "memory.limit_in_bytes", INFINITY, &bytes, NULL))
        lower_memory(limits, bytes);
}

/* Hierarchies: the controller to look for, its mount, and how its limits are read. */
static const struct Hierarchy {
    const char *controller; /* "" for v2 */
    const char *mount;
    void (*read)(const char *folder, CpuLimits *limits);
} hierarchies[] = {
    {"", "", read_group_v2},
    {"", "/unified", read_group_v2},
    {"cpu", "/cpu", read_group_v1_cpu},
    {"cpu", "/cpu,cpuacct", read_group_v1_cpu},
    {"memory", "/memory", read_group_v1_memory},
};

/* Returns whether the comma-separated list has the name. The empty list has only the empty name. */
static bool list_has(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *item = list;; item++) {
        size_t item_length = strcspn(item, ",");
        if (item_length == length && strncmp(item, name, length) == 0)
            return true;
        item += item_length;
        if (!*item)
            return false;
    }
}

static void read_groups(const struct Hierarchy *hierarchy, const char *mount, const char *group,
                        CpuLimits *limits)
{
    char folder[PATH_MAX];
    int length = snprintf(folder, sizeof folder, "%s%s%s", mount, hierarchy->mount, group);
    if (length < 0 || (size_t)length >= sizeof folder)
        return;
    size_t top = strlen(mount) + strlen(hierarchy->mount);
    for (;;) {
        hierarchy->read(folder, limits);
        char *slash = strrchr(folder + top, '/');
        if (!slash)
            break;
        *slash = '\0';
    }
}

CpuLimits cpu_limits_read(const char *cgroup_file, const char *mount)
{
    CpuLimits limits = {.cores = INFINITY, .memory_bytes = UINT64_MAX};
    FILE *stream = fopen(cgroup_file, "re");
    if (!stream)
        return limits;
    char *line = NULL;
    size_t line_capacity = 0;
    while (getline(&line, &line_capacity, stream) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++)
            if (list_has(controllers + 1, hierarchies[i].controller))
                read_groups(&hierarchies[i], mount, group, &limits);
    }
    free(line);
    (void)fclose(stream);
    return limits;
}

/* ---- this process ---- */

static CpuLimits own_limits(void)
{
    return cpu_limits_read("/proc/self/cgroup", "/sys/fs/cgroup");
}

/* Returns the cores in the affinity mask; 0 if it cannot be read. */
static int count_affinity(void)
{
    /* The kernel refuses a mask smaller than its own with EINVAL, and does not say how large its own is. */
    for (int cores = 1024; cores <= 1 << 20; cores *= 2) {
        cpu_set_t *mask = CPU_ALLOC((size_t)cores);
        if (!mask)
            return 0;
        size_t mask_bytes = CPU_ALLOC_SIZE((size_t)cores);
        int failure = sched_getaffinity(0, mask_bytes, mask) ? errno : 0;
        int count = failure ? 0 : CPU_COUNT_S(mask_bytes, mask);
        CPU_FREE(mask);
        if (failure != EINVAL)
            return count;
    }
    return 0;
}

double cpu_quota_cores(void)
{
    return own_limits().cores;
}

int cpu_count_available(void)
{
    int count = count_affinity();
    if (count < 1)
        count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    double quota = ceil(cpu_quota_cores());
    if (quota < count)
        count = (int)quota;
    return count < 1 ? 1 : count;
}

int cpu_jobs(int64_t jobs_option)
{
    if (jobs_option <= 0)
        return cpu_count_available();
    return jobs_option > INT_MAX ? INT_MAX : (int)jobs_option;
}

uint64_t cpu_memory_available(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t total = pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : UINT64_MAX;
    uint64_t limit = own_limits().memory_bytes;
    return limit < total ? limit : total;
}

/* Returns MemAvailable; UINT64_MAX if the kernel does not give it. */
static uint64_t machine_free_bytes(void)
{
    static const char name[] = "MemAvailable:";
    uint64_t bytes = UINT64_MAX;
    char line[128];
    FILE *stream = fopen("/proc/meminfo", "re");
    if (!stream)
        return bytes;
    while (bytes == UINT64_MAX && fgets(line, sizeof line, stream))
        if (strncmp(line, name, sizeof name - 1) == 0)
            bytes = strtoull(line + sizeof name - 1, NULL, 10) * 1024; /* "kB" */
    (void)fclose(stream);
    return bytes;
}

/* Returns the bytes of this process's anonymous pages: /proc/self/statm has size, resident, shared, in
 * pages. */
static uint64_t own_bytes(void)
{
    char line[128];
    char *end = line;
    const long page_bytes = sysconf(_SC_PAGESIZE);
    FILE *stream = fopen("/proc/self/statm", "re");
    const bool found = stream && fgets(line, sizeof line, stream);
    if (stream)
        (void)fclose(stream);
    if (!found || page_bytes <= 0)
        return 0;
    (void)strtoull(line, &end, 10);
    const uint64_t resident_pages = strtoull(end, &end, 10), shared_pages = strtoull(end, NULL, 10);
    return resident_pages > shared_pages ? (resident_pages - shared_pages) * (uint64_t)page_bytes : 0;
}

uint64_t cpu_free_memory_bytes(uint64_t processes)
{
    const uint64_t limit = cpu_memory_available(), own = own_bytes(), machine = machine_free_bytes();
    const uint64_t left = limit / processes > own ? limit - own * processes : 0;
    return left < machine ? left : machine;
}
