/* plan_images.c - decides sizes and augmentation. */
#include "trainer/plan/plan_images.h"

#include <math.h>
#include <string.h>

#include "trainer/report/image_metrics.h"
#include "trainer/plan/recipe.h"
#include "trainer/plan/train_plan.h"

enum {
    CROP_USED_WHOLE = 64, /* images up to this edge are used whole */
    CROP_STEP = 32,       /* larger crops are multiples of this, as resnets halve them */
    CROP_LARGEST = 224,   /* torchvision's */
    PAD_UP_TO = 40,       /* crops up to this edge are padded: MNIST and CIFAR, where resized crops would cut
                           * off too much */
    PAIR_CROP = 128,      /* for pairs, if the images are large enough */
    PAIR_CROP_STEP = 16,
    MASK_CROP_LARGEST = 480, /* for masks: torchvision's */
    RESIZE_LARGEST = 4096,   /* short edge before the crop: as --val-resize-size */
    SMALL_STEP = 8,          /* of a progression that begins below CROP_USED_WHOLE */
};

ImageOptions image_options_default(void)
{
    return (ImageOptions){
        .train_crop_mode = OPTION_AUTO,
        .scale = "0.35:1",
        .ratio = "0.75:1.3333",
        .augment = true,
    };
}

enum { EDGE_MAX = 4096 };

/* clang-format off */
size_t image_options_rows(ImageOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "train-crop-size", .kind = OPTION_INTEGER, .value = &o->train_crop_size, .argument = "PX",
         .group = "Image sizes",
         .maximum = EDGE_MAX,
         .help = "edge of the square that the network sees in training; 0: from the dataset"},
        {.name = "progressive", .kind = OPTION_TEXT, .value = &o->progressive, .argument = "FROM:TO",
         .help = "edge that grows with the epochs, in steps of 32 pixels (8 below 64)"},
        {.name = "progressive-step", .kind = OPTION_INTEGER, .value = &o->progressive_step, .argument = "PX",
         .maximum = EDGE_MAX,
         .help = "the step in which it grows; 0: as above"},
        {.name = "progressive-epochs", .kind = OPTION_TEXT, .value = &o->progressive_epochs,
         .argument = "FIRST:LAST",
         .uses = USE_SAMPLES,
         .help = "the epochs between which it grows; the second third unless given"},
        {.name = "val-resize-size", .kind = OPTION_INTEGER, .value = &o->val_resize_size, .argument = "PX",
         .maximum = EDGE_MAX,
         .help = "short edge that images get before evaluation; 0: from the dataset"},
        {.name = "val-crop-size", .kind = OPTION_INTEGER, .value = &o->val_crop_size, .argument = "PX",
         .maximum = EDGE_MAX, .uses = USE_ANY | USE_ONNX,
         .help = "edge of the centre square that is evaluated; 0: as in training; pairs and masks are "
                 "evaluated whole"},
        {.name = "crop-pct", .kind = OPTION_REAL, .value = &o->crop_pct, .argument = "X", .maximum = 1,
         .help = "part of the short edge that the centre square of evaluation is, as 0.95 or 95%, in "
                 "place of --val-resize-size; 0: from the dataset"},
        {.name = "train-crop-mode", .kind = OPTION_CHOICE, .value = &o->train_crop_mode, .argument = "MODE",
         .group = "Crops",
         .choices = crop_mode_names, .has_auto = true,
         .uses = USE_SAMPLES,
         .help = "rrc: random part, resized; pad: the centre, moved; center: no chance; rkrc: resized, a "
                 "square from anywhere; auto: pad up to 40 pixels, else rrc"},
        {.name = "scale", .kind = OPTION_TEXT, .value = &o->scale, .argument = "MIN:MAX",
         .alias = "rrc-scale",
         .uses = USE_SAMPLES, .marks = OPTION_VARIES,
         .help = "for rrc: part of the image's area, unless given 0.35:1; for masks: factor by which images "
                 "are resized, unless given 0.5:2"},
        {.name = "ratio", .kind = OPTION_TEXT, .value = &o->ratio, .argument = "MIN:MAX",
         .alias = "rrc-ratio",
         .uses = USE_SAMPLES,
         .help = "for rrc: width / height of the part"},
        {.name = "crop-padding", .kind = OPTION_INTEGER, .value = &o->crop_padding, .argument = "PX",
         .maximum = EDGE_MAX,
         .uses = USE_SAMPLES,
         .help = "for pad: how far images are moved; 0: an eighth of the crop"},
        {.name = "flip-tta", .kind = OPTION_FLAG, .value = &o->flip_tta, .group = "Evaluation of images",
         .uses = USE_NETWORK,
         .help = "evaluate each image and its mirror image, and average"},
        {.name = "shift-tta", .kind = OPTION_INTEGER, .value = &o->shift_tta, .argument = "PX", .maximum = 64,
         .uses = USE_NETWORK,
         .help = "classes: evaluate each image also moved by this many pixels, right and down, left and up; "
                 "it weighs as much as both"},
        {.name = "crop-border", .kind = OPTION_INTEGER, .value = &o->crop_border, .argument = "PX",
         .maximum = 1024,
         .uses = USE_LEARN | USE_EVALUATE | USE_PREDICT,
         .help = "pairs: pixels at each edge that PSNR and SSIM leave out"},
        {.name = "y-channel", .kind = OPTION_FLAG, .value = &o->y_channel,
         .uses = USE_LEARN | USE_EVALUATE | USE_PREDICT,
         .help = "pairs: PSNR and SSIM of luma (ITU-R 601) alone"},
        {.name = "color-jitter", .kind = OPTION_TEXT, .value = &o->color_jitter, .argument = "B:C:S:H",
         .group = "Augmentation",
         .uses = USE_SAMPLES,
         .help = "brightness, contrast, saturation, hue as torchvision's ColorJitter; one number is for "
                 "the first three"},
        {.name = "aug", .kind = OPTION_FLAG, .value = &o->augment,
         .uses = USE_SAMPLES,
         .help = "random crops, flips and all else in training; --no-aug sees each image as evaluation "
                 "does"},
    };
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
/* clang-format on */

