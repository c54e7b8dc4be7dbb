/* Two ranks, of which one cannot take its batch, or has other weights: the other ends as well, and does
 * not wait in an exchange for gradients that never come. The backend of one rank fails in the place of a
 * device that would. */
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

static const BackendInterface *device_interface;

/* Takes all that comes before an input comes again: the first batch. */
static FshStatus refuse_second_batch(Program *program, TensorId input, const void *values, size_t bytes,
                                     FshError *error)
{
    static TensorId first = TENSOR_NONE;
    if (input == first)
        return refuse_batch(program, input, values, bytes, error);
    first = first == TENSOR_NONE ? input : first;
    return device_interface->program_write(program, input, values, bytes, error);
}

/* What a rank tells the test. */
typedef struct Told {
    FshStatus status;
    bool saved; /* a checkpoint would have been written */
    char message[sizeof((FshError){0}.message)];
} Told;

/* What is wrong with a rank. */
typedef enum Fault { WELL, REFUSES_BATCH, REFUSES_SECOND, OTHER_WEIGHTS, OTHER_AND_REFUSES } Fault;

/* Makes the fault; `checkpoints` steps lie between two checkpoints. */
static FshStatus spoil(Training *training, Fault fault, FshError *error)
{
    static BackendInterface refusing;
    Session *session = &training->session;
    float bias[4];
    device_interface = session->network.backend->interface;
    refusing = *device_interface;
    refusing.program_write = fault == REFUSES_BATCH ? refuse_batch : refuse_second_batch;
    if (fault == REFUSES_BATCH || fault == REFUSES_SECOND || fault == OTHER_AND_REFUSES)
        session->network.backend->interface = &refusing;
    if (fault != OTHER_WEIGHTS && fault != OTHER_AND_REFUSES)
        return FSH_OK;
    FshStatus status = state_read(session->network.state, "model.33.bias", bias, 4, error);
    bias[3] += 1e-7F; /* whatever rank 0 has: one bit is enough */
    return status ? status : state_write(session->network.state, "model.33.bias", bias, 4, error);
}

/* Writes a Told, and lives until `stays` ends: a rank that is gone would be noticed in another way. */
static int run_rank(const char *shards, int rank, Fault fault, uint64_t checkpoint_interval, int tells,
                    int stays)
{
    TrainOptions options = train_options_default();
    Training training = {
        .record = RECORD_NONE, .log_interval = 1000, .checkpoint_interval = checkpoint_interval};
    Epoch epoch = {0};
    FshError error = {0};
    Told told = {0};
    char text[16], byte;
    (void)snprintf(text, sizeof text, "%d", rank);
    (void)setenv("RANK", text, 1);
    (void)setenv("LOCAL_RANK", text, 1);
    options.shards = shards;
    options.compute.device = DEVICE_CPU;
    options.model = "conv8";
    options.training.batch_size = 4;
    options.program.quiet = true;
    options.program.jobs = 1;
    told.status = session_open(&training.session, &options, SESSION_TRAIN, &error);
    if (!told.status)
        told.status = training_open_steps(&training, &error);
    if (!told.status)
        told.status = spoil(&training, fault, &error);
    if (!told.status) {
        loader_start(training.session.train, 0, training.session.plan.steps_per_epoch);
        told.status = training_steps(&training, &epoch, &error);
    }
    memcpy(told.message, error.message, sizeof told.message);
    told.saved = training.saved;
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

/* Runs two ranks, of which `faulty` has the fault; sets told_ret[rank]. run: a number that no other run of
 * the test has. */
static void run_two(TestFolder *folder, int run, int faulty, Fault fault, uint64_t checkpoint_interval,
                    Told told_ret[RANKS])
{
    const char *shards = test_path(folder, "set%d", run);
    pid_t children[RANKS];
    int tells[RANKS][2], stays[2];
    char job[40];
    dataset_make(shards, &spec);
    (void)snprintf(job, sizeof job, "steps-%ld-%d", (long)getpid(), run);
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
            _exit(run_rank(shards, rank, rank == faulty ? fault : WELL, checkpoint_interval, tells[rank][1],
                           stays[0]));
        }
    }
    for (int rank = 0; rank < RANKS; rank++)
        told_ret[rank] = listen_to(tells[rank][0], rank);
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
    for (int refuser = 0; refuser < RANKS; refuser++) {
        Told told[RANKS];
        run_two(folder, refuser, refuser, REFUSES_BATCH, 0, told);
        assert_int_equal(told[refuser].status, FSH_ERR_CORRUPT);
        assert_non_null(strstr(told[refuser].message, "sample 7: the device takes no batch"));
        assert_int_equal(told[1 - refuser].status, FSH_ERR_PEER);
        assert_string_equal(told[1 - refuser].message,
                            "another rank has failed, and says why; this one ends with it");
    }
}

/* A single bit, before a checkpoint within the epoch, or at its end before the evaluation; rank 0 tells,
 * whichever rank it is. */
TEST_IN_FOLDER(test_weights_that_differ_between_ranks_end_the_run, folder)
{
    static const char *const says[] = {
        "the weights of rank 1 are not those of rank 0 at step 2 of the run, and were at "
        "step 0: ",
        "the weights of rank 1 are not those of rank 0 at step 1 of the run, and were at "
        "step 0: "};
    for (int i = 0; i < 4; i++) {
        Told told[RANKS];
        run_two(folder, 10 + i, i / 2, OTHER_WEIGHTS, (uint64_t)i % 2, told);
        for (int rank = 0; rank < RANKS; rank++)
            assert_int_equal(told[rank].status, FSH_ERR_MISMATCH);
        if (!strstr(told[0].message, says[i % 2]))
            fail_msg("%s", told[0].message);
        assert_string_equal(told[1].message, ranks_told_elsewhere);
    }
}

/* What was learnt is saved, unless the ranks have learnt different things. */
TEST_IN_FOLDER(test_weights_that_differ_are_not_saved_when_a_batch_fails, folder)
{
    static const Fault faults[] = {REFUSES_SECOND, OTHER_AND_REFUSES};
    for (int i = 0; i < 2; i++) {
        Told told[RANKS];
        run_two(folder, 20 + i, 1, faults[i], 0, told);
        assert_int_equal(told[1].status, FSH_ERR_CORRUPT);
        assert_int_equal(told[0].status, FSH_ERR_PEER);
        for (int rank = 0; rank < RANKS; rank++)
            assert_int_equal(told[rank].saved, faults[i] == REFUSES_SECOND);
    }
}
