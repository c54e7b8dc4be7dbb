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

FshStatus device_ranks_check(DeviceRanks *ranks, FshError *error)
{
    (void)ranks;
    (void)error;
    return FSH_OK;
}

FshStatus device_ranks_mean(DeviceRanks *ranks, const RankMean *pieces, int piece_count, cudaStream_t stream,
                            FshError *error)
{
    (void)ranks;
    (void)pieces;
    (void)piece_count;
    (void)stream;
    (void)error;
    return FSH_OK;
}

FshStatus device_ranks_share(DeviceRanks *ranks, const RankMean *pieces, int piece_count, cudaStream_t stream,
                             FshError *error)
{
    return device_ranks_mean(ranks, pieces, piece_count, stream, error);
}

void device_ranks_begun(DeviceRanks *ranks)
{
    (void)ranks;
}

const PeerBoxes *device_ranks_boxes(DeviceRanks *ranks)
{
    (void)ranks;
    return NULL;
}

uint64_t device_ranks_count(const DeviceRanks *ranks)
{
    (void)ranks;
    return 1;
}

#else

#include "trainer/backend/cuda/lowering/exchange_watch.h"
#include "trainer/backend/cuda/lowering/peer_exchange.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include <nccl.h>

#include "common/progress.h"

/* The functions of NCCL that are called, by their names there. */
typedef struct NcclCalls {
    ncclResult_t (*GetVersion)(int *version);
    ncclResult_t (*GetUniqueId)(ncclUniqueId *id);
    ncclResult_t (*CommInitRankConfig)(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                       ncclConfig_t *config);
    ncclResult_t (*CommGetAsyncError)(ncclComm_t comm, ncclResult_t *error);
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
    Communicator *communicator; /* borrowed */
    PeerExchange *peers;        /* NULL: NCCL makes all exchanges */
    ExchangeWatch exchange;     /* of gradients, by this GPU */
    atomic_bool waits_within;   /* norms exchange too, within a step */
    double looked;              /* when the watch looked last */
    pthread_mutex_t calls;      /* guards what follows */
    ncclComm_t comm;            /* NULL: not there yet */
    bool is_given_up;           /* comm is being aborted, or is no more: no call may name it */
    FshError reason;            /* of that */
    pthread_t watch;
    bool is_watched;    /* watch runs */
    atomic_bool leaves; /* it shall end */
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
        {"ncclGetVersion", &nccl->GetVersion},
        {"ncclGetUniqueId", &nccl->GetUniqueId},
        {"ncclCommInitRankConfig", &nccl->CommInitRankConfig},
        {"ncclCommGetAsyncError", &nccl->CommGetAsyncError},
        {"ncclCommAbort", &nccl->CommAbort},
        {"ncclAllReduce", &nccl->AllReduce},
        {"ncclGroupStart", &nccl->GroupStart},
        {"ncclGroupEnd", &nccl->GroupEnd},
        {"ncclGetErrorString", &nccl->GetErrorString},
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

/* ---- calls and waits ---- */

static bool is_well(ncclResult_t code)
{
    return code == ncclSuccess || code == ncclInProgress;
}

/* Returns FSH_OK for a code that says so. Otherwise returns a failure, which names the rank that is lost if
 * there is one. NCCL hears of a death from its connections, which a dying process closes before the locks
 * that the communicator looks at: so a loss has CAUSE_SECONDS to come. */
static FshStatus check_with_cause(const DeviceRanks *ranks, ncclResult_t code, const char *call,
                                  FshError *error)
{
    enum { CAUSE_SECONDS = 2 };
    const struct timespec pause = {.tv_nsec = 20000000};
    const double start = progress_now_seconds();
    while (code != ncclSuccess && progress_now_seconds() - start < CAUSE_SECONDS) {
        FshStatus lost = communicator_check_all_there(ranks->communicator, error);
        if (lost)
            return lost;
        (void)nanosleep(&pause, NULL);
    }
    return nccl_check(&ranks->nccl, code, call, error);
}

/* Begins calls on ranks->comm, until end_calls. Once the communication is given up it fails, with the status
 * of the reason. */
static FshStatus begin_calls(DeviceRanks *ranks, FshError *error)
{
    (void)pthread_mutex_lock(&ranks->calls);
    if (!ranks->is_given_up)
        return FSH_OK;
    FshStatus status = fsh_error_set(error, ranks->reason.status, "%s", ranks->reason.message);
    (void)pthread_mutex_unlock(&ranks->calls);
    return status;
}

/* Ends calls of which the last returned code. Waits until NCCL's own threads have done them: only then the
 * stream has their work, and comm takes another call. */
static FshStatus end_calls(DeviceRanks *ranks, ncclResult_t code, const char *call, FshError *error)
{
    enum { QUICK_LOOKS = 200 };
    const struct timespec pause = {.tv_nsec = 1000000};
    const double start = progress_now_seconds();
    (void)pthread_mutex_unlock(&ranks->calls);
    for (int looks = 0; code == ncclInProgress; looks++) {
        if (looks < QUICK_LOOKS)
            (void)sched_yield();
        else
            (void)nanosleep(&pause, NULL);
        if (progress_now_seconds() - start > COMMUNICATOR_PATIENCE_SECONDS)
            return fsh_error_set(error, FSH_ERR_SYSTEM, "%s: another rank has not come for %d s", call,
                                 COMMUNICATOR_PATIENCE_SECONDS);
        FshStatus status = begin_calls(ranks, error);
        if (status)
            return status;
        const ncclResult_t asked = ranks->nccl.CommGetAsyncError(ranks->comm, &code);
        (void)pthread_mutex_unlock(&ranks->calls);
        if (asked != ncclSuccess)
            code = asked;
    }
    return check_with_cause(ranks, code, call, error);
}

/* ---- the watch ---- */

/* Looks whether this GPU, or what joins it to the others, hangs, and makes that the loss of all ranks. Time
 * in which this process itself stood still does not count. */
static FshStatus look_at_gpu(DeviceRanks *ranks, FshError *error)
{
    static const double least_seconds = 10; /* longer than any step */
    const double timeout = communicator_timeout(ranks->communicator),
                 most = timeout > least_seconds ? timeout : least_seconds;
    const double now = progress_now_seconds(), passed = now - ranks->looked;
    const ExchangeState state = exchange_watch_look(&ranks->exchange, passed < 1 ? passed : 1, most);
    char text[256];
    ranks->looked = now;
    if (state == EXCHANGE_WELL)
        return FSH_OK;
    const bool is_own = state == EXCHANGE_BEFORE && !atomic_load(&ranks->waits_within);
    if (is_own)
        (void)snprintf(text, sizeof text,
                       "moves, but its GPU has not got on with a step for %.0f s (--timeout): the GPU or its "
                       "driver hangs; nvidia-smi and the log of that host's system say more",
                       most);
    else
        (void)snprintf(
            text, sizeof text,
            "all ranks move, but their GPUs have not ended an exchange for %.0f s (--timeout): a GPU, "
            "its driver or the link between them hangs; NCCL_DEBUG=INFO and nvidia-smi say more",
            most);
    return communicator_lose(ranks->communicator, is_own, text, error);
}

/* Returns FSH_OK, or why the communication must end: a lost rank, or an error of NCCL between calls. */
static FshStatus look_for_failure(DeviceRanks *ranks, FshError *error)
{
    ncclResult_t code = ncclSuccess;
    FshStatus status = communicator_check_all_there(ranks->communicator, error);
    if (!status)
        status = look_at_gpu(ranks, error);
    if (status)
        return status;
    (void)pthread_mutex_lock(&ranks->calls);
    if (ranks->comm && ranks->nccl.CommGetAsyncError(ranks->comm, &code) != ncclSuccess)
        code = ncclInternalError;
    (void)pthread_mutex_unlock(&ranks->calls);
    return is_well(code) ? FSH_OK : check_with_cause(ranks, code, "NCCL", error);
}

/* Watches the other ranks and gives up when one is gone, whose GPU answers no more. At the end of a run, when
 * nothing is exchanged any more, ranks go one after the other; then that makes no difference. */
static void *look_after_others(void *context)
{
    DeviceRanks *ranks = context;
    const struct timespec pause = {.tv_nsec = 200000000};
    FshError reason = {0};
    FshStatus failed = FSH_OK;
    while (!failed && !atomic_load(&ranks->leaves)) {
        failed = look_for_failure(ranks, &reason);
        (void)nanosleep(&pause, NULL); /* what it has sent before may still arrive */
    }
    if (!failed)
        return NULL;
    (void)pthread_mutex_lock(&ranks->calls);
    ranks->reason = reason;
    ranks->is_given_up = true;
    (void)pthread_mutex_unlock(&ranks->calls);
    peer_exchange_stop(ranks->peers);
    if (ranks->comm)
        (void)ranks->nccl.CommAbort(ranks->comm);
    return NULL;
}

FshStatus device_ranks_check(DeviceRanks *ranks, FshError *error)
{
    FshStatus status = ranks ? begin_calls(ranks, error) : FSH_OK;
    if (ranks && !status)
        (void)pthread_mutex_unlock(&ranks->calls);
    return status;
}

/* ---- joining and leaving ---- */

static FshStatus connect_ranks(DeviceRanks *ranks, FshError *error)
{
    const RankPlace *place = communicator_place(ranks->communicator);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    FshStatus status = place->rank == 0 ? NCCL_TRY(ranks, GetUniqueId(&id), error) : FSH_OK;
    /* Where that failed, zeros are broadcast: the others fail to connect, and are not left waiting. */
    FshStatus told = communicator_broadcast(ranks->communicator, 0, &id, sizeof id, status ? NULL : error);
    if (!status)
        status = told;
    if (!status && pthread_create(&ranks->watch, NULL, look_after_others, ranks) != 0)
        status = fsh_error_set(error, FSH_ERR_SYSTEM, "cuda: no thread to look after the other ranks");
    else
        ranks->is_watched = !status;
    if (!status)
        status = begin_calls(ranks, error);
    if (status)
        return status;
    config.blocking = 0;
    const ncclResult_t code =
        ranks->nccl.CommInitRankConfig(&ranks->comm, (int)place->world_size, id, (int)place->rank, &config);
    return end_calls(ranks, code, "ncclCommInitRankConfig", error);
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

/* Returns NULL if there is no memory. */
static DeviceRanks *ranks_new(Communicator *communicator)
{
    DeviceRanks *ranks = calloc(1, sizeof *ranks);
    if (!ranks)
        return NULL;
    ranks->communicator = communicator;
    (void)pthread_mutex_init(&ranks->calls, NULL);
    return ranks;
}

FshStatus device_ranks_join(Backend *backend, Communicator *communicator, FshError *error)
{
    CudaBackend *cuda = (CudaBackend *)backend;
    DeviceRanks *ranks = ranks_new(communicator);
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
    if (!status) /* before the watch, which looks at it */
        status = exchange_watch_open(&ranks->exchange, error);
    if (!status) /* before the watch, which stops it */
        status = peer_exchange_open(&ranks->peers, communicator, error);
    if (!status)
        status = connect_ranks(ranks, error);
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
    if (ranks->is_watched)
        (void)pthread_join(ranks->watch, NULL);
    if (ranks->comm && !ranks->is_given_up) {
        (void)nanosleep(&pause, NULL);
        (void)ranks->nccl.CommAbort(ranks->comm);
    }
    peer_exchange_close(ranks->peers);
    exchange_watch_close(&ranks->exchange);
    (void)pthread_mutex_destroy(&ranks->calls);
    free(ranks);
}

/* Takes the means by ncclAvg, which multiplies each rank's share before it is added: f16 does not overflow
 * where the mean fits. */
FshStatus device_ranks_mean(DeviceRanks *ranks, const RankMean *pieces, int piece_count, cudaStream_t stream,
                            FshError *error)
{
    static const ncclDataType_t types[] = {[RANK_F32] = ncclFloat32,
                                           [RANK_F64] = ncclFloat64,
                                           [RANK_BF16] = ncclBfloat16,
                                           [RANK_F16] = ncclFloat16};
    if (ranks && peer_exchange_takes(ranks->peers, pieces, piece_count))
        return peer_exchange_mean(ranks->peers, pieces, piece_count, stream, error);
    FshStatus status = ranks ? begin_calls(ranks, error) : FSH_OK;
    if (!ranks || status)
        return status;
    ncclResult_t code = ranks->nccl.GroupStart();
    for (int i = 0; i < piece_count && is_well(code); i++)
        if (pieces[i].count > 0)
            code = ranks->nccl.AllReduce(pieces[i].values, pieces[i].values, pieces[i].count,
                                         types[pieces[i].number], ncclAvg, ranks->comm, stream);
    const ncclResult_t ended = ranks->nccl.GroupEnd(); /* always: what was begun must end */
    return end_calls(ranks, is_well(code) ? ended : code, "ncclAllReduce", error);
}

FshStatus device_ranks_share(DeviceRanks *ranks, const RankMean *pieces, int piece_count, cudaStream_t stream,
                             FshError *error)
{
    FshStatus status = ranks ? exchange_watch_reach(&ranks->exchange, stream, error) : FSH_OK;
    if (ranks && !status)
        status = device_ranks_mean(ranks, pieces, piece_count, stream, error);
    return ranks && !status ? exchange_watch_pass(&ranks->exchange, stream, error) : status;
}

void device_ranks_begun(DeviceRanks *ranks)
{
    if (ranks)
        exchange_watch_begin(&ranks->exchange);
}

const PeerBoxes *device_ranks_boxes(DeviceRanks *ranks)
{
    if (ranks)
        atomic_store(&ranks->waits_within, true);
    return ranks ? peer_exchange_boxes(ranks->peers) : NULL;
}

uint64_t device_ranks_count(const DeviceRanks *ranks)
{
    return ranks ? communicator_place(ranks->communicator)->world_size : 1;
}

#endif
