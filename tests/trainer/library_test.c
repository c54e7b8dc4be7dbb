/* libfshard_loader: its batches are ftrain's, in memory that is the caller's and stays as it is. */
#include "trainer/library/fshard_loader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"
#include "tests/trainer/loader_support.h"
#include "trainer/session/session.h"

enum { BATCH = 8, EDGE = 24, KEPT_MAX = 400 };

static const DatasetSpec classes = {.codec = FSH_CODEC_JPEG,
                                    .width = 48,
                                    .height = 40,
                                    .channels = 3,
                                    .class_count = 4,
                                    .train_count = 53,
                                    .val_count = 21,
                                    .shard_count = 2};
static const DatasetSpec pairs = {.codec = FSH_CODEC_RAW,
                                  .width = 40,
                                  .height = 30,
                                  .channels = 3,
                                  .class_count = 4,
                                  .train_count = 20,
                                  .val_count = 7,
                                  .shard_count = 1,
                                  .kind = FSH_KIND_PAIRS,
                                  .grow = 9};

static FshLoaderConfig config_of(const char *shards)
{
    return (FshLoaderConfig){.bytes = sizeof(FshLoaderConfig),
                             .shards = shards,
                             .split = "train",
                             .batch = BATCH,
                             .world_size = 1,
                             .size = EDGE,
                             .workers = 2,
                             .training = 1,
                             .augment = 1,
                             .seed = 3};
}

/* A loader, and the memory of all that it was lent and of what it gave. */
typedef struct Run {
    FshLoader *loader;
    const FshLoaderInfo *info;
    void *kept[KEPT_MAX]; /* freed at the end */
    size_t kept_count;
    int64_t labels[64];
    float rows[64 * 4];
    uint64_t samples[64];
    FshLoaderBatch batch;
} Run;

static void *take(Run *run)
{
    assert_in_range(run->kept_count, 0, KEPT_MAX - 1);
    return run->kept[run->kept_count++] = aligned_alloc(64, (run->info->image_bytes + 63) / 64 * 64);
}

static FshLoaderMemory memory_of(Run *run)
{
    const bool whole = run->info->whole;
    return (FshLoaderMemory){.images = whole ? NULL : take(run),
                             .target = run->info->pairs && !whole ? take(run) : NULL,
                             .labels = run->labels,
                             .rows = run->rows,
                             .samples = run->samples};
}

static void run_open(Run *run, const FshLoaderConfig *config)
{
    FshError error = {0};
    *run = (Run){0};
    assert_ok(fsh_loader_open(&run->loader, config, &error), &error);
    run->info = fsh_loader_info(run->loader);
    for (uint64_t slot = 0; slot < run->info->ring && !run->info->whole; slot++)
        fsh_loader_lend(run->loader, slot,
                        &(FshLoaderMemory){take(run), run->info->pairs ? take(run) : NULL, NULL, NULL, NULL});
}

static void run_close(Run *run)
{
    fsh_loader_close(&run->loader);
    assert_null(run->loader);
    for (size_t i = 0; i < run->kept_count; i++)
        free(run->kept[i]);
}

/* Takes the next batch of the epoch; false after the last. */
static bool run_next(Run *run)
{
    FshError error = {0};
    const FshLoaderMemory fresh = memory_of(run);
    do
        assert_ok(fsh_loader_next(run->loader, &fresh, 0.2, &run->batch, &error), &error);
    while (run->batch.state == FSH_LOADER_WAIT);
    return run->batch.state == FSH_LOADER_BATCH;
}

/* ---- the same batches as ftrain's ---- */

static void open_session(Session *session, uint32_t **sizes, LoaderOptions *options, const char *shards,
                         bool mixes)
{
    TrainOptions given = train_options_default();
    FshError error = {0};
    given.shards = shards;
    given.training.batch_size = BATCH;
    given.training.seed = 3;
    given.image.train_crop_size = EDGE;
    given.image.train_crop_mode = CROP_RESIZED;
    given.image.color_jitter = "0.4";
    given.mixing.mixup_alpha = mixes ? 0.4 : 0;
    given.data.bench_loader = true;
    given.data.workers = 1;
    given.program.quiet = true;
    assert_ok(session_open(session, &given, SESSION_LOAD, &error), &error);
    assert_ok(session_loader_options(session, true, options, sizes, &error), &error);
}

