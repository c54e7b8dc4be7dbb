/* ftrain from outside on images and masks: a network learns the class of each pixel; it is measured over all
 * pixels of a split, written out as index PNGs, and what does not fit is refused. */
#include "tests/programs/ranks_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/random.h"
#include "imaging/decode.h"
#include "imaging/encode.h"

#define NET "--width", "8", "--batch-size", "4", "--lr", "0.004", "--lr-warmup-epochs", "0"
#define SGD "--width", "8", "--lr-warmup-epochs", "0", "--epochs", "2", "--opt", "sgd", "--lr", "0.02"

static void write_png(const char *path, uint8_t *pixels, uint32_t width, uint32_t height, uint32_t channels)
{
    ImageEncoder *encoder = NULL;
    FshError error = {0};
    Buffer file = {0};
    const Image image = {.pixels = pixels, .width = width, .height = height, .channels = channels};
    assert_ok(image_encoder_new(&encoder, &error), &error);
    assert_ok(image_encode(encoder, &image, &(ImageEncodeOptions){.format = IMAGE_PNG}, &file, &error),
              &error);
    test_file_write(path, file.bytes, file.length);
    buffer_free(&file);
    image_encoder_free(&encoder);
}

/* Draws a red rectangle (1) and a blue disc (2) on noise (0), with a rim of 255 at the left edge. */
static void draw(Random *random, uint32_t width, uint32_t height, uint8_t *pixels, uint8_t *mask)
{
    const uint32_t left = random_below(random, width / 2), top = random_below(random, height / 2),
                   centre_x = width / 4 + random_below(random, width / 2),
                   centre_y = height / 4 + random_below(random, height / 2);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++) {
            const int dx = (int)x - (int)centre_x, dy = (int)y - (int)centre_y;
            const bool disc = dx * dx + dy * dy < 36,
                       rectangle = x >= left && x < left + width / 3 && y >= top && y < top + height / 3;
            const uint8_t value = disc ? 2 : rectangle ? 1 : 0;
            uint8_t *pixel = pixels + (y * width + x) * 3;
            for (int c = 0; c < 3; c++)
                pixel[c] = (uint8_t)(80 + random_below(random, 60));
            if (value)
                pixel[value == 1 ? 0 : 2] = 230;
            mask[y * width + x] = x == 0 ? 255 : value;
        }
}

/* Packs such images with `most` as the value of one more pixel of each, where that is not 0. Returns
 * FOLDER/NAME. */
