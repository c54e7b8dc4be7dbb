/* What proves a manifest: its checksums, and the dataset's id. fshard(5), "Manifest". */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/seal.h"
#include "common/crc32c.h"
#include "formats/json_scan.h"
#include "formats/manifest.h"
#include "formats/names.h"
#include "formats/updated.h"
#include "formats/xxh3.h"

#define SEAL_NAME       "checksum"
#define WHOLE_NAME      "all"
#define STATISTICS_NAME "statistics"
#define CRC_BLANK       "00000000"

enum { CRC_DIGITS = sizeof CRC_BLANK - 1, MEMBER_NAME_BYTES = 128 };

/* ---- the id ---- */

void fsh_id_mix(char id[FSH_ID_DIGITS + 1], const void *bytes, size_t length)
{
    const FshHash128 both[2] = {fsh_hash_bytes(id, FSH_ID_DIGITS), fsh_hash_bytes(bytes, length)};
    const FshHash128 hash = fsh_hash_bytes(both, sizeof both);
    fsh_hash_format(&hash, id);
}

/* Mixes in which rows of a file are no samples, after a blank. */
static FshStatus mix_removed(XXH3_state_t *state, const FshFileInfo *file, FshError *error)
{
    Buffer text = {0};
    FshStatus status = file->removed_count ? buffer_append(&text, " ", 1, error) : FSH_OK;
    if (!status)
        status = fsh_rows_format(file->removed, file->removed_count, &text, error);
    if (!status)
        (void)XXH3_128bits_update(state, text.bytes, text.length);
    buffer_free(&text);
    return status;
}

FshStatus fsh_manifest_identify(FshManifest *manifest, FshError *error)
{
    XXH3_state_t *state = XXH3_createState();
    FshHash128 hash;
    FshStatus status = FSH_OK;
    if (!state || XXH3_128bits_reset(state) == XXH_ERROR) {
        (void)XXH3_freeState(state);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    }
    if (!manifest->files_id[0])
        memcpy(manifest->files_id, manifest->id, sizeof manifest->files_id);
    (void)XXH3_128bits_update(state, manifest->files_id, strlen(manifest->files_id));
    for (size_t i = 0; i < manifest->split_count; i++) {
        const FshSplitInfo *split = &manifest->splits[i];
        for (size_t j = 0; j < split->file_count; j++) {
            const FshFileInfo *file = &split->files[j];
            char numbers[48], digits[FSH_HASH_TEXT_BYTES];
            const int length = snprintf(numbers, sizeof numbers, " %" PRIu64 " %" PRIu64 " ",
                                        file->sample_count, file->bytes);
            fsh_hash_format(&file->hash, digits);
            (void)XXH3_128bits_update(state, "\n", 1);
            (void)XXH3_128bits_update(state, split->name, strlen(split->name));
            (void)XXH3_128bits_update(state, " ", 1);
            (void)XXH3_128bits_update(state, file->name, strlen(file->name));
            (void)XXH3_128bits_update(state, numbers, (size_t)length);
            (void)XXH3_128bits_update(state, digits, strlen(digits));
            status = mix_removed(state, file, error);
            if (status)
                goto done;
        }
    }
    (void)XXH3_128bits_update(state, "\n", 1);
    hash = fsh_hash_taken(state);
    fsh_hash_format(&hash, manifest->id);
done:
    (void)XXH3_freeState(state);
    return status;
}

/* ---- members, as they stand in the text ---- */

/* Is called for each member that has a checksum of its own; returns false to end the walk. */
typedef bool (*VisitMember)(const char *name, const JsonSlice *value, void *context);

/* Copies a member's name, after `before` and a dot where there is one. A name that is too long is cut: none
 * of ours is. */
static void name_member(char name[MEMBER_NAME_BYTES], const char *before, const JsonSlice *slice)
{
    (void)snprintf(name, MEMBER_NAME_BYTES, "%s%s%.*s", before, before[0] ? "." : "",
                   (int)(slice->bytes < 64 ? slice->bytes : 64), slice->text);
}

/* Walks over the members of a manifest: those of the whole, and in the place of "statistics" each of its own,
 * so that a number that changed is named and not only the object it stands in. Returns false if visit ended
 * the walk. */
static bool walk_members(const char *text, size_t bytes, const char *before, VisitMember visit, void *context)
{
    JsonScan scan = fsh_json_scan(text, bytes);
    JsonSlice name, value;
    while (fsh_json_scan_next(&scan, &name, &value)) {
        char member[MEMBER_NAME_BYTES];
        bool goes_on = true;
        if (!before[0] && fsh_json_slice_is(&name, SEAL_NAME))
            continue;
        name_member(member, before, &name);
        if (!before[0] && value.kind == JSON_SCAN_OBJECT && fsh_json_slice_is(&name, STATISTICS_NAME))
            goes_on = walk_members(value.text, value.bytes, STATISTICS_NAME, visit, context);
        else
            goes_on = visit(member, &value, context);
        if (!goes_on)
            return false;
    }
    return true;
}

/* Finds a member of the object that stands at text: *value_ret. Returns false if there is none. */
static bool find_member(const char *text, size_t bytes, const char *wanted, JsonSlice *value_ret)
{
    JsonScan scan = fsh_json_scan(text, bytes);
    JsonSlice name;
    while (fsh_json_scan_next(&scan, &name, value_ret)) {
        if (fsh_json_slice_is(&name, wanted))
            return true;
    }
    return false;
}

/* Writes the CRC32C of the value as it stands there, a text with its quotes. */
static void format_crc(const JsonSlice *value, char digits[CRC_DIGITS + 1])
{
    const size_t quote = value->kind == JSON_SCAN_TEXT;
    const uint32_t crc = fsh_crc32c(0, value->text - quote, value->bytes + 2 * quote);
    (void)snprintf(digits, CRC_DIGITS + 1, "%08" PRIx32, crc);
}

