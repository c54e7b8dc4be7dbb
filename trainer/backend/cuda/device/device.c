#include "trainer/backend/cuda/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "common/progress.h"
#include "common/text.h"

/* cmake/cuda.cmake compiles for this and newer. */
enum { OLDEST_MAJOR = 8, OLDEST_MINOR = 0 };

FshStatus cuda_check(cudaError_t code, const char *call, FshError *error)
{
    if (code == cudaSuccess)
        return FSH_OK;
    (void)cudaGetLastError(); /* the runtime remembers it; told here, it must not appear again after an
                                 innocent launch */
    FshStatus status = code == cudaErrorMemoryAllocation ? FSH_ERR_MEMORY : FSH_ERR_LIBRARY;
    return fsh_error_set(error, status, "%s: %s: %s", call, cudaGetErrorName(code), cudaGetErrorString(code));
}

FshStatus cublas_check(cublasStatus_t code, const char *call, FshError *error)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return FSH_OK;
    FshStatus status = code == CUBLAS_STATUS_ALLOC_FAILED ? FSH_ERR_MEMORY : FSH_ERR_LIBRARY;
    return fsh_error_set(error, status, "%s: %s: %s", call, cublasLtGetStatusName(code),
                         cublasLtGetStatusString(code));
}

/* Writes 13000 as "13.0". */
static const char *version_text(int version, char text[16])
{
    (void)snprintf(text, 16, "%d.%d", version / 1000, version % 1000 / 10);
    return text;
}

FshStatus cuda_device_count(int *count_ret, FshError *error)
{
    int driver = 0, runtime = 0, count = 0;
    char driver_text[16], runtime_text[16];
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    cudaError_t code = cudaGetDeviceCount(&count);
    *count_ret = count;
    version_text(driver, driver_text);
    version_text(runtime, runtime_text);
    if (driver == 0)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cuda: the NVIDIA driver on this machine does not answer (this build uses CUDA "
                             "%s); install or load it, "
                             "or use --device cpu",
                             runtime_text);
    if (code == cudaErrorInsufficientDriver)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cuda: the NVIDIA driver is too old: it knows CUDA %s, and this build uses %s; "
                             "install a newer driver, "
                             "or use --device cpu",
                             driver_text, runtime_text);
    if (code == cudaErrorNoDevice || (code == cudaSuccess && count == 0))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cuda: a driver for CUDA %s is here, but no GPU that it shows "
                             "(CUDA_VISIBLE_DEVICES is %s); use --device "
                             "cpu",
                             driver_text,
                             getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "not set");
    if (code != cudaSuccess)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cuda: the GPU cannot be used (driver for CUDA %s, runtime %s): %s: %s",
                             driver_text, runtime_text, cudaGetErrorName(code), cudaGetErrorString(code));
    return FSH_OK;
}

/* Sets the device, or says why there is none. */
static FshStatus find_device(int index, struct cudaDeviceProp *properties, FshError *error)
{
    int count = 0;
    FshStatus status = cuda_device_count(&count, error);
    if (status)
        return status;
    if (index > 0 && count == 1)
        index = 0;
    if (index >= count)
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "cuda: GPU %d is wanted, and this process sees %d; start no more ranks than GPUs, or "
            "let CUDA_VISIBLE_DEVICES show more",
            index, count);
    status = CUDA_TRY(cudaGetDeviceProperties(properties, index), error);
    if (status)
        return status;
    if (properties->major < OLDEST_MAJOR)
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "cuda: %s has compute capability %d.%d, and %d.%d or newer is needed; use --device cpu",
            properties->name, properties->major, properties->minor, OLDEST_MAJOR, OLDEST_MINOR);
    return CUDA_TRY(cudaSetDevice(index), error);
}

/* Reads the driver's build, "570.124.06" as the driver's own tools call it, from the kernel's module; libcuda
 * must be of the same build. (NVML says the same and is one more library to link.) Leaves "" where there is
 * no such module, as under Windows. */
