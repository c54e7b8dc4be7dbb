/* hub_hosts.h - hosts of a test that meet over TCP: processes of this machine, and what they report.
 *
 * Whatever cannot be done fails the running test. */
#ifndef FSHARD_TESTS_TRAINER_HUB_HOSTS_H
#define FSHARD_TESTS_TRAINER_HUB_HOSTS_H

#include <stdatomic.h>
#include <sys/types.h>

#include "tests/trainer/rank_processes.h"
#include "trainer/ranks/hub.h"

enum { HOSTS_MAX = 4 };

/* What the processes tell the test. */
typedef struct Report {
    FshStatus status[HOSTS_MAX];
    char message[HOSTS_MAX][1024];
    double seconds[HOSTS_MAX]; /* that it took */
    atomic_bool ready[HOSTS_MAX];
    char told[1024]; /* to note_loss */
    int signal_number[HOSTS_MAX];
    atomic_bool lost[HOSTS_MAX]; /* this host has lost something */
} Report;
extern Report *report;     /* shared with the processes; made by begin */
extern HubOptions options; /* with which open_hub opens */
extern const RankReduction sum_f32, max_u64;

/* Begins with an empty report and the usual options. */
void begin(void);
/* Returns the place of the host whose first rank is `first`. */
RankPlace host_place(uint64_t first, uint64_t count, uint64_t world_size, uint16_t port);
/* Opens the hub and notes how that went. */
Hub *open_hub(const RankPlace *place);
/* Starts the work in a process for each rank that is a host. */
void start_hosts(pid_t *processes, uint64_t hosts, uint16_t port, RankWork work);
/* Does so, and waits until all have ended, each with 0. */
void run_hosts(uint64_t hosts, RankWork work);
/* Waits until the hosts have met, or failed to. */
void wait_until_ready(uint64_t hosts);
/* Fails the test if a host has not ended with the status and a message that has the part. */
void expect_message(int host, FshStatus status, const char *part);

/* Works for start_hosts: open and close; combine values of all kinds and check what comes out; work with the
 * others until something is lost, and note the message. */
int only_open(const RankPlace *place);
int combine(const RankPlace *place);
int work_on(const RankPlace *place);
/* Notes a loss as that of host 0 (HubOptions.lose). */
void note_loss(void *context, const char *text, int signal_number);

#endif
