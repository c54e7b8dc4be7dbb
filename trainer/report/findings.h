/* findings.h - a few samples of an evaluation to look at, beside the numbers (class_counts.h).
 *
 *   const FindingsOptions options = {.classes = 10, .samples = 10000};
 *   Findings *findings = NULL;
 *   if (!findings_new(&findings, &options, &error))
 *       … for each sample: findings_add_class(findings, key, key_bytes, &pixels, label, …);
 *   … = findings_examples(findings, examples);
 *   findings_free(&findings);
 *
 * Samples are added one by one, in the order of the split. Memory is bounded: `examples` samples with small
 * images of their own. The same samples in the same order give the same findings.
 *
 * Which examples are kept:
 *   classes  the wrong ones whose prediction had the highest probability, that first; each shrunk to fit
 *            edge_px.
 *   pairs    half of them evenly spread over the split; a quarter those that gained least (dB over the
 *            input), a quarter those that gained most. Of each a window of edge_px, pixel for pixel, where
 *            input and target differ most.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_REPORT_FINDINGS_H
#define FSHARD_TRAINER_REPORT_FINDINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "imaging/image.h"

typedef struct Findings Findings;

enum { FINDINGS_EXAMPLES_MAX = 256 };

typedef struct FindingsOptions {
    bool pairs;
    uint64_t classes; /* 0 for pairs */
    uint64_t samples; /* of the split: pairs are spread over it */
    size_t examples;  /* 0: 48 of classes, 12 pairs; at most FINDINGS_EXAMPLES_MAX */
    uint32_t edge_px; /* 0: 128 of classes, 256 of pairs */
} FindingsOptions;

/* Makes an empty collection. FSH_ERR_USAGE: too many examples. FSH_ERR_MEMORY. */
FshStatus findings_new(Findings **findings, const FindingsOptions *options, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void findings_free(Findings **findings);

/* Sets *prediction_ret to the class with the highest logit (of equal ones the lower class, as in metrics.h)
 * and *probability_ret to its softmax probability. classes is at least 1. */
void findings_predict(const float *logits, uint64_t classes, int64_t *prediction_ret,
                      double *probability_ret);

/* Adds a sample. pixels: what the network saw; copied if the sample is kept. Ignores a label of -1 (no
 * label). FSH_ERR_MISMATCH: label or prediction is not a class. FSH_ERR_MEMORY. */
FshStatus findings_add_class(Findings *findings, const char *key, size_t key_bytes, const ImageView *pixels,
                             int64_t label, int64_t prediction, double probability, FshError *error);

/* Adds a pair. The three images have one size and kind, and are copied if the pair is kept. psnr: of output,
 * input_psnr: of input, both against target, in dB. FSH_ERR_MISMATCH, FSH_ERR_MEMORY. */
FshStatus findings_add_pair(Findings *findings, const char *key, size_t key_bytes, const ImageView *input,
                            const ImageView *output, const ImageView *target, double psnr, double input_psnr,
                            FshError *error);

typedef enum ExampleReason {
    EXAMPLE_WRONG,
    EXAMPLE_SPREAD,
    EXAMPLE_LEAST_GAIN,
    EXAMPLE_MOST_GAIN
} ExampleReason;

typedef struct Example {
    ExampleReason reason;
    char *key; /* any bytes, NUL-terminated after key_bytes; owned */
    size_t key_bytes;
    uint64_t number; /* position among the samples added, from 0 */
    /* Classes */
    int64_t label, prediction;
    double probability; /* of the prediction, 0..1 */
    Image image;
    /* Pairs */
    double psnr, input_psnr;
    Image input, output, target; /* the same window of each image */
} Example;

/* Fills examples, valid until the next add, and returns how many there are. Classes: wrong predictions, the
 * most confident first. Pairs: those evenly spread, then the lowest gains in ascending order, then the
 * highest in descending order. No sample appears twice. */
size_t findings_examples(const Findings *findings, const Example *examples[FINDINGS_EXAMPLES_MAX]);

#endif
