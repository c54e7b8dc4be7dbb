/* cpu_mask.h - sets of cores: those that a thread may run on, and lists of them as Linux writes them.
 *
 * Threads: any. */
#ifndef FSHARD_COMMON_CPU_MASK_H
#define FSHARD_COMMON_CPU_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CPU_MASK_CORES = 4096, CPU_MASK_WORDS = CPU_MASK_CORES / 64 };

/* Core c is bit c % 64 of word c / 64. Without pointers, so that processes can exchange it. */
typedef struct CpuMask {
    uint64_t words[CPU_MASK_WORDS];
} CpuMask;

bool cpu_mask_has(const CpuMask *mask, int core);
int cpu_mask_count(const CpuMask *mask);

/* Reads the cores that the calling thread may run on. Returns false if the system does not tell. */
bool cpu_mask_read_own(CpuMask *mask_ret);
/* Binds the calling thread, and threads that it starts later, to these cores. Returns false if the system
 * refuses; nothing has changed then. */
bool cpu_mask_bind(const CpuMask *mask);

/* Reads a list as "0-15,32-47", which may end with a line end. Returns false if it is none or empty. */
bool cpu_mask_parse(CpuMask *mask_ret, const char *text);
/* Writes such a list to text, cut where it is too long, and returns text. */
const char *cpu_mask_list(const CpuMask *mask, char *text, size_t text_bytes);

#endif
