/* ftrain from outside: what a network makes of images, written down. */
#include "tests/programs/train_support.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "imaging/decode.h"
#include "imaging/encode.h"

#define CONV8 "--model", "conv8"

/* ---- tables ---- */

enum { CELLS_MOST = 64, CELL_BYTES = 128 };

/* A row of a CSV as RFC 4180 has it. */
typedef struct CsvRow {
    char cells[CELLS_MOST][CELL_BYTES];
    size_t count;
} CsvRow;

/* Reads the row at *text and moves *text after it. Returns false at the end. */
static bool read_row(const char **text, CsvRow *row)
{
    const char *at = *text;
    *row = (CsvRow){0};
    if (!*at)
        return false;
    for (;;) {
        char *cell = row->cells[row->count++];
        const bool quoted = *at == '"';
        size_t length = 0;
        for (at += quoted; *at && (quoted ? *at != '"' || at[1] == '"' : *at != ',' && *at != '\n'); at++) {
            at += *at == '"';
            assert_true(length + 1 < CELL_BYTES);
            cell[length++] = *at;
        }
        at += quoted;
        if (*at != ',')
            break;
        at++;
        assert_true(row->count < CELLS_MOST);
    }
    assert_int_equal(*at, '\n');
    *text = at + 1;
    return true;
}

TEST_IN_FOLDER(test_any_class_name_is_one_cell, folder)
{
    static const char *const names[COLOURS] = {"=1+1", "he said \"no\"\nand left", "tench, Tinca tinca"};
    const char *shards = pack_named(folder, names, 8, 2), *csv = test_path(folder, "table.csv");
    const char *weights = test_path(folder, "a/last.safetensors");
    TRAINED(CONV8, "--epochs", "1", shards, test_path(folder, "a"));
    /* Three labels and nine likely classes, of which each name is a third; and two keys. */
    SAYS(0, "10 cells of the CSV begin with =, +, - or @", "--weights", weights, "--export", csv, shards);
    char *text = test_file_read(csv, NULL);
    const char *at = text;
    CsvRow row;
    assert_true(read_row(&at, &row));
    assert_int_equal(row.count, 2 + 2 * COLOURS);
    size_t rows = 0;
    for (; read_row(&at, &row); rows++) {
        bool seen[COLOURS] = {false};
        assert_int_equal(row.count, 2 + 2 * COLOURS);
        assert_string_equal(row.cells[1], names[rows / 2]);
        for (size_t i = 0; i < COLOURS; i++)
            for (size_t name = 0; name < COLOURS; name++)
                seen[name] = seen[name] || strcmp(row.cells[2 + 2 * i], names[name]) == 0;
        assert_true(seen[0] && seen[1] && seen[2]);
    }
    assert_int_equal(rows, 2 * COLOURS);
    free(text);
}

/* ---- images that nobody has packed: classes ---- */

/* Trains on FOLDER/images (pack_colours) into FOLDER/a; returns its weights. */
static const char *train_colours(TestFolder *folder)
{
    const char *shards = pack_colours(folder, 8, 3);
    TRAINED(CONV8, "--epochs", "2", shards, test_path(folder, "a"));
    return test_path(folder, "a/last.safetensors");
}

/* Asserts that the rows of two tables agree in all but their first columns; b has a label after its first. */
static void assert_same_rows(const char *a, const char *b)
{
    char *texts[] = {test_file_read(a, NULL), test_file_read(b, NULL)};
    const char *at[] = {texts[0], texts[1]};
    CsvRow rows[2];
    while (read_row(&at[0], &rows[0])) {
        assert_true(read_row(&at[1], &rows[1]));
        assert_int_equal(rows[0].count + 1, rows[1].count);
        for (size_t i = 1; i < rows[0].count; i++)
            assert_string_equal(rows[0].cells[i], rows[1].cells[i + 1]);
    }
    assert_string_equal(at[1], "");
    free(texts[0]);
    free(texts[1]);
}

