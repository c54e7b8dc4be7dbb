#include "trainer/data/augment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "imaging/mask.h"
#include "imaging/mirror.h"
#include "trainer/backend/pixel_math.h"

const char *const crop_mode_names[] = {"rrc", "pad", "center", "rkrc", NULL};

bool crop_mode_resizes_first(CropMode mode)
{
    return mode == CROP_PADDED || mode == CROP_CENTER || mode == CROP_KEPT_RATIO;
}

const char *const interpolation_names[] = {"bilinear", "bicubic", "lanczos", NULL};
const char *const flip_mode_names[] = {"random", "alternating", NULL};
const ResampleFilter interpolation_filters[] = {RESAMPLE_BILINEAR, RESAMPLE_BICUBIC, RESAMPLE_LANCZOS};

struct Augmenter {
    Resampler *resampler;
    Image centre; /* CROP_PADDED: before it is moved */
    Image other;  /* the result in channels that are not asked for */
    Image row;    /* one row before it is mirrored */
};

FshStatus augmenter_new(Augmenter **augmenter, FshError *error)
{
    *augmenter = calloc(1, sizeof **augmenter);
    if (!*augmenter)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for an augmenter");
    FshStatus status = resampler_new(&(*augmenter)->resampler, error);
    if (status)
        augmenter_free(augmenter);
    return status;
}

void augmenter_free(Augmenter **augmenter)
{
    if (!*augmenter)
        return;
    resampler_free(&(*augmenter)->resampler);
    image_free(&(*augmenter)->centre);
    image_free(&(*augmenter)->other);
    image_free(&(*augmenter)->row);
    free(*augmenter);
    *augmenter = NULL;
}

/* ---- geometry ---- */

Augmentation augment_at_size(const Augmentation *augmentation, uint32_t size)
{
    Augmentation sized = *augmentation;
    double scale = (double)size / augmentation->size;
    sized.size = size;
    sized.resize = (uint32_t)lround(augmentation->resize * scale);
    sized.padding = (uint32_t)lround(augmentation->padding * scale);
    if (sized.resize && sized.resize < size)
        sized.resize = size;
    if (sized.padding >= size)
        sized.padding = size - 1;
    return sized;
}

uint32_t augment_resize_of_part(uint32_t size, double part)
{
    return (uint32_t)floor(size / part);
}

static double between(Random *random, double low, double high)
{
    return low + (high - low) * random_uniform_double(random);
}

static bool happens(Random *random, double probability)
{
    return probability > 0 && random_uniform_double(random) < probability;
}

static ResampleBox box_of(uint32_t left, uint32_t top, uint32_t width, uint32_t height)
{
    return (ResampleBox){left, top, (double)left + width, (double)top + height};
}

/* Draws a box as torchvision.transforms.RandomResizedCrop.get_params: ten tries, then the largest centred
 * part of allowed ratio. */
static ResampleBox plan_resized(const Augmentation *augmentation, uint32_t width, uint32_t height,
                                Random *random)
{
    enum { TRIES = 10 };
    double area = (double)width * height;
    double log_ratio_min = log(augmentation->ratio_min), log_ratio_max = log(augmentation->ratio_max);
    for (int i = 0; i < TRIES; i++) {
        double target_area = area * between(random, augmentation->scale_min, augmentation->scale_max);
        double ratio = exp(between(random, log_ratio_min, log_ratio_max));
        double crop_width = nearbyint(sqrt(target_area * ratio)),
               crop_height = nearbyint(sqrt(target_area / ratio));
        if (crop_width < 1 || crop_height < 1 || crop_width > width || crop_height > height)
            continue;
        uint32_t top = random_below(random, height - (uint32_t)crop_height + 1);
        uint32_t left = random_below(random, width - (uint32_t)crop_width + 1);
        return box_of(left, top, (uint32_t)crop_width, (uint32_t)crop_height);
    }
    double ratio = (double)width / height;
    uint32_t crop_width = width, crop_height = height;
    if (ratio < augmentation->ratio_min)
        crop_height = (uint32_t)fmax(1, nearbyint(width / augmentation->ratio_min));
    else if (ratio > augmentation->ratio_max)
        crop_width = (uint32_t)fmax(1, nearbyint(height * augmentation->ratio_max));
    return box_of((width - crop_width) / 2, (height - crop_height) / 2, crop_width, crop_height);
}

