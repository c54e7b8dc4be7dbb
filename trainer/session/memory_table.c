#include "trainer/session/memory_table.h"

#include <string.h>

#include "common/progress.h"

static bool on_device(const Session *session)
{
    return session->plan.device != DEVICE_CPU;
}

static void add_pixels(const Session *session, MemoryUse *use)
{
    for (int i = 0; i < 2; i++)
        pixel_source_device_memory(session->sources[i], use);
}

/* Returns whether images will lie on the device. */
static bool wants_pixels(const Session *session)
{
    return session->plan.source->recipes;
}

/* Returns whether images lie decoded in RAM, once they are there. */
static bool wants_ram(const Session *session)
{
    return session->plan.source->residence == PIXELS_IN_RAM;
}

/* Returns whether the run is described without its GPU, or without the memory for it: then the shares of
 * libraries and of the loader are unknown. */
static bool is_foreseen(const Session *session)
{
    return !session->network.backend;
}

static uint64_t loader_bytes(const Session *session)
{
    return (session->train ? loader_ring_bytes(session->train) : 0) +
           (session->evaluation ? loader_ring_bytes(session->evaluation) : 0);
}

/* Returns the bytes of decoded images in RAM. */
static uint64_t decoded_bytes(const Session *session)
{
    return pixel_source_ram_bytes(session->sources[0]) + pixel_source_ram_bytes(session->sources[1]);
}

/* Returns the sum over all programs: every size has its own activations. */
static MemoryUse sum_of(const Session *session)
{
    const Network *network = &session->network;
    MemoryUse use = {0};
    network_state_memory(network, NETWORK_TRAINED, &use);
    network_state_memory(network, NETWORK_AVERAGED, &use);
    for (size_t i = 0; i < session->plan.edge_count; i++)
        network_program_memory(network, &network->train[i], &use);
    for (size_t i = 0; i < 2 * (size_t)NETWORK_SIZES_KEPT; i++)
        network_program_memory(network, &network->evaluation[i / NETWORK_SIZES_KEPT][i % NETWORK_SIZES_KEPT],
                               &use);
    add_pixels(session, &use);
    return use;
}

/* Returns the bytes taken on the device. If the device is the host, loader and decoded images count too, but
 * not the dataset's pages. */
static uint64_t total_of(const Session *session, const MemoryUse *use)
{
    return memory_total(use) + (on_device(session) ? 0 : loader_bytes(session) + decoded_bytes(session));
}

/* ---- the table ---- */

static void print_bytes(FILE *stream, const char *what, uint64_t bytes, const char *note)
{
    char text[32];
    (void)fprintf(stream, "%-38s %12s%s\n", what, progress_format_bytes(text, sizeof text, bytes), note);
}

static void print_unknown(FILE *stream, const char *what)
{
    (void)fprintf(stream, "%-38s %12s\n", what, "not known");
}

/* Prints the rows of the State. The optimizer's row is the rest of the State, with the gaps between
 * tensors. */
static void print_state(const Session *session, FILE *stream)
{
    const Graph *graph = network_graph(&session->network);
    const uint64_t parameters = memory_of_role(graph, TENSOR_PARAMETER),
                   buffers = memory_of_role(graph, TENSOR_BUFFER);
    MemoryUse use = {0}, average = {0};
    network_state_memory(&session->network, NETWORK_TRAINED, &use);
    network_state_memory(&session->network, NETWORK_AVERAGED, &average);
    print_bytes(stream, "parameters", parameters, "");
    print_bytes(stream, "buffers", buffers, "");
    print_bytes(stream, "optimizer", use.bytes[MEMORY_WEIGHTS] - parameters - buffers, "");
    if (average.bytes[MEMORY_WEIGHTS])
        print_bytes(stream, "EMA's weights, to evaluate", average.bytes[MEMORY_WEIGHTS], "");
    if (on_device(session))
        print_bytes(stream, "copies of weights in 16 bits",
                    use.bytes[MEMORY_COPIES] + average.bytes[MEMORY_COPIES], "");
    if (use.bytes[MEMORY_GRADIENTS]) /* otherwise each program has its own */
        print_bytes(stream, "gradients", use.bytes[MEMORY_GRADIENTS], "");
}

