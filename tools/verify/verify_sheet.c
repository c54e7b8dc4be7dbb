#include "tools/verify/verify_sheet.h"

#include <string.h>

#include "imaging/draw_text.h"
#include "imaging/encode.h"
#include "tools/verify/verify_faults.h"

enum {
    GAP_PX = 4,
    STEP_PX = SHEET_EDGE_PX + GAP_PX,
    LINE_PX = DRAW_TEXT_HEIGHT_PX + 3,
    ROW_PX = STEP_PX + 2 * LINE_PX + GAP_PX, /* two lines of text below each picture */
    TITLE_SCALE = 2,
    TITLE_PX = TITLE_SCALE * DRAW_TEXT_HEIGHT_PX + 3 * GAP_PX,
    BACKGROUND = 32,
    QUALITY = 85,
    FRAME_PX = 2,
};

static const uint8_t bright[3] = {235, 238, 242}, dim[3] = {150, 156, 164}, red[3] = {255, 123, 114};

typedef struct Sheet {
    Image image;
    size_t sides, columns; /* of all sections: their cells stand below each other */
} Sheet;

static void paste(const Image *from, Image *sheet, size_t left, size_t top)
{
    for (size_t y = 0; y < from->height; y++) {
        uint8_t *to = sheet->pixels + ((top + y) * sheet->width + left) * 3;
        const uint8_t *at = from->pixels + y * from->width * from->channels;
        for (size_t x = 0; x < from->width; x++, at += from->channels, to += 3) {
            to[0] = at[0];
            to[1] = at[from->channels == 3 ? 1 : 0];
            to[2] = at[from->channels == 3 ? 2 : 0];
        }
    }
}

/* Draws a box with the reason in it, in place of a picture. */
static void draw_placeholder(Image *image, size_t left, size_t top, const char *reason)
{
    const size_t room = (SHEET_EDGE_PX - 4 * FRAME_PX) / DRAW_TEXT_STEP_PX, length = strlen(reason);
    for (size_t y = 0; y < SHEET_EDGE_PX; y++)
        for (size_t x = 0; x < SHEET_EDGE_PX; x++)
            if (y < FRAME_PX || y >= SHEET_EDGE_PX - FRAME_PX || x < FRAME_PX ||
                x >= SHEET_EDGE_PX - FRAME_PX)
                memcpy(image->pixels + ((top + y) * image->width + left + x) * 3, red, 3);
    for (size_t line = 0; line * room < length && (line + 2) * LINE_PX < SHEET_EDGE_PX; line++) {
        const size_t left_over = length - line * room;
        draw_text(image, left + 2 * FRAME_PX, top + LINE_PX / 2 + line * LINE_PX, SHEET_EDGE_PX, 1, red,
                  reason + line * room, left_over < room ? left_over : room);
    }
}

static void draw_captions(Image *image, size_t left, size_t top, size_t room, const Thumb *thumb)
{
    const FshSample *sample = &thumb->sample;
    const FshManifest *manifest = fsh_manifest(thumb->split->dataset);
    const bool named = sample->label >= 0 && (uint64_t)sample->label < manifest->class_count;
    char name[512];
    const char *first =
        named ? fsh_class_display(manifest, (size_t)sample->label, name, sizeof name) : sample->key;
    const size_t first_bytes = named ? strlen(first) : sample->key_bytes;
    char where[512];
    if (sample->field_count == 0) {
        first = fsh_sample_where(thumb->split, thumb->index, where, sizeof where);
        draw_text(image, left, top, room, 1, bright, first, strlen(first));
    } else {
        draw_text(image, left, top, room, 1, bright, first, first_bytes);
    }
    if (thumb->note[0])
        draw_text(image, left, top + LINE_PX, room, 1, red, thumb->note, strlen(thumb->note));
    else if (named)
        draw_text(image, left, top + LINE_PX, room, 1, dim, sample->key, sample->key_bytes);
}

static void draw_thumb(const Sheet *sheet, Image *image, size_t left, size_t top, const Thumb *thumb)
{
    const size_t sides = thumb->sample.field_count ? thumb->sample.field_count : 1;
    for (size_t j = 0; j < sides; j++) {
        const Image *side = &thumb->images[j];
        if (side->width && side->width <= SHEET_EDGE_PX && side->height <= SHEET_EDGE_PX)
            paste(side, image, left + j * STEP_PX + (SHEET_EDGE_PX - side->width) / 2,
                  top + SHEET_EDGE_PX - side->height);
        else
            draw_placeholder(image, left + j * STEP_PX, top, thumb->reason);
    }
    draw_captions(image, left, top + STEP_PX, sheet->sides * STEP_PX - GAP_PX, thumb);
}

/* ---- sections ---- */

