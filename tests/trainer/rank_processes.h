/* rank_processes.h - the ranks of a test as processes of their own, forked from it.
 *
 * Whatever cannot be done fails the running test. */
#ifndef FSHARD_TESTS_TRAINER_RANK_PROCESSES_H
#define FSHARD_TESTS_TRAINER_RANK_PROCESSES_H

#include <sys/types.h>

#include "trainer/ranks/communicator.h"

enum { RANK_PROCESSES_MAX = 8 };

/* Returns the place of a rank in a job of this host. what names the job, beside this process. */
RankPlace rank_process_place(uint64_t rank, uint64_t world_size, const char *what);
/* Writes the path of the file through which the ranks of the place meet. */
const char *rank_process_file(const RankPlace *place, char path[160]);

/* Does a rank's part of a test and returns its exit status. cmocka's assertions belong to the parent. */
typedef int (*RankWork)(const RankPlace *place);

/* Starts the work in a process of its own. */
pid_t rank_process_start(const RankPlace *place, RankWork work);
/* Waits for the end of a process and returns its exit status, or 128 plus its signal. */
int rank_process_end(pid_t child);
/* Waits until a process has stopped itself. */
void rank_process_stopped(pid_t child);
/* Waits until the process is there as the rank of the place: it holds its byte of the file, the ranks' bytes
 * being behind that of the gate. */
void rank_process_there(pid_t child, const RankPlace *place);
/* Starts the work in a process for each of world_size ranks. */
void rank_processes_start(pid_t *children, uint64_t world_size, const char *what, RankWork work);
/* Runs the work in all ranks; each must end with 0, and the file's name must be gone. */
void rank_processes_run(uint64_t world_size, const char *what, RankWork work);

/* ---- in the ranks ---- */

/* Waits until all ranks have come here. Fails as communicator_sum_u64. */
FshStatus rank_process_meet(Communicator *communicator, FshError *error);
/* Returns `count` values of a rank; NULL: no memory. */
float *rank_values_new(size_t count, uint64_t rank);
/* Returns whether these are the means of those of all ranks. */
bool rank_values_are_means(const float *values, size_t count, uint64_t world_size);

#endif
