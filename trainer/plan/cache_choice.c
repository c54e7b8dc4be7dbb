#include "trainer/plan/cache_choice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/progress.h"

static const double least_saving = 1;    /* seconds, */
static const double least_share = 0.02;  /* and of the rest of the run */
static const double load_reserve = 1.25; /* decoding takes longer than foreseen, by so much at most */
static const double ram_share = 0.5;     /* of what is free; the rest is for files and other programs */
static const double gpu_share = 0.75;    /* of what is free; the rest is for programs of other sizes */
static const double planes_cost = 0.25;  /* of decoding: planes become RGB at each use */

/* A way to keep decoded images. */
typedef struct Way {
    const char *cache;
    bool on_gpu;
    bool planes;   /* as planes, where images are such */
    double change; /* seconds of a core for a sample */
} Way;

/* Returns how long a second of work on the cores takes by the clock: less where they share it. */
static double clock_seconds(const CacheFacts *facts)
{
    const double work = facts->train_seconds + facts->make_seconds;
    if (facts->cuda || !(work > 0))
        return 1.0 / facts->cores;
    return (facts->step_seconds + facts->wait_seconds) / work;
}

/* Returns the seconds of a pass in which the processors spend so much on making each sample. */
static double pass_seconds(const CacheFacts *facts, double make)
{
    const double samples = (double)facts->pass_samples;
    if (facts->cuda)
        return samples * fmax(facts->step_seconds, make * clock_seconds(facts));
    return samples * (facts->train_seconds + make) * clock_seconds(facts);
}

/* Returns the seconds in which all images are decoded. */
static double load_seconds(const CacheFacts *facts)
{
    const double decode = facts->make_seconds - facts->change_seconds;
    return load_reserve * (double)facts->decoded_samples * decode * clock_seconds(facts);
}

static bool pays(const CacheFacts *facts, double then)
{
    const double now = facts->passes_left * pass_seconds(facts, facts->make_seconds),
                 saving = now - facts->passes_left * then - load_seconds(facts);
    return saving >= least_saving && saving >= least_share * now;
}

static bool has_room(const CacheFacts *facts, const Way *way)
{
    const double room =
        way->on_gpu ? gpu_share * (double)facts->free_gpu : ram_share * (double)facts->free_ram;
    return (double)(way->planes ? facts->planes_bytes : facts->pixel_bytes) <= room;
}

CacheChoice cache_choose(const CacheFacts *facts)
{
    const double decode = facts->make_seconds - facts->change_seconds;
    const Way ways[] = {
        {"gpu", true, true, 0},
        {"pixels", false, false, facts->change_seconds},
        {"planes", false, true, facts->change_seconds + planes_cost * decode},
    };
    CacheChoice choice = {.answer = CACHE_WINS_LITTLE,
                          .cache = "none",
                          .pass_now = pass_seconds(facts, facts->make_seconds),
                          .load = load_seconds(facts)};
    choice.pass_then = choice.pass_now;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && choice.answer != CACHE_PAYS; i++) {
        const Way *way = &ways[i];
        const double then = pass_seconds(facts, way->change);
        const bool same = way->on_gpu ? facts->same_on_gpu : facts->same_in_ram;
        if ((way->on_gpu && !facts->cuda) || !pays(facts, then))
            continue;
        if (choice.answer == CACHE_WINS_LITTLE || (same && has_room(facts, way)))
            choice.pass_then = then;
        if (same && has_room(facts, way)) {
            choice.answer = CACHE_PAYS;
            choice.cache = way->cache;
        } else if (same) {
            choice.answer = CACHE_HAS_NO_ROOM;
        } else if (choice.answer == CACHE_WINS_LITTLE) {
            choice.answer = CACHE_OTHER_PIXELS;
        }
    }
    return choice;
}

const char *cache_choice_text(const CacheChoice *choice, const CacheFacts *facts, char *text,
                              size_t text_bytes)
{
    char bytes[32], ram[32], gpu[32];
    char room[96] = "";
    (void)progress_format_bytes(bytes, sizeof bytes, facts->planes_bytes); /* the least of all ways */
    (void)progress_format_bytes(ram, sizeof ram, facts->free_ram);
    (void)progress_format_bytes(gpu, sizeof gpu, facts->free_gpu);
    if (facts->cuda)
        (void)snprintf(room, sizeof room, "%s of the GPU's memory and %s of RAM", gpu, ram);
    else
        (void)snprintf(room, sizeof room, "%s of RAM", ram);
    if (choice->answer == CACHE_PAYS)
        (void)snprintf(text, text_bytes,
                       "cache: %s: a pass over the images takes %.2f s as they are decoded again and again, "
                       "and %.2f s without that; %.3g passes are left, and decoding once takes about %.1f s "
                       "(--cache none leaves it)",
                       choice->cache, choice->pass_now, choice->pass_then, facts->passes_left, choice->load);
    else if (choice->answer == CACHE_HAS_NO_ROOM)
        (void)snprintf(text, text_bytes,
                       "cache: none: decoding the images once would shorten a pass from %.2f to %.2f s, but "
                       "they take about %s, and %s are free; pack smaller images (fpack --max-size)",
                       choice->pass_now, choice->pass_then, bytes, room);
    else if (choice->answer == CACHE_OTHER_PIXELS)
        (void)snprintf(text, text_bytes,
                       "cache: none: decoding the images once would shorten a pass from %.2f to %.2f s, but "
                       "change some pixels: large photographs are decoded at a part of their size now; pack "
                       "smaller ones (fpack --max-size), or give --cache",
                       choice->pass_now, choice->pass_then);
    else
        (void)snprintf(text, text_bytes, "cache: none: decoding the images once would win little");
    return text;
}
