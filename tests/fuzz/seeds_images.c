#include <string.h>

#include "tests/fuzz/seeds.h"
#include "tests/imaging/make_images.h"
#include "tests/imaging/make_odd.h"

static void write_jpegs(const char *root, const uint8_t *exif, size_t exif_bytes, const uint8_t *icc,
                        size_t icc_bytes)
{
    static uint8_t pixels[24 * 24 * 4];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 7 + i / 96 * 31);
    uint8_t app1[128];
    static const uint8_t prefix[6] = {'E', 'x', 'i', 'f'};
    memcpy(app1, prefix, sizeof prefix);
    memcpy(app1 + 6, exif, exif_bytes);
    const struct {
        const char *name;
        MakeJpeg options;
    } jpegs[] = {
        {"rgb", {.width = 24, .height = 24, .colours = MAKE_RGB, .quality = 50}},
        {"gray", {.width = 9, .height = 17, .colours = MAKE_GRAY, .quality = 50}},
        {"cmyk", {.width = 8, .height = 8, .colours = MAKE_CMYK, .quality = 50}},
        {"progressive", {.width = 16, .height = 8, .colours = MAKE_RGB, .quality = 50, .progressive = true}},
        {"arithmetic", {.width = 16, .height = 8, .colours = MAKE_RGB, .quality = 50, .arithmetic = true}},
        {"exif",
         {.width = 8,
          .height = 16,
          .colours = MAKE_RGB,
          .quality = 50,
          .exif = app1,
          .exif_length = exif_bytes + 6}},
        {"icc",
         {.width = 8, .height = 8, .colours = MAKE_RGB, .quality = 50, .icc = icc, .icc_length = icc_bytes}},
    };
    for (size_t i = 0; i < sizeof jpegs / sizeof jpegs[0]; i++) {
        MakeJpeg options = jpegs[i].options;
        Buffer file = {0};
        options.pixels = pixels;
        make_jpeg(&options, &file);
        seed_write(root, "jpeg", jpegs[i].name, file.bytes, file.length);
        buffer_free(&file);
    }
}

static void write_graphics(const char *root)
{
    static const struct {
        const char *name, *bytes;
        size_t length;
    } pnms[] = {
#define PNM(name, text) {(name), (text), sizeof(text) - 1}
        PNM("p1", "P1\n3 2\n1 0 1 011"),
        PNM("p2", "P2 # gray\n2 2 15\n0 1 7 15"),
        PNM("p3", "P3\n1 1\n255\n1 2 3"),
        PNM("p4", "P4\n3 2\n\xA0\x60"),
        PNM("y4m", "YUV4MPEG2 W6 H2 F1:1 Ip A1:1 C420jpeg XCOLORRANGE=FULL\nFRAME\n0123456789ABabcdef"),
        PNM("y4m-gray", "YUV4MPEG2 H2 W2 Cmono XCOLORRANGE=FULL\nFRAME\n0123"),
        PNM("p5", "P5\n2 1\n65535\n\1\2\3\4"),
        PNM("p6", "P6\n1 1\n255\nabc"),
#undef PNM
    };
    uint8_t pixels[20 * 10];
    Buffer gif = {0};
    size_t codes_at = 0;
    for (size_t i = 0; i < sizeof pnms / sizeof pnms[0]; i++)
        seed_write(root, "graphics", pnms[i].name, pnms[i].bytes, pnms[i].length);
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i % 128);
    make_gif(20, 10, pixels, &gif, &codes_at);
    seed_write(root, "graphics", "gif", gif.bytes, gif.length);
    buffer_free(&gif);
}

/* Writes a seed of metadata with a file after it, as fuzz_metadata_write.c reads it. */
static void write_with_metadata(const char *root, const char *name, const void *file, size_t file_bytes)
{
    static const char exif[] = "II*\0\10\0\0\0\0\0\0\0", xmp[] = "<x:xmpmeta/>", icc[] = "a profile";
    const uint8_t lengths[3] = {sizeof exif, sizeof icc, sizeof xmp};
    Buffer bytes = {0};
    FshError error = {0};
    seed_need(!buffer_append(&bytes, lengths, sizeof lengths, &error) &&
                  !buffer_append(&bytes, exif, sizeof exif, &error) &&
                  !buffer_append(&bytes, icc, sizeof icc, &error) &&
                  !buffer_append(&bytes, xmp, sizeof xmp, &error) &&
                  !buffer_append(&bytes, file, file_bytes, &error),
              "memory");
    seed_write(root, "metadata_write", name, bytes.bytes, bytes.length);
    buffer_free(&bytes);
}

