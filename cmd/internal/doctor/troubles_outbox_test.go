package doctor

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/cmd/internal/config"
)

// unsentSQL has so many messages of a topic in the outbox for so long, and all with the content that is told.
func unsentSQL(topic string, n int, age, payload string) string {
	return fmt.Sprintf(`insert into firstseen.outbox (outbox_id, added_at, message_id, shard, topic, tenant, payload)
		select nextval('firstseen.outbox_seq'), now() - interval '%s', gen_random_uuid(), n %% 16, '%s', '', %s
		from generate_series(1, %d) n`, age, topic, payload, n)
}

const different = `n::text::bytea`

// waits is a trouble by what lies in the outbox.
func waits(level Level, seen, sql string) trouble {
	return trouble{level, seen, func(l *lab) {
		l.also(sendsTo("events"))
		l.sql(sql)
		l.heal(func() { l.sql(`truncate firstseen.outbox`) })
	}}
}

func sendsTo(topics ...string) func(*config.Config) {
	return func(c *config.Config) {
		c.Outbox.Destinations = []config.Destination{{Name: "kafka", Topics: topics}}
	}
}

// buried are dead letters of the outbox.
func buried(level Level, seen string, n int) trouble {
	return trouble{level, seen, func(l *lab) {
		l.sql(`insert into firstseen.scopes (inbox, handler, tenant) values ('outbox', 'kafka', '')`)
		l.sql(`insert into firstseen.dead_letters (scope_id, message_id, topic, "partition", "offset", reason)
			select scope_id, gen_random_uuid(), 'events', 0, n, 'permanent' from firstseen.scopes, generate_series(1, $1::int) n
			where inbox = 'outbox'`, n)
		l.heal(func() {
			l.sql(`delete from firstseen.dead_letters where topic = 'events'; delete from firstseen.scopes where inbox = 'outbox'`)
		})
	}}
}

var outboxTroubles = map[string][]trouble{
	"outbox.unsent": {waits(Warning, `^3 messages to topic events wait to be sent, the oldest for 1h`,
		unsentSQL("events", 3, "1 hour", different))},
	"outbox.destinations": {waits(Warning, `^2 messages of topic evnts are in the outbox, and no destination of the config`,
		unsentSQL("evnts", 2, "0", different))},
	"outbox.growing": {trouble{Warning, `^topic events: 5 messages waited to be sent, and 7 did 3s later`, func(l *lab) {
		l.sql(`truncate firstseen.outbox`)
		l.sql(unsentSQL("events", 5, "0", different))
		l.meanwhile(func() { l.sql(unsentSQL("events", 2, "0", different)) })
		l.heal(func() { l.sql(`truncate firstseen.outbox`) })
	}}.under(func(m *limits) { m.unsent = 4 })},
	"outbox.dead": {buried(Info, `^3 messages to topic events were given up`, 3),
		buried(Warning, `^1000 messages to topic events were given up`, 1000)},
	"outbox.duplicates": {
		waits(Warning, `^topic events: 19 of the newest 20 messages have key and content of one`,
			unsentSQL("events", 20, "0", `'same'`)),
		waits(Info, `^topic events: 4 of the newest 100 messages have key`,
			unsentSQL("events", 100, "0", `greatest(n, 5)::text::bytea`)),
	},
	"outbox.bloat": {waits(Warning, `^it takes [\d.]+ \w+ for 1 messages`,
		unsentSQL("events", 1000, "0", `sha256(n::text::bytea)`)+`; delete from firstseen.outbox where outbox_id < (select max(outbox_id) from firstseen.outbox)`).
		under(func(m *limits) { m.outboxBytes = 64 << 10 })},
}

// requireOutboxSilentByRight has what waits by right.
func (l *lab) requireOutboxSilentByRight(t *testing.T) {
	defer l.healthy()
	checks, err := Select([]string{"outbox.unsent"})
	require.NoError(t, err)
	l.also(sendsTo("events"))
	l.sql(unsentSQL("events", 3, "1 hour", different))
	l.heal(func() { l.sql(`truncate firstseen.outbox, firstseen.pauses`) })
	require.Equal(t, Warning, Worst(l.check(&checks[0])))
	for _, pause := range [][2]string{{"topic", "events"}, {"handler", "kafka"}} {
		l.sql(`insert into firstseen.pauses (inbox, kind, name, actor, why) values ('outbox', $1, $2, 'ann', 'x')`,
			pause[0], pause[1])
		require.Equal(t, OK, Worst(l.check(&checks[0])), pause)
		l.sql(`truncate firstseen.pauses`)
	}
}
