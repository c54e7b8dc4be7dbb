/* device.h - one GPU as a Backend: its stream, its library handles, its memory, and how its errors are told.
 *
 * Every call of CUDA, cuDNN and cuBLASLt goes through one of three macros that give a status and, on failure,
 * a message with the call's text: status = CUDA_TRY(cudaStreamSynchronize(stream), error); status =
 * CUDNN_TRY(cudnnSetStream(cudnn, stream), error);       // cudnn_graph.h status =
 * CUBLAS_TRY(cublasLtCreate(&cublas_lt), error); Who knows the layer and its shapes puts them in front
 * (fsh_error_prepend): program.c does it for every node. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_DEVICE_DEVICE_H
#define FSHARD_TRAINER_BACKEND_CUDA_DEVICE_DEVICE_H

#include <stdint.h>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "common/error.h"
#include "trainer/backend/backend.h"
#include "trainer/backend/cuda/device/cudnn_cache.h"

typedef struct DeviceRanks DeviceRanks; /* device_ranks.h */

typedef struct CudaBackend {
    Backend base;
    bool benchmark, deterministic, tf32; /* BackendOptions */
    char *plan_cache;                    /* owned; NULL: plans are not kept */
    /* All work of all programs, in order, but for what a recorded step does meanwhile. The former has the
     * greatest priority, the latter and all other streams the least. */
    cudaStream_t stream, beside;
    CudnnDevice cudnn; /* launches on stream */
    cudnnHandle_t cudnn_beside;
    CudnnCache *plans; /* owned; all of cuDNN's */
    cublasLtHandle_t cublas_lt;
    DeviceRanks *ranks; /* left by the plugin (cuda_plugin.c) before it closes the device; NULL: one rank */
    uint64_t program_count; /* made so far */
} CudaBackend;

/* Returns FSH_OK; FSH_ERR_MEMORY for cudaErrorMemoryAllocation; FSH_ERR_LIBRARY for the rest, with the name
 * and text of the error. */
FshStatus cuda_check(cudaError_t code, const char *call, FshError *error);
FshStatus cublas_check(cublasStatus_t code, const char *call, FshError *error);
#define CUDA_TRY(call, error)   cuda_check((call), #call, (error))
#define CUBLAS_TRY(call, error) cublas_check((call), #call, (error))

/* Sets *count_ret to the number of GPUs that the process sees. FSH_ERR_UNSUPPORTED as below. */
FshStatus cuda_device_count(int *count_ret, FshError *error);
/* Opens the GPU of options->device_index, among those that CUDA_VISIBLE_DEVICES leaves; the only one, where a
 * launcher has left one to each rank. FSH_ERR_UNSUPPORTED: no driver, a driver older than the runtime, no
 * GPU, fewer than that, or one that is too old; the message says what was found and what to do. */
FshStatus cuda_backend_open(Backend **backend, const BackendOptions *options, FshError *error);
/* Waits for the work under way. NULL is fine. */
void cuda_backend_close(Backend *backend);
const char *cuda_backend_warning(const Backend *backend);
bool cuda_backend_bus_id(const Backend *backend, char text[BACKEND_BUS_ID_MAX]);

/* Returns the handle of cuDNN that launches on the stream, one of the backend's two. */
cudnnHandle_t cuda_cudnn_of(const CudaBackend *backend, cudaStream_t stream);

/* Allocates device memory, 256-byte aligned, uninitialised. FSH_ERR_MEMORY says what was asked for and what
 * is free. 0 bytes give NULL. */
FshStatus cuda_memory_new(void **memory, uint64_t bytes, const char *what, FshError *error);
void cuda_memory_free(void **memory);
/* Returns the bytes of the device that are free now; 0 where it does not say. */
uint64_t cuda_memory_left(void);
/* Allocates memory of the host that the device reaches (pinned). FSH_ERR_MEMORY says what was asked for and
 * what the host has left. */
FshStatus cuda_pinned_new(void **memory, uint64_t bytes, const char *what, FshError *error);
void cuda_pinned_free(void **memory);

#endif
