package mskiam_test

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/mskiam"
	"github.com/firstseen/firstseen/consumer/oauthbearer"
)

func Example() {
	source, err := mskiam.Source(context.Background(), "eu-west-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	login, err := oauthbearer.New(oauthbearer.Config{Source: source})
	kafka := consumer.Connection{Brokers: []string{"b-1.shop.c2.kafka.eu-west-1.amazonaws.com:9098"},
		TLS: &tls.Config{MinVersion: tls.VersionTLS12}, SASL: login}
	fmt.Println(kafka.SASL.Name(), err)
	// Output: OAUTHBEARER <nil>
}
