#include "tools/verify/verify_against.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "imaging/shrink_names.h"

/* Pixels of a photograph and of its encoding by another version of the library differ by this much at most,
 * on average: JPEG of quality 50 stays below 8 even on gray noise, another photograph is 40 or more away. */
#define ENCODED_DIFFERENCE_MAX 16.0

bool path_stays_inside(const char *path, size_t length)
{
    if (length == 0 || memchr(path, 0, length))
        return false;
    for (size_t begin = 0; begin <= length;) {
        const char *slash = begin < length ? memchr(path + begin, '/', length - begin) : NULL;
        const size_t end = slash ? (size_t)(slash - path) : length, part = end - begin;
        if (part == 0 || (part == 1 && path[begin] == '.') ||
            (part == 2 && path[begin] == '.' && path[begin + 1] == '.'))
            return false;
        begin = end + 1;
    }
    return true;
}

/* ---- the recipe ---- */

/* Returns the place of text in names, or -1. */
static int find_name(const char *const *names, const char *text)
{
    for (int i = 0; text && names[i]; i++) {
        if (strcmp(names[i], text) == 0)
            return i;
    }
    return -1;
}

/* Reads a recipe. Returns false where not all of it is there, or not as we know it. */
static bool read_recipe(const json_t *from, ShrinkRecipe *recipe)
{
    static const char *const edges[] = {"short", "long", NULL};
    static const char *const subsamplings[] = {"420", "444", NULL};
    static const char *const formats[] = {"keep", "jpeg", "png", "webp", "y4m", NULL};
    static const char *const orients[] = {"apply", "ignore", NULL}, *const iccs[] = {"srgb", "ignore", NULL};
    static const ImageFormat format_values[] = {IMAGE_UNKNOWN, IMAGE_JPEG, IMAGE_PNG, IMAGE_WEBP, IMAGE_Y4M};
    const char *edge = NULL, *filter = NULL, *subsampling = NULL, *format = NULL, *orient = NULL, *icc = NULL;
    int max_size = 0, quality = 0, min_size = 0, exact = 0, keep_metadata = 0;
    if (json_unpack((json_t *)from, "{s:i, s:s, s:s, s:i, s:s, s:s, s:i, s:s, s:s, s:b, s:b}", "max_size",
                    &max_size, "edge", &edge, "filter", &filter, "quality", &quality, "subsampling",
                    &subsampling, "format", &format, "min_size", &min_size, "orient", &orient, "icc", &icc,
                    "exact", &exact, "keep_metadata", &keep_metadata))
        return false;
    const int edge_index = find_name(edges, edge), filter_index = find_name(resample_filter_names, filter),
              subsampling_index = find_name(subsamplings, subsampling),
              format_index = find_name(formats, format), orient_index = find_name(orients, orient),
              icc_index = find_name(iccs, icc);
    if (edge_index < 0 || filter_index < 0 || subsampling_index < 0 || format_index < 0 || orient_index < 0 ||
        icc_index < 0 || max_size < 1 || quality < 1 || quality > 100 || min_size < 0)
        return false;
    *recipe = (ShrinkRecipe){.max_size = (uint32_t)max_size,
                             .long_edge = edge_index == 1,
                             .filter = (ResampleFilter)filter_index,
                             .format = format_values[format_index],
                             .quality = quality,
                             .subsampling = (ImageSubsampling)subsampling_index,
                             .ignore_orientation = orient_index == 1,
                             .ignore_icc = icc_index == 1,
                             .keep_metadata = keep_metadata != 0,
                             .min_size = (uint32_t)min_size,
                             .exact = exact != 0,
                             .max_pixels = IMAGE_MAX_PIXELS_DEFAULT};
    return true;
}

void against_open(Against *against, const char *folder, const FshManifest *manifest)
{
    *against = (Against){.folder = folder};
    json_t *provenance = manifest->provenance_json ? json_loads(manifest->provenance_json, 0, NULL) : NULL;
    const json_t *recipe = json_object_get(provenance, "recipe");
    const char *store = json_string_value(json_object_get(json_object_get(provenance, "options"), "store"));
    against->has_recipe = recipe && read_recipe(recipe, &against->recipe);
    const json_int_t quality =
        json_integer_value(json_object_get(json_object_get(provenance, "options"), "quality"));
    against->encoded_again = store && strcmp(store, "jpeg") == 0;
    against->quality = quality >= 1 && quality <= 100 ? (int)quality : 0;
    json_decref(provenance);
}

