#include "trainer/data/class_weights.h"

#include <stdlib.h>
#include <string.h>

#include "common/display_names.h"

static const double weight_max = 1e6;

static const char *const options[] = {
    [CLASS_WEIGHTS] = "--class-weights", [POSITIVE_WEIGHTS] = "--pos-weight"};

/* Counts the training samples of each of the network's classes, [class_count]. */
static FshStatus count_classes(uint64_t *counts, const TrainingData *data, FshError *error)
{
    if (!data->label_places || training_data_labels(data, true)) {
        training_data_count(data, true, counts);
        return FSH_OK;
    }
    uint64_t *own = calloc(data->own_class_count + 1, sizeof *own);
    if (!own)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the counts of classes");
    training_data_count(data, true, own);
    for (size_t c = 0; c < data->own_class_count; c++)
        if (data->label_places[c] >= 0)
            counts[data->label_places[c]] += own[c];
    free(own);
    return FSH_OK;
}

/* Sets the weights to one divided by each class's number of samples, in such a measure that the mean over the
 * samples is 1. */
static void balance_classes(float *weights, const uint64_t *counts, const TrainingData *data)
{
    uint64_t classes = 0, samples = 0;
    for (int64_t c = 0; c < data->class_count; c++) {
        classes += counts[c] > 0;
        samples += counts[c];
    }
    for (int64_t c = 0; c < data->class_count; c++)
        weights[c] = counts[c] ? (float)((double)samples / ((double)classes * (double)counts[c])) : 1;
}

/* Sets the weights of positives so that a class's positives and negatives weigh the same. */
static void balance_positives(float *weights, const uint64_t *counts, const TrainingData *data)
{
    const uint64_t samples = data->train->sample_count;
    for (int64_t c = 0; c < data->class_count; c++)
        weights[c] =
            counts[c] && counts[c] < samples ? (float)((double)(samples - counts[c]) / (double)counts[c]) : 1;
}

/* Reads one class's weight. */
static FshStatus read_weight(const char *option, const char *path, const char *class_name, const char *text,
                             float *weight_ret, FshError *error)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    if (!*text)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: %s: has no weight for class '%s'", option, path,
                             class_name);
    if (*end || !(value >= 0 && value <= weight_max))
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: %s: the weight of class '%s' is '%.40s', not a number from 0 to %g", option,
                             path, class_name, text, weight_max);
    *weight_ret = (float)value;
    return FSH_OK;
}

static FshStatus read_weights(float *weights, const char *option, const char *path, const TrainingData *data,
                              FshError *error)
{
    const size_t count = (size_t)data->class_count;
    char **texts = NULL;
    size_t named = 0;
    bool counts = false;
    FshStatus status = display_names_read(path, data->class_names, count, true, &texts, &named, error);
    if (status)
        return fsh_error_prepend(error, "%s", option);
    for (size_t i = 0; i < count && !status; i++) {
        status = read_weight(option, path, data->class_names[i], texts[i], &weights[i], error);
        counts = counts || weights[i] > 0;
    }
    display_names_free(texts, count);
    if (!status && !counts)
        status = fsh_error_set(error, FSH_ERR_MISMATCH, "%s: %s: every weight is 0", option, path);
    return status;
}

/* Reads the one weight of all classes. Returns false if text is no number above 0. */
static bool read_one_weight(float *weights, const char *text, size_t count)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    if (!*text || *end || !(value > 0 && value <= weight_max))
        return false;
    for (size_t i = 0; i < count; i++)
        weights[i] = (float)value;
    return true;
}

FshStatus class_weights_make(float **weights_ret, ClassWeighing weighing, const char *text,
                             const TrainingData *data, FshError *error)
{
    const size_t count = (size_t)data->class_count;
    uint64_t *counts = calloc(count + 1, sizeof *counts);
    FshStatus status = FSH_OK;
    float *weights = *weights_ret = calloc(count + 1, sizeof *weights);
    const bool balanced = strcmp(text, "balanced") == 0;
    if (!weights || !counts)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the weights of %zu classes", count);
    else if (balanced)
        status = count_classes(counts, data, error);
    else if (weighing == CLASS_WEIGHTS || !read_one_weight(weights, text, count))
        status = read_weights(weights, options[weighing], text, data, error);
    if (!status && balanced && weighing == CLASS_WEIGHTS)
        balance_classes(weights, counts, data);
    else if (!status && balanced)
        balance_positives(weights, counts, data);
    free(counts);
    if (status) {
        free(weights);
        *weights_ret = NULL;
    }
    return status;
}
