#include "formats/updated.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dictionary.h"
#include "formats/names.h"
#include "formats/shard.h"

const char *fsh_updated_name(char *buffer, size_t buffer_bytes, const char *split, uint32_t updates,
                             uint32_t shard_index, uint32_t shard_count)
{
    (void)snprintf(buffer, buffer_bytes, "%s-u%05" PRIu32 "-%05" PRIu32 "-of-%05" PRIu32 ".fshard", split,
                   updates, shard_index, shard_count);
    return buffer;
}

bool fsh_is_updated_name(const char *name)
{
    static const char form[] = "-u#####-#####-of-#####.fshard";
    const size_t form_bytes = sizeof form - 1, name_bytes = strlen(name);
    bool is = name_bytes > form_bytes;
    for (size_t i = 0; i < form_bytes && is; i++) {
        const char at = name[name_bytes - form_bytes + i];
        is = form[i] == '#' ? at >= '0' && at <= '9' : at == form[i];
    }
    return is;
}

/* ---- rows that are no samples ---- */

FshStatus fsh_rows_format(const FshRowRange *ranges, size_t count, Buffer *text, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < count && !status; i++) {
        char part[32];
        const uint64_t last = (uint64_t)ranges[i].first + ranges[i].count - 1;
        int length = snprintf(part, sizeof part, "%s%" PRIu32, i ? "," : "", ranges[i].first);
        if (ranges[i].count > 1)
            length += snprintf(part + length, sizeof part - (size_t)length, "-%" PRIu64, last);
        status = buffer_append(text, part, (size_t)length, error);
    }
    return status;
}

/* Reads a number below 2^32 at *at and moves *at past it. Returns false if there is none, or it is written
 * with zeros before it. */
static bool read_number(const char **at, uint64_t *number_ret)
{
    const char *begin = *at;
    uint64_t number = 0;
    for (; **at >= '0' && **at <= '9' && number <= UINT32_MAX; (*at)++)
        number = 10 * number + (uint64_t)(**at - '0');
    *number_ret = number;
    return *at > begin && number <= UINT32_MAX && (*begin != '0' || *at == begin + 1);
}

FshStatus fsh_rows_parse(const char *text, FshRowRange **ranges_ret, size_t *count_ret, FshError *error)
{
    size_t commas = 0, count = 0;
    const char *at = text;
    for (const char *comma = strchr(text, ','); comma; comma = strchr(comma + 1, ','))
        commas++;
    FshRowRange *ranges = calloc(commas + 1, sizeof *ranges);
    *ranges_ret = NULL;
    *count_ret = 0;
    if (!ranges)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (uint64_t next = 0;;) {
        uint64_t first = 0, last = 0;
        bool good = read_number(&at, &first) && first >= next;
        last = first;
        if (good && *at == '-') {
            at++;
            good = read_number(&at, &last) && last > first;
        }
        /* Ranges that touch would be written as one. */
        if (!good || (count && first == next) || last - first == UINT32_MAX || (*at && *at != ',')) {
            free(ranges);
            return fsh_error_set(error, FSH_ERR_CORRUPT, "\"removed\" is no list of ascending rows");
        }
        ranges[count++] = (FshRowRange){.first = (uint32_t)first, .count = (uint32_t)(last - first + 1)};
        next = last + 1;
        if (!*at)
            break;
        at++;
    }
    *ranges_ret = ranges;
    *count_ret = count;
    return FSH_OK;
}

uint64_t fsh_rows_count(const FshRowRange *ranges, size_t count)
{
    uint64_t rows = 0;
    for (size_t i = 0; i < count; i++)
        rows += ranges[i].count;
    return rows;
}

bool fsh_rows_hold(const FshRowRange *ranges, size_t count, uint64_t row)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((uint64_t)ranges[middle].first + ranges[middle].count <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[low].first <= row;
}

/* ---- classes ---- */

/* Makes the numbering of a shard's classes in the dataset. Both lists are in one order, as a rule, so that
 * the next name stands close behind the one before. */
