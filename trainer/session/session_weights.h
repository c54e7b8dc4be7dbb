/* session_weights.h - the weights that a session begins with: which network they belong to, and which classes
 * they know.
 *
 * Classes are matched by name. Evaluation numbers classes as the weights do: the dataset's labels are mapped,
 * and the dataset may have fewer classes than the weights, and unknown ones if no sample to evaluate on has
 * them. Training numbers them as the dataset does: the rows of the last layer are mapped, or the layer begins
 * anew if a class is new to the weights.
 *
 * Called by session.c; what needs no session, by others. Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_SESSION_WEIGHTS_H
#define FSHARD_TRAINER_SESSION_SESSION_WEIGHTS_H

#include "trainer/session/session.h"

/* Reads the origin of --weights, which the caller frees, and sets *model_ret to the network that it names, or
 * that --model names. FSH_ERR_USAGE: none does; FSH_ERR_MISMATCH: they name two. */
FshStatus session_weights_model(const TrainOptions *options, WeightsOrigin *origin, const Model **model_ret,
                                FshError *error);
/* Sets the error for weights of this network, which the options do not name. Returns FSH_ERR_MISMATCH. */
FshStatus session_refuse_network(const char *weights, const Model *model, FshError *error);

/* Sets *model_ret to the network: for SESSION_EVALUATE that of the weights, so --model is only needed if they
 * name none. FSH_ERR_MISMATCH: the weights belong to another network. */
FshStatus session_choose_model(const Session *session, const TrainOptions *options, SessionUse use,
                               const Model **model_ret, FshError *error);

/* Takes over the images that options->images has found, for the network that the weights or the options name,
 * and sets *model_ret to it. FSH_ERR_MISMATCH: they name two. */
FshStatus session_take_images(Session *session, const TrainOptions *options, const Model **model_ret,
                              FshError *error);

/* Fills session->classes from session->origin, once the dataset is open; for SESSION_EVALUATE also numbers
 * the dataset's classes as the network does (session->data). FSH_ERR_MISMATCH: samples to evaluate on have
 * classes that the weights do not know, or masks call a value otherwise. */
FshStatus session_map_classes(Session *session, const TrainOptions *options, SessionUse use, FshError *error);

/* Reads --weights into the network. Fails as weights_load does; if they belong to another network the message
 * names it. */
FshStatus session_load_weights(Session *session, SessionUse use, FshError *error);

/* Checks that a run's classes, as class_names_text wrote them to path, are those of the dataset in the same
 * order; of masks, as many, and none with two names. FSH_ERR_MISMATCH names those that differ;
 * FSH_ERR_CORRUPT. */
FshStatus session_check_classes(const Session *session, const char *path, const char *text, FshError *error);

/* Returns what the outputs of weights are: LABELS_ONE where they say nothing else. */
LabelKind session_label_kind(const WeightsOrigin *origin);
/* Prints which weights were loaded, and what that means for the classes. */
void session_describe_weights(Session *session);

#endif
