package service

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/view"
	"github.com/firstseen/firstseen/handlers"
)

func TestHistoryHasTheLastHoursSamples(t *testing.T) {
	s := &Service{started: time.Now()}
	status := consumer.Status{State: consumer.Consuming, Partitions: []consumer.PartitionStatus{
		{Topic: "orders", Lag: 4, LagTime: time.Second}, {Topic: "mail", Lag: -1}, {Topic: "orders", Partition: 1, Lag: 3}}}
	s.parts.Store(&attached{Parts: Parts{Status: func() consumer.Status { return status },
		Totals: func() handlers.Totals { return handlers.Totals{Handled: 9} }}})
	begin := time.Now().UTC()
	for n := range maxSamples + 1 {
		s.history.add(s.sample(begin.Add(time.Duration(n) * sampleEvery)))
	}
	h := s.History()
	require.Len(t, h.Samples, maxSamples)
	require.Equal(t, view.Sample{At: begin.Add(sampleEvery), State: "consuming", Lag: 7, Oldest: 1,
		Totals: view.Totals{Handled: 9}, Topics: []view.TopicSample{{Topic: "mail"}, {Topic: "orders", Lag: 7, Oldest: 1}}},
		h.Samples[0])
}
