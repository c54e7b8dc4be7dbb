/* Every op of op_cases.h on the CUDA backend against the CPU's in f32, in each of its types, fused and
 * not. Usage: cuda_support.h. */
#include "tests/trainer/cuda_support.h"
#include "tests/trainer/op_run.h"

static void compare_type(DataType type, OpCases cases)
{
    const int compared = compare_ops(&comparison, backends[CUDA], type, cases);
    print_message("  %d cases\n", compared);
    assert_true(compared > 0);
}

CUDA_TEST(test_ops_in_f32_agree)
{
    compare_type(DATA_F32, OP_CASES);
}

CUDA_TEST(test_ops_in_bf16_agree)
{
    compare_type(DATA_BF16, OP_CASES);
}

CUDA_TEST(test_ops_in_f16_agree)
{
    compare_type(DATA_F16, OP_CASES);
}

CUDA_TEST(test_ops_on_large_images_are_like_the_cpus)
{
    for (int type = DATA_F32; type <= DATA_F16; type++)
        if (type == DATA_F32 || type == DATA_BF16 || type == DATA_F16)
            compare_type((DataType)type, OP_CASES_LARGE);
}

CUDA_TEST(test_every_op_was_compared)
{
    if (getenv("FSHARD_OP_PART"))
        skip(); /* the other parts compare the others */
    expect_every_op_was_compared();
}
