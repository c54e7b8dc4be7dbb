/* A torn shard's records stand for themselves: each has a magic, its length and a CRC32C, and begins at a
 * multiple of 64, or, if it is compact, anywhere. So they are looked for from the front; where there is none,
 * the next place is tried, until one has all three. The header, which is the beginning of every intact shard,
 * is taken over byte for byte, and so are the records.
 *
 * Whoever wishes us ill lets a thousand records begin that all claim the rest of the file. So each byte goes
 * through the CRC once, from the front, and what it was on the way is kept at every CHECKPOINT_BYTES: the CRC
 * of any stretch then comes of those at its two ends (fsh_crc32c_combine), and of at most 2 *
 * CHECKPOINT_BYTES bytes, however long it is. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/interrupt.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "formats/dictionary.h"
#include "formats/metadata.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "formats/xxh3.h"

enum { CHECKPOINT_BYTES = 6144 }; /* 1/1536 of the file is memory; three long blocks of crc32c_sse42.c */

/* CRC32C of the first n bytes, for any n, each byte read about once. */
typedef struct RunningCrc {
    const uint8_t *bytes;
    uint32_t *checkpoints; /* of the first i * CHECKPOINT_BYTES bytes; owned */
    uint64_t count;        /* of them that are known: at least one */
} RunningCrc;

typedef struct Repair {
    const char *path; /* for messages */
    FileMapping mapping;
    ShardView view;
    Metadata metadata;
    RunningCrc running; /* only where records are looked for */
    uint64_t end;       /* of the part where records are */
    bool indexed;       /* the index can be believed: it says what there was */
    Buffer own_rows;
    const uint8_t *old_rows; /* then: its rows, in the file or in own_rows */
    AtomicFile file;         /* the new shard */
    XXH3_state_t *hash;
    Buffer rows; /* of its index */
    FshRepairReport *report;
    FshLossVisit visit;
    void *context;
} Repair;

static FshStatus out_of_memory(const Repair *repair, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", repair->path);
}

/* ---- what is lost ---- */

static void tell(Repair *repair, uint64_t begin, uint64_t end, const char *reason)
{
    const uint8_t *bytes = repair->mapping.bytes + begin;
    FshLoss loss = {.offset = begin, .bytes = end - begin, .reason = reason};
    FshSample sample;
    RecordHead head;
    FshError unread = {0};
    /* A damaged payload leaves the record's own header readable: the key is a help, if no proof. */
    if (fsh_record_parse(bytes, repair->end - begin, repair->view.record_form, &sample, &head, NULL) ==
            FSH_OK &&
        file_mapping_check(&repair->mapping, begin,
                           (uint64_t)((const uint8_t *)sample.fields[0].data - bytes), NULL) == FSH_OK) {
        loss.key = sample.key;
        loss.key_bytes = sample.key_bytes;
        loss.source = sample.fields[0].source;
        loss.source_bytes = sample.fields[0].source_bytes;
    }
    if (file_mapping_check(&repair->mapping, begin, end - begin, &unread))
        loss.reason = unread.message;
    if (repair->visit)
        repair->visit(&loss, repair->context);
    repair->report->lost_bytes += loss.bytes;
    repair->report->lost_ranges++;
}

/* ---- the new shard ---- */

static FshStatus put(Repair *repair, const void *bytes, size_t length, FshError *error)
{
    if (XXH3_128bits_update(repair->hash, bytes, length) == XXH_ERROR)
        return fsh_error_set(error, FSH_ERR_LIBRARY, "%s: XXH3 failed", repair->path);
    return atomic_file_write(&repair->file, bytes, length, error);
}

static FshStatus put_record(Repair *repair, uint64_t offset, const RecordHead *head, FshError *error)
{
    uint8_t row[INDEX_ROW_BYTES];
    const IndexRow values = {.offset = repair->file.offset,
                             .record_bytes = head->record_bytes,
                             .label = head->label,
                             .crc = head->crc};
    fsh_index_row_store(row, &values);
    FshStatus status = buffer_append(&repair->rows, row, sizeof row, error);
    if (!status)
        status = put(repair, repair->mapping.bytes + offset, (size_t)head->record_bytes, error);
    repair->report->record_count++;
    repair->report->record_bytes += head->record_bytes;
    return status;
}

