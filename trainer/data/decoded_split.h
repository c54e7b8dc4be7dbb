/* decoded_split.h - all images of a split, decoded once and laid end to end: in RAM, or in a backend's
 * memory. Internal to the sources that do so.
 *
 *   DecodedSplit split = {0};
 *   decoded_split_measure(&split, &options, &decoded_rows, &error); // sizes and checksums: what it takes
 *   decoded_split_load_ram(&split, source, &error);                 // decodes, on all threads
 *   decoded_split_find(&split, sample, &found, &error);
 *   decoded_split_free(&split);
 *
 * Raw pixels stay as they are, everything else is decoded in full size: a crop of a photograph that
 * records would have decoded at a half or a quarter of its size (augment_least_size) has other pixels
 * here, those of the better decoding.
 *
 * The processes of a team (decode_team.h) measure and decode a share each, into one copy for all of them:
 * places, labels and, in RAM, pixels. Into a backend's memory each of them copies everything, by rounds:
 * they decode a share each into memory that all see, and then all copy from there.
 *
 * A sample that cannot be used is noted and left out, or is the failure, as in the loader; but all of it
 * is looked at, where crops in training may not meet what is damaged.
 *
 * Threads: one; constant once loaded. */
#ifndef FSHARD_TRAINER_DATA_DECODED_SPLIT_H
#define FSHARD_TRAINER_DATA_DECODED_SPLIT_H

#include "trainer/data/pixel_source.h"

/* Where an image lies. */
typedef struct DecodedImage {
    uint64_t offset_bytes; /* from where the first one begins; PIXELS_NONE: it cannot be used */
    uint64_t bytes;
    uint32_t width, height;
    uint8_t channels;
    bool expands; /* it is in a form of its own, which the form's expand takes; else rows of pixels */
} DecodedImage;

/* The form in which images are kept. The sample is open in both. */
typedef struct DecodedForm {
    /* Fills in all of image but its offset. decoded: the channels to which images that are not raw are
     * decoded. */
    FshStatus (*measure)(SampleLoader *samples, unsigned side, uint32_t decoded, DecodedImage *image,
                         FshError *error);
    /* Decodes to image->bytes at `to`. */
    FshStatus (*write)(SampleLoader *samples, unsigned side, uint32_t decoded, const DecodedImage *image,
                       uint8_t *to, FshError *error);
    SampleExpand expand; /* NULL: all are rows of pixels */
} DecodedForm;

/* [height, width, channels], rows without padding. */
extern const DecodedForm decoded_rows;

/* Memory of this process, or of the team. */
typedef struct DecodedMemory {
    uint8_t *bytes; /* NULL: none */
    size_t length;  /* > 0 */
} DecodedMemory;

typedef struct DecodedSplit {
    const DecodedForm *form;
    uint64_t sample_count;
    unsigned sides;
    DecodedMemory tables; /* images and labels */
    DecodedImage *images; /* [sample_count][sides] */
    int64_t *labels;      /* [sample_count]; pairs: NULL */
    char **problems;      /* [sample_count] what is wrong with a sample; mostly NULL */
    uint64_t bytes;       /* of all images */
    SampleChecksums checksums;
    DecodedMemory pixels;   /* [bytes]; of nothing unless it is loaded into RAM */
    const DecodeTeam *team; /* that shares tables and pixels; NULL: they are this process's own */
    bool loaded, divided;   /* divided: each process of the team has a part in its store */
    double seconds;         /* that measuring and loading took */
} DecodedSplit;

/* What sources of a decoded split begin with. */
typedef struct DecodedSource {
    PixelSource base;
    DecodedSplit split;
} DecodedSource;

/* Returns the place of an image. */
static inline DecodedImage *decoded_image(const DecodedSplit *split, uint64_t sample, unsigned side)
{
    return &split->images[sample * split->sides + side];
}

static inline const DecodedSplit *decoded_split_of(const PixelSource *source)
{
    return &((const DecodedSource *)source)->split;
}

/* Reads every record once; with a team, a share of them. FSH_ERR_CORRUPT and such: the first bad sample,
 * unless skip_bad. FSH_ERR_INTERRUPTED. On failure nothing is held, and with a team all processes fail. */
FshStatus decoded_split_measure(DecodedSplit *split, const PixelSourceOptions *options,
                                const DecodedForm *form, FshError *error);
/* Takes RAM and decodes into it. FSH_ERR_MEMORY: the system gives no such memory at all; what it cannot
 * keep is for pixel_source_check_room to say. The split stays measured on failure. With a team all
 * processes fail. */
FshStatus decoded_split_load_ram(DecodedSplit *split, const PixelSource *source, FshError *error);
/* Frees the memory of decoded_split_load_ram. */
void decoded_split_drop_pixels(DecodedSplit *split);
/* Returns where part `index` of a split that is divided among `count` begins; of `count` the end. Parts
 * begin with a sample. */
uint64_t decoded_split_part(const DecodedSplit *split, uint64_t index, uint64_t count);
/* Decodes this process's part, of as many as the team has, into a store of that part. */
FshStatus decoded_split_load_part(DecodedSplit *split, const PixelSourceOptions *options, PixelStore *store,
                                  FshError *error);
/* Decodes into a store of split->bytes; one copy brings several neighbours there. With a team all
 * processes fail. */
FshStatus decoded_split_load_store(DecodedSplit *split, const PixelSourceOptions *options, PixelStore *store,
                                   FshError *error);
/* Exchanges with the team of the options, if there is one, how things went: FSH_OK if all are well, else
 * mine, or the failure of another. */
FshStatus decoded_split_agree(const PixelSourceOptions *options, FshStatus mine, FshError *error);
/* Frees what the split owns; zeroed is fine. */
void decoded_split_free(DecodedSplit *split);

/* Sets *sides_ret to the sides of a sample, [split->sides]. Fails as the sample did; FSH_ERR_USAGE where
 * nothing is loaded. */
FshStatus decoded_split_find(const DecodedSplit *split, uint64_t sample, const DecodedImage **sides_ret,
                             FshError *error);
/* Returns the label of a sample; pairs: FSH_NO_LABEL. */
int64_t decoded_split_label(const DecodedSplit *split, uint64_t sample);

/* Functions of a DecodedSource's row. */
uint64_t decoded_source_ram_bytes(const PixelSource *source);
PixelExtent decoded_source_extent(const PixelSource *source);
/* Opens a sample whose images lie in RAM. */
FshStatus decoded_source_open_sample(const PixelSource *source, SampleLoader *samples, uint64_t turn,
                                     uint64_t sample, SampleInfo *info, FshError *error);
/* Measures the split for rows of pixels (decoded_rows). */
FshStatus decoded_source_measure(PixelSource *source, FshError *error);
FshStatus decoded_source_load_ram(PixelSource *source, FshError *error);
FshStatus decoded_source_tell(const PixelSource *source, char *line, size_t line_bytes, FshError *error);
void decoded_source_close(PixelSource *source);
/* Fetches the head of the sample's first image into the processor's cache. */
void decoded_source_prefetch(const PixelSource *source, const SampleLoader *samples, uint64_t sample);

#endif
