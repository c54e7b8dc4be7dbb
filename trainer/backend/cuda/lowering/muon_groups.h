/* muon_groups.h - which matrices of Muon are multiplied together: matrices of like shape, padded with zeros
 * to one size, are one batched product, since a network has dozens of small ones and a launch costs as much
 * as the work.
 *
 * Threads: any; no device. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_LOWERING_MUON_GROUPS_H
#define FSHARD_TRAINER_BACKEND_CUDA_LOWERING_MUON_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

/* Matrices of `count` members, stored one after the other as `rows` rows of `columns` values, multiples of
 * MUON_SIDE_MULTIPLE. tall: its members have more rows than columns; others never. */
enum { MUON_SIDE_MULTIPLE = 8 };
typedef struct MuonGroup {
    int64_t rows, columns, count;
    bool tall;
} MuonGroup;

/* Returns the operations of one step of Newton and Schulz for a group. */
double muon_group_flops(const MuonGroup *group);
/* Puts each of `count` matrices, [rows, columns] each, into a group: groups[group_of[i]]. groups and group_of
 * have room for `count`. Returns the number of groups. Two groups become one where that is faster, by a
 * launch that takes some microseconds and products at the rate of a large card. */
int64_t muon_groups_make(const int64_t (*shapes)[2], int64_t count, MuonGroup *groups, int64_t *group_of);

#endif
