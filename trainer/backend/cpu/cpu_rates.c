/* Measures what this machine reaches, for --profile and the bench. */
#include "trainer/backend/cpu/cpu_internal.h"

#include <string.h>

#include "common/progress.h"

enum { COPY_BYTES = 128 << 20, EDGE = 1536, TRIES = 3, PRODUCT_TRIES = 8 };

typedef struct Copy {
    char *to, *from;
} Copy;

static void copy_part(void *context, int part, int64_t begin, int64_t end)
{
    const Copy *copy = context;
    (void)part;
    memcpy(copy->to + begin, copy->from + begin, (size_t)(end - begin));
}

static FshStatus measure_copy(const CpuBackend *backend, double *bytes_per_second, FshError *error)
{
    Copy copy = {cpu_memory_new(COPY_BYTES), cpu_memory_new(COPY_BYTES)};
    double least = 1e9;
    if (copy.to && copy.from) { /* pages that nothing has written to are all one page of zeros */
        memset(copy.to, 1, COPY_BYTES);
        memset(copy.from, 1, COPY_BYTES);
    }
    for (int i = 0; copy.to && copy.from && i < TRIES; i++) {
        const double start = progress_now_seconds();
        cpu_parallel(backend, COPY_BYTES, copy_part, &copy);
        const double seconds = progress_now_seconds() - start;
        least = seconds < least ? seconds : least;
    }
    const bool measured = copy.to && copy.from;
    cpu_memory_free(copy.to);
    cpu_memory_free(copy.from);
    if (!measured)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory to measure a copy");
    *bytes_per_second = 2.0 * COPY_BYTES / least;
    return FSH_OK;
}

/* Runs a product of square matrices that is bound, and sets *flops to its rate, the best of some tries after
 * one that is not timed. */
static FshStatus time_product(DnnPrimitive *product, double *flops, FshError *error)
{
    double least = 1e9;
    FshStatus status = dnn_primitive_run(product, error);
    for (int i = 0; i < PRODUCT_TRIES && !status; i++) {
        const double start = progress_now_seconds();
        status = dnn_primitive_run(product, error);
        const double seconds = progress_now_seconds() - start;
        least = seconds < least ? seconds : least;
    }
    *flops = status ? 0 : 2.0 * EDGE * EDGE * EDGE / least;
    return status;
}

static FshStatus measure_product(const CpuBackend *backend, DataType type, double *flops, FshError *error)
{
    enum { OPERANDS = 3 };
    const DnnProduct shape = {.type = type, .inner = EDGE, .rows = EDGE, .columns = EDGE, .a_by_rows = true};
    const uint64_t bytes = (uint64_t)EDGE * EDGE * sizeof(float);
    DnnPrimitive *product = NULL;
    void *memories[OPERANDS] = {NULL}, *scratch = NULL;
    FshStatus status = dnn_product_new(&product, backend->dnn, &shape, error);
    if (status)
        return status;
    scratch = cpu_memory_new(dnn_primitive_scratch_bytes(product));
    bool has_room = scratch != NULL;
    for (int i = 0; i < OPERANDS; i++) {
        memories[i] = cpu_memory_new(bytes);
        has_room = has_room && memories[i];
        if (memories[i]) /* small numbers, in either type */
            memset(memories[i], 0x3B, (size_t)bytes);
    }
    if (!has_room)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "no memory to measure a product");
    if (!status)
        status = dnn_primitive_bind(product, memories, OPERANDS, error);
    if (!status)
        status = dnn_primitive_set_scratch(product, scratch, error);
    if (!status)
        status = time_product(product, flops, error);
    dnn_primitive_free(&product);
    for (int i = 0; i < OPERANDS; i++)
        cpu_memory_free(memories[i]);
    cpu_memory_free(scratch);
    return status;
}

FshStatus cpu_rates(Backend *base, DataType type, BackendRates *rates, FshError *error)
{
    const CpuBackend *backend = (const CpuBackend *)base;
    *rates = (BackendRates){0};
    FshStatus status = measure_copy(backend, &rates->bytes_per_second, error);
    if (status)
        return status;
    const int previous = cpu_threads_enter(backend);
    status = measure_product(backend, type, &rates->product_flops_per_second, error);
    cpu_threads_leave(previous);
    return status;
}