static uint32_t minimum_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- sizes ---- */

static uint32_t choose_crop(const TrainingData *data)
{
    uint32_t edge = data->short_edge ? data->short_edge : 1;
    if (edge > CROP_USED_WHOLE)
        edge = minimum_u32(edge / CROP_STEP * CROP_STEP, CROP_LARGEST);
    return edge;
}

/* Returns the short edge before the crop. Photographs lose a margin, as in torchvision's 256 to 224, but are
 * not enlarged for it: small images are used whole. */
static uint32_t choose_resize(const TrainingData *data, uint32_t crop)
{
    uint32_t wanted = (uint32_t)lround(crop * 8.0 / 7.0);
    uint32_t available = data->short_edge > crop ? data->short_edge : crop;
    return minimum_u32(wanted, available);
}

/* Sets *resize_ret to the short edge that --crop-pct asks for. */
static FshStatus resize_of_part(const TrainOptions *options, uint32_t crop, uint32_t *resize_ret,
                                FshError *error)
{
    const double part = options->image.crop_pct;
    if (crop / part > RESIZE_LARGEST)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--crop-pct: %g makes the short edge of a crop of %u pixels %.0f; it is at most "
                             "%d pixels",
                             part, crop, floor(crop / part), RESIZE_LARGEST);
    *resize_ret = augment_resize_of_part(crop, part);
    return FSH_OK;
}

bool plan_takes_resize(const TrainOptions *options)
{
    const ImageOptions *image = &options->image;
    const void *crop = image->val_crop_size ? &image->val_crop_size : &image->train_crop_size;
    const bool crop_given = train_given(options, crop) && !recipe_gives(options, crop);
    return !(crop_given && recipe_gives(options, &image->val_resize_size));
}

/* Returns whether the crop of evaluation is the recipe's and gives way: the network learns positions at the
 * user's size of training. */
static bool crop_gives_way(const TrainPlan *plan, const TrainOptions *options)
{
    const ImageOptions *image = &options->image;
    const bool trains_elsewhere = image->train_crop_size && !recipe_gives(options, &image->train_crop_size);
    return plan->learns_positions && trains_elsewhere && recipe_gives(options, &image->val_crop_size);
}

/* Sets the sizes of evaluation that options ask for; 0: they leave it open. Where a recipe's crop gives way,
 * its short edge changes in proportion. */
static void take_given_sizes(TrainPlan *plan, const TrainOptions *options, uint32_t *crop_ret,
                             uint32_t *resize_ret)
{
    const ImageOptions *image = &options->image;
    *crop_ret = image->val_crop_size ? (uint32_t)image->val_crop_size : plan->progression.to;
    *resize_ret = plan_takes_resize(options) ? (uint32_t)image->val_resize_size : 0;
    plan->crop_follows = crop_gives_way(plan, options);
    if (!plan->crop_follows)
        return;
    if (recipe_gives(options, &image->val_resize_size))
        *resize_ret = (uint32_t)lround((double)plan->progression.to * *resize_ret / *crop_ret);
    *crop_ret = plan->progression.to;
}

