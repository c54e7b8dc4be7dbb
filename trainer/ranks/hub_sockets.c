#include "trainer/ranks/hub_sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/progress.h"

enum { QUEUE = 64, SOCKET_FLAGS = SOCK_NONBLOCK | SOCK_CLOEXEC };

FshStatus hub_resolve(const RankPlace *place, struct addrinfo **list_ret, bool *later_ret, FshError *error)
{
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char port[8];
    (void)snprintf(port, sizeof port, "%u", (unsigned)place->port);
    *list_ret = NULL;
    const int code = getaddrinfo(place->address, port, &wanted, list_ret);
    *later_ret = code == EAI_AGAIN || (code == EAI_NONAME && place->name_comes_late);
    return code
               ? fsh_error_set(error, FSH_ERR_USAGE,
                               "'%s', where the ranks of all hosts are to meet, is no address that this host "
                               "knows: %s; give --master-addr, or MASTER_ADDR",
                               place->address, gai_strerror(code))
               : FSH_OK;
}

/* ---- the first host ---- */

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* Returns a socket that listens; -1, with errno set. */
static int listen_at(const struct sockaddr *address, socklen_t bytes)
{
    const int on = 1, off = 0;
    const int made = socket(address->sa_family, SOCK_STREAM | SOCKET_FLAGS, 0);
    if (made < 0)
        return -1;
    (void)setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->sa_family == AF_INET6)
        (void)setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(made, address, bytes) == 0 && listen(made, QUEUE) == 0)
        return made;
    const int code = errno;
    (void)close(made);
    errno = code;
    return -1;
}

static int listen_everywhere(uint16_t port)
{
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_ANY_INIT};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    const int made = listen_at((const struct sockaddr *)&six, sizeof six);
    if (made >= 0 || errno == EADDRINUSE)
        return made;
    return listen_at((const struct sockaddr *)&four, sizeof four);
}

FshStatus hub_listen(const RankPlace *place, const struct addrinfo *list, int *socket_ret,
                     bool *everywhere_ret, FshError *error)
{
    int code = EADDRNOTAVAIL;
    *socket_ret = -1;
    for (const struct addrinfo *at = list; at && *socket_ret < 0 && code != EADDRINUSE; at = at->ai_next) {
        if (is_loopback(at->ai_addr) && !rank_address_is_loopback(place->address))
            continue;
        *socket_ret = listen_at(at->ai_addr, at->ai_addrlen);
        code = errno;
    }
    *everywhere_ret = *socket_ret < 0 && code == EADDRNOTAVAIL;
    if (*everywhere_ret) {
        *socket_ret = listen_everywhere(place->port);
        code = errno;
    }
    if (*socket_ret >= 0)
        return FSH_OK;
    if (code == EADDRINUSE)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "port %u, where the hosts are to meet, is taken on this host by another program; "
            "give the run another with --master-port, or MASTER_PORT",
            (unsigned)place->port);
    return fsh_error_system(error, code, "port %u of '%s', where the hosts are to meet",
                            (unsigned)place->port, place->address);
}

int hub_accept(int listening, char text[HUB_ADDRESS_TEXT_MAX])
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    const int made = accept4(listening, (struct sockaddr *)&address, &bytes, SOCKET_FLAGS);
    if (made >= 0 && getnameinfo((const struct sockaddr *)&address, bytes, text, HUB_ADDRESS_TEXT_MAX, NULL,
                                 0, NI_NUMERICHOST) != 0)
        (void)snprintf(text, HUB_ADDRESS_TEXT_MAX, "an unknown address");
    return made;
}

/* ---- the others ---- */

/* Waits until the connection stands, for so many seconds at most. Returns 0 or an errno. */
static int wait_for_connection(int socket, double seconds)
{
    struct pollfd wanted = {.fd = socket, .events = POLLOUT};
    int code = 0;
    socklen_t bytes = sizeof code;
    if (seconds <= 0 || poll(&wanted, 1, (int)(seconds * 1000) + 1) <= 0)
        return ETIMEDOUT;
    return getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &bytes) ? errno : code;
}

int hub_connect(const struct addrinfo *list, double seconds)
{
    const double until = progress_now_seconds() + seconds;
    int code = ETIMEDOUT, left = 0;
    for (const struct addrinfo *at = list; at; at = at->ai_next)
        left++;
    for (const struct addrinfo *at = list; at; at = at->ai_next, left--) {
        const int made = socket(at->ai_family, SOCK_STREAM | SOCKET_FLAGS, 0);
        if (made >= 0 && connect(made, at->ai_addr, at->ai_addrlen) == 0)
            return made;
        code = errno;
        if (made >= 0 && code == EINPROGRESS)
            code = wait_for_connection(made, (until - progress_now_seconds()) / left);
        if (code == 0)
            return made;
        if (made >= 0)
            (void)close(made);
    }
    errno = code;
    return -1;
}

/* ---- both ---- */

void hub_tune(int socket)
{
    const int on = 1, idle = 10, interval = 5, probes = 3;
    (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

bool hub_read_some(int socket, void *bytes, size_t byte_count, size_t *got_ret)
{
    while (*got_ret < byte_count) {
        const ssize_t got = recv(socket, (char *)bytes + *got_ret, byte_count - *got_ret, 0);
        if (got > 0)
            *got_ret += (size_t)got;
        else if (got < 0 && errno == EINTR)
            continue;
        else
            return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
    return true;
}

void hub_send_frame(int socket, const void *bytes, size_t byte_count)
{
    (void)!send(socket, bytes, byte_count, MSG_NOSIGNAL);
}
