import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;

/** Reads one TopicRouteData per line; prints the queues that RocketMQ's client writes to, a tab, and those it reads. */
public final class QueuesOfRoute {
    private QueuesOfRoute() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader routes = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = routes.readLine(); line != null; line = routes.readLine()) {
            TopicRouteData route = RemotingSerializable.decode(
                line.getBytes(StandardCharsets.UTF_8), TopicRouteData.class);
            System.out.println(writable(route) + "\t"
                + names(MQClientInstance.topicRouteData2TopicSubscribeInfo("t", route)));
        }
    }

    private static String writable(TopicRouteData route) {
        try {
            return names(MQClientInstance.topicRouteData2TopicPublishInfo("t", route).getMessageQueueList());
        } catch (RuntimeException error) {
            return "error";
        }
    }

    private static String names(Collection<MessageQueue> queues) {
        return queues.stream().map(queue -> queue.getBrokerName() + ":" + queue.getQueueId())
            .collect(Collectors.joining(" "));
    }
}
