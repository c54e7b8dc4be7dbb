/* pack_stored.c - how each sample is stored, and what its record takes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool.h"
#include "common/progress.h"
#include "imaging/decode.h"
#include "tools/pack/pack_intake.h"
#include "tools/pack/pack_stored.h"

const char *const pack_store_names[] = {"copy", "jpeg", "raw", "zstd", "auto", "yuv420", NULL};

void stored_add_planes(PackPlanes *planes, const PackPlanes *more)
{
    planes->planes_count += more->planes_count;
    planes->planes_bytes += more->planes_bytes;
    planes->raw_count += more->raw_count;
    planes->raw_bytes += more->raw_bytes;
}

PackStore stored_as(const PackStored *stored, const PackSample *sample)
{
    const PackOptions *options = stored->found->options;
    if (options->store != PACK_STORE_AUTO)
        return options->store;
    return stored->is_raw[sample - stored->split->samples] ? PACK_STORE_RAW : PACK_STORE_COPY;
}

/* ---- about how many bytes ---- */

/* Returns about what an image takes as it is stored: only the work knows what one that is made smaller
 * becomes. */
static uint64_t payload_bytes(const PackStored *stored, uint64_t item, const PackSource *source)
{
    char name[PATH_MAX];
    if (source->bytes > stored->found->file_most_bytes) /* it will be left out */
        return 0;
    if (stored->payload_bytes)
        return stored->payload_bytes[item];
    if (!stored->smaller_bytes[0] || source->path_bytes >= sizeof name)
        return source->bytes;
    memcpy(name, source->path, source->path_bytes);
    name[source->path_bytes] = '\0';
    const ImageFormat format = shrink_format_for(image_name_format(name));
    const uint64_t most = stored->smaller_bytes[format == IMAGE_PNG];
    return source->bytes < most ? source->bytes : most;
}

/* Guesses the bytes of photographs at quality 90, and of graphics, by their pixels. The guesses decide no
 * more than how many shards there are. */
static void guess_smaller_bytes(PackStored *stored, const ShrinkRecipe *recipe)
{
    const uint64_t size = recipe->max_size;
    const uint64_t pixels = recipe->long_edge ? size * size * 3 / 4 : size * size * 4 / 3;
    stored->smaller_bytes[0] = size ? pixels * 3 / 8 + 600 : 0;
    stored->smaller_bytes[1] = size ? pixels * 2 + 600 : 0;
}

uint64_t stored_sample_bytes(const PackStored *stored, const PackSample *sample)
{
    uint64_t bytes = 0;
    for (size_t field = 0; field < stored->found->field_count; field++) {
        const PackSource source = sample_source(stored->found, sample, field);
        bytes += payload_bytes(stored, sample->items[field], &source);
    }
    return bytes;
}

void stored_describe(const PackStored *stored, const PackSample *sample, FshSample *description)
{
    *description = (FshSample){.label = sample->label,
                               .key = sample->key,
                               .key_bytes = sample->key_bytes,
                               .field_count = (unsigned)stored->found->field_count};
    for (size_t field = 0; field < stored->found->field_count; field++) {
        const PackSource source = sample_source(stored->found, sample, field);
        description->fields[field] = (FshField){
            .data = sample->key, /* not pixels: fsh_record_bytes asks for some data, and reads none */
            .bytes = (size_t)payload_bytes(stored, sample->items[field], &source),
            .channels = 1,
            .codec = FSH_CODEC_OTHER,
            .source = source.path,
            .source_bytes = source.path_bytes};
    }
}

uint64_t stored_record_bytes(const PackStored *stored, const PackSample *sample)
{
    FshSample description;
    stored_describe(stored, sample, &description);
    return fsh_record_bytes(&description, FSH_RECORD_ALIGNED);
}

/* ---- pixels: sizes come from the headers ---- */

typedef struct ProbeThread {
    ImageDecoder *decoder;
    Intake intake;
} ProbeThread;

typedef struct ProbeJob {
    const PackStored *stored;
    uint64_t *pixels;  /* for each field of each sample: width * height, 0 where the header cannot be read */
    uint8_t *channels; /* likewise */
    ProbeThread *threads;
} ProbeJob;

static FshStatus probe_one(uint64_t number, int thread, void *context, FshError *error)
{
    ProbeJob *job = context;
    ProbeThread *own = &job->threads[thread];
    const PackStored *stored = job->stored;
    const PackSample *sample = &stored->split->samples[number / stored->found->field_count];
    const size_t field = number % stored->found->field_count;
    ImageInfo info = {0};
    FshError failure = {0};
    if (fsh_is_mask(stored->found->kind, field)) /* stored as it is */
        return FSH_OK;
    if (!own->decoder) {
        FshStatus made = image_decoder_new(&own->decoder, error);
        if (made)
            return made;
    }
    FshStatus status =
        intake_probe(&own->intake, own->decoder, stored->found, sample, field, &info, &failure);
    if (status == FSH_ERR_MEMORY) {
        char name[PATH_MAX];
        return fsh_error_set(error, status, "%s: %s", sample_source_name(stored->found, sample, field, name),
                             failure.message);
    }
    uint64_t pixels = (uint64_t)info.width * info.height;
    if (!status &&
        pixels <= stored->found->options->max_pixels) { /* the work reports the others, with the reason */
        job->pixels[number] = pixels;
        job->channels[number] = (uint8_t)info.channels;
    }
    return FSH_OK;
}

