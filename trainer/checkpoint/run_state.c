#include "trainer/checkpoint/run_state.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "common/json_text.h"

/* One row for each number of the state; together they are a JSON object. */
typedef enum FieldKind { FIELD_COUNT, FIELD_REAL, FIELD_FLAG } FieldKind;

typedef struct Field {
    const char *name;
    size_t offset;
    FieldKind kind;
    bool may_miss; /* checkpoints of older versions lack it, which means 0 */
} Field;

/* clang-format off */
#define COUNT(member) {.name = #member, .kind = FIELD_COUNT, .offset = offsetof(RunState, member)}
#define REAL(member) {.name = #member, .kind = FIELD_REAL, .offset = offsetof(RunState, member)}
#define FLAG(member) {.name = #member, .kind = FIELD_FLAG, .offset = offsetof(RunState, member)}
/* clang-format on */

static const Field fields[] = {
    COUNT(epoch),
    COUNT(step),
    COUNT(steps_done),
    COUNT(images),
    REAL(seconds),
    REAL(step_seconds),
    REAL(wait_seconds),
    REAL(evaluation_seconds),
    REAL(epoch_seconds),
    REAL(epoch_wait_seconds),
    FLAG(finished),
    {"last_evaluation_seconds", offsetof(RunState, last_evaluation_seconds), FIELD_REAL, true},
    {"evaluation_interval", offsetof(RunState, evaluation_interval), FIELD_COUNT, true},
};
enum { FIELD_ROWS = sizeof fields / sizeof *fields };

/* ---- writing ---- */

static json_t *metrics_object(const Metrics *metrics)
{
    json_t *sums = json_array();
    for (int i = 0; i < METRIC_COUNT; i++)
        (void)json_array_append_new(sums, json_number(metrics->sums[i]));
    return json_pack("{s:I, s:I, s:o}", "count", (json_int_t)metrics->count, "measured",
                     (json_int_t)metrics->measured, "sums", sums);
}

static json_t *best_object(const BestEpoch *best)
{
    return json_pack("{s:b, s:I, s:o}", "any", best->any, "epoch", (json_int_t)best->epoch, "metrics",
                     metrics_object(&best->metrics));
}

static json_t *kept_array(const RunState *state)
{
    json_t *array = json_array();
    for (size_t i = 0; i < state->kept_count; i++)
        (void)json_array_append_new(array, json_pack("{s:I, s:f}", "epoch", (json_int_t)state->kept[i].epoch,
                                                     "value", state->kept[i].value));
    return array;
}

static json_t *numbers_array(const double *numbers, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, json_real(numbers[i]));
    return array;
}

json_t *run_state_object(const RunState *state)
{
    double plateau[PLATEAU_STATE], early_stop[EARLY_STOP_STATE];
    json_t *object = json_object();
    for (size_t i = 0; i < FIELD_ROWS; i++) {
        const void *at = (const char *)state + fields[i].offset;
        json_t *value = fields[i].kind == FIELD_COUNT  ? json_integer((json_int_t) * (const uint64_t *)at)
                        : fields[i].kind == FIELD_REAL ? json_real(*(const double *)at)
                                                       : json_boolean(*(const bool *)at);
        (void)json_object_set_new(object, fields[i].name, value);
    }
    plateau_save(&state->plateau, plateau);
    early_stop_save(&state->early_stop, early_stop);
    int failed = json_object_set_new(object, "metrics", metrics_object(&state->metrics));
    failed |= json_object_set_new(object, "best", best_object(&state->best));
    failed |= json_object_set_new(object, "best_average", best_object(&state->best_average));
    failed |= json_object_set_new(object, "saved", best_object(&state->saved));
    failed |= json_object_set_new(object, "saved_average", best_object(&state->saved_average));
    failed |= json_object_set_new(object, "plateau", numbers_array(plateau, PLATEAU_STATE));
    failed |= json_object_set_new(object, "early_stop", numbers_array(early_stop, EARLY_STOP_STATE));
    failed |= json_object_set_new(object, "kept", kept_array(state));
    if (!failed && json_object_size(object) == FIELD_ROWS + 8)
        return object;
    json_decref(object);
    return NULL;
}

/* ---- reading ---- */

typedef struct Reading {
    const json_t *object;
    const char *missing; /* the first member that is missing or of another type */
} Reading;

static const json_t *member(Reading *reading, const char *name, bool (*is)(const json_t *value))
{
    const json_t *value = json_object_get(reading->object, name);
    if (value && is(value))
        return value;
    if (!reading->missing)
        reading->missing = name;
    return NULL;
}

