/*
 * Puts load on a RocketMQ name server; tests/bench/load.py builds and runs it.
 *
 * loadgen HOST PORT [--seed N] [--warm-up S] [--seconds S] [--drain S] [--before KIND]
 *         --stream CONNECTIONS:DEPTH[:RATE[:AT_S]] --kind KIND [--kind KIND ...] [--stream ...]
 *
 * The frames of --before are sent first, each once, sixteen at a time, and all are answered before the load begins. At
 * the end, the program waits for outstanding answers for --drain seconds at most.
 * Prints one JSON object, which includes the errors; exit code 2 if the arguments are invalid or it could not connect.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "connection.h"
#include "program.h"
#include "traffic.h"

enum { MAX_STREAMS = 8, BEFORE_USERS = 16 };
static const double BEFORE_TIMEOUT_S = 120;

static uint64_t ns(double seconds) { return (uint64_t)(seconds * 1e9); }

static double own_cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void print_kind(const struct kind *kind, double seconds, bool is_last) {
    const struct histogram *latency = &kind->latency;
    static const struct {
        const char *name;
        double fraction;
    } percentiles[] = {{"p50_us", 0.5}, {"p90_us", 0.9}, {"p99_us", 0.99}, {"p999_us", 0.999}};
    double span_s = latency->total ? (double)(kind->last_answered_ns - kind->first_due_ns) / 1e9 : 0;
    printf("\"%s\":{\"sent\":%llu,\"answered\":%llu,\"per_second\":%.1f,\"span_s\":%.4f,\"mean_us\":%.1f,\"max_us\":%.1f,",
           kind->name, (unsigned long long)kind->sent, (unsigned long long)latency->total,
           seconds > 0 ? (double)kind->answered_in_time / seconds : 0, span_s,
           latency->total ? (double)latency->sum_ns / (double)latency->total / 1e3 : 0, (double)latency->max_ns / 1e3);
    for (size_t i = 0; i < sizeof percentiles / sizeof *percentiles; i++)
        printf("\"%s\":%.1f,", percentiles[i].name, (double)histogram_percentile_ns(latency, percentiles[i].fraction) / 1e3);
    printf("\"bytes_sent\":%llu,\"bytes_received\":%llu,\"refused\":%llu,\"last_refusal\":%ld,\"empty\":%llu,\"lost\":%llu,",
           (unsigned long long)kind->bytes_sent, (unsigned long long)kind->bytes_received,
           (unsigned long long)kind->refused, kind->last_refusal, (unsigned long long)kind->empty,
           (unsigned long long)kind->lost);
    printf("\"histogram_ns\":[");
    const char *separator = "";
    for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        if (!latency->counts[bucket]) continue;
        printf("%s[%llu,%llu]", separator, (unsigned long long)histogram_value_of(bucket),
               (unsigned long long)latency->counts[bucket]);
        separator = ",";
    }
    printf("]}%s", is_last ? "" : ",");
}

static struct stream *read_stream(struct stream *stream, const char *description) {
    stream->at_s = -1;
    int fields = sscanf(description, "%u:%u:%lf:%lf", &stream->connections, &stream->depth, &stream->rate, &stream->at_s);
    if (fields < 2 || !stream->depth || stream->rate < 0) die("a stream is CONNECTIONS:DEPTH[:RATE[:AT_S]]");
    return stream;
}

static void add_kind(struct stream *stream, struct kind *kind) {
    if (!stream || stream->kind_count == MAX_KINDS) die("kind %s: no stream, or too many kinds in it", kind->name);
    stream->kinds[stream->kind_count++] = kind;
}

int main(int count, char **arguments) {
    enum { SEED, WARM_UP, SECONDS, DRAIN, BEFORE, STREAM, KIND };
    static const struct option names[] = {
        {"seed", 1, 0, SEED},     {"warm-up", 1, 0, WARM_UP}, {"seconds", 1, 0, SECONDS}, {"drain", 1, 0, DRAIN},
        {"before", 1, 0, BEFORE}, {"stream", 1, 0, STREAM},   {"kind", 1, 0, KIND},       {0},
    };
    static struct stream streams[1 + MAX_STREAMS]; /* the first is that of --before */
    uint32_t stream_count = 1;
    double warm_up_s = 1, seconds = 5, drain_s = 10;
    uint64_t seed = 1;
    for (int name; (name = getopt_long(count, arguments, "", names, NULL)) != -1;) {
        switch (name) {
        case SEED: seed = strtoull(optarg, NULL, 10); break;
        case WARM_UP: warm_up_s = atof(optarg); break;
        case SECONDS: seconds = atof(optarg); break;
        case DRAIN: drain_s = atof(optarg); break;
        case BEFORE:
            streams[0].depth = BEFORE_USERS;
            add_kind(&streams[0], read_kind(optarg));
            break;
        case STREAM:
            if (stream_count > MAX_STREAMS) die("at most %d streams", MAX_STREAMS);
            read_stream(&streams[stream_count++], optarg);
            break;
        case KIND: add_kind(stream_count > 1 ? &streams[stream_count - 1] : NULL, read_kind(optarg)); break;
        default: return 2;
        }
    }
    if (count - optind != 2 || !seed || seconds <= 0) die("expected HOST and PORT, a seed and seconds above 0");
    for (uint32_t i = 1; i < stream_count; i++)
        if (!streams[i].kind_count) die("a stream without a kind");
    seed_random(seed);
    bool has_before = streams[0].kind_count > 0;
    struct stream *first = has_before ? streams : streams + 1;
    open_traffic(arguments[optind], arguments[optind + 1], first, stream_count - (has_before ? 0 : 1));

    uint64_t started = now_ns();
    if (has_before) {
        streams[0].begins_ns = started;
        run_traffic(started + ns(BEFORE_TIMEOUT_S), true);
        if (give_up_outstanding()) die("no answer within %g s to what comes before", BEFORE_TIMEOUT_S);
    }
    double before_s = (double)(now_ns() - started) / 1e9;

    started = now_ns();
    uint64_t measured_from = started + ns(warm_up_s);
    for (uint32_t i = 1; i < stream_count; i++)
        streams[i].begins_ns = streams[i].at_s < 0 ? started : measured_from + ns(streams[i].at_s);
    measured_from = run_traffic(measured_from, false);
    double cpu_s = own_cpu_s();
    longest_turn_ns = 0;
    record_traffic(true);
    uint64_t ended = run_traffic(measured_from + ns(seconds), false);
    cpu_s = own_cpu_s() - cpu_s;
    uint64_t longest_ns = longest_turn_ns;
    uint64_t unsent = end_traffic();
    run_traffic(ended + ns(drain_s), true);
    uint64_t unanswered = give_up_outstanding();

    double measured_s = (double)(ended - measured_from) / 1e9;
    printf("{\"seconds\":%.3f,\"before_s\":%.3f,\"cpu_s\":%.3f,\"longest_turn_us\":%.1f,\"mismatched\":%llu,"
           "\"malformed\":%llu,\"disconnected\":%llu,\"unanswered\":%llu,\"unsent\":%llu,\"kinds\":{",
           measured_s, before_s, cpu_s, (double)longest_ns / 1e3, (unsigned long long)connection_errors.mismatched,
           (unsigned long long)connection_errors.malformed, (unsigned long long)connection_errors.disconnected,
           (unsigned long long)unanswered, (unsigned long long)unsent);
    for (uint32_t i = 0; i < stream_count; i++)
        for (uint32_t k = 0; k < streams[i].kind_count; k++)
            print_kind(streams[i].kinds[k], measured_s, i == stream_count - 1 && k == streams[i].kind_count - 1);
    printf("}}\n");
    return 0;
}
