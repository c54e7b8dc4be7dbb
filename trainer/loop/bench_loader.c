/* bench_loader.c - ftrain --bench-loader: times the loader alone. */
#include <stdlib.h>

#include "common/json_text.h"
#include "trainer/data/loader_bench.h"
#include "trainer/session/describe.h"
#include "trainer/loop/train.h"

static const double pass_seconds = 5;

static void print_line(void *context, const char *line)
{
    (void)context;
    (void)puts(line);
}

static json_t *pass_json(const LoaderBenchPass *pass)
{
    const double seconds = pass->seconds > 0 ? pass->seconds : 1;
    const SampleStatistics *work = &pass->work.samples;
    json_t *stages = json_object();
    for (int stage = 0; stage < SAMPLE_STAGE_COUNT; stage++)
        (void)json_object_set_new(stages, sample_stage_names[stage], json_measured(work->seconds[stage]));
    return json_pack("{s:o, s:I, s:o, s:o, s:s, s:o}", "seconds", json_measured(pass->seconds), "samples",
                     (json_int_t)pass->samples, "samples_per_second",
                     json_measured((double)pass->samples / seconds), "pixel_bytes_per_second",
                     json_measured((double)work->pixel_bytes / seconds), "bottleneck",
                     loader_bottleneck_names[pass->bottleneck], "stage_seconds", stages);
}

static FshStatus print_json(const LoaderBenchReport *report, FshError *error)
{
    json_t *object =
        json_pack("{s:i, s:I, s:o, s:o}", "workers", report->workers, "skipped_samples",
                  (json_int_t)report->problems, "memcpy_bytes_per_second",
                  json_measured(report->memory_bytes_per_second), "warm", pass_json(&report->warm));
    if (object && report->has_cold)
        (void)json_object_set_new(object, "cold", pass_json(&report->cold));
    return describe_print_json(object, error);
}

FshStatus train_bench_loader(const TrainOptions *options, bool *partial_ret, FshError *error)
{
    Session session;
    uint32_t *sizes = NULL;
    LoaderBenchOptions bench = {.seconds = pass_seconds, .drop_caches = options->data.drop_caches};
    LoaderBenchReport report;
    FshStatus status = session_open(&session, options, SESSION_LOAD, error);
    if (status)
        return status;
    status = session_loader_options(&session, true, &bench.loader, &sizes, error);
    if (!options->data.workers) /* nothing else computes */
        bench.loader.workers = bench.loader.workers_most = session.plan.threads;
    if (!status)
        status = session_cache(&session, error);
    if (!status)
        status = loader_bench(&bench, &report, error);
    if (!status)
        *partial_ret = report.problems > 0;
    if (!status && options->program.json)
        status = print_json(&report, error);
    else if (!status)
        loader_bench_tell(&report, print_line, NULL);
    free(sizes);
    session_close(&session);
    return status;
}
