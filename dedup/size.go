package dedup

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Size is the space that a store's schema takes, all inboxes together. Bytes are those of the files, with indexes and
// TOAST; rows are estimates.
type Size struct {
	// At is the database's time.
	At time.Time
	// Used is the bytes of all databases of the server that the role may connect to. The WAL comes on top.
	Used int64
	// Tables are message_dedup, inbox (all days), parked (with lanes), dead_letters and rest, in this order.
	Tables []TableSize
	// Scopes are the shares of message_dedup, the largest first: those that the statistics know, a hundred or so.
	// ScopesAt is when the statistics were taken; zero: from a sample of a thousand pages, just now.
	Scopes   []ScopeSize
	ScopesAt time.Time
	// IDIndex is the primary key of message_dedup, which every message is looked up in.
	IDIndex IndexSize
	// FirstDay and LastDay are the days (UTC) of the inbox that hold rows; zero where none does.
	FirstDay, LastDay time.Time
	// Began is when the first scope was made: no ID is older.
	Began  time.Time
	Growth Growth
}

// TableSize is one table, or several that belong together.
type TableSize struct {
	Name string
	// Rows is scaled from the statistics by the file's size, as the planner does it; where there are none yet, from the
	// first pages.
	Rows  int64
	Bytes int64
}

// ScopeSize is one scope's share of the message IDs.
type ScopeSize struct {
	Inbox, Handler, Tenant string
	Rows                   int64
	Share                  float64 // of all IDs, 0 to 1
}

// IndexSize compares an index with one that is made anew of the same rows.
type IndexSize struct {
	Bytes, Fresh int64
}

// Bloat is how many times as large the index is as a fresh one. IDs in random order (version 4) keep it at about 1.4,
// which is no fault. It is 0 where nothing is known.
func (i IndexSize) Bloat() float64 {
	if i.Fresh == 0 {
		return 0
	}
	return float64(i.Bytes) / float64(i.Fresh)
}

// Growth is what a day brings, the mean over From to To. The zero Growth is not known: the inbox has no whole day yet, and
// has had messages for less than an hour.
type Growth struct {
	From, To time.Time
	// IDs is message IDs a day, one for each handler that a message goes to: estimated rows of the inbox's days.
	IDs int64
	// IDBytes is these IDs by what one takes now, InboxBytes what the inbox's days take, exactly.
	IDBytes, InboxBytes int64
}

// sizeLimit ends the queries of one Size.
const sizeLimit = "15s"

// Size measures what is kept. It reads statistics, sizes of files and a bounded number of pages, never a whole table.
func (s *Store) Size(ctx context.Context) (size Size, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := limitTx(ctx, tx, "1s", sizeLimit); err != nil {
			return err
		}
		size, err = s.size(ctx, tx)
		return err
	})
	if err != nil {
		return Size{}, fmt.Errorf("measure schema %s: %w", s.cfg.Schema, err)
	}
	return size, nil
}

// limitTx limits how long the transaction's statements wait for locks, and how long they take.
func limitTx(ctx context.Context, tx pgx.Tx, lock, statement string) error {
	_, err := tx.Exec(ctx, `select set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)`, lock, statement)
	return err
}

func (s *Store) size(ctx context.Context, tx pgx.Tx) (Size, error) {
	var size Size
	err := tx.QueryRow(ctx, s.db.SQL(usedSQL)).Scan(&size.At, &size.Used, &size.Began)
	if err != nil {
		return size, err
	}
	relations, err := s.relations(ctx, tx)
	if err != nil {
		return size, err
	}
	size.add(relations)
	dedup := size.Tables[0]
	if size.IDIndex.Bytes, err = idIndexBytes(ctx, tx, s.db.SQL(idIndexSQL)); err != nil {
		return size, err
	}
	size.IDIndex.Fresh = freshIDIndex(dedup.Rows)
	if err := s.scopeSizes(ctx, tx, &size); err != nil {
		return size, err
	}
	first, err := s.firstReceived(ctx, tx, size.FirstDay)
	size.Growth = growth(relations, size.At, first)
	if dedup.Rows > 0 {
		size.Growth.IDBytes = int64(float64(size.Growth.IDs) * float64(dedup.Bytes) / float64(dedup.Rows))
	}
	return size, err
}

const usedSQL = `
select now(), (
	select coalesce(sum(pg_database_size(oid)), 0)::bigint
	from pg_database
	where datname = current_database() or has_database_privilege(oid, 'connect')),
	coalesce((select min(created_at) from firstseen.scopes), now())`

const idIndexSQL = `select pg_relation_size('firstseen.message_dedup_pkey')`

func idIndexBytes(ctx context.Context, tx pgx.Tx, sql string) (n int64, err error) {
	return n, tx.QueryRow(ctx, sql).Scan(&n)
}

// freshIDIndex is what the primary key takes when it is made anew: entries of 36 bytes in pages of 8152 that are filled
// to 90 %, and one page above each two hundred.
func freshIDIndex(rows int64) int64 {
	const perPage = 8152 * 9 / 10 / 36
	pages := (rows + perPage - 1) / perPage
	return (pages + pages/perPage) * 8192
}

// Table gives the table of that name, or a zero one.
func (s *Size) Table(name string) TableSize {
	for _, t := range s.Tables {
		if t.Name == name {
			return t
		}
	}
	return TableSize{Name: name}
}

// add sums relations up into tables.
func (s *Size) add(relations []relation) {
	s.Tables = []TableSize{{Name: "message_dedup"}, {Name: "inbox"}, {Name: "parked"}, {Name: "dead_letters"}, {Name: "rest"}}
	for _, r := range relations {
		t := &s.Tables[len(s.Tables)-1]
		for i := range s.Tables {
			if s.Tables[i].Name == r.group {
				t = &s.Tables[i]
			}
		}
		t.Bytes += r.bytes
		if r.name != "lanes" { // no messages
			t.Rows += r.rows
		}
		if r.day.IsZero() || r.pages == 0 {
			continue
		}
		if s.FirstDay.IsZero() {
			s.FirstDay = r.day
		}
		s.LastDay = r.day
	}
}

// FullIn is in how many days a disk of so many bytes is full at this growth, where IDs and the inbox are kept for so
// long (0: for ever). ok is false where it never is, or no growth is known.
func (s *Size) FullIn(capacity int64, ids, inbox time.Duration) (days float64, ok bool) {
	free := float64(capacity - s.Used)
	if free <= 0 {
		return 0, true
	}
	const never = 1e6
	growing := func(since time.Time, kept time.Duration) float64 { // for how many days yet
		if kept <= 0 {
			return never
		}
		return max(0, (kept-s.At.Sub(since)).Hours()/24)
	}
	idDays, inboxDays := growing(s.Began, ids), growing(s.FirstDay, inbox)
	both := min(idDays, inboxDays)
	idRate, inboxRate := float64(s.Growth.IDBytes), float64(s.Growth.InboxBytes)
	if days := free / max(idRate+inboxRate, 1e-9); days <= both {
		return days, true
	}
	free -= both * (idRate + inboxRate)
	rate, until := idRate, idDays
	if inboxDays > idDays {
		rate, until = inboxRate, inboxDays
	}
	days = both + free/max(rate, 1e-9)
	return days, days <= until && days < never
}