/* ---- writing ---- */

static bool add_blank(const char *name, const JsonSlice *value, void *context)
{
    (void)value;
    return json_object_set_new(context, name, json_string(CRC_BLANK)) == 0;
}

/* Puts a member's CRC32C in its place; context is the slice of the checksums, in the same text. */
static bool fill_blank(const char *name, const JsonSlice *value, void *context)
{
    const JsonSlice *checksums = context;
    JsonSlice place;
    char digits[CRC_DIGITS + 1];
    if (!find_member(checksums->text, checksums->bytes, name, &place) || place.bytes != CRC_DIGITS)
        return false;
    format_crc(value, digits);
    memcpy((char *)place.text, digits, CRC_DIGITS); /* the text is ours: see fsh_manifest_seal */
    return true;
}

FshStatus fsh_manifest_seal(json_t *object, char **text_ret, size_t *bytes_ret, FshError *error)
{
    /* Nine digits: more than a mean of bytes can carry, and 0.485 stays 0.485. */
    const size_t flags = JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9);
    json_t *checksums = json_pack("{s:s}", WHOLE_NAME, SEAL_BLANK);
    JsonSlice slice;
    (void)json_object_del(object, SEAL_NAME);
    char *text = json_dumps(object, flags);
    bool done = text && checksums && walk_members(text, strlen(text), "", add_blank, checksums);
    free(text);
    text = NULL;
    done = json_object_set_new(object, SEAL_NAME, checksums) == 0 && done; /* takes checksums over */
    if (done)
        text = json_dumps(object, flags);
    const size_t length = text ? strlen(text) : 0;
    if (text)
        text[length] = '\n'; /* in place of the NUL: a text file ends with a newline */
    done = text && find_member(text, length, SEAL_NAME, &slice) &&
           walk_members(text, length, "", fill_blank, &slice) && seal_text(text, length + 1);
    if (!done) {
        free(text);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    }
    *text_ret = text;
    *bytes_ret = length + 1;
    return FSH_OK;
}

/* ---- checking ---- */

/* What was found wrong by members. */
typedef struct Damage {
    const JsonSlice *checksums;
    const char *text; /* in which they stand */
    size_t bytes;
    char names[512]; /* of those that differ: "\"id\", \"statistics.mean\"" */
} Damage;

static void note_damage(Damage *damage, const char *name)
{
    const size_t length = strlen(damage->names);
    (void)snprintf(damage->names + length, sizeof damage->names - length, "%s\"%s\"", length ? ", " : "",
                   name);
}

static bool compare_crc(const char *name, const JsonSlice *value, void *context)
{
    Damage *damage = context;
    JsonSlice listed;
    char digits[CRC_DIGITS + 1];
    format_crc(value, digits);
    if (!find_member(damage->checksums->text, damage->checksums->bytes, name, &listed) ||
        !fsh_json_slice_is(&listed, digits))
        note_damage(damage, name);
    return true;
}

/* Returns whether a member is called anything but `name`, which is the context: the member of that name ends
 * the walk. */
static bool is_another(const char *name, const JsonSlice *value, void *context)
{
    (void)value;
    return strcmp(name, context) != 0;
}

/* Notes the members that have a checksum and are not there any more. */
static void find_missing(Damage *damage)
{
    JsonScan scan = fsh_json_scan(damage->checksums->text, damage->checksums->bytes);
    JsonSlice name, value;
    while (fsh_json_scan_next(&scan, &name, &value)) {
        char member[MEMBER_NAME_BYTES];
        name_member(member, "", &name);
        if (strcmp(member, WHOLE_NAME) != 0 &&
            walk_members(damage->text, damage->bytes, "", is_another, member))
            note_damage(damage, member);
    }
}

FshStatus fsh_manifest_check_seal(const char *text, size_t bytes, FshError *error)
{
    JsonSlice checksums, whole;
    char digits[FSH_HASH_TEXT_BYTES] = "";
    if (!find_member(text, bytes, SEAL_NAME, &checksums))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "\"" SEAL_NAME "\" is missing; " MANIFEST_REMEDY);
    const bool listed = checksums.kind == JSON_SCAN_OBJECT &&
                        find_member(checksums.text, checksums.bytes, WHOLE_NAME, &whole);
    if (listed && whole.bytes < sizeof digits)
        (void)snprintf(digits, sizeof digits, "%.*s", (int)whole.bytes, whole.text);
    if (seal_holds(text, bytes, digits))
        return FSH_OK;
    Damage damage = {.checksums = &checksums, .text = text, .bytes = bytes};
    if (checksums.kind == JSON_SCAN_OBJECT) {
        (void)walk_members(text, bytes, "", compare_crc, &damage);
        find_missing(&damage);
    }
    return fsh_error_set(error, FSH_ERR_CORRUPT, "was changed since it was written: %s%s; " MANIFEST_REMEDY,
                         damage.names[0] ? damage.names : "\"" SEAL_NAME "\" or what stands between members",
                         damage.names[0] ? " by its checksum" : "");
}

bool fsh_manifest_member_is_whole(const char *text, size_t bytes, const char *name)
{
    JsonSlice checksums, value, listed;
    char digits[CRC_DIGITS + 1];
    if (!find_member(text, bytes, name, &value) || !find_member(text, bytes, SEAL_NAME, &checksums) ||
        checksums.kind != JSON_SCAN_OBJECT || !find_member(checksums.text, checksums.bytes, name, &listed))
        return false;
    format_crc(&value, digits);
    return fsh_json_slice_is(&listed, digits);
}
