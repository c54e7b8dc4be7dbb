/* resize_floor.c - times libjpeg alone at fresize's job, without anything in between: a lower bound for
 * fresize.
 *
 * Every JPEG below a folder is read into memory, decoded to RGB at the smallest of 1/8, 1/4, 1/2 and 1 that
 * keeps twice the wanted edges (fresize's rule), and pixels of the wanted size are encoded at quality 90,
 * 4:2:0. Only these two are timed, in CPU time of this one thread; the pixels to encode are resampled while
 * no clock runs, because a file of noise or aliases would take longer to encode. An image that is small
 * enough is decoded at 1/8, as fresize does before it copies it.
 *
 *   resize_floor DIR SIZE      SIZE: of the short edge
 *
 * prints images per CPU second: "decode N", "encode N", "floor N" (both). Files that are not JPEGs, or cannot
 * be decoded, are skipped and counted on stderr. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/file.h"
#include "common/walk.h"
#include "imaging/jpeg_guard.h"
#include "imaging/resample.h"

enum { MARGIN = 2, QUALITY = 90, ROWS_AT_ONCE = 32 };

typedef struct Floor {
    JpegGuard guard;
    struct jpeg_decompress_struct decompress;
    struct jpeg_compress_struct compress;
    Resampler *resampler;
    Image decoded, resampled;
    uint32_t max_size, width, height;
    bool resized;
    const Buffer *file; /* the current one */
    Buffer encoded;     /* as large as any JPEG of these pixels, so that libjpeg need not grow it */
    uint64_t decoded_count, encoded_count;
    double decode_seconds, encode_seconds;
} Floor;

static double cpu_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void rows_of(const Image *image, JDIMENSION first, JDIMENSION count, JSAMPROW *rows)
{
    for (JDIMENSION i = 0; i < count; i++)
        rows[i] = image->pixels + (size_t)(first + i) * image->width * image->channels;
}

static JDIMENSION at_most(JDIMENSION rows)
{
    return rows < ROWS_AT_ONCE ? rows : ROWS_AT_ONCE;
}

static void step_decode(void *context)
{
    Floor *floor = context;
    struct jpeg_decompress_struct *cinfo = &floor->decompress;
    jpeg_mem_src(cinfo, floor->file->bytes, floor->file->length);
    (void)jpeg_read_header(cinfo, TRUE);
    floor->resized = resample_fit(cinfo->image_width, cinfo->image_height, floor->max_size, false,
                                  &floor->width, &floor->height);
    uint64_t least_width = floor->resized ? (uint64_t)floor->width * MARGIN : 1;
    uint64_t least_height = floor->resized ? (uint64_t)floor->height * MARGIN : 1;
    unsigned eighths = 1;
    while (eighths < 8 && ((uint64_t)cinfo->image_width * eighths / 8 < least_width ||
                           (uint64_t)cinfo->image_height * eighths / 8 < least_height))
        eighths *= 2;
    cinfo->out_color_space = cinfo->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    cinfo->scale_num = eighths;
    cinfo->scale_denom = 8;
    (void)jpeg_start_decompress(cinfo);
    if (image_reserve(&floor->decoded, cinfo->output_width, cinfo->output_height,
                      (uint32_t)cinfo->output_components, floor->guard.error))
        jpeg_guard_fail(&floor->guard, FSH_ERR_MEMORY);
    JSAMPROW rows[ROWS_AT_ONCE];
    while (cinfo->output_scanline < cinfo->output_height) {
        JDIMENSION count = at_most(cinfo->output_height - cinfo->output_scanline);
        rows_of(&floor->decoded, cinfo->output_scanline, count, rows);
        (void)jpeg_read_scanlines(cinfo, rows, count);
    }
    (void)jpeg_finish_decompress(cinfo);
}

static void step_encode(void *context)
{
    Floor *floor = context;
    struct jpeg_compress_struct *cinfo = &floor->compress;
    unsigned char *bytes = floor->encoded.bytes;
    unsigned long length = floor->encoded.capacity;
    jpeg_mem_dest(cinfo, &bytes, &length);
    cinfo->image_width = floor->resampled.width;
    cinfo->image_height = floor->resampled.height;
    cinfo->input_components = (int)floor->resampled.channels;
    cinfo->in_color_space = floor->resampled.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(cinfo); /* 4:2:0 */
    jpeg_set_quality(cinfo, QUALITY, TRUE);
    jpeg_start_compress(cinfo, TRUE);
    JSAMPROW rows[ROWS_AT_ONCE];
    while (cinfo->next_scanline < cinfo->image_height) {
        JDIMENSION count = at_most(cinfo->image_height - cinfo->next_scanline);
        rows_of(&floor->resampled, cinfo->next_scanline, count, rows);
        (void)jpeg_write_scanlines(cinfo, rows, count);
    }
    jpeg_finish_compress(cinfo);
}

