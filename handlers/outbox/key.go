package outbox

import (
	"strings"

	"github.com/firstseen/firstseen/dedup/identity"
)

// KeyOf is an idempotency key that follows from what happened: the same tenant, category, entity, kind and version give
// the same key, however they are spelled. Say KeyOf("acme", "orders", "o-17", "shipped", 3).
//
// It is [identity.KeyOf] of the parts without ASCII's white space around them, and with A to Z as a to z. So no part
// can pass for another's end, and other languages can make it: SHA-256 over the six parts "firstseen/key/1", tenant,
// category, entity, kind and the version as 8 big-endian bytes, each part preceded by its length in bytes as 8
// big-endian bytes; of that the first 16 bytes, as a UUID of version 8. Letters beyond ASCII keep their case: Unicode's
// tables change between releases, and a key must not. Where case tells entities apart use identity.KeyOf.
//
//	("acme", "orders", "o-17", "shipped", 3)     c186fd39-45fc-853b-8cd1-026a3a928979
//	(" ACME", "Orders\n", "O-17", "SHIPPED", 3)  the same
//	("", "", "", "", 0)                          b2012cb8-8db6-8d93-9c65-42d9f0d6575c
//	("acme", "orderso", "-17", "shipped", 3)     31acb576-769c-8851-b55a-b72826c9251d
func KeyOf(tenant, category, entity, kind string, version int64) string {
	return identity.KeyOf(normal(tenant), normal(category), normal(entity), normal(kind), version).String()
}

func normal(part string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, strings.Trim(part, " \t\n\v\f\r"))
}
