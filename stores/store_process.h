/* store_process.h - credential_process of ~/.aws/config: a program that prints keys.
 *
 *   https://docs.aws.amazon.com/sdkref/latest/guide/feature-process-credentials.html
 *
 * No shell sees the command: it is split at blanks, single and double quotes keep blanks, a backslash takes
 * the next character as it is; "~" and "$NAME" mean themselves, and "|" and ";" are arguments. The program's
 * stderr is the user's; what it prints to stdout is in no message.
 *
 * Threads: any that do not change the environment. */
#ifndef FSHARD_STORES_STORE_PROCESS_H
#define FSHARD_STORES_STORE_PROCESS_H

#include <stddef.h>

#include "common/error.h"
#include "stores/store_lent.h"

enum { STORE_PROCESS_SECONDS = 60 }; /* as other tools wait */

/* Splits a command in place; arguments: room for `most`, the last of which gets NULL. Returns how many there
 * are; 0: there is none, there are too many, or a quote does not end. */
size_t store_process_split(char *command, char **arguments, size_t most);

/* Reads what such a program prints: JSON of version 1. from: of lent. FSH_ERR_SYSTEM: it is something else,
 * or the keys have ended; the message has nothing of it. */
FshStatus store_process_parse(StoreLent *lent, const char *text, size_t length, const char *from,
                              FshError *error);

/* Runs the command and takes its keys; from: of lent, and for messages. The program is killed after so many
 * seconds. FSH_ERR_USAGE: the command cannot be split. FSH_ERR_SYSTEM: it cannot be run, fails, does not end,
 * or prints no keys. FSH_ERR_INTERRUPTED. No message has a secret. */
FshStatus store_lent_by_process(StoreLent *lent, const char *command, const char *from, double seconds,
                                FshError *error);

#endif
