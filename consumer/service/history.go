package service

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/view"
)

// How often a sample is taken, how many are kept (an hour's), and of how many topics.
const (
	sampleEvery = 10 * time.Second
	maxSamples  = int(time.Hour / sampleEvery)
	maxTopics   = 20
)

// history keeps the last samples.
type history struct {
	mu      sync.Mutex
	samples []view.Sample
}

// record takes samples until ctx ends. Nobody is waited for: they are of what is in memory.
func (s *Service) record(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		s.history.add(s.sample(time.Now()))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (h *history) add(sample view.Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.samples) == maxSamples {
		h.samples = slices.Delete(h.samples, 0, 1)
	}
	h.samples = append(h.samples, sample)
}

func (s *Service) sample(now time.Time) view.Sample {
	status := s.Status()
	lag, oldest := view.Lag(status.Partitions)
	out := view.Sample{At: now.UTC(), State: string(status.State), Lag: lag, Oldest: oldest.Seconds(),
		Topics: topicSamples(status.Partitions)}
	if p := s.parts.Load(); p != nil {
		out.Totals = view.TotalsOf(p.Totals())
	}
	return out
}

func topicSamples(partitions []consumer.PartitionStatus) []view.TopicSample {
	byTopic := map[string][]consumer.PartitionStatus{}
	for _, p := range partitions {
		byTopic[p.Topic] = append(byTopic[p.Topic], p)
	}
	out := make([]view.TopicSample, 0, len(byTopic))
	for topic, of := range byTopic {
		lag, oldest := view.Lag(of)
		out = append(out, view.TopicSample{Topic: topic, Lag: lag, Oldest: oldest.Seconds()})
	}
	slices.SortFunc(out, func(a, b view.TopicSample) int { return strings.Compare(a.Topic, b.Topic) })
	return out[:min(len(out), maxTopics)]
}

// History tells how the process has been for up to an hour: a sample each ten seconds since Start, kept in memory.
func (s *Service) History() view.History {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return view.History{StartedAt: s.started.UTC(), Every: sampleEvery.Seconds(), Samples: slices.Clone(s.history.samples)}
}