/* Plans torchvision's Resize (short edge to `resize`, long edge cut to a whole number), then CenterCrop or,
 * with CROP_KEPT_RATIO, RandomCrop, which draws the top first. */
static void plan_square(const Augmentation *augmentation, uint32_t width, uint32_t height, Random *random,
                        CropPlan *plan)
{
    uint32_t short_edge = width < height ? width : height, size = augmentation->size;
    double resized_width = floor((double)augmentation->resize * width / short_edge);
    double resized_height = floor((double)augmentation->resize * height / short_edge);
    double left = nearbyint((resized_width - size) / 2), top = nearbyint((resized_height - size) / 2);
    if (augmentation->mode == CROP_KEPT_RATIO) {
        top = random_below(random, (uint32_t)resized_height - size + 1);
        left = random_below(random, (uint32_t)resized_width - size + 1);
    }
    double scale_x = width / resized_width, scale_y = height / resized_height;
    plan->resized_width = (uint32_t)resized_width;
    plan->resized_height = (uint32_t)resized_height;
    plan->window = (ResampleWindow){(uint32_t)left, (uint32_t)top, size, size};
    /* Rounding may put an edge a hair outside. */
    plan->box = (ResampleBox){left * scale_x, top * scale_y, fmin((left + size) * scale_x, width),
                              fmin((top + size) * scale_y, height)};
}

/* Draws a factor for both edges, then a window of the resized image, which may be smaller than the crop. */
static void plan_scaled(const Augmentation *augmentation, uint32_t width, uint32_t height, Random *random,
                        CropPlan *plan)
{
    const double factor = between(random, augmentation->scale_min, augmentation->scale_max);
    const uint32_t size = augmentation->size, resized_width = (uint32_t)fmax(1, nearbyint(width * factor)),
                   resized_height = (uint32_t)fmax(1, nearbyint(height * factor));
    const uint32_t window_width = resized_width < size ? resized_width : size,
                   window_height = resized_height < size ? resized_height : size;
    const uint32_t top = random_below(random, resized_height - window_height + 1);
    const uint32_t left = random_below(random, resized_width - window_width + 1);
    plan->resized_width = resized_width;
    plan->resized_height = resized_height;
    plan->window = (ResampleWindow){left, top, window_width, window_height};
}

static ResampleBox plan_random(const Augmentation *augmentation, uint32_t width, uint32_t height,
                               Random *random)
{
    uint32_t top = random_below(random, height - augmentation->size + 1);
    uint32_t left = random_below(random, width - augmentation->size + 1);
    return box_of(left, top, augmentation->size, augmentation->size);
}

void augment_plan(const Augmentation *augmentation, uint32_t width, uint32_t height, Random *random,
                  CropPlan *plan)
{
    *plan = (CropPlan){.box = box_of(0, 0, width, height)};
    if (augmentation->mode == CROP_RESIZED)
        plan->box = plan_resized(augmentation, width, height, random);
    else if (augmentation->mode == CROP_RANDOM)
        plan->box = plan_random(augmentation, width, height, random);
    else if (augmentation->mode == CROP_SCALED)
        plan_scaled(augmentation, width, height, random, plan);
    else if (crop_mode_resizes_first(augmentation->mode))
        plan_square(augmentation, width, height, random, plan);
    if (augmentation->mode == CROP_PADDED) {
        uint32_t places = 2 * augmentation->padding + 1;
        plan->shift_y = (int32_t)random_below(random, places) - (int32_t)augmentation->padding;
        plan->shift_x = (int32_t)random_below(random, places) - (int32_t)augmentation->padding;
    }
    plan->flip = happens(random, augmentation->flip_probability);
    if (augmentation->mode == CROP_RANDOM) {
        plan->vertical_flip = happens(random, augmentation->vertical_flip_probability);
        plan->transpose = happens(random, augmentation->transpose_probability);
    }
}

