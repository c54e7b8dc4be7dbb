#include "trainer/elastic.h"

#include <inttypes.h>
#include <limits.h>

#include "trainer/checkpoint/checkpoint.h"

uint64_t elastic_ranks(const RunShape *was, uint64_t usable)
{
    const uint64_t images = run_shape_images(was);
    while (usable > 1 && images % usable != 0)
        usable--;
    return usable;
}

void elastic_deal(const RunShape *was, uint64_t ranks, RunShape *now_ret)
{
    const uint64_t images = run_shape_images(was) / ranks; /* of a rank in an update */
    uint64_t batch = was->batch;
    while (images % batch != 0 && 2 * batch > was->batch)
        batch--;
    if (images % batch != 0 || 2 * batch < was->batch)
        batch = was->batch;
    while (images % batch != 0 && batch < images)
        batch++;
    *now_ret = (RunShape){.ranks = ranks, .batch = batch, .accumulation = images / batch};
}

FshStatus elastic_find(const TrainOptions *options, uint64_t ranks, RunShape *was_ret, FshError *error)
{
    char checkpoint[PATH_MAX];
    json_t *notes = NULL;
    const bool total = options->ranks.parallel == RANK_PARALLEL_DP;
    *was_ret = (RunShape){.ranks = ranks,
                          .batch = (uint64_t)options->training.batch_size / (total ? ranks : 1),
                          .accumulation = (uint64_t)options->training.grad_accum_steps};
    FshStatus status = run_resume_find(options, checkpoint, sizeof checkpoint, error);
    if (status || !checkpoint[0])
        return status;
    status = checkpoint_notes(checkpoint, &notes, error);
    if (!status)
        *was_ret = run_shape_noted(notes);
    json_decref(notes);
    return status;
}

/* Makes the total of a step of evaluation one that the ranks can share alike: no result depends on it. */
static void deal_evaluation(uint64_t ranks, TrainOptions *options)
{
    const uint64_t total = (uint64_t)options->training.val_batch_size;
    if (options->ranks.parallel == RANK_PARALLEL_DP)
        options->training.val_batch_size = (int64_t)((total + ranks - 1) / ranks * ranks);
}

FshStatus elastic_apply(const RunShape *was, uint64_t ranks, TrainOptions *options, FshError *error)
{
    RunShape now;
    if (was->ranks == ranks)
        return FSH_OK;
    deal_evaluation(ranks, options);
    if (!was->batch)
        return FSH_OK;
    if (elastic_ranks(was, ranks) != ranks)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "--elastic: each update takes %" PRIu64 " images, which %" PRIu64
                             " ranks cannot share alike; start %" PRIu64,
                             run_shape_images(was), ranks, elastic_ranks(was, ranks));
    elastic_deal(was, ranks, &now);
    options->training.batch_size =
        (int64_t)(options->ranks.parallel == RANK_PARALLEL_DP ? now.batch * ranks : now.batch);
    options->training.grad_accum_steps = (int64_t)now.accumulation;
    return FSH_OK;
}
