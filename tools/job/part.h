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

enum { PARTS_MAX = 65536 };

typedef struct Part {
    uint32_t index, count; /* index 1..count; {0, 0}: no parts, all of it */
} Part;

/* Reads the value of --part into *part: "3/8"; "auto", which takes both numbers from the job array that this
 * task belongs to; or "auto/8", which takes the index from there and says the count, where the system does
 * not tell it. Systems that are known, each a row of the table in part.c:
 *
 *   Slurm               SLURM_ARRAY_TASK_ID of _MIN to _MAX by _STEP; _COUNT tells of gaps
 *   Kubernetes          JOB_COMPLETION_INDEX of an Indexed Job, from 0; no count
 *   AWS Batch           AWS_BATCH_JOB_ARRAY_INDEX from 0, _SIZE
 *   Google Cloud Batch  BATCH_TASK_INDEX from 0, BATCH_TASK_COUNT
 *   PBS, Torque         PBS_ARRAY_INDEX, PBS_ARRAYID; taken as from 1; no count
 *   Grid Engine         SGE_TASK_ID of SGE_TASK_FIRST to _LAST by _STEPSIZE; "undefined" outside of an array
 *   LSF                 LSB_JOBINDEX from 1 to LSB_JOBINDEX_END by _STEP; 0 outside of an array
 *
 * Of several, those that tell a count are believed, and must tell the same. option names the option in
 * messages. FSH_ERR_USAGE: anything else, 0/8, 9/8, more than 65536 parts, auto outside of an array, an index
 * that is none of the array's, a count that nobody tells or that two tell differently, or an array with gaps
 * (sbatch --array=1,3,7), whose missing parts nobody would do. On failure part is {0, 0}. */
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
