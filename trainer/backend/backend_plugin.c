#include "trainer/backend/backend_plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "common/plugin.h"

/* Their addresses are 0 unless the program is linked to the backend itself. */
#pragma weak fshard_cpu_plugin
#pragma weak fshard_cuda_plugin

/* Returns FSH_ERR_UNSUPPORTED on a machine without the driver, in a millisecond. */
static FshStatus find_cuda_driver(FshError *error)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cuda: no NVIDIA driver on this machine (%s); install it, or use --device cpu",
                             dlerror());
    (void)dlclose(driver);
    return FSH_OK;
}

typedef struct Device {
    const char *name, *file, *symbol;
    const BackendPlugin *inside; /* this program; NULL: it is to be loaded */
    FshStatus (*check_machine)(FshError *error);
    const char *missing; /* what to do where there is no such file */
} Device;

enum { DEVICE_COUNT = 2 };
static const Device devices[DEVICE_COUNT] = {
    {"cpu", "libfshard-cpu.so", "fshard_cpu_plugin", &fshard_cpu_plugin, NULL,
     "so nothing can be trained on the CPU; build or install all of fshard, or name its folder in "
     "FSHARD_PLUGINS"},
    {"cuda", "libfshard-cuda.so", "fshard_cuda_plugin", &fshard_cuda_plugin, find_cuda_driver,
     "so this build has no CUDA backend; install the CUDA toolkit (12 or newer) and cuDNN (9.8 or newer) and "
     "build again, name its folder in FSHARD_PLUGINS, or use --device cpu"},
};

/* Loads the device's plugin, or finds it in this program; *interface_ret is then its interface. */
static FshStatus load_plugin(const Device *device, const BackendInterface **interface_ret, FshError *error)
{
    static const BackendPlugin ours = {BACKEND_PLUGIN_HERE, .interface = NULL};
    const void *symbol = device->inside;
    FshStatus status = symbol ? FSH_OK : plugin_load(device->file, device->symbol, &symbol, error);
    if (status == FSH_ERR_NOT_FOUND)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: %s is not here, %s", device->name, device->file,
                             device->missing);
    if (status)
        return fsh_error_prepend(error, "%s", device->name);
    const BackendPlugin *plugin = symbol;
    if (strcmp(plugin->version, ours.version) != 0 || plugin->plugin_bytes != ours.plugin_bytes ||
        plugin->op_kind_count != ours.op_kind_count ||
        memcmp(plugin->shared_bytes, ours.shared_bytes, sizeof ours.shared_bytes) != 0)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "%s: %s is of another version (%s, this is %s); build both from one source",
                             device->name, device->file, plugin->version, ours.version);
    *interface_ret = plugin->interface;
    return FSH_OK;
}

FshStatus backend_find(const char *device, bool for_use, const BackendInterface **interface_ret,
                       FshError *error)
{
    char known[64] = "";
    for (int i = 0; i < DEVICE_COUNT; i++) {
        FshStatus status = FSH_OK;
        if (strcmp(device, devices[i].name) == 0) {
            if (for_use && devices[i].check_machine)
                status = devices[i].check_machine(error);
            return status ? status : load_plugin(&devices[i], interface_ret, error);
        }
        const size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", devices[i].name);
    }
    return fsh_error_set(error, FSH_ERR_USAGE, "device '%s': unknown; choose one of %s", device, known);
}
