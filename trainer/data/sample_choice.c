#include "trainer/data/sample_choice.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "common/pool.h"
#include "common/progress.h"
#include "common/text.h"
#include "formats/names.h"
#include "formats/xxh3.h"
#include "trainer/data/class_draw.h"
#include "trainer/data/name_list.h"
#include "trainer/data/sample_condition.h"

enum {
    BLOCK_SAMPLES = 1 << 14, /* that a thread takes at a time */
    SAMPLES_AHEAD = 16,      /* whose records are on their way from memory while one is looked at */
    NAMED_MAX = 4,           /* classes, in a message */
};

/* What is chosen of a split. */
typedef struct Part {
    const FshSplit *split; /* NULL: there is none */
    int32_t *labels;       /* [sample_count] */
    bool *keeps;           /* [sample_count] */
    uint64_t *chosen;      /* [count] */
    uint64_t count;
    uint64_t *of_class; /* [class_count]: how many of them a class has */
} Part;

typedef struct Choosing {
    const ChoiceOptions *options;
    FshDataset *dataset;
    const FshManifest *manifest;
    SampleCondition *condition; /* NULL: none */
    ClassLimit limit;
    Part parts[2]; /* of training, of evaluation */
    /* The network's classes among the stored ones; NULL: as they are. */
    size_t *classes;
    size_t class_count;
    ConditionAnswer
        *answers; /* [1 + stored classes], for the split in hand: of samples without label first */
    atomic_ullong unread;
} Choosing;

size_t choice_rows(ChoiceOptions *choice, Option *rows)
{
    /* clang-format off */
    const Option own[] = {
        {.name = "where", .kind = OPTION_TEXT, .value = &choice->where, .argument = "CONDITION",
         .group = "Choice of samples",
         .uses = USE_DATASET,
         .help = "take the samples that meet a condition: \"class in FILE\", \"key ~ 'n0144*'\", with and, "
                 "or, not; see the man page"},
        {.name = "classes", .kind = OPTION_TEXT, .value = &choice->classes, .argument = "FILE",
         .uses = USE_DATASET,
         .help = "take the samples of these classes, one on each line, which are the network's, in this "
                 "order"},
        {.name = "limit", .kind = OPTION_TEXT, .value = &choice->limit, .argument = "N",
         .uses = USE_SAMPLES,
         .help = "train on so many samples of each class (fpack --limit counts a whole split), drawn "
                 "by --seed: 10%, or a number"},
    };
    /* clang-format on */
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}

/* ---- samples ---- */

static ConditionAnswer answer_of(const Choosing *choosing, int64_t label)
{
    return choosing->answers[label + 1];
}

/* Answers for a sample by its key. One that cannot be read is counted, and not chosen. */
static bool holds_by_key(Choosing *choosing, const FshSplit *split, uint64_t index, int64_t label)
{
    FshSample sample;
    if (fsh_sample_get(split, index, &sample, NULL) == FSH_OK)
        return sample_condition_holds(choosing->condition, label, sample.key, sample.key_bytes);
    atomic_fetch_add(&choosing->unread, 1);
    return false;
}

typedef struct Marking {
    Choosing *choosing;
    Part *part;
} Marking;

static FshStatus mark_block(uint64_t item, int thread, void *context, FshError *error)
{
    (void)thread;
    const Marking *marking = context;
    const Part *part = marking->part;
    const uint64_t begin = item * BLOCK_SAMPLES, left = part->split->sample_count - begin,
                   end = begin + (left < BLOCK_SAMPLES ? left : BLOCK_SAMPLES);
    for (uint64_t i = begin; i < end; i++) {
        FshSample sample;
        part->labels[i] = (int32_t)fsh_sample_label(part->split, i);
        /* One that cannot be found has none either, and must not be left out for that. */
        if (part->labels[i] == FSH_NO_LABEL && marking->choosing->manifest->class_count &&
            fsh_sample_get(part->split, i, &sample, error))
            return error->status;
    }
    for (uint64_t i = begin; i < end; i++) {
        const ConditionAnswer answer = answer_of(marking->choosing, part->labels[i]);
        if (i + SAMPLES_AHEAD < end &&
            answer_of(marking->choosing, part->labels[i + SAMPLES_AHEAD]) == CONDITION_BY_KEY)
            fsh_sample_prefetch(part->split, i + SAMPLES_AHEAD, false);
        part->keeps[i] = answer == CONDITION_BY_KEY
                             ? holds_by_key(marking->choosing, part->split, i, part->labels[i])
                             : answer == CONDITION_YES;
    }
    return FSH_OK;
}

