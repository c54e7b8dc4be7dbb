/* verify_likeness.h - do the two sides of a pair show the same scene?
 *
 * Haze, low light, blur and noise change brightness and contrast from place to place, but not where edges
 * are and which way they run. So what is compared are gradients of luminance, each divided by the strength
 * of the gradients around it (local normalisation), at three sizes: haze, darkness and noise leave fine
 * gradients recognisable, large blur coarse ones. The best of the three counts.
 *
 * Gradients of different scenes correlate, by chance, the more the fewer there are: over 8,100 exchanged
 * photographs they stay below 0.30 at 64 x 64 pixels, 0.40 at 32 x 32 and 0.58 at 16 x 16. The three
 * correlations are put on the scale of that at 32, on which these values are all 0.4, and equal images 1.
 *
 * A scene that is shifted (a neighbouring frame, another crop) agrees with itself at a coarse size. So
 * gradients at 64 x 64 are also compared at every shift of up to LIKENESS_SHIFT_MAX pixels; where they
 * agree clearly better at one of more than one pixel than at any nearer one, the coarse sizes do not
 * count. */
#ifndef FSHARD_VERIFY_VERIFY_LIKENESS_H
#define FSHARD_VERIFY_VERIFY_LIKENESS_H

#include "imaging/image.h"

enum {
    LIKENESS_EDGE = 64, /* pixels; of the thumbnails, whose proportions are given up */
    LIKENESS_SHIFT_MAX = 6,
    LIKENESS_SIZES = 3, /* 64, 32, 16 */
};

/* A pair of less is suspicious. Of 300 photographs and the same in haze, with 6 to 30 % of the light, with
 * noise of 0.1 to 0.3 of full scale, or with motion blur of 7 % of the width, none has less than 0.57; of
 * those exchanged 99 % have less than 0.25, and of 8,100 none reaches 0.38. The threshold is nearer to
 * these: a true pair that is flagged costs more than the one in thousands that is missed
 * (tests/tools/verify_likeness_test.c makes such pairs and prints the distributions). */
#define LIKENESS_MIN 0.35

/* The normalised gradients of one side: [size][y * edge + x], edge = 64 >> size; the last row and column
 * are unused. */
typedef struct LikenessSide {
    float x[LIKENESS_SIZES][LIKENESS_EDGE * LIKENESS_EDGE], y[LIKENESS_SIZES][LIKENESS_EDGE * LIKENESS_EDGE];
    float scratch[3][LIKENESS_EDGE * LIKENESS_EDGE];
    double strength[LIKENESS_SIZES]; /* sum of squares of the above */
    bool flat;                       /* of one colour throughout */
} LikenessSide;

typedef struct Likeness {
    double likeness; /* -1..1 */
    bool shifted;    /* they agree better at another place: */
    double shift_x,
        shift_y; /* what the first side shows is there in the second, by this share of width and height; */
    double likeness_there; /* and so alike they are there */
} Likeness;

/* Fills side from an image of LIKENESS_EDGE x LIKENESS_EDGE pixels. */
void likeness_side(const Image *thumbnail, LikenessSide *side);

/* Compares two sides. The likeness is 1 where both are of one colour throughout, 0 where only one is. */
Likeness likeness_of(const LikenessSide *first, const LikenessSide *second);

#endif
