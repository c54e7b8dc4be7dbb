/* pack_classes.c - class folders to samples, and flat folders where a file of labels says what is in them
 * (ImageNet's val).
 *
 * Folders, not files, say what the classes are: an empty class folder is a class with no samples, so that
 * training and validation sets made at different times keep the same class indexes. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/file.h"
#include "common/paired_names.h"
#include "common/path.h"
#include "common/folder_list.h"
#include "common/text.h"
#include "formats/names.h"
#include "imaging/mask.h"
#include "tools/job/labels.h"
#include "tools/pack/pack_names.h"
#include "tools/pack/pack_keyed.h"

/* Adds an entry's name if the entry is a folder. Fails on one that cannot be looked at, which may be a class,
 * unless skip_unread. */
static FshStatus add_folder(const char *path, const struct dirent *entry, bool skip_unread, NameList *list,
                            FshError *error)
{
    struct stat found;
    bool is_folder = entry->d_type == DT_DIR;
    if (!is_folder && stat(path, &found)) {
        const bool leads_nowhere = errno == ENOENT || errno == ELOOP;
        return leads_nowhere || skip_unread
                   ? FSH_OK
                   : fsh_error_system(error, errno,
                                      "%s: cannot be looked at, and may be a class; nothing was packed "
                                      "(--on-error skip packs without it)",
                                      path);
    }
    is_folder = is_folder || S_ISDIR(found.st_mode);
    return is_folder ? names_add(list, entry->d_name, error) : FSH_OK;
}

/* Lists the folders directly in `folder`, hidden ones left out, links followed: as walk_files sees them. */
static FshStatus list_folders(const char *folder, bool skip_unread, NameList *list, FshError *error)
{
    DIR *stream = NULL;
    FshStatus status = folder_open(folder, &stream, error);
    for (const struct dirent *entry = folder_next(stream, folder, &status, error); entry;
         entry = folder_next(stream, folder, &status, error)) {
        char path[PATH_MAX];
        if (entry->d_name[0] == '.' || entry->d_type == DT_REG)
            continue;
        status = file_join(path, sizeof path, folder, entry->d_name, error);
        if (!status)
            status = add_folder(path, entry, skip_unread, list, error);
    }
    folder_close(stream);
    names_sort(list);
    return status;
}

/* A folder whose folders are classes: the root itself, or train, val, test below it. */
typedef struct ClassRoot {
    PackSplitIndex split;
    char name[16]; /* "" for the root itself */
    NameList classes;
    uint64_t stray_count; /* images directly in it */
    bool flat;            /* its folders are no classes: its images have labels in a file, if anywhere */
} ClassRoot;

enum { CLASS_ROOTS_MAX = 8 };

typedef struct Layout {
    ClassRoot roots[CLASS_ROOTS_MAX];
    size_t root_count;
    const ClassRoot *reference; /* whose classes the others must have */
    NameList classes;           /* the dataset's: the reference's or, where --classes chooses, those of all */
    uint64_t outside_count;     /* images below no class root */
    const char *outside_example;
    uint64_t *class_counts; /* [root][class] */
    Labels *labels;         /* --labels; NULL: none */
    const char **texts;     /* where nothing but labels tells classes: each sample's */
} Layout;

/* Fills the roots. Split folders are recognised by name and by having folders in them: a data set of vehicles
 * may have a class called train, whose folder holds images. */
