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

/* One of nvJPEG's ways to decode. */
typedef struct JpegDecoder {
    nvjpegHandle_t handle; /* NULL: not on this card */
    JpegState states[STATES];
    int next;
} JpegDecoder;

enum { ENGINE, KERNELS, DECODERS };
static const nvjpegBackend_t ways[DECODERS] = {
    [ENGINE] = NVJPEG_BACKEND_HARDWARE,     /* of A100, H100 and newer */
    [KERNELS] = NVJPEG_BACKEND_GPU_HYBRID}; /* Huffman codes read by kernels */

struct JpegBatch {
    JpegDecoder decoders[DECODERS];
    int chosen;                 /* ENGINE, until it refuses what the kernels read */
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

static void close_decoder(JpegDecoder *decoder)
{
    for (int i = 0; i < STATES; i++) {
        if (decoder->states[i].state)
            (void)nvjpegJpegStateDestroy(decoder->states[i].state);
        if (decoder->states[i].done)
            (void)cudaEventDestroy(decoder->states[i].done);
    }
    if (decoder->handle)
        (void)nvjpegDestroy(decoder->handle);
    *decoder = (JpegDecoder){0};
}

static FshStatus open_decoder(JpegDecoder *decoder, nvjpegBackend_t way, FshError *error)
{
    const nvjpegStatus_t code = nvjpegCreateEx(way, NULL, NULL, NVJPEG_FLAGS_DEFAULT, &decoder->handle);
    FshStatus status = check(code, "nvjpegCreateEx", error);
    if (status)
        decoder->handle = NULL;
    for (int i = 0; i < STATES && !status; i++) {
        JpegState *state = &decoder->states[i];
        status = check(nvjpegJpegStateCreate(decoder->handle, &state->state), "nvjpegJpegStateCreate", error);
        if (!status)
            status = check_cuda(
                cudaEventCreateWithFlags(&state->done, cudaEventDisableTiming | cudaEventBlockingSync),
                error);
    }
    if (status)
        close_decoder(decoder);
    return status;
}

FshStatus jpeg_batch_new(JpegBatch **jpegs, bool engine, FshError *error)
{
    JpegBatch *made = *jpegs = calloc(1, sizeof *made);
    if (!made)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a JPEG decoder");
    FshError no_engine = {0};
    made->chosen =
        engine && !open_decoder(&made->decoders[ENGINE], ways[ENGINE], &no_engine) ? ENGINE : KERNELS;
    FshStatus status = open_decoder(&made->decoders[KERNELS], ways[KERNELS], error);
    if (status)
        jpeg_batch_free(jpegs);
    return status;
}

void jpeg_batch_free(JpegBatch **jpegs)
{
    JpegBatch *freed = *jpegs;
    if (!freed)
        return;
    for (int i = 0; i < DECODERS; i++)
        close_decoder(&freed->decoders[i]);
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

static FshStatus initialise(nvjpegHandle_t handle, JpegState *state, size_t count, uint32_t channels,
                            FshError *error)
{
    if (state->count == count && state->channels == channels)
        return FSH_OK;
    state->count = 0;
    FshStatus status =
        check(nvjpegDecodeBatchedInitialize(handle, state->state, (int)count, 1,
                                            channels == 1 ? NVJPEG_OUTPUT_Y : NVJPEG_OUTPUT_RGBI),
              "nvjpegDecodeBatchedInitialize", error);
    if (!status) {
        state->count = count;
        state->channels = channels;
    }
    return status;
}

/* Decodes files first..first+count-1 of what is listed. */
static FshStatus decode_listed(JpegBatch *jpegs, int way, size_t first, size_t count, uint32_t channels,
                               cudaStream_t stream, FshError *error)
{
    JpegDecoder *decoder = &jpegs->decoders[way];
    JpegState *state = &decoder->states[decoder->next];
    decoder->next = (decoder->next + 1) % STATES;
    FshStatus status = check_cuda(cudaEventSynchronize(state->done), error);
    if (!status)
        status = initialise(decoder->handle, state, count, channels, error);
    if (!status) {
        status = check(nvjpegDecodeBatched(decoder->handle, state->state, jpegs->data + first,
                                           jpegs->lengths + first, jpegs->targets + first, stream),
                       "nvjpegDecodeBatched", error);
        /* after a failed batch the state is initialised anew; part of the batch may be under way, and no
         * event says when the state is free */
        if (status) {
            state->count = 0;
            (void)cudaStreamSynchronize(stream);
        }
    }
    return status ? status : check_cuda(cudaEventRecord(state->done, stream), error);
}

/* Decodes with the engine, and with the kernels what it refuses: it knows fewer kinds of files, and says so
 * in several ways. */
static FshStatus decode_either_way(JpegBatch *jpegs, size_t count, uint32_t channels, cudaStream_t stream,
                                   FshError *error)
{
    FshStatus status = decode_listed(jpegs, jpegs->chosen, 0, count, channels, stream, error);
    if (!status || jpegs->chosen == KERNELS)
        return status;
    status = decode_listed(jpegs, KERNELS, 0, count, channels, stream, error);
    if (!status)
        jpegs->chosen = KERNELS;
    return status;
}

/* Decodes each file by itself: the good ones are decoded, the others marked in refused. Returns of_all where
 * all are refused and nvJPEG has not called the files corrupt: then it is not the files. */
static FshStatus decode_one_by_one(JpegBatch *jpegs, size_t count, uint32_t channels, cudaStream_t stream,
                                   bool *refused, FshStatus of_all, FshError *error)
{
    size_t refused_count = 0;
    FshError first = {0};
    for (size_t i = 0; i < count; i++) {
        FshError failure = {0};
        FshStatus status = decode_listed(jpegs, KERNELS, i, 1, channels, stream, &failure);
        refused[i] = status != FSH_OK;
        if (refused[i] && refused_count++ == 0)
            first = failure;
        if (status == FSH_ERR_MEMORY)
            return fsh_error_set(error, status, "%s", failure.message);
    }
    if (refused_count == count && of_all != FSH_ERR_CORRUPT)
        return of_all;
    return refused_count ? fsh_error_set(error, FSH_ERR_CORRUPT, "%s", first.message) : FSH_OK;
}

FshStatus jpeg_batch_decode(JpegBatch *jpegs, const JpegFile *files, size_t count, uint32_t channels,
                            cudaStream_t stream, bool *refused, FshError *error)
{
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
        refused[i] = false;
    }
    status = decode_either_way(jpegs, count, channels, stream, error);
    /* nvJPEG has several words for a file that it does not like. */
    return status == FSH_ERR_CORRUPT || status == FSH_ERR_LIBRARY
               ? decode_one_by_one(jpegs, count, channels, stream, refused, status, error)
               : status;
}

#else

struct JpegBatch {
    int nothing;
};

FshStatus jpeg_batch_new(JpegBatch **jpegs, bool engine, FshError *error)
{
    (void)engine;
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
                            cudaStream_t stream, bool *refused, FshError *error)
{
    (void)jpegs;
    (void)files;
    (void)count;
    (void)channels;
    (void)stream;
    (void)refused;
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "this build has no nvJPEG");
}

#endif
