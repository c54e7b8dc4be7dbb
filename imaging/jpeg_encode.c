#include "imaging/jpeg_encode.h"

#include <stdlib.h>

#include "imaging/jpeg_guard.h"

enum {
    FIRST_CAPACITY_BYTES = 64 << 10,
    MAX_ROWS_AT_ONCE = 32,
    PLANES_MAX = 3,
    GROUP_ROWS_MAX = 16,
    MAX_EXIF_BYTES = 65533 - JPEG_EXIF_SIGNATURE_BYTES, /* a marker holds 65533 bytes */
    MAX_XMP_BYTES = 65502,                              /* Adobe's specification leaves two unused */
    MAX_ICC_BYTES = 255 * (65533 - 14),                 /* the count of markers is a byte; 14 bytes of each
                                                         * are a signature */
};

struct JpegEncoder {
    JpegGuard guard;
    struct jpeg_compress_struct cinfo;
    struct jpeg_destination_mgr destination;
    bool created;
    /* arguments of the step in progress */
    const Image *image;
    const JpegSamples *planes; /* NULL: encode `image` */
    uint32_t planes_count, width, height;
    int quality;
    ImageSubsampling subsampling;
    const ImageMetadata *metadata; /* may be NULL */
    Buffer *out;
};

/* ---- libjpeg writes into the caller's buffer, which grows and is kept for the next file ---- */

static JpegEncoder *encoder_of(j_compress_ptr cinfo)
{
    return cinfo->client_data;
}

static void point_at_rest(JpegEncoder *jpeg)
{
    jpeg->destination.next_output_byte = jpeg->out->bytes + jpeg->out->length;
    jpeg->destination.free_in_buffer = jpeg->out->capacity - jpeg->out->length;
}

static void grow(JpegEncoder *jpeg, size_t capacity)
{
    FshStatus status = buffer_reserve(jpeg->out, capacity, jpeg->guard.error);
    if (status)
        jpeg_guard_fail(&jpeg->guard, status);
    point_at_rest(jpeg);
}

static void on_start(j_compress_ptr cinfo)
{
    JpegEncoder *jpeg = encoder_of(cinfo);
    jpeg->out->length = 0;
    grow(jpeg, FIRST_CAPACITY_BYTES);
}

/* Grows the buffer. libjpeg calls it when the whole buffer is used, whatever free_in_buffer says. */
static boolean on_full(j_compress_ptr cinfo)
{
    JpegEncoder *jpeg = encoder_of(cinfo);
    jpeg->out->length = jpeg->out->capacity;
    grow(jpeg, jpeg->out->capacity * 2);
    return TRUE;
}

static void on_end(j_compress_ptr cinfo)
{
    JpegEncoder *jpeg = encoder_of(cinfo);
    jpeg->out->length = jpeg->out->capacity - jpeg->destination.free_in_buffer;
}

static void step_create(void *context)
{
    JpegEncoder *jpeg = context;
    jpeg_create_compress(&jpeg->cinfo);
    jpeg->created = true;
    jpeg->destination = (struct jpeg_destination_mgr){
        .init_destination = on_start, .empty_output_buffer = on_full, .term_destination = on_end};
    jpeg->cinfo.dest = &jpeg->destination;
    jpeg->cinfo.client_data = jpeg;
}

FshStatus jpeg_encoder_new(JpegEncoder **jpeg_ret, FshError *error)
{
    JpegEncoder *jpeg = calloc(1, sizeof *jpeg);
    if (!jpeg)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a JPEG encoder");
    jpeg_guard_init(&jpeg->guard);
    jpeg->cinfo.err = &jpeg->guard.manager;
    FshStatus status = jpeg_guard(&jpeg->guard, step_create, jpeg, error);
    if (status)
        jpeg_encoder_free(&jpeg);
    *jpeg_ret = jpeg;
    return status;
}

void jpeg_encoder_free(JpegEncoder **jpeg)
{
    if (*jpeg && (*jpeg)->created)
        jpeg_destroy_compress(&(*jpeg)->cinfo);
    free(*jpeg);
    *jpeg = NULL;
}

static void write_app1(j_compress_ptr cinfo, const char *signature, size_t signature_bytes,
                       const ImageBlock *block, size_t most_bytes)
{
    if (!block->bytes || block->length > most_bytes)
        return;
    const unsigned char *bytes = block->bytes;
    jpeg_write_m_header(cinfo, JPEG_APP0 + 1, (unsigned)(signature_bytes + block->length));
    for (size_t i = 0; i < signature_bytes; i++)
        jpeg_write_m_byte(cinfo, (unsigned char)signature[i]);
    for (size_t i = 0; i < block->length; i++)
        jpeg_write_m_byte(cinfo, bytes[i]);
}

/* Writes the metadata markers. Call it after the start, which writes libjpeg's JFIF marker, and before the
 * first row. */
static void write_metadata(j_compress_ptr cinfo, const ImageMetadata *metadata)
{
    if (!metadata)
        return;
    write_app1(cinfo, JPEG_EXIF_SIGNATURE, JPEG_EXIF_SIGNATURE_BYTES, &metadata->exif, MAX_EXIF_BYTES);
    write_app1(cinfo, JPEG_XMP_SIGNATURE, JPEG_XMP_SIGNATURE_BYTES, &metadata->xmp, MAX_XMP_BYTES);
    if (metadata->icc.bytes && metadata->icc.length && metadata->icc.length <= MAX_ICC_BYTES)
        jpeg_write_icc_profile(cinfo, metadata->icc.bytes, (unsigned)metadata->icc.length);
}

