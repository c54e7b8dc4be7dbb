/* Which matrices are multiplied together. */
#include "tests/support/support.h"
#include "trainer/backend/cuda/lowering/muon_groups.h"

enum { MATRICES_MAX = 64 };

/* Asserts that every matrix fits its group, and that groups count their members. */
static int64_t assert_groups_hold(const int64_t (*shapes)[2], int64_t count, MuonGroup *groups)
{
    int64_t group_of[MATRICES_MAX], members[MATRICES_MAX] = {0};
    const int64_t total = muon_groups_make(shapes, count, groups, group_of);
    for (int64_t i = 0; i < count; i++) {
        assert_true(group_of[i] >= 0 && group_of[i] < total);
        const MuonGroup *group = &groups[group_of[i]];
        assert_true(shapes[i][0] <= group->rows && shapes[i][1] <= group->columns);
        assert_int_equal(group->tall, shapes[i][0] > shapes[i][1]);
        assert_true(group->tall ? group->rows >= group->columns : group->rows <= group->columns);
        assert_int_equal(group->rows % MUON_SIDE_MULTIPLE, 0);
        assert_int_equal(group->columns % MUON_SIDE_MULTIPLE, 0);
        members[group_of[i]]++;
    }
    for (int64_t i = 0; i < total; i++)
        assert_int_equal(groups[i].count, members[i]);
    return total;
}

static double flops_of(int64_t rows, int64_t columns)
{
    const MuonGroup one = {rows, columns, 1, rows > columns};
    return muon_group_flops(&one);
}

TEST(test_a_resnet50_needs_few_batches)
{
    static const int blocks[] = {3, 4, 6, 3};
    int64_t shapes[MATRICES_MAX][2], count = 0, inside = 64;
    MuonGroup groups[MATRICES_MAX];
    double needed = 0, padded = 0;
    for (int layer = 0; layer < 4; layer++)
        for (int block = 0; block < blocks[layer]; block++) {
            const int64_t width = 64 << layer;
            const int64_t own[4][2] = {
                {width, inside}, {width, 9 * width}, {4 * width, width}, {4 * width, inside}};
            for (int i = 0; i < (block == 0 ? 4 : 3); i++, count++) {
                shapes[count][0] = own[i][0];
                shapes[count][1] = own[i][1];
                needed += flops_of(own[i][0], own[i][1]);
            }
            inside = 4 * width;
        }
    const int64_t total = assert_groups_hold((const int64_t(*)[2])shapes, count, groups);
    for (int64_t i = 0; i < total; i++)
        padded += muon_group_flops(&groups[i]);
    assert_int_equal(count, 52);
    assert_true(total <= 8);
    assert_true(padded < 1.25 * needed);
}

TEST(test_airbenchs_filters_are_one_batch)
{
    const int64_t shapes[][2] = {{64, 216}, {64, 576}, {256, 576}, {256, 2304}, {256, 2304}, {256, 2304}};
    MuonGroup groups[MATRICES_MAX];
    assert_int_equal(assert_groups_hold(shapes, 6, groups), 1);
    assert_int_equal(groups[0].rows, 256);
    assert_int_equal(groups[0].columns, 2304);
}

TEST(test_large_matrices_of_other_shapes_stay_apart)
{
    const int64_t shapes[][2] = {{2048, 8192}, {8192, 2048}, {4096, 4096}, {2048, 8192}};
    MuonGroup groups[MATRICES_MAX];
    assert_int_equal(assert_groups_hold(shapes, 4, groups), 3);
}

TEST(test_odd_sides_are_padded)
{
    const int64_t shapes[][2] = {{33, 1000}, {5, 4}, {71, 33}};
    MuonGroup groups[MATRICES_MAX];
    (void)assert_groups_hold(shapes, 3, groups);
}
