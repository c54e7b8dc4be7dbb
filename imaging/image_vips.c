/* image_vips.c - the libvips plugin: every format but plain JPEG, and colours that need a profile.
 *
 * libvips is set up for one image per thread: no threads of its own; no operation cache, since no file comes
 * twice; pixels are pulled strip by strip in the calling thread. All threads share its error buffer, so a
 * call that failed is repeated while no other runs, and the reason in the buffer is then that of its image
 * (call_for_reason). */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <vips/vips.h>

#include "imaging/exif.h"
#include "imaging/gif_check.h"
#include "imaging/icc.h"
#include "imaging/image_plugin.h"
#include "imaging/image_tiff.h"
#include "imaging/image_webp.h"
#include "imaging/orient.h"
#include "imaging/vips_colour.h"
#include "imaging/vips_notes.h"

enum { STRIP_ROWS = 64 };

/* Loaders, chosen by the format we sniffed and not by libvips' own guess, so that content never reaches a
 * loader of documents (PDF, SVG). */
static const struct {
    const char *loader;           /* libvips' operation */
    const char *domain;           /* what its error lines begin with */
    int least_major, least_minor; /* older libvips is refused: it writes out of bounds on such files */
} loaders[] = {
    [IMAGE_JPEG] = {.loader = "jpegload_buffer", .domain = "VipsJpeg"},
    [IMAGE_PNG] = {.loader = "pngload_buffer", .domain = "png"},
    [IMAGE_WEBP] = {.loader = "webpload_buffer", .domain = "webp"},
    [IMAGE_TIFF] = {.loader = "tiffload_buffer", .domain = "tiff"},
    [IMAGE_GIF] = {.loader = "gifload_buffer", .domain = "gif"},
    [IMAGE_BMP] = {.loader = "magickload_buffer", .domain = "magick"},
    [IMAGE_TGA] = {.loader = "magickload_buffer", .domain = "magick"},
    [IMAGE_HEIF] = {.loader = "heifload_buffer", .domain = "heif"},
    /* https://github.com/libvips/libvips/issues/4154, in 8.12 to 8.15 */
    [IMAGE_JPEG2000] = {.loader = "jp2kload_buffer", .domain = "jp2k", .least_major = 8, .least_minor = 16},
    [IMAGE_OTHER] = {.loader = "jxlload_buffer", .domain = "jxl"},
};

/* ---- headers ---- */

/* Removes the samples that, as the file says, are neither colour nor alpha. */
static FshStatus drop_samples(const TiffFacts *facts, VipsImage **image, FshError *error)
{
    VipsImage *whole = *image;
    if (!facts->kept_count || facts->samples_count <= facts->kept_count ||
        whole->Bands != facts->samples_count)
        return FSH_OK;
    *image = NULL;
    const int failed = vips_extract_band(whole, image, 0, "n", facts->kept_count, NULL);
    g_object_unref(whole);
    return failed ? notes_failure(FSH_ERR_LIBRARY, "extract_band", error) : FSH_OK;
}

/* Makes a gray TGA gray again, which ImageMagick gives as RGB. Refuses gray with alpha, which ImageMagick
 * takes for 15-bit colour. */
static FshStatus mend_tga(const uint8_t *bytes, VipsImage **image, FshError *error)
{
    enum { GRAY = 3, GRAY_RUN_LENGTHS = 11 };
    const bool is_gray =
        bytes[2] == GRAY || bytes[2] == GRAY_RUN_LENGTHS; /* image_is_tga has checked the header */
    if (!is_gray)
        return FSH_OK;
    if (bytes[16] != 8)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "a gray TGA with alpha cannot be read; convert it to PNG");
    VipsImage *whole = *image;
    *image = NULL;
    const int failed = vips_extract_band(whole, image, 0, NULL);
    g_object_unref(whole);
    if (failed)
        return notes_failure(FSH_ERR_LIBRARY, "extract_band", error);
    (*image)->Type =
        (*image)->BandFmt == VIPS_FORMAT_USHORT ? VIPS_INTERPRETATION_GREY16 : VIPS_INTERPRETATION_B_W;
    return FSH_OK;
}