/* Fills the answers for samples of the part's split: those of classes that are left out are none. */
static void answer_classes(Choosing *choosing, const Part *part)
{
    const size_t stored = choosing->manifest->class_count;
    if (choosing->condition)
        sample_condition_take_split(choosing->condition, part->split->info->name);
    for (size_t i = 0; i <= stored; i++)
        choosing->answers[i] = choosing->classes ? CONDITION_NO : CONDITION_YES;
    for (size_t i = 0; choosing->classes && i < choosing->class_count; i++)
        choosing->answers[choosing->classes[i] + 1] = CONDITION_YES;
    for (size_t i = 0; choosing->condition && i <= stored; i++)
        if (choosing->answers[i] == CONDITION_YES)
            choosing->answers[i] = sample_condition_of_class(choosing->condition, (int64_t)i - 1);
}

/* Lists what the marks keep, and counts it by class. */
static void list_chosen(Part *part, size_t stored)
{
    part->count = 0;
    memset(part->of_class, 0, stored * sizeof *part->of_class);
    for (uint64_t i = 0; i < part->split->sample_count; i++) {
        if (!part->keeps[i])
            continue;
        part->chosen[part->count++] = i;
        if (part->labels[i] >= 0)
            part->of_class[part->labels[i]]++;
    }
}

/* Chooses of a split by condition and classes. */
static FshStatus choose_part(Choosing *choosing, Part *part, FshError *error)
{
    const uint64_t samples = part->split->sample_count;
    const size_t stored = choosing->manifest->class_count;
    Marking marking = {choosing, part};
    part->labels = calloc(samples + 1, sizeof *part->labels);
    part->keeps = calloc(samples + 1, sizeof *part->keeps);
    part->chosen = calloc(samples + 1, sizeof *part->chosen);
    part->of_class = calloc(stored + 1, sizeof *part->of_class);
    if (!part->labels || !part->keeps || !part->chosen || !part->of_class)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory to choose of %" PRIu64 " samples",
                             samples);
    answer_classes(choosing, part);
    FshStatus status =
        pool_run(cpu_jobs(0), (samples + BLOCK_SAMPLES - 1) / BLOCK_SAMPLES, mark_block, &marking, error);
    if (!status)
        list_chosen(part, stored);
    if (!status && !part->count)
        status = fsh_error_set(
            error, FSH_ERR_MISMATCH, "%s: chooses none of the %" PRIu64 " samples of split '%s' of %s%s",
            choosing->condition ? "--where" : "--classes", samples, part->split->info->name,
            fsh_path(choosing->dataset),
            choosing->condition ? "; a test of the split takes one whole: \"split = NAME or …\"" : "");
    return status;
}

/* Takes so many of each class of the part as the limit says. *idle_ret: those are all. */
static FshStatus limit_part(const Choosing *choosing, Part *part, uint64_t seed, bool *idle_ret,
                            FshError *error)
{
    const uint64_t before = part->count;
    const size_t stored = choosing->manifest->class_count;
    int32_t *labels = calloc(part->count + 1, sizeof *labels);
    bool *keeps = calloc(part->count + 1, sizeof *keeps);
    FshStatus status =
        labels && keeps ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for --limit");
    for (uint64_t i = 0; i < part->count && !status;
         i++) /* samples without label, as pairs are, are one class */
        labels[i] = part->labels[part->chosen[i]] + 1;
    if (!status)
        status =
            class_draw(&choosing->limit, seed, labels, part->chosen, part->count, stored + 1, keeps, error);
    for (uint64_t i = 0; i < part->count && !status; i++)
        part->keeps[part->chosen[i]] = keeps[i];
    if (!status)
        list_chosen(part, stored);
    *idle_ret = part->count == before && choosing->limit.part < 1; /* of all, there is nothing to tell */
    free(labels);
    free(keeps);
    return status;
}

/* ---- classes ---- */

/* Appends a name in quotes to a list that has `count` names already, if it is among the first. */
static void tell_name(char *text, size_t text_bytes, size_t count, const char *name)
{
    enum { NAME_BYTES = 40 };
    const size_t length = strlen(text);
    if (count < NAMED_MAX)
        (void)snprintf(text + length, text_bytes - length, "%s'%.*s'", count ? ", " : "", NAME_BYTES, name);
}

static void tell_more(char *text, size_t text_bytes, size_t count)
{
    const size_t length = strlen(text);
    if (count > NAMED_MAX)
        (void)snprintf(text + length, text_bytes - length, " and %zu more", count - NAMED_MAX);
}

static bool has_class(const Choosing *choosing, size_t index)
{
    bool has = false;
    for (size_t i = 0; i < 2; i++)
        has |= choosing->parts[i].split && choosing->parts[i].of_class[index];
    return has;
}