TEST_IN_FOLDER(test_a_folder_is_predicted_as_the_packed_images_are, folder)
{
    const char *weights = train_colours(folder), *packed = test_path(folder, "packed.csv");
    const char *out = test_path(folder, "out");
    TRAINED("--weights", weights, "--export", packed, test_path(folder, "shards"));
    test_file_write_text(test_path(folder, "images/val/notes.txt"), "no image");
    SAYS(0, "images/val: 9; 1 other file passed over", "--weights", weights, "--predict", out,
         test_path(folder, "images/val"));
    assert_same_rows(test_path(folder, "out/predictions.csv"), packed);
    assert_int_equal(test_count_files(out), 1);
    char *text = test_file_read(test_path(folder, "out/predictions.csv"), NULL);
    assert_contains(text, "file,prediction,probability,prediction2,");
    assert_contains(text, "\nblue/000.jpg,");
    free(text);
    /* Both sides mirrored as well; the file of the run that made the weights may be given. */
    TRAINED("--weights", weights, "--flip-tta", "--export", packed, "--force", test_path(folder, "shards"));
    TRAINED("--config", test_path(folder, "a/args.json"), "--weights", weights, "--flip-tta", "--predict",
            out, "--force", test_path(folder, "images/val"));
    assert_same_rows(test_path(folder, "out/predictions.csv"), packed);
    test_file_write_text(test_path(folder, "run.toml"),
                         "cache = \"pixels\"\nval-split = \"none\"\nmax-restarts = 3\nprofile = 9\n");
    TRAINED("--config", test_path(folder, "run.toml"), "--weights", weights, "--flip-tta", "--predict", out,
            "--force", test_path(folder, "images/val"));
    assert_same_rows(test_path(folder, "out/predictions.csv"), packed);
    SAYS(1, "out/predictions.csv: exists; --force replaces it", "--weights", weights, "--predict", out,
         test_path(folder, "images/val"));
}

TEST_IN_FOLDER(test_a_tar_a_list_and_an_image_are_predicted, folder)
{
    const char *weights = train_colours(folder), *list = test_path(folder, "list");
    const char *tar = test_path(folder, "val.tar"), *csv = test_path(folder, "t.csv");
    const char *packed = test_path(folder, "packed.csv"), *val = test_path(folder, "images/val");
    TRAINED("--weights", weights, "--export", packed, test_path(folder, "shards"));
    RunResult made = run_program(NULL, "/bin/tar", "-C", val, "-cf", tar, "./blue", "./green", "./red", NULL);
    assert_int_equal(made.exit_status, 0);
    run_result_free(&made);
    TRAINED("--weights", weights, "--export", csv, tar);
    char *text = test_file_read(csv, NULL);
    assert_int_equal(count_lines(text), 1 + 9);
    assert_contains(text, "\ngreen/002.jpg,");
    free(text);

    char lines[512];
    (void)snprintf(lines, sizeof lines, "red/001.jpg\r\n\n%s/blue/000.jpg\n../escape.jpg\ngone.jpg\n", val);
    test_file_write_text(list, lines);
    RunResult result =
        TRAIN(1, "--weights", weights, "--export", test_path(folder, "l.csv"), "--files-from", list, val);
    assert_contains(result.err, "../escape.jpg: is not below");
    assert_contains(result.err, "gone.jpg: ");
    assert_contains(result.out, "2 images predicted");
    assert_contains(result.out, "2 left out");
    run_result_free(&result);
    text = test_file_read(test_path(folder, "l.csv"), NULL);
    assert_contains(text, "\nred/001.jpg,");
    assert_contains(text, "\nblue/000.jpg,");
    free(text);

    static const char zero_bytes[] = "red/001.jpg\0blue/000.jpg"; /* find -print0 */
    test_file_write(list, zero_bytes, sizeof zero_bytes);
    SAYS(1, "list: is no text", "--weights", weights, "--export", test_path(folder, "z.csv"), "--files-from",
         list, val);

    result = TRAIN(0, "--weights", weights, "--export", test_path(folder, "o.csv"),
                   test_path(folder, "images/val/red/000.jpg"));
    assert_contains(result.out, "images/val/red/000.jpg: ");
    assert_contains(result.out, " %, ");
    assert_contains(result.out, "1 image predicted");
    run_result_free(&result);
}

