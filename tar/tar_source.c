#include "tar/tar_source.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "common/mapped_pages.h"
#include "tar/archive_plugin.h"

enum { FIRST_READ_BYTES = 8 << 10, MOST_READ_BYTES = 256 << 10 };

TarSource tar_source_memory(const uint8_t *bytes, uint64_t length)
{
    return (TarSource){.length = length, .window = bytes, .window_bytes = (size_t)length, .descriptor = -1};
}

TarSource tar_source_file(int descriptor, uint64_t length)
{
    return (TarSource){.length = length, .next_bytes = FIRST_READ_BYTES, .descriptor = descriptor};
}

TarSource tar_source_stretch(TarSource *base, uint64_t offset, uint64_t bytes)
{
    const uint64_t left = base->length > offset ? base->length - offset : 0;
    TarSource stretch = tar_source_file(-1, bytes < left ? bytes : left);
    const bool of_file = !base->base && base->descriptor >= 0;
    stretch.begin = offset + (of_file ? base->begin : 0);
    if (of_file)
        stretch.descriptor = base->descriptor;
    else
        stretch.base = base;
    return stretch;
}

static uint64_t window_end(const TarSource *source)
{
    return source->window_offset + source->window_bytes;
}

uint64_t tar_source_position(const TarSource *source)
{
    return window_end(source) < source->length ? window_end(source) : source->length;
}

void tar_source_close(TarSource *source)
{
    if (source->decompressor)
        source->plugin->close(source->decompressor);
    buffer_free(&source->buffer);
    *source = (TarSource){.descriptor = -1};
}

/* Reads up to `wanted` bytes from the end of the window on, to anywhere. *got_ret is 0 at the end alone. */
static FshStatus read_on(TarSource *source, uint8_t *bytes, size_t wanted, size_t *got_ret, FshError *error)
{
    const uint64_t at = window_end(source), left = source->length > at ? source->length - at : 0;
    FshStatus status = FSH_OK;
    *got_ret = 0;
    if (left < wanted)
        wanted = (size_t)left;
    if (wanted == 0)
        return FSH_OK;
    if (source->plugin) {
        status = source->plugin->read(source->decompressor, bytes, wanted, got_ret, error);
    } else if (source->base) {
        status = tar_source_read(source->base, source->begin + at, bytes, wanted, got_ret, error);
        if (*got_ret) /* what failed after these bytes fails again */
            status = FSH_OK;
    } else {
        ssize_t got = 0;
        do
            got = pread(source->descriptor, bytes, wanted, (off_t)(source->begin + at));
        while (got < 0 && errno == EINTR);
        if (got < 0)
            return fsh_error_system(error, errno, "cannot be read");
        *got_ret = (size_t)got;
    }
    if (!status && *got_ret == 0)
        source->length = at; /* the decompressor's end, or the file was cut short meanwhile */
    return status;
}

/* Empties the window, and goes to an offset that does not lie before its end. */
static FshStatus pass_to(TarSource *source, uint64_t offset, FshError *error)
{
    FshStatus status = FSH_OK;
    size_t got = 1;
    source->window_offset = window_end(source);
    source->window_bytes = 0;
    if (offset - source->window_offset >= FIRST_READ_BYTES)
        source->next_bytes = FIRST_READ_BYTES;
    if (!source->plugin)
        source->window_offset = offset;
    else
        status = buffer_reserve(&source->buffer, MOST_READ_BYTES, error);
    while (!status && got && source->window_offset < offset) {
        const uint64_t left = offset - source->window_offset;
        status = read_on(source, source->buffer.bytes,
                         left < MOST_READ_BYTES ? (size_t)left : MOST_READ_BYTES, &got, error);
        source->window_offset += got;
    }
    return status;
}

/* Moves the window to begin at offset, and reads on until it has the wanted bytes. */
static FshStatus fill(TarSource *source, uint64_t offset, size_t wanted, FshError *error)
{
    const uint64_t end = window_end(source);
    source->buffer.length = source->window_bytes;
    FshStatus status =
        buffer_reserve(&source->buffer, wanted > MOST_READ_BYTES ? wanted : MOST_READ_BYTES, error);
    if (status)
        return status;
    uint8_t *window = source->buffer.bytes;
    source->window = window;
    if (offset >= end) {
        status = pass_to(source, offset, error);
    } else {
        memmove(window, window + (offset - source->window_offset), (size_t)(end - offset));
        source->window_offset = offset;
        source->window_bytes = (size_t)(end - offset);
    }
    const size_t aim = wanted > source->next_bytes ? wanted : source->next_bytes;
    for (size_t got = 1; !status && got && source->window_bytes < wanted;) {
        status = read_on(source, window + source->window_bytes, aim - source->window_bytes, &got, error);
        source->window_bytes += got;
    }
    if (source->next_bytes < MOST_READ_BYTES)
        source->next_bytes *= 2;
    return status;
}

FshStatus tar_source_at(TarSource *source, uint64_t offset, size_t wanted, const uint8_t **bytes_ret,
                        size_t *available_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    *available_ret = 0;
    *bytes_ret = (const uint8_t *)"";
    if (offset < source->window_offset && source->plugin)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "cannot be read again from byte %" PRIu64 " on", offset);
    if (offset < source->window_offset) { /* a file is read from anywhere */
        source->window_offset = offset;
        source->window_bytes = 0;
    }
    const uint64_t end = window_end(source);
    if (end < source->length && (offset >= end || end - offset < wanted))
        status = fill(source, offset, wanted, error);
    const bool there = !status && offset < window_end(source);
    *available_ret = there ? (size_t)(window_end(source) - offset) : 0;
    *bytes_ret = there ? source->window + (offset - source->window_offset) : (const uint8_t *)"";
    if (source->descriptor < 0 && !source->base) /* in memory: perhaps of a mapping */
        mapped_pages_note(*bytes_ret, wanted < *available_ret ? wanted : *available_ret);
    return status;
}

FshStatus tar_source_read(TarSource *source, uint64_t offset, uint8_t *bytes, size_t length, size_t *got_ret,
                          FshError *error)
{
    FshStatus status = FSH_OK;
    size_t step = 1;
    *got_ret = 0;
    while (!status && step && *got_ret < length) {
        const uint64_t at = offset + *got_ret;
        const size_t left = length - *got_ret;
        const uint8_t *from = NULL;
        if (left >= MOST_READ_BYTES / 4 && at >= window_end(source)) { /* much: not by way of the window */
            status = pass_to(source, at, error);
            step = 0;
            if (!status)
                status = read_on(source, bytes + *got_ret, left, &step, error);
            source->window_offset += step;
        } else {
            status = tar_source_at(source, at, 1, &from, &step, error);
            step = step < left ? step : left;
            if (step)
                memcpy(bytes + *got_ret, from, step);
        }
        *got_ret += step;
    }
    return status;
}
