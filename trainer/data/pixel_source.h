/* pixel_source.h - where the pixels of a split come from. One interface; each source is a file and a row of
 * pixel_source.c.
 *
 *   records   source_records.c   decoded at each use, by the loader's threads
 *   pixels    source_pixels.c    decoded once into RAM (--cache pixels)
 *   planes    source_planes.c    the same, as the 4:2:0 of a JPEG (--cache planes)
 *   gpu       source_gpu.c       the same, in a backend's memory (--cache gpu)
 *   nvjpeg    source_nvjpeg.c    files travel with their batch, and the backend decodes them (--decode gpu)
 *
 * How a sample flows:
 *
 *   before the run     pixel_source_new, then the loader that renders from it
 *   before batch 0     pixel_source_measure, pixel_source_check_room, pixel_source_load, pixel_source_tell
 *   a loader's thread  prefetch for the samples of its chunk, then render for each: pixels, or a recipe and
 *                      its files, come to the sample's place in the batch (batch_slot.h)
 *   the consumer       finish for the whole batch; where the backend refuses a file, refuse for its sample
 *                      and render again
 *   after the loader   pixel_source_free
 *
 * Sources that render on the host share pixel_source_render_here: they differ in open_sample alone, which
 * gives the SampleLoader the image. The recipe of a sample follows from (seed, turn, sample) and the image's
 * size, so every source gives the same batches, to the byte, where images are decoded in full size.
 *
 * Threads: render, open_sample and prefetch any, each with a SampleLoader of its own; refuse the consumer's;
 * all else one thread, while no loader runs. */
#ifndef FSHARD_TRAINER_DATA_PIXEL_SOURCE_H
#define FSHARD_TRAINER_DATA_PIXEL_SOURCE_H

#include "trainer/backend/pixels.h"
#include "trainer/data/batch_slot.h"
#include "trainer/data/decode_team.h"
#include "trainer/data/sample_loader.h"

typedef struct PixelSource PixelSource;

typedef struct PixelSourceOptions {
    SampleOptions samples; /* its split outlives the source */
    uint32_t channels;     /* what images are decoded to; raw pixels keep theirs */
    FshCache cache;        /* of the split's files, by sources that read them at each use */
    int threads;           /* that measure and load */
    bool skip_bad;         /* a sample that cannot be used is noted and left out; else it fails the load */
    const DecodeTeam
        *team;        /* of the processes that decode the split together; borrowed; NULL: this one alone */
    Backend *backend; /* borrowed; NULL where none is open: batches cannot be made on a device then */
} PixelSourceOptions;

/* What a sample's recipe follows from, besides its index and its image's size. */
typedef struct SampleView {
    const Augmentation *augmentation;
    const uint8_t *fill; /* [4] */
    uint64_t seed, turn;
} SampleView;

/* Where the decoded images lie between two uses. */
typedef enum PixelResidence {
    PIXELS_DECODED_AT_USE,
    PIXELS_IN_RAM,
    PIXELS_ON_DEVICE,
} PixelResidence;

/* How large the images of a split are. */
typedef struct PixelExtent {
    uint64_t bytes;      /* of all, as the source keeps them */
    uint32_t short_edge; /* pixels: the longest of all images' short edges */
} PixelExtent;

/* A row. Functions that are NULL have nothing to do. */
typedef struct PixelSourceType {
    const char *name;
    const char *option;   /* what chooses it: "--cache gpu"; NULL: whatever chooses no other */
    const char *instead;  /* what messages advise in its place: "--cache ram" */
    const char *gpu_work; /* what a GPU does for it, "decodes on a GPU"; NULL: it needs none */
    const char *loaded;   /* how pixel_source_tell calls the images after load: "on the GPU"; may be NULL */
    PixelResidence residence;
    bool recipes;   /* batches hold recipes for a backend in place of pixels */
    bool files;     /* and the files with them */
    bool evaluates; /* serves evaluation too, not training alone */
    bool whole;     /* renders whole images (CROP_WHOLE) */
    uint64_t chunk; /* samples that a loader's thread takes at a time, at most; even */
    size_t bytes;   /* of the struct that begins with PixelSource */

    /* Opens what loaders need to know. On failure the source is closed. */
    FshStatus (*open)(PixelSource *source, FshError *error);
    /* Finds out what load will take, where that is not known before records are read. */
    FshStatus (*measure)(PixelSource *source, FshError *error);
    /* Brings the split into memory. */
    FshStatus (*load)(PixelSource *source, FshError *error);
    /* Writes what load has done as a line without newline; leaves "" where there is nothing to tell. */
    FshStatus (*tell)(const PixelSource *source, char *line, size_t line_bytes, FshError *error);
    /* Returns how large the images are, once they are measured. NULL: nobody knows. */
    PixelExtent (*extent)(const PixelSource *source);
    /* Returns the bytes of RAM that the images take, 0 before measure. */
    uint64_t (*ram_bytes)(const PixelSource *source);
    /* Closes what open, measure and load have opened; the store is freed by the caller. */
    void (*close)(PixelSource *source);

    /* Asks for a sample that is rendered soon: from the disk, or from memory. */
    void (*prefetch)(const PixelSource *source, const SampleLoader *samples, uint64_t sample);
    /* Opens a sample for sample_loader_render. Fails as sample_loader_open. */
    FshStatus (*open_sample)(const PixelSource *source, SampleLoader *samples, uint64_t turn, uint64_t sample,
                             SampleInfo *info, FshError *error);
    /* Renders a sample into its place of the slot and takes the place (batch_slot_take). Messages as
     * sample_loader_open. */
    FshStatus (*render)(const PixelSource *source, SampleLoader *samples, const SampleView *view,
                        uint64_t sample, BatchSlot *slot, uint64_t place, FshError *error);
    /* Completes recipes once all places are rendered. Returns the bytes of the images that come with the
     * batch (PixelBatch.stored_bytes). */
    uint64_t (*finish)(BatchSlot *slot);
    /* Notes that the backend has refused a file of the sample: render decodes it here from now on. */
    void (*refuse)(const PixelSource *source, uint64_t sample);
} PixelSourceType;

