/* ftrain goes on with another number of ranks: the same images in each update, as if nothing had happened;
 * where that cannot be, what would fit. */
#include "tests/programs/ranks_support.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "trainer/checkpoint/safetensors.h"

/* 53 pairs: 4 updates of 12 in an epoch, with 5 left over, however ranks and steps share them. */
static const DatasetSpec pairs = {.codec = FSH_CODEC_RAW,
                                  .width = 32,
                                  .height = 32,
                                  .channels = 3,
                                  .class_count = 4,
                                  .train_count = 53,
                                  .val_count = 3,
                                  .shard_count = 2,
                                  .kind = FSH_KIND_PAIRS};

/* Every part of a run; its network. */
#define PARTS                                                                                                \
    "--epochs", "3", "--opt", "sgd", "--lr", "0.05", "--lr-warmup-epochs", "0.6", "--val-interval", "1"
static const char *const unet[] = {"--model", "unet", "--width", "8", PARTS, NULL};
/* Evaluated in the middle of epochs of 4. */
static const char *const iterations[] = {"--model",           "unet", "--width", "8",   "--iters", "12",
                                         "--val-every",       "5",    "--opt",   "sgd", "--lr",    "0.05",
                                         "--lr-warmup-iters", "2",    NULL};
static const char *const conv8[] = {"--model", "conv8", PARTS, NULL};

/* How a part of a run shares the images of an update, and the steps between its checkpoints, after the
 * first of which it is killed, for it may have gone on while that was written; NULL: it goes on to the
 * end. */
typedef struct Part {
    int ranks;
    const char *batch, *accumulation, *stop_after;
} Part;

/* Runs a part; asserts that it is killed where it shall, or ends. Returns what its first rank has told; freed
 * by the caller with run_result_free. */
static RunResult run_part(const char *const *network, const char *shards, const char *out, const Part *part)
{
    static int job = 10;
    const char *const rest[] = {"--batch-size",
                                part->batch,
                                "--grad-accum-steps",
                                part->accumulation,
                                "--resume",
                                "auto",
                                shards,
                                out,
                                part->stop_after ? "--checkpoint-interval" : NULL,
                                part->stop_after,
                                NULL};
    const char *arguments[40] = {NULL}, *stops = part->stop_after ? "checkpoint.safetensors" : NULL;
    RunningProgram running[RANKS_MOST];
    RunResult results[RANKS_MOST];
    size_t count = 0;
    for (; network[count]; count++)
        arguments[count] = network[count];
    memcpy(arguments + count, rest, sizeof rest);
    job++;
    for (int rank = 0; rank < part->ranks; rank++)
        running[rank] = start_rank(rank, part->ranks, job, rank == 0 ? stops : NULL, arguments);
    if (stops) {
        run_wait_until_stopped(&running[0]);
        assert_int_equal(kill(running[0].process, SIGKILL), 0);
    }
    for (int rank = 0; rank < part->ranks; rank++) {
        const int ends = !stops ? 0 : rank == 0 ? 128 + SIGKILL : 1;
        results[rank] = run_wait(&running[rank]);
        if (results[rank].exit_status != ends)
            fail_msg("rank %d of %d: exit status %d\n%s", rank, part->ranks, results[rank].exit_status,
                     results[rank].err);
        if (rank > 0)
            run_result_free(&results[rank]);
    }
    return results[0];
}

/* Replaces the text by another one of its length, once. */
static void rename_in(char *bytes, size_t byte_count, const char *from, const char *to)
{
    const size_t length = strlen(from);
    char *at = memmem(bytes, byte_count, from, length);
    assert_non_null(at);
    for (size_t i = 0; i < length; i++)
        at[i] = to[i];
}

/* Changes a checkpoint that was made one run after an update: the loss of that run was no number, so nothing
 * was gathered and the counter is below 0. The checksums do not match any more, and lose their names. */
static void refuse_gathered(const char *path)
{
    Safetensors *file = NULL;
    FshError error = {0};
    size_t byte_count = 0;
    uint64_t header_bytes = 0;
    const float one = 1, refused = -1;
    char *bytes = test_file_read(path, &byte_count);
    memcpy(&header_bytes, bytes, sizeof header_bytes);
    assert_ok(safetensors_open(&file, path, &error), &error);
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const SafetensorsEntry *entry = safetensors_entry(file, i);
        char *data =
            bytes + sizeof header_bytes + header_bytes + (entry->data - safetensors_entry(file, 0)->data);
        if (text_has_suffix(entry->name, ".accumulated"))
            memset(data, 0, entry->bytes);
        if (strcmp(entry->name, "optimizer.micro") == 0) {
            assert_memory_equal(data, &one, sizeof one);
            memcpy(data, &refused, sizeof refused);
        }
    }
    safetensors_close(&file);
    rename_in(bytes, byte_count, "fshard.header_xxh3", "fshard.header_none");
    rename_in(bytes, byte_count, "fshard.tensors_xxh3", "fshard.tensors_none");
    test_file_write(path, bytes, byte_count);
    free(bytes);
}

/* Runs the parts one after another and compares the end with that of an undisturbed run of the first.
 * between: changes the checkpoint after the first part; or NULL.
 * loss_bound: of the relative difference of an epoch's mean loss. */
