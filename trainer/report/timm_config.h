/* timm_config.h - writes config.json beside the weights, in the form of timm and the Hugging Face hub.
 *
 * From the folder timm (1.0) then makes the network, with its preprocessing and the names of its classes:
 *
 *   timm.create_model("local-dir:FOLDER", pretrained=True)                        # weights:
 *                                                                                 FOLDER/model.safetensors
 *   timm.create_model(config["architecture"], num_classes=config["num_classes"],
 *                     pretrained_cfg=config["pretrained_cfg"],
 *                     checkpoint_path="FOLDER/model_best.safetensors")
 *
 * if it knows the architecture: of ours resnet18 to resnext50_32x4d, convnext_atto to convnextv2_tiny,
 * vit_tiny_patch16, vit_small_patch16, vit_small_patch8 and the deit, whose tensors have the same names; the
 * last five it knows with the size of their images in the name, and takes another from config["model_args"].
 * For other networks the file holds the same facts, for people and for programs that know them.
 *
 * Source: timm/models/_hub.py, save_config_for_hf and _parse_model_cfg. */
#ifndef FSHARD_TRAINER_REPORT_TIMM_CONFIG_H
#define FSHARD_TRAINER_REPORT_TIMM_CONFIG_H

#include <stdint.h>

#include "common/error.h"

typedef struct TimmConfig {
    const char *architecture;       /* the model's name */
    uint64_t classes;               /* 0: none */
    const char *const *class_names; /* [classes], or NULL */
    uint32_t channels;              /* 1 or 3 */
    uint32_t height, width;         /* of the image that evaluation feeds to the network */
    uint32_t resize_px;             /* short edge before the centre crop; 0: not resized */
    const char *interpolation;      /* resample_filter_names */
    const double *mean, *deviation; /* [channels], of full scale 0..1 */
} TimmConfig;

/* Writes the file to path atomically; replaces an existing file. FSH_ERR_MEMORY, FSH_ERR_NO_SPACE,
 * FSH_ERR_SYSTEM. */
FshStatus timm_config_write(const TimmConfig *config, const char *path, FshError *error);

#endif