void against_reader_free(AgainstReader *reader)
{
    pixel_reader_free(&reader->pixels);
    shrink_worker_free(&reader->resizer);
    image_encoder_free(&reader->encoder);
    buffer_free(&reader->file);
    buffer_free(&reader->encoded);
}

/* ---- one file ---- */

static FshStatus read_file(const Against *against, AgainstReader *reader, const char *name, FshError *error)
{
    char path[PATH_MAX];
    const ShrinkRecipe limits = {.max_pixels = IMAGE_MAX_PIXELS_DEFAULT};
    FshStatus status = file_join(path, sizeof path, against->folder, name, error);
    return status ? status
                  : file_read_most(path, shrink_most_bytes(against->has_recipe ? &against->recipe : &limits),
                                   &reader->file, error);
}

/* Reads the original of a name that resizing may have given another extension. */
static FshStatus read_source(const Against *against, AgainstReader *reader, const char *name, FshError *error)
{
    static const char *const extensions[] = {
        ".jpg", ".JPG", ".jpeg", ".JPEG", ".png", ".PNG", ".webp", ".tif",  ".tiff", ".TIF",  ".bmp",
        ".BMP", ".gif", ".GIF",  ".ppm",  ".pgm", ".pnm", ".heic", ".HEIC", ".heif", ".avif", ".jp2"};
    FshStatus status = read_file(against, reader, name, error);
    const char *dot = strrchr(name, '.');
    if (status != FSH_ERR_NOT_FOUND || !against->has_recipe || !dot || strchr(dot, '/'))
        return status;
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions && status == FSH_ERR_NOT_FOUND; i++) {
        char other[PATH_MAX];
        FshError unused = {0};
        const int length = snprintf(other, sizeof other, "%.*s%s", (int)(dot - name), name, extensions[i]);
        if (length > 0 && (size_t)length < sizeof other && strcmp(other, name) != 0)
            status = read_file(against, reader, other, &unused);
    }
    return status;
}

/* Copies the name of the field's source, a path below the folder, to name [PATH_MAX]. FSH_ERR_NOT_FOUND: it
 * names none; FSH_ERR_MISMATCH. */
static FshStatus copy_name(const Against *against, const FshField *field, char *name, FshError *error)
{
    if (field->source_bytes == 0)
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "the record names no source to compare with");
    if (field->source_bytes >= PATH_MAX || !path_stays_inside(field->source, field->source_bytes))
        return fsh_error_set(error, FSH_ERR_MISMATCH, "the record's source is no path below %s",
                             against->folder);
    memcpy(name, field->source, field->source_bytes);
    name[field->source_bytes] = '\0';
    return FSH_OK;
}

bool against_lacks_source(const Against *against, AgainstReader *reader, const FshField *field)
{
    char name[PATH_MAX];
    return copy_name(against, field, name, NULL) == FSH_OK &&
           read_source(against, reader, name, NULL) == FSH_ERR_NOT_FOUND;
}

/* Makes of the file in hand what the recipe makes of it. */
static FshStatus resize_file(const Against *against, AgainstReader *reader, const char *name,
                             ShrunkImage *resized, FshError *error)
{
    char target[PATH_MAX];
    ImageFormat format = IMAGE_UNKNOWN;
    FshStatus status = reader->resizer ? FSH_OK : shrink_worker_new(&reader->resizer, error);
    if (!status)
        status = shrink_name_target(name, IMAGE_UNKNOWN, target, &format, error);
    if (!status)
        status = shrink_image(reader->resizer, reader->file.bytes, reader->file.length, format,
                              &against->recipe, resized, error);
    if (!status && resized->action == SHRINK_TOO_SMALL)
        status = fsh_error_set(error, FSH_ERR_MISMATCH, "the recipe leaves %s out: it is too small", name);
    return status;
}

/* Measures *difference_ret, the mean absolute difference of the field's pixels and those of an image file; 0:
 * the same. */
