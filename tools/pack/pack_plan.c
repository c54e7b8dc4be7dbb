#include "tools/pack/pack_plan.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/display_names.h"
#include "common/pool.h"
#include "common/random.h"
#include "common/seal.h"
#include "imaging/image.h"
#include "tools/pack/pack_source.h"
#include "imaging/shrink.h"

/* What researchers call their split folders. */
static const struct {
    const char *name;
    PlanSplitIndex split;
} split_folders[] = {
    {"train", PLAN_TRAIN},    {"training", PLAN_TRAIN}, {"val", PLAN_VAL},      {"valid", PLAN_VAL},
    {"validation", PLAN_VAL}, {"test", PLAN_TEST},      {"testing", PLAN_TEST},
};

PlanSplitIndex plan_split_by_name(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof split_folders / sizeof split_folders[0]; i++) {
        if (strlen(split_folders[i].name) == length && memcmp(split_folders[i].name, name, length) == 0)
            return split_folders[i].split;
    }
    return PLAN_SPLITS;
}

size_t plan_stem_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    return dot && dot != name && image_name_is_image(path) ? (size_t)(dot - path) : strlen(path);
}

void plan_add_sample(Plan *plan, const char *key, size_t key_bytes, int32_t label, PlanSplitIndex split,
                     const uint64_t *sources)
{
    plan->samples[plan->sample_count++] = (PlanSample){.key = key,
                                                       .key_bytes = (uint32_t)key_bytes,
                                                       .label = label,
                                                       .split = (uint32_t)split,
                                                       .first_source = plan->source_count};
    for (size_t field = 0; field < plan->field_count; field++)
        plan->sources[plan->source_count++] = sources[field];
}

/* ---- where bytes come from ---- */

uint64_t plan_item(const Plan *plan, const PlanSample *sample, size_t field)
{
    return plan->sources[sample->first_source + field];
}

PlanSource plan_source(const Plan *plan, const PlanSample *sample, size_t field)
{
    const uint64_t item = plan_item(plan, sample, field);
    if (!plan->from.dataset) {
        const FileEntry *file = &plan->files.files[item];
        return (PlanSource){.path = file->path,
                            .path_bytes = strlen(file->path),
                            .bytes = file->bytes,
                            .modified_ns = file->modified_ns};
    }
    FshSample from;
    size_t at = 0;
    if (plan_dataset_sample(plan, item, &from, &at, NULL, NULL))
        return (PlanSource){.path = ""};
    return (PlanSource){.path = from.fields[at].source ? from.fields[at].source : "", /* a tar has none */
                        .path_bytes = from.fields[at].source_bytes,
                        .bytes = from.fields[at].unpacked_bytes,
                        .modified_ns = plan->from.modified};
}

const char *plan_source_name(const Plan *plan, const PlanSample *sample, size_t field, char buffer[PATH_MAX])
{
    const PlanSource source = plan_source(plan, sample, field);
    const char *name = source.path_bytes ? source.path : sample->key;
    const size_t bytes = source.path_bytes ? source.path_bytes : sample->key_bytes;
    (void)snprintf(buffer, PATH_MAX, "%.*s", (int)(bytes < PATH_MAX ? bytes : PATH_MAX - 1), name);
    return buffer;
}

/* What an image is stored as takes, about: only the work knows what one that is made smaller becomes. */
static uint64_t payload_bytes(const Plan *plan, uint64_t item, const PlanSource *source)
{
    char name[PATH_MAX];
    if (source->bytes > plan->file_most_bytes) /* it will be left out */
        return 0;
    if (plan->payload_bytes)
        return plan->payload_bytes[item];
    if (!plan->smaller_bytes[0] || source->path_bytes >= sizeof name)
        return source->bytes;
    memcpy(name, source->path, source->path_bytes);
    name[source->path_bytes] = '\0';
    const ImageFormat format = shrink_format_for(image_name_format(name));
    const uint64_t most = plan->smaller_bytes[format == IMAGE_PNG];
    return source->bytes < most ? source->bytes : most;
}

/* Bits of photographs at quality 90 for each pixel, and of graphics: guesses that decide no more than how
 * many shards there are. */
static void guess_smaller_bytes(Plan *plan, const ShrinkRecipe *recipe)
{
    const uint64_t size = recipe->max_size;
    const uint64_t pixels = recipe->long_edge ? size * size * 3 / 4 : size * size * 4 / 3;
    plan->smaller_bytes[0] = size ? pixels * 3 / 8 + 600 : 0;
    plan->smaller_bytes[1] = size ? pixels * 2 + 600 : 0;
}

