package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

const ordersPath = "/orders"

// order is each request's body: JSON of about as many bytes as a message has.
var order = fmt.Appendf(nil, `{"item":"book","note":"%s"}`, bytes.Repeat([]byte("x"), payloadBytes))

// keying says which key the next request of a client has; empty for none.
type keying func(client int) string

func noKeys(int) string    { return "" }
func freshKeys(int) string { return uuid.NewString() }

// keptKeys are keys of so many clients that were answered before. Each client has its own: none meets its twin.
type keptKeys [][]string

func (k keptKeys) again(client int) string { return k[client][rand.IntN(len(k[client]))] }

// clients are so many people who each send a request when they have the last one's answer, on a connection that they
// keep.
type clients struct {
	url  string
	n    int
	key  keying
	http *http.Client
}

func newClients(address string, n int, key keying) *clients {
	return &clients{url: "http://" + address + ordersPath, n: n, key: key,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}}
}

func (c *clients) close() { c.http.CloseIdleConnections() }

type heard struct {
	took     time.Duration
	answers  []time.Duration // how long each took
	replayed int             // of them
}

func (h heard) rate() float64 { return float64(len(h.answers)) / h.took.Seconds() }

// ask sends requests for a while, of each client one at least.
func (c *clients) ask(ctx context.Context, d time.Duration) (h heard, err error) {
	var mu sync.Mutex
	var all errgroup.Group
	start := time.Now()
	for client := range c.n {
		all.Go(func() error {
			var own heard
			for len(own.answers) == 0 || time.Since(start) < d {
				if err := own.add(ctx, c, c.key(client)); err != nil {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			h.answers, h.replayed = slices.Concat(h.answers, own.answers), h.replayed+own.replayed
			return nil
		})
	}
	err = all.Wait()
	h.took = time.Since(start)
	return h, err
}

// add sends one request.
func (h *heard) add(ctx context.Context, c *clients, key string) error {
	start := time.Now()
	replayed, err := c.post(ctx, key)
	if err != nil {
		return err
	}
	h.answers = append(h.answers, time.Since(start))
	if replayed {
		h.replayed++
	}
	return nil
}

// post sends the order with a key, and says whether its answer was given before.
func (c *clients) post(ctx context.Context, key string) (replayed bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(order))
	if err != nil {
		return false, err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return false, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err == nil && response.StatusCode != http.StatusCreated {
		err = fmt.Errorf("%s: %s: %s", c.url, response.Status, body)
	}
	return response.Header.Get("Idempotency-Replayed") == "true", err
}
