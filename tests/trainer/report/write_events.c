/* write_events FOLDER: a run of six steps that goes on from its fourth, for tensorboard_read.py. With
 * FSHARD_ENOSPC in front of it and a second argument, images until the disk is full, then a point each time:
 * exits 3 if a write has failed. */
#include <stdio.h>

#include "trainer/report/tensorboard.h"

static FshStatus write_steps(const char *folder, uint64_t first, double shift, FshError *error)
{
    uint8_t pixels[12 * 8 * 3];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 3 % 251);
    const ImageView image = {pixels, sizeof pixels / 8, 12, 8, 3};
    TensorBoard *board = NULL;
    FshStatus status = tensorboard_open(&board, folder, first, error);
    for (uint64_t step = first; step < 6 && !status; step++)
        status = tensorboard_scalar(board, "train/loss", step, (double)step + shift, error);
    if (!status)
        status = tensorboard_image(board, "val/samples", 5, &image, error);
    tensorboard_close(&board);
    return status;
}

static FshStatus fill_disk(const char *folder, FshError *error)
{
    static uint8_t pixels[64 * 64];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * i / 7);
    const ImageView image = {pixels, 64, 64, 64, 1};
    FshStatus first = FSH_OK;
    TensorBoard *board = NULL;
    FshStatus status = tensorboard_open(&board, folder, 0, error);
    for (uint64_t step = 0; step < 100 && !status && !first; step++)
        first = tensorboard_image(board, "val/samples", step, &image, error);
    if (!status) /* smaller: there may be room */
        (void)tensorboard_scalar(board, "after", 100, 1, NULL);
    tensorboard_close(&board);
    return status ? status : first;
}

int main(int argc, char **argv)
{
    FshError error = {0};
    FshStatus status = FSH_OK;
    if (argc == 3)
        status = fill_disk(argv[1], &error);
    else if (argc == 2) {
        status = write_steps(argv[1], 0, 0, &error);
        if (!status)
            status = write_steps(argv[1], 3, 100, &error);
    }
    if (status)
        (void)fprintf(stderr, "write_events: %s\n", error.message);
    return argc != 2 && argc != 3 ? 2 : status ? 3 : 0;
}
