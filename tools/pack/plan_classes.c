/* plan_classes.c - class folders to samples.
 *
 * Folders, not files, say what the classes are: an empty class folder is a class with no samples, so that
 * training and validation sets made at different times keep the same class indexes. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "tools/pack/names.h"
#include "tools/pack/plan.h"

/* The folders directly in `folder`, hidden ones left out, links followed: as walk_files sees them. */
static FshStatus list_folders(const char *folder, NameList *list, FshError *error)
{
    FshStatus status = FSH_OK;
    DIR *stream = opendir(folder);
    if (!stream)
        return fsh_error_system(error, errno, "%s: cannot open the folder", folder);
    for (;;) {
        char path[PATH_MAX];
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry) {
            if (errno)
                status = fsh_error_system(error, errno, "%s: cannot read the folder", folder);
            break;
        }
        if (entry->d_name[0] == '.' || entry->d_type == DT_REG)
            continue;
        status = file_join(path, sizeof path, folder, entry->d_name, error);
        if (!status && file_is_folder(path))
            status = names_add(list, entry->d_name, error);
        if (status)
            break;
    }
    (void)closedir(stream);
    names_sort(list);
    return status;
}

/* A folder whose folders are classes: the root itself, or train, val, test below it. */
typedef struct ClassRoot {
    PlanSplitIndex split;
    char name[16]; /* "" for the root itself */
    NameList classes;
    uint64_t stray_count; /* images directly in it */
} ClassRoot;

enum { CLASS_ROOTS_MAX = 8 };

typedef struct Layout {
    ClassRoot roots[CLASS_ROOTS_MAX];
    size_t root_count;
    const ClassRoot *reference; /* whose classes are the dataset's */
    uint64_t outside_count;     /* images below no class root */
    const char *outside_example;
    uint64_t *class_counts; /* [root][class] */
} Layout;

/* The names of classes stand in JSON, in the manifest and in every shard. */
static FshStatus check_names(const Plan *plan, const NameList *names, FshError *error)
{
    for (size_t i = 0; i < names->count; i++) {
        json_t *text = json_string(names->names[i]);
        if (!text)
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                                 "%s: the name of its class folder '%s' is not UTF-8; rename it", plan->root,
                                 names->names[i]);
        json_decref(text);
    }
    return FSH_OK;
}

/* Fills the roots. Split folders are recognised by name and by having folders in them: a data set of vehicles
 * may have a class called train, whose folder holds images. */
static FshStatus find_roots(const Plan *plan, Layout *layout, FshError *error)
{
    NameList top = {0};
    size_t split_roots = 0, other_folders = 0;
    FshStatus status = list_folders(plan->root, &top, error);
    for (size_t i = 0; i < top.count && !status; i++) {
        PlanSplitIndex split = plan_split_by_name(top.names[i], strlen(top.names[i]));
        if (split == PLAN_SPLITS) {
            other_folders++;
            continue;
        }
        char path[PATH_MAX];
        ClassRoot *root = &layout->roots[layout->root_count++];
        root->split = split;
        (void)snprintf(root->name, sizeof root->name, "%s", top.names[i]);
        status = file_join(path, sizeof path, plan->root, root->name, error);
        if (!status)
            status = list_folders(path, &root->classes, error);
        split_roots += root->classes.count > 0;
    }
    if (!status && split_roots == 0 && other_folders > 0) { /* class folders directly below the source */
        for (size_t i = 0; i < layout->root_count; i++)
            names_free(&layout->roots[i].classes);
        layout->roots[0] = (ClassRoot){.split = PLAN_TRAIN, .classes = top};
        layout->root_count = 1;
        return FSH_OK;
    }
    names_free(&top);
    return status;
}

/* Which root an image is below; *rest_ret is its path below that root. */
static ClassRoot *root_of(Layout *layout, const char *path, const char **rest_ret)
{
    for (size_t i = 0; i < layout->root_count; i++) {
        size_t length = strlen(layout->roots[i].name);
        if (length == 0) {
            *rest_ret = path;
            return &layout->roots[i];
        }
        if (strncmp(path, layout->roots[i].name, length) == 0 && path[length] == '/') {
            *rest_ret = path + length + 1;
            return &layout->roots[i];
        }
    }
    return NULL;
}