/* Opens the header; pixels are decoded when they are pulled. with_pixels: they will be. */
static FshStatus open_image(const void *bytes, size_t length, ImageFormat format, bool with_pixels,
                            VipsFailOn fail_on, VipsImage **image, FshError *error)
{
    const char *loader = loaders[format].loader;
    TiffFacts facts = {0};
    *image = NULL;
    if (!loader || !vips_type_find("VipsOperation", loader))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "libvips %s here was built without a reader for %s",
                             vips_version_string(), image_format_name(format));
    int major = loaders[format].least_major, minor = loaders[format].least_minor;
    if (vips_version(0) < major || (vips_version(0) == major && vips_version(1) < minor))
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "libvips %s reads %s unsafely, %d.%d is the first that does not; convert the file",
            vips_version_string(), image_format_name(format), major, minor);
    if (format == IMAGE_TIFF)
        tiff_describe(bytes, length, &facts);
    if (facts.needs_libtiff)
        return tiff_open(bytes, length, with_pixels, fail_on != VIPS_FAIL_ON_NONE, image, error);
    /* libvips borrows the bytes and only reads them */
    VipsBlob *blob = vips_blob_new(NULL, bytes, length);
    int failed = vips_call(loader, blob, image, "access", VIPS_ACCESS_SEQUENTIAL, "fail_on", fail_on, NULL);
    vips_area_unref(VIPS_AREA(blob));
    if (failed)
        return notes_failure(FSH_ERR_CORRUPT, loaders[format].domain, error);
    return format == IMAGE_TGA ? mend_tga(bytes, image, error) : drop_samples(&facts, image, error);
}

/* Returns the orientation as libvips read it. PNG and WebP files may have it in EXIF only. HEIF is turned by
 * its loader. */
static uint8_t find_orientation(VipsImage *image, ImageFormat format, ImageInfo *info)
{
    if (vips_image_get_typeof(image, VIPS_META_ORIENTATION)) {
        int orientation = vips_image_get_orientation(image);
        return (uint8_t)(orientation >= 1 && orientation <= 8 ? orientation : 1);
    }
    const void *exif = NULL;
    size_t length = 0;
    if ((format != IMAGE_PNG && format != IMAGE_WEBP) || !vips_image_get_typeof(image, VIPS_META_EXIF_NAME) ||
        vips_image_get_blob(image, VIPS_META_EXIF_NAME, &exif, &length))
        return 1;
    bool damaged = false;
    uint8_t orientation = exif_orientation(exif, length, &damaged);
    if (damaged)
        info->quirks |= IMAGE_QUIRK_WARNING;
    return orientation;
}

/* Returns whether the image has an embedded profile that is for its colours and would change them. */
static bool has_profile(VipsImage *image)
{
    const void *profile = NULL;
    size_t length = 0;
    return vips_image_get_typeof(image, VIPS_META_ICC_NAME) &&
           !vips_image_get_blob(image, VIPS_META_ICC_NAME, &profile, &length) &&
           icc_profile_matches(profile, length, vips_colour_bands(image) == 1 ? 1 : 3) &&
           !icc_profile_is_srgb(profile, length);
}

/* Returns whether a PNG is animated (APNG): a chunk before the pixels tells. */
static bool png_is_animated(const uint8_t *bytes, size_t length)
{
    size_t at = 8, chunk = 0;
    for (; length - at >= 12; at += chunk) {
        if (memcmp(bytes + at + 4, "acTL", 4) == 0)
            return true;
        chunk = 12 + ((size_t)bytes[at] << 24 | (size_t)bytes[at + 1] << 16 | (size_t)bytes[at + 2] << 8 |
                      bytes[at + 3]);
        if (chunk > length - at || memcmp(bytes + at + 4, "IDAT", 4) == 0)
            return false;
    }
    return false;
}

static bool is_animated(VipsImage *image, const void *bytes, size_t length, ImageFormat format)
{
    if (format == IMAGE_PNG)
        return png_is_animated(bytes, length);
    return (format == IMAGE_GIF || format == IMAGE_WEBP) && vips_image_get_n_pages(image) > 1;
}

