/* Two ranks, of which one cannot take its batch: the other ends as well, and does not wait in an exchange for
 * gradients that never come. The backend of one rank fails in the place of a device that would. */
#include "trainer/loop/train_internal.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"

enum { RANKS = 2, PATIENCE_MILLISECONDS = 60000 };

static const DatasetSpec spec = {.codec = FSH_CODEC_RAW,
                                 .width = 32,
                                 .height = 32,
                                 .channels = 3,
                                 .class_count = 4,
                                 .train_count = 16,
                                 .val_count = 4,
                                 .shard_count = 1};

static FshStatus refuse_batch(Program *program, TensorId input, const void *values, size_t bytes,
                              FshError *error)
{
    (void)program;
    (void)input;
    (void)values;
    (void)bytes;
    return fsh_error_set(error, FSH_ERR_CORRUPT, "sample 7: the device takes no batch");
}

/* What a rank tells the test. */
typedef struct Told {
    FshStatus status;
    char message[sizeof((FshError){0}.message)];
} Told;

/* Writes a Told, and lives until `stays` ends: a rank that is gone would be noticed in another way. */
static int run_rank(const char *shards, int rank, bool refuses, int tells, int stays)
{
    static BackendInterface refusing;
    TrainOptions options = train_options_default();
    Training training = {.record = RECORD_NONE, .log_interval = 1000};
    Epoch epoch = {0};
    FshError error = {0};
    Told told = {0};
    char text[16], byte;
    (void)snprintf(text, sizeof text, "%d", rank);
    (void)setenv("RANK", text, 1);
    (void)setenv("LOCAL_RANK", text, 1);
    options.shards = shards;
    options.device = DEVICE_CPU;
    options.model = "conv8";
    options.batch_size = 4;
    options.program.quiet = true;
    options.program.jobs = 1;
    told.status = session_open(&training.session, &options, SESSION_TRAIN, &error);
    if (!told.status)
        told.status = training_open_steps(&training, &error);
    if (!told.status) {
        Session *session = &training.session;
        refusing = *session->network.backend->interface;
        refusing.program_write = refuse_batch;
        if (refuses)
            session->network.backend->interface = &refusing;
        loader_start(session->train, 0, session->plan.steps_per_epoch);
        told.status = training_steps(&training, &epoch, &error);
    }
    memcpy(told.message, error.message, sizeof told.message);
    const bool wrote = write(tells, &told, sizeof told) == (ssize_t)sizeof told;
    while (read(stays, &byte, 1) > 0)
        ;
    training_close_steps(&training);
    session_close(&training.session);
    return wrote ? 0 : 1;
}

/* Returns what the rank tells; fails the test if nothing comes for PATIENCE_MILLISECONDS. */
static Told listen_to(int from, int rank)
{
    Told told = {0};
    struct pollfd waits = {.fd = from, .events = POLLIN};
    if (poll(&waits, 1, PATIENCE_MILLISECONDS) != 1)
        fail_msg("rank %d has not come back", rank);
    assert_int_equal(read(from, &told, sizeof told), sizeof told);
    return told;
}

static void check_refusal_of(TestFolder *folder, int refuser)
{
    const char *shards = test_path(folder, "set%d", refuser);
    pid_t children[RANKS];
    int tells[RANKS][2], stays[2];
    char job[40];
    dataset_make(shards, &spec);
    (void)snprintf(job, sizeof job, "steps-%ld-%d", (long)getpid(), refuser);
    (void)setenv("MASTER_PORT", job, 1);
    (void)setenv("WORLD_SIZE", "2", 1);
    (void)setenv("LOCAL_WORLD_SIZE", "2", 1);
    assert_int_equal(pipe(stays), 0);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(pipe(tells[rank]), 0);
        children[rank] = fork();
        assert_true(children[rank] >= 0);
        if (children[rank] == 0) {
            (void)close(stays[1]);
            _exit(run_rank(shards, rank, rank == refuser, tells[rank][1], stays[0]));
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        const Told told = listen_to(tells[rank][0], rank);
        if (rank == refuser) {
            assert_int_equal(told.status, FSH_ERR_CORRUPT);
            assert_non_null(strstr(told.message, "sample 7: the device takes no batch"));
        } else {
            assert_int_equal(told.status, FSH_ERR_SYSTEM);
            assert_string_equal(told.message, "another rank has failed, and says why; this one ends with it");
        }
    }
    (void)close(stays[0]);
    (void)close(stays[1]);
    for (int rank = 0; rank < RANKS; rank++) {
        int status = 1;
        (void)close(tells[rank][0]);
        (void)close(tells[rank][1]);
        assert_int_equal(waitpid(children[rank], &status, 0), children[rank]);
        assert_int_equal(status, 0);
    }
}

TEST_IN_FOLDER(test_a_batch_that_one_rank_cannot_take_ends_all, folder)
{
    check_refusal_of(folder, 0);
    check_refusal_of(folder, 1);
}
