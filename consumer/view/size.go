package view

import (
	"time"

	"github.com/firstseen/firstseen/dedup/operate"
)

// Size is the space that is taken in Postgres, all inboxes of the schema together.
type Size struct {
	At            time.Time   `json:"at"`
	UsedBytes     int64       `json:"used_bytes" doc:"All databases of the server. The WAL comes on top."`
	CapacityBytes *int64      `json:"capacity_bytes" doc:"postgres.capacity of the config."`
	FullInDays    *int64      `json:"full_in_days" doc:"When the disk is full at this growth; null where that is never, or not known."`
	Tables        []TableSize `json:"tables"`
	Scopes        []ScopeSize `json:"scopes" doc:"Shares of the message IDs, the largest first."`
	ScopesAt      *time.Time  `json:"scopes_at" doc:"When the statistics behind the shares were taken; null: just now, from a sample."`
	FirstDay      *string     `json:"inbox_first_day"`
	LastDay       *string     `json:"inbox_last_day"`
	IDIndex       IndexSize   `json:"id_index"`
	Growth        Growth      `json:"growth" doc:"What a day brings, by the inbox's last whole days."`
}

// TableSize is one table, or several that belong together.
type TableSize struct {
	Name  string `json:"name"`
	Rows  int64  `json:"rows_estimated"`
	Bytes int64  `json:"bytes"`
}

// ScopeSize is one scope's share of the IDs.
type ScopeSize struct {
	Inbox   string  `json:"inbox"`
	Handler string  `json:"handler"`
	Tenant  string  `json:"tenant"`
	IDs     int64   `json:"ids_estimated"`
	Share   float64 `json:"share"`
}

// IndexSize is the index of the message IDs beside a fresh one.
type IndexSize struct {
	Bytes   int64   `json:"bytes"`
	Fresh   int64   `json:"fresh_bytes"`
	Bloat   float64 `json:"bloat"`
	Rebuild bool    `json:"rebuild" doc:"It is so much larger that rebuilding it pays."`
}

// Growth is a day's growth.
type Growth struct {
	From       *time.Time `json:"from"`
	To         *time.Time `json:"to"`
	IDs        int64      `json:"ids_per_day"`
	IDBytes    int64      `json:"id_bytes_per_day"`
	InboxBytes int64      `json:"inbox_bytes_per_day"`
}

// SizeOf is the space, and when a disk of so many bytes is full, 0 where that is not known. Message IDs are kept for
// the time ids, and processed messages for the time inbox; 0 is for ever.
func SizeOf(s *operate.Size, capacity int64, ids, inbox time.Duration) Size {
	g := s.Growth
	out := Size{At: s.At.UTC(), UsedBytes: s.Used,
		Tables: List(s.Tables, func(t *operate.TableSize) TableSize { return TableSize{t.Name, t.Rows, t.Bytes} }),
		Scopes: List(s.Scopes, func(f *operate.ScopeSize) ScopeSize {
			return ScopeSize{f.Inbox, f.Handler, f.Tenant,
				f.Rows, f.Share}
		}),
		ScopesAt: Moment(s.ScopesAt), FirstDay: day(s.FirstDay), LastDay: day(s.LastDay),
		IDIndex: IndexSize{s.IDIndex.Bytes, s.IDIndex.Fresh, s.IDIndex.Bloat(), WorthRebuilding(s.IDIndex)},
		Growth:  Growth{Moment(g.From), Moment(g.To), g.IDs, g.IDBytes, g.InboxBytes}}
	if capacity > 0 {
		out.CapacityBytes = &capacity
		if days, ok := s.FullIn(capacity, ids, inbox); ok {
			whole := int64(days)
			out.FullInDays = &whole
		}
	}
	return out
}

// WorthRebuilding says whether deletes have left an index much larger than even random IDs keep it.
func WorthRebuilding(i operate.IndexSize) bool { return i.Bloat() > 1.8 && i.Bytes > 64<<20 }
