#define _GNU_SOURCE
#include "traffic.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "program.h"

static const uint64_t NEVER = UINT64_MAX;
static const size_t BYTES_A_TURN = 256 << 10; /* of each stream */

/* One of the users of a stream; it waits for one answer, is idle, or has ended. */
struct user {
    struct stream *stream;
    struct connection *own, *on;
    struct kind *kind;
    uint32_t opaque; /* 0: nothing outstanding */
    uint64_t due_ns;
    struct user *next_idle;
};

static struct stream *streams;
static uint32_t stream_count;
static struct user *users;
static uint32_t user_count, generation, outstanding;
static struct connection *links;
static bool is_recording, has_ended;

/* ---- users ---- */

static void rest(struct user *user) {
    struct stream *stream = user->stream;
    user->next_idle = NULL;
    if (stream->idle_last)
        stream->idle_last->next_idle = user;
    else
        stream->idle_first = user;
    stream->idle_last = user;
}

static struct user *wake_one(struct stream *stream) {
    struct user *user = stream->idle_first;
    stream->idle_first = user->next_idle;
    if (!stream->idle_first) stream->idle_last = NULL;
    return user;
}

static void lose(struct user *user) {
    user->kind->lost++;
    user->opaque = 0;
    outstanding--;
}

uint64_t give_up_outstanding(void) {
    uint64_t count = outstanding;
    for (uint32_t i = 0; i < user_count; i++)
        if (users[i].opaque) lose(&users[i]);
    return count;
}

/* The users of the connection end; their outstanding requests are lost. */
void connection_ended(struct connection *connection) {
    for (uint32_t i = 0; i < user_count; i++)
        if (users[i].opaque && users[i].on == connection) lose(&users[i]);
}

/* ---- requests ---- */

static struct kind *choose_kind(const struct stream *stream) {
    if (stream->kind_count == 1) return stream->kinds[0];
    double sum = 0;
    for (uint32_t i = 0; i < stream->kind_count; i++) sum += stream->kinds[i]->share;
    double wanted = random_fraction() * sum;
    uint32_t chosen = 0;
    while (chosen < stream->kind_count - 1 && wanted >= stream->kinds[chosen]->share)
        wanted -= stream->kinds[chosen++]->share;
    return stream->kinds[chosen];
}

/* Lets a user send the request that was due; returns the connection that has data to send, NULL if the user ends. */
static struct connection *ask(struct user *user, uint64_t due_ns) {
    struct kind *kind = choose_kind(user->stream);
    const struct frame *frame = next_frame(kind);
    if (!frame) return NULL;
    struct connection *connection = frame->link ? &links[frame->link] : user->own;
    if (!connection) die("kind %s: a frame without a link in a stream without connections", kind->name);
    if (connection->fd < 0) {
        kind->lost++;
        return NULL;
    }
    user->kind = kind;
    user->on = connection;
    user->due_ns = due_ns;
    outstanding++;
    generation = (generation + 1) % (MAX_OPAQUES / user_count);
    uint32_t opaque = user->opaque = FIRST_OPAQUE + generation * user_count + (uint32_t)(user - users);
    char *at = room_to_write(connection, frame->length);
    memcpy(at, frame->bytes, frame->length);
    for (uint32_t digit = OPAQUE_DIGITS; digit--; opaque /= 10) at[frame->opaque_at + digit] = (char)('0' + opaque % 10);
    connection->out.length += frame->length;
    if (is_recording) {
        kind->sent++;
        kind->bytes_sent += frame->length;
    }
    return connection;
}

/*
 * Lets the idle users of the streams send the requests that are due, large ones in several calls, so that answers that
 * arrive meanwhile do not wait. Returns the time at which the next request is due.
 */
static uint64_t ask_what_is_due(uint64_t now) {
    uint64_t next = NEVER;
    bool is_cut = false;
    for (struct stream *stream = streams; stream < streams + stream_count && !has_ended; stream++) {
        if (!stream->begins_ns) continue;
        if (!stream->next_due_ns) stream->next_due_ns = stream->begins_ns;
        size_t asked = 0;
        while (stream->idle_first && stream->next_due_ns <= now && asked < BYTES_A_TURN) {
            struct connection *connection = ask(wake_one(stream), stream->rate > 0 ? stream->next_due_ns : now);
            if (connection) {
                asked += connection->out.length - connection->out_sent;
                flush(connection);
            }
            if (stream->rate > 0) stream->next_due_ns += (uint64_t)(1e9 / stream->rate);
        }
        if (stream->idle_first && stream->next_due_ns < next) next = stream->next_due_ns;
        is_cut |= asked >= BYTES_A_TURN;
    }
    return is_cut ? now : next;
}

/* ---- answers ---- */

