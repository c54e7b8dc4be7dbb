/* image_source.h - images that nobody has packed, as a dataset: below a folder, in a list, in a tar, or
 * one.
 *
 *   ImageSource source = {0};
 *   if (image_source_is_packed("photos/", FSH_KIND_CLASSES)) …  // a dataset: training_data.h
 *   image_source_open(&source, &(ImageSourceOptions){.path = "photos/"}, &error);
 *   training_data_take_images(&data, source.dataset, …); // and it is a dataset's from here on
 *
 *   a folder             every file below it whose name is that of an image, in byte order of the paths
 *   a folder and a list  the files that the list names, in its order, whatever their names (--files-from)
 *   a tar                its files with names of images, in its order; not one that is compressed
 *   an image             itself
 *
 * Names that begin with "." are passed over, but in a list. No file is read here: who takes a sample reads
 * it.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_DATA_IMAGE_SOURCE_H
#define FSHARD_TRAINER_DATA_IMAGE_SOURCE_H

#include "formats/fshard.h"

typedef struct ImageSourceOptions {
    const char *path;       /* NULL: the current folder */
    const char *files_from; /* a list of paths below path, a line each; "-": standard input; NULL: none */
    const char *outputs;    /* a folder that is left alone where it lies below path; NULL: none */
    /* Returns whether an image is to be used; asked once for each, in their order. NULL: all are. */
    bool (*wanted)(void *context, const char *path);
    /* Takes messages about what can be no image: links to nothing, folders that may not be read, lines of the
     * list that lead elsewhere. */
    void (*tell)(void *context, const char *message);
    void *context;
} ImageSourceOptions;

typedef struct ImageSource {
    FshDataset *dataset;    /* owned, until somebody takes it; NULL: nothing is wanted */
    uint64_t image_count;   /* wanted or not */
    uint64_t wanted_count;  /* the dataset's samples */
    uint64_t other_count;   /* files whose names are no image's */
    uint64_t problem_count; /* that `tell` was told */
} ImageSource;

/* Returns whether path is a dataset, as fsh_open knows them, for a network that takes this kind, rather
 * than images for this file to open: a tar without pairs in it is images. What cannot be opened as either
 * counts as a dataset: its messages say more. */
bool image_source_is_packed(const char *path, FshKind kind);

/* Opens the images. FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM: path, or the list, cannot be read; FSH_ERR_USAGE: a
 * list, but path is no folder; FSH_ERR_CORRUPT: a damaged tar; FSH_ERR_INTERRUPTED; FSH_ERR_MEMORY. On
 * failure nothing is held. */
FshStatus image_source_open(ImageSource *source, const ImageSourceOptions *options, FshError *error);
/* Frees what source owns; zeroed is fine. */
void image_source_close(ImageSource *source);

#endif
