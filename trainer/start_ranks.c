#include "trainer/start_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "trainer/launch_gpus.h"
#include "trainer/elastic.h"
#include "trainer/restart.h"

/* Refuses --max-restarts where nothing would look at it. */
static FshStatus check_restarts(const TrainOptions *options, const RankPlace *place, FshError *error)
{
    if (!options->ranks.max_restarts)
        return FSH_OK;
    if (place->local_world > 1 || (place->world_size > 1 && !options->ranks.gpus))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--max-restarts: is for --gpus; %s has started these ranks, and restarts them: "
                             "torchrun --max-restarts, sbatch --requeue, both with --resume auto",
                             place->launcher);
    if (!options->ranks.gpus)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--max-restarts: is for --gpus, which starts ranks; --gpus 1 starts one");
    return FSH_OK;
}

/* Refuses --elastic where no run would go on. */
static FshStatus check_elastic(const TrainOptions *options, const RankPlace *place, FshError *error)
{
    if (!options->ranks.elastic)
        return FSH_OK;
    if (!options->checkpoint.resume && !options->ranks.max_restarts)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--elastic: is for a run that goes on: --resume auto, or --gpus with "
                             "--max-restarts");
    if (options->ranks.max_restarts && place->world_size > 1)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--elastic: restarts the ranks of one host; on several let torchrun or Slurm "
                             "restart them, with --elastic --resume auto and without --max-restarts");
    return FSH_OK;
}

/* Refuses --parallel dp where there is nothing to share, or nobody to share with. */
static FshStatus check_parallel(const TrainOptions *options, const RankPlace *place, FshError *error)
{
    if (options->ranks.parallel != RANK_PARALLEL_DP)
        return FSH_OK;
    if (place->world_size < 2 && !options->ranks.gpus)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--parallel: dp shares a batch between ranks, and there is one; --gpus all starts "
            "one on each GPU");
    return FSH_OK;
}

FshStatus start_ranks_check(const TrainOptions *options, const RankPlace *place, FshError *error)
{
    const struct {
        bool given;
        const char *name;
    } alone[] = {
        {options->inference.predict, "--predict"},
        {options->inference.export_path, "--export"},
        {options->data.bench_loader, "--bench-loader"},
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
    if (!status)
        status = check_parallel(options, place, error);
    if (!status)
        status = check_elastic(options, place, error);
    return status ? status : check_restarts(options, place, error);
}

void start_ranks_take_wanted(TrainOptions *options, const RankPlace *place)
{
    const bool all = place->wanted_ranks && strcmp(place->wanted_ranks, "all") == 0;
    if (!options->ranks.gpus && !(all && options->compute.device == DEVICE_CPU))
        options->ranks.gpus = place->wanted_ranks;
}

FshStatus start_ranks_gpus(TrainOptions *options, RankGpus *gpus, FshError *error)
{
    int there = 0;
    FshStatus status = rank_gpus_read(gpus, options->ranks.gpus, error);
    if (status)
        return status;
    if (options->compute.device == DEVICE_CPU)
        return gpus->all || gpus->listed
                   ? fsh_error_set(error, FSH_ERR_USAGE,
                                   "--gpus: '%s' says which GPUs, and --device cpu takes none; give the "
                                   "number of ranks that are to share the cores",
                                   options->ranks.gpus)
                   : FSH_OK;
    options->compute.device = DEVICE_CUDA;
    if (!gpus->all && !gpus->listed && gpus->count == 1)
        return FSH_OK; /* if it cannot be opened, the backend will say why */
    if (options->program.dry_run && !gpus->all)
        return FSH_OK; /* also on a machine with fewer, or none */
    status = launch_count_gpus(NULL, &there, error);
    return status ? status : rank_gpus_settle(gpus, there, error);
}

/* Checks that this process may start `count` ranks: it is alone on its host. */
static FshStatus check_starter(const TrainOptions *options, const RankPlace *place, int count,
                               FshError *error)
{
    if (options->ranks.world_size && count > 1)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--gpus: starts %d ranks, and with --world-size each process is one; give "
                             "--nnodes and --node-rank",
                             count);
    if (place->local_world > 1)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--gpus: starts processes, and %s has started %llu already; leave one of them "
                             "out, or start one process on each host",
                             place->launcher, (unsigned long long)place->world_size);
    return FSH_OK;
}

/* Leaves out GPUs that do not work any more. */
static FshStatus leave_out_broken(const Launcher *launcher, RankGpus *gpus, FshError *error)
{
    int there = 0;
    FshStatus status = launch_count_gpus(launcher, &there, error);
    if (!status && gpus->listed && there != gpus->there)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "--elastic: there were %d GPUs, and there are %d, whose numbers say nothing of the "
            "list any more; start again with those that are to go on",
            gpus->there, there);
    for (int i = gpus->count - 1; i >= 0 && !status; i--) {
        bool works = false;
        if (gpus->numbers[i] < there)
            status = launch_gpu_works(launcher, gpus->numbers[i], &works, error);
        if (!status && !works)
            rank_gpus_leave_out(gpus, i);
    }
    return status;
}