static void fill_info(VipsImage *image, const void *bytes, size_t length, ImageFormat format, ImageInfo *info)
{
    *info = (ImageInfo){.format = format};
    info->stored_width = (uint32_t)image->Xsize;
    info->stored_height = (uint32_t)image->Ysize;
    info->channels = vips_colour_bands(image) == 1 ? 1 : 3;
    info->orientation = find_orientation(image, format, info);
    bool turned = info->orientation >= 5;
    info->width = turned ? info->stored_height : info->stored_width;
    info->height = turned ? info->stored_width : info->stored_height;
    if (info->channels == 1)
        info->quirks |= IMAGE_QUIRK_GRAY;
    if (vips_colour_is_cmyk(image))
        info->quirks |= IMAGE_QUIRK_CMYK;
    if (vips_image_hasalpha(image))
        info->quirks |= IMAGE_QUIRK_ALPHA;
    if (image->BandFmt != VIPS_FORMAT_UCHAR)
        info->quirks |= IMAGE_QUIRK_16BIT;
    if (vips_image_get_typeof(image, "palette-bit-depth"))
        info->quirks |= IMAGE_QUIRK_PALETTE;
    if (!vips_colour_is_cmyk(image) && has_profile(image))
        info->quirks |= IMAGE_QUIRK_ICC;
    if (info->orientation != 1)
        info->quirks |= IMAGE_QUIRK_ORIENTATION;
    if (is_animated(image, bytes, length, format))
        info->quirks |= IMAGE_QUIRK_ANIMATION;
}

static FshStatus keep_block(VipsImage *image, const char *name, Buffer *room, ImageBlock *block,
                            FshError *error)
{
    const void *bytes = NULL;
    size_t length = 0;
    if (!vips_image_get_typeof(image, name) || vips_image_get_blob(image, name, &bytes, &length))
        return FSH_OK;
    if (strcmp(name, VIPS_META_EXIF_NAME) == 0) {
        size_t prefix = exif_prefix_bytes(bytes, length);
        bytes = (const uint8_t *)bytes + prefix;
        length -= prefix;
    }
    block->length = length;
    return buffer_append(room, bytes, length, error);
}

/* Copies the file's blocks into room, one after another, and fills metadata with them. */
static FshStatus keep_metadata(VipsImage *image, ImageMetadata *metadata, Buffer *room, FshError *error)
{
    bool profile_applies = !vips_colour_is_cmyk(image) && !vips_colour_is_device_independent(image);
    *metadata = (ImageMetadata){0};
    room->length = 0;
    FshStatus status = keep_block(image, VIPS_META_EXIF_NAME, room, &metadata->exif, error);
    if (!status)
        status = keep_block(image, VIPS_META_XMP_NAME, room, &metadata->xmp, error);
    if (!status && profile_applies)
        status = keep_block(image, VIPS_META_ICC_NAME, room, &metadata->icc, error);
    if (status || !room->length)
        return status;
    const uint8_t *next = room->bytes; /* room does not move any more */
    ImageBlock *const blocks[] = {&metadata->exif, &metadata->xmp, &metadata->icc};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        blocks[i]->bytes = blocks[i]->length ? next : NULL;
        next += blocks[i]->length;
    }
    if (!icc_profile_matches(metadata->icc.bytes, metadata->icc.length,
                             vips_colour_bands(image) == 1 ? 1 : 3))
        metadata->icc = (ImageBlock){0};
    return FSH_OK;
}

static FshStatus probe(const void *bytes, size_t length, ImageFormat format, ImageInfo *info, FshError *error)
{
    VipsImage *image = NULL;
    notes_begin();
    FshStatus status = open_image(bytes, length, format, false, VIPS_FAIL_ON_NONE, &image, error);
    if (!status)
        fill_info(image, bytes, length, format, info);
    if (notes_warnings())
        info->quirks |= IMAGE_QUIRK_WARNING;
    if (image)
        g_object_unref(image);
    vips_thread_shutdown(); /* this thread may never come back, and libvips keeps buffers for each */
    return status;
}

/* ---- pixels ---- */

/* Pulls the pixels strip by strip in this thread and copies them to image. */
static FshStatus copy_pixels(VipsImage *from, uint32_t channels, Image *image, const char *domain,
                             FshError *error)
{
    FshStatus status = image_reserve(image, (uint32_t)from->Xsize, (uint32_t)from->Ysize, channels, error);
    if (status)
        return status;
    VipsRegion *region = vips_region_new(from);
    size_t row_bytes = (size_t)image->width * channels;
    for (int top = 0; !status && top < from->Ysize; top += STRIP_ROWS) {
        int rows = from->Ysize - top < STRIP_ROWS ? from->Ysize - top : STRIP_ROWS;
        VipsRect strip = {0, top, from->Xsize, rows};
        if (vips_region_prepare(region, &strip)) {
            status = notes_failure(FSH_ERR_CORRUPT, domain, error);
            break;
        }
        for (int y = top; y < top + rows; y++) {
            const uint8_t *row = VIPS_REGION_ADDR(region, 0, y);
            if (from->Bands == (int)channels)
                memcpy(image->pixels + (size_t)y * row_bytes, row, row_bytes);
            else
                image_over_white(row, image->width, channels, image->pixels + (size_t)y * row_bytes);
        }
    }
    g_object_unref(region);
    return status;
}