static void check_like_ftrain(const char *shards, bool mixes)
{
    const FshLoaderOption options[] = {
        {"train_crop_mode", "rrc"}, {"color-jitter", "0.4"}, {"mixup_alpha", "0.4"}};
    FshLoaderConfig config = config_of(shards);
    config.options = options;
    config.option_count = mixes ? 3 : 2;
    Run run;
    Session session;
    LoaderOptions same;
    uint32_t *sizes = NULL;
    open_session(&session, &sizes, &same, shards, mixes);
    Loader *loader = open_loader(&same);
    run_open(&run, &config);
    assert_int_equal(run.info->steps, loader_step_count(loader));
    assert_int_equal(run.info->row_width, mixes ? 4 : 0);
    loader_start(loader, 0, 3 * run.info->steps);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        fsh_loader_start(run.loader, epoch, 0);
        for (uint64_t step = 0; step < run.info->steps; step++) {
            const Batch *wanted = next_batch(loader);
            assert_true(run_next(&run));
            assert_int_equal(run.batch.epoch, epoch);
            assert_int_equal(run.batch.step, step);
            assert_int_equal(run.batch.count, BATCH);
            assert_int_equal(run.batch.height, EDGE);
            assert_memory_equal(run.batch.images, wanted->pixels, (size_t)BATCH * EDGE * EDGE * 3);
            assert_memory_equal(run.samples, wanted->samples, sizeof(uint64_t) * BATCH);
            if (!mixes)
                assert_memory_equal(run.labels, wanted->labels, sizeof(int64_t) * BATCH);
            for (uint64_t i = 0; mixes && i < BATCH; i++) {
                float sum = 0;
                for (uint64_t k = 0; k < 4; k++)
                    sum += run.rows[i * 4 + k];
                assert_true(fabsf(sum - 1) < 1e-6F);
                assert_true(run.rows[i * 4 + (uint64_t)wanted->labels[i]] >= wanted->mix[i] - 1e-6F);
            }
        }
        assert_false(run_next(&run));
    }
    run_close(&run);
    loader_free(&loader);
    free(sizes);
    session_close(&session);
}

TEST_IN_FOLDER(test_batches_are_those_of_ftrain, folder)
{
    dataset_make(test_path(folder, "set"), &classes);
    check_like_ftrain(test_path(folder, "set"), false);
    check_like_ftrain(test_path(folder, "set"), true);
}

/* ---- memory ---- */

TEST_IN_FOLDER(test_a_batch_in_hand_never_changes, folder)
{
    Run run;
    dataset_make(test_path(folder, "set"), &classes);
    FshLoaderConfig config = config_of(test_path(folder, "set"));
    run_open(&run, &config);
    const size_t bytes = (size_t)BATCH * EDGE * EDGE * 3;
    uint8_t *first = NULL, *copy = malloc(bytes);
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        fsh_loader_start(run.loader, epoch, 0);
        while (run_next(&run)) {
            assert_ptr_not_equal(run.batch.images, first);
            if (!first)
                memcpy(copy, first = run.batch.images, bytes);
        }
    }
    assert_memory_equal(first, copy, bytes);
    run_close(&run);
    free(copy);
}

TEST_IN_FOLDER(test_any_epoch_and_step_can_be_started_at, folder)
{
    Run run;
    dataset_make(test_path(folder, "set"), &classes);
    FshLoaderConfig config = config_of(test_path(folder, "set"));
    uint64_t samples[BATCH];
    const size_t bytes = (size_t)BATCH * EDGE * EDGE * 3;
    uint8_t *copy = malloc(bytes);
    run_open(&run, &config);
    fsh_loader_start(run.loader, 2, 4);
    assert_true(run_next(&run));
    assert_int_equal(run.batch.epoch, 2);
    assert_int_equal(run.batch.step, 4);
    memcpy(samples, run.samples, sizeof samples);
    memcpy(copy, run.batch.images, bytes);
    fsh_loader_start(run.loader, 0, 0); /* in the middle of an epoch */
    assert_true(run_next(&run));
    assert_memory_not_equal(run.samples, samples, sizeof samples);
    fsh_loader_start(run.loader, 2, 4);
    assert_true(run_next(&run));
    assert_memory_equal(run.samples, samples, sizeof samples);
    assert_memory_equal(run.batch.images, copy, bytes);
    run_close(&run);
    free(copy);
}

