/* resize_files.h - images for the tests of fresize, and what they must have become. Whatever cannot be done
 * fails the running test. */
#ifndef FSHARD_TESTS_TOOLS_RESIZE_FILES_H
#define FSHARD_TESTS_TOOLS_RESIZE_FILES_H

#include "imaging/image.h"
#include "tests/imaging/make_images.h"
#include "tests/tools/sources.h"

/* Writes a smooth JPEG; options' pixels are filled in. */
void write_jpeg(const char *path, MakeJpeg options);
/* Writes a smooth JPEG in colour, of this size. */
void write_size(const char *path, uint32_t width, uint32_t height);
/* Writes a smooth RGB PNG. */
void write_png(const char *path, uint32_t width, uint32_t height);

/* Decodes a file as it is stored: orientation ignored. image is the caller's. */
void read_image(const char *path, Image *image, ImageInfo *info);
/* Fails unless path holds an image of this format and size. */
void assert_image(const char *path, ImageFormat format, uint32_t width, uint32_t height, uint32_t channels);
/* Fails unless both files hold the same bytes. */
void assert_same_bytes(const char *path, const char *other);

/* Runs a command of the shell in the folder. */
void shell(TestFolder *folder, const char *command);
bool exists(const char *path);

/* Runs fresize with --json and these arguments (NULL at the end) and expects the exit status. Returns what it
 * printed, parsed; json_decref it. */
json_t *fresize_json(int exit_status, const char *const *arguments);
/* Returns an integer of an object; fails where there is none. */
json_int_t json_count(const json_t *object, const char *key);

/* Returns the files below a destination of fresize, those of its state not counted. */
uint64_t count_outputs(const char *path);

/* Writes count JPEGs of size x size pixels in folder: 000.jpg, 001.jpg, … */
void write_many(TestFolder *folder, const char *name, unsigned count, uint32_t size);

#endif
