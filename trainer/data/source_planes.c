/* Images that lie in RAM as a JPEG of 4:2:0 has them (--cache planes): Y, then Cb and Cr halved both ways, in
 * half the memory of --cache pixels. Each crop becomes RGB at its use, by the upsampling and the conversion
 * of libjpeg in its own arithmetic: pixels are those of --cache pixels, bit for bit. Images that are no such
 * JPEG (gray, 4:4:4, turned by EXIF, PNG, …), and those of a network that takes gray, are kept as pixels. */
#include <stdlib.h>
#include <string.h>

#include "imaging/jpeg_decode.h"
#include "trainer/data/decoded_split.h"

enum {
    LEAST_WIDTH = 5, /* libjpeg repeats chroma of narrower images in place of upsampling it */
    TILE = 256,      /* columns that become RGB at a time; even */
};

static uint32_t halved(uint32_t size)
{
    return size / 2 + size % 2;
}

/* ---- from the file ---- */

/* Returns the decoder, with the header of the field read, if the field is a JPEG of 4:2:0; else NULL. */
static JpegDecoder *read_header(SampleLoader *samples, const FshField *field, FshError *error)
{
    ImageDecoder *decoder = sample_loader_decoder(samples);
    JpegDecoder *jpeg = image_decoder_jpeg(decoder);
    JpegPlane planes[JPEG_PLANES_MAX];
    ImageInfo info;
    if (field->codec != FSH_CODEC_JPEG || field->width < LEAST_WIDTH || field->height < 2 ||
        image_probe(decoder, field->data, field->bytes, &info, error) || info.format != IMAGE_JPEG ||
        info.orientation != 1 || info.width != field->width || info.height != field->height ||
        jpeg_decoder_planes_count(jpeg) != 3)
        return NULL;
    for (uint32_t i = 0; i < JPEG_PLANES_MAX; i++) {
        const uint32_t width = i ? halved(info.width) : info.width,
                       height = i ? halved(info.height) : info.height;
        jpeg_decoder_plane(jpeg, i, 8, &planes[i]);
        if (planes[i].width != width || planes[i].height != height)
            return NULL;
    }
    return jpeg;
}

static FshStatus measure_planes(SampleLoader *samples, unsigned side, uint32_t decoded, DecodedImage *image,
                                FshError *error)
{
    FshStatus status = decoded_rows.measure(samples, side, decoded, image, error);
    image->expands =
        !status && decoded == 3 && read_header(samples, sample_loader_field(samples, side), NULL);
    if (image->expands)
        image->bytes = (uint64_t)image->width * image->height +
                       2 * (uint64_t)halved(image->width) * halved(image->height);
    return status;
}

/* Copies the rows of one group that the plane has, and returns where its next ones go. */
static uint8_t *copy_group(const JpegPlane *plane, uint32_t group, const uint8_t *rows, uint8_t *to)
{
    const uint32_t first = group * plane->group_rows;
    for (uint32_t y = 0; y < plane->group_rows && first + y < plane->height; y++, to += plane->width)
        memcpy(to, rows + (size_t)y * plane->row_bytes, plane->width);
    return to;
}

/* Decodes all groups of rows. room: for a group of each plane. */
static FshStatus decode_groups(JpegDecoder *jpeg, const JpegPlane planes[JPEG_PLANES_MAX],
                               uint8_t *const room[JPEG_PLANES_MAX], uint8_t *to, FshError *error)
{
    const uint32_t eighths[JPEG_PLANES_MAX] = {8, 8, 8};
    const size_t strides[JPEG_PLANES_MAX] = {planes[0].row_bytes, planes[1].row_bytes, planes[2].row_bytes};
    uint8_t *at[JPEG_PLANES_MAX];
    uint32_t quirks = 0;
    for (int i = 0; i < JPEG_PLANES_MAX; i++) {
        at[i] = to;
        to += (size_t)planes[i].width * planes[i].height;
    }
    FshStatus status = jpeg_decoder_planes_start(jpeg, eighths, true, error);
    for (uint32_t group = 0; group < jpeg_decoder_groups_count(jpeg) && !status; group++) {
        status = jpeg_decoder_planes_next(jpeg, room, strides, &quirks, error);
        for (int i = 0; i < JPEG_PLANES_MAX && !status; i++)
            at[i] = copy_group(&planes[i], group, room[i], at[i]);
    }
    return status;
}

static FshStatus write_planes(SampleLoader *samples, unsigned side, uint32_t decoded,
                              const DecodedImage *image, uint8_t *to, FshError *error)
{
    if (!image->expands)
        return decoded_rows.write(samples, side, decoded, image, to, error);
    JpegPlane planes[JPEG_PLANES_MAX];
    uint8_t *room[JPEG_PLANES_MAX];
    size_t room_bytes = 0;
    FshStatus status = FSH_OK;
    JpegDecoder *jpeg = read_header(samples, sample_loader_field(samples, side), error);
    if (!jpeg)
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "the file has changed since it was measured");
    for (uint32_t i = 0; i < JPEG_PLANES_MAX && !status; i++) {
        jpeg_decoder_plane(jpeg, i, 8, &planes[i]);
        room_bytes += (size_t)planes[i].row_bytes * planes[i].group_rows;
    }
    uint8_t *memory = status ? NULL : malloc(room_bytes);
    if (!status && !memory)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for rows of %zu bytes", room_bytes);
    if (!status) {
        room[0] = memory;
        room[1] = room[0] + (size_t)planes[0].row_bytes * planes[0].group_rows;
        room[2] = room[1] + (size_t)planes[1].row_bytes * planes[1].group_rows;
        status = decode_groups(jpeg, planes, room, to, error);
    }
    free(memory);
    return sample_loader_end(samples, side, status, error);
}

