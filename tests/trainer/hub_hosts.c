#include "tests/trainer/hub_hosts.h"

#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/progress.h"

enum { VALUES = HUB_PIECE_BYTES / (int)sizeof(float) };

Report *report;

HubOptions options = {.hint = {.most_seconds = 20}, .timeout_seconds = 20};

static void add_f32(void *result, const void *values, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        ((float *)result)[i] += ((const float *)values)[i];
}

static void most_u64(void *result, const void *values, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (((const uint64_t *)values)[i] > ((uint64_t *)result)[i])
            ((uint64_t *)result)[i] = ((const uint64_t *)values)[i];
}

const RankReduction sum_f32 = {sizeof(float), add_f32}, max_u64 = {sizeof(uint64_t), most_u64};

RankPlace host_place(uint64_t first, uint64_t count, uint64_t world_size, uint16_t port)
{
    RankPlace place = {.rank = first, .world_size = world_size, .local_world = count, .port = port, .run = 7};
    (void)snprintf(place.address, sizeof place.address, "127.0.0.1");
    return place;
}

Hub *open_hub(const RankPlace *place)
{
    const double start = progress_now_seconds();
    FshError error = {0};
    Hub *hub = NULL;
    report->status[place->rank] = hub_open(&hub, place, &options, &error);
    (void)snprintf(report->message[place->rank], sizeof report->message[0], "%s", error.message);
    report->seconds[place->rank] = progress_now_seconds() - start;
    report->ready[place->rank] = true;
    return hub;
}

int only_open(const RankPlace *place)
{
    Hub *hub = open_hub(place);
    hub_close(&hub);
    return 0;
}

void begin(void)
{
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(report != MAP_FAILED);
    memset(report, 0, sizeof *report);
    options = (HubOptions){.hint = {.most_seconds = 20}, .timeout_seconds = 20};
}

void expect_message(int host, FshStatus status, const char *part)
{
    if (report->status[host] != status || !strstr(report->message[host], part))
        fail_msg("host %d: status %d, '%s' does not say '%s'", host, report->status[host],
                 report->message[host], part);
}

void start_hosts(pid_t *processes, uint64_t hosts, uint16_t port, RankWork work)
{
    for (uint64_t i = 0; i < hosts; i++) {
        const RankPlace place = host_place(i, 1, hosts, port);
        processes[i] = rank_process_start(&place, work);
    }
}

void run_hosts(uint64_t hosts, RankWork work)
{
    pid_t processes[HOSTS_MAX];
    start_hosts(processes, hosts, test_free_port(), work);
    for (uint64_t i = 0; i < hosts; i++)
        if (rank_process_end(processes[i]) != 0)
            fail_msg("host %d of %d: %s", (int)i, (int)hosts, report->message[i]);
}

int combine(const RankPlace *place)
{
    const uint64_t rank = place->rank, world = place->world_size;
    float *values = malloc(VALUES * sizeof *values);
    uint64_t most[2] = {rank, 100 - rank};
    char text[8] = "no";
    Hub *hub = open_hub(place);
    FshError error = {0};
    int bad = !hub || !values;
    for (int turn = 0; turn < 3 && !bad; turn++) {
        for (size_t i = 0; i < VALUES; i++)
            values[i] = (float)(i % 1000) + (float)rank;
        if (rank == world - 1)
            (void)strcpy(text, "yes");
        bad = hub_reduce(hub, values, VALUES * sizeof *values, &sum_f32, &error) ||
              hub_reduce(hub, most, sizeof most, &max_u64, &error) ||
              hub_broadcast(hub, rank == world - 1, text, sizeof text, &error) || most[0] != world - 1 ||
              most[1] != 100 || strcmp(text, "yes") != 0;
        for (size_t i = 0; i < VALUES && !bad; i++)
            bad = values[i] != (float)(i % 1000) * (float)world + (float)(world * (world - 1)) / 2;
    }
    if (error.message[0])
        (void)snprintf(report->message[rank], sizeof report->message[0], "%s", error.message);
    hub_close(&hub);
    free(values);
    return bad;
}

int work_on(const RankPlace *place)
{
    Hub *hub = open_hub(place);
    FshError error = {0};
    FshStatus status = hub ? FSH_OK : FSH_ERR_USAGE;
    while (!status) {
        char bytes[64] = {0};
        status = hub_broadcast(hub, place->rank == 0, bytes, sizeof bytes, &error);
        sleep_seconds(0.005);
    }
    (void)snprintf(report->message[place->rank], sizeof report->message[0], "%s", error.message);
    report->status[place->rank] = status;
    hub_close(&hub);
    return status != FSH_ERR_PEER;
}

void wait_until_ready(uint64_t hosts)
{
    for (uint64_t i = 0; i < hosts; i++)
        for (int turn = 0; turn < 3000 && !report->ready[i]; turn++)
            sleep_seconds(0.01);
}

void note_loss(void *context, const char *text, int signal_number)
{
    (void)context;
    report->signal_number[0] = signal_number;
    (void)snprintf(report->told, sizeof report->told, "%s", text);
    report->lost[0] = true;
}