/* Returns about what the planes of an image take, most being 4:2:0: it decides no more than how many shards
 * there are. */
static uint64_t about_planes_bytes(uint64_t pixels, uint8_t channels)
{
    return pixels && channels > 1 ? pixels * 3 / 2 + 80 : pixels;
}

/* Fills payload_bytes, for each item, and raw_channels from the headers. Gray datasets stay gray; one image
 * with colours makes all of them RGB, so that every sample has the same channels. */
static FshStatus probe_raw(PackStored *stored, uint64_t *payload_bytes, FshError *error)
{
    const PackOptions *options = stored->found->options;
    const uint64_t count = stored->split->sample_count * stored->found->field_count;
    FshStatus status = FSH_OK;
    ProbeJob job = {.stored = stored,
                    .pixels = calloc(count + 1, sizeof *job.pixels),
                    .channels = calloc(count + 1, sizeof *job.channels),
                    .threads = calloc((size_t)options->jobs, sizeof *job.threads)};
    if (!job.pixels || !job.channels || !job.threads) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", stored->found->root);
        goto done;
    }
    status = pool_run(options->jobs, count, probe_one, &job, error);
    if (!stored->raw_channels)
        stored->raw_channels = 1;
    for (uint64_t i = 0; i < count; i++) {
        if (job.channels[i] > 1)
            stored->raw_channels = 3;
    }
    for (uint64_t i = 0; i < count; i++) {
        const PackSample *sample = &stored->split->samples[i / stored->found->field_count];
        const size_t field = i % stored->found->field_count;
        payload_bytes[sample->items[field]] =
            fsh_is_mask(stored->found->kind, field) ? sample_source(stored->found, sample, field).bytes
            : options->store == PACK_STORE_YUV420   ? about_planes_bytes(job.pixels[i], job.channels[i])
                                                    : job.pixels[i] * stored->raw_channels;
    }
done:
    for (int thread = 0; job.threads && thread < options->jobs; thread++) {
        image_decoder_free(&job.threads[thread].decoder);
        intake_free(&job.threads[thread].intake);
    }
    free(job.threads);
    free(job.pixels);
    free(job.channels);
    return status;
}

/* ---- auto ---- */

/* A sample that may become raw. */
typedef struct Candidate {
    int64_t growth_bytes; /* of its record, over the copy */
    uint64_t sample, raw_bytes;
} Candidate;

static int compare_candidates(const void *a, const void *b)
{
    const Candidate *left = a, *right = b;
    if (left->growth_bytes != right->growth_bytes)
        return left->growth_bytes < right->growth_bytes ? -1 : 1;
    return left->sample < right->sample ? -1 : left->sample > right->sample;
}

/* Returns the record bytes of a sample as raw pixels; 0 where it cannot be stored so: a header that nobody
 * can read, an image above --raw-under. */
static uint64_t raw_record_bytes(const PackStored *stored, const PackSample *sample,
                                 const uint64_t *payload_bytes)
{
    const PackOptions *options = stored->found->options;
    FshSample description;
    stored_describe(stored, sample, &description);
    for (size_t field = 0; field < stored->found->field_count; field++) {
        const uint64_t bytes = payload_bytes[sample->items[field]];
        const bool mask = fsh_is_mask(stored->found->kind, field);
        if (bytes == 0 || (options->raw_under && bytes > options->raw_under && !mask))
            return 0;
        description.fields[field].bytes = (size_t)bytes;
    }
    return fsh_record_bytes(&description, FSH_RECORD_ALIGNED);
}

static FshStatus warn_over_budget(PackStored *stored, uint64_t total, FshError *error)
{
    char budget[32], files[32];
    return notes_addf(
        &stored->found->notes->warnings, FSH_OK, error, "--budget",
        "the files as they are come to %s already, more than %s: no image is stored raw that would take more",
        progress_format_bytes(files, sizeof files, total),
        progress_format_bytes(budget, sizeof budget, stored->found->options->budget_bytes));
}

/* Chooses as many samples for raw as the budget allows: those whose records grow least come first, which
 * gives the largest number; of equals the one that is packed first. payload_bytes: what each item takes raw;
 * becomes what it takes as chosen. */
