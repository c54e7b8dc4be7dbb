#include "imaging/jpeg_decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "imaging/exif.h"
#include "imaging/icc.h"
#include "imaging/jpeg_guard.h"
#include "imaging/jpeg_huffman.h"
#include "imaging/jpeg_markers.h"

enum {
    /* A progressive file may repeat scans over the whole image as often as it likes; each costs a pass over
     * all coefficients. Real files have about ten. libjpeg-turbo's own fuzzers stop at this number too. */
    MAX_SCANS = 500,
    MAX_ROWS_AT_ONCE = 4, /* libjpeg reads no more in one call */
    /* On x86 libjpeg-turbo writes a row that begins at a multiple of 16 (SSE2) or 32 (AVX2) past the caches,
     * to memory, and waits for it: a small image takes 1.5 times as long as with rows that begin elsewhere,
     * and the next reader of the pixels waits again. Such rows are first decoded to a buffer that begins
     * here. */
    STREAMED_ALIGNMENT = 16,
    UNALIGNED = 8,
    /* Colour planes are upsampled from neighbours, and libjpeg treats a cut as the image's edge. Pixels at
     * least this far from the cut are right. */
    CUT_MARGIN = 2,
};

struct JpegDecoder {
    JpegGuard guard;
    struct jpeg_decompress_struct cinfo;
    struct jpeg_progress_mgr progress;
    JpegHuffman *huffman;
    bool created;
    bool plain;          /* libjpeg reads the codes: ours gave up */
    Buffer between;      /* rows decoded elsewhere first: STREAMED_ALIGNMENT */
    JpegMarkers markers; /* of the current file, while its bytes are there */
    Buffer exif, xmp;    /* of the current file */
    Buffer profile;      /* of the current file; empty: none that applies */
    /* arguments of the step in progress */
    const unsigned char *bytes;
    unsigned long length;
    ImageInfo *info;
    Image *image;
    uint32_t channels, least_width, least_height;
    const ImagePart *part; /* NULL: the whole image */
    ImagePlace *place;
    /* planes */
    bool header_waits; /* a header was read, its pixels were not */
    bool in_planes;    /* decode planes, at these scales: */
    uint32_t eighths[JPEG_PLANES_MAX];
    uint32_t next_group;
    uint8_t *const *group_rows;
    const size_t *group_strides;
    void (*realize_virt_arrays)(j_common_ptr cinfo); /* libjpeg's own */
};

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const char *jpeg_library_version(void)
{
    return "libjpeg-turbo " TEXT(LIBJPEG_TURBO_VERSION);
}

/* Refuses too many scans. libjpeg calls it for each row of blocks it reads. */
static void on_progress(j_common_ptr common)
{
    if (((j_decompress_ptr)common)->input_scan_number <= MAX_SCANS)
        return;
    JpegGuard *guard = (JpegGuard *)(void *)common->err;
    jpeg_guard_fail(guard,
                    fsh_error_set(guard->error, FSH_ERR_CORRUPT,
                                  "a progressive JPEG of more than %d scans; refused as a decompression bomb",
                                  MAX_SCANS));
}

/* Sets who reads the Huffman codes, and the scale of each plane. libjpeg scales all components alike
 * (subsampled ones less, to spare the upsampling); we want each plane at the scale that its own resampling
 * needs, half as large for colour that ends up subsampled. The scales may be set between the computation of
 * the output's dimensions and the choice of the inverse transforms. Both happen in jpeg_start_decompress,
 * and of what it calls in between, the request for memory is the one function that we may replace: by
 * this. */
static void on_realize(j_common_ptr common)
{
    JpegDecoder *jpeg = common->client_data;
    if (!jpeg->plain)
        jpeg_huffman_attach(jpeg->huffman, &jpeg->cinfo);
    for (int i = 0; jpeg->in_planes && i < jpeg->cinfo.num_components; i++) {
        jpeg_component_info *component = &jpeg->cinfo.comp_info[i];
#if JPEG_LIB_VERSION >= 70
        component->DCT_h_scaled_size = component->DCT_v_scaled_size = (int)jpeg->eighths[i];
#else
        component->DCT_scaled_size = (int)jpeg->eighths[i];
#endif
    }
    jpeg->realize_virt_arrays(common);
}

