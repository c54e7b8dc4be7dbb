/* work.h - one sample from its source to its record: take (intake.h), check by decoding, build.
 *
 * Threads: one Worker per thread. A Worker keeps its decoder and buffers from sample to sample, so after the
 * first few samples nothing is allocated. */
#ifndef FSHARD_PACK_WORK_H
#define FSHARD_PACK_WORK_H

#include "imaging/encode.h"
#include "tools/pack/intake.h"
#include "tools/pack/stats.h"

typedef struct Worker {
    ImageDecoder *decoder;
    Intake intake;
    Image images[FSH_FIELDS_MAX];
    ImageEncoder *encoder; /* these are made when they are needed */
    FshPacker *packer;
    Buffer encoded[FSH_FIELDS_MAX];
} Worker;

void worker_free(Worker *worker);

/* What a sample became: a record, or the reason why it is left out. */
typedef struct WorkResult {
    Buffer record;       /* length: record bytes */
    FshStatus failure;   /* FSH_OK: the record is good */
    size_t failed_field; /* whose file the reason is about */
    char reason[sizeof((FshError *)0)->message];
    uint64_t source_bytes;      /* read */
    PixelStatistics statistics; /* sizes; pixels too where they were asked for and decoded */
} WorkResult;

void work_result_free(WorkResult *result);

/* Fills *result (reused from call to call; zeroed once). sum_pixels: add the pixels to the statistics. A
 * sample that cannot be packed is no failure of the call: FSH_ERR_MEMORY, or a system without file
 * descriptors, is. */
FshStatus work_sample(Worker *worker, const Plan *plan, const PackOptions *options, const PlanSample *sample,
                      bool sum_pixels, WorkResult *result, FshError *error);

/* The first half: the sample with its fields as they are stored, before compression. It borrows from worker and source until
 * the worker's next sample. Good only where result->failure is FSH_OK. */
FshStatus work_describe(Worker *worker, const Plan *plan, const PackOptions *options,
                        const PlanSample *sample, bool sum_pixels, WorkResult *result, FshSample *description,
                        FshError *error);

/* Whether fields are compressed then. */
bool work_compresses(const Plan *plan, const PackOptions *options);

/* How records are laid out: compact in shards whose fields are compressed, which nobody uses where they lie. */
FshRecordForm work_record_form(const Plan *plan, const PackOptions *options);

#endif