static void read_driver_version(char text[32])
{
    FILE *file = fopen("/sys/module/nvidia/version", "re");
    text[0] = '\0';
    if (file && fgets(text, 32, file))
        text[strcspn(text, "\n")] = '\0';
    else
        text[0] = '\0';
    if (file)
        (void)fclose(file);
}

static void describe(CudaBackend *backend, const struct cudaDeviceProp *properties)
{
    char memory[32], driver_text[16], runtime_text[16], driver_name[32];
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    read_driver_version(driver_name);
    size_t cudnn = cudnnGetVersion();
    (void)snprintf(backend->base.description, sizeof backend->base.description,
                   "%.48s, %s, compute capability %d.%d, driver %s%sfor CUDA %s, CUDA %s, cuDNN %zu.%zu.%zu, "
                   "cuBLASLt %zu",
                   properties->name, progress_format_bytes(memory, sizeof memory, properties->totalGlobalMem),
                   properties->major, properties->minor, driver_name, driver_name[0] ? " " : "",
                   version_text(driver, driver_text), version_text(runtime, runtime_text), cudnn / 10000,
                   cudnn / 100 % 100, cudnn % 100, cublasLtGetVersion());
}

/* Makes the cache of plans. Their keys name the card, the driver's build and the library: another of them
 * means other plans. CUDA's own driver version stays the same over many builds. */
static FshStatus open_plans(CudaBackend *cuda, const BackendOptions *options,
                            const struct cudaDeviceProp *properties, FshError *error)
{
    char machine[384], build[32];
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    read_driver_version(build);
    (void)snprintf(machine, sizeof machine, "cuDNN %zu, driver %s for %d, %s, %d multiprocessors",
                   cudnnGetVersion(), build, driver, properties->name, properties->multiProcessorCount);
    FshStatus status = cudnn_cache_new(&cuda->plans, machine, cuda->plan_cache, CUDNN_PLANS_KEPT, error);
    if (!status)
        cudnn_cache_set_threads(cuda->plans, cpu_jobs(options->threads), cuda->stream);
    return status;
}

/* Makes the two streams and the handles of cuDNN that launch on them. Nothing but the update waits for what
 * lies beside: where blocks of both could begin, those of the main stream do. */
static FshStatus open_streams(CudaBackend *cuda, FshError *error)
{
    int least = 0, greatest = 0;
    FshStatus status = CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest), error);
    if (!status)
        status =
            CUDA_TRY(cudaStreamCreateWithPriority(&cuda->stream, cudaStreamNonBlocking, greatest), error);
    if (!status)
        status = CUDA_TRY(cudaStreamCreateWithPriority(&cuda->beside, cudaStreamNonBlocking, least), error);
    if (!status)
        status = CUDNN_TRY(cudnnCreate(&cuda->cudnn.handle), error);
    if (!status)
        status = CUDNN_TRY(cudnnSetStream(cuda->cudnn.handle, cuda->stream), error);
    if (!status)
        status = CUDNN_TRY(cudnnCreate(&cuda->cudnn_beside), error);
    if (!status)
        status = CUDNN_TRY(cudnnSetStream(cuda->cudnn_beside, cuda->beside), error);
    return status;
}

cudnnHandle_t cuda_cudnn_of(const CudaBackend *backend, cudaStream_t stream)
{
    return stream == backend->beside ? backend->cudnn_beside : backend->cudnn.handle;
}

FshStatus cuda_backend_open(Backend **backend, const BackendOptions *options, FshError *error)
{
    struct cudaDeviceProp properties;
    CudaBackend *cuda = NULL;
    FshStatus status = find_device(options->device_index, &properties, error);
    if (status)
        return status;
    cuda = calloc(1, sizeof *cuda);
    if (!cuda)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cuda: no memory for the backend");
    cuda->benchmark = options->benchmark;
    cuda->deterministic = options->deterministic;
    cuda->tf32 = options->tf32;
    if (options->plan_cache &&
        !(cuda->plan_cache = text_copy(options->plan_cache, strlen(options->plan_cache)))) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the name of the plan cache");
        goto done;
    }
    if ((status = open_streams(cuda, error)))
        goto done;
    if ((status = CUBLAS_TRY(cublasLtCreate(&cuda->cublas_lt), error)))
        goto done;
    if ((status = open_plans(cuda, options, &properties, error)))
        goto done;
    describe(cuda, &properties);
    *backend = &cuda->base;
    cuda = NULL;
