/* rank_job.h - one rank of a test that trains a convolution, in a process of its own. Whatever fails there
 * ends the process with 3, and its message on stderr. */
#ifndef FSHARD_TESTS_TRAINER_RANK_JOB_H
#define FSHARD_TESTS_TRAINER_RANK_JOB_H

#include "trainer/backend/backend.h"
#include "trainer/ranks/communicator.h"

enum { RANK_JOBS = 2 };

typedef struct Job {
    Communicator *communicator;
    Backend *backend;
    Graph *graph;
    State *state;
    Program *program;
} Job;

/* Ends the process where the status is no success. */
void check(FshStatus status, const FshError *error);
/* Opens a rank's part of the job that the parent process names; rank RANK_JOBS is a process alone. update:
 * what sgd with a momentum of 0.9 shall have beside that. options may be NULL. */
Job job_open(const char *device, int rank, const char *name, int64_t batch, const Optimizer *update,
             const CommunicatorOptions *options);
void job_close(Job *job);
/* Writes the images of samples first, first + 1, …: any that differ; or, without numbers, one that
 * has no loss. */
void write_samples(const Job *job, int64_t first, bool numbers);

#endif