uint64_t plan_sample_bytes(const Plan *plan, const PlanSample *sample)
{
    uint64_t bytes = 0;
    for (size_t field = 0; field < plan->field_count; field++) {
        const PlanSource source = plan_source(plan, sample, field);
        bytes += payload_bytes(plan, plan_item(plan, sample, field), &source);
    }
    return bytes;
}

void pack_plan_describe(const Plan *plan, const PlanSample *sample, FshSample *description)
{
    *description = (FshSample){.label = sample->label,
                               .key = sample->key,
                               .key_bytes = sample->key_bytes,
                               .field_count = (unsigned)plan->field_count};
    for (size_t field = 0; field < plan->field_count; field++) {
        const PlanSource source = plan_source(plan, sample, field);
        description->fields[field] = (FshField){
            .data = sample->key, /* not pixels: fsh_record_bytes asks for some data, and reads none */
            .bytes = (size_t)payload_bytes(plan, plan_item(plan, sample, field), &source),
            .channels = 1,
            .codec = FSH_CODEC_OTHER,
            .source = source.path,
            .source_bytes = source.path_bytes};
    }
}

/* ---- which files are images ---- */

enum { NOT_AN_IMAGE, AN_IMAGE, UNREADABLE };

typedef struct SniffJob {
    Plan *plan;
    const uint64_t *files;
    Buffer *buffers; /* for each thread */
} SniffJob;

static FshStatus sniff_one(uint64_t item, int thread, void *context, FshError *error)
{
    SniffJob *job = context;
    Plan *plan = job->plan;
    Buffer *buffer = &job->buffers[thread];
    FshError failure = {0};
    uint64_t file = job->files[item];
    FshStatus status =
        source_read_start(plan->folder, plan->files.files[file].path, IMAGE_SNIFF_BYTES, buffer, &failure);
    if (status == FSH_ERR_MEMORY)
        return fsh_error_set(error, status, "%s", failure.message);
    if (status)
        plan->is_image[file] = UNREADABLE;
    else if (image_sniff(buffer->bytes, buffer->length) != IMAGE_UNKNOWN)
        plan->is_image[file] = AN_IMAGE;
    return FSH_OK;
}

/* A name that says "image" is believed until the work reads the file (a text called .jpg is then reported,
 * not passed over); a file of any other name is an image if its first bytes are one's. */
static FshStatus find_images(Plan *plan, int jobs, FshError *error)
{
    FshStatus status = FSH_OK;
    const uint64_t count = plan->files.count;
    uint64_t odd_count = 0;
    uint64_t *odd = calloc(count + 1, sizeof *odd);
    Buffer *buffers = calloc((size_t)jobs, sizeof *buffers);
    plan->is_image = calloc(count + 1, sizeof *plan->is_image);
    if (!odd || !buffers || !plan->is_image) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
        goto done;
    }
    for (uint64_t file = 0; file < count; file++) {
        plan->is_image[file] = image_name_is_image(plan->files.files[file].path) ? AN_IMAGE : NOT_AN_IMAGE;
        if (plan->is_image[file] == NOT_AN_IMAGE)
            odd[odd_count++] = file;
    }
    SniffJob job = {.plan = plan, .files = odd, .buffers = buffers};
    status = pool_run(jobs, odd_count, sniff_one, &job, error);
    for (uint64_t i = 0; i < odd_count && !status; i++) {
        uint8_t *kind = &plan->is_image[odd[i]];
        if (*kind == UNREADABLE) {
            *kind = NOT_AN_IMAGE;
            status = notes_add(&plan->left_out, FSH_ERR_SYSTEM, plan->files.files[odd[i]].path,
                               "cannot be read to see whether it is an image", error);
        }
        plan->other_file_count += *kind == NOT_AN_IMAGE;
    }
done:
    for (int thread = 0; buffers && thread < jobs; thread++)
        buffer_free(&buffers[thread]);
    free(buffers);
    free(odd);
    return status;
}

/* ---- order ---- */

