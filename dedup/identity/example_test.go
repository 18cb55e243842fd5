package identity_test

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup/identity"
)

// An order's ID is in a header, or in the payload where an older producer sent it.
func ExampleRule() {
	var sources [2]identity.Source
	for i, text := range []string{"header:message-id", "json:/event/id"} {
		var err error
		if sources[i], err = identity.ParseSource(text); err != nil {
			fmt.Println(err)
			return
		}
	}
	rule, err := identity.NewRule(sources[:]...)
	if err != nil {
		fmt.Println(err)
		return
	}

	topicID := uuid.MustParse("7f3d2c1b-0a99-4e88-b777-665544332211")
	for _, m := range []identity.Record{
		{Headers: []identity.Header{{Key: "message-id", Value: []byte("0190B5E2-7C1A-7DEF-8123-456789ABCDEF")}}},
		{Value: []byte(`{"event": {"id": "order-17"}}`)},
		{Value: []byte(`{"event": {}}`)},
	} {
		found := rule.Find(&m, topicID)
		fmt.Printf("%s raw=%q reason=%q\n", found.ID, found.RawID, found.Reason)
	}
	// Output:
	// 0190b5e2-7c1a-7def-8123-456789abcdef raw="" reason=""
	// 5cc75ed0-efac-8162-9d37-bd74d787cc56 raw="order-17" reason=""
	// cb1d8d66-2ad9-89f6-b9e2-59fed3c179e1 raw="" reason="missing_id"
}

// A producer that may publish an event twice works out the event's ID from what the event is.
func ExampleKeyOf() {
	fmt.Println(identity.KeyOf("acme", "orders", "o-17", "shipped", 3))
	fmt.Println(identity.KeyOf("acme", "orders", "o-17", "shipped", 4))
	// Output:
	// c186fd39-45fc-853b-8cd1-026a3a928979
	// 3c44b0bf-a2a2-8bf6-991b-a28d09d3180d
}
