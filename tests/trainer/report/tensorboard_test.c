#include "trainer/report/tensorboard.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/file.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "imaging/decode.h"
#include "tests/support/support.h"

/* A stretch of a protobuf message. */
typedef struct Piece {
    const uint8_t *bytes;
    size_t length;
} Piece;

static uint64_t read_varint(Piece *piece)
{
    uint64_t number = 0;
    for (unsigned shift = 0;; shift += 7) {
        assert_true(piece->length > 0 && shift < 64);
        const uint8_t byte = *piece->bytes++;
        piece->length--;
        number |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return number;
    }
}

/* Returns the payload of a message's field, or the bytes of its number, which is *varint_ret; length 0 where
 * the field is not there. */
static Piece field(Piece message, unsigned number, uint64_t *varint_ret)
{
    while (message.length) {
        const uint64_t key = read_varint(&message);
        Piece payload = message;
        uint64_t varint = 0;
        if ((key & 7) == 0) {
            varint = read_varint(&message);
            payload.length -= message.length;
        } else {
            payload.length = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : (size_t)read_varint(&message);
            payload.bytes = message.bytes;
            assert_true(payload.length <= message.length);
            message.bytes += payload.length;
            message.length -= payload.length;
        }
        if (key >> 3 == number) {
            if (varint_ret)
                *varint_ret = varint;
            return payload;
        }
    }
    return (Piece){0};
}

typedef struct Events {
    char *file; /* owned */
    Piece events[64];
    size_t count;
} Events;