static const char *make_masks(TestFolder *folder, const char *name, int train_count, int val_count,
                              uint8_t most)
{
    enum { EDGE_MAX = 64 };
    static uint8_t pixels[EDGE_MAX * EDGE_MAX * 3], mask[EDGE_MAX * EDGE_MAX];
    const char *source = test_path(folder, "%s-source", name), *packed = test_path(folder, "%s", name);
    Random random;
    random_start(&random, 5, 1);
    for (int i = 0; i < train_count + val_count; i++) {
        const char *split = i < train_count ? "train" : "val";
        const uint32_t width = 40 + random_below(&random, 12), height = 36 + random_below(&random, 12);
        draw(&random, width, height, pixels, mask);
        mask[width * height - 1] = most ? most : mask[width * height - 1];
        write_png(test_path(folder, "%s-source/%s/photos/%03d.png", name, split, i), pixels, width, height,
                  3);
        write_png(test_path(folder, "%s-source/%s/labels/%03d.png", name, split, i), mask, width, height, 1);
    }
    RunResult result = run_program(NULL, "fpack", "-q", "--masks", "photos:labels", source, packed, NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    return packed;
}

static json_t *evaluate(const char *weights, const char *shards)
{
    RunResult result = TRAIN(0, "--evaluate", "--json", "--weights", weights, shards);
    json_t *object = read_json(result.out);
    run_result_free(&result);
    return object;
}

/* Counts of a class: pixels that are right, and those of its mask or prediction. */
typedef struct Overlap {
    double both, either;
} Overlap;

/* Reads a mask, and with it the values, which the caller frees. */
static uint8_t *read_mask(const char *path, uint32_t *width_ret, uint32_t *height_ret)
{
    ImageDecoder *decoder = NULL;
    Image image = {0};
    FshError error = {0};
    size_t length = 0;
    char *file = test_file_read(path, &length);
    assert_ok(image_decoder_new(&decoder, &error), &error);
    assert_ok(image_decode_mask(decoder, file, length, 0, &image, &error), &error);
    uint8_t *values = malloc((size_t)image.width * image.height);
    assert_non_null(values);
    memcpy(values, image.pixels, (size_t)image.width * image.height);
    *width_ret = image.width;
    *height_ret = image.height;
    free(file);
    image_free(&image);
    image_decoder_free(&decoder);
    return values;
}

/* Adds what a predicted mask has in common with that of the source. */
static void add_overlap(const char *predicted_path, const char *mask_path, Overlap overlaps[3], double *right,
                        double *pixels)
{
    uint32_t width = 0, height = 0, mask_width = 0, mask_height = 0;
    uint8_t *predicted = read_mask(predicted_path, &width, &height),
            *mask = read_mask(mask_path, &mask_width, &mask_height);
    assert_true(width == mask_width && height == mask_height);
    for (size_t i = 0; i < (size_t)width * height; i++) {
        assert_true(predicted[i] < 3);
        if (mask[i] == 255)
            continue;
        *pixels += 1;
        *right += mask[i] == predicted[i];
        for (uint8_t c = 0; c < 3; c++) {
            overlaps[c].both += mask[i] == c && predicted[i] == c;
            overlaps[c].either += mask[i] == c || predicted[i] == c;
        }
    }
    free(predicted);
    free(mask);
}

/* Fails unless a file is a PNG of 8 bits with the first colours of Pascal VOC's own table. */
static void assert_voc_palette(const char *path)
{
    static const uint8_t table[] = {0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0, 0, 0, 128};
    enum { DEPTH_AT = 24, COLOUR_AT = 25, PALETTE_AT = 33 };
    size_t length = 0;
    char *file = test_file_read(path, &length);
    assert_true(length > PALETTE_AT + 8 + 768);
    assert_int_equal(file[DEPTH_AT], 8);
    assert_int_equal(file[COLOUR_AT], 3);
    assert_memory_equal(file + PALETTE_AT + 4, "PLTE", 4);
    assert_memory_equal(file + PALETTE_AT + 8, table, sizeof table);
    free(file);
}

/* Folders of images and masks look like two classes: both ways to pack them are named. */
TEST_IN_FOLDER(test_masks_that_nobody_packed_are_warned_about, folder)
{
    static uint8_t pixels[20 * 20 * 3];
    for (int name = 'a'; name < 'i'; name++) {
        write_png(test_path(folder, "seg/train/photos/%c.png", name), pixels, 20, 20, 3);
        write_png(test_path(folder, "seg/train/labels/%c.png", name), pixels, 20, 20, 1);
    }
    RunResult result = TRAIN(0, "--dry-run", "--model", "conv8", test_path(folder, "seg"));
    assert_contains(result.err,
                    "fpack --pairs labels:photos, for images and the masks of segmentation: fpack "
                    "--masks photos:labels");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_network_learns_the_class_of_each_pixel, folder)
{
    enum { TRAIN_COUNT = 32, VAL_COUNT = 6 };
    const char *shards = make_masks(folder, "masked", TRAIN_COUNT, VAL_COUNT, 0),
               *out = test_path(folder, "out"), *weights = test_path(folder, "out/model_best.safetensors"),
               *masks = test_path(folder, "masks");
    RunResult result = TRAIN(0, NET, "--epochs", "16", "--val-interval", "4", "--json", shards, out);
    json_t *trained = read_json(result.out);
    const double miou = number_of(trained, "best_miou"), accuracy = number_of(trained, "best_pixel_accuracy");
    assert_contains(result.err, "images and masks (photos, labels), 3 classes");
    assert_contains(result.err, "resized by 0.5 to 2, cropped or padded");
    assert_contains(result.err, "network: unet_segmentation");
    print_message("  mIoU %.2f %%, pixel accuracy %.2f %%\n", miou, accuracy);
    if (miou < 80 || accuracy < 90)
        fail_msg("mIoU %g, pixel accuracy %g\n%s", miou, accuracy, result.err);
    run_result_free(&result);
    const size_t best = (size_t)number_of(trained, "best_epoch");
    assert_true(fabs(summary_number(out, best, "eval_miou") - miou) < 1e-3);
    assert_true(fabs(summary_number(out, best, "eval_pixel_accuracy") - accuracy) < 1e-3);

    /* The best weights alone give what was reported. */
    json_t *evaluated = evaluate(weights, shards);
    assert_true(number_of(evaluated, "miou") == miou);
    assert_true(number_of(evaluated, "pixel_accuracy") == accuracy);
    assert_int_equal((int)number_of(evaluated, "samples"), VAL_COUNT);

    /* So do the masks that they write, counted here. */
    TRAINED("--weights", weights, "--predict", masks, shards);
    assert_voc_palette(test_path(folder, "masks/%03d.png", TRAIN_COUNT));
    assert_int_equal(test_count_files(masks), VAL_COUNT + 1);
    Overlap overlaps[3] = {{0, 0}};
    double right = 0, pixels = 0, mean = 0;
    for (int i = TRAIN_COUNT; i < TRAIN_COUNT + VAL_COUNT; i++) {
        char predicted[512];
        (void)snprintf(predicted, sizeof predicted, "%s", test_path(folder, "masks/%03d.png", i));
        add_overlap(predicted, test_path(folder, "masked-source/val/labels/%03d.png", i), overlaps, &right,
                    &pixels);
    }
    const json_t *classes = json_object_get(evaluated, "classes");
    assert_int_equal(json_array_size(classes), 3);
    for (size_t c = 0; c < 3; c++) {
        const double iou = 100 * overlaps[c].both / overlaps[c].either;
        mean += iou / 3;
        assert_true(fabs(number_of(json_array_get(classes, c), "iou") - iou) < 1e-5);
    }
    assert_true(fabs(mean - miou) < 1e-5);
    assert_true(fabs(100 * right / pixels - accuracy) < 1e-5);
    char *table = test_file_read(test_path(folder, "out/per_class.csv"), NULL);
    assert_contains(table, "confused_with,confused_count,iou\n");
    free(table);
    table = test_file_read(test_path(folder, "masks/predictions.csv"), NULL);
    assert_memory_equal(table, "key,pixels,correct\n032,", 23);
    free(table);
    json_decref(evaluated);
    json_decref(trained);

    /* Images that nobody has packed get the same masks. */
    const char *plain = test_path(folder, "plain");
    TRAINED("--weights", weights, "--predict", plain, test_path(folder, "masked-source/val/photos"));
    for (int i = TRAIN_COUNT; i < TRAIN_COUNT + VAL_COUNT; i++) {
        char predicted[512];
        (void)snprintf(predicted, sizeof predicted, "%s", test_path(folder, "masks/%03d.png", i));
        assert_true(same_bytes(predicted, test_path(folder, "plain/%03d.png", i)));
    }
}

/* Names what the values of masks are called. */
static void name_masks(TestFolder *folder, const char *shards, const char *text)
{
    const char *names = test_path(folder, "names.txt");
    test_file_write_text(names, text);
    RunResult result = run_program(NULL, "fverify", "--set-class-names", names, shards, NULL);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
}

/* As many classes as have names; weights and tables have the names. */
TEST_IN_FOLDER(test_classes_of_masks_have_their_names, folder)
{
    const char *shards = make_masks(folder, "masked", 6, 2, 0), *out = test_path(folder, "out"),
               *plain = make_masks(folder, "plain", 6, 2, 0);
    name_masks(folder, shards, "ground\nbox\ndisc\nmoon\n");
    RunResult result = TRAIN(0, NET, "--epochs", "1", shards, out);
    assert_contains(result.err, "training: 1 epoch, ");
    assert_contains(result.err, "images and masks (photos, labels), 4 classes");
    run_result_free(&result);
    char *table = test_file_read(test_path(folder, "out/per_class_best.csv"), NULL);
    assert_contains(table, "\n0,ground,");
    assert_contains(table, "\n3,moon,0,");
    free(table);
    json_t *evaluated = evaluate(test_path(folder, "out/model_best.safetensors"), plain);
    const json_t *classes = json_object_get(evaluated, "classes");
    assert_int_equal(json_array_size(classes), 4);
    assert_string_equal(json_string_value(json_object_get(json_array_get(classes, 2), "class")), "disc");
    json_decref(evaluated);
    /* Named masks are evaluated with weights that know the values, named or not. */
    TRAINED(NET, "--epochs", "1", plain, test_path(folder, "numbers"));
    json_decref(evaluate(test_path(folder, "numbers/model_best.safetensors"), shards));
    /* Not so masks that call a value otherwise: IoUs would stand beside wrong names. */
    const char *weights = test_path(folder, "out/model_best.safetensors");
    name_masks(folder, plain, "ground\ndisc\nbox\n");
    SAYS(1, "its masks call the value 1 'disc', and ", "--evaluate", "--weights", weights, plain);
    name_masks(folder, shards, "ground\ndisc\nbox\nmoon\n");
    result = TRAIN(0, NET, "--epochs", "1", "--weights", weights, shards, test_path(folder, "tuned"));
    assert_contains(result.err, "the weights call the value 1 'box', and the masks 'disc'");
    run_result_free(&result);
}

/* A run goes on when its masks get names, and not when there are more classes or a value has another name. */
TEST_IN_FOLDER(test_a_run_goes_on_on_masks_that_have_got_names, folder)
{
    const char *shards = make_masks(folder, "masked", 8, 3, 0), *stopped = test_path(folder, "stopped");
    const char *const first[] = {"--jobs", "1", NET, "--epochs", "4", shards, stopped, NULL};
    kill_train(first);
    name_masks(folder, shards, "ground\nbox\ndisc\nmoon\n");
    SAYS(1, "is of a run on masks of 3 classes, and those of ", "--jobs", "1", NET, "--epochs", "4",
         "--resume", "auto", shards, stopped);
    name_masks(folder, shards, "ground\nbox\ndisc\n");
    TRAINED("--jobs", "1", NET, "--epochs", "4", "--resume", "auto", shards, stopped);
    name_masks(folder, shards, "ground\ndisc\nbox\n");
    SAYS(1, "is of a run on masks that called the value 1 'box', and those of ", "--jobs", "1", NET,
         "--epochs", "4", "--resume", "auto", shards, stopped);
}

/* Of (seed, options) alone: the number of loader threads, and pixels that were decoded once, change
 * nothing; a run that was stopped goes on as if it had not been. */
TEST_IN_FOLDER(test_runs_are_the_same_however_they_are_fed, folder)
{
    const char *shards = make_masks(folder, "masked", 9, 3, 0);
    TRAINED(NET, "--epochs", "3", "--cache", "none", shards, test_path(folder, "a"));
    TRAINED(NET, "--epochs", "3", "--workers", "3", "--cache", "pixels", shards, test_path(folder, "b"));
    assert_same_file(folder, "a", "b", true);
    TRAINED(NET, "--epochs", "3", "--cache", "planes", shards, test_path(folder, "c"));
    assert_same_file(folder, "a", "c", true);
    TRAINED(NET, "--epochs", "3", "--color-jitter", "0.4", "--label-smoothing", "0.1", shards,
            test_path(folder, "d"));
    assert_same_file(folder, "a", "d", false);
}

TEST_IN_FOLDER(test_ranks_measure_what_one_process_does, folder)
{
    const char *shards = make_masks(folder, "masked", 8, 5, 0), *one = test_path(folder, "one"),
               *two = test_path(folder, "two");
    TRAINED(SGD, "--batch-size", "4", shards, one);
    RANKS_TRAINED(2, SGD, "--batch-size", "2", shards, two);
    const char *weights = test_path(folder, "one/last.safetensors");
    json_t *alone = evaluate(weights, shards);
    RanksResult together = RANKS(2, 0, "--evaluate", "--json", "--weights", weights, shards);
    json_t *both = read_json(together.of[0].out);
    assert_true(number_of(alone, "miou") == number_of(both, "miou"));
    assert_true(number_of(alone, "pixel_accuracy") == number_of(both, "pixel_accuracy"));
    assert_int_equal((int)number_of(both, "samples"), 5);
    json_decref(alone);
    json_decref(both);
    free_ranks(&together);
}

TEST_IN_FOLDER(test_a_run_goes_on_bit_for_bit, folder)
{
    const char *shards = make_masks(folder, "masked", 8, 3, 0), *stopped = test_path(folder, "stopped"),
               *whole = test_path(folder, "whole");
    const char *const first[] = {"--jobs", "1", NET, "--epochs", "4", shards, stopped, NULL};
    kill_train(first);
    TRAINED("--jobs", "1", NET, "--epochs", "4", "--resume", "auto", shards, stopped);
    TRAINED("--jobs", "1", NET, "--epochs", "4", shards, whole);
    assert_same_file(folder, "stopped", "whole", true);
    assert_true(summary_number(stopped, 3, "eval_miou") == summary_number(whole, 3, "eval_miou"));
}

TEST_IN_FOLDER(test_weights_meet_masks_of_other_classes, folder)
{
    const char *shards = make_masks(folder, "masked", 8, 3, 0), *more = make_masks(folder, "more", 4, 3, 6),
               *weights = test_path(folder, "out/last.safetensors");
    TRAINED(NET, "--epochs", "1", more, test_path(folder, "out"));
    /* Of weights that know more classes the masks have fewer. */
    json_t *object = evaluate(weights, shards);
    assert_int_equal(json_array_size(json_object_get(object, "classes")), 7);
    json_decref(object);
    TRAINED(NET, "--epochs", "1", "--force", shards, test_path(folder, "out"));
    SAYS(1, "its masks have values up to 6, and", "--evaluate", "--weights", weights, more);
    SAYS(1, "know 3 classes, 0 to 2", "--evaluate", "--weights", weights, more);
}

/* A value beyond the classes under a manifest that does not tell it: found at the record, not trained on. */
TEST_IN_FOLDER(test_a_value_beyond_the_classes_is_found_in_its_record, folder)
{
    const char *shards = make_masks(folder, "masked", 8, 3, 6);
    FshManifest manifest = {0};
    FshError error = {0};
    assert_ok(fsh_manifest_load(&manifest, shards, &error), &error);
    manifest.statistics.mask_classes = 3;
    assert_ok(fsh_manifest_save(&manifest, shards, true, &error), &error);
    fsh_manifest_free(&manifest);
    SAYS(1, "its mask has the value 6 at column", NET, "--epochs", "1", shards, test_path(folder, "out"));
    SAYS(1, "there are 3 classes, 0 to 2; 255 is none", NET, "--epochs", "1", "--force", shards,
         test_path(folder, "out"));
}

TEST_IN_FOLDER(test_what_does_not_go_with_masks_is_refused, folder)
{
    const char *shards = make_masks(folder, "masked", 8, 3, 0), *out = test_path(folder, "out");
    static const struct {
        const char *option, *value, *message;
    } refused[] = {
        {"--mixup-alpha", "0.2", "--mixup-alpha"},
        {"--cutmix-alpha", "1", "--cutmix-alpha"},
        {"--auto-augment", "ra", "--auto-augment"},
        {"--random-erase", "0.1", "--random-erase"},
        {"--rotate-prob", "0.5", "--rotate-prob"},
        {"--val-crop-size", "32", "pairs and masks are evaluated whole"},
        {"--val-batch-size", "4", "pairs and masks are evaluated one by one"},
        {"--class-weights", "balanced", "--class-weights"},
        {"--loss", "charbonnier", "charbonnier is for pairs, and this dataset holds masks"},
        {"--early-stop-metric", "psnr", "psnr is measured on pairs, and this dataset holds masks"},
        {"--train-crop-mode", "rrc", "--train-crop-mode"},
        {"--flip-tta", NULL, "--flip-tta"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *arguments[] = {"--epochs", "1", shards, out, refused[i].option, refused[i].value, NULL};
        expect_refusal(2, refused[i].message, out, arguments);
    }
    REFUSED(2, "a GPU makes no masks; use --cache ram", out, "--cache", "gpu", shards);
    REFUSED(1, "holds images and masks, not classes", out, "--model", "resnet18", shards);
    REFUSED(1, "holds images and masks, not pairs of images", out, "--model", "unet", shards);
    REFUSED(1, "--labels: ", out, "--labels", "x.csv", shards);
    const char *pairs = make_set(folder, &train_few_pairs);
    REFUSED(1,
            "holds pairs of images, not images and masks; pack images and masks (fpack --masks IMAGES:MASKS",
            out, "--model", "unet_segmentation", pairs);
}

/* Returns the pixels of all classes that an evaluation counted. */
static double pixels_of(const json_t *evaluated)
{
    const json_t *classes = json_object_get(evaluated, "classes");
    double sum = 0;
    for (size_t i = 0; i < json_array_size(classes); i++)
        sum += number_of(json_array_get(classes, i), "samples");
    return sum;
}

/* Several sets train as one; each is measured as by itself, and the total over the pixels of all. */
TEST_IN_FOLDER(test_sets_of_masks_are_measured_apart_and_together, folder)
{
    const char *sets[2] = {make_masks(folder, "one", 6, 2, 0), make_masks(folder, "other", 4, 3, 0)};
    const char *out = test_path(folder, "out"), *weights = test_path(folder, "out/model_best.safetensors"),
               *names[2] = {test_path(folder, "names0.txt"), test_path(folder, "names1.txt")};
    RunResult result = TRAIN(0, NET, "--epochs", "2", sets[0], sets[1], out);
    assert_contains(result.err, "other: 4 samples of train, 3 of val");
    run_result_free(&result);
    result = TRAIN(0, "--evaluate", "--json", "--weights", weights, sets[0], sets[1]);
    json_t *both = read_json(result.out);
    run_result_free(&result);
    const json_t *apart = json_object_get(both, "sets");
    double right = 0, pixels = 0;
    for (size_t i = 0; i < 2; i++) {
        json_t *alone = evaluate(weights, sets[i]);
        assert_true(number_of(alone, "miou") == number_of(json_array_get(apart, i), "miou"));
        assert_true(number_of(alone, "pixel_accuracy") ==
                    number_of(json_array_get(apart, i), "pixel_accuracy"));
        right += number_of(alone, "pixel_accuracy") * pixels_of(alone);
        pixels += pixels_of(alone);
        json_decref(alone);
    }
    assert_true(pixels_of(both) == pixels);
    assert_true(fabs(number_of(both, "pixel_accuracy") - right / pixels) < 1e-5);
    json_decref(both);

    /* A value has one name in all sets of a run. */
    test_file_write_text(names[0], "ground\nbox\ndisc\n");
    test_file_write_text(names[1], "ground\ndisc\nbox\nmoon\n");
    for (size_t i = 0; i < 2; i++) {
        result = run_program(NULL, "fverify", "--set-class-names", names[i], sets[i], NULL);
        assert_int_equal(result.exit_status, 0);
        run_result_free(&result);
    }
    result = TRAIN(1, NET, "--epochs", "1", sets[0], sets[1], test_path(folder, "never"));
    assert_contains(result.err, "its masks call the value 1 'disc', those of ");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_dry_run_and_the_list_of_networks_know_masks, folder)
{
    const char *shards = make_masks(folder, "masked", 8, 3, 0);
    RunResult result = TRAIN(0, "--dry-run", "--json", NET, shards, test_path(folder, "out"));
    json_t *object = read_json(result.out);
    const json_t *train = json_object_get(json_object_get(object, "plan"), "train");
    if (!train)
        train = json_object_get(json_object_get(object, "chosen"), "train");
    assert_string_equal(json_string_value(json_object_get(train, "crop_mode")), "scaled");
    json_decref(object);
    run_result_free(&result);
    result = TRAIN(0, "--list-models", shards);
    assert_contains(result.out, "unet_segmentation");
    run_result_free(&result);
    assert_false(file_exists(test_path(folder, "out")));
}
