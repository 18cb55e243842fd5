package main

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/firstseen/firstseen/consumer"
	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/consumer/consumertest"
)

// newShortShop is a shop whose topic keeps messages for little more than an hour.
func newShortShop(t *testing.T) *shop {
	t.Helper()
	s := newShop(t, booking)
	s.topic = consumertest.Name(t)
	consumertest.CreateTopic(t, s.addr, s.topic, 2, "retention.ms=3600000", "segment.ms=600000")
	return s
}

// setBack has the group stand at the beginning of the topic, in Kafka. It has no members any more: the broker is told
// so of those that were killed.
func (s *shop) setBack() {
	s.t.Helper()
	cluster, err := cluster.New(cluster.Config{Connection: consumer.Connection{Brokers: []string{s.addr}}})
	require.NoError(s.t, err)
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addr))
	require.NoError(s.t, err)
	defer client.Close()
	group, err := cluster.Group(s.t.Context(), s.group)
	require.NoError(s.t, err)
	for _, m := range group.Members {
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group, leave.MemberID = s.group, m.ID
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = m.ID
		leave.Members = append(leave.Members, member)
		_, err := leave.RequestWith(s.t.Context(), client)
		require.NoError(s.t, err)
	}
	require.NoError(s.t, cluster.CommitOffsets(s.t.Context(), s.group, s.topic, map[int32]int64{0: 0, 1: 0}))
}

func (s *shop) exec(sql string) {
	s.t.Helper()
	_, err := s.db.Pool.Exec(s.t.Context(), sql)
	require.NoError(s.t, err)
}

// answerRequests has as many answers to HTTP requests whose time is over.
func (s *shop) answerRequests(n int) {
	s.t.Helper()
	_, err := s.db.Pool.Exec(s.t.Context(),
		`insert into firstseen.idempotency (id, key_hash, tenant, scope, route, fingerprint, status, expires_at)
		select sha256(i::text::bytea), '', '', '', '', '', 200, now() from generate_series(1, $1::int) i`, n)
	require.NoError(s.t, err)
}

// A hundred messages are processed, the process is killed before it commits an offset, and is away for longer than IDs
// are kept: it is given them all again.
func TestStartupCleanupForgetsNoIDBeforeItsRedelivery(t *testing.T) {
	s := newShortShop(t)
	s.setBack()
	s.produce(0, 100)
	killed := start(t, s.config(s.db.DSN)+"timeouts: {commit_interval: 1h}\n", "run")
	eventually(t, func() bool { return s.booked() == 100 })
	killed.signal(syscall.SIGKILL)
	killed.exit()
	require.Zero(t, consumertest.CommittedOffset(t, s.addr, s.group, s.topic, 0))
	s.exec(`update firstseen.message_dedup set first_seen_at = now() - interval '1 day'`)

	keeping := s.config(s.db.DSN) + "timeouts: {commit_interval: 1ms}\nretention: {ids: 12h}\n"
	require.NoError(t, os.WriteFile(killed.config, []byte(keeping), 0o600))
	s.setBack()
	_, stderr, code := command(t, "retention", "run", "--why", "test", "--config", killed.config)
	require.Equal(t, exitFailure, code)
	require.Contains(t, stderr, "and has committed 0 to Kafka: it would be given what is between again")
	p := start(t, keeping, "run")
	eventually(t, func() bool { return strings.Contains(p.log.String(), "retention: ") })
	eventually(t, func() bool {
		return consumertest.CommittedOffset(t, s.addr, s.group, s.topic, 0)+consumertest.CommittedOffset(t, s.addr,
			s.group, s.topic, 1) == 100
	})
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	require.Equal(t, 100, s.booked(), "each took effect once")

	// The same with force shows that they did come again.
	s.setBack()
	s.exec(`update firstseen.message_dedup set first_seen_at = now() - interval '1 day'`)
	_, stderr, code = command(t, "retention", "run", "--why", "test", "--config", p.config, "--force")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--yes")
	_, stderr, code = command(t, "retention", "run", "--why", "test", "--config", p.config, "--force", "--yes")
	require.Equal(t, exitOK, code, stderr)
	again := start(t, keeping, "run")
	eventually(t, func() bool { return s.booked() == 200 })
	again.signal(syscall.SIGTERM)
	again.exit()
}