void augment_part(const Augmentation *augmentation, const CropPlan *plan, uint32_t width, uint32_t height,
                  ImagePart *part)
{
    *part = (ImagePart){.width = width, .height = height};
    if (augmentation->mode == CROP_RESIZED || augmentation->mode == CROP_RANDOM)
        *part = (ImagePart){.left = (uint32_t)plan->box.left,
                            .top = (uint32_t)plan->box.top,
                            .width = (uint32_t)(plan->box.right - plan->box.left),
                            .height = (uint32_t)(plan->box.bottom - plan->box.top)};
}

static uint32_t least_edge(uint32_t edge, double box_edge, uint32_t size)
{
    double least = ceil(edge * (double)size / box_edge);
    return least < edge ? (uint32_t)least : edge;
}

void augment_least_size(const Augmentation *augmentation, const CropPlan *plan, uint32_t width,
                        uint32_t height, uint32_t *least_width_ret, uint32_t *least_height_ret)
{
    *least_width_ret = *least_height_ret = 0;
    if (augmentation->mode != CROP_RESIZED)
        return;
    *least_width_ret = least_edge(width, plan->box.right - plan->box.left, augmentation->size);
    *least_height_ret = least_edge(height, plan->box.bottom - plan->box.top, augmentation->size);
}

/* ---- pixels ---- */

/* Returns the whole pixels of view that *box lies in; *box becomes relative to them. */
static ImageView narrow(const ImageView *view, ResampleBox *box)
{
    uint32_t left = (uint32_t)box->left, top = (uint32_t)box->top;
    uint32_t right = (uint32_t)ceil(box->right), bottom = (uint32_t)ceil(box->bottom);
    *box = (ResampleBox){box->left - left, box->top - top, box->right - left, box->bottom - top};
    return (ImageView){.pixels = view->pixels + top * view->stride_bytes + (size_t)left * view->channels,
                       .stride_bytes = view->stride_bytes,
                       .width = right - left,
                       .height = bottom - top,
                       .channels = view->channels};
}

static void copy_row(const uint8_t *source, size_t width, uint32_t channels, bool flip, uint8_t *target)
{
    if (flip)
        image_mirror_row(source, width, channels, target);
    else
        memcpy(target, source, width * channels);
}

/* Copies source to target, [height, width]; rows from the last to the first if vertical_flip. */
static void copy_straight(const ImageView *source, bool flip, bool vertical_flip, uint8_t *target)
{
    size_t row_bytes = (size_t)source->width * source->channels;
    if (!flip && !vertical_flip && source->stride_bytes == row_bytes) {
        memcpy(target, source->pixels, row_bytes * source->height);
        return;
    }
    for (uint32_t y = 0; y < source->height; y++) {
        uint32_t from = vertical_flip ? source->height - 1 - y : y;
        copy_row(source->pixels + from * source->stride_bytes, source->width, source->channels, flip,
                 target + y * row_bytes);
    }
}

/* Copies the flipped source to target, [width, height], rows for columns. In blocks: the cache lines that one
 * column touches serve the next ones too. */
static void copy_transposed(const ImageView *source, bool flip, bool vertical_flip, uint8_t *target)
{
    enum { BLOCK = 16 };
    const uint32_t channels = source->channels;
    for (uint32_t first_row = 0; first_row < source->width; first_row += BLOCK)
        for (uint32_t x = 0; x < source->height; x++) {
            const uint8_t *row =
                source->pixels + (vertical_flip ? source->height - 1 - x : x) * source->stride_bytes;
            for (uint32_t y = first_row; y < first_row + BLOCK && y < source->width; y++) {
                const uint8_t *from = row + (size_t)(flip ? source->width - 1 - y : y) * channels;
                uint8_t *to = target + ((size_t)y * source->height + x) * channels;
                for (uint32_t c = 0; c < channels; c++)
                    to[c] = from[c];
            }
        }
}

