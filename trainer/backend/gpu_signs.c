#include "trainer/backend/gpu_signs.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_there(const char *root, const char *path)
{
    char whole[PATH_MAX];
    return snprintf(whole, sizeof whole, "%s%s", root, path) < (int)sizeof whole && access(whole, F_OK) == 0;
}

/* Returns the number in a file such as /sys/bus/pci/devices/0000:01:00.0/vendor; 0: none. */
static unsigned long read_number(const char *folder, const char *device, const char *name)
{
    char path[PATH_MAX], text[32] = "";
    FILE *file = snprintf(path, sizeof path, "%s/%s/%s", folder, device, name) < (int)sizeof path
                     ? fopen(path, "re")
                     : NULL;
    const bool read = file && fgets(text, sizeof text, file);
    if (file)
        (void)fclose(file);
    return read ? strtoul(text, NULL, 16) : 0;
}

/* Returns whether a display controller of NVIDIA is on the PCI bus; data centre cards are of class 3D. */
static bool has_card(const char *root)
{
    enum { NVIDIA = 0x10de, DISPLAY_CLASS = 0x03, CLASS_SHIFT = 16 };
    char folder[PATH_MAX];
    bool found = false;
    if (snprintf(folder, sizeof folder, "%s/sys/bus/pci/devices", root) >= (int)sizeof folder)
        return false;
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries && !found && (entry = readdir(entries));)
        found = entry->d_name[0] != '.' && read_number(folder, entry->d_name, "vendor") == NVIDIA &&
                read_number(folder, entry->d_name, "class") >> CLASS_SHIFT == DISPLAY_CLASS;
    if (entries)
        (void)closedir(entries);
    return found;
}

GpuSigns gpu_signs(const char *root)
{
    const char *shown = getenv("CUDA_VISIBLE_DEVICES");
    if (!is_there(root, "/dev/nvidiactl") && !is_there(root, "/usr/lib/wsl/lib/libcuda.so.1") &&
        !has_card(root))
        return GPU_SIGNS_NONE;
    return shown && (!*shown || strncmp(shown, "-1", 2) == 0 || strcmp(shown, "NoDevFiles") == 0)
               ? GPU_SIGNS_HIDDEN
               : GPU_SIGNS_THERE;
}