done:
    if (status)
        (void)fsh_error_prepend(error, "cuda: %s", properties.name);
    cuda_backend_close(cuda ? &cuda->base : NULL);
    return status;
}

void cuda_backend_close(Backend *backend)
{
    CudaBackend *cuda = (CudaBackend *)backend;
    if (!cuda)
        return;
    if (cuda->stream)
        (void)cudaStreamSynchronize(cuda->stream);
    cudnn_cache_free(&cuda->plans);
    if (cuda->cudnn.handle)
        (void)cudnnDestroy(cuda->cudnn.handle);
    if (cuda->cudnn_beside)
        (void)cudnnDestroy(cuda->cudnn_beside);
    if (cuda->cublas_lt)
        (void)cublasLtDestroy(cuda->cublas_lt);
    if (cuda->stream)
        (void)cudaStreamDestroy(cuda->stream);
    if (cuda->beside)
        (void)cudaStreamDestroy(cuda->beside);
    free(cuda->plan_cache);
    free(cuda);
}

const char *cuda_backend_warning(const Backend *backend)
{
    return cudnn_cache_warning(((const CudaBackend *)backend)->plans);
}

bool cuda_backend_bus_id(const Backend *backend, char text[BACKEND_BUS_ID_MAX])
{
    int device = 0;
    (void)backend; /* the thread's device is that of the backend, since cuda_backend_open */
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetPCIBusId(text, BACKEND_BUS_ID_MAX, device) == cudaSuccess;
}

uint64_t cuda_memory_left(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess)
        (void)cudaGetLastError();
    return free_bytes;
}

FshStatus cuda_memory_new(void **memory, uint64_t bytes, const char *what, FshError *error)
{
    *memory = NULL;
    if (bytes == 0)
        return FSH_OK;
    FshStatus status = CUDA_TRY(cudaMalloc(memory, bytes), error);
    if (status == FSH_ERR_MEMORY) {
        size_t free_bytes = 0, total_bytes = 0;
        char asked[32], free_text[32], total_text[32];
        (void)cudaMemGetInfo(&free_bytes, &total_bytes);
        return fsh_error_set(error, status, "cuda: no memory for %s of %s; of the GPU's %s %s are free",
                             progress_format_bytes(asked, sizeof asked, bytes), what,
                             progress_format_bytes(total_text, sizeof total_text, total_bytes),
                             progress_format_bytes(free_text, sizeof free_text, free_bytes));
    }
    return status ? fsh_error_prepend(error, "cuda: %s", what) : FSH_OK;
}

void cuda_memory_free(void **memory)
{
    if (*memory)
        (void)cudaFree(*memory);
    *memory = NULL;
}

FshStatus cuda_pinned_new(void **memory, uint64_t bytes, const char *what, FshError *error)
{
    *memory = NULL;
    if (bytes == 0)
        return FSH_OK;
    FshStatus status = CUDA_TRY(cudaMallocHost(memory, bytes), error);
    if (status == FSH_ERR_MEMORY) {
        char asked[32], left[32];
        return fsh_error_set(error, status,
                             "cuda: no memory of the host, pinned for the GPU, for %s of %s; the host has %s "
                             "left",
                             progress_format_bytes(asked, sizeof asked, bytes), what,
                             progress_format_bytes(left, sizeof left, cpu_memory_available()));
    }
    return status ? fsh_error_prepend(error, "cuda: %s", what) : FSH_OK;
}

void cuda_pinned_free(void **memory)
{
    if (*memory)
        (void)cudaFreeHost(*memory);
    *memory = NULL;
}
