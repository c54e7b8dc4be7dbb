/* A folder of 0001_blur.png, 0001_sharp.png, 0002_blur.png …, or of blur_0001.png …, sharp_0001.png …, is
 * pairs in a form that fpack does not read by itself: which word is a side would be a guess. But whoever
 * packs it is told what to do. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "tools/pack/pack_found.h"

/* A file's name without folder and extension. */
typedef struct Stem {
    const char *text; /* length long */
    size_t length;
} Stem;

static Stem stem_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return (Stem){.text = name, .length = pack_stem_bytes(path) - (size_t)(name - path)};
}

static bool stems_equal(Stem a, Stem b)
{
    return a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

/* Cuts off the end that two names share, or the beginning. Returns false where they share nothing. */
static bool cut_shared(Stem *a, Stem *b, bool beginning)
{
    const size_t most = a->length < b->length ? a->length : b->length;
    size_t shared = 0;
    while (shared < most && (beginning ? a->text[shared] == b->text[shared]
                                       : a->text[a->length - 1 - shared] == b->text[b->length - 1 - shared]))
        shared++;
    a->length -= shared;
    b->length -= shared;
    if (beginning) {
        a->text += shared;
        b->text += shared;
    }
    return shared > 0;
}

static bool is_number(Stem stem)
{
    return strspn(stem.text, "0123456789") >= stem.length;
}

/* Returns the path of the next image from *file on, in byte order of the paths, and moves *file past it;
 * NULL: there is none. */
static const char *next_image(const PackFound *found, uint64_t *file)
{
    while (*file < found->files.count && !found->is_image[*file])
        (*file)++;
    return *file < found->files.count ? found->files.files[(*file)++].path : NULL;
}

static bool one_folder(const PackFound *found, uint64_t *count_ret)
{
    uint64_t file = 0;
    const char *first = next_image(found, &file);
    const char *slash = first ? strrchr(first, '/') : NULL;
    const size_t folder_bytes = slash ? (size_t)(slash - first) + 1 : 0;
    *count_ret = first != NULL;
    for (const char *path = first; path; path = next_image(found, &file)) {
        if (strncmp(path, first, folder_bytes) != 0 || strchr(path + folder_bytes, '/'))
            return false;
        *count_ret += path != first;
    }
    return true;
}

/* Returns whether image i and its other side differ in the same two words for every i. by_beginning:
 * neighbours, told apart by their ends; else a first half and a second half, told apart by their beginnings.
 * Fills example with the first two paths and words with how they differ. */
static bool all_pairs(const PackFound *found, uint64_t count, bool by_beginning, const char *example[2],
                      Stem words[2])
{
    uint64_t a_file = 0, b_file = 0;
    for (uint64_t i = 0; i < (by_beginning ? 1 : count / 2); i++)
        (void)next_image(found, &b_file);
    for (uint64_t pair = 0; pair < count / 2; pair++) {
        const char *a_path = next_image(found, &a_file), *b_path = next_image(found, &b_file);
        Stem a = stem_of(a_path), b = stem_of(b_path);
        if (!cut_shared(&a, &b, by_beginning) || stems_equal(a, b) || (is_number(a) && is_number(b)))
            return false; /* of blur_1, blur_2, sharp_1 and sharp_2, the numbers are not the sides */
        if (pair == 0) {
            words[0] = a;
            words[1] = b;
            example[0] = a_path;
            example[1] = b_path;
        } else if (!stems_equal(a, words[0]) || !stems_equal(b, words[1])) {
            return false;
        }
        if (by_beginning) { /* a's next comes after b */
            (void)next_image(found, &a_file);
            (void)next_image(found, &b_file);
        }
    }
    return true;
}

/* Returns whether the image lies in a folder of this name. */
static bool lies_in(const char *path, const char *folder, size_t folder_bytes)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return false;
    const size_t before = (size_t)(slash - path);
    return before >= folder_bytes && memcmp(slash - folder_bytes, folder, folder_bytes) == 0 &&
           (before == folder_bytes || slash[-(ptrdiff_t)folder_bytes - 1] == '/');
}

const char *const usual_sides[] = {"blur:sharp", "blurry:sharp", "input:target", "lq:gt", NULL};

const char *found_hint_sides(const PackFound *found)
{
    for (const char *const *known = usual_sides; *known; known++) {
        const size_t first_bytes = strcspn(*known, ":");
        const char *second = *known + first_bytes + 1;
        uint64_t first_count = 0, second_count = 0, count = 0, file = 0;
        for (const char *path; (path = next_image(found, &file)); count++) {
            first_count += lies_in(path, *known, first_bytes);
            second_count += lies_in(path, second, strlen(second));
        }
        if (first_count && second_count && first_count + second_count > count / 2)
            return *known;
    }
    return NULL;
}

FshStatus found_hint_flat_pairs(const PackFound *found, FshStatus status, FshError *error)
{
    const char *example[2] = {NULL, NULL};
    uint64_t count = 0;
    if (!error || !found->is_image || !one_folder(found, &count) || count < 4 || count % 2 != 0)
        return status;
    const FshError before = *error;
    Stem words[2] = {{0}, {0}};
    if (all_pairs(found, count, true, example, words) && example[0]) {
        const char *slash = strrchr(example[0], '/');
        const int folder_bytes = slash ? (int)(slash - example[0]) : 0;
        char folder[512], rules[160];
        (void)snprintf(folder, sizeof folder, "%s%s%.*s", found->root, folder_bytes ? "/" : "", folder_bytes,
                       example[0]);
        (void)snprintf(rules, sizeof rules, "%s%.*s%s%s%.*s", words[0].length ? "A=" : "",
                       (int)words[0].length, words[0].text, words[0].length && words[1].length ? ":" : "",
                       words[1].length ? "B=" : "", (int)words[1].length, words[1].text);
        return fsh_error_set(
            error, status,
            "%s; '%s' and '%s' look like a pair: --pairs A=%s:B=%s --pair-suffix %s packs them",
            before.message, example[0], example[1], folder, folder, rules);
    }
    if (!all_pairs(found, count, false, example, words))
        return status;
    return fsh_error_set(
        error, status,
        "%s; '%s' and '%s' look like a pair: put the two sides into folders of their own, A and B, "
        "under the same names, and pack them with --pairs A:B",
        before.message, example[0], example[1]);
}
