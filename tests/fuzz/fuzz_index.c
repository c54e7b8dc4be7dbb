/* An index alone: 16 bytes say where the records end and how many classes there are, rows follow. A sound
 * index covers the records without gaps, and its labels are classes. */
#include "common/bytes.h"
#include "common/crc32c.h"
#include "formats/shard.h"
#include "tests/fuzz/fuzz.h"

enum { HEAD_BYTES = 16, HEADER_BYTES = 128, CLASSES_MAX = 1 << 12 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static uint64_t class_counts[CLASSES_MAX]; /* too large for a stack; only ever added to */
    if (length < HEAD_BYTES)
        return 0;
    uint64_t class_count = load_le64(bytes + 8) % CLASSES_MAX;
    ShardView view = {.header_bytes = HEADER_BYTES,
                      .index_offset = load_le64(bytes),
                      .record_count = (length - HEAD_BYTES) / INDEX_ROW_BYTES,
                      .index = bytes + HEAD_BYTES};
    view.index_bytes = view.record_count * INDEX_ROW_BYTES;
    if (view.index_offset < HEADER_BYTES) /* the footer's check has refused that */
        return 0;
    view.index_crc = fsh_crc32c(0, view.index, (size_t)view.index_bytes);
    FshError error = {0};
    int64_t row = 0;
    FshStatus status = fsh_shard_check_index(&view, class_count, class_counts, &row, &error);
    fuzz_expect(row >= -1 && row < (int64_t)view.record_count, "the row that is wrong is one of them");
    uint64_t end = HEADER_BYTES;
    for (uint64_t i = 0; i < view.record_count && !status; i++) {
        IndexRow read = fsh_index_row_load(view.index + i * INDEX_ROW_BYTES);
        fuzz_expect(read.offset == end && read.record_bytes <= view.index_offset - end, "there is no gap");
        fuzz_expect(read.label >= FSH_NO_LABEL && read.label < (int64_t)class_count, "a label is a class");
        end += read.record_bytes;
    }
    fuzz_expect(status || end == view.index_offset, "the records end where the index begins");
    return 0;
}
