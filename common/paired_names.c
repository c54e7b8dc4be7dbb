#include "common/paired_names.h"

#include <stdlib.h>
#include <string.h>

static int compare_places(const ClassFile *left, const ClassFile *right)
{
    if (left->split != right->split)
        return left->split < right->split ? -1 : 1;
    if (left->path_bytes != right->path_bytes)
        return left->path_bytes < right->path_bytes ? -1 : 1;
    return memcmp(left->path, right->path, left->path_bytes);
}

/* Orders by split and path, then class. */
static int compare_class_files(const void *a, const void *b)
{
    const ClassFile *left = a, *right = b;
    const int order = compare_places(left, right);
    return order ? order : (left->label > right->label) - (left->label < right->label);
}

static bool is_number(const ClassFile *file)
{
    size_t digits = 0;
    while (digits < file->path_bytes && file->path[digits] >= '0' && file->path[digits] <= '9')
        digits++;
    return digits == file->path_bytes;
}

bool paired_names(ClassFile *files, uint64_t count)
{
    uint64_t counts[2] = {0}, same_count = 0;
    if (count)
        qsort(files, count, sizeof *files, compare_class_files);
    for (uint64_t i = 0; i < count; i++) {
        counts[files[i].label]++;
        same_count += i > 0 && files[i].label != files[i - 1].label && !is_number(&files[i]) &&
                      compare_places(&files[i], &files[i - 1]) == 0;
    }
    return same_count > (counts[0] > counts[1] ? counts[0] : counts[1]) / 2;
}
