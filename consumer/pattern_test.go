package consumer_test

import (
	"log/slog"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/consumertest"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/handlers"
)

// family is a stage whose topics have the stage's own as the first part of their names, which no test's else has.
type family struct{ *stage }

func newFamily(t *testing.T, addr string) family { return family{newStage(t, addr, 1)} }

// name is that of a topic of the family.
func (f family) name(last string) string { return f.topic + "." + last }

// pattern is for those whose last part matches.
func (f family) pattern(last string) string { return regexp.QuoteMeta(f.topic) + `\.` + last }

// filled makes a topic of the family with five messages.
func (f family) filled(last string) *stage {
	f.t.Helper()
	member := f.other(f.name(last))
	consumertest.CreateTopic(f.t, f.addr, member.topic, 1)
	member.fill(5)
	return member
}

// handled registers a handler for topics and one for patterns, and has the consumer look for these often.
func (f family) handled(name string, topics []string, patterns ...string) func(*consumer.Config, *handlers.Config) {
	return func(cc *consumer.Config, hc *handlers.Config) {
		cc.PatternInterval, cc.MetadataInterval = 300*time.Millisecond, 200*time.Millisecond
		require.NoError(f.t, hc.Handlers.Add(handlers.Registration{Name: name, Handler: effect(name), Topics: topics,
			Patterns: patterns}))
	}
}

// read waits until the consumer reads these topics and no others, each without a hold.
func (f family) read(c *consumer.Consumer, last ...string) {
	f.t.Helper()
	want := []string{}
	for _, l := range last {
		want = append(want, f.name(l))
	}
	slices.Sort(want)
	var found []string
	require.Eventually(f.t, func() bool {
		found = []string{}
		for _, t := range c.Status().Topics {
			found = append(found, t.Name+t.Held)
		}
		return slices.Equal(want, found)
	}, waitLimit, waitTick, "%v", &found)
}

func (f family) effectsOf(handler string) int {
	return f.count(`select count(*) from effects where handler = $1`, handler)
}

func TestPatternReadsTopicsThatAppearLaterFromTheirFirstMessage(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		f := newFamily(t, addr)
		f.filled("a")
		f.filled("not")
		_, stop := f.run(f.handled("effect", nil, f.pattern("[a-z]")))
		f.effects(5)
		late := f.filled("b")
		f.effects(10)
		late.fill(5)
		f.effects(15)
		f.read(f.latest, "a", "b")
		late.caughtUp()
		stop()
		require.Equal(t, 15, f.count(`select count(*) from firstseen.inbox where topic in ($1, $2)`, f.name("a"),
			f.name("b")), "each topic has its own messages")

		late.fill(5)
		f.filled("c")
		f.run(f.handled("effect", nil, f.pattern("[a-z]")))
		f.effects(25)
		f.read(f.latest, "a", "b", "c")
	})
}

func TestTopicThatIsNamedBelongsToItsNameAndElseToTheFirstPattern(t *testing.T) {
	t.Parallel()
	f := newFamily(t, consumertest.NewFake(t).Addr)
	for _, last := range []string{"a", "b", "ab"} {
		f.filled(last)
	}
	f.run(func(cc *consumer.Config, hc *handlers.Config) {
		f.handled("named", []string{f.name("a")})(cc, hc)
		f.handled("all", nil, f.pattern(".*"))(cc, hc)
		f.handled("b", nil, f.pattern(".*b"))(cc, hc)
		hc.Handlers.Prefer(f.pattern("a?b"), f.pattern(".*b"))
	})
	f.effects(15)
	require.Equal(t, []int{5, 0, 10}, []int{f.effectsOf("named"), f.effectsOf("all"), f.effectsOf("b")})
}

func TestKafkasOwnTopicsAndTheDeadTopicMatchNoPattern(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		f := newFamily(t, addr)
		f.filled("a")
		f.filled("dead")
		consumertest.CreateTopic(t, addr, "__"+f.name("a"), 1)
		consumertest.Fill(t, addr, "__"+f.name("a"), 1, 5)
		_, stop := f.run(func(cc *consumer.Config, hc *handlers.Config) {
			f.handled("effect", nil, "(__)?"+f.pattern(".*"))(cc, hc)
			cc.DeadTopic = f.name("dead")
		})
		f.effects(5)
		f.filled("b")
		f.effects(10)
		f.read(f.latest, "a", "b")
		stop()
		require.Zero(t, f.count(`select count(*) from firstseen.positions where topic <> all ($1)`,
			[]string{f.name("a"), f.name("b")}))
	})
}

