/* hosts_support.h - ftrain on several hosts: processes of this machine that are told that they are on
 * different ones, on its loopback address or in network namespaces of their own. What they share on the
 * machine, /dev/shm, their ranks keep apart by name.
 *
 * Whatever cannot be done fails the running test. */
#ifndef FSHARD_TESTS_PROGRAMS_HOSTS_SUPPORT_H
#define FSHARD_TESTS_PROGRAMS_HOSTS_SUPPORT_H

#include <stdint.h>

#include "tests/programs/train_support.h"

enum { HOSTS_MOST = 2, HOST_RANKS_MOST = 4, HOSTS_TEXTS_MAX = 16 };

typedef struct Hosts {
    int hosts, each;                /* ranks on each; rank r is on host r / each */
    const char *address;            /* of the first */
    uint16_t port;                  /* as torchrun tells it: the hosts meet at the next */
    const char *spaces[HOSTS_MOST]; /* network namespaces; NULL: none */
} Hosts;

/* Returns so many hosts on the loopback address, which meet at a port that was free a moment ago. */
Hosts hosts_on_loopback(int hosts, int each);

/* Starts a program of a host with variables, "NAME=value" and NULL at the end, on the CPU with one thread. */
RunningProgram start_on_host(const Hosts *hosts, int host, const char *const *variables,
                             const char *const *arguments);
/* Starts a rank as torchrun does. */
RunningProgram start_host_rank(const Hosts *hosts, int rank, const char *const *arguments);
/* Starts all ranks. */
void start_hosts(const Hosts *hosts, RunningProgram *running, const char *const *arguments);

/* Runs all ranks and asserts that all end with that status. Each host's first rank may print. */
void expect_hosts(const Hosts *hosts, int exit_status, RunResult *results, const char *const *arguments);
void free_hosts(const Hosts *hosts, RunResult *results);

#define HOSTS_TRAINED(hosts, ...)                                                                            \
    do {                                                                                                     \
        RunResult trained_[HOST_RANKS_MOST];                                                                 \
        expect_hosts((hosts), 0, trained_, (const char *const[]){__VA_ARGS__, NULL});                        \
        free_hosts((hosts), trained_);                                                                       \
    } while (0)

#endif
