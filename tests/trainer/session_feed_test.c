/* The way in which a run is fed changes in the middle of it, and its batches do not. */
#include "trainer/session/session_feed.h"

#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"

enum { BATCH = 8, EDGE = 32, FIRST_LOOK = 8, SECOND_LOOK = 40, BATCHES_SEEN = 30 };

static const DatasetSpec spec = {.codec = FSH_CODEC_JPEG,
                                 .width = 48,
                                 .height = 40,
                                 .channels = 3,
                                 .class_count = 4,
                                 .train_count = 53,
                                 .val_count = 11,
                                 .shard_count = 1};

static void open_session(Session *session, const char *shards, int cache)
{
    TrainOptions options = train_options_default();
    FshError error = {0};
    options.shards = shards;
    options.compute.device = DEVICE_CPU;
    options.model = "conv8";
    options.training.batch_size = BATCH;
    options.training.epochs = 1000000; /* everything pays */
    options.image.train_crop_size = EDGE;
    options.image.train_crop_mode = CROP_RESIZED;
    options.data.cache = cache;
    options.data.on_error = TRAIN_SKIP;
    options.program.quiet = true;
    options.program.jobs = 2;
    assert_ok(session_open(session, &options, SESSION_TRAIN, &error), &error);
}

static const Batch *take(Loader *loader)
{
    const Batch *batch = NULL;
    FshError error = {0};
    assert_ok(loader_next(loader, &batch, &error), &error);
    assert_non_null(batch);
    return batch;
}

/* Takes the batches up to the second look, and looks twice: training has taken so many seconds in between. */
static void run_to_second_look(SessionFeed *feed, Session *session, double seconds)
{
    FshError error = {0};
    loader_start(session->train, 0, session->plan.total_steps);
    session_feed_start(feed, session, 0);
    for (uint64_t step = 0; step < SECOND_LOOK; step++) {
        assert_int_equal(session_feed_is_due(feed, step), step >= FIRST_LOOK && feed->next_look <= step);
        if (step == FIRST_LOOK)
            assert_ok(session_feed_look(feed, session, &(FeedMoment){step, 5, 1, 3}, &error), &error);
        (void)take(session->train);
    }
    assert_true(session_feed_is_due(feed, SECOND_LOOK));
    assert_ok(
        session_feed_look(feed, session, &(FeedMoment){SECOND_LOOK, 5 + seconds, 1, 3 + seconds}, &error),
        &error);
}

/* Checks that the batches from `step` on, and those of evaluation, are those of a session that decodes at
 * each use. */
static void check_batches(Session *session, const char *shards, uint64_t step)
{
    Session plain;
    open_session(&plain, shards, PIXEL_CACHE_NONE);
    loader_start(plain.train, step, BATCHES_SEEN);
    loader_start(plain.evaluation, 0, 2);
    loader_start(session->evaluation, 0, 2);
    for (int i = 0; i < BATCHES_SEEN + 2; i++) {
        const bool trains = i < BATCHES_SEEN;
        const Batch *expected = take(trains ? plain.train : plain.evaluation),
                    *batch = take(trains ? session->train : session->evaluation);
        assert_int_equal(batch->epoch, expected->epoch);
        assert_int_equal(batch->step, expected->step);
        assert_memory_equal(batch->samples, expected->samples, BATCH * sizeof *batch->samples);
        assert_memory_equal(batch->labels, expected->labels, BATCH * sizeof *batch->labels);
        assert_memory_equal(batch->pixels, expected->pixels, (size_t)BATCH * EDGE * EDGE * 3);
    }
    session_close(&plain);
}

/* Looks twice at a dataset, and checks what feeds the session then, and its batches. */
static void check_feed(TestFolder *folder, const DatasetSpec *dataset, double seconds, const char *source)
{
    const char *shards = test_path(folder, "set");
    Session session;
    SessionFeed feed;
    dataset_make(shards, dataset);
    open_session(&session, shards, OPTION_AUTO);
    run_to_second_look(&feed, &session, seconds);
    assert_string_equal(session.plan.source->name, source);
    assert_string_equal(session.sources[0]->type->name, source);
    assert_string_equal(session.sources[1]->type->name, source);
    assert_false(feed.looks);
    assert_false(session_feed_is_due(&feed, 1000));
    check_batches(&session, shards, SECOND_LOOK);
    session_close(&session);
}

TEST_IN_FOLDER(test_what_pays_is_decoded_once_and_the_run_goes_on, folder)
{
    check_feed(folder, &spec, 0.021, "pixels");
}

TEST_IN_FOLDER(test_what_wins_little_stays_with_the_files, folder)
{
    check_feed(folder, &spec, 1000, "records");
}

/* Most are decoded in full size, but those of 70 pixels at a half, for crops of 32. */
TEST_IN_FOLDER(test_a_few_larger_photographs_keep_their_pixels, folder)
{
    DatasetSpec grown = spec;
    grown.grow = 30;
    check_feed(folder, &grown, 0.021, "records");
}

TEST_IN_FOLDER(test_a_damaged_image_leaves_the_run_as_it_is, folder)
{
    DatasetSpec damaged = spec;
    damaged.untabled = true;
    check_feed(folder, &damaged, 0.021, "records");
}

TEST_IN_FOLDER(test_a_short_measurement_decides_nothing, folder)
{
    const char *shards = test_path(folder, "set");
    Session session;
    SessionFeed feed;
    dataset_make(shards, &spec);
    open_session(&session, shards, OPTION_AUTO);
    run_to_second_look(&feed, &session, 0.019);
    assert_true(feed.looks);
    assert_int_equal(feed.next_look, 2 * SECOND_LOOK);
    assert_true(session_feed_is_alone(&feed, SECOND_LOOK));
    session_close(&session);
}

TEST_IN_FOLDER(test_a_given_cache_is_not_looked_at, folder)
{
    const char *shards = test_path(folder, "set");
    Session session;
    SessionFeed feed;
    dataset_make(shards, &spec);
    open_session(&session, shards, PIXEL_CACHE_NONE);
    session_feed_start(&feed, &session, 0);
    assert_false(session_feed_is_due(&feed, 1000));
    session_close(&session);
}
