#include "trainer/backend/cuda_load.h"

#include <dlfcn.h>
#include <string.h>

#include "common/plugin.h"
#include "trainer/backend/cuda_plugin.h"

/* Without the driver nothing can work: told in a millisecond, before the plugin brings in half a gigabyte of
 * libraries. */
static FshStatus find_driver(FshError *error)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cuda: no NVIDIA driver on this machine (%s); install it, or use --device cpu",
                             dlerror());
    (void)dlclose(driver);
    return FSH_OK;
}

static FshStatus load_plugin(const BackendInterface **interface_ret, FshError *error)
{
    static const CudaPlugin ours = {CUDA_PLUGIN_HERE, .interface = NULL};
    const void *symbol = NULL;
    FshStatus status = plugin_load(CUDA_PLUGIN_FILE, CUDA_PLUGIN_SYMBOL, &symbol, error);
    if (status == FSH_ERR_NOT_FOUND)
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "cuda: " CUDA_PLUGIN_FILE
            " is not here, so this build has no CUDA backend; install the CUDA toolkit (12 or "
            "newer) and cuDNN (9.8 or newer) and build again, name its folder in FSHARD_PLUGINS, or use "
            "--device cpu");
    if (status)
        return fsh_error_prepend(error, "cuda");
    const CudaPlugin *plugin = symbol;
    if (strcmp(plugin->version, ours.version) != 0 || plugin->interface_bytes != ours.interface_bytes ||
        plugin->node_bytes != ours.node_bytes || plugin->tensor_bytes != ours.tensor_bytes ||
        plugin->op_kind_count != ours.op_kind_count)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "cuda: " CUDA_PLUGIN_FILE
                             " is of another version (%s, this is %s); build both from one source",
                             plugin->version, ours.version);
    *interface_ret = plugin->interface;
    return FSH_OK;
}

static FshStatus load_cuda(const BackendInterface **interface_ret, FshError *error)
{
    FshStatus status = find_driver(error);
    return status ? status : load_plugin(interface_ret, error);
}

static FshStatus open_cuda(Backend **backend, const BackendOptions *options, FshError *error)
{
    const BackendInterface *interface = NULL;
    FshStatus status = load_cuda(&interface, error);
    return status ? status : interface->open(backend, options, error);
}

static FshStatus count_devices(int *count_ret, FshError *error)
{
    const BackendInterface *interface = NULL;
    FshStatus status = load_cuda(&interface, error);
    return status ? status : interface->device_count(count_ret, error);
}

/* Wants no driver. */
static FshStatus foresee(const Graph *graph, unsigned *fusions_ret, MemoryUse *use, FshError *error)
{
    const BackendInterface *interface = NULL;
    FshStatus status = load_plugin(&interface, error);
    return status ? status : interface->foresee(graph, fusions_ret, use, error);
}

const BackendInterface backend_cuda = {
    .device = "cuda", .open = open_cuda, .device_count = count_devices, .foresee = foresee};
