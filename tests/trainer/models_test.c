/* The networks: sizes known from their sources, names, and what they refuse. Numbers are held against PyTorch
 * in network_parity_test. */
#include "trainer/models/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/model_value.h"

static ModelRecipe recipe_of(const Model *model, DataType compute_type)
{
    return (ModelRecipe){.deviation = {1, 1, 1, 1},
                         .loss = model->task == TASK_RESTORATION ? LOSS_L1 : LOSS_CROSS_ENTROPY,
                         .optimizer = {.kind = OPTIMIZER_SGD, .momentum = 0.9},
                         .compute_type = compute_type};
}

static FshStatus make(const char *name, const ModelSpec *spec, Graph **graph, FshError *error)
{
    const Model *model = model_find(name);
    if (!model) {
        fail_msg("no model %s", name);
        return FSH_ERR_NOT_FOUND;
    }
    const ModelRecipe recipe = recipe_of(model, DATA_F32);
    const FshStatus status = model_graph(model, spec, &recipe, graph, error);
    assert_int_equal(status != FSH_OK, *graph == NULL);
    return status;
}

static Graph *make_or_fail(const char *name, const ModelSpec *spec)
{
    Graph *graph = NULL;
    FshError error = {0};
    if (make(name, spec, &graph, &error))
        fail_msg("%s", error.message);
    return graph;
}

static void assert_refused(const char *name, const ModelSpec *spec, FshStatus status, const char *message)
{
    Graph *graph = NULL;
    FshError error = {0};
    assert_int_equal(make(name, spec, &graph, &error), status);
    assert_string_equal(error.message, message);
}

/* Parameters: counted by PyTorch, or the source's own word. Multiply-adds: torchvision's "GFLOPS" (resnets),
 * NAFNet's paper (16 G); a billion of them is 2 GFLOP here. */
TEST(test_sizes_are_the_sources)
{
    static const struct {
        const char *name;
        int64_t size, channels, classes, parameters;
        double giga_multiply_adds; /* 0: not known elsewhere */
    } cases[] = {
        {"resnet18", 224, 3, 1000, 11689512, 1.814},
        {"resnet34", 224, 3, 1000, 21797672, 3.664},
        {"resnet50", 224, 3, 1000, 25557032, 4.089},
        {"resnet101", 224, 3, 1000, 44549160, 7.801},
        {"resnet18d", 224, 3, 1000, 11708744, 0},
        {"resnet34d", 224, 3, 1000, 21816904, 0},
        {"resnet50d", 224, 3, 1000, 25576264, 0},
        {"seresnet50", 224, 3, 1000, 28088024, 0},
        {"resnext50_32x4d", 224, 3, 1000, 25028904, 4.230},
        {"pyramidnet", 32, 3, 10, 24253410, 0},
        {"toynet", 28, 1, 10, 5752714, 0},
        {"resnet9", 32, 3, 10, 6573120, 0},
        {"airbench94", 32, 3, 10, 1972792, 0},
        {"airbench96", 32, 3, 10, 9918776, 0},
        {"nafnet", 256, 3, 0, 17111907, 16.0},
        {"convnext_atto", 224, 3, 1000, 3695520, 0},
        {"convnext_femto", 224, 3, 1000, 5217784, 0},
        {"convnext_pico", 224, 3, 1000, 9045672, 0},
        {"convnext_nano", 224, 3, 1000, 15593560, 0},
        {"convnext_tiny", 224, 3, 1000, 28589128, 0},
        {"convnext_small", 224, 3, 1000, 50223688, 0},
        {"convnext_base", 224, 3, 1000, 88591464, 0},
        {"convnext_large", 224, 3, 1000, 197767336, 0},
        {"convnext_xlarge", 224, 3, 1000, 350196968, 0},
        {"convnextv2_atto", 224, 3, 1000, 3708400, 0},
        {"convnextv2_femto", 224, 3, 1000, 5233240, 0},
        {"convnextv2_pico", 224, 3, 1000, 9066280, 0},
        {"convnextv2_nano", 224, 3, 1000, 15623800, 0},
        {"convnextv2_tiny", 224, 3, 1000, 28635496, 0},
        {"convnextv2_small", 224, 3, 1000, 50318440, 0},
        {"convnextv2_base", 224, 3, 1000, 88717800, 0},
        {"convnextv2_large", 224, 3, 1000, 197956840, 0},
        {"convnextv2_huge", 224, 3, 1000, 660289640, 0},
        /* behind the last attention we compute the class token alone, so products are counted where there is
         * none (torch.utils.flop_counter) */
        {"vit_tiny_patch16", 224, 3, 1000, 5717416, 0},
        {"vit_tiny_patch8", 224, 3, 1000, 5719720, 0},
        {"vit_small_patch16", 224, 3, 1000, 22050664, 0},
        {"vit_small_patch8", 224, 3, 1000, 22055272, 0},
        {"deit_tiny_patch16", 224, 3, 1000, 5717416, 0},
        {"deit_small_patch16", 224, 3, 1000, 22050664, 0},
        {"simplevit_tiny_patch16", 224, 3, 1000, 5679400, 1.24656},
        {"simplevit_small_patch16", 224, 3, 1000, 21974632, 4.57403},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ModelSpec spec = {.batch = 2,
                                .height = cases[i].size,
                                .width = cases[i].size,
                                .channels = cases[i].channels,
                                .classes = cases[i].classes};
        Graph *graph = make_or_fail(cases[i].name, &spec);
        if (graph_parameter_count(graph) != cases[i].parameters)
            fail_msg("%s: %lld parameters, not %lld", cases[i].name, (long long)graph_parameter_count(graph),
                     (long long)cases[i].parameters);
        const double giga = (double)graph_forward_flops(graph) / 2e9 / (double)spec.batch;
        if (cases[i].giga_multiply_adds > 0 && fabs(giga / cases[i].giga_multiply_adds - 1) > 0.003)
            fail_msg("%s: %g G multiply-adds, not %g", cases[i].name, giga, cases[i].giga_multiply_adds);
        graph_free(&graph);
    }
}

