/* labels.h - which class each image of a flat folder is of: ImageNet's validation set and its like.
 *
 *   Labels *labels = NULL;
 *   FshStatus status = labels_load(&labels, "LOC_val_solution.csv", &error);
 *   if (!status) label = labels_find(labels, "ILSVRC2012_val_00000001.JPEG");    // "n01751748"
 *   labels_free(&labels);
 *
 * A file of lines, in one of the forms that people have, told apart by its first line:
 *   NAME<tab>LABEL[<tab>…]  columns by tabs, the first two count: Tiny ImageNet's val_annotations.txt
 *   NAME,LABEL[,…]          columns by commas, in "quotes" or not; a header line is passed over whose first
 *                           column is a usual one (ImageId, filename, id …). "n03995372 85 1 499 272" (a
 *                           label and a box, once or more) is the label n03995372: Kaggle's
 *                           LOC_val_solution.csv
 *   NAME LABEL              two words: "ILSVRC2012_val_00000001.JPEG 65", Caffe's val.txt
 *   LABEL                   one word: the Nth label is of the image whose name ends in the number N before
 *                           its extension: ILSVRC2012_validation_ground_truth.txt
 * NAME may be a relative path ("./" before it is dropped); it may lack its extension. In columns a label may
 * have spaces ("golden retriever"). Empty lines and lines that begin with # are passed over, but an empty
 * line between labels without names is refused: whether it counts, nobody can know. CRLF line ends and a byte
 * order mark are fine. */
#ifndef FSHARD_TOOLS_JOB_LABELS_H
#define FSHARD_TOOLS_JOB_LABELS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

typedef struct Labels Labels;

/* Reads a file of labels. FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM, FSH_ERR_MEMORY, FSH_ERR_UNSUPPORTED (a folder);
 * FSH_ERR_CORRUPT, with the line: a form that changes on the way, a name given two different labels, a label
 * that cannot be a class folder's name (empty, longer than 255 bytes, begins with ".", holds "/" or control
 * characters), no label at all. On failure *labels is NULL. */
FshStatus labels_load(Labels **labels, const char *path, FshError *error);

/* Returns the label of an image, which stays the labels' own; NULL: it has none. path is relative to the root
 * of the set: the whole is looked for first, then the name alone, then each without the extension. Any
 * thread. */
const char *labels_find(const Labels *labels, const char *path);
/* Returns whether each label has a name; else they are told apart by their line alone, as those of ILSVRC's
 * ground truth, whose numbers are not those of the class folders. */
bool labels_have_names(const Labels *labels);
/* Frees and sets to NULL; NULL is fine. */
void labels_free(Labels **labels);

#endif
