package main

import (
	"fmt"
	"net"
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/idempotency"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Fiber with its own idempotency middleware, and the store that this has by default: in memory, beside the effect. A
// restart forgets all keys, another instance has never heard of them, and a crash after the commit loses the answer.
// It is not net/http that serves here but fasthttp.

func serveFiber(pool *pgxpool.Pool, listener net.Listener) error {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(idempotency.New(idempotency.Config{KeyHeader: "Idempotency-Key"}))
	app.Post("/orders", func(c *fiber.Ctx) error {
		id, body := uuid.New(), slices.Clone(c.Body()) // fiber has it back when this returns
		err := pgx.BeginFunc(c.Context(), pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(c.Context(), insertEffect, [16]byte(id), body)
			return err
		})
		if err != nil {
			return err
		}
		c.Set("Content-Type", "application/json")
		c.Location("/orders/" + id.String())
		return c.Status(fiber.StatusCreated).SendString(fmt.Sprintf(`{"order":%q}`, id))
	})
	return app.Listener(listener)
}
