#include "trainer/report/findings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "imaging/resample.h"
#include "trainer/report/class_counts.h"

enum {
    CLASS_EXAMPLES = 48,
    PAIR_EXAMPLES = 12,
    CLASS_EDGE_PX = 128,
    PAIR_EDGE_PX = 256,
    WINDOW_STEPS = 4, /* candidate windows begin a quarter of a window apart */
    SAMPLE_STEP = 4,  /* and are compared by every fourth pixel of every fourth row */
};

/* An example and the number that it is ranked by. */
typedef struct Entry {
    Example example;
    double rank;
} Entry;

/* The entries of the highest ranks, highest first; of equal ones the earlier first. */
typedef struct List {
    Entry *entries; /* [capacity]; owned */
    size_t count, capacity;
    ExampleReason reason;
} List;

enum { LIST_FIRST, LIST_LEAST, LIST_MOST, LIST_COUNT };

struct Findings {
    FindingsOptions options;
    uint64_t added; /* samples so far */
    /* LIST_FIRST: wrong predictions, or pairs evenly spread. LIST_LEAST, LIST_MOST: pairs only. */
    List lists[LIST_COUNT];
    Resampler *resampler;
};

/* ---- making ---- */

static FshStatus list_new(List *list, ExampleReason reason, size_t capacity, FshError *error)
{
    list->reason = reason;
    list->capacity = capacity;
    list->entries = calloc(capacity ? capacity : 1, sizeof *list->entries);
    return list->entries ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "examples: out of memory");
}

static void example_free(Example *example)
{
    free(example->key);
    image_free(&example->image);
    image_free(&example->input);
    image_free(&example->output);
    image_free(&example->target);
}

FshStatus findings_new(Findings **findings_ret, const FindingsOptions *options, FshError *error)
{
    *findings_ret = NULL;
    if (options->examples > FINDINGS_EXAMPLES_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "%zu examples: at most %d can be kept", options->examples,
                             FINDINGS_EXAMPLES_MAX);
    Findings *findings = calloc(1, sizeof *findings);
    if (!findings)
        return fsh_error_set(error, FSH_ERR_MEMORY, "findings: out of memory");
    findings->options = *options;
    FindingsOptions *chosen = &findings->options;
    if (chosen->examples == 0)
        chosen->examples = chosen->pairs ? PAIR_EXAMPLES : CLASS_EXAMPLES;
    if (chosen->edge_px == 0)
        chosen->edge_px = chosen->pairs ? PAIR_EDGE_PX : CLASS_EDGE_PX;
    const size_t extremes = chosen->pairs ? chosen->examples / 4 : 0;
    FshStatus status = list_new(&findings->lists[LIST_FIRST], chosen->pairs ? EXAMPLE_SPREAD : EXAMPLE_WRONG,
                                chosen->examples - 2 * extremes, error);
    if (!status)
        status = list_new(&findings->lists[LIST_LEAST], EXAMPLE_LEAST_GAIN, extremes, error);
    if (!status)
        status = list_new(&findings->lists[LIST_MOST], EXAMPLE_MOST_GAIN, extremes, error);
    if (!status && !chosen->pairs)
        status = resampler_new(&findings->resampler, error);
    *findings_ret = findings;
    if (status)
        findings_free(findings_ret);
    return status;
}

void findings_free(Findings **findings_ret)
{
    Findings *findings = *findings_ret;
    if (!findings)
        return;
    for (size_t i = 0; i < LIST_COUNT; i++) {
        for (size_t j = 0; findings->lists[i].entries && j < findings->lists[i].capacity; j++)
            example_free(&findings->lists[i].entries[j].example);
        free(findings->lists[i].entries);
    }
    resampler_free(&findings->resampler);
    free(findings);
    *findings_ret = NULL;
}

/* ---- examples ---- */

/* Returns the place for a new entry of this rank, or NULL if the list is full of higher ones. An entry that
 * falls out of the list leaves its memory to the new one. */
