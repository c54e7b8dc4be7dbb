#include "tools/resize/resize_plan.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "common/pool.h"
#include "tools/resize/resize_image.h"

/* ---- which files are images ---- */

typedef struct Sniffing {
    const char *root;
    const FileList *list;
    bool *is_image; /* for each file of the list */
} Sniffing;

/* Files whose names promise nothing are opened. One that cannot be is no image: a README without permission is not worth
 * an error. */
static FshStatus sniff_file(uint64_t item, int thread, void *context, FshError *error)
{
    Sniffing *sniffing = context;
    const char *name = sniffing->list->files[item].path;
    (void)thread;
    sniffing->is_image[item] = image_name_is_image(name);
    char path[PATH_MAX];
    if (sniffing->is_image[item] || file_join(path, sizeof path, sniffing->root, name, error))
        return FSH_OK;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return FSH_OK;
    uint8_t bytes[IMAGE_SNIFF_BYTES];
    ssize_t length = read(descriptor, bytes, sizeof bytes);
    (void)close(descriptor);
    sniffing->is_image[item] = length > 0 && image_sniff(bytes, (size_t)length) != IMAGE_UNKNOWN;
    return FSH_OK;
}

/* ---- names ---- */

/* The path with another extension; malloc'd. */
static char *change_extension(const char *path, const char *extension)
{
    size_t kept = (size_t)(strrchr(path, '.') - path);
    char *changed = malloc(kept + strlen(extension) + 1);
    if (changed) {
        memcpy(changed, path, kept);
        memcpy(changed + kept, extension, strlen(extension) + 1);
    }
    return changed;
}

static FshStatus fill_item(ResizeItem *item, const FileEntry *source, FshError *error)
{
    *item = (ResizeItem){.source = source, .target = source->path};
    ImageFormat promised = image_name_format(source->path);
    if (promised == IMAGE_UNKNOWN)
        return FSH_OK;
    item->format = resize_format_for(promised);
    if (item->format != promised)
        item->target = change_extension(source->path, image_format_extension(item->format));
    return item->target ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a list of files");
}

static bool is_renamed(const ResizeItem *item)
{
    return item->target != item->source->path;
}

/* By target; of equal ones, the file that has this name already comes first, then by source. */
static int compare_targets(const void *a, const void *b)
{
    const ResizeItem *first = *(ResizeItem *const *)a, *second = *(ResizeItem *const *)b;
    int order = strcmp(first->target, second->target);
    if (order == 0)
        order = is_renamed(first) - is_renamed(second);
    return order ? order : strcmp(first->source->path, second->source->path);
}

/* The first item whose source lies in a folder of this name; NULL: none. */
static const ResizeItem *find_inside(const ResizePlan *plan, const char *folder)
{
    size_t length = strlen(folder), low = 0, high = plan->count;
    while (low < high) { /* the first whose path, cut to the length of "folder/", is not below that */
        size_t middle = low + (high - low) / 2;
        const char *path = plan->items[middle].source->path;
        int order = strncmp(path, folder, length);
        bool below = order < 0 || (order == 0 && (unsigned char)path[length] < '/');
        low = below ? middle + 1 : low;
        high = below ? high : middle;
    }
    const ResizeItem *item = low < plan->count ? &plan->items[low] : NULL;
    return item && strncmp(item->source->path, folder, length) == 0 && item->source->path[length] == '/'
               ? item
               : NULL;
}

/* Marks all but the first of the items that would be written to one name, and those whose new name is a folder's. */
static FshStatus find_conflicts(ResizePlan *plan, FshError *error)
{
    uint64_t renamed_count = 0;
    for (uint64_t i = 0; i < plan->count; i++)
        renamed_count += is_renamed(&plan->items[i]);
    if (renamed_count == 0) /* sources have names of their own */
        return FSH_OK;
    ResizeItem **order = malloc(plan->count * sizeof(ResizeItem *));
    if (!order)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a list of files");
    for (uint64_t i = 0; i < plan->count; i++)
        order[i] = &plan->items[i];
    qsort(order, plan->count, sizeof(ResizeItem *), compare_targets);
    uint64_t first = 0;
    for (uint64_t i = 1; i < plan->count; i++) {
        if (strcmp(order[i]->target, order[first]->target) == 0)
            order[i]->conflict = order[first]->source->path;
        else
            first = i;
    }
    free(order);
    for (uint64_t i = 0; i < plan->count; i++) {
        const ResizeItem *inside =
            is_renamed(&plan->items[i]) ? find_inside(plan, plan->items[i].target) : NULL;
        if (inside)
            plan->items[i].conflict = inside->source->path;
    }
    return FSH_OK;
}

/* ---- the plan ---- */

FshStatus resize_plan_make(ResizePlan *plan, const char *root, int jobs, FshError *error)
{
    *plan = (ResizePlan){0};
    Sniffing sniffing = {.root = root, .list = &plan->list};
    FshStatus status = walk_files(root, jobs, &plan->list, error);
    if (status)
        return status;
    uint64_t files_count = plan->list.count;
    sniffing.is_image = calloc(files_count + 1, sizeof *sniffing.is_image);
    plan->items = calloc(files_count + 1, sizeof *plan->items);
    if (!sniffing.is_image || !plan->items)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a list of files");
    if (!status)
        status = pool_run(jobs, files_count, sniff_file, &sniffing, error);
    for (uint64_t i = 0; i < files_count && !status; i++) {
        if (!sniffing.is_image[i]) {
            plan->other_count++;
            continue;
        }
        status = fill_item(&plan->items[plan->count], &plan->list.files[i], error);
        plan->bytes += plan->list.files[i].bytes;
        plan->count++;
    }
    free(sniffing.is_image);
    if (!status)
        status = find_conflicts(plan, error);
    if (!status && plan->count == 0 && plan->list.problem_count == 0)
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: no images in this folder (%llu other files)",
                               root, (unsigned long long)plan->other_count);
    return status;
}

void resize_plan_free(ResizePlan *plan)
{
    for (uint64_t i = 0; i < plan->count; i++) {
        if (plan->items[i].source && is_renamed(&plan->items[i]))
            free((char *)plan->items[i].target);
    }
    free(plan->items);
    file_list_free(&plan->list);
    *plan = (ResizePlan){0};
}
