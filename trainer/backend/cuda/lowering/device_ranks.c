#include "trainer/backend/cuda/lowering/device_ranks.h"

#include <stdio.h>
#include <string.h>

#ifndef FSHARD_NCCL

FshStatus device_ranks_join(Backend *backend, Communicator *communicator, FshError *error)
{
    (void)backend;
    (void)communicator;
    return fsh_error_set(
        error, FSH_ERR_UNSUPPORTED,
        "cuda: this build has no NCCL, so one GPU is what it can train on; install libnccl-dev "
        "and build again, or start one process");
}

void device_ranks_leave(DeviceRanks *ranks)
{
    (void)ranks;
}

FshStatus device_ranks_share(const DeviceRanks *ranks, const GradientBucket buckets[GRADIENT_BUCKETS],
                             float *loss, cudaStream_t stream, FshError *error)
{
    (void)ranks;
    (void)buckets;
    (void)loss;
    (void)stream;
    (void)error;
    return FSH_OK;
}

FshStatus device_ranks_mean(const DeviceRanks *ranks, const RankMean *pieces, int piece_count,
                            cudaStream_t stream, FshError *error)
{
    (void)ranks;
    (void)pieces;
    (void)piece_count;
    (void)stream;
    (void)error;
    return FSH_OK;
}

uint64_t device_ranks_count(const DeviceRanks *ranks)
{
    (void)ranks;
    return 1;
}

#else

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include <nccl.h>

/* The functions of NCCL that are called, by their names there. */
typedef struct NcclCalls {
    ncclResult_t (*GetVersion)(int *version);
    ncclResult_t (*GetUniqueId)(ncclUniqueId *id);
    ncclResult_t (*CommInitRank)(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
    ncclResult_t (*CommAbort)(ncclComm_t comm);
    ncclResult_t (*AllReduce)(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                              ncclComm_t comm, cudaStream_t stream);
    ncclResult_t (*GroupStart)(void);
    ncclResult_t (*GroupEnd)(void);
    const char *(*GetErrorString)(ncclResult_t result);
    const char *(*GetLastError)(ncclComm_t comm);
} NcclCalls;

struct DeviceRanks {
    NcclCalls nccl;
    ncclComm_t comm;
    Communicator *communicator; /* borrowed */
    pthread_t watch;
    bool watched;           /* watch runs */
    atomic_bool leaves;     /* it shall end */
    atomic_bool is_aborted; /* comm is no more */
};

static FshStatus nccl_check(const NcclCalls *nccl, ncclResult_t code, const char *call, FshError *error)
{
    if (code == ncclSuccess)
        return FSH_OK;
    const char *detail = nccl->GetLastError(NULL);
    return fsh_error_set(error, FSH_ERR_LIBRARY, "%s: %s%s%s", call, nccl->GetErrorString(code),
                         detail && *detail ? ": " : "", detail ? detail : "");
}
#define NCCL_TRY(ranks, call, error) nccl_check(&(ranks)->nccl, (ranks)->nccl.call, "nccl" #call, (error))

static FshStatus load_nccl(NcclCalls *nccl, FshError *error)
{
    const struct {
        const char *name;
        void *function; /* a pointer to a pointer to a function */
    } calls[] = {
        {"ncclGetVersion", &nccl->GetVersion},     {"ncclGetUniqueId", &nccl->GetUniqueId},
        {"ncclCommInitRank", &nccl->CommInitRank}, {"ncclCommAbort", &nccl->CommAbort},
        {"ncclAllReduce", &nccl->AllReduce},       {"ncclGroupStart", &nccl->GroupStart},
        {"ncclGroupEnd", &nccl->GroupEnd},         {"ncclGetErrorString", &nccl->GetErrorString},
        {"ncclGetLastError", &nccl->GetLastError},
    };
    /* Never closed: its threads may outlive the last call. */
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "cuda: NCCL is not here, and several GPUs need it (%s); install libnccl2, or start one "
            "process",
            dlerror());
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *symbol = dlsym(library, calls[i].name);
        if (!symbol)
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "cuda: this NCCL is too old: it has no %s",
                                 calls[i].name);
        memcpy(calls[i].function, &symbol, sizeof symbol); /* POSIX: both kinds of pointer are alike */
    }
    return FSH_OK;
}

