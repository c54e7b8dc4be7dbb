#include "trainer/backend/cuda/device/rates.h"

#include "trainer/backend/cuda/device/matmul.h"

enum { COPY_BYTES = 512 << 20, EDGE = 8192, TRIES = 10 };

/* Work to be timed, a product or a copy; enqueue enqueues it once. */
typedef struct Trial {
    FshStatus (*enqueue)(const struct Trial *trial, FshError *error);
    cudaStream_t stream;
    void *memory[4]; /* of a product: a, b, result, workspace; of a copy: to, from */
    MatmulPlan *plan;
} Trial;

static FshStatus enqueue_copy(const Trial *trial, FshError *error)
{
    return CUDA_TRY(cudaMemcpyAsync(trial->memory[0], trial->memory[1], COPY_BYTES, cudaMemcpyDeviceToDevice,
                                    trial->stream),
                    error);
}

static FshStatus enqueue_product(const Trial *trial, FshError *error)
{
    const MatmulOperands operands = {.a = trial->memory[0],
                                     .b = trial->memory[1],
                                     .result = trial->memory[2],
                                     .workspace = trial->memory[3]};
    return matmul_plan_run(trial->plan, &operands, trial->stream, error);
}

/* Sets *seconds_ret to the time of one run, after one that is not timed. */
static FshStatus time_trial(const Trial *trial, double *seconds_ret, FshError *error)
{
    cudaEvent_t marks[2] = {NULL, NULL};
    float milliseconds = 0;
    FshStatus status = trial->enqueue(trial, error);
    for (int i = 0; i < 2 && !status; i++)
        status = CUDA_TRY(cudaEventCreate(&marks[i]), error);
    if (!status)
        status = CUDA_TRY(cudaEventRecord(marks[0], trial->stream), error);
    for (int i = 0; i < TRIES && !status; i++)
        status = trial->enqueue(trial, error);
    if (!status)
        status = CUDA_TRY(cudaEventRecord(marks[1], trial->stream), error);
    if (!status)
        status = CUDA_TRY(cudaEventSynchronize(marks[1]), error);
    if (!status)
        status = CUDA_TRY(cudaEventElapsedTime(&milliseconds, marks[0], marks[1]), error);
    for (int i = 0; i < 2; i++)
        if (marks[i])
            (void)cudaEventDestroy(marks[i]);
    *seconds_ret = (double)milliseconds / 1000 / TRIES;
    return status;
}

static void free_memory(Trial *trial)
{
    for (size_t i = 0; i < sizeof trial->memory / sizeof *trial->memory; i++)
        cuda_memory_free(&trial->memory[i]);
}

static FshStatus measure_copy(const CudaBackend *cuda, double *bytes_per_second, FshError *error)
{
    Trial trial = {.enqueue = enqueue_copy, .stream = cuda->stream};
    double seconds = 0;
    FshStatus status = FSH_OK;
    for (int i = 0; i < 2 && !status; i++)
        status = cuda_memory_new(&trial.memory[i], COPY_BYTES, "the measured copy", error);
    for (int i = 0; i < 2 && !status; i++)
        status = CUDA_TRY(cudaMemsetAsync(trial.memory[i], 0, COPY_BYTES, cuda->stream), error);
    if (!status)
        status = time_trial(&trial, &seconds, error);
    free_memory(&trial);
    *bytes_per_second = status ? 0 : 2.0 * COPY_BYTES / seconds;
    return status;
}

static FshStatus measure_product(const CudaBackend *cuda, DataType type, double *flops, FshError *error)
{
    const ElementType element = type == DATA_F16    ? ELEMENT_F16
                                : type == DATA_BF16 ? ELEMENT_BF16
                                                    : ELEMENT_F32;
    const uint64_t bytes = (uint64_t)EDGE * EDGE * (element == ELEMENT_F32 ? 4 : 2);
    const MatmulShape shape = {.rows = EDGE,
                               .columns = EDGE,
                               .inner = EDGE,
                               .pitch_a = EDGE,
                               .pitch_b = EDGE,
                               .pitch_result = EDGE,
                               .operands = element,
                               .result = element,
                               .transpose_b = true,
                               .tf32 = cuda->tf32};
    Trial trial = {.enqueue = enqueue_product, .stream = cuda->stream};
    double seconds = 0;
    FshStatus status = matmul_plan_new(&trial.plan, cuda->cublas_lt, &shape, error);
    if (status)
        return status;
    for (int i = 0; i < 3 && !status; i++)
        status = cuda_memory_new(&trial.memory[i], bytes, "the measured product", error);
    /* Small numbers that are no zeros: bits that never change would draw less power, and be faster. */
    for (int i = 0; i < 2 && !status; i++)
        status = CUDA_TRY(cudaMemsetAsync(trial.memory[i], 0x2B + i, bytes, cuda->stream), error);
    if (!status)
        status = cuda_memory_new(&trial.memory[3], matmul_plan_workspace_bytes(trial.plan), "its workspace",
                                 error);
    if (!status)
        status = time_trial(&trial, &seconds, error);
    free_memory(&trial);
    matmul_plan_free(&trial.plan);
    *flops = status ? 0 : 2.0 * EDGE * EDGE * EDGE / seconds;
    return status;
}

FshStatus cuda_backend_rates(Backend *backend, DataType type, BackendRates *rates, FshError *error)
{
    const CudaBackend *cuda = (const CudaBackend *)backend;
    *rates = (BackendRates){0};
    FshStatus status = measure_copy(cuda, &rates->bytes_per_second, error);
    return status ? status : measure_product(cuda, type, &rates->product_flops_per_second, error);
}
