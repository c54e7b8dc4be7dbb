#include "trainer/backend/backend_plugin.h"

#include "trainer/backend/cuda/device/device.h"
#include "trainer/backend/cuda/lowering/device_ranks.h"
#include "trainer/backend/cuda/memory_use.h"
#include "trainer/backend/cuda/pixel_store.h"
#include "trainer/backend/cuda/lowering/cuda_program.h"
#include "trainer/backend/cuda/device/rates.h"
#include "trainer/backend/cuda/lowering/state.h"

static const BackendInterface interface;

static FshStatus open_backend(Backend **backend, const BackendOptions *options, FshError *error)
{
    FshStatus status = cuda_backend_open(backend, options, error);
    if (!status)
        (*backend)->interface = &interface;
    return status;
}

/* Waits for the work under way, leaves the other ranks, and frees the device. NULL is fine. */
static void close_backend(Backend *backend)
{
    const CudaBackend *cuda = (const CudaBackend *)backend;
    if (!cuda)
        return;
    (void)cudaStreamSynchronize(cuda->stream);
    device_ranks_leave(cuda->ranks);
    cuda_backend_close(backend);
}

enum {
    FUSIONS = FUSE_ALL | FUSE_CONV_STATISTICS | FUSE_PAD_ADD | FUSE_IMAGES_AGAIN | FUSE_GRADIENT_CONV |
              FUSE_NORM_SIGNS | FUSE_FUNCTION_BIAS | FUSE_NORMALIZE_CONV | FUSE_GRADIENT_STRIDE |
              FUSE_STEM_GRADIENT | FUSE_PAD_CONV | FUSE_CAST_LOSS | FUSE_LINEAR_SCALE | FUSE_NORM_PAIR
};

static FshStatus foresee(const Graph *graph, unsigned *fusions_ret, MemoryUse *use, FshError *error)
{
    *fusions_ret = FUSIONS;
    return graph ? cuda_foresee_memory(graph, use, error) : FSH_OK;
}

static const BackendInterface interface = {
    .device = "cuda",
    .device_count = cuda_device_count,
    .state_memory = cuda_state_memory,
    .program_memory = cuda_program_memory,
    .foresee = foresee,
    .join = device_ranks_join,
    .fusions = FUSIONS,
    .open = open_backend,
    .close = close_backend,
    .warning = cuda_backend_warning,
    .bus_id = cuda_backend_bus_id,
    .rates = cuda_backend_rates,
    .state_new = cuda_state_new,
    .state_free = cuda_state_free,
    .state_read = cuda_state_read,
    .state_write = cuda_state_write,
    .state_copy_new = cuda_state_copy_new,
    .state_copy_take = cuda_state_copy_take,
    .program_new = cuda_program_new,
    .program_free = cuda_program_free,
    .program_write = cuda_program_write,
    .program_run = cuda_program_run,
    .program_read = cuda_program_read,
    .program_node_plan = cuda_program_node_plan,
    .program_node_engine = cuda_program_node_engine,
    .program_profile = cuda_program_profile,
    .program_poison = cuda_program_poison,
    .pixels = &cuda_pixels,
    .program_results = cuda_program_results,
    .program_collect = cuda_program_collect,
};

FSH_API const BackendPlugin fshard_cuda_plugin = {BACKEND_PLUGIN_HERE, .interface = &interface};