static FshStatus find_roots(const PackKeyed *keyed, bool skip_unread, Layout *layout, FshError *error)
{
    NameList top = {0};
    size_t split_roots = 0, other_folders = 0;
    FshStatus status = list_folders(keyed->found->root, skip_unread, &top, error);
    for (size_t i = 0; i < top.count && !status; i++) {
        PackSplitIndex split = pack_split_by_name(top.names[i], strlen(top.names[i]));
        if (split == PACK_SPLITS) {
            other_folders++;
            continue;
        }
        char path[PATH_MAX];
        ClassRoot *root = &layout->roots[layout->root_count++];
        root->split = split;
        (void)snprintf(root->name, sizeof root->name, "%s", top.names[i]);
        status = file_join(path, sizeof path, keyed->found->root, root->name, error);
        if (!status)
            status = list_folders(path, skip_unread, &root->classes, error);
        split_roots += root->classes.count > 0;
    }
    const bool flat_splits =
        layout->labels && layout->root_count; /* val/ beside a folder of something else */
    if (!status && split_roots == 0 && other_folders > 0 &&
        !flat_splits) { /* class folders directly below the source */
        for (size_t i = 0; i < layout->root_count; i++)
            names_free(&layout->roots[i].classes);
        layout->roots[0] = (ClassRoot){.split = PACK_TRAIN, .classes = top};
        layout->root_count = 1;
        return FSH_OK;
    }
    names_free(&top);
    if (!status && layout->root_count == 0 && layout->labels) /* nothing but images */
        layout->roots[layout->root_count++] = (ClassRoot){.split = PACK_TRAIN};
    return status;
}

/* Returns whether no folder of one is in the other. */
static bool share_nothing(const NameList *a, const NameList *b)
{
    for (size_t i = 0; i < a->count; i++) {
        if (names_find(b, a->names[i], NULL))
            return false;
    }
    return true;
}

/* Finds the reference, which is the first root with classes in the order of the splits, and the flat roots.
 * With a file of labels a single folder is one of images (Tiny ImageNet's val/images), and so is one that is
 * no class of train. */
static FshStatus find_reference(const PackKeyed *keyed, Layout *layout, FshError *error)
{
    bool any_flat = false;
    for (size_t i = 0; i < layout->root_count; i++)
        layout->roots[i].flat = layout->roots[i].classes.count <= (layout->labels ? 1 : 0);
    for (uint32_t split = 0; split < PACK_SPLITS && !layout->reference; split++) {
        for (size_t i = 0; i < layout->root_count && !layout->reference; i++) {
            if (layout->roots[i].split == split && !layout->roots[i].flat)
                layout->reference = &layout->roots[i];
        }
    }
    for (size_t i = 0; i < layout->root_count && layout->labels; i++) {
        ClassRoot *root = &layout->roots[i];
        if (layout->reference && share_nothing(&root->classes, &layout->reference->classes))
            root->flat = true;
        any_flat = any_flat || root->flat;
    }
    if (layout->labels && !any_flat)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--labels: the images of %s lie in class folders already, which say what %s would "
            "say; leave --labels out",
            keyed->found->root, keyed->found->options->labels);
    return FSH_OK;
}

/* Returns the root that an image is below, and in *rest_ret its path below that root; NULL: none. */
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

/* Finds the class that a label names: by its name or, in a file that names images, by its number. *class_ret:
 * which it is. Returns false where there is none. */
static bool find_label(const Layout *layout, const char *text, size_t *class_ret)
{
    uint64_t number = 0;
    if (names_find(&layout->classes, text, class_ret))
        return true;
    if (!labels_have_names(layout->labels) || !names_parse_number(text, &number) ||
        number >= layout->classes.count)
        return false;
    *class_ret = (size_t)number;
    return true;
}