/* Samples split after split, and within a split in the order they have or, with --shuffle, permuted. */
static FshStatus put_in_order(Plan *plan, const PackOptions *options, FshError *error)
{
    PlanSample *ordered = calloc(plan->sample_count + 1, sizeof *ordered);
    if (!ordered)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
    uint64_t next = 0;
    for (uint32_t split = 0; split < PLAN_SPLITS; split++) {
        PlanSplit *range = &plan->splits[split];
        *range = (PlanSplit){.first_sample = next};
        for (uint64_t i = 0; i < plan->sample_count; i++) {
            if (plan->samples[i].split == split)
                ordered[next++] = plan->samples[i];
        }
        range->sample_count = next - range->first_sample;
        range->present = range->sample_count > 0;
    }
    for (uint32_t split = 0; split < PLAN_SPLITS && options->shuffle; split++) {
        const PlanSplit *range = &plan->splits[split];
        for (uint64_t i = 0; i < range->sample_count; i++) {
            uint64_t from = random_permute(i, range->sample_count, options->shuffle_seed, split);
            plan->samples[range->first_sample + i] = ordered[range->first_sample + from];
        }
    }
    if (options->shuffle) {
        free(ordered);
    } else {
        free(plan->samples);
        plan->samples = ordered;
    }
    return FSH_OK;
}

/* ---- all of it ---- */

/* What the walk could not read is input left out too: a dangling link may have been a photograph. */
static FshStatus note_walk_problems(Plan *plan, FshError *error)
{
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; i < plan->files.problem_count && !status; i++) {
        const WalkProblem *problem = &plan->files.problems[i];
        status = notes_add(&plan->left_out, problem->unread ? FSH_ERR_SYSTEM : FSH_ERR_UNSUPPORTED,
                           problem->path, problem->reason, error);
    }
    return status;
}

FshStatus plan_check_read(const Plan *plan, const PackOptions *options, FshError *error)
{
    uint64_t count = 0;
    for (size_t i = 0; i < plan->left_out.count; i++)
        count += plan->left_out.items[i].status == FSH_ERR_SYSTEM;
    if (options->skip_unread || count == 0)
        return FSH_OK;
    return fsh_error_set(
        error, FSH_ERR_SYSTEM,
        "%s: %" PRIu64 " of its files and folders, listed above, cannot be read, and more may lie in "
        "them; nothing was packed: run the same command when they can be, or pack without them: "
        "--on-error skip",
        options->source, count);
}

/* fresize leaves its recipe in the tree it writes: it belongs in the provenance. A tree that it has not
 * finished is packed as it is, with a warning: images may be missing that nobody will miss later. */
static FshStatus read_resize_recipe(Plan *plan, const PackOptions *options, FshError *error)
{
    enum { RECIPE_BYTES_MAX = 1 << 20 };
    static const char name[] = ".fresize/recipe.json";
    char path[PATH_MAX];
    FshStatus status = file_join(path, sizeof path, plan->root, name, error);
    if (status || options->root[0]) /* folders anywhere have recipes of their own, or none */
        return status;
    FshError damage = {0};
    status = seal_read(path, RECIPE_BYTES_MAX, false, &plan->recipe, &damage);
    if (status == FSH_ERR_NOT_FOUND)
        return FSH_OK;
    if (status)
        return notes_add(&plan->warnings, FSH_OK, name,
                         "is damaged, so the dataset will not tell how its images were made smaller; "
                         "fresize --check finds out whether they are right",
                         error);
    (void)json_object_del(plan->recipe, "checksum"); /* of that file alone */
    if (!json_is_true(json_object_get(plan->recipe, "complete")))
        status = notes_add(&plan->warnings, FSH_OK, name,
                           "fresize did not come to its end here: images may be missing; run it again first",
                           error);
    (void)json_object_del(plan->recipe, "complete");
    return status;
}

static bool all_lie_in_the_root(const Plan *plan)
{
    for (uint64_t i = 0; i < plan->files.count; i++) {
        if (strchr(plan->files.files[i].path, '/'))
            return false;
    }
    return true;
}

static FshStatus refuse_no_samples(const Plan *plan, const PackOptions *options, FshError *error)
{
    uint64_t image_count = plan->files.count - plan->other_file_count;
    char found[192];
    if (plan->files.count == 0)
        (void)snprintf(found, sizeof found, "the folder holds no file");
    else if (image_count == 0)
        (void)snprintf(found, sizeof found, "none of its %llu files is an image",
                       (unsigned long long)plan->files.count);
    else if (options->field_count == 0 && all_lie_in_the_root(plan))
        (void)snprintf(found, sizeof found,
                       "its images (%llu) lie in it directly; pack the folder above it, or say with --labels "
                       "what they are",
                       (unsigned long long)image_count);
    else
        (void)snprintf(found, sizeof found, "its images (%llu) lie elsewhere",
                       (unsigned long long)image_count);
    if (options->field_count == 0)
        return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                             "%s: no images in class folders (looked for %s/CLASS/x.jpg and "
                             "%s/train/CLASS/x.jpg): %s",
                             plan->root, plan->root, plan->root, found);
    return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                         "%s: no sample has an image in each of the folders '%s' and '%s' (looked %s"
                         "same path below them): %s",
                         plan->root, plan->field_names[0], plan->field_names[1],
                         options->root[0] ? "for the " : "at any depth, ",
                         plan->pair_hint[0]     ? plan->pair_hint
                         : plan->left_out.count ? "see what was left out"
                                                : found);
}