static FshStatus choose(PackStored *stored, uint64_t *payload_bytes, FshError *error)
{
    const PackOptions *options = stored->found->options;
    FshStatus status = FSH_OK;
    uint64_t total = 0, count = 0;
    Candidate *candidates = calloc(stored->split->sample_count + 1, sizeof *candidates);
    stored->is_raw = calloc(stored->split->sample_count + 1, sizeof *stored->is_raw);
    if (!candidates || !stored->is_raw) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", stored->found->root);
        goto done;
    }
    for (uint64_t i = 0; i < stored->split->sample_count; i++) {
        const uint64_t copy_bytes = stored_record_bytes(stored, &stored->split->samples[i]);
        const uint64_t raw_bytes = raw_record_bytes(stored, &stored->split->samples[i], payload_bytes);
        total += copy_bytes;
        if (raw_bytes)
            candidates[count++] = (Candidate){(int64_t)raw_bytes - (int64_t)copy_bytes, i, raw_bytes};
    }
    if (options->budget_bytes && total > options->budget_bytes)
        status = warn_over_budget(stored, total, error);
    stored->chosen.copy_count = stored->split->sample_count;
    stored->chosen.copy_bytes = total;
    qsort(candidates, count, sizeof *candidates, compare_candidates);
    for (uint64_t i = 0; i < count; i++) {
        const Candidate *candidate = &candidates[i];
        if (candidate->growth_bytes > 0 && options->budget_bytes &&
            (total > options->budget_bytes ||
             (uint64_t)candidate->growth_bytes > options->budget_bytes - total))
            break;
        total += (uint64_t)candidate->growth_bytes; /* modulo 2^64: it may be negative */
        stored->is_raw[candidate->sample] = 1;
        stored->chosen.raw_count++;
        stored->chosen.raw_bytes += candidate->raw_bytes;
        stored->chosen.copy_count--;
        stored->chosen.copy_bytes -= candidate->raw_bytes - (uint64_t)candidate->growth_bytes;
    }
    for (uint64_t i = 0; i < stored->split->sample_count; i++) {
        const PackSample *sample = &stored->split->samples[i];
        for (size_t field = 0; field < stored->found->field_count && !stored->is_raw[i]; field++) {
            FshSample description;
            stored_describe(stored, sample, &description);
            payload_bytes[sample->items[field]] = description.fields[field].bytes;
        }
    }
done:
    free(candidates);
    return status;
}

/* Reads headers where sizes follow from them, and chooses how each sample is stored (PACK_STORE_AUTO). */
static FshStatus probe_and_choose(PackStored *stored, FshError *error)
{
    const PackOptions *options = stored->found->options;
    if (options->store == PACK_STORE_COPY || options->store == PACK_STORE_JPEG)
        return FSH_OK;
    uint64_t *payload_bytes = calloc(stored->found->item_count + 1, sizeof *payload_bytes);
    if (!payload_bytes)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", stored->found->root);
    FshStatus status = probe_raw(stored, payload_bytes, error);
    if (!status && options->store == PACK_STORE_AUTO)
        status = choose(stored, payload_bytes, error);
    stored->payload_bytes = payload_bytes;
    return status;
}

/* ---- all of it ---- */

/* Takes the source's recipe or, where images are made smaller here, this run's, into which the source's
 * goes. */
static FshStatus take_recipe(PackStored *stored, FshError *error)
{
    const PackOptions *options = stored->found->options;
    stored->recipe = json_incref(stored->found->recipe);
    if (!options->resize.max_size)
        return FSH_OK;
    json_t *recipe = shrink_recipe_json(&options->resize, "fpack");
    if (recipe && stored->recipe && json_object_set(recipe, "before", stored->recipe)) {
        json_decref(recipe);
        recipe = NULL;
    }
    json_decref(stored->recipe);
    stored->recipe = recipe;
    guess_smaller_bytes(stored, &options->resize);
    return recipe ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the recipe");
}

/* Takes over what the dataset that is added to has decided for all its samples. */
static FshStatus take_base(PackStored *stored, const PackBase *base, FshError *error)
{
    if (stored->payload_bytes && base->raw_channels == 1 && stored->raw_channels > 1)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: has an image with colours, and the dataset holds gray pixels throughout: "
                             "pack it anew, with --force",
                             stored->found->root);
    if (!base->dictionary)
        return FSH_OK;
    stored->dictionary = malloc(base->dictionary_bytes);
    stored->dictionary_bytes = base->dictionary_bytes;
    if (!stored->dictionary)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", stored->found->root);
    memcpy(stored->dictionary, base->dictionary, base->dictionary_bytes);
    return FSH_OK;
}

FshStatus pack_store(const PackSplit *split, const PackBase *base, PackStored *stored, FshError *error)
{
    *stored = (PackStored){.found = split->found,
                           .split = split,
                           .raw_channels = base ? base->raw_channels : 0,
                           .share = {1, 1}};
    FshStatus status = take_recipe(stored, error);
    if (!status)
        status = probe_and_choose(stored, error);
    if (!status && base)
        status = take_base(stored, base, error);
    return status ? status : store_trial(stored, error);
}

void pack_stored_free(PackStored *stored)
{
    json_decref(stored->recipe);
    free(stored->payload_bytes);
    free(stored->is_raw);
    free(stored->dictionary);
    *stored = (PackStored){0};
}