/* Adds an image of a flat folder, by its label. */
static FshStatus add_labelled(PackKeyed *keyed, Layout *layout, const ClassRoot *root, uint64_t file,
                              const char *rest, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    const char *path = keyed->found->files.files[file].path, *text = labels_find(layout->labels, rest);
    size_t class_index = 0;
    if (!text)
        return notes_addf(&keyed->found->notes->left_out, FSH_ERR_NOT_FOUND, error, path,
                          "has no label in %s", options->labels);
    if (!layout->reference) {
        layout->texts[keyed->sample_count] = text;
    } else if (!find_label(layout, text, &class_index)) {
        if (options->classes) {
            keyed_count_other_class(keyed, path);
            return FSH_OK;
        }
        return fsh_error_set(
            error, FSH_ERR_MISMATCH, "%s/%s: its label '%s' in %s is no class of %s%s", keyed->found->root,
            path, text, options->labels,
            layout->reference->name[0] ? layout->reference->name : keyed->found->root,
            labels_have_names(layout->labels)
                ? "; numbers count from 0, in byte order of the class folders"
                : "; ILSVRC's ground truth has numbers of its own: take a file that names the classes");
    } else {
        layout->class_counts[(size_t)(root - layout->roots) * layout->classes.count + class_index]++;
    }
    keyed_add_sample(keyed, rest, pack_stem_bytes(rest), (int32_t)class_index, root->split, &file);
    return FSH_OK;
}

static FshStatus add_samples(PackKeyed *keyed, Layout *layout, FshError *error)
{
    FshStatus status = FSH_OK;
    for (uint64_t file = 0; file < keyed->found->files.count && !status; file++) {
        if (!keyed->found->is_image[file])
            continue;
        const char *path = keyed->found->files.files[file].path, *rest = NULL;
        ClassRoot *root = root_of(layout, path, &rest);
        if (!root) {
            layout->outside_count++;
            if (!layout->outside_example)
                layout->outside_example = path;
            continue;
        }
        if (layout->labels && root->flat) {
            status = add_labelled(keyed, layout, root, file, rest, error);
            continue;
        }
        const char *slash = strchr(rest, '/');
        char name[NAME_MAX + 1];
        size_t class_index = 0;
        if (slash && (size_t)(slash - rest) < sizeof name) {
            memcpy(name, rest, (size_t)(slash - rest));
            name[slash - rest] = '\0';
        }
        if (!slash || !names_find(&layout->classes, name, &class_index)) {
            root->stray_count++;
            status = notes_add(&keyed->found->notes->left_out, FSH_ERR_MISMATCH, path,
                               "lies in no class folder", error);
            continue;
        }
        layout->class_counts[(size_t)(root - layout->roots) * layout->classes.count + class_index]++;
        keyed_add_sample(keyed, rest, pack_stem_bytes(rest), (int32_t)class_index, root->split, &file);
    }
    return status;
}

/* Refuses two folders of one split. */
static FshStatus check_roots(const PackKeyed *keyed, Layout *layout, FshError *error)
{
    for (size_t i = 0; i < layout->root_count; i++) {
        const ClassRoot *root = &layout->roots[i];
        for (size_t j = 0; j < i; j++) {
            if (layout->roots[j].split == root->split)
                return fsh_error_set(
                    error, FSH_ERR_MISMATCH, "%s: both '%s' and '%s' are there; keep one as the %s split",
                    keyed->found->root, layout->roots[j].name, root->name, fsh_split_name(root->split));
        }
    }
    return FSH_OK;
}

/* Collects the dataset's classes: those of the reference, which must have all that the others have. Where
 * --classes chooses, all classes of all splits are taken, and what is not chosen goes later. */