static FshStatus add_samples(Plan *plan, Layout *layout, FshError *error)
{
    FshStatus status = FSH_OK;
    for (uint64_t file = 0; file < plan->files.count && !status; file++) {
        if (!plan->is_image[file])
            continue;
        const char *path = plan->files.files[file].path, *rest = NULL;
        ClassRoot *root = root_of(layout, path, &rest);
        if (!root) {
            layout->outside_count++;
            if (!layout->outside_example)
                layout->outside_example = path;
            continue;
        }
        const char *slash = strchr(rest, '/');
        char name[NAME_MAX + 1];
        size_t class_index = 0;
        if (slash && (size_t)(slash - rest) < sizeof name) {
            memcpy(name, rest, (size_t)(slash - rest));
            name[slash - rest] = '\0';
        }
        if (!slash || !names_find(&layout->reference->classes, name, &class_index)) {
            root->stray_count++;
            status = notes_add(&plan->left_out, FSH_ERR_MISMATCH, path, "lies in no class folder", error);
            continue;
        }
        layout
            ->class_counts[(size_t)(root - layout->roots) * layout->reference->classes.count + class_index]++;
        plan_add_sample(plan, rest, plan_stem_bytes(rest), (int32_t)class_index, root->split, &file);
    }
    return status;
}

/* The splits must agree on the classes, and each split has one folder. */
static FshStatus check_roots(const Plan *plan, Layout *layout, FshError *error)
{
    for (size_t i = 0; i < layout->root_count; i++) {
        const ClassRoot *root = &layout->roots[i];
        for (size_t j = 0; j < i; j++) {
            if (layout->roots[j].split == root->split)
                return fsh_error_set(error, FSH_ERR_MISMATCH,
                                     "%s: both '%s' and '%s' are there; keep one as the %s split", plan->root,
                                     layout->roots[j].name, root->name, plan_split_names[root->split]);
        }
    }
    for (uint32_t split = 0; split < PLAN_SPLITS && !layout->reference; split++) {
        for (size_t i = 0; i < layout->root_count && !layout->reference; i++) {
            if (layout->roots[i].split == split && layout->roots[i].classes.count)
                layout->reference = &layout->roots[i];
        }
    }
    for (size_t i = 0; i < layout->root_count && layout->reference; i++) {
        const ClassRoot *root = &layout->roots[i];
        size_t missing_count = 0;
        const char *missing = NULL;
        for (size_t c = 0; c < root->classes.count; c++) {
            if (!names_find(&layout->reference->classes, root->classes.names[c], NULL) &&
                missing_count++ == 0)
                missing = root->classes.names[c];
        }
        if (missing_count)
            return fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "%s: class '%s' of %s is missing from %s%s; the splits must have the same "
                                 "classes (an empty folder counts)",
                                 plan->root, missing, root->name, layout->reference->name,
                                 missing_count > 1 ? ", and others" : "");
    }
    return FSH_OK;
}

/* What is odd, once the images are counted. */
static FshStatus warn_layout(Plan *plan, const Layout *layout, FshError *error)
{
    const size_t class_count = layout->reference->classes.count;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < layout->root_count && !status; i++) {
        const ClassRoot *root = &layout->roots[i];
        const char *separator = root->name[0] ? "/" : "";
        if (root->classes.count == 0)
            status = notes_add(&plan->warnings, FSH_OK, root->name,
                               "holds no class folder: the split is left out", error);
        for (size_t c = 0; c < class_count && !status; c++) {
            const char *name = layout->reference->classes.names[c];
            char path[NAME_MAX + 32];
            if (layout->class_counts[i * class_count + c] || !names_find(&root->classes, name, NULL))
                continue;
            (void)snprintf(path, sizeof path, "%s%s%s", root->name, separator, name);
            status = notes_addf(&plan->warnings, FSH_OK, error, path,
                                "a class folder without images; kept as class %zu with no sample", c);
        }
    }
    if (!status && layout->outside_count)
        status = notes_addf(&plan->warnings, FSH_OK, error, layout->outside_example,
                            "%llu images such as this one lie outside train, val and test; left alone",
                            (unsigned long long)layout->outside_count);
    if (!status && class_count == 1)
        status = notes_add(&plan->warnings, FSH_OK, layout->reference->classes.names[0],
                           "the only class: there is nothing for a classifier to tell apart", error);
    return status;
}

/* A sample's path below its class folder, without the extension. */
typedef struct ClassFile {
    const char *path;
    size_t path_bytes;
    uint32_t split;
    int32_t label;
} ClassFile;

