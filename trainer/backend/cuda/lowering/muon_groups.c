#include "trainer/backend/cuda/lowering/muon_groups.h"

#include <math.h>
#include <string.h>

/* Of an H200: from one dependent launch of a recorded graph to the next, and batched products of bf16. */
static const double launch_seconds = 4e-6, flops_per_second = 4e14;
/* The products compute in tiles; a smaller side takes as long. */
enum { TILE = 64 };

static int64_t up_to(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static double side_of(const MuonGroup *group)
{
    return (double)(group->tall ? group->columns : group->rows);
}

double muon_group_flops(const MuonGroup *group)
{
    const double side = side_of(group), values = (double)(group->rows * group->columns);
    return (double)group->count * (4 * side * values + 2 * side * side * side);
}

/* Returns the seconds of one step of Newton and Schulz. */
static double group_seconds(const MuonGroup *group)
{
    const MuonGroup tiled = {up_to(group->rows, TILE), up_to(group->columns, TILE), group->count,
                             group->tall};
    const double side = side_of(&tiled), count = (double)group->count;
    const double wide = 2 * side * (double)(tiled.rows * tiled.columns) * count / flops_per_second,
                 square = 2 * side * side * side * count / flops_per_second;
    return 2 * fmax(launch_seconds, wide) + fmax(launch_seconds, square);
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static MuonGroup join(const MuonGroup *a, const MuonGroup *b)
{
    return (MuonGroup){largest(a->rows, b->rows), largest(a->columns, b->columns), a->count + b->count,
                       a->tall};
}

/* Finds the pair that is worth joining most. Returns false where none is. */
static bool find_pair(const MuonGroup *groups, int64_t count, int64_t pair_ret[2])
{
    double best = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = i + 1; k < count; k++) {
            if (groups[i].tall != groups[k].tall)
                continue;
            const MuonGroup joined = join(&groups[i], &groups[k]);
            const double saved =
                group_seconds(&groups[i]) + group_seconds(&groups[k]) - group_seconds(&joined);
            if (saved <= best)
                continue;
            best = saved;
            pair_ret[0] = i;
            pair_ret[1] = k;
        }
    return best > 0;
}

/* Returns the group of this shape, and makes it the last where there is none. */
static int64_t find_group(MuonGroup *groups, int64_t *group_count, int64_t rows, int64_t columns)
{
    const MuonGroup wanted = {up_to(rows, MUON_SIDE_MULTIPLE), up_to(columns, MUON_SIDE_MULTIPLE), 0,
                              rows > columns};
    int64_t k = 0;
    while (k < *group_count && (groups[k].rows != wanted.rows || groups[k].columns != wanted.columns ||
                                groups[k].tall != wanted.tall))
        k++;
    if (k == *group_count)
        groups[(*group_count)++] = wanted;
    return k;
}

int64_t muon_groups_make(const int64_t (*shapes)[2], int64_t count, MuonGroup *groups, int64_t *group_of)
{
    int64_t group_count = 0, pair[2] = {0, 0};
    for (int64_t i = 0; i < count; i++) {
        group_of[i] = find_group(groups, &group_count, shapes[i][0], shapes[i][1]);
        groups[group_of[i]].count++;
    }
    while (find_pair(groups, group_count, pair)) {
        groups[pair[0]] = join(&groups[pair[0]], &groups[pair[1]]);
        memmove(&groups[pair[1]], &groups[pair[1] + 1], (size_t)(group_count - pair[1] - 1) * sizeof *groups);
        for (int64_t i = 0; i < count; i++) {
            if (group_of[i] == pair[1])
                group_of[i] = pair[0];
            else
                group_of[i] -= group_of[i] > pair[1];
        }
        group_count--;
    }
    return group_count;
}
