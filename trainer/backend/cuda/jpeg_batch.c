#include "trainer/backend/cuda/jpeg_batch.h"

#ifdef FSHARD_NVJPEG

#include <stdlib.h>

#include <nvjpeg.h>

/* Calls alternate between two states: a state's host memory is read by copies that may still be under way. */
enum { STATES = 2 };

typedef struct JpegState {
    nvjpegJpegState_t state;
    size_t count; /* what it is initialised for; 0: nothing */
    uint32_t channels;
    cudaEvent_t done; /* the copies out of its memory */
} JpegState;

struct JpegBatch {
    nvjpegHandle_t handle;
    JpegState states[STATES];
    int next;
    const unsigned char **data; /* [capacity] */
    size_t *lengths;
    nvjpegImage_t *targets;
    size_t capacity;
};

static const char *const status_names[] = {"success",
                                           "not initialised",
                                           "invalid parameter",
                                           "bad JPEG",
                                           "JPEG not supported",
                                           "allocator failure",
                                           "execution failed",
                                           "architecture mismatch",
                                           "internal error",
                                           "not supported by this implementation",
                                           "incomplete bitstream"};

static FshStatus check(nvjpegStatus_t code, const char *what, FshError *error)
{
    if (code == NVJPEG_STATUS_SUCCESS)
        return FSH_OK;
    const size_t known = sizeof status_names / sizeof *status_names;
    const FshStatus status = code == NVJPEG_STATUS_BAD_JPEG || code == NVJPEG_STATUS_JPEG_NOT_SUPPORTED ||
                                     code == NVJPEG_STATUS_INCOMPLETE_BITSTREAM
                                 ? FSH_ERR_CORRUPT
                             : code == NVJPEG_STATUS_ALLOCATOR_FAILURE ? FSH_ERR_MEMORY
                                                                       : FSH_ERR_LIBRARY;
    return fsh_error_set(error, status, "%s: nvJPEG: %s", what,
                         (size_t)code < known ? status_names[code] : "unknown status");
}

static FshStatus check_cuda(cudaError_t code, FshError *error)
{
    return code == cudaSuccess ? FSH_OK
                               : fsh_error_set(error, FSH_ERR_LIBRARY, "nvJPEG: %s: %s",
                                               cudaGetErrorName(code), cudaGetErrorString(code));
}

FshStatus jpeg_batch_new(JpegBatch **jpegs, FshError *error)
{
    JpegBatch *made = *jpegs = calloc(1, sizeof *made);
    if (!made)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a JPEG decoder");
    /* A100, H100 and newer have an engine; elsewhere Huffman codes are read by kernels. */
    nvjpegStatus_t code =
        nvjpegCreateEx(NVJPEG_BACKEND_HARDWARE, NULL, NULL, NVJPEG_FLAGS_DEFAULT, &made->handle);
    if (code != NVJPEG_STATUS_SUCCESS)
        code = nvjpegCreateEx(NVJPEG_BACKEND_GPU_HYBRID, NULL, NULL, NVJPEG_FLAGS_DEFAULT, &made->handle);
    FshStatus status = check(code, "nvjpegCreateEx", error);
    for (int i = 0; i < STATES && !status; i++) {
        status = check(nvjpegJpegStateCreate(made->handle, &made->states[i].state), "nvjpegJpegStateCreate",
                       error);
        if (!status)
            status = check_cuda(cudaEventCreateWithFlags(&made->states[i].done,
                                                         cudaEventDisableTiming | cudaEventBlockingSync),
                                error);
    }
    if (status)
        jpeg_batch_free(jpegs);
    return status;
}

void jpeg_batch_free(JpegBatch **jpegs)
{
    JpegBatch *freed = *jpegs;
    if (!freed)
        return;
    for (int i = 0; i < STATES; i++) {
        if (freed->states[i].state)
            (void)nvjpegJpegStateDestroy(freed->states[i].state);
        if (freed->states[i].done)
            (void)cudaEventDestroy(freed->states[i].done);
    }
    if (freed->handle)
        (void)nvjpegDestroy(freed->handle);
    free(freed->data);
    free(freed->lengths);
    free(freed->targets);
    free(freed);
    *jpegs = NULL;
}