/* Reads an APP1 or APP2 marker. libjpeg skips all other APPn and COM markers in one step each. */
static boolean on_marker(j_decompress_ptr cinfo)
{
    JpegDecoder *jpeg = cinfo->client_data;
    return jpeg_markers_take(&jpeg->markers, cinfo);
}

static void step_create(void *context)
{
    JpegDecoder *jpeg = context;
    jpeg_create_decompress(&jpeg->cinfo);
    jpeg->created = true;
    jpeg->cinfo.client_data = jpeg;
    jpeg->realize_virt_arrays = jpeg->cinfo.mem->realize_virt_arrays;
    jpeg->cinfo.mem->realize_virt_arrays = on_realize;
    jpeg->cinfo.progress = &jpeg->progress;
    /* these settings outlive each file */
    jpeg_set_marker_processor(&jpeg->cinfo, JPEG_APP0 + 1, on_marker); /* EXIF, XMP */
    jpeg_set_marker_processor(&jpeg->cinfo, JPEG_APP0 + 2, on_marker); /* ICC profile */
}

FshStatus jpeg_decoder_new(JpegDecoder **jpeg_ret, FshError *error)
{
    JpegDecoder *jpeg = calloc(1, sizeof *jpeg);
    if (!jpeg)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a JPEG decoder");
    jpeg_guard_init(&jpeg->guard);
    jpeg->cinfo.err = &jpeg->guard.manager;
    jpeg->progress.progress_monitor = on_progress;
    FshStatus status = jpeg_huffman_new(&jpeg->huffman, error);
    if (!status)
        status = jpeg_guard(&jpeg->guard, step_create, jpeg, error);
    if (status)
        jpeg_decoder_free(&jpeg);
    *jpeg_ret = jpeg;
    return status;
}

void jpeg_decoder_free(JpegDecoder **jpeg)
{
    if (*jpeg && (*jpeg)->created)
        jpeg_destroy_decompress(&(*jpeg)->cinfo);
    if (*jpeg) {
        jpeg_huffman_free(&(*jpeg)->huffman);
        buffer_free(&(*jpeg)->profile);
        buffer_free(&(*jpeg)->between);
        buffer_free(&(*jpeg)->exif);
        buffer_free(&(*jpeg)->xmp);
    }
    free(*jpeg);
    *jpeg = NULL;
}

/* Copies a block, whose bytes belong to the file, into `copy`. */
static void keep_block(JpegDecoder *jpeg, const ImageBlock *block, Buffer *copy)
{
    copy->length = 0;
    FshStatus status = buffer_append(copy, block->bytes, block->length, jpeg->guard.error);
    if (status)
        jpeg_guard_fail(&jpeg->guard, status);
}

static void find_orientation(JpegDecoder *jpeg, ImageInfo *info)
{
    bool damaged = false;
    info->orientation = 1;
    if (!jpeg->markers.exif.bytes)
        return;
    info->orientation = exif_orientation(jpeg->exif.bytes, jpeg->exif.length, &damaged);
    if (damaged)
        info->quirks |= IMAGE_QUIRK_WARNING;
}

/* Keeps the profile if it is for this file's colours. */
static void find_profile(JpegDecoder *jpeg)
{
    Buffer *profile = &jpeg->profile;
    bool damaged = false;
    FshStatus status = jpeg_markers_join_profile(&jpeg->markers, profile, &damaged, jpeg->guard.error);
    if (status)
        jpeg_guard_fail(&jpeg->guard, status);
    if (damaged)
        jpeg->info->quirks |= IMAGE_QUIRK_WARNING;
    bool cmyk = jpeg->info->quirks & IMAGE_QUIRK_CMYK; /* libvips reads those profiles itself */
    if (cmyk || !icc_profile_matches(profile->bytes, profile->length, jpeg->info->channels))
        profile->length = 0;
    else if (!icc_profile_is_srgb(profile->bytes, profile->length))
        jpeg->info->quirks |= IMAGE_QUIRK_ICC;
}

const void *jpeg_decoder_profile(const JpegDecoder *jpeg, size_t *length_ret)
{
    *length_ret = jpeg->profile.length;
    return jpeg->profile.length ? jpeg->profile.bytes : NULL;
}

static ImageBlock block_of(const void *bytes, size_t length)
{
    return (ImageBlock){length ? bytes : NULL, length};
}

