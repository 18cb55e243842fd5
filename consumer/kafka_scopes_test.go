package consumer_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/handlers"
)

func TestOneIDRunsOnceForEachHandler(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		s := newStage(t, addr, 1)
		other := s.other(consumertest.Name(t) + "-other")
		consumertest.CreateTopic(t, addr, other.topic, 1)
		id := uuid.NewString()
		both := []*kgo.Record{s.record("k", "v", id), other.record("k", "v", id)}
		consumertest.Produce(t, addr, both...)
		s.start(s.consumer(func(_ *consumer.Config, h *handlers.Config) {
			require.NoError(t, h.Handlers.Register("a", effect("a"), s.topic))
			require.NoError(t, h.Handlers.Register("b", effect("b"), other.topic))
		}))
		s.caughtUp()
		other.caughtUp()
		consumertest.Produce(t, addr, both...)
		s.caughtUp()
		other.caughtUp()
		require.Equal(t, 2, s.count(`select count(*) from effects`))
		require.Equal(t, 2, s.count(`select count(distinct handler) from effects where message_id = $1`, id))
		require.Equal(t, 2, s.count(`select count(*) from firstseen.inbox`))
		require.EqualValues(t, 2, s.committed(0))
	})
}

// ofTenant is a record with the tenant headers given, repeated ones too.
func (s *stage) ofTenant(id string, tenants ...string) *kgo.Record {
	r := s.record("k", "v", id)
	for _, tenant := range tenants {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "tenant", Value: []byte(tenant)})
	}
	return r
}

func (s *stage) byTenant() func(*consumer.Config, *handlers.Config) {
	return settings(func(c *consumer.Config) {
		c.Topics = []consumer.Topic{{Name: s.topic, TenantHeader: "tenant"}}
	})
}

func TestOneIDRunsOnceForEachTenant(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	id := uuid.NewString()
	both := []*kgo.Record{s.ofTenant(id, "a"), s.ofTenant(id, "b"), s.ofTenant(id, "a", "a")}
	consumertest.Produce(t, s.addr, both...)
	s.start(s.consumer(s.byTenant()))
	s.caughtUp()
	consumertest.Produce(t, s.addr, both...)
	s.caughtUp()
	require.Equal(t, 2, s.count(`select count(*) from effects where message_id = $1`, id))
	require.Equal(t, 2,
		s.count(`select count(distinct s.tenant) from firstseen.inbox i join firstseen.scopes s using (scope_id)
		where s.tenant in ('a', 'b')`))
}

func TestUnusableTenantIsADeadLetterAndHidesNobodysMessage(t *testing.T) {
	t.Parallel()
	for name, tenants := range map[string][]string{
		"missing": nil, "empty": {""}, "two": {"a", "b"}, "one and an empty one": {"a", ""},
		"too long": {strings.Repeat("a", dedup.MaxTenantBytes+1)},
		"not text": {"\xff"}, "with a NUL": {"a\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, consumertest.NewFake(t).Addr, 1)
			id := uuid.NewString()
			consumertest.Produce(t, s.addr, s.ofTenant(uuid.NewString(), "a"), s.ofTenant(id, tenants...),
				s.ofTenant(id, "a"), s.ofTenant(id, tenants...), s.ofTenant(id, "b"))
			s.start(s.consumer(s.byTenant()))
			s.caughtUp()
			require.Equal(t, 3, s.count(`select count(*) from effects`))
			require.Equal(t, 2, s.count(`select count(*) from effects where message_id = $1`, id))
			require.Equal(t, 2, s.count(`select count(*) from firstseen.dead_letters where reason = 'bad_tenant'
				and "offset" in (1, 3) and key = 'k' and payload = 'v'`))
			require.Equal(t, 2, s.count(`select count(*) from firstseen.dead_letters`))
		})
	}
}

func TestLongestTenantIsTaken(t *testing.T) {
	t.Parallel()
	s := newStage(t, consumertest.NewFake(t).Addr, 1)
	consumertest.Produce(t, s.addr, s.ofTenant(uuid.NewString(), strings.Repeat("a", dedup.MaxTenantBytes)))
	s.start(s.consumer(s.byTenant()))
	s.caughtUp()
	s.requireOnce(1)
}