static FshStatus collect_classes(const PackKeyed *keyed, Layout *layout, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    const NameList *reference = &layout->reference->classes;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < reference->count && !status; i++)
        status = names_add(&layout->classes, reference->names[i], error);
    for (size_t i = 0; i < layout->root_count && !status; i++) {
        const ClassRoot *root = &layout->roots[i];
        size_t missing_count = 0;
        const char *missing = NULL;
        for (size_t c = 0; c < root->classes.count && !root->flat && !status; c++) {
            if (names_find(reference, root->classes.names[c], NULL))
                continue;
            if (missing_count++ == 0)
                missing = root->classes.names[c];
            if (options->classes)
                status = names_add(&layout->classes, root->classes.names[c], error);
        }
        const char *sides = missing_count && !options->classes ? found_hint_sides(keyed->found) : NULL;
        if (missing_count && !options->classes)
            return fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "%s: class '%s' of %s is missing from %s%s; the splits must have the same "
                                 "classes (an empty folder counts)%s%s",
                                 keyed->found->root, missing, root->name, layout->reference->name,
                                 missing_count > 1 ? ", and others" : "",
                                 sides ? "; for image pairs use --pairs "
                                 : missing_count == root->classes.count && !options->labels
                                     ? "; where its folders are none of classes, say with --labels what its "
                                       "images are"
                                     : "",
                                 sides ? sides : "");
    }
    names_sort(&layout->classes);
    size_t kept = 0; /* val and test may have added the same */
    for (size_t i = 0; i < layout->classes.count; i++) {
        if (kept && strcmp(layout->classes.names[kept - 1], layout->classes.names[i]) == 0)
            free(layout->classes.names[i]);
        else
            layout->classes.names[kept++] = layout->classes.names[i];
    }
    layout->classes.count = kept;
    return status;
}

/* Returns whether something in the folder, relative to the source, could not be read: nobody knows then what
 * it holds. */
static bool is_unread(const PackKeyed *keyed, const char *folder)
{
    const NoteList *list = &keyed->found->notes->left_out;
    bool unread = false;
    for (size_t i = 0; i < list->count && !unread; i++)
        unread = list->items[i].status == FSH_ERR_SYSTEM && path_lies_in(list->items[i].path, folder);
    return unread;
}

/* Warns of what is odd, once the images are counted. */
static FshStatus warn_layout(PackKeyed *keyed, const Layout *layout, FshError *error)
{
    const size_t class_count = layout->classes.count;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < layout->root_count && !status; i++) {
        const ClassRoot *root = &layout->roots[i];
        const char *separator = root->name[0] ? "/" : "";
        if (root->flat && !layout->labels)
            status = notes_add(&keyed->found->notes->warnings, FSH_OK, root->name,
                               "holds no class folder: the split is left out", error);
        for (size_t c = 0; c < class_count && !status && !keyed->found->options->classes; c++) {
            const char *name = layout->classes.names[c];
            char path[NAME_MAX + 32];
            if (layout->class_counts[i * class_count + c] || !names_find(&root->classes, name, NULL))
                continue;
            (void)snprintf(path, sizeof path, "%s%s%s", root->name, separator, name);
            if (!is_unread(keyed, path))
                status = notes_addf(&keyed->found->notes->warnings, FSH_OK, error, path,
                                    "a class folder without images; kept as class %zu with no sample", c);
        }
    }
    if (!status && layout->outside_count)
        status = notes_addf(&keyed->found->notes->warnings, FSH_OK, error, layout->outside_example,
                            "outside train, val and test, as %llu image%s in all; left alone",
                            (unsigned long long)layout->outside_count, text_plural(layout->outside_count));
    return status;
}

/* Warns of pairs below folders of films, or of days, which are no classes. */
static FshStatus warn_sides(PackKeyed *keyed, FshError *error)
{
    const char *sides = found_hint_sides(keyed->found);
    return sides
               ? notes_addf(&keyed->found->notes->warnings, FSH_OK, error, keyed->found->root,
                            "its images lie in folders of sides, below what is taken for classes; for image "
                            "pairs use --pairs %s",
                            sides)
               : FSH_OK;
}

/* Returns whether the first image of a class begins as a mask does. */
static bool begins_as_mask(const PackKeyed *keyed, int32_t label)
{
    char path[PATH_MAX];
    Buffer head = {0};
    uint64_t i = 0;
    while (i < keyed->sample_count && keyed->samples[i].label != label)
        i++;
    if (i == keyed->sample_count || !keyed->found->is_image) /* a dataset, or a tar */
        return false;
    const PackSource source = sample_source(keyed->found, &keyed->samples[i], 0);
    if (source.path_bytes >= sizeof path)
        return false;
    memcpy(path, source.path, source.path_bytes);
    path[source.path_bytes] = '\0';
    const bool is = !source_read_start(keyed->found->folder, path, MASK_HEAD_BYTES, &head, NULL) &&
                    mask_begins(head.bytes, head.length);
    buffer_free(&head);
    return is;
}

