/* cache_choice.h - whether decoding the images once, before the rest of a run, makes the whole of it shorter.
 *
 * What an image costs is measured in the run's first steps; from that follow the time of a pass over the
 * training split as it is and with the images decoded, what decoding them takes, and, by the passes that are
 * left, what is won. Where a GPU trains, processors and GPU work side by side, and the slower of the two
 * decides. On the CPU both use the same cores: a pass becomes shorter by the share of their work that falls
 * away, also where other programs make all of it slower.
 *
 * Arithmetic alone.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_CACHE_CHOICE_H
#define FSHARD_TRAINER_PLAN_CACHE_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Seconds are those of one rank; with several, of the slowest. */
typedef struct CacheFacts {
    bool cuda;
    double passes_left;            /* over the training split */
    uint64_t pass_samples;         /* of a pass, that a rank takes */
    uint64_t decoded_samples;      /* of all splits, that a rank decodes before they lie in memory */
    double step_seconds;           /* of training for a sample, by the clock, without waiting for data */
    double wait_seconds;           /* of waiting, for a sample */
    double train_seconds;          /* of cores, to train with a sample; cuda: not used */
    double make_seconds;           /* of a core, to read, decode and change a sample */
    double change_seconds;         /* of them, to change it: what is left once it is decoded */
    int cores;                     /* of the rank, for training and loader */
    uint64_t pixel_bytes;          /* of all splits, decoded, */
    uint64_t planes_bytes;         /* and as the GPU and --cache planes keep them */
    uint64_t free_ram, free_gpu;   /* for one copy of them; free_gpu: on each GPU */
    bool same_on_gpu, same_in_ram; /* batches are the same to the byte then */
} CacheFacts;

typedef enum CacheAnswer {
    CACHE_PAYS,
    CACHE_WINS_LITTLE,  /* nothing is waited for, or few passes are left */
    CACHE_HAS_NO_ROOM,  /* it would pay, but no memory holds the pixels */
    CACHE_OTHER_PIXELS, /* it would pay, but batches would differ */
} CacheAnswer;

typedef struct CacheChoice {
    CacheAnswer answer;
    const char *cache; /* the value of --cache: "gpu", "pixels", "planes"; "none" where it does not pay */
    double pass_now, pass_then, load; /* seconds: of a pass, and to decode once */
} CacheChoice;

/* Returns what to do. Where several ways pay, the one that leaves the processors most time. */
CacheChoice cache_choose(const CacheFacts *facts);

/* Writes the choice and its reason as a line for the log. Returns text. */
const char *cache_choice_text(const CacheChoice *choice, const CacheFacts *facts, char *text,
                              size_t text_bytes);

#endif