func TestDeletedTopicOfAPatternIsLetGo(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		f := newFamily(t, addr)
		kept, doomed := f.filled("kept"), f.filled("doomed")
		book, _ := f.run(f.handled("effect", nil, f.pattern(".*")))
		f.effects(10)
		f.read(f.latest, "doomed", "kept")
		doomed.caughtUp()
		consumertest.DeleteTopic(t, addr, doomed.topic)
		f.logged(book, slog.LevelInfo, "it is let go", "topic", doomed.topic)
		f.read(f.latest, "kept")
		kept.fill(5)
		f.effects(15)
		kept.caughtUp()
		f.eventually(func() bool { return len(f.latest.Status().Holds) == 0 }, "something is held")
		require.Zero(t, book.Times(slog.LevelError, "the topic does not exist"))
		require.Zero(t, book.Times(slog.LevelError, "giving all partitions up"))
		require.Equal(t, 1, book.Times(slog.LevelInfo, "it is let go"))
		require.False(t, f.exists(doomed.topic))
	})
}

// A member that has not seen a topic yet is not given its partitions, and the one that has reads all of them.
func TestMemberThatKnowsANewTopicReadsItBesideOneThatDoesNot(t *testing.T) {
	t.Parallel()
	consumertest.OnBrokers(t, func(t *testing.T, addr string) {
		f := newFamily(t, addr)
		f.filled("a")
		handled := f.handled("effect", nil, f.pattern(".*"))
		behind := f.consumer(func(cc *consumer.Config, hc *handlers.Config) {
			handled(cc, hc)
			cc.PatternInterval, cc.MetadataInterval = time.Hour, time.Hour // it looks at its start only
		})
		f.start(behind)
		f.effects(5)
		ahead := f.consumer(handled)
		f.start(ahead)
		f.eventually(func() bool {
			return behind.Status().State == consumer.Consuming && ahead.Status().State == consumer.Consuming
		}, "not both have joined")
		late := f.other(f.name("late"))
		consumertest.CreateTopic(t, addr, late.topic, 4)
		late.partitions = 4
		late.fill(5)
		f.effects(25)
		f.read(behind, "a")
		f.read(ahead, "a", "late")
		f.eventually(func() bool {
			return len(behind.Status().Partitions)+len(ahead.Status().Partitions) == 5
		}, "not each partition has a member")
	})
}

func TestPatternThatMatchesNothingIsSaidOnceAndLookedForAgain(t *testing.T) {
	t.Parallel()
	fake := consumertest.NewFake(t)
	f := newFamily(t, fake.Addr)
	var looks atomic.Int64 // at all topics
	fake.Cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		if r.(*kmsg.MetadataRequest).Topics == nil {
			looks.Add(1)
		}
		return nil, nil, false
	})
	book, _ := f.run(f.handled("effect", []string{f.topic}, f.pattern(".*")))
	f.logged(book, slog.LevelWarn, "no topic matches a pattern", "pattern", f.pattern(".*"))
	f.eventually(func() bool { return looks.Load() > 5 }, "it is not looked for again")
	f.filled("a")
	f.effects(5)
	require.Equal(t, 1, book.Times(slog.LevelWarn, "no topic matches a pattern"))
}

// The metadata of all topics has only those that may be described. One that may not be read is held, as a named one.
func TestDeniedTopicOfAPatternIsHeldOrNotSeen(t *testing.T) {
	t.Parallel()
	name := consumertest.Name(t)
	good, unseen, unread := name+".good", name+".unseen", name+".unread"
	fake := consumertest.NewFake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root"),
		kfake.SeedTopics(1, good, unseen, unread), kfake.User("PLAIN", user, password,
			permitted(kmsg.ACLResourceTypeGroup, name, kmsg.ACLOperationRead),
			permitted(kmsg.ACLResourceTypeTopic, good, kmsg.ACLOperationRead),
			permitted(kmsg.ACLResourceTypeTopic, unread, kmsg.ACLOperationDescribe)))
	root, err := kgo.NewClient(kgo.SeedBrokers(fake.Addr),
		kgo.SASL(plain.Auth{User: "root", Pass: "root"}.AsMechanism()))
	require.NoError(t, err)
	defer root.Close()
	for _, topic := range []string{good, unseen, unread} {
		require.NoError(t, root.ProduceSync(t.Context(), (&stage{topic: topic}).records(5, 5)...).FirstErr())
	}
	db := deduptest.New(t)
	f := family{&stage{t: t, addr: fake.Addr, group: name, topic: name, partitions: 1, dsn: db.DSN, pool: db.Pool}}
	f.exec(effectsTable)
	f.run(func(cc *consumer.Config, hc *handlers.Config) {
		f.handled("effect", nil, f.pattern(".*"))(cc, hc)
		cc.SASL = mechanisms(t)[0].consumer(password)
	})
	f.topicsAre(map[string]string{good: "", unread: holds.Denied})
	f.effects(5)
	_, err = kadm.NewClient(root).CreateACLs(t.Context(),
		kadm.NewACLs().Topics(unseen, unread).Allow("User:"+user).AllowHosts("*").Operations(kadm.OpRead))
	require.NoError(t, err)
	f.topicsAre(map[string]string{good: "", unseen: "", unread: ""})
	f.effects(15)
}
