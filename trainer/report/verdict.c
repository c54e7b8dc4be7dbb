#include "trainer/report/verdict.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "trainer/report/run_record.h"

static const double waited_little = 5; /* percent of waiting below which the loader did not bound the run */
static const double short_seconds = 3; /* of steps below which their beginning weighs too much */

/* Writes "a, b or c" to text. */
static void list_ways(const char *const *ways, size_t count, char *text, size_t text_bytes)
{
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count && length < text_bytes; i++)
        length += (size_t)snprintf(text + length, text_bytes - length, "%s%s",
                                   i == 0           ? ""
                                   : i + 1 == count ? " or "
                                                    : ", ",
                                   ways[i]);
}

static void say_loader_bound(const SpeedFacts *facts, char *text, size_t text_bytes)
{
    const bool decodes = !facts->cache_gpu && !facts->cache_pixels && !facts->raw;
    const struct {
        bool helps;
        const char *way;
    } all[] = {
        {facts->workers < facts->cores, "more --workers"},
        {facts->cuda && !facts->cache_gpu, "--cache gpu"},
        {decodes, "--cache pixels (where RAM holds them)"},
        {!facts->cache_gpu, "smaller images (fresize, fpack --max-size)"},
        {decodes, "raw pixels (fpack --store raw)"},
    };
    const char *ways[sizeof all / sizeof *all];
    size_t count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].helps)
            ways[count++] = all[i].way;
    char list[256];
    list_ways(ways, count, list, sizeof list);
    (void)snprintf(text, text_bytes, "loader bound: %.0f %% of the steps' time is waiting for data%s%s%s%s",
                   facts->waited_percent, count ? "; " : "", list, count ? " make that shorter" : "",
                   facts->cache_gpu ? "" : "; --bench-loader says what bounds it");
}

void verdict_of_speed(const SpeedFacts *facts, char *text, size_t text_bytes)
{
    if (facts->step_seconds < short_seconds) {
        (void)snprintf(text, text_bytes, "the run is too short to tell what bounds it: its steps took %.1f s",
                       facts->step_seconds);
        return;
    }
    if (facts->waited_percent >= waited_little) {
        say_loader_bound(facts, text, text_bytes);
        return;
    }
    const char *faster = "";
    if (facts->compute_type == DATA_F32)
        faster = facts->cuda ? ", --amp auto makes products faster"
                             : ", --amp bf16 makes products faster where the CPU has AVX-512";
    (void)snprintf(text, text_bytes,
                   "compute bound: %.0f %% of the steps' time is computing; --profile 3 says what takes it%s",
                   100 - facts->waited_percent, faster);
}

void verdict_of_divergence(const DivergenceFacts *facts, char *text, size_t text_bytes)
{
    char what[160];
    if (isfinite(facts->loss))
        (void)snprintf(what, sizeof what,
                       "gradients were not finite in %" PRIu64 " steps in a row, up to epoch %" PRIu64
                       ", step %" PRIu64 " (its loss: %.4g)",
                       facts->skipped, facts->epoch, facts->step, facts->loss);
    else
        (void)snprintf(what, sizeof what, "loss is %s in epoch %" PRIu64 ", step %" PRIu64,
                       isnan(facts->loss) ? "nan" : "infinite", facts->epoch, facts->step);
    const int length =
        snprintf(text, text_bytes,
                 "%s, at learning rate %.4g: training has diverged; lower --lr (it peaks at %.4g), raise "
                 "--lr-warmup-epochs or use --clip-grad; samples: %s; ",
                 what, facts->rate, facts->peak_rate, facts->samples);
    if (length < 0 || (size_t)length >= text_bytes)
        return;
    (void)snprintf(text + length, text_bytes - (size_t)length,
                   facts->saved ? "%s/%s holds the state, diverged.json the samples"
                                : "the state could NOT be saved to %s/%s",
                   facts->folder, record_diverged_name);
}
