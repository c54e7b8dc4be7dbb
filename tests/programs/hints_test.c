/* Options of timm, torchvision, FFCV, BasicSR and img2dataset: every program says what does the job, or
 * that nothing does. */
#include <stdio.h>
#include <string.h>

#include "tests/support/support.h"
#include "tools/pack/pack_settings.h"
#include "tools/verify/verify_settings.h"
#include "trainer/plan/train_options.h"

/* Expects `program arguments…`, a line of words, to be refused with the hint. */
static void expect_hint(const char *program, const char *line, const char *hint)
{
    char words[256];
    const char *arguments[16] = {0};
    size_t count = 0;
    (void)snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word && count < 15; word = strtok(NULL, " "))
        arguments[count++] = word;
    RunResult result = run_program_arguments(NULL, program, arguments);
    assert_int_equal(result.exit_status, 2);
    if (!strstr(result.err, hint))
        fail_msg("%s %s: '%s' does not say '%s'", program, line, result.err, hint);
    run_result_free(&result);
}

TEST(test_options_of_trainers_are_answered)
{
    static const char *const hints[][2] = {
        {"--warmup 5 s o", "ftrain calls it --lr-warmup-epochs"},
        {"--warmup_iters 500 s o", "ftrain calls it --lr-warmup-iters"},
        {"--max-iters 1000 s o", "ftrain calls it --iters"},
        {"--pretrained s o", "nothing is downloaded: --weights FILE"},
        {"--freeze-backbone s o", "--head-only trains the last linear layer alone"},
        {"--pct_start 0.3 s o", "ftrain calls it --lr-pct-start"},
        {"--wandb s o", "nothing calls Weights & Biases: --tensorboard's events"},
        {"--log-wandb s o", "nothing calls Weights & Biases"},
        {"--altflip s o", "ftrain calls it --flip alternating"},
        {"--randaugment s o", "ftrain calls it --auto-augment ra"},
        {"--interpolation box s o", "is not one of: bilinear, bicubic, lanczos"},
        {"--val-ratio 0.1 s o", "fpack --split 0.1 makes a val split"},
        {"--data-path s", "ftrain calls it --shards"},
        {"--amp s o", "leave --amp out"},
        {"--amp --epochs 3 s o", "leave --amp out"},
        {"s o --amp", "leave --amp out"},
        {"--amp float16 s o", "fp16 is the name"},
        {"--auto-resume s o", "ftrain calls it --resume auto"},
        {"--opt rmsprop s o", "adamw is nearest"},
        {"--sched multistep s o", "--lr-milestones"},
        {"--lr-scheduler CosineAnnealingLR s o", "cosine is the name"},
        {"--device cuda:0 s o", "CUDA_VISIBLE_DEVICES=0"},
        {"--gpu_ids 0,1 s o", "ftrain calls it --gpus"},
        {"--strategy ddp s o", "ftrain calls it --parallel"},
        {"--data_parallel s o", "--gpus N with --parallel dp"},
        {"--gpu 2 s o", "GPU 2 is --gpus 2,"},
        {"--training.batch_size 4 s o", "ftrain calls it --batch-size"},
        {"--dataroot_gt a", "fpack --pairs packs both sides"},
        {"--min-lr 0 s o", "ftrain calls it --lr-min"},
        {"--dropout 0.1 s o", "--drop-path leaves out blocks of a ResNet or ConvNeXt"},
        {"--val-crop 4 s o", "did you mean --val-crop-size?"},
        {"--syncbn s o", "ftrain calls it --sync-bn"},
        {"--sync_batch_norm s o", "ftrain calls it --sync-bn"},
        {"--dist-bn reduce s o", "--sync-bn makes those of all ranks alike"},
    };
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        expect_hint("ftrain", hints[i][0], hints[i][1]);
}

TEST(test_options_of_packers_are_answered)
{
    static const char *const hints[][3] = {
        {"fpack", "--val-ratio 0.1 a b", "fpack calls it --split"},
        {"fpack", "--val 0.1 a b", "fpack calls it --split"},
        {"fpack", "--data-path a", "fpack calls it --src"},
        {"fpack", "--map-size 1000 a b", "--format lmdb grows the map"},
        {"fpack", "--format webdataset a b", "tar is WebDataset"},
        {"fpack", "--format=beton a b", "nothing writes FFCV's"},
        {"fpack", "--store smart a b", "auto is it"},
        {"fpack", "--store yuv a b", "yuv420 is the name"},
        {"fpack", "--store planes a b", "yuv420 stores a JPEG's planes"},
        {"fpack", "--number_sample_per_shard 10000 a b", "--shard-size SIZE cuts by bytes"},
        {"fpack", "--compress_probability 0.5 a b", "--store auto --budget"},
        {"fpack", "--crop-size 480 a b", "ftrain takes random crops"},
        {"fpack", "--scale 2 a b", "fpack calls it --pair-scale"},
        {"fpack", "--skip-existing a b", "the same command goes on"},
        {"fresize", "--image-size 160 a b", "fresize calls it --max-size"},
        {"fresize", "--crop 224 a b", "nothing is cut off"},
        {"fresize", "--resize_only_if_bigger a b", "never enlarged"},
        {"fresize", "--pair-scale 2 a b", "fpack has it"},
        {"fverify", "--checksum a", "compared anyway"},
        {"fverify", "--num-workers 2 a", "fverify calls it --jobs"},
    };
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        expect_hint(hints[i][0], hints[i][1], hints[i][2]);
}