/* As fpack takes them: below SHARDS, or in full, however SHARDS is written. */
TEST_IN_FOLDER(test_a_list_names_files_in_full_too, folder)
{
    const char *weights = train_colours(folder), *list = test_path(folder, "list");
    char line[PATH_MAX + 1], real[PATH_MAX];
    assert_non_null(realpath(test_path(folder, "images/val/red/001.jpg"), real));
    (void)snprintf(line, sizeof line, "%s\n", real);
    test_file_write_text(list, line);
    const char *const relative[] = {"--weights",    weights, "--export",   "r.csv",
                                    "--files-from", list,    "images/val", NULL};
    RunResult result = expect_train(0, &(RunOptions){.folder = test_path(folder, ".")}, relative);
    assert_contains(result.out, "red/001.jpg: ");
    assert_contains(result.out, " %, ");
    run_result_free(&result);
    const char *const none[] = {"--weights", weights, "--export", "n.csv", "--files-from", list, NULL};
    result = expect_train(0, &(RunOptions){.folder = test_path(folder, "images")}, none);
    assert_contains(result.out, "val/red/001.jpg: ");
    run_result_free(&result);
    const char *const other[] = {"--weights",    weights, "--export",     "m.csv",
                                 "--files-from", list,    "images/train", NULL};
    result = expect_train(1, &(RunOptions){.folder = test_path(folder, ".")}, other);
    assert_contains(result.err, "red/001.jpg: is not below /");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_json_holds_the_prediction_of_an_image, folder)
{
    const char *weights = train_colours(folder), *out = test_path(folder, "out");
    RunResult result = TRAIN(0, "--weights", weights, "--predict", out, "--json",
                             test_path(folder, "images/val/red/000.jpg"));
    json_t *object = json_loads(result.out, 0, NULL);
    json_t *prediction = json_object_get(object, "prediction"), *top = json_object_get(prediction, "top5");
    assert_string_equal(json_string_value(json_object_get(prediction, "file")), "000.jpg");
    assert_int_equal(json_array_size(top), COLOURS);
    double sum = 0;
    for (size_t i = 0; i < COLOURS; i++) {
        assert_non_null(json_string_value(json_object_get(json_array_get(top, i), "class")));
        sum += json_real_value(json_object_get(json_array_get(top, i), "probability"));
    }
    assert_float_equal(sum, 1, 1e-5);
    assert_string_equal(json_string_value(json_object_get(object, "table")),
                        test_path(folder, "out/predictions.csv"));
    json_decref(object);
    run_result_free(&result);
    /* Of many, the table alone has them. */
    result = TRAIN(0, "--weights", weights, "--predict", test_path(folder, "many"), "--json",
                   test_path(folder, "images/val"));
    object = json_loads(result.out, 0, NULL);
    assert_null(json_object_get(object, "prediction"));
    assert_true(file_exists(json_string_value(json_object_get(object, "table"))));
    json_decref(object);
    run_result_free(&result);
}

