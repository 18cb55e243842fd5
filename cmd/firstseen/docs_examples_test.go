package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/migrations"
)

const (
	shopConfig   = "docs/examples/shop/firstseen.yaml"
	shopHandlers = "docs/examples/shop/handlers.sql"
)

func TestComposeOfTheExamplesStartsWhatThereIs(t *testing.T) {
	parsed := checkServers(t, readFile(t, "docs/examples/compose.yaml"))
	for _, service := range []string{"migrate", "firstseen"} {
		var args []string
		for _, a := range object(parsed).at("services." + service + ".command").([]any) {
			args = append(args, fmt.Sprint(a))
		}
		assert.NoError(t, checkCommandLine(args), service)
	}
	require.NoError(t, loadConfig(t, readFile(t, shopConfig), nil))
	examples := filepath.Join(root(t), "docs", "examples")
	for _, service := range []string{"handlers", "firstseen", "orders"} {
		mounted := object(parsed).at("services." + service + ".volumes").([]any)[0].(string)
		path, _, _ := strings.Cut(mounted, ":")
		_, err := os.Stat(filepath.Join(examples, path))
		assert.NoError(t, err, service)
	}
	build := object(parsed).at("services.firstseen.build").(map[string]any)
	assert.FileExists(t, filepath.Join(examples, fmt.Sprint(build["context"]), fmt.Sprint(build["dockerfile"])))
}

// The shop's handler works, by a login that may do no more.
func TestShopOfTheExamplesWritesOneInvoiceForAnOrder(t *testing.T) {
	db := deduptest.New(t)
	_, err := migrations.ApplyRoles(t.Context(), db.DSN, migrations.Config{})
	require.NoError(t, err)
	for range 2 { // compose runs it at each start
		_, err = db.Pool.Exec(t.Context(), readFile(t, shopHandlers))
		require.NoError(t, err)
	}
	t.Cleanup(func() { _, _ = db.Pool.Exec(context.Background(), `drop owned by billing; drop role billing`) })
	billing := deduptest.OpenPool(t, deduptest.As(t, db.DSN, "billing"), nil)
	store, err := dedup.Open(t.Context(), billing, dedup.Config{Inbox: "billing"})
	require.NoError(t, err)
	invoice, err := handlers.NewSQL(t.Context(), billing, "", "billing.invoice_orders")
	require.NoError(t, err)
	var registry handlers.Registry
	require.NoError(t, registry.Register("invoices", invoice, "orders"))
	processor, err := handlers.NewProcessor(handlers.Config{Store: store, Handlers: &registry})
	require.NoError(t, err)
	order := dedup.Message{ID: uuid.New(), Topic: "orders", Value: []byte(`{"id": 1, "item": "book"}`)}
	for range 2 {
		_, err = processor.Process(t.Context(), handlers.Batch{Messages: []dedup.Message{order}})
		require.NoError(t, err)
	}
	var item string
	require.NoError(t, db.Pool.QueryRow(t.Context(), `select item from billing.invoices`).Scan(&item))
	require.Equal(t, "book", item)
}