static void assert_tensor(const Graph *graph, const char *name, const char *shape)
{
    char text[96];
    const TensorId id = graph_find(graph, name);
    if (id == TENSOR_NONE)
        fail_msg("no tensor %s", name);
    assert_string_equal(tensor_shape_text(graph_tensor(graph, id), text, sizeof text), shape);
}

TEST(test_names_and_shapes_are_the_sources)
{
    static const struct {
        const char *model;
        int64_t size;
        const char *name, *shape;
    } cases[] = {
        {"resnet50", 64, "layer1.0.downsample.0.weight", "256 x 64 x 1 x 1"},
        {"resnet50", 64, "layer2.0.conv2.weight", "128 x 128 x 3 x 3"},
        {"resnet50", 64, "layer4.2.bn3.running_var", "2048"},
        {"resnet101", 64, "layer3.22.conv3.weight", "1024 x 256 x 1 x 1"},
        {"resnet18d", 64, "conv1.6.weight", "64 x 32 x 3 x 3"},
        {"resnet18d", 64, "layer2.0.downsample.1.weight", "128 x 64 x 1 x 1"},
        {"seresnet50", 64, "layer4.2.se.fc1.weight", "128 x 2048 x 1 x 1"},
        {"seresnet50", 64, "layer4.2.se.fc2.bias", "2048"},
        {"resnext50_32x4d", 64, "layer2.0.conv2.weight", "256 x 8 x 3 x 3"},
        {"xresnet18", 64, "5.0.idpath.1.0.weight", "128 x 64 x 1 x 1"},
        {"xresnet50", 64, "4.0.idpath.0.1.running_mean", "256"},
        {"xresnet50", 64, "7.2.convpath.2.0.weight", "2048 x 512 x 1 x 1"},
        {"xse_resnext50", 64, "7.2.convpath.3.layers.1.0.weight", "128 x 2048 x 1 x 1"},
        {"xse_resnext50", 64, "4.0.convpath.1.0.weight", "128 x 4 x 3 x 3"},
        {"xse_resnext50", 64, "11.bias", "10"},
        {"pyramidnet", 32, "layer1.0.conv1.weight", "21 x 16 x 3 x 3"},
        {"pyramidnet", 32, "layer3.16.bn3.weight", "271"},
        {"pyramidnet", 32, "fc_out.weight", "10 x 271"},
        {"toynet", 28, "conv.10.weight", "512 x 256 x 3 x 3"},
        {"toynet", 28, "dense.1.weight", "512 x 8192"},
        {"toynet", 28, "dense.2.running_mean", "512"},
        {"resnet9", 32, "layer3_residual_res2_conv.weight", "512 x 512 x 3 x 3"},
        {"resnet9", 32, "linear.weight", "10 x 512"},
        {"convnext_nano", 64, "stages.2.blocks.7.conv_dw.weight", "320 x 1 x 7 x 7"},
        {"convnext_tiny", 64, "stages.3.downsample.1.weight", "768 x 384 x 2 x 2"},
        {"convnextv2_tiny", 64, "stages.1.blocks.2.mlp.grn.weight", "768"},
        {"vit_tiny_patch16", 64, "cls_token", "1 x 1 x 192"},
        {"vit_tiny_patch16", 64, "pos_embed", "1 x 17 x 192"},
        {"vit_small_patch16", 64, "patch_embed.proj.weight", "384 x 3 x 16 x 16"},
        {"vit_small_patch16", 64, "blocks.11.attn.qkv.weight", "1152 x 384"},
        {"vit_small_patch8", 64, "pos_embed", "1 x 65 x 384"},
        {"deit_small_patch16", 64, "blocks.0.mlp.fc2.weight", "384 x 1536"},
        {"simplevit_small_patch16", 64, "head.weight", "10 x 384"},
        {"nafnet", 64, "encoders.3.27.beta", "1 x 256 x 1 x 1"},
        {"nafnet", 64, "middle_blks.0.conv2.weight", "1024 x 1 x 3 x 3"},
        {"nafnet", 64, "decoders.3.0.sca.1.weight", "32 x 32 x 1 x 1"},
        {"nafnet", 64, "ups.0.0.weight", "1024 x 512 x 1 x 1"},
        {"nafnet", 64, "ending.bias", "3"},
        {"unet", 64, "middle.2.weight", "256 x 256 x 3 x 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ModelSpec spec = {.batch = 1,
                                .height = cases[i].size,
                                .width = cases[i].size,
                                .channels = strcmp(cases[i].model, "toynet") == 0 ? 1 : 3,
                                .classes = 10};
        Graph *graph = make_or_fail(cases[i].model, &spec);
        assert_tensor(graph, cases[i].name, cases[i].shape);
        graph_free(&graph);
    }
}