/* Refuses to evaluate positions at another size than that at which they are learned. */
static FshStatus check_positions(const TrainPlan *plan, uint32_t train_crop, uint32_t crop, FshError *error)
{
    if (!plan->learns_positions || crop == train_crop)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE,
                         "--val-crop-size: %u pixels, and %s has learned positions for images of %u x %u "
                         "pixels, those of training: use --val-crop-size %u, or --pos-embed sincos",
                         crop, plan->model->name, train_crop, train_crop, train_crop);
}

static FshStatus plan_class_sizes(TrainPlan *plan, const TrainOptions *options, const TrainingData *data,
                                  FshError *error)
{
    uint32_t train_crop = plan->progression.to, crop = 0, resize = 0;
    take_given_sizes(plan, options, &crop, &resize);
    if (!crop)
        crop = resize ? minimum_u32(resize, choose_crop(data)) : choose_crop(data);
    if (!train_crop)
        train_crop = crop;
    FshStatus status = check_positions(plan, train_crop, crop, error);
    if (!status && options->image.crop_pct > 0)
        status = resize_of_part(options, crop, &resize, error);
    if (status)
        return status;
    if (!resize)
        resize = choose_resize(data, crop);
    if (resize < crop)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--val-resize-size: %u is less than the crop of %u pixels; lower --val-crop-size too", resize,
            crop);
    Augmentation *evaluation = &plan->evaluation_augmentation, *train = &plan->train_augmentation;
    evaluation->mode = train->mode = CROP_CENTER;
    evaluation->size = crop;
    evaluation->resize = resize;
    train->size = train_crop;
    train->resize = (uint32_t)lround((double)train_crop * resize / crop);
    return FSH_OK;
}

/* Checks that the border leaves enough pixels for SSIM, before an epoch is spent. A dataset that was packed
 * without decoding has no known smallest size. */
static FshStatus check_border(const TrainOptions *options, const TrainingData *data, FshError *error)
{
    const uint32_t least = minimum_u32(data->width_min, data->height_min);
    const uint32_t border = (uint32_t)options->image.crop_border;
    if (!data->evaluation || !least || least >= IMAGE_METRICS_WINDOW + 2 * border)
        return FSH_OK;
    if (least < IMAGE_METRICS_WINDOW)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: has images of %u pixels; SSIM, by which pairs are evaluated, wants %d",
                             fsh_path(data->dataset), least, IMAGE_METRICS_WINDOW);
    return fsh_error_set(error, FSH_ERR_MISMATCH,
                         "--crop-border: %u leaves too little of images of %u pixels; use %u or less", border,
                         least, (least - IMAGE_METRICS_WINDOW) / 2);
}

/* Decides the sizes of pairs, which are cropped unscaled and evaluated whole. */
static FshStatus plan_pair_sizes(TrainPlan *plan, const TrainOptions *options, const TrainingData *data,
                                 FshError *error)
{
    const uint32_t least = minimum_u32(data->width_min, data->height_min);
    FshStatus status = check_border(options, data, error);
    if (status)
        return status;
    uint32_t crop = plan->progression.to;
    if (!crop)
        crop = least && least < PAIR_CROP
                   ? (least >= PAIR_CROP_STEP ? least / PAIR_CROP_STEP * PAIR_CROP_STEP : least)
                   : PAIR_CROP;
    plan->train_augmentation.mode = CROP_RANDOM;
    plan->train_augmentation.size = crop;
    plan->evaluation_augmentation.mode = CROP_WHOLE;
    return data->train ? training_data_check_crop(data, data->train, crop, error) : FSH_OK;
}

/* Decides the sizes of images with masks, which are resized by chance, cropped or padded to one size, and
 * evaluated whole. */
static void plan_mask_sizes(TrainPlan *plan, const TrainingData *data)
{
    const uint32_t edge = data->short_edge ? data->short_edge : 1;
    Augmentation *train = &plan->train_augmentation;
    train->mode = CROP_SCALED;
    train->scale_min = train->scale_max = 1;
    train->size = plan->progression.to     ? plan->progression.to
                  : edge > CROP_USED_WHOLE ? minimum_u32(edge / CROP_STEP * CROP_STEP, MASK_CROP_LARGEST)
                                           : edge;
    for (uint32_t c = 0; c < data->channels; c++)
        train->fill[c] = (uint8_t)lround(fmin(1, fmax(0, data->mean[c])) * 255);
    plan->evaluation_augmentation.mode = CROP_WHOLE;
}

/* ---- sizes over the epochs ---- */

