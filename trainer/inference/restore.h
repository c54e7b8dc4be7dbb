/* restore.h - restores images with a network, whole or in tiles, and writes them to files; or their masks,
 * whole, as gray PNGs whose values are the classes.
 *
 *   restorer_new(&restorer, &session, &options, &error);
 *   for each batch of the loader (one image): restorer_add(restorer, "a/b.jpg", batch, &error);
 *   restorer_finish(restorer, &error); restorer_free(&restorer);
 *
 * Threads: one; others encode and write the files (image_writer.h). */
#ifndef FSHARD_TRAINER_INFERENCE_RESTORE_H
#define FSHARD_TRAINER_INFERENCE_RESTORE_H

#include <limits.h>

#include "trainer/session/session.h"

typedef struct RestoreOptions {
    const char *folder;     /* of the outputs */
    ImageFormat format;     /* of the outputs; IMAGE_UNKNOWN: by the input's name */
    bool force;             /* replace existing files */
    uint32_t tile, overlap; /* pixels; tile 0: as large as fits into memory; overlap 0: chosen */
} RestoreOptions;

typedef struct Restorer Restorer;

/* Writes the output's path for the input `path` to target, relative to the output folder, and sets
 * *format_ret to its format. The path is the same if its extension says JPEG or PNG and no other format is
 * wanted; else the extension becomes .png or .jpg. FSH_ERR_MEMORY: longer than PATH_MAX. */
FshStatus restore_target(const char *path, ImageFormat wanted, char target[PATH_MAX], ImageFormat *format_ret,
                         FshError *error);

/* Makes a restorer; borrows the session. FSH_ERR_USAGE: the overlap is not smaller than the tiles;
 * FSH_ERR_MEMORY, FSH_ERR_SYSTEM. */
FshStatus restorer_new(Restorer **restorer, Session *session, const RestoreOptions *options, FshError *error);

/* Restores the batch's image, whose input path is `path`. Sets *unfit_ret to true if the failure concerns
 * this image alone: the network does not take its size, or it does not fit into memory. Other failures are
 * about writing files: FSH_ERR_NO_SPACE, FSH_ERR_EXISTS … */
FshStatus restorer_add(Restorer *restorer, const char *path, const Batch *batch, bool *unfit_ret,
                       FshError *error);

/* Waits until all files are written. */
FshStatus restorer_finish(Restorer *restorer, FshError *error);
/* Returns how many files are written so far. */
uint64_t restorer_count(Restorer *restorer);
/* Returns the edge of the tiles of the last image; 0: it was restored whole. */
uint32_t restorer_tile(const Restorer *restorer);
/* Frees and sets to NULL; NULL is fine. */
void restorer_free(Restorer **restorer);

#endif