/* Returns whether the fourth byte of a BMP's pixels is no alpha, although ImageMagick reads it as such. It is
 * alpha only if the header names a mask for it; headers of 56 bytes and more have masks of red, green, blue,
 * alpha from byte 54 on. */
static bool bmp_alpha_is_junk(const uint8_t *bytes, size_t length)
{
    static const uint8_t none[4];
    return length < 70 || bytes[14] < 56 || memcmp(bytes + 66, none, 4) == 0;
}

static FshStatus decode(const void *bytes, size_t length, ImageFormat format,
                        const ImageDecodeOptions *options, Image *image, ImageInfo *info,
                        ImageMetadata *metadata, Buffer *room, FshError *error)
{
    VipsImage *opened = NULL, *result = NULL, *owner = vips_image_new();
    VipsImage **pool = (VipsImage **)(void *)vips_object_local_array(VIPS_OBJECT(owner), VIPS_COLOUR_POOL);
    const bool strict = !options->allow_truncated;
    notes_begin();
    FshStatus status = strict && format == IMAGE_GIF ? gif_check(bytes, length, error) : FSH_OK;
    if (!status)
        status = open_image(bytes, length, format, true, strict ? VIPS_FAIL_ON_ERROR : VIPS_FAIL_ON_NONE,
                            &opened, error);
    if (status)
        goto done;
    fill_info(opened, bytes, length, format, info);
    if (options->keep_metadata)
        status = keep_metadata(opened, metadata, room, error);
    if (status)
        goto done;
    bool drop_alpha = format == IMAGE_BMP && bmp_alpha_is_junk(bytes, length);
    status = vips_colour_pipeline(opened, pool, options, drop_alpha, info, &result, error);
    if (!status)
        status = copy_pixels(result, info->channels, image, loaders[format].domain, error);
    if (!status && strict && notes_damage()[0])
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "damaged or truncated (%s)", notes_damage());
done:
    if (notes_warnings())
        info->quirks |= IMAGE_QUIRK_WARNING;
    g_object_unref(owner);
    if (opened)
        g_object_unref(opened);
    vips_thread_shutdown();
    return status;
}

/* ---- ImageMagick, which reads BMP and TGA for libvips, takes OpenMP's thread number for an index into
 * tables as long as the machine has cores, and aborts if it is higher. In a thread that OpenMP does not know
 * the number is 0. ---- */

typedef struct Call {
    const void *bytes;
    size_t length;
    ImageFormat format;
    const ImageDecodeOptions *options; /* NULL: probe */
    Image *image;
    ImageInfo *info;
    ImageMetadata *metadata;
    Buffer *room;
    FshError *error;
    FshStatus status;
    bool reason_is_shared; /* the message comes from the buffer that all threads share */
} Call;

static void *run_call(void *context)
{
    Call *call = context;
    call->status = call->options ? decode(call->bytes, call->length, call->format, call->options, call->image,
                                          call->info, call->metadata, call->room, call->error)
                                 : probe(call->bytes, call->length, call->format, call->info, call->error);
    call->reason_is_shared = notes_are_shared();
    return NULL;
}

static FshStatus call_safely(Call *call)
{
    pthread_t thread;
    if (call->format != IMAGE_BMP && call->format != IMAGE_TGA) {
        (void)run_call(call);
        return call->status;
    }
    int failure = pthread_create(&thread, NULL, run_call, call);
    if (failure)
        return fsh_error_system(call->error, failure, "cannot start a thread");
    (void)pthread_join(thread, NULL);
    return call->status;
}

/* A writer has libvips to itself. Waiting writers come first. */
static pthread_rwlock_t reasons_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

/* Runs the call. If it fails with a reason from libvips' shared error buffer, runs it once more while no
 * other thread is in libvips: the lines of the buffer do not name their thread. */