/* Fills pixels first..end-1 of target, which lie outside of source, with pixels mirrored at its edge. */
static void mirror_edge(const uint8_t *source, uint32_t size, uint32_t channels, int32_t shift,
                        uint32_t first, uint32_t end, uint8_t *target)
{
    for (uint32_t x = first; x < end; x++) {
        const uint8_t *from = source + pixel_mirrored((int64_t)x + shift, size) * channels;
        for (uint32_t c = 0; c < channels; c++)
            target[(size_t)x * channels + c] = from[c];
    }
}

/* Moves a row by the shift: what source and target share in one copy, the edges pixel by pixel. */
static void shift_row(const uint8_t *source, uint32_t size, uint32_t channels, int32_t shift, uint8_t *target)
{
    uint32_t begin = shift < 0 ? (uint32_t)-shift : 0, end = shift > 0 ? size - (uint32_t)shift : size;
    mirror_edge(source, size, channels, shift, 0, begin, target);
    memcpy(target + (size_t)begin * channels, source + (size_t)((int64_t)begin + shift) * channels,
           (size_t)(end - begin) * channels);
    mirror_edge(source, size, channels, shift, end, size, target);
}

/* Copies the centre crop, a square, moved and mirrored by the plan. */
static FshStatus copy_shifted(Augmenter *augmenter, const CropPlan *plan, const ImageView *source,
                              uint8_t *target, FshError *error)
{
    uint32_t size = source->width, channels = source->channels;
    size_t row_bytes = (size_t)size * channels;
    FshStatus status = image_reserve(&augmenter->row, size, 1, channels, error);
    for (uint32_t y = 0; !status && y < size; y++) {
        const uint8_t *row =
            source->pixels + pixel_mirrored((int64_t)y + plan->shift_y, size) * source->stride_bytes;
        uint8_t *to = target + y * row_bytes;
        shift_row(row, size, channels, plan->shift_x, plan->flip ? augmenter->row.pixels : to);
        if (plan->flip)
            image_mirror_row(augmenter->row.pixels, size, channels, to);
    }
    return status;
}

static bool is_whole(double value)
{
    return value == floor(value);
}

/* Returns whether the box is taken pixel by pixel. */
static bool needs_no_resampling(const Augmentation *augmentation, const ResampleBox *box)
{
    return augmentation->mode == CROP_WHOLE ||
           (augmentation->mode != CROP_SCALED && box->right - box->left == augmentation->size &&
            box->bottom - box->top == augmentation->size && is_whole(box->left) && is_whole(box->top));
}

bool augment_copies(const Augmentation *augmentation, const CropPlan *plan)
{
    return needs_no_resampling(augmentation, &plan->box);
}

/* Copies pixels of the right size, moved and turned by the plan. */
static FshStatus copy_pixels(Augmenter *augmenter, const Augmentation *augmentation, const CropPlan *plan,
                             const ImageView *source, uint8_t *target, FshError *error)
{
    if (augmentation->mode == CROP_PADDED)
        return copy_shifted(augmenter, plan, source, target, error);
    if (plan->transpose)
        copy_transposed(source, plan->flip, plan->vertical_flip, target);
    else
        copy_straight(source, plan->flip, plan->vertical_flip, target);
    return FSH_OK;
}

