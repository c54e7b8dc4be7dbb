#include "tests/programs/ranks_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "trainer/checkpoint/safetensors.h"

enum { ARGUMENTS_MOST = 48 };

RunningProgram start_rank(int rank, int ranks, int job, const char *stop_at, const char *const *arguments)
{
    const char *all[ARGUMENTS_MOST] = {"--jobs", "1", "--device", "cpu"};
    const char *environment[6] = {NULL};
    char texts[5][40];
    size_t count = 4;
    (void)snprintf(texts[0], sizeof texts[0], "RANK=%d", rank);
    (void)snprintf(texts[1], sizeof texts[1], "WORLD_SIZE=%d", ranks);
    (void)snprintf(texts[2], sizeof texts[2], "LOCAL_RANK=%d", rank);
    (void)snprintf(texts[3], sizeof texts[3], "LOCAL_WORLD_SIZE=%d", ranks);
    (void)snprintf(texts[4], sizeof texts[4], "MASTER_PORT=%ld%02d", (long)getpid(), job);
    for (int i = 0; i < 5; i++)
        environment[i] = texts[i];
    while (*arguments && count < ARGUMENTS_MOST - 1)
        all[count++] = *arguments++;
    all[count] = NULL;
    const RunOptions options = {.environment = environment, .timeout_seconds = 120, .stop_at = stop_at};
    return run_start(&options, "ftrain", all);
}

DatasetSpec rank_pairs(uint64_t train_count, uint64_t val_count)
{
    return (DatasetSpec){.codec = FSH_CODEC_RAW,
                         .width = 32,
                         .height = 32,
                         .channels = 3,
                         .class_count = 4,
                         .train_count = train_count,
                         .val_count = val_count,
                         .shard_count = 2,
                         .kind = FSH_KIND_PAIRS};
}

void expect_well(RunningProgram *running, int count)
{
    for (int i = 0; i < count; i++) {
        RunResult result = run_wait(&running[i]);
        if (result.exit_status != 0)
            fail_msg("program %d of %d: exit status %d\n%s", i + 1, count, result.exit_status, result.err);
        run_result_free(&result);
    }
}

RanksResult run_ranks(int ranks, const char *const *arguments)
{
    static int job; /* each run its own rendezvous, as each torchrun has its own port */
    RunningProgram running[RANKS_MOST];
    RanksResult result = {.ranks = ranks};
    job++;
    for (int rank = 0; rank < ranks; rank++)
        running[rank] = start_rank(rank, ranks, job, NULL, arguments);
    for (int rank = 0; rank < ranks; rank++)
        result.of[rank] = run_wait(&running[rank]);
    return result;
}

void free_ranks(RanksResult *result)
{
    for (int rank = 0; rank < result->ranks; rank++)
        run_result_free(&result->of[rank]);
}

RanksResult expect_ranks(int ranks, int exit_status, const char *const *arguments)
{
    RanksResult result = run_ranks(ranks, arguments);
    for (int rank = 0; rank < ranks; rank++) {
        const RunResult *of = &result.of[rank];
        if (of->exit_status != exit_status)
            fail_msg("rank %d: exit status %d, not %d\n%s%s", rank, of->exit_status, exit_status, of->out,
                     of->err);
        if (rank > 0) {
            assert_string_equal(of->out, "");
            assert_string_equal(of->err, "");
        }
    }
    return result;
}

pid_t started_rank(pid_t launcher, int rank)
{
    char path[64], text[256] = "";
    (void)snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", (long)launcher, (long)launcher);
    FILE *file = fopen(path, "re");
    if (file)
        (void)!fgets(text, sizeof text, file);
    if (file)
        (void)fclose(file);
    char *at = text;
    long process = 0;
    for (int i = 0; i <= rank; i++)
        process = strtol(at, &at, 10);
    return (pid_t)process;
}

bool started_ranks_are_told(void)
{
    return access("/proc/self/task", X_OK) == 0 && access("/proc/thread-self/children", R_OK) == 0;
}

static double distance_of_entry(const SafetensorsEntry *a, const SafetensorsEntry *b, double *square)
{
    float *a_values = malloc(a->count * sizeof *a_values), *b_values = malloc(a->count * sizeof *b_values);
    FshError error = {0};
    double distance = 0;
    assert_true(a_values && b_values);
    assert_non_null(b);
    assert_ok(safetensors_read_f32(a, a_values, a->count, &error), &error);
    assert_ok(safetensors_read_f32(b, b_values, a->count, &error), &error);
    for (uint64_t i = 0; i < a->count; i++) {
        const double difference = (double)a_values[i] - (double)b_values[i];
        distance += difference * difference;
        *square += (double)a_values[i] * (double)a_values[i];
    }
    free(a_values);
    free(b_values);
    return distance;
}

double weights_distance(const char *a_path, const char *b_path)
{
    Safetensors *a = NULL, *b = NULL;
    FshError error = {0};
    double far = 0, square = 0;
    assert_ok(safetensors_open(&a, a_path, &error), &error);
    assert_ok(safetensors_open(&b, b_path, &error), &error);
    for (size_t i = 0; i < safetensors_count(a); i++) {
        const SafetensorsEntry *entry = safetensors_entry(a, i);
        if (safetensors_type_is_float(entry->type))
            far += distance_of_entry(entry, safetensors_find(b, entry->name), &square);
    }
    safetensors_close(&a);
    safetensors_close(&b);
    return sqrt(far / square);
}