/* Of classes that have display names, every table has both. */
TEST_IN_FOLDER(test_display_names_stand_in_every_table, folder)
{
    const char *weights = train_colours(folder), *names = test_path(folder, "words.txt");
    const char *const tables[] = {test_path(folder, "folder.csv"), test_path(folder, "packed.csv")};
    const char *const images[] = {test_path(folder, "images/val"), test_path(folder, "shards")};
    test_file_write_text(names, "green\tverdant, lush\nred\tcrimson\n");
    assert_int_equal(setenv("FSHARD_CLASS_NAMES", names, 1), 0);
    for (size_t i = 0; i < 2; i++) {
        TRAINED("--weights", weights, "--export", tables[i], images[i]);
        char *text = test_file_read(tables[i], NULL);
        assert_contains(text, ",\"verdant, lush (green)\",");
        assert_contains(text, ",crimson (red),");
        free(text);
    }
    RunResult result = TRAIN(0, "--weights", weights, "--evaluate", "--json", images[1]);
    assert_contains(result.out, "\"class\": \"crimson (red)\"");
    run_result_free(&result);
    assert_int_equal(unsetenv("FSHARD_CLASS_NAMES"), 0);
}

TEST_IN_FOLDER(test_json_lines_tell_names_and_probabilities, folder)
{
    const char *weights = train_colours(folder), *out = test_path(folder, "out");
    RunResult result = TRAIN(0, "--weights", weights, "--predict", out, "--predict-format", "jsonl", "--json",
                             test_path(folder, "images/val"));
    json_t *object = read_json(result.out);
    assert_int_equal((int)number_of(object, "images"), 9);
    assert_int_equal((int)number_of(object, "predicted"), 9);
    assert_true(number_of(object, "images_per_second") > 0);
    json_decref(object);
    run_result_free(&result);
    char *text = test_file_read(test_path(folder, "out/predictions.jsonl"), NULL);
    assert_int_equal(count_lines(text), 9);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *row = read_json(line), *top = json_object_get(row, "top5");
        double sum = 0;
        assert_string_equal(strrchr(json_string_value(json_object_get(row, "file")), '.'), ".jpg");
        assert_int_equal(json_array_size(top), COLOURS);
        for (size_t i = 0; i < COLOURS; i++)
            sum += number_of(json_array_get(top, i), "probability");
        assert_true(sum > 0.999 && sum < 1.001);
        json_decref(row);
    }
    free(text);
}

TEST_IN_FOLDER(test_a_bad_image_is_named_and_left_out, folder)
{
    const char *weights = train_colours(folder), *out = test_path(folder, "out");
    test_file_write_text(test_path(folder, "images/val/blue/bad.jpg"), "no picture at all");
    test_file_truncate(test_path(folder, "images/val/red/001.jpg"), -40);
    assert_int_equal(symlink("nowhere.jpg", test_path(folder, "images/val/green/link.jpg")), 0);
    test_file_write_text(test_path(folder, "images/val/green/\033[31mred\xC2\x9B.jpg"), "no picture");
    RunResult result = TRAIN(1, "--weights", weights, "--predict", out, test_path(folder, "images/val"));
    assert_contains(result.err, "images/val/green/link.jpg: link to nothing");
    assert_contains(result.err, "images/val/blue/bad.jpg: not an image");
    assert_contains(result.err, "images/val/red/001.jpg: ");
    assert_contains(result.out, "8 images predicted");
    assert_contains(result.err,
                    "images/val/green/?[31mred?.jpg: not an image"); /* a terminal obeys nothing of it */
    assert_contains(result.out, "4 left out");
    run_result_free(&result);
    char *text = test_file_read(test_path(folder, "out/predictions.csv"), NULL);
    assert_int_equal(count_lines(text), 1 + 8);
    assert_contains_not(text, "bad.jpg");
    free(text);
}

