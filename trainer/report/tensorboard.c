#include "trainer/report/tensorboard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "imaging/encode.h"

/* The numbers of fields in event.proto and summary.proto. */
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION_LOG = 7,
    SESSION_LOG_STATUS = 1,
    SESSION_LOG_START = 1, /* a value of the status */
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    VALUE_IMAGE = 4,
    IMAGE_FIELD_HEIGHT = 1,
    IMAGE_FIELD_WIDTH = 2,
    IMAGE_FIELD_COLORSPACE = 3, /* 1: gray, 3: RGB, which is the count of channels */
    IMAGE_FIELD_ENCODED = 4,
};

enum {
    WIRE_VARINT = 0,
    WIRE_64BIT = 1,
    WIRE_BYTES = 2,
    WIRE_32BIT = 5,
    FRAME_HEAD_BYTES = 12,
    FRAME_TAIL_BYTES = 4,
    IMAGE_QUALITY = 95,
};

static const char file_prefix[] = "events.out.tfevents.";

struct TensorBoard {
    char *path; /* owned, as all below */
    int descriptor;
    Buffer record; /* the framed event under construction */
    Buffer event, summary, value, part;
    ImageEncoder *encoder;
    Image image;
    Buffer encoded;
};

/* ---- protobuf: https://protobuf.dev/programming-guides/encoding ---- */

static FshStatus put_varint(Buffer *buffer, uint64_t number, FshError *error)
{
    uint8_t bytes[10];
    size_t length = 0;
    for (; number >= 0x80; number >>= 7)
        bytes[length++] = (uint8_t)(number | 0x80);
    bytes[length++] = (uint8_t)number;
    return buffer_append(buffer, bytes, length, error);
}

static FshStatus put_key(Buffer *buffer, unsigned field, unsigned wire, FshError *error)
{
    return put_varint(buffer, (uint64_t)field << 3 | wire, error);
}

static FshStatus put_number(Buffer *buffer, unsigned field, uint64_t number, FshError *error)
{
    FshStatus status = put_key(buffer, field, WIRE_VARINT, error);
    return status ? status : put_varint(buffer, number, error);
}

static FshStatus put_double(Buffer *buffer, unsigned field, double number, FshError *error)
{
    uint8_t bytes[8];
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    store_le64(bytes, bits);
    FshStatus status = put_key(buffer, field, WIRE_64BIT, error);
    return status ? status : buffer_append(buffer, bytes, sizeof bytes, error);
}

static FshStatus put_float(Buffer *buffer, unsigned field, float number, FshError *error)
{
    uint8_t bytes[4];
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    store_le32(bytes, bits);
    FshStatus status = put_key(buffer, field, WIRE_32BIT, error);
    return status ? status : buffer_append(buffer, bytes, sizeof bytes, error);
}

static FshStatus put_bytes(Buffer *buffer, unsigned field, const void *bytes, size_t length, FshError *error)
{
    FshStatus status = put_key(buffer, field, WIRE_BYTES, error);
    if (!status)
        status = put_varint(buffer, length, error);
    return status ? status : buffer_append(buffer, bytes, length, error);
}

static FshStatus put_text(Buffer *buffer, unsigned field, const char *text, FshError *error)
{
    return put_bytes(buffer, field, text, strlen(text), error);
}

static FshStatus put_message(Buffer *buffer, unsigned field, const Buffer *message, FshError *error)
{
    return put_bytes(buffer, field, message->bytes, message->length, error);
}

/* ---- records ---- */

/* Returns TensorFlow's masked CRC (crc32c.h, Mask), since a CRC of bytes that contain CRCs is weak. */
static uint32_t masked_crc(const void *bytes, size_t length)
{
    const uint32_t crc = fsh_crc32c(0, bytes, length);
    return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

/* Appends the record or nothing: readers stop at half a record. */
static FshStatus write_record(TensorBoard *board, FshError *error)
{
    const uint8_t *bytes = board->record.bytes;
    const size_t length = board->record.length;
    const off_t before = lseek(board->descriptor, 0, SEEK_END);
    for (size_t done = 0; done < length;) {
        const ssize_t written = write(board->descriptor, bytes + done, length - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            const FshStatus status = fsh_error_system(error, errno, "%s: cannot write", board->path);
            if (before >= 0 && done > 0)
                (void)!ftruncate(board->descriptor, before); /* the failure is reported already */
            return status;
        }
        done += (size_t)written;
    }
    return FSH_OK;
}

static FshStatus write_event(TensorBoard *board, FshError *error)
{
    uint8_t head[FRAME_HEAD_BYTES], tail[FRAME_TAIL_BYTES];
    const Buffer *event = &board->event;
    store_le64(head, event->length);
    store_le32(head + 8, masked_crc(head, 8));
    store_le32(tail, masked_crc(event->bytes, event->length));
    board->record.length = 0;
    FshStatus status = buffer_append(&board->record, head, sizeof head, error);
    if (!status)
        status = buffer_append(&board->record, event->bytes, event->length, error);
    if (!status)
        status = buffer_append(&board->record, tail, sizeof tail, error);
    return status ? status : write_record(board, error);
}

static FshStatus begin_event(TensorBoard *board, uint64_t step, FshError *error)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    board->event.length = 0;
    FshStatus status =
        put_double(&board->event, EVENT_WALL_TIME, (double)now.tv_sec + (double)now.tv_nsec * 1e-9, error);
    return status ? status : put_number(&board->event, EVENT_STEP, step, error);
}

