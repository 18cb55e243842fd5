package operate

import (
	"context"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/internal/db"
)

// How many letters are few, and in how many scopes they are looked for. Where they are more, a list that is read back
// from the newest has its page soon.
const (
	fewLetters = 1000
	fewScopes  = 2000
)

const (
	lettersOfTopic = `select d.message_id::text from firstseen.dead_letters d where d.topic collate "C" = $1 limit $2`

	// scopesOf skips from handler to handler, so that a tenant is found among many.
	scopesOf = `
with recursive names as (
	select (select min(s.handler) from firstseen.scopes s where s.inbox = $1) as handler
	union all
	select (select min(s.handler) from firstseen.scopes s where s.inbox = $1 and s.handler > n.handler)
	from names n where n.handler is not null)
select s.scope_id from names n cross join lateral (
	select s.scope_id from firstseen.scopes s where s.inbox = $1 and s.handler = n.handler`
	lettersOfScopes = `
select d.message_id::text from unnest($1::int[]) s (scope_id) cross join lateral (
	select d.message_id from firstseen.dead_letters d where d.scope_id = s.scope_id limit $2) d
limit $2`
)

// fewDead narrows a filter of dead letters to their IDs, where its topic, or its handler and tenant, are of few: so
// that what is rare is not looked for among all that died. IDs of other inboxes may be among them.
func (in *Inbox) fewDead(ctx context.Context, f Filter) (Filter, error) {
	if f.IDs != nil {
		return f, nil
	}
	if f.Topic != "" {
		ids, err := in.few(ctx, lettersOfTopic, f.Topic)
		if err != nil || ids != nil {
			f.IDs = ids
			return f, err
		}
	}
	if f.Handler == "" && f.Tenant == "" {
		return f, nil
	}
	scopes, err := in.scopesOf(ctx, f)
	if err != nil || len(scopes) > fewScopes {
		return f, err
	}
	f.IDs, err = in.few(ctx, lettersOfScopes, scopes)
	return f, err
}

// scopesOf are the inbox's scopes of a filter's handler and tenant, up to one more than are few.
func (in *Inbox) scopesOf(ctx context.Context, f Filter) ([]int32, error) {
	c := &condition{args: []any{in.db.Inbox, fewScopes + 1}}
	if f.Tenant != "" {
		c.add("s.tenant = $%d", f.Tenant)
	}
	sql := scopesOf
	for _, term := range c.terms {
		sql += " and " + term
	}
	sql += " limit $2) s\nwhere n.handler is not null"
	if f.Handler != "" {
		c.args = append(c.args, f.Handler)
		sql += " and n.handler = $" + strconv.Itoa(len(c.args))
	}
	return db.LookAll(ctx, in.db, byIndex, pgx.RowTo[int32], sql+"\nlimit $2", c.args...)
}

// few gives the IDs that a query finds, nil where they are not few.
func (in *Inbox) few(ctx context.Context, sql string, of any) ([]uuid.UUID, error) {
	found, err := db.LookAll(ctx, in.db, byIndex, pgx.RowTo[string], sql, of, fewLetters+1)
	if err != nil || len(found) > fewLetters {
		return nil, err
	}
	ids := make([]uuid.UUID, len(found))
	for i, text := range found {
		if ids[i], err = uuid.Parse(text); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// byIndex has the planner take an index.
var byIndex = []string{"enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"}
