#include "trainer/session/session_cores.h"

#include <unistd.h>

#include "common/cpu.h"
#include "trainer/ranks/rank_cores.h"

/* Returns this rank's share of the cores where it does not meet the others: they may all run on all of them
 * unless the launcher has bound this one. 0: all that it may use, of one process. */
static int foreseen_cores(const RankPlace *place)
{
    CpuMask own;
    const int usable = cpu_jobs(0), ranks = (int)place->local_world;
    const bool bound = cpu_mask_read_own(&own) && cpu_mask_count(&own) < (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (ranks < 2)
        return 0;
    return bound ? usable : usable < ranks ? 1 : usable / ranks;
}

FshStatus session_share_cores(const Session *session, TrainOptions *options, FshError *error)
{
    CpuMask own;
    if (!session->communicator) {
        options->cores = foreseen_cores(&session->place);
        return FSH_OK;
    }
    if (!cpu_mask_read_own(&own)) /* every rank still takes part in what follows */
        own = (CpuMask){0};
    return rank_cores_share(session->communicator, &own, cpu_quota_cores(), &options->cores, error);
}

/* Binds this thread to the cores, and says so on the first rank, which speaks for all. */
static void bind_to(Session *session, const CpuMask *near, const char *bus_id)
{
    char list[256];
    if (!cpu_mask_bind(near))
        console_warning(&session->console, "cores %s, beside the GPU %s: this rank cannot be bound to them",
                        cpu_mask_list(near, list, sizeof list), bus_id);
    else if (session->plan.rank == 0)
        console_line(&session->console,
                     "cores: each rank is bound to those beside its GPU; rank 0 to %s (%s)",
                     cpu_mask_list(near, list, sizeof list), bus_id);
}

FshStatus session_bind_cores(Session *session, const Backend *backend, const TrainOptions *options,
                             FshError *error)
{
    char bus_id[BACKEND_BUS_ID_MAX];
    CpuMask own, near = {0};
    TrainOptions settled = *options;
    bool binds = false;
    if (!session->communicator || session->plan.device != DEVICE_CUDA)
        return FSH_OK;
    if (!cpu_mask_read_own(&own))
        own = (CpuMask){0};
    if (backend_bus_id(backend, bus_id))
        (void)rank_cores_near("/sys", bus_id, &near);
    FshStatus status = rank_cores_choose(session->communicator, &own, &near,
                                         (int)sysconf(_SC_NPROCESSORS_ONLN), &binds, error);
    if (!status && binds)
        bind_to(session, &near, bus_id);
    if (!status)
        status = session_share_cores(session, &settled, error);
    if (!status)
        plan_threads_of(&session->plan, &settled);
    return status;
}