/* Finds the place of each name of the list among the classes. */
static FshStatus find_classes(Choosing *choosing, const NameList *list, FshError *error)
{
    const FshManifest *manifest = choosing->manifest;
    for (size_t i = 0; i < manifest->class_count; i++) {
        size_t at = 0;
        if (name_list_find(list, manifest->class_names[i], strlen(manifest->class_names[i]), &at))
            choosing->classes[at] = i + 1;
    }
    for (size_t i = 0; i < list->count; i++) {
        const ListedName *name = name_list_at(list, i);
        size_t first = i;
        (void)name_list_find(list, name->text, name->bytes, &first);
        if (first != i)
            return fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "--classes: %s:%" PRIu64 ": '%.100s' stands there twice",
                                 choosing->options->classes, name->line, name->text);
        if (!choosing->classes[i])
            return fsh_error_set(
                error, FSH_ERR_MISMATCH, "--classes: %s:%" PRIu64 ": '%.100s' is no class of %s",
                choosing->options->classes, name->line, name->text, fsh_path(choosing->dataset));
        choosing->classes[i]--;
    }
    return FSH_OK;
}

static FshStatus read_classes(Choosing *choosing, FshError *error)
{
    NameList list = {0};
    FshStatus status = name_list_read(&list, choosing->options->classes, false, error);
    if (status)
        return fsh_error_prepend(error, "--classes");
    choosing->class_count = list.count;
    choosing->classes = calloc(list.count, sizeof *choosing->classes);
    status = choosing->classes ? find_classes(choosing, &list, error)
                               : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the classes");
    name_list_free(&list);
    return status;
}

/* Leaves out the classes that no sample is left of. */
static FshStatus drop_classes(Choosing *choosing, SampleChoice *made, FshError *error)
{
    const FshManifest *manifest = choosing->manifest;
    const size_t stored = manifest->class_count;
    size_t *classes = calloc(stored + 1, sizeof *classes), count = 0, gone = 0;
    if (!classes)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the classes");
    for (size_t i = 0; i < stored; i++) {
        if (has_class(choosing, i))
            classes[count++] = i;
        else
            tell_name(made->left_out, sizeof made->left_out, gone++, manifest->class_names[i]);
    }
    tell_more(made->left_out, sizeof made->left_out, gone);
    if (!gone) {
        free(classes);
        return FSH_OK;
    }
    choosing->classes = classes;
    choosing->class_count = count;
    return FSH_OK;
}

/* Tells which classes of the network training has no sample of. */
static void tell_empty(const Choosing *choosing, SampleChoice *made)
{
    size_t count = 0;
    for (size_t i = 0; i < choosing->class_count; i++) {
        const size_t stored = choosing->classes[i];
        if (!choosing->parts[0].of_class[stored])
            tell_name(made->empty, sizeof made->empty, count++, choosing->manifest->class_names[stored]);
    }
    tell_more(made->empty, sizeof made->empty, count);
}

/* Decides the classes, once it is known what is left of each. */
static FshStatus settle_classes(Choosing *choosing, SampleChoice *made, FshError *error)
{
    const bool trains = choosing->parts[0].split != NULL;
    FshStatus status = FSH_OK;
    if (!choosing->manifest->class_count)
        return FSH_OK;
    if (choosing->options->where && !choosing->classes && trains)
        status = drop_classes(choosing, made, error);
    made->class_of = made->class_count = choosing->manifest->class_count;
    if (status || !choosing->classes)
        return status;
    made->class_count = choosing->class_count;
    if (choosing->class_count < 2 && trains)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: leaves one class, '%.100s'; a classifier needs at least two",
                             choosing->options->classes ? "--classes" : "--where",
                             choosing->manifest->class_names[choosing->classes[0]]);
    if (trains)
        tell_empty(choosing, made);
    return FSH_OK;
}

/* ---- the whole ---- */

static FshStatus read_options(Choosing *choosing, FshError *error)
{
    const ChoiceOptions *options = choosing->options;
    const FshManifest *manifest = choosing->manifest;
    FshStatus status = FSH_OK;
    if (options->classes && !manifest->class_count)
        return fsh_error_set(error, FSH_ERR_USAGE, "--classes: %s holds pairs, which have no classes",
                             fsh_path(choosing->dataset));
    if (options->limit)
        status = class_limit_parse(&choosing->limit, options->limit, error);
    if (status)
        return fsh_error_prepend(error, "--limit");
    if (options->where)
        status = sample_condition_parse(&choosing->condition, options->where, error);
    if (options->where && !status)
        status = sample_condition_prepare(choosing->condition, (const char *const *)manifest->class_names,
                                          manifest->class_count, error);
    if (status)
        return fsh_error_prepend(error, "--where");
    return options->classes ? read_classes(choosing, error) : FSH_OK;
}

