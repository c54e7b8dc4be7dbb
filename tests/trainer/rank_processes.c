#include "tests/trainer/rank_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/progress.h"
#include "tests/support/support.h"

RankPlace rank_process_place(uint64_t rank, uint64_t world_size, const char *what)
{
    RankPlace place = {.rank = rank,
                       .world_size = world_size,
                       .local_rank = rank,
                       .local_world = world_size,
                       .launcher = "test"};
    (void)snprintf(place.job, sizeof place.job, "test-%s-%ld", what, (long)getpid());
    return place;
}

const char *rank_process_file(const RankPlace *place, char path[160])
{
    (void)snprintf(path, 160, "/dev/shm/fshard-%lu-%s", (unsigned long)geteuid(), place->job);
    return path;
}

pid_t rank_process_start(const RankPlace *place, RankWork work)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no stopped rank behind */
        _exit(work(place));
    }
    return child;
}

int rank_process_end(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void rank_process_stopped(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
}

void rank_process_there(pid_t child, const RankPlace *place)
{
    char path[160];
    const off_t own = 1 + (off_t)place->local_rank;
    const double start = progress_now_seconds();
    bool there = false;
    while (!there) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = own, .l_len = 1};
        const int file = open(rank_process_file(place, path), O_RDWR | O_CLOEXEC);
        there =
            file >= 0 && fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid == child;
        if (file >= 0)
            (void)close(file);
        assert_true(progress_now_seconds() - start < 30);
        sleep_seconds(0.002);
    }
}

void rank_processes_start(pid_t *children, uint64_t world_size, const char *what, RankWork work)
{
    for (uint64_t rank = 0; rank < world_size; rank++) {
        const RankPlace place = rank_process_place(rank, world_size, what);
        children[rank] = rank_process_start(&place, work);
    }
}

void rank_processes_run(uint64_t world_size, const char *what, RankWork work)
{
    pid_t children[RANK_PROCESSES_MAX];
    char path[160];
    struct stat status;
    rank_processes_start(children, world_size, what, work);
    for (uint64_t rank = 0; rank < world_size; rank++)
        assert_int_equal(rank_process_end(children[rank]), 0);
    const RankPlace place = rank_process_place(0, world_size, what);
    assert_int_not_equal(stat(rank_process_file(&place, path), &status), 0);
}

FshStatus rank_process_meet(Communicator *communicator, FshError *error)
{
    uint64_t nothing = 0;
    return communicator_sum_u64(communicator, &nothing, 1, error);
}

float *rank_values_new(size_t count, uint64_t rank)
{
    float *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < count && values; i++)
        values[i] = (float)(i % 1000) + (float)rank;
    return values;
}

bool rank_values_are_means(const float *values, size_t count, uint64_t world_size)
{
    for (size_t i = 0; i < count; i++) {
        const float wanted = (float)(i % 1000) + (float)(world_size - 1) / 2;
        if (values[i] < wanted - 1e-3F || values[i] > wanted + 1e-3F)
            return false;
    }
    return true;
}
