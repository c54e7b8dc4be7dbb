#include "imaging/planes.h"

#include <stdlib.h>
#include <string.h>

#include "imaging/jpeg_decode.h"
#include "imaging/planes_math.h"

enum {
    LEAST_WIDTH = 5, /* libjpeg repeats chroma of narrower images in place of upsampling it */
    LEAST_HEIGHT = 2,
    TILE = 256, /* columns that become RGB at a time; even */
};

uint64_t planes_bytes(PlanesChroma chroma, uint32_t width, uint32_t height)
{
    const uint64_t luma = (uint64_t)width * height;
    return chroma == PLANES_GRAY  ? luma
           : chroma == PLANES_420 ? luma + 2 * (uint64_t)planes_halved(width) * planes_halved(height)
                                  : 3 * luma;
}

bool planes_expandable(PlanesChroma chroma, uint32_t width, uint32_t height)
{
    return chroma != PLANES_420 || (width >= LEAST_WIDTH && height >= LEAST_HEIGHT);
}

/* ---- from a JPEG ---- */

bool planes_of_jpeg(ImageDecoder *decoder, const ImageInfo *info, PlanesChroma *chroma_ret)
{
    const JpegDecoder *jpeg = image_decoder_jpeg(decoder);
    if (info->format != IMAGE_JPEG || info->orientation != 1)
        return false;
    const uint32_t count = jpeg_decoder_planes_count(jpeg);
    JpegPlane planes[JPEG_PLANES_MAX];
    if (count != 1 && count != JPEG_PLANES_MAX)
        return false;
    for (uint32_t i = 0; i < count; i++)
        jpeg_decoder_plane(jpeg, i, 8, &planes[i]);
    *chroma_ret = count == 1 ? PLANES_GRAY : planes[1].width != planes[0].width ? PLANES_420 : PLANES_444;
    for (uint32_t i = 0; i < count; i++) {
        const bool half = i && *chroma_ret == PLANES_420;
        if (planes[i].width != (half ? planes_halved(info->width) : info->width) ||
            planes[i].height != (half ? planes_halved(info->height) : info->height))
            return false;
    }
    return planes_expandable(*chroma_ret, info->width, info->height);
}

/* Copies the rows of one group that the plane has, and returns where its next ones go. */
static uint8_t *copy_group(const JpegPlane *plane, uint32_t group, const uint8_t *rows, uint8_t *to)
{
    const uint32_t first = group * plane->group_rows;
    for (uint32_t y = 0; y < plane->group_rows && first + y < plane->height; y++, to += plane->width)
        memcpy(to, rows + (size_t)y * plane->row_bytes, plane->width);
    return to;
}

FshStatus planes_read_jpeg(ImageDecoder *decoder, uint8_t *to, FshError *error)
{
    static const uint32_t eighths[JPEG_PLANES_MAX] = {8, 8, 8};
    JpegDecoder *jpeg = image_decoder_jpeg(decoder);
    const uint32_t count = jpeg_decoder_planes_count(jpeg);
    JpegPlane planes[JPEG_PLANES_MAX];
    uint8_t *room[JPEG_PLANES_MAX] = {NULL}, *at[JPEG_PLANES_MAX];
    size_t strides[JPEG_PLANES_MAX] = {0}, room_bytes = 0;
    uint32_t quirks = 0;
    for (uint32_t i = 0; i < count; i++) {
        jpeg_decoder_plane(jpeg, i, 8, &planes[i]);
        strides[i] = planes[i].row_bytes;
        room_bytes += strides[i] * planes[i].group_rows;
        at[i] = to;
        to += (size_t)planes[i].width * planes[i].height;
    }
    uint8_t *memory = malloc(room_bytes + 1); /* never of no bytes */
    if (!memory)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for rows of %zu bytes", room_bytes);
    uint8_t *next = memory;
    for (uint32_t i = 0; i < count; next += strides[i] * planes[i].group_rows, i++)
        room[i] = next;
    FshStatus status = jpeg_decoder_planes_start(jpeg, eighths, true, error);
    for (uint32_t group = 0; group < jpeg_decoder_groups_count(jpeg) && !status; group++) {
        status = jpeg_decoder_planes_next(jpeg, room, strides, &quirks, error);
        for (uint32_t i = 0; i < count && !status; i++)
            at[i] = copy_group(&planes[i], group, room[i], at[i]);
    }
    free(memory);
    return status;
}