uint32_t plan_edge(const TrainPlan *plan, uint64_t epoch)
{
    const Progression *p = &plan->progression;
    if ((double)epoch < p->first || p->to == p->from)
        return p->to == p->from ? p->to : p->from;
    if ((double)epoch >= p->last)
        return p->to;
    const double part = ((double)epoch - p->first) / (p->last - p->first);
    const double edge = p->from + part * ((double)p->to - p->from);
    return (uint32_t)lround(edge / p->step) * p->step;
}

static FshStatus plan_progression(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    Progression *p = &plan->progression;
    double from = 0, to = 0;
    *p = (Progression){.from = (uint32_t)options->image.train_crop_size,
                       .to = (uint32_t)options->image.train_crop_size};
    if (!options->image.progressive)
        return FSH_OK;
    if (options->image.train_crop_size)
        return fsh_error_set(error, FSH_ERR_USAGE, "--train-crop-size: --progressive says the sizes already");
    if (plan->learns_positions)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--progressive: %s has learned positions for images of one size: use "
                             "--train-crop-size, or --pos-embed sincos",
                             plan->model->name);
    FshStatus status =
        train_options_range("progressive", options->image.progressive, 8, 4096, &from, &to, error);
    if (status)
        return status;
    p->step = options->image.progressive_step ? (uint32_t)options->image.progressive_step
              : from < CROP_USED_WHOLE        ? SMALL_STEP
                                              : CROP_STEP;
    p->from = (uint32_t)from;
    p->to = (uint32_t)to;
    if (p->from != from || p->to != to || p->from % p->step || p->to % p->step || p->from == p->to)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--progressive: '%s' is not FROM:TO, two different multiples of %u",
                             options->image.progressive, p->step);
    p->first = (double)options->training.epochs / 3;
    p->last = 2 * (double)options->training.epochs / 3;
    if (options->image.progressive_epochs)
        status = train_options_range("progressive-epochs", options->image.progressive_epochs, 0,
                                     (double)options->training.epochs, &p->first, &p->last, error);
    return status;
}

static FshStatus list_edges(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    plan->edge_count = 0;
    for (uint64_t epoch = 0; epoch < (uint64_t)options->training.epochs; epoch++) {
        const uint32_t edge = plan_edge(plan, epoch);
        if (plan->edge_count && plan->edges[plan->edge_count - 1] == edge)
            continue;
        if (plan->edge_count == PLAN_EDGES_MAX)
            return fsh_error_set(error, FSH_ERR_USAGE, "--progressive: '%s' has more than %d sizes",
                                 options->image.progressive, PLAN_EDGES_MAX);
        plan->edges[plan->edge_count++] = edge;
        if (plan->progression.from == plan->progression.to)
            break;
    }
    if (options->image.progressive && plan->edge_count == 1)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--progressive: '%s' is %u pixels in every epoch; give it more --epochs, or other "
            "--progressive-epochs",
            options->image.progressive, plan->edges[0]);
    return FSH_OK;
}

/* ---- random augmentation ---- */

/* Reads --auto-augment. */
static FshStatus plan_operations(Augmentation *train, const TrainOptions *options, FshError *error)
{
    train->auto_augment.ra_magnitude = options->views.auto_augment.ra_magnitude;
    return options->views.auto_augment.text
               ? auto_augment_parse(options->views.auto_augment.text, &train->auto_augment, error)
               : FSH_OK;
}

static CropMode choose_mode(const TrainOptions *options, uint32_t crop)
{
    if (options->image.train_crop_mode != OPTION_AUTO)
        return (CropMode)options->image.train_crop_mode;
    return crop <= PAD_UP_TO ? CROP_PADDED : CROP_RESIZED;
}

/* Reads --color-jitter; a single number is for brightness, contrast and saturation. */
static FshStatus plan_jitter(Augmentation *train, const TrainOptions *options, FshError *error)
{
    double numbers[4] = {0};
    size_t count = 0;
    if (!options->image.color_jitter)
        return FSH_OK;
    FshStatus status =
        train_options_numbers("color-jitter", options->image.color_jitter, 0, 10, numbers, 4, &count, error);
    if (status)
        return status;
    if (count == 1)
        numbers[1] = numbers[2] = numbers[0];
    if (numbers[3] > 0.5)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--color-jitter: a hue of %g; it is at most 0.5, half the circle", numbers[3]);
    if (train->channels == 1 && (numbers[3] > 0 || (count > 2 && numbers[2] > 0)))
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--color-jitter: '%s'; gray images have no saturation and no hue to change; give "
            "BRIGHTNESS:CONTRAST",
            options->image.color_jitter);
    train->jitter = (ColourJitter){numbers[0], numbers[1], numbers[2], numbers[3]};
    return FSH_OK;
}