static size_t section_height(const Sheet *sheet, const SheetSection *section)
{
    const size_t count = section->thumbs->count;
    return count ? (section->title ? TITLE_PX : 0) + (count + sheet->columns - 1) / sheet->columns * ROW_PX
                 : 0;
}

static void draw_section(const Sheet *sheet, Image *image, size_t top, const SheetSection *section)
{
    const Thumbs *thumbs = section->thumbs;
    if (section->title && thumbs->count) {
        draw_text(image, GAP_PX, top + GAP_PX, image->width - GAP_PX, TITLE_SCALE, bright, section->title,
                  strlen(section->title));
        top += TITLE_PX;
    }
    for (size_t i = 0; i < thumbs->count; i++)
        draw_thumb(sheet, image, GAP_PX + i % sheet->columns * sheet->sides * STEP_PX,
                   top + i / sheet->columns * ROW_PX, &thumbs->items[i]);
}

/* Chooses the shape of the sheet by its largest section: about square. */
static void choose_shape(Sheet *sheet, const SheetSection *sections, size_t count)
{
    size_t most = 1;
    sheet->sides = sheet->columns = 1;
    for (size_t i = 0; i < count; i++) {
        const Thumbs *thumbs = sections[i].thumbs;
        most = thumbs->count > most ? thumbs->count : most;
        for (size_t j = 0; j < thumbs->count; j++)
            if (thumbs->items[j].sample.field_count > sheet->sides)
                sheet->sides = thumbs->items[j].sample.field_count;
    }
    while (sheet->columns * sheet->columns * sheet->sides < most)
        sheet->columns++;
}

static FshStatus draw(Sheet *sheet, const SheetSection *sections, size_t count, FshError *error)
{
    choose_shape(sheet, sections, count);
    const size_t width = sheet->columns * sheet->sides * STEP_PX + GAP_PX;
    size_t height = GAP_PX, top = GAP_PX;
    for (size_t i = 0; i < count; i++)
        height += section_height(sheet, &sections[i]);
    FshStatus status = image_reserve(&sheet->image, (uint32_t)width, (uint32_t)height, 3, error);
    if (status)
        return status;
    memset(sheet->image.pixels, BACKGROUND, width * height * 3);
    for (size_t i = 0; i < count; i++) {
        draw_section(sheet, &sheet->image, top, &sections[i]);
        top += section_height(sheet, &sections[i]);
    }
    return FSH_OK;
}

static FshStatus check_format(const char *path, FshError *error)
{
    const ImageFormat format = image_name_format(path);
    return format == IMAGE_JPEG || format == IMAGE_PNG || format == IMAGE_WEBP
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_USAGE, "--sheet: %s should end in .jpg, .png or .webp", path);
}

FshStatus sheet_check(const char *path, bool force, FshError *error)
{
    FshStatus status = check_format(path, error);
    if (!status)
        status = file_check_parent_folder(path, error);
    if (!status && !force && file_exists(path))
        status = fsh_error_set(error, FSH_ERR_EXISTS, "%s: exists already; --force replaces it", path);
    return status;
}

FshStatus sheet_write(const SheetSection *sections, size_t count, const char *path, bool force,
                      FshError *error)
{
    const ImageEncodeOptions options = {.format = image_name_format(path), .quality = QUALITY};
    ImageEncoder *encoder = NULL;
    Sheet sheet = {0};
    Buffer file = {0};
    FshStatus status = check_format(path, error);
    if (!status)
        status = draw(&sheet, sections, count, error);
    if (!status)
        status = image_encoder_new(&encoder, error);
    if (!status)
        status = image_encode(encoder, &sheet.image, &options, &file, error);
    if (!status)
        status = file_write_atomic(path, file.bytes, file.length, force, false, error);
    image_encoder_free(&encoder);
    image_free(&sheet.image);
    buffer_free(&file);
    return status;
}

FshStatus verify_write_sheet(const VerifyReport *report, const VerifyOptions *options,
                             const FshDataset *dataset, const char *path, bool force, FshError *error)
{
    const ThumbOptions thumb_options = {.count = SHEET_SAMPLES, .edge = SHEET_EDGE_PX, .jobs = options->jobs};
    Faults faults = {0};
    Thumbs thumbs = {0};
    FshStatus status = faults_make(report, dataset, &thumb_options, &faults, error);
    if (!status && dataset)
        status = thumbs_make(dataset, &thumb_options, &thumbs, error);
    const SheetSection sections[] = {{"Suspicious: sides that do not look alike", &faults.suspects},
                                     {"Problems", &faults.problems},
                                     {"Samples", &thumbs}};
    if (!status)
        status = sheet_write(sections, sizeof sections / sizeof *sections, path, force, error);
    thumbs_free(&thumbs);
    faults_free(&faults);
    return status;
}
