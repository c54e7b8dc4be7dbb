#include "tools/job/part.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* What a batch system tells a task of an array, by names of variables; NULL: it does not tell. */
typedef struct ArraySystem {
    const char *name, *start; /* how such an array is begun */
    const char *index, *none; /* the index, and its value in a job that is no array's */
    const char *first, *last, *step, *count;
    uint32_t base; /* the first index, where no variable tells it */
} ArraySystem;

/* clang-format off */
static const ArraySystem systems[] = {
    {.name = "Slurm", .start = "sbatch --array=1-8", .index = "SLURM_ARRAY_TASK_ID",
     .first = "SLURM_ARRAY_TASK_MIN", .last = "SLURM_ARRAY_TASK_MAX", .step = "SLURM_ARRAY_TASK_STEP",
     .count = "SLURM_ARRAY_TASK_COUNT"},
    {.name = "Kubernetes", .start = "completionMode: Indexed", .index = "JOB_COMPLETION_INDEX"},
    {.name = "AWS Batch", .start = "--array-properties size=8", .index = "AWS_BATCH_JOB_ARRAY_INDEX",
     .count = "AWS_BATCH_JOB_ARRAY_SIZE"},
    {.name = "Google Cloud Batch", .start = "taskCount: 8", .index = "BATCH_TASK_INDEX",
     .count = "BATCH_TASK_COUNT"},
    {.name = "PBS", .start = "qsub -J 1-8", .index = "PBS_ARRAY_INDEX", .base = 1},
    {.name = "Torque", .start = "qsub -t 1-8", .index = "PBS_ARRAYID", .base = 1},
    {.name = "Grid Engine", .start = "qsub -t 1-8", .index = "SGE_TASK_ID", .none = "undefined",
     .first = "SGE_TASK_FIRST", .last = "SGE_TASK_LAST", .step = "SGE_TASK_STEPSIZE"},
    {.name = "LSF", .start = "bsub -J 'name[1-8]'", .index = "LSB_JOBINDEX", .none = "0", .base = 1,
     .last = "LSB_JOBINDEX_END", .step = "LSB_JOBINDEX_STEP"},
};
/* clang-format on */

/* Reads a variable of a batch system. One that it does not tell leaves *number_ret as it is. FSH_ERR_USAGE:
 * it is no number, or absent and needed. */
static FshStatus read_variable(const char *option, const char *name, bool needed, uint32_t *number_ret,
                               FshError *error)
{
    const char *text = name ? getenv(name) : NULL;
    if (!text && needed)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: 'auto': %s is not set, which the job array needs; give the part as 3/8",
                             option, name);
    if (text && !parse_number(text, text + strlen(text), number_ret))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: %s is '%s', which is no number", option, name, text);
    return FSH_OK;
}

/* Returns whether this process is a task of such an array. */
static bool is_task_of(const ArraySystem *system)
{
    const char *index = getenv(system->index);
    return index && (!system->none || strcmp(index, system->none) != 0);
}

/* Returns whether the system tells how many tasks the array has. */
static bool tells_count(const ArraySystem *system)
{
    return system->first || (system->last && getenv(system->last)) ||
           (system->count && getenv(system->count));
}