TEST(test_restored_images_have_the_size_of_theirs)
{
    static const int64_t sizes[][2] = {{64, 64}, {50, 34}, {33, 47}, {2, 2}, {16, 8}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int m = 0; m < 2; m++) {
            const ModelSpec spec = {
                .batch = 2, .height = sizes[i][0], .width = sizes[i][1], .channels = m ? 3 : 1};
            char shape[96];
            (void)snprintf(shape, sizeof shape, "2 x %lld x %lld x %d", (long long)sizes[i][0],
                           (long long)sizes[i][1], m ? 3 : 1);
            Graph *graph = make_or_fail(m ? "unet" : "nafnet", &spec);
            assert_tensor(graph, "restored", shape);
            graph_free(&graph);
        }
}

TEST(test_options_shape_the_network)
{
    ModelSpec spec = {.batch = 1, .height = 32, .width = 32, .channels = 3, .classes = 10};
    model_value(&spec.options, "depth")->integer = 20;
    model_value(&spec.options, "alpha")->integer = 47; /* growth 47 / 9: rounded to 21, 26, 32, 37, 42, 47 */
    Graph *graph = make_or_fail("pyramidnet", &spec);
    assert_tensor(graph, "layer1.1.conv1.weight", "26 x 21 x 3 x 3");
    assert_tensor(graph, "fc_out.weight", "10 x 47");
    assert_int_equal(graph_find(graph, "layer1.2.conv1.weight"), TENSOR_NONE);
    graph_free(&graph);
    spec = (ModelSpec){.batch = 1, .height = 32, .width = 32, .channels = 3};
    model_value(&spec.options, "width")->integer = 12;
    model_value(&spec.options, "encoder_blocks")->text = "1,2";
    model_value(&spec.options, "middle_blocks")->text = "3";
    model_value(&spec.options, "decoder_blocks")->text = "0,1";
    graph = make_or_fail("nafnet", &spec);
    assert_tensor(graph, "encoders.1.1.norm2.weight", "24");
    assert_tensor(graph, "middle_blks.2.gamma", "1 x 48 x 1 x 1");
    assert_tensor(graph, "decoders.1.0.conv4.weight", "24 x 12 x 1 x 1");
    assert_int_equal(graph_find(graph, "decoders.0.0.beta"), TENSOR_NONE);
    graph_free(&graph);
}

