/* training_data.h - a dataset as a network needs it: of the right kind, checked, and its images' sizes known.
 *
 *   TrainingData data;
 *   training_data_open(&data, &(TrainingDataSource){.path = "shards/", .train_split = "train"}, &error);
 *   // data.train, data.evaluation; a pair's input is field data.input_field, its target data.target_field
 *   training_data_close(&data);
 *
 * Classes: one image and a label. Pairs: the first field goes in, the last is what shall come out. Masks: an
 * image and the classes of its pixels.
 *
 * Threads: constant once opened. */
#ifndef FSHARD_TRAINER_DATA_TRAINING_DATA_H
#define FSHARD_TRAINER_DATA_TRAINING_DATA_H

#include "formats/fshard.h"
#include "trainer/data/sample_choice.h"
#include "trainer/data/training_labels.h"
#include "trainer/data/training_sets.h"

/* What is opened. */
typedef struct TrainingDataSource {
    const char *path; /* a dataset folder or its dataset.json; pairs also as others have written them: see
                         fsh_open */
    const char *const *more_paths; /* [more_count]: of others, which are used with it as one; borrowed */
    size_t more_count;
    const char *const *names;     /* [1 + more_count]: what to call them; NULL: as their paths */
    FshKind kind;                 /* what the network takes; 0: whatever the dataset holds */
    const char *train_split;      /* its name; NULL: none is opened */
    const char *evaluation_split; /* its name; NULL: "val", else "test", else none */
    const ChoiceOptions *choice;  /* of samples and classes; NULL: all */
    const LabelSources
        *labels;   /* beside the dataset, of classes; NULL, or without a path: the records' own */
    uint64_t seed; /* by which --limit draws */
} TrainingDataSource;

typedef struct TrainingData {
    FshDataset *dataset; /* owned */
    TrainingSets sets;   /* of which it was joined; zeroed for images that nobody has packed */
    SampleChoice choice; /* what has been chosen of it: splits and classes are what is left */
    FshKind kind;
    const FshSplit *train;      /* NULL where none was asked for */
    const FshSplit *evaluation; /* NULL: the dataset has none */
    /* classes: at least 2, to evaluate 1, and of several labels 1; of numbers how many a sample has;
     * pairs: 0; masks: one more than the largest value */
    int64_t class_count;
    /* [class_count], in the order of the network's logits; of masks "0", "1", …; borrowed */
    char *const *class_names;
    char **mask_names; /* those of masks, own_class_count of them; owned */
    /* The dataset's own, or those of its labels, whatever the network's are; borrowed. */
    char *const *own_class_names;
    size_t own_class_count;
    LabelKind label_kind;  /* of the network's outputs; pairs: LABELS_ONE */
    TrainingLabels labels; /* beside the dataset; owned */
    char **display_names;  /* [class_count]: how each is shown, "tench (n01440764)"; owned; NULL before
                             training_data_name_classes */
    /* of own_class_names among class_names; borrowed; NULL: the same classes in the same order, as
     * training_data_open leaves it; -1: not among them, and no sample has it */
    const int32_t *label_places;
    float
        *class_weights; /* [class_count]: how much each counts in the loss (class_weights.h); owned; NULL: all
                             alike */
    /* [class_count], of several labels: how much a sample that has the class counts in its loss; owned; NULL:
     * as one that has not */
    float *positive_weights;
    unsigned input_field, target_field;    /* classes: both 0 */
    const char *input_name, *target_name;  /* borrowed from the manifest: "blurry", "sharp" */
    uint32_t channels;                     /* 1 or 3 */
    double mean[4], standard_deviation[4]; /* of full scale; a deviation is at least one grey level */
    bool inputs_alone;                     /* images that nobody has packed: neither labels nor targets */
    bool paired_names;                     /* most likely pairs, not classes (paired_classes.h) */
    int mask_class;                        /* paired_names: the class that looks like masks; -1: none */
    bool measured;                         /* they are the dataset's; else ImageNet's, for it has none */
    uint32_t short_edge;                   /* pixels: the median over images taken evenly from the split */
    bool jpegs;                            /* most of those are JPEG files, or their planes */
    bool uniform;                          /* every image of the dataset is a square of this edge */
    /* Of all images, pixels; 0: the dataset does not say. */
    uint32_t width_min, width_max, height_min, height_max;
} TrainingData;

/* Opens a dataset. FSH_ERR_NOT_FOUND: no such dataset or split. FSH_ERR_MISMATCH: the other kind, fewer than
 * two classes (none at all without train_split), a sample without a label or with one beyond the classes
 * (named by shard, record and key), an evaluation class that training has no sample of, fewer than two fields
 * in pairs, an empty split. And what fsh_join, training_sets_check_splits, sample_choice_make and
 * training_labels_read fail with. On failure nothing is held. */
FshStatus training_data_open(TrainingData *data, const TrainingDataSource *source, FshError *error);
/* Takes over images that nobody has packed (image_source.h), their split as the one to evaluate: of
 * class_count classes (FSH_KIND_CLASSES, FSH_KIND_MASKS), or inputs of pairs, with so many channels. Mean
 * and deviation are ImageNet's. */
void training_data_take_images(TrainingData *data, FshDataset *images, FshKind kind, int64_t class_count,
                               uint32_t channels);
/* Returns the labels of the split that is trained on, or evaluated, where they stand beside the dataset;
 * NULL: they are the records' own. */
const SampleLabels *training_data_labels(const TrainingData *data, bool training);
/* Adds the samples of each of the dataset's own classes to counts, [own_class_count], of the split that is
 * trained on, or evaluated; of several labels one for each class of a sample, of numbers and without that
 * split none. */
void training_data_count(const TrainingData *data, bool training, uint64_t *counts);
/* Returns the width of the rows of targets that the samples have: the network's outputs; 0: they have labels,
 * or are pairs. */
size_t training_data_row_width(const TrainingData *data);
/* Fills display_names from the dataset's manifest or, if that has none, from the file that
 * $FSHARD_CLASS_NAMES names (display_names.h). To be called once class_names are final. FSH_ERR_MEMORY; what
 * reading that file may fail with. */
FshStatus training_data_name_classes(TrainingData *data, FshError *error);
/* Frees what data owns; zeroed is fine. */
void training_data_close(TrainingData *data);

/* Checks that pairs are large enough for a crop; they are never enlarged. FSH_ERR_MISMATCH: an image of split
 * (of data's dataset) is smaller than size x size; the message names the first one, its size, how many there
 * are, and the largest crop that all allow. Reads records' headers only where the manifest does not already
 * say that all are large enough. Images whose size the container does not know pass; the loader meets them.
 * Classes always pass: their crops are resized. */
FshStatus training_data_check_crop(const TrainingData *data, const FshSplit *split, uint32_t size,
                                   FshError *error);

#endif
