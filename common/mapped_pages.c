#include "common/mapped_pages.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

#include "common/read_fault.h"

/* A fault brings in more than the page touched, as far as it is in the page cache: 64 KB around it (Linux's
 * fault_around_bytes), or a huge page. What is noted is counted and given back in windows of a huge page. */
enum { WINDOW_BYTES = 2 << 20 };

/* Windows one after the other, counted from address 0. */
typedef struct Run {
    uintptr_t first, last;
} Run;

enum { RUNS_MAX = 16 };

/* State of the process, as its memory is. */
static atomic_uint_fast64_t bound_bytes;

/* What this thread has noted since it last gave back. A tree's upper pages, or a piece that is hashed
 * first and parsed then, are in it once. */
static _Thread_local Run runs[RUNS_MAX];
static _Thread_local size_t run_count, window_count;

void mapped_pages_bound(uint64_t bytes)
{
    atomic_store(&bound_bytes, bytes);
}

static void give_back(void *bytes, size_t length)
{
    (void)madvise(bytes, length, MADV_DONTNEED);
}

static void give_back_runs(void)
{
    for (size_t i = 0; i < run_count; i++)
        read_faults_visit(runs[i].first * WINDOW_BYTES, (runs[i].last + 1) * WINDOW_BYTES, give_back);
    run_count = window_count = 0;
}

/* Returns whether a run has both windows. */
static bool is_noted(uintptr_t first, uintptr_t last)
{
    for (size_t i = run_count; i > 0; i--) {
        if (first >= runs[i - 1].first && last <= runs[i - 1].last)
            return true;
    }
    return false;
}

void mapped_pages_note(const void *bytes, uint64_t length)
{
    const uint64_t bound = atomic_load_explicit(&bound_bytes, memory_order_relaxed);
    const uintptr_t begin = (uintptr_t)bytes;
    if (bound == 0 || length == 0)
        return;
    const uintptr_t first = begin / WINDOW_BYTES, last = (begin + (uintptr_t)(length - 1)) / WINDOW_BYTES;
    if (is_noted(first, last))
        return;
    if (run_count == RUNS_MAX || window_count >= bound / WINDOW_BYTES)
        give_back_runs();
    Run *run = run_count ? &runs[run_count - 1] : NULL;
    if (!run || first < run->first || first > run->last + 1) {
        run = &runs[run_count++];
        *run = (Run){first, first};
        window_count++;
    }
    window_count += last - run->last;
    run->last = last;
}