void jpeg_decoder_metadata(const JpegDecoder *jpeg, ImageMetadata *metadata)
{
    *metadata = (ImageMetadata){
        .exif = block_of(jpeg->exif.bytes, jpeg->exif.length),
        .icc = block_of(jpeg->profile.bytes, jpeg->profile.length),
        .xmp = block_of(jpeg->xmp.bytes, jpeg->xmp.length),
    };
}

static void fill_info(JpegDecoder *jpeg)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    ImageInfo *info = jpeg->info;
    info->stored_width = cinfo->image_width;
    info->stored_height = cinfo->image_height;
    info->channels = cinfo->num_components == 1 ? 1 : 3;
    if (info->channels == 1)
        info->quirks |= IMAGE_QUIRK_GRAY;
    if (cinfo->num_components == 4)
        info->quirks |= IMAGE_QUIRK_CMYK;
    if (cinfo->progressive_mode)
        info->quirks |= IMAGE_QUIRK_PROGRESSIVE;
    if (cinfo->arith_code)
        info->quirks |= IMAGE_QUIRK_ARITHMETIC;
    keep_block(jpeg, &jpeg->markers.exif, &jpeg->exif);
    keep_block(jpeg, &jpeg->markers.xmp, &jpeg->xmp);
    find_orientation(jpeg, info);
    if (info->orientation != 1)
        info->quirks |= IMAGE_QUIRK_ORIENTATION;
    bool turned = info->orientation >= 5;
    info->width = turned ? info->stored_height : info->stored_width;
    info->height = turned ? info->stored_width : info->stored_height;
}

static void step_header(void *context)
{
    JpegDecoder *jpeg = context;
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    jpeg_mem_src(cinfo, jpeg->bytes, jpeg->length);
    (void)jpeg_read_header(cinfo, TRUE);
    fill_info(jpeg);
    if (cinfo->num_components != 1 && cinfo->num_components != 3 && cinfo->num_components != 4)
        jpeg_guard_fail(&jpeg->guard, fsh_error_set(jpeg->guard.error, FSH_ERR_UNSUPPORTED,
                                                    "a JPEG of %d components; gray, RGB and CMYK are known",
                                                    cinfo->num_components));
    find_profile(jpeg);
}

FshStatus jpeg_decoder_header(JpegDecoder *jpeg, const void *bytes, size_t length, bool strict,
                              ImageInfo *info, FshError *error)
{
    jpeg_abort_decompress(&jpeg->cinfo); /* drops what the last file left */
    jpeg->bytes = bytes;
    jpeg->length = length;
    jpeg->info = info;
    jpeg->in_planes = jpeg->plain = false;
    jpeg->markers = (JpegMarkers){0};
    *info = (ImageInfo){.format = IMAGE_JPEG, .orientation = 1};
    jpeg_guard_reset(&jpeg->guard, strict);
    FshStatus status = jpeg_guard(&jpeg->guard, step_header, jpeg, error);
    jpeg->header_waits = !status;
    if (status)
        jpeg_abort_decompress(&jpeg->cinfo);
    return status;
}

/* Reads the header again, whose findings are kept, for a step that begins anew. */
static void step_header_again(void *context)
{
    JpegDecoder *jpeg = context;
    jpeg_mem_src(&jpeg->cinfo, jpeg->bytes, jpeg->length);
    (void)jpeg_read_header(&jpeg->cinfo, TRUE);
}

/* Begins anew, for libjpeg to read the codes by itself. */
static FshStatus begin_plain(JpegDecoder *jpeg, FshError *error)
{
    const bool strict = jpeg->guard.strict;
    if (error)
        *error = (FshError){0};
    jpeg_abort_decompress(&jpeg->cinfo);
    jpeg->plain = true;
    jpeg->markers = (JpegMarkers){0};
    jpeg_guard_reset(&jpeg->guard, false); /* the header has passed */
    FshStatus status = jpeg_guard(&jpeg->guard, step_header_again, jpeg, error);
    jpeg->guard.strict = strict;
    return status;
}

/* Runs a step that reads the whole image or a part. Codes that are not in order are read by libjpeg. */
static FshStatus run_step(JpegDecoder *jpeg, void (*step)(void *context), FshError *error)
{
    FshStatus status = jpeg_guard(&jpeg->guard, step, jpeg, error);
    if (status && !jpeg->plain && jpeg_huffman_gave_up(jpeg->huffman)) {
        status = begin_plain(jpeg, error);
        if (!status)
            status = jpeg_guard(&jpeg->guard, step, jpeg, error);
    }
    if (status)
        jpeg_abort_decompress(&jpeg->cinfo);
    return status;
}

