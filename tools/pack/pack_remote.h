/* pack_remote.h - fpack from and to servers: a source that is fetched, a destination that is sent to, and
 * parts that are merged where they lie.
 *
 * Threads: one at a time. */
#ifndef FSHARD_PACK_REMOTE_H
#define FSHARD_PACK_REMOTE_H

#include "stores/store.h"
#include "stores/store_upload.h"
#include "tools/pack/pack_merge.h"
#include "tools/pack/pack_settings.h"

typedef struct PackRemote {
    const char *source, *destination; /* as the user gave them */
    StoreFolder folder;               /* of a source on a server */
    StoreUpload *upload;              /* to a destination on a server */
    char part[48];                    /* "3-of-8" */
    PackTaker taker;
} PackRemote;
#define PACK_REMOTE_NONE                                                                                     \
    {                                                                                                        \
        .folder = STORE_FOLDER_NONE                                                                          \
    }

/* Brings options->source here where it is on a server, and finds a folder to pack into and a taker for a
 * destination that is; else they stay. FSH_ERR_USAGE: what is not done to and from servers, or options of
 * servers where none is named. Fails as store_open and store_upload_open do. */
FshStatus remote_open(PackRemote *remote, const Settings *settings, const char *program, PackOptions *options,
                      FshError *error);

/* Brings what parts have sent to the address `destination` here, and fills *options for the merge.
 * FSH_ERR_NOT_FOUND: there are no parts. Fails as remote_open. */
FshStatus remote_open_merge(PackRemote *remote, const Settings *settings, const char *program,
                            const char *destination, MergeOptions *options, FshError *error);

/* Lets go of all, and has the message of a failure name addresses. done: what was sent need not be kept here.
 */
void remote_close(PackRemote *remote, bool done, FshError *error);

#endif
