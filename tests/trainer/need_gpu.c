/* Leaves out all tests of a program where there is no GPU. */
#include <cuda_runtime_api.h>
#include <stdio.h>

#include "tests/support/support.h"

int test_program_begin(void)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0)
        return TEST_RUN;
    printf("left out: no GPU\n");
    return TEST_SKIP_ALL;
}