/* Returns the smallest of 1/8, 1/4, 1/2 and 1, in eighths, that keeps enough pixels on both edges. */
static unsigned scale_eighths(const JpegDecoder *jpeg)
{
    if (!jpeg->least_width || !jpeg->least_height)
        return 8;
    for (unsigned eighths = 1; eighths < 8; eighths *= 2) {
        uint64_t width = (uint64_t)jpeg->cinfo.image_width * eighths / 8;
        uint64_t height = (uint64_t)jpeg->cinfo.image_height * eighths / 8;
        if (width >= jpeg->least_width && height >= jpeg->least_height)
            return eighths;
    }
    return 8;
}

static uint32_t least_u32(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

/* Restricts reading to the columns of the part, and skips the rows above it. Returns the row after the part's
 * last. */
static JDIMENSION begin_part(JpegDecoder *jpeg)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    const ImagePart *part = jpeg->part;
    uint64_t eighths = cinfo->scale_num;
    JDIMENSION left = (JDIMENSION)(part->left * eighths / 8), top = (JDIMENSION)(part->top * eighths / 8);
    left -= least_u32(left, CUT_MARGIN);
    uint64_t right = (((uint64_t)part->left + part->width) * eighths + 7) / 8 + CUT_MARGIN;
    uint64_t bottom = (((uint64_t)part->top + part->height) * eighths + 7) / 8;
    JDIMENSION end = least_u32(bottom, cinfo->output_height);
    JDIMENSION width = least_u32(right, cinfo->output_width) - left;
    jpeg_crop_scanline(cinfo, &left, &width);
    if (top)
        (void)jpeg_skip_scanlines(cinfo, top);
    *jpeg->place = (ImagePlace){.left = left, .top = top, .eighths = (uint32_t)eighths};
    return end;
}

static size_t between_stride(size_t row_bytes)
{
    return (row_bytes + UNALIGNED + STREAMED_ALIGNMENT - 1) / STREAMED_ALIGNMENT * STREAMED_ALIGNMENT;
}

/* Reads at most `count` rows into target, one after another. */
static void read_rows(JpegDecoder *jpeg, uint8_t *target, size_t row_bytes, JDIMENSION count)
{
    JSAMPROW rows[MAX_ROWS_AT_ONCE];
    for (JDIMENSION i = 0; i < count; i++) {
        uint8_t *row = target + i * row_bytes;
        const bool streamed = (uintptr_t)row % STREAMED_ALIGNMENT == 0;
        rows[i] = streamed ? jpeg->between.bytes + i * between_stride(row_bytes) + UNALIGNED : row;
    }
    count = jpeg_read_scanlines(&jpeg->cinfo, rows, count);
    for (JDIMENSION i = 0; i < count; i++) {
        if (rows[i] != target + i * row_bytes)
            memcpy(target + i * row_bytes, rows[i], row_bytes);
    }
}

/* Returns whether all of the image has come: each component in a scan, and in a progressive file each
 * coefficient down to its last bit. A file cut between two scans and then closed properly lacks some. libjpeg
 * does not report that: it invents them, smoothly, each version differently. */
static bool has_all_scans(const struct jpeg_decompress_struct *cinfo)
{
    for (int i = 0; i < cinfo->num_components; i++) {
        if (!cinfo->comp_info[i].quant_table) /* libjpeg copies it at the component's first scan */
            return false;
        for (int k = 0; k < DCTSIZE2 && cinfo->coef_bits; k++) {
            if (cinfo->coef_bits[i][k] != 0)
                return false;
        }
    }
    return true;
}

/* Runs jpeg_start_decompress, which reads all scans of a file that has several, and warns if scans are
 * missing. */
static void start_decompress(JpegDecoder *jpeg)
{
    (void)jpeg_start_decompress(&jpeg->cinfo);
    if (!has_all_scans(&jpeg->cinfo))
        jpeg_guard_warn(&jpeg->guard, FSH_ERR_CORRUPT,
                        "scans are missing: parts of its colours or of its detail are not in the file");
}

