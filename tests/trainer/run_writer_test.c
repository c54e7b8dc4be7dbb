/* The thread that writes a run's files: their order, their results, and waiting. */
#include <stdatomic.h>
#include <time.h>

#include "tests/support/support.h"
#include "tests/support/test.h"
#include "trainer/loop/run_writer.h"

typedef struct Job {
    atomic_int *turn; /* the number of the job that must run next */
    int number;
    bool fails, seen;
} Job;

static FshStatus write_job(void *context, FshError *error)
{
    Job *job = context;
    (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    job->seen = atomic_fetch_add(job->turn, 1) == job->number;
    return job->fails ? fsh_error_set(error, FSH_ERR_NO_SPACE, "job %d: the disk is full", job->number)
                      : FSH_OK;
}

TEST(test_jobs_are_done_in_order_while_the_caller_goes_on)
{
    enum { JOBS = 20 };
    FshError error = {0};
    RunWriter *writer = NULL;
    atomic_int turn = 0;
    Job jobs[JOBS];
    assert_int_equal(run_writer_new(&writer, &error), FSH_OK);
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (Job){.number = i, .turn = &turn, .fails = i % 7 == 3};
        assert_int_equal(run_writer_add(writer, write_job, &jobs[i], &error), FSH_OK);
    }
    assert_true(atomic_load(&turn) < JOBS); /* adding does not wait for 40 ms of writing */
    run_writer_wait(writer);
    assert_int_equal(atomic_load(&turn), JOBS);
    for (int i = 0; i < JOBS; i++) {
        RunWritten written;
        assert_true(run_writer_next(writer, &written));
        assert_ptr_equal(written.job, &jobs[i]);
        assert_true(jobs[i].seen);
        assert_int_equal(written.status, i % 7 == 3 ? FSH_ERR_NO_SPACE : FSH_OK);
        if (written.status)
            assert_contains(written.error.message, "the disk is full");
    }
    RunWritten none;
    assert_false(run_writer_next(writer, &none));
    run_writer_free(&writer);
    assert_null(writer);
}

TEST(test_freeing_waits_for_what_was_given)
{
    FshError error = {0};
    RunWriter *writer = NULL;
    atomic_int turn = 0;
    Job jobs[3];
    assert_int_equal(run_writer_new(&writer, &error), FSH_OK);
    for (int i = 0; i < 3; i++) {
        jobs[i] = (Job){.number = i, .turn = &turn};
        assert_int_equal(run_writer_add(writer, write_job, &jobs[i], &error), FSH_OK);
    }
    run_writer_free(&writer);
    assert_int_equal(atomic_load(&turn), 3);
}

TEST(test_one_result_can_be_waited_for)
{
    FshError error = {0};
    RunWriter *writer = NULL;
    RunWritten written;
    atomic_int turn = 0;
    Job jobs[3];
    assert_int_equal(run_writer_new(&writer, &error), FSH_OK);
    run_writer_wait_one(writer); /* there is no job: at once */
    for (int i = 0; i < 3; i++) {
        jobs[i] = (Job){.number = i, .turn = &turn};
        assert_int_equal(run_writer_add(writer, write_job, &jobs[i], &error), FSH_OK);
    }
    for (int i = 0; i < 3; i++) {
        run_writer_wait_one(writer);
        assert_true(run_writer_next(writer, &written));
        assert_ptr_equal(written.job, &jobs[i]);
    }
    assert_false(run_writer_next(writer, &written));
    run_writer_free(&writer);
}
