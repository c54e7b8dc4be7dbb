/* Masks: the values of index PNGs are Pillow's (golden/make_masks.py), and nothing else is taken for one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/imaging/decode_tools.h"

static uint32_t read_le(const uint8_t *at, int bytes)
{
    uint32_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

/* A case of the golden file. */
typedef struct Case {
    char name[256];
    uint32_t width, height; /* 0: the file is refused, and name is part of the message */
    const uint8_t *png, *values;
    size_t png_bytes;
} Case;

static const uint8_t *read_case(const uint8_t *at, const uint8_t *end, Case *own)
{
    *own = (Case){0};
    memcpy(own->name, at + 1, at[0]);
    at += 1 + at[0];
    own->width = read_le(at, 2);
    own->height = read_le(at + 2, 2);
    own->png_bytes = read_le(at + 4, 4);
    own->png = at + 8;
    own->values = own->png + own->png_bytes;
    at = own->values + (size_t)own->width * own->height;
    assert_true(at <= end);
    return at;
}

/* Calls the function with each case; returns how many there were. */
static uint32_t each_case(void (*check)(DecodeTools *tools, const Case *own), DecodeTools *tools)
{
    char path[512];
    size_t length = 0;
    (void)snprintf(path, sizeof path, "%s/tests/imaging/golden/masks_pillow.bin", getenv("FSHARD_SOURCE"));
    char *file = test_file_read(path, &length);
    const uint8_t *at = (const uint8_t *)file, *end = at + length;
    assert_memory_equal(at, "FGM1", 4);
    const uint32_t count = read_le(at + 4, 4);
    at += 8;
    for (uint32_t i = 0; i < count; i++) {
        Case own;
        at = read_case(at, end, &own);
        check(tools, &own);
    }
    assert_ptr_equal(at, end);
    free(file);
    return count;
}

static void check_case(DecodeTools *tools, const Case *own)
{
    tools->error = (FshError){0};
    const FshStatus status =
        image_decode_mask(tools->decoder, own->png, own->png_bytes, 0, &tools->image, &tools->error);
    if (own->width == 0) {
        assert_int_not_equal(status, FSH_OK);
        assert_contains(tools->error.message, own->name);
        return;
    }
    if (status)
        fail_msg("%s: %s", own->name, tools->error.message);
    assert_int_equal(tools->image.channels, 1);
    assert_int_equal(tools->image.width, own->width);
    assert_int_equal(tools->image.height, own->height);
    if (memcmp(tools->image.pixels, own->values, (size_t)own->width * own->height) != 0)
        fail_msg("%s of %u x %u: other values than Pillow's", own->name, own->width, own->height);
}

DECODE_TEST(test_values_are_pillows_and_other_files_are_refused, tools)
{
    assert_true(each_case(check_case, tools) > 80);
}

static void cut_case(DecodeTools *tools, const Case *own)
{
    for (size_t length = 0; length < own->png_bytes && own->width; length += 1 + length / 16) {
        uint8_t *copy = malloc(length + 1); /* so that a sanitizer sees what is read beyond it */
        assert_non_null(copy);
        memcpy(copy, own->png, length);
        assert_int_not_equal(image_decode_mask(tools->decoder, copy, length, 0, &tools->image, NULL), FSH_OK);
        free(copy);
    }
}

DECODE_TEST(test_no_mask_that_is_cut_short_is_taken, tools)
{
    (void)each_case(cut_case, tools);
}

static void limit_case(DecodeTools *tools, const Case *own)
{
    const uint64_t pixels = (uint64_t)own->width * own->height;
    if (pixels < 2)
        return;
    assert_int_equal(
        image_decode_mask(tools->decoder, own->png, own->png_bytes, pixels - 1, &tools->image, &tools->error),
        FSH_ERR_MISMATCH);
    assert_contains(tools->error.message, "more than the limit of");
    assert_ok(
        image_decode_mask(tools->decoder, own->png, own->png_bytes, pixels, &tools->image, &tools->error),
        &tools->error);
}

DECODE_TEST(test_more_pixels_than_the_limit_are_refused, tools)
{
    (void)each_case(limit_case, tools);
}