static void step_pixels(void *context)
{
    JpegDecoder *jpeg = context;
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    cinfo->out_color_space = jpeg->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    cinfo->scale_num = scale_eighths(jpeg);
    cinfo->scale_denom = 8;
    start_decompress(jpeg);
    JDIMENSION end = jpeg->part ? begin_part(jpeg) : cinfo->output_height, begin = cinfo->output_scanline;
    if (image_reserve(jpeg->image, cinfo->output_width, end - begin, jpeg->channels, jpeg->guard.error))
        jpeg_guard_fail(&jpeg->guard, FSH_ERR_MEMORY);
    const size_t row_bytes = (size_t)jpeg->image->width * jpeg->channels;
    if (buffer_reserve(&jpeg->between, MAX_ROWS_AT_ONCE * between_stride(row_bytes), jpeg->guard.error))
        jpeg_guard_fail(&jpeg->guard, FSH_ERR_MEMORY);
    while (cinfo->output_scanline < end) {
        const JDIMENSION left = end - cinfo->output_scanline;
        read_rows(jpeg, jpeg->image->pixels + (cinfo->output_scanline - begin) * row_bytes, row_bytes,
                  left < MAX_ROWS_AT_ONCE ? left : MAX_ROWS_AT_ONCE);
    }
    if (jpeg->part)
        jpeg_abort_decompress(cinfo); /* the rest is not read */
    else
        (void)jpeg_finish_decompress(cinfo);
}

static FshStatus read_pixels(JpegDecoder *jpeg, uint32_t channels, uint32_t least_width,
                             uint32_t least_height, Image *image, ImageInfo *info, FshError *error)
{
    jpeg->channels = channels;
    jpeg->least_width = least_width;
    jpeg->least_height = least_height;
    jpeg->image = image;
    jpeg->info = info;
    jpeg->header_waits = false;
    FshStatus status = run_step(jpeg, step_pixels, error);
    if (jpeg->guard.warnings_count)
        info->quirks |= IMAGE_QUIRK_WARNING;
    return status;
}

static void step_check(void *context)
{
    JpegDecoder *jpeg = context;
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    cinfo->out_color_space = cinfo->jpeg_color_space;
    cinfo->scale_num = 1; /* reads all codes and makes few pixels */
    cinfo->scale_denom = 8;
    start_decompress(jpeg);
    if (buffer_reserve(&jpeg->between, (size_t)cinfo->output_width * (size_t)cinfo->output_components,
                       jpeg->guard.error))
        jpeg_guard_fail(&jpeg->guard, FSH_ERR_MEMORY);
    JSAMPROW row = jpeg->between.bytes;
    while (cinfo->output_scanline < cinfo->output_height)
        (void)jpeg_read_scanlines(cinfo, &row, 1);
    (void)jpeg_finish_decompress(cinfo);
}

FshStatus jpeg_decoder_check(JpegDecoder *jpeg, ImageInfo *info, FshError *error)
{
    jpeg->header_waits = false;
    FshStatus status = run_step(jpeg, step_check, error);
    if (jpeg->guard.warnings_count)
        info->quirks |= IMAGE_QUIRK_WARNING;
    return status;
}

FshStatus jpeg_decoder_pixels(JpegDecoder *jpeg, uint32_t channels, uint32_t least_width,
                              uint32_t least_height, Image *image, ImageInfo *info, FshError *error)
{
    jpeg->part = NULL;
    return read_pixels(jpeg, channels, least_width, least_height, image, info, error);
}

FshStatus jpeg_decoder_part(JpegDecoder *jpeg, uint32_t channels, uint32_t least_width, uint32_t least_height,
                            const ImagePart *part, Image *image, ImagePlace *place, ImageInfo *info,
                            FshError *error)
{
    const struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    if (part->width == 0 || part->height == 0 || (uint64_t)part->left + part->width > cinfo->image_width ||
        (uint64_t)part->top + part->height > cinfo->image_height)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "a part of %u x %u pixels at (%u, %u) is not within %u x %u", part->width,
                             part->height, part->left, part->top, cinfo->image_width, cinfo->image_height);
    jpeg->part = part;
    jpeg->place = place;
    return read_pixels(jpeg, channels, least_width, least_height, image, info, error);
}

/* ---- planes ---- */

uint32_t jpeg_decoder_planes_count(const JpegDecoder *jpeg)
{
    const struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    if (!jpeg->header_waits)
        return 0;
    if (cinfo->num_components == 1 && cinfo->jpeg_color_space == JCS_GRAYSCALE)
        return 1;
    return cinfo->num_components == 3 && cinfo->jpeg_color_space == JCS_YCbCr ? 3 : 0;
}