/* Computes the digest of the classes, and of the samples of parts `first` and on. */
static FshStatus digest(const Choosing *choosing, size_t first, char text[FSH_HASH_TEXT_BYTES],
                        FshError *error)
{
    const FshManifest *manifest = choosing->manifest; /* with the classes that are left */
    FshHash128 hash;
    XXH3_state_t *state = XXH3_createState();
    if (!state || XXH3_128bits_reset(state) == XXH_ERROR) {
        (void)XXH3_freeState(state);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a digest");
    }
    for (size_t i = 0; i < manifest->class_count; i++)
        (void)XXH3_128bits_update(state, manifest->class_names[i], strlen(manifest->class_names[i]) + 1);
    for (size_t i = first; i < 2; i++) {
        const Part *part = &choosing->parts[i];
        if (!part->split)
            continue;
        (void)XXH3_128bits_update(state, part->split->info->name, strlen(part->split->info->name) + 1);
        (void)XXH3_128bits_update(state, part->chosen, part->count * sizeof *part->chosen);
    }
    hash = fsh_hash_taken(state);
    (void)XXH3_freeState(state);
    fsh_hash_format(&hash, text);
    return FSH_OK;
}

/* Notes the names in files of keys that no sample has. */
static void tell_unmet(const Choosing *choosing, SampleChoice *made)
{
    const char *first = NULL, *file = NULL;
    const uint64_t count =
        choosing->condition ? sample_condition_unmet(choosing->condition, &first, &file) : 0;
    if (count)
        (void)snprintf(made->unmet, sizeof made->unmet,
                       "%" PRIu64 " name%s in files of --where %s no sample's key, as '%.100s' in %.100s",
                       count, text_plural(count), count == 1 ? "is" : "are", first, file);
}

static FshStatus choose(Choosing *choosing, uint64_t seed, SampleChoice *made, FshError *error)
{
    FshStatus status = read_options(choosing, error);
    choosing->answers = calloc(choosing->manifest->class_count + 1, sizeof *choosing->answers);
    if (!status && !choosing->answers)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the classes");
    for (size_t i = 0; i < 2 && !status; i++)
        if (choosing->parts[i].split)
            status = choose_part(choosing, &choosing->parts[i], error);
    if (!status && choosing->options->limit && choosing->parts[0].split)
        status = limit_part(choosing, &choosing->parts[0], seed, &made->limit_is_idle, error);
    return status ? status : settle_classes(choosing, made, error);
}

/* Puts the chosen samples in the place of the split, unless they are all. */
static FshStatus take_part(const Choosing *choosing, const Part *part, const FshSplit **split,
                           FshError *error)
{
    return part->split && part->count < part->split->sample_count
               ? fsh_split_choose(choosing->dataset, part->split, part->chosen, part->count, split, error)
               : FSH_OK;
}

FshStatus sample_choice_make(SampleChoice *made, const ChoiceOptions *options, uint64_t seed,
                             FshDataset *dataset, const FshSplit **train, const FshSplit **evaluation,
                             FshError *error)
{
    const double start = progress_now_seconds();
    *made = (SampleChoice){0};
    if (!options->where && !options->limit && !options->classes)
        return FSH_OK;
    Choosing choosing = {.options = options,
                         .dataset = dataset,
                         .manifest = fsh_manifest(dataset),
                         .parts = {{.split = *train}, {.split = *evaluation}}};
    made->made = true;
    made->train_of = *train ? (*train)->sample_count : 0;
    made->evaluation_of = *evaluation ? (*evaluation)->sample_count : 0;
    FshStatus status = choose(&choosing, seed, made, error);
    if (!status)
        tell_unmet(&choosing, made);
    if (!status && choosing.classes)
        status = fsh_set_classes(dataset, choosing.classes, choosing.class_count, error);
    if (!status)
        status = take_part(&choosing, &choosing.parts[0], train, error);
    if (!status)
        status = take_part(&choosing, &choosing.parts[1], evaluation, error);
    if (!status)
        status = digest(&choosing, 0, made->digest, error);
    const Part *evaluated = &choosing.parts[1];
    if (!status && evaluated->split &&
        (choosing.classes || evaluated->count < evaluated->split->sample_count))
        status = digest(&choosing, 1, made->evaluation_digest, error);
    made->unread = choosing.unread;
    for (size_t i = 0; i < 2; i++) {
        free(choosing.parts[i].labels);
        free(choosing.parts[i].keeps);
        free(choosing.parts[i].chosen);
        free(choosing.parts[i].of_class);
    }
    sample_condition_free(&choosing.condition);
    free(choosing.classes);
    free(choosing.answers);
    made->seconds = progress_now_seconds() - start;
    return status;
}