static FshStatus reserve(JpegBatch *jpegs, size_t count, FshError *error)
{
    if (jpegs->capacity >= count)
        return FSH_OK;
    free(jpegs->data);
    free(jpegs->lengths);
    free(jpegs->targets);
    jpegs->data = calloc(count, sizeof(const unsigned char *));
    jpegs->lengths = calloc(count, sizeof *jpegs->lengths);
    jpegs->targets = calloc(count, sizeof *jpegs->targets);
    jpegs->capacity = jpegs->data && jpegs->lengths && jpegs->targets ? count : 0;
    return jpegs->capacity ? FSH_OK
                           : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu JPEG files", count);
}

static FshStatus initialise(JpegBatch *jpegs, JpegState *state, size_t count, uint32_t channels,
                            FshError *error)
{
    if (state->count == count && state->channels == channels)
        return FSH_OK;
    state->count = 0;
    FshStatus status =
        check(nvjpegDecodeBatchedInitialize(jpegs->handle, state->state, (int)count, 1,
                                            channels == 1 ? NVJPEG_OUTPUT_Y : NVJPEG_OUTPUT_RGBI),
              "nvjpegDecodeBatchedInitialize", error);
    if (!status) {
        state->count = count;
        state->channels = channels;
    }
    return status;
}

/* Files first..first+count-1 of what is listed. */
static FshStatus decode_listed(JpegBatch *jpegs, size_t first, size_t count, uint32_t channels,
                               cudaStream_t stream, FshError *error)
{
    JpegState *state = &jpegs->states[jpegs->next];
    jpegs->next = (jpegs->next + 1) % STATES;
    FshStatus status = check_cuda(cudaEventSynchronize(state->done), error);
    if (!status)
        status = initialise(jpegs, state, count, channels, error);
    if (!status) {
        status = check(nvjpegDecodeBatched(jpegs->handle, state->state, jpegs->data + first,
                                           jpegs->lengths + first, jpegs->targets + first, stream),
                       "nvjpegDecodeBatched", error);
        if (status)
            state->count = 0; /* a failed batch wants a new beginning */
    }
    return status ? status : check_cuda(cudaEventRecord(state->done, stream), error);
}

FshStatus jpeg_batch_decode(JpegBatch *jpegs, const JpegFile *files, size_t count, uint32_t channels,
                            cudaStream_t stream, size_t *failed_ret, FshError *error)
{
    *failed_ret = count;
    if (count == 0)
        return FSH_OK;
    FshStatus status = reserve(jpegs, count, error);
    if (status)
        return status;
    for (size_t i = 0; i < count; i++) {
        jpegs->data[i] = files[i].data;
        jpegs->lengths[i] = files[i].bytes;
        jpegs->targets[i] =
            (nvjpegImage_t){.channel = {files[i].target}, .pitch = {(size_t)files[i].width * channels}};
    }
    status = decode_listed(jpegs, 0, count, channels, stream, error);
    if (status != FSH_ERR_CORRUPT)
        return status;
    for (size_t i = 0; i < count; i++) /* which one was it? */
        if (decode_listed(jpegs, i, 1, channels, stream, error)) {
            *failed_ret = i;
            break;
        }
    return status;
}

#else

struct JpegBatch {
    int nothing;
};

FshStatus jpeg_batch_new(JpegBatch **jpegs, FshError *error)
{
    *jpegs = NULL;
    return fsh_error_set(
        error, FSH_ERR_UNSUPPORTED,
        "--decode gpu: this build has no nvJPEG; install the CUDA toolkit's nvJPEG (nvjpeg.h, "
        "libnvjpeg.so) and build again, or use --decode cpu");
}

void jpeg_batch_free(JpegBatch **jpegs)
{
    (void)jpegs;
}

FshStatus jpeg_batch_decode(JpegBatch *jpegs, const JpegFile *files, size_t count, uint32_t channels,
                            cudaStream_t stream, size_t *failed_ret, FshError *error)
{
    (void)jpegs;
    (void)files;
    (void)channels;
    (void)stream;
    *failed_ret = count;
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "this build has no nvJPEG");
}

#endif
