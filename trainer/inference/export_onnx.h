/* export_onnx.h - writes the network of --weights as an ONNX file, for --export-onnx.
 *
 * The file has one input and one output: "input", float32 [batch, channels, height, width] in RGB, and
 * "logits" [batch, classes] or "restored", as large as the input. The input is what PyTorch's networks take:
 * (pixel / 255 - mean) / std for classes, pixel / 255 for images that are restored. What else a program needs
 * to serve the network is in the metadata of the file (ftrain.1).
 *
 * Neither device nor dataset is opened: the weights go from one file to the other. Threads: one. */
#ifndef FSHARD_TRAINER_INFERENCE_EXPORT_ONNX_H
#define FSHARD_TRAINER_INFERENCE_EXPORT_ONNX_H

#include "trainer/plan/train_options.h"

/* Writes options->inference.export_onnx, and prints on stdout what it holds. FSH_ERR_EXISTS: the file is
 * there, and no --force. FSH_ERR_USAGE: nobody says which network this is, or for which size of images.
 * FSH_ERR_UNSUPPORTED: the network does not fit into ONNX (onnx_network.h). FSH_ERR_MISMATCH: the weights are
 * those of another network. The file appears when it is complete. */
FshStatus export_onnx(const TrainOptions *options, FshError *error);

#endif
