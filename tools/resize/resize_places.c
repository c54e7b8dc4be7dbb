#include "tools/resize/resize_places.h"

#include <stdio.h>
#include <string.h>

enum { TOLD = 3 };

static void note_folder(ResizePlaces *places, const char *name, size_t length)
{
    char folder[RESIZE_FOLDER_BYTES];
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(length < sizeof folder ? length : sizeof folder - 1),
                   name);
    for (size_t i = 0; i < places->folders_count; i++) {
        if (strcmp(places->folders[i], folder) == 0)
            return;
    }
    places->more_folders = places->folders_count == RESIZE_FOLDERS_SHOWN;
    if (!places->more_folders)
        memcpy(places->folders[places->folders_count++], folder, sizeof folder);
}

static void note_folders(ResizePlaces *places, const ResizeSourceOptions *source, const char *path)
{
    for (const char *slash = strchr(path, '/'); slash; path = slash + 1, slash = strchr(path, '/')) {
        const size_t length = (size_t)(slash - path);
        note_folder(places, path, length);
        for (size_t side = 0; side < 2; side++)
            places->sides_seen[side] |=
                strlen(source->sides[side]) == length && memcmp(path, source->sides[side], length) == 0;
    }
}

bool places_note(ResizePlaces *places, const ResizeSourceOptions *source, const ResizeResult *result)
{
    if (!result->is_unplaced) {
        places->placed_count++;
        return true;
    }
    if (places->placed_count == 0) /* else nobody asks for the names */
        note_folders(places, source, result->path);
    if (places->unplaced_count++ == 0)
        (void)snprintf(places->first, sizeof places->first, "%.*s", RESIZE_FOLDER_BYTES - 1, result->path);
    return places->unplaced_count <= TOLD;
}

bool places_all_missed(const ResizePlaces *places)
{
    return places->unplaced_count > 0 && places->placed_count == 0;
}

FshStatus places_explain(const ResizePlaces *places, const ResizeOptions *options, FshError *error)
{
    const ResizeSourceOptions *source = &options->source;
    const char *const *sides = (const char *const[]){source->sides[0], source->sides[1]};
    char folders[RESIZE_FOLDERS_SHOWN * (RESIZE_FOLDER_BYTES + 2)] = "";
    size_t length = 0;
    if (!sides[0][0])
        return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                             "%.150s: none of the %llu images has a label in %.150s (the first is %s)",
                             source->path, (unsigned long long)places->unplaced_count, options->labels,
                             places->first);
    if (places->sides_seen[0] && places->sides_seen[1])
        return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                             "%.150s: no image below a folder %.60s has a partner below %.60s, which would "
                             "have the same path but for that name (the first is %s)",
                             source->path, sides[0], sides[1], places->first);
    for (size_t i = 0; i < places->folders_count; i++)
        length += (size_t)snprintf(folders + length, sizeof folders - length, "%s%s", i ? ", " : "",
                                   places->folders[i]);
    const bool any = places->sides_seen[0] || places->sides_seen[1];
    return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                         "%.150s: no image lies below a folder %.60s%s%.60s; %s%s%s", source->path,
                         places->sides_seen[0] ? sides[1] : sides[0], any ? "" : " or ", any ? "" : sides[1],
                         length ? "the folders here are: " : "there are no folders here", folders,
                         places->more_folders ? ", and more" : "");
}
