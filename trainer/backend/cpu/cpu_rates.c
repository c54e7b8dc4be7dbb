/* Measures what this machine's memory moves, for --profile. */
#include "trainer/backend/cpu/cpu_internal.h"

#include <string.h>

#include "common/progress.h"

enum { COPY_BYTES = 128 << 20, TRIES = 3 };

typedef struct Copy {
    char *to, *from;
} Copy;

static void copy_part(void *context, int part, int64_t begin, int64_t end)
{
    const Copy *copy = context;
    (void)part;
    memcpy(copy->to + begin, copy->from + begin, (size_t)(end - begin));
}

FshStatus cpu_rates(Backend *base, DataType type, BackendRates *rates, FshError *error)
{
    Copy copy = {cpu_memory_new(COPY_BYTES), cpu_memory_new(COPY_BYTES)};
    double least = 1e9;
    (void)type; /* products have no one rate here: it depends on their shape */
    *rates = (BackendRates){0};
    for (int i = 0; copy.to && copy.from && i < TRIES; i++) {
        const double start = progress_now_seconds();
        cpu_parallel((const CpuBackend *)base, COPY_BYTES, copy_part, &copy);
        const double seconds = progress_now_seconds() - start;
        least = seconds < least ? seconds : least;
    }
    const bool measured = copy.to && copy.from;
    cpu_memory_free(copy.to);
    cpu_memory_free(copy.from);
    if (!measured)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory to measure a copy");
    rates->bytes_per_second = 2.0 * COPY_BYTES / least;
    return FSH_OK;
}
