/* record.h - records, aligned and compact. Layouts are in fshard(5); this header only names their parts.
 *
 * Parsers are pure functions of (bytes, length): they never read outside, keep no state, and can be fuzzed.
 * Their messages name no file: the caller prepends it. Pointers in their results lie in the bytes they were
 * given. */
#ifndef FSHARD_FORMATS_RECORD_H
#define FSHARD_FORMATS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/fshard.h"
#include "formats/metadata.h"

/* Returns the next multiple of FSH_ALIGNMENT; value at most 2^63. */
static inline uint64_t align_up(uint64_t value)
{
    return (value + FSH_ALIGNMENT - 1) & ~(uint64_t)(FSH_ALIGNMENT - 1);
}

enum { RECORD_HEADER_BYTES = 64, FIELD_ROW_BYTES = 32, RECORD_BYTES_MIN = 192, COMPACT_BYTES_MIN = 18 };
#define RECORD_BYTES_MAX (UINT64_C(1) << 40)

/* What a record's first bytes say, for comparing with its index row. */
typedef struct RecordHead {
    uint64_t record_bytes;
    int64_t label;
    uint32_t crc;
    FshRecordForm form;
} RecordHead;

/* Reads the structure of the record at bytes, of which available bytes may be read; padding and CRC are not
 * looked at. A record of another form is refused. Fills sample (its index excepted) and head.
 * FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED. */
FshStatus fsh_record_parse(const uint8_t *bytes, uint64_t available, FshRecordForm form, FshSample *sample,
                           RecordHead *head, FshError *error);
/* Returns the label of an aligned record of at least RECORD_BYTES_MIN bytes, unchecked. */
int64_t fsh_record_label(const uint8_t *bytes);
/* Returns the stored CRC of a record of either form. */
uint32_t fsh_record_crc(const uint8_t *bytes);
/* Checks CRC32C and zero padding of a record that fsh_record_parse has passed. */
FshStatus fsh_record_verify(const uint8_t *bytes, const FshSample *sample, const RecordHead *head,
                            FshError *error);
/* The same where the CRC32C of the record's bytes from RECORD_CRC_BEGIN on is known. */
enum { RECORD_CRC_BEGIN = 8 };
FshStatus fsh_record_verify_crc(const FshSample *sample, const RecordHead *head, uint32_t crc,
                                FshError *error);
/* Checks that the sample may be in a split of this metadata. FSH_ERR_MISMATCH. */
FshStatus fsh_record_fits(const FshSample *sample, const Metadata *metadata, FshError *error);

/* Checks channels, codec, and that raw bytes are width x height x channels. FSH_ERR_CORRUPT,
 * FSH_ERR_UNSUPPORTED. */
FshStatus fsh_field_check_codec(const FshField *field, unsigned index, FshError *error);

/* Computes *bytes_ret, the bytes of a sample's compact record (record_compact.c), for record.c, which has
 * checked the sample. FSH_ERR_MISMATCH: too large. */
FshStatus fsh_compact_measure(const FshSample *sample, uint64_t *bytes_ret, FshError *error);
/* Writes the record of record_bytes, as measured, to bytes. */
void fsh_compact_store(const FshSample *sample, uint8_t *bytes, size_t record_bytes);
FshStatus fsh_compact_parse(const uint8_t *bytes, uint64_t available, FshSample *sample, RecordHead *head,
                            FshError *error);
/* Returns whether the key of a sample that was parsed stands where a writer would have put it. */
bool fsh_compact_has_key_in_place(const FshSample *sample);
/* Returns the first place where a compact record may begin, or NULL. */
const uint8_t *fsh_compact_find(const uint8_t *bytes, uint64_t length);

#endif
