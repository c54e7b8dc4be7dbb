#include "imaging/shrink_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/path.h"
#include "imaging/shrink.h"

/* ---- targets ---- */

FshStatus shrink_name_target(const char *path, ImageFormat format, char target[PATH_MAX],
                             ImageFormat *format_ret, FshError *error)
{
    ImageFormat promised = image_name_format(path);
    if (promised == IMAGE_OTHER) /* its content decides, as with a name that promises nothing */
        promised = IMAGE_UNKNOWN;
    *format_ret = format != IMAGE_UNKNOWN     ? format
                  : promised != IMAGE_UNKNOWN ? shrink_format_for(promised)
                                              : IMAGE_UNKNOWN;
    bool same = *format_ret == promised;
    size_t kept = same || promised == IMAGE_UNKNOWN ? strlen(path) : path_stem_bytes(path);
    int length = snprintf(target, PATH_MAX, "%.*s%s", (int)kept, path,
                          same ? "" : image_format_extension(*format_ret));
    if (length < 0 || length >= PATH_MAX)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: its new name is too long", path);
    return FSH_OK;
}

/* ---- claims ---- */

/* A name given away. It is kept while the sources still begin with its stem: in byte order these are
 * neighbours. */
typedef struct Claim {
    char *target, *owner; /* owner: the path that has the name */
    size_t stem_bytes;    /* of both */
} Claim;

struct NameClaims {
    bool sorted;
    Claim *stack; /* sorted: each stem begins with the stem below it */
    size_t depth, capacity;
    XXH128_hash_t *table; /* not sorted: open addressing; {0, 0} is free */
    size_t slots, used;   /* slots: a power of two */
};

FshStatus name_claims_new(NameClaims **claims, bool sorted, FshError *error)
{
    *claims = calloc(1, sizeof **claims);
    if (!*claims)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the names of the output");
    (*claims)->sorted = sorted;
    return FSH_OK;
}

static void free_claim(Claim *claim)
{
    free(claim->target);
    free(claim->owner);
}

void name_claims_free(NameClaims **claims)
{
    for (size_t i = 0; *claims && i < (*claims)->depth; i++)
        free_claim(&(*claims)->stack[i]);
    if (*claims) {
        free((*claims)->stack);
        free((*claims)->table);
    }
    free(*claims);
    *claims = NULL;
}

static FshStatus take_sorted(NameClaims *claims, const char *path, const char *target, bool *taken_ret,
                             const char **owner_ret, FshError *error)
{
    while (claims->depth) {
        Claim *top = &claims->stack[claims->depth - 1];
        if (strncmp(path, top->target, top->stem_bytes) == 0)
            break;
        free_claim(top);
        claims->depth--;
    }
    for (size_t i = claims->depth; i-- > 0 && !*taken_ret;) {
        *taken_ret = strcmp(claims->stack[i].target, target) == 0;
        *owner_ret = *taken_ret ? claims->stack[i].owner : NULL;
    }
    if (*taken_ret)
        return FSH_OK;
    if (claims->depth == claims->capacity) {
        size_t capacity = claims->capacity ? claims->capacity * 2 : 16;
        Claim *grown = realloc(claims->stack, capacity * sizeof *grown);
        if (!grown)
            return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the names of the output");
        claims->stack = grown;
        claims->capacity = capacity;
    }
    Claim claim = {.target = strdup(target), .owner = strdup(path), .stem_bytes = path_stem_bytes(path)};
    if (!claim.target || !claim.owner) {
        free_claim(&claim);
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the names of the output");
    }
    claims->stack[claims->depth++] = claim;
    return FSH_OK;
}

/* Returns the slot that holds hash, or the free one where it belongs. */
static XXH128_hash_t *find_slot(XXH128_hash_t *table, size_t slots, XXH128_hash_t hash)
{
    size_t at = (size_t)hash.low64 & (slots - 1);
    while ((table[at].low64 || table[at].high64) && !XXH128_isEqual(table[at], hash))
        at = (at + 1) & (slots - 1);
    return &table[at];
}

bool name_claims_has(const NameClaims *claims, const char *target)
{
    if (!claims->slots)
        return false;
    const XXH128_hash_t *slot = find_slot(claims->table, claims->slots, XXH3_128bits(target, strlen(target)));
    return slot->low64 || slot->high64;
}

static FshStatus take_hashed(NameClaims *claims, const char *target, bool *taken_ret, FshError *error)
{
    if (claims->used * 4 >= claims->slots * 3) {
        size_t slots = claims->slots ? claims->slots * 2 : 1024;
        XXH128_hash_t *table = calloc(slots, sizeof *table);
        if (!table)
            return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the names of the output");
        for (size_t i = 0; i < claims->slots; i++) {
            if (claims->table[i].low64 || claims->table[i].high64)
                *find_slot(table, slots, claims->table[i]) = claims->table[i];
        }
        free(claims->table);
        claims->table = table;
        claims->slots = slots;
    }
    XXH128_hash_t hash = XXH3_128bits(target, strlen(target));
    XXH128_hash_t *slot = find_slot(claims->table, claims->slots, hash);
    *taken_ret = slot->low64 || slot->high64;
    claims->used += !*taken_ret;
    *slot = hash;
    return FSH_OK;
}

FshStatus name_claims_take(NameClaims *claims, const char *path, const char *target, bool *taken_ret,
                           const char **owner_ret, FshError *error)
{
    *taken_ret = false;
    *owner_ret = NULL;
    return claims->sorted ? take_sorted(claims, path, target, taken_ret, owner_ret, error)
                          : take_hashed(claims, target, taken_ret, error);
}
