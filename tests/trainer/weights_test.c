/* Weights in a file: what they say of themselves. */
#include "trainer/checkpoint/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/network_support.h"
#include "trainer/checkpoint/safetensors.h"

static const char *const odd_names[TEST_CLASSES] = {"tench, Tinca tinca",
                                                    "a \"quoted\" one",
                                                    "back\\slash",
                                                    "däwg",
                                                    "狗",
                                                    "[\"1\"]",
                                                    "tab\there",
                                                    "",
                                                    "' ; -",
                                                    "=1+1"};

static const ModelSpec no_choice = {0};

/* Writes weights of a model with these class names; with none where names is NULL. */
static void save(const char *path, const char *model, const char *const *names, size_t count)
{
    FshError error = {0};
    Backend *backend = test_backend(1);
    Graph *graph = test_model(model, 1, 64, false);
    State *state = NULL;
    assert_ok(state_new(&state, backend, graph, &error), &error);
    const WeightsInfo info = {.model = model,
                              .spec = &no_choice,
                              .dataset_id = "0123",
                              .channels = 3,
                              .mean = {0.5, 0.5, 0.5},
                              .deviation = {0.25, 0.25, 0.25},
                              .class_names = names,
                              .class_count = count};
    assert_ok(weights_save(path, state, graph, &info, &error), &error);
    state_free(&state);
    graph_free(&graph);
    backend_close(&backend);
}

TEST_IN_FOLDER(test_names_of_classes_come_back_whatever_they_hold, folder)
{
    const char *path = test_path(folder, "a.safetensors");
    WeightsOrigin origin;
    FshError error = {0};
    save(path, "conv8", odd_names, TEST_CLASSES);
    assert_ok(weights_origin(path, &origin, &error), &error);
    assert_int_equal(origin.classes.count, TEST_CLASSES);
    for (size_t i = 0; i < TEST_CLASSES; i++)
        assert_string_equal(origin.classes.names[i], odd_names[i]);
    assert_string_equal(origin.model->name, "conv8");
    weights_origin_free(&origin);
    assert_int_equal(origin.classes.count, 0);
}

/* The longest names that a folder may have, of characters that take most room in a string within a string. */
TEST_IN_FOLDER(test_twenty_thousand_long_names_fit, folder)
{
    enum { COUNT = 20000, LONGEST = 255 };
    const char *path = test_path(folder, "a.safetensors");
    char(*names)[LONGEST + 1] = calloc(COUNT, sizeof *names);
    const char **list = calloc(COUNT, sizeof *list);
    WeightsOrigin origin;
    FshError error = {0};
    assert_non_null(names);
    assert_non_null(list);
    for (size_t i = 0; i < COUNT; i++) {
        memset(names[i], i % 2 ? '\1' : '"', LONGEST);
        (void)snprintf(names[i], LONGEST + 1, "%zu", i);
        names[i][strlen(names[i])] = i % 2 ? '\1' : '"'; /* the whole of its length again */
        list[i] = names[i];
    }
    save(path, "conv8", list, COUNT);
    assert_ok(weights_origin(path, &origin, &error), &error);
    assert_int_equal(origin.classes.count, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        assert_string_equal(origin.classes.names[i], list[i]);
    weights_origin_free(&origin);
    free(list);
    free(names);
}

static bool is_for_all(const Model *model)
{
    return model->task == TASK_CLASSIFICATION && !test_model_is_large(model);
}

TEST_IN_FOLDER(test_the_number_of_classes_is_known_without_names, folder)
{
    const Model *model = NULL;
    for (size_t m = 0; (model = model_at(m)); m++) {
        if (!is_for_all(model))
            continue;
        const char *path = test_path(folder, "a.safetensors");
        WeightsOrigin origin;
        FshError error = {0};
        uint64_t count = 1;
        save(path, model->name, NULL, 0);
        assert_ok(weights_origin(path, &origin, &error), &error);
        assert_int_equal(origin.classes.count, 0);
        assert_ok(weights_class_count(path, model, &origin, &count, &error), &error);
        assert_int_equal(count, TEST_CLASSES);
        weights_origin_free(&origin);
    }
}

/* By their tensors alone, as those of other programs are; a DeiT has those of a ViT. */
TEST_IN_FOLDER(test_weights_of_each_network_are_recognised, folder)
{
    const char *path = test_path(folder, "a.safetensors");
    const Model *model = NULL;
    for (size_t m = 0; (model = model_at(m)); m++) {
        if (!is_for_all(model))
            continue;
        save(path, model->name, NULL, 0);
        const Model *found = weights_recognise(path);
        assert_non_null(found);
        if (found->build != model->build)
            fail_msg("%s is taken for %s", model->name, found->name);
    }
    assert_null(weights_recognise(test_path(folder, "none")));
}

TEST_IN_FOLDER(test_names_that_are_no_list_are_refused, folder)
{
    const char *path = test_path(folder, "a.safetensors");
    static const char *const bad[] = {"cat, dog", "{\"0\": \"cat\"}", "[\"cat\", 7]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const SafetensorsMetadata metadata[] = {{"class_names", bad[i]}};
        WeightsOrigin origin;
        FshError error = {0};
        assert_ok(safetensors_write(path, NULL, 0, metadata, 1, NULL, NULL, &error), &error);
        assert_int_equal(weights_origin(path, &origin, &error), FSH_ERR_CORRUPT);
        assert_contains(error.message, "a.safetensors: its name");
        weights_origin_free(&origin);
    }
}