static void step_create(void *context)
{
    Floor *floor = context;
    jpeg_create_decompress(&floor->decompress);
    jpeg_create_compress(&floor->compress);
}

static FshStatus measure(Floor *floor, const Buffer *file, FshError *error)
{
    floor->file = file;
    jpeg_guard_reset(&floor->guard, true);
    double start = cpu_seconds();
    FshStatus status = jpeg_guard(&floor->guard, step_decode, floor, error);
    double decode_seconds = cpu_seconds() - start;
    if (status) {
        jpeg_abort_decompress(&floor->decompress);
        return status;
    }
    if (floor->resized) {
        status = resample(floor->resampler, &floor->decoded, NULL, floor->width, floor->height,
                          RESAMPLE_LANCZOS, &floor->resampled, error);
        if (!status)
            status =
                buffer_reserve(&floor->encoded, (size_t)floor->width * floor->height * 6 + (64 << 10), error);
        start = cpu_seconds();
        if (!status)
            status = jpeg_guard(&floor->guard, step_encode, floor, error);
        double encode_seconds = cpu_seconds() - start;
        if (status) {
            jpeg_abort_compress(&floor->compress);
            return status;
        }
        floor->encode_seconds += encode_seconds;
        floor->encoded_count++;
    }
    floor->decode_seconds += decode_seconds;
    floor->decoded_count++;
    return FSH_OK;
}

/* Runs the benchmark. Returns the exit status. */
static int run(const char *root, uint32_t max_size)
{
    Floor floor = {.max_size = max_size};
    FileList list = {0};
    FshError error = {0};
    jpeg_guard_init(&floor.guard);
    floor.decompress.err = floor.compress.err = &floor.guard.manager;
    FshStatus status = jpeg_guard(&floor.guard, step_create, &floor, &error);
    if (!status)
        status = resampler_new(&floor.resampler, &error);
    if (!status)
        status = walk_files(root, 1, &list, &error);
    Buffer file = {0};
    uint64_t left_out = 0;
    for (uint64_t i = 0; !status && i < list.count; i++) {
        char *name = NULL;
        if (asprintf(&name, "%s/%s", root, list.files[i].path) < 0) {
            status = fsh_error_set(&error, FSH_ERR_MEMORY, "no memory for a path");
            break;
        }
        FshError of_file = {0};
        FshStatus file_status = file_read(name, &file, &of_file);
        if (file_status || image_sniff(file.bytes, file.length) != IMAGE_JPEG ||
            measure(&floor, &file, &of_file))
            left_out++;
        free(name);
    }
    if (status) {
        (void)fprintf(stderr, "resize_floor: %s\n", error.message);
    } else if (!floor.encoded_count) {
        (void)fprintf(stderr, "resize_floor: %s: no JPEG larger than %u there\n", root, max_size);
    } else {
        (void)printf("decode %.1f\nencode %.1f\nfloor %.1f\n",
                     (double)floor.decoded_count / floor.decode_seconds,
                     (double)floor.encoded_count / floor.encode_seconds,
                     (double)floor.decoded_count / (floor.decode_seconds + floor.encode_seconds));
        (void)fprintf(stderr, "resize_floor: %llu decoded, %llu of them encoded, %llu left out\n",
                      (unsigned long long)floor.decoded_count, (unsigned long long)floor.encoded_count,
                      (unsigned long long)left_out);
    }
    jpeg_destroy_decompress(&floor.decompress);
    jpeg_destroy_compress(&floor.compress);
    resampler_free(&floor.resampler);
    image_free(&floor.decoded);
    image_free(&floor.resampled);
    file_list_free(&list);
    buffer_free(&file);
    buffer_free(&floor.encoded);
    return status || !floor.encoded_count ? 1 : 0;
}

int main(int argc, char **argv)
{
    char *end = NULL;
    unsigned long size = argc == 3 ? strtoul(argv[2], &end, 10) : 0;
    if (argc != 3 || *end || size == 0 || size > 65500) {
        (void)fprintf(stderr, "usage: resize_floor DIR SIZE\n");
        return 2;
    }
    return run(argv[1], (uint32_t)size);
}
