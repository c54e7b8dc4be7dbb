/* pack_folder_keys.c - class folders inside a tar, as fresize and tar make them: the paths of members say
 * split and class, as folders do for pack_classes.c, where no member is a label. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/names.h"
#include "tools/pack/pack_keyed.h"

/* Returns the bytes of a key's first folder from `at` on; 0: it lies in none, or in one without a name. */
static size_t folder_bytes(const PackSample *sample, size_t at)
{
    const char *slash = memchr(sample->key + at, '/', sample->key_bytes - at);
    return slash ? (size_t)(slash - sample->key) - at : 0;
}

static bool in_folder(const PackSample *sample, size_t at)
{
    return folder_bytes(sample, at) > 0;
}

/* Returns the split whose folder the key has at `at`, with a folder in it; PACK_SPLITS: none. */
static PackSplitIndex split_at(const PackSample *sample, size_t at)
{
    const size_t bytes = folder_bytes(sample, at);
    return bytes && in_folder(sample, at + bytes + 1) ? pack_split_by_name(sample->key + at, bytes)
                                                      : PACK_SPLITS;
}

/* Returns whether the key's folder at `at` is called as a split and the image lies directly in it. */
static bool lies_flat(const PackSample *sample, size_t at)
{
    const size_t bytes = folder_bytes(sample, at);
    return bytes && !in_folder(sample, at + bytes + 1) &&
           pack_split_by_name(sample->key + at, bytes) != PACK_SPLITS;
}

/* Returns the bytes of the folders that all samples lie in and that are none of splits: tar cf x.tar photos/
 * puts all into photos/. */
static size_t shared_bytes(const PackKeyed *keyed)
{
    const PackSample *first = keyed->samples;
    size_t shared = 0;
    for (;;) {
        const size_t bytes = folder_bytes(first, shared);
        if (!bytes || pack_split_by_name(first->key + shared, bytes) != PACK_SPLITS)
            return shared;
        const size_t next = shared + bytes + 1;
        for (uint64_t i = 0; i < keyed->sample_count; i++) {
            const PackSample *sample = &keyed->samples[i];
            if (sample->key_bytes <= next || memcmp(sample->key, first->key, next) != 0 ||
                !in_folder(sample, next))
                return shared;
        }
        shared = next;
    }
}

/* Refuses classes that train does not have, as of folders, unless --classes chooses. */
static FshStatus check_train(const PackKeyed *keyed, FshError *error)
{
    uint8_t *trained = calloc(keyed->class_count + 1, 1);
    const PackSample *other = NULL;
    bool trains = false;
    if (!trained)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
    for (uint64_t i = 0; i < keyed->sample_count; i++)
        if (keyed->samples[i].split == PACK_TRAIN)
            trained[keyed->samples[i].label] = trains = true;
    for (uint64_t i = 0; i < keyed->sample_count && !other; i++)
        other = trained[keyed->samples[i].label] ? NULL : &keyed->samples[i];
    free(trained);
    return !trains || !other || keyed->found->options->classes
               ? FSH_OK
               : fsh_error_set(
                     error, FSH_ERR_MISMATCH,
                     "%s: class '%s' of %s is missing from train; the splits must have the same classes",
                     keyed->found->root, keyed->class_names[other->label], fsh_split_name(other->split));
}

static bool has_class(const PackKeyed *keyed, const char *name, size_t bytes)
{
    for (size_t i = 0; i < keyed->class_count; i++)
        if (strlen(keyed->class_names[i]) == bytes && memcmp(keyed->class_names[i], name, bytes) == 0)
            return true;
    return false;
}

/* Refuses classes that are called as the sides of pairs are. */
static FshStatus check_sides(const PackKeyed *keyed, FshError *error)
{
    for (const char *const *known = usual_sides; *known; known++) {
        const size_t first = strcspn(*known, ":");
        if (has_class(keyed, *known, first) &&
            has_class(keyed, *known + first + 1, strlen(*known) - first - 1))
            return fsh_error_set(
                error, FSH_ERR_MISMATCH,
                "%s: its folders look like the sides of pairs, not like classes; unpack it and pack "
                "that folder with --pairs %s",
                keyed->found->root, *known);
    }
    return FSH_OK;
}

/* Refuses two folders of one split, val/ and valid/, as of folders. */
static FshStatus check_spelling(const PackKeyed *keyed, size_t shared, FshError *error)
{
    const PackSample *firsts[PACK_SPLITS] = {NULL};
    for (uint64_t i = 0; i < keyed->sample_count; i++) {
        const PackSample *sample = &keyed->samples[i];
        const PackSplitIndex split = split_at(sample, shared);
        const PackSample *first = firsts[split] ? firsts[split] : sample;
        const size_t bytes = folder_bytes(sample, shared), first_bytes = folder_bytes(first, shared);
        firsts[split] = first;
        if (bytes != first_bytes || memcmp(sample->key + shared, first->key + shared, bytes) != 0)
            return fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "%s: both '%.*s' and '%.*s' are there; keep one as the %s split",
                                 keyed->found->root, (int)first_bytes, first->key + shared, (int)bytes,
                                 sample->key + shared, fsh_split_name(split));
    }
    return FSH_OK;
}