void jpeg_decoder_plane(const JpegDecoder *jpeg, uint32_t index, uint32_t eighths, JpegPlane *plane)
{
    const struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    const jpeg_component_info *component = &cinfo->comp_info[index];
    double per_column =
        (double)(component->h_samp_factor * (int)eighths) / (cinfo->max_h_samp_factor * DCTSIZE);
    double per_row = (double)(component->v_samp_factor * (int)eighths) / (cinfo->max_v_samp_factor * DCTSIZE);
    *plane = (JpegPlane){
        .covered_width = cinfo->image_width * per_column,
        .covered_height = cinfo->image_height * per_row,
        .row_bytes = component->width_in_blocks * eighths,
        .group_rows = (uint32_t)component->v_samp_factor * eighths,
    };
    plane->width = (uint32_t)ceil(plane->covered_width);
    plane->height = (uint32_t)ceil(plane->covered_height);
}

uint32_t jpeg_decoder_groups_count(const JpegDecoder *jpeg)
{
    return jpeg->cinfo.total_iMCU_rows;
}

static void step_planes_start(void *context)
{
    JpegDecoder *jpeg = context;
    jpeg->cinfo.raw_data_out = TRUE;
    jpeg->cinfo.scale_num = jpeg->cinfo.scale_denom = 1; /* on_realize sets the real scales */
    jpeg->cinfo.out_color_space = jpeg->cinfo.jpeg_color_space;
    start_decompress(jpeg);
}

FshStatus jpeg_decoder_planes_start(JpegDecoder *jpeg, const uint32_t eighths[JPEG_PLANES_MAX], bool strict,
                                    FshError *error)
{
    memcpy(jpeg->eighths, eighths, sizeof jpeg->eighths);
    jpeg->in_planes = true;
    jpeg->header_waits = false;
    jpeg->next_group = 0;
    jpeg->guard.strict = strict; /* the warnings of the header still count */
    FshStatus status = jpeg_guard(&jpeg->guard, step_planes_start, jpeg, error);
    if (status)
        jpeg_abort_decompress(&jpeg->cinfo);
    return status;
}

static void step_planes_next(void *context)
{
    JpegDecoder *jpeg = context;
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    JSAMPROW rows[JPEG_PLANES_MAX][JPEG_GROUP_ROWS_MAX];
    JSAMPARRAY planes[JPEG_PLANES_MAX] = {rows[0], rows[1], rows[2]};
    for (int i = 0; i < cinfo->num_components; i++) {
        uint32_t count = (uint32_t)cinfo->comp_info[i].v_samp_factor * jpeg->eighths[i];
        for (uint32_t y = 0; y < count; y++)
            rows[i][y] = jpeg->group_rows[i] + y * jpeg->group_strides[i];
    }
    (void)jpeg_read_raw_data(cinfo, planes, (JDIMENSION)cinfo->max_v_samp_factor * DCTSIZE);
    if (++jpeg->next_group == cinfo->total_iMCU_rows)
        (void)jpeg_finish_decompress(cinfo);
}

/* Decodes the groups up to the current one anew, with libjpeg alone. Those before it are as they were, and
 * each goes where the current one is to go. */
static FshStatus planes_again(JpegDecoder *jpeg, FshError *error)
{
    const uint32_t current = jpeg->next_group;
    FshStatus status = begin_plain(jpeg, error);
    if (!status)
        status = jpeg_guard(&jpeg->guard, step_planes_start, jpeg, error);
    for (jpeg->next_group = 0; !status && jpeg->next_group <= current;)
        status = jpeg_guard(&jpeg->guard, step_planes_next, jpeg, error);
    return status;
}

FshStatus jpeg_decoder_planes_next(JpegDecoder *jpeg, uint8_t *const rows[JPEG_PLANES_MAX],
                                   const size_t strides[JPEG_PLANES_MAX], uint32_t *quirks, FshError *error)
{
    jpeg->group_rows = rows;
    jpeg->group_strides = strides;
    FshStatus status = jpeg_guard(&jpeg->guard, step_planes_next, jpeg, error);
    if (status && !jpeg->plain && jpeg_huffman_gave_up(jpeg->huffman))
        status = planes_again(jpeg, error);
    if (status)
        jpeg_abort_decompress(&jpeg->cinfo);
    if (jpeg->guard.warnings_count)
        *quirks |= IMAGE_QUIRK_WARNING;
    return status;
}
