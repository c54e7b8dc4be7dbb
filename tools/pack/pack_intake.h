/* pack_intake.h - the bytes of one field of one sample, whatever they come from: a file below the source's
 * folder, a record of a dataset, and either made smaller on the way in.
 *
 *   Intake intake = {0};
 *   IntakeBytes taken;
 *   FshStatus status = intake_take(&intake, found, sample, field, &taken, &error);
 *   … taken.data, until intake takes this field of another sample …
 *   intake_free(&intake);
 *
 * A dataset's bytes are not copied, unless they are compressed: they lie in its mapping. With --check its
 * records' checksums are checked here.
 *
 * Threads: one Intake per thread. */
#ifndef FSHARD_PACK_INTAKE_H
#define FSHARD_PACK_INTAKE_H

#include "common/file.h"
#include "imaging/decode.h"
#include "tools/job/read_ahead.h"
#include "tools/pack/pack_keyed.h"

typedef struct Intake {
    Buffer files[FSH_FIELDS_MAX];           /* as read; of a dataset's raw pixels: as an image file of them */
    Buffer smaller[FSH_FIELDS_MAX];         /* made smaller */
    FshUnpacker *unpackers[FSH_FIELDS_MAX]; /* made when a field is compressed */
    uint32_t widths[FSH_FIELDS_MAX], heights[FSH_FIELDS_MAX]; /* before that */
    ShrinkWorker *resizer;                                    /* made when it is needed */
    ReadAhead ahead;
} Intake;

void intake_free(Intake *intake);

typedef struct IntakeBytes {
    const void *data; /* not compressed; borrowed from the Intake or the dataset */
    size_t bytes;
    bool is_raw;            /* pixels: width x height x channels, nothing to decode; else an image file */
    uint32_t width, height; /* is_raw only, and the next */
    uint8_t channels;
    bool is_new;           /* encoded here, as the recipe says: made smaller */
    uint64_t source_bytes; /* read from the source */
    uint64_t source_hash;  /* fsh_source_hash of what was read, unpacked */
} IntakeBytes;

/* Takes one field of a sample, made smaller where the options say so. A sample's fields are to be taken in
 * order. FSH_ERR_MISMATCH: a file that changed since it was listed; sides of a pair that had different sizes
 * before they were made smaller. FSH_ERR_CORRUPT: a record of the dataset; an image that is to be made
 * smaller. Messages do not name the source. */
FshStatus intake_take(Intake *intake, const PackFound *found, const PackSample *sample, size_t field,
                      IntakeBytes *taken, FshError *error);

/* Takes the field as it is, not made smaller. place, which may be NULL, is borrowed: a file is read there if
 * it has room for the file and one byte more. */
FshStatus intake_original(Intake *intake, const PackFound *found, const PackSample *sample, size_t field,
                          const Buffer *place, IntakeBytes *taken, FshError *error);

/* Asks for the files of samples that will be taken later, where those that this thread takes come from a disk
 * (read_ahead.h); for nothing where the source is a dataset. Call it once for each place. */
void intake_ask(Intake *intake, const PackFound *found, const PackSample *samples, size_t count);

/* Checks whether what was read of the sample's record was there, after its bytes were used: FSH_ERR_SYSTEM.
 * Of files nothing is mapped, so nothing can fail. */
FshStatus intake_check_read(const PackFound *found, const PackSample *sample, FshError *error);

/* Fills *info with size and channels of what intake_take would give, by the header: pixels as displayed. */
FshStatus intake_probe(Intake *intake, ImageDecoder *decoder, const PackFound *found,
                       const PackSample *sample, size_t field, ImageInfo *info, FshError *error);

enum { PAIR_SCALE_HINT_BYTES = 128 };
/* Writes to hint which --pair-scale would take two sizes for one pair; nothing where none would. resizes:
 * --max-size is given, which does not go with it. Returns hint. */
const char *intake_hint_scale(uint32_t width, uint32_t height, uint32_t other_width, uint32_t other_height,
                              bool resizes, char hint[PAIR_SCALE_HINT_BYTES]);

#endif
