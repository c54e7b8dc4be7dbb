#include "imaging/vips_colour.h"

#include "imaging/vips_notes.h"

bool vips_colour_is_cmyk(const VipsImage *image)
{
    return image->Type == VIPS_INTERPRETATION_CMYK;
}

unsigned vips_colour_bands(VipsImage *image)
{
    return (unsigned)image->Bands - (vips_image_hasalpha(image) ? 1 : 0);
}

bool vips_colour_is_device_independent(const VipsImage *image)
{
    return image->Type == VIPS_INTERPRETATION_LAB || image->Type == VIPS_INTERPRETATION_LABS ||
           image->Type == VIPS_INTERPRETATION_LABQ || image->Type == VIPS_INTERPRETATION_scRGB ||
           image->Type == VIPS_INTERPRETATION_XYZ;
}

/* Converts to sRGB by the embedded profile if `embedded` is set and the profile is usable, else by the
 * fallback. */
static int to_srgb(VipsImage *from, VipsImage **to, bool embedded, const char *fallback)
{
    return vips_icc_transform(from, to, "srgb", "embedded", (gboolean)embedded, "input_profile", fallback,
                              "depth", 8, NULL);
}

int vips_colour_by_profile(VipsImage *from, VipsImage **to)
{
    unsigned before = notes_warnings();
    return to_srgb(from, to, true, "srgb") || notes_warnings() != before;
}

/* Clears the error of an attempt that may fail, and marks the image with a warning. */
static void forget_failure(ImageInfo *info)
{
    notes_forget_failure();
    info->quirks |= IMAGE_QUIRK_WARNING;
}

static FshStatus convert_colours(VipsImage *from, VipsImage **pool, const ImageDecodeOptions *options,
                                 ImageInfo *info, VipsImage **to, FshError *error)
{
    *to = from;
    if (vips_colour_is_cmyk(from)) {
        /* an unusable CMYK profile counts as none */
        if (to_srgb(from, &pool[0], true, "cmyk")) {
            forget_failure(info);
            if (to_srgb(from, &pool[0], false, "cmyk"))
                return notes_failure(FSH_ERR_UNSUPPORTED, "icc", error);
        }
        *to = pool[0];
        return FSH_OK;
    }
    if (options->convert_icc && (info->quirks & IMAGE_QUIRK_ICC)) {
        if (vips_colour_by_profile(from, &pool[0])) {
            forget_failure(info);
        } else if (info->channels == 1) { /* r = g = b, perhaps followed by alpha */
            if (vips_extract_band(pool[0], &pool[1], 0, NULL) ||
                (pool[0]->Bands > 3 && (vips_extract_band(pool[0], &pool[2], 3, NULL) ||
                                        vips_bandjoin2(pool[1], pool[2], &pool[3], NULL))) ||
                vips_copy(pool[3] ? pool[3] : pool[1], &pool[4], "interpretation", VIPS_INTERPRETATION_B_W,
                          NULL))
                return notes_failure(FSH_ERR_LIBRARY, "extract_band", error);
            *to = pool[4];
            return FSH_OK;
        } else {
            *to = pool[0];
            return FSH_OK;
        }
    }
    if (from->BandFmt == VIPS_FORMAT_USHORT) { /* 65535 / 257 = 255: rounded, not cut */
        /* and the image is no longer 16-bit by name */
        if (vips_linear1(from, &pool[1], 1.0 / 257.0, 0.5, "uchar", TRUE, NULL) ||
            vips_copy(pool[1], &pool[2], "interpretation",
                      info->channels == 1 ? VIPS_INTERPRETATION_B_W : VIPS_INTERPRETATION_sRGB, NULL))
            return notes_failure(FSH_ERR_LIBRARY, "linear", error);
        *to = pool[2];
    } else if (vips_colour_is_device_independent(from)) {
        if (vips_colourspace(from, &pool[1], VIPS_INTERPRETATION_sRGB, NULL))
            return notes_failure(FSH_ERR_UNSUPPORTED, "vips_colourspace", error);
        *to = pool[1];
    } else if (from->BandFmt != VIPS_FORMAT_UCHAR) {
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "samples of type %s have no fixed range; convert the file to 8 or 16 bits",
                             vips_enum_nick(VIPS_TYPE_BAND_FORMAT, from->BandFmt));
    }
    return FSH_OK;
}

FshStatus vips_colour_pipeline(VipsImage *from, VipsImage **pool, const ImageDecodeOptions *options,
                               bool drop_alpha, ImageInfo *info, VipsImage **to, FshError *error)
{
    FshStatus status = convert_colours(from, pool, options, info, to, error);
    if (status)
        return status;
    if (drop_alpha && (*to)->Bands > (int)info->channels) {
        if (vips_extract_band(*to, &pool[5], 0, "n", (int)info->channels, NULL))
            return notes_failure(FSH_ERR_LIBRARY, "extract_band", error);
        *to = pool[5];
    }
    int alpha_bands = vips_image_hasalpha(*to) ? 1 : 0;
    if ((*to)->Bands - alpha_bands != (int)info->channels || (*to)->BandFmt != VIPS_FORMAT_UCHAR)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "an image of %d channels; gray, RGB and CMYK are known", (*to)->Bands);
    return FSH_OK;
}
