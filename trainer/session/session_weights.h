/* session_weights.h - the weights that a session begins with: of which network they are, and whose classes
 * they know.
 *
 * Classes are found by their names. Evaluation counts classes as the weights do: the labels of the dataset
 * are mapped, and it may have fewer classes than the weights, but none that they do not know. Training counts
 * them as the dataset does: the last layer's rows are mapped, or it begins anew where a class is new to the
 * weights.
 *
 * Parts of session.c. Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_SESSION_WEIGHTS_H
#define FSHARD_TRAINER_SESSION_SESSION_WEIGHTS_H

#include "trainer/session/session.h"

/* Finds the network: for SESSION_EVALUATE that of the weights, which need no --model where they name it.
 * FSH_ERR_MISMATCH: the weights are of another network. */
FshStatus session_choose_model(const Session *session, const TrainOptions *options, SessionUse use,
                               const Model **model_ret, FshError *error);

/* Takes over the images that options->images has found, for the network that the weights, or the options,
 * name, *model_ret. FSH_ERR_MISMATCH: they name two. */
FshStatus session_take_images(Session *session, const TrainOptions *options, const Model **model_ret,
                              FshError *error);

/* Fills session->classes from session->origin, once the dataset is open; for SESSION_EVALUATE also the
 * dataset's classes as the network counts them (session->data). FSH_ERR_MISMATCH: what is to be evaluated has
 * classes that the weights do not know. */
FshStatus session_map_classes(Session *session, const TrainOptions *options, SessionUse use, FshError *error);

/* Reads --weights into the network; fails as weights_load does, and names the network that the weights are
 * of, where that is another one. */
FshStatus session_load_weights(Session *session, SessionUse use, FshError *error);

/* Checks that a run's classes, as class_names_text wrote them to path, are those of the dataset in their
 * order. FSH_ERR_MISMATCH names those that differ; FSH_ERR_CORRUPT. */
FshStatus session_check_classes(const Session *session, const char *path, const char *text, FshError *error);

/* Says which weights were loaded, and what that means for the classes. */
void session_describe_weights(Session *session);

#endif
