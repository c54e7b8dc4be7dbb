/* sample_choice.h - which samples and classes of a dataset a run takes, chosen when it begins.
 *
 *   --where CONDITION   samples of all splits that meet it (sample_condition.h)
 *   --classes FILE      samples of these classes, which are the network's, in the order of the file
 *   --limit 10%         of each class so many of the training split's samples that are left
 *
 * What a class has is counted when --where has chosen. --limit draws by the seed and the sample's place in
 * its split, so that what a smaller limit takes is among what a larger one takes. A run that trains leaves
 * classes out of the network of which --where leaves no sample in any of its splits, as if their folders
 * were not there; --classes keeps those that it names.
 *
 * The choice is made of the index rows of the files, and of the records' keys where the condition asks for
 * them: the same on every rank.
 *
 * Threads: one; it uses all cores itself. */
#ifndef FSHARD_TRAINER_DATA_SAMPLE_CHOICE_H
#define FSHARD_TRAINER_DATA_SAMPLE_CHOICE_H

#include "common/options.h"
#include "formats/fshard.h"

/* The options; NULL: not given. */
typedef struct ChoiceOptions {
    const char *where, *limit, *classes;
} ChoiceOptions;

/* Writes the rows of the options to rows, and returns their number. */
size_t choice_rows(ChoiceOptions *choice, Option *rows);

/* What has been chosen. */
typedef struct SampleChoice {
    bool made;                  /* an option has chosen */
    bool limit_is_idle;         /* no class has more samples than --limit takes of it */
    char digest[33];            /* of the chosen samples and classes, in their order; "": none was made */
    char evaluation_digest[33]; /* of those to evaluate on, and of the classes; "": all of the split's */
    double seconds;             /* that it took */
    uint64_t train_of;          /* samples of the splits before; 0: no such split */
    uint64_t evaluation_of;
    size_t class_count, class_of; /* classes now, and before */
    uint64_t unread;              /* records whose key could not be read, which were not chosen */
    char left_out[200]; /* "'cat', 'dog' and 3 more": classes that --where has left no sample of; or "" */
    char empty[200];    /* likewise: classes of the network without a training sample */
    char unmet[400];    /* names in files of keys that no sample has, in a sentence; or "" */
} SampleChoice;

/* Chooses from the splits of an open dataset: *train and *evaluation (each may be NULL, where there is none)
 * become the chosen ones, and its classes those of the network. Of a run that only evaluates --where leaves
 * the classes as they are. FSH_ERR_USAGE: a condition or limit that is none (the message shows the place), or
 * one for classes where there are pairs. FSH_ERR_MISMATCH: a class or name that is not there, a split without
 * a chosen sample, fewer than two classes to train. FSH_ERR_NOT_FOUND and such: a file that is named.
 * FSH_ERR_INTERRUPTED. */
FshStatus sample_choice_make(SampleChoice *made, const ChoiceOptions *options, uint64_t seed,
                             FshDataset *dataset, const FshSplit **train, const FshSplit **evaluation,
                             FshError *error);

#endif
