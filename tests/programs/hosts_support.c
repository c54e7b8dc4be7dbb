#include "tests/programs/hosts_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ARGUMENTS_MOST = 56, PORT_LAST = 60000 };

Hosts hosts_on_loopback(int hosts, int each)
{
    return (Hosts){
        .hosts = hosts, .each = each, .address = "127.0.0.1", .port = (uint16_t)(test_free_port() - 1)};
}

RunningProgram start_on_host(const Hosts *hosts, int host, const char *const *variables,
                             const char *const *arguments)
{
    const char *space = hosts->spaces[host];
    const char *all[ARGUMENTS_MOST] = {NULL};
    char program[1024];
    size_t count = 0;
    const RunOptions options = {.environment = variables, .timeout_seconds = 120};
    const char *folder = getenv("FSHARD_BIN");
    (void)snprintf(program, sizeof program, "%s/ftrain", folder ? folder : "");
    if (space) {
        const char *const inside[] = {"netns", "exec", space, program};
        for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
            all[count++] = inside[i];
    }
    all[count++] = "--jobs";
    all[count++] = "1";
    all[count++] = "--device";
    all[count++] = "cpu";
    while (*arguments && count < ARGUMENTS_MOST - 1)
        all[count++] = *arguments++;
    return run_start(&options, space ? "/usr/sbin/ip" : "ftrain", all);
}

RunningProgram start_host_rank(const Hosts *hosts, int rank, const char *const *arguments)
{
    char texts[7][64];
    const char *variables[8] = {NULL};
    (void)snprintf(texts[0], sizeof texts[0], "RANK=%d", rank);
    (void)snprintf(texts[1], sizeof texts[1], "WORLD_SIZE=%d", hosts->hosts * hosts->each);
    (void)snprintf(texts[2], sizeof texts[2], "LOCAL_RANK=%d", rank % hosts->each);
    (void)snprintf(texts[3], sizeof texts[3], "LOCAL_WORLD_SIZE=%d", hosts->each);
    (void)snprintf(texts[4], sizeof texts[4], "MASTER_ADDR=%s", hosts->address);
    (void)snprintf(texts[5], sizeof texts[5], "MASTER_PORT=%u", (unsigned)hosts->port);
    (void)snprintf(texts[6], sizeof texts[6], "TORCHELASTIC_RUN_ID=none");
    for (int i = 0; i < 7; i++)
        variables[i] = texts[i];
    return start_on_host(hosts, rank / hosts->each, variables, arguments);
}

void start_hosts(const Hosts *hosts, RunningProgram *running, const char *const *arguments)
{
    for (int rank = 0; rank < hosts->hosts * hosts->each; rank++)
        running[rank] = start_host_rank(hosts, rank, arguments);
}

void expect_hosts(const Hosts *hosts, int exit_status, RunResult *results, const char *const *arguments)
{
    RunningProgram running[HOST_RANKS_MOST];
    start_hosts(hosts, running, arguments);
    for (int rank = 0; rank < hosts->hosts * hosts->each; rank++)
        results[rank] = run_wait(&running[rank]);
    for (int rank = 0; rank < hosts->hosts * hosts->each; rank++) {
        const RunResult *of = &results[rank];
        if (of->exit_status != exit_status)
            fail_msg("rank %d: exit status %d, not %d\n%s%s\nrank 0: %s", rank, of->exit_status, exit_status,
                     of->out, of->err, results[0].err);
        if (rank > 0)
            assert_string_equal(of->out, "");
        if (rank % hosts->each > 0)
            assert_string_equal(of->err, "");
    }
}

void free_hosts(const Hosts *hosts, RunResult *results)
{
    for (int rank = 0; rank < hosts->hosts * hosts->each; rank++)
        run_result_free(&results[rank]);
}
