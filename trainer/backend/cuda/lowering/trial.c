#include "trainer/backend/cuda/lowering/trial.h"

#include <stdarg.h>
#include <stdio.h>

#include "trainer/backend/cuda/device/stream_time.h"

typedef struct Run {
    const Trial *trial;
    void *scratch;
} Run;

static FshStatus enqueue_run(const void *context, cudaStream_t stream, FshError *error)
{
    const Run *run = context;
    return run->trial->enqueue(run->trial->context, run->scratch, stream, error);
}

const char *trial_name(char name[TRIAL_NAME_BYTES], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(name, TRIAL_NAME_BYTES, format, arguments);
    va_end(arguments);
    return length > 0 && length < TRIAL_NAME_BYTES ? name : NULL;
}

FshStatus trial_milliseconds(CudaBackend *backend, const char *name, const Trial *trial,
                             double *milliseconds_ret, FshError *error)
{
    if (name && cudnn_cache_recall(backend->plans, name, milliseconds_ret))
        return FSH_OK;
    Run run = {trial, NULL};
    const StreamWork work = {enqueue_run, &run};
    FshStatus status = cuda_memory_new(&run.scratch, trial->scratch_bytes, "a trial", error);
    if (!status)
        status = stream_time(&work, backend->stream, milliseconds_ret, error);
    if (!status && name)
        cudnn_cache_remember(backend->plans, name, *milliseconds_ret);
    cuda_memory_free(&run.scratch);
    return status;
}