static FshStatus call_for_reason(Call *call)
{
    (void)pthread_rwlock_rdlock(&reasons_lock);
    FshStatus status = call_safely(call);
    (void)pthread_rwlock_unlock(&reasons_lock);
    if (!status || !call->reason_is_shared)
        return status;
    (void)pthread_rwlock_wrlock(&reasons_lock);
    notes_forget_failure();
    if (call->error)
        *call->error = (FshError){0};
    status = call_safely(call);
    (void)pthread_rwlock_unlock(&reasons_lock);
    return status;
}

static FshStatus plugin_probe(const void *bytes, size_t length, ImageFormat format, ImageInfo *info,
                              FshError *error)
{
    if (format == IMAGE_WEBP && webp_probe_simple(bytes, length, info))
        return FSH_OK;
    return call_for_reason(
        &(Call){.bytes = bytes, .length = length, .format = format, .info = info, .error = error});
}

static FshStatus plugin_decode(const void *bytes, size_t length, ImageFormat format,
                               const ImageDecodeOptions *options, Image *image, ImageInfo *info,
                               ImageMetadata *metadata, Buffer *room, FshError *error)
{
    bool done = false;
    if (format == IMAGE_WEBP && webp_probe_simple(bytes, length, info)) {
        FshStatus status = webp_decode_simple(bytes, length, info, image, &done, error);
        if (status || done)
            return status;
    }
    return call_for_reason(&(Call){.bytes = bytes,
                                   .length = length,
                                   .format = format,
                                   .options = options,
                                   .image = image,
                                   .info = info,
                                   .metadata = metadata,
                                   .room = room,
                                   .error = error});
}

/* ---- pixels in memory ---- */

static VipsImage *wrap_pixels(const Image *image)
{
    size_t bytes = (size_t)image->width * image->height * image->channels;
    VipsImage *wrapped = vips_image_new_from_memory(
        image->pixels, bytes, (int)image->width, (int)image->height, (int)image->channels, VIPS_FORMAT_UCHAR);
    if (wrapped)
        wrapped->Type = image->channels == 1 ? VIPS_INTERPRETATION_B_W : VIPS_INTERPRETATION_sRGB;
    return wrapped;
}

static FshStatus plugin_convert_to_srgb(Image *image, const void *profile, size_t length, FshError *error)
{
    notes_begin();
    (void)pthread_rwlock_rdlock(&reasons_lock);
    VipsImage *from = wrap_pixels(image), *owner = vips_image_new();
    VipsImage **pool = (VipsImage **)(void *)vips_object_local_array(VIPS_OBJECT(owner), VIPS_COLOUR_POOL);
    FshStatus status = FSH_OK;
    if (!from) {
        status = notes_failure(FSH_ERR_MEMORY, "", error);
        goto done;
    }
    vips_image_set_blob_copy(from, VIPS_META_ICC_NAME, profile, length);
    if (vips_colour_by_profile(from, &pool[0]) ||
        (image->channels == 1 && vips_extract_band(pool[0], &pool[1], 0, NULL))) {
        notes_forget_failure();
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "the embedded colour profile is unusable");
        goto done;
    }
    /* each pixel depends on itself alone, and a strip is copied after it is computed: the image can be its
     * own target */
    status = copy_pixels(image->channels == 1 ? pool[1] : pool[0], image->channels, image, "icc", error);
done:
    g_object_unref(owner);
    if (from)
        g_object_unref(from);
    vips_thread_shutdown();
    (void)pthread_rwlock_unlock(&reasons_lock);
    return status;
}

static FshStatus plugin_encode(const Image *image, const ImageEncodeOptions *options, Buffer *out,
                               FshError *error)
{
    return webp_encode(image, options->quality, out, error);
}

/* ---- the symbol that the loader looks up ---- */

static bool started; /* written once, under pthread_once */
static char library[64];

static void start(void)
{
    if (VIPS_INIT("fshard"))
        return;
    vips_concurrency_set(1);
    vips_cache_set_max(0);
    notes_start();
    (void)snprintf(library, sizeof library, "libvips %s", vips_version_string());
    started = true;
}

__attribute__((visibility("default"))) const ImagePlugin *fshard_image_plugin(uint32_t version);

const ImagePlugin *fshard_image_plugin(uint32_t version)
{
    static const ImagePlugin plugin = {
        .version = IMAGE_PLUGIN_VERSION,
        .library = library,
        .probe = plugin_probe,
        .decode = plugin_decode,
        .convert_to_srgb = plugin_convert_to_srgb,
        .encode = plugin_encode,
    };
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, start);
    return started && version == IMAGE_PLUGIN_VERSION ? &plugin : NULL;
}