/* Renders box of image. target has the image's channels. */
static FshStatus render(Augmenter *augmenter, const Augmentation *augmentation, const CropPlan *plan,
                        const ImageView *image, ResampleBox box, uint8_t *target, FshError *error)
{
    const ResampleFilter filter = interpolation_filters[augmentation->interpolation];
    uint32_t size = augmentation->size;
    if (needs_no_resampling(augmentation, &box)) {
        const ImageView part = narrow(image, &box);
        return copy_pixels(augmenter, augmentation, plan, &part, target, error);
    }
    /* A resized crop is cut out first, then resampled: its neighbours have no influence. */
    if (augmentation->mode == CROP_RESIZED) {
        const ImageView part = narrow(image, &box);
        return resample_view(augmenter->resampler, &part, &box, size, size, filter, NULL, plan->flip, target,
                             error);
    }
    /* The square is cut out of the resized image, and with CROP_PADDED moved after that. */
    if (augmentation->mode != CROP_PADDED)
        return resample_view(augmenter->resampler, image, NULL, plan->resized_width, plan->resized_height,
                             filter, &plan->window, plan->flip, target, error);
    FshStatus status = image_reserve(&augmenter->centre, size, size, image->channels, error);
    if (!status)
        status = resample_view(augmenter->resampler, image, NULL, plan->resized_width, plan->resized_height,
                               filter, &plan->window, false, augmenter->centre.pixels, error);
    if (status)
        return status;
    const ImageView centre = image_view(&augmenter->centre);
    return copy_shifted(augmenter, plan, &centre, target, error);
}

/* Converts between gray and RGB as Pillow's convert("L") and convert("RGB"). */
static void convert_channels(const uint8_t *source, size_t count, uint32_t source_channels, uint8_t *target,
                             uint32_t target_channels)
{
    for (size_t i = 0; i < count; i++, source += source_channels, target += target_channels) {
        if (source_channels == 1)
            memset(target, source[0], target_channels);
        else
            target[0] = colour_luma(source);
    }
}

/* Renders a window of the resized image, and fills what it leaves of the crop at the right and below. */
static FshStatus render_scaled(Augmenter *augmenter, const Augmentation *augmentation, const CropPlan *plan,
                               const ImageView *image, uint8_t *target, FshError *error)
{
    const ResampleWindow *window = &plan->window;
    const uint32_t size = augmentation->size, channels = augmentation->channels;
    FshStatus status =
        image_reserve(&augmenter->centre, window->width, window->height, image->channels, error);
    if (!status)
        status = resample_view(augmenter->resampler, image, NULL, plan->resized_width, plan->resized_height,
                               interpolation_filters[augmentation->interpolation], window, plan->flip,
                               augmenter->centre.pixels, error);
    for (uint32_t y = 0; y < size && !status; y++, target += (size_t)size * channels) {
        const uint32_t inside = y < window->height ? window->width : 0;
        const uint8_t *row = augmenter->centre.pixels + (size_t)y * window->width * image->channels;
        if (image->channels == channels && inside)
            memcpy(target, row, (size_t)inside * channels);
        else
            convert_channels(row, inside, image->channels, target, channels);
        for (size_t i = (size_t)inside * channels; i < (size_t)size * channels; i++)
            target[i] = augmentation->fill[i % channels];
    }
    return status;
}

void augment_render_mask(const Augmentation *augmentation, const CropPlan *plan, const ImageView *mask,
                         uint8_t outside, uint8_t *target)
{
    const bool whole = augmentation->mode == CROP_WHOLE;
    const ResampleWindow all = {0, 0, mask->width, mask->height}, *window = whole ? &all : &plan->window;
    const uint32_t width = whole ? mask->width : augmentation->size,
                   height = whole ? mask->height : augmentation->size;
    const MaskNearest columns =
        mask_nearest_from(mask->width, whole ? mask->width : plan->resized_width, window->left);
    MaskNearest rows =
        mask_nearest_from(mask->height, whole ? mask->height : plan->resized_height, window->top);
    for (uint32_t y = 0; y < height; y++, target += width) {
        const uint32_t inside = y < window->height ? window->width : 0;
        const uint8_t *row = mask->pixels + (inside ? mask_nearest_next(&rows) : 0) * mask->stride_bytes;
        MaskNearest at = columns;
        for (uint32_t x = 0; x < inside; x++)
            target[plan->flip ? inside - 1 - x : x] = row[mask_nearest_next(&at)];
        memset(target + inside, outside, width - inside);
    }
}

