/* pack_stored.h - the fourth phase of a plan: how each sample is stored, and about how many bytes that takes.
 *
 *   PackStored stored;
 *   FshStatus status = pack_store(&split, &stored, &error);
 *   pack_stored_free(&stored);                                        // after a failure, too
 *
 * Headers are read where sizes follow from them (pack_stored.c). Where they do not, the work is done for some
 * samples of the main split to measure by, and the dictionary is trained on them (pack_trial.c). */
#ifndef FSHARD_PACK_STORED_H
#define FSHARD_PACK_STORED_H

#include "tools/pack/pack_split.h"

/* How many samples are stored in which way, and the bytes of their records. */
typedef struct PackChosen {
    uint64_t raw_count, raw_bytes, copy_count, copy_bytes;
} PackChosen;

/* What --store yuv420 stored: images as planes, and those that have none as raw pixels. */
typedef struct PackPlanes {
    uint64_t planes_count, planes_bytes, raw_count, raw_bytes;
} PackPlanes;

/* Adds what another has counted. */
void stored_add_planes(PackPlanes *planes, const PackPlanes *more);

/* Stored bytes are about numerator / denominator times the planned ones. */
typedef struct StoredShare {
    uint64_t numerator, denominator;
} StoredShare;

/* What a packing adds to, if that is a dataset which is there already (pack_update.h). */
typedef struct PackBase {
    char folder[PATH_MAX];  /* where the outputs are written and left, without a manifest */
    char root[PATH_MAX];    /* what its sources are noted to come from */
    const char *id;         /* of that dataset */
    const void *dictionary; /* its dictionary, dictionary_bytes of it; NULL: none */
    size_t dictionary_bytes;
    uint32_t raw_channels; /* of its raw pixels */
} PackBase;

typedef struct PackStored {
    const PackFound *found;
    const PackSplit *split;
    json_t *recipe; /* how the images are made smaller, here or by fresize before; NULL: they are not */
    /* what an image made smaller takes, about: JPEG and WebP, others; 0: as they are */
    uint64_t smaller_bytes[2];
    /* from the headers: raw, zstd and auto */
    uint32_t raw_channels;   /* of raw pixels: 1 where every image is gray, else 3 */
    uint64_t *payload_bytes; /* for each item; NULL: no headers were read */
    uint8_t *is_raw;         /* PACK_STORE_AUTO: for each sample; else NULL */
    PackChosen chosen;       /* PACK_STORE_AUTO */
    /* from the trial */
    void *dictionary; /* owned; NULL: none */
    size_t dictionary_bytes;
    StoredShare share;
} PackStored;

/* Fills *stored; *split must stay where it is. base: what is added to, whose dictionary and channels are
 * taken, or NULL. The same for any number of threads. FSH_ERR_MISMATCH: too few samples for a dictionary, or
 * colours where the base is gray. FSH_ERR_INTERRUPTED, FSH_ERR_MEMORY. */
FshStatus pack_store(const PackSplit *split, const PackBase *base, PackStored *stored, FshError *error);

/* Frees what pack_store took, and empties *stored. */
void pack_stored_free(PackStored *stored);

/* Returns how a sample of the split is stored: never PACK_STORE_AUTO. */
PackStore stored_as(const PackStored *stored, const PackSample *sample);

/* Returns the payload bytes of a sample in its record, about: known for raw, the files' for copy, guessed for
 * images that are made smaller. */
uint64_t stored_sample_bytes(const PackStored *stored, const PackSample *sample);

/* Returns the bytes of its record as planned: aligned, before compression, and before encoding again. 0: too
 * large for a record, or unreadable; the work leaves it out. */
uint64_t stored_record_bytes(const PackStored *stored, const PackSample *sample);

/* Describes the sample as fsh_record_bytes wants it: key, label, sources, and the payload's length as
 * planned. Data, geometry and codec are placeholders until the work fills them in. */
void stored_describe(const PackStored *stored, const PackSample *sample, FshSample *description);

/* ---- for the parts of this phase ---- */

/* Does the work for some samples, trains the dictionary on them and measures stored->share, where the planned
 * sizes are not the stored ones. */
FshStatus store_trial(PackStored *stored, FshError *error);

#endif