TEST(test_what_does_not_fit_is_refused)
{
    ModelSpec spec = {.batch = 1, .height = 32, .width = 32, .channels = 3, .classes = 10};
    model_value(&spec.options, "depth")->integer = 110;
    assert_refused("resnet50", &spec, FSH_ERR_USAGE, "--depth: resnet50 has none; pyramidnet has it");
    model_value(&spec.options, "depth")->integer = 100;
    assert_refused("pyramidnet", &spec, FSH_ERR_USAGE,
                   "pyramidnet: depth 100, alpha 270; the depth must be 6 n + 2 and at least 14, alpha at "
                   "least 1");
    model_value(&spec.options, "depth")->integer = 0;
    spec.height = 30;
    assert_refused("pyramidnet", &spec, FSH_ERR_USAGE,
                   "pyramidnet: height and width must be multiples of 4, not 30 x 32");
    model_value(&spec.options, "middle-blocks")->text = "1,2";
    assert_refused(
        "nafnet", &spec, FSH_ERR_USAGE,
        "nafnet: blocks of 4 encoder, 2 middle and 4 decoder levels; as many decoders as encoders, "
        "and one number for the middle");
    assert_refused("unet", &spec, FSH_ERR_USAGE, "--middle-blocks: unet has none; nafnet has it");
    model_value(&spec.options, "middle-blocks")->text = NULL;
    model_value(&spec.options, "width")->integer = 8; /* the last rows of the table have it */
    assert_refused("resnet9", &spec, FSH_ERR_USAGE, "--width: resnet9 has none; unet to nafnet have it");
    model_value(&spec.options, "depth")->integer = 20;
    assert_refused("resnet9", &spec, FSH_ERR_USAGE,
                   "--depth: resnet9 has none; pyramidnet has it; --width: resnet9 has none; unet to nafnet "
                   "have it");
    model_value(&spec.options, "depth")->integer = 0;
    model_value(&spec.options, "width")->integer = 0;
    static const char *const bad[] = {"", "1,", "1;2", "-1", "1,2,3,4,5,6,7,8,9", "1,257", "x", " 1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char message[256];
        model_value(&spec.options, "middle-blocks")->text = NULL;
        model_value(&spec.options, "encoder-blocks")->text = bad[i];
        (void)snprintf(message, sizeof message,
                       "nafnet: encoder blocks '%s'; it must be up to 8 numbers of at most 256, with commas "
                       "between them, like 1,1,1,28",
                       bad[i]);
        assert_refused("nafnet", &spec, FSH_ERR_USAGE, message);
    }
    model_value(&spec.options, "encoder-blocks")->text = NULL;
    model_value(&spec.options, "width")->integer = -4;
    assert_refused("unet", &spec, FSH_ERR_USAGE, "unet: width -4; it must be 1 to 1024");
    spec = (ModelSpec){.batch = 1, .height = 12, .width = 12, .channels = 1, .classes = 10};
    assert_refused("toynet", &spec, FSH_ERR_MISMATCH,
                   "toynet: conv.10: kernel 3 with padding 0 does not fit a 2 x 2 input; use larger images");
}