/* By the bytes of the paths below them: "a/b-" comes before "a/b", since '-' comes before '/'. */
static int compare_folders(const void *a, const void *b)
{
    const char *left = *(const char *const *)a, *right = *(const char *const *)b;
    while (*left && *left == *right) {
        left++;
        right++;
    }
    return (*left ? (unsigned char)*left : '/') - (*right ? (unsigned char)*right : '/');
}

/* Lists the files of the source, or of the sides' own folders. */
static FshStatus find_files(Plan *plan, const PackOptions *options, FshError *error)
{
    const char *folders[FSH_FIELDS_MAX];
    size_t count = 0, kept = 0;
    if (!options->root[0])
        return walk_files(options->source, options->jobs, &plan->files, error);
    for (; count < options->field_count; count++)
        folders[count] = options->side_folders[count];
    qsort(folders, count, sizeof *folders, compare_folders);
    for (size_t i = 0; i < count; i++) {
        if (!kept || strcmp(folders[kept - 1], folders[i]) != 0)
            folders[kept++] = folders[i];
    }
    return walk_folders(plan->root, folders, kept, options->jobs, &plan->files, error);
}

/* A tree of files: samples in class folders or below side folders, or those of a list. */
static FshStatus plan_tree(Plan *plan, const PackOptions *options, FshError *error)
{
    FshStatus status = source_open(options->source, &plan->folder, error);
    if (!status)
        status = read_resize_recipe(plan, options, error);
    if (status || options->files_from)
        return status ? status : plan_list(plan, options, error);
    status = find_files(plan, options, error);
    if (!status)
        status = note_walk_problems(plan, error);
    if (!status)
        status = find_images(plan, options->jobs, error);
    if (status)
        return status;

    plan->item_count = plan->files.count;
    plan->samples = calloc(plan->files.count + 1, sizeof *plan->samples);
    plan->sources = calloc(plan->files.count + 1, sizeof *plan->sources);
    if (!plan->samples || !plan->sources)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
    status = options->field_count ? plan_pairs(plan, options, error) : plan_classes(plan, options, error);
    if (!status && plan->sample_count == 0)
        status = refuse_no_samples(plan, options, error);
    return status == FSH_ERR_NOT_FOUND ? plan_hint_flat_pairs(plan, status, error) : status;
}

/* The recipe of this run takes the place of the source's, which goes into it. */
static FshStatus take_own_recipe(Plan *plan, const PackOptions *options, FshError *error)
{
    if (!options->resize.max_size)
        return FSH_OK;
    json_t *recipe = shrink_recipe_json(&options->resize, "fpack");
    if (recipe && plan->recipe && json_object_set(recipe, "before", plan->recipe)) {
        json_decref(recipe);
        recipe = NULL;
    }
    json_decref(plan->recipe);
    plan->recipe = recipe;
    guess_smaller_bytes(plan, &options->resize);
    return recipe ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the recipe");
}

/* The names of classes stand in JSON, in the manifest and in every shard. */
static FshStatus check_class_names(const Plan *plan, FshError *error)
{
    for (size_t i = 0; i < plan->class_count; i++) {
        json_t *text = json_string(plan->class_names[i]);
        if (!text)
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                                 "%s: the name of its class '%s' is not UTF-8; rename it", plan->root,
                                 plan->class_names[i]);
        json_decref(text);
    }
    return FSH_OK;
}

/* The display name that the source's manifest has for a class; "": none. */
static const char *source_display_name(const FshManifest *from, const char *class_name)
{
    for (size_t i = 0; from->class_display_names && i < from->class_count; i++) {
        if (strcmp(from->class_names[i], class_name) == 0)
            return from->class_display_names[i];
    }
    return "";
}

/* Those of a dataset stay with their classes, which may be fewer now. */
static FshStatus keep_display_names(Plan *plan, FshError *error)
{
    const FshManifest *from = fsh_manifest(plan->from.dataset);
    if (!from->class_display_names)
        return FSH_OK;
    plan->display_names = calloc(plan->class_count + 1, sizeof *plan->display_names);
    for (size_t i = 0; i < plan->class_count && plan->display_names; i++) {
        plan->display_names[i] = strdup(source_display_name(from, plan->class_names[i]));
        if (!plan->display_names[i])
            return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
    }
    return plan->display_names ? FSH_OK
                               : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
}

