#include "common/seal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/file.h"
#include "common/json_text.h"

enum { DIGITS = sizeof SEAL_BLANK - 1 };

/* Returns the place of the digits in quotes; NULL: they are not there. */
static char *find_digits(const char *text, size_t bytes, const char *digits)
{
    char quoted[DIGITS + 3];
    if (strlen(digits) != DIGITS)
        return NULL;
    (void)snprintf(quoted, sizeof quoted, "\"%s\"", digits);
    char *found = memmem(text, bytes, quoted, DIGITS + 2);
    return found ? found + 1 : NULL;
}

/* Writes the checksum of the text, computed with zeros at `place`, to digits. Returns false without
 * memory. */
static bool compute(const char *text, size_t bytes, const char *place, char digits[DIGITS + 1])
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return false;
    const size_t before = (size_t)(place - text);
    (void)XXH3_128bits_reset(state);
    (void)XXH3_128bits_update(state, text, before);
    (void)XXH3_128bits_update(state, SEAL_BLANK, DIGITS);
    (void)XXH3_128bits_update(state, place + DIGITS, bytes - before - DIGITS);
    const XXH128_hash_t hash = XXH3_128bits_digest(state);
    (void)snprintf(digits, DIGITS + 1, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64,
                   (uint64_t)hash.low64);
    (void)XXH3_freeState(state);
    return true;
}

bool seal_text(char *text, size_t bytes)
{
    char *place = find_digits(text, bytes, SEAL_BLANK), digits[DIGITS + 1];
    if (!place || !compute(text, bytes, place, digits))
        return false;
    memcpy(place, digits, DIGITS);
    return true;
}

bool seal_holds(const char *text, size_t bytes, const char *digits)
{
    char computed[DIGITS + 1];
    const char *place = find_digits(text, bytes, digits);
    return place && compute(text, bytes, place, computed) && memcmp(computed, digits, DIGITS) == 0;
}

FshStatus seal_write(const char *path, json_t *object, size_t dump_flags, FshError *error)
{
    const bool added = json_object_set_new(object, "checksum", json_string(SEAL_BLANK)) == 0;
    char *text = added ? json_dumps(object, dump_flags | JSON_SORT_KEYS) : NULL;
    FshStatus status = text && seal_text(text, strlen(text))
                           ? file_write_atomic(path, text, strlen(text), true, true, error)
                           : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    free(text);
    return status;
}

FshStatus seal_read(const char *path, uint64_t most_bytes, bool must, json_t **object_ret, FshError *error)
{
    Buffer text = {0};
    json_error_t where;
    *object_ret = NULL;
    FshStatus status = file_read_most(path, most_bytes, &text, error);
    json_t *object =
        status ? NULL : json_text_load((const char *)text.bytes, text.length, JSON_REJECT_DUPLICATES, &where);
    const char *digits = json_string_value(json_object_get(object, "checksum"));
    if (!status && !json_is_object(object))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "%s: line %d: %s", path, object ? 1 : where.line,
                               object ? "is no JSON object" : where.text);
    else if (!status && !digits && (must || json_object_get(object, "checksum")))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "%s: \"checksum\" is missing", path);
    else if (!status && digits && !seal_holds((const char *)text.bytes, text.length, digits))
        status =
            fsh_error_set(error, FSH_ERR_CORRUPT, "%s: is not what was written: its checksum differs", path);
    if (status)
        json_decref(object);
    else
        *object_ret = object;
    buffer_free(&text);
    return status;
}