static FshStatus plan_class_chance(TrainPlan *plan, const TrainOptions *options, const TrainingData *data,
                                   FshError *error)
{
    Augmentation *train = &plan->train_augmentation;
    FshStatus status = train_options_range("scale", options->image.scale, 1e-3, 1, &train->scale_min,
                                           &train->scale_max, error);
    if (!status)
        status = train_options_range("ratio", options->image.ratio, 0.01, 100, &train->ratio_min,
                                     &train->ratio_max, error);
    if (status)
        return status;
    train->mode = choose_mode(options, train->size);
    train->padding = options->image.crop_padding ? (uint32_t)options->image.crop_padding : train->size / 8;
    /* For the largest crop: smaller ones are moved by proportionally less (augment_at_size). */
    if (train->mode == CROP_PADDED && train->padding >= train->size)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--crop-padding: %u is not less than the crop of %u pixels", train->padding,
                             train->size);
    /* A mirrored 3 is not a 3: gray datasets are mostly digits, letters and scans. */
    const bool flips = train_given(options, &options->views.flip_probability) || data->channels == 3;
    train->flip_probability = flips ? options->views.flip_probability : 0;
    train->flip_mode = options->views.flip_mode;
    train->erasing = options->views.erasing;
    for (uint32_t c = 0; c < data->channels; c++)
        train->erasing.deviation[c] = data->standard_deviation[c] * 255;
    if (plan->recipe.mixes)
        plan->mixing = options->mixing;
    if (plan->recipe.mixes && plan->train_spec.batch % 2)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--batch-size: %lld is odd; mixup and cutmix mix two neighbours of a batch",
                             (long long)plan->train_spec.batch);
    return FSH_OK;
}

static void plan_pair_chance(TrainPlan *plan, const TrainOptions *options)
{
    Augmentation *train = &plan->train_augmentation;
    train->flip_probability = options->views.flip_probability;
    train->vertical_flip_probability = options->views.vertical_flip_probability;
    train->transpose_probability = options->views.transpose_probability;
    train->noise = options->views.noise;
}

const char *plan_scale_text(const TrainPlan *plan, const TrainOptions *options)
{
    const bool given = train_given(options, &options->image.scale);
    return plan_is_masks(plan) && !given ? "0.5:2" : options->image.scale;
}

static FshStatus plan_mask_chance(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    Augmentation *train = &plan->train_augmentation;
    train->flip_probability = options->views.flip_probability;
    return train_options_range("scale", plan_scale_text(plan, options), 0.05, 20, &train->scale_min,
                               &train->scale_max, error);
}

FshStatus plan_images(TrainPlan *plan, const TrainOptions *options, const TrainingData *data, FshError *error)
{
    const bool pairs = plan_is_pairs(plan), masks = plan_is_masks(plan);
    plan->train_augmentation = augmentation_without_chance(&options->views);
    plan->train_augmentation.channels = data->channels;
    plan->evaluation_augmentation = plan->train_augmentation;
    const ModelSpec spec = {.options = options->network};
    plan->learns_positions = data->train && data->evaluation && plan->model->learns_positions &&
                             plan->model->learns_positions(&spec);
    FshStatus status = plan_progression(plan, options, error);
    if (!status && masks)
        plan_mask_sizes(plan, data);
    else if (!status)
        status = pairs ? plan_pair_sizes(plan, options, data, error)
                       : plan_class_sizes(plan, options, data, error);
    if (status)
        return status;
    if (!options->image.progressive)
        plan->progression.from = plan->progression.to = plan->train_augmentation.size;
    plan->flip_tta = options->image.flip_tta;
    plan->shift_tta = (uint32_t)options->image.shift_tta;
    if (!pairs && !masks && plan->shift_tta >= plan->evaluation_augmentation.size)
        return fsh_error_set(error, FSH_ERR_USAGE, "--shift-tta: images of %u pixels cannot be moved by %u",
                             plan->evaluation_augmentation.size, plan->shift_tta);
    plan->crop_border = (uint32_t)options->image.crop_border;
    plan->y_channel = options->image.y_channel;
    if (!data->train)
        return FSH_OK;
    plan->sampling = options->sampling;
    status = list_edges(plan, options, error);
    if (status || !options->image.augment)
        return status;
    if (pairs)
        plan_pair_chance(plan, options);
    else
        status =
            masks ? plan_mask_chance(plan, options, error) : plan_class_chance(plan, options, data, error);
    if (!status && !pairs && !masks)
        status = plan_operations(&plan->train_augmentation, options, error);
    if (!status)
        status = plan_jitter(&plan->train_augmentation, options, error);
    return status;
}
