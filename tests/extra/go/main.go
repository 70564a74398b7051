// Produces and consumes through a name server with rocketmq-client-go/v2, and prints the results as one JSON object.
//
//	client -namesrv 127.0.0.1:9876 -topic T -count 20 -timeout 60s
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// Seen is the output that the test reads.
type Seen struct {
	Sent     []string       `json:"sent"`
	Received []string       `json:"received"`
	Brokers  map[string]int `json:"brokers"`
}

func main() {
	namesrv := flag.String("namesrv", "", "host:port of a name server")
	topic := flag.String("topic", "", "existing topic")
	count := flag.Int("count", 20, "messages to send")
	timeout := flag.Duration("timeout", time.Minute, "for all of them to arrive")
	flag.Parse()
	rlog.SetLogLevel("error")
	seen, err := exchange(*namesrv, *topic, *count, *timeout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(seen); err != nil {
		os.Exit(1)
	}
}

func exchange(namesrv, topic string, count int, timeout time.Duration) (*Seen, error) {
	run := fmt.Sprintf("go_%d", time.Now().UnixNano())
	seen := &Seen{Brokers: map[string]int{}}
	sent, err := send(namesrv, topic, run, count, seen.Brokers)
	if err != nil {
		return nil, err
	}
	seen.Sent = sent
	seen.Received, err = receive(namesrv, topic, run, sent, timeout)
	return seen, err
}

func send(namesrv, topic, run string, count int, brokers map[string]int) ([]string, error) {
	client, err := rocketmq.NewProducer(
		producer.WithNameServer(primitive.NamesrvAddr{namesrv}),
		producer.WithGroupName(run),
		producer.WithInstanceName(run+"_producer"),
	)
	if err != nil {
		return nil, err
	}
	if err := client.Start(); err != nil {
		return nil, err
	}
	defer func() { _ = client.Shutdown() }()
	var sent []string
	for number := 0; number < count; number++ {
		body := fmt.Sprintf("%s_%d", run, number)
		result, err := client.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body)))
		if err != nil {
			return nil, err
		}
		if result.Status != primitive.SendOK {
			return nil, fmt.Errorf("not stored correctly: %s", result.String())
		}
		brokers[result.MessageQueue.BrokerName]++
		sent = append(sent, body)
	}
	return sent, nil
}

func receive(namesrv, topic, run string, wanted []string, timeout time.Duration) ([]string, error) {
	client, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(primitive.NamesrvAddr{namesrv}),
		consumer.WithGroupName(run),
		consumer.WithInstance(run+"_consumer"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	var guard sync.Mutex
	missing := map[string]bool{}
	for _, body := range wanted {
		missing[body] = true
	}
	received := []string{}
	complete := make(chan struct{})
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		guard.Lock()
		defer guard.Unlock()
		for _, message := range messages {
			if body := string(message.Body); missing[body] {
				delete(missing, body)
				received = append(received, body)
				if len(missing) == 0 {
					close(complete)
				}
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := client.Subscribe(topic, consumer.MessageSelector{}, take); err != nil {
		return nil, err
	}
	if err := client.Start(); err != nil {
		return nil, err
	}
	defer func() { _ = client.Shutdown() }()
	select {
	case <-complete:
	case <-time.After(timeout):
	}
	guard.Lock()
	defer guard.Unlock()
	return append([]string{}, received...), nil
}
