#include "trainer/report/label_scores.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/csv.h"
#include "common/file.h"
#include "common/json_text.h"

/* Codes of scores are in the order of the scores. CODE_NONE: not evaluated; CODE_NAN is below all numbers. */
enum { CODE_NONE = 0, CODE_NAN = 1 };
static const uint32_t code_of_zero = 0x80000000U;

static FshStatus out_of_memory(const LabelScores *scores, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY,
                         "out of memory for the scores of %" PRIu64 " samples and %" PRIu64 " classes",
                         scores->samples, scores->classes);
}

/* ---- noting ---- */

static uint32_t code_of(float score)
{
    uint32_t bits;
    if (isnan(score))
        return CODE_NAN;
    memcpy(&bits, &score, sizeof bits);
    return bits & code_of_zero ? ~bits : bits | code_of_zero;
}

static uint32_t code_at(const LabelScores *scores, uint64_t place)
{
    return (uint32_t)(scores->words[place / 2] >> (place % 2 ? 32 : 0));
}

/* Returns the bits of the targets, behind the codes. */
static uint64_t *hot_words(const LabelScores *scores)
{
    return scores->words + (scores->samples * scores->classes + 1) / 2;
}

static bool is_hot(const LabelScores *scores, uint64_t place)
{
    return hot_words(scores)[place / 64] >> place % 64 & 1;
}

FshStatus label_scores_reset(LabelScores *scores, uint64_t samples, uint64_t classes, FshError *error)
{
    if (scores->samples != samples || scores->classes != classes || !scores->words) {
        uint64_t places = 0;
        label_scores_free(scores);
        scores->samples = samples;
        scores->classes = classes;
        if (__builtin_mul_overflow(samples, classes, &places) || places > SIZE_MAX / 16)
            return out_of_memory(scores, error);
        scores->word_count = (size_t)((places + 1) / 2 + (places + 63) / 64);
        scores->words = malloc((scores->word_count + 1) * sizeof *scores->words);
        scores->rows = calloc(classes + 1, sizeof *scores->rows);
    }
    if (!scores->words || !scores->rows)
        return out_of_memory(scores, error);
    memset(scores->words, 0, scores->word_count * sizeof *scores->words);
    scores->evaluated = 0;
    return FSH_OK;
}

void label_scores_add(LabelScores *scores, uint64_t sample, const float *logits, const float *targets)
{
    uint64_t *hot = hot_words(scores);
    for (uint64_t k = 0; k < scores->classes; k++) {
        const uint64_t place = sample * scores->classes + k;
        scores->words[place / 2] |= (uint64_t)code_of(logits[k]) << (place % 2 ? 32 : 0);
        hot[place / 64] |= (uint64_t)(targets[k] > 0) << place % 64;
    }
}

void label_scores_free(LabelScores *scores)
{
    free(scores->words);
    free(scores->rows);
    *scores = (LabelScores){0};
}

/* ---- measuring ---- */

/* Sorts 33-bit values, ascending, in three rounds of 11 bits. other: as much room. Returns where they are. */
static uint64_t *sort_values(uint64_t *values, uint64_t *other, uint64_t count)
{
    enum { BITS = 11, BINS = 1 << BITS, ROUNDS = 3 };
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t starts[BINS + 1] = {0};
        for (uint64_t i = 0; i < count; i++)
            starts[(values[i] >> round * BITS & (BINS - 1)) + 1]++;
        for (int bin = 0; bin < BINS; bin++)
            starts[bin + 1] += starts[bin];
        for (uint64_t i = 0; i < count; i++)
            other[starts[values[i] >> round * BITS & (BINS - 1)]++] = values[i];
        uint64_t *sorted = other;
        other = values;
        values = sorted;
    }
    return values;
}

/* Returns the average precision of values (twice a code, plus 1 for what has the class), ascending; hot: how
 * many have it. */
static double average_precision(const uint64_t *values, uint64_t count, uint64_t hot)
{
    uint64_t seen = 0, right = 0, before = 0;
    double sum = 0;
    for (uint64_t i = count; i-- > 0;) {
        seen++;
        right += values[i] & 1;
        if (i > 0 && values[i - 1] >> 1 == values[i] >> 1)
            continue; /* the same threshold */
        sum += (double)(right - before) * (double)right / (double)seen;
        before = right;
    }
    return hot ? 100 * sum / (double)hot : NAN;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100 * (double)part / (double)whole : NAN;
}

