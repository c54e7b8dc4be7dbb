/* The device: what it is asked for, and the precision that it computes in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "common/file.h"
#include "trainer/loop/train_plan.h"

/* $XDG_CACHE_HOME/fshard, or ~/.cache/fshard (XDG Base Directory Specification: a path that is not absolute counts as not given).
 * False: this user has neither. */
static bool find_cache(char *path, size_t path_bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/')
        return file_join(path, path_bytes, cache, "fshard", NULL) == FSH_OK;
    if (home && home[0] == '/')
        return file_join(path, path_bytes, home, ".cache/fshard", NULL) == FSH_OK;
    return false;
}

void plan_backend(PlanBackend *backend, const TrainOptions *options)
{
    /* Which of several ways is the fastest is chance. */
    const bool benchmark = train_options_given(options, "cudnn-benchmark") || !options->deterministic
                               ? options->cudnn_benchmark
                               : false;
    backend->options = (BackendOptions){.threads = plan_threads(options),
                                        .benchmark = benchmark,
                                        .deterministic = options->deterministic,
                                        .tf32 = options->tf32,
                                        .device_index = (int)options->place.local_rank};
    if (find_cache(backend->plan_cache, sizeof backend->plan_cache))
        backend->options.plan_cache = backend->plan_cache;
}

static const struct {
    const char *name;
    DataType type;
} types[] = {{"off", DATA_F32}, {"bf16", DATA_BF16}, {"fp16", DATA_F16}};

const char *plan_amp_name(DataType type)
{
    size_t i = 0;
    while (types[i].type != type)
        i++;
    return types[i].name;
}

/* cuDNN's fused engines for batch norm are for fp16; where nothing normalises a batch, bf16 needs no loss scale. */
void plan_precision(TrainPlan *plan, const TrainOptions *options)
{
    const bool automatic = strcmp(options->amp, "auto") == 0;
    plan->recipe.compute_type = DATA_F32;
    if (automatic && strcmp(plan->device, "cuda") == 0)
        plan->recipe.compute_type = plan->model->batch_norm ? DATA_F16 : DATA_BF16;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(options->amp, types[i].name) == 0)
            plan->recipe.compute_type = types[i].type;
    plan->tf32 = options->tf32;
    plan->deterministic = options->deterministic;
    plan->precision_chosen = automatic;
}

/* Which bit a name of this length has; 0: there is none. */
static unsigned find_fusion(const char *name, size_t length)
{
    for (unsigned i = 0; fusion_names[i]; i++)
        if (strlen(fusion_names[i]) == length && memcmp(fusion_names[i], name, length) == 0)
            return 1U << i;
    return 0;
}

static const char *fusions_text(unsigned fusions, char *buffer, size_t buffer_bytes)
{
    size_t length = 0;
    buffer[0] = '\0';
    for (unsigned i = 0; fusion_names[i] && length < buffer_bytes; i++)
        if (fusions >> i & 1)
            length += (size_t)snprintf(buffer + length, buffer_bytes - length, "%s%s", length ? ", " : "",
                                       fusion_names[i]);
    return buffer;
}

FshStatus plan_fusions(TrainPlan *plan, const TrainOptions *options, unsigned there, FshError *error)
{
    char known[256];
    unsigned fusions = there;
    for (const char *at = options->no_fuse; at && *at;) {
        const size_t length = strcspn(at, ",");
        const unsigned fusion = find_fusion(at, length);
        if (!fusion || !(there & fusion))
            return fsh_error_set(
                error, FSH_ERR_USAGE, "--no-fuse: '%.*s' is no fusion of the %s backend; it has %s",
                (int)(length < 64 ? length : 64), at, plan->device, fusions_text(there, known, sizeof known));
        fusions &= ~fusion;
        at += length + (at[length] == ',');
    }
    plan->recipe.fusions = fusions ? fusions : FUSE_NONE;
    return FSH_OK;
}
