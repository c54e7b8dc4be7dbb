/* Masks made smaller: values are those of Pillow's NEAREST (golden/make_masks_resized.py), and the file is
 * written as its source was. Their colours: the published table of Pascal VOC. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "imaging/mask.h"
#include "imaging/png_chunks.h"
#include "imaging/shrink.h"
#include "tests/imaging/decode_tools.h"

static uint32_t read_le(const uint8_t *at, int bytes)
{
    uint32_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

/* Sets *chunk to the file's chunk of this type; fails unless there is one if `wanted`, and none if not. */
static void find_chunk(const void *file, size_t length, const char *type, bool wanted, PngChunk *chunk)
{
    bool found = false;
    for (size_t at = PNG_SIGNATURE_BYTES; !found && png_chunk_read(file, length, at, chunk); at = chunk->next)
        found = png_chunk_is(chunk, type);
    assert_int_equal(found, wanted);
}

static void assert_same_chunk(const void *file, size_t length, const ShrunkImage *own, const char *type,
                              bool wanted)
{
    PngChunk chunk, other;
    find_chunk(file, length, type, wanted, &chunk);
    find_chunk(own->bytes, own->length, type, wanted, &other);
    if (!wanted)
        return;
    assert_int_equal(other.length, chunk.length);
    assert_memory_equal(other.data, chunk.data, chunk.length);
}

DECODE_TEST(test_values_are_pillows_and_the_palette_stays, tools)
{
    char path[512];
    size_t length = 0;
    ShrinkWorker *worker = NULL;
    assert_ok(shrink_worker_new(&worker, &tools->error), &tools->error);
    (void)snprintf(path, sizeof path, "%s/tests/imaging/golden/masks_resized.bin", getenv("FSHARD_SOURCE"));
    char *file = test_file_read(path, &length);
    const uint8_t *at = (const uint8_t *)file, *end = at + length;
    assert_memory_equal(at, "FGN1", 4);
    const uint32_t count = read_le(at + 4, 4);
    assert_true(count >= 64);
    at += 8;
    for (uint32_t i = 0; i < count; i++) {
        const ShrinkRecipe recipe = {.max_size = read_le(at, 2)};
        const uint32_t width = read_le(at + 2, 2), height = read_le(at + 4, 2);
        const uint8_t depth = at[6], colour = at[7];
        const size_t bytes = read_le(at + 8, 4);
        const uint8_t *png = at + 12;
        ShrunkImage shrunk, planned;
        assert_ok(shrink_mask(worker, png, bytes, &recipe, &shrunk, &tools->error), &tools->error);
        assert_ok(shrink_mask_plan(png, bytes, &recipe, &planned, &tools->error), &tools->error);
        assert_int_equal(shrunk.action, SHRINK_RESIZED);
        assert_int_equal(planned.action, SHRINK_RESIZED);
        assert_int_equal(planned.width, width);
        assert_int_equal(planned.height, height);
        assert_ok(
            image_decode_mask(tools->decoder, shrunk.bytes, shrunk.length, 0, &tools->image, &tools->error),
            &tools->error);
        assert_int_equal(tools->image.width, width);
        assert_int_equal(tools->image.height, height);
        assert_memory_equal(tools->image.pixels, png + bytes, (size_t)width * height);
        PngChunk header;
        find_chunk(shrunk.bytes, shrunk.length, "IHDR", true, &header);
        assert_int_equal(header.data[8], depth);
        assert_int_equal(header.data[9], colour);
        assert_same_chunk(png, bytes, &shrunk, "PLTE", colour == PNG_PALETTE);
        assert_same_chunk(png, bytes, &shrunk, "tRNS", colour == PNG_PALETTE);

        const ShrinkRecipe large = {.max_size = 4000};
        assert_ok(shrink_mask(worker, png, bytes, &large, &shrunk, &tools->error), &tools->error);
        assert_int_equal(shrunk.action, SHRINK_COPIED);
        assert_int_equal(shrunk.length, bytes);
        assert_memory_equal(shrunk.bytes, png, bytes);
        at = png + bytes + (size_t)width * height;
    }
    assert_ptr_equal(at, end);
    free(file);
    shrink_worker_free(&worker);
}

/* The table in the development kit of the challenge: aeroplane, bicycle, … and the rim of objects. */
TEST(test_colours_are_those_of_pascal_voc)
{
    static const uint8_t table[][3] = {
        {0, 0, 0},     {128, 0, 0},     {0, 128, 0},    {128, 128, 0},   {0, 0, 128},  {128, 0, 128},
        {0, 128, 128}, {128, 128, 128}, {64, 0, 0},     {192, 0, 0},     {64, 128, 0}, {192, 128, 0},
        {64, 0, 128},  {192, 0, 128},   {64, 128, 128}, {192, 128, 128}, {0, 64, 0},   {128, 64, 0},
        {0, 192, 0},   {128, 192, 0},   {0, 64, 128}};
    static const uint8_t rim[3] = {224, 224, 192};
    uint8_t colours[MASK_COLOURS_BYTES];
    mask_voc_colours(colours);
    assert_memory_equal(colours, table, sizeof table);
    assert_memory_equal(colours + (size_t)255 * 3, rim, sizeof rim);
}