/* Writes a PNG of each colour and depth, one with chunks that no pixel needs. */
static void write_pngs(const char *root)
{
    static const struct {
        const char *name;
        uint8_t colour, depth;
    } kinds[] = {{"gray1", 0, 1},      {"gray4", 0, 4},       {"gray8", 0, 8},    {"gray16", 0, 16},
                 {"rgb8", 2, 8},       {"palette2", 3, 2},    {"palette8", 3, 8}, {"gray-alpha8", 4, 8},
                 {"rgb-alpha8", 6, 8}, {"rgb-alpha16", 6, 16}};
    static const uint8_t palette[256 * 3] = {1, 2, 3, 200, 100, 50}, alpha[] = {0, 100};
    static uint8_t rows[9 * 7 * 8];
    Buffer file = {0};
    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = (uint8_t)(i * 5);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const bool colours = kinds[i].colour == 3;
        make_png(&(MakePng){.width = 9,
                            .height = 7,
                            .bit_depth = kinds[i].depth,
                            .colour_type = kinds[i].colour,
                            .rows = rows,
                            .palette = colours ? palette : NULL,
                            .palette_count = colours ? (size_t)1 << kinds[i].depth : 0,
                            .transparency = colours ? alpha : NULL,
                            .transparency_length = colours ? sizeof alpha : 0},
                 &file);
        seed_write(root, "png", kinds[i].name, file.bytes, file.length);
    }
    make_png_chunk(&file, "IDAT", "pHYs", "\0\0\x0b\x13\0\0\x0b\x13\1", 9);
    make_png_chunk(&file, "IDAT", "tEXt", "Software\0us", 11);
    make_png_chunk(&file, "IEND", "tIME", "\x07\xea\1\1\0\0\0", 7);
    seed_write(root, "png", "chunks", file.bytes, file.length);
    buffer_free(&file);
}

static void write_containers(const char *root)
{
    static const char webp[] = "RIFF\x16\0\0\0WEBPVP8 \x09\0\0\0"
                               "pixels...\0";
    write_with_metadata(root, "webp", webp, sizeof webp - 1);
    seed_write(root, "webp", "container", webp, sizeof webp - 1);
}

/* Writes the heads of cameras' raw files: TIFFs whose first folder is small, made by a camera, and has
 * folders of its own. */
static void write_raws(const char *root)
{
    static const char nef[] =
        "II*\0\10\0\0\0\3\0\xFE\0\4\0\1\0\0\0\1\0\0\0\x0F\1\2\0\4\0\0\0NIK\0\x4A\1\4\0\1\0\0\0\0\0\0\0";
    static const char dng[] = "MM\0*\0\0\0\10\0\1\xC6\x12\0\1\0\0\0\4\1\4\0\0";
    static const char cr2[] = "II*\0\x10\0\0\0CR\2\0\0\0\0\0\0\0";
    static const char xmp[] =
        "<rdf:Description tiff:Orientation=\"6\"/><tiff:Orientation>8</tiff:Orientation>";
    seed_write(root, "exif", "nef", nef, sizeof nef - 1);
    seed_write(root, "exif", "dng", dng, sizeof dng - 1);
    seed_write(root, "exif", "cr2", cr2, sizeof cr2 - 1);
    seed_write(root, "exif", "xmp", xmp, sizeof xmp - 1);
}

/* Writes the first bytes of each format that image_sniff knows. */
static void write_starts(const char *root)
{
    static const struct {
        const char *name, *bytes;
        size_t length;
    } starts[] = {
        {"start-heif",
         "\0\0\0\x18"
         "ftypheic\0\0\0\0mif1heic",
         24},
        {"start-avif",
         "\0\0\0\x1C"
         "ftypmif1\0\0\0\0avifmiaf",
         24},
        {"start-jp2", "\0\0\0\x0CjP  \r\n\x87\n", 12},
        {"start-gif", "GIF89a\1\0\1\0", 10},
        {"start-bmp", "BM\x3A\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", 18},
        {"start-pnm", "P6\n# c\n2 2 255\n", 15},
        {"start-webp", "RIFF\x16\0\0\0WEBPVP8L", 16},
        {"start-svg", "<svg xmlns=\"http://www.w3.org/2000/svg\">", 40},
    };
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        seed_write(root, "exif", starts[i].name, starts[i].bytes, starts[i].length);
}

void seeds_images(const char *root)
{
    static const struct {
        const char *name;
        bool gray;
        MakeCurve curve;
    } profiles[] = {
        {"rgb-gamma", false, MAKE_CURVE_GAMMA},           {"rgb-table", false, MAKE_CURVE_TABLE},
        {"rgb-parametric", false, MAKE_CURVE_PARAMETRIC}, {"gray-gamma", true, MAKE_CURVE_GAMMA},
        {"gray-table", true, MAKE_CURVE_TABLE},           {"gray-parametric", true, MAKE_CURVE_PARAMETRIC},
    };
    uint8_t exif[64], icc[1024];
    size_t exif_bytes = make_exif(6, true, exif), icc_bytes = 0;
    seed_write(root, "exif", "big-endian", exif, exif_bytes);
    exif_bytes = make_exif(8, false, exif);
    seed_write(root, "exif", "little-endian", exif, exif_bytes);
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++) {
        icc_bytes = make_icc(profiles[i].gray, profiles[i].curve, i ? "a camera" : "sRGB", icc);
        seed_write(root, "icc", profiles[i].name, icc, icc_bytes);
    }
    icc_bytes = make_icc(false, MAKE_CURVE_PARAMETRIC, "a camera", icc);
    write_graphics(root);
    write_pngs(root);
    write_jpegs(root, exif, exif_bytes, icc, icc_bytes);
    write_containers(root);
    write_raws(root);
    write_starts(root);
}