static void compare_with_undisturbed(TestFolder *folder, const char *const *network, const Part *parts,
                                     size_t count, double loss_bound, void (*between)(const char *path))
{
    static const char *const columns[] = {"lr", "train_loss", "eval_loss", "eval_psnr"};
    const char *shards = make_set(folder, &pairs), *one = test_path(folder, "one"),
               *several = test_path(folder, "several");
    const Part whole = {parts[0].ranks, parts[0].batch, parts[0].accumulation, NULL};
    RunResult result = run_part(network, shards, one, &whole);
    run_result_free(&result);
    for (size_t i = 0; i < count; i++) {
        result = run_part(network, shards, several, &parts[i]);
        run_result_free(&result);
        if (i == 0 && between)
            between(test_path(folder, "several/checkpoint.safetensors"));
    }
    const double far = weights_distance(test_path(folder, "one/last.safetensors"),
                                        test_path(folder, "several/last.safetensors"));
    if (!(far < 1e-7))
        fail_msg("the weights are %g from those of an undisturbed run", far);
    for (size_t epoch = 0; epoch < 3; epoch++)
        for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
            const double a = summary_number(one, epoch, columns[i]),
                         b = summary_number(several, epoch, columns[i]);
            if (fabs(a - b) > (i == 1 ? loss_bound : 1e-5) * fabs(a))
                fail_msg("epoch %zu: %s %.9g and %.9g", epoch, columns[i], a, b);
        }
}

TEST_IN_FOLDER(test_a_run_goes_on_with_2_1_and_4_ranks, folder)
{
    static const Part parts[] = {{2, "6", "1", "2"}, {1, "12", "1", "3"}, {4, "3", "1", NULL}};
    compare_with_undisturbed(folder, unet, parts, 3, 1e-5, NULL);
}

TEST_IN_FOLDER(test_a_run_of_iterations_goes_on_with_other_ranks, folder)
{
    static const Part parts[] = {{2, "6", "1", "3"}, {1, "6", "2", "8"}, {2, "2", "3", NULL}};
    compare_with_undisturbed(folder, iterations, parts, 3, 1e-2, NULL);
}

/* The third part stops in the middle of an update, whose first images then count twice in the epoch's
 * loss. */
TEST_IN_FOLDER(test_a_run_goes_on_with_other_steps_in_an_update, folder)
{
    static const Part parts[] = {
        {2, "6", "1", "1"}, {1, "6", "2", "4"}, {2, "2", "3", "7"}, {1, "12", "1", NULL}};
    compare_with_undisturbed(folder, unet, parts, 4, 1e-2, NULL);
}

TEST_IN_FOLDER(test_a_run_goes_back_before_a_loss_that_is_no_number, folder)
{
    static const Part parts[] = {{2, "2", "3", "7"}, {1, "4", "3", NULL}};
    compare_with_undisturbed(folder, unet, parts, 2, 1e-2, refuse_gathered);
}

#define RUN "--model", "conv8", "--epochs", "1", "--resume", "auto"

TEST_IN_FOLDER(test_what_would_fit_is_told, folder)
{
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    RANKS_TRAINED(2, RUN, "--batch-size", "4", "--grad-accum-steps", "3", shards, out);
    SAYS(1,
         "each update of the run took 24 images (ranks x batch size x accumulation: 2 x 4 x 3), and would "
         "take 12 (1 x 4 x 3) now; start with --batch-size 8 or --grad-accum-steps 6, or",
         RUN, "--batch-size", "4", "--grad-accum-steps", "3", shards, out);
    SAYS(1, "start with --grad-accum-steps 4, or", RUN, "--batch-size", "6", "--grad-accum-steps", "5",
         shards, out);
    SAYS(1, "start with --batch-size 24 --grad-accum-steps 1, or", RUN, "--batch-size", "5",
         "--grad-accum-steps", "5", shards, out);
    RanksResult result = RANKS(3, 1, RUN, "--batch-size", "4", "--grad-accum-steps", "3", shards, out);
    assert_contains(result.of[0].err, "start with --grad-accum-steps 2, or");
    free_ranks(&result);
}

TEST_IN_FOLDER(test_other_batches_of_norms_are_told, folder)
{
    static const Part parts[] = {{2, "4", "1", "2"}, {1, "8", "1", "2"}, {1, "4", "2", NULL}};
    static const char *const says[] = {"",
                                       "1 x 8 x 1, and 2 x 4 x 1 before: each update takes the same images; "
                                       "but batch norm sees larger batches from "
                                       "here on, of 8 images instead of 4",
                                       "1 x 4 x 2, and 1 x 8 x 1 before: each update takes the same images; "
                                       "but batch norm sees smaller batches"};
    const char *shards = make_set(folder, &train_plain), *out = test_path(folder, "out");
    for (size_t i = 0; i < 3; i++) {
        RunResult result = run_part(conv8, shards, out, &parts[i]);
        assert_contains(result.err, says[i]);
        if (i == 0)
            assert_contains_not(result.err, "before: each update");
        run_result_free(&result);
    }
}