/* Reads which task of its array this is. count: what the option says of it; 0: nothing, the system tells. */
static FshStatus part_of_array(const char *option, const ArraySystem *system, uint32_t count, Part *part,
                               FshError *error)
{
    uint32_t index = 0, first = system->base, last = 0, step = 1, tasks = 0;
    FshStatus status = read_variable(option, system->index, true, &index, error);
    if (!status)
        status = read_variable(option, system->first, system->first != NULL, &first, error);
    if (!status)
        status = read_variable(option, system->last, system->first != NULL, &last, error);
    if (!status)
        status = read_variable(option, system->step, false, &step, error);
    if (!status)
        status = read_variable(option, system->count, false, &tasks, error);
    if (status)
        return status;
    const bool has_last = system->last && getenv(system->last);
    const uint64_t told = has_last && step && last >= first ? (uint64_t)(last - first) / step + 1 : tasks;
    const uint64_t parts = tells_count(system) ? told : count;
    const uint64_t end = has_last ? last : first + parts - 1;
    if (!step || !parts || index < first || index > end || (index - first) % step)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: %s %u is none of %u-%lld:%u, which the %s array has; give the part as 3/8",
                             option, system->index, index, first, (long long)end, step, system->name);
    /* Of "--array=1,3,7" only the ends are told: parts 2 and 4 to 6 would be done by nobody. */
    if (tasks && tasks != parts && tells_count(system))
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s: the %s array has %u tasks, not all of %u-%u:%u; 'auto' needs a whole range, or "
            "give the part as 3/8",
            option, system->name, tasks, first, last, step);
    if (parts > PARTS_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: the %s array has %llu tasks; at most %d parts",
                             option, system->name, (unsigned long long)parts, PARTS_MAX);
    if (count && count != parts)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: 'auto/%u', but the %s array has %llu tasks", option,
                             count, system->name, (unsigned long long)parts);
    *part = (Part){.index = (index - first) / step + 1, .count = (uint32_t)parts};
    return FSH_OK;
}

/* Finds the part by what the systems tell that do, or do not, tell counts. *teller_ret: the last of them,
 * NULL if this is no task of theirs. */
static FshStatus ask_systems(const char *option, bool with_counts, uint32_t count, Part *part,
                             const ArraySystem **teller_ret, FshError *error)
{
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        const ArraySystem *system = &systems[i];
        Part told = {0};
        if (!is_task_of(system) || tells_count(system) != with_counts)
            continue;
        FshStatus status =
            with_counts || count
                ? part_of_array(option, system, count, &told, error)
                : fsh_error_set(
                      error, FSH_ERR_USAGE,
                      "%s: 'auto': %s does not tell how many tasks its array (%s) has; say it: auto/8",
                      option, system->name, system->start);
        if (status)
            return status;
        if (*teller_ret && (told.index != part->index || told.count != part->count))
            return fsh_error_set(
                error, FSH_ERR_USAGE,
                "%s: 'auto': %s tells part %u/%u and %s tells part %u/%u; give the right one", option,
                (*teller_ret)->index, part->index, part->count, system->index, told.index, told.count);
        *part = told;
        *teller_ret = system;
    }
    return FSH_OK;
}

/* Finds the part by the environment. Where one system runs within another, that which tells counts is
 * believed. count as above. */
static FshStatus part_of_task(const char *option, uint32_t count, Part *part, FshError *error)
{
    char names[512] = "";
    Part found = {0};
    const ArraySystem *teller = NULL;
    FshStatus status = ask_systems(option, true, count, &found, &teller, error);
    if (!status && !teller)
        status = ask_systems(option, false, count, &found, &teller, error);
    if (status)
        return status;
    *part = found;
    if (teller)
        return FSH_OK;
    size_t used = 0;
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", systems[i].index);
    return fsh_error_set(error, FSH_ERR_USAGE,
                         "%s: 'auto' is for tasks of a job array (%s), and none of these says that this is "
                         "one: %s; elsewhere give the part as 3/8",
                         option, systems[0].start, names);
}

FshStatus part_parse(const char *option, const char *text, Part *part, FshError *error)
{
    *part = (Part){0};
    if (!strcmp(text, "auto"))
        return part_of_task(option, 0, part, error);
    Part parsed = {.index = 1};
    const char *slash = strchr(text, '/');
    const bool is_auto = slash && slash - text == 4 && strncmp(text, "auto", 4) == 0;
    if (!slash || (!is_auto && !parse_number(text, slash, &parsed.index)) ||
        !parse_number(slash + 1, text + strlen(text), &parsed.count))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s' is no part; expected as 3/8, or auto, or auto/8",
                             option, text);
    if (!parsed.index || parsed.index > parsed.count || parsed.count > PARTS_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: '%s' is no part; the first is 1/N and the last N/N, with N at most %d",
                             option, text, PARTS_MAX);
    if (is_auto)
        return part_of_task(option, parsed.count, part, error);
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
