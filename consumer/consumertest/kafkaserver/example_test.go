package kafkaserver_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer/consumertest/kafkaserver"
)

func Example() {
	ctx := context.Background()
	cluster, err := kafkaserver.Start(ctx, kafkaserver.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()

	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Addrs()...))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	fmt.Println(len(cluster.Brokers), client.Ping(ctx))
	// Output: 1 <nil>
}