/* timm's linspace over the blocks: the first is never left out. */
TEST(test_training_leaves_blocks_of_a_convnext_out_by_their_depth)
{
    ModelSpec spec = {.batch = 2, .height = 32, .width = 32, .channels = 3, .classes = 10, .training = true};
    model_value(&spec.options, "drop-path")->real = 0.22;
    Graph *graph = make_or_fail("convnext_atto", &spec);
    assert_int_equal(graph_find(graph, "stages.0.blocks.0.drop_path"), TENSOR_NONE);
    assert_tensor(graph, "stages.0.blocks.1.drop_path", "2 x 40");
    assert_tensor(graph, "stages.3.blocks.1.drop_path", "2 x 320");
    const TensorId first = graph_find(graph, "stages.0.blocks.1.drop_path"),
                   last = graph_find(graph, "stages.3.blocks.1.drop_path");
    assert_true(fabs((double)graph_tensor(graph, first)->drop_rate - 0.02) < 1e-6);
    assert_true(fabs((double)graph_tensor(graph, last)->drop_rate - 0.22) < 1e-6);
    graph_free(&graph);
    spec.training = false;
    graph = make_or_fail("convnext_atto", &spec);
    assert_int_equal(graph_find(graph, "stages.3.blocks.1.drop_path"), TENSOR_NONE);
    graph_free(&graph);
    assert_refused("resnet9", &spec, FSH_ERR_USAGE,
                   "--drop-path: resnet9 has none; resnet18 to resnext50_32x4d, convnext_atto to "
                   "simplevit_small_patch16 have it");
    spec.training = true;
    model_value(&spec.options, "drop-path")->real = 1;
    assert_refused("convnext_atto", &spec, FSH_ERR_USAGE,
                   "convnext_atto: drop path of 1; it must be at least 0 and less than 1");
}

/* timm's linspace over the blocks, the same for both halves of one. */
TEST(test_a_vit_has_the_parts_that_its_options_ask_for)
{
    ModelSpec spec = {.batch = 2, .height = 32, .width = 48, .channels = 3, .classes = 10, .training = true};
    model_value(&spec.options, "drop-path")->real = 0.11;
    model_value(&spec.options, "layer-scale")->real = 0.5;
    Graph *graph = make_or_fail("deit_tiny_patch16", &spec);
    assert_tensor(graph, "pos_embed", "1 x 7 x 192");
    assert_int_equal(graph_tensor(graph, graph_find(graph, "pos_embed"))->grid_height, 2);
    assert_int_equal(graph_tensor(graph, graph_find(graph, "pos_embed"))->grid_width, 3);
    assert_tensor(graph, "blocks.11.ls2.gamma", "1 x 192 x 1 x 1");
    assert_int_equal(graph_find(graph, "blocks.0.drop_path1"), TENSOR_NONE);
    const TensorId dropped = graph_find(graph, "blocks.1.drop_path2");
    assert_true(fabs((double)graph_tensor(graph, dropped)->drop_rate - 0.01) < 1e-6);
    graph_free(&graph);
    model_value(&spec.options, "global-pool")->text = "avg";
    model_value(&spec.options, "pos-embed")->text = "sincos";
    graph = make_or_fail("deit_tiny_patch16", &spec);
    assert_int_equal(graph_find(graph, "cls_token"), TENSOR_NONE);
    assert_int_equal(graph_find(graph, "pos_embed"), TENSOR_NONE);
    graph_free(&graph);
    model_value(&spec.options, "global-pool")->text = "max";
    assert_refused("vit_tiny_patch16", &spec, FSH_ERR_USAGE,
                   "vit_tiny_patch16: --global-pool is \"max\"; it must be token or avg");
    spec = (ModelSpec){.batch = 2, .height = 50, .width = 50, .channels = 3, .classes = 10};
    assert_refused("vit_tiny_patch16", &spec, FSH_ERR_USAGE,
                   "vit_tiny_patch16: 50 x 50 pixels are no whole patches of 16; set --train-crop-size and "
                   "--val-crop-size to multiples of it");
}

