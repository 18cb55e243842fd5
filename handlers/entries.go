package handlers

import (
	"context"
	"sort"
	"time"

	"github.com/firstseen/firstseen/dedup"
)

// scoping gives the number of each scope, in the order of keys.
type scoping func(ctx context.Context, keys []dedup.ScopeKey) (dedup.Scopes, error)

// entries lays out the messages once for each handler: all of the first handler, then all of the second. It gives the
// server that has their scopes.
func entries(ctx context.Context, ms []dedup.Message, targets []*registered, scopesOf scoping) (
	entries []dedup.Entry, server time.Time, err error) {
	entries = make([]dedup.Entry, 0, len(ms)*len(targets))
	if len(ms) == 0 {
		return entries, server, nil
	}
	tenants, ofMessage := tenantsOf(ms)
	keys := make([]dedup.ScopeKey, 0, len(tenants)*len(targets))
	for _, target := range targets {
		for _, tenant := range tenants {
			keys = append(keys, dedup.ScopeKey{Handler: target.name, Tenant: tenant})
		}
	}
	scopes, err := scopesOf(ctx, keys)
	if err != nil {
		return nil, server, err
	}
	for t := range targets {
		for i := range ms {
			scope := scopes.IDs[t*len(tenants)+ofMessage(i)]
			entries = append(entries, dedup.Entry{Scope: scope, Message: &ms[i]})
		}
	}
	return entries, scopes.Server, nil
}

// tenantsOf lists the tenants of a batch, and gives the place of each message's tenant in that list.
func tenantsOf(ms []dedup.Message) (tenants []string, ofMessage func(i int) int) {
	places := map[string]int{}
	for i := range ms {
		if i > 0 && ms[i].Tenant == ms[i-1].Tenant {
			continue
		}
		if _, ok := places[ms[i].Tenant]; !ok {
			places[ms[i].Tenant] = len(tenants)
			tenants = append(tenants, ms[i].Tenant)
		}
	}
	if len(tenants) == 1 {
		return tenants, func(int) int { return 0 }
	}
	return tenants, func(i int) int { return places[ms[i].Tenant] }
}

func count(entries []dedup.Entry) Result {
	var r Result
	for i := range entries {
		switch e := &entries[i]; {
		case e.Outcome == dedup.Conflict:
			r.Conflicts++
		case e.Outcome == dedup.Buried:
			r.Buried++
		case e.Outcome == dedup.Duplicate:
			r.Duplicates++
		case e.State == dedup.Parked:
			r.Parked++
		case e.State == dedup.Dead:
			r.Dead++
		default:
			r.New++
		}
	}
	return r
}

// messagesOf are a part of the batch's own slice, where nothing is left out in between.
func (r *run) messagesOf(entries []*dedup.Entry) []dedup.Message {
	n := len(entries)
	at := sort.Search(len(r.all), func(i int) bool { return r.all[i].Offset >= entries[0].Message.Offset })
	if at+n <= len(r.all) && entries[0].Message == &r.all[at] && entries[n-1].Message == &r.all[at+n-1] {
		return r.all[at : at+n : at+n]
	}
	ms := make([]dedup.Message, n)
	for i, e := range entries {
		ms[i] = *e.Message
	}
	return ms
}