static FshStatus pixel_difference(AgainstReader *reader, const FshField *field, const Image *pixels,
                                  const void *file, size_t file_bytes, double *difference_ret,
                                  FshError *error)
{
    PixelReader *own = &reader->pixels;
    const ImageDecodeOptions options = {.channels = field->channels, .max_pixels = IMAGE_MAX_PIXELS_DEFAULT};
    FshStatus status = own->decoder ? FSH_OK : image_decoder_new(&own->decoder, error);
    *difference_ret = 255;
    if (!status)
        status = image_decode(own->decoder, file, file_bytes, &options, &own->decoded, NULL, error);
    if (status || own->decoded.width != pixels->width || own->decoded.height != pixels->height)
        return status;
    const size_t count = (size_t)pixels->width * pixels->height * field->channels;
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (uint64_t)abs(pixels->pixels[i] - own->decoded.pixels[i]);
    *difference_ret = count ? (double)sum / (double)count : 255;
    return FSH_OK;
}

/* Encodes the file today, as fpack did. *same_ret: that gives the field's bytes. */
static FshStatus encodes_to(const Against *against, AgainstReader *reader, const FshField *field,
                            const void *data, size_t bytes, const void *file, size_t file_bytes,
                            bool *same_ret, FshError *error)
{
    PixelReader *own = &reader->pixels;
    const ImageDecodeOptions decode = {.channels = field->channels, .max_pixels = IMAGE_MAX_PIXELS_DEFAULT};
    const ImageEncodeOptions encode = {
        .format = IMAGE_JPEG, .quality = against->quality, .subsampling = IMAGE_SUBSAMPLING_420};
    FshStatus status = own->decoder ? FSH_OK : image_decoder_new(&own->decoder, error);
    if (!status && !reader->encoder)
        status = image_encoder_new(&reader->encoder, error);
    if (!status)
        status = image_decode(own->decoder, file, file_bytes, &decode, &own->decoded, NULL, error);
    if (!status)
        status = image_encode(reader->encoder, &own->decoded, &encode, &reader->encoded, error);
    *same_ret = !status && reader->encoded.length == bytes && memcmp(reader->encoded.bytes, data, bytes) == 0;
    return status;
}

/* Compares the field with an image file (the source's, or made of it). *same_ret: the field is what the file
 * became. */
static FshStatus compare_bytes(const Against *against, AgainstReader *reader, const FshField *field,
                               const void *data, size_t bytes, bool exact, const void *file,
                               size_t file_bytes, bool *same_ret, FshError *error)
{
    const bool raw =
        field->codec == FSH_CODEC_RAW || field->codec == FSH_CODEC_Y4M; /* for their pixels count */
    *same_ret = !raw && bytes == file_bytes && memcmp(data, file, bytes) == 0;
    if (*same_ret || exact || (!raw && !against->encoded_again))
        return FSH_OK;
    FshStatus status = FSH_OK;
    if (!raw && field->codec == FSH_CODEC_JPEG && against->quality)
        status = encodes_to(against, reader, field, data, bytes, file, file_bytes, same_ret, error);
    if (status || *same_ret)
        return status;
    Image pixels = {0};
    status = pixel_reader_decode(&reader->pixels, field, data, bytes, 0, NULL, error);
    double difference = 255;
    if (!status) {
        image_exchange(&pixels, &reader->pixels.decoded);
        status = pixel_difference(reader, field, &pixels, file, file_bytes, &difference, error);
    }
    *same_ret = !status && (raw ? difference == 0 : difference <= ENCODED_DIFFERENCE_MAX);
    image_free(&pixels);
    return status;
}

FshStatus against_compare(const Against *against, AgainstReader *reader, const FshField *field,
                          const void *data, size_t bytes, bool exact, FshError *error)
{
    char name[PATH_MAX];
    bool same = false;
    FshStatus status = copy_name(against, field, name, error);
    if (!status)
        status = read_source(against, reader, name, error);
    if (!status)
        status = compare_bytes(against, reader, field, data, bytes, exact, reader->file.bytes,
                               reader->file.length, &same, error);
    if (!status && !same && against->has_recipe) {
        ShrunkImage resized = {0};
        status = resize_file(against, reader, name, &resized, error);
        if (!status)
            status = compare_bytes(against, reader, field, data, bytes, exact, resized.bytes, resized.length,
                                   &same, error);
    }
    if (status == FSH_OK && !same)
        status =
            fsh_error_set(error, FSH_ERR_MISMATCH, "is not what its source in %s gives%s", against->folder,
                          against->has_recipe ? ", neither as it is nor by the recipe" : "");
    return status;
}