/* ---- the tables ---- */

static const Option *find_row(const OptionTable *table, const char *name, size_t length)
{
    for (const Option *row = table->options; row->name; row++) {
        if (strlen(row->name) == length && memcmp(row->name, name, length) == 0)
            return row;
        if (row->alias && strlen(row->alias) == length && memcmp(row->alias, name, length) == 0)
            return row;
    }
    return NULL;
}

/* Asserts that no hint is for an option or choice that exists, as it would never be seen; that no name has
 * two hints; and that each hint names an option that exists. */
static void check_hints(const OptionTable *table)
{
    const OptionForeign *lists[] = {table->foreign, table->answers};
    for (size_t l = 0; l < 2; l++) {
        for (const OptionForeign *hint = lists[l]; hint && hint->name; hint++) {
            if (find_row(table, hint->name, strlen(hint->name)))
                fail_msg("%s: --%s is an option: its hint is never seen", table->program, hint->name);
            for (size_t m = 0; m < 2; m++)
                for (const OptionForeign *other = lists[m]; other && other->name; other++)
                    if (other != hint && strcmp(other->name, hint->name) == 0)
                        fail_msg("%s: --%s has two hints", table->program, hint->name);
        }
    }
    for (const OptionForeign *hint = table->foreign; hint && hint->name; hint++) {
        const size_t length = strcspn(hint->ours, " "), no = strncmp(hint->ours, "no-", 3) == 0 ? 3 : 0;
        if (!find_row(table, hint->ours, length) && !find_row(table, hint->ours + no, length - no))
            fail_msg("%s: --%s: the hint names --%s, which is no option", table->program, hint->name,
                     hint->ours);
    }
    for (const Option *row = table->options; row->name; row++) {
        for (const OptionForeign *hint = row->hints; hint && hint->name; hint++)
            for (const char *const *choice = row->choices; *choice; choice++)
                if (strcmp(*choice, hint->name) == 0)
                    fail_msg("%s: --%s %s is a choice: its hint is never seen", table->program, row->name,
                             *choice);
    }
}

/* Asserts that options which a hint names in its text ("--epochs") exist. An option of another program stands
 * after that program's name. */
static void check_texts(const OptionTable *table)
{
    for (const OptionForeign *hint = table->answers; hint && hint->name; hint++) {
        for (const char *at = hint->ours; (at = strstr(at, "--")); at += 2) {
            const size_t length = strspn(at + 2, "abcdefghijklmnopqrstuvwxyz0123456789-");
            const bool of_other = (at - hint->ours >= 6 && strncmp(at - 6, "fpack ", 6) == 0) ||
                                  (at - hint->ours >= 8 && strncmp(at - 8, "fverify ", 8) == 0) ||
                                  (at - hint->ours >= 8 && strncmp(at - 8, "fresize ", 8) == 0);
            const size_t no = strncmp(at + 2, "no-", 3) == 0 ? 3 : 0;
            if (!of_other && !find_row(table, at + 2, length) && !find_row(table, at + 2 + no, length - no))
                fail_msg("%s: the hint for --%s names --%.*s, which is no option", table->program, hint->name,
                         (int)length, at + 2);
        }
    }
}

TEST(test_every_hint_can_be_seen_and_names_options_that_exist)
{
    static Settings settings;
    static VerifySettings verify;
    TrainOptions train = train_options_default();
    Option pack_rows[SETTINGS_ROWS], verify_rows[VERIFY_SETTINGS_ROWS], train_rows[TRAIN_OPTION_ROWS];
    settings_init(&settings);
    settings_rows(&settings, pack_rows);
    verify_settings_init(&verify);
    verify_settings_rows(&verify, verify_rows);
    train_options_rows(&train, train_rows);
    const OptionTable tables[] = {settings_table(pack_rows), verify_settings_table(verify_rows),
                                  train_options_table(train_rows)};
    for (size_t i = 0; i < 3; i++) {
        check_hints(&tables[i]);
        check_texts(&tables[i]);
    }
}
