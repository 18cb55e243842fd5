package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/cmd/internal/config"
	"github.com/firstseen/firstseen/consumer/cluster"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/migrations"
)

// trouble is a broken state, what a check has to say about it, and at which level.
type trouble struct {
	level Level
	seen  string // a regular expression
	make  func(*lab)
}

// Each check is silent in a lab that is healthy, finds its troubles, and is silent again when they are mended. Each
// level that a check has advice for has a trouble here, and each trouble has advice.
func TestEachCheckFindsItsTroublesAndIsSilentOtherwise(t *testing.T) {
	l := newLab(t)
	t.Run("healthy", l.requireHealth)
	t.Run("healthy behind a pooler", l.requireHealthBehindPooler)
	t.Run("handlers that came together", l.requireHandlersThatCameTogetherAreNotARename)
	t.Run("lanes of what is paused", l.requireNoOverdueLaneOfWhatIsPaused)
	t.Run("messages by HTTP that wait by right", l.requireSilentByRight)
	t.Run("messages of the outbox that wait by right", l.requireOutboxSilentByRight)
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			outer := l.t
			l.t = t
			defer func() { l.t = outer }()
			require.NotEmpty(t, c.About)
			require.NotEmpty(t, troubles[c.Name], "a check without a test")
			for level, do := range c.Do {
				require.NotEmpty(t, do)
				require.Condition(t, func() bool { return hasLevel(troubles[c.Name], level) },
					"no trouble at level %s", level)
			}
			l.requireSilent(&c)
			for _, tr := range troubles[c.Name] {
				t.Run(tr.level.String(), func(t *testing.T) {
					l.t = t
					defer func() { l.t = outer }()
					l.suffer(&c, tr)
				})
			}
			l.t = t
			l.requireSilent(&c)
		})
	}
	require.Len(t, troubles, len(Checks()), "a test without a check")
}

func hasLevel(all []trouble, level Level) bool {
	for _, tr := range all {
		if tr.level == level {
			return true
		}
	}
	return false
}

// suffer makes a trouble, wants it found, and mends it.
func (l *lab) suffer(c *Check, tr trouble) {
	l.t.Helper()
	defer l.healthy()
	tr.make(l)
	seen := regexp.MustCompile(tr.seen)
	var last []Finding
	require.Eventually(l.t, func() bool {
		last = l.check(c)
		for _, f := range last {
			if f.Level == tr.level && f.Checked && seen.MatchString(f.Seen) {
				return true
			}
		}
		return false
	}, 3*time.Minute, 20*time.Millisecond, "%s: %+v", tr.seen, &last)
	for _, f := range last {
		require.Equal(l.t, c.Name, f.Check)
		require.NotEmpty(l.t, f.Do)
		require.NotContains(l.t, f.Seen, "%!")
	}
	require.Equal(l.t, tr.level, Worst(last), "%+v", last)
}

// requireHealth makes all checks at once, as the superuser and as those who may less.
func (l *lab) requireHealth(t *testing.T) {
	l.sql(`create role night_shift login in role firstseen_operator`)
	defer l.sql(`drop role night_shift`)
	for _, c := range []struct{ role, grant, notChecked string }{
		{"postgres", "", ""},
		{"night_shift", "", "sessions.transactions"},
		{"night_shift", "grant pg_monitor to night_shift", ""},
	} {
		l.sql(c.grant)
		cfg := l.cfg
		findings, err := Run(t.Context(), Case{Config: &cfg, DSN: l.dsnOf(c.role), Inbox: inbox}, Checks())
		require.NoError(t, err)
		require.Len(t, findings, len(Checks()))
		for i, check := range Checks() {
			f := findings[i]
			if check.Name == c.notChecked {
				require.Regexp(t, `^not checked: \d+ sessions of other roles, which this role is not shown$`, f.Seen)
				require.Contains(t, f.Do, "pg_monitor")
				continue
			}
			require.Equal(t, Finding{Check: check.Name, Level: OK, Checked: true, Seen: f.Seen}, f)
		}
	}
}

// requireHealthBehindPooler makes all checks through a pooler in transaction mode: it gets in the way of none.
func (l *lab) requireHealthBehindPooler(t *testing.T) {
	cfg := l.cfg
	cfg.Postgres.PreparedStatements = false
	findings, err := Run(t.Context(), Case{Config: &cfg,
		DSN: deduptest.PgBouncer(t, l.db.DSN, "default_pool_size = 3").DSN, Inbox: inbox}, Checks())
	require.NoError(t, err)
	for _, f := range findings {
		require.True(t, f.Checked && (f.Level == OK || f.Check == "postgres.pooler"), "%+v", f)
	}
}

func TestManyFindingsOfOneCheckAreCut(t *testing.T) {
	r := &report{}
	for i := range maxFindings + 5 {
		r.warn("%d", i)
	}
	r.fault("the last")
	found := r.findings(&Check{Name: "a.b", Do: map[Level]string{Warning: "w", Fault: "f"}})
	require.Len(t, found, maxFindings+1)
	require.Equal(t, Finding{Check: "a.b", Level: Fault, Checked: true, Seen: "and 6 more like these", Do: "f"},
		found[maxFindings])
}