/* ---- ranks and evaluation ---- */

static void check_every_sample_once(const char *shards, bool training, uint64_t world_size, uint64_t expected)
{
    uint8_t seen[64] = {0};
    uint64_t count = 0, steps = 0;
    for (uint64_t rank = 0; rank < world_size; rank++) {
        FshLoaderConfig config = config_of(shards);
        Run run;
        config.split = training ? "train" : "val";
        config.training = training;
        config.keep_last = training && world_size == 1;
        config.rank = rank;
        config.world_size = world_size;
        run_open(&run, &config);
        steps = 0;
        fsh_loader_start(run.loader, 1, 0);
        while (run_next(&run)) {
            for (uint64_t i = 0; i < run.batch.count; i++, count++) {
                assert_int_equal(seen[run.samples[i]]++, 0);
                assert_int_equal(run.labels[i], run.samples[i] % 4);
            }
            steps++;
        }
        assert_int_equal(steps, run.info->steps);
        run_close(&run);
    }
    assert_int_equal(count, expected);
}

TEST_IN_FOLDER(test_ranks_share_the_samples_and_evaluation_has_each_once, folder)
{
    const char *set = test_path(folder, "set");
    dataset_make(set, &classes);
    check_every_sample_once(set, false, 1, 21);
    check_every_sample_once(set, false, 2, 21);
    check_every_sample_once(set, false, 4, 21); /* the last rank has none */
    check_every_sample_once(set, true, 1, 53);
    check_every_sample_once(set, true, 3, 48); /* two steps of 24 */
}

/* ---- pairs ---- */

TEST_IN_FOLDER(test_pairs_come_cropped_alike_and_whole_in_evaluation, folder)
{
    Run run;
    dataset_make(test_path(folder, "set"), &pairs);
    FshLoaderConfig config = config_of(test_path(folder, "set"));
    run_open(&run, &config);
    assert_true(run.info->pairs && !run.info->whole);
    fsh_loader_start(run.loader, 0, 0);
    assert_true(run_next(&run));
    const uint8_t *input = run.batch.images, *target = run.batch.target;
    for (size_t i = 0; i < (size_t)BATCH * EDGE * EDGE * 3; i++)
        assert_int_equal(input[i], 255 - target[i]);
    run_close(&run);

    config.split = "val";
    config.training = config.size = 0;
    config.element = FSH_LOADER_F32;
    run_open(&run, &config);
    assert_true(run.info->whole);
    assert_int_equal(run.info->steps, pairs.val_count);
    fsh_loader_start(run.loader, 0, 0);
    for (uint64_t i = 0; run_next(&run); i++) {
        assert_int_equal(run.batch.count, 1);
        assert_int_equal(run.batch.width, dataset_width(&pairs, i));
        assert_int_equal(run.batch.height, dataset_height(&pairs, i));
        const float *in = run.batch.images, *out = run.batch.target;
        for (size_t at = 0; at < (size_t)run.batch.width * run.batch.height * 3; at++)
            assert_true(fabsf(in[at] + out[at] - 1) < 1e-6F);
    }
    run_close(&run);
}

/* ---- values ---- */

static float of_f16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float size =
        exponent ? ldexpf(1024 + (float)fraction, exponent - 25) : ldexpf((float)fraction, -24);
    return bits & 0x8000 ? -size : size;
}

static float of_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static float value_at(const void *values, size_t at, FshLoaderElement element)
{
    return element == FSH_LOADER_U8    ? ((const uint8_t *)values)[at]
           : element == FSH_LOADER_F32 ? ((const float *)values)[at]
           : element == FSH_LOADER_F16 ? of_f16(((const uint16_t *)values)[at])
                                       : of_bf16(((const uint16_t *)values)[at]);
}

