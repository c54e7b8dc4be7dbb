/* cpu.h - how many cores and how much memory this process may use. */
#ifndef FSHARD_COMMON_CPU_H
#define FSHARD_COMMON_CPU_H

#include <stdint.h>

/* Returns the cores that this process may use: sched_getaffinity, lowered by the cgroup's quota (v2 cpu.max
 * along the path to the root, v1 cpu.cfs_quota_us), rounded up, at least 1. */
int cpu_count_available(void);

/* Returns jobs_option as the user gave it; for 0 cpu_count_available(). */
int cpu_jobs(int64_t jobs_option);

/* Returns the cores that the cgroup's quota leaves; INFINITY: it has none. */
double cpu_quota_cores(void);

/* Returns the bytes that this process may use: the smaller of MemTotal and the cgroup's limit. */
uint64_t cpu_memory_available(void);

/* Returns the bytes that can still be filled without swapping or killing: the smaller of MemAvailable (the
 * page cache gives way) and what the cgroup's limit leaves beside `processes` (> 0) processes as large as
 * this one. Other members of the cgroup are not seen. */
uint64_t cpu_free_memory_bytes(uint64_t processes);

/* Limits of the control groups, for the functions above. */
typedef struct CpuLimits {
    double cores;          /* INFINITY: no quota */
    uint64_t memory_bytes; /* UINT64_MAX: no limit */
} CpuLimits;

/* Reads the limits. cgroup_file has the form of /proc/self/cgroup, mount holds the hierarchies as
 * /sys/fs/cgroup does. A file that cannot be read limits nothing. */
CpuLimits cpu_limits_read(const char *cgroup_file, const char *mount);

#endif
