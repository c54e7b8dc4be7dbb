/* verify_against.h - a record against the file it was packed from.
 *
 * A file's bytes are the record's, or, where the dataset's provenance tells of a recipe (fresize, or fpack
 * --max-size), what the recipe makes of the file today: both have the same code, so the bytes must be the
 * same. Raw pixels are compared with the file decoded; images that were encoded again (--store jpeg) with the
 * file encoded again or, where another version of the library gives other bytes, by how far their pixels are
 * from it.
 *
 * Threads: an Against is read-only once opened; one AgainstReader per thread. */
#ifndef FSHARD_VERIFY_VERIFY_AGAINST_H
#define FSHARD_VERIFY_VERIFY_AGAINST_H

#include "imaging/encode.h"
#include "imaging/shrink.h"
#include "tools/verify/verify_pixels.h"

typedef struct Against {
    const char *folder; /* the source tree */
    bool has_recipe;    /* the recipe below was read from the provenance */
    bool encoded_again; /* --store jpeg, */
    int quality;        /* of this quality; 0: not told */
    ShrinkRecipe recipe;
} Against;

/* Reads the manifest's provenance; folder stays the caller's. */
void against_open(Against *against, const char *folder, const FshManifest *manifest);

typedef struct AgainstReader {
    PixelReader pixels;
    ShrinkWorker *resizer;
    ImageEncoder *encoder;
    Buffer file, encoded;
} AgainstReader;

void against_reader_free(AgainstReader *reader);

/* Compares a field with its source. data: the field's bytes, unpacked. exact: they must be the source's
 * own, as a mask's are, whatever was encoded again. FSH_ERR_MISMATCH, FSH_ERR_NOT_FOUND and others tell
 * what is different; FSH_ERR_MEMORY. */
FshStatus against_compare(const Against *against, AgainstReader *reader, const FshField *field,
                          const void *data, size_t bytes, bool exact, FshError *error);

/* Returns whether the field names a source, and that is not there. */
bool against_lacks_source(const Against *against, AgainstReader *reader, const FshField *field);

/* Returns whether a path is like "a/b.jpg": relative, without empty parts, "." and ".."; a record's source
 * may be anything. */
bool path_stays_inside(const char *path, size_t length);

#endif
