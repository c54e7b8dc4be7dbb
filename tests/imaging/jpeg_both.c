#include "tests/imaging/jpeg_both.h"

#include <string.h>

typedef struct Both {
    JpegGuard guard;
    struct jpeg_decompress_struct cinfo;
    void (*realize_virt_arrays)(j_common_ptr cinfo); /* libjpeg's own */
    const JpegWanted *wanted;
    const void *bytes;
    size_t length;
    JpegHuffman *huffman;
    JpegReading *reading;
} Both;

static void on_realize(j_common_ptr common)
{
    Both *both = common->client_data;
    if (both->huffman) {
        jpeg_huffman_attach(both->huffman, &both->cinfo);
        both->reading->attached = (void *)both->cinfo.entropy == (void *)both->huffman;
    }
    both->realize_virt_arrays(common);
}

static uint8_t *more_room(Both *both, size_t count)
{
    Buffer *values = &both->reading->values;
    if (buffer_reserve(values, values->length + count, both->guard.error))
        jpeg_guard_fail(&both->guard, FSH_ERR_MEMORY);
    values->length += count;
    return values->bytes + values->length - count;
}

static void read_coefficients(Both *both)
{
    struct jpeg_decompress_struct *cinfo = &both->cinfo;
    jvirt_barray_ptr *arrays = jpeg_read_coefficients(cinfo);
    for (int i = 0; i < cinfo->num_components; i++) {
        const jpeg_component_info *component = &cinfo->comp_info[i];
        for (JDIMENSION y = 0; y < component->height_in_blocks; y++) {
            JBLOCKARRAY rows = cinfo->mem->access_virt_barray((j_common_ptr)cinfo, arrays[i], y, 1, FALSE);
            const size_t row_bytes = component->width_in_blocks * sizeof(JBLOCK);
            memcpy(more_room(both, row_bytes), rows[0], row_bytes);
        }
    }
}

static void read_pixels(Both *both)
{
    struct jpeg_decompress_struct *cinfo = &both->cinfo;
    cinfo->scale_num = both->wanted->eighths;
    cinfo->scale_denom = 8;
    if (both->wanted->own_colours)
        cinfo->out_color_space = cinfo->jpeg_color_space;
    (void)jpeg_start_decompress(cinfo);
    while (cinfo->output_scanline < cinfo->output_height) {
        JSAMPROW row = more_room(both, (size_t)cinfo->output_width * (size_t)cinfo->output_components);
        (void)jpeg_read_scanlines(cinfo, &row, 1);
    }
}

static void step_read(void *context)
{
    Both *both = context;
    struct jpeg_decompress_struct *cinfo = &both->cinfo;
    jpeg_create_decompress(cinfo);
    cinfo->client_data = both;
    both->realize_virt_arrays = cinfo->mem->realize_virt_arrays;
    cinfo->mem->realize_virt_arrays = on_realize;
    jpeg_mem_src(cinfo, both->bytes, both->length);
    (void)jpeg_read_header(cinfo, TRUE);
    if (both->wanted->most_pixels &&
        (uint64_t)cinfo->image_width * cinfo->image_height > both->wanted->most_pixels)
        jpeg_guard_fail(&both->guard, FSH_ERR_MISMATCH);
    if (both->wanted->eighths)
        read_pixels(both);
    else
        read_coefficients(both);
    (void)jpeg_finish_decompress(cinfo);
}

void jpeg_read_both_ways(const JpegWanted *wanted, const void *bytes, size_t length, JpegHuffman *huffman,
                         JpegReading *reading)
{
    Both both = {.wanted = wanted, .bytes = bytes, .length = length, .huffman = huffman, .reading = reading};
    *reading = (JpegReading){.values = reading->values};
    reading->values.length = 0;
    jpeg_guard_init(&both.guard);
    jpeg_guard_reset(&both.guard, wanted->strict);
    both.cinfo.err = &both.guard.manager;
    reading->status = jpeg_guard(&both.guard, step_read, &both, &reading->error);
    reading->warnings_count = both.guard.warnings_count;
    reading->gave_up = reading->attached && jpeg_huffman_gave_up(huffman);
    jpeg_destroy_decompress(&both.cinfo);
}

bool jpeg_readings_equal(const JpegReading *a, const JpegReading *b)
{
    return a->status == b->status && strcmp(a->error.message, b->error.message) == 0 &&
           a->warnings_count == b->warnings_count && a->values.length == b->values.length &&
           (a->values.length == 0 || memcmp(a->values.bytes, b->values.bytes, a->values.length) == 0);
}
