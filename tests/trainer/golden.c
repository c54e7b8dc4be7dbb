#include "tests/trainer/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

json_t *golden_load(const char *name)
{
    const char *source = getenv("FSHARD_SOURCE");
    char path[4096];
    json_error_t error;
    (void)snprintf(path, sizeof path, "%s/tests/trainer/golden/%s", source ? source : ".", name);
    json_t *document = json_load_file(path, 0, &error);
    if (!document)
        fail_msg("%s: %s", path, error.text);
    return document;
}

json_t *golden_find(json_t *array, const char *name)
{
    size_t i;
    json_t *entry;
    json_array_foreach(array, i, entry)
    {
        if (strcmp(golden_text(entry, "name"), name) == 0)
            return entry;
    }
    return NULL;
}

const char *golden_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text)
        fail_msg("golden file: no text '%s'", key);
    return text;
}

int64_t golden_integer(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_boolean(value))
        return json_is_true(value);
    if (!json_is_integer(value))
        fail_msg("golden file: no integer '%s'", key);
    return json_integer_value(value);
}

double golden_real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("golden file: no number '%s'", key);
    return json_number_value(value);
}

static double optional(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    return value ? json_number_value(value) : otherwise;
}

int golden_shape(const json_t *spec, int64_t shape[4])
{
    const json_t *array = json_object_get(spec, "shape");
    const size_t rank = json_array_size(array);
    if (rank < 1 || rank > 4)
        fail_msg("golden file: %s has rank %zu", golden_text(spec, "name"), rank);
    for (size_t i = 0; i < rank && i < 4; i++)
        shape[i] = json_integer_value(json_array_get(array, i));
    return (int)rank;
}

size_t golden_count(const json_t *spec)
{
    int64_t shape[4];
    size_t count = 1;
    for (int i = golden_shape(spec, shape) - 1; i >= 0; i--)
        count *= (size_t)shape[i];
    return count;
}

void golden_uniform(const char *name, double *values, size_t count)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001B3);
    for (size_t i = 0; i < count; i++) {
        uint64_t z = hash + (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
        z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
        z ^= z >> 31;
        values[i] = (double)(z >> 40) * 0x1p-23 - 1;
    }
}

static double *uniform_of(const json_t *spec, size_t *count)
{
    *count = golden_count(spec);
    double *values = malloc(*count * sizeof *values);
    assert_non_null(values);
    golden_uniform(golden_text(spec, "name"), values, *count);
    return values;
}

void golden_generate(const json_t *spec, float *values)
{
    const double scale = optional(spec, "scale", 1), offset = optional(spec, "offset", 0);
    const double levels = optional(spec, "levels", 0);
    size_t count;
    double *uniform = uniform_of(spec, &count);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(offset + scale * (levels > 0 ? floor(uniform[i] * levels) / levels : uniform[i]));
    free(uniform);
}

void golden_generate_bytes(const json_t *spec, uint8_t *values)
{
    size_t count;
    double *uniform = uniform_of(spec, &count);
    for (size_t i = 0; i < count; i++)
        values[i] = (uint8_t)((uniform[i] + 1) * 128);
    free(uniform);
}

static size_t sample_place(size_t i, size_t count, size_t samples)
{
    return count <= samples ? i : (i * UINT64_C(2654435761) + 12345) % count;
}

double golden_error(const json_t *summary, const float *values, size_t count)
{
    const json_t *samples = json_object_get(summary, "samples");
    const size_t sample_count = json_array_size(samples);
    const double tiny = 1e-30, norm = golden_real(summary, "norm"),
                 floor_norm = optional(summary, "floor", 0);
    double square = 0, sum = 0, difference = 0, reference = tiny;
    if (count != golden_count(summary) || sample_count == 0)
        fail_msg("golden file: %s has %zu values, ours %zu", golden_text(summary, "name"),
                 golden_count(summary), count);
    for (size_t i = 0; i < count; i++) {
        square += (double)values[i] * (double)values[i];
        sum += (double)values[i];
    }
    for (size_t i = 0; i < sample_count; i++) {
        const double wanted = json_number_value(json_array_get(samples, i));
        const double got = (double)values[sample_place(i, count, sample_count)];
        difference += (got - wanted) * (got - wanted);
        reference += wanted * wanted;
    }
    const double scale = fmax(fmax(norm, floor_norm), tiny);
    /* Samples may all lie where a tensor is zero but for rounding. */
    const double share = norm * sqrt((double)sample_count / (double)count);
    const double of_samples = sqrt(difference) / fmax(fmax(sqrt(reference), share), floor_norm);
    const double of_norm = fabs(sqrt(square) - norm) / scale;
    const double of_sum = fabs(sum - golden_real(summary, "sum")) / (scale * sqrt((double)count));
    const double worst = fmax(of_samples, fmax(of_norm, of_sum));
    return isfinite(square) && isfinite(worst) ? worst : INFINITY;
}

void golden_compare_cases(const char *name, size_t least, double tolerance, GoldenCaseError case_error,
                          const void *context)
{
    json_t *document = golden_load(name), *c;
    double worst = 0;
    size_t i;
    json_array_foreach(json_object_get(document, "cases"), i, c)
    {
        const double relative = case_error(document, c, context);
        print_message("  %-62s %.1e\n", golden_text(c, "name"), relative);
        worst = fmax(worst, relative);
    }
    json_decref(document);
    assert_true(i >= least);
    if (!(worst < tolerance))
        fail_msg("worst relative error %.2e, allowed %.0e", worst, tolerance);
}
