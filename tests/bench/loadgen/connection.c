#define _GNU_SOURCE
#include "connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "program.h"

enum { MAX_FRAME = 64 << 20, MAX_EVENTS = 1024, FIRST_CAPACITY = 16384 };

struct connection_errors connection_errors;
uint64_t longest_turn_ns;

static struct addrinfo *server;
static int poller, timer;

void find_server(const char *host, const char *port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int failure = getaddrinfo(host, port, &hints, &server);
    if (failure) die("%s:%s: %s", host, port, gai_strerror(failure));
    poller = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    /* Edge-triggered, so that setting the timer again is enough. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    if (poller < 0 || timer < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event) < 0) die("epoll: %s", strerror(errno));
}

static void watch(struct connection *connection, int operation, bool writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0u), .data.ptr = connection};
    if (epoll_ctl(poller, operation, connection->fd, &event) < 0) die("epoll_ctl: %s", strerror(errno));
    connection->waits_for_writing = writing;
}

void open_connection(struct connection *connection) {
    connection->fd = socket(server->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection->fd < 0) die("socket: %s", strerror(errno));
    if (connect(connection->fd, server->ai_addr, server->ai_addrlen) < 0) die("cannot connect: %s", strerror(errno));
    int on = 1;
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(connection, EPOLL_CTL_ADD, false);
}

void give_up(struct connection *connection, uint64_t *error) {
    ++*error;
    close(connection->fd);
    connection->fd = -1;
    connection_ended(connection);
}

static void make_room(struct buffer *buffer, size_t bytes) {
    if (buffer->capacity - buffer->length >= bytes) return;
    while (buffer->capacity - buffer->length < bytes)
        buffer->capacity = buffer->capacity ? 2 * buffer->capacity : FIRST_CAPACITY;
    buffer->bytes = realloc(buffer->bytes, buffer->capacity);
    if (!buffer->bytes) die("out of memory");
}

char *room_to_write(struct connection *connection, size_t bytes) {
    make_room(&connection->out, bytes);
    return connection->out.bytes + connection->out.length;
}

void flush(struct connection *connection) {
    while (connection->out_sent < connection->out.length) {
        ssize_t count = send(connection->fd, connection->out.bytes + connection->out_sent,
                             connection->out.length - connection->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EAGAIN) {
            if (!connection->waits_for_writing) watch(connection, EPOLL_CTL_MOD, true);
            return;
        }
        if (count < 0) {
            give_up(connection, &connection_errors.disconnected);
            return;
        }
        connection->out_sent += (size_t)count;
    }
    connection->out.length = connection->out_sent = 0;
    if (connection->waits_for_writing) watch(connection, EPOLL_CTL_MOD, false);
}

static void receive(struct connection *connection) {
    struct buffer *in = &connection->in;
    make_room(in, FIRST_CAPACITY);
    ssize_t count = recv(connection->fd, in->bytes + in->length, in->capacity - in->length, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
        give_up(connection, &connection_errors.disconnected);
        return;
    }
    in->length += (size_t)count;
    uint64_t now = now_ns();
    size_t at = 0;
    while (connection->fd >= 0 && in->length - at >= 4) {
        uint32_t total;
        memcpy(&total, in->bytes + at, 4);
        total = ntohl(total);
        if (total < 4 || total > MAX_FRAME) {
            give_up(connection, &connection_errors.malformed);
            return;
        }
        if (in->length - at < (size_t)total + 4) break;
        answer_arrived(connection, in->bytes + at + 4, total, now);
        at += (size_t)total + 4;
    }
    if (connection->fd < 0) return;
    memmove(in->bytes, in->bytes + at, in->length - at);
    in->length -= at;
    flush(connection);
}

static void wake_at(uint64_t at_ns) {
    static uint64_t armed;
    if (armed == at_ns) return;
    armed = at_ns;
    struct itimerspec setting = {.it_value = {(time_t)(at_ns / 1000000000u), (long)(at_ns % 1000000000u)}};
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &setting, NULL) < 0) die("timerfd: %s", strerror(errno));
}

void poll_connections(uint64_t at_ns) {
    static uint64_t looked_ns;
    wake_at(at_ns);
    if (looked_ns && now_ns() - looked_ns > longest_turn_ns) longest_turn_ns = now_ns() - looked_ns;
    struct epoll_event events[MAX_EVENTS];
    int count = epoll_wait(poller, events, MAX_EVENTS, -1);
    looked_ns = now_ns();
    if (count < 0 && errno != EINTR) die("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < count; i++) {
        struct connection *connection = events[i].data.ptr;
        if (!connection) continue; /* the timer */
        if (connection->fd >= 0 && (events[i].events & EPOLLOUT)) flush(connection);
        if (connection->fd >= 0 && (events[i].events & ~(uint32_t)EPOLLOUT)) receive(connection);
    }
}
