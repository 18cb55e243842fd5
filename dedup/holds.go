package dedup

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/dedup/holds"
	"github.com/firstseen/firstseen/dedup/internal/db"
	"github.com/firstseen/firstseen/dedup/wait"
)

// HoldsStale is the age from which what a process has told of its holds counts no more. A process tells anew every
// third of it; one that has not is gone, or can't reach Postgres.
const HoldsStale = 90 * time.Second

const (
	// maxHoldsTold caps the holds that are stored of a process, and maxReason the bytes of each reason.
	maxHoldsTold = 1000
	maxReason    = 500
)

// tellHoldsSQL leaves nothing of processes that were killed long ago.
const tellHoldsSQL = `
with forgotten as (delete from firstseen.holds where consumer = $1 and told_at < now() - interval '1 day'),
ended as (delete from firstseen.holds where consumer = $1 and member = $2 and $4::jsonb = '[]'::jsonb)
insert into firstseen.holds as h (consumer, member, owner, told_at, holds)
select $1, $2, $3, now(), $4::jsonb
where $4::jsonb <> '[]'::jsonb
on conflict (consumer, member) do update set owner = excluded.owner, told_at = excluded.told_at, holds = excluded.holds`

// TellHolds writes down what waits in a process of a consumer, for those who look from outside, in place of what it
// told before. Of very many the first are kept.
func (s *Store) TellHolds(ctx context.Context, consumer string, member uuid.UUID, owner string,
	list []holds.Hold) error {
	told := make([]holds.Hold, 0, len(list))
	for _, h := range list[:min(len(list), maxHoldsTold)] {
		h.Reason = clean(h.Reason, maxReason)
		h.Name = clean(h.Name, maxReason)
		told = append(told, h)
	}
	text, err := json.Marshal(told)
	if err == nil {
		_, err = s.db.Pool.Exec(ctx, s.db.SQL(tellHoldsSQL), consumer, member, owner, string(text))
	}
	if err != nil {
		return fmt.Errorf("tell the holds of consumer %s: %w", consumer, db.RightsError(err))
	}
	return nil
}

// clean is a text that jsonb takes, of so many bytes at most.
func clean(text string, most int) string {
	if len(text) > most {
		text = text[:most] + " …"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "\ufffd")
}

// tellTimeout bounds the wait for Postgres.
const tellTimeout = 5 * time.Second

// KeepHoldsTold tells what waits in this process of a consumer, each time that it changes, until ctx ends, and then that
// nothing waits here any more. While Postgres is away nobody is told: who looks sees that himself.
func (s *Store) KeepHoldsTold(ctx context.Context, consumer string, from *holds.Registry, log *slog.Logger) {
	member := uuid.New()
	var told []holds.Hold
	var toldAt time.Time
	for more := true; more; {
		more = wait.Sleep(ctx, time.Second)
		list := from.List()
		if !more {
			list = nil
		}
		if slices.EqualFunc(list, told, sameHold) && (len(list) == 0 || time.Since(toldAt) <= HoldsStale/3) {
			continue
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
		if err := s.TellHolds(limited, consumer, member, ThisProcess(), list); err != nil {
			log.Debug("holds not told to Postgres", "error", err)
		} else {
			told, toldAt = list, time.Now()
		}
		cancel()
	}
}

// sameHold says whether two are the same but for their tries.
func sameHold(a, b holds.Hold) bool {
	return a.Subject == b.Subject && a.Code == b.Code && a.Since.Equal(b.Since)
}
