/* write_timm_config FILE ARCHITECTURE CHANNELS: a config.json of ten classes for timm_load.py. */
#include <stdio.h>
#include <stdlib.h>

#include "trainer/report/timm_config.h"

int main(int argc, char **argv)
{
    static const double mean[] = {0.4914, 0.4822, 0.4465}, deviation[] = {0.247, 0.2435, 0.2616};
    static const char *const names[] = {"plane", "car",  "bird",  "cat",  "deer",
                                        "dog",   "frog", "horse", "ship", "truck"};
    if (argc != 4)
        return 2;
    FshError error = {0};
    const TimmConfig config = {.architecture = argv[2],
                               .classes = 10,
                               .class_names = names,
                               .channels = (uint32_t)atoi(argv[3]),
                               .height = 128,
                               .width = 128,
                               .resize_px = 146,
                               .interpolation = "bilinear",
                               .mean = mean,
                               .deviation = deviation};
    if (timm_config_write(&config, argv[1], &error)) {
        (void)fprintf(stderr, "write_timm_config: %s\n", error.message);
        return 1;
    }
    return 0;
}