/* Weights of PyTorch say nothing of themselves. */
TEST_IN_FOLDER(test_weights_of_others_want_their_network_named, folder)
{
    const char *weights = train_colours(folder), *val = test_path(folder, "images/val");
    const char *out = test_path(folder, "out"), *csv = test_path(folder, "out/predictions.csv");
    static const char *const members[][2] = {
        {"\"model\":", "\"mudel\":"}, {"\"shape\":", "\"shipe\":"}, {"\"class_names\":", "\"glass_names\":"}};
    forget_checksums(weights);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        replace_in_file(weights, members[i][0], members[i][1]);
    SAYS(2, "do not name their network", "--weights", weights, "--predict", out, val);
    RunResult result = TRAIN(0, CONV8, "--val-crop-size", "32", "--val-resize-size", "32", "--weights",
                             weights, "--predict", out, val);
    assert_contains(result.err, "the weights name none, so numbers stand for them");
    assert_contains(result.err, "short edge 32 pixels, centre crop of 32");
    run_result_free(&result);
    char *text = test_file_read(csv, NULL);
    const char *at = text;
    CsvRow row;
    assert_true(read_row(&at, &row));
    while (read_row(&at, &row))
        assert_true(strlen(row.cells[1]) == 1 && strchr("012", row.cells[1][0]));
    free(text);
}

/* ---- images that nobody has packed: restored ---- */

#define UNET "--model", "unet", "--width", "4"

/* Trains on FOLDER/set into FOLDER/u; returns its weights. */
static const char *train_unet(TestFolder *folder)
{
    TRAINED(UNET, "--epochs", "3", "--batch-size", "4", "--lr", "0.004", make_set(folder, &train_negatives),
            test_path(folder, "u"));
    return test_path(folder, "u/last.safetensors");
}

static void read_pixels(const char *path, Image *image)
{
    ImageDecoder *decoder = NULL;
    FshError error = {0};
    size_t length = 0;
    char *bytes = test_file_read(path, &length);
    assert_ok(image_decoder_new(&decoder, &error), &error);
    assert_ok(image_decode(decoder, bytes, length, &(ImageDecodeOptions){0}, image, NULL, &error), &error);
    image_decoder_free(&decoder);
    free(bytes);
}

static void write_pixels(const char *path, const Image *image, ImageFormat format)
{
    ImageEncoder *encoder = NULL;
    Buffer bytes = {0};
    FshError error = {0};
    const ImageEncodeOptions options = {
        .format = format, .quality = 90, .subsampling = IMAGE_SUBSAMPLING_444};
    assert_ok(image_encoder_new(&encoder, &error), &error);
    const FshStatus status = image_encode(encoder, image, &options, &bytes, &error);
    image_encoder_free(&encoder);
    if (status == FSH_ERR_UNSUPPORTED) {
        print_message("built without libvips: skipped\n");
        skip();
    }
    assert_ok(status, &error);
    test_file_write(path, bytes.bytes, bytes.length);
    buffer_free(&bytes);
}

static void draw(Image *image, uint32_t width, uint32_t height, uint32_t seed)
{
    FshError error = {0};
    assert_ok(image_reserve(image, width, height, 3, &error), &error);
    test_fill_gradient(image->pixels, width, height, seed);
    for (size_t i = 0; i < (size_t)width * height * 3; i += 7)
        image->pixels[i] = (uint8_t)(image->pixels[i] ^ (i * 2654435761U >> 27));
}

/* Returns the largest difference between two images of one size, in levels. */
static int difference(const char *a, const char *b)
{
    Image images[2] = {{0}, {0}};
    int most = 0;
    read_pixels(a, &images[0]);
    read_pixels(b, &images[1]);
    assert_int_equal(images[0].width, images[1].width);
    assert_int_equal(images[0].height, images[1].height);
    for (size_t i = 0; i < (size_t)images[0].width * images[0].height * images[0].channels; i++) {
        const int apart = abs((int)images[0].pixels[i] - (int)images[1].pixels[i]);
        most = apart > most ? apart : most;
    }
    image_free(&images[0]);
    image_free(&images[1]);
    return most;
}

