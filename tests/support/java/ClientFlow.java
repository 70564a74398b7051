import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer that repeatedly sends and queries its route, and a push consumer of the same topic, while the test
 * disturbs their name servers and brokers. Times are System.nanoTime, CLOCK_MONOTONIC as in Python, in ms.
 */
final class ClientFlow {
    private final DefaultMQProducer producer = new DefaultMQProducer("tests_flow_producer");
    private final DefaultMQPushConsumer consumer;
    private final Set<String> sent = ConcurrentHashMap.newKeySet();
    private final Set<String> received = ConcurrentHashMap.newKeySet();
    private final List<Map<String, Object>> sendFailures = new ArrayList<>();
    private final List<Map<String, Object>> queryFailures = new ArrayList<>();
    private final List<Thread> loops = new ArrayList<>();
    private final String topic;
    private final long intervalMs;
    private volatile boolean stopping;
    private int queries;
    private long slowestQueryMs;

    /** Starts and sends the first message; without an interval, its clients only stay connected. */
    ClientFlow(JSONObject request) throws MQClientException {
        topic = request.getString("topic");
        intervalMs = request.getLongValue("interval_ms");
        RocketmqPeers.configure(producer, request);
        if (!request.getBooleanValue("retries")) {
            // The client would repeat a failed send at another broker, which would hide the failure.
            producer.setRetryTimesWhenSendFailed(0);
        }
        producer.start();
        consumer = new DefaultMQPushConsumer(request.getString("group"));
        RocketmqPeers.configure(consumer, request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPersistConsumerOffsetInterval(1_000);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                received.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (intervalMs > 0) {
            // The producer has the route since its first message, so no later send needs a name server.
            send();
            // Separate threads, because a send that waits for a dead broker must not delay the route queries.
            startLoop("flow-sends", this::send);
            startLoop("flow-queries", this::query);
        }
    }

    /** Ends when all sent messages have arrived, or the time has passed. */
    void stop(JSONObject answer, long timeoutMs) throws InterruptedException {
        stopping = true;
        for (Thread loop : loops) {
            loop.join();
        }
        long deadline = System.nanoTime() + timeoutMs * 1_000_000L;
        while (!received.containsAll(sent) && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
        answer.put("sent", sent.size());
        answer.put("missing", sent.stream().filter(body -> !received.contains(body)).count());
        answer.put("send_failures", sendFailures);
        answer.put("queries", queries);
        answer.put("query_failures", queryFailures);
        answer.put("slowest_query_ms", slowestQueryMs);
        consumer.shutdown();
        producer.shutdown();
    }

    private void startLoop(String name, Runnable step) {
        Thread thread = new Thread(() -> {
            while (!stopping) {
                step.run();
                try {
                    Thread.sleep(intervalMs);
                } catch (InterruptedException interrupted) {
                    return;
                }
            }
        }, name);
        loops.add(thread);
        thread.start();
    }

    private void send() {
        String body = "flow-" + System.nanoTime();
        long begunMs = nowMs();
        try {
            producer.send(new Message(topic, body.getBytes(StandardCharsets.UTF_8)));
            sent.add(body);
        } catch (Exception failure) {
            sendFailures.add(failure(begunMs, failure));
        }
    }

    private void query() {
        long begunMs = nowMs();
        try {
            producer.fetchPublishMessageQueues(topic);
        } catch (Exception failure) {
            queryFailures.add(failure(begunMs, failure));
        }
        queries++;
        slowestQueryMs = Math.max(slowestQueryMs, nowMs() - begunMs);
    }

    private static Map<String, Object> failure(long begunMs, Exception error) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            text.append(text.length() == 0 ? "" : " because of ").append(cause);
        }
        return Map.of("begun_ms", begunMs, "ended_ms", nowMs(), "error", text.toString());
    }

    private static long nowMs() {
        return System.nanoTime() / 1_000_000L;
    }
}
