#include "trainer/restart.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/session/run_resume.h"
#include "trainer/loop/run_output.h"
#include "trainer/report/run_record.h"

static FshStatus own_checkpoint(const TrainOptions *options, char path[PATH_MAX], FshError *error)
{
    return file_join(path, PATH_MAX, options->output, record_checkpoint_name, error);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

FshStatus restarts_begin(Restarts *restarts, const TrainOptions *options, FshError *error)
{
    char own[PATH_MAX], from[PATH_MAX];
    *restarts = (Restarts){
        .most = (uint64_t)options->ranks.max_restarts, .elastic = options->ranks.elastic, .left_out = -1};
    FshStatus status = own_checkpoint(options, own, error);
    if (!status)
        status = run_resume_find(options, from, sizeof from, error);
    if (!status && !run_output_goes_on(options, from))
        restarts->foreign.there = stat(own, &restarts->foreign.file) == 0;
    return status;
}

FshStatus restarts_find(const Restarts *restarts, const TrainOptions *options, RestartPoint *here,
                        FshError *error)
{
    char path[PATH_MAX];
    json_t *notes = NULL;
    *here = (RestartPoint){0};
    FshStatus status = own_checkpoint(options, path, error);
    if (status || stat(path, &here->file) ||
        (restarts->foreign.there && same_file(&here->file, &restarts->foreign.file)))
        return status;
    status = checkpoint_notes(path, &notes, error);
    if (status)
        return status;
    here->there = true;
    const json_t *run = json_object_get(notes, "run");
    here->steps = (uint64_t)json_integer_value(json_object_get(run, "steps_done"));
    here->epoch = (uint64_t)json_integer_value(json_object_get(run, "epoch"));
    json_decref(notes);
    return FSH_OK;
}

static void name_point(const RestartPoint *point, char *text, size_t text_bytes)
{
    if (point->there)
        (void)snprintf(text, text_bytes, "step %" PRIu64, point->steps);
    else
        (void)snprintf(text, text_bytes, "the beginning, for there is no checkpoint yet");
}

static bool stands_still(const Restarts *restarts, const RestartPoint *here)
{
    const RestartPoint *last = &restarts->last;
    return restarts->done && last->there == here->there && last->steps == here->steps &&
           last->epoch == here->epoch;
}

/* Writes why there is no restart, though ranks were lost; "" if there is one. */
static void refuse(const Restarts *restarts, const LaunchEnd *end, const RestartPoint *here, char *text,
                   size_t text_bytes)
{
    char from[64];
    name_point(here, from, sizeof from);
    text[0] = '\0';
    if (end->failed)
        (void)snprintf(text, text_bytes,
                       "no restart: a rank has failed by itself or was asked to stop, and would be again");
    else if (restarts->done == restarts->most)
        (void)snprintf(text, text_bytes, "no restart: all %" PRIu64 " of --max-restarts have been made",
                       restarts->most);
    else if (stands_still(restarts, here) && !(restarts->elastic && end->lost_rank >= 0))
        (void)snprintf(text, text_bytes, "no restart: the last one began there too, from %s", from);
}

bool restarts_decide(Restarts *restarts, const LaunchEnd *end, const RestartPoint *here, char *text,
                     size_t text_bytes)
{
    char from[64];
    text[0] = '\0';
    if (restarts->most == 0 || !end->lost)
        return false;
    refuse(restarts, end, here, text, text_bytes);
    if (text[0])
        return false;
    restarts->left_out = stands_still(restarts, here) ? end->lost_rank : -1;
    restarts->last = *here;
    restarts->done++;
    name_point(here, from, sizeof from);
    (void)snprintf(text, text_bytes, "restart %" PRIu64 " of %" PRIu64 ": %s ranks go on from %s",
                   restarts->done, restarts->most, restarts->left_out < 0 ? "all" : "the other", from);
    return true;
}

void restarts_apply(const RestartPoint *here, TrainOptions *options)
{
    /* "auto" begins anew where there is no checkpoint, and replaces what has only begun. */
    if (here->there || !options->checkpoint.resume)
        options->checkpoint.resume = "auto";
    else if (record_has_only_begun(options->output))
        options->force = true;
}
