/* pack_settings_pairs.c - what --pairs, --fields, --masks and --pair-suffix name: the sides' folders
 * below SRC, or folders anywhere.
 *
 *   blur:sharp                    folders of these names below SRC, at any depth
 *   lq=/a/LR:gt=/b/HR             two folders anywhere; SRC is left out: it is the folder that both lie in
 *   lq=/a/LR gt=/b/HR             the same, the second as an argument */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "tools/pack/pack_settings.h"

/* The folders in which a data set's own documents, or a code's, put the sides of its pairs. */
static const struct {
    const char *name, *sides;
} pair_presets[] = {
    {"gopro", "blur:sharp"},    /* GOPRO_Large, REDS' blur and sharp */
    {"nafnet", "input:target"}, /* NAFNet, Restormer, MPRNet: datasets/GoPro/train/input */
    {"basicsr", "lq:gt"},       /* BasicSR: dataroot_lq, dataroot_gt */
};

/* Sets *sides_ret to the sides of a preset, or to text itself where it names none. */
static FshStatus find_pairs(const char *text, const char **sides_ret, FshError *error)
{
    *sides_ret = text;
    for (size_t i = 0; i < sizeof pair_presets / sizeof pair_presets[0]; i++) {
        if (strcmp(text, pair_presets[i].name) == 0)
            *sides_ret = pair_presets[i].sides;
    }
    return strchr(*sides_ret, ':')
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_USAGE,
                               "--pairs: '%s' is neither A:B nor one of gopro, nafnet, basicsr", text);
}

/* Returns the option that names the sides. */
static const char *sides_option(const Settings *settings)
{
    return settings->pairs ? "--pairs" : settings->masks ? "--masks" : "--fields";
}

/* Returns what it names; NULL: it is not given. */
static const char *sides_text(const Settings *settings)
{
    return settings->pairs ? settings->pairs : settings->masks ? settings->masks : settings->fields;
}

/* Takes folders that are named below SRC. */
static FshStatus take_names(const Settings *settings, PackOptions *options, FshError *error)
{
    FshStatus status = FSH_OK;
    const char *sides = settings->masks;
    if (settings->pairs)
        status = find_pairs(settings->pairs, &sides, error);
    if (settings->masks && !strchr(settings->masks, ':'))
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "--masks: '%s' is not A:B, the folder of the images and that of their masks",
                               settings->masks);
    if (sides && !status)
        status = options_split_colon(sides_option(settings), sides, options->field_names, 2,
                                     &options->field_count, error);
    if (settings->fields)
        status = options_split_colon("--fields", settings->fields, options->field_names, FSH_FIELDS_MAX,
                                     &options->field_count, error);
    for (size_t field = 0; field < options->field_count && !status; field++) {
        if (strchr(options->field_names[field], '/'))
            status = fsh_error_set(error, FSH_ERR_USAGE,
                                   "%s: '%s' is a path; give the name of the folder alone, or "
                                   "lq=/a/LR:gt=/b/HR for folders anywhere",
                                   sides_option(settings), options->field_names[field]);
    }
    return status;
}

/* ---- NAME=VALUE:NAME=VALUE ---- */

/* Cuts the next NAME=VALUE off *text, which moves on: its name goes to name, its value to value. */
static FshStatus next_assignment(const char *what, const char **text, char name[256], char value[PATH_MAX],
                                 FshError *error)
{
    const size_t length = strcspn(*text, ":"), name_bytes = strcspn(*text, "=:");
    if (name_bytes >= length || name_bytes == 0 || name_bytes >= 256 || length - name_bytes - 1 == 0 ||
        length - name_bytes > PATH_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: '%.*s' is not %s", what, (int)length, *text,
                             strcmp(what, "--pair-suffix") == 0 ? "SIDE=SUFFIX" : "SIDE=FOLDER");
    memcpy(name, *text, name_bytes);
    name[name_bytes] = '\0';
    memcpy(value, *text + name_bytes + 1, length - name_bytes - 1);
    value[length - name_bytes - 1] = '\0';
    *text += length + ((*text)[length] == ':');
    return FSH_OK;
}

/* Adds a side that is a folder anywhere. */
static FshStatus add_folder(PackOptions *options, const char *what, const char *name, const char *folder,
                            FshError *error)
{
    const size_t field = options->field_count;
    for (size_t i = 0; i < field; i++) {
        if (strcmp(options->field_names[i], name) == 0)
            return fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s' is given twice", what, name);
    }
    if (field == FSH_FIELDS_MAX || (field == 2 && strcmp(what, "--fields") != 0))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s' is one side too many", what, name);
    if (strchr(name, '/'))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s' is a path, and no name of a side", what, name);
    memcpy(options->field_names[field], name, strlen(name) + 1);
    if (!realpath(folder, options->side_folders[field]) || !file_is_folder(folder))
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: %s=%s: there is no such folder", what, name,
                             folder);
    if (strcmp(options->side_folders[field], "/") == 0)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: / is no side of pairs", what);
    options->field_count++;
    return FSH_OK;
}

/* Returns the length of the folder that two absolute paths both lie in: of "/a/b" and "/a/c" 2, of "/a" and
 * "/b" 1. */
static size_t common_folder(const char *a, const char *b)
{
    size_t shared = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++) {
        if ((a[i + 1] == '/' && b[i + 1] == '/') || i == 0)
            shared = i + 1;
    }
    return shared;
}

/* Cuts the sides' folders down to what is below the folder that all of them lie in, which becomes the
 * source. */