static bool is_count(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

static bool is_number(const json_t *value)
{
    return json_is_number(value);
}

static bool is_flag(const json_t *value)
{
    return json_is_boolean(value);
}

static bool is_object(const json_t *value)
{
    return json_is_object(value);
}

static bool is_array(const json_t *value)
{
    return json_is_array(value);
}

static void read_field(Reading *reading, RunState *state, const Field *field)
{
    void *at = (char *)state + field->offset;
    const json_t *value = NULL;
    if (field->may_miss && !json_object_get(reading->object, field->name))
        return; /* 0 */
    switch (field->kind) {
    case FIELD_COUNT:
        value = member(reading, field->name, is_count);
        *(uint64_t *)at = (uint64_t)json_integer_value(value);
        break;
    case FIELD_REAL:
        value = member(reading, field->name, is_number);
        *(double *)at = json_number_value(value);
        break;
    case FIELD_FLAG:
        value = member(reading, field->name, is_flag);
        *(bool *)at = json_is_true(value);
        break;
    }
}

/* Reads `count` numbers, null as NaN. Returns false if the array has others. */
static bool read_numbers(Reading *reading, const char *name, double *numbers, size_t count)
{
    const json_t *array = member(reading, name, is_array);
    for (size_t i = 0; array && i < count; i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_number(value) && !json_is_null(value)) {
            reading->missing = name;
            return false;
        }
        numbers[i] = json_is_null(value) ? NAN : json_number_value(value);
    }
    return array != NULL;
}

static void read_metrics(Reading *reading, const char *name, Metrics *metrics)
{
    Reading inner = {.object = member(reading, name, is_object)};
    if (!inner.object)
        return;
    metrics->count = (uint64_t)json_integer_value(member(&inner, "count", is_count));
    metrics->measured = (unsigned)json_integer_value(member(&inner, "measured", is_count));
    const json_t *sums = member(&inner, "sums", is_array); /* earlier versions had fewer metrics */
    const size_t there = json_array_size(sums);
    (void)read_numbers(&inner, "sums", metrics->sums, there < METRIC_COUNT ? there : METRIC_COUNT);
    if (inner.missing)
        reading->missing = name;
}

static void read_best(Reading *reading, const char *name, BestEpoch *best)
{
    Reading inner = {.object = member(reading, name, is_object)};
    if (!inner.object)
        return;
    best->any = json_is_true(member(&inner, "any", is_flag));
    best->epoch = (uint64_t)json_integer_value(member(&inner, "epoch", is_count));
    read_metrics(&inner, "metrics", &best->metrics);
    if (inner.missing)
        reading->missing = name;
}

static void read_kept(Reading *reading, RunState *state)
{
    const json_t *array = member(reading, "kept", is_array);
    state->kept_count = json_array_size(array);
    if (state->kept_count > KEPT_EPOCHS_MAX) {
        reading->missing = "kept";
        state->kept_count = 0;
    }
    for (size_t i = 0; i < state->kept_count; i++) {
        Reading inner = {.object = json_array_get(array, i)};
        state->kept[i].epoch = (uint64_t)json_integer_value(member(&inner, "epoch", is_count));
        state->kept[i].value = json_number_value(member(&inner, "value", is_number));
        if (inner.missing)
            reading->missing = "kept";
    }
}

FshStatus run_state_read(RunState *state, const char *path, const json_t *object, FshError *error)
{
    double plateau[PLATEAU_STATE], early_stop[EARLY_STOP_STATE];
    Reading reading = {.object = object};
    *state = (RunState){0};
    for (size_t i = 0; i < FIELD_ROWS; i++)
        read_field(&reading, state, &fields[i]);
    read_metrics(&reading, "metrics", &state->metrics);
    read_best(&reading, "best", &state->best);
    read_best(&reading, "best_average", &state->best_average);
    read_best(&reading, "saved", &state->saved);
    read_best(&reading, "saved_average", &state->saved_average);
    read_kept(&reading, state);
    if (read_numbers(&reading, "plateau", plateau, PLATEAU_STATE) && !plateau_load(&state->plateau, plateau))
        reading.missing = "plateau";
    if (read_numbers(&reading, "early_stop", early_stop, EARLY_STOP_STATE) &&
        !early_stop_load(&state->early_stop, early_stop))
        reading.missing = "early_stop";
    if (!reading.missing)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_CORRUPT, "%s: '%s' in its notes is missing or of another kind", path,
                         reading.missing);
}
