import com.alibaba.fastjson2.JSON;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The calls of rocketmq-dashboard 2.1.0, page by page, with the client class that the dashboard uses.
 * Arguments: name servers, a broker's name, a topic to create and delete. Prints the answers as JSON.
 */
public final class DashboardCalls {
    public static void main(String[] args) throws Exception {
        String nameServers = args[0];
        String broker = args[1];
        String topic = args[2];
        Map<String, Object> seen = new LinkedHashMap<>();
        DefaultMQAdminExt admin = new DefaultMQAdminExt(5000);
        admin.setNamesrvAddr(nameServers);
        admin.start();
        try {
            // Page "Cluster".
            ClusterInfo clusters = admin.examineBrokerClusterInfo();
            String addr = clusters.getBrokerAddrTable().get(broker).getBrokerAddrs().get(0L);
            seen.put("brokers", clusters.getClusterAddrTable());
            seen.put("version", admin.fetchBrokerRuntimeStats(addr).getTable().get("brokerVersionDesc"));
            seen.put("broker_config", admin.getBrokerConfig(addr).getProperty("brokerName"));
            // Page "OPS".
            seen.put("name_servers", admin.getNameServerAddressList());
            // Page "Topic": create, show, configure, delete.
            Set<String> before = admin.fetchAllTopicList().getTopicList();
            admin.createAndUpdateTopicConfig(addr, new TopicConfig(topic, 6, 6, 6));
            seen.put("created", await(() -> admin.fetchAllTopicList().getTopicList().contains(topic)));
            TopicRouteData route = admin.examineTopicRouteInfo(topic);
            seen.put("queues", route.getQueueDatas().get(0).getWriteQueueNums());
            seen.put("route_brokers", List.copyOf(route.getBrokerDatas().get(0).getBrokerAddrs().values()));
            seen.put("queues_with_offsets", admin.examineTopicStats(topic).getOffsetTable().size());
            seen.put("config", admin.examineTopicConfig(addr, topic).getReadQueueNums());
            admin.createAndUpdateTopicConfig(addr, new TopicConfig(topic, 4, 4, 6));
            seen.put("changed", await(() ->
                admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getWriteQueueNums() == 4));
            // Page "Consumer".
            SubscriptionGroupConfig group = new SubscriptionGroupConfig();
            group.setGroupName("dashboard_group");
            admin.createAndUpdateSubscriptionGroupConfig(addr, group);
            seen.put("groups", admin.getAllSubscriptionGroup(addr, 5000).getSubscriptionGroupTable()
                .containsKey("dashboard_group"));
            // Write permission, which older dashboards and mqadmin change.
            seen.put("wiped", admin.wipeWritePermOfBroker(nameServers.split(";")[0], broker) > 0);
            seen.put("perm_wiped", admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getPerm());
            seen.put("added", admin.addWritePermOfBroker(nameServers.split(";")[0], broker) > 0);
            seen.put("perm_added", admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getPerm());
            admin.deleteTopicInBroker(Set.of(addr), topic);
            admin.deleteTopicInNameServer(Set.of(nameServers.split(";")), topic);
            seen.put("deleted", await(() -> !admin.fetchAllTopicList().getTopicList().contains(topic)));
            seen.put("others_stay", admin.fetchAllTopicList().getTopicList().containsAll(before));
        } finally {
            admin.shutdown();
        }
        System.out.println(JSON.toJSONString(seen));
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static boolean await(Condition condition) throws Exception {
        for (int i = 0; i < 300; i++) {
            try {
                if (condition.holds()) {
                    return true;
                }
            } catch (org.apache.rocketmq.client.exception.MQClientException notYet) {
                // No route yet.
            }
            Thread.sleep(50);
        }
        return false;
    }

    private DashboardCalls() {
    }
}
