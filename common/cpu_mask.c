#include "common/cpu_mask.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

bool cpu_mask_has(const CpuMask *mask, int core)
{
    return mask->words[core / 64] >> (core % 64) & 1;
}

static void add(CpuMask *mask, int core)
{
    mask->words[core / 64] |= UINT64_C(1) << (core % 64);
}

int cpu_mask_count(const CpuMask *mask)
{
    int count = 0;
    for (size_t i = 0; i < CPU_MASK_WORDS; i++)
        count += __builtin_popcountll(mask->words[i]);
    return count;
}

bool cpu_mask_read_own(CpuMask *mask_ret)
{
    cpu_set_t *set = CPU_ALLOC(CPU_MASK_CORES);
    const size_t bytes = CPU_ALLOC_SIZE(CPU_MASK_CORES);
    *mask_ret = (CpuMask){0};
    const bool told = set && sched_getaffinity(0, bytes, set) == 0;
    for (int core = 0; core < CPU_MASK_CORES && told; core++)
        if (CPU_ISSET_S(core, bytes, set))
            add(mask_ret, core);
    if (set)
        CPU_FREE(set);
    return told;
}

bool cpu_mask_bind(const CpuMask *mask)
{
    cpu_set_t *set = CPU_ALLOC(CPU_MASK_CORES);
    const size_t bytes = CPU_ALLOC_SIZE(CPU_MASK_CORES);
    if (!set)
        return false;
    CPU_ZERO_S(bytes, set);
    for (int core = 0; core < CPU_MASK_CORES; core++)
        if (cpu_mask_has(mask, core))
            CPU_SET_S(core, bytes, set);
    const bool bound = sched_setaffinity(0, bytes, set) == 0;
    CPU_FREE(set);
    return bound;
}

/* Reads the number of a core at *text and advances *text past it. Returns false if there is none. */
static bool read_core(const char **text, int *core_ret)
{
    char *end = NULL;
    const unsigned long core = isdigit((unsigned char)**text) ? strtoul(*text, &end, 10) : CPU_MASK_CORES;
    if (core >= CPU_MASK_CORES)
        return false;
    *core_ret = (int)core;
    *text = end;
    return true;
}

bool cpu_mask_parse(CpuMask *mask_ret, const char *text)
{
    int first = 0, last = 0;
    *mask_ret = (CpuMask){0};
    for (;;) {
        if (!read_core(&text, &first))
            return false;
        last = first;
        if (*text == '-' && (text++, !read_core(&text, &last) || last < first))
            return false;
        for (int core = first; core <= last; core++)
            add(mask_ret, core);
        if (*text != ',')
            break;
        text++;
    }
    return *text == '\0' || (*text == '\n' && !text[1]);
}

const char *cpu_mask_list(const CpuMask *mask, char *text, size_t text_bytes)
{
    size_t length = 0;
    text[0] = '\0';
    for (int core = 0; core < CPU_MASK_CORES && length < text_bytes; core++) {
        int last = core;
        if (!cpu_mask_has(mask, core))
            continue;
        while (last + 1 < CPU_MASK_CORES && cpu_mask_has(mask, last + 1))
            last++;
        length += (size_t)snprintf(text + length, text_bytes - length, last > core ? "%s%d-%d" : "%s%d",
                                   length ? "," : "", core, last);
        core = last;
    }
    return text;
}
