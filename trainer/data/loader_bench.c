#include "trainer/data/loader_bench.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/interrupt.h"
#include "common/progress.h"
#include "common/text.h"

const char *const loader_bottleneck_names[] = {"CPU", "disk", "memory", NULL};

/* ---- memory ---- */

enum { COPY_BYTES = 64 << 20, COPY_ROUNDS = 4 };

typedef struct Copier {
    pthread_t thread;
    uint8_t *source, *target;
    double seconds, cpu_seconds;
} Copier;

static void *copy_main(void *argument)
{
    Copier *copier = argument;
    memset(copier->source, 1, COPY_BYTES);
    memset(copier->target, 2, COPY_BYTES);
    double begin = progress_now_seconds(), cpu_begin = progress_thread_seconds();
    for (int i = 0; i < COPY_ROUNDS; i++) {
        copier->source[i] = (uint8_t)i; /* so that no round is left out */
        memcpy(copier->target, copier->source, COPY_BYTES);
    }
    copier->seconds = progress_now_seconds() - begin;
    copier->cpu_seconds = progress_thread_seconds() - cpu_begin;
    return NULL;
}

/* Measures what `threads` memcpys copy together; 0 if there is no memory to try it. Each is timed by itself
 * and the rates are added up, because they do not begin at once. */
static void measure_memory(int threads, LoaderBenchReport *report)
{
    Copier *copiers = calloc((size_t)threads, sizeof *copiers);
    double cpu_seconds = 0, copied = 0;
    for (int i = 0; copiers && i < threads; i++) {
        Copier *copier = &copiers[i];
        copier->source = malloc(COPY_BYTES);
        copier->target = malloc(COPY_BYTES);
        if (!copier->source || !copier->target ||
            pthread_create(&copier->thread, NULL, copy_main, copier) != 0) {
            free(copier->source);
            copier->source = NULL;
        }
    }
    for (int i = 0; copiers && i < threads; i++) {
        Copier *copier = &copiers[i];
        if (copier->source) {
            double bytes = (double)COPY_BYTES * COPY_ROUNDS;
            (void)pthread_join(copier->thread, NULL);
            report->memory_bytes_per_second += bytes / copier->seconds;
            cpu_seconds += copier->cpu_seconds;
            copied += bytes;
        }
        free(copier->source);
        free(copier->target);
    }
    report->memory_bytes_per_cpu_second = cpu_seconds > 0 ? copied / cpu_seconds : 0;
    free(copiers);
}

/* ---- passes ---- */

static void subtract(LoaderStatistics *statistics, const LoaderStatistics *before)
{
    statistics->samples.images -= before->samples.images;
    statistics->samples.stored_bytes -= before->samples.stored_bytes;
    statistics->samples.pixel_bytes -= before->samples.pixel_bytes;
    for (int stage = 0; stage < SAMPLE_STAGE_COUNT; stage++)
        statistics->samples.seconds[stage] -= before->samples.seconds[stage];
    statistics->busy_seconds -= before->busy_seconds;
    statistics->cpu_seconds -= before->cpu_seconds;
    statistics->page_reads -= before->page_reads;
}

/* Returns the seconds that all threads of the process have spent on cores. */
static double process_cpu_seconds(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage))
        return 0;
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* Takes batches until the time is over, and at least one. *steps is how many there are before they come again
 * (a whole epoch is followed by the next one), and becomes the number of different ones that were taken. */
static FshStatus run_pass(Loader *loader, const FshSplit *split, double seconds, uint64_t *steps,
                          LoaderBenchPass *pass, FshError *error)
{
    LoaderStatistics before;
    uint64_t taken = 0;
    *pass = (LoaderBenchPass){0};
    FshStatus status = fsh_split_residency(split, &pass->residency, error);
    loader_statistics(loader, &before);
    const double cpu_begin = process_cpu_seconds();
    double begin = progress_now_seconds();
    uint64_t round = *steps < loader_step_count(loader) ? *steps : UINT64_MAX / 2;
    do {
        const Batch *batch = NULL;
        if (interrupt_requested())
            return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted");
        if (!status && taken % round == 0)
            loader_start(loader, 0, round);
        if (!status)
            status = loader_next(loader, &batch, error);
        if (batch)
            pass->samples += batch->valid_count;
        pass->seconds = progress_now_seconds() - begin;
        taken++;
    } while (!status && pass->seconds < seconds);
    pass->process_cpu_seconds = process_cpu_seconds() - cpu_begin;
    loader_statistics(loader, &pass->work);
    subtract(&pass->work, &before);
    *steps = taken < *steps ? taken : *steps;
    return status;
}

/* Names what bounds the pass: workers that wait for pages (disk), copies as fast as memory allows (memory),
 * else work (CPU). */