TEST_IN_FOLDER(test_values_are_those_of_the_bytes_in_every_type_and_order, folder)
{
    static const double mean[] = {0.5, 0.4, 0.3}, deviation[] = {0.25, 0.2, 0.3};
    static const double closeness[] = {0, 1e-6, 2e-3, 2e-2};
    Run plain, run;
    dataset_make(test_path(folder, "set"), &classes);
    FshLoaderConfig config = config_of(test_path(folder, "set"));
    run_open(&plain, &config);
    fsh_loader_start(plain.loader, 0, 0);
    assert_true(run_next(&plain));
    const uint8_t *bytes = plain.batch.images;
    memcpy(config.mean, mean, sizeof mean);
    memcpy(config.deviation, deviation, sizeof deviation);
    for (unsigned element = FSH_LOADER_U8; element <= FSH_LOADER_BF16; element++)
        for (unsigned planes = 0; planes < 2; planes++) {
            config.element = element;
            config.planes = planes;
            config.normalize = element ? FSH_LOADER_BY_CALLER : FSH_LOADER_AS_IT_IS;
            run_open(&run, &config);
            fsh_loader_start(run.loader, 0, 0);
            assert_true(run_next(&run));
            assert_memory_equal(run.labels, plain.labels, sizeof(int64_t) * BATCH);
            for (size_t at = 0; at < (size_t)BATCH * EDGE * EDGE * 3; at++) {
                const size_t image = at / (EDGE * EDGE * 3), pixel = at / 3 % (EDGE * EDGE), c = at % 3;
                const size_t place = planes ? (image * 3 + c) * EDGE * EDGE + pixel : at;
                const double wanted = element ? (bytes[at] / 255.0 - mean[c]) / deviation[c] : bytes[at];
                assert_true(fabs(value_at(run.batch.images, place, element) - wanted) <= closeness[element]);
            }
            run_close(&run);
        }
    run_close(&plain);
}

/* ---- what is wrong ---- */

static void check_refused(const FshLoaderConfig *config, FshStatus status, const char *text)
{
    FshLoader *loader = NULL;
    FshError error = {0};
    assert_int_equal(fsh_loader_open(&loader, config, &error), status);
    assert_null(loader);
    assert_contains(error.message, text);
}

TEST_IN_FOLDER(test_what_cannot_be_is_refused_by_name, folder)
{
    const char *set = test_path(folder, "set");
    dataset_make(set, &classes);
    dataset_make(test_path(folder, "pairs"), &pairs);
    static const struct {
        FshLoaderOption option;
        const char *text;
        bool evaluates;
    } options[] = {
        {{"nonsense", "1"}, "--nonsense: no such option", false},
        {{"lr", "1"}, "--lr: does nothing for a loader", false},
        {{"flip-tta", "true"}, "--flip-tta: does nothing", false},
        {{"scale", "2:1"}, "--scale: '2:1'", false},
        {{"mixup_prob", "0.5"}, "--mixup-prob: does nothing here", false},
        {{"vflip_prob", "0.5"}, "--vflip-prob: does nothing here; it is for pairs", false},
        {{"train-crop-size", "32"}, "size: an option says the size", false},
        {{"mixup_alpha", "0.5"}, "--mixup-alpha: does nothing for a loader of evaluation", true},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        FshLoaderConfig config = config_of(set);
        config.training = !options[i].evaluates;
        config.split = options[i].evaluates ? "val" : "train";
        config.options = &options[i].option;
        config.option_count = 1;
        check_refused(&config, FSH_ERR_USAGE, options[i].text);
    }
    FshLoaderConfig config = config_of(set);
    config.split = "tests";
    check_refused(&config, FSH_ERR_NOT_FOUND, "has no split 'tests'; it has: train, val");
    config = config_of(set);
    config.batch = 54;
    check_refused(&config, FSH_ERR_MISMATCH, "54 is more than the 53 training samples");
    config = config_of(set);
    config.rank = 1;
    check_refused(&config, FSH_ERR_USAGE, "rank 1 is none of 1 ranks");
    config = config_of(set);
    config.world_size = 2;
    config.keep_last = 1;
    check_refused(&config, FSH_ERR_USAGE, "drop_last");
    config = config_of(set);
    config.normalize = FSH_LOADER_BY_DATASET;
    check_refused(&config, FSH_ERR_USAGE, "bytes are not normalized");
    config = config_of(set);
    config.bytes = 8;
    check_refused(&config, FSH_ERR_USAGE, "made for another fshard");
    config = config_of(test_path(folder, "nothing"));
    check_refused(&config, FSH_ERR_NOT_FOUND, "nothing");
    config = config_of(test_path(folder, "pairs"));
    config.size = 64;
    check_refused(&config, FSH_ERR_MISMATCH, "64");
}