/* Chooses the ranks that go on, and deals the images of an update out to them. */
static FshStatus settle_again(const Restarts *restarts, const Launcher *launcher, RankGpus *gpus,
                              TrainOptions *options, FshError *error)
{
    const int before = gpus->count;
    RunShape was;
    FshStatus status = elastic_find(options, (uint64_t)before, &was, error);
    if (!status && restarts->left_out >= 0)
        rank_gpus_leave_out(gpus, restarts->left_out);
    if (!status && options->compute.device == DEVICE_CUDA)
        status = leave_out_broken(launcher, gpus, error);
    if (!status && gpus->count == 0)
        status = fsh_error_set(error, FSH_ERR_SYSTEM, "--elastic: no rank is left that could go on");
    if (status)
        return status;
    gpus->count = (int)elastic_ranks(&was, (uint64_t)gpus->count);
    if (gpus->count != before)
        (void)fprintf(stderr, "ftrain: %d of %d ranks go on (--elastic)\n", gpus->count, before);
    return elastic_apply(&was, (uint64_t)gpus->count, options, error);
}

/* Ends this process, which has waited for the ranks, unless they are to be started again. */
static FshStatus end_or_restart(Restarts *restarts, Launcher *launcher, RankGpus *gpus, TrainOptions *options,
                                const LaunchEnd *end, FshError *error)
{
    char text[256];
    RestartPoint here = {0};
    FshStatus status = end->lost && restarts->most ? restarts_find(restarts, options, &here, error) : FSH_OK;
    if (status)
        return status;
    const bool again = restarts_decide(restarts, end, &here, text, sizeof text);
    const int signal_number = again ? launcher_take_signal(launcher) : 0;
    if (signal_number) {
        interrupt_simulate(signal_number);
        return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted before the ranks were started again");
    }
    if (text[0])
        (void)fprintf(stderr, "ftrain: %s\n", text);
    if (!again) {
        launcher_close(launcher);
        exit(end->exit_status);
    }
    restarts_apply(&here, options);
    return options->ranks.elastic ? settle_again(restarts, launcher, gpus, options, error) : FSH_OK;
}

/* Starts the ranks, again and again where they are to be restarted. Returns in them alone, or with a
 * failure. */
static FshStatus launch(const RankPlace *host, RankGpus *gpus, TrainOptions *options, Launcher *launcher,
                        FshError *error)
{
    bool is_parent = true;
    Restarts restarts = {0};
    FshStatus status = launcher_open(launcher, error);
    if (!status && options->ranks.max_restarts)
        status = restarts_begin(&restarts, options, error);
    while (!status && is_parent) {
        LaunchEnd end;
        status = launcher_run(launcher, host, gpus->count, &is_parent, &end, error);
        if (!status && is_parent)
            status = end_or_restart(&restarts, launcher, gpus, options, &end, error);
    }
    return status;
}

FshStatus start_ranks(TrainOptions *options, RankPlace *place, StartedRank *started, FshError *error)
{
    RankGpus gpus;
    FshStatus status = start_ranks_gpus(options, &gpus, error);
    if (!status)
        status = check_starter(options, place, gpus.count, error);
    const bool foresees = options->program.dry_run, several = gpus.count > 1 || options->ranks.max_restarts;
    if (!status && several)
        status = foresees ? launcher_foresee(place, gpus.count, error)
                          : launch(place, &gpus, options, &started->launcher, error);
    if (!status && several) {
        status = rank_place_from_environment(place, &options->ranks, error);
        started->reports = !status && !foresees;
        started->index = (int)place->local_rank;
    }
    if (!status && gpus.listed)
        options->ranks.gpu = gpus.numbers[place->local_rank];
    return status;
}

FshStatus start_ranks_share(TrainOptions *options, const RankPlace *place, FshError *error)
{
    RunShape was;
    if (!options->ranks.elastic)
        return FSH_OK;
    FshStatus status = elastic_find(options, place->world_size, &was, error);
    if (status)
        return status;
    status = elastic_apply(&was, place->world_size, options, error);
    if (status && !rank_place_speaks(place)) /* all have read the same checkpoint */
        (void)fsh_error_set(error, status, "%s", ranks_told_elsewhere);
    return status;
}

void start_ranks_report(const StartedRank *started, FshStatus status)
{
    if (started->reports)
        launcher_report(&started->launcher, started->index, status);
}
