/* pack_work.h - one sample from its source to its record: take (pack_intake.h), check by decoding, build.
 *
 * Where a record is made of what is read or decoded as it is, files are read, and pixels decoded, to their
 * place in it.
 *
 * Threads: one Worker per thread. A Worker keeps its decoder and buffers from sample to sample, so after the
 * first few samples nothing is allocated. */
#ifndef FSHARD_PACK_WORK_H
#define FSHARD_PACK_WORK_H

#include "imaging/encode.h"
#include "tools/pack/pack_intake.h"
#include "tools/pack/pack_stored.h"
#include "tools/job/stats.h"

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
    size_t record_offset, record_bytes; /* in records */
    FshStatus failure;                  /* FSH_OK: the record is good */
    size_t failed_field;                /* whose file the reason is about */
    char reason[sizeof((FshError *)0)->message];
    uint64_t source_bytes; /* read */
    /* of each field: fsh_source_hash of what was read, and the image as it is stored */
    struct {
        uint64_t hash;
        uint32_t width, height;
        uint8_t channels;
    } taken[FSH_FIELDS_MAX];
    PixelStatistics statistics; /* sizes; pixels too where they were asked for and decoded */
    PackPlanes planes;          /* --store yuv420 */
} WorkResult;

/* Appends the record to records and fills *result. sum_pixels: add the pixels to the statistics. A sample
 * that cannot be packed is told in *result; the call itself fails only where the machine does
 * (FSH_ERR_MEMORY, FSH_ERR_SYSTEM without file descriptors). */
FshStatus work_sample(Worker *worker, const PackStored *stored, const PackSample *sample, bool sum_pixels,
                      Buffer *records, WorkResult *result, FshError *error);

/* Does the first half: describes the sample with its fields as they are stored, before compression. It
 * borrows from worker and source until the worker's next sample. Good only where result->failure is FSH_OK.
 * room, which may be NULL: memory with place for the aligned record, to which fields may then be read or
 * decoded. */
FshStatus work_describe(Worker *worker, const PackStored *stored, const PackSample *sample, bool sum_pixels,
                        const Buffer *room, WorkResult *result, FshSample *description, FshError *error);

/* Returns whether fields are compressed. */
bool work_compresses(const PackStored *stored);

/* Returns how records are laid out: compact in shards whose fields are compressed, which nobody uses where
 * they lie. */
FshRecordForm work_record_form(const PackStored *stored);

#endif