static FshStatus put_end(Repair *repair, FshError *error)
{
    static const uint8_t zeros[FSH_ALIGNMENT];
    const uint64_t index_offset = align_up(repair->file.offset), count = repair->report->record_count;
    const size_t gap = (size_t)(index_offset - repair->file.offset);
    const FshRecordForm form = repair->view.record_form;
    Buffer *rows = &repair->rows;
    rows->length = fsh_shard_pack_rows(rows->bytes, count, form);
    const size_t padding = (size_t)(align_up(rows->length) - rows->length);
    FshStatus status = gap ? put(repair, zeros, gap, error) : FSH_OK;
    if (!status && rows->length)
        status = put(repair, rows->bytes, rows->length, error);
    if (!status && padding)
        status = put(repair, zeros, padding, error);
    if (status)
        return status;
    FshHash128 hash;
    uint8_t footer[SHARD_FOOTER_BYTES];
    hash = fsh_hash_taken(repair->hash);
    fsh_shard_store_footer(footer, count, form, index_offset, fsh_crc32c(0, rows->bytes, rows->length),
                           &hash);
    status = atomic_file_write(&repair->file, footer, sizeof footer, error);
    return status ? status : atomic_file_commit(&repair->file, true, error);
}

/* ---- the torn one ---- */

static FshStatus running_crc_open(Repair *repair, FshError *error)
{
    uint64_t count = repair->mapping.length / CHECKPOINT_BYTES + 1;
    repair->running = (RunningCrc){
        .bytes = repair->mapping.bytes, .checkpoints = calloc((size_t)count, sizeof(uint32_t)), .count = 1};
    return repair->running.checkpoints ? FSH_OK : out_of_memory(repair, error);
}

static uint32_t crc_before(RunningCrc *running, uint64_t end)
{
    const uint64_t needed = end / CHECKPOINT_BYTES;
    for (; running->count <= needed; running->count++) {
        const uint64_t last = running->count - 1;
        running->checkpoints[running->count] = fsh_crc32c(
            running->checkpoints[last], running->bytes + last * CHECKPOINT_BYTES, CHECKPOINT_BYTES);
    }
    return fsh_crc32c(running->checkpoints[needed], running->bytes + needed * CHECKPOINT_BYTES,
                      (size_t)(end - needed * CHECKPOINT_BYTES));
}

static uint32_t crc_between(RunningCrc *running, uint64_t begin, uint64_t end)
{
    uint32_t until_end = crc_before(running, end);
    return fsh_crc32c_combine(crc_before(running, begin), until_end, end - begin);
}

/* Checks that an intact record of this dataset begins at offset, within length bytes. Fills *head. */
static FshStatus check_record(Repair *repair, uint64_t offset, uint64_t length, RecordHead *head,
                              FshError *error)
{
    const uint8_t *bytes = repair->mapping.bytes + offset;
    FshSample sample;
    FshStatus status = fsh_record_parse(bytes, length, repair->view.record_form, &sample, head, error);
    if (!status && repair->running.checkpoints)
        status = fsh_record_verify_crc(
            &sample, head,
            crc_between(&repair->running, offset + RECORD_CRC_BEGIN, offset + head->record_bytes), error);
    else if (!status)
        status = fsh_record_verify(bytes, &sample, head, error);
    if (!status)
        status = fsh_record_fits(&sample, &repair->metadata, error);
    if (!status && file_mapping_check(&repair->mapping, offset, head->record_bytes, error))
        status = FSH_ERR_SYSTEM;
    return status;
}

/* Reads the header, and finds where records end as far as footer and index can still be believed. */
static FshStatus look_at_structure(Repair *repair, FshError *error)
{
    ShardView *view = &repair->view;
    FshError found = {0};
    bool torn = false;
    FshStatus status = fsh_shard_parse_header(view, repair->mapping.bytes, repair->mapping.length, &found);
    if (!status)
        status = fsh_metadata_parse(&repair->metadata, view->metadata, view->metadata_bytes, NULL, &found);
    if (!status)
        status = fsh_dictionary_check(view->dictionary, view->dictionary_bytes, &repair->metadata.dictionary,
                                      &found);
    if (file_mapping_check(&repair->mapping, 0, repair->mapping.length,
                           &found)) /* nothing else was read yet */
        status = FSH_ERR_SYSTEM;
    if (status)
        return fsh_error_set(error, status,
                             "%s: %s; without its header a shard cannot be repaired: pack it again",
                             repair->path, found.message);
    repair->end = repair->mapping.length;
    if (fsh_shard_parse_footer(view, &torn, NULL) == FSH_OK) {
        repair->end = view->index_offset;
        repair->indexed =
            fsh_shard_check_index(view, repair->metadata.class_count, NULL, NULL, NULL) == FSH_OK;
    }
    repair->report->indexed = repair->indexed;
    return repair->indexed ? fsh_shard_rows(view, &repair->own_rows, &repair->old_rows, error) : FSH_OK;
}

