/* resize_places.h - images that have no place: below neither side's folder, without a partner, or without a
 * label. One is worth a line; where all of them are, it was a name that was mistyped, and one line that tells
 * so is worth more than a hundred. Internal to resize.c.
 *
 * Threads: one. */
#ifndef FSHARD_RESIZE_PLACES_H
#define FSHARD_RESIZE_PLACES_H

#include "tools/resize/resize_work.h"

enum { RESIZE_FOLDERS_SHOWN = 6, RESIZE_FOLDER_BYTES = 64 };

/* Zeroed at first. */
typedef struct ResizePlaces {
    uint64_t placed_count, unplaced_count; /* images */
    bool sides_seen[2];
    char folders[RESIZE_FOLDERS_SHOWN][RESIZE_FOLDER_BYTES]; /* the first names met; longer ones are cut */
    size_t folders_count;
    bool more_folders;
    char first[RESIZE_FOLDER_BYTES]; /* unplaced image */
} ResizePlaces;

/* Counts an image. Returns false if the image has no place and three such images were told before it: it need
 * not be told. */
bool places_note(ResizePlaces *places, const ResizeSourceOptions *source, const ResizeResult *result);

/* Returns whether there were images, and none had a place. */
bool places_all_missed(const ResizePlaces *places);

/* Refuses a run in which no image had a place: FSH_ERR_NOT_FOUND, with the names that were looked for and
 * those that are there. */
FshStatus places_explain(const ResizePlaces *places, const ResizeOptions *options, FshError *error);

#endif