/* ---- to RGB ---- */

/* Upsamples columns of a chroma row twofold: 9/16, 3/16, 3/16 and 1/16 of the four nearest samples (libjpeg's
 * h2v2_fancy_upsample). near, far: the row, and the one on the other side of the pixels; [width]. out: the
 * pixels of columns first..first+count-1. */
static void upsample(const uint8_t *near, const uint8_t *far, uint32_t width, uint32_t first, uint32_t count,
                     uint8_t *out)
{
    int16_t sums[TILE / 2 + 2];
    const uint32_t before = first ? first - 1 : 0, after = first + count < width ? first + count : width - 1;
    sums[0] = (int16_t)(3 * near[before] + far[before]);
    for (uint32_t i = 0; i < count; i++)
        sums[i + 1] = (int16_t)(3 * near[first + i] + far[first + i]);
    sums[count + 1] = (int16_t)(3 * near[after] + far[after]);
    for (uint32_t i = 0; i < count; i++) {
        out[2 * i] = (uint8_t)((3 * sums[i + 1] + sums[i] + 8) >> 4);
        out[2 * i + 1] = (uint8_t)((3 * sums[i + 1] + sums[i + 2] + 7) >> 4);
    }
}

static uint8_t cut_off(int32_t value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Converts count pixels from YCbCr (JFIF) to RGB, in libjpeg's 16-bit fixed point. */
static void convert(const uint8_t *luma, const uint8_t *blue, const uint8_t *red, uint32_t count,
                    uint8_t *rgb)
{
    for (uint32_t i = 0; i < count; i++) {
        const int32_t y = luma[i], cb = blue[i] - 128, cr = red[i] - 128;
        rgb[3 * i] = cut_off(y + ((91881 * cr + 32768) >> 16));
        rgb[3 * i + 1] = cut_off(y + ((-22554 * cb - 46802 * cr + 32768) >> 16));
        rgb[3 * i + 2] = cut_off(y + ((116130 * cb + 32768) >> 16));
    }
}

/* Makes pixels left..left+count-1 of row y of an image in planes. */
static void expand_row(const ImageView *stored, uint32_t y, uint32_t left, uint32_t count, uint8_t *rgb)
{
    const uint32_t width = halved(stored->width), height = halved(stored->height), near = y / 2,
                   far = y % 2 ? near + (near + 1 < height) : near - (near > 0);
    const uint8_t *luma = stored->pixels + (size_t)y * stored->width,
                  *chroma[2] = {stored->pixels + (size_t)stored->width * stored->height, NULL};
    chroma[1] = chroma[0] + (size_t)width * height;
    const uint32_t end = left + count;
    for (uint32_t x = left; x < end;) {
        uint8_t colour[2][TILE + 2];
        const uint32_t first = x / 2, tile = end - 2 * first < TILE ? end - 2 * first : TILE, skipped = x % 2;
        for (int i = 0; i < 2; i++)
            upsample(chroma[i] + (size_t)near * width, chroma[i] + (size_t)far * width, width, first,
                     halved(tile), colour[i]);
        convert(luma + x, colour[0] + skipped, colour[1] + skipped, tile - skipped, rgb + 3 * (x - left));
        x += tile - skipped;
    }
}

static FshStatus expand(const ImageView *stored, const ImagePart *part, Image *image, FshError *error)
{
    FshStatus status = image_reserve(image, part->width, part->height, 3, error);
    for (uint32_t y = 0; y < part->height && !status; y++)
        expand_row(stored, part->top + y, part->left, part->width,
                   image->pixels + (size_t)y * part->width * 3);
    return status;
}

/* ---- the row ---- */

static const DecodedForm form = {measure_planes, write_planes, expand};

static FshStatus measure(PixelSource *source, FshError *error)
{
    return decoded_split_measure(&((DecodedSource *)source)->split, &source->options, &form, error);
}

const PixelSourceType source_planes = {
    .name = "planes",
    .option = "--cache planes",
    .instead = "--cache ram",
    .loaded = "in memory, as planes",
    .residence = PIXELS_IN_RAM,
    .evaluates = true,
    .whole = true,
    .chunk = 16,
    .bytes = sizeof(DecodedSource),
    .measure = measure,
    .load = decoded_source_load_ram,
    .tell = decoded_source_tell,
    .extent = decoded_source_extent,
    .ram_bytes = decoded_source_ram_bytes,
    .close = decoded_source_close,
    .prefetch = decoded_source_prefetch,
    .open_sample = decoded_source_open_sample,
    .render = pixel_source_render_here,
};