static void print_part(const Session *session, const char *name, const NetworkProgram *part, FILE *stream)
{
    static const MemoryKind kinds[] = {MEMORY_GRADIENTS, MEMORY_ACTIVATIONS, MEMORY_SCRATCH, MEMORY_INPUTS,
                                       MEMORY_RESULTS};
    MemoryUse use = {0};
    if (!part->graph)
        return;
    network_program_memory(&session->network, part, &use);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const uint64_t bytes = use.bytes[kinds[i]];
        char what[64], note[96] = "", unshared[32];
        (void)snprintf(what, sizeof what, "%s, %s", name, memory_kind_names[kinds[i]]);
        if (kinds[i] == MEMORY_ACTIVATIONS)
            (void)snprintf(note, sizeof note, "  (%s before sharing)",
                           progress_format_bytes(unshared, sizeof unshared,
                                                 memory_of_role(part->graph, TENSOR_ACTIVATION)));
        if (bytes)
            print_bytes(stream, what, bytes, note);
        else if (kinds[i] == MEMORY_SCRATCH && !part->program)
            print_unknown(stream, what);
    }
}

static void print_pixels(const Session *session, FILE *stream)
{
    MemoryUse use = {0};
    if (!wants_pixels(session))
        return;
    add_pixels(session, &use);
    if (session->network.backend)
        print_bytes(stream, "images on the device", use.bytes[MEMORY_PIXELS], "");
    else
        print_unknown(stream, "images on the device");
}

static void print_decoded(const Session *session, const char *what, FILE *stream)
{
    const uint64_t bytes = decoded_bytes(session);
    if (bytes)
        print_bytes(stream, what, bytes, "");
    else if (wants_ram(session))
        print_unknown(stream, what);
}

static void print_sums(const Session *session, FILE *stream)
{
    const MemoryUse use = sum_of(session);
    const uint64_t ring = loader_bytes(session), decoded = decoded_bytes(session);
    uint64_t left = 0;
    char note[64] = "", text[32];
    if (!on_device(session)) {
        if (is_foreseen(session))
            print_unknown(stream, "loader");
        else
            print_bytes(stream, "loader", ring, "");
        print_decoded(session, "decoded images", stream);
        print_bytes(stream, "in all, beside the dataset's pages", total_of(session, &use),
                    is_foreseen(session) || (wants_ram(session) && !decoded) ? "  (without what is not known)"
                                                                             : "");
        return;
    }
    if (session->network.backend && !backend_free_memory(session->network.backend, &left, NULL))
        (void)snprintf(note, sizeof note, "  (%s are free now)",
                       progress_format_bytes(text, sizeof text, left));
    else if (is_foreseen(session))
        (void)snprintf(note, sizeof note, "  (without what is not known)");
    print_bytes(stream, "in all, on the device", total_of(session, &use), note);
    print_bytes(stream, "on the host: pinned", use.bytes[MEMORY_PINNED], "");
    if (session->network.backend)
        print_bytes(stream, "on the host: loader", ring, "");
    print_decoded(session, "on the host: decoded images", stream);
}

void memory_table_print(const Session *session, FILE *stream)
{
    const Network *network = &session->network;
    char name[48];
    print_state(session, stream);
    for (size_t i = 0; i < session->plan.edge_count; i++) {
        (void)snprintf(name, sizeof name, "training, %u pixels", session->plan.edges[i]);
        print_part(session, name, &network->train[i], stream);
    }
    for (size_t i = 0; i < 2 * (size_t)NETWORK_SIZES_KEPT; i++) {
        const NetworkProgram *part = &network->evaluation[i / NETWORK_SIZES_KEPT][i % NETWORK_SIZES_KEPT];
        const char *average = i < NETWORK_SIZES_KEPT ? "" : ", EMA";
        if (i % NETWORK_SIZES_KEPT == 0)
            (void)snprintf(name, sizeof name, "evaluation%s", average);
        else
            (void)snprintf(name, sizeof name, "evaluation%s, %lld x %lld", average,
                           (long long)part->spec.width, (long long)part->spec.height);
        print_part(session, name, part, stream);
    }
    print_pixels(session, stream);
    print_sums(session, stream);
}

