/*
 * Closed-loop load on a RocketMQ name server: GET_ROUTEINFO_BY_TOPIC (105) for topics chosen uniformly from PREFIX0 to
 * PREFIX<count-1>. One thread, one epoll; each connection keeps `depth` requests outstanding and sends the next one when
 * an answer is there. Every answer is checked: JSON header, code 0, an opaque that is outstanding, a body that begins
 * like a JSON object. A latency is the time from handing the request to the kernel to having read its whole answer, so it
 * includes this program's own share of the machine.
 *
 * Prints one JSON object. Exit code 0 even with errors (they are in the object), 2 for bad usage or no connection.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Opaques have ten digits, so that they can be written into a prepared frame: 1,000,000,000 to 2^31 - 1. */
enum { FIRST_OPAQUE = 1000000000, OPAQUE_DIGITS = 10, MAX_OPAQUES = 1147483647 };
enum { MAX_FRAME = 16777216, MAX_EVENTS = 1024 };

/* Latencies in ns, each power of two split into 64 parts: no value is off by more than 1.6 %. */
enum { SUB_BITS = 6, SUB = 1 << SUB_BITS, BUCKETS = (64 - SUB_BITS + 1) * SUB };

struct frame {
    char *bytes;
    uint32_t length;
    uint32_t opaque_at;
};

struct slot {
    uint32_t opaque; /* 0: nothing outstanding */
    uint64_t sent_ns;
};

struct connection {
    int fd;
    struct slot *slots;
    uint32_t next_generation;
    char *in;
    size_t in_length, in_capacity;
    char *out;
    size_t out_length, out_sent;
    bool waits_for_writing;
};

static struct {
    const char *host, *port, *prefix;
    long connections, depth, topics, version;
    double seconds, warm_up_seconds;
    uint64_t seed;
} options = {
    .host = "127.0.0.1", .port = "9876", .prefix = "topic-", .connections = 16, .depth = 1, .topics = 1, .version = 479,
    .seconds = 5, .warm_up_seconds = 1, .seed = 1,
};

static struct frame *frames;
static size_t largest_frame;
static uint64_t histogram[BUCKETS];
static uint64_t requests, latency_sum_ns, latency_max_ns, bytes_received, bytes_sent;
static uint64_t refused, mismatched, malformed, disconnected;
static long last_refusal;
static bool recording, sending = true;
static long open_connections;
static int poller;

static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) die("out of memory");
    return memory;
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* xorshift64* */
static uint32_t random_below(uint32_t limit) {
    uint64_t x = options.seed;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    options.seed = x;
    return (uint32_t)(((x * 2685821657736338717u) >> 32) * limit >> 32);
}

static unsigned bucket_of(uint64_t ns) {
    if (ns < SUB) return (unsigned)ns;
    unsigned power = 63u - (unsigned)__builtin_clzll(ns);
    return (power - SUB_BITS + 1) * SUB + (unsigned)(ns >> (power - SUB_BITS)) - SUB;
}

/* The middle of a bucket, the inverse of bucket_of. */
static uint64_t value_of(unsigned bucket) {
    if (bucket < SUB) return bucket;
    unsigned power = bucket / SUB + SUB_BITS - 1;
    uint64_t width = 1ull << (power - SUB_BITS);
    return (1ull << power) + (bucket % SUB) * width + width / 2;
}

static double percentile_us(double fraction) {
    uint64_t wanted = (uint64_t)(fraction * (double)requests), seen = 0;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        seen += histogram[bucket];
        if (seen > wanted) {
            uint64_t value = value_of(bucket);
            return (double)(value < latency_max_ns ? value : latency_max_ns) / 1000;
        }
    }
    return (double)latency_max_ns / 1000;
}

static void prepare_frames(void) {
    frames = allocate((size_t)options.topics, sizeof *frames);
    for (long i = 0; i < options.topics; i++) {
        char header[1024];
        int length = snprintf(header, sizeof header,
                              "{\"code\":105,\"extFields\":{\"topic\":\"%s%ld\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,"
                              "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":%ld}",
                              options.prefix, i, FIRST_OPAQUE, options.version);
        if (length < 0 || (size_t)length >= sizeof header) die("topic name too long");
        struct frame *frame = &frames[i];
        frame->length = (uint32_t)length + 8;
        frame->bytes = allocate(frame->length, 1);
        uint32_t total = htonl((uint32_t)length + 4), header_length = htonl((uint32_t)length);
        memcpy(frame->bytes, &total, 4);
        memcpy(frame->bytes + 4, &header_length, 4);
        memcpy(frame->bytes + 8, header, (size_t)length);
        frame->opaque_at = 8 + (uint32_t)(strstr(header, "\"opaque\":") - header) + 9;
        if (frame->length > largest_frame) largest_frame = frame->length;
    }
}

static void give_up(struct connection *connection) {
    close(connection->fd);
    connection->fd = -1;
    open_connections--;
}

static void watch(struct connection *connection, int operation, bool writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0u), .data.ptr = connection};
    if (epoll_ctl(poller, operation, connection->fd, &event) < 0) die("epoll_ctl: %s", strerror(errno));
    connection->waits_for_writing = writing;
}