static FshStatus map_labels(SplitFile *file, const Metadata *found, const Metadata *expected, FshError *error)
{
    const size_t count = expected->class_count;
    size_t next = 0;
    free(file->labels);
    file->labels = calloc(found->class_count + 1, sizeof *file->labels);
    if (!file->labels)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    file->label_count = found->class_count;
    for (size_t i = 0; i < found->class_count; i++) {
        size_t tried = 0;
        file->labels[i] = LABEL_GONE;
        for (; tried < count && file->labels[i] == LABEL_GONE; tried++) {
            const size_t at = (next + tried) % count;
            if (strcmp(found->class_names[i], expected->class_names[at]) == 0)
                file->labels[i] = (int32_t)at;
        }
        if (file->labels[i] != LABEL_GONE)
            next = ((size_t)file->labels[i] + 1) % count;
    }
    return FSH_OK;
}

FshStatus fsh_updated_fit(SplitFile *file, const Metadata *found, const Metadata *expected,
                          const FshFileInfo *info, FshError *error)
{
    Metadata own = *expected; /* borrows */
    own.class_names = found->class_names;
    own.class_count = found->class_count;
    if (info->files_id[0])
        memcpy(own.id, info->files_id, sizeof own.id);
    FshStatus status = fsh_metadata_compare_parsed(found, &own, error);
    if (!status && !fsh_names_equal(found->class_names, found->class_count, expected->class_names,
                                    expected->class_count))
        status = map_labels(file, found, expected, error);
    return status;
}

int64_t fsh_updated_label(const SplitFile *file, int64_t label)
{
    if (!file->labels || label < 0)
        return label;
    return label < (int64_t)file->label_count ? file->labels[label] : LABEL_GONE;
}

/* ---- samples ---- */

/* Calls for each row that is a sample: stores it in rows, or counts it in class_counts, whichever is not
 * NULL. numbers, which may be NULL: where its number is stored. */
static FshStatus each_sample(const SplitFile *file, const FshFileInfo *info, uint8_t *rows, uint32_t *numbers,
                             uint64_t *class_counts, FshError *error)
{
    size_t range = 0;
    uint64_t taken = 0;
    for (uint64_t i = 0; i < file->record_count; i++) {
        while (range < info->removed_count &&
               (uint64_t)info->removed[range].first + info->removed[range].count <= i)
            range++;
        if (range < info->removed_count && info->removed[range].first <= i)
            continue;
        IndexRow row = fsh_index_row_load(file->rows + i * INDEX_ROW_BYTES);
        row.label = fsh_updated_label(file, row.label);
        if (row.label == LABEL_GONE)
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "record %" PRIu64 " is of a class that the dataset has not", i);
        if (class_counts && row.label >= 0)
            class_counts[row.label]++;
        if (rows)
            fsh_index_row_store(rows + taken * INDEX_ROW_BYTES, &row);
        if (numbers)
            numbers[taken] = (uint32_t)i;
        taken++;
    }
    return FSH_OK;
}

/* Checks that there are so many rows as the manifest says, samples or not. */
static FshStatus check_rows(const SplitFile *file, const FshFileInfo *info, FshError *error)
{
    const uint64_t removed = fsh_rows_count(info->removed, info->removed_count);
    const FshRowRange *last = info->removed_count ? &info->removed[info->removed_count - 1] : NULL;
    if ((last && (uint64_t)last->first + last->count > file->record_count) ||
        file->record_count - removed != info->sample_count)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "holds %" PRIu64 " records, not the %" PRIu64 " samples and %" PRIu64
                             " removed ones that the manifest says",
                             file->record_count, info->sample_count, removed);
    return FSH_OK;
}

FshStatus fsh_updated_take(SplitFile *file, const FshFileInfo *info, FshError *error)
{
    FshStatus status = check_rows(file, info, error);
    if (status || (!info->removed_count && !file->labels))
        return status;
    Buffer rows = {0};
    uint32_t *numbers = calloc(info->sample_count + 1, sizeof *numbers);
    status = numbers ? buffer_reserve(&rows, (size_t)info->sample_count * INDEX_ROW_BYTES + 1, error)
                     : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    if (!status)
        status = each_sample(file, info, rows.bytes, numbers, NULL, error);
    if (status) {
        buffer_free(&rows);
        free(numbers);
        return status;
    }
    buffer_free(&file->own_rows);
    file->own_rows = rows;
    file->rows = rows.bytes;
    file->numbers = numbers;
    file->record_count = info->sample_count;
    return FSH_OK;
}

FshStatus fsh_updated_count(const SplitFile *file, const FshFileInfo *info, uint64_t *class_counts,
                            FshError *error)
{
    FshStatus status = check_rows(file, info, error);
    return status ? status : each_sample(file, info, NULL, NULL, class_counts, error);
}