/* What each source's struct begins with. */
struct PixelSource {
    const PixelSourceType *type;
    PixelSourceOptions options;
    PixelStore *store; /* that recipes are for; owned; NULL: none, or not loaded yet */
};

/* The values of --cache: fsh_cache_from_name's, then the sources that --cache chooses. NULL-terminated, for
 * the option table. */
extern const char *const pixel_source_caches[];
extern const char pixel_source_caches_help[];
enum { PIXEL_CACHE_NONE = 0 }; /* the first of the caches above */

/* Returns the row of this name; NULL if there is none. */
const PixelSourceType *pixel_source_type(const char *name);
/* Returns the row that an option's value chooses, ("cache", "gpu") say; NULL: none. */
const PixelSourceType *pixel_source_of_option(const char *option, const char *value);
/* Returns a source of records for loaders that are given none: static, stateless. */
const PixelSource *pixel_source_plain(void);

/* Fails as open does. On failure *source is NULL. */
FshStatus pixel_source_new(PixelSource **source, const PixelSourceType *type,
                           const PixelSourceOptions *options, FshError *error);
/* Closes, frees, sets to NULL; NULL is fine. After its loaders, before the backend. */
void pixel_source_free(PixelSource **source);

/* Finds out what load will take. FSH_ERR_CORRUPT and such: the first bad sample, unless skip_bad.
 * FSH_ERR_INTERRUPTED. */
FshStatus pixel_source_measure(PixelSource *source, FshError *error);
/* Checks that `bytes` of images (pixel_source_ram_bytes) in each of so many processes of this host fit in
 * free_bytes (cpu_free_memory_bytes). FSH_ERR_MEMORY: they do not; the message names source's dataset and
 * option, and says what to do. */
FshStatus pixel_source_check_room(const PixelSource *source, uint64_t bytes, uint64_t processes,
                                  uint64_t free_bytes, FshError *error);
/* Brings the split into memory. FSH_ERR_MEMORY says what it takes and what is free. FSH_ERR_UNSUPPORTED: the
 * backend has no memory of its own. FSH_ERR_SYSTEM: files cannot be read, or memory not be locked. A bad
 * sample as in measure. */
FshStatus pixel_source_load(PixelSource *source, FshError *error);
/* Writes what load has done to line, "" if there is nothing to tell. FSH_ERR_SYSTEM, FSH_ERR_MEMORY: that
 * cannot be found out. */
FshStatus pixel_source_tell(const PixelSource *source, char *line, size_t line_bytes, FshError *error);

/* Returns how large the images of a source are; zeros where that is not known, and for NULL. */
PixelExtent pixel_source_extent(const PixelSource *source);
/* Returns the bytes of RAM that the images of a source take once loaded; 0 before it is measured, and for
 * NULL. */
uint64_t pixel_source_ram_bytes(const PixelSource *source);
/* Adds the device's memory that a source has taken; NULL has none. */
void pixel_source_device_memory(const PixelSource *source, MemoryUse *use);

/* Opens the sample, sizes the slot for a whole image, and renders: the `render` of sources whose pixels the
 * host makes. */
FshStatus pixel_source_render_here(const PixelSource *source, SampleLoader *samples, const SampleView *view,
                                   uint64_t sample, BatchSlot *slot, uint64_t place, FshError *error);
/* Opens a sample, or asks for one, from its record: open_sample and prefetch of sources that read records. */
FshStatus pixel_source_open_record(const PixelSource *source, SampleLoader *samples, uint64_t turn,
                                   uint64_t sample, SampleInfo *info, FshError *error);
void pixel_source_prefetch_record(const PixelSource *source, const SampleLoader *samples, uint64_t sample);
/* Brings files into the page cache as options.cache says, or tells it: load and tell of sources that read
 * files at each use. */
FshStatus pixel_source_cache_files(PixelSource *source, FshError *error);
FshStatus pixel_source_tell_files(const PixelSource *source, char *line, size_t line_bytes, FshError *error);

#endif
