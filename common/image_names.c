#include "common/image_names.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

/* The formats are called as image_format_name (imaging/image.h) calls them. */
static const struct {
    const char *extension, *format;
} extensions[] = {
    {".apng", "png"},
    {".avif", "heif"},
    {".bmp", "bmp"},
    {".dib", "bmp"},
    {".gif", "gif"},
    {".heic", "heif"},
    {".heif", "heif"},
    {".j2c", "jp2"},
    {".j2k", "jp2"},
    {".jfif", "jpeg"},
    {".jp2", "jp2"},
    {".jpc", "jp2"},
    {".jpe", "jpeg"},
    {".jpeg", "jpeg"},
    {".jpf", "jp2"},
    {".jpg", "jpeg"},
    {".jpx", "jp2"},
    {".jxl", "other"},
    {".mpo", "jpeg"},
    {".pbm", "pnm"},
    {".pgm", "pnm"},
    {".png", "png"},
    {".pnm", "pnm"},
    {".ppm", "pnm"},
    {".tga", "tga"},
    {".tif", "tiff"},
    {".tiff", "tiff"},
    {".webp", "webp"},
    {".y4m", "y4m"},
    /* Other programs read these; here they are refused by name rather than passed over as no images. */
    {".cur", "other"},
    {".dds", "other"},
    {".exr", "other"},
    {".icns", "other"},
    {".ico", "other"},
    {".im", "other"},
    {".msp", "other"},
    {".pam", "other"},
    {".pcx", "other"},
    {".pfm", "other"},
    {".psd", "other"},
    {".qoi", "other"},
    {".sgi", "other"},
    {".xbm", "other"},
    {".xpm", "other"},
};

const char *image_name_kind(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    if (!dot || dot == name)
        return NULL;
    for (size_t i = 0; i < sizeof extensions / sizeof extensions[0]; i++) {
        if (strcasecmp(dot, extensions[i].extension) == 0)
            return extensions[i].format;
    }
    return NULL;
}