/* Begins an event's value in board->value, to which the caller appends. */
static FshStatus begin_value(TensorBoard *board, const char *tag, FshError *error)
{
    board->value.length = 0;
    return put_text(&board->value, VALUE_TAG, tag, error);
}

static FshStatus write_value(TensorBoard *board, uint64_t step, FshError *error)
{
    FshStatus status = begin_event(board, step, error);
    board->summary.length = 0;
    if (!status)
        status = put_message(&board->summary, SUMMARY_VALUE, &board->value, error);
    if (!status)
        status = put_message(&board->event, EVENT_SUMMARY, &board->summary, error);
    return status ? status : write_event(board, error);
}

FshStatus tensorboard_scalar(TensorBoard *board, const char *tag, uint64_t step, double value,
                             FshError *error)
{
    FshStatus status = begin_value(board, tag, error);
    if (!status)
        status = put_float(&board->value, VALUE_SIMPLE, (float)value, error);
    return status ? status : write_value(board, step, error);
}

FshStatus tensorboard_image(TensorBoard *board, const char *tag, uint64_t step, const ImageView *image,
                            FshError *error)
{
    const ImageEncodeOptions options = {
        .format = IMAGE_JPEG, .quality = IMAGE_QUALITY, .subsampling = IMAGE_SUBSAMPLING_444};
    FshStatus status = begin_value(board, tag, error);
    if (!status && !board->encoder)
        status = image_encoder_new(&board->encoder, error);
    if (!status)
        status = image_copy_view(&board->image, image, error);
    if (!status)
        status = image_encode(board->encoder, &board->image, &options, &board->encoded, error);
    board->part.length = 0;
    if (!status)
        status = put_number(&board->part, IMAGE_FIELD_HEIGHT, image->height, error);
    if (!status)
        status = put_number(&board->part, IMAGE_FIELD_WIDTH, image->width, error);
    if (!status)
        status = put_number(&board->part, IMAGE_FIELD_COLORSPACE, image->channels, error);
    if (!status)
        status = put_message(&board->part, IMAGE_FIELD_ENCODED, &board->encoded, error);
    if (!status)
        status = put_message(&board->value, VALUE_IMAGE, &board->part, error);
    return status ? status : write_value(board, step, error);
}

/* ---- the file ---- */

/* Returns the time for the file's name: now, or a second after the latest event file in the folder, since a
 * run may resume within the second. */
static unsigned long long name_seconds(const char *folder)
{
    const size_t prefix_bytes = sizeof file_prefix - 1;
    unsigned long long seconds = (unsigned long long)time(NULL);
    DIR *entries = opendir(folder);
    for (struct dirent *entry = entries ? readdir(entries) : NULL; entry; entry = readdir(entries)) {
        if (strncmp(entry->d_name, file_prefix, prefix_bytes) != 0)
            continue;
        const unsigned long long theirs = strtoull(entry->d_name + prefix_bytes, NULL, 10);
        if (theirs >= seconds && theirs < 9999999999ULL) /* ten digits: names sort as numbers */
            seconds = theirs + 1;
    }
    if (entries)
        (void)closedir(entries);
    return seconds;
}

/* Writes the first events: the version of the format, and the step from which on older files do not count. */
static FshStatus write_start(TensorBoard *board, uint64_t first_step, FshError *error)
{
    FshStatus status = begin_event(board, 0, error);
    if (!status)
        status = put_text(&board->event, EVENT_FILE_VERSION, "brain.Event:2", error);
    if (!status)
        status = write_event(board, error);
    if (!status)
        status = begin_event(board, first_step, error);
    board->part.length = 0;
    if (!status)
        status = put_number(&board->part, SESSION_LOG_STATUS, SESSION_LOG_START, error);
    if (!status)
        status = put_message(&board->event, EVENT_SESSION_LOG, &board->part, error);
    return status ? status : write_event(board, error);
}

static FshStatus create(TensorBoard *board, const char *folder, FshError *error)
{
    char host[256] = "", name[PATH_MAX], path[PATH_MAX];
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(name, sizeof name, "%s%010llu.%s.%ld", file_prefix, name_seconds(folder),
                   host[0] ? host : "localhost", (long)getpid());
    FshStatus status = file_join(path, sizeof path, folder, name, error);
    if (status)
        return status;
    board->path = strdup(path);
    if (!board->path)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    board->descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (board->descriptor < 0)
        return fsh_error_system(error, errno, "%s: cannot create", path);
    return FSH_OK;
}

FshStatus tensorboard_open(TensorBoard **board_ret, const char *folder, uint64_t first_step, FshError *error)
{
    *board_ret = NULL;
    TensorBoard *board = calloc(1, sizeof *board);
    if (!board)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
    board->descriptor = -1;
    FshStatus status = create(board, folder, error);
    if (!status)
        status = write_start(board, first_step, error);
    if (status && board->descriptor >= 0)
        (void)unlink(board->path);
    *board_ret = board;
    if (status)
        tensorboard_close(board_ret);
    return status;
}

void tensorboard_close(TensorBoard **board_ret)
{
    TensorBoard *board = *board_ret;
    if (!board)
        return;
    if (board->descriptor >= 0)
        (void)close(board->descriptor);
    buffer_free(&board->record);
    buffer_free(&board->event);
    buffer_free(&board->summary);
    buffer_free(&board->value);
    buffer_free(&board->part);
    buffer_free(&board->encoded);
    image_encoder_free(&board->encoder);
    image_free(&board->image);
    free(board->path);
    free(board);
    *board_ret = NULL;
}