/* ---- from RGB ---- */

/* Adds the chroma of a pixel to sums. */
static void add_chroma(const Image *image, uint32_t x, uint32_t y, int sums[2])
{
    const uint32_t column = x < image->width ? x : image->width - 1;
    const uint32_t row = y < image->height ? y : image->height - 1;
    const uint8_t *pixel = image->pixels + ((size_t)row * image->width + column) * 3;
    sums[0] += planes_cb_of(pixel[0], pixel[1], pixel[2]);
    sums[1] += planes_cr_of(pixel[0], pixel[1], pixel[2]);
}

/* Fills the two chroma planes, halved. */
static void halve_chroma(const Image *image, uint8_t *to)
{
    const uint32_t width = planes_halved(image->width), height = planes_halved(image->height);
    uint8_t *other = to + (size_t)width * height;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            const int bias = x % 2 ? 2 : 1; /* libjpeg's h2v2_downsample rounds so */
            int sums[2] = {bias, bias};
            for (uint32_t i = 0; i < 4; i++)
                add_chroma(image, 2 * x + i % 2, 2 * y + i / 2, sums);
            *to++ = (uint8_t)(sums[0] >> 2);
            *other++ = (uint8_t)(sums[1] >> 2);
        }
    }
}

void planes_of_image(const Image *image, PlanesChroma chroma, uint8_t *to)
{
    const size_t count = (size_t)image->width * image->height;
    if (chroma == PLANES_GRAY) {
        memcpy(to, image->pixels, count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const uint8_t *pixel = image->pixels + 3 * i;
        to[i] = planes_luma_of(pixel[0], pixel[1], pixel[2]);
        if (chroma == PLANES_444) {
            to[count + i] = planes_cb_of(pixel[0], pixel[1], pixel[2]);
            to[2 * count + i] = planes_cr_of(pixel[0], pixel[1], pixel[2]);
        }
    }
    if (chroma == PLANES_420)
        halve_chroma(image, to + count);
}

/* ---- to RGB ---- */

/* The loops below are compiled twice, for any processor and for AVX2. */
#define INLINED static inline __attribute__((always_inline))

/* Upsamples columns of a chroma row twofold. near, far: the row, and the one on the other side of the pixels;
 * [width]. out: the pixels of columns first..first+count-1. */
INLINED void upsample(const uint8_t *near, const uint8_t *far, uint32_t width, uint32_t first, uint32_t count,
                      uint8_t *restrict out)
{
    int16_t sums[TILE / 2 + 2];
    const uint32_t before = first ? first - 1 : 0, after = first + count < width ? first + count : width - 1;
    sums[0] = (int16_t)planes_sum(near[before], far[before]);
    for (uint32_t i = 0; i < count; i++)
        sums[i + 1] = (int16_t)planes_sum(near[first + i], far[first + i]);
    sums[count + 1] = (int16_t)planes_sum(near[after], far[after]);
    for (uint32_t i = 0; i < count; i++) {
        out[2 * i] = (uint8_t)planes_left(sums[i + 1], sums[i]);
        out[2 * i + 1] = (uint8_t)planes_right(sums[i + 1], sums[i + 2]);
    }
}

/* Converts to colours that lie apart. */
INLINED void mix(const uint8_t *restrict luma, const uint8_t *restrict blue, const uint8_t *restrict red,
                 uint32_t count, uint8_t *restrict r, uint8_t *restrict g, uint8_t *restrict b)
{
    for (uint32_t i = 0; i < count; i++) {
        r[i] = (uint8_t)(planes_red(luma[i], red[i]) >> 16);
        g[i] = (uint8_t)(planes_green(luma[i], blue[i], red[i]) >> 16);
        b[i] = (uint8_t)(planes_blue(luma[i], blue[i]) >> 16);
    }
}

/* Converts count pixels from YCbCr to RGB. In two steps, tile by tile: the arithmetic is vectorised where
 * colours lie apart. */
INLINED void convert(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint32_t count,
                     uint8_t *restrict rgb)
{
    uint8_t colours[3][TILE];
    for (uint32_t first = 0; first < count; first += TILE) {
        const uint32_t tile = count - first < TILE ? count - first : TILE;
        mix(luma + first, blue + first, red + first, tile, colours[0], colours[1], colours[2]);
        uint8_t *to = rgb + 3 * (size_t)first;
        for (uint32_t i = 0; i < tile; i++, to += 3) {
            to[0] = colours[0][i];
            to[1] = colours[1][i];
            to[2] = colours[2][i];
        }
    }
}

/* Makes pixels left..left+count-1 of row y of an image of 4:2:0. */
INLINED void expand_row_420(const Planes *planes, uint32_t y, uint32_t left, uint32_t count, uint8_t *rgb)
{
    const uint32_t width = planes_halved(planes->width), height = planes_halved(planes->height), near = y / 2,
                   far = y % 2 ? near + (near + 1 < height) : near - (near > 0);
    const uint8_t *luma = planes->bytes + (size_t)y * planes->width,
                  *chroma[2] = {planes->bytes + (size_t)planes->width * planes->height, NULL};
    chroma[1] = chroma[0] + (size_t)width * height;
    const uint32_t end = left + count;
    for (uint32_t x = left; x < end;) {
        uint8_t colour[2][TILE + 2];
        const uint32_t first = x / 2, tile = end - 2 * first < TILE ? end - 2 * first : TILE, skipped = x % 2;
        for (int i = 0; i < 2; i++)
            upsample(chroma[i] + (size_t)near * width, chroma[i] + (size_t)far * width, width, first,
                     planes_halved(tile), colour[i]);
        convert(luma + x, colour[0] + skipped, colour[1] + skipped, tile - skipped, rgb + 3 * (x - left));
        x += tile - skipped;
    }
}

INLINED void expand_rows(const Planes *planes, const ImagePart *part, Image *image)
{
    const size_t plane_bytes = (size_t)planes->width * planes->height;
    for (uint32_t row = 0; row < part->height; row++) {
        const uint32_t y = part->top + row;
        const uint8_t *luma = planes->bytes + (size_t)y * planes->width + part->left;
        uint8_t *to = image->pixels + (size_t)row * part->width * image->channels;
        if (image->channels == 1)
            memcpy(to, luma, part->width);
        else if (planes->chroma == PLANES_420)
            expand_row_420(planes, y, part->left, part->width, to);
        else if (planes->chroma == PLANES_444)
            convert(luma, luma + plane_bytes, luma + 2 * plane_bytes, part->width, to);
        else
            for (uint32_t x = 0; x < part->width; x++)
                memset(to + 3 * (size_t)x, luma[x], 3);
    }
}

static void expand_rows_portable(const Planes *planes, const ImagePart *part, Image *image)
{
    expand_rows(planes, part, image);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void expand_rows_avx2(const Planes *planes, const ImagePart *part,
                                                             Image *image)
{
    expand_rows(planes, part, image);
}
#endif

FshStatus planes_expand(const Planes *planes, const ImagePart *part, uint32_t channels, Image *image,
                        FshError *error)
{
    FshStatus status = image_reserve(image, part->width, part->height, channels, error);
    if (status)
        return status;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        expand_rows_avx2(planes, part, image);
        return FSH_OK;
    }
#endif
    expand_rows_portable(planes, part, image);
    return FSH_OK;
}
