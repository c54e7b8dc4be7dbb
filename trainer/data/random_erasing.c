#include "trainer/data/random_erasing.h"

#include <math.h>
#include <string.h>
#include <stddef.h>

#include "trainer/backend/colour_math.h"

/* timm's --remode, in the order of ErasingFill. */
static const char *const erasing_fill_names[] = {"const", "rand", "pixel", NULL};

static double between(Random *random, double low, double high)
{
    return low + (high - low) * random_uniform_double(random);
}

void random_erasing_plan(const RandomErasing *erasing, uint32_t width, uint32_t height, Random *random,
                         ErasingPlan *plan)
{
    enum { TRIES = 10 };
    double area = (double)width * height;
    *plan = (ErasingPlan){0};
    if (!(erasing->probability > 0) || random_uniform_double(random) >= erasing->probability)
        return;
    double log_ratio_min = log(erasing->ratio_min), log_ratio_max = log(erasing->ratio_max);
    for (int i = 0; i < TRIES; i++) {
        double erased_area = area * between(random, erasing->scale_min, erasing->scale_max);
        double ratio = exp(between(random, log_ratio_min, log_ratio_max));
        double erased_height = nearbyint(sqrt(erased_area * ratio)),
               erased_width = nearbyint(sqrt(erased_area / ratio));
        if (erased_height < 1 || erased_width < 1 || erased_height >= height || erased_width >= width)
            continue;
        plan->height = (uint32_t)erased_height;
        plan->width = (uint32_t)erased_width;
        plan->top = random_below(random, height - plan->height + 1);
        plan->left = random_below(random, width - plan->width + 1);
        return;
    }
}

void random_erasing_colour(const RandomErasing *erasing, const uint8_t mean[4], uint32_t channels,
                           Random *random, uint8_t colour[4])
{
    for (uint32_t c = 0; c < 4; c++)
        colour[c] = erasing->fill == ERASING_RAND && c < channels
                        ? colour_around(mean[c], erasing->deviation[c], random_normal(random))
                        : mean[c];
}

void random_erasing_apply(const RandomErasing *erasing, const ErasingPlan *plan, const uint8_t mean[4],
                          uint8_t *pixels, uint32_t width, uint32_t channels, Random *random)
{
    uint8_t colour[4];
    if (!plan->width)
        return;
    random_erasing_colour(erasing, mean, channels, random, colour);
    for (uint32_t y = plan->top; y < plan->top + plan->height; y++) {
        uint8_t *value = pixels + ((size_t)y * width + plan->left) * channels;
        for (uint32_t x = 0; x < plan->width; x++)
            for (uint32_t c = 0; c < channels; c++)
                *value++ = erasing->fill == ERASING_PIXEL
                               ? colour_around(colour[c], erasing->deviation[c], random_normal(random))
                               : colour[c];
    }
}

/* ---- options ---- */

RandomErasing random_erasing_default(void)
{
    return (RandomErasing){
        .scale_min = 0.02, .scale_max = 0.33, .ratio_min = 0.3, .ratio_max = 3.3, .fill = ERASING_CONST};
}

size_t random_erasing_rows(RandomErasing *e, Option *rows)
{
    /* clang-format off */
    const Option own[] = {
        {.name = "random-erase", .kind = OPTION_REAL, .value = &e->probability, .argument = "P",
         .maximum = 1, .alias = "reprob",
         .help = "probability of a random box being erased"},
        {.name = "random-erase-mode", .kind = OPTION_CHOICE, .value = (int *)&e->fill, .argument = "HOW",
         .choices = erasing_fill_names, .alias = "remode",
         .help = "with the mean (const), one random colour (rand), random pixels (pixel)"},
    };
    /* clang-format on */
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