/* Refuses two ranks on one GPU, which would wait for each other for ever. */
static FshStatus check_devices(Communicator *communicator, FshError *error)
{
    const RankPlace *place = communicator_place(communicator);
    uint64_t ids[RANKS_MAX][2] = {{0}};
    struct cudaDeviceProp properties;
    int device = 0;
    FshStatus status = CUDA_TRY(cudaGetDevice(&device), error);
    if (!status)
        status = CUDA_TRY(cudaGetDeviceProperties(&properties, device), error);
    if (!status)
        memcpy(ids[place->rank], &properties.uuid, sizeof ids[0]);
    if (!status)
        status = communicator_sum_u64(communicator, ids[0], 2 * (size_t)place->world_size, error);
    for (uint64_t a = 0; a < place->world_size && !status; a++)
        for (uint64_t b = a + 1; b < place->world_size && !status; b++)
            if (memcmp(ids[a], ids[b], sizeof ids[0]) == 0)
                status = fsh_error_set(error, FSH_ERR_MISMATCH,
                                       "cuda: ranks %" PRIu64 " and %" PRIu64
                                       " have the same GPU; start as many ranks as there are GPUs",
                                       a, b);
    return status;
}

/* Watches the other ranks and aborts NCCL when one is gone, whose GPU answers no more. At the end of a run,
 * when nothing is exchanged any more, ranks go one after the other; then the abort makes no difference. */
static void *look_after_others(void *context)
{
    DeviceRanks *ranks = context;
    const struct timespec pause = {.tv_nsec = 200000000};
    bool gone = false;
    while (!gone && !atomic_load(&ranks->leaves)) {
        gone = communicator_check_all_there(ranks->communicator, NULL) != FSH_OK;
        (void)nanosleep(&pause, NULL); /* what it has sent before may still arrive */
    }
    if (gone) {
        atomic_store(&ranks->is_aborted, true);
        (void)ranks->nccl.CommAbort(ranks->comm);
    }
    return NULL;
}

static FshStatus connect_ranks(DeviceRanks *ranks, FshError *error)
{
    const RankPlace *place = communicator_place(ranks->communicator);
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    FshStatus status = place->rank == 0 ? NCCL_TRY(ranks, GetUniqueId(&id), error) : FSH_OK;
    /* Where that failed, zeros are broadcast: the others fail in CommInitRank, and are not left waiting. */
    FshStatus told = communicator_broadcast(ranks->communicator, 0, &id, sizeof id, status ? NULL : error);
    if (!status)
        status = told;
    if (!status)
        status =
            NCCL_TRY(ranks, CommInitRank(&ranks->comm, (int)place->world_size, id, (int)place->rank), error);
    if (!status && pthread_create(&ranks->watch, NULL, look_after_others, ranks) != 0)
        status = fsh_error_set(error, FSH_ERR_SYSTEM, "cuda: no thread to look after the other ranks");
    else
        ranks->watched = !status;
    return status;
}

static void describe_nccl(CudaBackend *backend, const NcclCalls *nccl)
{
    int version = 0;
    char *text = backend->base.description;
    const size_t length = strlen(text);
    if (nccl->GetVersion(&version) == ncclSuccess)
        (void)snprintf(text + length, sizeof backend->base.description - length, ", NCCL %d.%d.%d",
                       version / 10000, version / 100 % 100, version % 100);
}

FshStatus device_ranks_join(Backend *backend, Communicator *communicator, FshError *error)
{
    CudaBackend *cuda = (CudaBackend *)backend;
    DeviceRanks *ranks = calloc(1, sizeof *ranks);
    FshStatus status = ranks ? load_nccl(&ranks->nccl, error)
                             : fsh_error_set(error, FSH_ERR_MEMORY, "cuda: no memory for the other ranks");
    uint64_t failed = status != FSH_OK;
    FshStatus told = communicator_max_u64(communicator, &failed, 1, status ? NULL : error);
    if (!status)
        status = told;
    if (!status && failed)
        status = fsh_error_set(error, FSH_ERR_LIBRARY, "cuda: another rank could not load NCCL");
    if (!status)
        status = check_devices(communicator, error);
    if (!status) {
        ranks->communicator = communicator;
        status = connect_ranks(ranks, error);
    }
    if (status) {
        device_ranks_leave(ranks);
        return status;
    }
    describe_nccl(cuda, &ranks->nccl);
    cuda->ranks = ranks;
    return FSH_OK;
}