func TestRetentionPlanAndRunSayWhatGoesAndWhatIsKeptAndWhy(t *testing.T) {
	s := newShortShop(t)
	s.setBack()
	s.produce(0, 10)
	s.answerRequests(3)
	p := start(t, s.config(s.db.DSN), "run")
	eventually(t, func() bool { return s.booked() == 10 })
	eventually(t, func() bool { return strings.Contains(p.log.String(), "answers=3") })
	p.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, p.exit())
	s.exec(`update firstseen.message_dedup set first_seen_at = now() - interval '1 day'`)
	conf := func(retention string) {
		require.NoError(t, os.WriteFile(p.config, []byte(s.config(s.db.DSN)+"timeouts: {commit_interval: "+
			"1ms}\nretention: "+retention+"\n"), 0o600))
	}
	run := func(code int, args ...string) (stdout, stderr string) {
		t.Helper()
		stdout, stderr, got := command(t, append(append([]string{"retention"}, args...), "--config", p.config)...)
		require.Equal(t, code, got, stdout+stderr)
		return stdout, stderr
	}
	conf("{}")
	_, stderr := run(exitFailure, "plan")
	require.Contains(t, stderr, "nothing is ever deleted, but for answers to HTTP requests that have expired")
	s.answerRequests(2)
	conf("{ids: 2h}")
	stdout, _ := run(exitOK, "plan")
	require.Regexp(t, `(?m)^book +2h0m0s +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +10 +kept: see below$`, stdout)
	require.Contains(t, stdout, "- topic "+s.topic+" may hold messages for 2h10m0s (retention.ms 1h0m0s, segment.ms "+
		"10m0s, and an hour for clocks)")
	require.Contains(t, stdout, "\nanswers to HTTP requests: 2 have expired\n")
	_, stderr = run(exitFailure, "run", "--why", "test")
	require.Contains(t, stderr, "IDs are kept, because their messages may come again: topic "+s.topic)
	s.answerRequests(2) // the run has swept the others
	conf("{ids: 3h, inbox: 1d}")
	stdout, _ = run(exitOK, "plan", "--json")
	var plan struct {
		Handlers []struct {
			Handler      string
			IDsEstimated int `json:"ids_estimated"`
			Refused      []string
		}
		AnswersExpired *int `json:"answers_expired"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &plan))
	require.Equal(t, new(2), plan.AnswersExpired)
	require.Equal(t, 10, plan.Handlers[0].IDsEstimated)
	require.Empty(t, plan.Handlers[0].Refused)
	run(exitUsage, "run")
	stdout, _ = run(exitOK, "run", "--why", "disk is full", "--actor", "eve")
	require.Equal(t, "10 IDs forgotten, 0 days of the inbox dropped (0 B); 2 answers to HTTP requests deleted\n", stdout)
	var n int
	require.NoError(t, s.db.Pool.QueryRow(t.Context(),
		`select count(*) from firstseen.audit where (actor, action, why) = ('eve', 'forget', 'disk is full')`).Scan(&n))
	require.Equal(t, 1, n)
}

// Else doctor would find fault, and retention keep every ID, for ever.
func TestATopicMadeAnewWithFewerPartitionsLeavesNothingBehindOnceItWasRestarted(t *testing.T) {
	s := newShortShop(t)
	settings := s.config(s.db.DSN) + "timeouts: {commit_interval: 1ms}\nretention: {ids: 3h}\n"
	run := func(settings string, booked int) (config string) {
		t.Helper()
		p := start(t, settings, "run")
		eventually(t, func() bool { return s.booked() == booked })
		p.signal(syscall.SIGTERM)
		require.Equal(t, exitOK, p.exit())
		return p.config
	}
	ask := func(config string, code int, args ...string) string {
		t.Helper()
		stdout, stderr, got := command(t, append(args, "--config", config)...)
		require.Equal(t, code, got, stdout+stderr)
		return stdout + stderr
	}
	s.produce(0, 20)
	config := run(settings, 20)
	consumertest.DeleteTopic(t, s.addr, s.topic)
	consumertest.CreateTopic(t, s.addr, s.topic, 1, "retention.ms=3600000", "segment.ms=600000")
	s.produce(20, 30)
	require.Contains(t, ask(config, exitFault, "doctor", "--only", "kafka.recreated"), "was deleted and created again")
	require.Contains(t, ask(config, exitOK, "retention", "plan"), "has processed "+s.topic)

	config = run(settings+"on_reset: restart\n", 30)
	require.NotContains(t, ask(config, exitOK, "retention", "plan"), "has processed")
	ask(config, exitOK, "doctor", "--only", "kafka.recreated,kafka.cut_off,kafka.positions,kafka.loss,kafka.two_databases")
}
