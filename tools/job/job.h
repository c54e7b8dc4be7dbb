/* job.h - what fresize, fpack and fverify say in the same words: peers' names of options that they share, and
 * the result as JSON. What was left out is in notes.h. */
#ifndef FSHARD_TOOLS_JOB_JOB_H
#define FSHARD_TOOLS_JOB_JOB_H

#include <jansson.h>
#include <stdio.h>

#include "common/error.h"

/* Rows to splice into the table of a program that makes images smaller on their way from SRC to DST: what
 * Pillow scripts, img2dataset, FFCV's writer and others call its options (OptionTable.foreign). */
/* clang-format off */
#define JOB_FOREIGN                                                                                          \
    {"workers", "jobs"}, {"num-workers", "jobs"}, {"processes-count", "jobs"}, {"thread-count", "jobs"},     \
    {"n-thread", "jobs"}, {"n-jobs", "jobs"}, {"threads", "jobs"}, {"num-threads", "jobs"},                  \
    {"overwrite", "force"}, {"exist-ok", "force"}, {"ignore-errors", "on-error skip"},                       \
    {"skip-errors", "on-error skip"}, {"input", "src"}, {"input-dir", "src"}, {"input-folder", "src"},       \
    {"data-dir", "src"}, {"data-path", "src"}, {"output", "dst"}, {"out", "dst"}, {"output-dir", "dst"},     \
    {"output-folder", "dst"}, {"out-dir", "dst"}, {"save-dir", "dst"}, {"size", "max-size"},                 \
    {"resize", "max-size"}, {"image-size", "max-size"}, {"img-size", "max-size"},                            \
    {"max-resolution", "max-size"}, {"resize-mode", "edge"}, {"interpolation", "filter"},                    \
    {"resample", "filter"}, {"downscale-interpolation", "filter"}, {"jpeg-quality", "quality"},              \
    {"encode-quality", "quality"}, {"file-list", "files-from"}, {"label-file", "labels"}

/* Rows of OptionTable.answers. */
#define JOB_ANSWERS                                                                                          \
    {"resume", JOB_SAME_COMMAND}, {"continue", JOB_SAME_COMMAND},                                            \
    {"incremental-mode", JOB_SAME_COMMAND}, {"recursive", "folders in SRC are gone into anyway"},            \
    {"max-aspect-ratio", "nothing leaves images out by their proportions"}
/* clang-format on */

#define JOB_SAME_COMMAND "the same command goes on where it was stopped"

/* Prints the result of a program as one line of JSON, and consumes object; NULL: there was no memory for it.
 * flags: jansson's, besides JSON_COMPACT and JSON_PRINTED. FSH_ERR_MEMORY. */
FshStatus job_print_json(FILE *stream, json_t *object, size_t flags, FshError *error);

#endif