FshStatus augment_render(Augmenter *augmenter, const Augmentation *augmentation, const CropPlan *plan,
                         const ImageView *image, const ImagePlace *place, uint8_t *target, FshError *error)
{
    double scale = place->eighths / 8.0;
    ResampleBox box = {plan->box.left * scale - place->left, plan->box.top * scale - place->top,
                       fmin(plan->box.right * scale - place->left, image->width),
                       fmin(plan->box.bottom * scale - place->top, image->height)};
    if (augmentation->mode == CROP_SCALED)
        return render_scaled(augmenter, augmentation, plan, image, target, error);
    if (image->channels == augmentation->channels)
        return render(augmenter, augmentation, plan, image, box, target, error);
    bool whole = augmentation->mode == CROP_WHOLE;
    uint32_t width = whole ? image->width : augmentation->size,
             height = whole ? image->height : augmentation->size;
    FshStatus status = image_reserve(&augmenter->other, width, height, image->channels, error);
    if (!status)
        status = render(augmenter, augmentation, plan, image, box, augmenter->other.pixels, error);
    if (!status)
        convert_channels(augmenter->other.pixels, (size_t)width * height, image->channels, target,
                         augmentation->channels);
    return status;
}

void augment_add_noise(uint8_t *values, size_t count, double sigma, Random *random)
{
    float deviation = (float)sigma;
    for (size_t i = 0; i < count; i++)
        values[i] = colour_add_noise(values[i], deviation, random_normal(random));
}

/* ---- options ---- */

Augmentation augmentation_default(void)
{
    return (Augmentation){.flip_probability = 0.5,
                          .vertical_flip_probability = 0.5,
                          .transpose_probability = 0.5,
                          .auto_augment = auto_augment_default(),
                          .erasing = random_erasing_default()};
}

Augmentation augmentation_without_chance(const Augmentation *views)
{
    Augmentation plain = *views;
    plain.flip_probability = plain.vertical_flip_probability = plain.transpose_probability = 0;
    plain.flip_mode = FLIP_RANDOM;
    plain.auto_augment = (AutoAugment){0};
    plain.jitter = (ColourJitter){0};
    plain.noise = 0;
    plain.erasing = (RandomErasing){0};
    return plain;
}

size_t augmentation_rows(Augmentation *a, Option *rows)
{
    /* clang-format off */
    const Option own[] = {
        {.name = "interpolation", .kind = OPTION_CHOICE, .value = (int *)&a->interpolation,
         .argument = "NAME", .choices = interpolation_names, .alias = "train-interpolation",
         .uses = USE_ANY,
         .help = "how classes are resized, in training and evaluation, with antialiasing"},
        {.name = "flip", .kind = OPTION_CHOICE, .value = (int *)&a->flip_mode, .argument = "HOW",
         .choices = flip_mode_names,
         .help = "left to right, by chance (random), or for classes each image in every other epoch "
                 "(alternating)"},
        {.name = "hflip-prob", .kind = OPTION_REAL, .value = &a->flip_probability, .argument = "P",
         .maximum = 1, .alias = "hflip", .marks = OPTION_VARIES,
         .help = "probability of a flip left to right; unless given 0.5, none on gray images (digits, "
                 "scans)"},
        {.name = "vflip-prob", .kind = OPTION_REAL, .value = &a->vertical_flip_probability, .argument = "P",
         .maximum = 1, .alias = "vflip",
         .help = "for pairs: probability of a flip upside down"},
        {.name = "rotate-prob", .kind = OPTION_REAL, .value = &a->transpose_probability, .argument = "P",
         .maximum = 1,
         .help = "for pairs: probability that rows and columns change places, which with the flips gives "
                 "quarter turns"},
        {.name = "noise", .kind = OPTION_REAL, .value = &a->noise, .argument = "X", .maximum = 255,
         .help = "for pairs: noise on the input alone, of a deviation drawn up to this, in grey levels "
                 "of 255"},
    };
    /* clang-format on */
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
