/* rank_processes.h - the ranks of a test as processes of their own, forked from it.
 *
 * Whatever cannot be done fails the running test. */
#ifndef FSHARD_TESTS_TRAINER_RANK_PROCESSES_H
#define FSHARD_TESTS_TRAINER_RANK_PROCESSES_H

#include <sys/types.h>

#include "trainer/ranks/rank_place.h"

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
/* Runs the work in all ranks; each must end with 0, and the file's name must be gone. */
void rank_processes_run(uint64_t world_size, const char *what, RankWork work);

#endif
