/* run_writer.h - writes a run's files on a thread of its own, one after the other, in the order in which they
 * were given, so that training goes on meanwhile.
 *
 * Threads: one gives jobs and takes results; another does the jobs. */
#ifndef FSHARD_TRAINER_LOOP_RUN_WRITER_H
#define FSHARD_TRAINER_LOOP_RUN_WRITER_H

#include <stdbool.h>

#include "common/error.h"

typedef struct RunWriter RunWriter;

/* Writes a file; called on the writer's thread. */
typedef FshStatus (*RunWrite)(void *job, FshError *error);

/* What became of a job. */
typedef struct RunWritten {
    void *job;
    FshStatus status;
    FshError error;
} RunWritten;

/* Starts the thread. FSH_ERR_MEMORY, FSH_ERR_SYSTEM. */
FshStatus run_writer_new(RunWriter **writer_ret, FshError *error);
/* Waits until all is written and ends the thread. Results that nobody took are lost; NULL is fine. */
void run_writer_free(RunWriter **writer);
/* Appends a job, which the writer borrows until run_writer_next returns it. FSH_ERR_MEMORY: it was not. */
FshStatus run_writer_add(RunWriter *writer, RunWrite write, void *job, FshError *error);
/* Waits until all jobs are done. */
void run_writer_wait(RunWriter *writer);
/* Waits until there is a result to take, or no job. */
void run_writer_wait_one(RunWriter *writer);
/* Takes the result of the next job that is done, in the order of run_writer_add. Returns false if there is
 * none. */
bool run_writer_next(RunWriter *writer, RunWritten *written_ret);

#endif
