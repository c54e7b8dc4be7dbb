/* restore.h - images through a network that restores them, whole or in tiles, and into files.
 *
 *   restorer_new(&restorer, &session, &options, &error);
 *   for each batch of the loader (one image): restorer_add(restorer, "a/b.jpg", batch, &error);
 *   restorer_finish(restorer, &error); restorer_free(&restorer);
 *
 * Threads: one; files are encoded and written by others (image_writer.h). */
#ifndef FSHARD_TRAINER_INFERENCE_RESTORE_H
#define FSHARD_TRAINER_INFERENCE_RESTORE_H

#include <limits.h>

#include "trainer/session/session.h"

typedef struct RestoreOptions {
    const char *folder;     /* into which */
    ImageFormat format;     /* of the files; IMAGE_UNKNOWN: by the input's name */
    bool force;             /* files that exist are replaced */
    uint32_t tile, overlap; /* pixels; tile 0: as large as memory allows; overlap 0: chosen */
} RestoreOptions;

typedef struct Restorer Restorer;

/* Finds the file for the input of this path, relative to the folder of outputs, and *format_ret,
 * its format: the same path where its name says JPEG or PNG and nothing else is wanted, else with .png
 * or .jpg for its extension. FSH_ERR_MEMORY: longer than PATH_MAX. */
FshStatus restore_target(const char *path, ImageFormat wanted, char target[PATH_MAX], ImageFormat *format_ret,
                         FshError *error);

/* Borrows the session. FSH_ERR_USAGE: tiles that are no larger than what they share; FSH_ERR_MEMORY,
 * FSH_ERR_SYSTEM. */
FshStatus restorer_new(Restorer **restorer, Session *session, const RestoreOptions *options, FshError *error);

/* Restores the image of a batch, the input of this path. *unfit_ret: the failure is of this image alone (it
 * has a size that the network does not take, or does not fit into memory). Else files cannot be written:
 * FSH_ERR_NO_SPACE, FSH_ERR_EXISTS … */
FshStatus restorer_add(Restorer *restorer, const char *path, const Batch *batch, bool *unfit_ret,
                       FshError *error);

/* Waits until all is written. */
FshStatus restorer_finish(Restorer *restorer, FshError *error);
/* Returns how many files are written so far. */
uint64_t restorer_count(Restorer *restorer);
/* Returns the edge of the tiles that the last image was restored in; 0: it was whole. */
uint32_t restorer_tile(const Restorer *restorer);
/* Frees and sets to NULL; NULL is fine. */
void restorer_free(Restorer **restorer);

#endif