TEST_IN_FOLDER(test_inputs_alone_are_restored_as_pairs_are, folder)
{
    const char *weights = train_unet(folder), *packed = test_path(folder, "packed");
    const char *in = test_path(folder, "in"), *out = test_path(folder, "out");
    Image image = {0};
    draw(&image, 8, 8, 1); /* skips where there is no PNG */
    write_pixels(test_path(folder, "in/z.png"), &image, IMAGE_PNG);
    TRAINED("--weights", weights, "--predict", packed, test_path(folder, "set"));
    for (unsigned i = 0; i < train_negatives.val_count; i++) {
        read_pixels(test_path(folder, "packed/class%02u/%06u.input.png", i % 4, i), &image);
        write_pixels(test_path(folder, "in/class%02u/%06u.png", i % 4, i), &image, IMAGE_PNG);
    }
    TRAINED("--weights", weights, "--predict", out, in);
    assert_int_equal(test_count_files(out), train_negatives.val_count + 2); /* z.png, .ftrain-restored */
    for (unsigned i = 0; i < train_negatives.val_count; i++)
        assert_int_equal(difference(test_path(folder, "packed/class%02u/%06u.restored.png", i % 4, i),
                                    test_path(folder, "out/class%02u/%06u.png", i % 4, i)),
                         0);
    image_free(&image);
}

TEST_IN_FOLDER(test_names_and_formats_are_those_of_the_inputs, folder)
{
    const char *weights = train_unet(folder), *in = test_path(folder, "in"), *out = test_path(folder, "out");
    Image image = {0};
    draw(&image, 40, 24, 2);
    write_pixels(test_path(folder, "in/a/one.png"), &image, IMAGE_PNG);
    write_pixels(test_path(folder, "in/a/two.JPEG"), &image, IMAGE_JPEG);
    write_pixels(test_path(folder, "in/three.webp"), &image, IMAGE_WEBP);
    test_file_write_text(test_path(folder, "in/a/zero.jpg"), "no picture");
    RunResult result = TRAIN(1, "--weights", weights, "--predict", out, in);
    assert_contains(result.err, "in/a/zero.jpg: not an image");
    assert_contains(result.out, "3 images restored into ");
    assert_contains(result.out, "1 left out");
    run_result_free(&result);
    assert_int_equal(test_count_files(out), 3 + 1); /* .ftrain-restored */
    static const char *const names[] = {"a/one.png", "a/two.JPEG", "three.png"};
    for (size_t i = 0; i < 3; i++) {
        size_t length = 0;
        char *bytes = test_file_read(test_path(folder, "out/%s", names[i]), &length);
        assert_int_equal(image_sniff(bytes, length), i == 1 ? IMAGE_JPEG : IMAGE_PNG);
        free(bytes);
    }
    /* What is there stays, and what is missing comes: a run that was stopped goes on so. */
    assert_int_equal(unlink(test_path(folder, "out/three.png")), 0);
    test_file_write_text(test_path(folder, "out/a/one.png"), "mine");
    result = TRAIN(1, "--weights", weights, "--predict", out, in);
    assert_contains(result.out, "1 image restored into ");
    assert_contains(result.out, "2 were there already");
    run_result_free(&result);
    assert_int_equal(test_file_size(test_path(folder, "out/a/one.png")), 4);
    result = TRAIN(1, "-q", "--weights", weights, "--predict", out, "--force", "--predict-format", "png", in);
    assert_string_equal(result.out, "");
    run_result_free(&result);
    assert_true(test_file_size(test_path(folder, "out/a/one.png")) > 100);
    assert_true(file_exists(test_path(folder, "out/a/two.png")));
    image_free(&image);
}