static void flush(struct connection *connection) {
    while (connection->out_sent < connection->out_length) {
        ssize_t count = send(connection->fd, connection->out + connection->out_sent,
                             connection->out_length - connection->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EAGAIN) {
            if (!connection->waits_for_writing) watch(connection, EPOLL_CTL_MOD, true);
            return;
        }
        if (count < 0) {
            disconnected++;
            give_up(connection);
            return;
        }
        connection->out_sent += (size_t)count;
        if (recording) bytes_sent += (uint64_t)count;
    }
    connection->out_length = connection->out_sent = 0;
    if (connection->waits_for_writing) watch(connection, EPOLL_CTL_MOD, false);
}

/* Appends one request to the connection's output, which has room for what every slot still has to send. */
static void put_request(struct connection *connection, uint32_t slot_number, uint64_t now) {
    if (connection->out_sent > 0) {
        connection->out_length -= connection->out_sent;
        memmove(connection->out, connection->out + connection->out_sent, connection->out_length);
        connection->out_sent = 0;
    }
    const struct frame *frame = &frames[random_below((uint32_t)options.topics)];
    struct slot *slot = &connection->slots[slot_number];
    uint32_t generations = MAX_OPAQUES / (uint32_t)options.depth;
    uint32_t opaque = FIRST_OPAQUE + connection->next_generation * (uint32_t)options.depth + slot_number;
    connection->next_generation = (connection->next_generation + 1) % generations;
    slot->opaque = opaque;
    slot->sent_ns = now;
    char *at = connection->out + connection->out_length;
    memcpy(at, frame->bytes, frame->length);
    for (int digit = OPAQUE_DIGITS - 1; digit >= 0; digit--, opaque /= 10) at[frame->opaque_at + digit] = '0' + opaque % 10;
    connection->out_length += frame->length;
}

/* The number behind `name` in a JSON header; a name inside a string would have its quotes escaped. -1 if missing. */
static long header_number(const char *header, size_t length, const char *name) {
    const char *found = memmem(header, length, name, strlen(name));
    if (!found) return -1;
    char *end;
    long value = strtol(found + strlen(name), &end, 10); /* ends at the header's brace or comma at the latest */
    return end == found + strlen(name) ? -1 : value;
}

/* Judges one whole answer and asks for the next route on its slot. */
static void take_answer(struct connection *connection, const char *payload, uint32_t total, uint64_t now) {
    uint32_t word;
    memcpy(&word, payload, 4);
    word = ntohl(word);
    uint32_t header_length = word & 0xffffff;
    if (word >> 24 || header_length < 2 || header_length > total - 4 || payload[4 + header_length - 1] != '}') {
        malformed++;
        give_up(connection);
        return;
    }
    long code = header_number(payload + 4, header_length, "\"code\":");
    long opaque = header_number(payload + 4, header_length, "\"opaque\":");
    uint32_t slot_number = opaque < FIRST_OPAQUE ? 0 : (uint32_t)(opaque - FIRST_OPAQUE) % (uint32_t)options.depth;
    struct slot *slot = &connection->slots[slot_number];
    if (opaque < FIRST_OPAQUE || slot->opaque != (uint32_t)opaque) {
        mismatched++;
        give_up(connection);
        return;
    }
    if (recording) {
        uint64_t latency = now - slot->sent_ns;
        histogram[bucket_of(latency)]++;
        latency_sum_ns += latency;
        if (latency > latency_max_ns) latency_max_ns = latency;
        requests++;
        bytes_received += total + 4;
    }
    if (code != 0) {
        refused++;
        last_refusal = code;
    } else if (total - 4 - header_length < 2 || payload[4 + header_length] != '{') {
        malformed++;
    }
    slot->opaque = 0;
    if (sending) put_request(connection, slot_number, now);
}

static void receive(struct connection *connection) {
    ssize_t count = recv(connection->fd, connection->in + connection->in_length,
                         connection->in_capacity - connection->in_length, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
        disconnected++;
        give_up(connection);
        return;
    }
    connection->in_length += (size_t)count;
    uint64_t now = now_ns();
    size_t at = 0;
    while (connection->fd >= 0 && connection->in_length - at >= 4) {
        uint32_t total;
        memcpy(&total, connection->in + at, 4);
        total = ntohl(total);
        if (total < 4 || total > MAX_FRAME - 4) {
            malformed++;
            give_up(connection);
            return;
        }
        if (connection->in_length - at < (size_t)total + 4) {
            if (connection->in_capacity < (size_t)total + 4) {
                connection->in_capacity = (size_t)total + 4;
                connection->in = realloc(connection->in, connection->in_capacity);
                if (!connection->in) die("out of memory");
            }
            break;
        }
        take_answer(connection, connection->in + at + 4, total, now);
        at += (size_t)total + 4;
    }
    if (connection->fd < 0) return;
    memmove(connection->in, connection->in + at, connection->in_length - at);
    connection->in_length -= at;
    flush(connection);
}