static void judge(LoaderBenchPass *pass, double memory_bytes_per_second)
{
    const LoaderStatistics *work = &pass->work;
    for (int stage = 0; stage < SAMPLE_STAGE_COUNT; stage++)
        if (work->samples.seconds[stage] > work->samples.seconds[pass->longest_stage])
            pass->longest_stage = (SampleStage)stage;
    bool waits = work->page_reads > 0 && work->cpu_seconds < 0.6 * work->busy_seconds;
    bool copies = pass->longest_stage == SAMPLE_COPY &&
                  (double)work->samples.pixel_bytes > 0.5 * memory_bytes_per_second * pass->seconds;
    pass->bottleneck = waits ? BOTTLENECK_DISK : copies ? BOTTLENECK_MEMORY : BOTTLENECK_CPU;
}

FshStatus loader_bench(const LoaderBenchOptions *options, LoaderBenchReport *report, FshError *error)
{
    LoaderOptions loader_options = options->loader;
    LoaderBenchPass first;
    Loader *loader = NULL;
    const FshManifest *manifest = fsh_manifest(loader_options.split->dataset);
    if (options->drop_caches && fsh_container_has(manifest->container, FSH_HAS_FILES))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "--drop-caches: files that nobody has packed are not dropped from memory; pack "
                             "them first");
    loader_options.measure = true;
    *report = (LoaderBenchReport){.workers = loader_options.workers, .has_cold = options->drop_caches};
    measure_memory(loader_options.workers, report);
    if (options->drop_caches)
        fsh_split_drop(loader_options.split);
    FshStatus status = loader_new(&loader, &loader_options, error);
    if (status)
        return status;
    uint64_t steps = loader_step_count(loader);
    status = run_pass(loader, loader_options.split, options->seconds, &steps, &first, error);
    if (!status)
        status = run_pass(loader, loader_options.split, options->seconds, &steps, &report->warm, error);
    if (report->has_cold)
        report->cold = first;
    judge(&report->cold, report->memory_bytes_per_second);
    judge(&report->warm, report->memory_bytes_per_second);
    report->problems = loader_problem_count(loader);
    loader_free(&loader);
    return status;
}

/* ---- telling ---- */

typedef struct Teller {
    void (*print)(void *context, const char *line);
    void *context;
} Teller;

FSH_PRINTF(2, 3) static void tell(const Teller *teller, const char *format, ...);

static void tell(const Teller *teller, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    teller->print(teller->context, line);
}

static double share(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void tell_residency(const Teller *teller, const char *name, const FshResidency *residency)
{
    char resident[32], whole[32];
    (void)progress_format_bytes(whole, sizeof whole, residency->bytes);
    (void)progress_format_bytes(resident, sizeof resident, residency->resident_bytes);
    if (!residency->known)
        tell(teller, "%s: how much of the %s was in memory is not told, for the files are not yours", name,
             whole);
    else if (residency->resident_bytes > residency->bytes / 20)
        tell(teller,
             "%s: the kernel kept %s of %s in memory (a tmpfs, or pages that somebody has mapped): not as "
             "cold as asked",
             name, resident, whole);
}

static void tell_pass(const Teller *teller, const char *name, const LoaderBenchPass *pass,
                      const LoaderBenchReport *report)
{
    const SampleStatistics *samples = &pass->work.samples;
    double busy = pass->work.busy_seconds, waiting = busy - pass->work.cpu_seconds;
    tell(teller,
         "%s: %.0f samples/s; %.1f MB/s read, %.1f MB/s of pixels (%.0f %% of memcpy); %llu in %.2f s", name,
         (double)pass->samples / pass->seconds, (double)samples->stored_bytes / pass->seconds / 1e6,
         (double)samples->pixel_bytes / pass->seconds / 1e6,
         share((double)samples->pixel_bytes / pass->seconds, report->memory_bytes_per_second),
         (unsigned long long)pass->samples, pass->seconds);
    tell(teller,
         "%s: of %.2f s of %d worker%s: read %.0f %%, decode %.0f %%, augment %.0f %%, copy %.0f %%; %.0f %% "
         "not on a "
         "processor, %llu pages waited for",
         name, busy, report->workers, text_plural((uint64_t)report->workers),
         share(samples->seconds[SAMPLE_READ], busy), share(samples->seconds[SAMPLE_DECODE], busy),
         share(samples->seconds[SAMPLE_AUGMENT], busy), share(samples->seconds[SAMPLE_COPY], busy),
         share(waiting > 0 ? waiting : 0, busy), (unsigned long long)pass->work.page_reads);
    if (pass->bottleneck == BOTTLENECK_CPU)
        tell(teller, "%s: bottleneck: CPU, most of it to %s", name, sample_stage_names[pass->longest_stage]);
    else
        tell(teller, "%s: bottleneck: %s", name, loader_bottleneck_names[pass->bottleneck]);
}

void loader_bench_tell(const LoaderBenchReport *report, void (*print)(void *context, const char *line),
                       void *context)
{
    const Teller teller = {print, context};
    if (report->has_cold) {
        tell_residency(&teller, "cold", &report->cold.residency);
        tell_pass(&teller, "cold", &report->cold, report);
    }
    tell_pass(&teller, "warm", &report->warm, report);
    if (report->problems)
        tell(&teller, "%llu sample%s could not be used; see fverify", (unsigned long long)report->problems,
             text_plural(report->problems));
}