TEST_IN_FOLDER(test_a_killed_run_goes_on, folder)
{
    enum { IMAGES = 6 };
    const char *weights = train_unet(folder), *in = test_path(folder, "in"), *out = test_path(folder, "out");
    Image image = {0};
    for (uint32_t i = 0; i < IMAGES; i++) {
        draw(&image, 40 + 8 * i, 24, i);
        write_pixels(test_path(folder, "in/%u/a.png", i), &image, IMAGE_PNG);
    }
    TRAINED("--weights", weights, "--predict", test_path(folder, "whole"), in);
    const RunOptions stopped = {.stop_at = "/3/a.png"};
    const char *const arguments[] = {"-j1", "--weights", weights, "--predict", out, in, NULL};
    RunningProgram running = run_start(&stopped, "ftrain", arguments);
    run_wait_until_stopped(&running);
    run_go_on(&running, SIGKILL);
    RunResult result = run_wait(&running);
    run_result_free(&result);
    assert_true(file_exists(test_path(folder, "out/3/a.png")));
    assert_false(file_exists(test_path(folder, "out/5/a.png")));
    result = TRAIN(0, "--weights", weights, "--predict", out, in);
    assert_contains(result.out, "were there already");
    run_result_free(&result);
    for (uint32_t i = 0; i < IMAGES; i++)
        assert_true(same_bytes(test_path(folder, "whole/%u/a.png", i), test_path(folder, "out/%u/a.png", i)));
    image_free(&image);
}

/* Two inputs of one name but for the extension; outputs below the inputs are none. */
TEST_IN_FOLDER(test_no_output_replaces_another_or_is_an_input, folder)
{
    const char *weights = train_unet(folder), *in = test_path(folder, "in"),
               *out = test_path(folder, "in/out");
    Image image = {0};
    draw(&image, 40, 24, 3);
    write_pixels(test_path(folder, "in/a.png"), &image, IMAGE_PNG);
    write_pixels(test_path(folder, "in/a.webp"), &image, IMAGE_WEBP);
    RunResult result = TRAIN(1, "--weights", weights, "--predict", out, in);
    assert_contains(result.err, "a.webp: another image is written to a.png; left out");
    run_result_free(&result);
    result = TRAIN(1, "--weights", weights, "--predict", out, in);
    assert_contains(result.out, "0 images restored");
    run_result_free(&result);
    assert_int_equal(test_count_files(in), 3 + 1); /* .ftrain-restored */
    SAYS(2, "holds the inputs; name another folder", "--weights", weights, "--predict", in, in);
    /* Nor is an input that is given by itself, or that a link leads to. */
    const char *input = test_path(folder, "in/a.png"), *copy = test_path(folder, "copy.png");
    RunResult copied = run_program(NULL, "/bin/cp", input, copy, NULL);
    run_result_free(&copied);
    SAYS(2, "in/a.png is the input itself", "--weights", weights, "--predict", in, "--force", input);
    assert_int_equal(symlink("in", test_path(folder, "linked")), 0);
    SAYS(2, "a.png is the input itself", "--weights", weights, "--predict", test_path(folder, "linked"),
         input);
    assert_true(same_bytes(input, copy));
    image_free(&image);
}

TEST_IN_FOLDER(test_tiles_give_the_whole_image, folder)
{
    const char *weights = train_unet(folder), *in = test_path(folder, "in/big.png");
    Image image = {0};
    draw(&image, 500, 403, 4);
    write_pixels(in, &image, IMAGE_PNG);
    TRAINED("--weights", weights, "--predict", test_path(folder, "whole"), in);
    SAYS(0, "big.png: 500 x 403 pixels, in tiles of 304", "--weights", weights, "--predict",
         test_path(folder, "wide"), "--tile", "300", "--tile-overlap", "240", in);
    TRAINED("--weights", weights, "--predict", test_path(folder, "narrow"), "--tile", "64", "--tile-overlap",
            "16", in);
    /* 112 pixels from a cut edge the network sees nothing of it: the same image, but for how sums are
     * rounded. */
    const char *whole = test_path(folder, "whole/big.png");
    const int wide = difference(whole, test_path(folder, "wide/big.png"));
    const int narrow = difference(whole, test_path(folder, "narrow/big.png"));
    print_message("largest difference: %d levels with an overlap of 240 pixels, %d with one of 16\n", wide,
                  narrow);
    assert_true(wide <= 1);
    assert_true(narrow > wide); /* the test can tell */
    image_free(&image);
}