static int connect_to_server(const struct addrinfo *address) {
    int fd = socket(address->ai_family, SOCK_STREAM, 0);
    if (fd < 0) die("socket: %s", strerror(errno));
    if (connect(fd, address->ai_addr, address->ai_addrlen) < 0)
        die("cannot connect to %s:%s: %s", options.host, options.port, strerror(errno));
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void run(void) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *address;
    int failure = getaddrinfo(options.host, options.port, &hints, &address);
    if (failure) die("%s:%s: %s", options.host, options.port, gai_strerror(failure));
    poller = epoll_create1(0);
    struct connection *connections = allocate((size_t)options.connections, sizeof *connections);
    for (long i = 0; i < options.connections; i++) {
        struct connection *connection = &connections[i];
        connection->fd = connect_to_server(address);
        connection->slots = allocate((size_t)options.depth, sizeof *connection->slots);
        connection->in_capacity = 65536;
        connection->in = allocate(connection->in_capacity, 1);
        connection->out = allocate((size_t)options.depth, largest_frame);
        open_connections++;
        watch(connection, EPOLL_CTL_ADD, false);
    }
    freeaddrinfo(address);

    uint64_t started = now_ns();
    uint64_t record_from = started + (uint64_t)(options.warm_up_seconds * 1e9);
    uint64_t end = record_from + (uint64_t)(options.seconds * 1e9);
    for (long i = 0; i < options.connections; i++) {
        for (long slot = 0; slot < options.depth; slot++) put_request(&connections[i], (uint32_t)slot, now_ns());
        flush(&connections[i]);
    }
    uint64_t now = started;
    while (now < end && open_connections > 0) {
        struct epoll_event events[MAX_EVENTS];
        int count = epoll_wait(poller, events, MAX_EVENTS, 100);
        if (count < 0 && errno != EINTR) die("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (connection->fd >= 0 && (events[i].events & EPOLLOUT)) flush(connection);
            if (connection->fd >= 0 && (events[i].events & ~(uint32_t)EPOLLOUT)) receive(connection);
        }
        now = now_ns();
        if (!recording && now >= record_from) {
            recording = true;
            record_from = now;
        }
    }
    double seconds = recording ? (double)(now - record_from) / 1e9 : 0;
    printf("{\"connections\":%ld,\"depth\":%ld,\"topics\":%ld,\"seconds\":%.3f,\"requests\":%llu,\"qps\":%.1f,"
           "\"mean_us\":%.1f,\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f,"
           "\"bytes_received\":%llu,\"bytes_sent\":%llu,\"errors\":%llu,\"refused\":%llu,\"last_refusal\":%ld,"
           "\"mismatched\":%llu,\"malformed\":%llu,\"disconnected\":%llu}\n",
           options.connections, options.depth, options.topics, seconds, (unsigned long long)requests,
           seconds > 0 ? (double)requests / seconds : 0, requests ? (double)latency_sum_ns / (double)requests / 1000 : 0,
           percentile_us(0.5), percentile_us(0.9), percentile_us(0.99), percentile_us(0.999), (double)latency_max_ns / 1000,
           (unsigned long long)bytes_received, (unsigned long long)bytes_sent,
           (unsigned long long)(refused + mismatched + malformed + disconnected), (unsigned long long)refused, last_refusal,
           (unsigned long long)mismatched, (unsigned long long)malformed, (unsigned long long)disconnected);
}

int main(int count, char **arguments) {
    enum { HOST, PORT, CONNECTIONS, DEPTH, SECONDS, WARM_UP, PREFIX, TOPICS, VERSION, SEED };
    static const struct option names[] = {
        {"host", 1, 0, HOST},       {"port", 1, 0, PORT},       {"connections", 1, 0, CONNECTIONS},
        {"depth", 1, 0, DEPTH},     {"seconds", 1, 0, SECONDS}, {"warm-up", 1, 0, WARM_UP},
        {"prefix", 1, 0, PREFIX},   {"topics", 1, 0, TOPICS},   {"version", 1, 0, VERSION},
        {"seed", 1, 0, SEED},       {0},
    };
    for (int name; (name = getopt_long(count, arguments, "", names, NULL)) != -1;) {
        switch (name) {
        case HOST: options.host = optarg; break;
        case PORT: options.port = optarg; break;
        case CONNECTIONS: options.connections = atol(optarg); break;
        case DEPTH: options.depth = atol(optarg); break;
        case SECONDS: options.seconds = atof(optarg); break;
        case WARM_UP: options.warm_up_seconds = atof(optarg); break;
        case PREFIX: options.prefix = optarg; break;
        case TOPICS: options.topics = atol(optarg); break;
        case VERSION: options.version = atol(optarg); break;
        case SEED: options.seed = strtoull(optarg, NULL, 10); break;
        default: return 2;
        }
    }
    if (optind < count) die("unexpected argument %s", arguments[optind]);
    if (options.connections < 1 || options.depth < 1 || options.topics < 1 || options.seconds <= 0 || !options.seed)
        die("connections, depth, topics, seconds and seed must be above 0");
    prepare_frames();
    run();
    return 0;
}
