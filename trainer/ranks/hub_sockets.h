/* hub_sockets.h - listening and connecting, without ever waiting longer than asked. For hub_meeting.c alone.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_RANKS_HUB_SOCKETS_H
#define FSHARD_TRAINER_RANKS_HUB_SOCKETS_H

#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"
#include "trainer/ranks/rank_place.h"

enum { HUB_ADDRESS_TEXT_MAX = 80 };

/* Sets *list_ret to the addresses of the place, at its port; free with freeaddrinfo. FSH_ERR_USAGE: the name
 * does not resolve; *later_ret: it may do so later. */
FshStatus hub_resolve(const RankPlace *place, struct addrinfo **list_ret, bool *later_ret, FshError *error);

/* Sets *socket_ret to a socket that listens. *everywhere_ret: on all addresses of this host, since the
 * place's is none of them. FSH_ERR_USAGE: the port is taken. FSH_ERR_SYSTEM. */
FshStatus hub_listen(const RankPlace *place, const struct addrinfo *list, int *socket_ret,
                     bool *everywhere_ret, FshError *error);
/* Returns a connection that another host has begun, with its address in text; -1: there is none. */
int hub_accept(int listening, char text[HUB_ADDRESS_TEXT_MAX]);

/* Tries the addresses of the list, all of them within `seconds`: one that does not answer leaves their part
 * to the others. Returns a connection; -1, with errno set, if no address answers. */
int hub_connect(const struct addrinfo *list, double seconds);

/* Makes small messages leave at once, and a connection to a machine that is gone end, some day: the hosts
 * notice sooner that nothing comes. */
void hub_tune(int socket);

/* Reads what has come of byte_count bytes, of which *got_ret are there already. Returns false if the peer has
 * ended the connection. */
bool hub_read_some(int socket, void *bytes, size_t byte_count, size_t *got_ret);
/* Sends a small frame to a peer that has room for it, or none of it. */
void hub_send_frame(int socket, const void *bytes, size_t byte_count);

#endif
