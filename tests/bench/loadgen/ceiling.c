/*
 * The least that a single-threaded server can do: it answers each frame with the same bytes and reads only the
 * request's opaque; it drops the rest of a long frame as it arrives. Its speed is the limit of any name server next to
 * this load generator.
 *
 * ceiling BODY_BYTES: listens on a free port of 127.0.0.1, prints it, and runs until it is killed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "program.h"

enum { MAX_EVENTS = 1024, MOST_AT_ONCE = 1 << 20, HEADER_ROOM = 256, MAX_FILES = 1 << 16, LEAST_OF_LONG = 1024 };

static char *answer;
static size_t body_bytes;

/* State of a connection's incomplete frame. */
static struct { long opaque; size_t missing; } coming[MAX_FILES];

static long opaque_of(const char *frame, size_t bytes) {
    static const char field[] = "\"opaque\":";
    const char *found = memmem(frame, bytes, field, sizeof field - 1);
    return found ? strtol(found + sizeof field - 1, NULL, 10) : 0;
}

/* Writes the request's opaque and all lengths before the body, which is not moved. */
static bool answer_one(int fd, long opaque) {
    char header[HEADER_ROOM];
    int header_bytes = snprintf(header, sizeof header,
                                "{\"code\":0,\"flag\":1,\"language\":\"JAVA\",\"opaque\":%ld,"
                                "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":0}",
                                opaque);
    uint32_t lengths[] = {htonl((uint32_t)(4 + (size_t)header_bytes + body_bytes)), htonl((uint32_t)header_bytes)};
    char *start = answer + HEADER_ROOM - header_bytes - sizeof lengths;
    memcpy(start, lengths, sizeof lengths);
    memcpy(start + sizeof lengths, header, (size_t)header_bytes);
    size_t whole = sizeof lengths + (size_t)header_bytes + body_bytes;
    return send(fd, start, whole, MSG_NOSIGNAL) == (ssize_t)whole;
}

static void receive(int fd) {
    static char bytes[MOST_AT_ONCE + 1]; /* and an end for strtol */
    ssize_t count = recv(fd, bytes, MOST_AT_ONCE, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    bool is_open = count > 0;
    size_t at = 0;
    if (is_open && coming[fd].missing) {
        at = coming[fd].missing < (size_t)count ? coming[fd].missing : (size_t)count;
        coming[fd].missing -= at;
        if (!coming[fd].missing) is_open = answer_one(fd, coming[fd].opaque);
    }
    while (is_open && at < (size_t)count) {
        const char *frame = bytes + at + sizeof(uint32_t);
        size_t here = (size_t)count - at;
        uint32_t total = 0;
        if (here >= sizeof total) memcpy(&total, bytes + at, sizeof total);
        total = ntohl(total);
        if (here >= sizeof total + total && here >= sizeof total) {
            is_open = answer_one(fd, opaque_of(frame, total));
            at += sizeof total + total;
            continue;
        }
        /* A closed loop has one outstanding request on each connection, so only a long one arrives in pieces. */
        if (here < LEAST_OF_LONG) die("a header in pieces");
        coming[fd].opaque = opaque_of(frame, here - sizeof total);
        coming[fd].missing = sizeof total + total - here;
        at = (size_t)count;
    }
    if (!is_open) {
        coming[fd].missing = 0;
        close(fd);
    }
}

int main(int count, char **arguments) {
    if (count != 2) die("ceiling BODY_BYTES");
    body_bytes = strtoul(arguments[1], NULL, 10);
    answer = allocate(HEADER_ROOM + body_bytes, 1);
    memset(answer + HEADER_ROOM, ' ', body_bytes);
    if (body_bytes) {
        answer[HEADER_ROOM] = '{';
        answer[HEADER_ROOM + body_bytes - 1] = '}';
    }

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), poller = epoll_create1(EPOLL_CLOEXEC), on = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    if (bind(listener, (struct sockaddr *)&address, length) < 0 || listen(listener, 1024) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) < 0 ||
        epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event) < 0)
        die("cannot listen: %s", strerror(errno));
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event events[MAX_EVENTS];
        int ready = epoll_wait(poller, events, MAX_EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.fd != listener) {
                receive(events[i].data.fd);
                continue;
            }
            event.data.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            if (event.data.fd < 0) continue;
            if (event.data.fd >= MAX_FILES) die("too many connections");
            setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            if (epoll_ctl(poller, EPOLL_CTL_ADD, event.data.fd, &event) < 0) die("epoll_ctl: %s", strerror(errno));
        }
    }
}
