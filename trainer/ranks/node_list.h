/* node_list.h - reads how Slurm writes lists of hosts and numbers of tasks.
 *
 *   SLURM_STEP_NODELIST         "n[01-03,7],login"     n01 n02 n03 n7 login
 *   SLURM_STEP_TASKS_PER_NODE   "2(x3),1"              2 2 2 1
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_RANKS_NODE_LIST_H
#define FSHARD_TRAINER_RANKS_NODE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the first host of the list to name: each bracket counts with its first number ("rack[1-2]n[03,5]":
 * "rack1n03"). Returns false, with an empty name, if the list is none, or its first host does not fit. */
bool node_list_first(const char *list, char *name, size_t name_bytes);

/* The tasks of one host, and those of the hosts before it. */
typedef struct NodeTasks {
    uint64_t count, before;
} NodeTasks;

/* Sets *tasks_ret to what the list says of the host with this index. Returns false if the list is none, or
 * ends before that host. */
bool node_list_tasks(const char *list, uint64_t index, NodeTasks *tasks_ret);

#endif
