package deduptest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/firstseen/firstseen/dedup/wait"
)

// day is what the inbox is partitioned by, in UTC.
const day = 24 * time.Hour

// InboxDay gives the day (UTC) so many days ago, with its partition of the inbox: a test that has passed midnight may
// have the day's partition already. It is AwayFromMidnight too.
func InboxDay(t testing.TB, pool *pgxpool.Pool, ago int) time.Time {
	t.Helper()
	AwayFromMidnight(t)
	from := time.Now().UTC().Truncate(day).AddDate(0, 0, -ago)
	sql := fmt.Sprintf(
		`create table if not exists firstseen.inbox_%s partition of firstseen.inbox for values from ('%s') to ('%s')`,
		from.Format("20060102"), from.Format(time.RFC3339), from.Add(day).Format(time.RFC3339))
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatalf("deduptest: make the inbox's day %s: %v", from.Format(time.DateOnly), err)
	}
	return from
}

// oneDay is the time that a test has whose day must not change meanwhile.
const oneDay = 2 * time.Minute

// AwayFromMidnight has a test begin behind midnight (UTC) where that is nearer than two minutes: one that counts days,
// or the partitions that are made of them, and begins in one day and ends in the next would find others.
func AwayFromMidnight(t testing.TB) {
	t.Helper()
	if pause := untilMorning(time.Now()); pause > 0 {
		t.Logf("deduptest: it is midnight in %s, which is waited for", pause)
		wait.Sleep(context.Background(), pause)
	}
}

// untilMorning is how long a test has to wait for the next day; 0: it need not.
func untilMorning(now time.Time) time.Duration {
	midnight := now.UTC().Truncate(day).Add(day)
	if left := midnight.Sub(now); left < oneDay {
		return left + time.Second // clocks
	}
	return 0
}