/* Returns whether all images lie in one folder and some of them in folders of it: then it is no class, but a
 * stray image lies beside the folders of classes or splits. */
static bool is_folder_of_folders(const PackKeyed *keyed, size_t shared)
{
    const PackSample *first = &keyed->samples[0];
    const size_t bytes = folder_bytes(first, shared);
    bool deeper = false;
    for (uint64_t i = 0; i < keyed->sample_count; i++) {
        const PackSample *sample = &keyed->samples[i];
        if (folder_bytes(sample, shared) != bytes ||
            memcmp(sample->key + shared, first->key + shared, bytes) != 0)
            return false;
        deeper |= in_folder(sample, shared + bytes + 1);
    }
    return deeper;
}

/* Warns of classes that are called Train, VAL and the like, and have folders in them, or, where there are no
 * splits, no class beside them that is called otherwise. */
static FshStatus warn_capitals(PackKeyed *keyed, bool in_splits, FshError *error)
{
    const bool alone = !in_splits && fsh_are_split_names(keyed->class_names, keyed->class_count);
    FshStatus status = FSH_OK;
    for (size_t c = 0; c < keyed->class_count && !status; c++) {
        const char *name = keyed->class_names[c], *small = fsh_split_in_small_letters(name);
        bool flat = true;
        for (uint64_t i = 0; small && i < keyed->sample_count && flat; i++)
            flat = keyed->samples[i].label != (int32_t)c || !in_folder(&keyed->samples[i], strlen(name) + 1);
        if (small && (alone || !flat))
            status = keyed_warn_capitals(keyed, name, small, true, flat, error);
    }
    return status;
}

/* Refuses a folder that is called as a split is but for capitals, where others are splits: its samples would
 * have neither split nor class, nor would any then. */
static FshStatus refuse_capitals(const PackKeyed *keyed, size_t shared, FshError *error)
{
    char name[32]; /* longer ones are no split's */
    bool there[PACK_SPLITS + 1] = {false};
    for (uint64_t i = 0; i < keyed->sample_count; i++)
        there[split_at(&keyed->samples[i], shared)] = true;
    for (uint64_t i = 0; i < keyed->sample_count; i++) {
        const PackSample *sample = &keyed->samples[i];
        const size_t bytes = folder_bytes(sample, shared);
        if (!bytes || bytes >= sizeof name)
            continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)bytes, sample->key + shared);
        const char *small = fsh_split_in_small_letters(name);
        if (small && !there[pack_split_by_name(small, strlen(small))])
            return fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "%s: '%s' lies beside the splits, and its images have neither split nor "
                                 "class; if it is one, call the folder %s, in small letters, with its "
                                 "images in folders of their classes, or say with --labels what they are",
                                 keyed->found->root, name, small);
    }
    return FSH_OK;
}

FshStatus key_label_by_folders(PackKeyed *keyed, bool *labelled_ret, FshError *error)
{
    size_t text_bytes = 0;
    uint64_t in_splits = 0;
    const size_t shared = keyed->sample_count ? shared_bytes(keyed) : 0;
    *labelled_ret = false;
    for (uint64_t i = 0; i < keyed->sample_count; i++) {
        if (!in_folder(&keyed->samples[i], shared) || lies_flat(&keyed->samples[i], shared))
            return FSH_OK;
        in_splits += split_at(&keyed->samples[i], shared) != PACK_SPLITS;
        text_bytes += keyed->samples[i].key_bytes;
    }
    if (in_splits && in_splits < keyed->sample_count)
        return refuse_capitals(keyed, shared, error);
    if (!keyed->sample_count || (!in_splits && is_folder_of_folders(keyed, shared)))
        return FSH_OK;
    char *storage = malloc(text_bytes), *next = storage;
    const char **texts = malloc(keyed->sample_count * sizeof *texts);
    FshStatus status = storage && texts
                           ? FSH_OK
                           : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
    if (!status && in_splits)
        status = check_spelling(keyed, shared, error);
    for (uint64_t i = 0; i < keyed->sample_count && !status; i++) {
        PackSample *sample = &keyed->samples[i];
        size_t cut = shared;
        if (in_splits) {
            sample->split = split_at(sample, shared);
            cut += folder_bytes(sample, shared) + 1;
        }
        const size_t bytes = folder_bytes(sample, cut);
        texts[i] = memcpy(next, sample->key + cut, bytes);
        next[bytes] = '\0'; /* in place of the slash: there is room */
        next += bytes + 1;
        sample->key += cut; /* as files of class folders are called */
        sample->key_bytes -= (uint32_t)cut;
    }
    if (!status)
        status = key_label_by_names(keyed, texts, error);
    if (!status)
        status = check_sides(keyed, error);
    if (!status)
        status = check_train(keyed, error);
    if (!status)
        status = warn_capitals(keyed, in_splits > 0, error);
    *labelled_ret = !status;
    free(texts);
    free(storage);
    return status;
}
