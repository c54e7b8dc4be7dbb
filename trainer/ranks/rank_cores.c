#include "trainer/ranks/rank_cores.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a rank says of its cores. */
typedef struct Said {
    CpuMask own;   /* that it may run on */
    CpuMask after; /* the same, if all ranks bind themselves that are free to */
} Said;

/* Returns the cores of a mask, each divided by the ranks of this host that may run on it too. */
static double divided(const CpuMask *mask, const CpuMask *first, size_t stride, uint64_t ranks)
{
    double cores = 0;
    for (int core = 0; core < CPU_MASK_CORES; core++) {
        int users = 0;
        for (uint64_t rank = 0; rank < ranks && cpu_mask_has(mask, core); rank++)
            users += cpu_mask_has((const CpuMask *)((const char *)first + rank * stride), core);
        cores += users ? 1.0 / users : 0;
    }
    return cores;
}

/* Gathers what all ranks say. *all_ret is owned by the caller; *here_ret points to the first of this host. */
static FshStatus gather(Communicator *communicator, const Said *own, Said **all_ret, const Said **here_ret,
                        FshError *error)
{
    const RankPlace *place = communicator_place(communicator);
    Said *all = calloc((size_t)place->world_size, sizeof *all);
    *all_ret = all;
    if (!all)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the cores of %llu ranks",
                             (unsigned long long)place->world_size);
    *here_ret = all + rank_place_first(place);
    return communicator_gather(communicator, own, sizeof *own, all, error);
}

FshStatus rank_cores_share(Communicator *communicator, const CpuMask *own, double quota, int *share_ret,
                           FshError *error)
{
    const Said mine = {.own = *own};
    const uint64_t ranks = communicator_place(communicator)->local_world;
    Said *all = NULL;
    const Said *here = NULL;
    *share_ret = 1;
    FshStatus status = gather(communicator, &mine, &all, &here, error);
    if (!status) {
        const double cores = divided(own, &here->own, sizeof *here, ranks), most = quota / (double)ranks;
        const double share = cores < most ? cores : most;
        *share_ret = share < 1 ? 1 : (int)(share + 1e-6); /* thirds add up to a little less than 1 */
    }
    free(all);
    return status;
}

bool rank_cores_near(const char *root, const char *bus_id, CpuMask *near_ret)
{
    char path[PATH_MAX], line[4096];
    const int length = snprintf(path, sizeof path, "%s/bus/pci/devices/%s/local_cpulist", root, bus_id);
    *near_ret = (CpuMask){0};
    if (length < 0 || (size_t)length >= sizeof path)
        return false;
    for (size_t i = strlen(root); path[i]; i++) /* CUDA writes capital letters, sysfs small ones */
        path[i] = (char)tolower((unsigned char)path[i]);
    FILE *file = fopen(path, "re");
    const bool read = file && fgets(line, sizeof line, file) && cpu_mask_parse(near_ret, line);
    if (file)
        (void)fclose(file);
    if (!read)
        *near_ret = (CpuMask){0};
    return read;
}

FshStatus rank_cores_choose(Communicator *communicator, const CpuMask *own, const CpuMask *near, int online,
                            bool *binds_ret, FshError *error)
{
    const bool is_free =
        cpu_mask_count(own) == online && cpu_mask_count(near) > 0 && memcmp(own, near, sizeof *own) != 0;
    const Said mine = {.own = *own, .after = is_free ? *near : *own};
    const uint64_t ranks = communicator_place(communicator)->local_world;
    Said *all = NULL;
    const Said *here = NULL;
    FshStatus status = gather(communicator, &mine, &all, &here, error);
    *binds_ret = !status && is_free &&
                 divided(near, &here->after, sizeof *here, ranks) + 1e-6 >=
                     divided(own, &here->own, sizeof *here, ranks);
    free(all);
    return status;
}
