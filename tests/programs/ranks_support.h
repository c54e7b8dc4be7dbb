/* ranks_support.h - ftrain as several ranks, started as torchrun starts them, and how far two files of
 * weights are apart.
 *
 * Whatever cannot be done fails the running test. */
#ifndef FSHARD_TESTS_PROGRAMS_RANKS_SUPPORT_H
#define FSHARD_TESTS_PROGRAMS_RANKS_SUPPORT_H

#include "tests/programs/train_support.h"

enum { RANKS_MOST = 5 };

/* Returns the shape of a small set of pairs, on which a network without norms trains alike on any ranks. */
DatasetSpec rank_pairs(uint64_t train_count, uint64_t val_count);
#define RANKS_UNET(epochs)                                                                                   \
    "--model", "unet", "--width", "8", "--epochs", (epochs), "--opt", "sgd", "--lr", "0.05",                 \
        "--lr-warmup-epochs", "0", "--val-interval", "1"

/* Starts a rank on the CPU, with one thread. job is a number that no other run of the test under way has;
 * stop_at is that of RunOptions, or NULL. */
RunningProgram start_rank(int rank, int ranks, int job, const char *stop_at, const char *const *arguments);

/* Waits for the end of so many programs, each of which must end with 0. */
void expect_well(RunningProgram *running, int count);

typedef struct RanksResult {
    int ranks;
    RunResult of[RANKS_MOST];
} RanksResult;

RanksResult run_ranks(int ranks, const char *const *arguments);
void free_ranks(RanksResult *result);
/* Runs the ranks; asserts that all end with that status and that only the first prints anything. */
RanksResult expect_ranks(int ranks, int exit_status, const char *const *arguments);

#define RANKS(ranks, exit_status, ...)                                                                       \
    expect_ranks((ranks), (exit_status), (const char *const[]){__VA_ARGS__, NULL})
#define RANKS_TRAINED(ranks, ...)                                                                            \
    do {                                                                                                     \
        RanksResult trained_ = RANKS(ranks, 0, __VA_ARGS__);                                                 \
        free_ranks(&trained_);                                                                               \
    } while (0)

/* Returns the process of a rank that a running ftrain --gpus has started, by its place on the host; 0: it is
 * not there. */
pid_t started_rank(pid_t launcher, int rank);
/* Returns whether this system tells what started_rank needs. */
bool started_ranks_are_told(void);

/* Returns ||a - b|| / ||a|| over all weights of two files. */
double weights_distance(const char *a_path, const char *b_path);

#endif
