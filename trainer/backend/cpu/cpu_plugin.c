/* What libfshard-cpu.so exports. */
#include "trainer/backend/backend_plugin.h"
#include "trainer/backend/cpu/cpu_internal.h"

static FshStatus open_backend(Backend **backend, const BackendOptions *options, FshError *error);

static const BackendInterface interface = {
    .device = "cpu",
    .fusions = FUSE_ALL,
    .open = open_backend,
    .close = cpu_backend_close,
    .warning = cpu_backend_warning,
    .rates = cpu_rates,
    .state_new = cpu_state_new,
    .state_free = cpu_state_free,
    .state_read = cpu_state_read,
    .state_write = cpu_state_write,
    .program_new = cpu_program_new,
    .program_free = cpu_program_free,
    .program_write = cpu_program_write,
    .program_run = cpu_program_run,
    .program_read = cpu_program_read,
    .program_node_engine = cpu_program_node_engine,
    .program_profile = cpu_program_profile,
    .program_poison = cpu_program_poison,
    .join = cpu_backend_join,
};

static FshStatus open_backend(Backend **backend, const BackendOptions *options, FshError *error)
{
    FshStatus status = cpu_backend_open(backend, options, error);
    if (!status)
        (*backend)->interface = &interface;
    return status;
}

FSH_API const BackendPlugin fshard_cpu_plugin = {BACKEND_PLUGIN_HERE, .interface = &interface};
