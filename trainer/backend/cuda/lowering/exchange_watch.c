#include "trainer/backend/cuda/lowering/exchange_watch.h"

#include "trainer/backend/cuda/device/device.h"

static const double speak_first_seconds = 5;

FshStatus exchange_watch_open(ExchangeWatch *watch, FshError *error)
{
    void *device = NULL, *host = NULL;
    FshStatus status = cuda_memory_new(&device, sizeof *watch->device, "counters of exchanges", error);
    if (!status)
        status = CUDA_TRY(cudaMemset(device, 0, sizeof *watch->device), error);
    if (!status) /* the backend's stream does not wait for that one */
        status = CUDA_TRY(cudaStreamSynchronize(NULL), error);
    if (!status)
        status = cuda_pinned_new(&host, sizeof *watch->device, "counters of exchanges", error);
    watch->device = device;
    watch->host = host;
    if (!status)
        *watch->host = (ExchangeCounts){0};
    return status;
}

void exchange_watch_close(ExchangeWatch *watch)
{
    void *device = watch->device, *host = (void *)watch->host;
    cuda_memory_free(&device);
    cuda_pinned_free(&host);
    *watch = (ExchangeWatch){0};
}

FshStatus exchange_watch_reach(const ExchangeWatch *watch, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_count_exchange(&watch->device->reached, &watch->host->reached, stream), error);
}

FshStatus exchange_watch_pass(const ExchangeWatch *watch, cudaStream_t stream, FshError *error)
{
    return CUDA_TRY(kernel_count_exchange(&watch->device->passed, &watch->host->passed, stream), error);
}

void exchange_watch_begin(ExchangeWatch *watch)
{
    (void)atomic_fetch_add(&watch->begun, 1);
}

ExchangeState exchange_watch_look(ExchangeWatch *watch, double passed, double most_seconds)
{
    const uint64_t begun = atomic_load(&watch->begun);
    const ExchangeCounts now = *watch->host;
    const bool waits = now.reached > now.passed;
    if (now.passed >= begun || now.reached != watch->seen.reached || now.passed != watch->seen.passed)
        watch->still = 0;
    else
        watch->still += passed;
    watch->seen = now;
    if (waits)
        return watch->still > most_seconds + speak_first_seconds ? EXCHANGE_BETWEEN : EXCHANGE_WELL;
    return watch->still > most_seconds ? EXCHANGE_BEFORE : EXCHANGE_WELL;
}
