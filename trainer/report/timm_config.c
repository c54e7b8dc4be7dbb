#include "trainer/report/timm_config.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/json_text.h"

/* What timm stores for the networks that are the same as ours. */
static const struct {
    const char *architecture;
    int features; /* channels of the last linear layer's input */
    const char *first_convolution, *classifier;
} known[] = {
    {"resnet18", 512, "conv1", "fc"},
    {"resnet34", 512, "conv1", "fc"},
    {"resnet50", 2048, "conv1", "fc"},
    {"resnet101", 2048, "conv1", "fc"},
    {"resnet18d", 512, "conv1.0", "fc"},
    {"resnet34d", 512, "conv1.0", "fc"},
    {"resnet50d", 2048, "conv1.0", "fc"},
    {"seresnet50", 2048, "conv1", "fc"},
    {"resnext50_32x4d", 2048, "conv1", "fc"},
    {"convnext_atto", 320, "stem.0", "head.fc"},
    {"convnext_femto", 384, "stem.0", "head.fc"},
    {"convnext_pico", 512, "stem.0", "head.fc"},
    {"convnext_nano", 640, "stem.0", "head.fc"},
    {"convnext_tiny", 768, "stem.0", "head.fc"},
    {"convnext_small", 768, "stem.0", "head.fc"},
    {"convnext_base", 1024, "stem.0", "head.fc"},
    {"convnext_large", 1536, "stem.0", "head.fc"},
    {"convnext_xlarge", 2048, "stem.0", "head.fc"},
    {"convnextv2_atto", 320, "stem.0", "head.fc"},
    {"convnextv2_femto", 384, "stem.0", "head.fc"},
    {"convnextv2_pico", 512, "stem.0", "head.fc"},
    {"convnextv2_nano", 640, "stem.0", "head.fc"},
    {"convnextv2_tiny", 768, "stem.0", "head.fc"},
    {"convnextv2_small", 768, "stem.0", "head.fc"},
    {"convnextv2_base", 1024, "stem.0", "head.fc"},
    {"convnextv2_large", 1536, "stem.0", "head.fc"},
    {"convnextv2_huge", 2816, "stem.0", "head.fc"},
    {"vit_tiny_patch16", 192, "patch_embed.proj", "head"},
    {"vit_small_patch16", 384, "patch_embed.proj", "head"},
    {"vit_small_patch8", 384, "patch_embed.proj", "head"},
    {"deit_tiny_patch16", 192, "patch_embed.proj", "head"},
    {"deit_small_patch16", 384, "patch_embed.proj", "head"},
};

/* Those whose names at timm end in a size of images, and which it makes for any other. */
static const struct {
    const char *architecture, *theirs;
} sized[] = {
    {"vit_tiny_patch16", "vit_tiny_patch16_224"},     {"vit_small_patch16", "vit_small_patch16_224"},
    {"vit_small_patch8", "vit_small_patch8_224"},     {"deit_tiny_patch16", "deit_tiny_patch16_224"},
    {"deit_small_patch16", "deit_small_patch16_224"},
};

/* Appends value, whose reference it takes, and returns the array. Returns NULL if either was NULL. */
static json_t *append(json_t *array, json_t *value)
{
    if (array && json_array_append_new(array, value) == 0)
        return array;
    json_decref(array);
    return NULL;
}

static json_t *numbers(const double *values, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count && array; i++)
        array = append(array, json_real(values[i]));
    return array;
}

/* Returns crop_pct such that timm, which resizes to floor(edge / crop_pct), gets exactly resize_px. */
static double crop_part(const TimmConfig *config)
{
    const double edge = config->height < config->width ? config->height : config->width;
    if (config->resize_px == 0 || config->resize_px <= edge)
        return 1;
    double part = edge / config->resize_px;
    while (floor(edge / part) < config->resize_px)
        part = nextafter(part, 0);
    return part;
}

static json_t *preprocessing(const TimmConfig *config)
{
    return json_pack("{s:[i,i,i], s:o, s:o, s:f, s:s, s:s, s:b, s:I}", "input_size", (int)config->channels,
                     (int)config->height, (int)config->width, "mean", numbers(config->mean, config->channels),
                     "std", numbers(config->deviation, config->channels), "crop_pct", crop_part(config),
                     "crop_mode", "center", "interpolation", config->interpolation, "fixed_input_size", 0,
                     "num_classes", (json_int_t)config->classes);
}

static json_t *class_names(const TimmConfig *config)
{
    json_t *array = json_array();
    for (uint64_t i = 0; i < config->classes && array; i++)
        array = append(array, json_text(config->class_names[i]));
    return array;
}

/* Sets a member and takes the reference of value. Returns false if object or value is NULL, or without
 * memory. */
static bool set(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0;
}

/* Returns the whole object; NULL: no memory. */
static json_t *make(const TimmConfig *config)
{
    json_t *pretrained = preprocessing(config);
    json_t *object = json_pack("{s:s, s:I}", "architecture", config->architecture, "num_classes",
                               (json_int_t)config->classes);
    json_t *arguments = json_object();
    bool complete = pretrained && object && arguments;
    for (size_t i = 0; i < sizeof known / sizeof *known && complete; i++) {
        if (strcmp(known[i].architecture, config->architecture) == 0)
            complete = set(object, "num_features", json_integer(known[i].features)) &&
                       set(pretrained, "first_conv", json_string(known[i].first_convolution)) &&
                       set(pretrained, "classifier", json_string(known[i].classifier));
    }
    for (size_t i = 0; i < sizeof sized / sizeof *sized && complete; i++) {
        if (strcmp(sized[i].architecture, config->architecture) == 0)
            complete =
                set(object, "architecture", json_string(sized[i].theirs)) &&
                set(arguments, "img_size", json_pack("[i,i]", (int)config->height, (int)config->width));
    }
    if (complete && config->classes && config->class_names)
        complete = set(object, "label_names", class_names(config));
    if (complete && config->channels != 3)
        complete = set(arguments, "in_chans", json_integer((json_int_t)config->channels));
    if (complete && json_object_size(arguments) > 0)
        complete = json_object_set(object, "model_args", arguments) == 0;
    json_decref(arguments);
    complete = set(object, "pretrained_cfg", pretrained) && complete; /* takes the reference in any case */
    if (complete)
        return object;
    json_decref(object);
    return NULL;
}

FshStatus timm_config_write(const TimmConfig *config, const char *path, FshError *error)
{
    json_t *object = make(config);
    char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    FshStatus status = FSH_OK;
    json_decref(object);
    if (!text)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    if (!status)
        status = file_write_atomic(path, text, strlen(text), true, false, error);
    free(text);
    return status;
}