/* Reads what people call the classes: from --class-names, else from the dataset that is packed, else from the
 * file that the environment names, which may know none of them. */
static FshStatus name_classes(Plan *plan, const PackOptions *options, FshError *error)
{
    const char *usual = getenv(DISPLAY_NAMES_VARIABLE);
    size_t named = 0;
    FshStatus status = FSH_OK;
    if (plan->from.dataset && !options->class_names)
        status = keep_display_names(plan, error);
    if (status || plan->display_names || !plan->class_count)
        return status;
    if (options->class_names)
        status = display_names_read(options->class_names, plan->class_names, plan->class_count, true,
                                    &plan->display_names, &named, error);
    else if (usual && *usual)
        status = display_names_read(usual, plan->class_names, plan->class_count, false, &plan->display_names,
                                    &named, error);
    if (status && !options->class_names)
        return fsh_error_prepend(error, "$" DISPLAY_NAMES_VARIABLE);
    if (!status && plan->display_names && !named) {
        display_names_free(plan->display_names, plan->class_count);
        plan->display_names = NULL;
    }
    for (size_t i = 0; i < plan->class_count && options->class_names && !status && named < plan->class_count;
         i++) {
        if (plan->display_names[i][0])
            continue;
        return notes_addf(&plan->warnings, FSH_OK, error, options->class_names,
                          "has no name for %zu of %zu classes, such as %s", plan->class_count - named,
                          plan->class_count, plan->class_names[i]);
    }
    return status;
}

static FshStatus leave_out_duplicates(Plan *plan, const PackOptions *options, FshError *error)
{
    PlanTally before = {0};
    FshStatus status = plan_tally(&before, plan, error);
    if (!status)
        status = plan_dedupe(plan, options, error);
    if (!status)
        status = plan_tell_duplicates(plan, &before, error);
    free(before.classes);
    return status;
}

FshStatus pack_plan_make(Plan *plan, const PackOptions *options, FshError *error)
{
    const ShrinkRecipe limits = {.max_pixels = options->max_pixels};
    *plan = (Plan){.root = options->source,
                   .file_most_bytes = shrink_most_bytes(&limits),
                   .folder = -1,
                   .kind = options->field_count ? FSH_KIND_PAIRS : FSH_KIND_CLASSES,
                   .field_count = options->field_count ? options->field_count : 1,
                   .pair_scale = options->pair_scale,
                   .field_names = {"image"}};
    for (size_t field = 0; field < options->field_count; field++)
        plan->field_names[field] = options->field_names[field];
    /* A list says what there is: nothing else is looked for. */
    const bool dataset = !options->files_from && !options->root[0] && plan_is_dataset(options->source);
    FshStatus status = dataset ? plan_dataset(plan, options, error) : plan_tree(plan, options, error);
    if (!status && plan->sample_count == 0)
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: holds no sample", plan->root);
    if (!status)
        status = take_own_recipe(plan, options, error);
    if (!status && options->classes)
        status = plan_choose_classes(plan, options, error);
    if (!status)
        status = check_class_names(plan, error);
    if (!status)
        status = name_classes(plan, options, error);
    if (!status && options->dedupe)
        status = leave_out_duplicates(plan, options, error);
    if (!status)
        status = plan_select(plan, options, error);
    if (!status)
        status = put_in_order(plan, options, error);
    if (!status)
        status = plan_outputs(plan, options, error);
    return status;
}

void plan_free(Plan *plan)
{
    for (size_t i = 0; i < plan->class_count; i++)
        free(plan->class_names[i]);
    free(plan->class_names);
    display_names_free(plan->display_names, plan->class_count);
    free(plan->is_image);
    free(plan->samples);
    free(plan->sources);
    free(plan->key_storage);
    buffer_free(&plan->list_text);
    free(plan->outputs);
    free(plan->payload_bytes);
    free(plan->is_raw);
    free(plan->dictionary);
    if (plan->folder >= 0)
        (void)close(plan->folder);
    json_decref(plan->recipe);
    json_decref(plan->provenance);
    notes_free(&plan->left_out);
    notes_free(&plan->warnings);
    names_free(&plan->made_keys);
    fsh_close(&plan->from.dataset);
    file_list_free(&plan->files);
    *plan = (Plan){.folder = -1};
}
