#include "trainer/backend/cpu/cpu_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>
#include <sys/mman.h>

#include "common/cpu.h"
#include "common/text.h"

FshStatus cpu_backend_join(Backend *base, struct Communicator *communicator, FshError *error)
{
    (void)error;
    ((CpuBackend *)base)->communicator = communicator;
    return FSH_OK;
}

void cpu_backend_close(Backend *base)
{
    CpuBackend *backend = (CpuBackend *)base;
    dnn_engine_free(&backend->dnn);
    free(backend);
}

FshStatus cpu_backend_open(Backend **backend_ret, const BackendOptions *options, FshError *error)
{
    char dnn[80];
    CpuBackend *backend = calloc(1, sizeof *backend);
    if (!backend)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory");
    backend->threads = cpu_jobs(options ? options->threads : 0);
    /* OMP_THREAD_LIMIT: oneDNN divides its work among the threads that are asked for, and leaves undone what
     * falls to one that is not there */
    if (backend->threads > omp_get_thread_limit())
        backend->threads = omp_get_thread_limit();
    backend->free_bytes = cpu_free_memory_bytes(1);
    backend->kernels = cpu_kernels_choose(DATA_F32);
    backend->kernels_bf16 = cpu_kernels_choose(DATA_BF16);
    FshStatus status = dnn_engine_new(&backend->dnn, error);
    if (status) {
        cpu_backend_close(&backend->base);
        return status;
    }
    dnn_engine_describe(dnn, sizeof dnn);
    (void)snprintf(backend->base.description, sizeof backend->base.description,
                   "cpu: %s, own kernels %s, %d thread%s", dnn, backend->kernels->name, backend->threads,
                   text_plural((uint64_t)backend->threads));
    const int cores = cpu_count_available();
    if (backend->threads > cores)
        (void)snprintf(backend->warning, sizeof backend->warning,
                       "%d threads compute on %d core%s, and wait for each other, which can take many times "
                       "as long: a lower --jobs",
                       backend->threads, cores, text_plural((uint64_t)cores));
    *backend_ret = &backend->base;
    return FSH_OK;
}

const char *cpu_backend_warning(const Backend *backend)
{
    const char *warning = ((const CpuBackend *)backend)->warning;
    return *warning ? warning : NULL;
}

void cpu_parallel(const CpuBackend *backend, int64_t count, CpuPart work, void *context)
{
    const int parts = backend->threads;
    if (parts == 1) {
        work(context, 0, 0, count);
        return;
    }
    /* schedule(static, 1): part i is the same items in every run, whichever thread has it. */
#pragma omp parallel for num_threads(parts) schedule(static, 1)
    for (int part = 0; part < parts; part++) {
        const int64_t begin = count * part / parts, end = count * (part + 1) / parts;
        if (begin < end)
            work(context, part, begin, end);
    }
}

int cpu_threads_enter(const CpuBackend *backend)
{
    const int previous = omp_get_max_threads();
    if (previous != backend->threads)
        omp_set_num_threads(backend->threads);
    return previous;
}

void cpu_threads_leave(int previous)
{
    if (previous != omp_get_max_threads())
        omp_set_num_threads(previous);
}

void *cpu_memory_new(uint64_t bytes)
{
    enum { LINE = 64, HUGE_PAGE = 2 << 20 };
    const uint64_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : LINE;
    if (bytes > SIZE_MAX - HUGE_PAGE)
        return NULL;
    const size_t rounded = (size_t)((bytes + alignment - 1) / alignment * alignment);
    void *memory = aligned_alloc((size_t)alignment, rounded ? rounded : LINE);
    if (!memory)
        return NULL;
    if (alignment == HUGE_PAGE)
        (void)madvise(memory, rounded, MADV_HUGEPAGE); /* a wish; without it everything works, slower */
    /* Whole pages are given back: they are zero when they are touched again, by all threads beside each other
     * and not by this one. */
    if (alignment != HUGE_PAGE || madvise(memory, rounded, MADV_DONTNEED))
        memset(memory, 0, rounded);
    return memory;
}

void cpu_memory_free(void *memory)
{
    free(memory);
}
