#include "trainer/data/class_draw.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/philox.h"

static const uint64_t limit_stream = 0x6c696d6974; /* "limit" */

FshStatus class_limit_parse(ClassLimit *limit, const char *text, FshError *error)
{
    static const double most = 1e15;
    char *end = NULL;
    const double number = isdigit((unsigned char)*text) || *text == '.' ? strtod(text, &end) : 0;
    const bool part = end && strcmp(end, "%") == 0, whole = end && !*end && number == floor(number);
    *limit = (ClassLimit){.part = part ? number / 100 : 0,
                          .count = whole && number <= most ? (uint64_t)number : 0};
    if ((part && number > 0 && number <= 100) || limit->count)
        return FSH_OK;
    return fsh_error_set(
        error, FSH_ERR_USAGE,
        "'%.60s' is neither a part of each class, as 10%%, nor a number of its samples, as 500", text);
}

/* A sample with its number. */
typedef struct Drawn {
    uint64_t number, at;
} Drawn;

static bool is_below(const Drawn *a, const Drawn *b)
{
    return a->number < b->number || (a->number == b->number && a->at < b->at);
}

static void swap(Drawn *a, Drawn *b)
{
    const Drawn other = *a;
    *a = *b;
    *b = other;
}

/* Orders the samples so that the `least` lowest stand first (Hoare's selection; the numbers are random, so
 * its pivot may be any). 0 < least < count. */
static void select_lowest(Drawn *drawn, uint64_t count, uint64_t least)
{
    uint64_t first = 0, last = count - 1;
    while (first < last) {
        const Drawn pivot = drawn[first + (last - first) / 2];
        uint64_t low = first, high = last;
        for (;; low++, high--) {
            while (is_below(&drawn[low], &pivot))
                low++;
            while (is_below(&pivot, &drawn[high]))
                high--;
            if (low >= high)
                break;
            swap(&drawn[low], &drawn[high]);
        }
        if (least <= high)
            last = high;
        else
            first = high + 1;
    }
}

static uint64_t number_of(uint64_t seed, uint64_t name)
{
    const uint32_t counter[4] = {(uint32_t)name, (uint32_t)(name >> 32), (uint32_t)limit_stream,
                                 (uint32_t)(limit_stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    philox_block(counter, key, out);
    return (uint64_t)out[1] << 32 | out[0];
}

static uint64_t limit_of(const ClassLimit *limit, uint64_t count)
{
    static const double rounding = 1e-9; /* 10% of 50 are 5 */
    const uint64_t wanted =
        limit->part > 0 ? (uint64_t)ceil((double)count * limit->part - rounding) : limit->count;
    return wanted < count ? wanted : count;
}

FshStatus class_draw(const ClassLimit *limit, uint64_t seed, const int32_t *labels, const uint64_t *names,
                     uint64_t count, uint64_t classes, bool *keeps, FshError *error)
{
    Drawn *drawn = calloc(count + 1, sizeof *drawn);
    uint64_t *ends = calloc(classes + 1, sizeof *ends); /* of each class in `drawn` */
    const bool made = drawn && ends;
    memset(keeps, 0, count * sizeof *keeps);
    for (uint64_t i = 0; made && i < count; i++)
        ends[labels[i] + 1]++;
    for (uint64_t c = 0; made && c < classes; c++)
        ends[c + 1] += ends[c]; /* where each class begins, until it is filled */
    for (uint64_t i = 0; made && i < count; i++)
        drawn[ends[labels[i]]++] = (Drawn){number_of(seed, names[i]), i};
    for (uint64_t c = 0; made && c < classes; c++) {
        const uint64_t begin = c ? ends[c - 1] : 0, members = ends[c] - begin,
                       wanted = limit_of(limit, members);
        if (wanted && wanted < members)
            select_lowest(drawn + begin, members, wanted);
        for (uint64_t i = 0; i < wanted; i++)
            keeps[drawn[begin + i].at] = true;
    }
    free(drawn);
    free(ends);
    return made ? FSH_OK
                : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory to choose of %llu samples",
                                (unsigned long long)count);
}
