/* cpu.h - how many cores this process may use. */
#ifndef FSHARD_COMMON_CPU_H
#define FSHARD_COMMON_CPU_H

#include <stdint.h>

/* Cores this process may use: sched_getaffinity, lowered by the cgroup's quota (v2 cpu.max along the path to
 * the root, v1 cpu.cfs_quota_us), rounded up, at least 1. */
int cpu_count_available(void);

/* jobs as the user gave it: 0 becomes cpu_count_available(). */
int cpu_jobs(int64_t jobs_option);

/* Bytes this process may use: the smaller of MemTotal and the cgroup's limit. */
uint64_t cpu_memory_available(void);

/* Bytes that it and others could still fill without pushing anybody into swap or to death: the smaller of
 * MemAvailable (the page cache gives way) and what the cgroup's limit leaves beside `processes` (> 0) that
 * hold as much as this one; what else the cgroup has is not seen. */
uint64_t cpu_free_memory_bytes(uint64_t processes);

/* What the control groups allow, for the functions above. */
typedef struct CpuLimits {
    double cores;          /* INFINITY: no quota */
    uint64_t memory_bytes; /* UINT64_MAX: no limit */
} CpuLimits;

/* cgroup_file is written as /proc/self/cgroup, mount holds the hierarchies as /sys/fs/cgroup does. What
 * cannot be read limits nothing. */
CpuLimits cpu_limits_read(const char *cgroup_file, const char *mount);

#endif