TEST_IN_FOLDER(test_a_bad_record_is_named_or_left_out, folder)
{
    DatasetSpec spec = classes;
    Run run;
    FshError error = {0};
    char message[1024];
    spec.garbage = true;
    dataset_make(test_path(folder, "set"), &spec);
    FshLoaderConfig config = config_of(test_path(folder, "set"));
    config.split = "val";
    config.training = 0;
    run_open(&run, &config);
    fsh_loader_start(run.loader, 0, 0);
    FshLoaderMemory fresh = memory_of(&run);
    FshStatus status = FSH_OK;
    do
        status = fsh_loader_next(run.loader, &fresh, 1, &run.batch, &error);
    while (!status && run.batch.state == FSH_LOADER_WAIT);
    assert_int_not_equal(status, FSH_OK);
    assert_contains(error.message, "record 5");
    assert_contains(error.message, "000005");
    assert_true(run_next(&run)); /* it goes on behind it */
    assert_int_equal(run.batch.step, 1);
    run_close(&run);

    config.skip_bad = 1;
    run_open(&run, &config);
    fsh_loader_start(run.loader, 0, 0);
    uint64_t count = 0;
    for (; run_next(&run); count += run.batch.count)
        for (uint64_t i = 0; i < run.batch.count; i++) {
            assert_int_not_equal(run.samples[i], 5);
            assert_int_equal(run.labels[i], run.samples[i] % 4);
        }
    assert_int_equal(count, spec.val_count - 1);
    assert_int_equal(fsh_loader_problem(run.loader, 0, message, sizeof message), 1);
    assert_contains(message, "record 5");
    assert_int_equal(fsh_loader_problem(run.loader, 1, message, sizeof message), 0);
    run_close(&run);
}

TEST_IN_FOLDER(test_a_file_is_decoded_as_the_loader_does_it, folder)
{
    FshDataset *dataset = NULL;
    FshDecoder *decoder = NULL;
    FshError error = {0};
    FshSample sample;
    static uint8_t pixels[48 * 40 * 3], drawn[48 * 40 * 3];
    dataset_make(test_path(folder, "set"), &classes);
    assert_ok(fsh_open(&dataset, test_path(folder, "set"), &error), &error);
    assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 3, &sample, &error), &error);
    assert_ok(fsh_decoder_open(&decoder, &error), &error);
    const FshField *field = &sample.fields[0];
    assert_ok(fsh_decoder_decode(decoder, field->data, field->bytes, 48, 40, 3, pixels, &error), &error);
    dataset_draw(&classes, 3, drawn);
    double sum = 0;
    for (size_t i = 0; i < sizeof pixels; i++)
        sum += abs(pixels[i] - drawn[i]);
    assert_true(sum / sizeof pixels < 16); /* what JPEG has changed */
    assert_int_equal(fsh_decoder_decode(decoder, field->data, field->bytes, 40, 48, 3, pixels, &error),
                     FSH_ERR_MISMATCH);
    assert_contains(error.message, "its record says 48 x 40 x 3");
    assert_int_equal(fsh_decoder_decode(decoder, "nothing", 7, 1, 1, 3, pixels, &error), FSH_ERR_UNSUPPORTED);
    assert_int_equal(fsh_decoder_decode(decoder, field->data, field->bytes / 2, 48, 40, 3, pixels, &error),
                     FSH_ERR_CORRUPT);
    fsh_decoder_close(&decoder);
    fsh_decoder_close(&decoder);
    fsh_close(&dataset);
}
