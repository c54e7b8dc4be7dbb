/* part.h - "--part i/n": one of n machines does its share, by a rule that all of them come to alone.
 *
 * Items stand in an order that every machine sees alike (byte order of paths). Part i is a run of neighbours
 * in that order: the parts are disjoint, complete, and as equal in bytes as whole items allow. One pass over
 * the items' sizes, in order, is enough, in memory that does not grow with their number:
 *
 *   PartScan scan;
 *   part_scan_init(&scan);
 *   for each item in order: part_scan_add(&scan, bytes);
 *   part_scan_range(&scan, part, &begin, &end);
 *
 * Each border is the nearest to its share that there is, so that a part differs from its share by at most one
 * item's bytes. Above PART_SCAN_STEPS items the borders lie on every 2nd, 4th, 8th … item (the stride): then
 * it is that many neighbours' bytes, one part in PART_SCAN_STEPS / 2 of the items. Where there are more parts
 * than items, or an item larger than a share, some parts are empty.
 *
 * Threads: nothing is shared; one scan belongs to one thread at a time. It is 128 KiB: not for a thread's
 * stack. */
#ifndef FSHARD_TOOLS_JOB_PART_H
#define FSHARD_TOOLS_JOB_PART_H

#include <stdint.h>

#include "common/error.h"

typedef struct Part {
    uint32_t index, count; /* index 1..count; {0, 0}: no parts, all of it */
} Part;

/* Reads the value of --part into *part: "3/8", or "auto": from SLURM_ARRAY_TASK_ID, _MIN, _MAX, _STEP and
 * _COUNT, which Slurm sets for each task of an array (sbatch --array=1-8; man sbatch, "OUTPUT ENVIRONMENT
 * VARIABLES"; without the last two: a step of 1, all of the range). option names the option in messages.
 * FSH_ERR_USAGE: anything else, 0/8, 9/8, more than 65536 parts, auto outside of an array, or in one with
 * gaps (--array=1,3,7), whose missing parts nobody would do. On failure part is {0, 0}. */
FshStatus part_parse(const char *option, const char *text, Part *part, FshError *error);

enum { PART_SCAN_STEPS = 1 << 14 };

typedef struct PartScan {
    uint64_t count, bytes; /* of all items so far */
    uint64_t stride;       /* items between two of the sums below; a power of two */
    uint64_t sums_count;
    uint64_t bytes_before[PART_SCAN_STEPS]; /* [k]: of the items before item k * stride */
} PartScan;

void part_scan_init(PartScan *scan);
/* Counts the next item. An item of 0 bytes counts as one byte, so that they are shared out too. */
void part_scan_add(PartScan *scan, uint64_t bytes);
/* Finds the items of a part: *begin_ret .. *end_ret - 1. Every item is in exactly one part of the same count.
 */
void part_scan_range(const PartScan *scan, Part part, uint64_t *begin_ret, uint64_t *end_ret);

#endif