static FshStatus interrupted(const Repair *repair, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_INTERRUPTED, "%s: interrupted; nothing was written", repair->path);
}

/* Copies the records that an intact index lists: so nothing in a damaged record can pass for another. */
static FshStatus copy_by_index(Repair *repair, FshError *error)
{
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; i < repair->view.record_count && !status; i++) {
        const IndexRow row = fsh_index_row_load(repair->old_rows + i * INDEX_ROW_BYTES);
        RecordHead head = {0};
        FshError found = {0};
        if (interrupt_requested())
            return interrupted(repair, error);
        if (check_record(repair, row.offset, row.record_bytes, &head, &found) == FSH_OK &&
            (head.record_bytes != row.record_bytes || head.crc != row.crc || head.label != row.label))
            (void)fsh_error_set(&found, FSH_ERR_CORRUPT, "is not the record of its index row");
        if (found.status)
            tell(repair, row.offset, row.offset + row.record_bytes, found.message);
        else
            status = put_record(repair, row.offset, &head, error);
    }
    return status;
}

/* Returns the first place from offset on where a record may begin; repair->end if there is none. */
static uint64_t next_place(const Repair *repair, uint64_t offset)
{
    if (repair->view.record_form != FSH_RECORD_COMPACT)
        return align_up(offset);
    const uint8_t *bytes = repair->mapping.bytes;
    const uint8_t *found =
        offset < repair->end ? fsh_compact_find(bytes + offset, repair->end - offset) : NULL;
    return found ? (uint64_t)(found - bytes) : repair->end;
}

/* Returns whether a part is zeros that bring a shard of compact records to where its index began: they are no
 * loss. */
static bool is_padding(const Repair *repair, uint64_t begin)
{
    const uint64_t length = repair->end - begin;
    return repair->view.record_form == FSH_RECORD_COMPACT && length < FSH_ALIGNMENT &&
           bytes_are_zero(repair->mapping.bytes + begin, (size_t)length);
}

static FshStatus copy_by_search(Repair *repair, FshError *error)
{
    static const char reason[] = "no intact record";
    uint64_t offset = repair->view.header_bytes, lost_begin = offset;
    FshStatus status = running_crc_open(repair, error);
    while ((offset = next_place(repair, offset)) < repair->end && !status) {
        RecordHead head;
        if (interrupt_requested())
            return interrupted(repair, error);
        if (check_record(repair, offset, repair->end - offset, &head, NULL)) {
            offset++;
            continue;
        }
        if (lost_begin < offset)
            tell(repair, lost_begin, offset, reason);
        status = put_record(repair, offset, &head, error);
        offset += head.record_bytes;
        lost_begin = offset;
    }
    if (!status && lost_begin < repair->end && !is_padding(repair, lost_begin))
        tell(repair, lost_begin, repair->end, reason);
    return status;
}

FshStatus fsh_repair(const char *path, const char *repaired_path, FshLossVisit visit, void *context,
                     FshRepairReport *report, FshError *error)
{
    FshRepairReport unused;
    Repair repair = {.path = path, .report = report ? report : &unused, .visit = visit, .context = context};
    *repair.report = (FshRepairReport){0};
    FshStatus status = file_map(path, &repair.mapping, error);
    if (status)
        return status;
    status = look_at_structure(&repair, error);
    if (status)
        goto done;
    repair.hash = XXH3_createState();
    if (!repair.hash || XXH3_128bits_reset(repair.hash) == XXH_ERROR) {
        status = out_of_memory(&repair, error);
        goto done;
    }
    status = atomic_file_open(&repair.file, repaired_path, false, error);
    if (!status)
        status = put(&repair, repair.mapping.bytes, repair.view.header_bytes, error);
    if (!status)
        status = repair.indexed ? copy_by_index(&repair, error) : copy_by_search(&repair, error);
    if (!status)
        status = put_end(&repair, error);
done:
    atomic_file_abandon(&repair.file);
    (void)XXH3_freeState(repair.hash);
    free(repair.running.checkpoints);
    buffer_free(&repair.rows);
    buffer_free(&repair.own_rows);
    fsh_metadata_free(&repair.metadata);
    file_unmap(&repair.mapping);
    return status;
}