// Where servers are away each check says so by itself, and what can be checked is.
func TestWhatCanNotBeCheckedSaysSoAndStopsNothing(t *testing.T) {
	findings, err := Run(t.Context(),
		Case{DSN: "postgres://app:hunter2@127.0.0.1:1/app", Timeout: 2 * time.Second}, Checks())
	require.NoError(t, err)
	require.Len(t, findings, len(Checks()))
	byName := map[string]Finding{}
	for _, f := range findings {
		byName[f.Check] = f
	}
	require.Equal(t, Fault, byName["postgres.reachable"].Level)
	require.Equal(t, Finding{Check: "schema.version", Level: Info,
		Seen: "not checked: postgres is not reached, see postgres.reachable"}, byName["schema.version"])
	require.Equal(t,
		Finding{Check: "kafka.lag", Level: Info, Seen: "not checked: no config is given"}, byName["kafka.lag"])
	require.Equal(t, OK, byName["config.postgres_tls"].Level)
	text, err := json.Marshal(findings)
	require.NoError(t, err)
	require.NotContains(t, string(text), "hunter2")
	require.Contains(t, string(text), `"level":"fault"`)
	require.Contains(t, advice(fmt.Errorf("topics: %w", cluster.ErrNotAllowed)), "ACL")
}

// What a check for this build finds in another schema means nothing, and its advice would do harm.
func TestAnotherSchemaIsOneFaultAndNothingInItIsChecked(t *testing.T) {
	none, older := deduptest.NewDatabase(t), deduptest.New(t).DSN
	_, err := migrations.Down(t.Context(), older, migrations.Config{}, 6)
	require.NoError(t, err)
	for name, dsn := range map[string]string{"none": none, "older": older} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Config{Group: group, Inbox: inbox,
				Topics: []config.Topic{{Name: topic, Handlers: []config.Handler{{Name: handler, Function: "book"}}}}}
			cfg.Postgres.DSN = config.Secret(dsn)
			checks := slices.DeleteFunc(Checks(),
				func(c Check) bool { return c.Group() == "kafka" || c.Name == "settings.durability" })
			findings, err := Run(t.Context(), Case{Config: &cfg, DSN: dsn, Inbox: inbox}, checks)
			require.NoError(t, err)
			var faults, unchecked int
			for _, f := range findings {
				if f.Level == Fault {
					faults++
					require.Equal(t, "schema.version", f.Check, f.Seen)
					require.Contains(t, f.Do, "migrate up")
				}
				if f.Seen == "not checked: "+errOtherSchema.Error() {
					unchecked++
				}
			}
			require.Equal(t, 1, faults)
			require.Greater(t, unchecked, 25)
		})
	}
}

func TestASlowCheckEndsAtItsLimitAndTheNextIsMade(t *testing.T) {
	slow := Check{Name: "a.slow", run: func(ctx context.Context, _ *target, r *report) error {
		r.ok("so far")
		<-ctx.Done()
		return ctx.Err()
	}}
	fast := Check{Name: "a.fast",
		run: func(_ context.Context, _ *target, r *report) error { r.ok("fine"); return nil }}
	findings, err := Run(t.Context(), Case{Timeout: time.Millisecond}, []Check{slow, fast})
	require.NoError(t, err)
	require.Len(t, findings, 2)
	require.Equal(t, "not checked: it took longer than 1ms", findings[0].Seen)
	require.Contains(t, findings[0].Do, "--timeout")
	require.Equal(t, OK, findings[1].Level)
}

func TestChecksThatTheTimeDidNotReachSaySo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	last := Check{Name: "a.last", run: func(_ context.Context, _ *target, r *report) error {
		r.warn("seen")
		cancel()
		return nil
	}}
	findings := Within(ctx, Case{}, []Check{last, {Name: "a.next"}, {Name: "b.next"}})
	require.Len(t, findings, 3)
	require.Equal(t, "seen", findings[0].Seen)
	for i, name := range []string{"a.next", "b.next"} {
		require.Equal(t, Finding{Check: name, Level: Info, Seen: "not checked: the time was over before",
			Do: "Run it by itself: firstseen doctor --only " + name}, findings[i+1])
	}
}

func TestSelectTakesChecksAndGroups(t *testing.T) {
	all, err := Select(nil)
	require.NoError(t, err)
	require.Len(t, all, len(Checks()))
	some, err := Select([]string{"ids", "kafka.lag"})
	require.NoError(t, err)
	require.Len(t, some, len(idChecks)+1)
	_, err = Select([]string{"ids", "nonsense"})
	require.ErrorContains(t, err, `no check "nonsense"`)
	names := map[string]bool{}
	for _, c := range all {
		require.Regexp(t, `^[a-z]+\.[a-z_]+$`, c.Name)
		require.False(t, names[c.Name], c.Name)
		names[c.Name] = true
	}
}
