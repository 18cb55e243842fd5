package crashtest_test

import (
	"fmt"
	"strings"

	"github.com/firstseen/firstseen/consumer/crashtest"
)

func ExampleReadMessages() {
	sample := `{"key": "alice", "id": "p-1", "payload": {"cents": 250}}
{"topic": "refunds", "key": "alice", "text": "p-1"}`
	messages, err := crashtest.ReadMessages(strings.NewReader(sample), "payments")
	for _, m := range messages {
		fmt.Printf("%s %s %s\n", m.Topic, m.Key, m.Value)
	}
	fmt.Println(err)
	// Output:
	// payments alice {"cents": 250}
	// refunds alice p-1
	// <nil>
}
