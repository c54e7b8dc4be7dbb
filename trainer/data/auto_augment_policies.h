/* auto_augment_policies.h - the policies that AutoAugment (Cubuk et al. 2019) found for three sets, as
 * torchvision has them. */
#ifndef FSHARD_TRAINER_DATA_AUTO_AUGMENT_POLICIES_H
#define FSHARD_TRAINER_DATA_AUTO_AUGMENT_POLICIES_H

#include "trainer/data/image_operations.h"

/* An operation, the probability that it is done, and how far it goes: a bin of ten, 0 where it has none. */
typedef struct PolicyStep {
    ImageOperation operation;
    double probability;
    uint32_t magnitude;
} PolicyStep;

enum { POLICIES = 25, POLICY_STEPS = 2 };

/* One of the policies is drawn for an image; its steps are done in order. */
extern const PolicyStep imagenet_policies[POLICIES][POLICY_STEPS], cifar10_policies[POLICIES][POLICY_STEPS],
    svhn_policies[POLICIES][POLICY_STEPS];

#endif
