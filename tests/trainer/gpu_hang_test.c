/* Two GPUs that train together when one of them hangs while its process moves: all ranks hear of it, by name.
 * Ends with 77 where there are fewer than two. */
#include "tests/support/support.h"
#include "tests/trainer/rank_job.h"
#include "trainer/backend/cuda/device/device.h"
#include "trainer/backend/cuda/kernels/kernels_wait.h"
#include "trainer/launch_gpus.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/progress.h"

/* A timeout below 10 seconds counts as 10 for GPUs. */
enum { TIMEOUT = 2, HANGS_SECONDS = 22, PATIENCE_SECONDS = 60 };

/* Makes two runs, the second of which the GPU of rank 1 does not begin for a while. Returns 0 if that is told
 * soon enough, with its name. */
static int hang(int rank)
{
    const CommunicatorOptions options = {.timeout_seconds = TIMEOUT};
    FshError error = {0};
    float loss = 0;
    Job job = job_open("cuda", rank, "hang", 2, &(Optimizer){0}, &options);
    const TensorId id = graph_find(job.graph, "loss");
    write_samples(&job, rank, true);
    check(program_run(job.program, &error), &error);
    check(program_read(job.program, id, &loss, sizeof loss, &error), &error);
    const cudaStream_t stream = ((CudaBackend *)job.backend)->stream;
    check(CUDA_TRY(cudaSetDevice(rank), &error),
          &error); /* the backend, a plugin, has a runtime of its own */
    if (rank == 1)
        check(CUDA_TRY(kernel_wait((uint64_t)HANGS_SECONDS * 1000000000, stream), &error), &error);
    const double start = progress_now_seconds();
    write_samples(&job, rank, true);
    check(program_run(job.program, &error), &error);
    FshStatus status = program_read(job.program, id, &loss, sizeof loss, &error);
    const double seconds = progress_now_seconds() - start;
    (void)printf("rank %d, after %.1f s: %s\n", rank, seconds, error.message);
    (void)fflush(stdout);
    const bool named =
        strstr(error.message, "rank 1 of 2 (host ") &&
        strstr(error.message, ") moves, but its GPU has not got on with a step for 10 s (--timeout)");
    job_close(&job);
    return status != FSH_ERR_PEER || !named || seconds < 9 || (rank == 0 && seconds > 16);
}

TEST(test_a_gpu_that_hangs_is_named)
{
    pid_t children[RANK_JOBS];
    for (int rank = 0; rank < RANK_JOBS; rank++) {
        children[rank] = fork();
        assert_true(children[rank] >= 0);
        if (children[rank] == 0) {
            (void)alarm(PATIENCE_SECONDS);
            _exit(hang(rank));
        }
    }
    for (int rank = 0; rank < RANK_JOBS; rank++) {
        int status = 1;
        assert_int_equal(waitpid(children[rank], &status, 0), children[rank]);
        if (status)
            fail_msg("rank %d ended with status 0x%x", rank, (unsigned)status);
    }
}

int test_program_begin(void)
{
    FshError error = {0};
    int count = 0;
    FshStatus status = launch_count_gpus(NULL, &count, &error);
    if (!status && count >= RANK_JOBS)
        return TEST_RUN;
    (void)printf("left out: two GPUs are wanted, %d are here%s%s\n", status ? 0 : count, status ? ": " : "",
                 status ? error.message : "");
    return TEST_SKIP_ALL;
}