static int compare_places(const ClassFile *left, const ClassFile *right)
{
    if (left->split != right->split)
        return left->split < right->split ? -1 : 1;
    if (left->path_bytes != right->path_bytes)
        return left->path_bytes < right->path_bytes ? -1 : 1;
    return memcmp(left->path, right->path, left->path_bytes);
}

/* By split and path, then class. */
static int compare_class_files(const void *a, const void *b)
{
    const ClassFile *left = a, *right = b;
    int order = compare_places(left, right);
    return order ? order : (left->label > right->label) - (left->label < right->label);
}

/* cat/0.jpg and dog/0.jpg: photographs that were counted in each class are no pairs. */
static bool is_number(const ClassFile *file)
{
    size_t digits = 0;
    while (digits < file->path_bytes && file->path[digits] >= '0' && file->path[digits] <= '9')
        digits++;
    return digits == file->path_bytes;
}

/* Pairs that are packed without --pairs look like two classes of the same names. Before plan_mend_keys: keys have
 * no extension yet. */
static FshStatus warn_pairs(Plan *plan, const NameList *classes, FshError *error)
{
    if (classes->count != 2)
        return FSH_OK;
    ClassFile *files = calloc(plan->sample_count + 1, sizeof *files);
    if (!files)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
    uint64_t counts[2] = {0}, same_count = 0;
    for (uint64_t i = 0; i < plan->sample_count; i++) {
        const PlanSample *sample = &plan->samples[i];
        const size_t folder_bytes = strlen(classes->names[sample->label]) + 1;
        files[i] = (ClassFile){.path = sample->key + folder_bytes,
                               .path_bytes = sample->key_bytes - folder_bytes,
                               .split = sample->split,
                               .label = sample->label};
        counts[sample->label]++;
    }
    qsort(files, plan->sample_count, sizeof *files, compare_class_files);
    for (uint64_t i = 1; i < plan->sample_count; i++)
        same_count += files[i].label != files[i - 1].label && !is_number(&files[i]) &&
                      compare_places(&files[i], &files[i - 1]) == 0;
    free(files);
    if (same_count <= (counts[0] > counts[1] ? counts[0] : counts[1]) / 2)
        return FSH_OK;
    return notes_addf(&plan->warnings, FSH_OK, error, plan->root,
                      "the classes '%s' and '%s' hold files of the same names; for image pairs use "
                      "--pairs %s:%s",
                      classes->names[0], classes->names[1], classes->names[0], classes->names[1]);
}

FshStatus plan_classes(Plan *plan, const PackOptions *options, FshError *error)
{
    (void)options;
    Layout layout = {0};
    FshStatus status = find_roots(plan, &layout, error);
    if (!status)
        status = check_roots(plan, &layout, error);
    if (status)
        goto done;
    if (!layout.reference) {
        /* Split folders that hold no folders, or nothing at all. */
        if (layout.root_count && plan->files.count > plan->other_file_count)
            status = fsh_error_set(
                error, FSH_ERR_NOT_FOUND,
                "%s/%s: its images lie in no class folder; put each into a folder named after its "
                "class",
                plan->root, layout.roots[0].name);
        goto done;
    }
    layout.class_counts =
        calloc(layout.root_count * layout.reference->classes.count + 1, sizeof *layout.class_counts);
    if (!layout.class_counts) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
        goto done;
    }
    status = add_samples(plan, &layout, error);
    for (size_t i = 0; i < layout.root_count && !status; i++) {
        const ClassRoot *root = &layout.roots[i];
        if (root->classes.count == 0 && root->stray_count)
            status = fsh_error_set(
                error, FSH_ERR_MISMATCH,
                "%s/%s: its %llu images lie in no class folder; put each into a folder named "
                "after its class, as in %s",
                plan->root, root->name, (unsigned long long)root->stray_count, layout.reference->name);
    }
    if (!status)
        status = check_names(plan, &layout.reference->classes, error);
    if (!status)
        status = warn_layout(plan, &layout, error);
    if (!status)
        status = warn_pairs(plan, &layout.reference->classes, error);
    if (!status)
        status = plan_mend_keys(plan, error);
    if (!status) { /* the reference's list becomes the plan's */
        ClassRoot *reference = &layout.roots[layout.reference - layout.roots];
        plan->class_names = reference->classes.names;
        plan->class_count = reference->classes.count;
        reference->classes = (NameList){0};
    }
done:
    free(layout.class_counts);
    for (size_t i = 0; i < layout.root_count; i++)
        names_free(&layout.roots[i].classes);
    return status;
}
