package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firstseen/firstseen/dedup"
	"github.com/firstseen/firstseen/dedup/deduptest"
	"github.com/firstseen/firstseen/handlers"
	"github.com/firstseen/firstseen/handlers/handlertest"
)

func TestMain(m *testing.M) { os.Exit(deduptest.Main(m)) }

func TestPaymentForNobodyIsADeadLetter(t *testing.T) {
	db := deduptest.New(t)
	_, err := db.Pool.Exec(t.Context(), setupSQL)
	require.NoError(t, err)
	book := handlers.Each(handlers.JSON(bookPayment))
	pay := func(value string) error {
		return handlertest.Handle(t, db.Pool, book, dedup.Message{Value: []byte(value)})
	}
	require.NoError(t, pay(`{"id": "p-1", "account": "alice", "amount": 1}`))
	require.Equal(t, "permanent", handlers.ReasonOf(pay(`{"id": "p-2", "account": "carol", "amount": 1}`)))
	require.Equal(t, "undecodable", handlers.ReasonOf(pay(`{"id": "p-3", "account": "alice", "amount": "1"}`)))
}
