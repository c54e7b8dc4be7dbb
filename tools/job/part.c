#include "tools/job/part.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_MAX = 65536 };

/* ---- which part ---- */

/* Reads digits alone, up to end, into *number_ret. Returns false for anything else, or beyond UINT32_MAX. */
static bool parse_number(const char *text, const char *end, uint32_t *number_ret)
{
    uint64_t number = 0;
    if (text == end)
        return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return false;
        number = number * 10 + (uint64_t)(*text - '0');
        if (number > UINT32_MAX)
            return false;
    }
    *number_ret = (uint32_t)number;
    return true;
}

/* Reads a variable that Slurm sets. An absent one leaves *number_ret as it is, where it may be absent. */
static FshStatus read_variable(const char *option, const char *name, bool optional, uint32_t *number_ret,
                               FshError *error)
{
    const char *text = getenv(name);
    if (!text && optional)
        return FSH_OK;
    if (!text)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s: 'auto' is for tasks of a Slurm array (sbatch --array=1-8), and %s is not set; "
            "elsewhere give it as 3/8",
            option, name);
    if (!parse_number(text, text + strlen(text), number_ret))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: %s is '%s', which is no number", option, name, text);
    return FSH_OK;
}

static FshStatus part_of_array(const char *option, Part *part, FshError *error)
{
    uint32_t id = 0, first = 0, last = 0, step = 1, tasks = 0;
    const struct {
        const char *name;
        bool optional;
        uint32_t *number;
    } variables[] = {
        {"SLURM_ARRAY_TASK_ID", false, &id},      {"SLURM_ARRAY_TASK_MIN", false, &first},
        {"SLURM_ARRAY_TASK_MAX", false, &last},   {"SLURM_ARRAY_TASK_STEP", true, &step},
        {"SLURM_ARRAY_TASK_COUNT", true, &tasks},
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        FshStatus status =
            read_variable(option, variables[i].name, variables[i].optional, variables[i].number, error);
        if (status)
            return status;
    }
    if (!step || id < first || id > last || (id - first) % step)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: SLURM_ARRAY_TASK_ID %u is none of %u-%u:%u, which MIN, MAX and STEP tell",
                             option, id, first, last, step);
    uint64_t count = (uint64_t)(last - first) / step + 1;
    /* Of "--array=1,3,7" only the ends are told: parts 2 and 4 to 6 would be done by nobody. */
    if (tasks && tasks != count)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s: the Slurm array has %u tasks, not all of %u-%u:%u; 'auto' needs a whole range, or "
            "give the part as 3/8",
            option, tasks, first, last, step);
    if (count > PARTS_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: the Slurm array has %llu tasks; at most %d parts",
                             option, (unsigned long long)count, PARTS_MAX);
    *part = (Part){.index = (id - first) / step + 1, .count = (uint32_t)count};
    return FSH_OK;
}

FshStatus part_parse(const char *option, const char *text, Part *part, FshError *error)
{
    *part = (Part){0};
    if (!strcmp(text, "auto"))
        return part_of_array(option, part, error);
    Part parsed;
    const char *slash = strchr(text, '/');
    if (!slash || !parse_number(text, slash, &parsed.index) ||
        !parse_number(slash + 1, text + strlen(text), &parsed.count))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s' is no part; expected as 3/8, or auto", option,
                             text);
    if (!parsed.index || parsed.index > parsed.count || parsed.count > PARTS_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: '%s' is no part; the first is 1/N and the last N/N, with N at most %d",
                             option, text, PARTS_MAX);
    *part = parsed;
    return FSH_OK;
}

/* ---- what is in it ---- */

void part_scan_init(PartScan *scan)
{
    scan->count = scan->bytes = scan->sums_count = 0;
    scan->stride = 1;
}

void part_scan_add(PartScan *scan, uint64_t bytes)
{
    if (scan->count % scan->stride == 0) {
        if (scan->sums_count ==
            PART_SCAN_STEPS) { /* every second sum goes; this item has one in the wider stride too */
            scan->sums_count /= 2;
            for (size_t i = 1; i < scan->sums_count; i++)
                scan->bytes_before[i] = scan->bytes_before[2 * i];
            scan->stride *= 2;
        }
        scan->bytes_before[scan->sums_count++] = scan->bytes;
    }
    scan->count++;
    if (!bytes)
        bytes = 1;
    scan->bytes = bytes > UINT64_MAX - scan->bytes ? UINT64_MAX : scan->bytes + bytes;
}

/* Returns the step, or the end, that lies nearest to part/count of all bytes; the lower of two. Since it
 * never goes back as part grows, and each part ends where the next begins, the parts are disjoint and
 * complete. */
static uint64_t border(const PartScan *scan, uint32_t part, uint32_t count)
{
    if (!part)
        return 0;
    if (part == count)
        return scan->count;
    /* bytes * part / count without the overflow */
    uint64_t target = scan->bytes / count * part + scan->bytes % count * part / count;
    size_t low = 0, high = (size_t)scan->sums_count;
    while (low < high) { /* the first sum that reaches the target */
        size_t middle = low + (high - low) / 2;
        if (scan->bytes_before[middle] < target)
            low = middle + 1;
        else
            high = middle;
    }
    bool is_end = low == scan->sums_count;
    uint64_t above = is_end ? scan->bytes : scan->bytes_before[low];
    uint64_t item = is_end ? scan->count : low * scan->stride;
    if (low && target - scan->bytes_before[low - 1] <= above - target)
        item = (low - 1) * scan->stride;
    return item;
}

void part_scan_range(const PartScan *scan, Part part, uint64_t *begin_ret, uint64_t *end_ret)
{
    *begin_ret = part.count ? border(scan, part.index - 1, part.count) : 0;
    *end_ret = part.count ? border(scan, part.index, part.count) : scan->count;
}
