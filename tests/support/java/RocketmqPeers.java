import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * Runs unmodified mqadmin commands, producers and consumers for the tests in one JVM, because starting a JVM takes
 * longer than a command. Reads one JSON object per line and answers with one; ends at the end of its input.
 */
public final class RocketmqPeers {
    private static final PrintStream ANSWERS = System.out;
    private static ClientFlow flow;

    private RocketmqPeers() {
    }

    public static void main(String[] args) throws Exception {
        // Output of background threads must not be mistaken for an answer.
        System.setOut(System.err);
        endShutdownsSoon(Thread.currentThread());
        ANSWERS.println("{\"ready\":true}");
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JSONObject answer = new JSONObject(true);
            try {
                answer(JSON.parseObject(line), answer);
            } catch (Throwable error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                answer.put("error", trace.toString());
            }
            ANSWERS.println(answer.toJSONString());
        }
        System.exit(0);
    }

    private static void answer(JSONObject request, JSONObject answer) throws Exception {
        switch (request.getString("do")) {
            case "mqadmin":
                mqadmin(request.getJSONArray("args").toArray(new String[0]), answer);
                break;
            case "produce":
                produce(request, answer);
                break;
            case "consume":
                consume(request, answer);
                break;
            case "commands":
                answer.put("names", commandNames());
                break;
            case "publish_queues":
                answer.put("queues", publishQueues(request));
                break;
            case "start_flow":
                flow = new ClientFlow(request);
                break;
            case "stop_flow":
                flow.stop(answer, request.getLongValue("timeout_ms"));
                break;
            default:
                throw new IllegalArgumentException(request.getString("do"));
        }
    }

    private static void mqadmin(String[] args, JSONObject answer) throws ReflectiveOperationException {
        // main adds all commands again, after the previous ones, some of which can run only once.
        commands().clear();
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        PrintStream processErrors = System.err;
        System.setOut(new PrintStream(output, true));
        System.setErr(new PrintStream(errors, true));
        try {
            MQAdminStartup.main(args);
        } finally {
            System.setErr(processErrors);
            System.setOut(processErrors);
        }
        answer.put("output", output.toString());
        answer.put("errors", errors.toString());
    }

    private static void produce(JSONObject request, JSONObject answer) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("tests_producer");
        configure(producer, request);
        producer.setSendMsgTimeout(request.getIntValue("send_timeout_ms"));
        producer.start();
        try {
            List<Map<String, Object>> sent = new ArrayList<>();
            for (Object body : request.getJSONArray("bodies")) {
                byte[] bytes = ((String) body).getBytes(StandardCharsets.UTF_8);
                Message message = new Message(request.getString("topic"), "", request.getString("key"), bytes);
                SendResult result = producer.send(message);
                sent.add(Map.of(
                    "status", result.getSendStatus().name(),
                    "broker_name", result.getMessageQueue().getBrokerName(),
                    "queue_id", result.getMessageQueue().getQueueId(),
                    "queue_offset", result.getQueueOffset(),
                    "msg_id", result.getMsgId(),
                    "offset_msg_id", result.getOffsetMsgId()));
            }
            answer.put("sent", sent);
        } finally {
            producer.shutdown();
        }
    }

    /** The sub-commands in mqadmin's own list. */
    private static List<String> commandNames() throws ReflectiveOperationException {
        commands().clear();
        MQAdminStartup.initCommand();
        return commands().stream().map(SubCommand::commandName).collect(Collectors.toList());
    }

    @SuppressWarnings("unchecked")
    private static Collection<SubCommand> commands() throws ReflectiveOperationException {
        Field commands = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
        commands.setAccessible(true);
        return (Collection<SubCommand>) commands.get(null);
    }

    /** The queues to which a producer would send, by the client library's route and its order configuration. */
    private static List<Map<String, Object>> publishQueues(JSONObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("tests_producer");
        configure(producer, request);
        producer.start();
        try {
            return producer.fetchPublishMessageQueues(request.getString("topic")).stream()
                .map(queue -> Map.<String, Object>of("broker_name", queue.getBrokerName(), "queue_id", queue.getQueueId()))
                .collect(Collectors.toList());
        } finally {
            producer.shutdown();
        }
    }

    /** Subscribes, then polls until the wanted messages have arrived or the time has passed. */
    private static void consume(JSONObject request, JSONObject answer) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(request.getString("group"));
        configure(consumer, request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        Set<String> wanted = new HashSet<>(request.getJSONArray("bodies").toJavaList(String.class));
        long deadline = System.nanoTime() + request.getLongValue("timeout_ms") * 1_000_000L;
        consumer.start();
        try {
            List<Map<String, Object>> received = new ArrayList<>();
            while (!wanted.isEmpty() && System.nanoTime() < deadline) {
                for (MessageExt message : consumer.poll(100)) {
                    String body = new String(message.getBody(), StandardCharsets.UTF_8);
                    wanted.remove(body);
                    received.add(Map.of(
                        "body", body,
                        "broker_name", message.getBrokerName(),
                        "queue_id", message.getQueueId(),
                        "queue_offset", message.getQueueOffset(),
                        "msg_id", message.getMsgId(),
                        "offset_msg_id", ((MessageClientExt) message).getOffsetMsgId()));
                }
            }
            answer.put("received", received);
        } finally {
            consumer.shutdown();
        }
    }

    /**
     * NettyRemotingClient.shutdown waits for a thread that checks only every 3 s whether it should end
     * (NettyEventExecutor), in every command that has used a broker. An interrupt makes it check at once, and has no
     * other effect.
     */
    private static void endShutdownsSoon(Thread commands) {
        Thread waker = new Thread(() -> {
            while (true) {
                boolean shutsDown = Arrays.stream(commands.getStackTrace())
                    .anyMatch(frame -> frame.getClassName().equals(NettyRemotingClient.class.getName())
                        && frame.getMethodName().equals("shutdown"));
                if (shutsDown) {
                    Thread.getAllStackTraces().keySet().stream()
                        .filter(thread -> thread.getName().startsWith("NettyEventExecutor"))
                        .forEach(Thread::interrupt);
                }
                LockSupport.parkNanos(20_000_000L);
            }
        }, "shutdown-waker");
        waker.setDaemon(true);
        waker.start();
    }

    /** A separate client, which shares no connections and routes with the previous one. */
    static void configure(ClientConfig client, JSONObject request) {
        if (request.containsKey("namesrv_domain")) {
            // As with -Drocketmq.namesrv.domain and .subgroup; mqadmin leaves the value of its -n in the other property.
            System.clearProperty(MixAll.NAMESRV_ADDR_PROPERTY);
            System.setProperty("rocketmq.namesrv.domain", request.getString("namesrv_domain"));
            System.setProperty("rocketmq.namesrv.domain.subgroup", request.getString("subgroup"));
            client.setUnitName(request.getString("unit_name"));
            client.setNamesrvAddr(null);
        } else {
            client.setNamesrvAddr(request.getString("namesrv_addr"));
        }
        client.setInstanceName("tests-" + System.nanoTime());
        client.setClientIP("127.0.0.1");
        client.setVipChannelEnabled(false);
        Integer pollIntervalMs = request.getInteger("poll_interval_ms");
        client.setPollNameServerInterval(pollIntervalMs == null ? 1_000 : pollIntervalMs);
    }
}