/* Warns of pairs that are packed without --pairs: they look like two classes of the same names. To be called
 * before key_mend, while keys have no extension. */
static FshStatus warn_pairs(PackKeyed *keyed, const NameList *classes, FshError *error)
{
    if (classes->count != 2)
        return warn_sides(keyed, error);
    ClassFile *files = calloc(keyed->sample_count + 1, sizeof *files);
    if (!files)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
    for (uint64_t i = 0; i < keyed->sample_count; i++) {
        const PackSample *sample = &keyed->samples[i];
        const size_t folder_bytes = strlen(classes->names[sample->label]) + 1;
        files[i] = (ClassFile){.path = sample->key + folder_bytes,
                               .path_bytes = sample->key_bytes - folder_bytes,
                               .split = sample->split,
                               .label = sample->label};
    }
    const bool paired = paired_names(files, keyed->sample_count);
    free(files);
    if (!paired)
        return warn_sides(keyed, error);
    const bool masks[2] = {begins_as_mask(keyed, 0), begins_as_mask(keyed, 1)};
    char hint[2 * NAME_MAX + 64] = "";
    if (masks[0] != masks[1]) /* both: gray photographs, as likely */
        (void)snprintf(hint, sizeof hint, ", for images and the masks of segmentation --masks %s:%s",
                       classes->names[masks[0]], classes->names[!masks[0]]);
    return notes_addf(&keyed->found->notes->warnings, FSH_OK, error, keyed->found->root,
                      "the classes '%s' and '%s' hold files of the same names; for image pairs use "
                      "--pairs %s:%s%s",
                      classes->names[0], classes->names[1], classes->names[0], classes->names[1], hint);
}

/* Returns whether a folder of the split whose folders are called so is there. */
static bool has_split(const Layout *layout, const char *name)
{
    const PackSplitIndex split = pack_split_by_name(name, strlen(name));
    for (size_t i = 0; i < layout->root_count; i++) {
        if (layout->roots[i].name[0] && layout->roots[i].split == split)
            return true;
    }
    return false;
}

/* Returns whether an image lies in the folder, or below it. */
static bool holds_images(const PackKeyed *keyed, const char *folder)
{
    const size_t bytes = strlen(folder);
    for (uint64_t i = 0; i < keyed->found->files.count; i++) {
        const char *path = keyed->found->files.files[i].path;
        if (keyed->found->is_image[i] && strncmp(path, folder, bytes) == 0 && path[bytes] == '/')
            return true;
    }
    return false;
}

/* Returns whether a folder that is called Train, VAL and the like is most likely a split: it has folders in
 * it, or images where nothing beside it can be a class. *flat_ret: it has no folders. */
static bool may_be_split(const PackKeyed *keyed, const char *name, bool alone, bool *flat_ret)
{
    char path[PATH_MAX];
    NameList folders = {0};
    if (file_join(path, sizeof path, keyed->found->root, name, NULL) ||
        list_folders(path, true, &folders, NULL))
        return false;
    *flat_ret = folders.count == 0;
    names_free(&folders);
    return !*flat_ret || (alone && holds_images(keyed, name));
}

/* Warns of folders that are called Train, VAL and the like, and are most likely splits: names of splits are
 * of small letters. *found_ret: there are such. */
