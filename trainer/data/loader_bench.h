/* loader_bench.h - the loader alone: how fast it is, where its time goes, and what it waits for.
 *
 *   LoaderBenchReport report;
 *   loader_bench(&(LoaderBenchOptions){.loader = options, .seconds = 5}, &report, &error);
 *   loader_bench_tell(&report, print, context);
 *
 * Threads: runs the loader's workers; the caller takes the batches and does nothing with them. */
#ifndef FSHARD_TRAINER_DATA_LOADER_BENCH_H
#define FSHARD_TRAINER_DATA_LOADER_BENCH_H

#include "trainer/data/loader.h"

typedef struct LoaderBenchOptions {
    LoaderOptions loader; /* measure is set */
    double seconds;       /* for each pass; > 0. A pass ends with the step in which they are over */
    bool drop_caches;     /* a cold pass comes first */
} LoaderBenchOptions;

typedef enum LoaderBottleneck { BOTTLENECK_CPU, BOTTLENECK_DISK, BOTTLENECK_MEMORY } LoaderBottleneck;

/* "CPU", "disk", "memory". */
extern const char *const loader_bottleneck_names[];

typedef struct LoaderBenchPass {
    double seconds;
    uint64_t samples;       /* that batches held; skipped ones are not counted */
    LoaderStatistics work;  /* of this pass: seconds summed over workers, images (two in a pair), bytes */
    FshResidency residency; /* of the split, before the pass */
    LoaderBottleneck bottleneck;
    SampleStage longest_stage;
    double process_cpu_seconds; /* of all threads: the workers' and the one that takes the batches */
} LoaderBenchPass;

typedef struct LoaderBenchReport {
    int workers;
    bool has_cold;
    LoaderBenchPass cold, warm;
    uint64_t problems;              /* different samples that were skipped */
    double memory_bytes_per_second; /* of memcpy, by as many threads at a time */
    double
        /* the same by each second on a processor: where others work on the machine, too */
        memory_bytes_per_cpu_second;
} LoaderBenchReport;

/* Measures a cold pass, if asked for, and a warm one. Cold: the kernel is asked to forget the split's files
 * (fsh_split_drop), then a loader reads them from the disk, checksums included; the kernel keeps what another
 * process has mapped, and all of a tmpfs: residency tells. Warm: the same samples again, as in a second
 * epoch: pages in memory, checksums known. Fails as loader_new and loader_next; FSH_ERR_INTERRUPTED on a
 * signal. */
FshStatus loader_bench(const LoaderBenchOptions *options, LoaderBenchReport *report, FshError *error);

/* Prints the report as a few lines of text, without newlines. */
void loader_bench_tell(const LoaderBenchReport *report, void (*print)(void *context, const char *line),
                       void *context);

#endif