/* ---- in short ---- */

const char *memory_table_line(const Session *session, char *buffer, size_t buffer_bytes)
{
    static const struct {
        const char *name;
        MemoryKind kinds[2];
    } shares[] = {{"weights and optimizer", {MEMORY_WEIGHTS, MEMORY_WEIGHTS}},
                  {"their copies in 16 bits", {MEMORY_COPIES, MEMORY_COPIES}},
                  {"gradients", {MEMORY_GRADIENTS, MEMORY_GRADIENTS}},
                  {"activations and scratch", {MEMORY_ACTIVATIONS, MEMORY_SCRATCH}},
                  {"batches and results", {MEMORY_INPUTS, MEMORY_RESULTS}},
                  {"images", {MEMORY_PIXELS, MEMORY_PIXELS}}};
    const MemoryUse use = sum_of(session);
    const bool foreseen = is_foreseen(session);
    char text[32];
    size_t length = (size_t)snprintf(buffer, buffer_bytes, "%s",
                                     progress_format_bytes(text, sizeof text, total_of(session, &use)));
    for (size_t i = 0; i < sizeof shares / sizeof *shares && length < buffer_bytes; i++) {
        const MemoryKind *kinds = shares[i].kinds;
        const uint64_t bytes = use.bytes[kinds[0]] + (kinds[1] != kinds[0] ? use.bytes[kinds[1]] : 0);
        if (bytes)
            length +=
                (size_t)snprintf(buffer + length, buffer_bytes - length, "%s %s %s", i ? "," : ":",
                                 foreseen && kinds[1] == MEMORY_SCRATCH ? "activations" : shares[i].name,
                                 progress_format_bytes(text, sizeof text, bytes));
    }
    if (!on_device(session) && loader_bytes(session) && length < buffer_bytes)
        length += (size_t)snprintf(buffer + length, buffer_bytes - length, ", loader %s",
                                   progress_format_bytes(text, sizeof text, loader_bytes(session)));
    if (use.bytes[MEMORY_PINNED] && length < buffer_bytes)
        length += (size_t)snprintf(buffer + length, buffer_bytes - length, "; %s pinned on the host",
                                   progress_format_bytes(text, sizeof text, use.bytes[MEMORY_PINNED]));
    const uint64_t decoded = decoded_bytes(session);
    if (wants_ram(session) && length < buffer_bytes)
        length += (size_t)snprintf(buffer + length, buffer_bytes - length, "%s decoded images%s%s",
                                   decoded && !on_device(session) ? "," : ";", decoded ? " " : " come on top",
                                   decoded ? progress_format_bytes(text, sizeof text, decoded) : "");
    const bool later = wants_pixels(session) && !use.bytes[MEMORY_PIXELS];
    if ((later || foreseen) && length < buffer_bytes)
        (void)snprintf(buffer + length, buffer_bytes - length, "; %s on top",
                       !later     ? "scratch comes"
                       : foreseen ? "scratch and images on the device come"
                                  : "images on the device come");
    return buffer;
}

json_t *memory_table_json(const Session *session)
{
    const MemoryUse use = sum_of(session);
    json_t *object = json_object();
    int failed = 0;
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        const bool unknown = is_foreseen(session) &&
                             (kind == MEMORY_SCRATCH || (kind == MEMORY_PIXELS && wants_pixels(session)));
        failed |= json_object_set_new(object, memory_kind_names[kind],
                                      unknown ? json_null() : json_integer((json_int_t)use.bytes[kind]));
    }
    failed |= json_object_set_new(object, "total", json_integer((json_int_t)total_of(session, &use)));
    failed |= json_object_set_new(object, "loader",
                                  is_foreseen(session) ? json_null()
                                                       : json_integer((json_int_t)loader_bytes(session)));
    if (wants_ram(session))
        failed |= json_object_set_new(
            object, "decoded_images",
            is_foreseen(session) ? json_null() : json_integer((json_int_t)decoded_bytes(session)));
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    return object;
}
