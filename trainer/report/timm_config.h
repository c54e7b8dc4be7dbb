/* timm_config.h - config.json beside the weights, as timm and the Hugging Face hub keep it.
 *
 * timm (1.0) then makes the network, with its preprocessing and the names of its classes, from the folder:
 *
 *   timm.create_model("local-dir:FOLDER", pretrained=True)                        # weights:
 *                                                                                 FOLDER/model.safetensors
 *   timm.create_model(config["architecture"], num_classes=config["num_classes"],
 *                     pretrained_cfg=config["pretrained_cfg"],
 *                     checkpoint_path="FOLDER/model_best.safetensors")
 *
 * if it has a network of that architecture: of ours resnet18, resnet34, resnet50 and resnet101, with the same
 * names of tensors. Of the others the file tells the same, for people and for programs that know them.
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
    uint32_t height, width;         /* of the images that evaluation gives to the network */
    uint32_t resize_px;             /* the short edge before their middle is cut out; 0: not resized */
    const char *interpolation;      /* resample_filter_names */
    const double *mean, *deviation; /* [channels], of full scale 0..1 */
} TimmConfig;

/* Writes path atomically; an existing file is replaced. FSH_ERR_MEMORY, FSH_ERR_NO_SPACE, FSH_ERR_SYSTEM. */
FshStatus timm_config_write(const TimmConfig *config, const char *path, FshError *error);

#endif