static uint32_t masked(const uint8_t *bytes, size_t length)
{
    const uint32_t crc = fsh_crc32c_portable(0, bytes, length);
    return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

/* Checks each frame as TensorFlow's reader does. */
static Events read_events(const char *path)
{
    size_t length;
    Events read = {.file = test_file_read(path, &length)};
    const uint8_t *at = (const uint8_t *)read.file, *end = at + length;
    while (at < end) {
        assert_true(end - at >= 16 && read.count < 64);
        const size_t bytes = load_le64(at);
        assert_int_equal(load_le32(at + 8), masked(at, 8));
        assert_true(bytes <= (size_t)(end - at) - 16);
        assert_int_equal(load_le32(at + 12 + bytes), masked(at + 12, bytes));
        read.events[read.count++] = (Piece){at + 12, bytes};
        at += 16 + bytes;
    }
    return read;
}

/* Returns the first value of the event. */
static Piece value_of(Piece event)
{
    return field(field(event, 5, NULL), 1, NULL);
}

static void assert_text(Piece piece, const char *text)
{
    assert_int_equal(piece.length, strlen(text));
    assert_memory_equal(piece.bytes, text, piece.length);
}

/* Lists the event files in folder in order of their names; returns their number. */
static size_t list(TestFolder *folder, const char *names[8])
{
    struct dirent **entries;
    const int found = scandir(folder->path, &entries, NULL, alphasort);
    size_t count = 0;
    assert_true(found >= 2);
    for (int i = 0; i < found; i++) {
        if (strncmp(entries[i]->d_name, "events.out.tfevents.", 20) == 0 && count < 8)
            names[count++] = test_path(folder, "%s", entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return count;
}

TEST_IN_FOLDER(test_a_curve_is_framed_events, folder)
{
    TensorBoard *board = NULL;
    FshError error = {0};
    const char *names[8] = {0};
    assert_ok(tensorboard_open(&board, folder->path, 7, &error), &error);
    assert_ok(tensorboard_scalar(board, "train/loss", 300, 0.25, &error), &error);
    assert_ok(tensorboard_scalar(board, "train/loss", 301, NAN, &error), &error);
    tensorboard_close(&board);
    assert_null(board);
    tensorboard_close(&board);

    assert_int_equal(list(folder, names), 1);
    Events read = read_events(names[0]);
    uint64_t number = 0;
    assert_int_equal(read.count, 4);
    assert_text(field(read.events[0], 3, NULL), "brain.Event:2");
    assert_int_equal(field(read.events[1], 2, &number).length, 1);
    assert_int_equal(number, 7);
    assert_int_equal(field(field(read.events[1], 7, NULL), 1, &number).length, 1);
    assert_int_equal(number, 1); /* SessionLog.START */
    assert_int_equal(field(read.events[2], 2, &number).length, 2);
    assert_int_equal(number, 300);
    assert_text(field(value_of(read.events[2]), 1, NULL), "train/loss");
    float value;
    memcpy(&value, field(value_of(read.events[2]), 2, NULL).bytes, sizeof value);
    assert_true(value == 0.25F);
    memcpy(&value, field(value_of(read.events[3]), 2, NULL).bytes, sizeof value);
    assert_true(isnan(value));
    double wall;
    memcpy(&wall, field(read.events[2], 1, NULL).bytes, sizeof wall);
    assert_true(fabs(wall - (double)time(NULL)) < 100);
    free(read.file);
}

TEST_IN_FOLDER(test_an_image_is_a_jpeg_of_its_size, folder)
{
    TensorBoard *board = NULL;
    FshError error = {0};
    const char *names[8] = {0};
    uint8_t pixels[40 * 30 * 3];
    test_fill_gradient(pixels, 40, 30, 1);
    const ImageView whole = {pixels, (size_t)40 * 3, 40, 30, 3}, part = image_view_part(&whole, 4, 6, 32, 16);
    assert_ok(tensorboard_open(&board, folder->path, 0, &error), &error);
    assert_ok(tensorboard_image(board, "val/samples", 5, &part, &error), &error);
    tensorboard_close(&board);

    assert_int_equal(list(folder, names), 1);
    Events read = read_events(names[0]);
    assert_int_equal(read.count, 3);
    const Piece image = field(value_of(read.events[2]), 4, NULL), jpeg = field(image, 4, NULL);
    uint64_t height = 0, width = 0, channels = 0;
    (void)field(image, 1, &height);
    (void)field(image, 2, &width);
    (void)field(image, 3, &channels);
    assert_true(height == 16 && width == 32 && channels == 3);
    ImageDecoder *decoder = NULL;
    Image decoded = {0};
    const ImageDecodeOptions options = {0};
    assert_ok(image_decoder_new(&decoder, &error), &error);
    assert_ok(image_decode(decoder, jpeg.bytes, jpeg.length, &options, &decoded, NULL, &error), &error);
    assert_true(decoded.width == 32 && decoded.height == 16 && decoded.channels == 3);
    for (uint32_t y = 0; y < 16; y++)
        for (uint32_t x = 0; x < 96; x++)
            assert_in_range(decoded.pixels[y * 96 + x] + 255 - part.pixels[y * 120 + x], 223, 287);
    image_free(&decoded);
    image_decoder_free(&decoder);
    free(read.file);
}

TEST_IN_FOLDER(test_a_file_sorts_behind_the_earlier_ones, folder)
{
    FshError error = {0};
    const char *names[8] = {0};
    test_file_write_text(test_path(folder, "events.out.tfevents.5000000000.host.1"), "");
    for (int i = 0; i < 3; i++) {
        TensorBoard *board = NULL;
        assert_ok(tensorboard_open(&board, folder->path, (uint64_t)i, &error), &error);
        tensorboard_close(&board);
    }
    assert_int_equal(list(folder, names), 4);
    for (int i = 0; i < 3; i++) {
        Events read = read_events(names[i + 1]);
        uint64_t first_step = 99;
        (void)field(read.events[1], 2, &first_step);
        assert_int_equal(first_step, i);
        free(read.file);
    }
}

TEST_IN_FOLDER(test_a_folder_that_is_not_there_is_told, folder)
{
    TensorBoard *board = NULL;
    FshError error = {0};
    assert_int_equal(tensorboard_open(&board, test_path(folder, "nowhere"), 0, &error), FSH_ERR_NOT_FOUND);
    assert_null(board);
    assert_contains(error.message, "nowhere/events.out.tfevents.");
}

TEST_IN_FOLDER(test_a_full_disk_leaves_whole_records, folder)
{
    const char *names[8] = {0};
    const RunOptions options = {.limit_disk = true, .disk_bytes = 20000};
    RunResult result = run_program(&options, WRITE_EVENTS, folder->path, "fill", NULL);
    assert_int_equal(result.exit_status, 3);
    assert_contains(result.err, "cannot write: No space left");
    run_result_free(&result);
    assert_int_equal(list(folder, names), 1);
    assert_true(test_file_size(names[0]) < 20000); /* the half record is gone */
    Events read = read_events(names[0]);
    assert_true(read.count > 3);
    free(read.file);
    test_folder_remove(folder);
    test_folder_make(folder);
    const RunOptions nothing = {.limit_disk = true, .disk_bytes = 10};
    result = run_program(&nothing, WRITE_EVENTS, folder->path, "fill", NULL);
    assert_int_equal(result.exit_status, 3);
    assert_int_equal(test_count_files(folder->path), 0);
    run_result_free(&result);
}
