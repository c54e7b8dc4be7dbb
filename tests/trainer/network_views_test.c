/* Views of which evaluation takes the mean, --flip-tta and --shift-tta, against images that are mirrored and
 * moved here. */
#include "trainer/session/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"

enum { EDGE = 32, CHANNELS = 3, BATCH = 4, CLASSES = 4, PIXELS = BATCH * EDGE * EDGE * CHANNELS };

static const DatasetSpec spec = {.codec = FSH_CODEC_RAW,
                                 .width = EDGE,
                                 .height = EDGE,
                                 .channels = CHANNELS,
                                 .class_count = CLASSES,
                                 .train_count = 16,
                                 .val_count = BATCH,
                                 .shard_count = 1};

/* Returns where pixel `at` of an image that was moved by `shift` comes from: -1 is 1, EDGE is EDGE - 2. */
static int origin(int at, int shift)
{
    const int from = at - shift;
    return from < 0 ? -from : from >= EDGE ? 2 * (EDGE - 1) - from : from;
}

/* Moves the images right and down, then mirrors them. */
static void make_view(const uint8_t *pixels, int shift, bool mirrored, uint8_t *view)
{
    for (int i = 0; i < PIXELS; i++) {
        const int channel = i % CHANNELS, x = i / CHANNELS % EDGE, y = i / CHANNELS / EDGE % EDGE;
        const int image = i / CHANNELS / EDGE / EDGE, column = origin(mirrored ? EDGE - 1 - x : x, shift);
        view[i] = pixels[((image * EDGE + origin(y, shift)) * EDGE + column) * CHANNELS + channel];
    }
}

/* Evaluates images; adds weight times each logit to logits. Returns weight times the loss. */
static double evaluate(Session *session, const uint8_t *pixels, float weight, float logits[BATCH * CLASSES])
{
    static const int64_t labels[BATCH] = {0, 1, 2, 3};
    static const float valid[BATCH] = {1, 1, 1, 1};
    const Batch batch = {.height = EDGE,
                         .width = EDGE,
                         .pixels = pixels,
                         .labels = labels,
                         .valid = valid,
                         .valid_count = BATCH};
    Metrics metrics = {0};
    Evaluated evaluated;
    FshError error = {0};
    assert_ok(network_evaluate(&session->network, NETWORK_TRAINED, &batch, &metrics, &evaluated, &error),
              &error);
    for (int i = 0; i < BATCH * CLASSES; i++)
        logits[i] += weight * evaluated.output[i];
    return (double)weight * metrics_value(&metrics, METRIC_LOSS);
}

/* Compares what evaluation makes of images with the mean over views that are made here. */
static void compare(Session *session, bool flips, int shift)
{
    static const float of_shift[] = {0.5F, 0.25F, 0.25F};
    static uint8_t pixels[PIXELS], view[PIXELS];
    const int shifts[] = {0, shift, -shift};
    float expected[BATCH * CLASSES] = {0}, found[BATCH * CLASSES] = {0};
    double expected_loss = 0;
    uint32_t random = 1;
    for (int i = 0; i < PIXELS; i++) {
        random = random * 1664525 + 1013904223;
        pixels[i] = (uint8_t)(random >> 24);
    }
    session->plan.flip_tta = false;
    session->plan.shift_tta = 0;
    for (int s = 0; s < (shift ? 3 : 1); s++)
        for (int mirrored = 0; mirrored < (flips ? 2 : 1); mirrored++) {
            make_view(pixels, shifts[s], mirrored, view);
            expected_loss +=
                evaluate(session, view, (shift ? of_shift[s] : 1) * (flips ? 0.5F : 1), expected);
        }
    session->plan.flip_tta = flips;
    session->plan.shift_tta = (uint32_t)shift;
    const double found_loss = evaluate(session, pixels, 1, found);
    assert_true(fabs(found_loss - expected_loss) < 1e-5);
    for (int i = 0; i < BATCH * CLASSES; i++)
        if (!(fabsf(found[i] - expected[i]) < 1e-5F))
            fail_msg("flip %d, shift %d, logit %d: %g, not %g", flips, shift, i, (double)found[i],
                     (double)expected[i]);
}

TEST_IN_FOLDER(test_logits_are_the_mean_over_views, folder)
{
    static Session session;
    TrainOptions options = train_options_default();
    FshError error = {0};
    const char *shards = test_path(folder, "set");
    dataset_make(shards, &spec);
    options.shards = shards;
    options.compute.device = DEVICE_CPU;
    options.model = "conv8";
    options.training.batch_size = BATCH;
    options.program.quiet = true;
    options.program.jobs = 1;
    assert_ok(session_open(&session, &options, SESSION_TRAIN, &error), &error);
    for (int shift = 0; shift < 4; shift++)
        for (int flips = 0; flips < 2; flips++)
            compare(&session, flips, shift);
    session_close(&session);
}