static Entry *list_place(List *list, double rank)
{
    size_t at = list->count;
    while (at > 0 && rank > list->entries[at - 1].rank)
        at--;
    if (at == list->capacity)
        return NULL;
    if (list->count < list->capacity)
        list->count++;
    Entry last = list->entries[list->count - 1];
    memmove(&list->entries[at + 1], &list->entries[at], (list->count - 1 - at) * sizeof *list->entries);
    list->entries[at] = last;
    list->entries[at].rank = rank;
    list->entries[at].example.reason = list->reason;
    return &list->entries[at];
}

static FshStatus set_key(Findings *findings, Example *example, const char *key, size_t key_bytes,
                         FshError *error)
{
    free(example->key);
    example->number = findings->added;
    example->key = text_copy(key, key_bytes);
    example->key_bytes = example->key ? key_bytes : 0;
    return example->key ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "examples: out of memory");
}

/* Copies the image, shrunk if it is larger than edge_px. */
static FshStatus copy_small(Findings *findings, const ImageView *pixels, Image *image, FshError *error)
{
    uint32_t width, height;
    if (!resample_fit(pixels->width, pixels->height, findings->options.edge_px, true, &width, &height))
        return image_copy_view(image, pixels, error);
    FshStatus status = image_reserve(image, width, height, pixels->channels, error);
    return status ? status
                  : resample_view(findings->resampler, pixels, NULL, width, height, RESAMPLE_BILINEAR, NULL,
                                  false, image->pixels, error);
}

void findings_predict(const float *logits, uint64_t classes, int64_t *prediction_ret, double *probability_ret)
{
    const int64_t best = class_of_logits(logits, classes);
    double sum = 0;
    for (uint64_t c = 0; c < classes; c++)
        sum += isnan(logits[c]) ? 0 : exp((double)logits[c] - (double)logits[best]);
    *prediction_ret = best;
    *probability_ret = sum > 0 ? 1 / sum : 0;
}

FshStatus findings_add_class(Findings *findings, const char *key, size_t key_bytes, const ImageView *pixels,
                             int64_t label, int64_t prediction, double probability, FshError *error)
{
    const uint64_t classes = findings->options.classes;
    if (label == -1)
        return FSH_OK;
    if (findings->options.pairs || label < 0 || (uint64_t)label >= classes || prediction < 0 ||
        (uint64_t)prediction >= classes)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "label %lld, prediction %lld: not among %llu classes",
                             (long long)label, (long long)prediction, (unsigned long long)classes);
    FshStatus status = FSH_OK;
    Entry *entry = label == prediction
                       ? NULL
                       : list_place(&findings->lists[LIST_FIRST], isnan(probability) ? -1 : probability);
    if (entry) {
        entry->example.label = label;
        entry->example.prediction = prediction;
        entry->example.probability = probability;
        status = set_key(findings, &entry->example, key, key_bytes, error);
        if (!status)
            status = copy_small(findings, pixels, &entry->example.image, error);
    }
    findings->added++;
    return status;
}

/* Returns how much two windows differ: the squared differences of every SAMPLE_STEP-th pixel in one
 * channel. */
static uint64_t window_difference(const ImageView *a, const ImageView *b)
{
    uint64_t sum = 0;
    const size_t channel = a->channels / 2;
    for (uint32_t y = 0; y < a->height; y += SAMPLE_STEP)
        for (uint32_t x = 0; x < a->width; x += SAMPLE_STEP) {
            const size_t at = (size_t)x * a->channels + channel;
            const int difference = a->pixels[y * a->stride_bytes + at] - b->pixels[y * b->stride_bytes + at];
            sum += (uint64_t)(difference * difference);
        }
    return sum;
}

typedef struct Window {
    uint32_t left, top, width, height;
} Window;

static ImageView cut(const ImageView *view, const Window *window)
{
    return image_view_part(view, window->left, window->top, window->width, window->height);
}

/* Returns the window where input and target differ most, that is where most was to be restored; the middle of
 * an image may be plain sky. */