static FshStatus warn_capitals(PackKeyed *keyed, const Layout *layout, bool *found_ret, FshError *error)
{
    const bool in_splits = layout->roots[0].name[0] != '\0';
    NameList top = {0};
    FshStatus status = in_splits ? list_folders(keyed->found->root, true, &top, error) : FSH_OK;
    const NameList *names = in_splits ? &top : &layout->classes;
    const bool alone = in_splits || fsh_are_split_names(names->names, names->count);
    *found_ret = false;
    for (size_t i = 0; i < names->count && !status; i++) {
        const char *name = names->names[i], *small = fsh_split_in_small_letters(name);
        bool flat = false;
        if (!small || has_split(layout, small) || !may_be_split(keyed, name, alone, &flat))
            continue;
        *found_ret = !in_splits;
        status = keyed_warn_capitals(keyed, name, small, !in_splits, flat, error);
    }
    names_free(&top);
    return status;
}

/* Refuses images in a folder that should have class folders. */
static FshStatus refuse_stray(const PackKeyed *keyed, const Layout *layout, FshError *error)
{
    for (size_t i = 0; i < layout->root_count; i++) {
        const ClassRoot *root = &layout->roots[i];
        if (root->flat && root->stray_count)
            return fsh_error_set(
                error, FSH_ERR_MISMATCH,
                "%s/%s: its images (%llu) lie in no class folder; put each into a folder named "
                "after its class, as in %s, or say with --labels what they are",
                keyed->found->root, root->name, (unsigned long long)root->stray_count,
                layout->reference->name);
    }
    return FSH_OK;
}

/* Makes the samples of a source without any class folder: only labels can tell their classes. */
static FshStatus key_flat(PackKeyed *keyed, Layout *layout, FshError *error)
{
    if (!layout->labels) {
        /* Split folders that hold no folders, or nothing at all. */
        if (layout->root_count && keyed->found->files.count > keyed->found->other_file_count)
            return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                                 "%s/%s: its images lie in no class folder; put each into a folder named "
                                 "after its class, or say with --labels what they are",
                                 keyed->found->root, layout->roots[0].name);
        return FSH_OK;
    }
    layout->texts = calloc(keyed->found->files.count + 1, sizeof *layout->texts);
    if (!layout->texts)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
    FshStatus status = add_samples(keyed, layout, error);
    if (!status)
        status = key_label_by_texts(keyed, layout->texts, keyed->found->options->labels, error);
    return status ? status : key_mend(keyed, error);
}

static FshStatus key_folders(PackKeyed *keyed, Layout *layout, FshError *error)
{
    FshStatus status = collect_classes(keyed, layout, error);
    if (status)
        return status;
    layout->class_counts =
        calloc(layout->root_count * layout->classes.count + 1, sizeof *layout->class_counts);
    if (!layout->class_counts)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
    status = add_samples(keyed, layout, error);
    if (!status)
        status = refuse_stray(keyed, layout, error);
    if (!status)
        status = warn_layout(keyed, layout, error);
    bool has_capitals = false;
    if (!status)
        status = warn_capitals(keyed, layout, &has_capitals, error);
    if (!status && !layout->labels && !has_capitals)
        status = warn_pairs(keyed, &layout->classes, error);
    if (!status)
        status = key_mend(keyed, error);
    if (!status) { /* the list moves over */
        keyed->class_names = layout->classes.names;
        keyed->class_count = layout->classes.count;
        layout->classes = (NameList){0};
    }
    return status;
}

FshStatus key_classes(PackKeyed *keyed, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    Layout layout = {0};
    FshStatus status = options->labels ? labels_load(&layout.labels, options->labels, error) : FSH_OK;
    if (!status)
        status = find_roots(keyed, options->skip_unread, &layout, error);
    if (!status)
        status = check_roots(keyed, &layout, error);
    if (!status)
        status = find_reference(keyed, &layout, error);
    if (!status)
        status = (layout.reference ? key_folders : key_flat)(keyed, &layout, error);
    free(layout.class_counts);
    free(layout.texts);
    labels_free(&layout.labels);
    names_free(&layout.classes);
    for (size_t i = 0; i < layout.root_count; i++)
        names_free(&layout.roots[i].classes);
    return status;
}
