#include "trainer/plan/recipe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/options_config.h"
#include "common/options_value.h"
#include "common/text.h"

static const char name_fact[] = "name", summary_fact[] = "summary", source_fact[] = "source",
                  batch_fact[] = "total-batch", weights_fact[] = "for-weights";

/* ---- reading ---- */

/* Writes "rsb-a3, rsb-a2, …" to text and returns it. */
static const char *names_text(char *text, size_t text_bytes)
{
    size_t length = 0;
    text[0] = '\0';
    for (const RecipeFile *file = recipe_files; file->name && length < text_bytes; file++)
        length +=
            (size_t)snprintf(text + length, text_bytes - length, "%s%s", length ? ", " : "", file->name);
    return text;
}

static const char *recipe_name_at(size_t i)
{
    return recipe_files[i].name;
}

static bool is_path(const char *name)
{
    return strchr(name, '/') || text_has_suffix(name, ".toml") || text_has_suffix(name, ".json");
}

/* Reads the file, or the program's own recipe of that name, as an object of options with the facts in it. */
static FshStatus read_file(const char *name, json_t **object_ret, FshError *error)
{
    char names[1024], near[256];
    if (is_path(name))
        return options_config_read(name, object_ret, error);
    for (const RecipeFile *file = recipe_files; file->name; file++)
        if (strcmp(file->name, name) == 0)
            return options_config_parse(name, file->text, strlen(file->text), object_ret, error);
    options_names_near(name, recipe_name_at, near, sizeof near);
    return fsh_error_set(
        error, FSH_ERR_USAGE,
        "--recipe: '%s' is none of the recipes: %s;%s%s%s a file is named with a slash: ./%s", name,
        names_text(names, sizeof names), *near ? " did you mean " : "", near, *near ? "?" : "", name);
}

/* Checks that [recipe] holds what a recipe has, so that no misspelt fact is lost. */
static FshStatus check_facts(const char *name, const json_t *recipe, FshError *error)
{
    const char *fact;
    json_t *value;
    json_object_foreach((json_t *)recipe, fact, value)
    {
        const bool batch = strcmp(fact, batch_fact) == 0;
        const bool weights = strcmp(fact, weights_fact) == 0;
        const bool known = batch || weights || strcmp(fact, name_fact) == 0 ||
                           strcmp(fact, summary_fact) == 0 || strcmp(fact, source_fact) == 0 ||
                           strcmp(fact, "options") == 0;
        if (!known)
            return fsh_error_set(
                error, FSH_ERR_USAGE,
                "%s: [recipe] has no '%s'; it has summary, source, total-batch and for-weights", name, fact);
        if (weights && !json_is_boolean(value))
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "%s: for-weights, whether it trains weights of others, is true or false",
                                 name);
        if (batch && (!json_is_integer(value) || json_integer_value(value) < 1))
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "%s: total-batch, the images of an update, is a whole number from 1 on",
                                 name);
        if (!batch && !weights && strcmp(fact, "options") != 0 && !json_is_string(value))
            return fsh_error_set(error, FSH_ERR_USAGE, "%s: %s of [recipe] is a text", name, fact);
    }
    return FSH_OK;
}

FshStatus recipe_read(const char *name, json_t **recipe_ret, FshError *error)
{
    json_t *object = NULL, *recipe = NULL;
    *recipe_ret = NULL;
    FshStatus status = read_file(name, &object, error);
    if (!status)
        status = options_config_take_preset(object, &recipe, error);
    if (!status && !recipe)
        recipe = json_object();
    /* Of an args.json only what came from its recipe was taken out; as a recipe it gives all that it has. */
    if (!status) {
        (void)json_object_update(object, json_object_get(recipe, "options"));
        (void)json_object_del(object, "recipe");
    }
    if (!status && (json_object_set_new(recipe, name_fact, json_string(name)) ||
                    json_object_set(recipe, "options", object)))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", name);
    if (!status)
        status = check_facts(name, recipe, error);
    json_decref(object);
    if (status)
        json_decref(recipe);
    else
        *recipe_ret = recipe;
    return status;
}