static FshStatus find_root(PackOptions *options, const char *what, FshError *error)
{
    char *root = options->root;
    for (size_t a = 0; a < options->field_count; a++) {
        for (size_t b = 0; b < options->field_count; b++) {
            const size_t length = strlen(options->side_folders[a]);
            if (strncmp(options->side_folders[b], options->side_folders[a], length) == 0 &&
                options->side_folders[b][length] == '/')
                return fsh_error_set(error, FSH_ERR_USAGE, "%s: the folder of '%s' lies in that of '%s'",
                                     what, options->field_names[b], options->field_names[a]);
        }
    }
    memcpy(root, options->side_folders[0], sizeof options->root);
    char *last = strrchr(root, '/'); /* a side has a name below the root, also where all are one folder */
    last[last == root] = '\0';
    for (size_t field = 1; field < options->field_count; field++) {
        const char *folder = options->side_folders[field];
        const size_t length = strlen(root);
        if (strncmp(folder, root, length) == 0 && (folder[length] == '/' || length == 1))
            continue;
        root[common_folder(root, folder)] = '\0';
    }
    const size_t below = strlen(root) + (root[1] != '\0');
    for (size_t field = 0; field < options->field_count; field++) {
        char *folder = options->side_folders[field];
        memmove(folder, folder + below, strlen(folder + below) + 1);
    }
    options->source = root;
    return FSH_OK;
}

/* Takes folders that lie anywhere; the argument that is one too many is the second side, and *used_ret counts
 * it. */
static FshStatus take_folders(const ProgramContext *context, PackOptions *options, size_t *used_ret,
                              FshError *error)
{
    const Settings *settings = context->settings;
    const char *what = sides_option(settings), *text = sides_text(settings);
    char name[256], folder[PATH_MAX];
    FshStatus status = FSH_OK;
    *used_ret = 0;
    for (; *text && !status;) {
        status = next_assignment(what, &text, name, folder, error);
        if (!status)
            status = add_folder(options, what, name, folder, error);
    }
    const char *const *arguments = context->arguments->items;
    for (; !status && *used_ret < context->arguments->count && options->field_count < 2 &&
           strchr(arguments[*used_ret], '=');
         (*used_ret)++) {
        text = arguments[*used_ret];
        status = next_assignment(what, &text, name, folder, error);
        if (!status && *text)
            status = fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s' is one side too many", what, text);
        if (!status)
            status = add_folder(options, what, name, folder, error);
    }
    if (!status && options->field_count < 2)
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "%s: '%s' is one side; pairs have two: --pairs lq=/a/LR:gt=/b/HR", what,
                               options->field_names[0]);
    if (!status && settings->source)
        status = fsh_error_set(error, FSH_ERR_USAGE, "%s: the sides have folders of their own; leave out SRC",
                               what);
    return status ? status : find_root(options, what, error);
}

/* ---- --pair-suffix ---- */

static FshStatus take_suffixes(const Settings *settings, PackOptions *options, FshError *error)
{
    const char *text = settings->pair_suffix;
    char name[256], suffix[PATH_MAX];
    FshStatus status = FSH_OK;
    while (text && *text && !status) {
        status = next_assignment("--pair-suffix", &text, name, suffix, error);
        size_t field = 0;
        while (!status && field < options->field_count && strcmp(options->field_names[field], name) != 0)
            field++;
        if (!status && field == options->field_count)
            status = fsh_error_set(error, FSH_ERR_USAGE,
                                   "--pair-suffix: '%s' is no side; --pairs, --masks or --fields names them",
                                   name);
        else if (!status && (strlen(suffix) >= sizeof options->side_suffixes[field] || strchr(suffix, '/')))
            status = fsh_error_set(error, FSH_ERR_USAGE,
                                   "--pair-suffix: '%s' is no end of a name; 1 to %zu bytes without /",
                                   suffix, sizeof options->side_suffixes[field] - 1);
        else if (!status)
            memcpy(options->side_suffixes[field], suffix, strlen(suffix) + 1);
    }
    return status;
}

/* Refuses sides of one folder whose names do not end differently: nothing else tells them apart. */
static FshStatus check_one_folder(const PackOptions *options, FshError *error)
{
    for (size_t a = 0; a < options->field_count && options->root[0]; a++) {
        for (size_t b = 0; b < a; b++) {
            if (strcmp(options->side_folders[a], options->side_folders[b]) == 0 &&
                strcmp(options->side_suffixes[a], options->side_suffixes[b]) == 0)
                return fsh_error_set(
                    error, FSH_ERR_USAGE,
                    "--pairs: '%s' and '%s' are the same folder; --pair-suffix %s=SUFFIX says how "
                    "their names end",
                    options->field_names[b], options->field_names[a], options->field_names[b]);
        }
    }
    return FSH_OK;
}

FshStatus settings_take_pairs(const ProgramContext *context, PackOptions *options, size_t *used_ret,
                              FshError *error)
{
    const Settings *settings = context->settings;
    const char *text = sides_text(settings);
    *used_ret = 0;
    if (!!settings->pairs + !!settings->fields + !!settings->masks > 1)
        return fsh_error_set(error, FSH_ERR_USAGE, "--pairs, --fields and --masks: give one of them");
    options->masks = settings->masks != NULL;
    FshStatus status = text && strchr(text, '=') ? take_folders(context, options, used_ret, error)
                                                 : take_names(settings, options, error);
    if (!status)
        status = take_suffixes(settings, options, error);
    return status ? status : check_one_folder(options, error);
}
