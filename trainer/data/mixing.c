#include "trainer/data/mixing.h"

#include <math.h>
#include <string.h>

#include "trainer/backend/colour_math.h"

/* Draws from Gamma(alpha, 1) by Marsaglia and Tsang, "A simple method for generating gamma variables" (2000);
 * for alpha below 1 from alpha + 1, as they advise. */
static double draw_gamma(double alpha, Random *random)
{
    double boost = 1;
    if (alpha < 1) {
        boost = pow(1 - random_uniform_double(random), 1 / alpha);
        alpha += 1;
    }
    double d = alpha - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = (double)random_normal(random), v = 1 + c * x;
        double u = 1 - random_uniform_double(random); /* in (0, 1] */
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return boost * d * v;
    }
}

double mixing_draw_beta(double alpha, Random *random)
{
    double first = draw_gamma(alpha, random), second = draw_gamma(alpha, random);
    double sum = first + second;
    /* a tiny alpha gives 0 or 1, and both gammas too small for a double */
    return sum > 0 ? first / sum : random_below(random, 2);
}

/* Draws one axis of the box as timm's rand_bbox: around a random middle, cut off at the edges. */
static void cut_axis(uint32_t size, double ratio, Random *random, uint32_t *low, uint32_t *high)
{
    int64_t half = (int64_t)((double)size * ratio) / 2, middle = (int64_t)random_below(random, size);
    int64_t from = middle - half, to = middle + half;
    *low = from < 0 ? 0 : (uint32_t)from;
    *high = to > (int64_t)size ? size : (uint32_t)to;
}

void mixing_plan(const Mixing *mixing, uint32_t width, uint32_t height, Random *random, MixPlan *plan)
{
    *plan = (MixPlan){.share = 1};
    if (!mixing_is_on(mixing) || random_uniform_double(random) >= mixing->probability)
        return;
    bool both = mixing->mixup_alpha > 0 && mixing->cutmix_alpha > 0;
    plan->cut = both ? random_uniform_double(random) < mixing->switch_probability : mixing->cutmix_alpha > 0;
    double share = mixing_draw_beta(plan->cut ? mixing->cutmix_alpha : mixing->mixup_alpha, random);
    plan->share = (float)share;
    if (!plan->cut)
        return;
    double ratio = sqrt(1 - share), area = (double)width * height;
    cut_axis(height, ratio, random, &plan->top, &plan->bottom);
    cut_axis(width, ratio, random, &plan->left, &plan->right);
    double cut_area = (double)(plan->right - plan->left) * (plan->bottom - plan->top);
    plan->share = (float)(1 - cut_area / area);
}

static void exchange(uint8_t *first, uint8_t *second, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        uint8_t kept = first[i];
        first[i] = second[i];
        second[i] = kept;
    }
}

static void blend(float share, uint8_t *restrict first, uint8_t *restrict second, size_t bytes)
{
    float rest = 1 - share;
    for (size_t i = 0; i < bytes; i++) {
        float a = first[i], b = second[i];
        first[i] = colour_nearest(a * share + b * rest);
        second[i] = colour_nearest(b * share + a * rest);
    }
}

void mixing_apply(const MixPlan *plan, uint32_t width, uint32_t height, uint32_t channels, uint8_t *first,
                  uint8_t *second)
{
    size_t row_bytes = (size_t)width * channels;
    if (plan->share >= 1)
        return;
    if (!plan->cut) {
        blend(plan->share, first, second, row_bytes * height);
        return;
    }
    for (uint32_t y = plan->top; y < plan->bottom; y++) {
        size_t at = y * row_bytes + (size_t)plan->left * channels;
        exchange(first + at, second + at, (size_t)(plan->right - plan->left) * channels);
    }
}

/* ---- options ---- */

static const char *const mode_choices[] = {"pair", "batch", NULL};

Mixing mixing_default(void)
{
    return (Mixing){.probability = 1, .switch_probability = 0.5};
}

size_t mixing_rows(Mixing *m, Option *rows)
{
    /* clang-format off */
    const Option own[] = {
        {.name = "mixup-alpha", .kind = OPTION_REAL, .value = &m->mixup_alpha, .argument = "X",
         .group = "Mixing",
         .maximum = 100, .alias = "mixup",
         .help = "mixup with a share drawn from beta(X, X), 0.2 for one; 0: none"},
        {.name = "cutmix-alpha", .kind = OPTION_REAL, .value = &m->cutmix_alpha, .argument = "X",
         .maximum = 100, .alias = "cutmix",
         .help = "cutmix with a share drawn from beta(X, X), 1 for one; 0: none"},
        {.name = "mixup-prob", .kind = OPTION_REAL, .value = &m->probability, .argument = "P", .maximum = 1,
         .help = "probability that a pair of samples, or a batch, is mixed"},
        {.name = "mixup-switch-prob", .kind = OPTION_REAL, .value = &m->switch_probability, .argument = "P",
         .maximum = 1,
         .help = "with mixup and cutmix: probability that it is cutmix"},
        {.name = "mixup-mode", .kind = OPTION_CHOICE, .value = &m->mode, .argument = "MODE",
         .choices = mode_choices,
         .help = "for whom share, box and which of the two are drawn: each pair, or a whole step"},
    };
    /* clang-format on */
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
