package oauthbearer_test

import (
	"fmt"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/oauthbearer"
)

func Example() {
	source, err := oauthbearer.ClientCredentials{
		TokenURL: "https://login.example.com/token", ClientID: "billing", ClientSecret: "of a file",
		Scopes: []string{"kafka"},
	}.Source()
	if err != nil {
		fmt.Println(err)
		return
	}
	login, err := oauthbearer.New(oauthbearer.Config{Source: source})
	kafka := consumer.Connection{Brokers: []string{"kafka-1:9093"}, SASL: login} // and TLS
	fmt.Println(kafka.SASL.Name(), err)
	// Output: OAUTHBEARER <nil>
}
