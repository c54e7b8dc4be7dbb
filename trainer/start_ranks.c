#include "trainer/start_ranks.h"

#include <stdlib.h>

#include "trainer/launch.h"
#include "trainer/ranks/rank_gpus.h"

FshStatus start_ranks_check(const TrainOptions *options, const RankPlace *place, FshError *error)
{
    const struct {
        bool given;
        const char *name;
    } alone[] = {
        {options->predict, "--predict"},
        {options->export_path, "--export"},
        {options->bench_loader, "--bench-loader"},
        {options->program.dry_run, "--dry-run"},
    };
    RankGpus gpus = {.count = 1};
    FshStatus status = options->ranks.gpus ? rank_gpus_read(&gpus, options->ranks.gpus, error) : FSH_OK;
    for (size_t i = 0; i < sizeof alone / sizeof *alone && !status; i++)
        if (alone[i].given && place->world_size > 1)
            status = fsh_error_set(error, FSH_ERR_USAGE,
                                   "%s: is for one process, and %s has started %llu; start it by itself",
                                   alone[i].name, place->launcher, (unsigned long long)place->world_size);
        else if (alone[i].given && gpus.count != 1)
            status =
                fsh_error_set(error, FSH_ERR_USAGE, "%s: is for one process; use --gpus 1", alone[i].name);
    return status;
}

/* Chooses the GPUs of the ranks; on the CPU their number. */
static FshStatus choose_devices(TrainOptions *options, RankGpus *gpus, FshError *error)
{
    int there = 0;
    FshStatus status = rank_gpus_read(gpus, options->ranks.gpus, error);
    if (status)
        return status;
    if (options->device == DEVICE_CPU)
        return gpus->all || gpus->listed
                   ? fsh_error_set(error, FSH_ERR_USAGE,
                                   "--gpus: '%s' says which GPUs, and --device cpu takes none; give the "
                                   "number of ranks that are to share the cores",
                                   options->ranks.gpus)
                   : FSH_OK;
    options->device = DEVICE_CUDA;
    if (!gpus->all && !gpus->listed && gpus->count == 1)
        return FSH_OK; /* if it cannot be opened, the backend will say why */
    status = launch_count_gpus(&there, error);
    return status ? status : rank_gpus_settle(gpus, there, error);
}

FshStatus start_ranks(TrainOptions *options, RankPlace *place, FshError *error)
{
    RankGpus gpus;
    int exit_status = 0;
    bool is_parent = false;
    if (place->world_size > 1)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--gpus: starts processes, and %s has started %llu already; leave one of them out",
            place->launcher, (unsigned long long)place->world_size);
    FshStatus status = choose_devices(options, &gpus, error);
    if (!status && gpus.count > 1)
        status = launch_ranks(gpus.count, &is_parent, &exit_status, error);
    if (is_parent && !status)
        exit(exit_status);
    if (!status && gpus.count > 1)
        status = rank_place_from_environment(place, error);
    if (!status && gpus.listed)
        options->ranks.gpu = gpus.numbers[place->local_rank];
    return status;
}
