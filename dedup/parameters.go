package dedup

import (
	"bytes"
	"cmp"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"
)

// columns are a batch's parameters and its inbox rows, encoded; kept for the next batch.
type columns struct {
	// entries to insert, by (scope, id), without twins that are known to be duplicates
	order                     []int32
	scopes, ids, fingerprints array
	inbox                     copyRows
}

var columnPool = sync.Pool{New: func() any { return new(columns) }}

// maxPooled keeps one giant batch from holding its memory for ever.
const maxPooled = 16 << 20

func (c *columns) release() {
	c.inbox.large = nil
	if cap(c.inbox.buf) <= maxPooled {
		columnPool.Put(c)
	}
}

// sort orders the entries by (scope, id) and drops all but the first of each.
func (c *columns) sort(entries []Entry) {
	c.order = c.order[:0]
	for i := range entries {
		c.order = append(c.order, int32(i))
	}
	compare := func(i, j int32) int {
		a, b := &entries[i], &entries[j]
		if a.Scope != b.Scope {
			return cmp.Compare(a.Scope, b.Scope)
		}
		return bytes.Compare(a.Message.ID[:], b.Message.ID[:])
	}
	slices.SortFunc(c.order, func(i, j int32) int {
		if by := compare(i, j); by != 0 {
			return by
		}
		return cmp.Compare(i, j)
	})
	// A twin with a fingerprint is Postgres' to judge: it may be a duplicate of the one that won, or a conflict.
	c.order = slices.CompactFunc(c.order, func(i, j int32) bool {
		return compare(i, j) == 0 && entries[j].Message.Fingerprint == nil
	})
}

func (c *columns) acceptKeys(entries []Entry) (int32Array, uuidArray, any) {
	c.scopes.reset(pgtype.Int4OID)
	c.ids.reset(pgtype.UUIDOID)
	c.fingerprints.reset(pgtype.ByteaOID)
	for _, i := range c.order {
		c.scopes.int32(entries[i].Scope)
		c.ids.uuid(entries[i].Message.ID)
		c.fingerprints.bytea(entries[i].Message.Fingerprint)
	}
	if c.fingerprints.nulls == c.fingerprints.n {
		return c.scopes.bytes(), c.ids.bytes(), nil
	}
	return c.scopes.bytes(), c.ids.bytes(), byteaArray(c.fingerprints.bytes())
}
