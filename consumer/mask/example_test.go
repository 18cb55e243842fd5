package mask_test

import (
	"fmt"

	"github.com/firstseen/firstseen/consumer/mask"
	"github.com/firstseen/firstseen/dedup"
)

func Example() {
	rules, err := mask.New(mask.Config{Values: []string{"patients:/name"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	m := dedup.Message{Topic: "patients", Value: []byte(`{"name": {"first": "Ann"}, "ward": 9007199254740993}`)}
	fmt.Println(rules.Apply(&m))
	fmt.Printf("%s\n", m.Value)
	// Output:
	// true
	// {"name": "***", "ward": 9007199254740993}
}