static Window find_window(const ImageView *input, const ImageView *target, uint32_t edge)
{
    Window window = {.width = input->width < edge ? input->width : edge,
                     .height = input->height < edge ? input->height : edge};
    const uint32_t most_left = input->width - window.width, most_top = input->height - window.height;
    const uint32_t step = edge > WINDOW_STEPS ? edge / WINDOW_STEPS : 1;
    Window best = window;
    uint64_t most = 0;
    for (uint32_t y = 0; y < most_top + step; y += step)
        for (uint32_t x = 0; x < most_left + step; x += step) {
            window.left = x < most_left ? x : most_left;
            window.top = y < most_top ? y : most_top;
            const ImageView a = cut(input, &window), b = cut(target, &window);
            const uint64_t difference = window_difference(&a, &b);
            if (difference > most) {
                most = difference;
                best = window;
            }
        }
    return best;
}

static bool same_shape(const ImageView *a, const ImageView *b)
{
    return a->width == b->width && a->height == b->height && a->channels == b->channels;
}

/* Returns whether the next sample is one of those evenly spread over the split. */
static bool is_spread(const Findings *findings)
{
    const List *list = &findings->lists[LIST_FIRST];
    if (list->count == list->capacity)
        return false;
    const uint64_t wanted =
        (uint64_t)(((double)list->count + 0.5) * (double)findings->options.samples / (double)list->capacity);
    return findings->added >= wanted;
}

FshStatus findings_add_pair(Findings *findings, const char *key, size_t key_bytes, const ImageView *input,
                            const ImageView *output, const ImageView *target, double psnr, double input_psnr,
                            FshError *error)
{
    if (!findings->options.pairs || !same_shape(input, output) || !same_shape(input, target))
        return fsh_error_set(error, FSH_ERR_MISMATCH, "input, output and target are not of one size");
    /* NaN: both are infinite, and there is nothing to gain. */
    const double gain = isnan(psnr - input_psnr) ? 0 : psnr - input_psnr;
    Entry *entries[LIST_COUNT] = {
        /* in the order of the samples: each ranks below those before it */
        is_spread(findings) ? list_place(&findings->lists[LIST_FIRST], -(double)findings->added) : NULL,
        list_place(&findings->lists[LIST_LEAST], -gain), list_place(&findings->lists[LIST_MOST], gain)};
    FshStatus status = FSH_OK;
    Window window = {0};
    for (size_t i = 0; i < LIST_COUNT && !status; i++) {
        if (!entries[i])
            continue;
        if (window.width == 0)
            window = find_window(input, target, findings->options.edge_px);
        Example *example = &entries[i]->example;
        const ImageView views[] = {cut(input, &window), cut(output, &window), cut(target, &window)};
        example->psnr = psnr;
        example->input_psnr = input_psnr;
        status = set_key(findings, example, key, key_bytes, error);
        if (!status)
            status = image_copy_view(&example->input, &views[0], error);
        if (!status)
            status = image_copy_view(&example->output, &views[1], error);
        if (!status)
            status = image_copy_view(&example->target, &views[2], error);
    }
    findings->added++;
    return status;
}

/* ---- what came out ---- */

static bool is_listed(const List *list, uint64_t number)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->entries[i].example.number == number)
            return true;
    return false;
}

size_t findings_examples(const Findings *findings, const Example *examples[FINDINGS_EXAMPLES_MAX])
{
    const List *lists = findings->lists;
    size_t count = 0;
    for (size_t i = 0; i < LIST_COUNT; i++)
        for (size_t j = 0; j < lists[i].count; j++) {
            const Example *example = &lists[i].entries[j].example;
            /* An extreme is listed as such only; with few pairs one may be both. */
            if ((i == LIST_FIRST && is_listed(&lists[LIST_MOST], example->number)) ||
                (i != LIST_LEAST && is_listed(&lists[LIST_LEAST], example->number)))
                continue;
            examples[count++] = example;
        }
    return count;
}