TEST_IN_FOLDER(test_a_mirrored_image_is_restored_alike, folder)
{
    const char *weights = train_unet(folder);
    Image image = {0}, mirrored = {0};
    FshError error = {0};
    draw(&image, 48, 32, 5);
    assert_ok(image_reserve(&mirrored, 48, 32, 3, &error), &error);
    for (size_t y = 0; y < 32; y++)
        for (size_t x = 0; x < 48; x++)
            memcpy(mirrored.pixels + (y * 48 + x) * 3, image.pixels + (y * 48 + 47 - x) * 3, 3);
    write_pixels(test_path(folder, "in/a.png"), &image, IMAGE_PNG);
    write_pixels(test_path(folder, "in/b.png"), &mirrored, IMAGE_PNG);
    TRAINED("--weights", weights, "--flip-tta", "--predict", test_path(folder, "out"),
            test_path(folder, "in"));
    read_pixels(test_path(folder, "out/a.png"), &image);
    read_pixels(test_path(folder, "out/b.png"), &mirrored);
    for (size_t y = 0; y < 32; y++)
        for (size_t x = 0; x < 48; x++)
            for (size_t c = 0; c < 3; c++)
                assert_true(abs(mirrored.pixels[(y * 48 + x) * 3 + c] -
                                image.pixels[(y * 48 + 47 - x) * 3 + c]) <= 1);
    image_free(&image);
    image_free(&mirrored);
}

TEST_IN_FOLDER(test_what_does_nothing_is_refused, folder)
{
    const char *weights = train_colours(folder), *val = test_path(folder, "images/val");
    const char *out = test_path(folder, "out"), *shards = test_path(folder, "shards");
    SAYS(2, "--tile: is for networks that restore images", "--weights", weights, "--predict", out, "--tile",
         "64", val);
    SAYS(2, "'png' is for networks that restore images", "--weights", weights, "--predict", out,
         "--predict-format", "png", val);
    SAYS(2, "--files-from: does nothing here; it is for --predict and --export\n", "--files-from", "list",
         shards, out);
    SAYS(2, "--val-split, --cache: do nothing with images that nobody has packed; they are for datasets\n",
         "--weights", weights, "--predict", out, "--cache", "ram", "--val-split", "test", val);
    SAYS(2, "--epochs, --lr, --scale: do nothing with --evaluate; they are for training\n", "--evaluate",
         "--weights", weights, "--lr", "3", "--epochs", "9", "--scale", "0.5:1", shards);
    SAYS(2, "--crop-border: does nothing here; it is for pairs", "--evaluate", "--weights", weights,
         "--crop-border", "4", shards);
    SAYS(2, "--tile: ", "--weights", weights, "--predict", out, "--tile", "64", shards);
    test_file_write_text(test_path(folder, "none/notes.txt"), "no image");
    SAYS(1, "none: there are no images (1 other file)", "--weights", weights, "--predict", out,
         test_path(folder, "none"));
    SAYS(1, "notes.txt: is neither a shard nor a tar nor a dataset.json, nor an image", "--weights", weights,
         "--predict", out, test_path(folder, "none/notes.txt"));
    SAYS(2, "--predict DIR IMAGES", "--weights", weights, "--predict", val);
    SAYS(2, "write --scale 0.08:1.0", "--scale", "0.08", "1.0", shards, out);
    SAYS(2, "write --ratio 0.75:1.33", "--ratio", "0.75", "1.33", shards, out);
    SAYS(2, "write --opt-betas 0.9:0.95", "--opt-betas", "0.9", "0.95", shards, out);
    assert_false(file_exists(test_path(folder, "out/predictions.csv")));
}
