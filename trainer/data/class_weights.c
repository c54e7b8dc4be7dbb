#include "trainer/data/class_weights.h"

#include <stdlib.h>
#include <string.h>

#include "common/display_names.h"

static const double weight_max = 1e6;

/* Sets the weights to one divided by each class's number of samples, in such a measure that the mean over the
 * samples is 1. counts: [class_count], zeros. */
static void balance(float *weights, uint64_t *counts, const TrainingData *data)
{
    const uint64_t samples = data->train->sample_count;
    uint64_t classes = 0;
    for (uint64_t i = 0; i < samples; i++) {
        const int64_t label = fsh_sample_label(data->train, i);
        const int64_t place = data->label_places ? data->label_places[label] : label;
        classes += counts[place]++ == 0;
    }
    for (int64_t c = 0; c < data->class_count; c++)
        weights[c] = counts[c] ? (float)((double)samples / ((double)classes * (double)counts[c])) : 1;
}

/* Reads one class's weight. */
static FshStatus read_weight(const char *path, const char *class_name, const char *text, float *weight_ret,
                             FshError *error)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    if (!*text)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "--class-weights: %s: has no weight for class '%s'",
                             path, class_name);
    if (*end || !(value >= 0 && value <= weight_max))
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "--class-weights: %s: the weight of class '%s' is '%.40s', not a number from 0 "
                             "to %g",
                             path, class_name, text, weight_max);
    *weight_ret = (float)value;
    return FSH_OK;
}

static FshStatus read_weights(float *weights, const char *path, const TrainingData *data, FshError *error)
{
    const size_t count = (size_t)data->class_count;
    char **texts = NULL;
    size_t named = 0;
    bool counts = false;
    FshStatus status = display_names_read(path, data->class_names, count, true, &texts, &named, error);
    if (status)
        return fsh_error_prepend(error, "--class-weights");
    for (size_t i = 0; i < count && !status; i++) {
        status = read_weight(path, data->class_names[i], texts[i], &weights[i], error);
        counts = counts || weights[i] > 0;
    }
    display_names_free(texts, count);
    if (!status && !counts)
        status = fsh_error_set(error, FSH_ERR_MISMATCH, "--class-weights: %s: every weight is 0", path);
    return status;
}

FshStatus class_weights_make(float **weights_ret, const char *text, const TrainingData *data, FshError *error)
{
    const size_t count = (size_t)data->class_count;
    uint64_t *counts = calloc(count + 1, sizeof *counts);
    FshStatus status = FSH_OK;
    *weights_ret = calloc(count + 1, sizeof **weights_ret);
    if (!*weights_ret || !counts)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the weights of %zu classes", count);
    else if (strcmp(text, "balanced") == 0)
        balance(*weights_ret, counts, data);
    else
        status = read_weights(*weights_ret, text, data, error);
    free(counts);
    if (status) {
        free(*weights_ret);
        *weights_ret = NULL;
    }
    return status;
}
