/* sources.h - source trees for the tests of the tools, and what they must have become. Whatever cannot be
 * done fails the running test. */
#ifndef FSHARD_TESTS_TOOLS_SOURCES_H
#define FSHARD_TESTS_TOOLS_SOURCES_H

#include <jansson.h>

#include "formats/fshard.h"
#include "tests/support/support.h"

/* Write an image file; channels 1 or 3. The same arguments give the same bytes, another seed gives others. */
void source_jpeg(const char *path, uint32_t width, uint32_t height, uint32_t channels, uint32_t seed);
/* Writes a JPEG as a camera writes it that was held upright: `orientation` as in EXIF, 1 to 8. */
void source_jpeg_turned(const char *path, uint32_t width, uint32_t height, uint8_t orientation,
                        uint32_t seed);
void source_png(const char *path, uint32_t width, uint32_t height, uint32_t channels, uint32_t seed);
/* Writes a mask: a PNG of these values [height, width], of a palette or of gray. */
void source_mask(const char *path, uint32_t width, uint32_t height, const uint8_t *values, bool palette);
/* Writes an image and its mask, IMAGES/NAME.jpg and MASKS/NAME.png: value 1 in a rectangle of value 0, an
 * edge of 255, and `most` in a corner. */
void source_masked(const char *root, const char *images, const char *masks, const char *name, uint32_t width,
                   uint32_t height, uint8_t most);
/* Returns whether this build can read and write PNG (libvips is there); if not, says so: PNG tests skip. */
bool png_is_supported(void);

/* Writes count JPEGs of about 40 x 30 pixels, ROOT/CLASS/0.jpg, 1.jpg, … */
void source_class(const char *root, const char *class_name, unsigned count);
/* Writes two classes, cat with 3 and dog with 2 images, below root. */
void source_two_classes(const char *root);
/* Writes count names, ROOT/CLASS/00000.jpg …, for one file of width x height pixels: cheap to make, slow to
 * pack. */
void source_slow_class(const char *root, const char *class_name, unsigned count, uint32_t width,
                       uint32_t height);

/* Runs a program with these arguments (NULL at the end) and expects the exit status. The result is the
 * caller's. */
RunResult run_expecting(int exit_status, const char *program, ...) __attribute__((sentinel));
/* Runs a program, expects exit status 0, and forgets what was printed. */
#define run_ok(...) run_forget(run_expecting(0, __VA_ARGS__))
void run_forget(RunResult result);

/* Opens a writer of a single shard of train, with classes and the field "image". The caller puts samples,
 * finishes and closes. */
FshWriter *shard_writer(const char *path, const char *const *classes, size_t class_count);

/* Opens a dataset. */
FshDataset *packed_open(const char *path);
/* Returns the samples of a split; 0 if there is no such split. */
uint64_t packed_count(const char *path, const char *split);
/* Returns "key label\n" for every sample of a split, in order; the caller frees it. */
char *packed_list(const char *path, const char *split);
/* Asserts that every field holds the bytes of the file that it names, and that each label is the class of
 * that name. */
void packed_assert_copies(const char *path, const char *source_root);

/* Returns a JSON text, parsed; json_decref it. */
json_t *json_of(const char *text);
/* Returns the dataset.json of a dataset, parsed; json_decref it. */
json_t *packed_manifest(const char *path);
/* Returns the id in dataset.json; the caller frees it. */
char *packed_id(const char *path);

#endif