/* Measures a class over the samples first to end - 1. */
static void measure_class(LabelScores *scores, uint64_t class, uint64_t first, uint64_t end, uint64_t *values,
                          uint64_t *other)
{
    LabelScoreRow *row = &scores->rows[class];
    uint64_t count = 0;
    *row = (LabelScoreRow){0};
    for (uint64_t sample = first; sample < end; sample++) {
        const uint64_t place = sample * scores->classes + class;
        const uint64_t code = code_at(scores, place);
        if (code == CODE_NONE)
            continue;
        const bool hot = is_hot(scores, place), taken = code > code_of_zero;
        row->samples += hot;
        row->taken += taken;
        row->right += hot && taken;
        values[count++] = code << 1 | hot;
    }
    row->average_precision = average_precision(sort_values(values, other, count), count, row->samples);
    row->precision = percent(row->right, row->taken);
    row->recall = percent(row->right, row->samples);
    row->f1 = percent(2 * row->right, row->samples + row->taken);
}

static void add_up(LabelScores *scores, uint64_t first, uint64_t end)
{
    uint64_t samples = 0, taken = 0, right = 0, with = 0;
    double precision = 0, f1 = 0;
    for (uint64_t k = 0; k < scores->classes; k++) {
        const LabelScoreRow *row = &scores->rows[k];
        samples += row->samples;
        taken += row->taken;
        right += row->right;
        f1 += isnan(row->f1) ? 0 : row->f1;
        with += row->samples > 0;
        precision += row->samples ? row->average_precision : 0;
    }
    scores->mean_average_precision = with ? precision / (double)with : NAN;
    scores->f1 = scores->classes ? f1 / (double)scores->classes : NAN;
    scores->f1_micro = samples + taken ? percent(2 * right, samples + taken) : 0;
    scores->evaluated = 0;
    for (uint64_t sample = first; sample < end; sample++)
        scores->evaluated += code_at(scores, sample * scores->classes) != CODE_NONE;
}

FshStatus label_scores_measure(LabelScores *scores, FshError *error)
{
    return label_scores_measure_part(scores, 0, scores->samples, error);
}

FshStatus label_scores_measure_part(LabelScores *scores, uint64_t first, uint64_t end, FshError *error)
{
    uint64_t *room = malloc(2 * (scores->samples + 1) * sizeof *room);
    if (!room)
        return out_of_memory(scores, error);
    for (uint64_t k = 0; k < scores->classes; k++)
        measure_class(scores, k, first, end, room, room + scores->samples + 1);
    free(room);
    add_up(scores, first, end);
    return FSH_OK;
}

/* ---- tables ---- */

static FshStatus append_row(Buffer *text, const LabelScores *scores, const char *const *names, uint64_t class,
                            FshError *error)
{
    const LabelScoreRow *row = &scores->rows[class];
    char cells[96];
    (void)snprintf(cells, sizeof cells, "%" PRIu64 ",", class);
    FshStatus status = buffer_append_text(text, cells, error);
    if (!status && names)
        status = csv_append_text(text, names[class], strlen(names[class]), error);
    (void)snprintf(cells, sizeof cells, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64, row->samples, row->right,
                   row->taken);
    if (!status)
        status = buffer_append_text(text, cells, error);
    const double values[] = {row->average_precision, row->recall, row->precision, row->f1};
    for (size_t i = 0; i < sizeof values / sizeof *values && !status; i++)
        status = csv_append_number(text, values[i], 6, error);
    return status ? status : buffer_append_text(text, "\n", error);
}

FshStatus label_scores_write(const LabelScores *scores, const char *const *names, const char *path,
                             FshError *error)
{
    Buffer text = {0};
    FshStatus status = buffer_append_text(
        &text, "index,class,samples,correct,predicted,average_precision,recall,precision,f1\n", error);
    for (uint64_t k = 0; k < scores->classes && !status; k++)
        status = append_row(&text, scores, names, k, error);
    if (!status)
        status = file_write_atomic(path, text.bytes, text.length, true, false, error);
    buffer_free(&text);
    return status;
}

json_t *label_scores_json(const LabelScores *scores, const char *const *names)
{
    json_t *array = json_array();
    for (uint64_t k = 0; array && k < scores->classes; k++) {
        const LabelScoreRow *row = &scores->rows[k];
        json_t *object = json_pack("{s:I, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "index", (json_int_t)k,
                                   "class", names ? json_text(names[k]) : json_integer((json_int_t)k),
                                   "samples", (json_int_t)row->samples, "correct", (json_int_t)row->right,
                                   "predicted", (json_int_t)row->taken, "average_precision",
                                   json_number(row->average_precision), "recall", json_number(row->recall),
                                   "precision", json_number(row->precision), "f1", json_number(row->f1));
        if (!object || json_array_append_new(array, object)) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}