static const char *fact_of(const json_t *recipe, const char *fact)
{
    const char *text = json_string_value(json_object_get(recipe, fact));
    return text ? text : "";
}

FshStatus recipe_list(bool as_json, FILE *stream, FshError *error)
{
    json_t *array = json_array();
    FshStatus status = FSH_OK;
    for (const RecipeFile *file = recipe_files; file->name && !status; file++) {
        json_t *recipe = NULL;
        status = recipe_read(file->name, &recipe, error);
        if (!status && !as_json)
            (void)fprintf(stream, "%-16s%s\n%-16s%s\n", file->name, fact_of(recipe, summary_fact), "",
                          fact_of(recipe, source_fact));
        (void)json_array_append_new(array, recipe);
    }
    if (!status && as_json) {
        char *text = json_dumps(array, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        if (text)
            (void)fprintf(stream, "%s\n", text);
        else
            status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the recipes");
        free(text);
    }
    json_decref(array);
    return status;
}

/* ---- in use ---- */

bool recipe_gives(const TrainOptions *options, const void *field)
{
    const json_t *given = json_object_get(options->preset, "options");
    return given && json_object_get(given, train_option_name(options, field));
}

void recipe_leave_out(TrainOptions *options, const Model *model)
{
    const ModelOption *option = NULL;
    for (size_t i = 0; (option = model_option(i)); i++)
        if (!model_has_option(model, option) && recipe_gives(options, &options->network.at[i]))
            options->network.at[i] = (ModelValue){0};
}

void recipe_forget(const TrainOptions *options, const char *option)
{
    json_t *given = json_object_get(options->preset, "options");
    if (given)
        (void)json_object_del(given, option);
}

/* Returns whether the message refuses an option that is the recipe's: it begins with it, or has it with a
 * colon: "--batch-size: 2048 is more than …", "resnet18: --lr-of: 'head' matches …", "…; use a smaller
 * --batch-size: of 2048 …". */
static bool refuses_its_option(const json_t *recipe, const char *message)
{
    const json_t *given = json_object_get(recipe, "options");
    for (const char *at = strstr(message, "--"); at; at = strstr(at, "--")) {
        char option[64];
        const bool begins = at == message;
        at += strlen("--");
        const size_t length = strcspn(at, ": ,");
        (void)snprintf(option, sizeof option, "%.*s", (int)length, at);
        if ((begins || at[length] == ':') && json_object_get(given, option))
            return true;
    }
    return false;
}

FshStatus recipe_explain(const TrainOptions *options, FshStatus status, FshError *error)
{
    const bool refusal = status == FSH_ERR_MISMATCH || status == FSH_ERR_USAGE || status == FSH_ERR_MEMORY;
    if (!options->preset || !refusal || !error)
        return status;
    const bool of_dataset = status == FSH_ERR_MISMATCH && strncmp(error->message, "--", 2) != 0;
    return of_dataset || refuses_its_option(options->preset, error->message)
               ? fsh_error_prepend(error, "recipe %s", fact_of(options->preset, name_fact))
               : status;
}

/* Writes "model resnet50, epochs 100, …" to text: the options that are in use. */
static void list_options(const json_t *options, char *text, size_t text_bytes)
{
    size_t length = 0;
    const char *name;
    json_t *value;
    text[0] = '\0';
    json_object_foreach((json_t *)options, name, value)
    {
        char *other =
            json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        if (length < text_bytes)
            length +=
                (size_t)snprintf(text + length, text_bytes - length, "%s%s %s", length ? ", " : "", name,
                                 json_is_string(value) ? json_string_value(value)
                                 : other               ? other
                                                       : "?");
        free(other);
    }
}

/* Says that the recipe's learning rate is for updates of another number of images. --lr-base follows it by
 * itself. */
static void tell_batch(const TrainPlan *plan, void (*print)(void *context, const char *line), void *context)
{
    const json_t *lr = json_object_get(json_object_get(plan->preset, "options"), "lr");
    const uint64_t meant = (uint64_t)json_integer_value(json_object_get(plan->preset, batch_fact)),
                   images = plan_total_batch(plan) * (uint64_t)plan->recipe.optimizer.accumulation_steps;
    char line[400];
    if (!lr || !meant || !plan->train_count || images == meant)
        return;
    (void)snprintf(line, sizeof line,
                   "the recipe's learning rate of %.4g is for updates of %" PRIu64
                   " images (batch size x ranks x accumulation), and these are of %" PRIu64
                   ": in proportion it would be --lr %.3g",
                   json_number_value(lr), meant, images,
                   json_number_value(lr) * (double)images / (double)meant);
    print(context, line);
}

/* Says that the recipe's learning rate and decay are for its optimizer, where the run has another one. */
static void tell_optimizer(const TrainPlan *plan, void (*print)(void *context, const char *line),
                           void *context)
{
    const json_t *used = json_object_get(plan->preset, "options"), *lr = json_object_get(used, "lr"),
                 *decay = json_object_get(used, "weight-decay");
    const char *mine = optimizer_names[plan->recipe.optimizer.kind];
    const bool both = lr && decay;
    char rate[64] = "", kept[64] = "", line[400];
    json_t *whole = NULL;
    if ((!lr && !decay) || json_object_get(used, "opt") ||
        recipe_read(fact_of(plan->preset, name_fact), &whole, NULL))
        return;
    const char *meant = json_string_value(json_object_get(json_object_get(whole, "options"), "opt"));
    if (meant && strcmp(meant, mine) != 0) {
        if (lr)
            (void)snprintf(rate, sizeof rate, "learning rate of %.4g", json_number_value(lr));
        if (decay)
            (void)snprintf(kept, sizeof kept, "weight decay of %.4g", json_number_value(decay));
        (void)snprintf(line, sizeof line, "the recipe's %s%s%s %s for --opt %s: give %s a%s%s%s of its own",
                       rate, both ? " and " : "", kept, both ? "are" : "is", meant, mine, lr ? " --lr" : "",
                       both ? " and a" : "", decay ? " --weight-decay" : "");
        print(context, line);
    }
    json_decref(whole);
}

void recipe_describe(const TrainPlan *plan, void (*print)(void *context, const char *line), void *context)
{
    char line[2048], options[1900];
    if (!plan->preset)
        return;
    const char *summary = fact_of(plan->preset, summary_fact), *source = fact_of(plan->preset, source_fact);
    (void)snprintf(line, sizeof line, "recipe %s%s%s%s%s%s", fact_of(plan->preset, name_fact),
                   *summary ? ": " : "", summary, *source ? " (" : "", source, *source ? ")" : "");
    print(context, line);
    list_options(json_object_get(plan->preset, "options"), options, sizeof options);
    (void)snprintf(line, sizeof line, "recipe's options: %s", *options ? options : "none that is left");
    print(context, line);
    if (plan->preset_idle[0]) {
        (void)snprintf(line, sizeof line, "of these do nothing here: %s", plan->preset_idle);
        print(context, line);
    }
    tell_optimizer(plan, print, context);
    tell_batch(plan, print, context);
}

bool recipe_describe_random(const TrainPlan *plan, void (*print)(void *context, const char *line),
                            void *context)
{
    char line[256];
    if (!json_is_true(json_object_get(plan->preset, weights_fact)))
        return false;
    (void)snprintf(line, sizeof line,
                   "recipe %s is for weights that others have trained, and %s begins with random ones: give "
                   "--weights FILE and the --model that it is of",
                   fact_of(plan->preset, name_fact), plan->model->name);
    print(context, line);
    return true;
}

int recipe_record(const TrainOptions *options, json_t *arguments)
{
    json_t *recipe, *gives, *value;
    const char *name;
    if (!options->preset)
        return 0;
    recipe = json_copy((json_t *)options->preset);
    gives = json_array();
    json_object_foreach(json_object_get(options->preset, "options"), name, value)
    {
        char python[64];
        (void)json_array_append_new(gives, json_string(options_python_name(name, python, sizeof python)));
    }
    (void)json_object_del(recipe, "options");
    const int failed = json_object_set_new(recipe, "gives", gives);
    return json_object_set_new(arguments, "recipe", recipe) | failed;
}