/* The number after `name` in a JSON header; -1 if it is missing. Inside a string, a name's quotes would be escaped. */
static long header_number(const char *header, size_t length, const char *name) {
    const char *found = memmem(header, length, name, strlen(name));
    if (!found) return -1;
    char *end;
    long value = strtol(found + strlen(name), &end, 10); /* ends at the header's brace or comma at the latest */
    return end == found + strlen(name) ? -1 : value;
}

static void judge(const struct user *user, long code, const char *body, uint32_t length, uint64_t now) {
    struct kind *kind = user->kind;
    if (code) {
        kind->refused++;
        kind->last_refusal = code;
    } else if (kind->wants_body && (length < 2 || body[0] != '{' || body[length - 1] != '}')) {
        kind->empty++;
    }
    if (!is_recording) return;
    histogram_count(&kind->latency, now - user->due_ns);
    if (!kind->first_due_ns) kind->first_due_ns = user->due_ns;
    kind->last_answered_ns = now;
    if (!has_ended) kind->answered_in_time++;
}

void answer_arrived(struct connection *connection, const char *payload, uint32_t total, uint64_t now) {
    uint32_t word;
    memcpy(&word, payload, 4);
    word = ntohl(word);
    const char *header = payload + 4;
    uint32_t length = word & 0xffffff;
    bool is_json = !(word >> 24) && length >= 2 && length <= total - 4 && header[length - 1] == '}';
    if (!is_json || header_number(header, length, "\"flag\":") % 2 != 1) {
        give_up(connection, &connection_errors.malformed);
        return;
    }
    long opaque = header_number(header, length, "\"opaque\":");
    struct user *user = opaque < FIRST_OPAQUE ? NULL : &users[(uint32_t)(opaque - FIRST_OPAQUE) % user_count];
    if (!user || user->opaque != (uint32_t)opaque || user->on != connection) {
        give_up(connection, &connection_errors.mismatched);
        return;
    }
    judge(user, header_number(header, length, "\"code\":"), header + length, total - 4 - length, now);
    if (is_recording) user->kind->bytes_received += total + 4;
    user->opaque = 0;
    outstanding--;
    if (user->stream->rate > 0 || has_ended) {
        rest(user);
        return;
    }
    struct connection *next = ask(user, now);
    if (next && next != connection) flush(next); /* that one is flushed when all it brought has been seen */
}

/* ---- the run ---- */

void record_traffic(bool recording) { is_recording = recording; }

uint64_t end_traffic(void) {
    uint64_t now = now_ns(), unsent = 0;
    for (struct stream *stream = streams; stream < streams + stream_count; stream++)
        if (stream->rate > 0 && stream->next_due_ns && stream->next_due_ns < now)
            unsent += (uint64_t)((double)(now - stream->next_due_ns) / 1e9 * stream->rate);
    has_ended = true;
    return unsent;
}

uint64_t run_traffic(uint64_t until_ns, bool until_idle) {
    uint64_t now = now_ns();
    while (now < until_ns) {
        uint64_t next = ask_what_is_due(now);
        if (until_idle && !outstanding && next == NEVER) break;
        poll_connections(next < until_ns ? next : until_ns);
        now = now_ns();
    }
    return now;
}

static uint32_t users_of(const struct stream *stream) {
    return (stream->connections ? stream->connections : 1) * stream->depth;
}

static uint32_t highest_link(void) {
    uint32_t highest = 0;
    for (struct stream *stream = streams; stream < streams + stream_count; stream++)
        for (uint32_t k = 0; k < stream->kind_count; k++)
            for (uint32_t i = 0; i < stream->kinds[k]->count; i++)
                if (stream->kinds[k]->frames[i].link > highest) highest = stream->kinds[k]->frames[i].link;
    return highest;
}

void open_traffic(const char *host, const char *port, struct stream *all, uint32_t count) {
    streams = all;
    stream_count = count;
    find_server(host, port);
    uint32_t link_count = highest_link();
    links = allocate(link_count + 1, sizeof *links);
    for (uint32_t i = 1; i <= link_count; i++) open_connection(&links[i]);
    for (struct stream *stream = streams; stream < streams + count; stream++) user_count += users_of(stream);
    users = allocate(user_count, sizeof *users);
    struct user *user = users;
    for (struct stream *stream = streams; stream < streams + count; stream++) {
        struct connection *own = allocate(stream->connections + 1, sizeof *own);
        for (uint32_t i = 0; i < stream->connections; i++) open_connection(&own[i]);
        for (uint32_t i = 0; i < users_of(stream); i++, user++) {
            *user = (struct user){.stream = stream, .own = stream->connections ? &own[i / stream->depth] : NULL};
            rest(user);
        }
    }
}