/* Leaves with an abort, not by ncclCommDestroy, which waits for the other ranks: one that ends for a reason
 * of its own would wait for those that wait for it. The pause lets the others' last kernel read what it still
 * wants of this GPU's memory. */
void device_ranks_leave(DeviceRanks *ranks)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    if (!ranks)
        return;
    atomic_store(&ranks->leaves, true);
    if (ranks->watched)
        (void)pthread_join(ranks->watch, NULL);
    if (ranks->comm && !atomic_load(&ranks->is_aborted)) {
        (void)nanosleep(&pause, NULL);
        (void)ranks->nccl.CommAbort(ranks->comm);
    }
    free(ranks);
}

/* Returns NCCL's name of the type; *bytes_ret is the size of an element. */
static ncclDataType_t type_of(ElementType element, size_t *bytes_ret)
{
    static const struct {
        ElementType element;
        ncclDataType_t type;
        size_t bytes;
    } types[] = {
        {ELEMENT_F32, ncclFloat32, 4}, {ELEMENT_BF16, ncclBfloat16, 2}, {ELEMENT_F16, ncclFloat16, 2}};
    size_t i = 0;
    while (i < 2 && types[i].element != element)
        i++;
    *bytes_ret = types[i].bytes;
    return types[i].type;
}

/* Averages gradients and loss over the ranks. ncclAvg multiplies each rank's share before it is added: f16
 * does not overflow where the mean fits. */
FshStatus device_ranks_share(const DeviceRanks *ranks, const GradientBucket buckets[GRADIENT_BUCKETS],
                             float *loss, cudaStream_t stream, FshError *error)
{
    if (!ranks)
        return FSH_OK;
    FshStatus status = NCCL_TRY(ranks, GroupStart(), error);
    if (status)
        return status;
    for (int b = 0; b < GRADIENT_BUCKETS && !status; b++) {
        size_t bytes = 1;
        const ncclDataType_t type = type_of(buckets[b].element, &bytes);
        if (buckets[b].bytes > 0)
            status = NCCL_TRY(ranks,
                              AllReduce(buckets[b].data, buckets[b].data, buckets[b].bytes / bytes, type,
                                        ncclAvg, ranks->comm, stream),
                              error);
    }
    if (!status && loss)
        status = NCCL_TRY(ranks, AllReduce(loss, loss, 1, ncclFloat32, ncclAvg, ranks->comm, stream), error);
    const ncclResult_t ended = ranks->nccl.GroupEnd(); /* always: what was begun must end */
    return status ? status : nccl_check(&ranks->nccl, ended, "ncclGroupEnd()", error);
}

FshStatus device_ranks_mean(const DeviceRanks *ranks, const RankMean *pieces, int piece_count,
                            cudaStream_t stream, FshError *error)
{
    FshStatus status = NCCL_TRY(ranks, GroupStart(), error);
    if (status)
        return status;
    for (int i = 0; i < piece_count && !status; i++)
        status =
            NCCL_TRY(ranks,
                     AllReduce(pieces[i].values, pieces[i].values, pieces[i].count,
                               pieces[i].is_f64 ? ncclFloat64 : ncclFloat32, ncclAvg, ranks->comm, stream),
                     error);
    const ncclResult_t ended = ranks->nccl.GroupEnd(); /* always: what was begun must end */
    return status ? status : nccl_check(&ranks->nccl, ended, "ncclGroupEnd()", error);
}

uint64_t device_ranks_count(const DeviceRanks *ranks)
{
    return ranks ? communicator_place(ranks->communicator)->world_size : 1;
}

#endif