static void start(JpegEncoder *jpeg, uint32_t width, uint32_t height, uint32_t channels,
                  J_COLOR_SPACE colours)
{
    struct jpeg_compress_struct *cinfo = &jpeg->cinfo;
    cinfo->image_width = width;
    cinfo->image_height = height;
    cinfo->input_components = (int)channels;
    cinfo->in_color_space = channels == 1 ? JCS_GRAYSCALE : colours;
    jpeg_set_defaults(cinfo);
    jpeg_set_quality(cinfo, jpeg->quality, TRUE);
    if (channels == 3) {
        int factor = jpeg->subsampling == IMAGE_SUBSAMPLING_420 ? 2 : 1;
        cinfo->comp_info[0].h_samp_factor = cinfo->comp_info[0].v_samp_factor = factor;
    }
    cinfo->raw_data_in = jpeg->planes != NULL;
    jpeg_start_compress(cinfo, TRUE);
    write_metadata(cinfo, jpeg->metadata);
}

static void step_encode(void *context)
{
    JpegEncoder *jpeg = context;
    struct jpeg_compress_struct *cinfo = &jpeg->cinfo;
    const Image *image = jpeg->image;
    start(jpeg, image->width, image->height, image->channels, JCS_RGB);
    size_t row_bytes = (size_t)image->width * image->channels;
    JSAMPROW rows[MAX_ROWS_AT_ONCE];
    while (cinfo->next_scanline < cinfo->image_height) {
        JDIMENSION first = cinfo->next_scanline, count = cinfo->image_height - first;
        if (count > MAX_ROWS_AT_ONCE)
            count = MAX_ROWS_AT_ONCE;
        for (JDIMENSION i = 0; i < count; i++)
            rows[i] = image->pixels + (first + i) * row_bytes; /* libjpeg only reads them */
        (void)jpeg_write_scanlines(cinfo, rows, count);
    }
    jpeg_finish_compress(cinfo);
}

/* Encodes groups of rows: eight or sixteen of Y, eight of Cb and Cr. The last row is repeated to fill the
 * last group. */
static void step_encode_planes(void *context)
{
    JpegEncoder *jpeg = context;
    struct jpeg_compress_struct *cinfo = &jpeg->cinfo;
    start(jpeg, jpeg->width, jpeg->height, jpeg->planes_count, JCS_YCbCr);
    JSAMPROW rows[PLANES_MAX][GROUP_ROWS_MAX];
    JSAMPARRAY planes[PLANES_MAX] = {rows[0], rows[1], rows[2]};
    for (JDIMENSION group = 0; cinfo->next_scanline < cinfo->image_height; group++) {
        for (uint32_t i = 0; i < jpeg->planes_count; i++) {
            const jpeg_component_info *component = &cinfo->comp_info[i];
            JDIMENSION count = (JDIMENSION)component->v_samp_factor * DCTSIZE;
            JDIMENSION last = (cinfo->image_height * (JDIMENSION)component->v_samp_factor +
                               (JDIMENSION)cinfo->max_v_samp_factor - 1) /
                                  (JDIMENSION)cinfo->max_v_samp_factor -
                              1;
            for (JDIMENSION y = 0; y < count; y++) {
                JDIMENSION row = group * count + y < last ? group * count + y : last;
                rows[i][y] = jpeg->planes[i].samples + row * jpeg->planes[i].stride_bytes;
            }
        }
        (void)jpeg_write_raw_data(cinfo, planes, (JDIMENSION)cinfo->max_v_samp_factor * DCTSIZE);
    }
    jpeg_finish_compress(cinfo);
}

static FshStatus encode(JpegEncoder *jpeg, void (*step)(void *context), int quality,
                        ImageSubsampling subsampling, const ImageMetadata *metadata, Buffer *out,
                        FshError *error)
{
    jpeg->quality = quality;
    jpeg->subsampling = subsampling;
    jpeg->metadata = metadata;
    jpeg->out = out;
    jpeg_guard_reset(&jpeg->guard, true);
    FshStatus status = jpeg_guard(&jpeg->guard, step, jpeg, error);
    if (status)
        jpeg_abort_compress(&jpeg->cinfo);
    return status;
}

FshStatus jpeg_encoder_encode(JpegEncoder *jpeg, const Image *image, int quality,
                              ImageSubsampling subsampling, const ImageMetadata *metadata, Buffer *out,
                              FshError *error)
{
    jpeg->image = image;
    jpeg->planes = NULL;
    return encode(jpeg, step_encode, quality, subsampling, metadata, out, error);
}

FshStatus jpeg_encoder_encode_planes(JpegEncoder *jpeg, const JpegSamples *planes, uint32_t planes_count,
                                     uint32_t width, uint32_t height, int quality,
                                     ImageSubsampling subsampling, const ImageMetadata *metadata, Buffer *out,
                                     FshError *error)
{
    jpeg->planes = planes;
    jpeg->planes_count = planes_count;
    jpeg->width = width;
    jpeg->height = height;
    return encode(jpeg, step_encode_planes, quality, subsampling, metadata, out, error);
}