TEST(test_options_make_one_resnet_of_another)
{
    static const struct {
        const char *of, *is, *names[2], *texts[2];
    } cases[] = {
        {"resnet50", "resnet50d", {"stem-type", "avg-down"}, {"deep", "yes"}},
        {"resnet50d", "resnet50", {"stem-type", "avg-down"}, {"plain", "no"}},
        {"resnet50", "seresnet50", {"attn-layer", "aa-layer"}, {"se", "none"}},
        {"resnet50", "resnet50", {"aa-layer", "act-layer"}, {"none", "relu"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ModelSpec spec = {.batch = 2, .height = 64, .width = 64, .channels = 3, .classes = 10};
        Graph *wanted = make_or_fail(cases[i].is, &spec);
        for (int k = 0; k < 2; k++)
            model_value(&spec.options, cases[i].names[k])->text = cases[i].texts[k];
        Graph *graph = make_or_fail(cases[i].of, &spec);
        assert_int_equal(graph_node_count(graph), graph_node_count(wanted));
        for (size_t n = 0; n < graph_node_count(graph); n++) {
            assert_int_equal(graph_node(graph, (NodeId)n)->op, graph_node(wanted, (NodeId)n)->op);
            assert_string_equal(graph_node(graph, (NodeId)n)->name, graph_node(wanted, (NodeId)n)->name);
        }
        graph_free(&graph);
        graph_free(&wanted);
    }
    ModelSpec spec = {.batch = 2, .height = 64, .width = 64, .channels = 3, .classes = 10};
    model_value(&spec.options, "cardinality")->integer = 32;
    model_value(&spec.options, "base-width")->integer = 4;
    Graph *graph = make_or_fail("resnet50", &spec);
    assert_tensor(graph, "layer1.0.conv2.weight", "128 x 4 x 3 x 3");
    graph_free(&graph);
    assert_refused(
        "resnet18", &spec, FSH_ERR_USAGE,
        "resnet18: cardinality 32, base width 4; its blocks have no bottleneck: 1 and 64, or resnet50");
}

TEST(test_values_that_no_resnet_has_are_refused)
{
    ModelSpec spec = {.batch = 2, .height = 64, .width = 64, .channels = 3, .classes = 10};
    model_value(&spec.options, "stem-type")->text = "dee";
    assert_refused("resnet18", &spec, FSH_ERR_USAGE,
                   "resnet18: --stem-type is \"dee\"; it must be plain or deep");
    model_value(&spec.options, "stem-type")->text = NULL;
    model_value(&spec.options, "self-attention")->text = "maybe";
    assert_refused("xresnet18", &spec, FSH_ERR_USAGE,
                   "xresnet18: --self-attention is \"maybe\"; it must be no or yes");
    model_value(&spec.options, "self-attention")->text = NULL;
    model_value(&spec.options, "act-layer")->text = "swish";
    assert_refused("xresnet18", &spec, FSH_ERR_USAGE,
                   "xresnet18: --act-layer is \"swish\"; it must be relu, silu, gelu or mish");
}

/* Behind squeeze and excitation where there is that, in the first stage's last block alone. */
TEST(test_self_attention_is_where_fastai_has_it)
{
    static const struct {
        const char *model, *layer, *shape;
        int64_t parameters;
    } cases[] = {{"xresnet18", "4.1.convpath.2", "64 x 64 x 1", 64 * 64 + 1},
                 {"xresnet50", "4.2.convpath.3", "256 x 256 x 1", 256 * 256 + 1},
                 {"xse_resnext50", "4.2.convpath.4", "256 x 256 x 1", 256 * 256 + 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ModelSpec spec = {.batch = 2, .height = 64, .width = 64, .channels = 3, .classes = 10};
        char name[GRAPH_NAME_MAX];
        Graph *without = make_or_fail(cases[i].model, &spec);
        model_value(&spec.options, "self-attention")->text = "yes";
        Graph *with = make_or_fail(cases[i].model, &spec);
        assert_int_equal(graph_parameter_count(with) - graph_parameter_count(without), cases[i].parameters);
        (void)snprintf(name, sizeof name, "%s.conv.weight_orig", cases[i].layer);
        assert_tensor(with, name, cases[i].shape);
        (void)snprintf(name, sizeof name, "%s.gamma", cases[i].layer);
        assert_tensor(with, name, "1");
        assert_int_equal(graph_tensor(with, graph_find(with, name))->initializer.kind, INIT_ZEROS);
        (void)snprintf(name, sizeof name, "%s.conv.weight_v", cases[i].layer);
        assert_int_equal(graph_tensor(with, graph_find(with, name))->role, TENSOR_BUFFER);
        graph_free(&without);
        graph_free(&with);
    }
}

TEST(test_the_last_norms_of_blocks_begin_at_zero_where_timm_has_them_so)
{
    static const struct {
        const char *model, *norm;
        int kind;
        const char *zero_init_last;
    } cases[] = {{"resnet50d", "layer2.1.bn3.weight", INIT_ZEROS, NULL},
                 {"resnet50d", "layer2.1.bn2.weight", INIT_ONES, NULL},
                 {"resnet18d", "layer2.1.bn2.weight", INIT_ZEROS, NULL},
                 {"resnet50", "layer2.1.bn3.weight", INIT_ONES, NULL},
                 {"resnet50", "layer2.1.bn3.weight", INIT_ZEROS, "yes"},
                 {"resnet50", "layer2.1.bn2.weight", INIT_ONES, "yes"},
                 {"resnet18d", "layer2.1.bn2.weight", INIT_ONES, "no"},
                 {"xresnet50", "5.0.convpath.2.1.weight", INIT_ZEROS, NULL},
                 {"xresnet18", "5.0.convpath.1.1.weight", INIT_ZEROS, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ModelSpec spec = {.batch = 2, .height = 64, .width = 64, .channels = 3, .classes = 10};
        model_value(&spec.options, "zero-init-last")->text = cases[i].zero_init_last;
        Graph *graph = make_or_fail(cases[i].model, &spec);
        assert_int_equal(graph_tensor(graph, graph_find(graph, cases[i].norm))->initializer.kind,
                         cases[i].kind);
        graph_free(&graph);
    }
}

TEST(test_every_network_computes_in_bf16)
{
    const Model *model = NULL;
    for (size_t m = 0; (model = model_at(m)); m++) {
        const bool classes = model->task != TASK_RESTORATION;
        const ModelSpec spec = {.batch = 2,
                                .height = 32,
                                .width = 32,
                                .channels = 3,
                                .classes = classes ? 10 : 0,
                                .training = true};
        const ModelRecipe recipe = recipe_of(model, DATA_BF16);
        FshError error = {0};
        Graph *graph = NULL;
        if (model_graph(model, &spec, &recipe, &graph, &error))
            fail_msg("%s", error.message);
        size_t of_bf16 = 0;
        for (size_t i = 0; i < graph_tensor_count(graph); i++) {
            const Tensor *tensor = graph_tensor(graph, (TensorId)i);
            of_bf16 += tensor->type == DATA_BF16;
            if (tensor->type == DATA_BF16 && tensor->role != TENSOR_ACTIVATION)
                fail_msg("%s: %s is bf16", model->name, tensor->name);
        }
        assert_true(of_bf16 > 10);
        bool batch_norm = false;
        for (size_t i = 0; i < graph_node_count(graph); i++)
            batch_norm = batch_norm || graph_node(graph, (NodeId)i)->op == OP_BATCH_NORM;
        assert_int_equal(batch_norm, model->batch_norm);
        graph_free(&graph);
    }
}

TEST(test_resnet9_takes_the_maximum_of_images_of_any_size)
{
    static const int64_t sizes[][2] = {{32, 32}, {8, 8}, {28, 28}, {160, 160}, {300, 300}, {64, 32}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const ModelSpec spec = {
            .batch = 2, .height = sizes[i][0], .width = sizes[i][1], .channels = 3, .classes = 10};
        Graph *graph = make_or_fail("resnet9", &spec);
        assert_tensor(graph, "logits", "2 x 10");
        graph_free(&graph);
    }
}

/* Fills an image with a smooth pattern and some noise. */
static void paint(uint8_t *pixels, int64_t height, int64_t width, uint32_t seed)
{
    for (int64_t i = 0; i < height * width * 3; i++) {
        seed = seed * 1664525 + 1013904223;
        const int64_t x = i / 3 % width, y = i / 3 / width;
        const double wave = sin((double)x * 0.4) * 40 + cos((double)y * 0.3) * 30;
        pixels[i] = (uint8_t)(110 + wave + (double)(i % 3) * 9 + (double)(seed >> 27));
    }
}

/* Sets value[i] to what the network sees of value i of the patch at (y, x), in the order of filters. */
static void see_patch(const ModelImage *image, const ModelPixelScale *scale, int64_t y, int64_t x,
                      double values[12])
{
    for (int64_t i = 0; i < 12; i++) {
        const int64_t channel = i / 4, row = y + i % 4 / 2, column = x + i % 2;
        const double pixel = image->pixels[(row * image->width + column) * 3 + channel];
        values[i] = (pixel / 255 - scale->mean[channel]) / scale->deviation[channel];
    }
}

/* What the first twelve filters make of patches has second moments of an identity, less what 5e-4 in their
 * denominators takes; the next twelve are the negatives. */
TEST(test_airbenchs_first_filters_whiten_patches)
{
    enum { HEIGHT = 9, WIDTH = 300, SIZE = 12, IMAGES = 3 };
    static const double mean[3] = {0.5, 0.45, 0.4}, deviation[3] = {0.2, 0.25, 0.3};
    const ModelFirstWeight *weight = model_find("airbench94")->first_weight;
    const ModelPixelScale scale = {mean, deviation, 3};
    static uint8_t pixels[IMAGES][HEIGHT * WIDTH * 3];
    float filters[2 * SIZE][SIZE];
    double *sums = calloc(weight->sum_count(3), sizeof *sums), moments[SIZE][SIZE] = {{0}};
    assert_non_null(sums);
    assert_string_equal(weight->parameter, "whiten.weight");
    for (int i = 0; i < IMAGES; i++) {
        const ModelImage image = {pixels[i], HEIGHT, WIDTH, 3};
        paint(pixels[i], HEIGHT, WIDTH, (uint32_t)i);
        weight->add(&image, sums);
    }
    weight->compute(sums, &scale, filters[0]);
    for (int64_t place = 0; place < (int64_t)IMAGES * (HEIGHT - 1) * (WIDTH - 1); place++) {
        const int64_t in_image = place % ((HEIGHT - 1) * (WIDTH - 1));
        const ModelImage image = {pixels[place / ((HEIGHT - 1) * (WIDTH - 1))], HEIGHT, WIDTH, 3};
        double patch[SIZE], results[SIZE] = {0};
        see_patch(&image, &scale, in_image / (WIDTH - 1), in_image % (WIDTH - 1), patch);
        for (int k = 0; k < SIZE; k++)
            for (int i = 0; i < SIZE; i++)
                results[k] += (double)filters[k][i] * patch[i];
        for (int k = 0; k < SIZE; k++)
            for (int i = 0; i < SIZE; i++)
                moments[k][i] += results[k] * results[i] / ((double)IMAGES * (HEIGHT - 1) * (WIDTH - 1));
    }
    for (int k = 0; k < SIZE; k++)
        for (int i = 0; i < SIZE; i++) {
            double square = 0;
            for (int j = 0; j < SIZE; j++)
                square += (double)filters[k][j] * (double)filters[k][j];
            const double wanted = k == i ? 1 - 5e-4 * square : 0;
            if (!(fabs(moments[k][i] - wanted) < 1e-4))
                fail_msg("filters %d and %d: %g, not %g", k, i, moments[k][i], wanted);
            assert_true(filters[SIZE + k][i] == -filters[k][i]);
        }
    free(sums);
}
